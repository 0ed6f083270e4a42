//! lifecycle-ccm: the controller that deletes nodes whose instances no longer exist, and taints
//! nodes whose machines are shut down.
//!
//! ```text
//! informer --Ready changed--> pass: which are due? --one lookup--> policy --decisions--> API server
//!                               ^                  [one list]   pure     delete, taint, event
//!                               +---------------- timer -------------------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | which nodes are looked up, what counts as evidence, which are deleted: pure |
//! | [`policy::shutdown`], `policy::action` | the steps for the shutdown taint; the decided writes |
//! | `policy::backlog`, `policy::text` | how long nodes wait for a verdict; decisions as text |
//! | `observe` | converts nodes and cloud answers to the policy's plain values |
//! | `observe::reports` | log lines about cloud errors and the breaker |
//! | `controller` | the loop: observe, decide, execute |
//! | `execute` | `/plan`, writes to the API server, and their results |
//! | `report` | events and log lines about decisions |
//! | `settings`, `metrics` | flags; `ccm_lifecycle_*` and upstream's metrics |

mod controller;
mod execute;
mod metrics;
mod observe;
pub mod policy;
mod report;
mod settings;

use std::sync::Arc;

use ccm_cloud::Capability;
use ccm_controller::{
    kubelets, left_over, own_node,
    passes::Passes,
    repeat_reports::{self, RepeatMetrics, Written},
    reports::Reports,
    watch::{self, Stores, Watches},
    writer,
};
use ccm_kube::store::Change;
use ccm_objects::Node;
use ccm_runtime::{
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
};

pub use settings::LifecycleSettings;

use crate::{
    controller::Controller, execute::Executor, metrics::LifecycleMetrics, observe::Observer,
};

/// The program.
pub struct LifecycleCcm {
    observer: Arc<Observer>,
    reports: Arc<Reports>,
    metrics: LifecycleMetrics,
    written: Written,
    passes: Passes,
    left_over: Arc<left_over::Survey>,
    stores: Stores,
}

impl Program for LifecycleCcm {
    const IDENTITY: Identity = programs::LIFECYCLE_CCM;
    type Settings = LifecycleSettings;

    fn needs(_: &Self::Settings) -> Vec<Need> {
        vec![Need::Required(Capability::Instances)]
    }

    fn specimens(metrics: &Metrics) {
        LifecycleMetrics::new(metrics).specimens();
        repeat_reports::specimens(metrics);
        left_over::specimens(metrics);
        watch::metrics(metrics).specimens_of::<Node>();
    }

    fn rights() -> Vec<Right> {
        let writes = [writer::patch::<Node>(), writer::delete::<Node>(), Right::mark("nodes")];
        [watch::rights::<Node>().as_slice(), &writes, &[kubelets::right()]].concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let metrics = LifecycleMetrics::new(&context.metrics);
        let observer = Arc::new(Observer::new(context, metrics.clone()));
        let reports = report::reports(context.events.clone());
        let passes = Passes::default();
        let (watcher, reporter, waker) = (observer.clone(), reports.clone(), passes.clone());
        let plans = context.plans.clone();
        let written = Written::new(&RepeatMetrics::beginning(&context.metrics, "Node", "marks"));
        let forgets = written.clone();
        let on_change = move |change: Change<Node>| {
            if let Change::Deleted(node) = &change {
                reporter.memory().forget(&node.name);
                forgets.forget(&node.name);
                plans.clear("Node", &node.name);
            }
            if watcher.changed(&change) {
                waker.wake();
            }
        };
        let freshness = Watches::new(context).watch(&observer.store, on_change).await;
        own_node::check(context, &observer.store);
        let left_over =
            Arc::new(left_over::Survey::new(context, ccm_controller::log_here!("lifecycle_ccm")));
        let stores = Stores::new(context, [freshness]);
        Ok(Self { observer, reports, metrics, written, passes, left_over, stores })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        self.observer.reports.start_leading();
        let (reports, metrics) = (Arc::clone(&self.reports), self.metrics.clone());
        let reporting = (reports.clone(), metrics.clone(), self.written.clone());
        let closing = self.passes.closing();
        let executor = Executor::new(context, &self.observer, reporting, closing.clone());
        let controller = Controller::new(self.observer.clone(), executor, reports, metrics);
        let passes =
            self.passes.clone().run(controller, context.settings.clone(), context.token.clone());
        // An old store shows nodes that are Ready again, or gone, as they were.
        let passes = self.stores.clone().before(passes, context.token.clone());
        context.supervisor.spawn("passes", passes);
        let (observer, settings) = (Arc::clone(&self.observer), context.settings.clone());
        let taint = move |node: &Node| observer.left_over(node, &settings.borrow());
        let (survey, store) = (Arc::clone(&self.left_over), self.observer.store.clone());
        context.supervisor.spawn("left-over", survey.run(store, taint, context.token.clone()));
    }

    async fn drain(&self) {
        // Pending lookups are cancelled; pending deletions are awaited.
        self.passes.drain().await;
    }
}
