//! A work queue of plain values for random histories, as simple as possible.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::{At, Backoff, RetryClass};
use ccm_objects::Shared as Name;

const WAITS: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
const LONG: Duration = Duration::from_mins(5);
const AFTER_CONFLICT: Duration = Duration::from_millis(20);

/// The names that are due, delayed or at work.
#[derive(Debug, Default)]
pub struct Queue {
    keys: BTreeMap<Name, Key>,
}

#[derive(Debug, Default)]
struct Key {
    due: Option<At>,
    is_busy: bool,
    failures: u32,
    conflicts: u32,
}

impl Queue {
    fn key(&mut self, name: &Name) -> &mut Key {
        self.keys.entry(Name::clone(name)).or_default()
    }

    /// Adds the name at this time, or earlier if it is due earlier.
    pub fn after(&mut self, name: &Name, at: At) {
        let due = &mut self.key(name).due;
        *due = Some(due.map_or(at, |due| due.min(at)));
    }

    /// Adds the name again, as the class of its error demands.
    pub fn again(&mut self, name: &Name, class: RetryClass, now: At) {
        let wait = match class {
            RetryClass::Retry => {
                let key = self.key(name);
                key.failures += 1;
                WAITS.after(key.failures)
            }
            RetryClass::RetryAfter(wait) => wait,
            RetryClass::Permanent => LONG,
        };
        self.after(name, now + wait);
    }

    /// Adds the name soon. Returns false after more conflicts in a row than are usual.
    pub fn conflict(&mut self, name: &Name, most: u32, now: At) -> bool {
        let key = self.key(name);
        key.conflicts += 1;
        let is_usual = key.conflicts <= most;
        if is_usual {
            self.after(name, now + AFTER_CONFLICT);
        }
        is_usual
    }

    /// Returns the number of failures in a row.
    pub fn failures(&self, name: &str) -> u32 {
        self.keys.get(name).map_or(0, |key| key.failures)
    }

    /// Forgets the failures of the name.
    pub fn forget(&mut self, name: &Name) {
        let key = self.key(name);
        (key.failures, key.conflicts) = (0, 0);
    }

    /// Removes the name. It stays at work until that is done.
    pub fn remove(&mut self, name: &Name) {
        let key = self.key(name);
        *key = Key { is_busy: key.is_busy, ..Key::default() };
    }

    /// Returns true if the name waits in the queue, or is at work.
    pub fn has(&self, name: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.is_busy || key.due.is_some())
    }

    /// Returns true if the name comes back.
    pub fn is_due(&self, name: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.due.is_some())
    }

    /// Returns the names that may be handed out.
    pub fn due(&self, now: At) -> Vec<Name> {
        let is_due = |key: &Key| !key.is_busy && key.due.is_some_and(|due| due <= now);
        self.keys.iter().filter(|(_, key)| is_due(key)).map(|(name, _)| Name::clone(name)).collect()
    }

    /// Returns when the next name may be handed out.
    pub fn next(&self) -> Option<At> {
        self.keys.values().filter(|key| !key.is_busy).filter_map(|key| key.due).min()
    }

    /// Hands out the name.
    pub fn take(&mut self, name: &Name) {
        let key = self.key(name);
        (key.due, key.is_busy) = (None, true);
    }

    /// Ends the work on the name.
    pub fn done(&mut self, name: &Name) {
        self.key(name).is_busy = false;
    }
}
