//! The way to the machine. New settings go first.

use std::sync::Arc;

use ccm_base::{At, clock::Timeline};
use ccm_controller::{machine::Door, record};
use ccm_runtime::program::{Context, Program};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::machine::{Effect, Event, Fixed, Machine, Parameters};
use crate::settings::RouteSettings;

/// The door, and the settings that the machine knows.
pub(crate) struct Entrance {
    door: Door<Machine>,
    settings: Mutex<watch::Receiver<Arc<RouteSettings>>>,
}

impl Entrance {
    pub(crate) fn new<P>(context: &Context<P>, fixed: Fixed) -> Self
    where
        P: Program<Settings = RouteSettings>,
    {
        let mut settings = context.settings.clone();
        let parameters = parameters(&settings.borrow_and_update());
        let machines = 1 + usize::from(fixed.gives_cidrs);
        let door = record::part(context, machines, Machine::new(fixed, parameters));
        Self { door, settings: Mutex::new(settings) }
    }

    /// Applies an event. The caller performs the effects.
    pub(crate) fn apply(&self, event: Event) -> Vec<Effect> {
        // Locked to the end, so that each event meets the newest settings that were read before it.
        let mut settings = self.settings.lock();
        let mut effects = Vec::new();
        if settings.has_changed().unwrap_or(false) {
            let parameters = parameters(&settings.borrow_and_update());
            effects = self.door.apply(Event::Settings(parameters));
        }
        effects.extend(self.door.apply(event));
        effects
    }

    /// Reads the memory.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Machine, At) -> R) -> R {
        self.door.read(read)
    }

    /// The times of the events.
    pub(crate) fn timeline(&self) -> Timeline {
        self.door.timeline()
    }
}

/// The settings that decide on routes.
fn parameters(settings: &RouteSettings) -> Parameters {
    Parameters {
        cluster_cidrs: settings.cluster_cidrs(),
        max_pod_cidr: settings.max_pod_cidr(),
        budget: settings.budget(),
        period: settings.route_reconciliation_period,
        scale_down_taints: settings.scale_down_taints.clone(),
        node_selector: settings.node_selector.clone(),
    }
}
