//! `CloudAllocator`: asks the cloud what it has assigned to the instances of nodes, in batches.

use std::{collections::BTreeSet, sync::Arc};

use ccm_base::RetryClass;
use ccm_cloud::{Call, Claim, Detail, Lookup, LookupResult};
use ccm_controller::{
    instances,
    queue::{BatchWindow, BatchWindowConfig},
    workers,
    writer::Writer,
};
use ccm_objects::{Node, Shared as Name};
use futures::{
    StreamExt as _,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Cidrs, WRITERS};
use crate::ipam;

/// The most nodes in one lookup.
pub(super) const BATCH: usize = 500;
/// How many lookups may be under way at once: a slow one holds up no other.
const IN_FLIGHT: usize = 4;
/// How often in a row a node is looked up again without a report, after calls that had too many
/// nodes: three of them bring a batch of 500 down to one node.
const MANY: u32 = 3;

impl Cidrs {
    /// Works on the queue until the token is cancelled.
    pub(super) async fn look_up_all(
        self: Arc<Self>,
        writer: Option<Arc<Writer<Node>>>,
        token: CancellationToken,
    ) {
        let window = BatchWindow::new(BatchWindowConfig::default());
        let queue = self.queue.clone();
        let sized = Arc::clone(&self);
        let batches = stream::unfold((queue, window), async |(queue, mut window)| {
            let batch = queue.get_batch(sized.lookups.size(), &mut window).await?;
            Some((batch, (queue, window)))
        });
        let work = move |batch: Vec<Name>| {
            let (this, writer) = (Arc::clone(&self), writer.clone());
            async move { this.look_up(writer.as_deref(), batch).await }
        };
        workers::pool(batches, || IN_FLIGHT, token, work).await;
    }

    async fn look_up(&self, writer: Option<&Writer<Node>>, batch: Vec<Name>) {
        let (mut nodes, mut open) = (Vec::new(), BTreeSet::new());
        for name in &batch {
            match self.bare(name).filter(|node| self.is_ours(node)) {
                Some(node) => {
                    open.insert(Name::clone(name));
                    nodes.push(node);
                }
                None => self.queue.done(name),
            }
        }
        let (sender, mut answers) = mpsc::unbounded_channel();
        let call = Call::waiting(self.settings.borrow().cloud_call_timeout);
        let ask = async {
            let collect = |place: usize, answer: LookupResult| {
                // The receiver lives until all senders are gone.
                drop(sender.send((place, answer)));
            };
            let asking = self.lookups.ask(&nodes, Detail::Everything, call, collect);
            let unanswered = self.closing.run_until_cancelled(asking).await;
            for (place, answer) in unanswered.into_iter().flatten() {
                if !nodes.get(place).is_some_and(|node| self.ask_again(node)) {
                    collect(place, answer);
                }
            }
            drop(sender);
        };
        let open = &Mutex::new(open);
        let give = async {
            let mut under_way = FuturesUnordered::new();
            loop {
                tokio::select! {
                    Some((place, answer)) = answers.recv(), if under_way.len() < WRITERS => {
                        under_way.push(self.take(writer, nodes.get(place).cloned(), answer, open));
                    }
                    Some(()) = under_way.next() => {}
                    else => return,
                }
            }
        };
        tokio::join!(ask, give);
        // The next leader asks again.
        open.lock().iter().for_each(|name| self.queue.done(name));
    }

    /// Queues a node again whose lookup had too many nodes; `false` if that has happened too
    /// often. Its key is given back at the end of the call.
    fn ask_again(&self, node: &Node) -> bool {
        let again = self.queue.failures(&node.name) < MANY;
        if again {
            self.queue.retry_as(Name::clone(&node.name), RetryClass::Retry);
        }
        again
    }

    /// Handles the answer about a node, and gives its key back.
    fn take<'a>(
        &'a self,
        writer: Option<&'a Writer<Node>>,
        node: Option<Arc<Node>>,
        answer: LookupResult,
        open: &'a Mutex<BTreeSet<Name>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(node) = node else { return };
            self.found(writer, &node, answer).await;
            self.queue.done(&node.name);
            open.lock().remove(&node.name);
        })
    }

    /// Whether the cloud can be asked about it.
    fn is_ours(&self, node: &Node) -> bool {
        let is_foreign = instances::claim(&*self.cloud, node) == Some(Claim::Foreign);
        if is_foreign {
            self.queue.forget(&node.name);
        }
        !is_foreign
    }

    async fn found(&self, writer: Option<&Writer<Node>>, node: &Arc<Node>, answer: LookupResult) {
        let name = || Name::clone(&node.name);
        match answer {
            Ok(Lookup::Found(instance)) => match ipam::given(&instance, &self.config) {
                Ok(cidrs) => {
                    let now = self.timeline.now();
                    let reserved =
                        self.change(|core| core.allocator.reserve_given(node, &cidrs, now));
                    self.reserved(writer, node, reserved).await;
                }
                Err(why) => {
                    self.has_none(node, &why, why.clone());
                    self.queue.retry_as(name(), RetryClass::Retry);
                }
            },
            Ok(Lookup::Gone(_)) => {
                // A new node can register before the cloud shows its instance.
                if self.queue.failures(&node.name) > 1 {
                    let why = "the cloud has no instance for it".to_owned();
                    self.has_none(node, &why, why.clone());
                }
                self.queue.retry_as(name(), RetryClass::Retry);
            }
            Ok(Lookup::NotOurs(_)) => self.queue.forget(&node.name),
            Err(error) => {
                self.has_none(
                    node,
                    error.kind.reason(),
                    format!("cannot look up its instance: {error}"),
                );
                self.queue.retry_as(name(), error.class());
            }
        }
    }
}
