//! Cuts the record of one object out of a whole one.

use serde_json::Value;

use super::{
    Recorded,
    format::{Happened, MemoryLine, Reader, RecordLine, write_begin, write_line},
    ring::RecordSnapshot,
};

/// A longer cut is not worth more than the whole record.
const LONGEST: usize = 16 * 1024 * 1024;

/// The lines of one object, between header and end.
pub(super) struct Alone {
    pub(super) text: Vec<u8>,
    pub(super) events: u64,
    /// How many events are about the object.
    pub(super) own: u64,
}

/// Cuts out the record of this object, and replays both records: the effects on the object must be
/// the same. The error says in words why the record cannot be cut.
pub(super) fn cut<M: Recorded>(snapshot: &RecordSnapshot, name: &str) -> Result<Alone, String> {
    let mut reader = Reader::new(snapshot.lines());
    let mut alone = Alone { text: Vec::new(), events: 0, own: 0 };
    let mut machines: Option<(M, M)> = None;
    let failed = |error: &dyn std::fmt::Display| format!("it cannot be written: {error}");
    while let Some(line) = reader.next() {
        match line? {
            RecordLine::Begin(set) => {
                write_begin(&mut alone.text, set).map_err(|error| failed(&error))?;
            }
            RecordLine::Memory(memory) => {
                let read = || serde_json::from_str::<M>(memory.get());
                let whole = reader.then(read).map_err(|error| failed(&error))?;
                let own = reader.then(read).map_err(|error| failed(&error))?.only(name);
                let written =
                    reader.then(|| write_line(&mut alone.text, &MemoryLine { memory: &own }));
                written.map_err(|error| failed(&error))?;
                machines = Some((whole, own));
            }
            RecordLine::Happened { at, event, effects } => {
                let Some((whole, own)) = &mut machines else { continue };
                let happened = Happened { at, event: &*event, effects };
                reader.then(|| alone.follow(whole, own, happened, name))?;
            }
            RecordLine::Header(_) | RecordLine::End(_) => {}
        }
        if alone.text.len() > LONGEST {
            return Err("it is too long".to_owned());
        }
    }
    Ok(alone)
}

impl Alone {
    fn follow<M: Recorded>(
        &mut self,
        whole: &mut M,
        own: &mut M,
        happened: Happened<&str, Vec<Value>>,
        name: &str,
    ) -> Result<(), String> {
        let failed = |error: serde_json::Error| format!("it cannot be replayed: {error}");
        let Happened { at, event, effects } = happened;
        let read = || serde_json::from_str::<M::Event>(event).map_err(failed);
        let followed = whole.apply(read()?, at);
        if serde_json::to_value(&followed).map_err(failed)? != Value::Array(effects) {
            return Err(format!(
                "the record cannot be trusted: the event of {at} has other effects in a replay"
            ));
        }
        let about = |effects: &[M::Effect]| {
            let own = effects
                .iter()
                .filter(|effect| M::effect_about(effect).is_some_and(|is| is == name));
            own.map(serde_json::to_value).collect::<Result<Vec<_>, _>>().map_err(failed)
        };
        let expected = about(&followed)?;
        let Some(event) = M::only_event(read()?, name) else {
            let same = expected.is_empty();
            return if same { Ok(()) } else { Err(depends(at)) };
        };
        self.own += u64::from(M::about(&event).is_some_and(|object| object == name));
        let text = serde_json::to_value(&event).map_err(failed)?;
        let followed = own.apply(event, at);
        if about(&followed)? != expected {
            return Err(depends(at));
        }
        self.events += 1;
        let line = Happened { at, event: text, effects: followed };
        write_line(&mut self.text, &line).map_err(|error| error.to_string())
    }
}

fn depends(at: ccm_base::At) -> String {
    format!(
        "its machine decides otherwise: the effects of the event of {at} depend on other objects"
    )
}
