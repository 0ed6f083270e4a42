//! Another controller of the cluster: it serves the Services of a class of its own, with the same
//! finalizer, and takes its time to clean up.

use std::{collections::BTreeMap, time::Duration};

use ccm_objects::service_keys::CLEANUP;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    rules::Rule,
    watched::is_protected,
    world::{SERVICES, World},
};

/// The class of its Services.
pub(crate) const THEIRS: &str = "example.com/theirs";
/// The condition that it writes.
const CONDITION: &str = "example.com/Programmed";
/// The annotation that it writes.
const MARK: &str = "example.com/id";
/// How long it takes to clean up.
const CLEANING: Duration = Duration::from_secs(40);

/// What it knows of its Services, by UID: since when they are not its own any more.
#[derive(Default)]
pub(crate) struct Neighbours(BTreeMap<String, Option<Instant>>);

impl Neighbours {
    /// Whether it has to do with this Service.
    pub(crate) fn has(&self, service: &Value) -> bool {
        uid(service).is_some_and(|uid| self.0.contains_key(uid))
    }
}

fn uid(service: &Value) -> Option<&str> {
    service["metadata"]["uid"].as_str()
}

fn is_theirs(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["spec"]["loadBalancerClass"] == THEIRS
}

impl World {
    /// What the other controller does now. What it wrote before is to be there.
    pub(crate) fn neighbours_work(&mut self) {
        for number in 0..SERVICES {
            let Some(service) = self.service(number) else { continue };
            let Some(uid) = uid(&service).map(str::to_owned) else { continue };
            if self.neighbours.has(&service) {
                self.look_at_neighbours(&service);
            }
            let deleting = !service["metadata"]["deletionTimestamp"].is_null();
            let is_new = !self.neighbours.has(&service);
            match (is_theirs(&service) && !deleting, is_new) {
                (true, true) if !(is_protected(&service) && self.was_served(&uid)) => {
                    self.take(number, uid);
                }
                // The program still cleans up.
                (_, true) => {}
                (true, false) => {
                    self.neighbours.0.insert(uid, None);
                    self.mark(number);
                }
                (false, false) => self.clean(number, uid, &service),
            }
        }
    }

    fn take(&mut self, number: usize, uid: String) {
        self.patch(
            number,
            json!({"metadata": {
            "finalizers": [CLEANUP], "annotations": {MARK: "theirs"}}}),
        );
        self.mark(number);
        self.neighbours.0.insert(uid, None);
    }

    fn mark(&self, number: usize) {
        let mut service = self.service(number).unwrap();
        let address = json!([{"ip": format!("192.0.2.{}", 100 + number), "ipMode": "VIP"}]);
        if service["status"]["loadBalancer"]["ingress"] == address && has_condition(&service) {
            return;
        }
        service["status"] = json!({"loadBalancer": {"ingress": address}, "conditions": [{
            "type": CONDITION, "status": "True", "reason": "Programmed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        self.api.update_status(service).unwrap();
    }

    /// After a while nothing of it is left.
    fn clean(&mut self, number: usize, uid: String, service: &Value) {
        let since = *self.neighbours.0.get(&uid).unwrap();
        let Some(since) = since else {
            self.neighbours.0.insert(uid, Some(Instant::now()));
            return;
        };
        if since + CLEANING > Instant::now() {
            return;
        }
        self.neighbours.0.remove(&uid);
        let mut cleaned = service.clone();
        cleaned["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .retain(|one| one["type"] != CONDITION);
        self.api.update_status(cleaned).ok();
        self.patch(number, json!({"metadata": {"annotations": {MARK: null}}}));
        // The finalizer is another one's by now.
        if !(service["spec"]["type"] == "LoadBalancer" && self.serves(service)) {
            self.patch(number, json!({"metadata": {"finalizers": null}}));
        }
    }

    fn look_at_neighbours(&self, service: &Value) {
        let mut lost = Vec::new();
        if !is_protected(service) && !self.persons.released.contains(uid(service).unwrap()) {
            lost.push("finalizer");
        }
        if service["metadata"]["annotations"][MARK].is_null() {
            lost.push("annotation");
        }
        if !has_condition(service) {
            lost.push("condition");
        }
        let ingress = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        // A change of type takes it away, and this controller writes it again.
        if is_theirs(service) && ingress.as_str().is_some_and(|ip| !ip.starts_with("192.0.2.1")) {
            lost.push("address");
        }
        if !lost.is_empty() {
            let how = format!("{} has lost {}", service["metadata"]["name"], lost.join(", "));
            self.broken.add(Rule::Neighbours, how);
        }
    }
}

fn has_condition(service: &Value) -> bool {
    let conditions = service["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == CONDITION))
}
