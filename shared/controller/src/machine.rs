//! The form of a controller: a pure machine that holds everything that the controller remembers,
//! behind one door.
//!
//! ```text
//! watch, list, poll, timer --translate--> Event --> Door --> Machine --> effects --perform--> API server, cloud
//!                                           ^                                         |
//!                                           +------------------ answer ---------------+
//! ```
//!
//! A translator turns its news into an event. A performer turns effects into requests, and answers
//! into events. Neither of them decides anything or remembers more than the work in flight. Queues,
//! fairness and batches are their part.
//!
//! Events, effects and the memory are plain values: the same events at the same times have the same effects, in
//! another process as well.

use std::{fmt::Debug, sync::Arc, time::Duration};

use ccm_base::{At, clock::Timeline};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

/// A pure state machine.
pub trait Machine: Send + 'static {
    /// The input of the machine: an object has changed, a list or an answer has come, time has
    /// passed.
    type Event: Serialize + DeserializeOwned + Send;
    /// An effect of an event: a call to the cloud, a write, a report, a wake-up.
    type Effect: Serialize + Send;

    /// Changes the memory. Returns what follows, in the order in which it should be performed.
    fn apply(&mut self, event: Self::Event, now: At) -> Vec<Self::Effect>;
}

/// Logs a request that does not follow from the event that was just applied.
pub fn log_unexpected(request: &impl Debug) {
    tracing::error!("an effect is not performed: {request:?}");
}

/// The only way to a machine. Clones lead to the same one.
pub struct Door<M> {
    shared: Arc<Shared<M>>,
}

struct Shared<M> {
    kept: Mutex<TapedMachine<M>>,
    timeline: Timeline,
}

struct TapedMachine<M> {
    machine: M,
    tape: Option<Box<dyn Tape<M>>>,
}

/// Records what goes through a door (see [`crate::record`]).
pub trait Tape<M: Machine>: Send {
    /// Applies the event to the machine. Returns the effects.
    fn apply(&mut self, machine: &mut M, event: M::Event, now: At) -> Vec<M::Effect>;
}

impl<M> Clone for Door<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Machine> Door<M> {
    /// Creates the door to this machine.
    pub fn new(machine: M) -> Self {
        Self::with(machine, None)
    }

    /// Returns the door to this machine, which keeps a record on this tape.
    pub fn recorded(machine: M, tape: impl Tape<M> + 'static) -> Self {
        Self::with(machine, Some(Box::new(tape)))
    }

    fn with(machine: M, tape: Option<Box<dyn Tape<M>>>) -> Self {
        let (kept, timeline) = (Mutex::new(TapedMachine { machine, tape }), Timeline::begin());
        Self { shared: Arc::new(Shared { kept, timeline }) }
    }

    /// Returns the times of the events.
    pub fn timeline(&self) -> Timeline {
        self.shared.timeline
    }

    /// Applies an event that happens now. The caller performs the effects.
    pub fn apply(&self, event: M::Event) -> Vec<M::Effect> {
        self.apply_made(|| event)
    }

    /// The same for an event that is made while no other one can be applied: an event that comes later is applied later.
    pub fn apply_made(&self, make: impl FnOnce() -> M::Event) -> Vec<M::Effect> {
        let mut kept = self.shared.kept.lock();
        // The time is read under the lock, so that it does not go back from one event to the next.
        let (TapedMachine { machine, tape }, now) = (&mut *kept, self.now());
        match tape {
            Some(tape) => tape.apply(machine, make(), now),
            None => machine.apply(make(), now),
        }
    }

    /// Reads the memory: for pages, metrics and checks.
    pub fn read<R>(&self, read: impl FnOnce(&M, At) -> R) -> R {
        let kept = self.shared.kept.lock();
        read(&kept.machine, self.now())
    }

    /// Returns this moment in whole milliseconds, the precision of a moment as text.
    pub fn now(&self) -> At {
        let At(now) = self.shared.timeline.now();
        At(Duration::new(now.as_secs(), now.subsec_millis() * 1_000_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Counter {
        events: Vec<(u32, At)>,
    }

    impl Machine for Counter {
        type Event = u32;
        type Effect = String;

        fn apply(&mut self, event: u32, now: At) -> Vec<String> {
            self.events.push((event, now));
            vec![format!("{event} of {}", self.events.len())]
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clones_lead_to_the_same_machine_and_its_times_are_whole_milliseconds() {
        let door = Door::new(Counter::default());
        assert_eq!(door.apply(7), ["7 of 1"]);
        tokio::time::advance(Duration::from_micros(2500)).await;
        assert_eq!(door.clone().apply(8), ["8 of 2"]);
        let times: Vec<At> =
            door.read(|machine, _| machine.events.iter().map(|(_, at)| *at).collect());
        assert!(times.iter().all(|At(at)| at.subsec_nanos() % 1_000_000 == 0), "{times:?}");
        let [first, second] = times[..] else { panic!("{times:?}") };
        assert!((2..=3).contains(&second.since(first).as_millis()), "{times:?}");
    }
}
