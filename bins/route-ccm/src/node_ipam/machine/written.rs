//! The API server has answered a write.

use std::{sync::Arc, time::Duration};

use ccm_base::{At, RetryClass};
use ccm_controller::queue::Pace;
use ccm_controller::queue::Priority;
use ccm_kube::ApiError;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;

use super::{Effect, Machine, WriteEnd, Written, core::Failed};
use crate::{
    networks::{join, network},
    node_ipam::ipam,
};

/// The pause after a write that the API server has answered as done but has not stored.
const NOT_STORED: Duration = Duration::from_mins(1);

impl Machine {
    /// Handles the answer to a write.
    pub(super) fn written(&mut self, written: Written, now: At, effects: &mut Vec<Effect>) {
        let Written { asked, cidrs, node, answer } = written;
        match answer {
            Ok(answer) => {
                let outcome = outcome(&cidrs, &answer);
                self.record_outcome(&answer, outcome);
                let end = match outcome {
                    ipam::Written::Yes => WriteEnd::Stored,
                    _ => WriteEnd::NotStored,
                };
                effects.push(Effect::Ended(end));
                match outcome {
                    ipam::Written::Unknown => {
                        self.not_stored(&asked, &cidrs, node.as_deref(), now, effects);
                    }
                    outcome => {
                        self.settle(&answer, outcome, now, effects);
                        self.follow(&answer, node, now, effects);
                    }
                }
            }
            Err(error) => self.record_failed_write(&asked, error, now, effects),
        }
    }

    fn record_outcome(&mut self, node: &Node, outcome: ipam::Written) {
        if let Some(core) = &mut self.core {
            core.allocator.record_outcome(node, outcome);
        }
    }

    /// Handles an answer that shows that the node has pod CIDRs: the informer does not report it.
    fn settle(
        &mut self,
        node: &Arc<Node>,
        outcome: ipam::Written,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let Some(core) = self.core.as_mut().filter(|core| core.is_here(node)) else { return };
        core.look(&self.fixed, node, now, effects);
        effects.push(Effect::Assigned(Arc::clone(node)));
        if outcome == ipam::Written::Yes {
            effects.push(Effect::Given(Arc::clone(node)));
        }
    }

    /// Follows the answer with a later version from the store, of which the machine may have heard
    /// before the answer.
    fn follow(
        &mut self,
        answer: &Node,
        node: Option<Arc<Node>>,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let is_here = |node: &Arc<Node>| self.core.as_ref().is_some_and(|core| core.is_here(node));
        if let Some(later) = node.filter(|node| node.is_later_than(answer) && is_here(node)) {
            self.look_at(Some(answer), &later, now, effects);
        }
    }

    /// Handles a write that the API server has answered as done, with a node without pod CIDRs.
    fn not_stored(
        &mut self,
        asked: &Arc<Node>,
        cidrs: &[IpNet],
        node: Option<&Node>,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let name = || Name::clone(&asked.name);
        effects.push(Effect::RetryEvery(name(), NOT_STORED));
        let Some(core) = self.core.as_mut().filter(|core| core.is_bare(asked, node)) else {
            return;
        };
        let why = format!(
            "the API server did not store podCIDRs {}: an admission policy or webhook?",
            join(cidrs)
        );
        core.waiting.insert(&asked.name, Some(why.clone()));
        core.failed.insert(Name::clone(&asked.name), (now, Failed::NotStored));
        let node = || Arc::clone(asked);
        effects.extend([
            Effect::Show { node: node(), cidrs: cidrs.to_vec(), held: Some(why.clone()) },
            Effect::NotStored { node: node(), why, pace: Pace::Every(NOT_STORED) },
            Effect::Condition(name(), Priority::Urgent),
        ]);
    }

    fn record_failed_write(
        &mut self,
        node: &Arc<Node>,
        error: Option<ApiError>,
        now: At,
        effects: &mut Vec<Effect>,
    ) {
        let name = Name::clone(&node.name);
        // A write that the API server refuses is not carried out. Nothing is known about all
        // others.
        let is_uncertain = error.as_ref().is_some_and(ApiError::is_uncertain);
        self.record_outcome(
            node,
            if is_uncertain { ipam::Written::Unknown } else { ipam::Written::No },
        );
        // The next renewal extends a term that is only too short.
        let Some(error) = error else {
            return effects.push(Effect::RetryAs(name, RetryClass::Retry));
        };
        effects.push(Effect::Ended(WriteEnd::Refused(error.clone())));
        // The node was deleted in the meantime, which the informer reports.
        if error == ApiError::NotFound {
            return effects.push(Effect::Forget(name));
        }
        // After a conflict the node is only checked again.
        let is_here = self.core.as_ref().is_some_and(|core| core.is_here(node));
        let told = (is_here && error != ApiError::Conflict).then(|| Arc::clone(node));
        if told.is_some() {
            self.record_failure(node, now, Failed::Write(error.clone()));
            let waits = self.core.as_ref().is_some_and(|core| core.waiting.contains(&node.name));
            effects.extend(waits.then(|| Effect::Condition(Name::clone(&name), Priority::Urgent)));
        }
        effects.push(Effect::RetryRefused { name, error, told });
    }
}

/// Says what the answer of the API server proves. An answer without pod CIDRs does not prove that
/// the API server has stored nothing: a webhook may change the answer. Pod CIDRs that the watch
/// shows later must not look like another allocator's.
fn outcome(cidrs: &[IpNet], answer: &Node) -> ipam::Written {
    let shown: Vec<_> = answer.pod_cidrs.iter().map(|text| network(text)).collect();
    let is_stored = shown.iter().copied().eq(cidrs.iter().map(|cidr| Some(*cidr)));
    match (is_stored, shown.is_empty()) {
        (true, _) => ipam::Written::Yes,
        (false, true) => ipam::Written::Unknown,
        (false, false) => ipam::Written::No,
    }
}
