//! The metrics of template-ccm. Each declaration generates the registration and the reference page;
//! the values of a label are the values of its type.

use ccm_cloud::{ErrorKind, LookupResult};
use ccm_controller::instances::Answer;
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{Counter, Family, metrics};

metrics! {
    /// All metrics of the controller. Clones share them.
    pub(crate) struct TemplateMetrics {
        /// Results of lookups, including nodes of other providers
        [ALPHA] ccm_template_answers { answer } => answers: Family<Counter, Result<Answer, ErrorKind>>;
        /// Writes of the annotation, by result at the API server
        [ALPHA] ccm_template_writes { result } => writes: Family<Counter, Result<(), ApiReason>>,
            begin [Ok(())];
    }
}

impl TemplateMetrics {
    /// Records the cloud's answer about one node.
    pub(crate) fn answered(&self, answer: &LookupResult) {
        self.answers.of(Answer::of(answer)).inc();
    }

    /// Records the end of a write.
    pub(crate) fn written(&self, result: Result<(), &ApiError>) {
        self.writes.of(result.map_err(ApiReason::from)).inc();
    }
}
