//! Writes events to the API server, one after another.

use std::time::Duration;

use ccm_cloud::clock;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{Correlator, Dropped, EventMetrics, Observed, Verdict};
use crate::error::ApiError;

/// How often a write is tried while the API server cannot be reached.
const TRIES: u32 = 5;
/// The wait before the second try; doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long one try may take.
const CALL: Duration = Duration::from_secs(10);
/// How long the rest may take when the program ends.
const FLUSH: Duration = Duration::from_secs(2);

/// The task that writes what an [`EventRecorder`](super::EventRecorder) records.
pub struct EventWriter {
    client: Client,
    component: String,
    queue: mpsc::Receiver<Observed>,
    metrics: EventMetrics,
    correlator: Correlator,
    start: Instant,
    last_name: i128,
}

impl EventWriter {
    pub(super) fn new(client: Client, component: &str, queue: mpsc::Receiver<Observed>, metrics: EventMetrics) -> Self {
        Self {
            client,
            component: component.to_owned(),
            queue,
            metrics,
            correlator: Correlator::default(),
            start: Instant::now(),
            last_name: 0,
        }
    }

    /// Writes until `stop` is cancelled, and then what still waits, for two seconds.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.queue.recv() => match event {
                    Some(event) => self.write(event).await,
                    None => return,
                }
            }
        }
        let rest = async {
            while let Ok(event) = self.queue.try_recv() {
                self.write(event).await;
            }
        };
        // What is cut off here is counted below, by what is left on the queue.
        timeout(FLUSH, rest).await.ok();
        while self.queue.try_recv().is_ok() {
            self.metrics.dropped(Dropped::Shutdown);
        }
    }

    async fn write(&mut self, event: Observed) {
        let now = self.start.elapsed();
        let outcome = match self.correlator.judge(&event, now) {
            Verdict::Spam => return self.metrics.dropped(Dropped::Spam),
            Verdict::Create { message, key } => self.create(&event, message).await.map(|name| self.correlator.created(key, name)),
            Verdict::Count { name, count, message, key } => match self.count(&event, &name, count, &message).await {
                Err(ApiError::NotFound) => {
                    self.correlator.vanished(&key);
                    self.create(&event, message).await.map(|name| self.correlator.created(key, name))
                }
                other => other,
            },
        };
        match outcome {
            Ok(()) => {
                self.metrics.written.inc();
            }
            Err(error) => {
                self.metrics.dropped(Dropped::Failed);
                tracing::warn!(name = event.about.name, reason = event.reason, error = %error, "event not written");
            }
        }
    }

    async fn create(&mut self, event: &Observed, message: String) -> Result<String, ApiError> {
        let now = clock::wall();
        let object = self.object(event, message, now);
        let api = self.api(event);
        let params = PostParams::default();
        let name = object.metadata.name.clone().unwrap_or_default();
        match tried(|| api.create(&params, &object)).await {
            // A try whose answer was lost has written it.
            Ok(_) | Err(ApiError::AlreadyExists) => Ok(name),
            Err(error) => Err(error),
        }
    }

    async fn count(&self, event: &Observed, name: &str, count: u32, message: &str) -> Result<(), ApiError> {
        let body = json!({"count": count, "lastTimestamp": Time(clock::wall()), "message": message});
        let (api, params, patch) = (self.api(event), PatchParams::default(), Patch::Strategic(body));
        tried(|| api.patch(name, &params, &patch)).await.map(drop)
    }

    fn api(&self, event: &Observed) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace(event))
    }

    fn object(&mut self, event: &Observed, message: String, now: Timestamp) -> Event {
        let about = &event.about;
        // Unique even where the clock is coarse or steps back.
        self.last_name = now.as_nanosecond().max(self.last_name + 1);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", about.name, self.last_name)),
                namespace: Some(namespace(event).to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(about.api_version.to_owned()),
                kind: Some(about.kind.to_owned()),
                namespace: about.namespace.clone(),
                name: Some(about.name.clone()),
                uid: Some(about.uid.clone()),
                resource_version: Some(about.resource_version.clone()),
                field_path: None,
            },
            type_: Some(event.kind.as_str().to_owned()),
            reason: Some(event.reason.to_owned()),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(EventSource { component: Some(self.component.clone()), host: None }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: Some(String::new()),
            ..Event::default()
        }
    }
}

/// Events about objects of the whole cluster live in `default`.
fn namespace(event: &Observed) -> &str {
    event.about.namespace.as_deref().unwrap_or("default")
}

/// Repeats a call that did not reach the API server. What the server refused stays
/// refused.
async fn tried<T, F>(call: impl Fn() -> F) -> Result<T, ApiError>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut wait = FIRST_WAIT;
    let mut tries = 1;
    loop {
        let error = match timeout(CALL, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => ApiError::from(error),
            Err(_) => ApiError::Timeout,
        };
        let unreached = matches!(error, ApiError::Timeout | ApiError::Unavailable(_));
        if !unreached || tries == TRIES {
            return Err(error);
        }
        sleep(wait).await;
        wait *= 2;
        tries += 1;
    }
}
