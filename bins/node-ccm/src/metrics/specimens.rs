//! One series of everything, for the reference of the metrics.

use std::time::Duration;

use ccm_cloud::ErrorKind;
use ccm_kube::ApiError;

use super::{AnswerLabel, NodeMetrics, ReasonLabel, ResultLabel, State, WriteLabels};
use crate::plan::WaitReason;

/// Every state, and every reason to wait.
fn states() -> impl Iterator<Item = State> {
    let others = [
        State::Unknown,
        State::Pending,
        State::WriteFailing,
        State::Initialised,
        State::InstanceGone,
        State::NotOurs,
        State::Foreign,
    ];
    let clouds = ErrorKind::ALL.into_iter().map(WaitReason::Cloud);
    let waiting = clouds.chain([WaitReason::InstanceNotFound, WaitReason::NodeIp]);
    others.into_iter().chain(waiting.map(State::Waiting))
}

impl NodeMetrics {
    /// Makes a series for every value that a label can take.
    pub(crate) fn specimens(&self) {
        states().for_each(|state| self.entered(state));
        let inner = &self.inner;
        for kind in ["addresses", "labels", "taint"] {
            for result in ApiError::REASONS.into_iter().chain(["ok"]) {
                drop(inner.writes.get_or_create(&WriteLabels { kind, result }));
            }
        }
        let errors = || ErrorKind::ALL.into_iter().map(ErrorKind::reason);
        for answer in errors().chain(["found", "gone", "not_ours"]) {
            drop(inner.answers.get_or_create(&AnswerLabel { answer }));
        }
        for reason in ["invalid", "reserved", "already_present"] {
            drop(inner.label_drops.get_or_create(&ReasonLabel { reason }));
        }
        for result in ["applied", "held"] {
            drop(inner.internal_ip_changes.get_or_create(&ResultLabel { result }));
        }
        self.refreshed(Duration::ZERO, Ok(0));
        for kind in ErrorKind::ALL {
            self.refreshed(Duration::ZERO, Err(kind));
        }
    }
}
