//! The provider's description, and the connection to it.

use std::sync::Arc;

use ccm_cloud::{Call, CloudError, ErrorKind};
use parking_lot::RwLock;
use tokio::{sync::Notify, time::Instant};

use super::{
    MAX_BATCH,
    description::Description,
    proto,
    rpc::{Wire, provider_client, question, read},
    weight::Budget,
};

/// The state shared by the cloud, its capabilities and its keeper.
pub struct Shared {
    pub wire: Wire,
    known: RwLock<Known>,
    /// Wakes those who wait for a change of the provider.
    pub changed: Notify,
}

/// The known description of the provider.
#[derive(Default)]
struct Known {
    description: Option<Arc<Description>>,
    /// The number of connections so far at the time of the answer.
    connection: u64,
    last_error: Option<CloudError>,
    /// The time of the first question.
    asked: Option<Instant>,
}

impl Shared {
    pub fn new(wire: Wire) -> Self {
        Self { wire, known: RwLock::default(), changed: Notify::new() }
    }

    pub fn description(&self) -> Option<Arc<Description>> {
        self.known.read().description.clone()
    }

    /// Returns the identity of the cloud, as reported by the process at the other end of the
    /// present connection.
    pub fn identity(&self) -> Option<String> {
        let known = self.known.read();
        let is_present = known.connection == self.connections();
        known.description.as_ref().filter(|_| is_present)?.identity.clone()
    }

    /// Returns the number of connections so far.
    fn connections(&self) -> u64 {
        *self.wire.connection.connections.made.borrow()
    }

    /// Returns the maximum number of nodes in one lookup.
    pub fn max_batch(&self) -> usize {
        self.description().map_or(MAX_BATCH, |description| description.max_batch)
    }

    /// Returns why the provider's description is not known yet.
    pub fn unknown(&self) -> CloudError {
        let known = self.known.read();
        let why = match (&known.last_error, known.asked) {
            (Some(error), _) => format!("has not described itself yet: {error}"),
            (None, Some(asked)) => {
                format!("was asked {} s ago and has not answered yet", asked.elapsed().as_secs())
            }
            (None, None) => "has not been asked yet".to_owned(),
        };
        CloudError::new(
            ErrorKind::Unavailable,
            format!("the provider at {} {why}", self.wire.connection.endpoint()),
        )
    }

    /// Requests the provider's description and stores it. The stored one stays valid while the
    /// provider does not answer.
    pub async fn describe(&self, call: Call) -> Result<(), CloudError> {
        self.known.write().asked.get_or_insert_with(Instant::now);
        let send = |channel, terms| async move {
            provider_client(channel).describe(question(proto::DescribeRequest {}, terms)).await
        };
        let answer = self.wire.call(read("describe"), call, &Budget::default(), send).await;
        let outcome = answer.and_then(|answer| {
            let (_, answer, _memory) = answer.into_parts();
            Description::try_from(answer)
        });
        self.learn(outcome)
    }

    fn learn(&self, outcome: Result<Description, CloudError>) -> Result<(), CloudError> {
        let endpoint = self.wire.connection.endpoint();
        let mut known = self.known.write();
        let new = match outcome {
            Ok(new) => Arc::new(new),
            Err(error) => {
                if known.last_error.as_ref().map(|last| last.kind) != Some(error.kind) {
                    tracing::warn!(endpoint, error = %error, "the provider does not describe itself; asking again");
                }
                known.last_error = Some(error.clone());
                return Err(error);
            }
        };
        known.connection = self.connections();
        let recovered = known.last_error.take().is_some();
        match known.description.replace(Arc::clone(&new)) {
            Some(old) if old != new => {
                self.changed.notify_waiters();
                tracing::warn!(endpoint, old = %old, new = %new, "the provider describes itself differently");
            }
            Some(_) if !recovered => {}
            _ => {
                tracing::info!(endpoint, provider = %new, max_batch = new.max_batch, "provider answers");
            }
        }
        Ok(())
    }
}
