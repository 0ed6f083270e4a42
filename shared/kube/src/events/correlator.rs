//! Aggregates repeated events by the rules of client-go's correlator: similar events into
//! one, identical events into a count; it drops events about an object with too many.

use std::time::Duration;

use ahash::RandomState;
use jiff::Timestamp;

use super::{Observed, recent::Recent};

/// From this many different messages on, similar events are combined.
const SIMILAR: usize = 10;
/// Similar events further apart than this are unrelated.
const SIMILAR_WITHIN: Duration = Duration::from_mins(10);
/// The burst of events about one object.
const BURST: f64 = 25.0;
/// The time after which one more event may be written.
const REFILL: Duration = Duration::from_mins(5);
/// How many objects, similar and identical events are remembered.
const REMEMBERED: usize = 4096;

/// An event that may be a repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    /// The event's name, from its first occurrence.
    pub(super) name: String,
    /// How often it has occurred.
    pub(super) count: u32,
    /// When it occurred first.
    pub(super) first: Timestamp,
    /// The message; for combined events, the latest.
    pub(super) message: String,
}

/// Decides which events are written. The time may come from any clock that does not jump.
pub(super) struct Correlator {
    // Keys are hashes with a seed of this process, so that collisions cannot be provoked.
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

/// The repetitions of one event.
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
    /// Returns the write for an event seen at `now`, or `None` if its object has too many events.
    /// `name` is used if the event has not occurred before.
    ///
    /// Events that are not written are counted too, so that the next written one has the real
    /// count.
    pub(super) fn judge(
        &mut self,
        event: &Observed,
        now: Duration,
        name: impl FnOnce() -> String,
    ) -> Option<Occurrence> {
        // The resource version is ignored: the object is the same.
        let about = &event.about;
        let object = (about.api_version, about.kind, &about.namespace, &about.name, &about.uid);
        let similar = (event.component, object, event.kind, event.reason);
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

    /// Returns true if enough different messages have occurred to combine this event with others.
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
