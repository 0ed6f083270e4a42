//! Keeps a [`Store`] in sync with the API server and reports every relevant change.
//!
//! A paged list, then a watch from its version. A watch that ends or fails is restarted
//! where it stopped; one that cannot continue ([`RELIST_AFTER`]) is dropped and everything
//! is listed again. A new list also shows objects deleted meanwhile.

mod metrics;
mod pace;

use std::{ops::Range, sync::Arc, time::Duration};

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

/// After this many consecutive errors that may make a watch unable to continue (server error,
/// unreadable events), or one expired version, the stream is replaced by one that lists
/// again. kube's watcher alone would retry an expired version without end if the response
/// is an HTTP status instead of an event.
const RELIST_AFTER: u32 = 3;

/// The longest wait after a failure; kube's back-off has the same cap.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Objects per page of a list. Small, because a page is held twice while it is parsed: 100
/// nodes of 16 KB are 3 MB, 500 would be 16 MB.
const PAGE_SIZE: u32 = 100;

/// How long the server keeps a watch open, in seconds; random, so that the watches of many
/// processes do not end together. A dead watch is detected five seconds after that.
const WATCH_SECONDS: Range<u32> = 60..120;

/// The callback for changes. It must not block: it puts a key on a queue.
pub type OnChange<K> = Box<dyn FnMut(Change<K>) + Send>;

/// Watches one kind of object.
pub struct Informer<K: Stored> {
    api: Api<K::Wire>,
    store: Store<K>,
    on_change: OnChange<K>,
    meter: Meter,
    backoff: DefaultBackoff,
    /// The waits after an expired version, which only a new list can end: an outage before it
    /// must not make them long.
    expired: DefaultBackoff,
    trouble: Trouble,
}

/// The last error of an informer, until something is read again. For health checks; clones
/// refer to the same informer.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Option<ApiError>>>);

impl Trouble {
    /// The last error, if nothing was read since.
    pub fn last_error(&self) -> Option<ApiError> {
        self.0.lock().clone()
    }
}

impl<K: Stored> Informer<K> {
    /// Watches all objects of the kind in all namespaces and keeps `store` in sync. Needs a
    /// tokio runtime.
    pub fn new(
        client: Client,
        store: Store<K>,
        on_change: OnChange<K>,
        metrics: &InformerMetrics,
    ) -> Self {
        Self {
            api: Api::all(pace::paced(client)),
            store,
            on_change,
            meter: metrics.of::<K>(),
            backoff: DefaultBackoff::default(),
            expired: DefaultBackoff::default(),
            trouble: Trouble::default(),
        }
    }

    /// The last error of this informer, for use while it runs.
    pub fn trouble(&self) -> Trouble {
        self.trouble.clone()
    }

    /// Runs until `stop` is cancelled. Errors are counted and logged, never returned: the API
    /// server may recover.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.stream() => {}
            }
        }
    }

    /// Reads one stream, from its list on, until it must be replaced.
    async fn stream(&mut self) {
        let config =
            Config::default().page_size(PAGE_SIZE).timeout(rand::random_range(WATCH_SECONDS));
        let mut events = std::pin::pin!(watcher::watcher(self.api.clone(), config));
        let mut failures = 0;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    failures = 0;
                    self.apply(event);
                }
                Err(error) => {
                    let is_expired = is_expired(&error);
                    failures += match is_expired {
                        true => RELIST_AFTER,
                        false => u32::from(ends_a_watch(&error)),
                    };
                    let error = to_api_error(error, self.api.resource_url());
                    self.meter.failed(&error);
                    *self.trouble.0.lock() = Some(error);
                    // The back-offs outlive the stream: a server where every watch fails
                    // must not serve a whole list every few seconds.
                    let backoff = if is_expired { &mut self.expired } else { &mut self.backoff };
                    sleep(backoff.next().unwrap_or(LONGEST_WAIT)).await;
                    if failures >= RELIST_AFTER {
                        return;
                    }
                }
            }
        }
    }

    fn apply(&mut self, event: Event<K::Wire>) {
        self.meter.event();
        // The start of a list is not a response yet.
        if !matches!(event, Event::Init) {
            *self.trouble.0.lock() = None;
        }
        match event {
            Event::Init => {
                self.meter.list();
                self.store.begin_list();
            }
            Event::InitApply(wire) => self.read_and_report(wire, Store::apply_listed),
            Event::InitDone => {
                let gone = self.store.end_list();
                self.report(gone);
                tracing::debug!(
                    resource = self.meter.resource(),
                    objects = self.store.len(),
                    "listed"
                );
            }
            Event::Apply(wire) => {
                self.reset_backoff();
                self.read_and_report(wire, Store::apply_watched);
            }
            Event::Delete(wire) => {
                self.reset_backoff();
                self.read_and_report(wire, |store, object| store.remove_watched(&object));
            }
        }
        self.meter.objects(self.store.len());
    }

    fn reset_backoff(&mut self) {
        self.backoff.reset();
        self.expired.reset();
    }

    /// Skips an object that cannot be read; the others are not affected.
    fn read_and_report<I>(&mut self, wire: K::Wire, take: impl FnOnce(&Store<K>, K) -> I)
    where
        I: IntoIterator<Item = Change<K>>,
    {
        let name = kube::Resource::meta(&wire).name.clone();
        match K::read(wire) {
            Ok(object) => {
                let changes = take(&self.store, object);
                self.report(changes);
            }
            Err(why) => self.meter.malformed(name.as_deref(), &why),
        }
    }

    fn report(&mut self, changes: impl IntoIterator<Item = Change<K>>) {
        changes.into_iter().for_each(&mut self.on_change);
    }
}

/// Whether a watch with this error may be unable to continue from its version. An
/// unreachable server does not indicate that.
fn ends_a_watch(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => match error
        {
            kube::Error::Api(status) => is_no_status(status) || refuses_version(status),
            kube::Error::SerdeError(_) => true,
            _ => false,
        },
        watcher::Error::WatchError(status) => refuses_version(status),
        // A failed list starts again in any case.
        watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion => false,
    }
}

/// Whether the server says that a watch cannot continue from its version.
fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code == 410,
        _ => false,
    }
}

/// The version is expired, too new for this server (after a restore), or unreadable for it.
fn refuses_version(status: &Status) -> bool {
    matches!(status.code, 400 | 410 | 504)
}

/// kube's result for a line that is JSON but neither an event nor a status.
fn is_no_status(status: &Status) -> bool {
    status.code == 0 && status.reason.is_empty()
}

fn to_api_error(error: watcher::Error, path: &str) -> ApiError {
    match error {
        watcher::Error::WatchFailed(kube::Error::Api(status)) if is_no_status(&status) => {
            ApiError::Decode("a line that is not an event".to_owned())
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
