//! route-ccm: the controller that gives each node the routes of its pod CIDRs.
//!
//! ```text
//! informer --node changed--> pass: plan --calls--> lanes --> cloud
//!     |                       ^  ^                   |
//!     |                       |  +---- answers ------+--> conditions --> API server
//!     +--> cidrs: reserve, PATCH --> API server
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what to change in the route table, and the condition of each node: pure |
//! | `cidrs` | node IPAM: gives nodes what the allocator says |
//! | [`ipam`] | which blocks of the cluster CIDRs nodes get: pure |
//! | `observe` | the nodes, and which targets were theirs |
//! | `observe::state` | what the leader knows of the route table, and which calls follow |
//! | `controller` | the loop: plans and sends calls; waits for none |
//! | `execute` | the calls to the cloud and their answers |
//! | `execute::conditions` | writes the condition `NetworkUnavailable` |
//! | `execute::page` | the page `/plan` |
//! | `left_over` | names conditions that an earlier controller has left |
//! | `lease` | what a leader leaves to the next one |
//! | `report` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_route_*` and upstream's metric |

mod controller;
mod execute;
mod lease;
mod left_over;
mod metrics;
mod networks;
mod node_ipam;
mod observe;
mod report;
mod routes;
mod settings;

use std::sync::Arc;

use ccm_base::{
    LogThrottle,
    clock::{self, Timeline},
};
use ccm_cloud::{Cloud, CloudError, ClusterId, ErrorKind, Routes};
use ccm_controller::{
    cluster, own_node,
    passes::Passes,
    queue::{Priority, QueueMetrics, WorkQueue},
    repeat_reports::{self, RepeatMetrics, Written},
    watch::{self, Stores, Watches},
    writer::{self, Writer},
};
use ccm_kube::store::Change;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    health::{Condition, Scope},
    leadership::LeaseAnnotations,
    metrics::Metrics,
    plans::Plans,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
};
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{Duration, sleep},
};

pub use self::{node_ipam::ipam, routes::plan, settings::RouteSettings};

use crate::{
    controller::Controller,
    lease::Handover,
    metrics::{Look, RouteMetrics},
    node_ipam::{Common, NodeIpam, Term},
    observe::{Observer, state::State},
    report::RouteReports,
    routes::plan::{Planner, condition::NETWORK_UNAVAILABLE},
};

/// How many calls may wait for a lane.
const JOBS: usize = 1024;
/// How often the drain looks whether all calls have ended.
const DRAIN: Duration = Duration::from_millis(50);

/// The shared inputs of the controller's parts; each part takes the ones that it needs.
#[derive(Clone)]
pub(crate) struct Handles {
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) cluster: ClusterId,
    /// Whether nodes get routes.
    pub(crate) has_routes: bool,
    /// Gives nodes their pod CIDRs, if this program does.
    pub(crate) cidrs: Option<Arc<NodeIpam>>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) state: Arc<Mutex<State>>,
    /// Wakes the loop.
    pub(crate) passes: Passes,
    /// The nodes whose condition may have to be written.
    pub(crate) conditions: WorkQueue<Name>,
    pub(crate) reports: Arc<RouteReports>,
    pub(crate) plans: Plans,
    pub(crate) settings: tokio::sync::watch::Receiver<Arc<RouteSettings>>,
    pub(crate) metrics: RouteMetrics,
    pub(crate) written: Written,
    /// What this leader leaves to the next one.
    pub(crate) lease: LeaseAnnotations,
    /// Whether the table could be listed.
    pub(crate) health: Condition,
    /// The line of `/readyz` about changes of routes that route-ccm holds.
    pub(crate) brake: Condition,
    /// The one about conditions that an earlier controller has left.
    pub(crate) left_over: Condition,
    pub(crate) throttle: Arc<Mutex<LogThrottle>>,
    pub(crate) timeline: Timeline,
}

impl Handles {
    async fn new(context: &Context<RouteCcm>, settings: &RouteSettings) -> Result<Self, Failure> {
        let health = context.health.condition("routes", Scope::Information, "not listed yet");
        let brake = context.health.condition("brake", Scope::Information, "not needed yet");
        brake.pass("not needed yet");
        let is_offered = !matches!(context.cloud.routes(), Ok(None));
        let has_routes = settings.configure_cloud_routes && is_offered;
        let cluster = match has_routes {
            true => cluster::identify(context, &settings.cluster_uid).await?,
            false => ClusterId { name: String::new(), uid: String::new() },
        };
        health.pass(match (has_routes, settings.configure_cloud_routes) {
            (true, _) => "not listed here: this replica does not lead".to_owned(),
            (false, true) => format!("none: the provider {} offers none", context.cloud.name()),
            (false, false) => "none: --configure-cloud-routes=false".to_owned(),
        });
        let (observer, passes) = (Arc::new(Observer::new(context)), Passes::default());
        let queues = QueueMetrics::new(&context.metrics);
        let conditions = execute::conditions::queue(&queues);
        let reports = Arc::new(RouteReports::new(context));
        let timeline = Timeline::begin();
        let written =
            Written::new(&RepeatMetrics::beginning(&context.metrics, "Node", "NetworkUnavailable"));
        let cidrs = settings.ipam().map(|config| {
            let (told, woken) = (Arc::clone(&observer), passes.clone());
            let assigned = move |node: &Arc<Node>| {
                told.assigned(node);
                woken.wake();
            };
            let common = Common {
                store: observer.store.clone(),
                conditions: conditions.clone(),
                queues,
                assigned: has_routes.then(|| Box::new(assigned) as _),
            };
            NodeIpam::new(context, config, common)
        });
        Ok(Self {
            cloud: Arc::clone(&context.cloud),
            cluster,
            has_routes,
            cidrs,
            observer,
            state: Arc::new(Mutex::new(State::new(
                timeline.now(),
                clock::wall().into(),
                Planner::default(),
                None,
            ))),
            passes,
            conditions,
            reports,
            plans: context.plans.clone(),
            settings: context.settings.clone(),
            metrics: RouteMetrics::new(&context.metrics),
            written,
            lease: context.leadership.annotations().clone(),
            health,
            brake,
            left_over: left_over::line(&context.health),
            throttle: Arc::default(),
            timeline,
        })
    }

    /// Handles a change of a node. The informer calls it on every replica; never blocks.
    fn changed(&self, change: &Change<Node>) {
        if let Change::Deleted(node) = change {
            self.reports.forget(&node.name);
            self.conditions.remove(&node.name);
            self.written.forget(&node.name);
        }
        if self.has_routes && self.observer.changed(change) {
            self.passes.wake();
        }
        if let Some(cidrs) = &self.cidrs {
            cidrs.changed(change);
            // Another writer may have set the condition of a node that waits, or that has got its pod CIDRs: no list of
            // routes shows that.
            if let Change::Updated { old, new } = change
                && old.condition(NETWORK_UNAVAILABLE) != new.condition(NETWORK_UNAVAILABLE)
                && !self.plans.is_observing()
            {
                self.conditions.add(Name::clone(&new.name), Priority::Routine);
            }
        }
    }

    /// The provider's routes.
    ///
    /// # Errors
    ///
    /// It is not known yet whether the cloud offers them, or it has stopped to offer them.
    pub(crate) fn routes(&self) -> Result<Arc<dyn Routes>, CloudError> {
        self.cloud.routes()?.ok_or_else(|| {
            CloudError::new(ErrorKind::Unsupported, "the cloud does not offer routes")
        })
    }
}

/// The program.
pub struct RouteCcm {
    handles: Handles,
    stores: Stores,
}

impl Program for RouteCcm {
    const IDENTITY: Identity = programs::ROUTE_CCM;
    type Settings = RouteSettings;

    fn needs(settings: &Self::Settings) -> Vec<Need> {
        settings.needs()
    }

    fn idle(settings: &Self::Settings) -> Option<String> {
        settings.idle()
    }

    fn specimens(metrics: &Metrics) {
        RouteMetrics::new(metrics).specimens();
        repeat_reports::specimens(metrics);
        metrics::collect(metrics, || Look { room: Some(0), ..Look::default() });
        node_ipam::metrics::specimens(metrics);
        let queues = QueueMetrics::new(metrics);
        queues.specimens(execute::conditions::QUEUE);
        queues.specimens(node_ipam::QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
    }

    fn rights() -> Vec<Right> {
        // The node itself for its pod CIDRs, its status for the condition.
        let writes = [writer::patch::<Node>(), writer::patch_status::<Node>()];
        [watch::rights::<Node>().as_slice(), &writes, &[cluster::right()]].concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let settings = context.settings.borrow().clone();
        let handles = Handles::new(context, &settings).await?;
        let (shown, clock) = (Arc::clone(&handles.state), handles.timeline);
        metrics::collect(&context.metrics, move || shown.lock().look(clock.now()));
        let watcher = handles.clone();
        let on_change = move |change| watcher.changed(&change);
        let freshness = Watches::new(context).watch(&handles.observer.store, on_change).await;
        own_node::check(context, &handles.observer.store);
        let stores = Stores::new(context, [freshness]);
        Ok(Self { handles, stores })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let (handles, tasks, token) = (&self.handles, &context.supervisor, &context.token);
        let lease = context.leadership.annotations().clone();
        let (handover, left) = Handover::take_over(&lease);
        let handover = Arc::new(handover);
        let writer = || Writer::new(context, &handles.observer.store);
        if !handles.plans.is_observing() {
            let conditions = execute::conditions::run(handles.clone(), writer(), token.clone());
            tasks.spawn("conditions", conditions);
        }
        let look = left_over::run(handles.clone(), self.stores.clone(), token.clone());
        tasks.spawn("left-over-conditions", look);
        let now = handles.timeline.now();
        let blocks = context.settings.borrow().ipam().map(|config| {
            let sizes = config.sizes(left.sizes, clock::wall().into());
            (config.with_sizes(sizes), sizes)
        });
        if let (Some(cidrs), Some((_, sizes))) = (&handles.cidrs, &blocks) {
            if !handles.plans.is_observing() {
                handover.change(|left| left.sizes = Some(*sizes));
            }
            let term = Term {
                stores: self.stores.clone(),
                held: left.held,
                sizes: *sizes,
                leave: {
                    let handover = Arc::clone(&handover);
                    Box::new(move |held| handover.change(|left| left.held = held))
                },
                writer: (!handles.plans.is_observing()).then(writer),
            };
            cidrs.start(term, tasks);
        }
        if !handles.has_routes {
            return;
        }
        handles.health.pass("not listed yet");
        *handles.state.lock() = State::new(
            now,
            clock::wall().into(),
            Planner::resume(now, left.deleted, left.networks),
            blocks.map(|(config, _)| config),
        );
        let (jobs, received) = mpsc::channel(JOBS);
        tasks.spawn("calls", execute::run(handles.clone(), received, token.clone()));
        let controller = Controller::new(handles, jobs, &lease, handover);
        let passes = handles.passes.clone();
        let passes = passes.run(controller, context.settings.clone(), token.clone());
        // An old store does not have the newest nodes: route-ccm would delete their routes.
        tasks.spawn("passes", self.stores.clone().before(passes, token.clone()));
    }

    async fn drain(&self) {
        let Handles { passes, conditions, state, cidrs, .. } = &self.handles;
        if let Some(cidrs) = cidrs {
            cidrs.drain().await;
        }
        passes.drain().await;
        while !state.lock().planner.in_flight().is_empty() {
            sleep(DRAIN).await;
        }
        conditions.shut_down();
        conditions.drained().await;
    }
}
