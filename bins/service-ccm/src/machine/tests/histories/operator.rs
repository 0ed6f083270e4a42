//! An operator and users ask for things: settings, classes, approvals, and Services that are too large.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_objects::{Service, Shared as Name, TooLarge};

use super::{
    outside::THEIRS,
    variants::Without,
    world::{Kind, World},
};
use crate::{
    machine::{
        effect::{Ask, PlanPage, Question},
        event::{Event, Parameters},
    },
    plan::{RELEASE_APPROVED, losses},
};

/// The class that the settings may exclude.
const GOLD: &str = "gold";
/// How soon a load balancer is gone after the class of its Service has changed.
const RELEASED: Duration = Duration::from_mins(12);

/// Returns true if the load balancer and the conditions of this Service stay as they were.
pub(super) fn is_kept(service: &Service, settings: &Parameters) -> bool {
    let is_cut = service.details.as_ref().is_some_and(|details| details.too_large.is_some());
    is_cut || service.is_load_balancer && !settings.classes.cover(service)
}

/// The classes of Services.
#[derive(Default)]
pub(super) struct Served {
    /// The class of each Service when this leader last served it, by UID.
    by_this: BTreeMap<String, Option<Name>>,
    /// The Services that have got a class of others since, and when.
    left: BTreeMap<String, At>,
    /// The Services of which a user has changed the class.
    changed: BTreeSet<String>,
}

impl Served {
    /// Records that another process leads, which has served nothing.
    pub(super) fn leads(&mut self) {
        (self.by_this, self.left) = Default::default();
    }

    /// Checks that only Services that the settings cover are configured, and that excluded ones are
    /// not deleted unless a user approves that. A Service that is too large stays as it is.
    pub(super) fn asked(
        &mut self,
        ask: &Ask,
        service: Option<&Service>,
        settings: &Parameters,
        is_approved: bool,
    ) {
        let Some(service) = service.filter(|service| service.uid == ask.uid) else { return };
        let details = service.details.as_deref();
        let is_cut = details.is_some_and(|details| details.too_large.is_some());
        let covers = settings.classes.cover(service);
        match &ask.question {
            Question::Ensure(_) | Question::Preview(_) => {
                assert!(covers, "Excluded: {ask:?}");
                assert!(!is_cut, "TooLarge: {ask:?}");
                let class = details.and_then(|details| details.class.clone());
                self.by_this.insert(service.uid.to_string(), class);
            }
            Question::Members(_) => assert!(!is_cut, "TooLarge: {ask:?}"),
            Question::Delete(unwanted) => {
                assert!(!is_cut || unwanted.settings.is_none(), "TooLarge: {ask:?}");
                let asks = service.is_load_balancer && !service.deleting;
                let is_meant = covers || is_approved || self.changed.contains(&*service.uid);
                assert!(!asks || unwanted.duplicate || is_meant, "Excluded: {ask:?}");
            }
        }
    }

    /// Records that the store has heard of a change.
    pub(super) fn told(&mut self, service: &Service, settings: &Parameters, now: At) {
        let class = service.details.as_ref().and_then(|details| details.class.clone());
        let has_other = self.by_this.get(&*service.uid).is_some_and(|served| *served != class);
        let is_left = has_other && !settings.classes.cover(service) && !service.deleting;
        if is_left && service.is_load_balancer {
            self.left.entry(service.uid.to_string()).or_insert(now);
        } else {
            self.left.remove(&*service.uid);
        }
    }

    /// Records that the settings have changed: what they serve again stays.
    fn settings_changed(&mut self, store: &BTreeMap<Name, Arc<Service>>, settings: &Parameters) {
        let covered = store.values().filter(|service| settings.classes.cover(service));
        for service in covered {
            self.left.remove(&*service.uid);
        }
    }

    /// Returns true if a user has changed the class of this Service.
    pub(super) fn has_changed(&self, uid: &str) -> bool {
        self.changed.contains(uid)
    }

    /// Returns the Services whose load balancer should be gone by now.
    fn overdue(&self, now: At) -> impl Iterator<Item = &String> {
        let all = self.left.iter().filter(move |(_, since)| now.since(**since) > RELEASED);
        all.map(|(uid, _)| uid)
    }
}

impl World {
    /// Changes the settings, or approves that a load balancer goes.
    pub(super) fn change_settings(&mut self) {
        let classes = &mut self.settings.classes;
        match self.random.below(5) {
            0 => classes.served.clear(),
            1 => classes.classless = false,
            2 => return self.approve_release(None),
            _ => self.serve_all(),
        }
        self.tell_settings();
    }

    /// Lets the settings serve all Services that have no class of another controller.
    fn serve_all(&mut self) {
        let classes = &mut self.settings.classes;
        (classes.classless, classes.served) = (true, vec![GOLD.to_owned()]);
    }

    pub(super) fn tell_settings(&mut self) {
        self.rules.classes.settings_changed(&self.store, &self.settings);
        let settings = Box::new(self.settings.clone());
        let services = self.store.values().cloned().collect();
        self.hear(Event::Settings { settings, services });
    }

    /// Lets a user approve that the load balancer of a Service goes, if the settings exclude that.
    fn approve_release(&mut self, key: Option<Name>) {
        let place = self.random.below(self.api.len());
        let key = key.or_else(|| self.api.keys().nth(place).cloned());
        self.change_details(key, |details| {
            details.annotations.insert(RELEASE_APPROVED.into(), "yes".into());
        });
    }

    pub(super) fn change_details(
        &mut self,
        key: Option<Name>,
        change: impl FnOnce(&mut ccm_objects::ServiceDetails),
    ) {
        let Some(known) = key.and_then(|key| self.api.get(&key)).filter(|it| !it.deleting) else {
            return;
        };
        let mut service = Service::clone(known);
        if let Some(details) = service.details.as_deref_mut() {
            change(details);
        }
        self.store_as(service);
    }

    /// Changes the class or the size of a Service, or takes its node ports.
    pub(super) fn change_wish(&mut self) {
        let place = self.random.below(self.api.len());
        let Some(key) = self.api.keys().nth(place).cloned() else { return };
        let class = [None, Some(GOLD.into()), Some(THEIRS.into())];
        let class: Option<Name> = class[self.random.below(3)].clone();
        let what = self.random.below(3);
        if let Some(service) = self.api.get(&key).filter(|_| what == 0) {
            self.rules.classes.changed.insert(service.uid.to_string());
        }
        self.change_details(Some(key), |details| match what {
            0 => details.class = class,
            1 => {
                let part = "annotation example.com/settings".into();
                let is_cut = details.too_large.is_some();
                let cut = TooLarge { part, bytes: 70_000, others: 0 };
                details.too_large = Some(cut).filter(|_| !is_cut);
            }
            _ => details.ports.iter_mut().for_each(|port| port.node_port = None),
        });
    }

    /// Returns the class of a Service that the settings may exclude.
    pub(super) fn gold(&mut self) -> Option<Name> {
        (self.kind == Kind::Settings && self.random.one_in(3)).then(|| GOLD.into())
    }

    /// Makes all Services right, and lets the settings serve them.
    pub(super) fn mend_all(&mut self) {
        if self.kind != Kind::Settings {
            return;
        }
        self.serve_all();
        self.tell_settings();
        for key in self.api.keys().cloned().collect::<Vec<_>>() {
            self.change_details(Some(key), |details| {
                details.too_large = None;
                details.ports.iter_mut().for_each(|port| port.node_port = Some(30000 + port.port));
            });
        }
        self.tell_all();
        self.run(self.now + Duration::from_mins(30));
        let is_left = |one: &&Arc<Service>| !self.settings.classes.cover(one) && one.has_finalizer;
        let left: Vec<Name> = self.api.values().filter(is_left).map(|it| it.key.clone()).collect();
        for key in left {
            self.approve_release(Some(key));
        }
        self.tell_all();
    }

    /// Checks that a load balancer goes when its Service has got a class of others.
    pub(super) fn check_classes(&self) {
        for uid in self.rules.classes.overdue(self.now) {
            let is_held = self.cloud.of(uid).is_empty();
            assert!(is_held, "Class: the load balancer of {uid} stays");
        }
    }

    /// Checks that the page says that nothing is done for a Service only if that is so.
    pub(super) fn shown(&self, shown: &PlanPage) {
        let asks = |service: &Service| service.is_load_balancer && !service.deleting;
        let covers = |service: &Service| self.settings.classes.cover(service);
        let is_cut = |service: &Service| {
            service.details.as_ref().is_some_and(|details| details.too_large.is_some())
        };
        match shown {
            PlanPage::Blocked(service, why) => {
                let is_right = !covers(service) || is_cut(service);
                assert!(is_right, "Page: {why} blocks {service:?}");
            }
            PlanPage::Service(service, steps) if steps.is_empty() && !service.has_finalizer => {
                let is_right = !asks(service) || covers(service);
                assert!(is_right, "Page: nothing about {service:?}");
            }
            _ => {}
        }
    }

    /// Approves on the Lease that lost load balancers are replaced: they are at once.
    pub(super) fn approval_replaces(&mut self) {
        let held: Vec<Arc<Service>> =
            self.store.values().filter(|one| self.is_held(one)).cloned().collect();
        self.rules.is_approved = true;
        if self.without != Some(Without::Approvals) {
            self.approve_all();
        }
        let begin = self.now;
        self.run(begin + Duration::from_secs(10));
        for service in held {
            let last = self.rules.calls.last(&service.uid, "ensure");
            let is_asked = last.is_some_and(|last| last >= begin);
            assert!(is_asked, "Approved: {service:?} has not been replaced since {begin}");
        }
    }

    /// Returns true if the machine says that it replaces no load balancer of this Service, although it is lost.
    fn is_held(&self, service: &Service) -> bool {
        let told = self.machine.explain(&service.key, Some(service), self.now);
        let is_served = self.settings.classes.cover(service) && !service.deleting;
        let is_same = self.api.get(&service.key).is_some_and(|one| {
            one.resource_version == service.resource_version && losses::is_shown(one)
        });
        is_served && is_same && told.cause.contains("it is not replaced yet")
    }
}
