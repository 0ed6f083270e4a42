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

/// The outcome of a plan, by the fields of its steps.
struct Executed {
    /// The node as the API server has answered it.
    node: Arc<Node>,
    /// The fields that the answers show.
    stored: Vec<(String, String)>,
    /// The fields that the last answer does not show: an admission policy may have dropped them. The steps
    /// after that were not executed.
    lost: Vec<(String, String)>,
}

/// Executes a plan that was made for exactly this version of the node. `again` plans from an answer:
/// what it would still write was not stored.
async fn execute(
    writer: &Writer<Node>,
    Handles { metrics, reports, guard, .. }: &Handles,
    node: &Arc<Node>,
    plan: &Plan,
    again: impl Fn(&Node) -> Plan,
) -> Result<Executed, Unfinished> {
    let (mut latest, mut stored, mut lost) = (Arc::clone(node), Vec::new(), Vec::new());
    if plan.needs_brake() {
        // The next leader should know of the change even if this one dies right after it.
        guard.stored().await;
    }
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
        let rest = again(&latest);
        for change in plan.made(step, &rest) {
            reports.made(node, change);
            guard.made(&node.uid);
        }
        let rest = rest.fields();
        let fields = step.fields().into_iter();
        let (not_shown, shown): (Vec<_>, Vec<_>) = fields.partition(|field| rest.contains(field));
        stored.extend(shown);
        if !not_shown.is_empty() {
            lost = not_shown;
            break;
        }
        log_written(node, step, &plan.outcome);
    }
    Ok(Executed { node: latest, stored, lost })
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
