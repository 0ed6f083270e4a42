//! Keeps a [`Store`] as the API server is, and tells of every change that matters.
//!
//! A list in pages, then a watch from there. A watch that ends or fails is begun again
//! where it left off; one that cannot go on from there ([`RELIST_AFTER`]) is thrown away
//! and everything is listed anew. A new list also shows what has been deleted meanwhile.

mod metrics;
mod pace;

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Client,
    core::Status,
    runtime::{
        utils::Backoff as _,
        watcher::{self, Config, DefaultBackoff, Event},
    },
};
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use metrics::InformerMetrics;

use self::metrics::Meter;
use crate::{
    error::ApiError,
    store::{Change, Store, Stored},
};

/// After so many errors in a row at which a watch cannot go on (its version has
/// expired, the server gave up on it, its events make no sense), the stream is thrown
/// away and a new one lists again. kube's watcher alone would repeat an expired version
/// for ever when the answer is an HTTP status rather than an event.
const RELIST_AFTER: u32 = 3;

/// The longest wait after a failure; kube's back-off has the same bound.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct InformerConfig {
    /// Objects on one page of a list. Small, because a page is held twice while it is
    /// read: 100 nodes of 16 KB are 3 MB, 500 would be 16 MB.
    pub page_size: u32,
    /// How long the server keeps a watch open, give or take a third, so that the
    /// watches of many processes do not end together. A watch that has died without a
    /// word is noticed five seconds after that. At most 220 s.
    pub watch_timeout: Duration,
    /// Only objects with these labels.
    pub label_selector: Option<String>,
    /// Only objects with these fields.
    pub field_selector: Option<String>,
}

impl Default for InformerConfig {
    fn default() -> Self {
        Self {
            page_size: 100,
            watch_timeout: Duration::from_secs(90),
            label_selector: None,
            field_selector: None,
        }
    }
}

impl InformerConfig {
    fn watcher(&self) -> Config {
        let timeout = self.watch_timeout.mul_f64(rand::random_range(2.0 / 3.0..4.0 / 3.0));
        // kube refuses 295 s and more.
        let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX).clamp(1, 294);
        let mut config = Config::default().page_size(self.page_size.max(1)).timeout(seconds);
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
    backoff: DefaultBackoff,
    trouble: Trouble,
}

/// Why an informer does not get on: the last error, until something is read again. For
/// health checks; clones look at the same informer.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Option<ApiError>>>);

impl Trouble {
    /// The last error, if nothing was read since.
    pub fn last_error(&self) -> Option<ApiError> {
        self.0.lock().clone()
    }
}

impl<K: Stored> Informer<K> {
    /// Watches all objects of the kind, in all namespaces, and keeps `store` as they
    /// are. Needs a tokio runtime.
    pub fn new(
        client: Client,
        config: InformerConfig,
        store: Store<K>,
        on_change: OnChange<K>,
        metrics: &InformerMetrics,
    ) -> Self {
        Self {
            api: Api::all(pace::paced(client)),
            config,
            store,
            on_change,
            meter: metrics.of::<K>(),
            backoff: DefaultBackoff::default(),
            trouble: Trouble::default(),
        }
    }

    /// Why this informer does not get on, to be looked at while it runs.
    pub fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    /// Runs until `stop` is cancelled. Errors are counted and logged, never returned:
    /// the API server may come back.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.stream() => {}
            }
        }
    }

    /// One stream, from its list on, until it has to be thrown away.
    async fn stream(&mut self) {
        let mut events = std::pin::pin!(watcher::watcher(self.api.clone(), self.config.watcher()));
        let mut failures = 0;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    failures = 0;
                    self.apply(event);
                }
                Err(error) => {
                    failures += u32::from(ends_a_watch(&error));
                    let error = to_api_error(error, self.api.resource_url());
                    self.meter.failed(&error);
                    *self.trouble.0.lock() = Some(error);
                    // The back-off outlives the stream: a server where every watch
                    // fails is not asked for a whole list every few seconds.
                    sleep(self.backoff.next().unwrap_or(LONGEST_WAIT)).await;
                    if failures >= RELIST_AFTER {
                        return;
                    }
                }
            }
        }
    }

    fn apply(&mut self, event: Event<K::Wire>) {
        self.meter.event();
        // The beginning of a list is no answer yet.
        if !matches!(event, Event::Init) {
            *self.trouble.0.lock() = None;
        }
        match event {
            Event::Init => {
                self.meter.list();
                self.store.begin_list();
            }
            Event::InitApply(wire) => self.read_and_tell(wire, Store::apply_listed),
            Event::InitDone => {
                let gone = self.store.end_list();
                self.tell(gone);
                tracing::debug!(
                    resource = self.meter.resource(),
                    objects = self.store.len(),
                    "listed"
                );
            }
            Event::Apply(wire) => {
                self.backoff.reset();
                self.read_and_tell(wire, Store::apply_watched);
            }
            Event::Delete(wire) => {
                self.backoff.reset();
                self.read_and_tell(wire, |store, object| store.remove_watched(&object));
            }
        }
        self.meter.objects(self.store.len());
    }

    /// One object that cannot be read is left out; the others are none the worse.
    fn read_and_tell<I>(&mut self, wire: K::Wire, take: impl FnOnce(&Store<K>, K) -> I)
    where
        I: IntoIterator<Item = Change<K>>,
    {
        let name = kube::Resource::meta(&wire).name.clone();
        match K::read(wire) {
            Ok(object) => {
                let changes = take(&self.store, object);
                self.tell(changes);
            }
            Err(why) => self.meter.malformed(name.as_deref(), &why),
        }
    }

    fn tell(&mut self, changes: impl IntoIterator<Item = Change<K>>) {
        changes.into_iter().for_each(&mut self.on_change);
    }
}

/// Whether a watch that failed like this may be unable to go on from its version. A
/// server that cannot be reached says nothing about that.
fn ends_a_watch(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => match error
        {
            kube::Error::Api(status) => is_no_status(status) || refuses_version(status),
            kube::Error::SerdeError(_) => true,
            _ => false,
        },
        watcher::Error::WatchError(status) => refuses_version(status),
        // A list that fails is begun anew in any case.
        watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion => false,
    }
}

/// Expired, too new for this server (after a restore), or not understood by it.
fn refuses_version(status: &Status) -> bool {
    matches!(status.code, 400 | 410 | 504)
}

/// What kube makes of a line that is JSON and neither an event nor a status.
fn is_no_status(status: &Status) -> bool {
    status.code == 0 && status.reason.is_empty()
}

fn to_api_error(error: watcher::Error, path: &str) -> ApiError {
    match error {
        watcher::Error::WatchFailed(kube::Error::Api(status)) if is_no_status(&status) => {
            ApiError::Decode("a line that is no event".to_owned())
        }
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error.into() {
            ApiError::NotFound => ApiError::NoSuchPath(path.to_owned()),
            other => other,
        },
        watcher::Error::WatchError(status) => ApiError::from_status(&status),
        watcher::Error::NoResourceVersion => {
            ApiError::Decode("no resource version in a list or an object".to_owned())
        }
    }
}
