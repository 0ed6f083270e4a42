//! The program without one of its protections: the same histories find each.

use std::time::Duration;

use ccm_tests::{variants, variants::is_found};
use tokio::time::sleep;

use crate::{
    cases::SOON,
    play, quiet,
    rules::{Rule, Rules},
    without::Without::*,
    world::{Variant, World},
};

/// The maximum number of histories per variant; the first few find most variants.
const HISTORIES: u64 = 60;
const NO_BRAKE: &[&str] = &["--load-balancer-member-loss=100%"];
const THEIRS: &[&str] = &["--load-balancer-classes=example.com/theirs"];
const OTHER_CLASS: &[&str] = &["--load-balancer-classes=example.com/other"];

variants! {
    HISTORIES, play;
    fn a_missing_brake: Variant::with(NO_BRAKE) => Rule::Loss,
    fn a_brake_that_a_new_leader_forgets: Variant::forgetful() => Rule::Loss,
    fn unknown_members_that_leave: Variant::without(UnknownMembersStay) => Rule::Loss,
    fn a_finalizer_that_comes_too_late: Variant::without(FinalizerFirst) => Rule::Protected,
    fn a_finalizer_that_goes_too_soon: Variant::without(ProofOfAbsence) => Rule::Released,
    fn ownership_by_name: Variant::without(OwnershipByUid) => Rule::Foreign,
    fn a_class_that_is_served_by_mistake: Variant::with(OTHER_CLASS) => Rule::OtherClass,
    fn annotations_in_place_of_a_list: Variant::without(Lists) => Rule::Converges,
    fn unnoticed_duplicates: Variant::without(Duplicates) => Rule::Converges,
    fn the_wrong_one_of_two: Variant::without(AddressOfDuplicates) => Rule::Address,
    fn work_without_polls: Variant::without(Poll) => Rule::Converges,
    fn unreported_orphans: Variant::without(Orphans) => Rule::Reported,
    fn reported_orphans_that_are_not_there: Variant::without(TrueOrphans) => Rule::Metrics,
    fn a_look_after_each_list: Variant::without(Versions) => Rule::Quiet,
    fn an_address_that_was_right_once: Variant::without(NewAddresses) => Rule::Shown,
    fn a_deletion_that_is_told_too_soon: Variant::without(ProofOfAbsence) => Rule::Events,
    fn a_finalizer_that_stays: Variant::without(EndOfDeletion) => Rule::Converges,
    fn a_change_of_members_that_is_not_made: Variant::without(MemberCalls) => Rule::Leaves,
    fn the_class_of_another_controller: Variant::with(THEIRS) => Rule::Neighbours,
}

/// The brake stops members before the last one, so it is taken out as well.
#[tokio::test(start_paused = true)]
async fn a_last_member_that_leaves() {
    let variant = Variant::with(NO_BRAKE);
    for seed in 0..4 {
        let broken = play(seed, variant).await;
        assert!(broken.iter().all(|(rule, _)| *rule == Rule::Loss), "history {seed}: {broken:#?}");
    }
    let variant = Variant { without: Some(LastMember), ..variant };
    is_found(HISTORIES, variant, Rule::LastMember, play).await;
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_was_there_once() {
    // Random histories seldom have one that stays away while nothing else happens to its Service.
    for (variant, is_broken) in [(Variant::default(), false), (Variant::without(Absence), true)] {
        let world = World::start(1, variant).await;
        world.create(0);
        // A list shows it.
        sleep(Duration::from_mins(6)).await;
        let mut rules = Rules::new(&world);
        let id = world.ours()[0].id.clone();
        rules.touched(&id);
        world.cloud.balancers().remove(&id);
        for _ in 0..60 {
            sleep(Duration::from_mins(1)).await;
            rules.look(&world);
        }
        let broken = world.broken.take();
        assert_eq!(broken.iter().any(|(rule, _)| *rule == Rule::Claims), is_broken, "{broken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_digest_in_place_of_a_look() {
    // In few random histories no later call mends by the way what a person has changed.
    for (variant, is_broken) in
        [(Variant::default(), false), (Variant::without(LookAtConfiguration), true)]
    {
        let mut world = World::start(1, variant).await;
        world.create(0);
        sleep(SOON).await;
        let mut rules = Rules::new(&world);
        let id = world.ours()[0].id.clone();
        rules.touched(&id);
        world.cloud.balancers().update(&id, |balancer| {
            balancer.configuration.source_ranges = vec!["203.0.113.0/24".parse().unwrap()];
        });
        quiet::converge(&mut world, &mut rules).await;
        let broken = world.broken.take();
        assert_eq!(
            broken.iter().any(|(rule, _)| *rule == Rule::Converges),
            is_broken,
            "{broken:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn adoption_without_a_request() {
    // A random history seldom has something to adopt.
    for (arguments, is_broken) in [(&[][..], false), (&["--adopt-load-balancers=true"][..], true)] {
        let mut world = World::start(1, Variant::with(arguments)).await;
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
