//! Turns changes of nodes, answers of the cloud and new settings into events of the machine.

use std::{collections::BTreeSet, sync::Arc};

use ccm_base::clock;
use ccm_cloud::{Cloud, Fleet};
use ccm_controller::{instances, machine::Door};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, Shared as Name};

use crate::{
    machine::{
        Event, Machine,
        event::{Claimed, Sight, Unlisted},
    },
    settings::LifecycleSettings,
};

/// Turns changes and answers into events.
#[derive(Clone)]
pub(crate) struct Translator {
    door: Door<Machine>,
    store: Store<Node>,
    cloud: Arc<dyn Cloud>,
}

impl Translator {
    pub(crate) fn new(door: &Door<Machine>, store: &Store<Node>, cloud: &Arc<dyn Cloud>) -> Self {
        Self { door: door.clone(), store: store.clone(), cloud: Arc::clone(cloud) }
    }

    /// Returns a change of a node. Never blocks.
    pub(crate) fn change_event(&self, change: Change<Node>) -> Event {
        // The nodes of the initial list may be older than this process.
        let is_new = matches!(change, Change::Added(_)) && self.store.is_synced();
        match change {
            Change::Added(node) | Change::Updated { new: node, .. } => {
                Event::Seen { claim: instances::claim(&*self.cloud, &node), node, is_new }
            }
            Change::Deleted(node) => {
                Event::Gone { name: Arc::clone(&node.name), uid: node.uid.clone() }
            }
        }
    }

    /// Returns the settings, if the machine has others.
    pub(crate) fn settings(&self, settings: &LifecycleSettings) -> Option<Event> {
        let parameters = &settings.parameters;
        let is_known = self.door.read(|machine, _| machine.parameters() == parameters);
        (!is_known).then(|| Event::Parameters(Box::new(parameters.clone())))
    }

    /// Returns the state of the nodes. The claims change when the provider discovers its schemes.
    pub(crate) fn sight(&self) -> Sight {
        let claims = self.door.read(|machine, _| machine.claims());
        let changed = claims.into_iter().filter_map(|(node, known)| {
            let claim = instances::claim(&*self.cloud, &node);
            let (name, provider_id) = (Arc::clone(&node.name), node.provider_id.clone());
            (claim != known).then_some(Claimed { name, provider_id, claim })
        });
        Sight { wall: clock::wall(), claims: changed.collect() }
    }

    /// Compares a list of the fleet with the nodes.
    pub(crate) fn unlisted(&self, fleet: Option<&Fleet>) -> Unlisted {
        let Some(fleet) = fleet else { return Unlisted::default() };
        let (nodes, as_of) = self.door.read(|machine, _| machine.compared());
        let spell = |id: &str| self.cloud.canonical_id(id).into_owned();
        let missing: BTreeSet<Name> = instances::unlisted(fleet, spell, nodes.iter());
        Unlisted { missing, as_of }
    }
}
