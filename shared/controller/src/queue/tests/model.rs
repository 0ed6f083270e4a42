//! The state machine against a model that searches flat lists.

use std::{collections::HashMap, time::Duration};

use ccm_base::Backoff;
use proptest::prelude::*;
use tokio::time::Instant;

use crate::queue::{
    Priority, QueueConfig,
    state::{Core, Taken},
};

type Key = u8;

const BASE: u64 = 60;
const MAX: u64 = 640;
const GAP: u64 = 100;
const LONGEST: u64 = 400;
const STREAK: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Op {
    Add(Key, Priority),
    AddAfter(Key, u64, Priority),
    Retry(Key),
    RetryAfter(Key, u64),
    Forget(Key),
    Remove(Key),
    Done(Key),
    Take,
    TakeBatch(usize),
    Pass(u64),
    ShutDown,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..4_u8;
    let priority = || prop_oneof![Just(Priority::Urgent), Just(Priority::Routine)];
    prop_oneof![
        8 => (key(), priority()).prop_map(|(key, priority)| Op::Add(key, priority)),
        3 => (key(), 0..300_u64, priority()).prop_map(|(key, after, priority)| Op::AddAfter(key, after, priority)),
        4 => key().prop_map(Op::Retry),
        2 => (key(), 0..600_u64).prop_map(|(key, after)| Op::RetryAfter(key, after)),
        2 => key().prop_map(Op::Forget),
        2 => key().prop_map(Op::Remove),
        6 => key().prop_map(Op::Done),
        8 => Just(Op::Take),
        1 => (0..4_usize).prop_map(Op::TakeBatch),
        6 => (0..250_u64).prop_map(Op::Pass),
        1 => Just(Op::ShutDown),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    key: Key,
    priority: Priority,
    since: u64,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    key: Key,
    until: u64,
    began: u64,
    priority: Priority,
    strict: bool,
}

#[derive(Debug, Default)]
struct Model {
    now: u64,
    wishes: Vec<Wish>,
    working: Vec<(Key, Priority)>,
    holds: Vec<Hold>,
    /// Key, due, priority.
    delayed: Vec<(Key, u64, Priority)>,
    failures: HashMap<Key, u32>,
    urgent_in_a_row: u32,
    /// True if the keys have groups.
    grouped: bool,
    /// How often the second group was served while the first one waited.
    passed: HashMap<(Priority, u8, u8), u32>,
    adds: u64,
    retries: u64,
    shut_down: bool,
}

fn group(grouped: bool, key: Key) -> u8 {
    if grouped { key % 2 } else { 0 }
}

fn remove<T>(list: &mut Vec<T>, matches: impl Fn(&T) -> bool) -> Option<T> {
    let at = list.iter().position(matches)?;
    Some(list.remove(at))
}

impl Model {
    fn add_at(&mut self, key: Key, priority: Priority, at: u64) {
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.key == key) {
            hold.priority = hold.priority.min(priority);
            if priority == Priority::Urgent && !hold.strict {
                hold.until = hold.until.min((hold.began + GAP).max(at));
            }
        } else if let Some(wish) = self.wishes.iter_mut().find(|wish| wish.key == key) {
            wish.priority = wish.priority.min(priority);
        } else {
            self.wishes.push(Wish { key, priority, since: at });
            self.adds += 1;
        }
    }

    /// Ends holds and delays that are due, the earliest first.
    fn settle(&mut self) {
        loop {
            let hold = self.holds.iter().map(|hold| (hold.until, true, hold.key)).min();
            let delay = self.delayed.iter().map(|(key, due, _)| (*due, false, *key)).min();
            let Some((due, is_hold, key)) = hold.into_iter().chain(delay).min() else { return };
            if due > self.now {
                return;
            }
            let priority = if is_hold {
                remove(&mut self.holds, |hold| hold.key == key).unwrap().priority
            } else {
                remove(&mut self.delayed, |(other, _, _)| *other == key).unwrap().2
            };
            self.add_at(key, priority, due);
        }
    }

    fn hold(&mut self, key: Key, delay: u64, strict: bool) {
        self.retries += 1;
        let mut hold = Hold {
            key,
            until: self.now + delay,
            began: self.now,
            priority: Priority::Routine,
            strict,
        };
        for (_, priority) in self.working.iter().filter(|(other, _)| *other == key) {
            hold.priority = *priority;
        }
        if let Some(old) = remove(&mut self.holds, |old| old.key == key) {
            hold.until = hold.until.max(old.until);
            hold.strict |= old.strict;
            hold.priority = hold.priority.min(old.priority);
        }
        if let Some(wish) = remove(&mut self.wishes, |wish| wish.key == key) {
            hold.priority = hold.priority.min(wish.priority);
            if wish.priority == Priority::Urgent && !hold.strict {
                hold.until = hold.until.min(self.now + GAP);
            }
        }
        self.holds.push(hold);
    }

    fn ready(&self) -> Vec<Wish> {
        let free = |wish: &&Wish| self.working.iter().all(|(key, _)| *key != wish.key);
        self.wishes.iter().filter(free).copied().collect()
    }

    /// Checks that this key may be handed out now, and hands it out.
    fn hand_out(&mut self, key: Key, waited: Duration) {
        let ready = self.ready();
        let routine_waits = ready.iter().any(|wish| wish.priority == Priority::Routine);
        let urgent_waits = ready.iter().any(|wish| wish.priority == Priority::Urgent);
        let wish =
            *ready.iter().find(|wish| wish.key == key).expect("a key that is wanted and free");
        let urgent = urgent_waits && !(routine_waits && self.urgent_in_a_row >= STREAK);
        assert_eq!(wish.priority == Priority::Urgent, urgent, "whose turn it is");
        let grouped = self.grouped;
        let group = |key| group(grouped, key);
        let of_priority = || ready.iter().filter(|other| other.priority == wish.priority);
        for other in [0, 1].into_iter().filter(|other| *other != group(key)) {
            if of_priority().any(|one| group(one.key) == other) {
                let passed = self.passed.entry((wish.priority, other, group(key))).or_default();
                *passed += 1;
                assert_eq!(*passed, 1, "groups take turns");
            }
        }
        self.passed
            .retain(|(priority, waits, _), _| *priority != wish.priority || *waits != group(key));
        let oldest = of_priority()
            .filter(|other| group(other.key) == group(key))
            .map(|other| other.since)
            .min();
        assert_eq!(Some(wish.since), oldest, "first come, first served");
        assert_eq!(waited, Duration::from_millis(self.now - wish.since));
        remove(&mut self.wishes, |other| other.key == key);
        self.working.push((key, wish.priority));
        let left = self.ready().iter().any(|wish| wish.priority == Priority::Routine);
        self.urgent_in_a_row = if urgent && left { self.urgent_in_a_row + 1 } else { 0 };
    }

    fn next_due(&self) -> Option<u64> {
        let holds = self.holds.iter().map(|hold| hold.until);
        holds.chain(self.delayed.iter().map(|(_, due, _)| *due)).min()
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Pass(time) => self.now += time,
            Op::Done(key) => {
                remove(&mut self.working, |(other, _)| *other == key);
            }
            Op::Forget(key) => {
                self.failures.remove(&key);
            }
            Op::Remove(key) => {
                self.failures.remove(&key);
                self.holds.retain(|hold| hold.key != key);
                self.wishes.retain(|wish| wish.key != key);
                self.delayed.retain(|(other, _, _)| *other != key);
            }
            Op::ShutDown => {
                *self = Self {
                    now: self.now,
                    working: std::mem::take(&mut self.working),
                    adds: self.adds,
                    retries: self.retries,
                    shut_down: true,
                    grouped: self.grouped,
                    ..Self::default()
                };
            }
            _ if self.shut_down => {}
            Op::Add(key, priority) => self.add_at(key, priority, self.now),
            Op::AddAfter(key, after, priority) => {
                self.retries += 1;
                let old = remove(&mut self.delayed, |(other, _, _)| after > 0 && *other == key);
                let (_, due, other) = old.unwrap_or((key, u64::MAX, priority));
                if after == 0 {
                    self.add_at(key, priority, self.now);
                } else {
                    self.delayed.push((key, due.min(self.now + after), other.min(priority)));
                }
            }
            Op::Retry(key) => {
                let failures = self.failures.entry(key).or_default();
                *failures += 1;
                let delay = (BASE << (*failures - 1).min(20)).min(MAX);
                self.hold(key, delay, false);
            }
            Op::RetryAfter(key, after) => self.hold(key, after.min(LONGEST), true),
            Op::Take | Op::TakeBatch(_) => {}
        }
    }
}

struct Pair {
    start: Instant,
    core: Core<Key>,
    model: Model,
}

impl Pair {
    fn new(grouped: bool) -> Self {
        let config = QueueConfig {
            waits: Backoff {
                first: Duration::from_millis(BASE),
                longest: Duration::from_millis(MAX),
            },
            jitter: 0.0,
            urgent_gap: Duration::from_millis(GAP),
            max_retry_after: Duration::from_millis(LONGEST),
            retry_rate: 0.0,
            retry_burst: 1,
            urgent_streak: STREAK,
            ..QueueConfig::default()
        };
        let group = if grouped { |key: &Key| u64::from(key % 2) } else { |_: &Key| 0 };
        let core = Core::new(config, group);
        Self { start: Instant::now(), core, model: Model { grouped, ..Model::default() } }
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.model.now)
    }

    fn take_batch(&mut self, max: usize) {
        let now = self.now();
        let expect = self.model.ready().len().min(max);
        let batch = self.core.take_batch(max, now);
        assert_eq!(batch.len(), expect);
        for Taken { key, waited, .. } in batch {
            self.model.hand_out(key, waited);
        }
    }

    fn step(&mut self, op: Op) {
        self.model.apply(op);
        let now = self.now();
        let millis = Duration::from_millis;
        match op {
            Op::Add(key, priority) => self.core.add(key, priority, now),
            Op::AddAfter(key, after, priority) => {
                self.core.add_after(key, millis(after), priority, now);
            }
            Op::Retry(key) => self.core.retry(key, 0.5, now),
            Op::RetryAfter(key, after) => {
                self.core.retry_after(key, millis(after), now);
            }
            Op::Forget(key) => self.core.forget(&key),
            Op::Remove(key) => self.core.remove(&key),
            Op::Done(key) => {
                self.core.done(&key, now);
            }
            Op::Take | Op::TakeBatch(_) | Op::Pass(_) => {}
            Op::ShutDown => self.core.shut_down(),
        }
        self.model.settle();
        match op {
            Op::Take => self.take_batch(1),
            Op::TakeBatch(max) => self.take_batch(max),
            _ => {}
        }
        let ready = self.model.ready();
        let grouped = self.model.grouped;
        self.model.passed.retain(|(priority, waits, _), _| {
            let waits = |one: &Wish| one.priority == *priority && group(grouped, one.key) == *waits;
            ready.iter().any(waits)
        });
        self.compare();
    }

    fn compare(&mut self) {
        let now = self.now();
        let snapshot = self.core.snapshot(now);
        assert_eq!(snapshot.depth, self.model.ready().len());
        assert_eq!((snapshot.adds, snapshot.retries), (self.model.adds, self.model.retries));
        let oldest =
            self.model.ready().iter().map(|wish| self.model.now - wish.since).max().unwrap_or(0);
        assert_eq!(snapshot.oldest, Duration::from_millis(oldest));
        assert_eq!(self.core.processing_len(), self.model.working.len());
        assert_eq!(
            self.core.next_due(),
            self.model.next_due().map(|due| self.start + Duration::from_millis(due))
        );
        for key in 0..4 {
            assert_eq!(
                self.core.failures(&key),
                self.model.failures.get(&key).copied().unwrap_or(0)
            );
        }
    }

    /// Lets everything end and checks that no state is left.
    fn finish(mut self) {
        for key in 0..4 {
            self.step(Op::Forget(key));
            self.step(Op::Done(key));
        }
        self.step(Op::Pass(10 * MAX));
        for _ in 0..4 {
            self.step(Op::TakeBatch(4));
            (0..4).for_each(|key| self.step(Op::Done(key)));
        }
        assert_eq!(self.core.known(), 0, "an idle key leaves nothing behind");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_queue_behaves_like_its_model(ops in prop::collection::vec(op(), 1..120), grouped: bool) {
        let mut pair = Pair::new(grouped);
        for op in ops {
            pair.step(op);
        }
        pair.finish();
    }
}
