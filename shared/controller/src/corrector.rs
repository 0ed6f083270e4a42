//! Corrections of many objects that work as they are: each waits for its turn and steps aside for
//! what is more urgent, and one that another writer undoes again and again waits longer.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_base::clock::Timeline;
use ccm_objects::Shared as Name;
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    queue::{Priority, WorkQueue},
    repeats::{Content, Repeated, Repeats},
    turns::Turns,
};

/// How long corrections step aside for a new object, so that they do not compete with it for the
/// API server: the batch window and a fast lookup, and again its writes.
const NEW: Duration = Duration::from_millis(200);

/// Why an object is not corrected now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// The time until it may be.
    pub wait: Duration,
    /// The field that another writer sets as well, if that is why.
    pub repeated: Option<Repeated>,
}

/// The corrections of all objects.
pub struct Corrector {
    turns: Mutex<Turns<Name>>,
    made: Mutex<HashMap<Name, Repeats>>,
    timeline: Timeline,
    waiting: Box<dyn Fn(usize) + Send + Sync>,
}

impl Corrector {
    /// At most this many writes per second; `waiting` hears how many objects wait for their turn.
    pub fn new(per_second: Option<f64>, waiting: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let turns = Mutex::new(Turns::new(per_second));
        let timeline = Timeline::begin();
        Self { turns, made: Mutex::default(), timeline, waiting: Box::new(waiting) }
    }

    fn turns<R>(&self, change: impl FnOnce(&mut Turns<Name>) -> R) -> R {
        let mut turns = self.turns.lock();
        let result = change(&mut turns);
        (self.waiting)(turns.waiting());
        result
    }

    /// A new object has arrived or is about to be written: corrections step aside for a moment.
    pub fn step_aside(&self) {
        self.turns(|turns| turns.step_aside(Instant::now() + NEW));
    }

    /// Uses the turn of the object for this many writes, which set these fields to these values.
    ///
    /// # Errors
    ///
    /// Why it is not its turn.
    pub fn check(
        &self,
        name: &Name,
        writes: usize,
        fields: &[(String, String)],
    ) -> Result<(), Later> {
        let waits = self.made.lock().get(name).and_then(|made| {
            let now = self.timeline.now();
            let check =
                |(field, value): &(String, String)| made.check(now, field, || Content::of(value));
            fields.iter().filter_map(|field| check(field).err()).max_by_key(|one| one.wait)
        });
        if let Some(repeated) = waits {
            return Err(Later { wait: repeated.wait, repeated: Some(repeated) });
        }
        if writes == 0 {
            return Ok(());
        }
        let turn = self.turns(|turns| turns.take(name, writes, Instant::now()));
        turn.map_err(|wait| Later { wait, repeated: None })
    }

    /// Records that these fields of the object were set. Returns the fields that do not last.
    pub fn made(&self, name: &Name, fields: &[(String, String)]) -> Vec<String> {
        let (mut made, now) = (self.made.lock(), self.timeline.now());
        let made = made.entry(Name::clone(name)).or_default();
        let mut add = |(field, value): &(String, String)| {
            made.made(now, field.clone(), Content::of(value)).map(|_| field.clone())
        };
        fields.iter().filter_map(&mut add).collect()
    }

    /// Records that these fields of the object were set and that the answer does not show them.
    /// Returns them.
    pub fn refused(&self, name: &Name, fields: &[(String, String)]) -> Vec<Repeated> {
        if fields.is_empty() {
            return Vec::new();
        }
        let (mut made, now) = (self.made.lock(), self.timeline.now());
        let made = made.entry(Name::clone(name)).or_default();
        let mut add = |(field, value): &(String, String)| {
            made.refused(now, field.clone(), Content::of(value))
        };
        fields.iter().filter_map(&mut add).collect()
    }

    /// The object needs no correction any more.
    pub fn settled(&self, name: &Name) {
        self.turns(|turns| turns.forget(name));
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, name: &Name) {
        self.settled(name);
        self.made.lock().remove(name);
    }

    /// Applies changes of the rate in the settings until the token is cancelled. Objects that wait
    /// for their turn are queued: they have to take a new one.
    pub async fn follow<S>(
        self: Arc<Self>,
        mut settings: watch::Receiver<S>,
        per_second: impl Fn(&S) -> Option<f64>,
        queue: WorkQueue<Name>,
        token: CancellationToken,
    ) {
        while let Some(Ok(())) = token.run_until_cancelled(settings.changed()).await {
            let rate = per_second(&settings.borrow_and_update());
            for name in self.turns(|turns| turns.configure(rate)) {
                queue.add(name, Priority::Routine);
            }
        }
        token.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn corrector() -> (Corrector, impl Fn() -> usize) {
        let waiting: Arc<AtomicUsize> = Arc::default();
        let shown = Arc::clone(&waiting);
        let corrector =
            Corrector::new(Some(1.0), move |count| waiting.store(count, Ordering::Relaxed));
        (corrector, move || shown.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_needs_no_turn_any_more_does_not_wait() {
        let (corrector, waiting) = corrector();
        let (one, other): (Name, Name) = ("node-1".into(), "node-2".into());
        assert_eq!(corrector.check(&one, 1, &[]), Ok(()));
        for end in [Corrector::settled, Corrector::forget] {
            corrector.check(&other, 1, &[]).unwrap_err();
            assert_eq!(waiting(), 1);
            end(&corrector, &other);
            assert_eq!(waiting(), 0);
        }
        corrector.check(&other, 1, &[]).unwrap_err();
        assert_eq!(corrector.turns(|turns| turns.configure(None)), [Name::clone(&other)]);
        assert_eq!((corrector.check(&other, 1, &[]), waiting()), (Ok(()), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_contested_field_waits_and_uses_no_turn() {
        let (corrector, waiting) = corrector();
        let (name, zone) = ("node-1".into(), [("zone".to_owned(), "a".to_owned())]);
        for _ in 0..3 {
            corrector.made(&name, &zone);
        }
        let later = corrector.check(&name, 1, &zone).unwrap_err();
        assert_eq!(later.repeated.map(|repeated| repeated.kind).as_deref(), Some("zone"));
        assert_eq!((later.wait, waiting()), (Duration::from_secs(10), 0));
        let region = [("region".to_owned(), "r".to_owned())];
        assert_eq!(corrector.check(&name, 1, &region), Ok(()));
        corrector.forget(&name);
        assert_eq!(corrector.check(&name, 0, &zone), Ok(()));
    }
}
