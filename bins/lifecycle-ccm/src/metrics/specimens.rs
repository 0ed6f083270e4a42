//! One series of everything, for the reference of the metrics.

use ccm_cloud::ErrorKind;
use ccm_controller::brake::Usage;
use ccm_kube::ApiError;

use super::{CallLabels, LifecycleMetrics, ResultLabel, States, TaintLabels};
use crate::court::{At, Cause, Counts, Doubt, Reason, Verdict};

/// Every verdict with every reason.
fn verdicts() -> impl Iterator<Item = Verdict> {
    let doubts =
        Doubt::ALL.into_iter().map(|why| Verdict::Suspect { look_again: At::default(), why });
    Reason::ALL.into_iter().map(Verdict::Keep).chain(doubts).chain([
        Verdict::Delete,
        Verdict::BreakerOpen,
        Verdict::OverBudget { until: None },
    ])
}

impl LifecycleMetrics {
    /// Makes a series for every value that a label can take.
    pub(crate) fn specimens(&self) {
        self.stand(false, Usage::default(), Counts::default(), States::default());
        verdicts().for_each(|verdict| self.ruled(&verdict));
        for cause in [
            Cause::Empty { known: 0 },
            Cause::Shrunk { missing: 0, known: 0 },
            Cause::Contradiction { ready_missing: 0, ready: 0 },
        ] {
            self.opened(&cause);
        }
        let inner = &self.inner;
        let errors = || ErrorKind::ALL.into_iter().map(ErrorKind::reason);
        for result in errors().chain(["success", "instance_not_found", "not_ours"]) {
            let labels = CallLabels { operation: "instance_exists", result };
            drop(inner.answers.get_or_create(&labels));
        }
        for result in ApiError::REASONS.into_iter().chain(["ok"]) {
            drop(inner.deletions.get_or_create(&ResultLabel { result }));
            for action in ["add", "remove"] {
                drop(inner.taints.get_or_create(&TaintLabels { action, result }));
            }
        }
    }
}
