//! Which load balancers that Services show to clients are gone or have failed, and which of them may
//! be replaced.

use std::sync::Arc;

use ccm_base::At;
use ccm_cloud::{Cure, Detail, LoadBalancerTraits, Lookup, NodeIdentity, Phase};
use ccm_objects::{Node, Service, WhoseNode, whose_node};

use super::Handles;
use crate::plan::{
    Classes, Known, REPLACEMENT_APPROVED,
    losses::{self, Now, Verdict},
};

/// The number of nodes whose instances are looked up to see if this is still the same cloud.
const INSTANCES: usize = 3;

impl Handles {
    /// Returns what follows if the load balancer of this Service is gone or has failed.
    pub(super) fn loss(
        &self,
        service: &Service,
        classes: &Classes,
        traits: &LoadBalancerTraits,
        at: At,
    ) -> Verdict {
        if service.deleting || !classes.cover(service) {
            return Verdict::Kept;
        }
        let now = Now {
            at,
            approved: self.is_approved(service, REPLACEMENT_APPROVED),
            can_ask: traits.asks_before_replacing && losses::recorded(service).is_some(),
            is_same_cloud: self.same_cloud.is_proven(),
        };
        let verdict = self.losses.lock().decide(&service.uid, now);
        if verdict == Verdict::Replaced {
            // The next leader has no new budget.
            self.balancers.set_departures();
        }
        verdict
    }

    /// Returns why no other load balancer is made for this Service, and when that is looked at again.
    pub(super) fn held_replacement(
        &self,
        service: &Service,
        loss: Verdict,
    ) -> Option<(String, At)> {
        let Verdict::Held(why, until) = loss else { return None };
        let words = self.losses.lock().in_words(&service.uid);
        let text = format!(
            "{words}: no other one is made yet, because {why}; approve that with the annotation {REPLACEMENT_APPROVED}=yes"
        );
        Some((text, until))
    }
}

/// Records which load balancers are gone or have failed, and whether the cloud still shows anything
/// of this cluster: a load balancer in the list, or else the instance of a node.
pub(super) async fn see_losses(handles: &Handles, has_list: bool) {
    let (now, classes) = (handles.timeline.now(), handles.classes());
    let mut sight = losses::Sight::default();
    for service in handles.services.list() {
        if !classes.cover(&service) || service.deleting {
            continue;
        }
        sight.all.insert(service.uid.clone());
        if !losses::is_shown(&service) {
            continue;
        }
        handles.balancers.with(&service, |entry| {
            // Another controller may have made what a Service without a record shows.
            let is_others = entry.state().is_new || entry.state().is_of_others();
            if losses::recorded(&service).is_none() && is_others {
                return;
            }
            sight.recorded += 1;
            let is_as = match &entry.state().known {
                Known::Absent => &mut sight.missing,
                Known::There(balancer) => match &balancer.phase {
                    Phase::Failed { cure: Cure::Ensure, .. }
                        if entry.state().was_complete(&service, &balancer.id) =>
                    {
                        &mut sight.failed
                    }
                    // Without a list, this is what an earlier call has shown.
                    Phase::Ready if has_list => &mut sight.ready,
                    _ => return,
                },
                Known::Nothing | Known::Recorded { .. } | Known::Elsewhere(_) => return,
            };
            is_as.insert(service.uid.clone());
        });
    }
    let asks = {
        let mut losses = handles.losses.lock();
        losses.listed(now, sight);
        losses.are_any() && !losses.show_others()
    };
    let shows_instance = asks && shows_an_instance(handles).await;
    handles.losses.lock().see_instance(shows_instance);
}

/// Returns true if the cloud shows the instance of one of the first nodes.
async fn shows_an_instance(handles: &Handles) -> bool {
    let Ok(Some(instances)) = handles.cloud.instances() else { return false };
    let nodes = handles.nodes.list();
    let schemes = handles.cloud.schemes();
    let is_ours = |node: &&Arc<Node>| {
        let id = node.provider_id.as_deref();
        id.is_some() && !matches!(whose_node(id, &schemes), WhoseNode::Anothers(_))
    };
    let nodes = nodes.iter().filter(is_ours).take(INSTANCES);
    let identity = |node: &Arc<Node>| NodeIdentity {
        provider_id: node.provider_id.as_deref().map(str::to_owned),
        ..NodeIdentity::named(&*node.name)
    };
    let nodes: Vec<NodeIdentity> = nodes.map(identity).collect();
    let call = handles.call(false);
    let answers = instances.lookup(&nodes, Detail::Presence, call).await;
    answers.iter().any(|answer| matches!(answer, Ok(Lookup::Found(_))))
}
