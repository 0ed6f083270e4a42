//! Keeps a [`Store`] in sync with the API server and reports every relevant change.
//!
//! It begins with a list, in pages or streamed. Then it watches, each time from the version that
//! the last watch reached. A watch that ends or fails is restarted where it stopped. A watch that
//! cannot continue ([`RELIST_AFTER`]) is dropped and everything is listed again; the same happens
//! when the store must keep other parts of its objects. A new list also reveals objects that were
//! deleted in between.
//!
//! A watch that is silent without a cause is noticed: `health` has the rules, `comparison` the
//! requests for them, and [`WatchState`] shows the result to others.

mod comparison;
mod failure;
mod freshness;
mod health;
mod metrics;
mod pages;
mod state;

use std::{convert::Infallible, ops::Range, pin::pin, sync::Arc, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Client,
    api::WatchParams,
    core::WatchEvent,
    runtime::{utils::Backoff as _, watcher::DefaultBackoff},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

pub use freshness::Freshness;
pub use metrics::InformerMetrics;
pub use state::{FailedWatch, WatchState};

use self::{
    failure::InformerFailure,
    health::WatchHealth,
    metrics::Meter,
    pages::{Page, PageSize},
};
use crate::store::{Change, Rule, Store, Stored};

/// After this many consecutive errors that may make a watch unable to continue (server error,
/// unreadable events), or one expired version, everything is listed again.
const RELIST_AFTER: u32 = 3;

/// The longest wait after a failure, unless the failure needs a list. It is short, so that a right
/// that is granted again is used soon.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// The longest wait before a list because of an expired version.
const LONGEST_WAIT_TO_LIST: Duration = Duration::from_secs(30);

/// How long a streamed list may take, in seconds.
const LIST_SECONDS: u32 = 120;

/// How long the server keeps a watch open, in seconds; random, so that the watches of many
/// processes do not end together. Short, because the API server sends a bookmark two seconds
/// before the end, which shows that the watch works.
const WATCH_SECONDS: Range<u32> = 20..31;

/// The same for a watch that has to show that it works.
const TRIAL_SECONDS: u32 = 3;

/// A watch that the server has not ended this long after its time is dead.
const OVERDUE: Duration = Duration::from_secs(5);

/// The least time between the starts of two watches: a server or proxy that closes every watch
/// at once must not get thousands of requests per second.
const BETWEEN_WATCHES: Duration = Duration::from_secs(1);

/// The callback for changes. It must not block: it puts a key on a queue.
pub type OnChange<K> = Box<dyn FnMut(Change<K>) + Send>;

/// Watches one kind of object.
pub struct Informer<K: Stored> {
    client: Client,
    api: Api<K::Wire>,
    store: Store<K>,
    on_change: OnChange<K>,
    meter: Meter,
    state: WatchState,
    /// The back-offs outlive a watch and a list: a server where every watch fails must not serve
    /// a whole list every few seconds.
    backoff: DefaultBackoff,
    /// The waits after an expired version, which only a new list can end. They are separate,
    /// because an earlier outage must not make them long.
    expired: DefaultBackoff,
    /// Consecutive failures that may make the watch unable to continue.
    failures: u32,
    next_watch: Instant,
    /// True if lists are streamed.
    streams: bool,
    /// The size of pages outlives a list.
    pages: PageSize,
    /// The rule by which objects are read; a new one needs a list.
    rule: watch::Receiver<Arc<Rule<K::Kept>>>,
}

/// A list that has begun.
struct ListInProgress {
    begun: Instant,
    doubted_after: Option<u64>,
    /// True if it has objects that are newer than the store's, or lacks objects of the store.
    has_news: bool,
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
        let meter = metrics.meter::<K>();
        let rule = store.rules();
        Self {
            api: Api::all(client.clone()),
            client,
            store,
            on_change,
            state: meter.state(),
            meter,
            backoff: DefaultBackoff::default(),
            expired: DefaultBackoff::default(),
            failures: 0,
            next_watch: Instant::now(),
            streams: false,
            pages: PageSize::default(),
            rule,
        }
    }

    /// Makes it stream its lists if the API server offers that, instead of reading pages.
    #[must_use]
    pub fn streaming(mut self, streams: bool) -> Self {
        self.streams = streams;
        self
    }

    /// Returns the state of its watch, for use while it runs.
    pub fn state(&self) -> WatchState {
        self.state.clone()
    }

    /// Returns the value that can prove, while the informer runs, that the store is not older than
    /// a moment.
    pub fn freshness(&self) -> Freshness {
        let (path, store) = (self.api.resource_url().to_owned(), self.store.clone());
        let objects = Arc::new(move || store.len());
        Freshness::new(self.client.clone(), path, self.state.clone(), objects)
    }

    /// Runs until `stop` is cancelled. Errors are counted and logged, never returned: the API
    /// server may recover.
    pub async fn run(mut self, stop: CancellationToken) {
        let path = self.api.resource_url().to_owned();
        let comparisons = comparison::run(self.client.clone(), path, self.state.clone());
        tokio::select! {
            biased;
            () = stop.cancelled() => (),
            never = comparisons => match never {},
            never = self.list_and_watch() => match never {},
        }
    }

    async fn list_and_watch(&mut self) -> Infallible {
        loop {
            match self.list().await {
                Ok(version) => self.watch_from(version).await,
                Err(failure) if self.streams && failure.is_unsupported() => {
                    let resource = self.meter.resource();
                    tracing::info!(resource, "the API server does not stream lists; using pages");
                    self.streams = false;
                }
                Err(failure) => self.failed(failure).await,
            }
        }
    }

    /// Lists everything. Returns the version to watch from.
    async fn list(&mut self) -> Result<String, InformerFailure> {
        self.meter.list();
        self.rule.mark_unchanged();
        self.store.begin_list();
        let doubted_after = self.state.read(WatchHealth::doubted_after);
        let mut list = ListInProgress { begun: Instant::now(), doubted_after, has_news: false };
        let version = match self.streams {
            true => self.list_streamed(&mut list).await?,
            false => self.list_paged(&mut list).await?,
        };
        let gone = self.store.end_list();
        list.has_news |= list.doubted_after.is_some() && !gone.is_empty();
        self.report(gone);
        let objects = self.store.len();
        self.meter.objects(objects);
        tracing::debug!(resource = self.meter.resource(), objects, "listed");
        Ok(self.state.update(|health| health.listed(list.begun, &version, list.has_news)))
    }

    async fn list_paged(&mut self, list: &mut ListInProgress) -> Result<String, InformerFailure> {
        let (path, mut token) = (self.api.resource_url().to_owned(), None);
        loop {
            let page = pages::read(&self.client, &path, token, &mut self.pages);
            let body = page.await.map_err(InformerFailure::List)?;
            let unreadable = |error| InformerFailure::List(kube::Error::SerdeError(error));
            let page: Page<'_> = serde_json::from_slice(&body).map_err(unreadable)?;
            self.pages.adapt(page.items.len(), body.len());
            for item in page.items {
                let wire = serde_json::from_str(item.get()).map_err(unreadable)?;
                self.take_listed(list, wire);
            }
            self.state.update(|health| health.showed_page(Instant::now()));
            token = page.metadata.continue_.filter(|token| !token.is_empty());
            if token.is_none() {
                let version = page.metadata.resource_version;
                return version
                    .filter(|version| !version.is_empty())
                    .ok_or(InformerFailure::NoVersion);
            }
        }
    }

    /// Lists by a watch that begins with all objects (`WatchList`).
    async fn list_streamed(
        &mut self,
        list: &mut ListInProgress,
    ) -> Result<String, InformerFailure> {
        let params = WatchParams::default().timeout(LIST_SECONDS).initial_events();
        let events = self.api.watch(&params, "").await.map_err(InformerFailure::List)?;
        let mut events = pin!(events);
        let end = Instant::now() + Duration::from_secs(LIST_SECONDS.into()) + OVERDUE;
        while let Ok(Some(event)) = timeout_at(end, events.next()).await {
            self.state.update(|health| health.showed_page(Instant::now()));
            match event.map_err(InformerFailure::List)? {
                WatchEvent::Added(wire) | WatchEvent::Modified(wire) => {
                    self.take_listed(list, wire);
                }
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end") {
                        return Ok(bookmark.metadata.resource_version);
                    }
                }
                WatchEvent::Deleted(_) => (),
                WatchEvent::Error(status) => return Err(InformerFailure::Event(status)),
            }
        }
        Err(InformerFailure::Unfinished)
    }

    fn take_listed(&mut self, list: &mut ListInProgress, wire: K::Wire) {
        list.has_news |= list.doubted_after.is_some_and(|after| {
            version_of(&wire).and_then(|text| text.parse().ok()) > Some(after)
        });
        self.read_and_report(wire, Store::apply_listed);
    }

    /// Watches until everything must be listed again.
    async fn watch_from(&mut self, mut version: String) {
        self.failures = 0;
        while self.failures < RELIST_AFTER && !self.state.must_list() && !self.has_new_rule() {
            sleep_until(self.next_watch).await;
            self.next_watch = Instant::now() + BETWEEN_WATCHES;
            self.watch(&mut version).await;
        }
    }

    /// Returns true if the objects in the store were read by an earlier rule.
    fn has_new_rule(&self) -> bool {
        // The store holds the sender.
        self.rule.has_changed().unwrap_or_default()
    }

    /// Follows one watch to its end.
    async fn watch(&mut self, version: &mut String) {
        let seconds = match self.state.failure() {
            None => rand::random_range(WATCH_SECONDS),
            Some(_) => TRIAL_SECONDS,
        };
        let params = WatchParams::default().timeout(seconds);
        let events = match self.api.watch(&params, version).await {
            Ok(events) => events,
            Err(error) => return self.failed(InformerFailure::Start(error)).await,
        };
        let mut events = pin!(events);
        self.state.accepted();
        let lasting = Duration::from_secs(seconds.into());
        let (state, end) = (self.state.clone(), Instant::now() + lasting + OVERDUE);
        while self.failures < RELIST_AFTER {
            let next = tokio::select! {
                biased;
                () = state.list_needed() => return,
                Ok(()) = self.rule.changed() => {
                    self.rule.mark_changed();
                    return;
                }
                next = timeout_at(end, events.next()) => next,
            };
            let taken = match next {
                Ok(Some(event)) => event
                    .map_err(InformerFailure::Watch)
                    .and_then(|event| self.apply(event, version)),
                Ok(None) => return self.state.update(|health| health.ended(Instant::now())),
                Err(_) => return,
            };
            if let Err(failure) = taken {
                self.failed(failure).await;
            }
        }
    }

    /// Applies an event, which moves the watch to its version.
    fn apply(
        &mut self,
        event: WatchEvent<K::Wire>,
        version: &mut String,
    ) -> Result<(), InformerFailure> {
        let (wire, is_deleted) = match event {
            WatchEvent::Added(wire) | WatchEvent::Modified(wire) => (wire, false),
            WatchEvent::Deleted(wire) => (wire, true),
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                self.state.update(|health| health.showed_bookmark(Instant::now(), version));
                self.works();
                return Ok(());
            }
            WatchEvent::Error(status) => return Err(InformerFailure::Event(status)),
        };
        version_of(&wire).ok_or(InformerFailure::NoVersion)?.clone_into(version);
        if is_deleted {
            self.read_and_report(wire, |store, object| store.remove_watched(&object));
        } else {
            self.read_and_report(wire, Store::apply_watched);
        }
        // This comes after the change of the store, because a task that waits for this version
        // reads the store.
        self.state.update(|health| health.showed_event(Instant::now(), version));
        self.works();
        self.meter.objects(self.store.len());
        Ok(())
    }

    /// Records that the watch works.
    fn works(&mut self) {
        self.failures = 0;
        self.backoff.reset();
        self.expired.reset();
    }

    /// Counts a failure and waits before the next attempt.
    async fn failed(&mut self, failure: InformerFailure) {
        let (is_final, is_refusal) = (failure.is_final(), failure.is_refusal());
        self.failures += match is_final {
            true => RELIST_AFTER,
            false => u32::from(failure.may_be_final()),
        };
        let error = failure.into_api_error(self.api.resource_url());
        self.meter.failed(&error);
        match is_refusal {
            true => self.state.refused(error),
            false => self.state.failed(error),
        }
        let (backoff, longest) = match is_final {
            true => (&mut self.expired, LONGEST_WAIT_TO_LIST),
            false => (&mut self.backoff, LONGEST_WAIT),
        };
        let wait = backoff.next().map_or(longest, |wait| wait.min(longest));
        let ends_early = !self.state.must_list();
        tokio::select! {
            () = sleep(wait) => (),
            () = self.state.list_needed(), if ends_early => (),
        }
    }

    /// Skips an object that cannot be read; the others are not affected.
    fn read_and_report<I>(&mut self, wire: K::Wire, take: impl FnOnce(&Store<K>, K) -> I)
    where
        I: IntoIterator<Item = Change<K>>,
    {
        let name = kube::Resource::meta(&wire).name.clone();
        match K::read(wire, &self.store.rule()) {
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

/// Returns the object's version.
fn version_of(wire: &impl kube::Resource<DynamicType = ()>) -> Option<&str> {
    wire.meta().resource_version.as_deref().filter(|version| !version.is_empty())
}
