//! Gives one node after another its pod CIDRs.

use std::{sync::Arc, time::Duration};

use ccm_base::clock;
use ccm_controller::{
    queue::Priority,
    repeats::{Content, Repeated},
    workers,
    writer::{self, Writer},
};
use ccm_kube::{ApiError, write::Patch};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::plans::Step;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use super::{Cidrs, Core, WRITERS};
use crate::{
    ipam::{AllocatorType, Refusal, Reservation, Written},
    report::POD_CIDRS,
};

/// The kind of step on `/plan`.
const STEP: &str = "pod-cidrs";
/// The pause before route-ccm tries a node again that waits for another node or for a route.
const AGAIN: Duration = Duration::from_mins(1);

impl Cidrs {
    /// `RangeAllocator`: works on the queue until the token is cancelled.
    pub(super) async fn assign_all(
        self: Arc<Self>,
        writer: Option<Arc<Writer<Node>>>,
        token: CancellationToken,
    ) {
        let queue = self.queue.clone();
        let work = move |name: Name| {
            let (this, writer) = (Arc::clone(&self), writer.clone());
            async move {
                if let Some(node) = this.bare(&name) {
                    let reserved =
                        this.change(|core| core.allocator.reserve(&node, this.timeline.now()));
                    this.reserved(writer.as_deref(), &node, reserved).await;
                }
            }
        };
        workers::by_key(queue, || WRITERS, token, work).await;
    }

    /// The node, if it has no pod CIDRs.
    pub(super) fn bare(&self, name: &Name) -> Option<Arc<Node>> {
        let node = self.store.get(name).filter(|node| node.pod_cidrs.is_empty() && !node.deleting);
        if node.is_none() {
            self.queue.forget(name);
        }
        // Another client has removed the pod CIDRs that route-ccm had written.
        let waits = node.as_ref().and_then(|node| {
            self.written.check(&node.name, POD_CIDRS, Content::of(&*node.uid)).err()
        });
        if let Some(repeated) = waits {
            self.queue.retry_every(Name::clone(name), repeated.wait);
            return None;
        }
        node
    }

    /// Acts on what the allocator says.
    pub(super) async fn reserved(
        &self,
        writer: Option<&Writer<Node>>,
        node: &Arc<Node>,
        reserved: Option<Result<Reservation, Refusal>>,
    ) {
        match (reserved, writer) {
            (None, _) => self.queue.forget(&node.name),
            (Some(Err(refusal)), _) => self.refused(node, &refusal),
            (Some(Ok(reservation)), None) => {
                self.publish(node, &reservation.cidrs, None);
                self.answered(node, Written::No);
                self.queue.forget(&node.name);
            }
            (Some(Ok(reservation)), Some(writer)) => self.give(writer, node, &reservation).await,
        }
    }

    /// Writes a reservation to its node.
    async fn give(&self, writer: &Writer<Node>, node: &Arc<Node>, reservation: &Reservation) {
        let cidrs = &reservation.cidrs;
        self.metrics.tried(&self.config, &reservation.tries);
        self.publish(node, cidrs, None);
        let patch = Patch::default().with_spec("podCIDRs", cidrs);
        let patch = patch.with_spec("podCIDR", &cidrs.first());
        let name = &node.name;
        let written = writer.patch(node, &patch).await;
        if let Some(answer) = writer::answer(&written) {
            self.metrics.written(answer);
        }
        match written {
            Ok(written) => {
                let is_shown = !written.pod_cidrs.is_empty();
                self.answered(node, if is_shown { Written::Yes } else { Written::No });
                let repeated = self.reports.cidrs_repeated(&self.written, node, is_shown);
                match repeated.filter(|_| !is_shown) {
                    Some(repeated) => self.taken_back(node, cidrs, &repeated),
                    None => self.given(&written),
                }
            }
            Err(why) => {
                // What the API server refuses is not carried out; of all else nothing is known.
                let is_uncertain = why.refusal().is_some_and(ApiError::is_uncertain);
                self.answered(node, if is_uncertain { Written::Unknown } else { Written::No });
                let failed = why.queue_again(&self.queue, Name::clone(name));
                // After a conflict the node is only looked at again.
                let failed = failed.filter(|(error, _)| *error != ApiError::Conflict);
                if let Some((error, pace)) = failed {
                    self.reports.cidrs_not_written(node, &error, pace);
                }
            }
        }
    }

    /// Handles a write of pod CIDRs that the API server has confirmed with a node without pod CIDRs.
    fn taken_back(&self, node: &Node, cidrs: &[IpNet], repeated: &Repeated) {
        self.publish(node, cidrs, Some(repeated.to_string()));
        self.wait(node, Some(repeated.to_string()));
        self.queue.retry_every(Name::clone(&node.name), repeated.wait);
    }

    /// The node has got its pod CIDRs: its routes are next.
    fn given(&self, node: &Arc<Node>) {
        if let Some(age) = node.age(clock::wall()) {
            self.metrics.assigned(age);
        }
        tracing::info!(
            node = &*node.name,
            "node {}: podCIDRs {}",
            node.name,
            node.pod_cidrs.join(",")
        );
        self.saw(node);
        if let Some((observer, passes)) = &self.routes {
            observer.assigned(node);
            passes.wake();
        }
    }

    fn answered(&self, node: &Node, written: Written) {
        self.change(|core| core.allocator.answered(&node.uid, written));
    }

    fn refused(&self, node: &Node, refusal: &Refusal) {
        let name = &node.name;
        match refusal {
            Refusal::Stopped(_) | Refusal::Assigned | Refusal::Deleting => {
                self.queue.forget(name);
            }
            // The first list brings it back. A node that still waits at its next turn says so.
            Refusal::RoutesUnknown => {
                let waits = |core: &mut Core| core.waiting.contains(name);
                match self.change(waits) {
                    Some(true) => self.has_none(node, "routes unknown", refusal.to_string()),
                    _ => self.wait(node, None),
                }
                self.queue.retry_every(Name::clone(name), AGAIN);
            }
            // The end of a node brings it back.
            Refusal::Exhausted(exhausted) => {
                let state = format!("{} is exhausted", exhausted.cluster);
                self.has_none(node, &state, refusal.to_string());
                self.queue.forget(name);
            }
            Refusal::Taken(_) => {
                let why = refusal.to_string();
                self.has_none(node, &why, why.clone());
                self.queue.retry_every(Name::clone(name), AGAIN);
            }
        }
    }

    /// The node gets none for now, which is worth to be shown.
    pub(super) fn has_none(&self, node: &Node, state: &str, why: String) {
        self.publish(node, &[], Some(why.clone()));
        self.reports.no_cidrs(node, state, &why);
        self.wait(node, Some(why));
        if !self.is_observing() {
            self.conditions.add(Name::clone(&node.name), Priority::Urgent);
        }
    }

    fn wait(&self, node: &Node, why: Option<String>) {
        self.change(|core| core.waiting.insert(&node.name, why));
        self.left.notify_one();
    }

    fn publish(&self, node: &Node, cidrs: &[IpNet], held: Option<String>) {
        let reason = match self.config.allocator {
            AllocatorType::RangeAllocator => "the node has no podCIDRs",
            AllocatorType::CloudAllocator => "its instance has them in the cloud",
        };
        let changes = cidrs.iter().map(|cidr| format!("podCIDRs += {cidr}")).collect();
        let step = Step { step: STEP, changes, reason: reason.to_owned(), held };
        self.plans.set(&node.reference(), vec![step]);
    }
}
