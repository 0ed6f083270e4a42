//! Judges the writes of all candidates for one Lease, by a clock that they share.

use std::{fmt::Write as _, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::fault::Fault;

/// The time before two led at once whose events are printed.
const STORY: Duration = Duration::from_secs(6);

/// Records the writes of one Lease.
pub struct Referee {
    lease: String,
    start: Instant,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    reigns: Vec<Reign>,
    rounds: Vec<(Instant, Fault)>,
    writes: usize,
    overlaps: usize,
    first: Option<Overlap>,
}

/// A time throughout which a candidate may have written.
struct Reign {
    candidate: String,
    from: Instant,
    until: Instant,
}

/// A write while another candidate's might still be under way.
struct Overlap {
    at: Instant,
    candidate: String,
    other: String,
}

/// The time between two leaders.
pub struct Gap {
    /// The last fault.
    pub fault: Option<Fault>,
    /// How long no candidate could write.
    pub length: Duration,
    /// True if the next one was another candidate.
    pub takeover: bool,
}

impl Referee {
    /// Starts without writes.
    pub fn new(lease: &str) -> Self {
        Self { lease: lease.to_owned(), start: Instant::now(), book: Mutex::default() }
    }

    /// Returns the Lease's name.
    pub fn lease(&self) -> &str {
        &self.lease
    }

    /// Begins a round with this fault.
    pub fn round(&self, fault: Fault) {
        self.book.lock().rounds.push((Instant::now(), fault));
    }

    /// Records that `candidate` begins a write at `from`, which ends by `until`.
    pub fn write(&self, candidate: &str, from: Instant, until: Instant) {
        let book = &mut *self.book.lock();
        book.writes += 1;
        let other = book
            .reigns
            .iter()
            .find(|reign| reign.candidate != candidate && reign.meets(from, until));
        if let Some(other) = other {
            book.overlaps += 1;
            let (candidate, other) = (candidate.to_owned(), other.candidate.clone());
            book.first.get_or_insert(Overlap { at: from, candidate, other });
        }
        let mine = book.reigns.iter_mut().rev().find(|reign| reign.candidate == candidate);
        match mine.filter(|reign| from <= reign.until) {
            Some(reign) => reign.until = reign.until.max(until),
            None => book.reigns.push(Reign { candidate: candidate.to_owned(), from, until }),
        }
    }

    /// Returns how many writes were judged.
    pub fn writes(&self) -> usize {
        self.book.lock().writes
    }

    /// Returns how many of them met with another candidate's.
    pub fn overlaps(&self) -> usize {
        self.book.lock().overlaps
    }

    /// Returns the faults of all rounds.
    pub fn faults(&self) -> Vec<Fault> {
        self.book.lock().rounds.iter().map(|(_, fault)| *fault).collect()
    }

    /// Returns the gaps between the reigns, in order.
    pub fn gaps(&self) -> Vec<Gap> {
        let book = &mut *self.book.lock();
        book.reigns.sort_by_key(|reign| reign.from);
        let Some(mut last) = book.reigns.first() else { return Vec::new() };
        let mut gaps = Vec::new();
        for next in book.reigns.iter().skip(1) {
            let fault = book.rounds.iter().rfind(|(began, _)| *began <= next.from);
            gaps.push(Gap {
                fault: fault.map(|(_, fault)| *fault),
                length: next.from.saturating_duration_since(last.until),
                takeover: next.candidate != last.candidate,
            });
            if next.until >= last.until {
                last = next;
            }
        }
        gaps
    }

    /// Returns how two candidates came to lead at once, or `None` if they never did.
    pub fn story(&self) -> Option<String> {
        let book = self.book.lock();
        let first = book.first.as_ref()?;
        let second = |at: Instant| at.saturating_duration_since(self.start).as_secs_f64();
        let mut lines: Vec<(Instant, String)> = Vec::new();
        for (number, (began, fault)) in book.rounds.iter().enumerate() {
            lines.push((*began, format!("round {number}: {}", fault.name())));
        }
        for Reign { candidate, from, until } in &book.reigns {
            let until = second(*until);
            lines.push((*from, format!("{candidate} may write until {until:.3} s")));
        }
        lines.retain(|(at, _)| *at <= first.at && *at + STORY >= first.at);
        lines.sort_by_key(|(at, _)| *at);
        let mut story = format!(
            "lease {}: {} writes at {:.3} s while {} still may",
            self.lease,
            first.candidate,
            second(first.at),
            first.other
        );
        for (at, line) in lines {
            write!(story, "\n  {:8.3} s  {line}", second(at)).ok()?;
        }
        Some(story)
    }
}

impl Reign {
    fn meets(&self, from: Instant, until: Instant) -> bool {
        self.from < until && from < self.until
    }
}
