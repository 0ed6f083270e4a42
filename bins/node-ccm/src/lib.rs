//! node-ccm: the controller that initialises new nodes and keeps them in sync with their
//! instances.
//!
//! ```text
//! informer, queue, workers, refresh --translate--> Event --> Machine --> effects --perform--> queue, reports,
//!                                                   ^                                          API server
//!                                                   +------------------ answer ----------------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | the steps for one node: pure |
//! | `machine` | the whole memory, and the only code that changes it: pure |
//! | `translate` | changes of nodes and of settings as events |
//! | `translate::lookups` | first stage: the nodes of the queue are looked up, one cloud call per batch |
//! | `translate::workers` | second stage: planned and written, many nodes concurrently |
//! | `translate::refresh` | looks up all nodes once per period |
//! | `perform` | the queue, reports, metrics and pages; sends one API request per step of a plan |
//! | `show` | shows the memory in metrics and on pages |
//! | `report` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_node_*` and upstream's histograms |

mod machine;
mod metrics;
mod perform;
pub mod plan;
mod report;
mod settings;
mod show;
mod translate;

use std::sync::Arc;

use ccm_cloud::Capability;
use ccm_controller::{
    approvals::{self, Approvals},
    handover, left_over, own_node,
    passes::Passes,
    queue::QueueMetrics,
    record::replay::{self, Replay},
    repeat_reports,
    watch::{self, Stores, Watches},
    writer::{self, Writer},
};
use ccm_kube::store::Store;
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
    machine::Event,
    metrics::NodeMetrics,
    perform::{OBJECTS, Performer, QUEUE},
    translate::{Translator, lookups, refresh::Refresh, workers},
};

/// Replays the records of this program.
pub const RECORDED: &[(&str, Replay)] = &[replay::named_replay::<machine::Machine>()];

/// The program.
pub struct NodeCcm {
    source: Translator,
    store: Store<Node>,
    performer: Arc<Performer>,
    fleet: Condition,
    stores: Stores,
    /// Cancelled by the drain, which drops pending cloud calls.
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
        perform::specimens(metrics);
        repeat_reports::specimens(metrics);
        show::specimens(metrics);
        QueueMetrics::new(metrics).specimens(QUEUE);
        watch::metrics(metrics).specimens_of::<Node>();
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
        let store = Store::new();
        let source = Translator::new(context, &store);
        let performer = Performer::new(context, source.params());
        show::collect(&context.metrics, performer.door(), &store);
        let is_observing = context.plans.is_observing();
        show::show(&context.health, performer.door(), &store, is_observing);
        show::explain(context, &source, performer.door());
        let (translator, listener) = (source.clone(), Arc::clone(&performer));
        let watches = Watches::new(context);
        let hear = move |change| drop(listener.hear(translator.change(change)));
        let freshness = watches.watch(&store, hear).await;
        own_node::check(context, &store);
        let left_over =
            Arc::new(left_over::Survey::new(context, ccm_controller::log_here!("node_ccm")));
        let stores = Stores::new(context, [freshness]);
        let closing = CancellationToken::new();
        Ok(Self { source, store, performer, fleet, stores, closing, left_over })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let (source, tasks) = (|| self.source.clone(), &context.supervisor);
        let (performer, token) = (|| Arc::clone(&self.performer), || context.token.clone());
        let lease = context.leadership.annotations();
        // The settings may have changed since the program began.
        let (followed, params) = (source(), self.source.params());
        self.performer.hear(Event::TermBegins { left: handover::found(lease), params });
        tasks.spawn("settings", followed.follow_settings(performer(), token()));
        let writer = Writer::new(context, &self.store);
        let senders = workers::start(&self.source, &self.performer, writer, tasks);
        let closing = self.closing.clone();
        tasks.spawn("lookups", lookups::run(source(), performer(), senders, closing, token()));
        let listener = performer();
        let approved = move |[set]: [_; 1]| drop(listener.hear(Event::Approved(set)));
        let approvals = [Approvals::new(lease, OBJECTS)];
        tasks.spawn("approvals", approvals::follow(approvals, token(), approved));
        self.fleet.pass("not looked up yet");
        let refresh = Refresh::new(&self.source, &self.performer, self.fleet.clone());
        let passes = Passes::default().run(refresh, context.settings.clone(), token());
        let (source, performer) = (source(), performer());
        let refresh = async move {
            source.start_leading(&performer);
            passes.await;
        };
        // An old store shows nodes as they were, and the brake would count too few or too many of them.
        tasks.spawn("refresh", self.stores.clone().before(refresh, token()));
        let (source, survey) = (self.source.clone(), Arc::clone(&self.left_over));
        let (store, taint) = (self.store.clone(), move |node: &Node| source.left_over(node));
        tasks.spawn("left-over", survey.run(store, taint, token()));
    }

    async fn drain(&self) {
        self.performer.queue().shut_down();
        // Pending lookups are cancelled: the next leader repeats them.
        self.closing.cancel();
        self.performer.queue().drained().await;
    }
}
