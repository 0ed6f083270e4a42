//! The queue as a state machine: it reads no clock, does not wait and takes no locks.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

use ccm_base::{FairOrder, later};

use super::{
    Priority, QueueConfig, backoff,
    line::{FairLine, Group},
    paces::Paces,
    rate::RateLimiter,
};

/// A due time, and a sequence number that orders items due at the same time.
type Due = (Instant, u64);

/// The state of one key. It is kept while any field is set.
///
/// A held key is never wanted: adds are merged into the hold and come out of it as one add
/// when the hold ends.
#[derive(Debug, Default)]
struct KeyState {
    wanted: Option<Wanted>,
    work: Option<Work>,
    hold: Option<Hold>,
    delayed: Option<Delayed>,
    failures: u32,
    conflicts: u32,
}

impl KeyState {
    /// Returns true if the key is a retry, or was added by a timer only.
    fn is_again(&self) -> bool {
        self.failures > 0 || self.wanted.is_some_and(|wanted| wanted.timed)
    }
}

/// The key must be handed out: now if no worker has it, else when it is given back.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    priority: Priority,
    seq: u64,
    since: Instant,
    /// True if only a timer has added it.
    timed: bool,
}

/// A worker has the key.
#[derive(Clone, Copy, Debug)]
struct Work {
    priority: Priority,
    started: Instant,
}

/// The key must not be handed out before `due`, and is added then.
#[derive(Clone, Copy, Debug)]
struct Hold {
    due: Due,
    began: Instant,
    priority: Priority,
    /// True if no add ends the hold early.
    strict: bool,
}

/// The key is added at `due`.
#[derive(Clone, Copy, Debug)]
struct Delayed {
    due: Due,
    priority: Priority,
    /// True if it waits for the rate of its key.
    paced: bool,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    Hold,
    Delayed,
}

/// A key that is handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    /// How long it has waited.
    pub(super) waited: Duration,
    /// Its priority, unless it is a retry, or was added by a timer only.
    pub(super) new: Option<Priority>,
}

/// The state of a queue for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueSnapshot {
    pub(super) depth: usize,
    pub(super) adds: u64,
    pub(super) retries: u64,
    pub(super) paced: u64,
    /// The longest time that a key has been waiting.
    pub(super) oldest: Duration,
    /// The times that all keys have been in work, summed up.
    pub(super) unfinished: Duration,
    /// The longest time that a key has been in work.
    pub(super) longest: Duration,
}

#[derive(Debug)]
pub(super) struct Core<K> {
    config: QueueConfig,
    entries: HashMap<K, KeyState>,
    urgent: FairLine<K>,
    routine: FairLine<K>,
    paces: Paces<K>,
    timers: BTreeMap<Due, (K, Timer)>,
    turns: FairOrder,
    retry_limiter: RateLimiter,
    /// The last sequence number; it grows with time, so it orders by age too.
    seq: u64,
    processing: usize,
    adds: u64,
    retries: u64,
    paced: u64,
    shut_down: bool,
}

impl<K: Clone + Eq + Hash> Core<K> {
    pub(super) fn new(config: QueueConfig, group: Group<K>) -> Self {
        Self {
            turns: FairOrder::new(config.urgent_streak),
            retry_limiter: RateLimiter::new(config.retry_rate, config.retry_burst),
            paces: Paces::new(config.key_rate),
            config,
            entries: HashMap::new(),
            urgent: FairLine::new(group),
            routine: FairLine::new(group),
            timers: BTreeMap::new(),
            seq: 0,
            processing: 0,
            adds: 0,
            retries: 0,
            paced: 0,
            shut_down: false,
        }
    }

    pub(super) fn add(&mut self, key: K, priority: Priority, now: Instant) {
        self.advance(now);
        self.want(key, priority, now, false);
        // An urgent add may have ended a hold.
        self.advance(now);
    }

    pub(super) fn add_after(&mut self, key: K, after: Duration, priority: Priority, now: Instant) {
        if self.shut_down {
            return;
        }
        self.retries += 1;
        if after.is_zero() {
            return self.add(key, priority, now);
        }
        self.delay(key, after, priority, false, now);
    }

    /// Adds the key, or delays it if it was added in this way too often. If the key waits or is
    /// delayed already, the add does not count.
    pub(super) fn add_paced(&mut self, key: K, priority: Priority, now: Instant) {
        if self.shut_down {
            return;
        }
        self.advance(now);
        let entry = self.entries.get(&key);
        let waits = entry.is_some_and(|entry| entry.wanted.is_some() || entry.hold.is_some());
        let delayed = entry.and_then(|entry| entry.delayed).filter(|delayed| delayed.paced);
        if waits {
            return self.add(key, priority, now);
        }
        if let Some(delayed) = delayed {
            let rest = delayed.due.0.saturating_duration_since(now);
            return self.delay(key, rest, priority, true, now);
        }
        let wait = self.paces.reserve(&key, now);
        if wait.is_zero() {
            return self.add(key, priority, now);
        }
        self.paced += 1;
        self.delay(key, wait, priority, true, now);
    }

    fn delay(&mut self, key: K, after: Duration, priority: Priority, paced: bool, now: Instant) {
        self.advance(now);
        let due = (later(now, after), self.next_seq());
        let entry = self.entries.entry(key.clone()).or_default();
        let old = entry.delayed;
        let priority = old.map_or(priority, |old| old.priority.min(priority));
        let paced = paced || old.is_some_and(|old| old.paced);
        match &mut entry.delayed {
            Some(old) if old.due <= due => (old.priority, old.paced) = (priority, paced),
            old => {
                if let Some(old) = old {
                    self.timers.remove(&old.due);
                }
                *old = Some(Delayed { due, priority, paced });
                self.timers.insert(due, (key, Timer::Delayed));
            }
        }
    }

    /// Schedules a retry. `unit` is a random number between 0 and 1.
    pub(super) fn retry(&mut self, key: K, unit: f64, now: Instant) {
        if self.shut_down {
            return;
        }
        let entry = self.entries.entry(key.clone()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        let delay = backoff::delay(&self.config, entry.failures, unit);
        let delay = delay.max(self.retry_limiter.reserve(now));
        self.hold(key, delay, false, now);
    }

    pub(super) fn retry_after(&mut self, key: K, after: Duration, now: Instant) -> Duration {
        let after = after.min(self.config.max_retry_after);
        if !self.shut_down {
            self.hold(key, after, true, now);
        }
        after
    }

    pub(super) fn forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            (entry.failures, entry.conflicts) = (0, 0);
            self.prune(key);
        }
    }

    /// Counts a conflict. Returns how many there were since the last [`Core::forget`].
    pub(super) fn conflict(&mut self, key: K) -> u32 {
        let entry = self.entries.entry(key).or_default();
        entry.conflicts = entry.conflicts.saturating_add(1);
        entry.conflicts
    }

    /// Forgets everything about the key. If a worker has it, only forgets what would follow.
    pub(super) fn remove(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let empty = KeyState { work: entry.work, ..KeyState::default() };
        let KeyState { wanted, hold, delayed, .. } = std::mem::replace(entry, empty);
        let timers = [hold.map(|hold| hold.due), delayed.map(|delayed| delayed.due)];
        for due in timers.into_iter().flatten() {
            self.timers.remove(&due);
        }
        if let Some(Wanted { priority, seq, .. }) = wanted {
            // A key in work is in neither line.
            self.ready(priority).remove(seq);
        }
        self.prune(key);
    }

    pub(super) fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// Returns how long the key was in work; `None` if it was not.
    pub(super) fn done(&mut self, key: &K, now: Instant) -> Option<Duration> {
        self.advance(now);
        let entry = self.entries.get_mut(key)?;
        let work = entry.work.take()?;
        self.processing -= 1;
        if let Some(wanted) = entry.wanted {
            self.ready(wanted.priority).insert(wanted.seq, key.clone());
        }
        self.prune(key);
        Some(now.saturating_duration_since(work.started))
    }

    /// Takes up to `max` keys. Returns an empty list if no key waits or the queue is shut down.
    pub(super) fn take_batch(&mut self, max: usize, now: Instant) -> Vec<Taken<K>> {
        self.advance(now);
        let mut batch = Vec::with_capacity(max.min(self.urgent.len() + self.routine.len()));
        while batch.len() < max
            && let Some(taken) = self.pop(now)
        {
            batch.push(taken);
        }
        batch
    }

    pub(super) fn shut_down(&mut self) {
        self.shut_down = true;
        self.urgent.clear();
        self.routine.clear();
        self.timers.clear();
        self.entries.retain(|_, entry| {
            *entry = KeyState { work: entry.work, ..KeyState::default() };
            entry.work.is_some()
        });
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// The number of keys with any state.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn processing_len(&self) -> usize {
        self.processing
    }

    /// Returns the number of keys that wait to be handed out.
    pub(super) fn ready_len(&mut self, now: Instant) -> usize {
        self.advance(now);
        self.urgent.len() + self.routine.len()
    }

    /// Returns since when the oldest waiting key has been waiting.
    pub(super) fn oldest(&self) -> Option<Instant> {
        [&self.urgent, &self.routine]
            .into_iter()
            .filter_map(|ready| ready.by_age().next())
            .filter_map(|key| Some(self.entries.get(key)?.wanted?.since))
            .min()
    }

    /// Returns since when the oldest waiting key of this priority has been waiting, among those
    /// that are not retries and were not added by a timer only.
    pub(super) fn oldest_new(&self, priority: Priority) -> Option<Instant> {
        let ready = match priority {
            Priority::Urgent => &self.urgent,
            Priority::Routine => &self.routine,
        };
        let mut waiting = ready.by_age().filter_map(|key| self.entries.get(key));
        let new = waiting.find(|entry| !entry.is_again())?;
        Some(new.wanted?.since)
    }

    /// Returns the next time at which the state changes without a call.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn snapshot(&mut self, now: Instant) -> QueueSnapshot {
        let depth = self.ready_len(now);
        let age = |since: Instant| now.saturating_duration_since(since);
        let work =
            || self.entries.values().filter_map(|entry| entry.work).map(|work| age(work.started));
        QueueSnapshot {
            depth,
            adds: self.adds,
            retries: self.retries,
            paced: self.paced,
            oldest: self.oldest().map(age).unwrap_or_default(),
            unfinished: work().fold(Duration::ZERO, Duration::saturating_add),
            longest: work().max().unwrap_or_default(),
        }
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn ready(&mut self, priority: Priority) -> &mut FairLine<K> {
        match priority {
            Priority::Urgent => &mut self.urgent,
            Priority::Routine => &mut self.routine,
        }
    }

    /// Marks the key as wanted, or merges the add into its hold. `timed`: a timer adds it.
    fn want(&mut self, key: K, priority: Priority, now: Instant, timed: bool) {
        if self.shut_down {
            return;
        }
        let seq = self.next_seq();
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(hold) = &mut entry.hold {
            hold.priority = hold.priority.min(priority);
            let forward = now.max(later(hold.began, self.config.urgent_gap));
            if priority == Priority::Urgent && !hold.strict && forward < hold.due.0 {
                self.timers.remove(&hold.due);
                hold.due = (forward, seq);
                self.timers.insert(hold.due, (key, Timer::Hold));
            }
            return;
        }
        let free = entry.work.is_none();
        if let Some(wanted) = &mut entry.wanted {
            wanted.timed &= timed;
        }
        match &mut entry.wanted {
            Some(wanted) if wanted.priority <= priority => {}
            Some(wanted) => {
                // It keeps its sequence number: among urgent keys it is placed by its age.
                let (old, seq) = (wanted.priority, wanted.seq);
                wanted.priority = priority;
                if free {
                    self.ready(old).remove(seq);
                    self.ready(priority).insert(seq, key);
                }
            }
            None => {
                entry.wanted = Some(Wanted { priority, seq, since: now, timed });
                self.adds += 1;
                if free {
                    self.ready(priority).insert(seq, key);
                }
            }
        }
    }

    /// Holds the key, together with any pending add. Of two holds the later end counts.
    fn hold(&mut self, key: K, delay: Duration, strict: bool, now: Instant) {
        self.advance(now);
        self.retries += 1;
        let seq = self.next_seq();
        let entry = self.entries.entry(key.clone()).or_default();
        let mut hold =
            Hold { due: (later(now, delay), seq), began: now, priority: Priority::Routine, strict };
        if let Some(work) = entry.work {
            hold.priority = work.priority;
        }
        if let Some(old) = entry.hold.take() {
            self.timers.remove(&old.due);
            hold.due = hold.due.max(old.due);
            hold.strict |= old.strict;
            hold.priority = hold.priority.min(old.priority);
        }
        let wanted = entry.wanted.take();
        if let Some(wanted) = wanted {
            hold.priority = hold.priority.min(wanted.priority);
            if wanted.priority == Priority::Urgent && !hold.strict {
                hold.due.0 = hold.due.0.min(later(now, self.config.urgent_gap));
            }
        }
        let free = entry.work.is_none();
        entry.hold = Some(hold);
        if let Some(wanted) = wanted.filter(|_| free) {
            self.ready(wanted.priority).remove(wanted.seq);
        }
        self.timers.insert(hold.due, (key, Timer::Hold));
    }

    /// Processes everything that is due, in order.
    fn advance(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            let ((due, _), (key, timer)) = first.remove_entry();
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let priority = match timer {
                Timer::Hold => entry.hold.take().map(|hold| hold.priority),
                Timer::Delayed => entry.delayed.take().map(|delayed| delayed.priority),
            };
            if let Some(priority) = priority {
                self.want(key, priority, due, true);
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Taken<K>> {
        let urgent = self.turns.urgent_next(!self.urgent.is_empty(), !self.routine.is_empty());
        let priority = if urgent { Priority::Urgent } else { Priority::Routine };
        let key = self.ready(priority).pop()?;
        self.turns.took(urgent, !self.routine.is_empty());
        let entry = self.entries.get_mut(&key)?;
        let is_new = !entry.is_again();
        let wanted = entry.wanted.take()?;
        let new = is_new.then_some(wanted.priority);
        entry.work = Some(Work { priority: wanted.priority, started: now });
        self.processing += 1;
        Some(Taken { key, waited: now.saturating_duration_since(wanted.since), new })
    }

    /// Drops an entry without state.
    fn prune(&mut self, key: &K) {
        let idle = |entry: &KeyState| {
            entry.wanted.is_none()
                && entry.work.is_none()
                && entry.hold.is_none()
                && entry.delayed.is_none()
                && entry.failures == 0
                && entry.conflicts == 0
        };
        if self.entries.get(key).is_some_and(idle) {
            self.entries.remove(key);
            // Frees the memory that a burst has taken: 150 bytes per key.
            if self.entries.is_empty() {
                self.entries.shrink_to_fit();
            }
        }
    }
}
