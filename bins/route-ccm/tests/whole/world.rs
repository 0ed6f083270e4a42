//! A simulated cluster with one leader after another, and a cloud that others may share.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use ccm_cloud::RouteTarget;
use ccm_runtime::{health::Verdict, leadership::Leadership, metrics::Metrics, program::Loaded};
use ccm_sim::{
    apiserver::{ApiServer, Options, PatchKind, Verb},
    cloud::{SimCloud, SimInstance, routes::SimRoute},
};
use ccm_tests::in_process::{InProcess, loaded, sample};
use ipnet::IpNet;
use route_ccm::{RouteCcm, RouteSettings};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The networks of the pods, unless a test names others.
const CIDRS: &str = "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56";

/// The time limit of everything that should happen soon.
const SOON: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) cloud: SimCloud,
    arguments: Vec<String>,
    running: Option<InProcess<RouteCcm>>,
}

impl World {
    /// Returns a cluster of this UID with a leader, on this cloud.
    pub(crate) async fn start(cloud: &SimCloud, uid: &str, arguments: &[&str]) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let mut all = vec![format!("--cluster-uid={uid}")];
        if !arguments.iter().any(|argument| argument.starts_with("--cluster-cidr=")) {
            all.push(CIDRS.to_owned());
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let mut world = Self { api, cloud: cloud.clone(), arguments: all, running: None };
        world.restart().await;
        world
    }

    /// Ends the leader, if there is one, without an order, and starts another.
    pub(crate) async fn restart(&mut self) {
        let (last, settings, cloud) = (self.stop(), self.settings(), self.cloud.clone());
        let (cloud, metrics) = (Arc::new(cloud), Metrics::new());
        let leading = InProcess::leading(&self.api, cloud, &settings, last.as_ref(), metrics);
        self.running = Some(leading.await.unwrap());
    }

    /// Ends the leader, and starts another with this setting in the place of the present one. With `is_moved`, on a
    /// Lease of another name or namespace, on which nothing was left.
    pub(crate) async fn restart_with(&mut self, setting: &str, is_moved: bool) {
        let name = setting.split_inclusive('=').next().unwrap();
        self.arguments.retain(|one| !one.starts_with(name));
        self.arguments.push(setting.to_owned());
        if is_moved {
            self.stop();
        }
        self.restart().await;
    }

    /// Starts a standby.
    pub(crate) async fn stand_by(&self) -> (InProcess<RouteCcm>, Arc<RouteCcm>) {
        let (settings, cloud) = (self.settings(), Arc::new(self.cloud.clone()));
        InProcess::standing_by(&self.api, cloud, &settings, Metrics::new()).await.unwrap()
    }

    /// Returns the leader.
    pub(crate) fn running(&self) -> &InProcess<RouteCcm> {
        self.running.as_ref().unwrap()
    }

    fn stop(&mut self) -> Option<Leadership> {
        self.running.take().map(|last| last.context.leadership.clone())
    }

    fn settings(&self) -> Loaded<RouteCcm> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        loaded::<RouteCcm>(&arguments).unwrap()
    }

    /// Changes live settings, as a new file does.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut RouteSettings)) {
        let change = |settings: &mut Arc<RouteSettings>| change(Arc::make_mut(settings));
        self.running.as_ref().unwrap().settings.send_modify(change);
    }

    /// Registers a node, and creates its instance.
    pub(crate) fn add(&self, node: Value) {
        self.cloud.add(instance(node["metadata"]["name"].as_str().unwrap()));
        self.api.create(node).unwrap();
    }

    /// Registers the nodes with these numbers, each with its pod CIDR.
    pub(crate) fn add_nodes(&self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            self.add(node(&name(number), &[&cidr(number)]));
        }
    }

    /// Deletes the nodes with these numbers; their instances stay.
    pub(crate) fn delete_nodes(&self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            self.api.delete("nodes", &name(number)).unwrap();
        }
    }

    pub(crate) fn patch(&self, name: &str, subresource: &str, patch: Value) {
        self.api.patch("nodes", name, subresource, PatchKind::Strategic, patch).unwrap();
    }

    /// Waits until this is so.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is(self) {
            assert!(
                start.elapsed() < SOON,
                "not so: {what}; routes {:?}, conditions {:?}",
                self.routes(),
                self.conditions()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the condition of a node has this status and reason, and returns its message.
    pub(crate) async fn shows(&self, name: &str, status: &str, reason: &str) -> String {
        let is = |world: &Self| {
            world.condition(name).is_some_and(|[is, why, _]| is == status && why == reason)
        };
        self.until(&format!("{name} shows {status}/{reason}"), is).await;
        self.condition(name).map(|[_, _, message]| message).unwrap()
    }

    /// Waits until the nodes with these numbers are shown as reachable.
    pub(crate) async fn reachable(&self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            self.shows(&name(number), "False", "RouteCreated").await;
        }
    }

    /// Returns the routes of the cloud: destination and target.
    pub(crate) fn routes(&self) -> BTreeMap<String, String> {
        let shown = |route: SimRoute| {
            let target = route.target.map_or("nothing".to_owned(), |target| target.to_string());
            (route.destination.to_string(), target)
        };
        self.cloud.router().all().into_iter().map(shown).collect()
    }

    /// Status, reason and message of a node's condition `NetworkUnavailable`.
    pub(crate) fn condition(&self, name: &str) -> Option<[String; 3]> {
        let node = self.api.get("nodes", name)?;
        let all = node["status"]["conditions"].as_array()?.clone();
        let found = all.into_iter().find(|one| one["type"] == "NetworkUnavailable")?;
        Some(["status", "reason", "message"].map(|field| text(&found[field])))
    }

    fn conditions(&self) -> BTreeMap<String, Option<[String; 3]>> {
        let names = self.api.list("nodes").into_iter().map(|node| text(&node["metadata"]["name"]));
        names.map(|name| (name.clone(), self.condition(&name))).collect()
    }

    /// Returns how often the controller has written this node.
    pub(crate) fn writes_to(&self, name: &str) -> usize {
        let records = self.api.audit().records();
        let own = |record: &&ccm_sim::apiserver::Record| {
            record.verb == Verb::Patch && record.resource == "nodes" && record.name == name
        };
        let own = records.iter().filter(own);
        own.filter(|record| record.user_agent.starts_with("route-ccm/")).count()
    }

    /// Returns the events about a node: `Reason: message`.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let about = |event: &Value| event["involvedObject"]["name"] == name;
        let line =
            |event: Value| format!("{}: {}", text(&event["reason"]), text(&event["message"]));
        self.api.list("events").into_iter().filter(about).map(line).collect()
    }

    /// Returns a line of `/readyz?verbose`.
    pub(crate) fn line(&self, name: &str) -> String {
        let findings = self.running().context.health.findings();
        let found = findings.into_iter().find(|finding| finding.name == name).unwrap();
        let mark = if matches!(found.verdict, Verdict::Passed(_)) { "[+]" } else { "[!]" };
        format!("{mark}{}", found.verdict.detail())
    }

    /// Returns the page `/plan` for this name.
    pub(crate) fn page(&self, name: &str) -> String {
        self.running().context.plans.text(Some(name))
    }

    /// Lets a person approve all that is held, for ten minutes.
    pub(crate) fn approve_all(&self) {
        let until = ccm_base::clock::wall() + Duration::from_mins(10);
        self.running().annotate_lease("quartet.dev/approved-selector", Some("*"));
        self.running().annotate_lease("quartet.dev/approved-until", Some(&until.to_string()));
    }

    /// Returns the sample of `/metrics` of this name.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        sample(&self.running.as_ref().unwrap().context.metrics, name)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the name of a node by its number.
pub(crate) fn name(number: usize) -> String {
    format!("node-{number:02}")
}

/// Returns the pod CIDR of the node with this number.
pub(crate) fn cidr(number: usize) -> String {
    format!("10.244.{number}.0/24")
}

/// Returns the address of a node's instance, from the number at the end of its name.
pub(crate) fn address(name: &str) -> IpAddr {
    let cluster = u8::from(name.starts_with("other"));
    let number = name.rsplit('-').next().and_then(|number| number.parse().ok());
    [10, 0, cluster, number.unwrap_or(name.bytes().fold(99, u8::wrapping_add))].into()
}

/// Returns the instance of the node of this name.
pub(crate) fn instance(name: &str) -> SimInstance {
    let mut instance = SimInstance::new(format!("i-{name}"), name);
    let address = address(name).to_string();
    instance.addresses =
        vec![ccm_cloud::NodeAddress::new(ccm_cloud::AddressKind::InternalIp, address)];
    instance
}

/// Returns a node with the address of its instance and these pod CIDRs.
pub(crate) fn node(name: &str, cidrs: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {
            "providerID": instance(name).provider_id().as_str(),
            "podCIDR": cidrs.first(), "podCIDRs": cidrs,
        },
        "status": {"addresses": [{"type": "InternalIP", "address": address(name).to_string()}]},
    })
}

/// Returns a network.
pub(crate) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Returns a route that a person has made.
pub(crate) fn foreign(destination: &str, target: &str) -> SimRoute {
    SimRoute::foreign(destination, net(destination), RouteTarget::Address(target.parse().unwrap()))
}
