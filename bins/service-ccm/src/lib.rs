//! service-ccm: the controller that gives Services of type LoadBalancer their load balancers.
//!
//! ```text
//! informer -> intake --Service changed--> queue --batch--> lanes: plan, execute --> cloud, API server
//! informer -> nodes  --set of nodes-------^ ^ ^
//!                                           | |
//!            poll: what the cloud works on -+ +- audit: list of this cluster's load balancers
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | the next step for one Service: pure |
//! | `observe::intake` | receives changes of Services, queues those that need work |
//! | `observe::nodes` | collects changes of nodes into sets that all load balancers get |
//! | `machine` | the memory of load balancers, and the events that change it: pure |
//! | `observe::balancers` | shares that memory between tasks, and counts its entries |
//! | `observe::poll` | polls all load balancers on which the cloud works by one list |
//! | `observe::reading`, `observe::selectors` | what is kept of Services; by which labels they select members |
//! | `observe::shown` | the addresses that the cluster itself uses, which no load balancer has |
//! | `observe::rooms` | the Services of each namespace, and which one comes next if it has a limit |
//! | `observe::unclaimed` | Services whose finalizer no known controller removes |
//! | `observe::lease` | which members have left, for the next leader; approvals of many Services |
//! | `observe::losses` | sees which load balancers are gone or have failed |
//! | `observe::audit` | compares the cluster's load balancers with the Services |
//! | `observe::adoptable` | what other controllers have made for the Services |
//! | `observe` | what all parts share; gathers the plan's view of one Service |
//! | `execute` | lanes: each takes a batch and takes its Services step by step |
//! | `execute::calls` | one call to the cloud per batch and kind |
//! | `execute::answers` | what follows from each answer, and when a failed call is repeated |
//! | `execute::previews` | what the cloud would change, for observers and adoptions |
//! | `execute::orphans` | deletes load balancers without a Service |
//! | `execute::writes` | writes to Services |
//! | `execute::page` | the page `/plan` |
//! | `report` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_service_*` and upstream's four metrics |

mod execute;
mod machine;
mod metrics;
mod observe;
pub mod plan;
mod report;
mod settings;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use ccm_cloud::Capability;
use ccm_controller::{
    cluster, own_node,
    queue::QueueMetrics,
    reader::{self, Reader},
    repeat_reports,
    watch::{self, Stores, Watches},
    writer::{self, Writer},
};
use ccm_objects::{Node, Service};
use ccm_runtime::{
    health::{Condition, Scope, Verdict},
    leadership::LeaseAnnotations,
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
    supervisor::Supervisor,
};

pub use settings::ServiceSettings;

use crate::{
    execute::{Lanes, orphans::Deletions},
    metrics::ServiceMetrics,
    observe::{
        Handles, QUEUE, SLOW_QUEUE, audit::Audit, intake::Intake, lease, nodes::Nodes, poll,
    },
    plan::{APPROVED, RELEASE_APPROVED},
};

/// The program.
pub struct ServiceCcm {
    handles: Handles,
    intake: Arc<Intake>,
    nodes: Arc<Nodes>,
    stores: Stores,
    listed: Condition,
    orphans: Condition,
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
        metrics::collect(metrics, HashMap::new, || 0, || 0);
        metrics::collect_held(metrics, || 0, || 0);
        metrics::collect_waiting(metrics, || 0);
        metrics::collect_refused(metrics, BTreeMap::new);
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
            // Before a load balancer without a Service is deleted. The setting is live.
            &[reader::get::<Service>()],
            // An event is stored in the namespace of its Service.
            &["create", "patch"].map(|verb| Right::new(verb, "events")),
        ]
        .concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let listed =
            context.health.condition("load-balancers", Scope::Information, "not listed yet");
        listed.pass("not listed here: this replica does not lead");
        let orphans = context.health.condition("orphans", Scope::Information, "not listed yet");
        orphans.pass("not listed here: this replica does not lead");
        let given = context.settings.borrow().cluster_uid.clone();
        let handles = Handles::new(context, cluster::identify(context, &given).await?);
        let shown = Arc::clone(&handles.balancers);
        context.health.add("provisioning", Scope::Information, move || shown.verdict());
        collect_counts(context, &handles);
        let (counts, shown) = (handles.clone(), handles.clone());
        metrics::collect_not_served(&context.metrics, move || counts.not_served());
        context.health.add("classes", Scope::Information, move || {
            let counts = shown.not_served();
            let line = |(class, count)| format!("{count} of class {class}");
            let lines: Vec<String> = counts.iter().map(line).collect();
            let line = match lines.is_empty() {
                true => "every Service of type LoadBalancer is served".to_owned(),
                false => format!("not served by this program: {}", lines.join(", ")),
            };
            match shown.balancers.releases_held() {
                0 => Verdict::Passed(line),
                held => Verdict::Failed(format!(
                    "{line}; of these, {held} with load balancers, which stay until you serve the class again or approve their deletion with {RELEASE_APPROVED}=yes"
                )),
            }
        });
        let shown = handles.clone();
        context.health.add("members", Scope::Information, move || {
            let line = shown.node_set.borrow().summary();
            match shown.balancers.held() {
                0 => Verdict::Passed(line),
                held => Verdict::Failed(format!(
                    "{line}; {held} members of load balancers stay although their nodes are gone or changed: too many at once; if that is right, approve it with {APPROVED}=yes"
                )),
            }
        });
        let (intake, nodes) = (Arc::new(Intake::new(&handles)), Arc::new(Nodes::new(&handles)));
        let (services, node_changes) = (Arc::clone(&intake), Arc::clone(&nodes));
        handles.begin_to_read();
        let watches = Watches::new(context);
        let (of_services, of_nodes) = tokio::join!(
            watches.watch(&handles.services, move |change| services.changed(&change)),
            watches.watch(&handles.nodes, move |change| node_changes.changed(&change)),
        );
        own_node::check(context, &handles.nodes);
        let stores = Stores::new(context, [of_services, of_nodes]);
        Ok(Self { handles, intake, nodes, stores, listed, orphans })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let (handles, tasks, token) = (&self.handles, &context.supervisor, &context.token);
        let cluster_name = &handles.cluster.name;
        if cluster_name == "kubernetes" {
            tracing::warn!(
                "--cluster-name is the default, {cluster_name}: clusters that share a cloud project should have names of their own"
            );
        }
        self.listed.pass("not listed yet");
        let lease = context.leadership.annotations().clone();
        let lanes = Lanes::new(handles, Writer::new(context, &handles.services), lease.clone());
        let server = context.clients.server.clone();
        let resolver = handles.clone().follow_api_server(server, token.clone());
        tasks.spawn("api-server-addresses", resolver);
        let term = Term { lanes, reader: Reader::new(context), lease, tasks: tasks.clone() };
        let (this, token) = (Arc::clone(&self), token.clone());
        tasks.spawn_job("first-plan", async move {
            token.run_until_cancelled(this.begin(term)).await;
        });
    }

    async fn drain(&self) {
        let Handles { queue, slow, deletions, .. } = &self.handles;
        queue.shut_down();
        slow.shut_down();
        queue.drained().await;
        slow.drained().await;
        deletions.drain().await;
    }
}

/// Computes what is held and what waits on each scrape and each look at the health.
fn collect_counts(context: &Context<ServiceCcm>, handles: &Handles) {
    let (counted, held) = (Arc::clone(&handles.balancers), Arc::clone(&handles.balancers));
    let (unclaimed, timeline) = (Arc::clone(&handles.unclaimed), handles.timeline);
    metrics::collect(
        &context.metrics,
        move || counted.count(),
        move || held.held(),
        move || unclaimed.count(timeline.now()),
    );
    let (releases, lost) = (Arc::clone(&handles.balancers), Arc::clone(&handles.balancers));
    let replacements = Arc::clone(&handles.balancers);
    metrics::collect_held(
        &context.metrics,
        move || releases.releases_held(),
        move || replacements.replacements_held(),
    );
    context.health.add("replacements", Scope::Information, move || lost.replacements());
    let waiting = Arc::clone(&handles.balancers);
    metrics::collect_waiting(&context.metrics, move || waiting.waiting());
    let (refused, shown) = (Arc::clone(&handles.balancers), Arc::clone(&handles.balancers));
    metrics::collect_refused(&context.metrics, move || refused.refused());
    context.health.add("shown", Scope::Information, move || shown.shown());
}

/// The inputs of the tasks that run while this replica leads.
struct Term {
    lanes: Arc<Lanes>,
    reader: Reader<Service>,
    lease: LeaseAnnotations,
    tasks: Supervisor,
}

impl ServiceCcm {
    /// Starts the tasks of the leader as soon as the stores are current. With an old store,
    /// service-ccm would remove new nodes from load balancers and undo recent changes of Services.
    async fn begin(self: Arc<Self>, term: Term) {
        self.stores.current().await;
        let (handles, Term { lanes, reader, lease, tasks }) = (&self.handles, term);
        let (token, settings) = (tasks.token().clone(), handles.settings.clone());
        lease::take_over(handles, &lease);
        self.nodes.start_leading();
        tasks.spawn("nodes", Arc::clone(&self.nodes).run(token.clone()));
        lanes.start(&tasks);
        self.intake.start_leading();
        tasks.spawn("settings", Arc::clone(&self.intake).follow_settings(token.clone()));
        tasks.spawn("provider", handles.clone().follow_provider(token.clone()));
        tasks.spawn("poll", poll::run(handles.clone(), token.clone()));
        tasks.spawn("lease", lease::run(handles.clone(), lease.clone(), token.clone()));
        let audit = Audit::new(handles, self.listed.clone());
        tasks.spawn("audit", handles.audit.clone().run(audit, settings.clone(), token.clone()));
        let deletions = Deletions::new(handles, reader, lease.clone(), self.orphans.clone());
        let passes = handles.deletions.clone().run(deletions, settings, token);
        tasks.spawn("orphans", passes);
    }
}
