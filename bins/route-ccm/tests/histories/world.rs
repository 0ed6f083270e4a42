//! A simulated cluster and cloud, and the controller, which may be restarted.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{
    AddressKind, ClusterId, IpFamily, NodeAddress, Owner, RouteTarget, RouteTraits, Routes,
};
use ccm_runtime::{leadership::Leadership, metrics::Metrics, program::Loaded};
use ccm_sim::{
    apiserver::{Action, ApiServer, Fault as ApiFault, Options, Verb},
    cloud::{
        SimCloud, SimInstance,
        routes::{RouterSettings, SimRoute, TargetKind},
    },
};
use ccm_tests::{
    in_process::{InProcess, loaded, sample},
    variants::{self, Layer, Layered},
};
use ipnet::IpNet;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use route_ccm::RouteCcm;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    rival::Rival,
    rules::Broken,
    truth::{TrueNode, Truth, nodes},
    watched::Watched,
    without::{Missing, Without},
};

/// The number of names of nodes.
pub(crate) const NODES: u8 = 12;
/// The UID of the cluster.
pub(crate) const CLUSTER: &str = "c-1";
pub(crate) const CLUSTER_CIDRS: &str = "10.120.0.0/16,fd00:120::/48";

pub(crate) struct World {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) cloud: SimCloud,
    pub(crate) dice: StdRng,
    pub(crate) broken: Broken,
    pub(crate) truth: Truth,
    /// When the process that runs has begun.
    pub(crate) begun: Instant,
    /// Whether nodes have a pod CIDR of each family.
    is_dual: bool,
    /// How many machines and routes of others were made.
    pub(crate) made: u32,
    /// What happens a little later.
    pub(crate) later: JoinSet<()>,
    period: &'static str,
    pub(crate) variant: Variant,
    pub(crate) rival: Rival,
    running: Option<InProcess<RouteCcm>>,
    /// True if the process has stood by before.
    stood_by: bool,
    known: Vec<RouteTarget>,
}

/// The user agent of a process that has stood by.
const STANDS_BY: &str = "route-ccm/standby";

/// A process that does not lead yet.
pub(crate) struct Standby {
    process: InProcess<RouteCcm>,
    program: Arc<RouteCcm>,
    known: Vec<RouteTarget>,
    /// The version of the API server from which on it sees nothing.
    revision: u64,
}

/// What differs from the program as it is shipped.
pub(crate) type Variant = variants::Variant<Without>;

impl World {
    pub(crate) async fn start(seed: u64, variant: Variant) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let mut dice = StdRng::seed_from_u64(seed);
        let cloud = SimCloud::new();
        cloud.router().configure(|settings| *settings = router(&mut dice));
        let is_dual = dice.random();
        let period = if dice.random() { "10m" } else { "30s" };
        let mut world = Self {
            api,
            cloud,
            dice,
            broken: Broken::default(),
            truth: Truth::default(),
            begun: Instant::now(),
            is_dual,
            made: 0,
            later: JoinSet::new(),
            period,
            variant,
            rival: Rival::default(),
            running: None,
            stood_by: false,
            known: Vec::new(),
        };
        world.add_others();
        for number in 0..NODES {
            world.add_node(number);
        }
        world.restart().await;
        world
    }

    /// The routes of others: of people, of another cluster and of this cluster before it was
    /// rebuilt. Those without an owner lead to something that exists.
    fn add_others(&self) {
        let owner = |cluster: &str| Owner {
            cluster: ClusterId { name: "kubernetes".to_owned(), uid: cluster.to_owned() },
            uid: "1".to_owned(),
            namespace: String::new(),
            name: "node-00".to_owned(),
        };
        let records = self.cloud.router().settings().traits.records_owner;
        let others = [
            ("0.0.0.0/0", Some("10.9.9.1"), None),
            ("10.0.0.0/8", Some("10.9.9.77"), None),
            ("172.16.0.0/12", Some("10.9.9.78"), None),
            ("10.120.200.0/24", Some("10.9.9.2"), None),
            ("10.120.201.0/24", Some("10.9.9.3"), Some("c-2")),
            ("10.120.202.0/24", Some("10.9.9.4"), Some("c-0")),
            ("10.121.203.0/24", Some("10.9.9.79"), Some("c-2")),
            ("10.120.204.0/24", None, None),
        ];
        for port in ["10.9.9.1", "10.9.9.2", "10.9.9.3", "10.9.9.4"] {
            // What is recorded as another cluster's stays, whether its target exists or not.
            if !records || port < "10.9.9.3" {
                self.cloud.router().add_port(port.parse().unwrap());
            }
        }
        for (number, (destination, target, cluster)) in (0..).zip(others) {
            let target = target.map(|text| RouteTarget::Address(text.parse().unwrap()));
            let id = format!("of-others-{number}");
            let mut route = SimRoute::foreign(id, destination.parse().unwrap(), target);
            route.owner = cluster.filter(|_| records).map(owner);
            self.add_foreign(route);
        }
        let gone = RouteTarget::Address(Ipv4Addr::new(10, 9, 9, 99).into());
        let left = SimRoute::foreign("left", "10.120.210.0/24".parse().unwrap(), gone);
        self.cloud.router().add(left);
    }

    /// Adds a route of others, which stays.
    pub(crate) fn add_foreign(&self, route: SimRoute) {
        self.truth.with(|memory| memory.foreign.push(route.clone()));
        self.cloud.router().add(route);
    }

    /// Ends the process, if there is one, without an order, and starts another.
    pub(crate) async fn restart(&mut self) {
        let last = self.end();
        let (cloud, settings, metrics) = self.parts();
        self.begun = Instant::now();
        let leading = InProcess::leading(&self.api, cloud, &settings, last.as_ref(), metrics);
        self.running = Some(leading.await.unwrap());
        (self.stood_by, self.known) = (false, Vec::new());
    }

    /// What a process begins with.
    fn parts(&self) -> (Arc<Layered>, Loaded<RouteCcm>, Metrics) {
        let metrics = Metrics::new();
        let watched = Watched::new(self, &metrics);
        let routes: Arc<dyn Routes> = match self.variant.without {
            Some(without) => Arc::new(Missing::new(without, watched)),
            None => Arc::new(watched),
        };
        let cloud = Arc::new(Layered::new(&self.cloud, Layer::Routes(routes)));
        (cloud, settings(self.variant, self.period), metrics)
    }

    /// Ends the process. Returns what it leaves.
    fn end(&mut self) -> Option<Leadership> {
        let last = self.running.take().filter(|_| !self.variant.forgets);
        last.map(|running| running.context.leadership.clone())
    }

    /// Starts a standby, whose watch of nodes is silent from now on.
    pub(crate) async fn stand_by(&mut self) -> Standby {
        if self.stood_by {
            self.restart().await;
        }
        let (cloud, settings, metrics) = self.parts();
        let standing = InProcess::standing_by(&self.api, cloud, &settings, metrics);
        let (process, program) = standing.await.unwrap();
        let known = nodes(&self.api).iter().flat_map(TrueNode::targets).collect();
        let silent = ApiFault::new(Action::SilentWatch).verb(Verb::Watch).resource("nodes");
        self.api.faults().add(silent.user_agent(STANDS_BY).times(1));
        self.api.cut_watches(STANDS_BY, false);
        sleep(Duration::from_secs(2)).await;
        Standby { process, program, known, revision: self.api.revision() }
    }

    /// Ends the leader without an order and makes this standby the leader.
    pub(crate) fn take_over(&mut self, standby: Standby) {
        let Standby { mut process, program, known, revision } = standby;
        if self.variant.without == Some(Without::Freshness) {
            // The API server says that what the standby has seen is all there is.
            let versions = self.api.revision() - revision;
            let stale = ApiFault::new(Action::StaleRead { versions }).verb(Verb::List);
            let stale = stale.resource("nodes").user_agent(STANDS_BY);
            self.api.faults().add(stale.lasting(Duration::from_secs(5)));
        }
        let last = self.end();
        process.take_over(program, last.as_ref());
        (self.running, self.begun) = (Some(process), Instant::now());
        (self.stood_by, self.known) = (true, known);
    }

    /// Returns true if the process has certainly seen that the target belongs to a node.
    pub(crate) fn has_seen(&self, target: &RouteTarget) -> bool {
        self.known.contains(target) || self.truth.was_seen(target, self.begun)
    }

    /// The page `/plan`.
    pub(crate) fn plans(&self) -> String {
        self.running.as_ref().unwrap().plans()
    }

    /// The sample of `/metrics` of this name.
    pub(crate) fn metric(&self, name: &str) -> usize {
        sample(&self.running.as_ref().unwrap().context.metrics, name)
    }

    /// How long nothing happens now.
    pub(crate) fn seconds(&mut self) -> u64 {
        let longest = if self.dice.random_bool(0.2) { 120 } else { 8 };
        self.dice.random_range(0..longest)
    }

    /// Ends all faults.
    pub(crate) fn end_faults(&mut self) {
        self.rival.end();
        self.cloud.faults().clear();
        self.api.faults().clear();
        self.truth.with(|memory| memory.denies_until = None);
        crate::events::tell_the_truth(self);
        self.cloud.router().configure(|settings| settings.quota = None);
    }

    pub(crate) fn node_name(number: u8) -> String {
        format!("node-{number:02}")
    }

    /// Registers a node with a machine of its own and the pod CIDRs of its number.
    pub(crate) fn add_node(&mut self, number: u8) {
        self.add_node_with(number, number);
    }

    /// Registers a node with a machine of its own and these pod CIDRs.
    pub(crate) fn add_node_with(&mut self, number: u8, cidr: u8) {
        let name = Self::node_name(number);
        if self.api.get("nodes", &name).is_some() {
            return;
        }
        let machine = self.add_machine(&name);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": machine.provider_id().to_string(), "podCIDRs": self.cidrs(cidr)},
            "status": {"addresses": addresses(&machine)},
        });
        self.register(node);
    }

    /// Creates a node.
    pub(crate) fn register(&self, node: Value) {
        self.api.create(node).unwrap();
        self.truth.with(|memory| {
            for target in nodes(&self.api).iter().flat_map(TrueNode::targets) {
                memory.targets.entry(target).or_insert((Instant::now(), false));
            }
        });
    }

    /// The pod CIDRs of this number.
    pub(crate) fn cidrs(&self, number: u8) -> Vec<String> {
        let v6 = self.is_dual.then(|| format!("fd00:120:0:{number}::/64"));
        [format!("10.120.{number}.0/24")].into_iter().chain(v6).collect()
    }

    /// A new machine of this name, perhaps with an address that another one had before.
    pub(crate) fn add_machine(&mut self, name: &str) -> SimInstance {
        self.made += 1;
        let mut machine = SimInstance::new(format!("i-{:04}", self.made), name);
        machine.addresses = self.free_addresses();
        self.cloud.add(machine.clone());
        machine
    }

    /// An address of each family that no machine has.
    pub(crate) fn free_addresses(&mut self) -> Vec<NodeAddress> {
        let taken: Vec<String> = self
            .cloud
            .all()
            .iter()
            .flat_map(|machine| &machine.addresses)
            .map(|address| address.address.clone())
            .collect();
        let free = loop {
            // Few, so that others have had them; but enough for machines that are left.
            let last = self.dice.random_range(1..if taken.len() < 60 { 40 } else { 250u8 });
            if !taken.contains(&format!("10.0.0.{last}")) {
                break last;
            }
        };
        let v6 = format!("fd00:1::{free:x}");
        let all = [format!("10.0.0.{free}"), v6];
        all.map(|address| NodeAddress::new(AddressKind::InternalIp, address)).to_vec()
    }

    /// The machine of a node, if there is one.
    pub(crate) fn machine_of(&self, node: &Value) -> Option<SimInstance> {
        let id = node["spec"]["providerID"].as_str()?.strip_prefix("sim://")?;
        self.cloud.get(id)
    }

    /// The routes of this cluster, and those that it may clean up.
    pub(crate) fn ours(&self) -> Vec<SimRoute> {
        let mut all = self.cloud.router().all();
        all.retain(|route| !self.truth.is_foreign(&route.id));
        all
    }

    /// Those whose destination is that of no route of others.
    pub(crate) fn only_ours(&self) -> Vec<SimRoute> {
        let is_foreign = |route: &SimRoute| self.truth.is_foreign(&route.id);
        let mut ours = self.ours();
        ours.retain(|route| !self.cloud.router().to(route.destination).iter().any(is_foreign));
        ours
    }

    /// Whether the target of a route exists.
    pub(crate) fn exists(&self, target: &RouteTarget) -> bool {
        exists(&self.cloud, target)
    }
}

pub(crate) fn exists(cloud: &SimCloud, target: &RouteTarget) -> bool {
    let machines = cloud.all();
    match target {
        RouteTarget::Node(name) => machines.iter().any(|machine| machine.name == *name),
        RouteTarget::Instance(id) => machines.iter().any(|machine| machine.provider_id() == *id),
        RouteTarget::Address(address) => {
            let text = address.to_string();
            let is = |one: &NodeAddress| one.address == text;
            let is_port = cloud.router().ports().contains(address);
            is_port || machines.iter().flat_map(|machine| &machine.addresses).any(is)
        }
    }
}

/// The addresses of a machine as a node shows them.
pub(crate) fn addresses(machine: &SimInstance) -> Value {
    let address = |one: &NodeAddress| json!({"type": "InternalIP", "address": one.address});
    machine.addresses.iter().map(address).collect()
}

/// The settings of a variant.
fn settings(variant: Variant, period: &str) -> Loaded<RouteCcm> {
    let mut arguments = vec![
        format!("--cluster-uid={CLUSTER}"),
        format!("--cluster-cidr={CLUSTER_CIDRS}"),
        format!("--route-reconciliation-period={period}"),
    ];
    let flag = |argument: &str| argument.split('=').next().map(str::to_owned);
    arguments.retain(|own| variant.arguments.iter().all(|one| flag(one) != flag(own)));
    let arguments = arguments.iter().map(String::as_str);
    let arguments: Vec<&str> = arguments.chain(variant.arguments.iter().copied()).collect();
    loaded::<RouteCcm>(&arguments).unwrap()
}

/// A router with the traits of some cloud.
fn router(dice: &mut StdRng) -> RouterSettings {
    let targets = [TargetKind::Address, TargetKind::Instance, TargetKind::Node];
    let targets = targets[dice.random_range(0..3)];
    let compares_version = dice.random();
    RouterSettings {
        targets,
        quota: dice.random_bool(0.2).then_some(24),
        versions: compares_version || dice.random(),
        create: Duration::from_secs(if dice.random_bool(0.2) { 4 } else { 0 }),
        traits: RouteTraits {
            families: vec![IpFamily::V4, IpFamily::V6],
            several_targets: dice.random_bool(0.3),
            replaces: dice.random(),
            records_owner: dice.random(),
            compares_version,
            target_ids: targets == TargetKind::Instance,
            target_addresses: targets == TargetKind::Address,
            max_batch: [1, 3, 500][dice.random_range(0..3)],
        },
        ..RouterSettings::default()
    }
}

/// An address that machines do not have.
pub(crate) fn port(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 8, last).into()
}

/// The network of a route that people make inside the cluster CIDRs.
pub(crate) fn of_people(number: u32) -> IpNet {
    format!("10.120.{}.0/24", 211 + number % 40).parse().unwrap()
}
