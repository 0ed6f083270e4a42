//! Writes nodes, and tells the machine each answer.

use std::sync::Arc;

use ccm_controller::{
    machine::Door,
    writer::{Stopped, Writer},
};
use ccm_kube::{store::Store, write::Patch};
use ccm_objects::{Node, NodeChange, instance_gone};
use ccm_runtime::{
    leadership::LeaseAnnotations,
    program::{Context, Program},
};
use futures::{StreamExt as _, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Performer;
use crate::{
    machine::{Event, Machine},
    policy::{
        action::{APPROVED, Action, Marks, Write},
        shutdown,
    },
    report,
    settings::LifecycleSettings,
};

/// Writes nodes.
pub(crate) struct Writes {
    door: Door<Machine>,
    performer: Arc<Performer>,
    writer: Writer<Node>,
    store: Store<Node>,
    lease: LeaseAnnotations,
    settings: watch::Receiver<Arc<LifecycleSettings>>,
    /// Cancelled when no new write may start.
    closing: CancellationToken,
}

impl Writes {
    /// Writes the nodes of this store until `closing` is cancelled.
    pub(crate) fn new<P: Program<Settings = LifecycleSettings>>(
        context: &Context<P>,
        store: &Store<Node>,
        (door, performer): (&Door<Machine>, &Arc<Performer>),
        closing: &CancellationToken,
    ) -> Self {
        Self {
            door: door.clone(),
            performer: Arc::clone(performer),
            writer: Writer::new(context, store),
            store: store.clone(),
            lease: context.leadership.annotations().clone(),
            settings: context.settings.clone(),
            closing: closing.clone(),
        }
    }

    /// Writes the actions that were decided with these settings: the only path from decisions to
    /// the API server.
    pub(crate) async fn write(&self, actions: Vec<Action>, by: &Arc<LifecycleSettings>) {
        if actions.iter().any(|action| !matches!(action.write, Write::Marks(_))) {
            // The next leader should know of the deletions even if this one dies of them.
            self.closing.run_until_cancelled(self.lease.stored()).await;
        }
        let writes = actions.into_iter().map(|action| self.carry_out(action, by));
        let writes = stream::iter(writes).buffer_unordered(by.concurrent_node_lifecycle_syncs);
        writes.collect::<()>().await;
    }

    /// Makes a write, and those that follow from the answers.
    async fn carry_out(&self, mut action: Action, by: &Arc<LifecycleSettings>) {
        let dropped = self.may(by).err().filter(|_| !matches!(action.write, Write::Marks(_)));
        let mut sent = match dropped {
            Some(stopped) => Err(stopped),
            None => self.send(&action).await,
        };
        loop {
            let answer = sent.map_err(|stopped| {
                if stopped.refusal().is_none() {
                    report::postponed(&action, &stopped);
                }
                stopped.refusal().cloned()
            });
            let effects = self.door.apply(Event::Written { action, answer });
            let Some(next) = self.performer.perform(effects).writes.pop() else { return };
            sent = self.send(&next).await;
            action = next;
        }
    }

    /// Refuses queued deletions if the settings change (the budget may be lower) or the program
    /// shuts down.
    fn may(&self, by: &Arc<LifecycleSettings>) -> Result<(), Stopped> {
        if self.closing.is_cancelled() {
            return Err(Stopped::Superseded("the program is shutting down"));
        }
        if !Arc::ptr_eq(by, &self.settings.borrow()) {
            return Err(Stopped::Superseded("the settings have changed since the decision"));
        }
        Ok(())
    }

    async fn send(&self, action: &Action) -> Result<Option<Arc<Node>>, Stopped> {
        let node = self.current(&action.node);
        let patch = match &action.write {
            Write::Delete(_) => return self.writer.delete(&node).await.map(|()| None),
            Write::Proof(_, proof) => {
                let annotations = [(instance_gone::KEY.to_owned(), Some(proof.clone()))].into();
                Patch { annotations, ..Patch::default() }
            }
            Write::Marks(marks) => patch(&node, *marks),
        };
        self.writer.patch(&node, &patch).await.map(Some)
    }

    /// Returns the node that was decided on in its current version, if they do not differ in
    /// anything that decisions read.
    fn current(&self, node: &Arc<Node>) -> Arc<Node> {
        let current = self.store.get(&node.name).filter(|current| current == node);
        current.unwrap_or_else(|| Arc::clone(node))
    }
}

fn patch(node: &Node, marks: Marks) -> Patch {
    let taints = marks.taint.map(|(step, _)| shutdown::apply(&node.taints, step));
    let patch = Patch::from(&NodeChange { taints, ..NodeChange::default() });
    let patch = if marks.end_approval { patch.without_mark(APPROVED) } else { patch };
    if marks.end_proof { patch.without_mark(instance_gone::KEY) } else { patch }
}
