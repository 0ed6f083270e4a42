//! The names of networks, kept for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_cloud::CloudError;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{super::deadline::Deadline, Neutron};

/// Names are asked for again after this time: networks can be renamed.
const FRESH: Duration = Duration::from_mins(10);

/// The names that are known.
#[derive(Default)]
pub(crate) struct NetworkNames {
    known: Mutex<BTreeMap<String, Known>>,
}

struct Known {
    /// `None` if this project may not see the network.
    name: Option<String>,
    read_at: Instant,
}

impl NetworkNames {
    /// The names of these networks, by ID. One question for all that are not known, none
    /// if all are. An old name serves while Neutron does not answer.
    pub(crate) async fn of(
        &self,
        networks: &BTreeSet<String>,
        neutron: &Neutron,
        deadline: Deadline,
    ) -> Result<BTreeMap<String, String>, CloudError> {
        if networks.iter().any(|id| !self.is_fresh(id)) {
            match neutron.network_names(networks, deadline).await {
                Ok(names) => self.keep(networks, &names),
                Err(error) if networks.iter().any(|id| !self.is_known(id)) => return Err(error),
                Err(error) => tracing::warn!(%error, "names of networks may be out of date"),
            }
        }
        let known = self.known.lock();
        let named = networks.iter().filter_map(|id| {
            let name = known.get(id)?.name.clone()?;
            Some((id.clone(), name))
        });
        Ok(named.collect())
    }

    fn is_known(&self, id: &str) -> bool {
        self.known.lock().contains_key(id)
    }

    fn is_fresh(&self, id: &str) -> bool {
        self.known.lock().get(id).is_some_and(|known| known.read_at.elapsed() < FRESH)
    }

    fn keep(&self, asked: &BTreeSet<String>, names: &BTreeMap<String, String>) {
        let read_at = Instant::now();
        let mut known = self.known.lock();
        for id in asked {
            known.insert(id.clone(), Known { name: names.get(id).cloned(), read_at });
        }
    }
}
