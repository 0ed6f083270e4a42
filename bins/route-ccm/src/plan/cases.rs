//! Proof that the target of a route is gone: the cloud says so twice, apart. Until then the route
//! is not touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{CloudError, Route, RouteTarget, TargetState};

/// The time between the two answers that prove that a target is gone.
pub const CONFIRM: Duration = Duration::from_mins(1);

/// How long an answer that a target exists, or no answer, is not asked for again.
const AGAIN: Duration = Duration::from_mins(10);

/// How many targets of nodes are asked about together with unknown ones, at most.
const WITNESSES: usize = 5;

/// What is known about a target that is none of our nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Case {
    /// Not answered yet, or the last answer was an error.
    Open,
    /// It exists: the route is another owner's.
    Exists,
    /// The first answer "gone" came at this time.
    Gone { first: At, evidence: String },
    /// The second came at least [`CONFIRM`] later.
    Proven { evidence: String },
}

/// The open cases by target.
#[derive(Clone, Debug, Default)]
pub struct Cases {
    cases: BTreeMap<RouteTarget, (Case, At)>,
}

/// What a case says about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding<'a> {
    /// It is not known whether it exists.
    Unknown,
    /// It exists.
    Exists,
    /// It is proven to be gone.
    Gone(&'a str),
}

impl Cases {
    /// What is known about a target.
    pub fn finding(&self, target: &RouteTarget) -> Finding<'_> {
        match self.cases.get(target) {
            Some((Case::Exists, _)) => Finding::Exists,
            Some((Case::Proven { evidence }, _)) => Finding::Gone(evidence),
            _ => Finding::Unknown,
        }
    }

    /// Which of these targets to ask about now.
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

    /// When the next question is due.
    pub fn next(&self, now: At) -> Option<At> {
        self.cases.values().map(|(_, due)| *due).filter(|due| *due > now).min()
    }

    /// The cloud's answer.
    pub fn answered(
        &mut self,
        now: At,
        target: RouteTarget,
        answer: Result<TargetState, CloudError>,
    ) {
        let before = self.cases.remove(&target).map(|(case, _)| case);
        let after = match (answer, before) {
            (Err(_), Some(case)) => (case, now + CONFIRM),
            (Err(_), None) => (Case::Open, now + CONFIRM),
            (Ok(TargetState::Exists), _) => (Case::Exists, now + AGAIN),
            (Ok(TargetState::Gone(proof)), before) => {
                let evidence = proof.evidence;
                match before {
                    Some(Case::Gone { first, .. }) if now >= first + CONFIRM => {
                        (Case::Proven { evidence }, now + AGAIN)
                    }
                    Some(Case::Gone { first, .. }) => {
                        (Case::Gone { first, evidence }, first + CONFIRM)
                    }
                    Some(Case::Proven { .. }) => (Case::Proven { evidence }, now + AGAIN),
                    Some(Case::Open | Case::Exists) | None => {
                        (Case::Gone { first: now, evidence }, now + CONFIRM)
                    }
                }
            }
        };
        self.cases.insert(target, after);
    }

    /// The answers were not plausible: everything that was asked begins again.
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

/// Some of the targets of these routes, from all parts of the table; others with each question.
pub fn witnesses(right: &[&Route], questions: usize) -> Vec<RouteTarget> {
    let step = right.len().div_ceil(WITNESSES).max(1);
    let mut targets: Vec<RouteTarget> = Vec::with_capacity(WITNESSES);
    for target in right.iter().skip(questions % step).step_by(step) {
        targets.extend(target.target.clone().filter(|target| !targets.contains(target)));
    }
    targets
}
