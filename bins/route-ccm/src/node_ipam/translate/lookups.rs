//! `CloudAllocator`: asks the cloud for the pod CIDRs of the nodes' instances. The kit's stage
//! takes the nodes in batches.

use std::sync::Arc;

use ccm_cloud::{Call, Claim, Cloud};
use ccm_controller::{
    instances,
    lookups::{Asker, NextStep, Stage, Work},
    machine::log_unexpected,
    queue::BatchWindowConfig,
    workers,
};
use ccm_objects::{Node, Shared as Name};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::WRITERS;
use crate::{
    node_ipam::{
        machine::{Event, Found, needs_cidrs},
        perform::writes::Writes,
    },
    settings::RouteSettings,
};

/// Asks the cloud.
pub(crate) struct Lookups {
    pub(crate) writes: Arc<Writes>,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) settings: watch::Receiver<Arc<RouteSettings>>,
}

impl Lookups {
    /// Works on the queue until the token is cancelled.
    pub(crate) async fn run(self, closing: &CancellationToken, token: CancellationToken) {
        let found = Arc::clone(&self.writes);
        let give = move |work| {
            let writes = Arc::clone(&found);
            async move { handle_answer(&writes, work).await }
        };
        let (workers, give) = workers::channel(WRITERS, || WRITERS, token.clone(), give);
        let (cloud, writes) = (Arc::clone(&self.cloud), Arc::clone(&self.writes));
        let (store, queue) = (&writes.performer.store, &writes.performer.queue);
        let asker = Questions { lookups: self, workers };
        let stage = Stage::new(asker, &cloud, store, queue, closing);
        tokio::join!(stage.run(BatchWindowConfig::default(), token), give);
    }
}

/// Handles the cloud's answer about a node.
async fn handle_answer(writes: &Writes, Work { node: asked, answer }: Work) {
    let (store, queue) = (&writes.performer.store, &writes.performer.queue);
    let (node, failures) = (store.get(&asked.name), queue.failures(&asked.name));
    let name = Name::clone(&asked.name);
    let found = Found { asked, node, answer, failures };
    writes.apply(Event::Found(Box::new(found))).await;
    queue.done(&name);
}

/// The stage's questions.
struct Questions {
    lookups: Lookups,
    workers: mpsc::Sender<Work>,
}

impl Questions {
    fn tell(&self, event: Event) {
        let Writes { door, performer, .. } = &*self.lookups.writes;
        performer.perform(door.apply(event)).iter().for_each(log_unexpected);
    }
}

impl Asker for Questions {
    fn next(&self, node: &Arc<Node>) -> NextStep {
        if !needs_cidrs(node) {
            // An answer about an older version of the node may have made it wait.
            let name = Name::clone(&node.name);
            self.tell(Event::Turn { name, node: Some(Arc::clone(node)) });
            return NextStep::Nothing;
        }
        if instances::claim(&*self.lookups.cloud, node) == Some(Claim::Foreign) {
            self.tell(Event::NotOurs(Arc::clone(node)));
            return NextStep::Nothing;
        }
        NextStep::Ask
    }

    fn call(&self, _: &[Arc<Node>]) -> Call {
        Call::waiting(self.lookups.settings.borrow().cloud_call_timeout)
    }

    fn workers(&self, _: &Node) -> &mpsc::Sender<Work> {
        &self.workers
    }

    fn done(&self, name: &Name) {
        self.lookups.writes.performer.queue.done(name);
    }
}
