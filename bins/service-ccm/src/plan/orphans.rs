//! Decides which load balancers without a Service are deleted, and when: pure.
//!
//! Such an *orphan* is deleted only
//!
//! * if the [`Policy`] says so;
//! * if its owner's record names this cluster and a Service;
//! * if it was **seen twice**: on at least two complete lists, the first and the last of them
//!   [`OrphanRules::confirmation`] apart, both compared by this leader, and both times no known
//!   Service of that UID was of type LoadBalancer or had the finalizer;
//! * if the kit's **brake** allows it: Services exist, most load balancers have one, and fewer than
//!   [`BUDGET`] were deleted within its window;
//! * if right before the call the API server answers that the Service does not exist, or has neither
//!   this type nor the finalizer ([`is_gone`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::{At, Backoff};
use ccm_cloud::{ClusterId, LoadBalancer, Owner, Title};
use ccm_controller::brake::{Brake, Breaker, Budget, DEFAULT_LIMIT, Hold, Window, is_mass};
use ccm_objects::Service;
use serde::{Deserialize, Serialize};
use strum::Display;

/// How many orphans may be deleted: at least 3.
pub const BUDGET: Budget = Budget { limit: DEFAULT_LIMIT, window: Duration::from_hours(6) };
/// If more than this percentage of the cluster's load balancers, and at least 3, look like orphans,
/// that is not believed.
const MOST: usize = 50;
/// The back-off after an attempt that failed.
const RETRY: Backoff = Backoff { first: Duration::from_mins(1), longest: Duration::from_hours(1) };

/// The treatment of orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Orphans are reported.
    #[default]
    Report,
    /// Orphans are reported, and deleted with a proof.
    Delete,
}

/// The settings about orphans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrphanRules {
    /// `--orphaned-load-balancers`.
    pub policy: Policy,
    /// `--orphan-confirmation-period`.
    pub confirmation: Duration,
}

/// The reason why the last complete list is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display)]
pub enum Implausible {
    /// The API server shows no Service of any type, although each cluster has one.
    #[strum(to_string = "the API server does not show any Service")]
    NoServices,
    /// Most load balancers have no Service, as after a restore from an old backup.
    #[strum(to_string = "most load balancers of this cluster do not have a Service")]
    Most,
}

/// A list of the cluster's load balancers, compared with the Services.
#[derive(Clone, Copy, Debug)]
pub struct OrphanSight<'a> {
    /// This cluster.
    pub cluster: &'a ClusterId,
    /// The load balancers whose owner is not a known Service with the type or the finalizer.
    pub orphans: &'a [LoadBalancer],
    /// The number of load balancers of this cluster.
    pub all: usize,
    /// The number of Services of any type.
    pub services: usize,
    /// True if all entries of the list could be read.
    pub is_complete: bool,
}

/// A load balancer without a Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Orphan {
    /// Its ID in the cloud.
    pub id: String,
    /// Its name there.
    pub name: String,
    /// The owner recorded with it.
    pub owner: Owner,
    /// When it was made, if the cloud says so.
    pub made: Option<At>,
    /// The cost of keeping it, if the cloud says so.
    pub cost: Option<String>,
    /// The first and the last complete list that have shown it, and their number.
    first: At,
    last: At,
    lists: u32,
    /// The result of the last attempt to delete it.
    attempt: Option<Attempt>,
    /// True if its deletion was requested: then only the answer to a call says that it has ended.
    is_called: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Attempt {
    outcome: String,
    until: At,
    failures: u32,
}

/// The verdict about an orphan now.
#[derive(Clone, Debug, PartialEq)]
pub enum OrphanVerdict {
    /// It is deleted, once the API server has confirmed it.
    Due {
        /// True if the owner has another load balancer, which is deleted later.
        is_duplicate: bool,
    },
    /// It is only reported.
    Reported,
    /// It has not been seen for long enough. This is the earliest time.
    Unproven(At),
    /// Another load balancer of its owner is deleted first.
    After,
    /// The cloud works on its deletion: on what, and when to look again.
    Works(String, At),
    /// The last attempt has failed; the next one comes at this time.
    Failed(String, At),
    /// The last list is not plausible.
    Implausible(Implausible),
    /// The budget is used up, until this time.
    Budget(Option<At>),
}

impl OrphanVerdict {
    /// Returns why it is not deleted now.
    pub fn why_not(&self) -> Option<String> {
        Some(match self {
            Self::Due { .. } => return None,
            Self::Reported => "--orphaned-load-balancers is report".to_owned(),
            Self::Unproven(until) => {
                format!("not before a complete list shows it at {until} or later")
            }
            Self::After => "another load balancer of the same owner is deleted first".to_owned(),
            Self::Works(what, _) => format!("it is being deleted: {what}"),
            Self::Failed(why, until) => format!("{why}; next attempt at {until}"),
            Self::Implausible(cause) => cause.to_string(),
            Self::Budget(until) => Hold::Budget { until: *until }.to_string(),
        })
    }

    /// Returns true if the brake holds it, or its deletion has failed: a person should look.
    pub const fn is_held(&self) -> bool {
        matches!(self, Self::Implausible(_) | Self::Budget(_) | Self::Failed(..))
    }

    /// Returns when it may be another one without another list.
    pub const fn until(&self) -> Option<At> {
        match self {
            Self::Works(_, until) | Self::Failed(_, until) | Self::Budget(Some(until)) => {
                Some(*until)
            }
            _ => None,
        }
    }
}

/// The orphans as this leader has seen them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Orphans {
    /// By ID.
    seen: BTreeMap<String, Orphan>,
    /// The number of load balancers of this cluster on the last complete list.
    all: usize,
    /// The UIDs of the owners for whose load balancers a deletion is running.
    called: BTreeSet<String>,
    brake: Brake<Implausible>,
}

impl Orphans {
    /// Starts without orphans, with the deletions of the last leader.
    pub fn resume(now: At, window: Window) -> Self {
        Self { brake: Brake::resume(now, window), ..Self::default() }
    }

    /// Returns the deletions after this time, to be left to the next leader.
    pub fn window(&self, since: At) -> Window {
        self.brake.window().after(since).map(|(at, id)| (at, id.into())).collect()
    }

    /// Applies a list that was begun at this time. One that is not complete shows nothing of what
    /// it lacks, and proves nothing.
    pub fn listed(&mut self, at: At, sight: OrphanSight<'_>) {
        if !sight.is_complete {
            return;
        }
        let mut before = std::mem::take(&mut self.seen);
        let cause = if sight.services == 0 {
            Some(Implausible::NoServices)
        } else {
            is_mass(sight.orphans.len(), sight.all, MOST).then_some(Implausible::Most)
        };
        self.brake.observe(at, cause);
        self.all = sight.all;
        for balancer in sight.orphans {
            let Some(owner) = owner_of(balancer, sight.cluster) else { continue };
            let known = before.remove(&balancer.id).filter(|known| known.owner.is(owner));
            let mut orphan = known.unwrap_or_else(|| Orphan::new(at, balancer, owner));
            orphan.cost.clone_from(&balancer.cost);
            // Without any Service the view of the API server is not a basis for a decision.
            if sight.services > 0 {
                if orphan.lists == 0 {
                    orphan.first = at;
                }
                orphan.last = at;
                orphan.lists += 1;
            }
            self.seen.insert(balancer.id.clone(), orphan);
        }
        self.seen.extend(before.into_iter().filter(|(_, orphan)| orphan.is_called));
    }

    /// Returns the verdict about each orphan now. Due deletions are charged to the budget.
    pub fn decide(&mut self, now: At, rules: OrphanRules) -> Vec<(Orphan, OrphanVerdict)> {
        let mut of_owner: BTreeMap<String, usize> = BTreeMap::new();
        for orphan in self.seen.values() {
            *of_owner.entry(orphan.owner.uid.clone()).or_default() += 1;
        }
        let mut busy: BTreeSet<&str> = BTreeSet::new();
        let mut decided = Vec::new();
        for orphan in self.seen.values() {
            let verdict = match orphan.waits(now, rules) {
                Some(verdict) => verdict,
                None if busy.contains(&*orphan.owner.uid) => OrphanVerdict::After,
                None => match self.brake.request(now, &orphan.id, self.all, BUDGET) {
                    Ok(()) => {
                        busy.insert(&orphan.owner.uid);
                        OrphanVerdict::Due { is_duplicate: of_owner[&orphan.owner.uid] > 1 }
                    }
                    Err(Hold::Budget { until }) => OrphanVerdict::Budget(until),
                    Err(Hold::Breaker) => OrphanVerdict::Implausible(match self.brake.breaker() {
                        Breaker::Open { cause, .. } => *cause,
                        Breaker::Closed => Implausible::Most,
                    }),
                },
            };
            decided.push((orphan.clone(), verdict));
        }
        decided
    }

    /// Records the owners whose load balancers service-ccm is about to delete: it asks the API
    /// server about their Services, then calls the cloud. Until then these Services wait. If one of
    /// them needs a load balancer again, the API server's answer shows that, or it gets a new load
    /// balancer after the call.
    pub fn call(&mut self, owners: &[Owner]) {
        self.called = owners.iter().map(|owner| owner.uid.clone()).collect();
    }

    /// Returns the load balancer that is left of the Service with this name, if there is one.
    pub fn left_by(&self, name: &str) -> Option<&Orphan> {
        let (namespace, name) = name.split_once('/')?;
        let is_its = |one: &&Orphan| one.owner.namespace == namespace && one.owner.name == name;
        self.seen.values().find(is_its)
    }

    /// Returns a load balancer without a Service, by its ID.
    pub fn get(&self, id: &str) -> Option<&Orphan> {
        self.seen.get(id)
    }

    /// Returns true if a deletion for the Service with this UID is running.
    pub fn is_called(&self, uid: &str) -> bool {
        self.called.contains(uid)
    }

    /// Records that the orphan does not exist any more.
    pub fn ended(&mut self, id: &str) {
        self.seen.remove(id);
    }

    /// Removes an orphan whose Service may have a load balancer: nothing was deleted.
    pub fn refuted(&mut self, id: &str) {
        self.seen.remove(id);
        self.brake.release(id);
    }

    /// Records that the API server gave no answer about its Service: nothing was deleted.
    pub fn unconfirmed(&mut self, now: At, id: &str, why: String) {
        self.brake.release(id);
        self.put_off(now, id, why);
    }

    /// Records that the cloud works on the orphan, until this time at least.
    pub fn works(&mut self, id: &str, what: String, until: At) {
        if let Some(orphan) = self.seen.get_mut(id) {
            orphan.attempt = Some(Attempt { outcome: what, until, failures: 0 });
            orphan.is_called = true;
        }
    }

    /// Records that the call failed; it may have deleted something.
    pub fn record_failure(&mut self, now: At, id: &str, why: String) {
        self.put_off(now, id, why);
        if let Some(orphan) = self.seen.get_mut(id) {
            orphan.is_called = true;
        }
    }

    fn put_off(&mut self, now: At, id: &str, why: String) {
        if let Some(orphan) = self.seen.get_mut(id) {
            let failures = orphan.attempt.as_ref().map_or(0, |last| last.failures) + 1;
            let until = now + RETRY.after(failures);
            orphan.attempt = Some(Attempt { outcome: why, until, failures });
        }
    }
}

impl Orphan {
    fn new(at: At, balancer: &LoadBalancer, owner: &Owner) -> Self {
        Self {
            id: balancer.id.clone(),
            name: balancer.name.clone(),
            owner: owner.clone(),
            made: balancer.age.map(|age| at - age),
            cost: None,
            first: at,
            last: at,
            lists: 0,
            attempt: None,
            is_called: false,
        }
    }

    /// Returns when the first and the last complete list came that showed the load balancer.
    pub fn seen(&self) -> (At, At) {
        (self.first, self.last)
    }

    /// Returns the age and the cost of the orphan in words.
    pub fn age_and_cost(&self) -> String {
        let made = self.made.map_or("of unknown age".to_owned(), |made| format!("made {made}"));
        let cost = self.cost.as_deref().unwrap_or("of unknown cost");
        format!("{made}, {cost}")
    }

    /// Returns why it cannot be deleted now, for reasons other than the brake.
    fn waits(&self, now: At, rules: OrphanRules) -> Option<OrphanVerdict> {
        if rules.policy == Policy::Report {
            return Some(OrphanVerdict::Reported);
        }
        if self.lists < 2 || self.last.since(self.first) < rules.confirmation {
            return Some(OrphanVerdict::Unproven(self.first + rules.confirmation));
        }
        let attempt = self.attempt.as_ref().filter(|attempt| now < attempt.until)?;
        let Attempt { outcome, until, failures } = attempt.clone();
        let verdict = if failures > 0 { OrphanVerdict::Failed } else { OrphanVerdict::Works };
        Some(verdict(outcome, until))
    }
}

/// Returns the owner, if the load balancer is its alone, and this cluster's.
fn owner_of<'a>(balancer: &'a LoadBalancer, cluster: &ClusterId) -> Option<&'a Owner> {
    let owner = balancer.owner.as_ref()?;
    let is_ours = balancer.title == Title::Ours && owner.cluster.uid == cluster.uid;
    let is_named = ![&owner.uid, &owner.namespace, &owner.name].iter().any(|part| part.is_empty());
    (is_ours && is_named).then_some(owner)
}

/// Returns true if the API server's answer about the owner's name does not show a Service with the
/// owner's UID and the type LoadBalancer or the finalizer.
pub fn is_gone(owner: &Owner, found: Option<&Service>) -> bool {
    let may_have_one =
        |service: &Service| *service.uid == *owner.uid && service.concerns_load_balancers();
    !found.is_some_and(may_have_one)
}

#[cfg(test)]
mod tests;
