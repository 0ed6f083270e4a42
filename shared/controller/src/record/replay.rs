//! Replays records with the machine of this version.

use std::{
    fmt,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
};

use ccm_base::At;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    Recorded,
    format::{Header, Reader, RecordLine},
};

/// The exit code if nothing differs.
pub const SAME: u8 = 0;
/// The exit code if effects differ.
pub const DIFFERS: u8 = 1;
/// The record cannot be read, or not all of it.
pub const UNREADABLE: u8 = 2;

/// An effect that is another one now.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The line in the record.
    pub line: usize,
    /// The time of the event.
    pub at: At,
    /// The event.
    pub event: String,
    /// The effect of the record; nothing if this version has one more.
    pub expected: Option<Value>,
    /// The effect of this version; nothing if it has one less.
    pub got: Option<Value>,
}

/// A line that this version cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The line in the record.
    pub line: usize,
    /// The reason, in words.
    pub why: String,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The program that has written the record.
    pub header: Header,
    /// How many events were replayed.
    pub events: usize,
    /// The effects that differ.
    pub differences: Vec<Difference>,
    /// The lines that cannot be read. Without the event of such a line everything after it may
    /// differ.
    pub unread: Vec<Unread>,
}

impl Report {
    /// Returns the exit code of a program that shows this.
    pub fn code(&self) -> u8 {
        match (self.unread.is_empty(), self.differences.is_empty()) {
            (false, _) => UNREADABLE,
            (true, false) => DIFFERS,
            (true, true) => SAME,
        }
    }

    fn unknown(&mut self, line: usize, what: Option<String>) {
        if let Some(what) = what {
            self.cannot(line, what);
        }
    }

    fn cannot(&mut self, line: usize, why: impl fmt::Display) {
        self.unread.push(Unread { line, why: why.to_string() });
    }
}

/// Longer texts are cut when a report is shown.
const SHOWN: usize = 600;
/// Further differences are only counted, because most follow from the first ones.
const LISTED: usize = 50;

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, at, event, expected, got } = self;
        let effect = |effect: Option<&Value>| {
            effect.map_or_else(|| "nothing".to_owned(), |effect| short(&effect.to_string()))
        };
        writeln!(f, "line {line}, {at}: {}", short(event))?;
        writeln!(f, "  expected {}", effect(expected.as_ref()))?;
        write!(f, "  got      {}", effect(got.as_ref()))
    }
}

fn short(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() { shown + "..." } else { shown }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, events, differences, unread } = self;
        let Header { program, version, commit, written, .. } = header;
        writeln!(f, "a record of {program} {version} ({commit}), written at {written}")?;
        if let Some(note) = &header.note {
            writeln!(f, "note: {note}")?;
        }
        for Unread { line, why } in unread.iter().take(LISTED) {
            writeln!(f, "line {line} cannot be read: {why}")?;
        }
        for difference in differences.iter().take(LISTED) {
            writeln!(f, "{difference}")?;
        }
        let (differences, unread) = (differences.len(), unread.len());
        write!(f, "events: {events}; effects that differ: {differences}; lines not read: {unread}")
    }
}

/// Replays a record of this machine.
pub fn replay<M: Recorded>(record: &mut dyn Read) -> Report {
    let (mut report, mut reader) = (Report::default(), Reader::new(record));
    let (mut machine, mut has_end, mut happened) = (None::<M>, false, 0_u64);
    while let Some(line) = reader.next() {
        let number = reader.number;
        match line {
            Err(why) => report.cannot(number, why),
            Ok(RecordLine::Header(header)) => report.header = *header,
            Ok(RecordLine::Begin(_)) => {}
            Ok(RecordLine::Memory(memory)) => match reader.then(|| read::<M>(memory.get())) {
                Ok((read, unknown)) => {
                    machine = Some(read);
                    report.unknown(number, unknown);
                }
                Err(why) => report.cannot(number, format!("the memory: {why}")),
            },
            Ok(RecordLine::Happened { at, event, effects }) => {
                happened += 1;
                let Some(machine) = &mut machine else { continue };
                reader.then(|| report.follow(machine, number, at, event, effects));
            }
            Ok(RecordLine::End(end)) => {
                has_end = true;
                if end.events != happened {
                    let why = format!("the record has {happened} events, not {}", end.events);
                    report.cannot(number, why);
                }
                report.unknown(number, end.note);
            }
        }
    }
    if report.header.whole_since.is_some() && machine.is_none() && report.unread.is_empty() {
        report.cannot(reader.number, "the record has no memory to begin with");
    }
    if !has_end {
        report.cannot(reader.number, "the record has no end: it is not complete");
    }
    report
}

impl Report {
    fn follow<M: Recorded>(
        &mut self,
        machine: &mut M,
        line: usize,
        at: At,
        event: String,
        effects: Vec<Value>,
    ) {
        let (read, unknown) = match read::<M::Event>(&event) {
            Ok(read) => read,
            Err(why) => return self.cannot(line, format!("the event: {why}")),
        };
        self.unknown(line, unknown);
        let mut got: Vec<Value> = Vec::new();
        for effect in machine.apply(read, at) {
            match serde_json::to_value(&effect) {
                Ok(effect) => got.push(effect),
                Err(error) => self.cannot(line, format!("an effect of this version: {error}")),
            }
        }
        self.events += 1;
        for index in 0..effects.len().max(got.len()) {
            let (expected, got) = (effects.get(index), got.get(index));
            if expected != got {
                let (event, expected, got) = (event.clone(), expected.cloned(), got.cloned());
                self.differences.push(Difference { line, at, event, expected, got });
            }
        }
    }
}

/// Returns the value of a text, and the part of the text that the value lacks: otherwise a field
/// that this version does not know would be dropped silently.
fn read<T: Serialize + DeserializeOwned>(text: &str) -> Result<(T, Option<String>), String> {
    let read: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let written = serde_json::to_string(&read).map_err(|error| error.to_string())?;
    if written == text {
        return Ok((read, None));
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
    let unknown = lost(&parse(text)?, &parse(&written)?, &mut String::new());
    Ok((read, unknown.map(|path| format!("this version does not know {path}"))))
}

/// Returns the first field that only the first value has.
fn lost(all: &Value, known: &Value, path: &mut String) -> Option<String> {
    let length = path.len();
    match (all, known) {
        (Value::Object(all), Value::Object(known)) => all.iter().find_map(|(key, value)| {
            path.truncate(length);
            path.push('.');
            path.push_str(key);
            match known.get(key) {
                Some(known) => lost(value, known, path),
                // Fields without a value may be missing.
                None if value.is_null() => None,
                None => Some(path.clone()),
            }
        }),
        (Value::Array(all), Value::Array(known)) => {
            all.iter().zip(known).enumerate().find_map(|(index, (all, known))| {
                path.truncate(length);
                path.extend(["[", &index.to_string(), "]"]);
                lost(all, known, path)
            })
        }
        _ => None,
    }
}

/// Replays a record of one machine.
pub type Replay = fn(&mut dyn Read) -> Report;

/// Returns the name of this machine in its records, and the function that replays them.
pub const fn named_replay<M: Recorded>() -> (&'static str, Replay) {
    (M::NAME, replay::<M>)
}

/// Replays the records of a file with the machines of these names. A file has one record for each machine of
/// the program. Prints what differs, and returns the exit code.
pub fn run(machines: &[(&str, Replay)], path: &Path, out: &mut dyn Write) -> io::Result<u8> {
    let mut lines = BufReader::new(File::open(path)?).lines().peekable();
    let mut code = SAME;
    let mut is_empty = true;
    while let Some(first) = lines.next().transpose()? {
        is_empty = false;
        let mut record = first.clone() + "\n";
        while let Some(line) =
            lines.next_if(|line| line.as_ref().is_ok_and(|line| !is_header(line)))
        {
            record.push_str(&line?);
            record.push('\n');
        }
        code = code.max(one(machines, &first, &record, out)?);
    }
    if is_empty {
        writeln!(out, "{}: no line", path.display())?;
        return Ok(UNREADABLE);
    }
    Ok(code)
}

fn is_header(line: &str) -> bool {
    line.starts_with("{\"record\":")
}

fn one(
    machines: &[(&str, Replay)],
    first: &str,
    record: &str,
    out: &mut dyn Write,
) -> io::Result<u8> {
    let header = match Reader::new(first.as_bytes()).next() {
        Some(Ok(RecordLine::Header(header))) => header,
        Some(Err(why)) => {
            writeln!(out, "line 1 cannot be read: {why}")?;
            return Ok(UNREADABLE);
        }
        _ => {
            writeln!(out, "the first line is not the header of a record")?;
            return Ok(UNREADABLE);
        }
    };
    let Some((_, replay)) = machines.iter().find(|(name, _)| *name == header.program) else {
        let known: Vec<_> = machines.iter().map(|(name, _)| *name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        writeln!(out, "a record of {}: this version replays {known}", header.program)?;
        return Ok(UNREADABLE);
    };
    let report = replay(&mut record.as_bytes());
    writeln!(out, "{report}")?;
    Ok(report.code())
}

/// Replays each record of a folder (`*.jsonl`) as a test. Returns the number of records. The error
/// says what differs. The folder need not exist.
pub fn folder(machines: &[(&str, Replay)], path: &Path) -> Result<usize, String> {
    let mut failed = Vec::new();
    let mut count = 0;
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in entries.filter(|file| file.extension().is_some_and(|ending| ending == "jsonl")) {
        count += 1;
        let mut shown = Vec::new();
        let why = match run(machines, &file, &mut shown) {
            Ok(SAME) => continue,
            Ok(_) => String::from_utf8_lossy(&shown).into_owned(),
            Err(error) => error.to_string(),
        };
        failed.push(format!("{}: {why}", file.display()));
    }
    if failed.is_empty() { Ok(count) } else { Err(failed.join("\n")) }
}
