//! The work queue, as simple as it can be.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::{At, Backoff, RetryClass};
use ccm_objects::Shared as Name;

const WAITS: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(1) };
const LONG: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(super) struct Queue {
    keys: BTreeMap<Name, Key>,
}

#[derive(Default)]
struct Key {
    due: Option<At>,
    is_busy: bool,
    failures: u32,
}

impl Queue {
    fn key(&mut self, name: &Name) -> &mut Key {
        self.keys.entry(Name::clone(name)).or_default()
    }

    pub(super) fn after(&mut self, name: &Name, at: At) {
        let due = &mut self.key(name).due;
        *due = Some(due.map_or(at, |due| due.min(at)));
    }

    pub(super) fn again(&mut self, name: &Name, class: RetryClass, now: At) {
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

    pub(super) fn failures(&self, name: &str) -> u32 {
        self.keys.get(name).map_or(0, |key| key.failures)
    }

    pub(super) fn forget(&mut self, name: &Name) {
        self.key(name).failures = 0;
    }

    pub(super) fn remove(&mut self, name: &Name) {
        let key = self.key(name);
        *key = Key { is_busy: key.is_busy, ..Key::default() };
    }

    /// Returns true if the name waits in the queue, or is in work.
    pub(super) fn has(&self, name: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.is_busy || key.due.is_some())
    }

    /// Returns true if the name comes back.
    pub(super) fn is_due(&self, name: &str) -> bool {
        self.keys.get(name).is_some_and(|key| key.due.is_some())
    }

    /// The names that may be handed out.
    pub(super) fn due(&self, now: At) -> Vec<Name> {
        let is_due = |key: &Key| !key.is_busy && key.due.is_some_and(|due| due <= now);
        self.keys.iter().filter(|(_, key)| is_due(key)).map(|(name, _)| Name::clone(name)).collect()
    }

    /// When the next name may be handed out.
    pub(super) fn next(&self) -> Option<At> {
        self.keys.values().filter(|key| !key.is_busy).filter_map(|key| key.due).min()
    }

    pub(super) fn take(&mut self, name: &Name) {
        let key = self.key(name);
        (key.due, key.is_busy) = (None, true);
    }

    pub(super) fn done(&mut self, name: &Name) {
        self.key(name).is_busy = false;
    }
}
