//! Runs passes over all objects, never two at once. A period, a wake-up, or the back-off after a
//! failure starts a pass.

use std::{sync::Arc, time::Duration};

use ccm_base::{Backoff, RetryClass, Waits};
use tokio::{
    sync::{Mutex, Notify, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::workers::until_cancelled;

/// The least time between the starts of two passes: objects that change one after another
/// must not cost one call each.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a woken pass waits for more objects that change at the same time.
const COALESCE: Duration = Duration::from_millis(100);
/// The share of a period that is added or subtracted at random, so that programs that
/// started together do not stay in step.
const SPREAD: f64 = 0.1;
/// The back-off after failed passes.
const RETRY: Backoff = Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(1) };
/// A pass waits as long as the other side asks, but not longer than its period.
const WAITS: Waits = Waits { asked: (RETRY.first, Duration::MAX), ..Waits::within(RETRY) };

/// When the next pass begins unless it is woken earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextPass {
    /// One period after the end of this pass. New settings change the wait.
    Period,
    /// The pass failed: after a back-off, but no later than after a period.
    Failed(RetryClass),
    /// At this time. New settings start a pass at once, since they may change the time.
    At(Instant),
}

/// Repeated work.
pub trait Pass: Send {
    /// Runs one pass. Returns when the next one begins.
    fn pass(&mut self) -> impl Future<Output = NextPass> + Send;

    /// Returns the period in the current settings.
    fn period(&self) -> Duration;
}

/// Wakes and drains the passes of one loop. Clones control the same loop.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    wake: Notify,
    /// Is cancelled when no new pass may begin.
    closing: CancellationToken,
    /// Is held during a pass.
    passing: Mutex<()>,
}

impl Passes {
    /// Begins a pass soon.
    pub fn wake(&self) {
        self.shared.wake.notify_one();
    }

    /// Returns a token that is cancelled when the passes end: calls to the cloud should then be
    /// abandoned.
    pub fn closing(&self) -> &CancellationToken {
        &self.shared.closing
    }

    /// Prevents new passes and waits for the running one.
    pub async fn drain(&self) {
        self.shared.closing.cancel();
        drop(self.shared.passing.lock().await);
    }

    /// Runs passes until the token is cancelled: the first at once, then as each pass returns.
    pub async fn run<S>(
        self,
        mut pass: impl Pass,
        mut settings: watch::Receiver<S>,
        token: CancellationToken,
    ) {
        let work = async {
            let mut failures = 0;
            while !self.shared.closing.is_cancelled() {
                let started = Instant::now();
                let next = {
                    let _passing = self.shared.passing.lock().await;
                    pass.pass().await
                };
                failures = if matches!(next, NextPass::Failed(_)) { failures + 1 } else { 0 };
                let wait = Wait { next, failures, unit: rand::random(), ended: Instant::now() };
                self.wait(&wait, &pass, &mut settings).await;
                sleep_until(started + PAUSE).await;
            }
        };
        until_cancelled(&token, work).await;
    }

    async fn wait<S>(&self, wait: &Wait, pass: &impl Pass, settings: &mut watch::Receiver<S>) {
        loop {
            tokio::select! {
                () = sleep_until(wait.due(pass.period())) => return,
                () = self.shared.wake.notified() => return sleep(COALESCE).await,
                Ok(()) = settings.changed() => if matches!(wait.next, NextPass::At(_)) { return },
                () = self.shared.closing.cancelled() => return,
            }
        }
    }
}

/// The wait after a pass.
struct Wait {
    next: NextPass,
    /// The number of consecutive failed passes.
    failures: u32,
    /// A random number between 0 and 1.
    unit: f64,
    ended: Instant,
}

impl Wait {
    fn due(&self, period: Duration) -> Instant {
        let period = period.mul_f64(1.0 + SPREAD * (2.0 * self.unit - 1.0));
        let after = match self.next {
            NextPass::At(due) => return due,
            NextPass::Period => period,
            NextPass::Failed(class) => WAITS.after(class, self.failures).min(period),
        };
        self.ended + after
    }
}

#[cfg(test)]
mod tests;
