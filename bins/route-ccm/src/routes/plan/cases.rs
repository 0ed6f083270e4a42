//! Proves that the target of a route is gone: the cloud says so twice, with a pause. Until then the
//! route is not touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::{At, Backoff};
use ccm_cloud::{CloudError, ProofMethod, Route, RouteTarget, TargetState};
use serde::{Deserialize, Serialize};

use super::pairs;

/// The time between the two answers that prove that a target is gone.
pub const CONFIRM: Duration = Duration::from_mins(1);

/// The same for an answer that is only the provider's word.
const CONFIRM_WORD: Duration = Duration::from_mins(5);

/// The wait before a target that exists is asked about again: its machine may be about to end. A
/// target that is proven to be gone waits for the longest time.
const AGAIN: Backoff = Backoff { first: CONFIRM, longest: Duration::from_mins(10) };

/// The maximum number of targets of nodes that are asked about together with unknown ones.
const WITNESSES: usize = 5;

/// The case of a target that is not one of our nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Case {
    /// Not answered yet, or the last answer was an error.
    Open,
    /// It exists, as this many answers in a row have said. The route belongs to another owner.
    Exists { answers: u32 },
    /// The first answer "gone" came at this time.
    Gone { first: At, is_witnessed: bool },
    /// The second came at least [`CONFIRM`] later, or [`CONFIRM_WORD`].
    Proven { evidence: String, is_witnessed: bool },
}

/// The open cases by target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cases {
    #[serde(with = "pairs")]
    cases: BTreeMap<RouteTarget, (Case, At)>,
}

/// The finding of a case about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding<'a> {
    /// It is not known whether it exists.
    Unknown,
    /// It exists.
    Exists,
    /// It is proven to be gone.
    Gone {
        /// The cloud's statement.
        evidence: &'a str,
        /// True if it found a target of a node both times.
        is_witnessed: bool,
    },
}

impl Cases {
    /// Returns the finding about a target.
    pub fn finding(&self, target: &RouteTarget) -> Finding<'_> {
        match self.cases.get(target) {
            Some((Case::Exists { .. }, _)) => Finding::Exists,
            Some((Case::Proven { evidence, is_witnessed }, _)) => {
                Finding::Gone { evidence, is_witnessed: *is_witnessed }
            }
            _ => Finding::Unknown,
        }
    }

    /// Opens a case for each new target. Returns the targets to ask about now.
    pub fn due<'a>(
        &mut self,
        now: At,
        targets: impl Iterator<Item = &'a RouteTarget>,
    ) -> Vec<RouteTarget> {
        let is_due = |target: &&RouteTarget| {
            let (_, due) = self.cases.entry((*target).clone()).or_insert((Case::Open, now));
            *due <= now
        };
        targets.filter(is_due).cloned().collect()
    }

    /// Returns when the next question is due.
    pub fn next(&self, now: At) -> Option<At> {
        self.cases.values().map(|(_, due)| *due).filter(|due| *due > now).min()
    }

    /// Records the cloud's answer. `found`: the same answer found a target of a node.
    pub fn record_answer(
        &mut self,
        now: At,
        target: RouteTarget,
        answer: Result<TargetState, CloudError>,
        found: bool,
    ) {
        let before = self.cases.remove(&target).map(|(case, _)| case);
        let after = match (answer, before) {
            (Err(_), before) => (before.unwrap_or(Case::Open), now + CONFIRM),
            (Ok(TargetState::Exists), before) => {
                let before = if let Some(Case::Exists { answers }) = before { answers } else { 0 };
                let answers = before.saturating_add(1);
                (Case::Exists { answers }, now + AGAIN.after(answers))
            }
            (Ok(TargetState::Gone(proof)), before) => {
                let confirm = match proof.method {
                    ProofMethod::ProvidersWord => CONFIRM_WORD,
                    _ => CONFIRM,
                };
                let evidence = proof.evidence;
                match before {
                    Some(Case::Gone { first, is_witnessed }) if now >= first + confirm => {
                        let is_witnessed = is_witnessed && found;
                        (Case::Proven { evidence, is_witnessed }, now + AGAIN.longest)
                    }
                    Some(Case::Gone { first, is_witnessed }) => {
                        (Case::Gone { first, is_witnessed }, first + confirm)
                    }
                    Some(Case::Proven { is_witnessed, .. }) => {
                        (Case::Proven { evidence, is_witnessed }, now + AGAIN.longest)
                    }
                    Some(Case::Open | Case::Exists { .. }) | None => {
                        (Case::Gone { first: now, is_witnessed: found }, now + confirm)
                    }
                }
            }
        };
        self.cases.insert(target, after);
    }

    /// Records that the answers were not plausible: everything that was asked begins again.
    pub fn postpone(&mut self, now: At) {
        for (case, due) in self.cases.values_mut() {
            if matches!(case, Case::Gone { .. } | Case::Proven { .. } | Case::Open) {
                (*case, *due) = (Case::Open, now + CONFIRM);
            }
        }
    }

    /// Keeps the cases of these targets.
    pub fn retain(&mut self, targets: &BTreeSet<RouteTarget>) {
        self.cases.retain(|target, _| targets.contains(target));
    }
}

/// Returns some of the targets of these routes, from all parts of the table; others with each
/// question.
pub fn witnesses(right: &[&Route], questions: usize) -> Vec<RouteTarget> {
    let step = right.len().div_ceil(WITNESSES).max(1);
    let mut targets: Vec<RouteTarget> = Vec::with_capacity(WITNESSES);
    for target in right.iter().skip(questions % step).step_by(step) {
        targets.extend(target.target.clone().filter(|target| !targets.contains(target)));
    }
    targets
}
