//! The program without one of its protections: the same histories find each.

use std::time::Duration;

use ccm_cloud::RouteTarget;
use ccm_sim::cloud::routes::SimRoute;
use tokio::time::sleep;

use crate::{
    play,
    rules::{Rule, Rules},
    without::Without::{self, *},
    world::{Variant, World, port},
};

/// The histories of one search.
const SEARCHED: u64 = 24;

/// Plays histories until this rule is broken. The program as it is breaks none in the same ones.
async fn is_found(variant: Variant, by: Rule) {
    for seed in 0..SEARCHED {
        let broken = play(seed, variant).await;
        if let Some((_, how)) = broken.iter().find(|(rule, _)| *rule == by) {
            eprintln!("history {seed}: {how}");
            return;
        }
    }
    panic!("{SEARCHED} histories, and no rule {by:?} is broken");
}

/// A protection that other settings take out.
async fn settings_are_found(arguments: &'static [&'static str], by: Rule) {
    is_found(Variant { arguments, ..Variant::default() }, by).await;
}

async fn lack_is_found(without: Without, by: Rule) {
    is_found(Variant { without: Some(without), ..Variant::default() }, by).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_brake() {
    settings_are_found(&["--route-loss=100%"], Rule::Loss).await;
}

#[tokio::test(start_paused = true)]
async fn a_brake_that_a_new_leader_forgets() {
    is_found(Variant { forgets: true, ..Variant::default() }, Rule::Loss).await;
}

#[tokio::test(start_paused = true)]
async fn routes_outside_of_the_cluster_cidrs() {
    settings_are_found(&["--cluster-cidr=0.0.0.0/0,fd00:120::/48"], Rule::Foreign).await;
}

#[tokio::test(start_paused = true)]
async fn routes_of_another_cluster() {
    lack_is_found(Owner, Rule::Foreign).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_targets_that_are_not_looked_up() {
    lack_is_found(Look, Rule::Foreign).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_targets_that_are_looked_up_once() {
    lack_is_found(SecondLook, Rule::Proof).await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_believed_whatever_it_says() {
    lack_is_found(Witnesses, Rule::Proof).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_before_the_answer_to_the_last_one() {
    lack_is_found(InFlight, Rule::Overlap).await;
}

#[tokio::test(start_paused = true)]
async fn calls_side_by_side_where_versions_are_compared() {
    lack_is_found(Versions, Rule::Version).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_and_a_creation_in_place_of_a_replacement() {
    lack_is_found(Replace, Rule::Gap).await;
}

#[tokio::test(start_paused = true)]
async fn the_old_target_goes_before_the_new_one_is_there() {
    lack_is_found(NewFirst, Rule::Gap).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_whatever_is_there() {
    // In a random history people seldom change a route just before its node goes.
    for (without, is_broken) in [(None, false), (Some(Seen), true)] {
        let mut broken = Vec::new();
        for seed in 0..6 {
            let variant = Variant { without, ..Variant::default() };
            broken.extend(replaced_before_its_node_goes(seed, variant).await);
        }
        assert_eq!(broken.iter().any(|(rule, _)| *rule == Rule::Foreign), is_broken, "{broken:?}");
    }
}

async fn replaced_before_its_node_goes(seed: u64, variant: Variant) -> Vec<(Rule, String)> {
    let world = World::start(seed, variant).await;
    sleep(Duration::from_secs(20)).await;
    let mut rules = Rules::new(&world);
    let destination = world.cidrs(0)[0].parse().unwrap();
    world.cloud.router().remove(destination);
    world.cloud.router().add_port(port(1));
    let theirs = SimRoute::foreign("theirs", destination, RouteTarget::Address(port(1)));
    world.add_foreign(theirs);
    world.api.delete("nodes", &World::node_name(0)).unwrap();
    rules.watch(&world, 60).await;
    world.broken.take()
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_listed_once() {
    lack_is_found(Audit, Rule::Converges).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_taken_for_success() {
    lack_is_found(Failures, Rule::Available).await;
}

#[tokio::test(start_paused = true)]
async fn defects_that_are_not_seen() {
    lack_is_found(Defects, Rule::Available).await;
}

#[tokio::test(start_paused = true)]
async fn duplicates_that_are_not_seen() {
    lack_is_found(Duplicates, Rule::Converges).await;
}
