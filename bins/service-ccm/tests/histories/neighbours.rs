//! Another controller of the cluster: it serves the Services of its own class with the same
//! finalizer, and needs time to clean up.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_objects::service_keys::CLEANUP;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    rules::Rule,
    wanted::is_wanted,
    watched::is_protected,
    world::{SERVICES, World},
};

/// The class of the other controller.
pub(crate) const THEIRS: &str = "example.com/theirs";
/// The condition that the other controller writes.
const CONDITION: &str = "example.com/Programmed";
/// The annotation that the other controller writes.
const MARK: &str = "example.com/id";
/// The time that the other controller needs to clean up.
const CLEANING: Duration = Duration::from_secs(40);

/// The Services of the other controller, by UID.
#[derive(Default)]
pub(crate) struct Neighbours {
    /// Since when the controller has not served each of them any more.
    known: BTreeMap<String, Option<Instant>>,
    /// Those that service-ccm began to serve before the controller had cleaned up. Both need the
    /// finalizer then, and the API server has it only once.
    shared: BTreeSet<String>,
}

impl Neighbours {
    /// Returns true if the other controller knows this Service.
    pub(crate) fn has(&self, service: &Value) -> bool {
        uid(service).is_some_and(|uid| self.known.contains_key(uid))
    }
}

fn uid(service: &Value) -> Option<&str> {
    service["metadata"]["uid"].as_str()
}

fn is_theirs(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["spec"]["loadBalancerClass"] == THEIRS
}

impl World {
    /// One round of the other controller. Checks that its former writes are still there.
    pub(crate) fn neighbours_work(&mut self) {
        for number in 0..SERVICES {
            let Some(service) = self.service(number) else { continue };
            let Some(uid) = uid(&service).map(str::to_owned) else { continue };
            if self.neighbours.has(&service) {
                if is_wanted(self, &service) {
                    self.neighbours.shared.insert(uid.clone());
                }
                self.look_at_neighbours(&service);
            }
            let deleting = !service["metadata"]["deletionTimestamp"].is_null();
            let is_new = !self.neighbours.has(&service);
            match (is_theirs(&service) && !deleting, is_new) {
                (true, true) if !(is_protected(&service) && self.was_served(&uid)) => {
                    self.take(number, uid);
                }
                // Another controller serves the Service, or service-ccm still cleans up.
                (_, true) => {}
                (true, false) => {
                    self.neighbours.known.insert(uid, None);
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
        self.neighbours.known.insert(uid, None);
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

    /// Removes everything that the other controller wrote, after a while.
    fn clean(&mut self, number: usize, uid: String, service: &Value) {
        let since = *self.neighbours.known.get(&uid).unwrap();
        let Some(since) = since else {
            self.neighbours.known.insert(uid, Some(Instant::now()));
            return;
        };
        if since + CLEANING > Instant::now() {
            return;
        }
        self.neighbours.known.remove(&uid);
        let mut cleaned = service.clone();
        cleaned["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .retain(|one| one["type"] != CONDITION);
        self.api.update_status(cleaned).ok();
        self.patch(number, json!({"metadata": {"annotations": {MARK: null}}}));
        // If service-ccm serves the Service now, the finalizer is its own.
        if !(service["spec"]["type"] == "LoadBalancer" && self.serves(service)) {
            self.patch(number, json!({"metadata": {"finalizers": null}}));
        }
    }

    fn look_at_neighbours(&self, service: &Value) {
        let mut lost = Vec::new();
        let uid = uid(service).unwrap();
        let is_shared = self.neighbours.shared.contains(uid);
        if !is_protected(service) && !is_shared && !self.persons.have_released(uid) {
            lost.push("finalizer");
        }
        if service["metadata"]["annotations"][MARK].is_null() {
            lost.push("annotation");
        }
        if !has_condition(service) {
            lost.push("condition");
        }
        let ingress = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        // A change of type removes the address, and the other controller writes it again.
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
