//! A simulated cluster and cloud, and the controller, which may be restarted.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use ccm_cloud::Owner;
use ccm_kube::{
    client::{ClientConfig, Clients, Unlimited},
    events::{EventMetrics, EventRecorder},
    metrics::RestMetrics,
};
use ccm_runtime::{
    health::Health,
    leadership::{Eligibility, Leadership},
    metrics::Metrics,
    plans::{Mode, Plans},
    program::{Context, Program as _, load},
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

/// The names of the Services and of the nodes.
pub(crate) const SERVICES: usize = 4;
pub(crate) const NODES: usize = 12;
/// A load balancer that a person has made.
pub(crate) const FOREIGN: &str = "lb-of-a-person";

pub(crate) struct World {
    pub(crate) api: Arc<ApiServer>,
    pub(crate) cloud: SimCloud,
    pub(crate) dice: StdRng,
    arguments: Vec<String>,
    running: Option<Running>,
}

/// A process: what it has published, and its end.
struct Running {
    metrics: Metrics,
    settings: watch::Sender<Arc<ServiceSettings>>,
    _end: DropGuard,
}

impl World {
    pub(crate) async fn start(seed: u64, arguments: &[&str]) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        let address = Ipv4Addr::new(192, 0, 2, 200).into();
        cloud.balancers().add(SimBalancer::foreign(FOREIGN, address, 80));
        let mut world = Self {
            api,
            cloud,
            dice: StdRng::seed_from_u64(seed),
            arguments: arguments.iter().map(|&text| text.to_owned()).collect(),
            running: None,
        };
        for number in 0..NODES {
            world.add_node(number);
        }
        world.restart().await;
        world
    }

    /// Ends the process, if there is one, without an order, and starts another.
    pub(crate) async fn restart(&mut self) {
        self.running = None;
        let config = ClientConfig {
            kubeconfig: None,
            master: None,
            user_agent: "service-ccm/test".to_owned(),
            request_timeout: Duration::from_secs(5),
            limiter: Arc::new(Unlimited),
            metrics: Arc::new(RestMetrics::default()),
        };
        let clients = Clients::in_process(self.api.service(), &config).unwrap();
        let mut invocation =
            Invocation::with_arguments(["--cloud-provider=sim", "--cluster-uid=c-1"]);
        invocation.arguments.extend(self.arguments.iter().map(Into::into));
        let settings = load::<ServiceCcm>(&invocation).unwrap();
        let (metrics, token) = (Metrics::new(), CancellationToken::new());
        let (events, writer) =
            EventRecorder::new(clients.events.clone(), "test", EventMetrics::default());
        let own = watch::Sender::new(Arc::clone(&settings.own));
        let context = Context::<ServiceCcm> {
            clients,
            cloud: Arc::new(self.cloud.clone()),
            leadership: Leadership::unconditional(),
            eligibility: Eligibility::default(),
            events,
            plans: Plans::new(Mode::Control, &metrics),
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
        self.running = Some(Running { metrics, settings: own, _end: token.drop_guard() });
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

    /// The samples of the controller and of its queues, to look at.
    pub(crate) fn samples(&self) -> String {
        let text = self.running.as_ref().unwrap().metrics.encode().unwrap();
        let is_of_interest = |line: &&str| {
            let starts = ["ccm_service_", "workqueue_depth", "workqueue_unfinished"];
            starts.iter().any(|start| line.starts_with(start)) && !line.contains("bucket")
        };
        text.lines().filter(is_of_interest).collect::<Vec<_>>().join("\n")
    }

    /// The sample of `/metrics` of this name.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.running.as_ref().unwrap().metrics.encode().unwrap();
        let sample = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        sample.trim().parse().unwrap()
    }
}
