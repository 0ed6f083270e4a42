//! Lists the cluster's load balancers: once when this replica begins to lead, then once per period.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{CloudError, Depth, Detail, LoadBalancers, Lookup, NodeIdentity, Scope};
use ccm_controller::{
    machine::log_unexpected,
    passes::{NextPass, Pass},
};
use ccm_objects::{Node, Shared as Name, WhoseNode, whose_node};

use super::read;
use crate::{
    machine::{
        effect::{Effect, Task},
        event::{Event, Listed},
    },
    translate::Translator,
};

/// The number of nodes whose instances are looked up to check that this is still the same cloud.
const INSTANCES: usize = 3;

/// The lists.
pub(crate) struct Audit(pub(crate) Arc<Translator>);

impl Pass for Audit {
    async fn pass(&mut self) -> NextPass {
        match self.audit().await {
            Ok(()) => NextPass::Period,
            Err(error) => {
                let (class, services) = (error.class(), self.0.concerned());
                self.0.performer.apply(Event::NotListed { error, services });
                NextPass::Failed(class)
            }
        }
    }

    fn period(&self) -> Duration {
        self.0.settings.borrow().load_balancer_audit_period
    }
}

impl Audit {
    async fn audit(&self) -> Result<(), CloudError> {
        let (translator, performer) = (&self.0, &self.0.performer);
        let balancers = translator.load_balancers()?;
        // The provider's needs for members are known now, and may have changed.
        performer.wake(Task::Nodes);
        let event = match balancers.traits().lists {
            true => Event::Listed(Box::new(self.listed(&*balancers).await?)),
            false => Event::NoList(translator.concerned()),
        };
        let mut requests = performer.apply(event);
        while let Some(request) = requests.pop() {
            match request {
                Effect::AskInstance => {
                    let is_shown = self.shows_an_instance().await;
                    requests.extend(performer.apply(Event::Instance { is_shown }));
                }
                Effect::Read(all) => self.read(&*balancers, &all).await?,
                other => log_unexpected(&other),
            }
        }
        Ok(())
    }

    /// Returns the load balancers of this cluster, and of all others if they are needed.
    async fn listed(&self, balancers: &dyn LoadBalancers) -> Result<Listed, CloudError> {
        let (translator, door) = (&self.0, &self.0.performer.door);
        let started = door.now();
        let list = |scope| {
            let (cluster, call) = (&translator.performer.cluster, translator.call(false));
            balancers.list(cluster, scope, Depth::Summary, call)
        };
        let ours = list(Scope::Cluster).await?;
        let services = translator.concerned();
        let all = match door.read(|machine, _| machine.needs_all(&ours, &services)) {
            true => Some(list(Scope::All).await?.load_balancers),
            false => None,
        };
        let store = &translator.services;
        let count = if store.is_synced() { store.len() } else { 0 };
        Ok(Listed { started, list: ours, all, services: translator.concerned(), count })
    }

    /// Reads load balancers in full.
    async fn read(
        &self,
        balancers: &dyn LoadBalancers,
        all: &[(String, Name)],
    ) -> Result<(), CloudError> {
        let (performer, door) = (&self.0.performer, &self.0.performer.door);
        for asked in all.chunks(door.read(|machine, _| machine.at_once())) {
            let read = read(&self.0, balancers, asked, Depth::Members, false).await?;
            performer.apply(Event::Read(read));
        }
        Ok(())
    }

    /// Returns true if the cloud shows the instance of one of the first nodes.
    async fn shows_an_instance(&self) -> bool {
        let cloud = &self.0.cloud;
        let Ok(Some(instances)) = cloud.instances() else { return false };
        let (nodes, schemes) = (self.0.nodes.list(), cloud.schemes());
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
        let answers = instances.lookup(&nodes, Detail::Presence, self.0.call(false)).await;
        answers.iter().any(|answer| matches!(answer, Ok(Lookup::Found(_))))
    }
}
