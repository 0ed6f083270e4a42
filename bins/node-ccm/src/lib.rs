//! node-ccm: the controller that makes new nodes schedulable and keeps them true to
//! their instances.
//!
//! ```text
//! informer -> intake --node changed--> queue --batch--> lookups --answer--> writers --> API server
//!                                        ^                 |  one call       plan, then execute
//!                                        |                 v
//!                                     refresh --list--> inventory
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | what to do about one node, and when to look again: pure |
//! | `observe::intake` | the nodes, whose they are, and which are to be looked at |
//! | `observe::lookups` | first stage: batches, one call to the cloud each |
//! | `observe::refresh` | one list of the fleet per period; work for what differs |
//! | `observe::ledger` | what is remembered of a node: state, last answer |
//! | `observe::waiting` | the age of the node that has waited longest |
//! | `execute::writers` | second stage: plan and write, many nodes at a time |
//! | `execute` | the steps of a plan as requests |
//! | `report` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_node_*` and upstream's histograms |

mod execute;
mod metrics;
mod observe;
pub mod plan;
mod report;
mod settings;

use std::sync::Arc;

use ccm_cloud::{Capability, Fleet};
use ccm_controller::{
    inventory::Inventory,
    passes::Passes,
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
    rights::Right,
    settings::{Problems, RawSettings, SettingDoc},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

pub use settings::NodeSettings;

use crate::{
    execute::{Executor, writers::Writers},
    metrics::NodeMetrics,
    observe::{
        Handles,
        intake::{self, Intake},
        ledger::Ledger,
        lookups::{Lookups, Outlets},
        refresh::Refresh,
        waiting,
    },
    report::NodeReports,
};

/// How many answered nodes may wait for a writer; more than the writers hold, so that
/// none of them waits for the next one.
const OUTLET: usize = 64;

/// The program.
pub struct NodeCcm {
    handles: Handles,
    store: Store<Node>,
    intake: Arc<Intake>,
    fleet: Condition,
    /// Cancelled when no call to the cloud is to be waited for.
    closing: CancellationToken,
}

impl Program for NodeCcm {
    const IDENTITY: Identity = Identity {
        binary: "node-ccm",
        controller: "cloud-node-controller",
        alias: "cloud-node",
        lease: "node-ccm",
        port: 10258,
        event_component: "cloud-node-controller",
        needs: Capability::Instances,
    };
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
        QueueMetrics::new(metrics).specimens(intake::QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
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
        let (handles, store) = (handles(&context), Store::new());
        let intake = Arc::new(Intake::new(&handles, store.clone()));
        waiting::collect(&context.metrics, Arc::clone(&intake), handles.ledger.clone());
        let listener = Arc::clone(&intake);
        Watches::new(&context).watch(&store, move |change| listener.changed(&change)).await;
        Ok(Self { handles, store, intake, fleet, closing: CancellationToken::new() })
    }

    fn lead(self: Arc<Self>, context: Context<Self>) {
        let (intake, handles, token) =
            (|| Arc::clone(&self.intake), &self.handles, || context.token.clone());
        let (new, new_work) = mpsc::channel(OUTLET);
        let (settled, settled_work) = mpsc::channel(OUTLET);
        let executor = Executor::new(
            Writer::new(&context, &self.store),
            handles.metrics.clone(),
            handles.reports.clone(),
        );
        let writers = Writers::new(handles, intake(), executor);
        let syncs = |settings: &NodeSettings| settings.concurrent_node_syncs;
        let updates = |settings: &NodeSettings| settings.concurrent_node_status_updates;
        let spawn = &context.supervisor;
        spawn.spawn("new-nodes", Arc::clone(&writers).pool(new_work, syncs, token()));
        spawn.spawn("settled-nodes", writers.pool(settled_work, updates, token()));
        let outlets = Outlets { new, settled };
        let lookups = Lookups::new(handles, intake(), outlets, self.closing.clone());
        spawn.spawn("lookups", lookups.run(token()));
        self.intake.take_up();
        let refresh = Refresh::new(handles, intake(), self.fleet.clone());
        let passes = Passes::default().run(refresh, context.settings.clone(), token());
        spawn.spawn("refresh", passes);
    }

    async fn drain(&self) {
        self.handles.queue.shut_down();
        // A lookup in flight is not worth the wait: the next leader asks again.
        self.closing.cancel();
        self.handles.queue.drained().await;
    }
}

fn handles(context: &Context<NodeCcm>) -> Handles {
    let metrics = NodeMetrics::new(&context.metrics);
    let inventory = Inventory::new();
    inventory.register(&context.metrics);
    Handles {
        cloud: Arc::clone(&context.cloud),
        queue: WorkQueue::new(
            intake::QUEUE,
            intake::queue_config(),
            &QueueMetrics::new(&context.metrics),
        ),
        inventory,
        ledger: Ledger::new(metrics.clone()),
        reports: NodeReports::new(context.events.clone(), metrics.clone()),
        settings: context.settings.clone(),
        metrics,
    }
}
