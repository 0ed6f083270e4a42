//! Folds events that repeat, by the rules of client-go's correlator: similar ones into
//! one, identical ones into a count, and too many about one object into none.

use std::time::Duration;

use ahash::RandomState;
use jiff::Timestamp;

use super::{Observed, recent::Recent};

/// From this many different messages on, similar events become one.
const SIMILAR: usize = 10;
/// Similar events further apart than this have nothing to do with each other.
const SIMILAR_WITHIN: Duration = Duration::from_mins(10);
/// Events about one object that may be written at once.
const BURST: f64 = 25.0;
/// After this time one more may be written.
const REFILL: Duration = Duration::from_mins(5);
/// How many objects, kinds of event and messages are remembered.
const REMEMBERED: usize = 4096;

/// An event that may have happened before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    /// The event's name, given when it happened first.
    pub(super) name: String,
    /// How often it has happened.
    pub(super) count: u32,
    /// When it happened first.
    pub(super) first: Timestamp,
    /// The message; for similar events that became one, the latest.
    pub(super) message: String,
}

/// Decides what is written. The time is any clock that does not step.
pub(super) struct Correlator {
    // Keys are hashes with a seed of this process, so collisions cannot be provoked.
    hasher: RandomState,
    similar: Recent<Messages>,
    series: Recent<Series>,
    buckets: Recent<Bucket>,
}

/// The latest messages of similar events.
struct Messages {
    distinct: Vec<u64>,
    last: Duration,
}

/// The same event, again and again.
struct Series {
    name: String,
    count: u32,
    first: Timestamp,
}

struct Bucket {
    tokens: f64,
    at: Duration,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            similar: Recent::new(REMEMBERED),
            series: Recent::new(REMEMBERED),
            buckets: Recent::new(REMEMBERED),
        }
    }
}

impl Correlator {
    /// What to write about an event that is seen at `now`; `None` if there are too many
    /// about its object. `name` is for an event that did not happen before.
    ///
    /// What is not written is counted all the same, so that the next one that is
    /// written has the real count.
    pub(super) fn judge(
        &mut self,
        event: &Observed,
        now: Duration,
        name: impl FnOnce() -> String,
    ) -> Option<Occurrence> {
        // The version does not count: the object is the same.
        let about = &event.about;
        let object = (about.api_version, about.kind, &about.namespace, &about.name, &about.uid);
        let similar = (object, event.kind, event.reason);
        let combined = self.combine(self.hasher.hash_one(similar), &event.message, now);
        let (message, key) = if combined {
            let message = format!("(combined from similar events): {}", event.message);
            (message, self.hasher.hash_one((similar, None::<&str>)))
        } else {
            (event.message.clone(), self.hasher.hash_one((similar, Some(&*event.message))))
        };
        let fresh = || Series { name: name(), count: 0, first: event.at };
        let series = self.series.get_or(key, fresh);
        series.count = series.count.saturating_add(1);
        let Series { name, count, first } = series;
        let occurrence = Occurrence { name: name.clone(), count: *count, first: *first, message };
        self.pays(self.hasher.hash_one((object, event.kind)), now).then_some(occurrence)
    }

    /// Whether there are enough different messages to fold this one into one event.
    fn combine(&mut self, similar: u64, message: &str, now: Duration) -> bool {
        let message = self.hasher.hash_one(message);
        let messages =
            self.similar.get_or(similar, || Messages { distinct: Vec::new(), last: now });
        if now.saturating_sub(messages.last) >= SIMILAR_WITHIN {
            messages.distinct.clear();
        }
        messages.last = now;
        if messages.distinct.contains(&message) {
            return false;
        }
        if messages.distinct.len() + 1 < SIMILAR {
            messages.distinct.push(message);
            return false;
        }
        true
    }

    fn pays(&mut self, object: u64, now: Duration) -> bool {
        let bucket = self.buckets.get_or(object, || Bucket { tokens: BURST, at: now });
        let refilled = now.saturating_sub(bucket.at).as_secs_f64() / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refilled).min(BURST);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests;
