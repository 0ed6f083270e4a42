//! Named checks with real content.
//!
//! A check reads state that its owner keeps up to date; it never waits and never
//! asks anybody, so that a probe costs nothing and cannot hang.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::RwLock;

/// Where a check counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The process itself is broken when it fails: `/healthz`, `/livez` and `/readyz`.
    Liveness,
    /// The process cannot do its work now; restarting it would not help: `/readyz`.
    Readiness,
    /// Shown by `/readyz?verbose`, never fails a probe.
    Information,
}

/// What a check found, with the details a person wants to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good.
    Passed(String),
    /// Bad, and why.
    Failed(String),
}

impl Verdict {
    /// Whether it is good.
    pub fn is_passed(&self) -> bool {
        matches!(self, Self::Passed(_))
    }

    /// The details.
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
    /// Where it counts.
    pub scope: Scope,
    /// What it found.
    pub verdict: Verdict,
}

type CheckFn = Arc<dyn Fn() -> Verdict + Send + Sync>;

#[derive(Clone)]
struct Check {
    name: String,
    scope: Scope,
    run: CheckFn,
}

/// The checks of a process. Clones share them.
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<RwLock<Vec<Check>>>,
}

impl Health {
    /// No checks yet: healthy and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check, or replaces the one of this name in its place.
    pub fn add(
        &self,
        name: impl Into<String>,
        scope: Scope,
        run: impl Fn() -> Verdict + Send + Sync + 'static,
    ) {
        let check = Check { name: name.into(), scope, run: Arc::new(run) };
        let mut checks = self.checks.write();
        match checks.iter_mut().find(|known| known.name == check.name) {
            Some(known) => *known = check,
            None => checks.push(check),
        }
    }

    /// Adds a check whose verdict its owner sets. It starts as failed with `until_set`.
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

    /// Runs all checks, in the order in which they were added.
    pub fn findings(&self) -> Vec<Finding> {
        // Checks run without the lock: one of them may look at this very list.
        let checks = self.checks.read().clone();
        checks
            .into_iter()
            .map(|check| Finding { verdict: (check.run)(), name: check.name, scope: check.scope })
            .collect()
    }

    /// Whether all checks that count for readiness pass.
    pub fn is_ready(&self) -> bool {
        self.findings()
            .iter()
            .all(|finding| finding.scope == Scope::Information || finding.verdict.is_passed())
    }
}

/// A verdict that its owner sets. Clones share it.
#[derive(Clone)]
pub struct Condition {
    verdict: Arc<ArcSwap<Verdict>>,
}

impl Condition {
    /// Good, with details.
    pub fn pass(&self, detail: impl Into<String>) {
        self.verdict.store(Arc::new(Verdict::Passed(detail.into())));
    }

    /// Bad, and why.
    pub fn fail(&self, reason: impl Into<String>) {
        self.verdict.store(Arc::new(Verdict::Failed(reason.into())));
    }

    /// What was set last.
    pub fn verdict(&self) -> Verdict {
        Verdict::clone(&self.verdict.load())
    }
}

#[cfg(test)]
mod tests;
