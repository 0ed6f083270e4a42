//! The parts that scenarios and benchmarks of load balancers share: a cluster with nodes and
//! Services, and the number of calls that their load balancers cost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Launch};
use k8s_openapi::api::core::v1::Service as KubeService;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Service,
    proxy::{Request, tally},
    rig::Rig,
};
use crate::{fixture::with_short_terms, nodes, services};

/// The beginning of the names of load balancers of openstack-cloud-controller-manager and
/// service-ccm.
pub const NAME: &str = "kube_service_kubernetes_default_";
/// The tag with the UID of the Service.
pub const SERVICE_TAG: &str = "kubernetes-service-uid=";
/// The tag with the UID of the cluster.
pub const CLUSTER_TAG: &str = "kubernetes-cluster-id=";
/// The prefix of the provider's annotations.
pub const ANNOTATION: &str = "loadbalancer.openstack.org/";
/// The path of load balancers in Octavia.
pub const BALANCERS: &str = "/v2.0/lbaas/loadbalancers";

/// Requests to the services, without logins and versions.
#[derive(Debug)]
pub struct Calls {
    /// All requests except polls.
    pub calls: usize,
    /// Lists of load balancers that the cloud works on, by ID.
    pub polls: usize,
    /// Writes among the calls.
    pub writes: usize,
    /// By pattern.
    pub by_pattern: BTreeMap<String, usize>,
}

impl Calls {
    /// Counts requests.
    pub fn of(requests: &[Request]) -> Self {
        let used = |one: &&Request| one.service != Service::Identity && !one.is_discovery();
        let (polls, calls): (Vec<_>, Vec<_>) =
            requests.iter().filter(used).cloned().partition(is_poll);
        let writes = calls.iter().filter(|one| one.method != http::Method::GET).count();
        let by_pattern = tally(&calls);
        Self { calls: calls.len(), polls: polls.len(), writes, by_pattern }
    }

    /// Returns the calls of the programs since a mark of the proxy's log.
    pub fn since(rig: &Rig, mark: usize) -> Self {
        Self::of(&rig.cloud.proxy.log().since(mark))
    }

    /// Returns the number of calls of a pattern.
    pub fn of_pattern(&self, pattern: &str) -> usize {
        self.by_pattern.get(pattern).copied().unwrap_or_default()
    }
}

/// Returns true if a request lists load balancers because the cloud works on them: all or by ID,
/// but not by tag or name.
fn is_poll(request: &Request) -> bool {
    let is_list = request.method == http::Method::GET && request.path == BALANCERS;
    is_list && !["tags=", "name="].iter().any(|filter| request.query.contains(filter))
}

/// Returns a Service with this number of TCP ports.
pub fn service(name: &str, ports: u16) -> Value {
    let mut service = services::service(name);
    let port = |number: u16| json!({"name": format!("p{number}"), "protocol": "TCP", "port": 8000 + number, "targetPort": 80});
    service["spec"]["ports"] = (0..ports).map(port).collect();
    service
}

/// Returns the Service with an annotation of the provider.
pub fn annotated(mut service: Value, key: &str, value: &str) -> Value {
    service["metadata"]["annotations"][format!("{ANNOTATION}{key}")] = value.into();
    service
}

/// Registers an initialised node with an address in the project's network.
pub async fn add_node(rig: &Rig, number: usize) -> Result<String> {
    let name = format!("member-{number:03}");
    let mut node = nodes::initialised(&name);
    node["spec"]["providerID"] = format!("openstack:///{}", nodes::uuid_of(&name)).into();
    let address = format!("127.32.200.{number}");
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": address}]);
    nodes::register(&rig.client, &node).await?;
    Ok(name)
}

/// Registers this number of nodes.
pub async fn add_nodes(rig: &Rig, count: usize) -> Result<()> {
    for number in 1..=count {
        add_node(rig, number).await?;
    }
    Ok(())
}

/// Returns service-ccm for this cluster and cloud, with its default settings. The networks of this
/// cloud are on loopback, whose addresses Services do not show by default.
pub fn service_ccm(rig: &Rig) -> Launch {
    rig.launch("service-ccm").arg("--load-balancer-allowed-addresses=127.0.0.0/8")
}

/// Returns the launch with short terms and periods.
pub fn quick(rig: &Rig) -> Launch {
    with_short_terms(service_ccm(rig))
        .arg("--member-update-interval=2s")
        .arg("--load-balancer-audit-period=10s")
}

/// Returns the load balancers of the project that carry the Service's UID.
pub async fn of_service(rig: &Rig, name: &str) -> Result<Vec<Value>> {
    let service = services::get(&rig.client, name).await?;
    let uid = service.metadata.uid.context("a Service has a UID")?;
    let tag = format!("{SERVICE_TAG}{uid}");
    let mut all = rig.cloud.user.balancers().await?;
    all.retain(|one| tags(one).contains(tag.as_str()));
    Ok(all)
}

/// Returns the ID of the Service's only load balancer.
pub async fn id_of(rig: &Rig, name: &str) -> Result<String> {
    let all = of_service(rig, name).await?;
    ensure!(all.len() == 1, "{} load balancers of {name}", all.len());
    id(&all[0])
}

/// Returns the ID of an object.
pub fn id(object: &Value) -> Result<String> {
    object["id"].as_str().map(str::to_owned).with_context(|| format!("no ID in {object}"))
}

/// Returns the tags of an object.
pub fn tags(object: &Value) -> BTreeSet<&str> {
    object["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Returns the names of the members of each pool of a load balancer.
pub async fn members(rig: &Rig, balancer: &str) -> Result<Vec<BTreeSet<String>>> {
    let tree = rig.cloud.user.balancer_tree(balancer).await?;
    let listeners = tree["listeners"].as_array().into_iter().flatten();
    let pools = listeners.flat_map(|one| one["pools"].as_array().into_iter().flatten());
    let name = |member: &Value| member["name"].as_str().unwrap_or_default().to_owned();
    Ok(pools
        .map(|pool| pool["members"].as_array().into_iter().flatten().map(name).collect())
        .collect())
}

/// Waits until each pool of these load balancers has this member.
pub async fn have_member(
    rig: &Rig,
    balancers: &[String],
    node: &str,
    limit: Duration,
) -> Result<()> {
    for balancer in balancers {
        poll::until(&format!("{node} in all pools of {balancer}"), limit, || async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let pools = members(rig, balancer).await?;
            let all = !pools.is_empty() && pools.iter().all(|pool| pool.contains(node));
            Ok(all.then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Waits until all these Services show an address, and returns the time since `start` at which
/// the last one did.
pub async fn all_have_addresses(
    rig: &Rig,
    names: &[String],
    start: Instant,
    limit: Duration,
) -> Result<Duration> {
    for name in names {
        services::address(&rig.client, name, limit).await?;
    }
    Ok(start.elapsed())
}

/// Waits until the Service's condition about its load balancer has this reason, and returns its
/// text.
pub async fn says(rig: &Rig, name: &str, reason: &str, limit: Duration) -> Result<String> {
    let is = |service: &KubeService| text_of(service, reason).is_some();
    let service = services::wait_for(&rig.client, name, reason, limit, is).await?;
    text_of(&service, reason).context("it was there")
}

fn text_of(service: &KubeService, reason: &str) -> Option<String> {
    let all = service.status.as_ref()?.conditions.as_ref()?;
    let mut all = all.iter().filter(|one| one.type_ == "LoadBalancerProvisioning");
    all.find(|one| one.reason == reason).map(|one| one.message.clone())
}

/// Waits until the Service is as wanted, except for what its condition names.
pub async fn provisioned(rig: &Rig, name: &str, limit: Duration) -> Result<()> {
    let reasons = ["Provisioned", "PartlyProvisioned"];
    let is = |service: &KubeService| reasons.iter().any(|one| text_of(service, one).is_some());
    services::wait_for(&rig.client, name, reasons[0], limit, is).await.map(drop)
}

/// Deletes all Services and waits until their load balancers are gone.
pub async fn delete_all(rig: &Rig, names: &[String], limit: Duration) -> Result<()> {
    for name in names {
        services::delete(&rig.client, name).await?;
    }
    for name in names {
        services::gone(&rig.client, name, limit).await?;
    }
    Ok(())
}

/// All addresses that Services have shown while this is kept.
pub struct Shown {
    seen: std::sync::Arc<parking_lot::Mutex<BTreeMap<String, Vec<String>>>>,
    _task: tokio::task::JoinSet<()>,
}

impl Shown {
    /// Looks at all Services five times a second.
    pub fn watch(rig: &Rig) -> Self {
        let seen = std::sync::Arc::<parking_lot::Mutex<BTreeMap<String, Vec<String>>>>::default();
        let (api, all) = (Api::<KubeService>::all(rig.client.clone()), seen.clone());
        let mut task = tokio::task::JoinSet::new();
        task.spawn(async move {
            loop {
                let list = api.list(&ListParams::default()).await;
                for service in list.into_iter().flat_map(|list| list.items) {
                    let name = service.metadata.name.clone().unwrap_or_default();
                    let mut all = all.lock();
                    let shown: &mut Vec<String> = all.entry(name).or_default();
                    for address in services::addresses(&service) {
                        if shown.last() != Some(&address) {
                            shown.push(address);
                        }
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Self { seen, _task: task }
    }

    /// Fails if a Service has shown two addresses.
    pub fn never_changed(&self) -> Result<()> {
        let seen = self.seen.lock();
        let changed: Vec<_> = seen.iter().filter(|(_, shown)| shown.len() > 1).collect();
        ensure!(changed.is_empty(), "addresses have changed: {changed:?}");
        Ok(())
    }
}
