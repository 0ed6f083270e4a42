//! Writes down what goes through a door.

use ccm_base::{At, clock};

use super::{Recorded, Recorder, lists::Shortened};
use crate::machine::Tape;

impl<M: Recorded> Tape<M> for Recorder<M> {
    /// Nothing in the record or in the machine may follow a change of the wall clock within a
    /// segment, or a replay would compute with other moments.
    fn apply(&mut self, machine: &mut M, event: M::Event, now: At) -> Vec<M::Effect> {
        let (set, mut ring) = (clock::set_since_start(), self.ring.lock());
        clock::while_set_by(set, || {
            let is_ready = ring.prepare(now, set, |to| Ok(serde_json::to_writer(to, &*machine)?))
                && ring.write(now, |to, known| {
                    to.write_all(b"{\"at\":")?;
                    serde_json::to_writer(&mut *to, &now)?;
                    to.write_all(b",\"event\":")?;
                    Ok(serde_json::to_writer(Shortened::new(to, known), &event)?)
                });
            let effects = machine.apply(event, now);
            let is_written = is_ready
                && ring.write(now, |to, _| {
                    to.write_all(b",\"effects\":")?;
                    serde_json::to_writer(&mut *to, &effects)?;
                    to.write_all(b"}\n")
                });
            if is_written {
                ring.end_event();
            }
            effects
        })
    }
}
