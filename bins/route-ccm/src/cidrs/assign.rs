//! Gives one node after another its pod CIDRs.

use std::{sync::Arc, time::Duration};

use ccm_base::clock;
use ccm_controller::{
    queue::Priority,
    workers,
    writer::{Stopped, Writer},
};
use ccm_kube::{ApiError, write::Patch};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::plans::Step;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use super::{Cidrs, Core, WRITERS, metrics::Write, needs_cidrs};
use crate::{
    networks::{AllocatorType, join, network},
    node_ipam::ipam::{Refusal, Reservation, Written},
};

/// The kind of step on `/plan`.
const STEP: &str = "pod-cidrs";
/// The pause after a write that the API server has answered as done and has not stored.
const NOT_STORED: Duration = Duration::from_mins(1);
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
                    let reserve = |core: &mut Core| core.reserve(&node, this.timeline.now());
                    let reserved = this.change_of_bare(&node, reserve);
                    this.reserved(writer.as_deref(), &node, reserved).await;
                }
            }
        };
        workers::by_key(queue, || WRITERS, token, work).await;
    }

    /// The node, if it needs pod CIDRs.
    pub(super) fn bare(&self, name: &Name) -> Option<Arc<Node>> {
        let node = self.store.get(name).filter(|node| needs_cidrs(node));
        if node.is_none() {
            self.queue.forget(name);
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
                self.change_of_bare(node, |_| self.publish(node, &reservation.cidrs, None));
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
        self.change_of_bare(node, |_| self.publish(node, cidrs, None));
        let patch = Patch::default().with_spec("podCIDRs", cidrs);
        let patch = patch.with_spec("podCIDR", &cidrs.first());
        let written = writer.patch(node, &patch).await;
        match written {
            Ok(answer) => self.confirmed(node, cidrs, &answer),
            Err(why) => self.failed(node, why),
        }
    }

    /// Handles what the API server returns as the new node: it has our pod CIDRs, or others.
    fn confirmed(&self, node: &Arc<Node>, cidrs: &[IpNet], answer: &Arc<Node>) {
        let shown: Vec<_> = answer.pod_cidrs.iter().map(|text| network(text)).collect();
        let is_stored = shown.iter().copied().eq(cidrs.iter().map(|cidr| Some(*cidr)));
        // An answer without pod CIDRs does not prove that the API server stored none: a webhook may change the
        // answer. Pod CIDRs that the watch shows later must not look like another allocator's.
        self.answered(
            node,
            match (is_stored, shown.is_empty()) {
                (true, _) => Written::Yes,
                (false, true) => Written::Unknown,
                (false, false) => Written::No,
            },
        );
        self.metrics.written(if is_stored { Write::Answer(Ok(())) } else { Write::NotStored });
        if is_stored {
            self.given(answer);
        } else if answer.pod_cidrs.is_empty() {
            self.not_stored(node, cidrs);
        } else {
            self.settle(answer);
        }
    }

    fn failed(&self, node: &Node, why: Stopped) {
        if let Some(error) = why.refusal() {
            self.metrics.written(Write::Answer(Err(error.into())));
        }
        // What the API server refuses is not carried out; of all else nothing is known.
        let is_uncertain = why.refusal().is_some_and(ApiError::is_uncertain);
        self.answered(node, if is_uncertain { Written::Unknown } else { Written::No });
        let failed = why.queue_again(&self.queue, Name::clone(&node.name));
        // After a conflict the node is only looked at again.
        if let Some((error, pace)) = failed.filter(|(error, _)| *error != ApiError::Conflict) {
            self.change_of(node, |_| {
                let state = error.reason();
                self.reports.cidrs_not_written(node, state, &error.to_string(), pace);
            });
        }
    }

    /// Handles a write that the API server has answered as done, with a node without pod CIDRs.
    fn not_stored(&self, node: &Node, cidrs: &[IpNet]) {
        let pace = self.queue.retry_every(Name::clone(&node.name), NOT_STORED);
        let why = format!(
            "the API server did not store podCIDRs {}: an admission policy or webhook?",
            join(cidrs)
        );
        let waits = self.change_of_bare(node, |core| {
            self.publish(node, cidrs, Some(why.clone()));
            self.reports.cidrs_not_written(node, "not_stored", &why, pace);
            core.waiting.insert(&node.name, Some(why));
        });
        if waits.is_some() {
            self.conditions.add(Name::clone(&node.name), Priority::Urgent);
        }
    }

    /// The node has got its pod CIDRs from us: its routes are next.
    fn given(&self, node: &Arc<Node>) {
        if !self.settle(node) {
            return;
        }
        if let Some(age) = node.age(clock::wall()) {
            self.metrics.assigned(age);
        }
        let cidrs = node.pod_cidrs.join(",");
        tracing::info!(node = &*node.name, "node {}: podCIDRs {cidrs}", node.name);
    }

    /// The answer to a write shows that the node has pod CIDRs: the informer does not report it.
    /// Returns whether the node is still there.
    fn settle(&self, node: &Arc<Node>) -> bool {
        let seen = self.change_of(node, |core| self.look(core, node));
        let is_there = seen.is_some();
        if let Some(seen) = seen {
            self.react(node, seen);
            if let Some((observer, passes)) = &self.routes {
                observer.assigned(node);
                passes.wake();
            }
        }
        is_there
    }

    fn answered(&self, node: &Node, written: Written) {
        self.change(|core| core.allocator.answered(&node.uid, written));
    }

    fn refused(&self, node: &Node, refusal: &Refusal) {
        let name = &node.name;
        match refusal {
            Refusal::Assigned | Refusal::Deleting => self.queue.forget(name),
            // Its end queues all nodes that wait; a node that was left alone ends it.
            Refusal::Stopped(_) => {
                self.has_none(node, "another allocator", refusal.to_string());
                self.queue.retry_every(Name::clone(name), AGAIN);
            }
            // The first list brings it back. A node that still waits at its next turn says so.
            Refusal::RoutesUnknown => {
                let waits = |core: &mut Core| core.waiting.contains(name);
                match self.change(waits) {
                    Some(true) => self.has_none(node, "routes unknown", refusal.to_string()),
                    _ => {
                        self.change_of_bare(node, |core| core.waiting.insert(name, None));
                    }
                }
                self.queue.retry_every(Name::clone(name), AGAIN);
            }
            // It waits since the refusal: the end of a node brings it back.
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
        let waits = self.change_of_bare(node, |core| {
            self.publish(node, &[], Some(why.clone()));
            self.reports.no_cidrs(node, state, &why);
            core.waiting.insert(&node.name, Some(why));
        });
        if waits.is_some() && !self.is_observing() {
            self.conditions.add(Name::clone(&node.name), Priority::Urgent);
        }
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
