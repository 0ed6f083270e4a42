//! lifecycle-ccm: the controller that takes nodes out of the cluster whose instances
//! are gone for good, and nobody else; and that taints those whose machines are shut down.
//!
//! ```text
//! informer --Ready changed--> pass: who is due? --one lookup--> policy --decisions--> API server
//!                               ^                  [one list]   pure     delete, taint, event
//!                               +---------------- timer -------------------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | which nodes are looked up, what counts as evidence, which are deleted: pure |
//! | [`policy::shutdown`], `policy::action` | what becomes of the shutdown taint; what is to be written |
//! | `policy::backlog`, `policy::text` | how long nodes wait for a verdict; decisions in words |
//! | `observe` | from nodes and answers to the policy's plain values |
//! | `controller` | the loop that feeds the policy and has done what it decides |
//! | `execute` | writes to the API server, and what came of them |
//! | `report` | events, log lines and what is measured |
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
    passes::Passes,
    watch::{self, Watches},
    writer::{self, Writer},
};
use ccm_kube::store::Change;
use ccm_objects::Node;
use ccm_runtime::{
    health::Scope,
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
};

pub use settings::LifecycleSettings;

use crate::{
    controller::Controller,
    execute::Executor,
    metrics::LifecycleMetrics,
    observe::Observer,
    policy::{Decider, backlog::Backlog},
    report::Reporter,
};

/// The program.
pub struct LifecycleCcm {
    observer: Arc<Observer>,
    reporter: Arc<Reporter>,
    passes: Passes,
}

impl Program for LifecycleCcm {
    const IDENTITY: Identity = programs::LIFECYCLE_CCM;
    type Settings = LifecycleSettings;

    fn needs(_: &Self::Settings) -> Vec<Need> {
        vec![Need::Required(Capability::Instances)]
    }

    fn specimens(metrics: &Metrics) {
        LifecycleMetrics::new(metrics).specimens();
        watch::metrics(metrics).specimens_of::<Node>();
    }

    fn rights() -> Vec<Right> {
        [watch::rights::<Node>(), [writer::patch::<Node>(), writer::delete::<Node>()]].concat()
    }

    async fn prepare(context: Context<Self>) -> Result<Self, Failure> {
        let breaker = context.health.condition("breaker", Scope::Information, "not judged yet");
        let metrics = LifecycleMetrics::new(&context.metrics);
        let reporter = Arc::new(Reporter::new(context.events.clone(), breaker, metrics));
        let observer = Arc::new(Observer::new(Arc::clone(&context.cloud)));
        let passes = Passes::default();
        let (sees, forgets, wakes) = (observer.clone(), reporter.clone(), passes.clone());
        let watches = Watches::new(&context);
        let plans = context.plans.clone();
        let on_change = move |change: Change<Node>| {
            if let Change::Deleted(node) = &change {
                forgets.forget(&node.name);
                plans.clear("Node", &node.name);
            }
            if sees.changed(&change) {
                wakes.wake();
            }
        };
        watches.watch(&observer.store, on_change).await;
        Ok(Self { observer, reporter, passes })
    }

    fn lead(self: Arc<Self>, context: Context<Self>) {
        self.reporter.leads();
        let (settings, closing) = (context.settings.clone(), self.passes.closing().clone());
        let controller = Controller {
            executor: Executor {
                writer: Writer::new(&context, &self.observer.store),
                settings: settings.clone(),
                closing: closing.clone(),
            },
            observer: Arc::clone(&self.observer),
            reporter: Arc::clone(&self.reporter),
            plans: context.plans.clone(),
            settings: settings.clone(),
            closing,
            decider: Decider::new(),
            backlog: Backlog::default(),
        };
        let passes = self.passes.clone().run(controller, settings, context.token.clone());
        context.supervisor.spawn("passes", passes);
    }

    async fn drain(&self) {
        // A lookup in flight is not worth the wait; a deletion is.
        self.passes.drain().await;
    }
}
