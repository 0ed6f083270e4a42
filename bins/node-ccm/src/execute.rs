//! Carries out a plan: one request per step, in order, each to the node as the step before
//! it has left it.

use std::sync::Arc;

use ccm_base::clock;
use ccm_controller::writer::Stopped;
use ccm_kube::write::{Patch, StatusPatch};
use ccm_objects::{Address, Node, Taint};

use crate::{
    controller::Controller,
    plan::{self, NodeChange, Outcome, Plan, Step},
};

/// Where and why a plan was not carried out to its end.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// What was to be written.
    pub(crate) what: &'static str,
    /// Why it was not.
    pub(crate) why: Stopped,
}

impl Controller {
    /// Carries out a plan that was made for this very version of the node.
    pub(crate) async fn execute(&self, node: &Arc<Node>, plan: &Plan) -> Result<(), Unfinished> {
        let mut latest = Arc::clone(node);
        for step in &plan.steps {
            let (what, answer) = match step {
                Step::SetAddresses { addresses, .. } => {
                    let addresses: Vec<_> = addresses.iter().map(address).collect();
                    let patch = StatusPatch::default().with_addresses(&addresses);
                    ("addresses", self.writer.patch_status(&latest, &patch).await)
                }
                Step::ChangeNode(change) => {
                    let what = if change.taints.is_some() { "taint" } else { "labels" };
                    (what, self.writer.patch(&latest, &node_patch(change)).await)
                }
            };
            match &answer {
                Ok(_) => self.metrics.written(what, Ok(())),
                Err(Stopped::Refused(error)) => self.metrics.written(what, Err(error)),
                Err(Stopped::Lost(_)) => {}
            }
            latest = answer.map_err(|why| Unfinished { what, why })?;
            tell_written(node, step, &plan.outcome);
        }
        if plan.outcome == Outcome::Initialised {
            self.report_initialised(node);
        }
        Ok(())
    }

    fn report_initialised(&self, node: &Node) {
        if let Some(age) = node.age(clock::wall()) {
            self.metrics.initialised(age);
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

fn node_patch(change: &NodeChange) -> Patch {
    let taint = |taint: &plan::Taint| Taint {
        key: taint.key.as_str().into(),
        value: taint.value.as_deref().map(Into::into),
        effect: taint.effect.as_str().into(),
        time_added: taint.time_added.as_deref().map(Into::into),
    };
    let mut patch = Patch {
        labels: change.labels.clone(),
        annotations: change.annotations.clone(),
        ..Patch::default()
    };
    if let Some(id) = &change.provider_id {
        patch = patch.with_spec("providerID", id);
    }
    if let Some(taints) = &change.taints {
        patch = patch.with_spec("taints", &taints.iter().map(taint).collect::<Vec<_>>());
    }
    patch
}
