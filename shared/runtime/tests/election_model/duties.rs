//! The duties of a leader besides leading, each with its protections: deletions that the next leader
//! learns of, writes that wait for a rate limiter, watches that fail.

use super::{
    Election,
    world::{Attempt, Candidate, Purpose, Request, World},
};

/// How long a write takes at most, in ticks.
const WRITE: u8 = 2;
/// How long the watches of a leader may fail, in ticks.
const PATIENCE: u8 = 1;

/// A duty of replicas besides the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    Nothing,
    /// The leader deletes something, and leaves that on the Lease: the next one must not delete more.
    Deletes(Handover),
    /// The leader writes objects.
    Writes(Limited),
    /// A replica whose watches fail should not lead. The first replica's watches fail at times.
    Watches(Eligible),
}

/// How a deletion gets to the next leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    pub waits: Waits,
    pub leaves: Leaves,
    pub reads: Reads,
}

/// The condition for a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    Never,
    /// For a successful renewal, even one that was sent before.
    ForAnyRenewal,
    /// For a successful renewal that says it.
    ForItsRenewal,
}

/// The deletions that a write of the Lease leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// The deletions of this leader.
    OwnAlone,
    /// Its own deletions, and the deletions that it found on the Lease.
    All,
}

/// When a candidate reads the deletions that the last leader has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// When it starts.
    Once,
    /// Each time that it reads the Lease of another one.
    Always,
}

/// How a write is guarded that has to wait for a rate limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    pub check: Check,
    /// The Lease is released only after the writes in flight.
    pub drains: bool,
}

/// When and how the term is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Before the wait alone.
    Before,
    /// After the wait, but not for how long the write takes.
    AfterForNow,
    /// After the wait, for as long as the write takes.
    AfterInFull,
}

/// The reaction of a replica whose watches fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eligible {
    /// It does not take the Lease.
    pub stands_aside: bool,
    /// It gives the Lease back.
    pub gives_back: bool,
}

/// The deletions that a replica knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Knows {
    Unread,
    None,
    /// The last leader has left one.
    Found,
    /// It has decided on one.
    Own,
}

/// The state of a replica's duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    knows: Knows,
    /// It has learned that its deletion is on the Lease.
    stored: bool,
    write: Write,
    /// For how long its watches have failed.
    blind: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    None,
    /// It waits for the limiter.
    Waiting,
    /// It is in flight, for this many more ticks.
    Sent(u8),
}

/// A step of a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The leader decides on a deletion, and leaves it with its next renewal.
    Decide,
    /// It sends the deletion.
    Delete,
    /// It checks its term before it waits for the limiter.
    Wait,
    /// The limiter lets the write go.
    Admit,
    /// Its watches begin to fail.
    Fail,
    /// They work again.
    Mend,
}

pub const TURNS: [Turn; 6] =
    [Turn::Decide, Turn::Delete, Turn::Wait, Turn::Admit, Turn::Fail, Turn::Mend];

impl Work {
    pub const NONE: Self =
        Self { knows: Knows::Unread, stored: false, write: Write::None, blind: None };

    /// Returns the duties after a crash: a write in flight may still arrive.
    pub fn restarted(self) -> Self {
        let write = if matches!(self.write, Write::Sent(_)) { self.write } else { Write::None };
        Self { write, ..Self::NONE }
    }

    pub fn tick(&mut self) {
        self.blind = self.blind.map(|ticks| ticks.saturating_add(1));
        self.write = match self.write {
            Write::Sent(left) if left > 1 => Write::Sent(left - 1),
            Write::Sent(_) => Write::None,
            other => other,
        };
    }

    /// Returns true if this replica's write of the Lease has a deletion.
    pub fn notes(self) -> bool {
        self.knows == Knows::Own
    }

    /// Records that it has read the Lease of another one.
    pub fn reads(&mut self, duty: Duty, is_noted: bool) {
        let Duty::Deletes(handover) = duty else { return };
        if handover.reads == Reads::Always || self.knows == Knows::Unread {
            self.knows = if is_noted { Knows::Found } else { Knows::None };
            self.stored = false;
        }
    }

    /// Records that its write of the Lease has succeeded.
    pub fn renewed(&mut self, duty: Duty, request: Request) {
        let Duty::Deletes(handover) = duty else { return };
        self.stored |= match handover.waits {
            Waits::Never => false,
            Waits::ForAnyRenewal => self.knows == Knows::Own,
            Waits::ForItsRenewal => request.notes,
        };
    }

    /// Returns true if it may release its Lease.
    pub fn may_release(self, duty: Duty) -> bool {
        let is_sent = matches!(self.write, Write::Sent(_));
        !matches!(duty, Duty::Writes(Limited { drains: true, .. }) if is_sent)
    }

    /// Returns true if it may decide on this write of the Lease. An attempt has a time limit, and a
    /// process ends that gives its Lease back: so this holds for what it has decided on, too.
    pub fn may(self, duty: Duty, purpose: Purpose, is_decided: bool) -> bool {
        let Duty::Watches(eligible) = duty else { return true };
        let may_be_blind = self.blind.is_none_or(|ticks| ticks < PATIENCE);
        match purpose {
            Purpose::Acquire if is_decided => !eligible.stands_aside || may_be_blind,
            Purpose::Acquire => !eligible.stands_aside || self.blind.is_none(),
            Purpose::Renew => !eligible.gives_back || may_be_blind,
            Purpose::Release => true,
        }
    }

    /// Drops writes that have no effect any more.
    pub fn forget(&mut self, deadline: u8) {
        self.blind = self.blind.map(|ticks| ticks.min(PATIENCE + deadline + 1));
    }
}

impl Election {
    /// Returns the Lease after this write.
    pub fn noted(self, before: bool, request: Request) -> bool {
        match self.duty {
            Duty::Deletes(Handover { leaves: Leaves::OwnAlone, .. }) => request.notes,
            Duty::Deletes(_) => before || request.notes,
            _ => false,
        }
    }

    /// Returns true if this step belongs to the duty.
    pub fn has(self, turn: Turn) -> bool {
        matches!(
            (self.duty, turn),
            (Duty::Deletes(_), Turn::Decide | Turn::Delete)
                | (Duty::Writes(_), Turn::Wait | Turn::Admit)
                | (Duty::Watches(_), Turn::Fail | Turn::Mend)
        )
    }

    /// Executes a step of the duty; `None` if it is impossible.
    pub fn turn(self, world: &mut World, at: usize, turn: Turn) -> Option<()> {
        let candidate = &mut world.candidates[at];
        let (leads, left) = (candidate.leads(), candidate.term());
        let work = &mut candidate.work;
        let is_next = match (turn, self.duty) {
            (Turn::Decide, _) => leads && work.knows == Knows::None,
            (Turn::Delete, Duty::Deletes(Handover { waits, .. })) => {
                let waits = waits != Waits::Never;
                leads && work.knows == Knows::Own && (work.stored || !waits) && !world.deleted
            }
            (Turn::Wait, _) => leads && work.write == Write::None,
            (Turn::Admit, _) => work.write == Write::Waiting,
            (Turn::Fail, _) => at == 0 && work.blind.is_none(),
            (Turn::Mend, _) => work.blind.is_some(),
            (Turn::Delete, _) => false,
        };
        if !is_next {
            return None;
        }
        match (turn, self.duty) {
            (Turn::Decide, _) => work.knows = Knows::Own,
            (Turn::Delete, _) => world.deleted = true,
            (Turn::Wait, _) => work.write = Write::Waiting,
            (Turn::Admit, Duty::Writes(Limited { check, .. })) => {
                let may = match check {
                    Check::Before => true,
                    Check::AfterForNow => leads,
                    Check::AfterInFull => left >= WRITE,
                };
                work.write = if may { Write::Sent(WRITE) } else { Write::None };
            }
            (Turn::Admit, _) => {}
            (Turn::Fail, _) => work.blind = Some(0),
            (Turn::Mend, _) => work.blind = None,
        }
        Some(())
    }
}

impl Candidate {
    /// Returns true if it decides on another deletion although one was made.
    fn deletes_again(&self) -> bool {
        self.leads() && self.work.knows == Knows::None
    }

    fn writes(&self) -> bool {
        matches!(self.work.write, Write::Sent(_))
    }

    /// Returns true if it has decided to give its Lease back because of its watches.
    fn gives_back(&self) -> bool {
        self.work.blind.is_some() && self.attempt == Attempt::Decided(Purpose::Release)
    }
}

impl World {
    /// Returns true if each leader knows of the deletions of all leaders before it.
    pub fn is_handed_over(&self) -> bool {
        !self.deleted || !self.candidates.iter().any(Candidate::deletes_again)
    }

    /// Returns true if no write is in flight while another replica leads.
    pub fn has_one_writer(&self) -> bool {
        self.candidates.iter().enumerate().all(|(at, writer)| {
            let mut others = self.candidates.iter().enumerate().filter(|(other, _)| *other != at);
            !writer.writes() || !others.any(|(_, other)| other.leads())
        })
    }

    /// Returns true if no replica leads although its watches have failed for long.
    pub fn is_seeing(&self, deadline: u8) -> bool {
        self.candidates.iter().all(|candidate| {
            let is_long = candidate.work.blind.is_some_and(|ticks| ticks > PATIENCE + deadline);
            !candidate.leads() || !is_long
        })
    }

    /// Returns true if the duty was done: a rule about a duty that is never done proves nothing.
    pub fn is_at_work(&self, duty: Duty) -> bool {
        match duty {
            Duty::Nothing => true,
            Duty::Deletes(_) => {
                let found = |one: &Candidate| one.leads() && one.work.knows == Knows::Found;
                self.deleted && self.candidates.iter().any(found)
            }
            Duty::Writes(_) => self.candidates.iter().any(Candidate::writes),
            Duty::Watches(_) => self.candidates.iter().any(Candidate::gives_back),
        }
    }
}
