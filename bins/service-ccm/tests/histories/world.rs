//! A simulated cluster and cloud, and the controller, which may be restarted.

use std::{
    net::Ipv4Addr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use ccm_cloud::{Cloud, ClusterId, Owner};
use ccm_kube::{
    client::{ClientConfig, Clients, Unlimited},
    events::{EventMetrics, EventRecorder},
    metrics::RestMetrics,
};
use ccm_objects::service_keys::CLEANUP;
use ccm_runtime::{
    health::Health,
    leadership::{Eligibility, Leadership},
    metrics::Metrics,
    plans::{Mode, Plans},
    program::{Context, Loaded, Program as _, load},
    supervisor::Supervisor,
};
use ccm_settings::Invocation;
use ccm_sim::{
    apiserver::{ApiServer, Options},
    cloud::{SimCloud, balancers::SimBalancer},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use service_ccm::{ServiceCcm, ServiceSettings};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    rules::Broken,
    watched::Watched,
    without::{Missing, Without},
};

/// The names of the Services and of the nodes.
pub(crate) const SERVICES: usize = 4;
pub(crate) const NODES: usize = 12;
/// The UID of the cluster.
const CLUSTER: &str = "c-1";
/// The Service of a class that is not served.
const OTHER_CLASS: &str = "default/other-class";

pub(crate) struct World {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) cloud: SimCloud,
    pub(crate) dice: StdRng,
    pub(crate) broken: Broken,
    /// Whether the provider has stopped to offer load balancers.
    pub(crate) withdrawn: Arc<AtomicBool>,
    variant: Variant,
    running: Option<Running>,
}

/// What differs from the program as it is shipped.
#[derive(Clone, Copy, Default)]
pub(crate) struct Variant {
    /// Other settings.
    pub(crate) arguments: &'static [&'static str],
    /// A protection that is taken out.
    pub(crate) without: Option<Without>,
    /// Whether a leader learns nothing from the last one.
    pub(crate) forgets: bool,
}

/// A process: what it has published, what it leaves to the next one, and its end.
struct Running {
    metrics: Metrics,
    plans: Plans,
    settings: watch::Sender<Arc<ServiceSettings>>,
    leadership: Leadership,
    _end: DropGuard,
}

impl World {
    pub(crate) async fn start(seed: u64, variant: Variant) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let mut world = Self {
            api,
            cloud: SimCloud::new(),
            dice: StdRng::seed_from_u64(seed),
            broken: Broken::default(),
            withdrawn: Arc::default(),
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
        let last = self.running.take().map(|running| running.leadership);
        let leadership = match last.filter(|_| !self.variant.forgets) {
            Some(last) => Leadership::unconditional().after(&last),
            None => Leadership::unconditional(),
        };
        let config = ClientConfig {
            kubeconfig: None,
            master: None,
            user_agent: "service-ccm/test".to_owned(),
            request_timeout: Duration::from_secs(5),
            limiter: Arc::new(Unlimited),
            metrics: Arc::new(RestMetrics::default()),
        };
        let clients = Clients::in_process(self.api.service(), &config).unwrap();
        let settings = settings(self.variant);
        let (metrics, token) = (Metrics::new(), CancellationToken::new());
        let (events, writer) =
            EventRecorder::new(clients.events.clone(), "test", EventMetrics::default());
        let own = watch::Sender::new(Arc::clone(&settings.own));
        let plans = Plans::new(Mode::Control, &metrics);
        let watched = Watched {
            cloud: self.cloud.clone(),
            api: Arc::clone(&self.api),
            broken: self.broken.clone(),
            withdrawn: Arc::clone(&self.withdrawn),
        };
        let cloud: Arc<dyn Cloud> = match self.variant.without {
            Some(without) => Arc::new(Missing::new(without, watched)),
            None => Arc::new(watched),
        };
        let context = Context::<ServiceCcm> {
            clients,
            cloud,
            leadership: leadership.clone(),
            eligibility: Eligibility::default(),
            events,
            plans: plans.clone(),
            settings: own.subscribe(),
            common: watch::Sender::new(Arc::clone(&settings.common)).subscribe(),
            metrics: metrics.clone(),
            supervisor: Supervisor::new(token.clone()),
            health: Health::new(),
            token: token.clone(),
        };
        context.supervisor.spawn("events", writer.run(token.clone()));
        let program = Arc::new(ServiceCcm::prepare(&context).await.unwrap());
        program.lead(&context);
        let end = token.drop_guard();
        self.running = Some(Running { metrics, plans, settings: own, leadership, _end: end });
    }

    /// Ends the process without an order.
    pub(crate) fn stop(&mut self) {
        self.running = None;
    }

    /// The page `/plan`.
    pub(crate) fn plans(&self) -> String {
        self.running.as_ref().unwrap().plans.text(None)
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

    /// A sample of `/metrics` that counts something.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.metric(name).to_string().parse().unwrap()
    }

    /// The sample of `/metrics` of this name.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.running.as_ref().unwrap().metrics.encode().unwrap();
        let sample = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        sample.trim().parse().unwrap()
    }
}

/// The settings of a variant.
pub(crate) fn settings(variant: Variant) -> Loaded<ServiceCcm> {
    let mut invocation =
        Invocation::with_arguments(["--cloud-provider=sim", &format!("--cluster-uid={CLUSTER}")]);
    invocation.arguments.extend(variant.arguments.iter().map(Into::into));
    load::<ServiceCcm>(&invocation).unwrap()
}

fn is_ours(balancer: &SimBalancer) -> bool {
    balancer.owners.iter().any(|owner| owner.cluster.uid == CLUSTER)
}
