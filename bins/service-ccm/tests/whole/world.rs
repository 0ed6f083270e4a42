//! A simulated cluster, a simulated cloud, and the controller, which may be restarted.

use std::{collections::HashMap, str::FromStr, sync::Arc, time::Duration};

use ccm_cloud::{Cloud, ClusterId, Cure, LoadBalancers, Owner};
use ccm_runtime::{leadership::Leadership, metrics::Metrics, program::Loaded};
use ccm_sim::{
    apiserver::{ApiServer, Options},
    cloud::{
        Operation, SimCloud, SimInstance,
        balancers::{SimBalancer, State},
    },
    faults::{Fault, FaultEffect},
};
use ccm_tests::in_process::{InProcess, loaded, sample};
use parking_lot::Mutex;
use serde_json::{Value, json};
use service_ccm::{ServiceCcm, ServiceSettings};
use tokio::time::sleep;

use crate::lies::{Layered, Lies, Lying};

/// The number of nodes.
pub(crate) const NODES: usize = 12;
/// The UID of the cluster.
const CLUSTER: &str = "c-1";
const CLUSTER_UID: &str = "--cluster-uid=c-1";
/// The annotations of the simulated cloud.
const CONFIRMED: &str = "--provider-annotation-prefixes=sim/,sim-status/";
/// A class that may be served.
pub(crate) const OURS: &str = "example.com/ours";

pub(crate) struct World {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) cloud: SimCloud,
    /// The faults of the cloud as the program sees it.
    pub(crate) lies: Arc<Mutex<Lies>>,
    /// The classes that the program serves, if they differ from the variant.
    pub(crate) classes: Option<Served>,
    /// A setting that differs from the variant, as on the command line.
    pub(crate) wrong: Option<&'static str>,
    /// The addresses of new nodes.
    pub(crate) addresses: Addresses,
    /// The objects of the API server with their revision, by kind.
    read: Mutex<HashMap<&'static str, (u64, Objects)>>,
    variant: Variant,
    running: Option<InProcess<ServiceCcm>>,
}

/// The Services that the program serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// True for Services of the class [`OURS`].
    pub(crate) ours: bool,
    /// True for Services without a class.
    pub(crate) classless: bool,
}

/// The addresses that new nodes have besides one IPv4 address.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) two: bool,
    pub(crate) v6: bool,
}

/// A standby process and its program.
pub(crate) type Standby = (InProcess<ServiceCcm>, Arc<ServiceCcm>);
/// Objects of the API server.
pub(crate) type Objects = Arc<[Value]>;

/// The differences from the program as it is shipped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variant {
    /// Other settings.
    pub(crate) arguments: &'static [&'static str],
    /// True if the provider does not offer lists.
    pub(crate) no_lists: bool,
}

impl Variant {
    /// Returns the program with these settings.
    pub(crate) const fn with(arguments: &'static [&'static str]) -> Self {
        Self { arguments, no_lists: false }
    }
}

impl World {
    /// Starts a plain cluster and cloud, and the program.
    pub(crate) async fn start(variant: Variant) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let mut world = Self {
            api,
            cloud: SimCloud::new(),
            lies: Arc::new(Mutex::new(Lies { no_lists: variant.no_lists, ..Lies::default() })),
            classes: None,
            wrong: None,
            addresses: Addresses::default(),
            read: Mutex::default(),
            variant,
            running: None,
        };
        world.add_others();
        for number in 0..NODES {
            world.add_node(number);
        }
        world.restart().await;
        world
    }

    /// Adds load balancers of a person, and of another cluster.
    fn add_others(&self) {
        let cluster = ClusterId { name: "another".to_owned(), uid: "c-2".to_owned() };
        let (uid, namespace, name) = ("1".to_owned(), "default".to_owned(), "web-0".to_owned());
        let owner = Owner { cluster, uid, namespace, name };
        for (number, owner) in (0..).zip([None, Some(owner)]) {
            let address = [192, 0, 2, number].into();
            let mut foreign = SimBalancer::foreign(format!("of-others-{number}"), address, 80);
            foreign.owners.extend(owner);
            self.cloud.balancers().add(foreign);
        }
    }

    /// Returns true if the provider has lists.
    fn has_lists(&self) -> bool {
        LoadBalancers::traits(&self.cloud).lists
    }

    /// Returns the load balancers of this cluster.
    pub(crate) fn ours(&self) -> Vec<SimBalancer> {
        let mut all = self.cloud.balancers().all();
        all.retain(is_ours);
        all
    }

    /// Ends the process, if there is one, without an order, and starts another.
    pub(crate) async fn restart(&mut self) {
        let last = self.stop();
        self.lead_after(last.as_ref()).await;
    }

    /// Starts a process that leads after `last`.
    pub(crate) async fn lead_after(&mut self, last: Option<&Leadership>) {
        let (cloud, settings) = (self.seen_cloud(), self.settings());
        let leading = InProcess::leading(&self.api, cloud, &settings, last, Metrics::new());
        let running = leading.await.unwrap();
        running.record_cloud();
        self.running = Some(running);
    }

    /// Starts a standby beside the leader.
    pub(crate) async fn stand_by(&self) -> Standby {
        let (settings, metrics) = (self.settings(), Metrics::new());
        let standby = InProcess::standing_by(&self.api, self.seen_cloud(), &settings, metrics);
        standby.await.unwrap()
    }

    /// Stops the leader abruptly and makes this standby the leader.
    pub(crate) fn take_over(&mut self, (mut standby, program): Standby) {
        let last = self.stop();
        standby.take_over(program, last.as_ref());
        self.running = Some(standby);
    }

    /// Returns the cloud for one process, with the faults of the world.
    fn seen_cloud(&self) -> Arc<dyn Cloud> {
        let of = Arc::new(self.cloud.clone());
        let balancers = Arc::new(Lying { of, lies: Arc::clone(&self.lies) });
        Arc::new(Layered { cloud: self.cloud.clone(), balancers })
    }

    fn settings(&self) -> Loaded<ServiceCcm> {
        let mut arguments = [CLUSTER_UID, CONFIRMED].map(str::to_owned).to_vec();
        if let Some(Served { ours, classless }) = self.classes {
            let class = if ours { OURS } else { "" };
            arguments.push(format!("--load-balancer-classes={class}"));
            arguments.push(format!("--serve-classless-services={classless}"));
        }
        if !self.has_lists() {
            arguments.push("--load-balancer-look-period=1h0m0s".to_owned());
        }
        arguments.extend(self.variant.arguments.iter().map(|one| (*one).to_owned()));
        if let Some(wrong) = self.wrong {
            let name = wrong.split('=').next().unwrap();
            arguments.retain(|one| !one.starts_with(name));
            arguments.push(wrong.to_owned());
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        loaded::<ServiceCcm>(&arguments).unwrap()
    }

    /// Stops the process abruptly. Returns what it leaves; the next one finds nothing on another Lease.
    pub(crate) fn stop(&mut self) -> Option<Leadership> {
        let is_elsewhere = self.wrong.is_some_and(|one| one.starts_with("--leader-elect-resource"));
        let last = self.running.take().filter(|_| !is_elsewhere);
        last.map(|running| running.context.leadership.clone())
    }

    /// Returns the leader.
    pub(crate) fn running(&self) -> &InProcess<ServiceCcm> {
        self.running.as_ref().unwrap()
    }

    /// Returns the page `/plan`.
    pub(crate) fn plans(&self) -> String {
        self.running.as_ref().unwrap().plans()
    }

    /// Returns the line of a check as on `/readyz?verbose`: `[+]` if it passes.
    pub(crate) fn line(&self, name: &str) -> String {
        let findings = self.running.as_ref().unwrap().context.health.findings();
        let found = findings.into_iter().find(|found| found.name == name).unwrap();
        let sign = if found.verdict.is_passed() { "[+]" } else { "[!]" };
        format!("{sign}{}", found.verdict.detail())
    }

    /// Changes settings as a new file does.
    pub(crate) fn reload(&self, change: impl FnOnce(&mut ServiceSettings)) {
        let settings = &self.running.as_ref().unwrap().settings;
        settings.send_modify(|settings| change(Arc::make_mut(settings)));
    }

    /// Adds a fault of an operation of the cloud.
    pub(crate) fn add_fault(&self, effect: FaultEffect, on: Operation, lasting: Duration) {
        self.cloud.faults().add(Fault::new(effect).on(on).lasting(lasting));
    }

    /// Ends all faults and late writes. A person repairs failed load balancers.
    pub(crate) async fn end_faults(&mut self) {
        self.cloud.faults().clear();
        self.api.faults().clear();
        self.api.cut_watches("", true);
        sleep(Duration::from_mins(1)).await;
        for balancer in self.cloud.balancers().all() {
            let needs_person = matches!(
                balancer.state,
                State::Failed { cure: Cure::Person, .. } | State::Pending { until: None, .. }
            );
            if needs_person {
                self.cloud.balancers().update(&balancer.id, |one| one.state = State::Ready);
            }
        }
        sleep(Duration::from_mins(3)).await;
    }

    pub(crate) fn node_name(number: usize) -> String {
        format!("node-{number:02}")
    }

    pub(crate) fn add_node(&self, number: usize) {
        let name = Self::node_name(number);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": format!("sim://i-{name}")},
            "status": {"addresses": self.addresses.of(&format!("10.0.0.{}", number + 1), number)},
        });
        // It may exist already.
        self.api.create(node).ok();
        self.cloud.add(SimInstance::new(format!("i-{name}"), name));
    }

    pub(crate) fn service_key(number: usize) -> String {
        format!("default/web-{number}")
    }

    pub(crate) fn service(&self, number: usize) -> Option<Value> {
        let name = format!("web-{number}");
        self.list("services").iter().find(|one| one["metadata"]["name"] == name.as_str()).cloned()
    }

    /// Returns all objects of a kind, read once per revision.
    pub(crate) fn list(&self, plural: &'static str) -> Objects {
        let revision = self.api.revision();
        let mut read = self.read.lock();
        if let Some((_, all)) = read.get(plural).filter(|(at, _)| *at == revision) {
            return Arc::clone(all);
        }
        let all: Objects = self.api.list(plural).into();
        read.insert(plural, (revision, Arc::clone(&all)));
        all
    }

    /// Returns the load balancers of a Service.
    pub(crate) fn balancers_of(&self, uid: &str) -> Vec<SimBalancer> {
        let mut all = self.cloud.balancers().all();
        let is = |owner: &Owner| owner.uid == uid;
        all.retain(|balancer| balancer.owners.iter().any(is));
        all
    }

    /// Returns the sample of `/metrics` of this name.
    pub(crate) fn metric<N: FromStr + Default>(&self, name: &str) -> N {
        sample(&self.running.as_ref().unwrap().context.metrics, name)
    }
}

impl Addresses {
    /// Returns the addresses of a node with this first address.
    pub(crate) fn of(self, first: &str, number: usize) -> Value {
        let address = |kind: &str, address: String| json!({"type": kind, "address": address});
        let mut all = vec![address("InternalIP", first.to_owned())];
        if self.two {
            all.push(address("ExternalIP", format!("198.51.100.{}", number + 1)));
        }
        if self.v6 {
            all.push(address("InternalIP", format!("fd00::{}", number + 1)));
        }
        all.into()
    }
}

fn is_ours(balancer: &SimBalancer) -> bool {
    balancer.owners.iter().any(|owner| owner.cluster.uid == CLUSTER)
}
