//! Asks the cloud, and reads the Leases of kubelets.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, Cloud, Detail, Fleet};
use ccm_controller::{instances, lookups::SizedLookups, machine::Door, reader::Reader};
use ccm_objects::{NodeLease, Shared as Name};
use ccm_runtime::program::{Context, Program};

use super::{Performer, kubelets::heartbeats, reports::unusable_list};
use crate::{
    machine::{Event, Machine, effect::Ask, event::FleetList},
    policy::{Heartbeat, LOOKUPS_PER_PASS},
};

/// Asks the cloud, and tells the machine each answer.
pub(crate) struct Asker {
    door: Door<Machine>,
    performer: Arc<Performer>,
    cloud: Arc<dyn Cloud>,
    sized: SizedLookups,
    leases: Reader<NodeLease>,
}

impl Asker {
    pub(crate) fn new<P: Program>(
        context: &Context<P>,
        door: &Door<Machine>,
        performer: &Arc<Performer>,
    ) -> Self {
        Self {
            door: door.clone(),
            performer: Arc::clone(performer),
            cloud: Arc::clone(&context.cloud),
            sized: SizedLookups::new(Arc::clone(&context.cloud), LOOKUPS_PER_PASS),
            leases: Reader::new(context),
        }
    }

    /// Tells the machine how many nodes the cloud answers in one lookup, and whether it can list.
    pub(crate) fn due(&self) -> Event {
        let lists = instances::traits(&*self.cloud).lists;
        Event::Due { most_lookups: self.sized.size(), lists, seed: rand::random() }
    }

    /// Asks the cloud. Returns the list, which is compared with the nodes when all answers have
    /// arrived.
    pub(crate) async fn ask(&self, ask: Ask, within: Duration) -> Option<Fleet> {
        let Ask { look_up, witnesses, list } = ask;
        let asked = [&*look_up, &*witnesses].concat();
        let call = Call::waiting(within);
        let mut collect = |place: usize, result| {
            if let Some(node) = asked.get(place) {
                self.performer.metrics.count_answer(&result);
                let (name, uid) = (Arc::clone(&node.name), node.uid.clone());
                let is_witness = place >= look_up.len();
                self.tell(Event::LookedUp { name, uid, is_witness, result });
            }
        };
        let lookup = async {
            let late = self.sized.ask(&asked, Detail::Presence, call, &mut collect).await;
            for (place, result) in late {
                collect(place, result);
            }
        };
        let list = async {
            if !list {
                return None;
            }
            let fleet = instances::list(&*self.cloud, call).await;
            let listed = fleet.as_ref().map_err(Clone::clone).map(|fleet| FleetList {
                instances: fleet.instances.len(),
                malformed: fleet.malformed.len(),
            });
            unusable_list(&listed);
            self.tell(Event::Listed(listed));
            fleet.ok()
        };
        tokio::join!(lookup, list).1
    }

    /// Reads the Leases of the kubelets of these nodes.
    pub(crate) async fn read_leases(&self, names: Vec<Name>, within: Duration) {
        let shown = heartbeats(&self.leases, names.clone(), within).await;
        for (name, shown) in names.into_iter().zip(shown) {
            let shown = shown.map_err(|error| self.performer.cloud_reports.unread(&name, &error));
            let shown = shown.ok().map(Heartbeat);
            self.tell(Event::Beat { name, shown });
        }
    }

    fn tell(&self, event: Event) {
        self.performer.perform(self.door.apply(event));
    }
}
