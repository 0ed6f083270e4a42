//! The metrics of template-ccm. Each declaration generates the registration and the reference
//! page; the values of a label are those of its type.

use ccm_cloud::{ErrorKind, Lookup, LookupResult};
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{Counter, Family, label, metrics};
use strum::{IntoStaticStr, VariantNames};

/// The results of a lookup, besides errors.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Answer {
    Found,
    Gone,
    NotOurs,
}

label!(Answer);

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
        let answer = match answer {
            Ok(Lookup::Found(_)) => Ok(Answer::Found),
            Ok(Lookup::Gone(_)) => Ok(Answer::Gone),
            Ok(Lookup::NotOurs(_)) => Ok(Answer::NotOurs),
            Err(error) => Err(error.kind),
        };
        self.answers.of(answer).inc();
    }

    /// Records the end of a write.
    pub(crate) fn written(&self, result: Result<(), &ApiError>) {
        self.writes.of(result.map_err(ApiReason::from)).inc();
    }
}
