//! The last segments of a record, within a bound.

use std::{
    collections::VecDeque,
    io::{self, Write},
    time::Duration,
};

use ccm_base::At;
use ccm_runtime::records::RecordSize;
use jiff::SignedDuration;

use super::{
    blocks::{self, BLOCK, Block, OVERHEAD, Unpacked, WORK},
    format::Header,
    lists::KnownElements,
};

/// After a failure nothing is recorded for this long, because the next attempt may cost as much as
/// this one.
const REST: Duration = Duration::from_mins(10);
/// The smallest bound with which a record makes sense.
pub(super) const SMALLEST: usize = 1_000_000;

/// A piece of a record that can be read without those before it.
pub(super) struct Segment {
    pub(super) begins: At,
    /// By how much the wall clock had been set.
    pub(super) set: SignedDuration,
    /// The line with the memory at its beginning.
    memory: Vec<Block>,
    lines: Vec<Block>,
    bytes: usize,
    events: u64,
}

/// A record that is being written.
pub(super) struct Ring {
    program: String,
    /// The most that blocks may take.
    room: usize,
    segments: VecDeque<Segment>,
    bytes: usize,
    /// The part of the last segment that is not compressed yet.
    open: Vec<u8>,
    known: KnownElements,
    /// True once events are not in the record any more.
    was_cut: bool,
    problem: Option<String>,
    rests_until: Option<At>,
}

/// The reason why a line or a memory is not in the record.
#[derive(Debug, thiserror::Error)]
enum RingError {
    #[error("what the program remembers does not fit; raise --record-bytes")]
    Memory,
    #[error("one event does not fit; raise --record-bytes")]
    Event,
}

/// A record as it is at one moment. It shares the blocks.
pub(super) struct RecordSnapshot {
    pub(super) header: Header,
    segments: Vec<(SignedDuration, Vec<Block>)>,
    open: Vec<u8>,
}

impl Ring {
    pub(super) fn new(program: String, bound: usize) -> Self {
        let room = bound.max(SMALLEST).saturating_sub(WORK + BLOCK);
        Self {
            program,
            room,
            segments: VecDeque::new(),
            bytes: 0,
            open: Vec::new(),
            known: KnownElements::default(),
            was_cut: false,
            problem: None,
            rests_until: None,
        }
    }

    /// Begins a new segment if the record has no segment, if the last one is long enough, or if the
    /// wall clock has been set; `memory` then writes the machine's memory. Returns true if a segment
    /// is open: events are recorded now.
    pub(super) fn prepare(
        &mut self,
        now: At,
        set: SignedDuration,
        memory: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> bool {
        if self.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        let is_open = |last: &Segment| last.set == set && !self.is_long(last);
        if self.segments.back().is_some_and(is_open) {
            return true;
        }
        let begun = self.begin(now, set, memory);
        self.noted(now, begun)
    }

    /// Returns true if the segment should end. A segment with a large memory may be longer, so that
    /// memories take at most about half of the record.
    fn is_long(&self, segment: &Segment) -> bool {
        let memory: usize = segment.memory.iter().map(|block| block.len()).sum();
        let longest = (2 * memory).max(self.room / 4).min(self.room / 8 * 7);
        segment.bytes + self.known.bytes() >= longest
    }

    fn begin(
        &mut self,
        now: At,
        set: SignedDuration,
        memory: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        self.close()?;
        let (memory_blocks, lines) = (Vec::new(), Vec::new());
        let segment =
            Segment { begins: now, set, memory: memory_blocks, lines, bytes: 0, events: 0 };
        self.segments.push_back(segment);
        let mut sink = Sink { ring: self, is_memory: true };
        sink.write_all(b"{\"memory\":")?;
        memory(&mut sink)?;
        sink.write_all(b"}\n")?;
        sink.close()?;
        (self.problem, self.rests_until) = (None, None);
        Ok(())
    }

    /// Compresses the rest of the last segment.
    fn close(&mut self) -> io::Result<()> {
        self.known = KnownElements::default();
        if self.segments.is_empty() {
            self.open.clear();
            return Ok(());
        }
        Sink { ring: self, is_memory: false }.close()
    }

    /// Adds to the line of an event. Returns true if the event is in the record.
    pub(super) fn write(
        &mut self,
        now: At,
        write: impl FnOnce(&mut dyn Write, &mut KnownElements) -> io::Result<()>,
    ) -> bool {
        let mut known = std::mem::take(&mut self.known);
        let written = write(&mut Sink { ring: self, is_memory: false }, &mut known);
        self.known = known;
        let kept = written.and_then(|()| self.shrink());
        self.noted(now, kept)
    }

    /// Counts the event that was just written.
    pub(super) fn end_event(&mut self) {
        if let Some(last) = self.segments.back_mut() {
            last.events += 1;
        }
    }

    /// Drops the oldest segments until the rest is within the bound.
    fn shrink(&mut self) -> io::Result<()> {
        while self.bytes + self.known.bytes() > self.room {
            if self.segments.len() < 2 {
                return Err(io::Error::other(RingError::Event));
            }
            let Some(oldest) = self.segments.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.was_cut = true;
        }
        Ok(())
    }

    /// Returns true if `outcome` is a success. After a failure the record is empty and says why.
    fn noted(&mut self, now: At, outcome: io::Result<()>) -> bool {
        let Err(error) = outcome else { return true };
        // An event that does not fit into the rest of a segment may fit into a new one.
        let was_new = self.segments.back().is_none_or(|last| last.events == 0);
        self.segments.clear();
        self.open = Vec::new();
        self.known = KnownElements::default();
        self.bytes = 0;
        self.was_cut = true;
        self.problem = Some(error.to_string());
        self.rests_until = was_new.then_some(now + REST);
        false
    }

    pub(super) fn size(&self) -> RecordSize {
        RecordSize {
            bytes: self.bytes + self.open.capacity() + self.known.bytes(),
            events: self.segments.iter().map(|segment| segment.events).sum(),
            since: self.segments.front().map(|first| first.begins),
        }
    }

    pub(super) fn snapshot(&self, written: At) -> RecordSnapshot {
        let size = self.size();
        let header = Header {
            program: self.program.clone(),
            written,
            whole_since: size.since,
            events: size.events,
            was_cut: self.was_cut,
            note: self.problem.clone(),
            ..Header::default()
        };
        let first = self.segments.iter().take(1).map(|first| &first.memory);
        let memories = first.cloned().chain(std::iter::repeat_with(Vec::new));
        let segments = self.segments.iter().zip(memories).map(|(segment, mut blocks)| {
            blocks.extend(segment.lines.iter().cloned());
            (segment.set, blocks)
        });
        RecordSnapshot { header, segments: segments.collect(), open: self.open.clone() }
    }
}

impl RecordSnapshot {
    /// Returns the lines of the record between the header and the end.
    pub(super) fn lines(&self) -> Unpacked {
        let mut lines = Unpacked::default();
        for (set, blocks) in &self.segments {
            let set = set.as_millis();
            lines.add(format!("{{\"segment\":{{\"clock_set_ms\":{set}}}}}\n").into_bytes());
            for block in blocks {
                lines.add_block(block);
            }
        }
        lines.add(self.open.clone());
        lines
    }
}

/// Writes into the last segment.
struct Sink<'a> {
    ring: &'a mut Ring,
    is_memory: bool,
}

impl Sink<'_> {
    fn close(&mut self) -> io::Result<()> {
        if self.ring.open.is_empty() {
            return Ok(());
        }
        let block = blocks::pack(&self.ring.open)?;
        self.ring.open.clear();
        self.add(block)
    }

    fn add(&mut self, block: Block) -> io::Result<()> {
        let Self { ring, is_memory } = self;
        let bytes = block.len() + OVERHEAD;
        ring.bytes += bytes;
        if let Some(last) = ring.segments.back_mut() {
            last.bytes += bytes;
            let blocks = if *is_memory { &mut last.memory } else { &mut last.lines };
            blocks.push(block);
            if *is_memory && last.bytes > ring.room / 4 * 3 {
                return Err(io::Error::other(RingError::Memory));
            }
        }
        ring.shrink()
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.ring.open.len() >= BLOCK {
                self.close()?;
            }
            let free = BLOCK - self.ring.open.len();
            let (now, later) = rest.split_at(free.min(rest.len()));
            let open = &mut self.ring.open;
            // The buffer is never larger than a block, and small while the program has few events.
            let needed = (open.len() + now.len()).next_power_of_two().min(BLOCK);
            open.reserve_exact(needed - open.len());
            open.extend_from_slice(now);
            rest = later;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
