//! Random histories: the machine alone in a [`World`] of plain values. Nodes come, leave and return
//! under the same name; writes are late, lost, refused or not stored; the informer is late or
//! wrong; routes come and go; other clients write pod CIDRs; leaders change. The rules are checked
//! after each event and each effect. In the end everything works, each node has its pod CIDRs, and
//! nothing happens any more. A machine without one of its protections breaks a rule.
//!
//! `QUARTET_HISTORY` and `QUARTET_HISTORIES` say which histories are played: see [`ccm_tests::seeds`].

mod cloud;
mod memory;
mod model;
mod rules;
mod servers;
mod settled;
mod world;

use std::collections::BTreeMap;

use ccm_tests::seeds::{search_each, seeds};

use self::world::World;

/// The number of histories of a kind, of the kind with other clients, and of one search for a
/// missing protection, and the number of steps of one history.
const HISTORIES: u64 = 40;
const OTHERS: u64 = 100;
const SEARCHED: u64 = 200;
const STEPS: usize = 250;

/// The subject of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Blocks of two cluster CIDRs. No other client writes pod CIDRs.
    Blocks,
    /// The same blocks with other clients, nodes that bring pod CIDRs, and sizes of blocks that
    /// change.
    Others,
    /// The cloud decides.
    Cloud,
    /// The process only observes.
    Observer,
}

/// A protection that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    None,
    /// A leader begins with what the last one has seen.
    OldList,
    /// The machine does not learn the answers to its writes.
    LostAnswers,
    /// Blocks become free without a grace time.
    NoGrace,
    /// Routes do not hold a block.
    UnheldRoutes,
    /// A table of the routes counts as read when its answer comes.
    StaleTable,
    /// The machine does not learn of some ends of nodes.
    UntoldEnds,
    /// The end of a node ends all others that have its blocks now.
    EndOfOthers,
    /// The block of the first family stays taken when the second one is exhausted.
    NoRollback,
    /// A write without an answer counts as refused.
    Certain,
    /// A reservation ends with a write that has no answer.
    Forgetful,
    /// The answer to a write is a new node, if the node is gone.
    Reviving,
    /// The next leader does not learn what is held.
    NoNote,
    /// No task checks the time.
    NoTime,
    /// Nodes that wait are not woken by a free block.
    LostWakes,
    /// A write that was not stored is repeated at once.
    NoPause,
    /// The answer about an earlier instance counts for the next one.
    AnyInstance,
    /// An observer acts.
    WritingObserver,
    /// A part of the memory is lost when it is written and read.
    NotPlain,
}

/// Plays a history. Returns the rule that it breaks, if it breaks one.
fn play(
    seed: u64,
    kind: Kind,
    variant: Variant,
    only: Option<&'static str>,
) -> Result<World, String> {
    let mut world = World::new(seed, kind, variant, only);
    for _ in 0..STEPS {
        world.step();
        world.rules.broken.take().map_or(Ok(()), Err)?;
    }
    world.settle();
    world.rules.broken.take().map_or(Ok(world), Err)
}

/// Plays histories. Each of these must have happened this often.
fn histories(kind: Kind, happens: &[&'static str]) {
    let count = if kind == Kind::Others { OTHERS } else { HISTORIES };
    let seeds = seeds(count);
    let is_one = seeds.end - seeds.start < HISTORIES;
    let (mut events, mut counts) = (0, BTreeMap::new());
    for seed in seeds {
        let world = play(seed, kind, Variant::None, None);
        let world = world.unwrap_or_else(|broken| panic!("{kind:?}, history {seed}: {broken}"));
        events += world.events;
        for (what, count) in world.rules.counts {
            *counts.entry(what).or_insert(0) += count;
        }
    }
    println!("{kind:?}: {events} events, {counts:?}");
    let is_rare = |what: &&&str| counts.get(**what).is_none_or(|count| *count < 10);
    let rare: Vec<_> = happens.iter().filter(is_rare).collect();
    assert!(is_one || rare.is_empty(), "the histories are empty: {rare:?}");
}

#[test]
fn each_node_gets_blocks_of_its_own_whatever_fails() {
    histories(Kind::Blocks, &["given", "writes", "exhausted", "leaders"]);
}

#[test]
fn other_clients_and_their_pod_cidrs_are_respected() {
    histories(Kind::Others, &["given", "writes", "exhausted", "leaders", "foreign", "stopped"]);
}

#[test]
fn nodes_get_what_the_cloud_has_assigned() {
    histories(Kind::Cloud, &["given", "writes", "refused", "leaders", "foreign"]);
}

#[test]
fn an_observer_writes_nothing() {
    histories(Kind::Observer, &["leaders"]);
}

/// A rule that no variant breaks finds nothing.
#[test]
fn each_variant_breaks_a_rule() {
    let variants = [
        (Variant::OldList, Kind::Blocks, "OneNode"),
        (Variant::LostAnswers, Kind::Blocks, "Forgotten"),
        (Variant::NoGrace, Kind::Blocks, "Grace"),
        (Variant::UnheldRoutes, Kind::Blocks, "OldRoute"),
        (Variant::StaleTable, Kind::Blocks, "OldRoute"),
        (Variant::UntoldEnds, Kind::Blocks, "Leak"),
        (Variant::EndOfOthers, Kind::Blocks, "OneNode"),
        (Variant::NoRollback, Kind::Blocks, "Leak"),
        (Variant::Certain, Kind::Blocks, "Foreign"),
        (Variant::Forgetful, Kind::Blocks, "OneNode"),
        (Variant::Reviving, Kind::Blocks, "Full"),
        (Variant::NoNote, Kind::Blocks, "Grace"),
        (Variant::NoTime, Kind::Blocks, "Leak"),
        (Variant::LostWakes, Kind::Blocks, "Starves"),
        (Variant::NoPause, Kind::Blocks, "Repeats"),
        (Variant::AnyInstance, Kind::Cloud, "Instance"),
        (Variant::WritingObserver, Kind::Observer, "Observer"),
        (Variant::NotPlain, Kind::Blocks, "Plain"),
    ];
    search_each(
        &variants,
        SEARCHED,
        |_| 0,
        |variant, kind, rule, seed| play(seed, kind, variant, Some(rule)).err(),
    );
}
