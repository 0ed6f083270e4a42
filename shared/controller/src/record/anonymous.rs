//! A record without the names of a cluster.
//!
//! Every text in the memory and in the events is replaced, except words that are known to name
//! nothing. Fields and variants are not texts: the serialisation says which they are. Numbers,
//! times and truth values stay. The machine computes the effects again from the replaced memory and
//! events. So no unknown text passes, whichever field it is in.
//!
//! Equal texts stay equal, also as parts of others (`default/shop`, `node-7.example.com`), and the
//! order of texts stays.

mod addresses;
mod names;
mod texts;

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use self::{names::Names, texts::Texts};
use super::{
    Recorded,
    format::{
        End, Happened, Header, MemoryLine, Reader, RecordLine, write_begin, write_end, write_line,
    },
};

/// Writes the record with these lines without names. Reads the lines twice.
pub(super) fn write<'a, M: Recorded>(
    header: Header,
    lines: impl Fn() -> Box<dyn Read + 'a>,
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut names = Names::new(M::words());
    if let Some(name) = &header.name {
        names.collect(name);
    }
    let collected = collect::<M>(lines(), &mut names);
    names.seal();
    let header = header.anonymised(|name| names.replaced(name));
    if let Err(note) = collected {
        write_line(to, &Header { whole_since: None, events: 0, ..header })?;
        return write_end(to, End { note: Some(note), ..End::default() });
    }
    write_line(to, &header)?;
    let mut end = End { other_effects: Some(0), ..End::default() };
    end.note = rewrite::<M>(lines(), &names, to, &mut end)?.err();
    write_end(to, end)
}

/// Learns all texts. The error does not quote any.
fn collect<M: Recorded>(lines: Box<dyn Read + '_>, names: &mut Names) -> Result<(), String> {
    let mut reader = Reader::new(lines);
    while let Some(line) = reader.next() {
        let number = reader.number;
        let failed = || format!("line {number} cannot be read, so the names in it are not known");
        match line {
            Ok(RecordLine::Memory(memory)) => {
                let memory: M = reader.then(|| read(memory.get())).ok_or_else(failed)?;
                reader.then(|| memory.serialize(Texts::Collect(names))).map_err(|_| failed())?;
            }
            Ok(RecordLine::Happened { event, .. }) => {
                let event: M::Event = reader.then(|| read(&event)).ok_or_else(failed)?;
                reader.then(|| event.serialize(Texts::Collect(names))).map_err(|_| failed())?;
            }
            Ok(_) => {}
            Err(_) => return Err(failed()),
        }
    }
    Ok(())
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Writes the lines with other names, up to the first that cannot be rewritten. The inner error
/// says why.
fn rewrite<M: Recorded>(
    lines: Box<dyn Read + '_>,
    names: &Names,
    to: &mut dyn Write,
    end: &mut End,
) -> io::Result<Result<(), String>> {
    let (mut reader, mut machine) = (Reader::new(lines), None::<M>);
    while let Some(line) = reader.next() {
        let number = reader.number;
        let failed = |what| Ok(Err(format!("line {number} cannot be made anonymous: {what}")));
        match line {
            Ok(RecordLine::Begin(set)) => write_begin(to, set)?,
            Ok(RecordLine::Memory(memory)) => {
                let replaced = reader.then(|| replaced::<M>(memory.get(), names));
                let Some((memory, value)) = replaced else { return failed("the memory") };
                write_line(to, &MemoryLine { memory: value })?;
                machine = Some(memory);
            }
            Ok(RecordLine::Happened { at, event, effects }) => {
                let Some(machine) = &mut machine else { continue };
                let replaced = reader.then(|| replaced::<M::Event>(&event, names));
                let Some((event, value)) = replaced else { return failed("the event") };
                let followed = reader.then(|| serde_json::to_value(machine.apply(event, at)));
                let Ok(Value::Array(followed)) = followed else { return failed("the effects") };
                if !followed.iter().map(kind).eq(effects.iter().map(kind)) {
                    end.other_effects = end.other_effects.map(|others| others + 1);
                }
                end.events += 1;
                let line = Happened { at, event: value, effects: followed };
                reader.then(|| write_line(to, &line))?;
            }
            Ok(RecordLine::Header(_) | RecordLine::End(_)) => {}
            Err(_) => return failed("the line"),
        }
    }
    Ok(Ok(()))
}

fn replaced<T: Serialize + DeserializeOwned>(text: &str, names: &Names) -> Option<(T, Value)> {
    let value = read::<T>(text)?.serialize(Texts::Replace(names)).ok()?;
    let again = T::deserialize(&value).ok()?;
    Some((again, value))
}

/// Returns the variant of an effect.
fn kind(effect: &Value) -> Option<&str> {
    effect.as_str().or_else(|| effect.as_object()?.keys().next().map(String::as_str))
}
