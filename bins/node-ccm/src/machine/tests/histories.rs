//! Random histories: the machine alone in a [`World`] of plain values, with faults, other clients and several
//! leaders. The rules are looked at after each event. At the end everything works, and every node must be right.

mod outside;
mod queue;
mod rules;
mod world;

use std::time::Duration;

use ccm_controller::brake::approval::{KEYS, SELECTOR, SetApproval, UNTIL};

use self::world::{Kind, World};

/// The number of histories of each kind, and of their steps. `QUARTET_HISTORIES` says how many there are instead.
const HISTORIES: u64 = 40;
const STEPS: usize = 250;

fn histories(kind: Kind) {
    let wanted = std::env::var("QUARTET_HISTORIES").ok().and_then(|text| text.parse().ok());
    let first = std::env::var("QUARTET_HISTORY").ok().and_then(|text| text.parse().ok());
    let (first, count) = first.map_or((0, wanted.unwrap_or(HISTORIES)), |seed: u64| (seed, 1));
    let mut events = 0;
    for seed in first..first + count {
        // Shown if the history fails.
        println!("{kind:?}, history {seed}");
        let mut world = World::new(kind, seed);
        for _ in 0..STEPS {
            world.step();
        }
        settle(&mut world);
        events += world.events;
    }
    println!("{kind:?}: {events} events");
}

/// Ends all faults and what other clients do, and approves all changes.
fn settle(world: &mut World) {
    world.calm();
    let until = (world.now + Duration::from_hours(1000)).to_string();
    let annotation = |key: &str| match key {
        SELECTOR => Some("*".to_owned()),
        UNTIL => Some(until.clone()),
        _ => None,
    };
    let approval = SetApproval::read(KEYS, annotation).unwrap();
    world.approve(approval);
    for _ in 0..60 {
        world.begin_refresh();
        world.work(Duration::from_secs(61));
    }
    world.is_right();
}

#[test]
fn nodes_are_initialised_and_kept_in_sync_whatever_fails() {
    histories(Kind::Faults);
}

#[test]
fn other_clients_are_met_with_patience() {
    histories(Kind::Others);
}

#[test]
fn no_more_nodes_change_than_the_budget_allows() {
    histories(Kind::Budget);
}
