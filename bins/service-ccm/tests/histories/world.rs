//! A simulated cluster and cloud, and the controller, which may be restarted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::Ipv4Addr,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{Cloud, ClusterId, Cure, LoadBalancers, Owner};
use ccm_objects::service_keys::CLEANUP;
use ccm_runtime::{leadership::Leadership, metrics::Metrics, program::Loaded};
use ccm_sim::{
    apiserver::{ApiServer, Options},
    cloud::{
        Operation, SimCloud, SimInstance,
        balancers::{SimBalancer, State},
    },
    faults::{Effect, Fault},
};
use ccm_tests::{
    in_process::{InProcess, loaded, sample},
    variants::{self, Layer, Layered},
};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use service_ccm::{ServiceCcm, ServiceSettings};
use tokio::time::{Instant, sleep};

use crate::{
    lies::{Lies, Lying},
    neighbours::Neighbours,
    rules::Broken,
    watched::Watched,
    without::{Lists, Unlisted},
};

/// The names of the Services and of the nodes.
pub(crate) const SERVICES: usize = 4;
pub(crate) const NODES: usize = 12;
/// The UID of the cluster.
const CLUSTER: &str = "c-1";
const CLUSTER_UID: &str = "--cluster-uid=c-1";
/// The annotations of the simulated cloud.
const CONFIRMED: &str = "--provider-annotation-prefixes=sim/,sim-status/";
/// A class that may be served.
pub(crate) const OURS: &str = "example.com/ours";
/// How long a process may lead although its watches do not work.
const UNSEEN: Duration = Duration::from_mins(2);
/// The Service of a class that is not served.
const OTHER_CLASS: &str = "default/other-class";

pub(crate) struct World {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) cloud: SimCloud,
    pub(crate) dice: StdRng,
    pub(crate) broken: Broken,
    /// The faults of the cloud as the program sees it.
    pub(crate) lies: Arc<Mutex<Lies>>,
    /// The other controllers of the cluster.
    pub(crate) neighbours: Neighbours,
    /// The changes of persons.
    pub(crate) persons: Persons,
    /// Until when lists may fail or lie.
    pub(crate) blind_until: Option<Instant>,
    /// The classes that the program serves, if they differ from the variant.
    pub(crate) classes: Option<Served>,
    /// A setting that differs from the variant, as on the command line.
    pub(crate) wrong: Option<&'static str>,
    /// The addresses of new nodes.
    pub(crate) addresses: Addresses,
    /// The UIDs of the Services for which the program has ever asked for a load balancer.
    served: Arc<Mutex<BTreeSet<String>>>,
    /// The objects of the API server with their revision, by kind.
    read: Mutex<HashMap<&'static str, (u64, Objects)>>,
    variant: Variant,
    running: Option<InProcess<ServiceCcm>>,
    /// A former leader that does not know that another process leads.
    former: Option<InProcess<ServiceCcm>>,
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

/// Changes of persons: the rules do not blame the program for them. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Persons {
    /// The UIDs of the Services whose finalizer a person has removed, and when.
    released: Arc<Mutex<BTreeMap<String, Instant>>>,
}

/// A standby process and its program.
pub(crate) type Standby = (InProcess<ServiceCcm>, Arc<ServiceCcm>);
/// Objects of the API server.
pub(crate) type Objects = Arc<[Value]>;
/// What differs from the program as it is shipped.
pub(crate) type Variant = variants::Variant<Lists>;

impl World {
    /// Starts a plain cluster and cloud, and the program.
    pub(crate) async fn start(seed: u64, variant: Variant) -> Self {
        let mut world = Self::empty(seed, variant);
        world.begin().await;
        world
    }

    /// Starts a cluster, a cloud and settings chosen by the seed, and the program.
    pub(crate) async fn random(seed: u64, variant: Variant) -> Self {
        let mut world = Self::empty(seed, variant);
        world.addresses =
            Addresses { two: world.dice.random_bool(0.3), v6: world.dice.random_bool(0.3) };
        world.draw_cloud();
        world.draw_classes();
        world.begin().await;
        world
    }

    fn empty(seed: u64, variant: Variant) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        Self {
            api,
            cloud: SimCloud::new(),
            dice: StdRng::seed_from_u64(seed),
            broken: Broken::default(),
            lies: Arc::default(),
            neighbours: Neighbours::default(),
            persons: Persons::default(),
            blind_until: None,
            classes: None,
            wrong: None,
            addresses: Addresses::default(),
            served: Arc::default(),
            read: Mutex::default(),
            variant,
            running: None,
            former: None,
        }
    }

    async fn begin(&mut self) {
        self.add_others();
        for number in 0..NODES {
            self.add_node(number);
        }
        self.restart().await;
    }

    /// Chooses what the provider supports. A variant without a feature uses a cloud with everything.
    fn draw_cloud(&mut self) {
        let mut some = |share| self.dice.random_bool(share);
        let (lists, stores_digest) = (!some(0.12), !some(0.2));
        let (dual_stack, member_ids, nested) = (some(0.3), some(0.3), !some(0.3));
        let (fences, hostnames, member_labels) = (some(0.2), some(0.15), some(0.5));
        let is_variant = self.variant.without.is_some();
        self.cloud.balancers().configure(|settings| {
            settings.traits.lists = lists || is_variant;
            settings.traits.stores_digest = stores_digest || is_variant;
            settings.traits.dual_stack = dual_stack;
            settings.traits.member_ids = member_ids;
            settings.traits.member_labels = member_labels;
            settings.nested = nested;
            // Without lists no program finds a duplicate.
            settings.fences = !settings.traits.lists || fences && !is_variant;
            settings.hostnames = hostnames && !is_variant;
        });
    }

    /// Chooses the classes to serve, unless the variant has its own settings.
    pub(crate) fn draw_classes(&mut self) {
        let number = self.dice.random_range(0..4);
        if self.variant.arguments.is_empty() {
            self.classes = Some(Served { ours: number > 0, classless: number < 3 });
        }
    }

    /// Returns true if the program should serve the class of this Service.
    pub(crate) fn serves(&self, service: &Value) -> bool {
        match (service["spec"]["loadBalancerClass"].as_str(), &self.classes) {
            (None, Some(served)) => served.classless,
            (Some(class), Some(served)) => served.ours && class == OURS,
            (class, None) => class.is_none(),
        }
    }

    /// Returns true if the program has asked for a load balancer for this Service at some time.
    pub(crate) fn was_served(&self, uid: &str) -> bool {
        self.served.lock().contains(uid)
    }

    /// Returns true if the provider has lists.
    pub(crate) fn has_lists(&self) -> bool {
        LoadBalancers::traits(&self.cloud).lists
    }

    /// What belongs to others: load balancers of a person, of another cluster and of this cluster
    /// before it was rebuilt, and a Service that is being deleted by the controller of its class.
    fn add_others(&self) {
        let owner = |name: &str, cluster: &str| Owner {
            cluster: ClusterId { name: name.to_owned(), uid: cluster.to_owned() },
            uid: "1".to_owned(),
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
        };
        let owners = [None, Some(owner("another", "c-2")), Some(owner("kubernetes", "c-0"))];
        for (number, owner) in (0..).zip(owners) {
            let address = Ipv4Addr::new(192, 0, 2, number).into();
            let mut foreign = SimBalancer::foreign(format!("of-others-{number}"), address, 80);
            foreign.owners.extend(owner);
            self.cloud.balancers().add(foreign);
        }
        self.api
            .create(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "other-class", "namespace": "default", "finalizers": [CLEANUP]},
                "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other",
                    "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30090}]},
            }))
            .unwrap();
        self.api.delete("services", OTHER_CLASS).unwrap();
    }

    /// The load balancers of others.
    pub(crate) fn foreign(&self) -> Vec<SimBalancer> {
        let mut all = self.cloud.balancers().all();
        all.retain(|one| !is_ours(one));
        all
    }

    /// The load balancers of this cluster.
    pub(crate) fn ours(&self) -> Vec<SimBalancer> {
        let mut all = self.cloud.balancers().all();
        all.retain(is_ours);
        all
    }

    /// What a controller could write to the Service of another class.
    pub(crate) fn other_class(&self) -> Value {
        let services = self.list("services");
        let is = |one: &&Value| one["metadata"]["name"] == "other-class";
        let service = services.iter().find(is).cloned().unwrap_or_default();
        let metadata = &service["metadata"];
        json!([metadata["finalizers"], metadata["annotations"], service["status"]])
    }

    /// Ends the process, if there is one, without an order, and starts another.
    pub(crate) async fn restart(&mut self) {
        let last = self.stop();
        self.lead_after(last.as_ref()).await;
    }

    /// Starts another process while the last one goes on, until [`World::end_former`].
    pub(crate) async fn overlap(&mut self) {
        let last = self.running.take();
        self.lead_after(last.as_ref().map(|last| &last.context.leadership)).await;
        self.former = last;
    }

    /// Stops the former leader, if it still runs.
    pub(crate) fn end_former(&mut self) {
        self.former = None;
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

    /// Returns the cloud for one process, wrapped so that the rules watch it.
    fn seen_cloud(&self) -> Arc<dyn Cloud> {
        let watched = Watched {
            cloud: self.cloud.clone(),
            api: Arc::clone(&self.api),
            broken: self.broken.clone(),
            served: Arc::clone(&self.served),
            persons: self.persons.clone(),
        };
        let balancers: Arc<dyn LoadBalancers> = match self.variant.without {
            Some(Lists) => Arc::new(Unlisted(watched)),
            None => Arc::new(watched),
        };
        let balancers = Arc::new(Lying { of: balancers, lies: Arc::clone(&self.lies) });
        Arc::new(Layered::new(&self.cloud, Layer::LoadBalancers(balancers)))
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
        let last = self.running.take().filter(|_| !self.variant.forgets && !is_elsewhere);
        last.map(|running| running.context.leadership.clone())
    }

    /// The leader.
    pub(crate) fn running(&self) -> &InProcess<ServiceCcm> {
        self.running.as_ref().unwrap()
    }

    /// The page `/plan`.
    pub(crate) fn plans(&self) -> String {
        self.running.as_ref().unwrap().plans()
    }

    /// The line of a check as on `/readyz?verbose`: `[+]` if it passes.
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
    pub(crate) fn add_fault(&mut self, effect: Effect, on: Operation, lasting: Duration) {
        if on == Operation::ListLoadBalancers {
            self.blind_until = self.blind_until.max(Some(Instant::now() + lasting));
        }
        self.cloud.faults().add(Fault::new(effect).on(on).lasting(lasting));
    }

    /// How long nothing happens now.
    pub(crate) fn seconds(&mut self) -> u64 {
        let longest = if self.dice.random_bool(0.2) { 90 } else { 8 };
        self.dice.random_range(0..longest)
    }

    /// Ends all faults and late writes; a person repairs what needs repair.
    pub(crate) async fn end_faults(&mut self) {
        self.cloud.faults().clear();
        self.api.faults().clear();
        self.api.cut_watches("", true);
        self.end_former();
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
        // It may be there already.
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

    /// All objects of a kind, read once per revision.
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

    /// The load balancers of a Service.
    pub(crate) fn balancers_of(&self, uid: &str) -> Vec<SimBalancer> {
        let mut all = self.cloud.balancers().all();
        let is = |owner: &Owner| owner.uid == uid;
        all.retain(|balancer| balancer.owners.iter().any(is));
        all
    }

    /// The sample of `/metrics` of this name.
    pub(crate) fn metric<N: FromStr + Default>(&self, name: &str) -> N {
        sample(&self.running.as_ref().unwrap().context.metrics, name)
    }
}

impl Persons {
    /// A person removes the finalizer of this Service now.
    pub(crate) fn release(&self, uid: String) {
        self.released.lock().insert(uid, Instant::now());
    }

    /// Returns true if a person has removed the finalizer of this Service.
    pub(crate) fn have_released(&self, uid: &str) -> bool {
        self.released.lock().contains_key(uid)
    }

    /// Returns true if a leader whose watch is silent need not know that yet.
    pub(crate) fn have_just_released(&self, uid: &str) -> bool {
        self.released.lock().get(uid).is_some_and(|at| at.elapsed() < UNSEEN)
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

/// The settings of a variant.
pub(crate) fn settings(variant: Variant) -> Loaded<ServiceCcm> {
    loaded::<ServiceCcm>(&[&[CLUSTER_UID, CONFIRMED], variant.arguments].concat()).unwrap()
}

fn is_ours(balancer: &SimBalancer) -> bool {
    balancer.owners.iter().any(|owner| owner.cluster.uid == CLUSTER)
}
