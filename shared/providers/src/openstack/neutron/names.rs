//! The names of networks, kept for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_cloud::{Call, CloudError, ErrorKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    super::{
        deadline::Deadline,
        flight::{Flight, Landing, Missed},
    },
    Neutron,
};

/// Names are asked for again after this time: networks can be renamed.
const FRESH: Duration = Duration::from_mins(10);
/// The longest time for one question. It belongs to no caller: one with little time
/// finds the answer there the next time.
const QUESTION: Call = Call::routine(Duration::from_secs(30));

/// The names that are known.
#[derive(Default)]
pub(crate) struct NetworkNames {
    known: Mutex<BTreeMap<String, Known>>,
    questions: Flight<Result<(), CloudError>>,
}

struct Known {
    /// `None` if this project may not see the network.
    name: Option<String>,
    read_at: Instant,
}

impl NetworkNames {
    /// The names of these networks, by ID. One question for all that are not known, none
    /// if all are. Old names serve while newer ones are asked for.
    pub(crate) async fn of(
        self: &Arc<Self>,
        networks: &BTreeSet<String>,
        neutron: &Arc<Neutron>,
        deadline: Deadline,
    ) -> Result<BTreeMap<String, String>, CloudError> {
        while networks.iter().any(|id| !self.is_known(id)) {
            let question = self.ask(networks, neutron);
            self.questions.wait(question, deadline.at).await.map_err(unanswered)??;
        }
        if networks.iter().any(|id| !self.is_fresh(id)) {
            // Nobody waits for it.
            drop(self.ask(networks, neutron));
        }
        let known = self.known.lock();
        let named = networks.iter().filter_map(|id| {
            let name = known.get(id)?.name.clone()?;
            Some((id.clone(), name))
        });
        Ok(named.collect())
    }

    /// Has these names asked for, unless some are.
    fn ask(
        self: &Arc<Self>,
        networks: &BTreeSet<String>,
        neutron: &Arc<Neutron>,
    ) -> Landing<Result<(), CloudError>> {
        self.questions.join(|| {
            let (names, neutron) = (Arc::clone(self), Arc::clone(neutron));
            let networks = networks.clone();
            async move {
                let answer = neutron.network_names(&networks, Deadline::start(QUESTION)).await;
                let answer = answer.inspect_err(
                    |error| tracing::warn!(%error, "names of networks may be out of date"),
                );
                names.keep(&networks, &answer?);
                Ok(())
            }
        })
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

fn unanswered(missed: Missed) -> CloudError {
    match missed {
        Missed::Late => CloudError::new(
            ErrorKind::Timeout,
            "network network_list: no answer within the time of the call",
        ),
        Missed::CutOff => {
            CloudError::new(ErrorKind::Unavailable, "network network_list: it was cut off")
        }
    }
}
