//! Fault injection: which requests fail, how, how often and for how long.
//!
//! A [`FaultPlan`] is shared with the running server, so a test adds and removes faults
//! while programs run. Probabilities use the server's seed.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use tokio::time::Instant;

use super::request::{RequestInfo, Verb};

/// The effect of a fault.
#[derive(Clone, Debug)]
pub enum Action {
    /// The request waits before it is processed.
    Delay(Duration),
    /// The request is applied at once, and its response comes this much later.
    DelayAnswer(Duration),
    /// The connection breaks before the request is applied.
    DropBeforeApply,
    /// The request is applied, then the connection breaks before the response.
    DropAfterApply,
    /// An error without effect: 429, 500, 503, 504, 401, 410... 403 also removes the right:
    /// access reviews deny it.
    Status {
        /// HTTP status code.
        code: u16,
        /// Header `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// The request is accepted and never answered.
    Stall,
    /// GET and LIST return an older version, as a lagging replica does.
    StaleRead {
        /// How many versions older, limited by the history.
        versions: u64,
    },
    /// A LIST has only this many objects, although it succeeds.
    ShortList(usize),
    /// The server stores and returns the object of a write without the field at this JSON pointer, as
    /// with a mutating admission policy.
    TakeBack(&'static str),
    /// This changes the body of a write before the server applies it, as a mutating admission policy does.
    Mutate(fn(&mut Value)),
    /// A watch ends early.
    CutWatch {
        /// The duration of the watch.
        after: Duration,
        /// True if the connection breaks; otherwise the stream ends cleanly.
        abrupt: bool,
    },
    /// A watch answers 200 and its stream begins with an `ERROR` event with this code.
    WatchError {
        /// The code in the `Status` object.
        code: u16,
    },
    /// A watch sends each event twice.
    DuplicateEvents,
    /// A watch stays open and sends nothing, not even bookmarks.
    SilentWatch,
    /// Lists and watches contain these bytes instead of an object.
    Malformed {
        /// The name of the object; all objects if `None`.
        name: Option<String>,
        /// The replacement. Need not be JSON.
        instead: Bytes,
    },
}

/// An action with its conditions. Without conditions it hits every request.
#[derive(Clone, Debug)]
pub struct Fault {
    action: Action,
    verbs: Vec<Verb>,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
    user_agent: Option<String>,
    times: Option<usize>,
    lasting: Option<Duration>,
    chance: Option<f64>,
}

impl Fault {
    /// Creates this action, without conditions.
    pub fn new(action: Action) -> Self {
        Self {
            action,
            verbs: Vec::new(),
            resource: None,
            subresource: None,
            name: None,
            user_agent: None,
            times: None,
            lasting: None,
            chance: None,
        }
    }

    /// Restricts it to this verb. Several calls add verbs.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Restricts it to create, update, patch, delete and delete-collection.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.verbs.extend([
            Verb::Create,
            Verb::Update,
            Verb::Patch,
            Verb::Delete,
            Verb::DeleteCollection,
        ]);
        self
    }

    /// Restricts it to this resource (plural name), with all its subresources.
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// Restricts it to this subresource; empty for the object itself.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Restricts it to the object of this name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Restricts it to user agents with this prefix.
    #[must_use]
    pub fn user_agent(mut self, prefix: &str) -> Self {
        self.user_agent = Some(prefix.to_owned());
        self
    }

    /// Restricts it to the next `count` matching requests.
    #[must_use]
    pub fn times(mut self, count: usize) -> Self {
        self.times = Some(count);
        self
    }

    /// Restricts it to this time after it was added.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Self {
        self.lasting = Some(duration);
        self
    }

    /// Gives it this probability, from 0 to 1.
    #[must_use]
    pub fn chance(mut self, probability: f64) -> Self {
        self.chance = Some(probability.clamp(0.0, 1.0));
        self
    }

    fn matches(&self, asked: &Asked<'_>) -> bool {
        let is = |wanted: &Option<String>, have: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == have)
        };
        let verb = |verb: &Verb| verb.as_str() == asked.verb;
        (self.verbs.is_empty() || self.verbs.iter().any(verb))
            && is(&self.resource, asked.resource)
            && is(&self.subresource, asked.subresource)
            && is(&self.name, asked.name)
            && self
                .user_agent
                .as_ref()
                .is_none_or(|prefix| asked.user_agent.starts_with(prefix.as_str()))
    }
}

/// The properties of a request, or of a reviewed one, that faults match.
pub(super) struct Asked<'a> {
    pub(super) verb: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) name: &'a str,
    pub(super) user_agent: &'a str,
}

impl<'a> From<&'a RequestInfo> for Asked<'a> {
    fn from(info: &'a RequestInfo) -> Self {
        Self {
            verb: info.verb.as_str(),
            resource: info.resource_name(),
            subresource: &info.subresource,
            name: &info.name,
            user_agent: &info.user_agent,
        }
    }
}

/// Identifies a fault within its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultId(u64);

struct Planned {
    id: FaultId,
    fault: Fault,
    since: Instant,
    hits: usize,
}

impl Planned {
    fn is_over(&self, now: Instant) -> bool {
        self.fault.times.is_some_and(|times| self.hits >= times)
            || self.fault.lasting.is_some_and(|lasting| now >= self.since + lasting)
    }
}

struct State {
    next: u64,
    planned: Vec<Planned>,
    rng: StdRng,
}

/// The faults of one server. Clones share them.
#[derive(Clone)]
pub struct FaultPlan {
    state: Arc<Mutex<State>>,
}

impl FaultPlan {
    pub(super) fn new(seed: u64) -> Self {
        let state = State { next: 0, planned: Vec::new(), rng: StdRng::seed_from_u64(seed) };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Adds a fault. Several may hit one request: they act in the order they were added.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut state = self.state.lock();
        let id = FaultId(state.next);
        state.next += 1;
        state.planned.push(Planned { id, fault, since: Instant::now(), hits: 0 });
        id
    }

    /// Removes a fault. Requests that it stalls stay stalled.
    pub fn remove(&self, id: FaultId) {
        self.state.lock().planned.retain(|planned| planned.id != id);
    }

    /// Removes all faults.
    pub fn clear(&self) {
        self.state.lock().planned.clear();
    }

    /// Returns how many requests a fault has hit.
    pub fn hits(&self, id: FaultId) -> usize {
        self.state
            .lock()
            .planned
            .iter()
            .find(|planned| planned.id == id)
            .map_or(0, |planned| planned.hits)
    }

    /// Returns true if a request like this would get 403 at any time. Access reviews use this.
    pub(super) fn forbids(&self, asked: &Asked<'_>) -> bool {
        let now = Instant::now();
        self.state.lock().planned.iter().any(|planned| {
            matches!(planned.fault.action, Action::Status { code: 403, .. })
                && planned.fault.chance.is_none()
                && !planned.is_over(now)
                && planned.fault.matches(asked)
        })
    }

    /// Returns the actions for this request. Counts as a hit for each matching fault.
    pub(super) fn strike(&self, info: &RequestInfo) -> Vec<Action> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let State { planned, rng, .. } = &mut *state;
        let mut actions = Vec::new();
        for planned in planned.iter_mut() {
            let due = !planned.is_over(now)
                && planned.fault.matches(&info.into())
                && planned.fault.chance.is_none_or(|chance| rng.random_bool(chance));
            if due {
                planned.hits += 1;
                actions.push(planned.fault.action.clone());
            }
        }
        actions
    }
}

/// The effects of faults on a request that is processed.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    pub(super) stale: u64,
    pub(super) short: Option<usize>,
    pub(super) drop_after: bool,
    pub(super) cut: Option<(Duration, bool)>,
    pub(super) watch_error: Option<u16>,
    pub(super) duplicate: bool,
    pub(super) silent: bool,
    pub(super) malformed: Vec<(Option<String>, Bytes)>,
}

impl Effects {
    /// Returns the replacement for the object with this name.
    pub(super) fn instead_of(&self, name: &str) -> Option<Bytes> {
        let hit = |(target, _): &&(Option<String>, Bytes)| {
            target.as_ref().is_none_or(|target| target == name)
        };
        self.malformed.iter().find(hit).map(|(_, bytes)| bytes.clone())
    }
}
