//! The lines of a record.
//!
//! ```text
//! {"record":1,"program":"node-ccm","version":"0.1.0",...}       who wrote it, when, and what is in it
//! {"segment":{"clock_set_ms":0}}                                the numbers of elements start again; the wall clock
//! {"memory":{...}}                                              the machine before the first event
//! {"at":"2026-11-22T15:41:17.123Z","event":{...},"effects":[...]}
//! {"end":{"events":1}}                                          the record is complete
//! ```

use std::io::{self, BufRead, BufReader, Lines, Read, Write};

use ccm_base::{At, clock};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use super::lists::Elements;

/// The number of the present format.
pub const FORMAT: u32 = 1;

/// The first line of a record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// The number of the format.
    pub record: u32,
    /// The program, and its machine if it has several: `route-ccm/routes`.
    pub program: String,
    /// The version of the program.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// When this was written.
    pub written: At,
    /// The time since when the record is whole; `None` if the record is empty.
    pub whole_since: Option<At>,
    /// True if there were events before that.
    pub was_cut: bool,
    /// How many events there are.
    pub events: u64,
    /// The object that the record was reduced to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True if names and addresses were replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anonymous: bool,
    /// A remark for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The beginning of a segment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Begin {
    pub(super) clock_set_ms: i64,
}

/// The last line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) events: u64,
    /// The number of events whose effects are of other kinds than in the record that this one was
    /// made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) other_effects: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

/// An event with its effects.
#[derive(Serialize)]
pub(super) struct Happened<E, F> {
    pub(super) at: At,
    pub(super) event: E,
    pub(super) effects: F,
}

/// The line of a memory.
#[derive(Serialize)]
pub(super) struct MemoryLine<M> {
    pub(super) memory: M,
}

pub(super) fn write_line(to: &mut dyn Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

pub(super) fn write_begin(to: &mut dyn Write, set: SignedDuration) -> io::Result<()> {
    let clock_set_ms = i64::try_from(set.as_millis()).unwrap_or_default();
    write_line(to, &serde_json::json!({"segment": Begin { clock_set_ms }}))
}

pub(super) fn write_end(to: &mut dyn Write, end: End) -> io::Result<()> {
    write_line(to, &serde_json::json!({ "end": end }))
}

/// A line.
pub(super) enum RecordLine {
    Header(Box<Header>),
    Begin(SignedDuration),
    Memory(Box<RawValue>),
    /// An event in full, with the times as texts.
    Happened {
        at: At,
        event: String,
        effects: Vec<Value>,
    },
    End(End),
}

/// Everything that a line may have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Any<'a> {
    segment: Option<Begin>,
    #[serde(borrow)]
    memory: Option<&'a RawValue>,
    at: Option<At>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    effects: Option<Vec<Value>>,
    end: Option<End>,
}

/// Reads the lines of records.
pub(super) struct Reader<R> {
    lines: Lines<BufReader<R>>,
    /// The number of the last line.
    pub(super) number: usize,
    set: SignedDuration,
    elements: Elements,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(from: R) -> Self {
        let (lines, elements) = (BufReader::new(from).lines(), Elements::default());
        Self { lines, number: 0, set: SignedDuration::ZERO, elements }
    }

    /// Runs this as if the wall clock had been set as it was in the current segment.
    pub(super) fn then<T>(&self, run: impl FnOnce() -> T) -> T {
        clock::while_set_by(self.set, run)
    }

    /// Returns the next line; in words why it cannot be read.
    pub(super) fn next(&mut self) -> Option<Result<RecordLine, String>> {
        let text = loop {
            self.number += 1;
            match self.lines.next()? {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => break text,
                Err(error) => return Some(Err(error.to_string())),
            }
        };
        let set = self.set;
        Some(clock::while_set_by(set, || self.line(&text)))
    }

    fn line(&mut self, text: &str) -> Result<RecordLine, String> {
        if text.starts_with("{\"record\":") {
            (self.set, self.elements) = (SignedDuration::ZERO, Elements::default());
            return header(text);
        }
        let any: Any<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(begin) = any.segment {
            self.set = SignedDuration::from_millis(begin.clock_set_ms);
            self.elements = Elements::default();
            return Ok(RecordLine::Begin(self.set));
        }
        if let Some(memory) = any.memory {
            return Ok(RecordLine::Memory(memory.to_owned()));
        }
        if let Some(end) = any.end {
            return Ok(RecordLine::End(end));
        }
        let (Some(at), Some(event), Some(effects)) = (any.at, any.event, any.effects) else {
            return Err("a line has at, event and effects".to_owned());
        };
        let event = self.elements.expand(event.get()).map_err(|error| error.to_string())?;
        Ok(RecordLine::Happened { at, event, effects })
    }
}

fn header(text: &str) -> Result<RecordLine, String> {
    /// The only part that all formats share.
    #[derive(Deserialize)]
    struct Numbered {
        record: u32,
    }
    let Numbered { record } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if record != FORMAT {
        return Err(format!("the format {record} is unknown; this version reads {FORMAT}"));
    }
    serde_json::from_str(text).map(RecordLine::Header).map_err(|error| error.to_string())
}
