//! How the cloud answers: truthfully or in one of the ways clouds are known to fail.
//!
//! One case is ruled out, because no policy could distinguish it from the truth: the lookups
//! lie about a node for longer than the confirmation period *and* the list shows most of the
//! fleet, but not this node.

use std::collections::BTreeSet;

use ccm_cloud::{CloudError, ErrorKind};

use super::{
    dice::Dice,
    world::{Kind, World, within},
};

/// How one call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// The present state.
    True,
    /// The state of this many milliseconds ago.
    Stale(u64),
    /// No answer.
    Error(ErrorKind),
    /// The answer of another project: all of our instances are missing.
    Wrong,
    /// The call succeeds and the list is empty. Lookups are true.
    Empty,
    /// A random part of the list is missing. Lookups are true.
    Shrunken,
}

/// The weather of one history.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Percentage of calls with a fault.
    trouble: u64,
    /// A mood for a span of time.
    spell: ((u64, u64), Mood),
    /// When all machines but one are invisible to lookups and lists.
    pub zone: (u64, u64),
    staleness: u64,
}

const ERRORS: [ErrorKind; 5] = [
    ErrorKind::Unavailable,
    ErrorKind::Throttled,
    ErrorKind::Unauthorized,
    ErrorKind::Timeout,
    ErrorKind::NotFound,
];

impl Weather {
    /// Draws the weather; `grace`, in milliseconds, is longer than the age of any stale
    /// answer.
    pub fn draw(dice: &mut Dice, start: u64, end: u64, grace: u64) -> Self {
        let trouble = dice.pick(&[0, 5, 30, 80]).unwrap_or(0);
        let staleness = dice.within(1, grace);
        let span = |dice: &mut Dice| {
            let from = dice.within(start, end);
            (from, from + dice.within(10_000, 300_000))
        };
        let mut weather = Self {
            trouble,
            spell: ((0, 0), Mood::True),
            zone: if dice.percent(20) { span(dice) } else { (0, 0) },
            staleness,
        };
        if dice.percent(50) {
            weather.spell = (span(dice), weather.bad(dice));
        }
        weather
    }

    fn bad(&self, dice: &mut Dice) -> Mood {
        match dice.within(0, 6) {
            0 => Mood::Stale(self.staleness),
            1 => Mood::Stale(dice.within(0, self.staleness)),
            2 => Mood::Wrong,
            3 => Mood::Empty,
            4 => Mood::Shrunken,
            _ => Mood::Error(dice.pick(&ERRORS).unwrap_or(ErrorKind::Timeout)),
        }
    }

    /// The mood of a call at `at`.
    pub fn mood(&self, dice: &mut Dice, at: u64) -> Mood {
        if within(self.spell.0, at) && dice.percent(85) {
            self.spell.1
        } else if dice.percent(self.trouble) {
            self.bad(dice)
        } else {
            Mood::True
        }
    }
}

/// The error of a mood.
pub fn error(kind: ErrorKind) -> CloudError {
    CloudError::new(kind, "simulated")
}

/// The minimum distance between two lies of different causes, in milliseconds.
const APART: u64 = 90_000;

/// True if a call at `at` sees the machine.
pub fn sees(world: &World, weather: &Weather, index: usize, at: u64, mood: Mood) -> bool {
    let Some(node) = world.nodes.get(index) else { return false };
    match mood {
        Mood::Stale(by) => node.lives(at - by),
        Mood::Wrong | Mood::Error(_) => false,
        Mood::True | Mood::Empty | Mood::Shrunken => {
            // Two lies of different causes about the same node look like the truth: an
            // instance does not blink around a zone's outage.
            let around = (weather.zone.0.saturating_sub(APART), weather.zone.1 + APART);
            let blinks = within(node.blink, at) && !within(around, at);
            let hidden = blinks || (within(weather.zone, at) && index > 0);
            node.lives(at) && !hidden
        }
    }
}

/// The UIDs of the machines in a list.
pub fn list(
    world: &World,
    weather: &Weather,
    dice: &mut Dice,
    at: u64,
    mood: Mood,
) -> BTreeSet<usize> {
    let twins = mood == Mood::Wrong && dice.percent(30);
    (0..world.nodes.len())
        .filter(|index| {
            let kind = world.nodes.get(*index).map(|node| node.kind);
            match mood {
                Mood::Empty => false,
                // Another project's machines may have the same names as ours.
                Mood::Wrong => twins && kind == Some(Kind::Ghost),
                Mood::Shrunken => sees(world, weather, *index, at, mood) && dice.percent(50),
                _ => sees(world, weather, *index, at, mood),
            }
        })
        .collect()
}
