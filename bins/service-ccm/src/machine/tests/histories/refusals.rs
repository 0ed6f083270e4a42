//! A cloud that refuses calls or does not send them, breaks off, and shows no members; and what must hold then.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{CloudError, ErrorKind, Wanted};
use ccm_objects::{Service, Shared as Name};

use super::{
    variants::Without,
    world::{Kind, World},
};
use crate::{
    machine::{
        effect::{Ask, Effect, Lane, Question, Tell, Turn, Write},
        event::{Changed, Event},
    },
    plan::{Step, reason::Reason},
};

/// The most calls of one kind for one Service in ten minutes.
const CALLS: usize = 60;
/// For this long, no Service may say that the cloud is late.
const EARLY: Duration = Duration::from_secs(5);

/// The calls to the cloud, and its answers.
#[derive(Default)]
pub(super) struct Calls {
    made: BTreeMap<(String, &'static str), Vec<At>>,
    /// Since when the cloud has not carried out what a Service asks for, by UID.
    begun: BTreeMap<String, At>,
    /// The UIDs of the Services of which the cloud has refused a call.
    refused: BTreeSet<String>,
    /// The names of the Services of which a call did not return in time.
    hung: BTreeSet<Name>,
}

impl Calls {
    /// Checks that a call that fails again and again is tried less and less often. `is_sent`: the
    /// call reaches the cloud.
    pub(super) fn asked(&mut self, ask: &Ask, is_sent: bool, now: At) {
        let kind = match &ask.question {
            Question::Ensure(_) => "ensure",
            Question::Members(_) => "members",
            Question::Delete(unwanted) if unwanted.duplicate => "delete a second one",
            Question::Delete(_) => "delete",
            Question::Preview(_) => return,
        };
        let uid = ask.uid.to_string();
        self.begun.entry(uid.clone()).or_insert(now);
        if !is_sent {
            return;
        }
        let made = self.made.entry((uid, kind)).or_default();
        made.retain(|at| now.since(*at) < Duration::from_mins(10));
        made.push(now);
        assert!(made.len() <= CALLS, "Calls: {} to {kind} {}", made.len(), ask.name);
    }

    /// Records that the cloud answers. None: it works on it.
    pub(super) fn answered(&mut self, name: &Name, uid: &str, answer: Result<bool, &CloudError>) {
        match answer {
            Ok(true) => {
                self.begun.remove(uid);
            }
            Err(error) if !error.unsent => {
                self.refused.insert(uid.to_owned());
                if error.kind == ErrorKind::Timeout {
                    self.hung.insert(Name::clone(name));
                }
            }
            Ok(false) | Err(_) => {}
        }
    }

    /// Checks that only calls that did not return in time go to the slow lanes.
    pub(super) fn queued(&self, name: &Name, lane: Lane, turn: Turn) {
        let comes = !matches!(turn, Turn::Well | Turn::Gone);
        let is_slow = lane == Lane::Slow && comes;
        assert!(!is_slow || self.hung.contains(name), "Slow: {name} is queued: {turn:?}");
    }

    /// Checks that a call that was not sent has not failed.
    pub(super) fn told(effect: &Effect) {
        if let Effect::Tell(service, Tell::Failed { error, .. }) = effect {
            assert!(!error.unsent, "Unsent: {} is told that it has failed", service.key);
        }
    }

    /// Checks that a condition says that the cloud is late only if it is, and that it is
    /// unavailable only if it has refused a call.
    pub(super) fn written(&self, write: &Write, now: At) {
        let Step::Write(change) = &write.step else { return };
        let (uid, name) = (&*write.service.uid, &write.service.key);
        let says = |reason| change.conditions.iter().any(|one| one.0 == reason);
        if says(Reason::WaitingForCloud) {
            let since = self.begun.get(uid).map(|since| now.since(*since));
            assert!(since.is_none_or(|since| since >= EARLY), "Patience: {name} after {since:?}");
        }
        let is_refused = self.refused.contains(uid);
        assert!(!says(Reason::CloudUnavailable) || is_refused, "Cause: {write:?}");
    }

    /// Returns when such a call was made last.
    pub(super) fn last(&self, uid: &str, kind: &'static str) -> Option<At> {
        self.made.get(&(uid.to_owned(), kind))?.last().copied()
    }

    /// Records that another process leads.
    pub(super) fn leads(&mut self) {
        self.begun.clear();
    }
}

impl World {
    /// Lets the cloud begin to refuse calls, or end it.
    pub(super) fn change_trouble(&mut self) {
        let error = |kind| CloudError::new(kind, "no");
        match self.random.below(8) {
            0 => {
                let unsent = CloudError { unsent: true, ..error(ErrorKind::Timeout) };
                self.trouble = Some(unsent);
            }
            1 => self.trouble = Some(error(ErrorKind::Unavailable)),
            2 => self.trouble = Some(error(ErrorKind::QuotaExceeded)),
            3 => self.cloud.is_blind = true,
            4 => {
                let place = self.random.below(self.cloud.balancers.len());
                let one = self.cloud.balancers.values_mut().nth(place);
                if let Some(one) = one {
                    one.is_drained = true;
                }
            }
            _ => self.end_trouble(),
        }
    }

    /// Breaks off a creation, and may end the leader. Returns true if another one begins to lead.
    pub(super) fn breaks_off(&mut self, wanted: &Wanted) -> bool {
        let uid = &wanted.front_end.owner.uid;
        let is_new = self.cloud.of(uid).is_empty() && wanted.known.is_none();
        if self.kind != Kind::Refusals || !is_new || self.trouble.is_some() {
            return false;
        }
        drop(self.cloud.ensure(wanted, self.now));
        self.cloud.break_off(uid);
        let ends = self.random.one_in(3);
        if ends {
            self.lead();
        }
        ends
    }

    pub(super) fn end_trouble(&mut self) {
        (self.trouble, self.cloud.is_blind) = (None, false);
    }

    /// Lets a user change a Service again and again, and then perhaps delete it.
    pub(super) fn hurry(&mut self) {
        let place = self.random.below(self.api.len());
        let Some(key) = self.api.keys().nth(place).cloned() else { return };
        for _ in 0..6 {
            self.edit(&key);
            self.tell_all();
            self.run(self.now + Duration::from_millis(300));
        }
        self.run(self.now + Duration::from_secs(3));
        if self.random.one_in(2) {
            self.end(&key);
            self.tell_all();
        }
    }

    /// Deletes a Service: that waits for nothing.
    pub(super) fn ends_at_once(&self, service: &Service) {
        let name = &service.key;
        assert!(self.is_in_hand(name), "Deletion: {name} waits");
    }

    /// Checks that a call that the cloud has refused is tried again soon when settings, provider or
    /// nodes have changed.
    pub(super) fn tries_again_soon(&mut self) {
        if self.kind != Kind::Refusals {
            return;
        }
        self.trouble = Some(CloudError::new(ErrorKind::QuotaExceeded, "no room"));
        let key: Name = "other/refused".into();
        self.add_service(&key);
        self.tell_all();
        self.run(self.now + Duration::from_secs(5));
        self.trouble = None;
        match self.random.below(3) {
            _ if self.without == Some(Without::News) => {}
            0 => self.offered(true),
            1 => {
                let settings = Box::new(self.settings.clone());
                let services = self.store.values().cloned().collect();
                self.hear(Event::Settings { settings, services });
            }
            _ => self.set_node(super::outside::LATE + 1, false),
        }
        self.run(self.now + 2 * self.cloud.takes + Duration::from_secs(45));
        self.is_served(&key);
    }

    /// Checks that the Service has its address.
    pub(super) fn is_served(&self, key: &Name) {
        let service = self.api.get(key).and_then(|service| service.details.as_deref());
        let is_served = service.is_some_and(|details| !details.ingress.is_empty());
        assert!(is_served, "Soon: {service:?}, and the cloud needs {:?}", self.cloud.takes);
    }

    /// Records that the store has heard of a change.
    pub(super) fn told(&mut self, changed: Changed<Service>) {
        let is_deleting = |one: &Option<std::sync::Arc<Service>>| {
            one.as_ref().is_some_and(|service| service.deleting)
        };
        let ends = is_deleting(&changed.new) && !is_deleting(&changed.old);
        let new = changed.new.clone();
        self.hear(Event::Service(changed));
        if let Some(service) = new.filter(|_| ends) {
            self.ends_at_once(&service);
        }
    }
}
