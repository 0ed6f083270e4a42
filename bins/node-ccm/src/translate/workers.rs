//! Second stage: many nodes are planned and written concurrently.
//!
//! There are two worker pools, as upstream has two kinds of worker: one for new nodes, one for
//! updates of initialised nodes. A change of the whole fleet never delays a new node: its writes
//! also have their own rate, and a node that waits for its turn waits in the queue.

use std::sync::Arc;

use ccm_controller::{lookups, workers, writer::Writer};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::supervisor::Supervisor;
use tokio::sync::mpsc;

use super::Translator;
use crate::{
    machine::{Event, Work},
    perform::Performer,
    settings::NodeSettings,
};

/// Capacity of each channel to the workers; large enough that the default number of workers is
/// never idle while answers arrive.
const CHANNEL_CAPACITY: usize = 64;

/// The channels to the workers.
pub(crate) struct Senders {
    /// Nodes with the uninitialized taint.
    pub(crate) new: mpsc::Sender<lookups::Work>,
    /// All others.
    pub(crate) settled: mpsc::Sender<lookups::Work>,
}

/// Starts both pools. Returns their channels.
pub(crate) fn start(
    source: &Translator,
    performer: &Arc<Performer>,
    writer: Writer<Node>,
    tasks: &Supervisor,
) -> Senders {
    let writer = Arc::new(writer);
    let pool = |name: &'static str, limit: fn(&NodeSettings) -> usize| {
        let this = (source.clone(), Arc::clone(performer), Arc::clone(&writer));
        let work = move |work: lookups::Work| {
            let (source, performer, writer) = this.clone();
            async move {
                let name = Name::clone(&work.node.name);
                if let Some(event) = source.work(&performer, work) {
                    performer.carry_out(&writer, event).await;
                }
                source.done(&performer, &name);
            }
        };
        let (settings, token) = (source.settings.clone(), tasks.token().clone());
        let limit = move || limit(&settings.borrow());
        let (sender, pool) = workers::channel(CHANNEL_CAPACITY, limit, token, work);
        tasks.spawn(name, pool);
        sender
    };
    Senders {
        new: pool("new-nodes", |settings| settings.concurrent_node_syncs),
        settled: pool("settled-nodes", |settings| settings.concurrent_node_status_updates),
    }
}

impl Translator {
    /// Returns the event of a node whose answer has arrived, unless the node is gone.
    fn work(&self, performer: &Performer, work: lookups::Work) -> Option<Event> {
        let lookups::Work { node: asked, answer } = work;
        let node = self.store.get(&asked.name)?;
        let rivals = self.rivals(&node, &answer);
        let failures = performer.queue().failures(&node.name);
        let seen = self.seen(&node);
        Some(Event::Work(Box::new(Work { asked, seen, answer, rivals, failures })))
    }

    /// Tells the queue that the work on this node has ended.
    pub(super) fn done(&self, performer: &Performer, name: &Name) {
        self.if_gone(performer, name);
        performer.queue().done(name);
    }
}
