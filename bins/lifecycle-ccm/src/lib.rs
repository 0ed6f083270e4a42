//! lifecycle-ccm: the controller that deletes nodes whose instances no longer exist, and taints
//! nodes whose machines are shut down.
//!
//! ```text
//! informer, lookups, list, Leases --translate--> Event --> machine --> effects --perform--> API server, cloud
//!                                                  ^        pure           |
//!                                                  +------- answer --------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`machine`] | the whole memory, and the events that change it: pure |
//! | [`policy`] | decides which nodes are looked up, what counts as evidence, and which nodes are deleted: pure |
//! | [`policy::shutdown`], [`policy::action`] | the steps for the shutdown taint; the decided writes |
//! | `policy::backlog`, `policy::text` | how long nodes wait for a verdict; decisions as text |
//! | `translate` | turns changes of nodes, settings and lists into events |
//! | `perform` | carries out the machine's effects: `/plan`, metrics, log lines |
//! | `perform::cloud`, `perform::writes` | requests to the cloud, and writes to the API server; their answers are events |
//! | `perform::reports` | log lines about cloud errors and the breaker |
//! | `pass` | the order of the events of a pass |
//! | `report` | events and log lines about decisions and writes |
//! | `explanations` | adds the nodes to the page `/explain` |
//! | `leftovers` | finds the taints of an earlier controller |
//! | `settings`, `metrics` | flags; `ccm_lifecycle_*` and upstream's metrics |

mod explanations;
mod leftovers;
pub mod machine;
mod metrics;
mod pass;
mod perform;
pub mod policy;
mod report;
mod settings;
mod translate;

use std::sync::Arc;

use ccm_cloud::Capability;
use ccm_controller::{
    approvals::{self, Approvals},
    handover, left_over,
    machine::Door,
    own_node,
    passes::Passes,
    record::{
        self,
        replay::{self, Replay},
    },
    repeat_reports,
    watch::{self, Stores, Watches},
    writer,
};
use ccm_kube::store::{Change, Store};
use ccm_objects::Node;
use ccm_runtime::{
    metrics::Metrics,
    program::{Context, Failure, Identity, Need, Program},
    programs,
    rights::Right,
};

pub use settings::LifecycleSettings;

use crate::{
    machine::{Event, Machine},
    metrics::LifecycleMetrics,
    pass::LifecyclePass,
    perform::{Asker, Performer, Writes},
    translate::Translator,
};

/// Replays the records of this program.
pub const RECORDED: &[(&str, Replay)] = &[replay::named_replay::<Machine>()];

/// The program.
pub struct LifecycleCcm {
    door: Door<Machine>,
    store: Store<Node>,
    translator: Translator,
    performer: Arc<Performer>,
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
        [watch::rights::<Node>().as_slice(), &writes, &[perform::right()]].concat()
    }

    async fn prepare(context: &Context<Self>) -> Result<Self, Failure> {
        let (store, passes) = (Store::new(), Passes::default());
        let parameters = context.settings.borrow().parameters.clone();
        let machine = Machine::new(parameters, context.plans.is_observing());
        let door = record::door(context, machine);
        explanations::add(context, &door, &store);
        let translator = Translator::new(&door, &store, &context.cloud);
        let performer = Arc::new(Performer::new(context, &store, &passes));
        let (told, translates, performs) = (door.clone(), translator.clone(), performer.clone());
        let on_change = move |change: Change<Node>| {
            performs.perform(told.apply(translates.change_event(change)));
        };
        let freshness = Watches::new(context).watch(&store, on_change).await;
        own_node::check(context, &store);
        let left_over =
            Arc::new(left_over::Survey::new(context, ccm_controller::log_here!("lifecycle_ccm")));
        let stores = Stores::new(context, [freshness]);
        Ok(Self { door, store, translator, performer, passes, left_over, stores })
    }

    fn lead(self: Arc<Self>, context: &Context<Self>) {
        let (door, performer, settings) = (&self.door, &self.performer, &context.settings);
        let (lease, token) = (context.leadership.annotations(), &context.token);
        performer.cloud_reports.start_leading();
        performer.perform(door.apply(Event::TermBegins(handover::found(lease))));
        let (told, performs) = (door.clone(), Arc::clone(performer));
        let approved = move |[approval]: [_; 1]| {
            performs.perform(told.apply(Event::Approved(approval)));
        };
        let approvals = [Approvals::new(lease, "that nodes are deleted")];
        let approvals = approvals::follow(approvals, token.clone(), approved);
        context.supervisor.spawn("approvals", approvals);
        let closing = self.passes.closing();
        let pass = LifecyclePass {
            door: door.clone(),
            translator: self.translator.clone(),
            performer: Arc::clone(performer),
            asker: Asker::new(context, door, performer),
            writes: Writes::new(context, &self.store, (door, performer), closing),
            settings: settings.clone(),
            closing: closing.clone(),
        };
        let passes = self.passes.clone().run(pass, settings.clone(), token.clone());
        // An old store shows nodes that are Ready again, or gone, as they were.
        let passes = self.stores.clone().before(passes, token.clone());
        context.supervisor.spawn("passes", passes);
        let (cloud, settings) = (Arc::clone(&context.cloud), settings.clone());
        let taint = move |node: &Node| leftovers::taint(&*cloud, node, &settings.borrow());
        let (survey, store) = (Arc::clone(&self.left_over), self.store.clone());
        context.supervisor.spawn("left-over", survey.run(store, taint, token.clone()));
    }

    async fn drain(&self) {
        // Pending lookups are cancelled; pending deletions are awaited.
        self.passes.drain().await;
    }
}
