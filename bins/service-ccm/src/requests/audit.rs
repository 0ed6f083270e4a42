//! Lists the cluster's load balancers: once when this replica begins to lead, then once per period.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, Cloud, CloudError, Depth, Detail, LoadBalancers, Lookup, Scope};
use ccm_controller::{
    instances::lookup,
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
                    let (nodes, call) = (translator.nodes.list(), translator.call(false));
                    let is_shown = shows_an_instance(&*translator.cloud, &nodes, call).await;
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
}

/// Returns true if the cloud shows the instance of one of the first nodes. Another instance does
/// not count, because it may belong to another cloud.
async fn shows_an_instance(cloud: &dyn Cloud, nodes: &[Arc<Node>], call: Call) -> bool {
    let schemes = cloud.schemes();
    let is_ours = |node: &&Arc<Node>| {
        let id = node.provider_id.as_deref();
        id.is_some() && !matches!(whose_node(id, &schemes), WhoseNode::Anothers(_))
    };
    let nodes: Vec<_> = nodes.iter().filter(is_ours).take(INSTANCES).cloned().collect();
    let answers = lookup(cloud, &nodes, Detail::Presence, call).await;
    answers.iter().any(|answer| matches!(answer, Ok(Lookup::Found(_))))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use ccm_cloud::{Instance, Instances, LookupResult, NodeIdentity, ProviderId};

    use super::*;

    /// A provider that answers every question with the same instance.
    #[derive(Clone)]
    struct OneInstance(&'static str);

    #[async_trait]
    impl Instances for OneInstance {
        async fn lookup(&self, nodes: &[NodeIdentity], _: Detail, _: Call) -> Vec<LookupResult> {
            let id = ProviderId::parse(self.0).unwrap();
            vec![Ok(Lookup::Found(Box::new(Instance::new(id, "worker-1")))); nodes.len()]
        }
    }

    #[async_trait]
    impl Cloud for OneInstance {
        fn name(&self) -> &'static str {
            "one"
        }

        fn schemes(&self) -> Vec<String> {
            vec!["sim".to_owned()]
        }

        fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
            Ok(Some(Arc::new(self.clone())))
        }

        async fn health(&self, _: Call) -> Result<(), CloudError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn only_the_instance_of_a_node_shows_that_this_is_the_same_cloud() {
        let cloud = OneInstance("sim://worker-1");
        for (id, expect) in [
            (Some("sim://worker-1"), true),
            (Some("sim://worker-2"), false),
            (Some("other://worker-1"), false),
            (None, false),
        ] {
            let provider_id = id.map(Into::into);
            let node = Node { name: "worker-1".into(), provider_id, ..Node::default() };
            let call = Call::routine(Duration::from_secs(1));
            let is_shown = shows_an_instance(&cloud, &[Arc::new(node)], call).await;
            assert_eq!(is_shown, expect, "{id:?}");
        }
    }
}
