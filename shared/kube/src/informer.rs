//! Keeps a [`Store`] as the API server is, and tells of every change that matters.
//!
//! A list in pages, then a watch from there. A watch that ends or fails is begun again
//! where it left off; one that cannot go on from there ([`RELIST_AFTER`]) is thrown away
//! and everything is listed anew. A new list also shows what has been deleted meanwhile.

mod metrics;
mod seen;

use std::time::Duration;

use futures::TryStreamExt as _;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event},
    },
};
use tokio_util::sync::CancellationToken;

pub use metrics::InformerMetrics;

use self::{metrics::Meter, seen::Seen};
use crate::{
    error::ApiError,
    store::{Change, Store, Stored},
};

/// After so many errors in a row at which a watch cannot go on (its version has
/// expired, the server gave up on it, its events make no sense), the stream is thrown
/// away and a new one lists again. kube's watcher alone would repeat an expired version
/// for ever when the answer is an HTTP status rather than an event.
const RELIST_AFTER: u32 = 3;

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct InformerConfig {
    /// Objects on one page of a list. Small, because a page is held twice while it is
    /// read: 100 nodes of 16 KB are 3 MB, 500 would be 16 MB.
    pub page_size: u32,
    /// How long the server keeps a watch open. A watch that has died without a word is
    /// noticed after this and five seconds more. At most 294 s.
    pub watch_timeout: Duration,
    /// Only objects with these labels.
    pub label_selector: Option<String>,
    /// Only objects with these fields.
    pub field_selector: Option<String>,
}

impl Default for InformerConfig {
    fn default() -> Self {
        Self { page_size: 100, watch_timeout: Duration::from_secs(90), label_selector: None, field_selector: None }
    }
}

impl InformerConfig {
    fn watcher(&self) -> Config {
        let seconds = u32::try_from(self.watch_timeout.as_secs()).unwrap_or(u32::MAX).clamp(1, 294);
        let mut config = Config::default().page_size(self.page_size).timeout(seconds);
        config.label_selector.clone_from(&self.label_selector);
        config.field_selector.clone_from(&self.field_selector);
        config
    }
}

/// Who is told of changes. It must not block: it puts a key on a queue.
pub type OnChange<K> = Box<dyn FnMut(Change<K>) + Send>;

/// Watches one kind of object.
pub struct Informer<K: Stored> {
    api: Api<K::Wire>,
    config: InformerConfig,
    store: Store<K>,
    on_change: OnChange<K>,
    meter: Meter,
}

impl<K: Stored> Informer<K>
where
    K::Wire: kube::Resource<Scope = kube::core::ClusterResourceScope>,
{
    /// Watches all objects of the kind, and keeps `store` as they are.
    pub fn new(client: Client, config: InformerConfig, store: Store<K>, on_change: OnChange<K>, metrics: &InformerMetrics) -> Self {
        Self { api: Api::all(client), config, store, on_change, meter: metrics.of::<K>() }
    }
}

impl<K: Stored> Informer<K> {
    /// Runs until `stop` is cancelled. Errors are counted and logged, never returned:
    /// the API server may come back.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.stream() => self.meter.relisted(),
            }
        }
    }

    /// One stream, from its list on, until it has to be thrown away.
    async fn stream(&mut self) {
        let events = watcher::watcher(self.api.clone(), self.config.watcher()).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut seen = Seen::default();
        let mut failures = 0;
        loop {
            match events.try_next().await {
                Ok(Some(event)) => {
                    failures = 0;
                    self.apply(event, &mut seen);
                }
                Ok(None) => return,
                Err(error) => {
                    let error = to_api_error(error);
                    self.meter.failed(&error);
                    failures = if ends_a_watch(&error) { failures + 1 } else { 0 };
                    if failures >= RELIST_AFTER {
                        return;
                    }
                }
            }
        }
    }

    fn apply(&mut self, event: Event<K::Wire>, seen: &mut Seen) {
        self.meter.event();
        match event {
            Event::Init => seen.begin(),
            Event::InitApply(wire) => {
                if let Some(object) = self.read(wire) {
                    seen.add(object.key());
                    self.tell_all(|store| store.apply_seen(object));
                }
            }
            Event::InitDone => {
                let names = seen.end();
                self.tell_all(|store| store.retain(|key| names.contains(key)));
                self.store.set_synced();
            }
            Event::Apply(wire) => {
                if let Some(object) = self.read(wire) {
                    self.tell_all(|store| store.apply_seen(object));
                }
            }
            Event::Delete(wire) => {
                if let Some(object) = self.read(wire) {
                    self.tell_all(|store| store.remove_seen(&object).into_iter().collect());
                }
            }
        }
        self.meter.objects(self.store.len());
    }

    fn read(&mut self, wire: K::Wire) -> Option<K> {
        let name = kube::Resource::meta(&wire).name.clone();
        K::read(wire).inspect_err(|why| self.meter.malformed(name.as_deref(), why)).ok()
    }

    fn tell_all(&mut self, change: impl FnOnce(&Store<K>) -> Vec<Change<K>>) {
        for change in change(&self.store) {
            (self.on_change)(change);
        }
    }
}

/// Whether a watch that failed like this cannot go on from its version.
fn ends_a_watch(error: &ApiError) -> bool {
    matches!(error, ApiError::Expired(_) | ApiError::Timeout | ApiError::Decode(_))
}

fn to_api_error(error: watcher::Error) -> ApiError {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error.into(),
        watcher::Error::WatchError(status) => ApiError::from_status(&status),
        watcher::Error::NoResourceVersion => ApiError::Decode("a list without a resource version".to_owned()),
    }
}
