//! Random histories: the machine alone in a [`World`] of plain values, with faults, other clients
//! and several leaders. The rules are checked after each event. At the end everything works, and
//! each Service must have what it asks for.
//!
//! A rule that is broken ends its history, and the message begins with the name of the rule.
//! [`variants`] has the protections whose absence each rule must show: a rule that no variant
//! breaks does not find anything.

mod calls;
mod claims;
mod cloud;
mod driver;
mod labels;
mod lies;
mod operator;
mod others;
mod outside;
mod refusals;
mod rooms;
mod rules;
mod variants;
mod world;

use ccm_tests::seeds::play_all;

use self::{
    variants::Without,
    world::{Kind, World},
};

/// The number of histories of each kind, and of their steps.
const HISTORIES: u64 = 8;
const STEPS: usize = 200;

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
fn services_get_what_they_ask_for_whatever_fails() {
    histories(Kind::Faults);
}

#[test]
fn members_follow_the_nodes_as_the_brake_allows() {
    histories(Kind::Nodes);
}

#[test]
fn load_balancers_that_others_change_or_delete_are_made_good() {
    histories(Kind::Others);
}

#[test]
fn what_the_cloud_refuses_is_tried_again() {
    histories(Kind::Refusals);
}

#[test]
fn the_settings_say_which_services_are_served() {
    histories(Kind::Settings);
}

#[test]
fn members_are_the_nodes_that_labels_select() {
    histories(Kind::Labels);
}

#[test]
fn another_cloud_replaces_few_load_balancers() {
    histories(Kind::Lies);
}
