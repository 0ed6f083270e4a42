//! A model of the election for exhaustive checking: two candidates, one Lease, and
//! requests that are delayed, lost, answered into the void, or delivered long after
//! their sender gave up on them. Time passes in ticks.

use stateright::{Checker, Model, Property};

/// Candidates.
const CANDIDATES: usize = 2;
/// How long an unchanged Lease is respected, in ticks.
const LEASE: u8 = 3;
/// How long a term lasts, in ticks.
const DEADLINE: u8 = 2;

/// Which of the protections are in place, and how far the world is explored.
#[derive(Clone, Copy)]
pub struct Election {
    /// Patches carry the version that they were decided on.
    pub compare_and_swap: bool,
    /// Expiry by one's own observation instead of the record's timestamps.
    pub observation: bool,
    /// A term ends by the leader's own clock.
    pub deadline: bool,
    /// How far each candidate's wall clock is ahead, in ticks.
    pub skew: [i8; CANDIDATES],
    /// The world ends after so many ticks.
    pub ticks: u8,
    /// And after so many versions of the Lease.
    pub versions: u8,
}

impl Election {
    /// All protections, perfect clocks.
    pub const fn guarded(ticks: u8, versions: u8) -> Self {
        Self {
            compare_and_swap: true,
            observation: true,
            deadline: true,
            skew: [0, 0],
            ticks,
            versions,
        }
    }

    /// Whether no state with two leaders can be reached, and how many states there are.
    pub fn check(self) -> Verdict {
        let checker = self.checker().threads(2).spawn_bfs().join();
        let path = checker
            .discovery("at most one leader")
            .map(|path| format!("{:?}", path.into_actions()));
        let moved = checker.discovery("leadership moves").is_some();
        Verdict { states: checker.unique_state_count(), two_leaders: path, moved }
    }
}

/// What the check found.
pub struct Verdict {
    /// How many different states were seen.
    pub states: usize,
    /// The shortest way to two leaders, if there is one.
    pub two_leaders: Option<String>,
    /// Whether the second candidate ever led: a model in which nobody leads proves nothing.
    pub moved: bool,
}

/// What a patch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    Acquire,
    Renew,
    Release,
}

/// A patch: decided on a version, sent at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    purpose: Purpose,
    version: u8,
    sent: u8,
}

/// Where a candidate's current attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Attempt {
    None,
    Decided(Purpose, u8),
    UnderWay(Write),
    Answered { write: Write, accepted: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Candidate {
    attempt: Attempt,
    /// A request that was given up on and may still arrive.
    stray: Option<Write>,
    believes: bool,
    term_ends: u8,
    seen: Option<(u8, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lease {
    holder: Option<usize>,
    renewed: i8,
    version: u8,
}

/// The world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    now: u8,
    lease: Lease,
    candidates: [Candidate; CANDIDATES],
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Tick,
    Read(usize),
    ReadToRelease(usize),
    Send(usize),
    Arrive(usize),
    Vanish(usize),
    GiveUp(usize),
    ArriveLate(usize),
    Hear(usize),
    MissAnswer(usize),
}

impl Election {
    fn leads(&self, world: &World, candidate: usize) -> bool {
        let candidate = &world.candidates[candidate];
        candidate.believes && (!self.deadline || world.now < candidate.term_ends)
    }

    fn wall(&self, candidate: usize, now: u8) -> i8 {
        now.cast_signed() + self.skew[candidate]
    }

    /// The API server takes a write, or refuses it.
    fn take(&self, lease: &mut Lease, candidate: usize, write: Write) -> bool {
        if self.compare_and_swap && write.version != lease.version {
            return false;
        }
        lease.version += 1;
        lease.renewed = self.wall(candidate, write.sent);
        match write.purpose {
            Purpose::Acquire => lease.holder = Some(candidate),
            Purpose::Renew => (),
            Purpose::Release => lease.holder = None,
        }
        true
    }

    fn read(&self, world: &mut World, at: usize) {
        let (now, lease) = (world.now, world.lease);
        let wall = self.wall(at, now);
        let candidate = &mut world.candidates[at];
        if candidate.seen.is_none_or(|(version, _)| version != lease.version) {
            candidate.seen = Some((lease.version, now));
        }
        let since = candidate.seen.map_or(now, |(_, since)| since);
        let expired = match self.observation {
            true => lease.holder.is_none() || now - since >= LEASE,
            false => lease.holder.is_none() || wall > lease.renewed + LEASE.cast_signed(),
        };
        if lease.holder == Some(at) {
            candidate.attempt = Attempt::Decided(Purpose::Renew, lease.version);
        } else {
            candidate.believes = false;
            if expired {
                candidate.attempt = Attempt::Decided(Purpose::Acquire, lease.version);
            }
        }
    }

    fn apply(&self, world: &mut World, step: Step) -> Option<()> {
        let now = world.now;
        match step {
            Step::Tick => world.now += 1,
            Step::Read(at) => self.read(world, at),
            Step::ReadToRelease(at) => {
                world.candidates[at].believes = false;
                if world.lease.holder == Some(at) {
                    world.candidates[at].attempt =
                        Attempt::Decided(Purpose::Release, world.lease.version);
                }
            }
            Step::Send(at) => {
                let Attempt::Decided(purpose, version) = world.candidates[at].attempt else {
                    return None;
                };
                world.candidates[at].attempt =
                    Attempt::UnderWay(Write { purpose, version, sent: now });
            }
            Step::Arrive(at) | Step::Vanish(at) => {
                let Attempt::UnderWay(write) = world.candidates[at].attempt else { return None };
                let accepted =
                    matches!(step, Step::Arrive(_)) && self.take(&mut world.lease, at, write);
                world.candidates[at].attempt = Attempt::Answered { write, accepted };
            }
            Step::GiveUp(at) => {
                let Attempt::UnderWay(write) = world.candidates[at].attempt else { return None };
                world.candidates[at].stray = Some(write);
                world.candidates[at].attempt = Attempt::None;
            }
            Step::ArriveLate(at) => {
                let write = world.candidates[at].stray.take()?;
                self.take(&mut world.lease, at, write);
            }
            Step::Hear(at) => {
                let Attempt::Answered { write, accepted } = world.candidates[at].attempt else {
                    return None;
                };
                let candidate = &mut world.candidates[at];
                candidate.attempt = Attempt::None;
                if accepted && write.purpose != Purpose::Release {
                    candidate.believes = true;
                    candidate.term_ends = write.sent + DEADLINE;
                }
            }
            Step::MissAnswer(at) => world.candidates[at].attempt = Attempt::None,
        }
        Some(())
    }

    /// What a protection that is left out would remember makes no difference: forgetting
    /// it keeps the number of states down.
    fn forget(&self, world: &mut World) {
        for candidate in &mut world.candidates {
            if !self.observation {
                candidate.seen = None;
            }
            if !self.deadline || !candidate.believes {
                candidate.term_ends = 0;
            }
        }
    }
}

impl Model for Election {
    type State = World;
    type Action = Step;

    /// A Lease that was released, and one that a process long dead has left.
    fn init_states(&self) -> Vec<World> {
        let candidate = Candidate {
            attempt: Attempt::None,
            stray: None,
            believes: false,
            term_ends: 0,
            seen: None,
        };
        let world = |holder| World {
            now: 0,
            lease: Lease { holder, renewed: -20, version: 1 },
            candidates: [candidate; CANDIDATES],
        };
        vec![world(None), world(Some(usize::MAX))]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.now < self.ticks {
            steps.push(Step::Tick);
        }
        for (at, candidate) in world.candidates.iter().enumerate() {
            match candidate.attempt {
                Attempt::None => {
                    steps.push(Step::Read(at));
                    if self.leads(world, at) {
                        steps.push(Step::ReadToRelease(at));
                    }
                }
                Attempt::Decided(..) => steps.push(Step::Send(at)),
                Attempt::UnderWay(_) => {
                    steps.extend([Step::Arrive(at), Step::Vanish(at)]);
                    if candidate.stray.is_none() {
                        steps.push(Step::GiveUp(at));
                    }
                }
                Attempt::Answered { .. } => steps.extend([Step::Hear(at), Step::MissAnswer(at)]),
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
        (next.lease.version <= self.versions).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one leader", |model: &Self, world: &World| {
                (0..CANDIDATES).filter(|at| model.leads(world, *at)).count() <= 1
            }),
            Property::sometimes("leadership moves", |model: &Self, world: &World| {
                model.leads(world, 1) && world.lease.version >= 3
            }),
        ]
    }
}
