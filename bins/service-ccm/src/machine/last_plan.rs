//! The parts of the last plan of a Service that its explanation and the metrics need.

use ccm_base::At;
use serde::{Deserialize, Serialize};

use crate::plan::{
    BalancerState, CallKind, Failed, reason::Reason, shown::Refused, status::NewCondition,
};

/// The parts of the last plan of a Service that its explanation and the metrics need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastPlan {
    /// True if there is one.
    pub(super) is_made: bool,
    /// The conditions that follow, with their messages.
    pub(super) conditions: Vec<NewCondition>,
    /// True if this program does not have a part in the Service.
    pub(super) is_not_ours: bool,
    /// True if a step is due.
    pub(super) is_due: bool,
    /// The reason why the load balancer stays although service-ccm does not serve the Service any more.
    pub(super) held_release: Option<String>,
    /// The reason why service-ccm does not make another load balancer, and when it checks that
    /// again.
    pub(super) held_replacement: Option<(String, At)>,
    /// The parts of the provider's answer that the Service does not show.
    #[serde(default)]
    pub(super) refused: Vec<Refused>,
    /// The reason why the finalizer stays.
    pub(super) unclaimed: Option<String>,
    /// The calls that wait because they have failed.
    pub(super) calls: Vec<CallKind>,
    /// True if only the last member is held.
    pub(super) is_last_held: bool,
}

impl LastPlan {
    /// Returns the condition of this type.
    pub(super) fn condition(&self, kind: &str) -> Option<(Reason, &str)> {
        let found = self.conditions.iter().find(|(reason, _)| reason.condition() == kind)?;
        Some((found.0, &found.1))
    }

    /// Returns the last failure of a call that is still wanted, the most important one.
    pub(super) fn failure<'a>(&self, state: &'a BalancerState) -> Option<&'a Failed> {
        let first = self.calls.iter().min()?;
        state.failed.iter().find(|failed| failed.call == *first)
    }
}
