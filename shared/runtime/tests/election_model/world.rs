//! The states of the model and the steps between them.

use super::{
    Answers, Election, Expiry, Identities, Release, Term, TermClock, Writes,
    duties::{Turn, Work},
};

/// The maximum number of candidates.
pub const MOST_CANDIDATES: usize = 3;
/// The remaining time of a term without an end.
const ENDLESS: u8 = u8::MAX;

/// The holder of the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// It was released.
    Free,
    /// A process that has ended.
    Dead,
    /// The candidates of this identity.
    Named(u8),
}

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    Acquire,
    Renew,
    Release,
}

/// A write, with its age in ticks by its sender's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    purpose: Purpose,
    /// By the clock for terms.
    age: u8,
    /// By the wall clock.
    stamp: i8,
    /// It leaves a deletion of its sender to the next leader.
    pub notes: bool,
}

/// The state of a candidate's current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    None,
    /// It has read the Lease and decided.
    Decided(Purpose),
    /// Its write is in flight.
    UnderWay(Request),
    /// The write was accepted, and the response is in flight.
    Accepted {
        request: Request,
        /// The Lease in the response names the candidate.
        names_it: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    pub attempt: Attempt,
    /// A request that timed out and may still arrive. One is enough with compare-and-swap:
    /// of all requests in flight only one can still be accepted.
    pub stray: Option<Request>,
    /// The remaining time of its term.
    term: u8,
    /// How long it has observed the Lease unchanged.
    seen: Option<u8>,
    /// Its duty.
    pub work: Work,
}

impl Candidate {
    const FRESH: Self =
        Self { attempt: Attempt::None, stray: None, term: 0, seen: None, work: Work::NONE };

    /// Returns true if it considers itself the leader.
    pub fn leads(&self) -> bool {
        self.term > 0
    }

    /// Returns the remaining time of its term.
    pub fn term(&self) -> u8 {
        self.term
    }

    fn requests(&mut self) -> impl Iterator<Item = &mut Request> {
        let current = match &mut self.attempt {
            Attempt::UnderWay(request) | Attempt::Accepted { request, .. } => Some(request),
            Attempt::None | Attempt::Decided(_) => None,
        };
        current.into_iter().chain(&mut self.stray)
    }
}

/// One state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub candidates: [Candidate; MOST_CANDIDATES],
    holder: Holder,
    /// The age of the Lease's timestamp, by the clocks that are not skewed.
    stamp: i8,
    /// The Lease says that something was deleted.
    noted: bool,
    /// A leader has sent a deletion.
    pub deleted: bool,
}

/// A step, and its candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time passes.
    Tick,
    /// Time passes while this candidate's machine sleeps.
    TickAsleep(usize),
    /// Its process crashes and is replaced.
    Restart(usize),
    /// It reads the Lease and decides.
    Read(usize),
    /// It reads the Lease to release it.
    ReadToRelease(usize),
    /// Its watch delivers the Lease.
    Watch(usize),
    /// It sends the decided write.
    Send(usize),
    /// The write arrives.
    Arrive(usize),
    /// The write is lost, and the candidate receives an error.
    Vanish(usize),
    /// The candidate times out; this write may still arrive, an earlier one will not.
    GiveUp(usize),
    /// The write that timed out arrives.
    ArriveLate(usize),
    /// It receives the response.
    Receive(usize),
    /// The response is lost.
    MissAnswer(usize),
    /// Its duty.
    Work(usize, Turn),
}

impl World {
    /// Returns a released Lease, and one of a process that has ended long ago.
    pub fn beginnings() -> Vec<Self> {
        let candidates = [Candidate::FRESH; MOST_CANDIDATES];
        let world =
            |holder| Self { candidates, holder, stamp: i8::MAX, noted: false, deleted: false };
        vec![world(Holder::Free), world(Holder::Dead)]
    }
}

impl Election {
    fn identity(self, at: usize) -> Holder {
        Holder::Named(match self.identities {
            Identities::Shared => 0,
            Identities::Unique => u8::try_from(at).unwrap_or(u8::MAX),
        })
    }

    /// Returns the skew of a candidate's wall clock.
    fn ahead(self, at: usize) -> i8 {
        if at + 1 == self.candidates { self.skew } else { 0 }
    }

    /// Returns by how much a candidate's durations are longer.
    fn longer(self, is_first: bool) -> u8 {
        if is_first { self.longer } else { 0 }
    }

    /// Returns how long a candidate respects the current Lease.
    fn respected(self, world: &World, at: usize) -> u8 {
        let own = self.lease + self.longer(at == 0);
        let record = self.lease + self.longer(world.holder == self.identity(0));
        own.max(record.min(self.longest))
    }

    /// Returns true if a candidate has decided to take the Lease from its holder.
    pub fn takes_over(self, world: &World, at: usize) -> bool {
        matches!(world.holder, Holder::Named(_))
            && world.holder != self.identity(at)
            && world.candidates[at].attempt == Attempt::Decided(Purpose::Acquire)
    }

    /// Executes a step; `None` if it is impossible.
    pub fn apply(self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::Tick => self.tick(world, None),
            Step::TickAsleep(at) => self.tick(world, Some(at)),
            Step::Restart(at) => self.restart(world, at),
            Step::Read(at) => self.read(world, at),
            Step::ReadToRelease(at) => self.read_to_release(world, at)?,
            Step::Work(at, turn) => self.turn(world, at, turn)?,
            Step::Watch(at) => {
                world.candidates[at].seen.get_or_insert(0);
            }
            Step::Send(at) => {
                let Attempt::Decided(purpose) = world.candidates[at].attempt else { return None };
                let candidate = &mut world.candidates[at];
                if !candidate.work.may(self.duty, purpose, true) {
                    return None;
                }
                let notes = candidate.work.notes();
                let request = Request { purpose, age: 0, stamp: -self.ahead(at), notes };
                candidate.attempt = Attempt::UnderWay(request);
            }
            Step::Arrive(at) => {
                let Attempt::UnderWay(request) = world.candidates[at].attempt else { return None };
                self.take(world, at, request);
                let names_it = world.holder == self.identity(at);
                world.candidates[at].attempt = Attempt::Accepted { request, names_it };
            }
            Step::GiveUp(at) => {
                let Attempt::UnderWay(request) = world.candidates[at].attempt else { return None };
                world.candidates[at].stray = Some(request);
                world.candidates[at].attempt = Attempt::None;
            }
            Step::ArriveLate(at) => {
                let request = world.candidates[at].stray.take()?;
                self.take(world, at, request);
            }
            Step::Receive(at) => self.receive(&mut world.candidates[at], at)?,
            Step::Vanish(at) | Step::MissAnswer(at) => world.candidates[at].attempt = Attempt::None,
        }
        Some(())
    }

    fn tick(self, world: &mut World, asleep: Option<usize>) {
        world.stamp = world.stamp.saturating_add(1);
        for (at, candidate) in world.candidates.iter_mut().enumerate() {
            let awake = u8::from(asleep != Some(at));
            candidate.work.tick();
            let passed = match self.term_clock {
                TermClock::SinceBoot => 1,
                TermClock::Monotonic => awake,
            };
            candidate.seen = candidate.seen.map(|seen| seen.saturating_add(awake));
            if candidate.term != ENDLESS {
                candidate.term = candidate.term.saturating_sub(passed);
            }
            for request in candidate.requests() {
                request.age = request.age.saturating_add(passed);
                request.stamp = request.stamp.saturating_add(1);
            }
        }
    }

    /// Restarts a crashed process: its requests are lost; a late arrival equals the case that it
    /// paused instead.
    fn restart(self, world: &mut World, at: usize) {
        let work = world.candidates[at].work.restarted();
        world.candidates[at] = Candidate { work, ..Candidate::FRESH };
        if self.identities == Identities::Unique && world.holder == self.identity(at) {
            world.holder = Holder::Dead;
        }
    }

    fn read(self, world: &mut World, at: usize) {
        let (stamp, respected) = (world.stamp, self.respected(world, at));
        let (free, mine) = (world.holder == Holder::Free, world.holder == self.identity(at));
        let candidate = &mut world.candidates[at];
        let seen = *candidate.seen.get_or_insert(0);
        let expired = match self.expiry {
            Expiry::Observation => seen >= respected,
            Expiry::Timestamps => stamp.saturating_add(self.ahead(at)) > respected.cast_signed(),
        };
        if !mine {
            candidate.work.reads(self.duty, world.noted);
        }
        let may = |purpose| candidate.work.may(self.duty, purpose, false);
        if mine && may(Purpose::Renew) {
            candidate.attempt = Attempt::Decided(Purpose::Renew);
        } else if mine {
            candidate.attempt = Attempt::Decided(Purpose::Release);
            candidate.term = 0;
        } else if (expired || free) && may(Purpose::Acquire) {
            candidate.attempt = Attempt::Decided(Purpose::Acquire);
        } else {
            candidate.term = 0;
        }
    }

    fn read_to_release(self, world: &mut World, at: usize) -> Option<()> {
        let mine = world.holder == self.identity(at);
        let candidate = &mut world.candidates[at];
        if !candidate.work.may_release(self.duty) {
            return None;
        }
        if mine {
            candidate.attempt = Attempt::Decided(Purpose::Release);
        }
        if !mine || self.release == Release::AfterEnd {
            candidate.term = 0;
        }
        Some(())
    }

    /// Accepts a write as the API server does.
    fn take(self, world: &mut World, at: usize, request: Request) {
        world.stamp = request.stamp;
        world.noted = self.noted(world.noted, request);
        match request.purpose {
            Purpose::Acquire => world.holder = self.identity(at),
            Purpose::Renew => (),
            Purpose::Release => world.holder = Holder::Free,
        }
        for candidate in &mut world.candidates {
            candidate.seen = None;
            if self.writes == Writes::CompareAndSwap {
                // Writes of another version will be rejected, which equals a loss.
                candidate.stray = None;
                if !matches!(candidate.attempt, Attempt::Accepted { .. }) {
                    candidate.attempt = Attempt::None;
                }
            }
        }
    }

    fn receive(self, candidate: &mut Candidate, at: usize) -> Option<()> {
        let Attempt::Accepted { request, names_it } = candidate.attempt else { return None };
        candidate.attempt = Attempt::None;
        let leads = names_it || self.answers == Answers::Trusted;
        if request.purpose == Purpose::Release || !leads {
            candidate.term = 0;
            return Some(());
        }
        candidate.work.renewed(self.duty, request);
        let deadline = self.deadline + self.longer(at == 0);
        candidate.term = match self.term {
            Term::Endless => ENDLESS,
            Term::FromAnswer => deadline,
            Term::FromRequest => deadline.saturating_sub(request.age),
        };
        Some(())
    }

    /// Drops state that has no effect any more.
    pub fn forget(self, world: &mut World) {
        let by_stamp = self.expiry == Expiry::Timestamps;
        // A timestamp of this age has expired by every clock.
        let past = (self.lease + self.longer + 1).cast_signed() + 2 * self.skew.abs();
        // A request of this age gives no term.
        let oldest = match self.term {
            Term::FromRequest => self.deadline + self.longer,
            Term::Endless | Term::FromAnswer => 0,
        };
        let stamped = |stamp: i8| if by_stamp { stamp.min(past) } else { 0 };
        let respected = self.lease + self.longer;
        for candidate in &mut world.candidates {
            candidate.work.forget(self.deadline);
            candidate.seen = candidate.seen.filter(|_| !by_stamp).map(|seen| seen.min(respected));
            for request in candidate.requests() {
                request.age = request.age.min(oldest);
                request.stamp = stamped(request.stamp);
            }
            if let Some(stray) = &mut candidate.stray {
                // Its response is not received.
                stray.age = 0;
            }
            if let Attempt::Accepted { request, .. } = &mut candidate.attempt {
                // Its timestamp is in the Lease.
                request.stamp = 0;
            }
        }
        world.stamp = stamped(world.stamp);
    }
}
