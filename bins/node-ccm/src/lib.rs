//! node-ccm: the controller that makes new nodes schedulable and keeps them true to
//! their instances.
//!
//! ```text
//! informer --node changed--> queue --batch--> lookups --answer--> writers --> API server
//!                              ^                 |  one call       plan, then execute
//!                              |                 v
//!                           refresh --list--> inventory
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what to do about one node: pure |
//! | `observe` | from the informer's node to the plan's plain values |
//! | `lookups` | first stage: batches, one call to the cloud each |
//! | `writers` | second stage: plan and write, many nodes at a time |
//! | `execute` | the steps of a plan as requests |
//! | `pace` | when a node that could not be finished is looked at again |
//! | `refresh` | one list of the fleet per period; work for what differs |
//! | `ledger` | what is remembered of a node: state, last answer, what was told |
//! | `tell` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_node_*` and upstream's histograms |
//! | `waiting` | the age of the node that has waited longest |

mod controller;
mod execute;
mod ledger;
mod lookups;
mod metrics;
mod observe;
mod pace;
pub mod plan;
mod refresh;
mod settings;
mod tell;
mod waiting;
mod writers;

use std::sync::{Arc, atomic::AtomicBool};

use ccm_cloud::Fleet;
use ccm_controller::{
    inventory::Inventory,
    queue::{QueueMetrics, WorkQueue},
    watch::{self, Watches},
    writer::{self, Writer},
};
use ccm_kube::store::Store;
use ccm_objects::Node;
use ccm_runtime::{
    health::{Condition, Scope},
    metrics::Metrics,
    program::{Context, Failure, Identity, Program},
    programs,
    rights::Right,
    settings::{Problems, RawSettings, SettingDoc},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

pub use settings::NodeSettings;

use crate::{
    controller::Controller, ledger::Ledger, lookups::Outlets, metrics::NodeMetrics,
    waiting::OldestWaiting, writers::Work,
};

/// How many answered nodes may wait for a writer; more than the writers hold, so that
/// none of them waits for the next one.
const OUTLET: usize = 64;

/// The program.
pub struct NodeCcm {
    controller: Arc<Controller>,
    fleet: Condition,
}

impl Program for NodeCcm {
    const IDENTITY: Identity = programs::NODE_CCM;
    type Settings = NodeSettings;

    fn documentation() -> &'static [SettingDoc] {
        settings::TABLE
    }

    fn settings(layers: &RawSettings, problems: &mut Problems) -> Option<NodeSettings> {
        settings::settings(layers, problems)
    }

    fn specimens(metrics: &Metrics) {
        NodeMetrics::new(metrics).specimens();
        waiting::specimen(metrics);
        QueueMetrics::new(metrics).specimens(controller::QUEUE);
        watch::metrics(metrics).specimens::<Node>();
        let inventory = Inventory::new();
        inventory.register(metrics);
        // Its age is not there before the first list.
        inventory.apply(Fleet::default(), Instant::now());
    }

    fn rights() -> Vec<Right> {
        [watch::rights::<Node>(), [writer::patch::<Node>(), writer::patch_status::<Node>()]]
            .concat()
    }

    async fn prepare(context: Context<Self>) -> Result<Self, Failure> {
        let fleet = context.health.condition(
            "fleet",
            Scope::Information,
            "not listed yet; only the leader lists it",
        );
        let controller = Arc::new(controller(&context));
        context.metrics.collect(OldestWaiting(Arc::clone(&controller)));
        let listener = Arc::clone(&controller);
        let watches = Watches::new(&context);
        watches.watch(&controller.store, move |change| listener.changed(&change)).await;
        Ok(Self { controller, fleet })
    }

    fn lead(self: Arc<Self>, context: Context<Self>) {
        let (new, new_work) = mpsc::channel::<Work>(OUTLET);
        let (settled, settled_work) = mpsc::channel::<Work>(OUTLET);
        let outlets = Outlets { new, settled };
        let controller = || Arc::clone(&self.controller);
        let token = || context.token.clone();
        let syncs = |controller: &Controller| controller.settings().concurrent_node_syncs;
        let updates =
            |controller: &Controller| controller.settings().concurrent_node_status_updates;
        context
            .supervisor
            .spawn("new-nodes", writers::pool(controller(), new_work, syncs, token()));
        context
            .supervisor
            .spawn("settled-nodes", writers::pool(controller(), settled_work, updates, token()));
        context.supervisor.spawn("lookups", lookups::run(controller(), outlets, token()));
        self.controller.take_up();
        context
            .supervisor
            .spawn("refresh", refresh::run(controller(), self.fleet.clone(), token()));
    }

    async fn drain(&self) {
        self.controller.queue.shut_down();
        // A lookup in flight is not worth the wait: the next leader asks again.
        self.controller.closing.cancel();
        self.controller.queue.drained().await;
    }
}

fn controller(context: &Context<NodeCcm>) -> Controller {
    let metrics = NodeMetrics::new(&context.metrics);
    let inventory = Inventory::new();
    inventory.register(&context.metrics);
    let store = Store::new();
    Controller {
        writer: Writer::new(context, &store),
        store,
        cloud: Arc::clone(&context.cloud),
        events: context.events.clone(),
        settings: context.settings.clone(),
        queue: WorkQueue::new(
            controller::QUEUE,
            controller::queue_config(),
            &QueueMetrics::new(&context.metrics),
        ),
        inventory,
        ledger: Ledger::new(metrics.clone()),
        metrics,
        leads: AtomicBool::new(false),
        closing: CancellationToken::new(),
    }
}
