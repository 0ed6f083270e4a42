//! The page `/record`.

use std::io::{self, Write};

use ccm_base::{At, clock};
use ccm_runtime::{
    program::{COMMIT, VERSION},
    records::{Record, RecordQuery, RecordSize},
};

use super::{
    Recorded, Recorder, anonymous,
    cut::cut,
    format::{End, FORMAT, Header, write_end, write_line},
    ring::RecordSnapshot,
};

impl<M: Recorded> Recorder<M> {
    fn snapshot(&self) -> RecordSnapshot {
        let written = At::from(clock::wall());
        let mut snapshot = self.ring.lock().snapshot(written);
        let header = &mut snapshot.header;
        header.record = FORMAT;
        (header.version, header.commit) = (VERSION.to_owned(), COMMIT.to_owned());
        snapshot
    }
}

impl<M: Recorded> Record for Recorder<M> {
    fn write(&self, asked: &RecordQuery, to: &mut dyn Write) -> io::Result<()> {
        let mut snapshot = self.snapshot();
        let mut alone = None;
        if let Some(name) = &asked.name {
            match cut::<M>(&snapshot, name) {
                Ok(lines) => {
                    snapshot.header.events = lines.events;
                    snapshot.header.name = Some(name.clone());
                    if lines.own == 0 {
                        let why = "the record has no event about this object alone";
                        snapshot.header.note.get_or_insert_with(|| why.to_owned());
                    }
                    alone = Some(lines.text);
                }
                Err(why) => {
                    let why = format!(
                        "this record is about all objects, because the record of one object alone is not possible: {why}"
                    );
                    snapshot.header.note.get_or_insert(why);
                }
            }
        }
        let source = || -> Box<dyn io::Read + '_> {
            match &alone {
                Some(lines) => Box::new(lines.as_slice()),
                None => Box::new(snapshot.lines()),
            }
        };
        if asked.anonymous {
            return anonymous::write::<M>(snapshot.header.clone(), source, to);
        }
        write_line(to, &snapshot.header)?;
        io::copy(&mut source(), to)?;
        let events = snapshot.header.events;
        write_end(to, End { events, ..End::default() })
    }

    fn kept(&self) -> RecordSize {
        self.ring.lock().size()
    }
}

impl Header {
    /// Returns the same without anything that names an object.
    pub(super) fn anonymised(self, name: impl FnOnce(&str) -> String) -> Self {
        let Self { name: object, note, .. } = self;
        let name = object.as_deref().map(name);
        // The note may quote the machine's words.
        let note = note.map(|_| "a note was left out".to_owned());
        Self { name, note, anonymous: true, ..self }
    }
}
