//! The program without one of its protections: the same histories find each.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind, RouteTarget};
use ccm_sim::{
    cloud::{Operation, routes::SimRoute},
    faults::{Effect, Fault, Trouble},
};
use ccm_tests::variants;
use tokio::time::sleep;

use crate::{
    events::set_addresses,
    play,
    rules::{Rule, Rules},
    without::Without::{self, *},
    world::{NODES, Variant, World, port},
};

/// The histories of one search.
const SEARCHED: u64 = 24;

const EVERY_NETWORK: &[&str] = &["--cluster-cidr=0.0.0.0/1,fd00:120::/48"];

variants! {
    SEARCHED, play;
    fn a_missing_brake: Variant::with(&["--route-loss=100%"]) => Rule::Loss,
    fn a_brake_that_a_new_leader_forgets: Variant::forgetful() => Rule::Loss,
    fn routes_outside_of_the_cluster_cidrs: Variant::with(EVERY_NETWORK) => Rule::Foreign,
    fn routes_of_another_cluster: Variant::without(Owner) => Rule::Foreign,
    fn unknown_targets_that_are_not_looked_up: Variant::without(Look) => Rule::Foreign,
    fn unknown_targets_that_are_looked_up_once: Variant::without(SecondLook) => Rule::Proof,
    fn a_cloud_that_is_believed_whatever_it_says: Variant::without(Witnesses) => Rule::Proof,
    fn a_change_before_the_answer_to_the_last_one: Variant::without(InFlight) => Rule::Overlap,
    fn calls_side_by_side_where_versions_are_compared: Variant::without(Versions) => Rule::Version,
    fn a_deletion_and_a_creation_in_place_of_a_replacement: Variant::without(Replace) => Rule::Gap,
    fn the_old_target_goes_before_the_new_one_is_there: Variant::without(NewFirst) => Rule::Gap,
    fn a_table_that_is_listed_once: Variant::without(Audit) => Rule::Converges,
    fn a_failure_that_is_taken_for_success: Variant::without(Failures) => Rule::Available,
    fn defects_that_are_not_seen: Variant::without(Defects) => Rule::Available,
    fn a_new_leader_that_plans_with_an_old_store: Variant::without(Freshness) => Rule::Gap,
    fn a_table_whose_changes_are_not_seen: Variant::without(Audit) => Rule::Lasting,
    fn duplicates_that_are_not_seen: Variant::without(Duplicates) => Rule::Converges,
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
async fn an_answer_about_the_address_of_before() {
    // In a random history a node seldom moves just while its route is made.
    for (without, is_broken) in [(None, false), (Some(Target), true)] {
        let mut broken = Vec::new();
        for seed in 0..6 {
            let variant = Variant { without, ..Variant::default() };
            broken.extend(moved_while_its_route_is_made(seed, variant).await);
        }
        assert_eq!(
            broken.iter().any(|(rule, _)| *rule == Rule::Available),
            is_broken,
            "{broken:?}"
        );
    }
}

async fn moved_while_its_route_is_made(seed: u64, variant: Variant) -> Vec<(Rule, String)> {
    let mut world = World::start(seed, variant).await;
    sleep(Duration::from_secs(20)).await;
    let mut rules = Rules::new(&world);
    let slow = Effect::Latency(Duration::from_secs(8));
    world.cloud.faults().add(Fault::new(slow).on(Operation::ApplyRoutes));
    let name = World::node_name(NODES);
    world.add_node(NODES);
    rules.watch(&world, 3).await;
    let mut machine = world.cloud.find(&name).unwrap();
    machine.addresses = world.free_addresses();
    world.cloud.add(machine.clone());
    set_addresses(&world, &name, &machine);
    // The next plan corrects a wrong condition soon.
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        rules.look(&world);
    }
    world.broken.take()
}

#[tokio::test(start_paused = true)]
async fn a_contested_condition_costs_few_writes_and_calls() {
    for (is_forgotten, without, expect) in [
        (false, None, None),
        (true, None, Some(Rule::Writes)),
        (false, Some(Pause), Some(Rule::Calls)),
    ] {
        let broken = contested(is_forgotten, without).await;
        let found = broken.iter().map(|(rule, _)| *rule).find(|rule| Some(*rule) == expect);
        assert_eq!(found, expect, "{broken:?}");
        assert!(expect.is_some() || broken.is_empty(), "{broken:?}");
    }
}

/// The cloud refuses the route of a node, and another controller says that its network is up.
async fn contested(is_forgotten: bool, without: Option<Without>) -> Vec<(Rule, String)> {
    let variant = Variant { without, ..Variant::default() };
    let mut world = World::start(0, variant).await;
    sleep(Duration::from_secs(20)).await;
    let mut rules = Rules::new(&world);
    let error = CloudError::new(ErrorKind::QuotaExceeded, "no more");
    let fails = Effect::Routes(vec![World::node_name(0)], Trouble::Fail(error));
    world.cloud.faults().add(Fault::new(fails).on(Operation::ApplyRoutes));
    world.cloud.router().remove(world.cidrs(0)[0].parse().unwrap());
    world.restart().await;
    crate::rival::toggle(&mut world);
    for _ in 0..100 {
        if is_forgotten {
            world.restart().await;
        }
        rules.watch(&world, 6).await;
    }
    world.broken.take()
}
