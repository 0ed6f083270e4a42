//! Reports of the cloud's unusable answers, and of the breaker that they open.

use ccm_cloud::CloudError;
use ccm_controller::{
    brake::Transition,
    fleet::{FleetLine, Oddity},
    reports::{REPEAT, ReportMemory},
};
use ccm_kube::ApiError;
use ccm_runtime::{
    health::{Condition, Scope},
    program::{Context, Program},
};
use parking_lot::Mutex;

use crate::{
    machine::{ShownFleet, event::FleetList},
    metrics::LifecycleMetrics,
    policy::{Breaker, Source},
};

/// Reports about the cloud's answers, and about the breaker that they open.
pub(crate) struct CloudReports {
    metrics: LifecycleMetrics,
    /// The line `breaker` of `/readyz?verbose`.
    condition: Condition,
    /// The kinds of cloud errors that were already reported.
    kinds: ReportMemory,
    /// The line `fleet` of `/readyz?verbose`.
    fleet: Mutex<FleetLine>,
}

impl CloudReports {
    pub(crate) fn new<P: Program>(context: &Context<P>, metrics: LifecycleMetrics) -> Self {
        let condition = context.health.condition("breaker", Scope::Information, "not checked yet");
        condition.pass("not checked: this replica does not lead");
        let fleet = context.health.condition("fleet", Scope::Information, "not checked yet");
        fleet.pass("not checked: this replica does not lead");
        let fleet = Mutex::new(FleetLine::new(fleet));
        Self { metrics, condition, kinds: ReportMemory::new(REPEAT), fleet }
    }

    /// Shows the breaker as closed when this replica becomes the leader.
    pub(crate) fn start_leading(&self) {
        self.condition.pass("closed; no list of the fleet has been needed yet");
    }

    /// Reports failed lookups, once for each kind of error.
    pub(super) fn lookups_failed(&self, count: usize, name: &str, error: &CloudError) {
        let kind = error.kind.reason();
        if self.kinds.changed("", kind, "") {
            tracing::warn!(
                kind,
                nodes = count,
                %error,
                "cloud lookups of {count} nodes failed, including {name}: {error}; failed lookups do not count"
            );
        }
    }

    /// Shows what is odd about the nodes: according to their provider IDs, or else to the last
    /// list.
    pub(crate) fn survey(&self, of_ids: Option<Oddity>, shown: Option<ShownFleet>) {
        let of_answers = |shown: ShownFleet| Oddity::of_answers(shown.found, shown.of);
        let oddity = of_ids.or_else(|| shown.and_then(of_answers));
        let text = match shown {
            Some(ShownFleet { by: Source::List, found, of }) => {
                format!("the last list has shown {found} of {of} nodes")
            }
            Some(ShownFleet { by: Source::Lookups, found, of }) => {
                format!("the last lookups have shown {found} of {of} Ready nodes")
            }
            None => "no list of the fleet has been needed yet".to_owned(),
        };
        self.fleet.lock().show(oddity.as_ref(), text);
    }

    /// Logs that the Lease of this node's kubelet cannot be read, once for each reason.
    pub(super) fn unread(&self, node: &str, error: &ApiError) {
        if self.kinds.changed("", "lease", error.reason()) {
            tracing::warn!(node, %error, "cannot read the Lease of the kubelet of {node}, so the node is kept: {error}");
        }
    }

    /// Reports that the list opened or closed the breaker, or changed its cause.
    pub(super) fn breaker(&self, before: Breaker, after: Breaker) {
        match before.transition(after) {
            Transition::Opened(cause) => {
                self.metrics.opened(&cause);
                tracing::error!(cause = <&str>::from(cause), "no node is deleted: {cause}");
            }
            Transition::StaysOpen(known, cause) if <&str>::from(known) != <&str>::from(cause) => {
                tracing::error!(cause = <&str>::from(cause), "still no node is deleted: {cause}");
            }
            Transition::Closed => {
                tracing::warn!(
                    "breaker closed: the list is plausible again; unproven cases restart"
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
pub(super) fn unusable_list(list: &Result<FleetList, CloudError>) {
    match list {
        Err(error) => {
            tracing::warn!(%error, "cannot list the fleet; no node is deleted until a list succeeds");
        }
        Ok(FleetList { malformed, .. }) if *malformed > 0 => {
            tracing::warn!(
                malformed,
                "{malformed} entries of the cloud's list could not be parsed; their nodes are kept"
            );
        }
        Ok(_) => {}
    }
}
