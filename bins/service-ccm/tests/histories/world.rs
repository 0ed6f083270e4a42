//! A simulated cluster and cloud, and the controller, which may be restarted.

use std::{net::Ipv4Addr, str::FromStr, sync::Arc, time::Duration};

use ccm_cloud::{ClusterId, LoadBalancers, Owner};
use ccm_objects::service_keys::CLEANUP;
use ccm_runtime::{leadership::Leadership, metrics::Metrics, program::Loaded};
use ccm_sim::{
    apiserver::{ApiServer, Options},
    cloud::{SimCloud, balancers::SimBalancer},
};
use ccm_tests::{
    in_process::{InProcess, loaded, sample},
    variants::{self, Layer, Layered},
};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use service_ccm::{ServiceCcm, ServiceSettings};
use tokio::time::sleep;

use crate::{
    lies::{Lies, Lying},
    rules::Broken,
    watched::Watched,
    without::{Missing, Without},
};

/// The names of the Services and of the nodes.
pub(crate) const SERVICES: usize = 4;
pub(crate) const NODES: usize = 12;
/// The UID of the cluster.
const CLUSTER: &str = "c-1";
const CLUSTER_UID: &str = "--cluster-uid=c-1";
/// The Service of a class that is not served.
const OTHER_CLASS: &str = "default/other-class";

pub(crate) struct World {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) cloud: SimCloud,
    pub(crate) dice: StdRng,
    pub(crate) broken: Broken,
    /// What is wrong with the cloud as the program reaches it.
    pub(crate) lies: Arc<Mutex<Lies>>,
    variant: Variant,
    running: Option<InProcess<ServiceCcm>>,
}

/// A process that does not lead, and its program.
pub(crate) type Standby = (InProcess<ServiceCcm>, Arc<ServiceCcm>);

/// What differs from the program as it is shipped.
pub(crate) type Variant = variants::Variant<Without>;

impl World {
    pub(crate) async fn start(seed: u64, variant: Variant) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let mut world = Self {
            api,
            cloud: SimCloud::new(),
            dice: StdRng::seed_from_u64(seed),
            broken: Broken::default(),
            lies: Arc::default(),
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
        let service = self.api.get("services", OTHER_CLASS).unwrap_or_default();
        let metadata = &service["metadata"];
        json!([metadata["finalizers"], metadata["annotations"], service["status"]])
    }

    /// Ends the process, if there is one, without an order, and starts another.
    pub(crate) async fn restart(&mut self) {
        let last = self.stop();
        let (settings, metrics) = (settings(self.variant), Metrics::new());
        let leading =
            InProcess::leading(&self.api, self.seen_cloud(), &settings, last.as_ref(), metrics);
        self.running = Some(leading.await.unwrap());
    }

    /// Starts a process beside the one that leads, which does not lead yet.
    pub(crate) async fn stand_by(&self) -> Standby {
        let (settings, metrics) = (settings(self.variant), Metrics::new());
        let standby = InProcess::standing_by(&self.api, self.seen_cloud(), &settings, metrics);
        standby.await.unwrap()
    }

    /// Ends the process that leads, without an order, and lets this one lead.
    pub(crate) fn take_over(&mut self, (mut standby, program): Standby) {
        let last = self.stop();
        standby.take_over(program, last.as_ref());
        self.running = Some(standby);
    }

    /// The cloud as the rules watch it, for one process.
    fn seen_cloud(&self) -> Arc<Layered> {
        let watched = Watched {
            cloud: self.cloud.clone(),
            api: Arc::clone(&self.api),
            broken: self.broken.clone(),
        };
        let balancers: Arc<dyn LoadBalancers> = match self.variant.without {
            Some(without) => Arc::new(Missing::new(without, watched)),
            None => Arc::new(watched),
        };
        let balancers = Arc::new(Lying { of: balancers, lies: Arc::clone(&self.lies) });
        Arc::new(Layered::new(&self.cloud, Layer::LoadBalancers(balancers)))
    }

    /// Ends the process without an order. Returns what it leaves.
    pub(crate) fn stop(&mut self) -> Option<Leadership> {
        let last = self.running.take().filter(|_| !self.variant.forgets);
        last.map(|running| running.context.leadership.clone())
    }

    /// The page `/plan`.
    pub(crate) fn plans(&self) -> String {
        self.running.as_ref().unwrap().plans()
    }

    /// The line of a check, as `/readyz?verbose` has it: `[+]` if it passes.
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

    /// How long nothing happens now.
    pub(crate) fn seconds(&mut self) -> u64 {
        let longest = if self.dice.random_bool(0.2) { 90 } else { 8 };
        self.dice.random_range(0..longest)
    }

    /// Ends all faults, late writes included.
    pub(crate) async fn end_faults(&mut self) {
        self.cloud.faults().clear();
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
            "status": {"addresses": [{"type": "InternalIP", "address": format!("10.0.0.{}", number + 1)}]},
        });
        // It may be there already.
        self.api.create(node).ok();
    }

    pub(crate) fn service_key(number: usize) -> String {
        format!("default/web-{number}")
    }

    pub(crate) fn service(&self, number: usize) -> Option<Value> {
        self.api.get("services", &Self::service_key(number))
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

/// The settings of a variant.
pub(crate) fn settings(variant: Variant) -> Loaded<ServiceCcm> {
    loaded::<ServiceCcm>(&[&[CLUSTER_UID], variant.arguments].concat()).unwrap()
}

fn is_ours(balancer: &SimBalancer) -> bool {
    balancer.owners.iter().any(|owner| owner.cluster.uid == CLUSTER)
}
