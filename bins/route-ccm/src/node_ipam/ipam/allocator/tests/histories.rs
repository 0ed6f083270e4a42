//! Random histories of nodes, writes with lost and late answers, routes, and changes of leaders. No
//! rule is ever broken; and a process without one of its protections breaks one.

mod world;

use self::world::{Rule, Without, World};

/// The histories of one run, and of one search for a missing protection.
const HISTORIES: u64 = 400;
const EVENTS: usize = 300;

fn play(seed: u64, without: Option<Without>) -> Result<World, (Rule, String)> {
    let mut world = World::begin(seed, without);
    for _ in 0..EVENTS {
        world.step()?;
    }
    world.end()?;
    Ok(world)
}

#[test]
fn no_history_breaks_a_rule() {
    let mut counts = [0; 4];
    for seed in 0..HISTORIES {
        let world = play(seed, None).unwrap_or_else(|broken| panic!("history {seed}: {broken:?}"));
        for (sum, count) in counts.iter_mut().zip(world.counts()) {
            *sum += count;
        }
    }
    let [assigned, reused, exhausted, restarts] = counts;
    println!(
        "{assigned} assigned, {reused} of them again, {exhausted} exhausted, {restarts} leaders"
    );
    assert!(counts.iter().all(|count| *count > 200), "the histories are empty: {counts:?}");
}

fn is_found(without: Without, by: Rule) {
    let broken = (0..HISTORIES).find_map(|seed| {
        let broken = play(seed, Some(without)).err()?;
        (broken.0 == by).then_some(seed)
    });
    println!("{without:?}: {broken:?}");
    assert!(broken.is_some(), "nothing notices that this is missing: {without:?}");
}

#[test]
fn a_release_without_an_owner_is_found() {
    is_found(Without::Owner, Rule::OneNode);
}

#[test]
fn a_missing_rollback_is_found() {
    is_found(Without::Rollback, Rule::NoLeak);
}

#[test]
fn a_forgotten_reservation_is_found() {
    is_found(Without::Keeping, Rule::OneNode);
}

#[test]
fn a_block_that_does_not_wait_for_its_route_is_found() {
    is_found(Without::Routes, Rule::NoOldRoute);
}

#[test]
fn a_missing_grace_time_is_found() {
    is_found(Without::Grace, Rule::Grace);
}

#[test]
fn a_leader_that_begins_with_an_old_list_is_found() {
    is_found(Without::FreshList, Rule::OneNode);
}

#[test]
fn a_reservation_that_is_never_released_is_found() {
    is_found(Without::Release, Rule::NoLeak);
}

#[test]
fn an_answer_that_revives_a_node_is_found() {
    is_found(Without::Store, Rule::Full);
}
