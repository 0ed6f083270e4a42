//! route-ccm: the controller that gives each node the routes of its pod CIDRs.
//!
//! ```text
//! informer --node changed--> pass: plan --calls--> lanes --> cloud
//!                             ^                      |
//!                             +------ answers -------+--> conditions --> API server
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what to change in the route table, and the condition of each node: pure |
//! | [`ipam`] | which blocks of the cluster CIDRs nodes get: pure |
//! | `observe` | the nodes, and which targets were theirs |
//! | `state` | what the leader knows of the route table, and which calls follow |
//! | `controller` | the loop: plans and sends calls; waits for none |
//! | `execute` | the calls to the cloud and their answers |
//! | `execute::conditions` | writes the condition `NetworkUnavailable` |
//! | `execute::page` | the page `/plan` |
//! | `report` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_route_*` and upstream's metric |

mod controller;
mod execute;
pub mod ipam;
mod metrics;
mod observe;
pub mod plan;
mod report;
mod settings;
mod state;

use std::sync::Arc;

use ccm_base::{LogThrottle, clock::Timeline};
use ccm_cloud::{Cloud, CloudError, ClusterId, ErrorKind, Routes};
use ccm_controller::{
    cluster, handover, own_node,
    passes::Passes,
    queue::{QueueMetrics, WorkQueue},
    watch::{self, Watches},
    writer::{self, Writer},
};
use ccm_kube::store::Change;
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    health::{Condition, Scope},
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

pub use settings::RouteSettings;

use crate::{
    controller::Controller,
    metrics::{Look, RouteMetrics},
    observe::Observer,
    plan::Planner,
    report::RouteReports,
    state::State,
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
    /// Whether the table could be listed.
    pub(crate) health: Condition,
    pub(crate) throttle: Arc<Mutex<LogThrottle>>,
    pub(crate) timeline: Timeline,
}

impl Handles {
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
        metrics::collect(metrics, || Look { room: Some(0), ..Look::default() });
        QueueMetrics::new(metrics).specimens(execute::conditions::QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
    }

    fn rights() -> Vec<Right> {
        [watch::rights::<Node>().as_slice(), &[writer::patch_status::<Node>(), cluster::right()]]
            .concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let health = context.health.condition("routes", Scope::Information, "not listed yet");
        health.pass("not listed here: this replica does not lead");
        let given = context.settings.borrow().cluster_uid.clone();
        let timeline = Timeline::begin();
        let handles = Handles {
            cloud: Arc::clone(&context.cloud),
            cluster: cluster::identify(context, &given).await?,
            observer: Arc::new(Observer::new(context)),
            state: Arc::new(Mutex::new(State::new(timeline.now(), Planner::default()))),
            passes: Passes::default(),
            conditions: execute::conditions::queue(&context.metrics),
            reports: Arc::new(RouteReports::new(context.events.clone())),
            plans: context.plans.clone(),
            settings: context.settings.clone(),
            metrics: RouteMetrics::new(&context.metrics),
            health,
            throttle: Arc::default(),
            timeline,
        };
        let (shown, clock) = (Arc::clone(&handles.state), handles.timeline);
        metrics::collect(&context.metrics, move || shown.lock().look(clock.now()));
        let watcher = handles.clone();
        let on_change = move |change: Change<Node>| {
            if let Change::Deleted(node) = &change {
                watcher.reports.forget(&node.name);
                watcher.conditions.remove(&node.name);
            }
            if watcher.observer.changed(&change) {
                watcher.passes.wake();
            }
        };
        Watches::new(context).watch(&handles.observer.store, on_change).await;
        own_node::check(context, &handles.observer.store);
        Ok(Self { handles })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let (handles, tasks, token) = (&self.handles, &context.supervisor, &context.token);
        handles.health.pass("not listed yet");
        let lease = context.leadership.annotations().clone();
        let now = handles.timeline.now();
        *handles.state.lock() = State::new(now, Planner::resume(now, handover::found(&lease)));
        let (jobs, received) = mpsc::channel(JOBS);
        tasks.spawn("calls", execute::run(handles.clone(), received, token.clone()));
        let writer = Writer::new(context, &handles.observer.store);
        if !handles.plans.is_observing() {
            let conditions = execute::conditions::run(handles.clone(), writer, token.clone());
            tasks.spawn("conditions", conditions);
        }
        let controller = Controller::new(handles, jobs, lease);
        let passes = handles.passes.clone();
        tasks.spawn("passes", passes.run(controller, context.settings.clone(), token.clone()));
    }

    async fn drain(&self) {
        let Handles { passes, conditions, state, .. } = &self.handles;
        passes.drain().await;
        while state.lock().planner.has_calls() {
            sleep(DRAIN).await;
        }
        conditions.shut_down();
        conditions.drained().await;
    }
}
