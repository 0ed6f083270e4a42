//! lifecycle-ccm: the controller that takes nodes out of the cluster whose instances
//! are gone for good, and nobody else; and that taints those whose machines are shut down.
//!
//! ```text
//! informer --Ready changed--> pass: who is due? --one lookup--> court --rulings--> API server
//!                               ^                  [one list]   pure     delete, taint, event
//!                               +---------------- timer -------------------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`court`] | who is looked at, what counts as evidence, who is deleted: pure |
//! | [`shutdown`] | what becomes of the shutdown taint: pure |
//! | `docket` | how long nodes wait for a verdict |
//! | `observe` | from nodes and answers to the court's plain values |
//! | `pass` | the loop that feeds the court and does what it says |
//! | `execute` | taint and approval as patches; what came of a deletion |
//! | `controller` | what the parts share, and what wakes the loop |
//! | `tell` | events and log lines |
//! | `settings`, `metrics` | flags; `ccm_lifecycle_*` and upstream's metrics |

mod controller;
pub mod court;
mod docket;
mod execute;
mod metrics;
mod observe;
mod pass;
mod settings;
pub mod shutdown;
mod tell;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ccm_controller::{
    watch::{self, Watches},
    writer::{self, Writer},
};
use ccm_kube::store::Store;
use ccm_objects::Node;
use ccm_runtime::{
    health::Scope,
    metrics::Metrics,
    program::{Context, Failure, Identity, Program},
    programs,
    rights::Right,
    settings::{Problems, RawSettings, SettingDoc},
};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

pub use settings::LifecycleSettings;

use crate::{controller::Controller, docket::Docket, metrics::LifecycleMetrics, tell::Told};

/// The program.
pub struct LifecycleCcm {
    controller: Arc<Controller>,
}

impl Program for LifecycleCcm {
    const IDENTITY: Identity = programs::LIFECYCLE_CCM;
    type Settings = LifecycleSettings;

    fn documentation() -> &'static [SettingDoc] {
        settings::TABLE
    }

    fn settings(layers: &RawSettings, problems: &mut Problems) -> Option<LifecycleSettings> {
        settings::settings(layers, problems)
    }

    fn specimens(metrics: &Metrics) {
        LifecycleMetrics::new(metrics).specimens();
        watch::metrics(metrics).specimens::<Node>();
    }

    fn rights() -> Vec<Right> {
        [watch::rights::<Node>(), [writer::patch::<Node>(), writer::delete::<Node>()]].concat()
    }

    async fn prepare(context: Context<Self>) -> Result<Self, Failure> {
        let controller = Arc::new(controller(&context));
        controller.breaker.pass("not judged here: this replica does not lead");
        let listener = Arc::clone(&controller);
        let watches = Watches::new(&context);
        watches.watch(&controller.store, move |change| listener.changed(&change)).await;
        Ok(Self { controller })
    }

    fn lead(self: Arc<Self>, context: Context<Self>) {
        self.controller.leads.store(true, Ordering::SeqCst);
        self.controller.breaker.pass("closed; no list of the fleet was needed so far");
        let passes = pass::run(Arc::clone(&self.controller), context.token.clone());
        context.supervisor.spawn("passes", passes);
    }

    async fn drain(&self) {
        // A lookup in flight is not worth the wait; a deletion is.
        self.controller.closing.cancel();
        drop(self.controller.passing.lock().await);
    }
}

fn controller(context: &Context<LifecycleCcm>) -> Controller {
    let store = Store::new();
    Controller {
        writer: Writer::new(context, &store),
        store,
        cloud: Arc::clone(&context.cloud),
        events: context.events.clone(),
        settings: context.settings.clone(),
        metrics: LifecycleMetrics::new(&context.metrics),
        breaker: context.health.condition("breaker", Scope::Information, "not judged yet"),
        told: Told::default(),
        leads: AtomicBool::new(false),
        wake: Notify::new(),
        closing: CancellationToken::new(),
        passing: tokio::sync::Mutex::new(()),
        started: Instant::now(),
        appeared: Mutex::new(HashMap::new()),
        docket: Mutex::new(Docket::default()),
    }
}
