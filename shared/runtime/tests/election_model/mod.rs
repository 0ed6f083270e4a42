//! A model of the election for exhaustive checking: candidates, one Lease, and requests
//! that are delayed, lost, lose their response, or arrive long after their sender timed out.
//!
//! Time passes in ticks, at the same rate for all candidates that are awake. A candidate may
//! pause between any two of its steps, for any time, and its machine may sleep. The model
//! stores ages instead of times and drops state that has no effect any more, so the number
//! of states is finite without a limit on the duration.
//!
//! The model allows more than the product, never less: a term starts when the write is sent,
//! not before the read that preceded it; a candidate that has lost its term may win another,
//! where the process of the product exits. The duties of replicas are checked with few ticks, one
//! duty at a time ([`duties`]). The model omits two cases. A read is a single step: with
//! compare-and-swap, a late response leads to a write that is rejected, or equals a later
//! read. And the Lease is never deleted: a candidate that never saw its holder would take it
//! at once, in the product and elsewhere.

mod duties;
mod variants;
mod world;

use stateright::{Checker as _, HasDiscoveries, Model, Path, Property};

use duties::{Duty, TURNS};
pub use variants::Variant;
use world::{Attempt, MOST_CANDIDATES, Step, World};

/// When a candidate considers the Lease of another expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// When the wall clock is past the renewal's timestamp by the Lease's duration.
    Timestamps,
    /// When it has observed the record unchanged for that time.
    Observation,
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// No precondition.
    Unconditional,
    /// The Lease is unchanged since it was read.
    CompareAndSwap,
}

/// How long a candidate considers itself the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Until a read shows another holder.
    Endless,
    /// For a time since it received the response.
    FromAnswer,
    /// For a time since it sent the request.
    FromRequest,
}

/// The clock that a term is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TermClock {
    /// A clock that stops while the machine sleeps.
    Monotonic,
    /// A clock that includes sleep.
    SinceBoot,
}

/// When a candidate counts a response to its write as success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Whenever the write was accepted.
    Trusted,
    /// When the Lease in the response names the candidate.
    Examined,
}

/// When a leader that releases its Lease stops leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// When it receives the response to the release.
    BeforeEnd,
    /// Before it sends the release.
    AfterEnd,
}

/// The candidates that a Lease can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identities {
    /// All candidates have the same identity, as processes on one host may.
    Shared,
    /// Every candidate.
    Unique,
}

/// How candidates behave.
#[derive(Clone, Copy, Debug)]
pub struct Election {
    pub expiry: Expiry,
    pub writes: Writes,
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
    /// The longest duration in a record that is respected, in ticks. A candidate respects a record
    /// for its own duration in any case.
    pub longest: u8,
    /// The duty of replicas.
    pub duty: Duty,
    /// How far the wall clock of the last candidate is ahead of the others', in ticks.
    pub skew: i8,
}

const AT_MOST_ONE: &str = "at most one leader";
/// Nothing is deleted again because a leader does not know of it.
const HANDED_OVER: &str = "a leader knows what was deleted";
const ONE_WRITER: &str = "no write is in flight while another one leads";
const SEEING: &str = "a leader sees";
/// The rules.
const RULES: [&str; 4] = [AT_MOST_ONE, HANDED_OVER, ONE_WRITER, SEEING];
const TAKEN_OVER: &str = "a leader that stopped renewing is replaced";
const AT_WORK: &str = "the duty is done";

/// The result of a check.
pub struct Verdict {
    /// The number of different states, or of those visited before a rule was broken.
    pub states: usize,
    /// The number of steps to the state furthest from the initial ones.
    pub depth: usize,
    /// The broken rule, and the shortest path to that, if there is one.
    pub broken: Option<(&'static str, Vec<Step>)>,
    /// True if a candidate ever started to take the Lease of a leader that stopped renewing: a
    /// model without takeovers would prove nothing.
    pub taken_over: bool,
    /// True if any replica did its duty.
    pub at_work: bool,
}

impl Election {
    /// Visits every reachable state, or those on the path to a broken rule.
    pub fn check(self) -> Verdict {
        // A single thread visits the states in the same order every time, and finds the
        // shortest path.
        let checker =
            self.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        Verdict {
            states: checker.unique_state_count(),
            depth: checker.max_depth(),
            broken: RULES
                .into_iter()
                .find_map(|rule| Some((rule, checker.discovery(rule).map(Path::into_actions)?))),
            at_work: checker.discovery(AT_WORK).is_some(),
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
            let turns = TURNS.into_iter().filter(|turn| self.has(*turn));
            steps.extend(turns.map(|turn| Step::Work(at, turn)));
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
                    steps.extend([Step::Watch(at), Step::Receive(at), Step::MissAnswer(at)]);
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
            Property::always(HANDED_OVER, |_: &Self, world: &World| world.is_handed_over()),
            Property::always(ONE_WRITER, |_: &Self, world: &World| world.has_one_writer()),
            Property::always(SEEING, |election: &Self, world: &World| {
                world.is_seeing(election.deadline + election.longer)
            }),
            Property::sometimes(AT_WORK, |election: &Self, world: &World| {
                world.is_at_work(election.duty)
            }),
            Property::sometimes(TAKEN_OVER, |election: &Self, world: &World| {
                (0..election.candidates).any(|at| election.takes_over(world, at))
            }),
        ]
    }
}
