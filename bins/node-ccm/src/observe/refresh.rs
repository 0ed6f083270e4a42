//! Keeps initialised nodes in sync with their instances: lists the fleet once per period and
//! queues only the nodes that differ.

use std::{collections::HashSet, sync::Arc, time::Duration};

use ccm_cloud::{Call, Claim, CloudError, Detail, Fleet, ProviderId};
use ccm_controller::{
    instances,
    inventory::Changes,
    passes::{Next, Pass},
    queue::Priority,
};
use ccm_objects::Node;
use ccm_runtime::health::Condition;
use tokio::time::Instant;

use super::{Handles, intake::Intake};
use crate::{metrics::State, plan::follow};

/// Lists the fleet and compares all nodes with it, once per period.
pub(crate) struct Refresh {
    handles: Handles,
    intake: Arc<Intake>,
    health: Condition,
}

impl Pass for Refresh {
    async fn pass(&mut self) -> Next {
        match self.refresh().await {
            Ok(line) => {
                self.health.pass(line);
                Next::Period
            }
            Err(error) => {
                self.health.fail(format!("cannot list the fleet: {error}"));
                Next::Failed(error.class())
            }
        }
    }

    fn period(&self) -> Duration {
        self.handles.settings.borrow().node_status_update_frequency
    }
}

impl Refresh {
    pub(crate) fn new(handles: &Handles, intake: Arc<Intake>, health: Condition) -> Self {
        Self { handles: handles.clone(), intake, health }
    }

    /// Lists the fleet and queues the nodes that differ from it. Logs the result in one line.
    async fn refresh(&self) -> Result<String, CloudError> {
        if !self.has_settled_nodes() {
            self.prune();
            return Ok("no initialised node, so the fleet was not listed".to_owned());
        }
        if !instances::traits(&*self.handles.cloud).lists {
            self.prune();
            return Ok(self.queue_all_lookups());
        }
        let started = Instant::now();
        let time = self.handles.settings.borrow().cloud_call_timeout;
        let listed = instances::list(&*self.handles.cloud, Call::routine(time)).await;
        let result = listed.map(|fleet| (fleet.instances.len(), self.compare(fleet, started)));
        let took = started.elapsed();
        let counted = result.as_ref().map(|(_, (_, differing))| *differing);
        self.handles.metrics.refreshed(took, counted.map_err(|error| error.kind));
        match result {
            Ok((instances, (nodes, differing))) => {
                tracing::info!(instances, differing, "Update {nodes} nodes status took {took:?}.");
                Ok(format!("{instances} instances listed, {differing} of {nodes} nodes differ"))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list the fleet; initialised nodes are not updated until a list succeeds");
                Err(error)
            }
        }
    }

    /// Whether there is a node to compare with a list: initialised, and not another provider's.
    fn has_settled_nodes(&self) -> bool {
        let settled = |node: &Arc<Node>| {
            !node.is_uninitialised() && self.intake.claim(node) != Some(Claim::Foreign)
        };
        self.handles.store.list().iter().any(settled)
    }

    /// Drops the instances of deleted nodes from the inventory. A list does this as well, but
    /// there is none now.
    fn prune(&self) {
        let (cloud, nodes) = (&*self.handles.cloud, self.handles.store.list());
        let ids: HashSet<_> =
            nodes.iter().filter_map(|node| instances::canonical_id(cloud, node)).collect();
        let names: HashSet<&str> = nodes.iter().map(|node| &*node.name).collect();
        self.handles.inventory.prune(|instance| {
            let mut known = std::iter::once(&instance.provider_id).chain(&instance.other_ids);
            names.contains(&*instance.name) || known.any(|id| ids.contains(id.as_str()))
        });
    }

    /// Stores the list and queues the nodes that differ from it. Returns the number of nodes,
    /// and how many of them differ.
    fn compare(&self, fleet: Fleet, started: Instant) -> (usize, usize) {
        let changes = self.handles.inventory.apply(fleet, started);
        let listed = ListedChanges::of(&changes);
        let nodes = self.handles.store.list();
        let differing = nodes.iter().filter(|node| self.differs(node, &listed)).count();
        (nodes.len(), differing)
    }

    /// Queues a lookup of each node, for providers that cannot list. Logs this in one line.
    fn queue_all_lookups(&self) -> String {
        let mut count = 0;
        for node in self.handles.store.list().iter().filter(|node| !node.is_uninitialised()) {
            if self.intake.is_ours(node) == Some(true) {
                self.queue_lookup(node);
                count += 1;
            }
        }
        tracing::info!("the provider cannot list instances: looking up {count} nodes");
        format!("{count} nodes are looked up, because the provider cannot list")
    }

    /// Queues the node for a lookup in the cloud.
    fn queue_lookup(&self, node: &Node) {
        self.handles.ledger.require_lookup(&node.name);
        self.handles.queue.add(Arc::clone(&node.name), Priority::Routine);
    }

    /// Queues the node if it needs work; returns whether it does.
    fn differs(&self, node: &Arc<Node>, listed: &ListedChanges) -> bool {
        let id = instances::canonical_id(&*self.handles.cloud, node);
        if node.is_uninitialised() {
            // It is already queued, but may be waiting for something that the list has just
            // shown.
            if listed.affect(&node.name, id.as_deref()) {
                self.handles.queue.add(Arc::clone(&node.name), Priority::Urgent);
            }
            return false;
        }
        if self.intake.is_ours(node) != Some(true) {
            return false;
        }
        let known = id.as_deref().map(|id| self.handles.inventory.get(id));
        let Some(Ok(Some(instance))) = known else {
            // Missing from the list, or ambiguous in it: neither is proof, so look it up.
            self.queue_lookup(node);
            return true;
        };
        let is_new = listed.contains(&instance.provider_id);
        let plan = follow(node, &instance, self.intake.policy());
        if plan.steps.is_empty() {
            self.handles.ledger.set_state(&node.name, State::Initialised);
            self.handles.reports.notes(node, &plan);
            self.handles.plans.clear("Node", &node.name);
            return false;
        }
        if is_new {
            // A list alone never removes anything from a node.
            self.handles.ledger.require_lookup(&node.name);
        }
        self.handles.queue.add(Arc::clone(&node.name), Priority::Routine);
        true
    }
}

/// The instances that are new or changed in the last list.
#[derive(Default)]
struct ListedChanges {
    ids: HashSet<ProviderId>,
    names: HashSet<String>,
}

impl ListedChanges {
    fn of(changes: &Changes) -> Self {
        let mut listed = Self::default();
        for instance in changes.new.iter().chain(&changes.changed) {
            listed.ids.insert(instance.provider_id.clone());
            listed.ids.extend(instance.other_ids.iter().cloned());
            listed.names.insert(instance.name.clone());
        }
        listed
    }

    fn contains(&self, id: &ProviderId) -> bool {
        self.ids.contains(id)
    }

    /// Whether one of them is the instance of this node, as far as a list can show: by
    /// provider ID, or by name while the node has none.
    fn affect(&self, node: &str, id: Option<&str>) -> bool {
        match id {
            Some(id) => ProviderId::parse(id).is_ok_and(|id| self.ids.contains(&id)),
            None => self.names.contains(node),
        }
    }
}
