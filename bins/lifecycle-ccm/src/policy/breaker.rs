//! Holds all deletions while the list of the fleet is not plausible.
//!
//! The breaker is a function of the last usable list, the nodes and the cases: it closes on its own
//! when a later list shows the fleet again, or when the absences have been proven one by one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::Claim;
use ccm_controller::brake::{self, is_mass};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::{At, Decider, ListCoverage, NodeView, Policy, Source};

/// Percent of the Ready nodes.
const READY_SHARE: usize = 10;

/// The time for which the cloud must report an instance as gone, by its ID and while the lists show
/// most of the Ready nodes, before its absence stops being a sign of an incomplete list.
pub const PROVEN: Duration = Duration::from_mins(15);

/// Why deletions are held. Its texts are for metric labels and log fields.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// The list shows no instance of any node with a provider ID: wrong project or region, or
    /// the whole fleet is gone.
    Empty {
        /// The source that shows none of the nodes.
        by: Source,
        /// Nodes that should be in the list.
        known: usize,
    },
    /// The list lacks more of the known nodes than the threshold allows.
    Shrunk {
        /// The source that does not show the nodes.
        by: Source,
        /// Missing nodes.
        missing: usize,
        /// Nodes that should be in the list.
        known: usize,
    },
    /// The list lacks nodes that are Ready, so their instances run.
    Contradiction {
        /// The source that does not show the nodes.
        by: Source,
        /// Missing Ready nodes.
        ready_missing: usize,
        /// Ready nodes.
        ready: usize,
    },
}

/// The breaker: holds deletions, or not.
pub type Breaker = brake::Breaker<Cause>;

/// The result of one look at the fleet.
pub struct FleetLook {
    /// When it began.
    pub asked: At,
    /// The number of instances.
    pub instances: usize,
    /// The nodes whose instances are missing.
    pub missing: BTreeSet<Arc<str>>,
    /// How many witnesses were found, and how many were gone, if it was not a list.
    pub witnesses: Option<(usize, usize)>,
}

impl FleetLook {
    fn by(&self) -> Source {
        if self.witnesses.is_some() { Source::Lookups } else { Source::List }
    }
}

impl Decider {
    /// Returns the nodes that a list is compared with.
    pub(super) fn known<'a>(
        &'a self,
        views: &'a [NodeView],
        policy: &'a Policy,
    ) -> impl Iterator<Item = &'a NodeView> + Clone {
        views.iter().filter(|view| self.is_known(view, policy))
    }

    /// Returns true for a node that the policy could delete without an operator or an autoscaler,
    /// Ready or not, and that the provider can answer for.
    pub(super) fn is_known(&self, view: &NodeView, policy: &Policy) -> bool {
        view.in_reach()
            && !view.approved
            && !view.protected
            && !view.marked
            && view.age >= policy.grace_period
            && view.may_be_deleted(policy)
            && !self.unjudged.contains(&view.uid)
    }

    /// Returns true if a list that shows no node at all should have shown this one. Nodes that are
    /// not judged because they are new or protected also count while they are Ready.
    pub(super) fn is_expected(&self, view: &NodeView, policy: &Policy) -> bool {
        let runs = identifies_the_fleet(view) && view.is_well();
        self.is_known(view, policy) || (runs && !self.unjudged.contains(&view.uid))
    }

    /// Evaluates what was shown.
    pub(super) fn measure(
        &mut self,
        views: &[NodeView],
        shown: &FleetLook,
        policy: &Policy,
    ) -> (ListCoverage, Option<Cause>) {
        let of = |nodes: &[&NodeView]| {
            let lacks = |view: &&&NodeView| shown.missing.contains(&view.name);
            let (known, missing) = (nodes.len(), nodes.iter().filter(lacks).count());
            ListCoverage { by: shown.by(), instances: shown.instances, known, missing }
        };
        let known: Vec<&NodeView> = self.known(views, policy).collect();
        let well: Vec<&NodeView> = known.iter().copied().filter(|view| view.is_well()).collect();
        let expected: Vec<&NodeView> =
            views.iter().filter(|view| self.is_expected(view, policy)).collect();
        let missing = known.iter().filter(|view| shown.missing.contains(&view.name));
        let proven = missing.filter(|view| self.is_proven(&view.name)).count();
        let (coverage, ready) = (of(&known), of(&well));
        let doubt = doubt(views, shown, of(&expected), ready);
        if doubt.is_some() || ready.missing == ready.known {
            self.shown_since = None;
        } else {
            self.shown_since.get_or_insert(shown.asked);
        }
        if shown.witnesses.is_none() {
            let unlisted = expected.iter().filter(|view| view.is_well());
            let unlisted = unlisted.filter(|view| shown.missing.contains(&view.name));
            self.unlisted = unlisted.map(|view| Arc::clone(&view.name)).collect();
        }
        let proven = if self.shown_since.is_some() { proven } else { 0 };
        let (missing, known) = (coverage.missing - proven, coverage.known - proven);
        let threshold = usize::from(policy.shrink_threshold);
        let shrunk = Cause::Shrunk { by: shown.by(), missing, known };
        let shrunk = is_mass(missing, known, threshold).then_some(shrunk);
        (coverage, doubt.or(shrunk))
    }

    /// Returns true if the node's absence has been proven by ID for so long that the breaker
    /// believes it.
    pub(super) fn is_proven(&self, name: &str) -> bool {
        let case = self.records.get(name).filter(|record| record.has_id);
        let case = case.and_then(|record| record.case.as_ref());
        let lasted = case.zip(self.shown_since).map(|(case, since)| case.lasted_from(since));
        lasted.is_some_and(|lasted| lasted >= PROVEN)
    }
}

/// Returns true if a list that shows this node is a list of our fleet. Only an ID proves that:
/// other projects may use the same names. New and approved nodes also count here. Nodes that are
/// marked for scale-down do not: they are gone or about to be deleted, so they say nothing about
/// the others.
fn identifies_the_fleet(view: &NodeView) -> bool {
    view.in_reach() && view.has_id && view.claim == Claim::Ours && !view.marked
}

/// Returns why what was shown is not plausible, regardless of the cases. `expected` is about the
/// nodes that a list of our fleet should show, `ready` about the Ready ones among those that it is
/// measured by.
fn doubt(
    views: &[NodeView],
    shown: &FleetLook,
    expected: ListCoverage,
    ready: ListCoverage,
) -> Option<Cause> {
    let is_shown =
        |view: &NodeView| identifies_the_fleet(view) && !shown.missing.contains(&view.name);
    let by = shown.by();
    match shown.witnesses {
        // Without a witness none of the expected nodes is shown.
        Some((0, 0)) => return Some(Cause::Empty { by, known: expected.known }),
        Some((0, known)) => return Some(Cause::Empty { by, known }),
        Some((found, gone)) if gone > 0 => {
            return Some(Cause::Contradiction { by, ready_missing: gone, ready: found + gone });
        }
        None if expected.missing > 0 && !views.iter().any(is_shown) => {
            return Some(Cause::Empty { by, known: expected.known });
        }
        _ => {}
    }
    let ListCoverage { known: ready, missing: ready_missing, .. } = ready;
    let is_contradicted = is_mass(ready_missing, ready, READY_SHARE) || ready_missing * 2 > ready;
    is_contradicted.then_some(Cause::Contradiction { by, ready_missing, ready })
}
