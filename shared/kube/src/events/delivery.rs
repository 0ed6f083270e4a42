//! Delivers one event to the API server, or gives up on it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Observed, correlator::Occurrence, object};
use crate::error::ApiError;

/// How often an event is tried while the API server cannot be reached.
const TRIES: u32 = 12;
/// The wait between two tries; the first wait is random, so that the replicas of a
/// program do not come back all at once.
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
/// How long one request may take.
const CALL: Duration = Duration::from_secs(10);
/// How long one event may hold up those behind it.
const PATIENCE: Duration = Duration::from_mins(2);

/// Writes events for one component.
pub(super) struct Delivery {
    client: Client,
    component: String,
}

impl Delivery {
    pub(super) fn new(client: Client, component: &str) -> Self {
        Self { client, component: component.to_owned() }
    }

    /// Writes an event. What the API server has refused is not tried again; what did not
    /// reach it is, until `stop` is cancelled.
    pub(super) async fn deliver(
        &self,
        event: &Observed,
        occurrence: &Occurrence,
        stop: &CancellationToken,
    ) -> Result<(), ApiError> {
        let mut last = ApiError::Timeout;
        let tries = async {
            for tried in 1..=TRIES {
                last = match timeout(CALL, self.write(event, occurrence)).await {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) if is_final(&error) => return Err(error.into()),
                    Ok(Err(error)) => error.into(),
                    Err(_) => ApiError::Timeout,
                };
                if tried == TRIES || stop.is_cancelled() {
                    break;
                }
                let share = if tried == 1 { rand::random_range(0.0..1.0) } else { 1.0 };
                let wait = sleep(BETWEEN_TRIES.mul_f64(share));
                if stop.run_until_cancelled(wait).await.is_none() {
                    break;
                }
            }
            Err(last.clone())
        };
        match timeout(PATIENCE, tries).await {
            Ok(outcome) => outcome,
            Err(_) => Err(last),
        }
    }

    /// One try. An event that the API server has forgotten by now is created again,
    /// with its count.
    async fn write(&self, event: &Observed, occurrence: &Occurrence) -> kube::Result<()> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), object::namespace(&event.about));
        if occurrence.count > 1 {
            let patch = Patch::Strategic(object::again(event, occurrence));
            match api.patch(&occurrence.name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => return other.map(drop),
            }
        }
        let whole = object::event(&self.component, event, occurrence);
        match api.create(&PostParams::default(), &whole).await {
            // A try whose answer was lost has written it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Whether another try is pointless: the API server has decided, or the request cannot
/// be written down.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(_) | kube::Error::BuildRequest(_) | kube::Error::HttpError(_))
}
