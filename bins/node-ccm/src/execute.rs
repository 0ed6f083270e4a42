//! Carries out a plan: one request per step, in order, each only while this replica
//! leads for long enough.
//!
//! Every write carries the version of the node that it was decided on, so a stale
//! process can repeat it without harm: it gets a conflict.

use ccm_cloud::clock;
use ccm_kube::{
    ApiError,
    node::{Address, Node, Taint},
    patch::{AddressPatch, NodePatch},
};
use ccm_runtime::leadership::Lost;

use crate::{
    controller::Controller,
    plan::{self, NodeChange, Outcome, Plan, Step},
};

/// Why a plan was not carried out to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    /// This replica does not lead for long enough.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The API server did not take the write.
    #[error("the node's {what} could not be written")]
    Refused {
        /// What was to be written.
        what: &'static str,
        /// What the API server answered.
        source: ApiError,
    },
}

impl Controller {
    /// Carries out a plan that was made for this very version of the node.
    pub(crate) async fn execute(&self, node: &Node, plan: &Plan) -> Result<(), Stopped> {
        let mut version = node.resource_version.to_string();
        for step in &plan.steps {
            self.leadership.check(self.api.timeout())?;
            let (what, answer) = match step {
                Step::SetAddresses { addresses, .. } => {
                    let patch = AddressPatch {
                        addresses: addresses.iter().map(address).collect(),
                        resource_version: Some(version),
                    };
                    ("addresses", self.api.patch_addresses(&node.name, &patch).await)
                }
                Step::ChangeNode(change) => {
                    let what = if change.taints.is_some() { "taint" } else { "labels" };
                    (what, self.api.patch(&node.name, &node_patch(change, version)).await)
                }
            };
            self.metrics.written(what, answer.as_ref().map(|_| ()));
            let written = answer.map_err(|source| Stopped::Refused { what, source })?;
            tell_written(node, step, &plan.outcome);
            version = written.resource_version.to_string();
            // A node that was deleted meanwhile must not come back into the store.
            if self.store.get(&node.name).is_some() {
                self.store.apply_written(written);
            }
        }
        if plan.outcome == Outcome::Initialised {
            self.report_initialised(node);
        }
        Ok(())
    }

    fn report_initialised(&self, node: &Node) {
        if let Some(created) = node.created {
            // A clock that was set back must not count as an age of minus one hour.
            let age = clock::wall().duration_since(created);
            self.metrics.initialised(if age.is_negative() {
                std::time::Duration::ZERO
            } else {
                age.unsigned_abs()
            });
        }
        self.tell_initialised(node);
    }
}

/// New nodes are told of as a whole. A change of an initialised one is news: somebody
/// sees a label or an address change, and asks who did it and why.
fn tell_written(node: &Node, step: &Step, outcome: &Outcome) {
    let node = &*node.name;
    if *outcome == Outcome::KeptTrue {
        let text = step.to_string();
        let line = text.lines().map(str::trim).collect::<Vec<_>>().join(", ");
        tracing::info!(node, "written: {line}");
    } else {
        tracing::debug!(node, "written: {step}");
    }
}

fn address(address: &plan::Address) -> Address {
    Address { kind: address.kind.as_str().into(), address: address.address.as_str().into() }
}

fn node_patch(change: &NodeChange, version: String) -> NodePatch {
    let taint = |taint: &plan::Taint| Taint {
        key: taint.key.as_str().into(),
        value: taint.value.as_deref().map(Into::into),
        effect: taint.effect.as_str().into(),
        time_added: taint.time_added.as_deref().map(Into::into),
    };
    NodePatch {
        resource_version: Some(version),
        provider_id: change.provider_id.clone(),
        labels: change.labels.clone(),
        annotations: change.annotations.clone(),
        taints: change.taints.as_ref().map(|taints| taints.iter().map(taint).collect()),
    }
}
