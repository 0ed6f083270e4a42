//! Executes a plan: one request per step, in order, each on the node as the previous step left
//! it.

pub(crate) mod writers;

use std::sync::Arc;

use ccm_controller::{
    brake::Pause,
    writer::{self, Stopped, Writer},
};
use ccm_kube::write::{Patch, StatusPatch};
use ccm_objects::Node;
use ccm_runtime::plans::{self, Plans};

use crate::{
    observe::Handles,
    plan::{APPROVED, Outcome, Plan, Step},
};

/// Where and why the execution of a plan stopped.
#[derive(Debug)]
struct Unfinished {
    /// The write that failed.
    what: &'static str,
    /// Why it failed.
    why: Stopped,
}

/// Executes a plan that was made for exactly this version of the node. Returns the node as the API
/// server has answered it.
async fn execute(
    writer: &Writer<Node>,
    Handles { metrics, reports, guard, .. }: &Handles,
    node: &Arc<Node>,
    plan: &Plan,
) -> Result<Arc<Node>, Unfinished> {
    let mut latest = Arc::clone(node);
    for step in &plan.steps {
        let what = step.kind();
        let answer = match step {
            Step::SetAddresses { addresses, ends_approval, .. } => {
                let patch = StatusPatch::default().with_addresses(addresses);
                let patch = if *ends_approval { patch.without_mark(APPROVED) } else { patch };
                writer.patch_status(&latest, &patch).await
            }
            Step::ChangeNode(change) => writer.patch(&latest, &Patch::from(change)).await,
        };
        if let Some(answer) = writer::answer(&answer) {
            metrics.written(what, answer);
        }
        latest = answer.map_err(|why| Unfinished { what, why })?;
        log_written(node, step, &plan.outcome);
        reports.written(node, plan, step);
        if plan.needs_brake() {
            guard.made(&node.uid);
        }
    }
    Ok(latest)
}

/// Publishes a plan on the page `/plan`, or why there is none.
fn publish(plans: &Plans, node: &Node, plan: &Plan, pause: Option<Pause>) {
    match &plan.outcome {
        Outcome::Initialised | Outcome::InSync => {
            plans.set(&node.reference(), published(plan, pause));
        }
        // The intake says which provider's it is.
        Outcome::Foreign => {}
        outcome => plans.block(&node.reference(), &outcome.to_string()),
    }
}

/// The steps of a plan as `/plan` shows them.
fn published(plan: &Plan, pause: Option<Pause>) -> Vec<plans::Step> {
    let held = pause.and_then(Pause::held);
    let step = |step: &Step| plans::Step {
        step: step.kind(),
        changes: step.changes(),
        reason: step.reason(),
        held: held.clone(),
    };
    plan.steps.iter().map(step).collect()
}

/// New nodes are reported as a whole. For an initialised node each change is reported, so that
/// a person who sees a label or an address change can find its cause.
fn log_written(node: &Node, step: &Step, outcome: &Outcome) {
    let node = &*node.name;
    let text = step.to_string();
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join(", ");
    if *outcome == Outcome::InSync {
        tracing::info!(node, "written: {line}");
    } else {
        tracing::debug!(node, "written: {line}");
    }
}
