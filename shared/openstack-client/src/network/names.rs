//! A cache of the names of networks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{Call, CloudError};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Neutron;
use crate::api::{Failure, Pending, SingleFlight};

/// Names are requested again after this time: networks can be renamed.
const FRESH: Duration = Duration::from_mins(10);
/// The time limit of one request. It is independent of the callers: the request outlives a
/// caller with less time, and the next call uses its result.
const QUESTION: Duration = Duration::from_secs(30);

/// The cache.
pub struct NetworkNames {
    known: Mutex<BTreeMap<String, KnownName>>,
    questions: SingleFlight<()>,
}

struct KnownName {
    /// `None` if this project may not see the network.
    name: Option<String>,
    read_at: Instant,
}

impl Default for NetworkNames {
    fn default() -> Self {
        Self { known: Mutex::default(), questions: SingleFlight::new("network network_list") }
    }
}

impl NetworkNames {
    /// Returns the names of these networks, by ID. Unknown ones are requested together; known ones
    /// are refreshed in the background.
    pub async fn resolve(
        self: &Arc<Self>,
        networks: &BTreeSet<String>,
        neutron: &Arc<Neutron>,
        call: Call,
    ) -> Result<BTreeMap<String, String>, CloudError> {
        while networks.iter().any(|id| !self.known.lock().contains_key(id)) {
            let asked = match self.ask(networks, neutron) {
                Ok(question) => self.questions.wait(question, call).await,
                Err(failure) => Err(failure),
            };
            asked.map_err(|failure| failure.error)?;
        }
        if networks.iter().any(|id| !self.is_fresh(id)) {
            // The call does not wait for this request.
            self.ask(networks, neutron).ok();
        }
        let known = self.known.lock();
        let named = networks.iter().filter_map(|id| {
            let name = known.get(id)?.name.clone()?;
            Some((id.clone(), name))
        });
        Ok(named.collect())
    }

    /// Starts a request for these names, unless one is pending.
    fn ask(
        self: &Arc<Self>,
        networks: &BTreeSet<String>,
        neutron: &Arc<Neutron>,
    ) -> Result<Pending<()>, Failure> {
        self.questions.join(|| {
            let (names, neutron) = (Arc::clone(self), Arc::clone(neutron));
            let networks = networks.clone();
            async move {
                let answer = neutron.network_names("id", &networks, Call::routine(QUESTION)).await;
                let answer = answer.inspect_err(
                    |error| tracing::warn!(%error, "names of networks may be out of date"),
                );
                names.keep(&networks, &answer?);
                Ok(())
            }
        })
    }

    fn is_fresh(&self, id: &str) -> bool {
        self.known.lock().get(id).is_some_and(|known| known.read_at.elapsed() < FRESH)
    }

    fn keep(&self, asked: &BTreeSet<String>, names: &BTreeMap<String, String>) {
        let read_at = Instant::now();
        let mut known = self.known.lock();
        for id in asked {
            known.insert(id.clone(), KnownName { name: names.get(id).cloned(), read_at });
        }
    }
}
