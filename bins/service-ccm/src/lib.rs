//! service-ccm: the controller that gives Services of type LoadBalancer their load balancers.
//!
//! ```text
//! watch, queue, list, poll, timer --translate--> machine --effects--> perform --> cloud, API server
//!                                                   ^                    |
//!                                                   +------ answers -----+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `machine` | everything that this program remembers, and what follows from each event: pure |
//! | [`plan`] | the decisions: the next step for one Service, its members, its status: pure |
//! | `translate` | turns changes of objects, settings and the provider into events |
//! | `perform` | performs the effects that do not need an answer |
//! | `requests` | makes the requests of the others: lanes of calls and writes, lists, polls, deletions |
//! | `report` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_service_*` and upstream's four metrics |

mod machine;
mod metrics;
mod perform;
pub mod plan;
mod report;
mod requests;
mod settings;
mod translate;

use std::sync::Arc;

use ccm_cloud::Capability;
use ccm_controller::{
    cluster, own_node,
    queue::QueueMetrics,
    reader::{self, Reader},
    record::replay::{self, Replay},
    repeat_reports,
    watch::{self, Stores, Watches},
    writer::{self, Writer},
};
use ccm_objects::{Node, Service};
use ccm_runtime::{
    health::Scope,
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
    supervisor::Supervisor,
};

pub use settings::ServiceSettings;

use crate::{
    metrics::ServiceMetrics,
    perform::{QUEUE, SLOW_QUEUE},
    requests::{audit::Audit, lanes::Lanes, orphans::Deletions, poll},
    translate::Translator,
};

/// Replays the records of this program.
pub const RECORDED: &[(&str, Replay)] = &[replay::named_replay::<machine::Machine>()];

/// The program.
pub struct ServiceCcm {
    translator: Arc<Translator>,
    stores: Stores,
}

impl Program for ServiceCcm {
    const IDENTITY: Identity = programs::SERVICE_CCM;
    type Settings = ServiceSettings;

    fn needs(_: &Self::Settings) -> Vec<Need> {
        vec![Need::Required(Capability::LoadBalancers)]
    }

    fn specimens(metrics: &Metrics) {
        ServiceMetrics::new(metrics).specimens();
        repeat_reports::specimens(metrics);
        metrics::collect(metrics, None);
        metrics::collect_not_served(metrics, || [("example.com/class".into(), 1)].into());
        let queues = QueueMetrics::new(metrics);
        queues.specimens(QUEUE);
        queues.specimens(SLOW_QUEUE);
        let watches = watch::metrics(metrics);
        watches.specimens_of::<Service>();
        watches.specimens_of::<Node>();
    }

    fn rights() -> Vec<Right> {
        [
            watch::rights::<Service>().as_slice(),
            &watch::rights::<Node>(),
            &[writer::patch_status::<Service>(), Right::mark("services"), cluster::right()],
            // It is needed before a load balancer without a Service is deleted. The setting is
            // live.
            &[reader::get::<Service>()],
            // An event is stored in the namespace of its Service.
            &["create", "patch"].map(|verb| Right::new(verb, "events")),
        ]
        .concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let given = context.settings.borrow().cluster_uid.clone();
        let cluster = cluster::identify(context, &given).await?;
        let translator = Translator::new(context, cluster);
        show(context, &translator);
        let (services, nodes) = (Arc::clone(&translator), Arc::clone(&translator));
        let settings = Arc::clone(&translator).follow_settings(context.token.clone());
        context.supervisor.spawn("settings", settings);
        translator.begin_to_read();
        let watches = Watches::new(context);
        let (of_services, of_nodes) = tokio::join!(
            watches.watch(&translator.services, move |change| services.service_changed(&change)),
            watches.watch(&translator.nodes, move |change| nodes.node_changed(&change)),
        );
        own_node::check(context, &translator.nodes);
        let stores = Stores::new(context, [of_services, of_nodes]);
        Ok(Self { translator, stores })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let (translator, tasks, token) = (&self.translator, &context.supervisor, &context.token);
        let cluster_name = &translator.performer.cluster.name;
        if cluster_name == "kubernetes" {
            tracing::warn!(
                "--cluster-name is the default, {cluster_name}: clusters that share a cloud project should have different names"
            );
        }
        translator.performer.start_leading();
        let lanes = Lanes::new(translator, Writer::new(context, &translator.services));
        let server = context.clients.server.clone();
        let resolver = Arc::clone(translator).follow_api_server(server, token.clone());
        tasks.spawn("api-server-addresses", resolver);
        let (reader, supervisor) = (Reader::new(context), tasks.clone());
        let (this, token) = (Arc::clone(&self), token.clone());
        tasks.spawn_job("first-plan", async move {
            token.run_until_cancelled(this.begin(lanes, reader, supervisor)).await;
        });
    }

    async fn drain(&self) {
        let performer = &self.translator.performer;
        performer.queue.shut_down();
        performer.slow.shut_down();
        performer.queue.drained().await;
        performer.slow.drained().await;
        performer.wakes.orphans.drain().await;
    }
}

/// Shows what is held and what waits on each scrape and each look at the health.
fn show(context: &Context<ServiceCcm>, translator: &Arc<Translator>) {
    let door = &translator.performer.door;
    metrics::collect(&context.metrics, Some(door));
    let counted = Arc::clone(translator);
    metrics::collect_not_served(&context.metrics, move || {
        let services = counted.services.list();
        counted.performer.door.read(|machine, _| machine.not_served(&services))
    });
    let lines = [
        ("provisioning", machine::Machine::provisioning as fn(&machine::Machine) -> _),
        ("members", machine::Machine::members),
        ("replacements", machine::Machine::replacements),
        ("shown", machine::Machine::shown),
    ];
    for (name, verdict) in lines {
        let door = door.clone();
        let look = move || door.read(|machine, _| verdict(machine));
        context.health.add(name, Scope::Information, look);
    }
    let (explained, of_balancers) = (Arc::clone(translator), door.clone());
    context.explanations.add(programs::SERVICE_CCM.binary, "Service", move |name| {
        let service = explained.services.get(name);
        explained.performer.door.read(|machine, now| machine.explain(name, service.as_deref(), now))
    });
    context.explanations.add(programs::SERVICE_CCM.binary, "LoadBalancer", move |id| {
        of_balancers.read(|machine, now| machine.explain_load_balancer(id, now))
    });
    let shown = Arc::clone(translator);
    context.health.add("classes", Scope::Information, move || {
        let services = shown.services.list();
        shown.performer.door.read(|machine, _| machine.classes(&services))
    });
}

impl ServiceCcm {
    /// Starts the tasks of the leader as soon as the stores are current. With an old store,
    /// service-ccm would remove new nodes from load balancers and undo recent changes of Services.
    async fn begin(self: Arc<Self>, lanes: Arc<Lanes>, reader: Reader<Service>, tasks: Supervisor) {
        self.stores.current().await;
        let (this, token) = (|| Arc::clone(&self.translator), || tasks.token().clone());
        this().take_over();
        this().start_with_nodes();
        tasks.spawn("nodes", this().follow_nodes(token()));
        lanes.start(&tasks);
        this().start_leading();
        tasks.spawn("provider", this().follow_provider(token()));
        tasks.spawn("poll", poll::run(this(), token()));
        tasks.spawn("note", this().follow_note(token()));
        tasks.spawn("approvals", this().follow_approvals(token()));
        let (wakes, settings) = (&self.translator.performer.wakes, &self.translator.settings);
        let audit = wakes.audit.clone().run(Audit(this()), settings.clone(), token());
        tasks.spawn("audit", audit);
        let deletions = Deletions { translator: this(), reader };
        let orphans = wakes.orphans.clone().run(deletions, settings.clone(), token());
        tasks.spawn("orphans", orphans);
    }
}
