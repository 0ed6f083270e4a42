//! `CloudAllocator`: asks the cloud what it has assigned to the instances of nodes. The kit's stage
//! takes the nodes in batches.

use std::sync::Arc;

use ccm_base::RetryClass;
use ccm_cloud::{Call, Claim, Lookup, LookupResult};
use ccm_controller::{
    instances,
    lookups::{Answers, Asker, Next, Stage, Work},
    queue::{BatchWindowConfig, Priority},
    workers,
    writer::Writer,
};
use ccm_objects::{Node, Shared as Name};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Cidrs, Core, WRITERS};
use crate::node_ipam::ipam;

/// The stage's questions.
struct Lookups {
    cidrs: Arc<Cidrs>,
    writers: mpsc::Sender<Work>,
}

impl Asker for Lookups {
    fn next(&self, node: &Arc<Node>) -> Next {
        if self.cidrs.bare(&node.name).is_none() {
            return Next::Nothing;
        }
        if instances::claim(&*self.cidrs.cloud, node) == Some(Claim::Foreign) {
            self.cidrs.is_not_ours(node);
            return Next::Nothing;
        }
        Next::Ask
    }

    fn call(&self, _: &[Arc<Node>]) -> Call {
        Call::waiting(self.cidrs.settings.borrow().cloud_call_timeout)
    }

    fn asked(&self, _: usize, _: usize) {}

    fn answered(&self, _: &[Work], _: Instant) {}

    fn workers(&self, _: &Node) -> &mpsc::Sender<Work> {
        &self.writers
    }

    fn done(&self, name: &Name) {
        self.cidrs.queue.done(name);
    }
}

impl Cidrs {
    /// Works on the queue until the token is cancelled.
    pub(super) async fn look_up_all(
        self: Arc<Self>,
        writer: Option<Arc<Writer<Node>>>,
        token: CancellationToken,
    ) {
        let this = Arc::clone(&self);
        let give = move |Work { node, answer }| {
            let (this, writer) = (Arc::clone(&this), writer.clone());
            async move {
                this.found(writer.as_deref(), &node, answer).await;
                this.queue.done(&node.name);
            }
        };
        let (writers, give) = workers::channel(WRITERS, || WRITERS, token.clone(), give);
        let Self { cloud, store, queue, closing, .. } = &*self;
        let lookups = Lookups { cidrs: Arc::clone(&self), writers };
        let stage = Stage::new(lookups, cloud, store, queue, &Answers::default(), closing);
        tokio::join!(stage.run(BatchWindowConfig::default(), token), give);
    }

    /// The node has no instance in this cloud: nothing waits for its pod CIDRs any more.
    fn is_not_ours(&self, node: &Node) {
        self.change_of(node, |core| {
            core.waiting.remove(&node.name);
            self.plans.clear("Node", &node.name);
        });
        self.queue.forget(&node.name);
    }

    async fn found(&self, writer: Option<&Writer<Node>>, asked: &Arc<Node>, answer: LookupResult) {
        let name = || Name::clone(&asked.name);
        // The answer is about this instance. The informer reports the end of a node.
        let Some(node) = self.store.get(&asked.name) else { return self.queue.forget(&asked.name) };
        if !asked.has_identity_of(&node) {
            return self.queue.add(name(), Priority::Urgent);
        }
        match answer {
            Ok(Lookup::Found(instance)) => match ipam::given(&instance, &self.config) {
                Ok(cidrs) => {
                    let now = self.timeline.now();
                    let reserve =
                        |core: &mut Core| core.allocator.reserve_given(&node, &cidrs, now);
                    let reserved = self.change_of_bare(&node, reserve);
                    self.reserved(writer, &node, reserved).await;
                }
                Err(why) => {
                    self.has_none(&node, &why, why.clone());
                    self.queue.retry_as(name(), RetryClass::Retry);
                }
            },
            Ok(Lookup::Gone(_)) => {
                // A new node can register before the cloud shows its instance.
                if self.queue.failures(&node.name) > 1 {
                    let why = "the cloud has no instance for it".to_owned();
                    self.has_none(&node, &why, why.clone());
                }
                self.queue.retry_as(name(), RetryClass::Retry);
            }
            Ok(Lookup::NotOurs(_)) => self.is_not_ours(&node),
            Err(error) => {
                let why = format!("cannot look up its instance: {error}");
                self.has_none(&node, error.kind.reason(), why);
                self.queue.retry_as(name(), error.class());
            }
        }
    }
}
