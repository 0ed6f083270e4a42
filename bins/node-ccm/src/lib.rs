//! node-ccm: the controller that initialises new nodes and keeps them in sync with their
//! instances.
//!
//! ```text
//! informer -> intake --node changed--> queue --batch--> lookups --answer--> writers --> API server
//!                                        ^                 |  one call       plan, then execute
//!                                        |                 v
//!                                     refresh -lookup-> inventory
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | the steps for one node, and its retry interval: pure |
//! | `observe::intake` | receives node events, queues the nodes that need work |
//! | `observe::lookups` | first stage: which nodes of the queue are looked up, one cloud call per batch |
//! | `observe::brake` | holds changes of too many Ready nodes |
//! | `observe::census` | counts and reports nodes that no write can mend |
//! | `observe::refresh` | looks up all nodes once per period, queues those that differ |
//! | `observe::waiting` | metric: age of the oldest uninitialised node |
//! | `execute::writers` | second stage: plans and writes, many nodes concurrently |
//! | `execute` | sends one API request per step of a plan |
//! | `report` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_node_*` and upstream's histograms |

mod execute;
mod metrics;
mod observe;
pub mod plan;
mod report;
mod settings;

use std::sync::Arc;

use ccm_cloud::Capability;
use ccm_controller::{
    guard, inventory, left_over, own_node,
    passes::Passes,
    queue::QueueMetrics,
    repeat_reports,
    watch::{self, Stores, Watches},
    writer::{self, Writer},
};
use ccm_objects::Node;
use ccm_runtime::{
    health::{Condition, Scope},
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
};
use tokio_util::sync::CancellationToken;

pub use settings::NodeSettings;

use crate::{
    execute::writers::Writers,
    metrics::NodeMetrics,
    observe::{Handles, QUEUE, intake::Intake, lookups, refresh::Refresh, waiting},
};

/// The program.
pub struct NodeCcm {
    handles: Handles,
    intake: Arc<Intake>,
    fleet: Condition,
    stores: Stores,
    /// Cancelled by the drain: pending cloud calls are dropped.
    closing: CancellationToken,
    left_over: Arc<left_over::Survey>,
}

impl Program for NodeCcm {
    const IDENTITY: Identity = programs::NODE_CCM;
    type Settings = NodeSettings;

    fn needs(_: &Self::Settings) -> Vec<Need> {
        vec![Need::Required(Capability::Instances)]
    }

    fn specimens(metrics: &Metrics) {
        NodeMetrics::new(metrics).specimens();
        guard::specimens(metrics);
        repeat_reports::specimens(metrics);
        waiting::specimen(metrics);
        QueueMetrics::new(metrics).specimens(QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
        inventory::specimens(metrics);
        left_over::specimens(metrics);
    }

    fn rights() -> Vec<Right> {
        let writes =
            [writer::patch::<Node>(), writer::patch_status::<Node>(), Right::mark("nodes")];
        [watch::rights::<Node>().as_slice(), &writes].concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let fleet = context.health.condition("fleet", Scope::Information, "not looked up yet");
        fleet.pass("not looked up here: this replica does not lead");
        let handles = Handles::new(context);
        let intake = Arc::new(Intake::new(&handles));
        waiting::collect(&context.metrics, Arc::clone(&intake), handles.clone());
        waiting::show(&context.health, Arc::clone(&intake), handles.clone());
        let listener = Arc::clone(&intake);
        let watches = Watches::new(context);
        let freshness =
            watches.watch(&handles.store, move |change| listener.changed(&change)).await;
        own_node::check(context, &handles.store);
        let left_over =
            Arc::new(left_over::Survey::new(context, ccm_controller::log_here!("node_ccm")));
        let stores = Stores::new(context, [freshness]);
        let closing = CancellationToken::new();
        Ok(Self { handles, intake, fleet, stores, closing, left_over })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let (intake, tasks) = (|| Arc::clone(&self.intake), &context.supervisor);
        let writer = Writer::new(context, &self.handles.store);
        let senders = Writers::new(&self.handles, intake(), writer).start(tasks);
        let (stores, token) = (|| self.stores.clone(), || context.token.clone());
        let closing = self.closing.clone();
        let lookups = lookups::run(self.handles.clone(), intake(), senders, closing, token());
        tasks.spawn("lookups", lookups);
        // An old store shows nodes as they were, and the brake too few or too many of them.
        let selector = intake().follow_selector(token());
        tasks.spawn("selector", stores().before(selector, token()));
        let Handles { guard, store, queue, .. } = self.handles.clone();
        guard.take_over();
        tasks.spawn("approvals", guard.follow_approvals(store, queue, token()));
        self.fleet.pass("not looked up yet");
        let refresh = Refresh::new(&self.handles, intake(), self.fleet.clone());
        let passes = Passes::default().run(refresh, context.settings.clone(), token());
        let intake = intake();
        let refresh = async move {
            intake.start_leading();
            passes.await;
        };
        tasks.spawn("refresh", stores().before(refresh, token()));
        let (handles, survey) = (self.handles.clone(), Arc::clone(&self.left_over));
        let (store, taint) = (handles.store.clone(), move |node: &Node| handles.left_over(node));
        tasks.spawn("left-over", survey.run(store, taint, token()));
    }

    async fn drain(&self) {
        self.handles.queue.shut_down();
        // Pending lookups are cancelled: the next leader repeats them.
        self.closing.cancel();
        self.handles.queue.drained().await;
    }
}
