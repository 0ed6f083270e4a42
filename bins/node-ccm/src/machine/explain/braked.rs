//! Changes of Ready nodes that the brake does not allow.

use ccm_base::At;
use ccm_controller::brake::Hold;
use ccm_runtime::explain::{Explanation, ObjectState, moment};

use super::{Machine, Own, fixes};
use crate::{
    machine::Pause,
    plan::{Plan, text},
};

impl Machine {
    /// Explains a change of the node that the brake holds, or has held: it is tried again with the
    /// next lookup of all nodes.
    pub(super) fn held(&self, own: &Own<'_>, now: At) -> Option<Explanation> {
        let node = own.node;
        if !self.brake.gathered().is_held(&node.uid) {
            return None;
        }
        let changes = own.plan.as_ref().filter(|plan| plan.needs_brake());
        let Some(Pause::Held(hold)) = self.would_pause(node, now) else {
            let cause = |plan: &Plan| format!("{}; the brake is released", changes_text(plan));
            return changes
                .map(|plan| Explanation::new(ObjectState::Working, cause(plan), fixes::WAIT));
        };
        let cause = match changes {
            Some(plan) => text::held(node, plan, hold),
            None => format!("a change of this Ready node is held: {hold}"),
        };
        let told = Explanation::new(ObjectState::Held, cause, fixes::held(node, hold));
        let of = self.brake(now).cause.map(|cause| {
            format!("{} of {} Ready nodes would change", cause.changes, cause.population)
        });
        let next = match hold {
            Hold::Budget { until: Some(until) } => {
                format!(
                    "with the first lookup of all nodes after budget is free again {}",
                    moment(until, now)
                )
            }
            _ => String::new(),
        };
        Some(Explanation { last: Vec::from_iter(of), next, ..told })
    }

    /// Explains a change that waits for others that come with it. After that it waits for its turn
    /// like any other.
    pub(super) fn gathered(&self, own: &Own<'_>, now: At) -> Option<Explanation> {
        let Own { node, plan, .. } = own;
        let plan = plan.as_ref().filter(|plan| plan.needs_brake())?;
        if !self.brake.gathered().is_wanted(&node.uid) {
            return None;
        }
        let Some(Pause::Gathers(until)) = self.would_pause(node, now) else { return None };
        let cause = format!(
            "{}; changes of other nodes that come with it are gathered first",
            changes_text(plan)
        );
        let told = Explanation::new(ObjectState::Working, cause, fixes::WAIT);
        Some(Explanation { next: moment(until, now), ..told })
    }
}

/// Returns the changes, in words.
fn changes_text(plan: &Plan) -> String {
    plan.changes().map(|(_, note)| note.to_string()).collect::<Vec<_>>().join("; ")
}
