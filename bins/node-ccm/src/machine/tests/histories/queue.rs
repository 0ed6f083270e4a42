//! The work queue, as simple as it can be.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::{At, Backoff, RetryClass};
use ccm_objects::Shared as Name;

use super::super::super::{Again, Queued};

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
    conflicts: u32,
}

impl Queue {
    fn key(&mut self, name: &Name) -> &mut Key {
        self.keys.entry(Name::clone(name)).or_default()
    }

    fn after(&mut self, name: &Name, at: At) {
        let due = &mut self.key(name).due;
        *due = Some(due.map_or(at, |due| due.min(at)));
    }

    pub(super) fn perform(&mut self, name: &Name, queued: Queued, now: At) {
        match queued {
            Queued::Add(_) => self.after(name, now),
            Queued::After(wait) => self.after(name, now + wait),
            Queued::Again(again) => self.again(name, again, now),
            Queued::Forget => {
                let key = self.key(name);
                (key.failures, key.conflicts) = (0, 0);
            }
        }
    }

    pub(super) fn again(&mut self, name: &Name, again: Again, now: At) {
        let wait = match again {
            Again::As(RetryClass::Retry) => {
                let key = self.key(name);
                key.failures += 1;
                WAITS.after(key.failures)
            }
            Again::As(RetryClass::RetryAfter(wait)) | Again::Every(wait) => wait,
            Again::As(RetryClass::Permanent) | Again::Rarely => LONG,
        };
        self.after(name, now + wait);
    }

    /// Returns true if this conflict in a row is a usual one.
    pub(super) fn conflict(&mut self, name: &Name, most: u32, now: At) -> bool {
        let key = self.key(name);
        key.conflicts += 1;
        let is_usual = key.conflicts <= most;
        if is_usual {
            self.after(name, now + Duration::from_millis(20));
        }
        is_usual
    }

    pub(super) fn failures(&self, name: &str) -> u32 {
        self.keys.get(name).map_or(0, |key| key.failures)
    }

    pub(super) fn remove(&mut self, name: &Name) {
        let key = self.key(name);
        *key = Key { is_busy: key.is_busy, ..Key::default() };
    }

    /// The names that may be handed out.
    pub(super) fn due(&self, now: At) -> Vec<Name> {
        let is_due = |key: &Key| !key.is_busy && key.due.is_some_and(|due| due <= now);
        self.keys.iter().filter(|(_, key)| is_due(key)).map(|(name, _)| Name::clone(name)).collect()
    }

    /// When the next name may be handed out.
    pub(super) fn next(&self) -> Option<At> {
        self.keys.values().filter_map(|key| key.due).min()
    }

    pub(super) fn take(&mut self, name: &Name) {
        let key = self.key(name);
        (key.due, key.is_busy) = (None, true);
    }

    pub(super) fn done(&mut self, name: &Name) {
        self.key(name).is_busy = false;
    }
}
