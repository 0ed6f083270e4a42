//! Decides how the cloud answers: truthfully or in one of the ways in which clouds are known to
//! fail.
//!
//! Two cases are excluded, because no policy could distinguish them from the truth: the lookups lie
//! about a node for longer than the confirmation period *and* the list shows most of the fleet, but
//! not this node; or lookups and list deny a fleet whose nodes are all marked for scale-down. With
//! [`Variant::Living`] neither is excluded, because every kubelet renews its Lease as long as its
//! machine runs.

use std::collections::BTreeSet;

use ccm_cloud::{CloudError, ErrorKind};

use crate::dice::Dice;

use super::{
    Variant,
    world::{Kind, START, World, within},
};

/// The kind of answer of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMode {
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

/// The faults of one history.
#[derive(Clone, Debug)]
pub struct FaultSchedule {
    /// Percentage of calls with a fault.
    fault_percent: u64,
    /// One kind of answer for a span of time.
    outage: ((u64, u64), AnswerMode),
    /// When all machines but one are invisible to lookups and lists.
    pub zone: (u64, u64),
    /// When lookups and lists deny these machines together.
    denied: Vec<((u64, u64), BTreeSet<usize>)>,
    staleness: u64,
}

const ERRORS: [ErrorKind; 5] = [
    ErrorKind::Unavailable,
    ErrorKind::Throttled,
    ErrorKind::Unauthorized,
    ErrorKind::Timeout,
    ErrorKind::NotFound,
];

impl FaultSchedule {
    /// Draws the faults; `grace`, in milliseconds, is longer than the age of any stale
    /// answer.
    pub fn draw(dice: &mut Dice, variant: Variant, world: &World, grace: u64) -> Self {
        let (start, end) = (START, world.end);
        let fault_percent = dice.pick(&[0, 5, 30, 80]).unwrap_or(0);
        let staleness = dice.within(1, grace);
        let span = |dice: &mut Dice| {
            let from = dice.within(start, end);
            (from, from + dice.within(10_000, 300_000))
        };
        let mut schedule = Self {
            fault_percent,
            outage: ((0, 0), AnswerMode::True),
            // Without a list only the witnesses distinguish an invisible zone from deleted
            // machines.
            zone: if dice.percent(20) && variant != Variant::Listless {
                span(dice)
            } else {
                (0, 0)
            },
            denied: Vec::new(),
            staleness,
        };
        if dice.percent(50) {
            schedule.outage = (span(dice), schedule.bad(dice));
        }
        if variant == Variant::Living {
            for _ in 0..dice.within(1, 4) {
                let share = dice.pick(&[10, 30, 60, 100]).unwrap_or(100);
                let nodes = (0..world.nodes.len()).filter(|_| dice.percent(share)).collect();
                let from = dice.within(start, end);
                schedule.denied.push(((from, from + dice.within(10_000, end - start)), nodes));
            }
        }
        schedule
    }

    /// Returns true if this machine is denied by every call at `at`.
    pub fn denies(&self, index: usize, at: u64) -> bool {
        self.denied.iter().any(|(span, nodes)| within(*span, at) && nodes.contains(&index))
    }

    /// Returns true if any machine is denied at `at`.
    pub fn denies_any(&self, at: u64) -> bool {
        self.denied.iter().any(|(span, _)| within(*span, at))
    }

    fn bad(&self, dice: &mut Dice) -> AnswerMode {
        match dice.within(0, 6) {
            0 => AnswerMode::Stale(self.staleness),
            1 => AnswerMode::Stale(dice.within(0, self.staleness)),
            2 => AnswerMode::Wrong,
            3 => AnswerMode::Empty,
            4 => AnswerMode::Shrunken,
            _ => AnswerMode::Error(dice.pick(&ERRORS).unwrap_or(ErrorKind::Timeout)),
        }
    }

    /// Returns how a call is answered at `at`.
    pub fn answer_mode(&self, dice: &mut Dice, at: u64) -> AnswerMode {
        if within(self.outage.0, at) && dice.percent(85) {
            self.outage.1
        } else if dice.percent(self.fault_percent) {
            self.bad(dice)
        } else {
            AnswerMode::True
        }
    }
}

/// Returns the error of a failed call.
pub fn error(kind: ErrorKind) -> CloudError {
    CloudError::new(kind, "simulated")
}

/// The minimum distance between two lies of different causes, in milliseconds.
const APART: u64 = 90_000;

/// Returns true if a call at `at` sees the machine.
pub fn sees(
    world: &World,
    schedule: &FaultSchedule,
    index: usize,
    at: u64,
    mode: AnswerMode,
) -> bool {
    let Some(node) = world.nodes.get(index).filter(|node| node.kind != Kind::Stranger) else {
        return false;
    };
    if schedule.denies(index, at) {
        return false;
    }
    match mode {
        AnswerMode::Stale(by) => node.lives(at - by),
        AnswerMode::Wrong | AnswerMode::Error(_) => false,
        AnswerMode::True | AnswerMode::Empty | AnswerMode::Shrunken => {
            // Two lies of different causes about the same node look like the truth, so instances do
            // not blink around a zone's outage.
            let around = (schedule.zone.0.saturating_sub(APART), schedule.zone.1 + APART);
            let blinks = within(node.blink, at) && !within(around, at);
            let hidden =
                blinks || node.misnamed(at).is_some() || (within(schedule.zone, at) && index > 0);
            node.lives(at) && !hidden
        }
    }
}

/// Returns the UIDs of the machines in a list.
pub fn list(
    world: &World,
    schedule: &FaultSchedule,
    dice: &mut Dice,
    at: u64,
    mode: AnswerMode,
) -> BTreeSet<usize> {
    let twins = mode == AnswerMode::Wrong && dice.percent(30);
    (0..world.nodes.len())
        .filter(|index| {
            let kind = world.nodes.get(*index).map(|node| node.kind);
            match mode {
                AnswerMode::Empty => false,
                // Another project's machines may have the same names as ours.
                AnswerMode::Wrong => twins && kind == Some(Kind::Ghost),
                AnswerMode::Shrunken => sees(world, schedule, *index, at, mode) && dice.percent(50),
                _ => sees(world, schedule, *index, at, mode),
            }
        })
        .collect()
}
