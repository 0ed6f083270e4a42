//! Decides which load balancers that are gone or have failed are replaced, and when: pure.
//!
//! A new load balancer has another address, so one wrong answer of the cloud (a list of another
//! project, or of a restored database) would interrupt the traffic of all Services. A *loss* is a
//! load balancer that its Service shows to clients, and that a complete list does not contain, or
//! that has failed. It is replaced only
//!
//! * after the cloud has answered a call about exactly this load balancer. Such a call may repair a
//!   failed load balancer, so no more than [`BUDGET`] of these are called at a time;
//! * if a user has **approved** it;
//! * or if the kit's **brake** allows it: no more than [`BUDGET`] are lost now, and no more were
//!   replaced within its window;
//! * or if its loss is **proved**: the cloud has answered twice that it is gone, [`CONFIRMATION`] apart,
//!   the cloud is the same one as before, and all that time it showed another object of this cluster.
//!   Of proved losses, no more than [`BUDGET`] are replaced at a time: the next one follows when one of them
//!   is shown again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::Loss;
use ccm_controller::brake::{Brake, Budget, DEFAULT_LIMIT, Window};
use ccm_objects::Service;
use serde::{Deserialize, Serialize};

use super::status::{ID, has_address};

/// How many load balancers may be replaced without a proof: at least 3.
pub const BUDGET: Budget = Budget { limit: DEFAULT_LIMIT, window: Duration::from_hours(6) };
/// The time between two answers that prove a loss.
pub const CONFIRMATION: Duration = Duration::from_mins(10);
/// The longest time between two questions about a loss that is held.
const SELDOM: Duration = Duration::from_hours(1);
/// How soon a loss that waits for others is checked again.
const SOON: Duration = Duration::from_secs(30);

/// Returns true if a Service shows a load balancer to clients.
pub fn is_shown(service: &Service) -> bool {
    has_address(service) && service.has_finalizer
}

/// Returns the ID of the load balancer that a Service shows to clients. An annotation without an
/// address may be the copy of another Service's.
pub fn recorded(service: &Service) -> Option<&str> {
    service.annotation(ID).filter(|_| is_shown(service))
}

/// A load balancer that is gone or has failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Open {
    /// The cloud's answer about exactly this one.
    loss: Option<Loss>,
    /// The first and the last answer that it is gone.
    gone: Option<(At, At)>,
    /// When the cloud last answered.
    answered: At,
    /// True if it exists and has failed: a call about it may repair it.
    has_failed: bool,
    /// True if a call about it was allowed, although it has failed.
    is_tried: bool,
    /// True if it may be replaced, until another one is shown.
    may_be_replaced: bool,
    /// True if that was allowed because of a proof.
    is_proved: bool,
}

/// The known state when the plan for one Service is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Now.
    pub at: At,
    /// True if a user has approved the replacement.
    pub approved: bool,
    /// True if the provider can answer about one load balancer without creating another one.
    pub can_ask: bool,
    /// True if the cloud is provably the one in which the load balancers were made.
    pub is_same_cloud: bool,
}

const UNPROVED: &str = "the loss is not proved yet";
/// The cloud is not provably the same one, or does not show another object of this cluster.
const OTHER_CLOUD: &str = "nothing proves that this is still the same cloud";
/// It exists but has failed, and too many others have failed or were replaced.
const FAILED: &str = "a load balancer that has failed may still serve";
const OTHERS: &str = "others are repaired or replaced first";

/// The verdict about the load balancer of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossVerdict {
    /// It is not lost, as far as is known.
    #[default]
    Kept,
    /// The cloud is asked about exactly this one.
    Asks,
    /// It is replaced.
    Replaced,
    /// It is not replaced, for this reason. It is checked again at this time.
    Held(&'static str, At),
}

/// The visible part, in a list, of the load balancers that Services show to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossSight {
    /// The number of Services that show a load balancer to clients.
    pub recorded: usize,
    /// The UIDs of all Services that should have a load balancer.
    pub all: BTreeSet<Box<str>>,
    /// The UIDs of the Services whose load balancer the list lacks.
    pub missing: BTreeSet<Box<str>>,
    /// The UIDs of the Services whose load balancer has failed.
    pub failed: BTreeSet<Box<str>>,
    /// The UIDs of the Services whose load balancer the cloud shows, ready to be changed.
    pub ready: BTreeSet<Box<str>>,
}

/// The losses as this leader has seen them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Losses {
    /// By the UID of the Service.
    open: BTreeMap<Box<str>, Open>,
    /// The number of Services that show a load balancer to clients.
    recorded: usize,
    /// The first and the last time when a load balancer was lost, without a pause as long as the budget's window.
    lost: Option<(At, At)>,
    /// The UIDs of the Services whose load balancer the cloud shows, and since when. A load
    /// balancer that was made after a loss does not show that this is still the same cloud.
    ready: BTreeMap<Box<str>, At>,
    /// Since when the cloud shows the instance of a node whenever it is asked.
    instance_since: Option<At>,
    /// Its breaker is open if more load balancers are lost than [`BUDGET`] allows to replace.
    brake: Brake<()>,
}

impl Losses {
    /// Starts without losses, with the replacements of the last leader.
    pub fn resume(now: At, window: Window) -> Self {
        Self { brake: Brake::resume(now, window), ..Self::default() }
    }

    /// Returns the replacements after this time, to be left to the next leader.
    pub fn window(&self, since: At) -> Window {
        self.brake.window().after(since).map(|(at, uid)| (at, uid.into())).collect()
    }

    /// Returns true if a load balancer is lost.
    pub fn are_any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Applies what a complete list shows.
    pub fn listed(&mut self, at: At, sight: LossSight) {
        self.recorded = sight.recorded;
        let since = |uid: &str| self.ready.get(uid).copied().unwrap_or(at);
        self.ready = sight.ready.iter().map(|uid| (uid.clone(), since(uid))).collect();
        self.open.retain(|uid, _| sight.all.contains(uid) && !sight.ready.contains(uid));
        for uid in sight.missing {
            self.open.entry(uid).or_default().has_failed = false;
        }
        for uid in sight.failed {
            self.open.entry(uid).or_default().has_failed = true;
        }
        self.count(at);
    }

    /// Returns true if the cloud shows a load balancer that it showed before the first loss.
    pub fn show_others(&self) -> bool {
        self.ready.values().any(|since| self.lost.is_none_or(|(first, _)| *since < first))
    }

    /// Records whether the cloud shows the instance of a node.
    pub fn see_instance(&mut self, at: At, shows_instance: bool) {
        self.instance_since = shows_instance.then(|| self.instance_since.unwrap_or(at));
    }

    /// Returns since when the cloud shows another object of this cluster. What it answered before
    /// that does not prove a loss: it may have been another cloud.
    fn others_since(&self) -> Option<At> {
        if self.show_others() { Some(At::default()) } else { self.instance_since }
    }

    /// Records an answer of the cloud about exactly the load balancer of this Service.
    pub fn record_answer(&mut self, at: At, uid: &str, loss: Loss) {
        let open = self.open.entry(uid.into()).or_default();
        let first = open.gone.map_or(at, |(first, _)| first);
        open.gone = loss.is_gone.then_some((first, at));
        open.has_failed = !loss.is_gone;
        // A load balancer that the next list shows was made after the loss.
        self.ready.remove(uid);
        (open.loss, open.answered) = (Some(loss), at);
        self.count(at);
    }

    /// Records that the load balancer of this Service exists, or the Service no longer needs one.
    pub fn end(&mut self, at: At, uid: &str) {
        if self.open.remove(uid).is_some() {
            self.count(at);
        }
    }

    fn limit(&self) -> usize {
        BUDGET.limit.for_population(self.recorded)
    }

    fn count(&mut self, at: At) {
        if self.open.is_empty() {
            self.lost = self.lost.filter(|(_, last)| *last + BUDGET.window > at);
        } else {
            self.lost = Some((self.lost.map_or(at, |(first, _)| first), at));
        }
        let is_many = self.open.len() > self.limit();
        self.brake.observe(at, is_many.then_some(()));
    }

    /// Returns the verdict about the load balancer of this Service now. A replacement is charged to
    /// the budget.
    pub fn decide(&mut self, uid: &str, now: Now) -> LossVerdict {
        let (limit, recorded) = (self.limit(), self.recorded);
        let others = self.others_since().filter(|_| now.is_same_cloud);
        let proved = self.open.values().filter(|open| open.is_proved).count();
        let tried = self.open.values().filter(|open| open.has_failed && open.is_tried).count();
        let Some(open) = self.open.get_mut(uid) else { return LossVerdict::Kept };
        if open.may_be_replaced {
            return LossVerdict::Replaced;
        }
        if open.loss.is_none() && now.can_ask {
            // A cloud that cannot repair the first ones would make the others worse.
            open.is_tried |= tried < limit;
            let may_ask = open.is_tried || !open.has_failed;
            return if may_ask {
                LossVerdict::Asks
            } else {
                LossVerdict::Held(OTHERS, now.at + SOON)
            };
        }
        let allowed = now.approved || self.brake.request(now.at, uid, recorded, BUDGET).is_ok();
        if allowed {
            open.may_be_replaced = true;
            return LossVerdict::Replaced;
        }
        let (next, why) = match (open.gone, others) {
            (None, _) if open.has_failed => (open.answered + SELDOM, FAILED),
            (None, _) => (open.answered + CONFIRMATION, UNPROVED),
            (Some((first, last)), None) if last >= first + CONFIRMATION => {
                (open.answered + SELDOM, OTHER_CLOUD)
            }
            (Some((first, _)), None) => (first + CONFIRMATION, UNPROVED),
            (Some((first, last)), Some(others)) => {
                let proof = first.max(others) + CONFIRMATION;
                if last < proof {
                    (proof, UNPROVED)
                } else if proved < limit {
                    (open.may_be_replaced, open.is_proved) = (true, true);
                    return LossVerdict::Replaced;
                } else {
                    return LossVerdict::Held(OTHERS, now.at + SOON);
                }
            }
        };
        if now.can_ask && next <= now.at {
            return LossVerdict::Asks;
        }
        LossVerdict::Held(why, now.at + SOON)
    }

    /// Returns the losses in words: what the cloud has answered about the load balancer of this
    /// Service, and how many others are lost.
    pub fn in_words(&self, uid: &str) -> String {
        let loss = self.open.get(uid).and_then(|open| open.loss.as_ref());
        let why = loss.map_or("the cloud does not show it", |loss| loss.why.as_str());
        let (count, all) = (self.open.len(), self.recorded);
        format!("{why}; {count} of {all} load balancers are gone or have failed")
    }
}

#[cfg(test)]
mod tests;
