//! A model of the election for exhaustive checking: candidates, one Lease, and requests
//! that are delayed, lost, answered into the void, or delivered long after their sender
//! gave up on them.
//!
//! Time passes in ticks, at the same rate for everybody who is awake. A candidate may
//! stand still between any two of its steps, for any time, and its machine may sleep. The
//! model keeps ages instead of times and forgets what can no longer matter, so it has
//! finitely many states without a bound on how long the world goes on.
//!
//! It allows more than the product does, never less: a term counts from when the patch is
//! sent, not from before the read that led to it; who has lost its term may win another,
//! where the product's process ends. Two things are left out. A read is one step: under a
//! compare-and-swap one that is answered late either leads to a patch that is refused or
//! is as good as a late read. And nobody deletes the Lease: who never saw its holder takes
//! it at once then, in the product as everywhere.

mod variants;
mod world;

use stateright::{Checker as _, HasDiscoveries, Model, Path, Property};

pub use variants::Variant;
use world::{Attempt, MOST_CANDIDATES, Step, World};

/// When a candidate takes another's Lease for expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// When the wall clock is past the renewal's timestamp by the Lease's duration.
    Timestamps,
    /// When it has itself seen the record unchanged for that long.
    Observation,
}

/// For how long a candidate respects a record that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Respect {
    /// For the duration that it was itself given.
    OwnDuration,
    /// For the record's duration where that is longer.
    LongerDuration,
}

/// What a patch asks of the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patches {
    /// Nothing.
    Unconditional,
    /// To be as it was read.
    CompareAndSwap,
}

/// How long a candidate believes that it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Until a read tells it otherwise.
    Endless,
    /// For a time from when it heard of its success.
    FromAnswer,
    /// For a time from when it sent the request.
    FromRequest,
}

/// The clock that a term is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermClock {
    /// One that stands still while the machine sleeps.
    Monotonic,
    /// One that goes on.
    SinceBoot,
}

/// When a candidate believes the answer to its patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Whenever the patch was accepted.
    Believed,
    /// When the Lease in it names the candidate.
    Examined,
}

/// When a leader that gives its Lease back ceases to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// When it hears that the Lease is free.
    BeforeEnd,
    /// Before it asks for that.
    AfterEnd,
}

/// Whom a Lease can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identities {
    /// Nobody: all candidates bear one name, as processes on one host may.
    Shared,
    /// Every candidate.
    Unique,
}

/// How candidates behave.
#[derive(Clone, Copy, Debug)]
pub struct Election {
    pub expiry: Expiry,
    pub respect: Respect,
    pub patches: Patches,
    pub term: Term,
    pub term_clock: TermClock,
    pub answers: Answers,
    pub release: Release,
    pub identities: Identities,
    /// How many candidates there are, three at most.
    pub candidates: usize,
    /// How long an unchanged Lease is respected, in ticks.
    pub lease: u8,
    /// How long a term lasts, in ticks.
    pub deadline: u8,
    /// By how much both are longer for the first candidate, in ticks.
    pub longer: u8,
    /// How far the wall clock of the last candidate is ahead of the others', in ticks.
    pub skew: i8,
}

const AT_MOST_ONE: &str = "at most one leader";
const TAKEN_OVER: &str = "a silent leader is replaced";

/// What a check found.
pub struct Verdict {
    /// How many different states there are, or were seen before two leaders.
    pub states: usize,
    /// The number of steps to the state that is furthest from the beginning.
    pub depth: usize,
    /// The shortest way to two leaders, if there is one.
    pub two_leaders: Option<Vec<Step>>,
    /// Whether a candidate ever set out to take the Lease of a leader that fell silent: a
    /// model in which leadership never moves proves nothing.
    pub taken_over: bool,
}

impl Election {
    /// Looks at every state that can be reached, or at those on the way to two leaders.
    pub fn check(self) -> Verdict {
        // A single thread finds the same states in the same order every time, and the
        // shortest way.
        let checker =
            self.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        Verdict {
            states: checker.unique_state_count(),
            depth: checker.max_depth(),
            two_leaders: checker.discovery(AT_MOST_ONE).map(Path::into_actions),
            taken_over: checker.discovery(TAKEN_OVER).is_some(),
        }
    }
}

impl Model for Election {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        World::beginnings()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        for at in 0..self.candidates.min(MOST_CANDIDATES) {
            let candidate = &world.candidates[at];
            steps.extend([Step::TickAsleep(at), Step::Restart(at)]);
            match candidate.attempt {
                Attempt::None => steps.extend([Step::Read(at), Step::ReadToRelease(at)]),
                Attempt::Decided(_) => steps.extend([Step::Watch(at), Step::Send(at)]),
                Attempt::UnderWay(_) => steps.extend([
                    Step::Watch(at),
                    Step::Arrive(at),
                    Step::Vanish(at),
                    Step::GiveUp(at),
                ]),
                Attempt::Accepted { .. } => {
                    steps.extend([Step::Watch(at), Step::Hear(at), Step::MissAnswer(at)]);
                }
            }
            if candidate.stray.is_some() {
                steps.push(Step::ArriveLate(at));
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.apply(&mut next, step)?;
        self.forget(&mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(AT_MOST_ONE, |_: &Self, world: &World| {
                world.candidates.iter().filter(|candidate| candidate.leads()).count() <= 1
            }),
            Property::sometimes(TAKEN_OVER, |election: &Self, world: &World| {
                (0..election.candidates).any(|at| election.takes_over(world, at))
            }),
        ]
    }
}
