//! A token bucket with waiting callers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::{FairOrder, later};
use ccm_cloud::Priority;
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::bucket::{Bucket, Rate};

/// After this many urgent waiters, one routine waiter gets a turn.
const URGENT_STREAK: u32 = 8;

/// The error for a request that cannot be sent within its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The server requested a pause.
    Closed {
        /// The remaining time of the pause.
        left: Duration,
    },
    /// A token is not available in time.
    NoTurn,
}

/// A limit of requests per second with waiting callers. Clones share the limit.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<BucketState>,
    /// The wait time of admitted requests, in seconds.
    waits: Histogram,
}

/// Waiters in their order of service; the first of each priority may be next.
type Line = BTreeMap<(Priority, u64), Arc<Notify>>;

#[derive(Debug)]
struct BucketState {
    bucket: Bucket,
    line: Line,
    turns: FairOrder,
    last: u64,
}

/// Returns the first waiter of this priority.
fn first(line: &Line, priority: Priority) -> Option<(&(Priority, u64), &Arc<Notify>)> {
    line.range((priority, 0)..=(priority, u64::MAX)).next()
}

impl BucketState {
    /// Returns the waiter whose turn it is.
    fn head(&self) -> Option<(&(Priority, u64), &Arc<Notify>)> {
        let (urgent, routine) =
            (first(&self.line, Priority::Waiting), first(&self.line, Priority::Routine));
        if self.turns.urgent_next(urgent.is_some(), routine.is_some()) { urgent } else { routine }
    }

    /// Wakes the waiter whose turn it is.
    fn wake(&self) {
        if let Some((_, notify)) = self.head() {
            notify.notify_one();
        }
    }

    /// Wakes all waiters: their computed times are outdated.
    fn wake_all(&self) {
        self.line.values().for_each(|notify| notify.notify_one());
    }

    fn leave(&mut self, ticket: (Priority, u64)) {
        if self.line.remove(&ticket).is_some() {
            self.wake();
        }
    }

    /// Admits this waiter (`None`), or returns the time to try again unless woken earlier. Returns
    /// an error if it is certain that its turn does not come by the deadline.
    fn turn(
        &mut self,
        ticket: (Priority, u64),
        deadline: Instant,
        now: Instant,
    ) -> Result<Option<Instant>, Refused> {
        let is_head = self.head().is_some_and(|(head, _)| *head == ticket);
        if is_head && self.bucket.take(now).is_ok() {
            let routine_waits = first(&self.line, Priority::Routine).is_some();
            self.turns.took(ticket.0 == Priority::Waiting, routine_waits);
            self.leave(ticket);
            return Ok(None);
        }
        if let Some(left) = self.bucket.closed_for(now).filter(|left| now + *left > deadline) {
            return Err(Refused::Closed { left });
        }
        let ahead = self.line.range((ticket.0, 0)..ticket).count();
        let earliest = self.bucket.earliest(ahead, now);
        if earliest > deadline || deadline <= now {
            return Err(Refused::NoTurn);
        }
        // The other waiters are woken when it is their turn.
        Ok(Some(if is_head { earliest } else { deadline }))
    }
}

/// A place in the line, released when dropped.
struct PlaceInLine<'a> {
    shared: &'a Shared,
    ticket: (Priority, u64),
    notify: Arc<Notify>,
}

impl<'a> PlaceInLine<'a> {
    fn take(shared: &'a Shared, priority: Priority) -> Self {
        let notify = Arc::new(Notify::new());
        let mut state = shared.state.lock();
        state.last += 1;
        let ticket = (priority, state.last);
        state.line.insert(ticket, Arc::clone(&notify));
        Self { shared, ticket, notify }
    }
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().leave(self.ticket);
    }
}

impl TokenBucket {
    /// Creates a full bucket. The histogram records the seconds that each request waited.
    pub fn new(rate: Rate, waits: Histogram) -> Self {
        let state = BucketState {
            bucket: Bucket::new(rate, Instant::now()),
            line: BTreeMap::new(),
            turns: FairOrder::new(URGENT_STREAK),
            last: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), waits }) }
    }

    /// Waits for a turn without a time limit, and returns the wait time. A caller that gives up
    /// does not take a token.
    pub async fn admit(&self, priority: Priority) -> Duration {
        let never = later(Instant::now(), Duration::MAX);
        self.admit_by(priority, never).await.unwrap_or_default()
    }

    /// Waits for a turn, and fails as soon as it is certain that it does not come by the deadline.
    pub async fn admit_by(
        &self,
        priority: Priority,
        deadline: Instant,
    ) -> Result<Duration, Refused> {
        let began = Instant::now();
        let place = PlaceInLine::take(&self.shared, priority);
        loop {
            let turn = self.shared.state.lock().turn(place.ticket, deadline, Instant::now())?;
            let Some(again) = turn else { break };
            timeout_at(again, place.notify.notified()).await.ok();
        }
        let waited = began.elapsed();
        self.shared.waits.observe(waited.as_secs_f64());
        Ok(waited)
    }

    fn change<R>(&self, change: impl FnOnce(&mut Bucket, Instant) -> R) -> R {
        let mut state = self.shared.state.lock();
        let result = change(&mut state.bucket, Instant::now());
        state.wake_all();
        result
    }

    /// Changes rate and burst, also for waiting requests.
    pub fn configure(&self, rate: Rate) {
        self.change(|bucket, now| bucket.configure(rate, now));
    }

    /// Closes the bucket for this time, at most five minutes. Never shortens an earlier closing.
    /// Returns true if the bucket was open, so that a burst of refusals can be logged once.
    pub fn close_for(&self, time: Duration) -> bool {
        self.change(|bucket, now| bucket.close(time, now))
    }

    /// Reports that the server refused a request as too many.
    pub fn refused(&self) {
        self.change(Bucket::refused);
    }

    /// Reports that the server processed a request.
    pub fn succeeded(&self) {
        // This can only raise the rate: waiters check again soon enough.
        self.shared.state.lock().bucket.succeeded(Instant::now());
    }

    /// Returns the current requests per second; `None` for no limit.
    pub fn in_force(&self) -> Option<f64> {
        self.shared.state.lock().bucket.in_force()
    }

    /// Returns the number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().line.len()
    }

    /// Returns the bucket, and the number of waiting requests.
    pub(super) fn snapshot(&self) -> (Bucket, usize) {
        let state = self.shared.state.lock();
        (state.bucket.clone(), state.line.len())
    }
}
