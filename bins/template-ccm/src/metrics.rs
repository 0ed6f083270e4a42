//! The metrics of template-ccm. Each declaration generates the registration and the reference
//! page; the values of a label are those of its type.

use ccm_cloud::{ErrorKind, Lookup, LookupResult};
use ccm_kube::{ApiError, ApiReason};
use ccm_metrics::{Counter, Family, label, metrics};
use strum::{IntoStaticStr, VariantNames};

/// The kinds of the cloud's answers about a node.
#[derive(Clone, Copy, Debug, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
enum Said {
    Found,
    Gone,
    NotOurs,
}

label!(Said);

metrics! {
    /// All metrics of the controller. Clones share them.
    pub(crate) struct TemplateMetrics {
        /// Answers about nodes, another provider's nodes included
        [ALPHA] ccm_template_answers { answer } => answers: Family<Counter, Result<Said, ErrorKind>>;
        /// Writes of the annotation, by what the API server answered
        [ALPHA] ccm_template_writes { result } => writes: Family<Counter, Result<(), ApiReason>>,
            begin [Ok(())];
    }
}

impl TemplateMetrics {
    /// Records the cloud's answer about one node.
    pub(crate) fn answered(&self, answer: &LookupResult) {
        let said = match answer {
            Ok(Lookup::Found(_)) => Ok(Said::Found),
            Ok(Lookup::Gone(_)) => Ok(Said::Gone),
            Ok(Lookup::NotOurs(_)) => Ok(Said::NotOurs),
            Err(error) => Err(error.kind),
        };
        self.answers.of(said).inc();
    }

    /// Records the end of a write.
    pub(crate) fn written(&self, result: Result<(), &ApiError>) {
        self.writes.of(result.map_err(ApiReason::from)).inc();
    }
}
