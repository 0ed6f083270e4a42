//! Tests lookups and lists against scripted services that count requests.

mod budgets;
mod flavors;
mod lists;
mod lookups;
mod ports;
mod presence;
mod rights;
mod slow;

use std::{sync::Arc, time::Duration};

use ccm_cloud::{
    Call, CloudError, Detail, Instance, Instances, Lookup, LookupResult, NodeIdentity,
};
use ccm_openstack_client::scripted::{Scripted, uuid};

use super::OpenStackInstances;
use crate::config::Config;

fn call() -> Call {
    Call::waiting(Duration::from_secs(20))
}

/// A provider on scripted services.
struct Rig {
    cloud: Arc<Scripted>,
    instances: OpenStackInstances,
}

impl Rig {
    fn new(cloud: Scripted) -> Self {
        Self::shaped(cloud, |_| {})
    }

    fn shaped(cloud: Scripted, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = crate::tests::config();
        config.access.region = Some("bench".to_owned());
        change(&mut config);
        let cloud = Arc::new(cloud);
        let api: Arc<Scripted> = Arc::clone(&cloud);
        Self { cloud, instances: OpenStackInstances::new(api, config) }
    }

    async fn look(&self, node: NodeIdentity) -> LookupResult {
        let mut answers = self.instances.lookup(&[node], Detail::Everything, call()).await;
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    /// Looks up a node for each server, as a refresh does.
    async fn refresh(&self) -> Vec<LookupResult> {
        let servers = self.cloud.world.lock().servers.clone();
        let ids = servers.iter().filter_map(|server| server["id"].as_str());
        let nodes: Vec<_> =
            ids.enumerate().map(|(n, id)| with_id(n, &format!("openstack:///{id}"))).collect();
        self.look_all(&nodes).await
    }

    /// Returns the instances of a refresh that found all of them.
    async fn refreshed(&self) -> Vec<Instance> {
        let instance = |answer| match answer {
            Ok(Lookup::Found(instance)) => *instance,
            other => panic!("{other:?}"),
        };
        self.refresh().await.into_iter().map(instance).collect()
    }

    async fn look_all(&self, nodes: &[NodeIdentity]) -> Vec<LookupResult> {
        let answers = self.instances.lookup(nodes, Detail::Everything, call()).await;
        assert_eq!(answers.len(), nodes.len());
        answers
    }
}

/// Returns the node of this server, with its provider ID.
fn known(number: usize) -> NodeIdentity {
    with_id(number, &format!("openstack:///{}", uuid(number)))
}

fn with_id(number: usize, id: &str) -> NodeIdentity {
    NodeIdentity { provider_id: Some(id.to_owned()), ..named(number) }
}

/// Returns the node of this server, which says nothing but its name.
fn named(number: usize) -> NodeIdentity {
    NodeIdentity::named(format!("node-{number:05}"))
}

/// Returns the node of this server as it registers: with the system UUID.
fn fresh(number: usize) -> NodeIdentity {
    NodeIdentity { system_uuid: Some(uuid(number).to_uppercase()), ..named(number) }
}

/// Returns the name of the server that was found.
#[track_caller]
fn found(answer: &LookupResult) -> String {
    let Ok(Lookup::Found(instance)) = answer else { panic!("{answer:?}") };
    assert!(!instance.addresses.is_empty(), "{instance:?}");
    instance.name.clone()
}

#[track_caller]
fn error(answer: &LookupResult) -> CloudError {
    answer.as_ref().err().cloned().unwrap_or_else(|| panic!("{answer:?}"))
}
