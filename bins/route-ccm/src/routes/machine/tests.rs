//! Random histories that drive the machine alone: a cluster, a cloud and time are plain values, and effects are performed
//! by hand, without tasks, clocks or sockets. No event breaks a rule, and after each history everything converges.
//!
//! A machine without one of its protections breaks the rule of that protection: a rule that no
//! variant breaks does not find anything.
//!
//! `QUARTET_HISTORY` and `QUARTET_HISTORIES` say which histories are played (see [`ccm_tests::seeds`]). The events of a
//! history that is played alone are printed.

mod single;
mod world;

use ccm_tests::seeds::{is_replay, seeds};

use self::world::{BROKEN, Rule, Variant, World};

/// The histories of one run.
const HISTORIES: u64 = 10;
/// The histories of one search.
const SEARCHED: u64 = 60;
/// The histories of one script.
const SCRIPTED: u64 = 20;
/// The steps of one history.
const STEPS: usize = 60;

/// Plays a random history. One of a variant ends when its rule is broken, or cannot be broken any more.
fn play(seed: u64, variant: Variant, expect: Option<Rule>) -> World {
    let mut world = World::new(seed, variant);
    world.is_told = variant == Variant::None && is_replay();
    for _ in 0..STEPS {
        world.step();
        if expect.is_some_and(|rule| world.rules.is_broken(rule)) {
            return world;
        }
    }
    if expect.is_none_or(Rule::is_of_the_end) {
        world.settle();
    }
    world
}

#[test]
fn no_history_breaks_a_rule() {
    let mut events = 0;
    for seed in seeds(HISTORIES) {
        let world = play(seed, Variant::None, None);
        assert!(world.rules.broken().is_empty(), "history {seed}: {:?}", world.rules.broken());
        events += world.events;
    }
    println!("{events} events");
}

/// A rule that no variant breaks finds nothing.
#[test]
fn each_variant_breaks_a_rule() {
    for (variant, rule, script) in BROKEN {
        let found = (0..SEARCHED).find(|seed| {
            let world = match script {
                Some(script) => script(*seed, *variant),
                None => play(*seed, *variant, Some(*rule)),
            };
            world.rules.is_broken(*rule)
        });
        let Some(seed) = found else { panic!("{variant:?} does not break {rule:?}") };
        println!("{variant:?} breaks {rule:?} in history {seed}");
    }
}

/// The machine itself does not break a rule in the histories that are made for one variant.
#[test]
fn no_script_breaks_a_rule() {
    for script in BROKEN.iter().filter_map(|(_, _, script)| *script) {
        for seed in 0..SCRIPTED {
            let world = script(seed, Variant::None);
            assert!(world.rules.broken().is_empty(), "{seed}: {:?}", world.rules.broken());
        }
    }
}
