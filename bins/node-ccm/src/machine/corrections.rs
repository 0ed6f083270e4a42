//! Corrections of many nodes that already work: each waits for its turn, and a correction that
//! another writer repeatedly reverts waits longer.

use std::time::Duration;

use ccm_base::At;
use ccm_controller::queue::Priority;
use ccm_controller::repeats::{Content, Repeated};
use ccm_objects::Shared as Name;

use super::{Effect, Machine, Queued, turns::Turns};

/// The reason why node-ccm does not write a node now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Later {
    /// The time until it may be.
    pub(super) wait: Duration,
    /// The field that another writer sets as well, if that is why.
    pub(super) repeated: Option<Repeated>,
}

/// Fields with their values.
type Fields = [(String, String)];

impl Machine {
    fn change_turns<R>(&mut self, change: impl FnOnce(&mut Turns, At) -> R) -> R {
        let before = self.turns.waiting();
        let result = change(&mut self.turns, self.now);
        if self.turns.waiting() != before {
            self.say(Effect::TurnsWait);
        }
        result
    }

    /// Uses the turn of the node for this many writes, which set these fields to these values.
    ///
    /// # Errors
    ///
    /// The reason why it is not its turn.
    pub(super) fn take_turn(
        &mut self,
        name: &Name,
        writes: usize,
        fields: &Fields,
    ) -> Result<(), Later> {
        let waits = self.entries.get(name).and_then(|entry| {
            let check = |(field, value): &(String, String)| {
                entry.made.check(self.now, field, || Content::digest(value))
            };
            fields.iter().filter_map(|field| check(field).err()).max_by_key(|one| one.wait)
        });
        if let Some(repeated) = waits {
            return Err(Later { wait: repeated.wait, repeated: Some(repeated) });
        }
        if writes == 0 {
            return Ok(());
        }
        let turn = self.change_turns(|turns, now| turns.take(name, writes, now));
        turn.map_err(|wait| Later { wait, repeated: None })
    }

    /// Records that these fields of the node were set. Returns the fields that do not last.
    pub(super) fn made(&mut self, name: &Name, fields: &Fields) -> Vec<String> {
        let now = self.now;
        let made = &mut self.entry(name).made;
        let mut add = |(field, value): &(String, String)| {
            made.made(now, field.clone(), Content::digest(value)).map(|_| field.clone())
        };
        fields.iter().filter_map(&mut add).collect()
    }

    /// Records that these fields of the node were set but that the answer does not show them.
    /// Returns them.
    pub(super) fn refused(&mut self, name: &Name, fields: &Fields) -> Vec<Repeated> {
        let now = self.now;
        let made = &mut self.entry(name).made;
        let mut add = |(field, value): &(String, String)| {
            made.refused(now, field.clone(), Content::digest(value))
        };
        fields.iter().filter_map(&mut add).collect()
    }

    /// Records that the node needs no turn any more.
    pub(super) fn leaves_turns(&mut self, name: &Name) {
        self.change_turns(|turns, _| turns.forget(name));
    }

    /// Applies another rate. Nodes that wait for their turn are queued: they have to take a new one.
    pub(super) fn configure_turns(&mut self) {
        let rate = self.params.per_second;
        for name in self.change_turns(|turns, _| turns.configure(rate)) {
            self.say(Effect::Queue(name, Queued::Add(Priority::Routine)));
        }
    }
}
