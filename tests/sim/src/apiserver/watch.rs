//! Watches: each reads the shared change log from its own position.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::watch::Receiver, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Core,
    body::ConnectionReset,
    collection,
    faults::Effects,
    negotiate::Form,
    object::Object,
    request::{Query, RequestInfo},
    resources::Resource,
    selectors::Selector,
    shape,
    status::{Cause, StatusError},
    store::{Change, ChangeKind, Range},
    table,
};

/// The largest number of changes encoded at once.
const BATCH: usize = 256;

/// An open watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchInfo {
    /// Plural name.
    pub resource: String,
    /// Header `User-Agent`.
    pub user_agent: String,
    /// When it began, as time since the server was created.
    pub since: Duration,
}

struct Open {
    info: WatchInfo,
    cut: CancellationToken,
    abrupt: Arc<AtomicBool>,
}

/// All open watches.
#[derive(Default)]
pub(super) struct Registry {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Open>>,
}

impl Registry {
    pub(super) fn list(&self) -> Vec<WatchInfo> {
        self.open.lock().values().map(|open| open.info.clone()).collect()
    }

    pub(super) fn cut(&self, user_agent: &str, abrupt: bool) -> usize {
        let open = self.open.lock();
        let hit: Vec<_> =
            open.values().filter(|open| open.info.user_agent.starts_with(user_agent)).collect();
        for open in &hit {
            open.abrupt.store(abrupt, Ordering::Relaxed);
            open.cut.cancel();
        }
        hit.len()
    }
}

/// The client's options.
struct WatchOptions {
    bookmarks: bool,
    initial: bool,
    from: u64,
    timeout: Option<Duration>,
}

impl WatchOptions {
    fn parse(query: &Query) -> Result<Self, StatusError> {
        const MATCH: &str = "resourceVersionMatch";
        let sends_initial = query.flag("sendInitialEvents");
        let refused = match (query.has("sendInitialEvents"), query.get(MATCH)) {
            (true, "NotOlderThan") | (false, "") => None,
            (true, _) => {
                Some("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
            }
            (false, _) => Some(
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
        };
        if let Some(detail) = refused {
            return Err(collection::invalid_options(Cause::forbidden(MATCH, detail)));
        }
        let from = collection::version(query)
            .map_err(|error| StatusError::new(500, "", error))?
            .unwrap_or(0);
        let timeout = match query.get("timeoutSeconds") {
            "" => None,
            text => Some(text.parse::<u64>().map_err(|_| {
                StatusError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            })?),
        };
        Ok(Self {
            bookmarks: query.flag("allowWatchBookmarks"),
            // Without a version all existing objects count as new.
            initial: sends_initial || (from == 0 && !query.has("sendInitialEvents")),
            from,
            timeout: timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        })
    }
}

/// A watch before it is streamed.
pub(super) struct Watch {
    core: Arc<Core>,
    resource: &'static Resource,
    prefix: String,
    selector: Selector,
    form: Form,
    include: table::Include,
    effects: Effects,
    bookmarks: bool,
    /// The version that the client asked for.
    from: u64,
    position: u64,
    pending: VecDeque<Bytes>,
    /// True if the next table contains the column definitions.
    headings: bool,
    tip: Receiver<u64>,
    deadline: Instant,
    next_bookmark: Instant,
    cut_at: Option<Instant>,
    finished: bool,
    id: u64,
    cut: CancellationToken,
    abrupt: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.core.watches.open.lock().remove(&self.id);
    }
}

impl Core {
    /// Answers a WATCH. Existing objects are encoded at once, later changes as they occur.
    pub(super) fn watch(
        self: &Arc<Self>,
        resource: &'static Resource,
        info: &RequestInfo,
        form: Form,
        effects: &Effects,
    ) -> Result<Watch, StatusError> {
        let query = &info.query;
        let options = WatchOptions::parse(query)?;
        let selector =
            Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        let oldest = self.store.oldest(resource);
        let expired = !options.initial && options.from < oldest;
        if expired && self.options.expired_watch_is_http {
            return Err(too_old(options.from, oldest));
        }
        let now = Instant::now();
        let timeout = options
            .timeout
            .unwrap_or_else(|| self.identity.watch_timeout(self.options.min_watch_timeout));
        let (id, cut, abrupt) = self.opened(resource, info, effects);
        let mut watch = Watch {
            core: Arc::clone(self),
            resource,
            prefix: if info.namespace.is_empty() {
                String::new()
            } else {
                format!("{}/", info.namespace)
            },
            selector,
            form,
            include: table::Include::of(info),
            effects: effects.clone(),
            bookmarks: options.bookmarks,
            from: options.from,
            position: options.from,
            pending: VecDeque::new(),
            headings: true,
            tip: self.store.subscribe(),
            deadline: now + timeout,
            next_bookmark: now,
            cut_at: effects.cut.map(|(after, _)| now + after),
            finished: false,
            id,
            cut,
            abrupt,
        };
        watch.next_bookmark = watch.following_bookmark();
        watch.begin(options.initial);
        Ok(watch)
    }

    /// Counts a watch as open. Returns its ID, and the receiver that ends it: at once if the flag
    /// is set.
    fn opened(
        &self,
        resource: &Resource,
        info: &RequestInfo,
        effects: &Effects,
    ) -> (u64, CancellationToken, Arc<AtomicBool>) {
        let cut = CancellationToken::new();
        let abrupt = Arc::new(AtomicBool::new(effects.cut.is_some_and(|(_, abrupt)| abrupt)));
        let id = self.watches.next.fetch_add(1, Ordering::Relaxed);
        let info = WatchInfo {
            resource: resource.plural.to_owned(),
            user_agent: info.user_agent.clone(),
            since: self.identity.uptime(),
        };
        let open = Open { info, cut: cut.clone(), abrupt: Arc::clone(&abrupt) };
        self.watches.open.lock().insert(id, open);
        (id, cut, abrupt)
    }
}

fn too_old(asked: u64, oldest: u64) -> StatusError {
    StatusError::expired(format!("too old resource version: {asked} ({oldest})"))
}

impl Watch {
    /// Returns the body of the response.
    pub(super) fn stream(self) -> impl Stream<Item = Result<Bytes, ConnectionReset>> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            watch.next().await.map(|piece| (piece, watch))
        })
    }

    fn begin(&mut self, initial: bool) {
        if let Some(code) = self.effects.watch_error {
            self.fail(&StatusError::of_code(code, None));
        } else if initial {
            let range = Range { prefix: &self.prefix, after: None, limit: 0 };
            let page = self
                .core
                .store
                .page(self.resource, None, &range, |object| self.selector.matches(object));
            let Ok(page) = page else { return };
            self.position = page.revision;
            for object in &page.objects {
                self.send("ADDED", object);
            }
            if self.bookmarks {
                self.send_bookmark(true);
            }
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, ConnectionReset>> {
        loop {
            if self.effects.silent {
                self.pending.clear();
            }
            if let Some(piece) = self.pending.pop_front() {
                return Some(Ok(piece));
            }
            if self.finished {
                return None;
            }
            self.tip.borrow_and_update();
            self.read_changes();
            if !self.pending.is_empty() || self.finished {
                continue;
            }
            let cut_at = self.cut_at.unwrap_or(self.deadline + Duration::from_secs(1));
            tokio::select! {
                biased;
                () = self.cut.cancelled() => return self.end(),
                () = tokio::time::sleep_until(cut_at) => return self.end(),
                changed = self.tip.changed() => self.finished = changed.is_err(),
                () = tokio::time::sleep_until(self.deadline) => self.finished = true,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    // This is the behaviour of kube-apiserver, which does not send anything at or
                    // below the requested version.
                    if self.position > self.from {
                        self.send_bookmark(false);
                    }
                    self.next_bookmark = self.following_bookmark();
                }
            }
        }
    }

    /// Returns one bookmark per interval, and one shortly before the end, where clients continue.
    fn following_bookmark(&self) -> Instant {
        let now = Instant::now();
        let next = now + self.core.options.bookmark_interval;
        let last = self.deadline.checked_sub(Duration::from_secs(2)).unwrap_or(now);
        if now < last && last < next { last } else { next }
    }

    fn end(&mut self) -> Option<Result<Bytes, ConnectionReset>> {
        self.finished = true;
        self.abrupt.load(Ordering::Relaxed).then_some(Err(ConnectionReset))
    }

    fn read_changes(&mut self) {
        match self.core.store.since(self.resource, self.position, BATCH) {
            Ok((changes, reached)) => {
                self.position = reached;
                for change in changes {
                    self.send_change(&change);
                }
            }
            Err(compacted) => self.fail(&too_old(self.position, compacted.oldest)),
        }
    }

    fn fail(&mut self, error: &StatusError) {
        let event = json!({ "type": "ERROR", "object": error.body() });
        self.pending.push_back(Bytes::from(format!("{event}\n")));
        self.finished = true;
    }

    /// Sends a change as this watch sees it: an object that starts or stops matching the selector
    /// is added or deleted.
    fn send_change(&mut self, change: &Change) {
        let object = &change.object;
        if !object.key.starts_with(&self.prefix) {
            return;
        }
        let before = change.previous.as_ref().filter(|previous| self.selector.matches(previous));
        let after = change.kind != ChangeKind::Deleted && self.selector.matches(object);
        match (before, after) {
            (None, true) => self.send("ADDED", object),
            (Some(_), true) => self.send("MODIFIED", object),
            (Some(_), false) if change.kind == ChangeKind::Deleted => self.send("DELETED", object),
            (Some(previous), false) => {
                let last = previous.at(self.resource, object.revision);
                self.send("DELETED", &last);
            }
            (None, false) => {}
        }
    }

    fn send(&mut self, event: &'static str, object: &Object) {
        let times = if self.effects.duplicate { 2 } else { 1 };
        for _ in 0..times {
            let pieces = match self.form {
                Form::Table | Form::Metadata => {
                    let shown = self.shown(object);
                    vec![Bytes::from(format!("{{\"type\":\"{event}\",\"object\":{shown}"))]
                }
                _ => {
                    let [head, tail] = object.whole(self.resource);
                    let mut start = format!("{{\"type\":\"{event}\",\"object\":").into_bytes();
                    let instead =
                        self.effects.instead_of(&object.name).filter(|_| event != "BOOKMARK");
                    match instead {
                        Some(instead) => vec![Bytes::from(start), instead],
                        None => {
                            start.extend_from_slice(&head);
                            vec![Bytes::from(start), tail]
                        }
                    }
                }
            };
            self.pending.extend(pieces);
            self.pending.push_back(Bytes::from_static(b"}\n"));
        }
    }

    fn shown(&mut self, object: &Object) -> Value {
        if self.form == Form::Metadata {
            return table::metadata_only(self.resource, object);
        }
        let options = table::Options { now: self.core.identity.now(), include: self.include };
        let mut shown = table::of_one(self.resource, object, &options);
        if !std::mem::take(&mut self.headings) {
            shown["columnDefinitions"] = Value::Null;
        }
        shown
    }

    fn send_bookmark(&mut self, initial_end: bool) {
        let mut value = json!({ "metadata": { "resourceVersion": self.position.to_string() } });
        if initial_end {
            value["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        // Normalising adds the fields that are always present.
        if let Err(error) = shape::normalise(&mut value, &self.resource.shape, &mut Vec::new()) {
            tracing::error!(%error, "a bookmark does not fit its type");
        }
        let bookmark = Object::new(self.resource, value, self.position);
        let duplicate = std::mem::take(&mut self.effects.duplicate);
        self.send("BOOKMARK", &bookmark);
        self.effects.duplicate = duplicate;
    }
}
