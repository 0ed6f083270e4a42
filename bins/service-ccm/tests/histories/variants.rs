//! The program without one of its protections: the same histories find each.

use tokio::time::sleep;

use crate::{
    HISTORIES,
    cases::SOON,
    play,
    rules::{Rule, Rules},
    without::Without::{self, *},
    world::{Variant, World},
};

/// Plays histories until this rule is broken. The program as it is breaks none in the same ones.
async fn is_found(variant: Variant, by: Rule) {
    for seed in 0..HISTORIES {
        let broken = play(seed, variant).await;
        if broken.iter().any(|(rule, _)| *rule == by) {
            return;
        }
    }
    panic!("{HISTORIES} histories, and no rule {by:?} is broken");
}

/// A protection that other settings take out.
async fn settings_are_found(arguments: &'static [&'static str], by: Rule) {
    is_found(Variant { arguments, ..Variant::default() }, by).await;
}

async fn lack_is_found(without: Without, by: Rule) {
    is_found(Variant { without: Some(without), ..Variant::default() }, by).await;
}

const NO_BRAKE: &[&str] = &["--load-balancer-member-loss=100%"];

#[tokio::test(start_paused = true)]
async fn a_missing_brake() {
    settings_are_found(NO_BRAKE, Rule::Loss).await;
}

#[tokio::test(start_paused = true)]
async fn a_brake_that_a_new_leader_forgets() {
    is_found(Variant { forgets: true, ..Variant::default() }, Rule::Loss).await;
}

/// The brake stops members before the last one, so it is taken out as well.
#[tokio::test(start_paused = true)]
async fn a_last_member_that_leaves() {
    let variant = Variant { arguments: NO_BRAKE, ..Variant::default() };
    for seed in 0..4 {
        let broken = play(seed, variant).await;
        assert!(broken.iter().all(|(rule, _)| *rule == Rule::Loss), "history {seed}: {broken:#?}");
    }
    is_found(Variant { without: Some(LastMember), ..variant }, Rule::LastMember).await;
}

#[tokio::test(start_paused = true)]
async fn unknown_members_that_leave() {
    lack_is_found(UnknownMembersStay, Rule::Loss).await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_comes_too_late() {
    lack_is_found(FinalizerFirst, Rule::Protected).await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_goes_too_soon() {
    lack_is_found(ProofOfAbsence, Rule::Released).await;
}

#[tokio::test(start_paused = true)]
async fn ownership_by_name() {
    lack_is_found(OwnershipByUid, Rule::Foreign).await;
}

#[tokio::test(start_paused = true)]
async fn adoption_without_a_request() {
    // A random history seldom has something to adopt.
    for (arguments, is_broken) in [(&[][..], false), (&["--adopt-load-balancers=true"][..], true)] {
        let mut world = World::start(1, Variant { arguments, ..Variant::default() }).await;
        world.create(0);
        sleep(SOON).await;
        let mut rules = Rules::new(&world);
        world.stop();
        world.cloud.balancers().remove(&world.ours()[0].id);
        world.restart().await;
        sleep(SOON).await;
        rules.look(&world);
        let broken = world.broken.take();
        assert_eq!(broken.iter().any(|(rule, _)| *rule == Rule::Foreign), is_broken, "{broken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_served_by_mistake() {
    settings_are_found(&["--load-balancer-classes=example.com/other"], Rule::OtherClass).await;
}

#[tokio::test(start_paused = true)]
async fn a_digest_in_place_of_a_look() {
    lack_is_found(LookAtConfiguration, Rule::Converges).await;
}

#[tokio::test(start_paused = true)]
async fn annotations_in_place_of_a_list() {
    lack_is_found(Lists, Rule::Converges).await;
}

#[tokio::test(start_paused = true)]
async fn unnoticed_duplicates() {
    lack_is_found(Duplicates, Rule::Converges).await;
}

#[tokio::test(start_paused = true)]
async fn the_wrong_one_of_two() {
    lack_is_found(AddressOfDuplicates, Rule::Address).await;
}

#[tokio::test(start_paused = true)]
async fn work_without_polls() {
    lack_is_found(Poll, Rule::Converges).await;
}

#[tokio::test(start_paused = true)]
async fn unreported_orphans() {
    lack_is_found(Orphans, Rule::Reported).await;
}
