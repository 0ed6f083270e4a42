//! Delivers one event to the API server, or drops it.

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

/// The number of tries while the API server is unreachable or overloaded.
const TRIES: u32 = 12;
/// The timeout of a try, and the time until the next; so one event delays later ones by two
/// minutes at most.
const TRY: Duration = Duration::from_secs(10);

/// Writes events for one component.
pub(super) struct Delivery {
    client: Client,
    component: String,
}

impl Delivery {
    pub(super) fn new(client: Client, component: &str) -> Self {
        Self { client, component: component.to_owned() }
    }

    /// Writes an event. A refused event is not retried. An event that did not reach the API server,
    /// or that it was too busy for, is retried until `stop` is cancelled.
    pub(super) async fn deliver(
        &self,
        event: &Observed,
        occurrence: &Occurrence,
        stop: &CancellationToken,
    ) -> Result<(), ApiError> {
        let mut last = ApiError::Timeout;
        for tried in 1..=TRIES {
            // The first time is random, so that the replicas of a program do not retry together.
            let share = if tried == 1 { rand::random_range(0.0..1.0) } else { 1.0 };
            let next = sleep(TRY.mul_f64(share));
            last = match timeout(TRY, self.write(event, occurrence)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) if is_final(&error) => return Err(error.into()),
                Ok(Err(error)) => error.into(),
                Err(_) => ApiError::Timeout,
            };
            if tried == TRIES || stop.run_until_cancelled(next).await.is_none() {
                break;
            }
        }
        Err(last)
    }

    /// Tries once to write the event. If the API server has already expired the event, it is
    /// created again with its count.
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
            // An earlier try, whose response was lost, has created it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Returns true if another try is pointless: the API server has judged the event, or the request
/// cannot be serialised. A 500 counts as judged: a broken admission webhook answers with it each
/// time, and later events must not wait for that.
fn is_final(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => !matches!(status.code, 429 | 503 | 504),
        error => matches!(error, kube::Error::BuildRequest(_) | kube::Error::HttpError(_)),
    }
}
