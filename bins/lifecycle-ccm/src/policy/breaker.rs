//! Holds all deletions while the list of the fleet is not plausible.
//!
//! The breaker is a function of the last usable list and the nodes: it closes by itself when a
//! later list shows the fleet again.

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloud::Claim;
use ccm_controller::brake::{self, is_mass};
use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

use super::{ListCoverage, NodeView, Policy};

/// Percent of the Ready nodes.
const READY_SHARE: usize = 10;

/// Why deletions are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// The list shows no instance of any node with a provider ID: wrong project or region, or
    /// the whole fleet is gone.
    Empty {
        /// Nodes that should be in the list.
        known: usize,
    },
    /// The list lacks more of the known nodes than the threshold allows.
    Shrunk {
        /// Missing nodes.
        missing: usize,
        /// Nodes that should be in the list.
        known: usize,
    },
    /// The list lacks nodes that are Ready, so their instances run.
    Contradiction {
        /// Missing Ready nodes.
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
pub type Breaker = brake::Breaker<Cause>;

/// The nodes that a list is compared with: all that the policy could ever delete without the
/// operator's approval, Ready or not.
pub fn known<'a>(
    views: &'a [NodeView],
    policy: &'a Policy,
) -> impl Iterator<Item = &'a NodeView> + Clone {
    views.iter().filter(|view| {
        view.in_reach()
            && !view.approved
            && !view.protected
            && view.age >= policy.grace_period
            && view.may_be_deleted(policy)
    })
}

/// Evaluates a list that lacks `missing`.
pub fn measure(
    views: &[NodeView],
    missing: &BTreeSet<Arc<str>>,
    instances: usize,
    policy: &Policy,
) -> (ListCoverage, Option<Cause>) {
    let lacks = |view: &&NodeView| missing.contains(&view.name);
    let all = known(views, policy);
    let coverage = ListCoverage {
        instances,
        known: all.clone().count(),
        missing: all.clone().filter(lacks).count(),
    };
    let ready = all.clone().filter(|view| view.ready).count();
    let ready_missing = all.filter(|view| view.ready).filter(lacks).count();
    (coverage, cause(views, missing, coverage, (ready_missing, ready), policy))
}

fn cause(
    views: &[NodeView],
    missing: &BTreeSet<Arc<str>>,
    coverage: ListCoverage,
    (ready_missing, ready): (usize, usize),
    policy: &Policy,
) -> Option<Cause> {
    let ListCoverage { known, missing: lacking, .. } = coverage;
    // Only an ID identifies the fleet: other projects may use the same names. New and approved
    // nodes count here, too.
    let recognised = views.iter().any(|view| {
        view.in_reach() && view.has_id && view.claim == Claim::Ours && !missing.contains(&view.name)
    });
    if lacking > 0 && !recognised {
        return Some(Cause::Empty { known });
    }
    if is_mass(lacking, known, usize::from(policy.shrink_threshold)) {
        return Some(Cause::Shrunk { missing: lacking, known });
    }
    if is_mass(ready_missing, ready, READY_SHARE) {
        return Some(Cause::Contradiction { ready_missing, ready });
    }
    None
}
