//! Holds all deletions while the list of the fleet is not believable.
//!
//! The breaker is a function of the last usable list and the nodes: it closes by itself
//! when a later list shows the fleet again.

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloud::Claim;
use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

use super::{At, Policy, Roll, Subject};

/// So many nodes must miss before a share of them means anything.
const FEW: usize = 3;
/// Percent of the Ready nodes.
const READY_SHARE: usize = 10;

/// Why deletions are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// The list shows no instance of any node with a provider ID: another project or
    /// region, or everything is gone.
    Empty {
        /// Nodes that should be in it.
        known: usize,
    },
    /// The list lacks more of the known nodes than the threshold allows.
    Shrunk {
        /// Nodes that miss.
        missing: usize,
        /// Nodes that should be in it.
        known: usize,
    },
    /// The list lacks nodes that are Ready, so their instances run.
    Contradiction {
        /// Ready nodes that miss.
        ready_missing: usize,
        /// Ready nodes.
        ready: usize,
    },
}

impl Cause {
    /// A short, stable name for metric labels and log fields.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }
}

/// Whether deletions are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker {
    /// They are not.
    #[default]
    Closed,
    /// They are, except those of approved nodes.
    Open {
        /// Since when.
        since: At,
        /// Why, by the last list.
        cause: Cause,
    },
}

impl Breaker {
    /// Whether deletions are held.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// The breaker after a list that ends up with this cause, or none.
    #[must_use]
    pub fn after(self, now: At, cause: Option<Cause>) -> Self {
        match (self, cause) {
            (_, None) => Self::Closed,
            (Self::Open { since, .. }, Some(cause)) => Self::Open { since, cause },
            (Self::Closed, Some(cause)) => Self::Open { since: now, cause },
        }
    }
}

/// The nodes that a list is measured by: all that the court could ever delete without
/// the operator's approval, Ready or not.
pub fn known<'a>(
    subjects: &'a [Subject],
    policy: &'a Policy,
) -> impl Iterator<Item = &'a Subject> + Clone {
    subjects.iter().filter(|subject| {
        subject.in_reach()
            && !subject.approved
            && !subject.protected
            && subject.age >= policy.grace_period
            && subject.can_be_judged(policy)
    })
}

/// Measures a list that lacks `missing`.
pub fn measure(
    subjects: &[Subject],
    missing: &BTreeSet<Arc<str>>,
    instances: usize,
    policy: &Policy,
) -> (Roll, Option<Cause>) {
    let lacks = |subject: &&Subject| missing.contains(&subject.name);
    let all = known(subjects, policy);
    let roll =
        Roll { instances, known: all.clone().count(), missing: all.clone().filter(lacks).count() };
    let ready = all.clone().filter(|subject| subject.ready).count();
    let ready_missing = all.filter(|subject| subject.ready).filter(lacks).count();
    (roll, cause(subjects, missing, roll, (ready_missing, ready), policy))
}

fn cause(
    subjects: &[Subject],
    missing: &BTreeSet<Arc<str>>,
    roll: Roll,
    (ready_missing, ready): (usize, usize),
    policy: &Policy,
) -> Option<Cause> {
    let Roll { known, missing: lacking, .. } = roll;
    // Only an ID shows that this is our fleet: names repeat in other projects. The
    // youngest and the approved serve as well as others.
    let recognised = subjects.iter().any(|subject| {
        subject.in_reach()
            && subject.has_id
            && subject.claim == Claim::Ours
            && !missing.contains(&subject.name)
    });
    if lacking > 0 && !recognised {
        return Some(Cause::Empty { known });
    }
    if lacking >= FEW && lacking * 100 > usize::from(policy.shrink_threshold) * known {
        return Some(Cause::Shrunk { missing: lacking, known });
    }
    if ready_missing >= FEW && ready_missing * 100 > READY_SHARE * ready {
        return Some(Cause::Contradiction { ready_missing, ready });
    }
    None
}
