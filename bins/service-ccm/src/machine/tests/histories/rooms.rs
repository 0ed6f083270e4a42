//! The room of a namespace: crowds of Services that want it, and their turns.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_objects::{Service, Shared as Name};

use super::{
    outside::services,
    rules::is_full,
    world::{Kind, World},
};
use crate::plan::status::ID;

/// For how long a Service waits before its turn counts, and how soon it has its room when it counts.
const WAITS: Duration = Duration::from_mins(1);
const SOON: Duration = Duration::from_mins(2);

type Services = BTreeMap<Name, Arc<Service>>;

/// The Services that wait.
#[derive(Default)]
pub(super) struct Waiting {
    /// Since when each one waits, and when it was created, by UID.
    since: BTreeMap<String, (At, i64)>,
    /// The Services that a later one has passed, with the name of the later one, and when.
    passed: Vec<(String, Name, At)>,
}

fn created(service: &Service) -> i64 {
    let created = service.details.as_ref().and_then(|details| details.created);
    let Some(created) = created else { return 0 };
    created.as_second()
}

impl Waiting {
    /// Records that a Service has got its room.
    pub(super) fn enters(&mut self, service: &Service, now: At) {
        if service.annotation(ID).is_some() || !service.key.starts_with("shop/") {
            return;
        }
        let is_earlier =
            |(since, it): &(At, i64)| now.since(*since) > WAITS && *it < created(service);
        let passed = self.since.iter().filter(|(_, one)| is_earlier(one));
        let name = &service.key;
        self.passed.extend(passed.map(|(uid, _)| (uid.clone(), Name::clone(name), now)));
    }

    /// Checks that no Service still waits when a later one has got its room. The machine must know
    /// the last change of the Service: until then, the API server refuses each write to it, and the
    /// room is kept for it.
    pub(super) fn check(&mut self, [api, store]: [&Services; 2], now: At) {
        let is_known = |one: &Service| {
            let known = store.get(&one.key);
            known.is_some_and(|known| known.resource_version == one.resource_version)
        };
        let waits = |one: &&Arc<Service>| {
            is_full(one) && one.is_load_balancer && !one.deleting && is_known(one)
        };
        let waiting: BTreeMap<&str, &Arc<Service>> =
            api.values().filter(waits).map(|one| (&*one.uid, one)).collect();
        self.since.retain(|uid, _| waiting.contains_key(&**uid));
        for (uid, service) in waiting {
            self.since.entry(uid.to_owned()).or_insert((now, created(service)));
        }
        self.passed.retain(|(uid, ..)| self.since.contains_key(uid));
        for (uid, name, at) in &self.passed {
            assert!(now.since(*at) < SOON, "Turn: {uid} waits, and {name} has got room at {at}");
        }
    }

    /// Records that another process leads.
    pub(super) fn leads(&mut self) {
        *self = Self::default();
    }
}

impl World {
    /// Lets users create, end or change many Services at once.
    pub(super) fn crowd(&mut self) {
        let count = services(self.kind);
        let all = (0..count).map(|number| format!("shop/web-{number}").into());
        let (there, new): (Vec<Name>, Vec<Name>) = all.partition(|key| self.api.contains_key(key));
        match self.random.below(3) {
            0 => new.iter().for_each(|key| self.add_service(key)),
            1 => there.iter().take(3).for_each(|key| self.end(key)),
            _ => there.iter().take(3).for_each(|key| self.edit(key)),
        }
        if self.random.one_in(2) {
            self.tell_all();
        }
    }

    pub(super) fn check_room(&mut self) {
        if self.kind == Kind::Nodes {
            super::rules::Rules::check_room(&self.api, &self.cloud);
            self.rules.waiting.check([&self.api, &self.store], self.now);
        }
    }
}
