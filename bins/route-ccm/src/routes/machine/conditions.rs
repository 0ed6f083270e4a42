//! The condition `NetworkUnavailable`.

use ccm_base::At;
use ccm_controller::queue::Priority;
use ccm_controller::repeats::{Content, Repeated, WriteKind};
use ccm_kube::ApiError;
use ccm_objects::Shared as Name;

use super::{Effect, Machine, Written};
use crate::routes::plan::{
    condition::{self, NETWORK_UNAVAILABLE, NewCondition, Status},
    wanted::NodeView,
};

/// The kind of write that only changes the message of the same status. Reasons may alternate, as
/// the errors of a cloud do.
const MESSAGE: &str = "message";

impl Machine {
    /// Returns the condition to write to this node, if there is one. `lack`: why it has no pod
    /// CIDRs.
    pub(super) fn condition(
        &self,
        now: At,
        view: &NodeView,
        lack: Option<&str>,
    ) -> Option<NewCondition> {
        let NodeView { node, left_out, .. } = view;
        let has_routes = self.fixed.has_routes;
        if left_out.is_some() {
            return None;
        }
        if self.fixed.gives_cidrs && node.pod_cidrs.is_empty() {
            return condition::without_cidrs(node, lack?, has_routes);
        }
        if !has_routes {
            return condition::with_cidrs(node);
        }
        let (routes, waited) = self.progress.routes_of(now, node)?;
        condition::of_routes(node, routes, waited)
    }

    /// Writes the condition of a node, if it has to be written and may be written now.
    pub(super) fn write_condition(
        &self,
        now: At,
        name: Name,
        node: Option<NodeView>,
        lack: Option<&str>,
        effects: &mut Vec<Effect>,
    ) {
        let change = node.and_then(|view| Some((self.condition(now, &view, lack)?, view.node)));
        let Some((condition, node)) = change else {
            return effects.push(Effect::ForgetCondition(name));
        };
        effects.push(match self.check_repeats(now, &name, condition.status, condition.moves) {
            Err(repeated) => Effect::ConditionEvery(name, repeated.wait),
            Ok(()) => Effect::Write { node, condition },
        });
    }

    pub(super) fn check_repeats(
        &self,
        now: At,
        name: &str,
        status: Status,
        moves: bool,
    ) -> Result<(), Repeated> {
        let (kind, content) = write(status, moves);
        let Some(repeats) = self.conditions.get(name) else { return Ok(()) };
        repeats.check(now, &kind, || content)
    }

    /// Handles the API server's answer to the write of a condition.
    pub(super) fn written(&mut self, now: At, written: Written, effects: &mut Vec<Effect>) {
        let Written { asked: node, status, moves, answer, lack } = written;
        let name = Name::clone(&node.name);
        let answer = match answer {
            Ok(answer) => answer,
            Err(None) => return effects.push(Effect::ConditionAgain(name)),
            Err(Some(error)) => {
                effects.push(Effect::WriteEnded(Some(error.clone())));
                // After a conflict the node is only checked again.
                let is_told = error != ApiError::Conflict;
                return effects.push(match error {
                    // The node was deleted in the meantime, which the informer reports.
                    ApiError::NotFound => Effect::ForgetCondition(name),
                    error => Effect::ConditionRefused { node, error, is_told },
                });
            }
        };
        effects.extend([Effect::WriteEnded(None), Effect::ForgetCondition(Name::clone(&name))]);
        let is_shown = answer.node.condition(NETWORK_UNAVAILABLE) == Some(status.as_str());
        let (kind, content) = write(status, moves);
        // A node may have gone before its answer came.
        self.conditions.retain(|_, repeats| !repeats.is_settled(now));
        let repeats = self.conditions.entry(Name::clone(&name)).or_default();
        let repeated = match is_shown || !moves {
            true => repeats.made(now, kind, content),
            false => repeats.refused(now, kind, content),
        };
        // This program itself causes another message.
        if let Some(repeated) = repeated.filter(|_| moves) {
            effects.push(Effect::ConditionRepeated { node, repeated });
        }
        // If a policy has undone the write, no change of the node follows.
        if self.condition(now, &answer, lack.as_deref()).is_some() {
            effects.push(match self.check_repeats(now, &name, status, moves) {
                Err(repeated) => Effect::ConditionEvery(Name::clone(&name), repeated.wait),
                Ok(()) => Effect::Condition(Name::clone(&name), Priority::Routine),
            });
        }
        if is_shown {
            effects.push(Effect::ConditionShown(name, status));
        }
    }
}

/// Returns kind and content of a write.
fn write(status: Status, moves: bool) -> (WriteKind, Content) {
    match moves {
        true => (NETWORK_UNAVAILABLE.into(), Content::digest(status.as_str())),
        false => (MESSAGE.into(), Content::digest(MESSAGE)),
    }
}
