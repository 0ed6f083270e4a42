//! Changes that were sent and are not answered yet.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use ccm_cloud::{Route, RouteTraits};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The maximum number of changes in flight: a few calls of the largest size. More would not be
/// faster, and each is in memory in several forms.
const AT_ONCE: usize = 1000;
/// How long a change counts for this maximum, so that a hanging call does not block the others.
const SLOW: Duration = Duration::from_secs(3);
/// The most changes, including calls that hang.
const MOST: usize = 4 * AT_ONCE;

/// The changes by destination.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InFlight {
    sent: BTreeMap<IpNet, Sent>,
    /// How often the settings or the approval have changed by which changes are decided.
    #[serde(default)]
    decided_by: u64,
}

/// A change that was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sent {
    at: At,
    /// The route that it removes, if any.
    old: Option<Route>,
    /// The number of the settings and the approval that have decided it.
    decided_by: u64,
}

impl InFlight {
    /// Records that a change of this destination is sent. `old` is the route that the change
    /// removes.
    pub fn insert(&mut self, destination: IpNet, now: At, old: Option<&Route>) {
        let sent = Sent { at: now, old: old.cloned(), decided_by: self.decided_by };
        self.sent.insert(destination, sent);
    }

    /// Records that other settings or another approval decide from now on.
    pub fn decide_anew(&mut self) {
        self.decided_by += 1;
    }

    /// Returns true if a change of this destination is in flight that the present settings and the present
    /// approval have decided.
    pub fn is_current(&self, destination: IpNet) -> bool {
        let sent = self.sent.get(&destination);
        sent.is_some_and(|sent| sent.decided_by == self.decided_by)
    }

    /// Records that the change is answered.
    pub fn remove(&mut self, destination: IpNet) {
        self.sent.remove(&destination);
    }

    /// Returns true if a change that is not answered yet removes the route.
    pub fn takes(&self, route: &Route) -> bool {
        let sent = self.sent.get(&route.destination.trunc());
        sent.is_some_and(|sent| sent.old.as_ref() == Some(route))
    }

    /// Returns true if a change of this destination is in flight.
    pub fn contains(&self, destination: IpNet) -> bool {
        self.sent.contains_key(&destination)
    }

    /// Returns when the change of this destination was sent, if it is not answered yet.
    pub fn since(&self, destination: IpNet) -> Option<At> {
        self.sent.get(&destination).map(|sent| sent.at)
    }

    /// Returns true if it is empty.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Returns the destinations of the changes.
    pub fn destinations(&self) -> impl Iterator<Item = IpNet> {
        self.sent.keys().copied()
    }

    /// Returns how many nodes may get a route now, in full calls.
    pub fn room(&self, now: At, traits: &RouteTraits) -> usize {
        let batch = traits.max_batch.max(1);
        let new = self.sent.values().filter(|sent| now < sent.at + SLOW).count();
        let room = AT_ONCE.max(batch).saturating_sub(new);
        room.min(MOST.max(batch).saturating_sub(self.sent.len())) / batch * batch
    }

    /// Returns when there is more room, if no answer comes.
    pub fn next(&self, now: At) -> Option<At> {
        self.sent.values().map(|sent| sent.at + SLOW).filter(|due| *due > now).min()
    }
}
