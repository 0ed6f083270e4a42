//! Named health checks that report real state.
//!
//! A check reads state that its owner maintains; it never waits and makes no request, so that
//! a probe is cheap and cannot hang.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep};

/// The time between two looks at all checks, if nobody asks.
const LOOK: Duration = Duration::from_secs(10);

/// The endpoints that a check affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A failure means that the process is broken: `/healthz`, `/livez` and `/readyz`.
    Liveness,
    /// A failure means that the process cannot work now, and a restart would not help: `/readyz`.
    Readiness,
    /// Shown by `/readyz?verbose`, never fails a probe.
    Information,
}

/// The result of a check, with details for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Passed, with details.
    Passed(String),
    /// Failed, with the reason.
    Failed(String),
}

impl Verdict {
    /// Returns true if the check passed.
    pub fn is_passed(&self) -> bool {
        matches!(self, Self::Passed(_))
    }

    /// Returns the details.
    pub fn detail(&self) -> &str {
        match self {
            Self::Passed(text) | Self::Failed(text) => text,
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check's name.
    pub name: String,
    /// The endpoints that it affects.
    pub scope: Scope,
    /// Its verdict.
    pub verdict: Verdict,
    /// How long it has passed, or failed, as far as it was run. The kubelet's probes run it all the
    /// time.
    pub lasts: Duration,
}

type CheckFn = Arc<dyn Fn() -> Verdict + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: String,
    scope: Scope,
    run: CheckFn,
    /// The last result, true if the check passed, and since when it has been the result.
    state: Arc<Mutex<Option<(bool, Instant)>>>,
}

impl Check {
    fn finding(self) -> Finding {
        let (verdict, now) = ((self.run)(), Instant::now());
        let is_passed = verdict.is_passed();
        let mut state = self.state.lock();
        let since = state.filter(|(before, _)| *before == is_passed).map_or(now, |(_, at)| at);
        *state = Some((is_passed, since));
        Finding { verdict, name: self.name, scope: self.scope, lasts: now - since }
    }
}

/// The checks of a process. Clones share them. Without checks it is healthy and ready.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<RwLock<Vec<Check>>>,
}

impl Health {
    /// Adds a check, or replaces the check with this name.
    pub fn add(
        &self,
        name: impl Into<String>,
        scope: Scope,
        run: impl Fn() -> Verdict + Send + Sync + 'static,
    ) {
        let check = Check { name: name.into(), scope, run: Arc::new(run), state: Arc::default() };
        let mut checks = self.checks.write();
        match checks.iter_mut().find(|known| known.name == check.name) {
            Some(known) => *known = check,
            None => checks.push(check),
        }
    }

    /// Adds a check with a verdict set by its owner. It starts as failed with `until_set`.
    pub fn condition(
        &self,
        name: impl Into<String>,
        scope: Scope,
        until_set: impl Into<String>,
    ) -> Condition {
        let condition = Condition {
            verdict: Arc::new(ArcSwap::from_pointee(Verdict::Failed(until_set.into()))),
        };
        let shown = condition.clone();
        self.add(name, scope, move || shown.verdict());
        condition
    }

    /// Runs all checks, in the order of their registration.
    pub fn findings(&self) -> Vec<Finding> {
        // Checks run without the lock: a check may read this list itself.
        let checks = self.checks.read().clone();
        checks.into_iter().map(Check::finding).collect()
    }

    /// Runs the checks from time to time, so that the time of the last change is correct even if
    /// nobody reads the pages.
    pub(crate) async fn follow(self) {
        loop {
            sleep(LOOK).await;
            self.findings();
        }
    }

    /// Returns true if all readiness checks pass.
    pub fn is_ready(&self) -> bool {
        self.findings()
            .iter()
            .all(|finding| finding.scope == Scope::Information || finding.verdict.is_passed())
    }
}

/// A verdict set by its owner. Clones share it.
#[derive(Clone)]
pub struct Condition {
    verdict: Arc<ArcSwap<Verdict>>,
}

impl Condition {
    /// Sets the verdict.
    pub fn set(&self, verdict: Verdict) {
        self.verdict.store(Arc::new(verdict));
    }

    /// Sets the verdict to passed, with details.
    pub fn pass(&self, detail: impl Into<String>) {
        self.set(Verdict::Passed(detail.into()));
    }

    /// Sets the verdict to failed, with the reason.
    pub fn fail(&self, reason: impl Into<String>) {
        self.set(Verdict::Failed(reason.into()));
    }

    /// Returns the current verdict.
    pub fn verdict(&self) -> Verdict {
        Verdict::clone(&self.verdict.load())
    }
}

#[cfg(test)]
mod tests;
