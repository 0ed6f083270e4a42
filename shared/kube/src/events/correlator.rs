//! Folds events that repeat, by the rules of client-go's correlator: similar ones into
//! one, identical ones into a count, and too many about one object into none.

use std::{
    collections::{HashSet, VecDeque, hash_map::Entry as MapEntry},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use super::{EventKind, ObjectRef};

/// From this many different messages on, similar events become one.
const SIMILAR: usize = 10;
/// Similar events further apart than this have nothing to do with each other.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// Events about one object that may be written at once.
const BURST: f64 = 25.0;
/// After this time one more may be written.
const REFILL: Duration = Duration::from_secs(300);
/// How many objects and messages are remembered.
const REMEMBERED: usize = 4096;

/// An event as it was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What it is about.
    pub about: Arc<ObjectRef>,
    /// Whether somebody should worry.
    pub kind: EventKind,
    /// Why, in one word.
    pub reason: &'static str,
    /// What happened.
    pub message: String,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A new event with this message.
    Create {
        /// The message, perhaps that of a combined event.
        message: String,
        /// What to report the event's name under ([`Correlator::created`]).
        key: Key,
    },
    /// Count an earlier event up.
    Count {
        /// The earlier event's name.
        name: String,
        /// How often it happened by now.
        count: u32,
        /// The message, which for a combined event is the latest.
        message: String,
        /// As for `Create`.
        key: Key,
    },
    /// Too many about this object.
    Spam,
}

/// Which events count as the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    similar: Similar,
    // `None` for a combined event.
    message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Similar {
    about: Subject,
    kind: EventKind,
    reason: &'static str,
}

/// An object, whatever its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    kind: &'static str,
    namespace: Option<String>,
    name: String,
    uid: String,
}

struct Messages {
    distinct: HashSet<String>,
    last: Duration,
}

struct Written {
    name: String,
    count: u32,
}

struct Bucket {
    tokens: f64,
    at: Duration,
}

/// Decides what is written. Takes the time as a value: any clock that does not step.
#[derive(Default)]
pub struct Correlator {
    similar: Recent<Similar, Messages>,
    written: Recent<Key, Written>,
    buckets: Recent<Subject, Bucket>,
}

impl Correlator {
    /// What to do about an event that is seen at `now`.
    pub fn judge(&mut self, event: &Observed, now: Duration) -> Verdict {
        let about = Subject {
            kind: event.about.kind,
            namespace: event.about.namespace.clone(),
            name: event.about.name.clone(),
            uid: event.about.uid.clone(),
        };
        let similar = Similar { about: about.clone(), kind: event.kind, reason: event.reason };
        let combined = self.combine(&similar, &event.message, now);
        let message = if combined {
            format!("(combined from similar events): {}", event.message)
        } else {
            event.message.clone()
        };
        let key = Key { similar, message: (!combined).then(|| event.message.clone()) };
        if !self.pay(about, now) {
            return Verdict::Spam;
        }
        match self.written.get_mut(&key) {
            Some(written) => {
                written.count += 1;
                Verdict::Count { name: written.name.clone(), count: written.count, message, key }
            }
            None => Verdict::Create { message, key },
        }
    }

    /// Notes the name under which the API server has an event now.
    pub fn created(&mut self, key: Key, name: String) {
        let count = self.written.get_mut(&key).map_or(1, |written| written.count);
        self.written.insert(key, Written { name, count });
    }

    /// Forgets an event that the API server no longer has; the next one is created.
    pub fn vanished(&mut self, key: &Key) {
        self.written.remove(key);
    }

    /// Whether this message is one of so many that they become one event.
    fn combine(&mut self, similar: &Similar, message: &str, now: Duration) -> bool {
        let messages = self.similar.get_or_insert(similar.clone(), || Messages { distinct: HashSet::new(), last: now });
        if now.saturating_sub(messages.last) >= SIMILAR_WITHIN {
            messages.distinct.clear();
        }
        messages.last = now;
        if messages.distinct.len() + 1 < SIMILAR || messages.distinct.contains(message) {
            messages.distinct.insert(message.to_owned());
            return false;
        }
        true
    }

    fn pay(&mut self, about: Subject, now: Duration) -> bool {
        let bucket = self.buckets.get_or_insert(about, || Bucket { tokens: BURST, at: now });
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

/// A map that forgets what was entered first when it is full.
struct Recent<K, V> {
    entries: std::collections::HashMap<K, V, ahash::RandomState>,
    order: VecDeque<K>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: std::collections::HashMap::default(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
            self.forget();
        }
    }

    fn get_or_insert(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(&key) {
            self.order.push_back(key.clone());
            self.forget();
        }
        match self.entries.entry(key) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(entry) => entry.insert(make()),
        }
    }

    fn remove(&mut self, key: &K) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|each| each != key);
        }
    }

    fn forget(&mut self) {
        while self.order.len() > REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
