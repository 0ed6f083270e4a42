//! Random histories that drive the machine alone: a cluster, a cloud and time are plain values, and effects are performed
//! by hand. No task, no clock, no socket. Rules are looked at after each event.
//!
//! A history that fails is replayed with `QUARTET_HISTORY=<seed>`, and `QUARTET_HISTORIES` says how many are played.

mod world;

use self::world::{Variant, World};

/// The histories of one run.
const HISTORIES: u64 = 40;
/// The histories of one search.
const SEARCHED: u64 = 60;
/// The steps of one history.
const STEPS: usize = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays a history. Returns the rule that it breaks, if it breaks one.
fn play(seed: u64, variant: Variant) -> Result<u64, String> {
    let mut world = World::new(seed, variant);
    for _ in 0..STEPS {
        world.step();
        world.check()?;
    }
    world.settle();
    world.check()?;
    world.converges()?;
    Ok(world.events)
}

#[test]
fn no_history_breaks_a_rule() {
    let seeds = match number("QUARTET_HISTORY") {
        Some(seed) => seed..seed + 1,
        None => 0..number("QUARTET_HISTORIES").unwrap_or(HISTORIES),
    };
    let played = seeds.map(|seed| {
        play(seed, Variant::None).unwrap_or_else(|broken| panic!("history {seed}: {broken}"))
    });
    println!("{} events", played.sum::<u64>());
}

/// A rule that no variant breaks finds nothing.
#[test]
fn each_variant_breaks_a_rule() {
    for (variant, rule) in [
        (Variant::NoBrake, "Loss"),
        (Variant::ForgetfulLeader, "Loss"),
        (Variant::BelievedCloud, "Foreign"),
        (Variant::LostAnswers, "Converges"),
        (Variant::NotPlain, "Plain"),
    ] {
        let mut broken = (0..SEARCHED).filter_map(|seed| play(seed, variant).err());
        let found = broken.find(|broken| broken.starts_with(rule));
        assert!(found.is_some(), "{variant:?} does not break {rule}");
    }
}
