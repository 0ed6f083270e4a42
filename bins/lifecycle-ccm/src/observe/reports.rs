//! Reports of the cloud's unusable answers, and of the breaker that they open.

use std::collections::HashMap;

use ccm_cloud::{CloudError, Lookup};
use ccm_controller::{
    brake::Transition,
    fleet::{FleetLine, Oddity},
    reports::{Memory, REPEAT},
};
use ccm_kube::ApiError;
use ccm_runtime::{
    health::{Condition, Scope},
    program::{Context, Program},
};

use parking_lot::Mutex;

use super::Nodes;
use crate::{
    metrics::LifecycleMetrics,
    policy::{Breaker, Listing, LookedUp, Source},
};

/// Reports about the cloud's answers, and about the breaker that they open.
pub(crate) struct CloudReports {
    metrics: LifecycleMetrics,
    /// The line `breaker` of `/readyz?verbose`.
    condition: Condition,
    /// The kinds of cloud errors that were already reported.
    kinds: Memory,
    fleet: Mutex<Fleet>,
}

/// The line `fleet` of `/readyz?verbose`.
struct Fleet {
    line: FleetLine,
    /// The number of initialised nodes that the last list has shown, or the lookups of witnesses, and
    /// the number of all of them.
    shown: Option<(Source, usize, usize)>,
}

impl CloudReports {
    pub(crate) fn new<P: Program>(context: &Context<P>, metrics: LifecycleMetrics) -> Self {
        let condition = context.health.condition("breaker", Scope::Information, "not checked yet");
        condition.pass("not checked: this replica does not lead");
        let fleet = context.health.condition("fleet", Scope::Information, "not checked yet");
        fleet.pass("not checked: this replica does not lead");
        let fleet = Mutex::new(Fleet { line: FleetLine::new(fleet), shown: None });
        Self { metrics, condition, kinds: Memory::new(REPEAT), fleet }
    }

    /// Called when this replica becomes the leader.
    pub(crate) fn start_leading(&self) {
        self.condition.pass("closed; no list of the fleet has been needed yet");
    }

    /// Reports failed lookups, once for each kind of error, and an unusable list.
    pub(crate) fn answers<'a>(
        &self,
        lookups: impl Iterator<Item = &'a LookedUp>,
        list: Option<&Listing>,
    ) {
        let mut kinds: HashMap<&'static str, (usize, &LookedUp, &CloudError)> = HashMap::new();
        for lookup in lookups {
            self.metrics.answered(&lookup.result);
            if let Err(error) = &lookup.result {
                kinds.entry(error.kind.reason()).or_insert((0, lookup, error)).0 += 1;
            }
        }
        for (kind, (count, lookup, error)) in kinds {
            if self.kinds.changed("", kind, "") {
                let name = &*lookup.name;
                tracing::warn!(
                    kind,
                    nodes = count,
                    %error,
                    "cloud lookups of {count} nodes failed, including {name}: {error}; failed lookups are no evidence"
                );
            }
        }
        list.into_iter().for_each(unusable_list);
    }

    /// Remembers what a list has shown of the initialised nodes.
    pub(crate) fn listed(&self, list: Option<&Listing>, witnesses: &[LookedUp], nodes: &Nodes) {
        let shown = match list {
            Some(Listing::Read { missing, .. }) => {
                let initialised =
                    nodes.views.iter().filter(|view| view.in_reach() && !view.uninitialised);
                let found = initialised.clone().filter(|view| !missing.contains(&view.name));
                (Source::List, found.count(), initialised.count())
            }
            Some(Listing::Witnesses) => {
                let gone = witnesses.iter().filter(|one| matches!(one.result, Ok(Lookup::Gone(_))));
                (Source::Lookups, witnesses.len() - gone.count(), witnesses.len())
            }
            Some(Listing::Failed(_)) | None => return,
        };
        self.fleet.lock().shown = Some(shown);
    }

    /// Shows what is odd about the nodes: what their provider IDs say, or else the last list.
    pub(crate) fn survey(&self, of_ids: Option<Oddity>) {
        let Fleet { line, shown } = &mut *self.fleet.lock();
        let oddity =
            of_ids.or_else(|| shown.and_then(|(_, found, of)| Oddity::of_answers(found, of)));
        let text = match shown {
            Some((Source::List, found, of)) => {
                format!("the last list has shown {found} of {of} nodes")
            }
            Some((Source::Lookups, found, of)) => {
                format!("the last lookups have shown {found} of {of} Ready nodes")
            }
            None => "no list of the fleet has been needed yet".to_owned(),
        };
        line.show(oddity.as_ref(), text);
    }

    /// Logs that the Lease of this node's kubelet cannot be read, once for each reason.
    pub(crate) fn unread(&self, node: &str, error: &ApiError) {
        if self.kinds.changed("", "lease", error.reason()) {
            tracing::warn!(node, %error, "cannot read the Lease of the kubelet of {node}, so the node is kept: {error}");
        }
    }

    /// Reports that the list opened or closed the breaker, or changed its cause.
    pub(crate) fn breaker(&self, before: Breaker, after: Breaker) {
        match before.transition(after) {
            Transition::Opened(cause) => {
                self.metrics.opened(&cause);
                tracing::error!(cause = cause.as_str(), "no node is deleted: {cause}");
            }
            Transition::StaysOpen(known, cause) if known.as_str() != cause.as_str() => {
                tracing::error!(cause = cause.as_str(), "still no node is deleted: {cause}");
            }
            Transition::Closed => {
                tracing::warn!(
                    "breaker closed: the list is plausible again; cases that are not proven start over"
                );
            }
            Transition::StaysOpen(..) | Transition::StaysClosed => {}
        }
        match after {
            Breaker::Open { cause, .. } => {
                self.condition.fail(format!("open, no node is deleted unless approved: {cause}"));
            }
            Breaker::Closed => self.condition.pass("closed"),
        }
    }
}

/// Reports a list that is unusable, or only partly usable.
fn unusable_list(list: &Listing) {
    match list {
        Listing::Failed(error) => {
            tracing::warn!(%error, "cannot list the fleet; no node is deleted until a list succeeds");
        }
        Listing::Read { malformed, .. } if *malformed > 0 => {
            tracing::warn!(
                malformed,
                "{malformed} entries of the cloud's list could not be parsed; the nodes that they mention are not deleted"
            );
        }
        Listing::Read { .. } | Listing::Witnesses => {}
    }
}
