//! Random histories: the machine alone in a [`World`] of plain values, with faults, other clients and several
//! leaders. The rules are looked at after each event. At the end everything works, and every node must be right.
//!
//! A rule that is broken ends its history, and the message begins with the name of the rule. [`variants`] has the
//! protections whose absence each rule must show: a rule that no variant breaks finds nothing.

mod claims;
mod cloud;
mod driver;
mod kubelets;
mod outside;
mod rules;
mod settled;
mod variants;
mod world;

use ccm_tests::seeds::play_all;

use self::{variants::Without, world::World};

/// The number of histories of each kind, and of their steps.
const HISTORIES: u64 = 25;
const STEPS: usize = 250;

/// The kinds of histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Cloud and API server fail.
    Faults,
    /// Other clients undo what was written, and admission policies drop it.
    Others,
    /// The cloud changes its word about many nodes, and leaders die of their changes.
    Budget,
    /// Kubelets give provider IDs that are not their own, or no provider ID.
    Doubts,
    /// The process only observes.
    Observer,
}

fn histories(kind: Kind) {
    play_all(kind, HISTORIES, |seed| play(kind, None, seed));
}

/// Plays one history. Returns the number of its events.
fn play(kind: Kind, without: Option<Without>, seed: u64) -> usize {
    let mut world = World::new(kind, without, seed);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    world.events
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

#[test]
fn an_observer_writes_nothing() {
    histories(Kind::Observer);
}

#[test]
fn no_node_gets_the_instance_of_another_one() {
    histories(Kind::Doubts);
}
