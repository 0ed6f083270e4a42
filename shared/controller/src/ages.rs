//! The ages of objects, where in doubt the shortest possible ones.

use std::{collections::HashMap, time::Duration};

use ccm_kube::store::{Change, Store, Stored};
use ccm_objects::Shared as Name;
use parking_lot::Mutex;
use tokio::time::Instant;

/// When objects appeared that were created while this process was watching.
#[derive(Debug, Default)]
pub struct Ages {
    appeared: Mutex<HashMap<Name, Instant>>,
}

impl Ages {
    /// Handles a change of an object in this store. Never blocks.
    pub fn changed<K: Stored>(&self, store: &Store<K>, change: &Change<K>) {
        match change {
            // Those of the initial list may be older than this process.
            Change::Added(object) if store.is_synced() => {
                self.appeared.lock().insert(Name::clone(object.key()), Instant::now());
            }
            Change::Deleted(object) => {
                self.appeared.lock().remove(object.key());
            }
            _ => {}
        }
    }

    /// The age of an object: by the wall clock, which may be wrong, and by the time since this
    /// process saw its creation.
    pub fn of(&self, name: &str, by_clock: Option<Duration>) -> Duration {
        let seen = self.appeared.lock().get(name).map(Instant::elapsed);
        shortest(by_clock, seen)
    }
}

fn shortest(by_clock: Option<Duration>, seen_for: Option<Duration>) -> Duration {
    let by_clock = by_clock.unwrap_or_default();
    seen_for.map_or(by_clock, |seen| seen.min(by_clock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_the_shortest_possible() {
        let seconds = |count| Some(Duration::from_secs(count));
        assert_eq!(shortest(seconds(500), None), Duration::from_secs(500));
        assert_eq!(shortest(seconds(5000), seconds(3)), Duration::from_secs(3), "one is ahead");
        assert_eq!(shortest(seconds(2), seconds(30)), Duration::from_secs(2), "one is behind");
        assert_eq!(shortest(None, seconds(30)), Duration::ZERO);
    }
}
