//! Plays Octavia as far as the tests need it, with the rules of the real one: one write at a time
//! for a load balancer, states that last, and its words for refusals.

mod children;
mod rows;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Request, World, query_of, replied, segments, uuid};
use crate::api::Answer;

/// The ID of the project.
pub const PROJECT: &str = "p1";

/// A status with its body, or with Octavia's words of refusal.
type Reply = Result<(u16, Value), (u16, String)>;

/// Octavia's data. Rows are as it shows them, except for the references between them: fields
/// beginning with `_`, which are not shown.
#[derive(Clone)]
pub struct Octavia {
    /// The minor number of its version.
    pub minor: u32,
    /// The drivers that are enabled, the default one first.
    pub providers: Vec<&'static str>,
    /// True if the catalog has it.
    pub offered: bool,
    pub balancers: Vec<Value>,
    pub listeners: Vec<Value>,
    pub pools: Vec<Value>,
    pub members: Vec<Value>,
    pub monitors: Vec<Value>,
    /// The number of answers that show a load balancer as pending after a write.
    pub polls: usize,
    /// The number of the next changes that end in `ERROR`.
    pub failures: usize,
    /// The load balancers that stay pending until [`World::let_go`]; by ID.
    pub held: BTreeSet<String>,
    /// True if the load balancers that a write starts for also stay pending.
    pub holds_all: bool,
    /// Limits by the names that Octavia uses: `Load Balancer`, `Listener`, `Pool`, `Member`,
    /// `Health Monitor`.
    pub quotas: BTreeMap<&'static str, usize>,
    /// The load balancers that lists omit; by ID.
    pub unlisted: BTreeSet<String>,
    /// True if the policy lets this user fail load balancers over, which the default one does not.
    pub may_fail_over: bool,
    /// True if the policy hides the quotas.
    pub hides_quotas: bool,
    /// True if the nested objects of a creation stay `PENDING_CREATE` for good, as in version 2.26
    /// of the real one: members then change only after a write to their pool.
    pub forgets_nested: bool,
    /// The addresses of members that the checks cannot reach, as JSON.
    pub unreachable: BTreeSet<String>,
    /// The number of entries on a page.
    pub page: usize,
    /// Its clock moves by this many seconds with each change.
    pub seconds_per_change: u64,
    clock: u64,
    made: usize,
    /// The number of following answers that show a load balancer as pending.
    pending: BTreeMap<String, usize>,
}

impl Default for Octavia {
    fn default() -> Self {
        Self {
            minor: 26,
            providers: vec!["amphora"],
            offered: true,
            balancers: Vec::new(),
            listeners: Vec::new(),
            pools: Vec::new(),
            members: Vec::new(),
            monitors: Vec::new(),
            polls: 1,
            failures: 0,
            held: BTreeSet::new(),
            holds_all: false,
            quotas: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            may_fail_over: false,
            hides_quotas: false,
            forgets_nested: false,
            unreachable: BTreeSet::new(),
            page: 1_000,
            seconds_per_change: 1,
            clock: 0,
            made: 0,
            pending: BTreeMap::new(),
        }
    }
}

impl World {
    /// Answers a request to Octavia.
    pub fn balanced(&mut self, request: &Request<'_>) -> Result<Answer, ccm_cloud::CloudError> {
        let (path, query) = query_of(request.path);
        let body = request.body.clone().unwrap_or_default();
        let parts = segments(path);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let before = self.octavia.clone();
        let reply = match parts.as_slice() {
            [] => Ok((200, self.octavia.versions())),
            ["v2.0", "lbaas", parts @ ..] => self.lbaas(&request.method, parts, &query, &body),
            _ => Err((404, String::new())),
        };
        // A refused request has had no effect.
        if reply.is_err() {
            self.octavia = before;
        }
        // Without a delay, the work that a write has begun has ended.
        if self.octavia.polls == 0 {
            let due: Vec<_> = self.octavia.pending.keys().cloned().collect();
            for id in &due {
                self.settle_if_due(id);
            }
        }
        let (status, body) = match reply {
            Ok(reply) => reply,
            Err((status, words)) if words.is_empty() => {
                (status, json!({ "code": status, "title": "Not Found", "description": "" }))
            }
            Err((status, words)) => {
                let code = if status < 500 { "Client" } else { "Server" };
                (status, json!({ "faultcode": code, "faultstring": words, "debuginfo": null }))
            }
        };
        let status = StatusCode::from_u16(status).unwrap();
        replied(request, status, &body)
    }

    fn lbaas(
        &mut self,
        method: &Method,
        parts: &[&str],
        query: &[(String, String)],
        body: &Value,
    ) -> Reply {
        match (method.as_str(), parts) {
            ("GET", ["loadbalancers"]) => self.list_balancers(query),
            ("POST", ["loadbalancers"]) => self.create_balancer(body),
            ("GET", ["loadbalancers", id]) => self.show_balancer(id),
            ("GET", ["loadbalancers", id, "status"]) => self.show_tree(id),
            ("PUT", ["loadbalancers", id]) => self.update_balancer(id, body),
            ("PUT", ["loadbalancers", id, "failover"]) => self.octavia.fail_over(id),
            ("GET", ["quotas", PROJECT]) => self.octavia.show_quotas(),
            ("DELETE", ["loadbalancers", id]) => {
                let cascade = query.iter().any(|(key, value)| key == "cascade" && value == "true");
                self.delete_balancer(id, cascade)
            }
            (_, ["pools", pool, "members", rest @ ..]) => {
                self.check_subnets(body)?;
                self.octavia.members_of(method, pool, rest, body)
            }
            ("GET", [kind]) => self.octavia.list_children(kind, query),
            ("POST", [kind]) => self.octavia.create_child(kind, body),
            ("PUT", [kind, id]) => self.octavia.update_child(kind, id, body),
            ("DELETE", [kind, id]) => self.octavia.delete_child(kind, id),
            _ => Err((404, String::new())),
        }
    }

    /// Checks the subnets of members as Octavia does: of members that are set, and not of members
    /// that a creation nests.
    fn check_subnets(&self, body: &Value) -> Result<(), (u16, String)> {
        let members = body["members"].as_array().into_iter().flatten();
        for id in members.filter_map(|member| member["subnet_id"].as_str()) {
            if !self.subnets.iter().any(|subnet| subnet["id"] == *id) {
                return Err((400, format!("Subnet {id} not found.")));
            }
        }
        Ok(())
    }

    fn list_balancers(&mut self, query: &[(String, String)]) -> Reply {
        let octavia = &self.octavia;
        let is_listed = |row: &&Value| !octavia.unlisted.iter().any(|id| row["id"] == **id);
        let listed: Vec<Value> = octavia.balancers.iter().filter(is_listed).cloned().collect();
        let reply = octavia.list("loadbalancers", &listed, query)?;
        let shown: Vec<String> = reply["loadbalancers"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|row| row["id"].as_str().map(str::to_owned))
            .collect();
        for id in &shown {
            self.shown(id);
        }
        Ok((200, reply))
    }

    fn show_balancer(&mut self, id: &str) -> Reply {
        let row = self.octavia.shown_row("loadbalancers", self.octavia.balancer(id)?);
        self.shown(id);
        Ok((200, json!({ "loadbalancer": row })))
    }

    fn show_tree(&mut self, id: &str) -> Reply {
        let tree = self.octavia.tree(self.octavia.balancer(id)?);
        self.shown(id);
        Ok((200, json!({ "statuses": { "loadbalancer": tree } })))
    }

    fn update_balancer(&mut self, id: &str, body: &Value) -> Reply {
        let octavia = &mut self.octavia;
        octavia.balancer(id)?;
        let known = ["name", "description", "tags", "admin_state_up", "vip_qos_policy_id"];
        let fields = octavia.fields("load_balancer.loadbalancer", &body["loadbalancer"], &known)?;
        octavia.begin(id, "PENDING_UPDATE")?;
        let row = octavia.balancers.iter_mut().find(|row| row["id"] == *id).unwrap();
        row.as_object_mut().unwrap().extend(fields);
        let row = octavia.shown_row("loadbalancers", octavia.balancer(id)?);
        Ok((200, json!({ "loadbalancer": row })))
    }

    fn delete_balancer(&mut self, id: &str, cascade: bool) -> Reply {
        let octavia = &mut self.octavia;
        octavia.balancer(id)?;
        let has_children = [&octavia.listeners, &octavia.pools]
            .iter()
            .any(|rows| rows.iter().any(|row| row["_balancer"] == *id));
        if has_children && !cascade {
            let why = format!("Cannot delete Load Balancer {id} - it has children");
            return Err((400, format!("Validation failure: {why}")));
        }
        octavia.begin(id, "PENDING_DELETE")?;
        Ok((204, Value::Null))
    }

    /// Records that an answer has shown the load balancer: what it waits for comes nearer.
    fn shown(&mut self, id: &str) {
        if let Some(left) = self.octavia.pending.get_mut(id) {
            *left = left.saturating_sub(1);
        }
        self.settle_if_due(id);
    }

    fn settle_if_due(&mut self, id: &str) {
        if !self.octavia.held.contains(id) && self.octavia.pending.get(id) == Some(&0) {
            self.settle(id);
        }
    }

    /// Ends what is under way at this load balancer, also if it is held.
    pub fn let_go(&mut self, id: &str) {
        self.octavia.held.remove(id);
        self.settle(id);
    }

    fn settle(&mut self, id: &str) {
        let octavia = &mut self.octavia;
        if octavia.pending.remove(id).is_none() {
            return;
        }
        let fails = octavia.failures > 0;
        octavia.failures = octavia.failures.saturating_sub(1);
        let deleted = octavia.balancer(id).unwrap()["provisioning_status"] == "PENDING_DELETE";
        if deleted && !fails {
            octavia.forget(id);
            let device = format!("lb-{id}");
            let (gone, left) = std::mem::take(&mut self.ports)
                .into_iter()
                .partition(|port| port["device_id"] == *device && port["_of_octavia"] == true);
            self.ports = left;
            self.floating.detach(&gone);
            return;
        }
        octavia.end(id, if fails { "ERROR" } else { "ACTIVE" });
    }
}

impl Octavia {
    /// Puts the load balancer, and what is pending below it, into `ERROR` at once.
    pub fn break_down(&mut self, id: &str) {
        self.pending.remove(id);
        self.end(id, "ERROR");
    }

    fn versions(&self) -> Value {
        let versions = (0..=self.minor).map(|minor| {
            let status = if minor == self.minor { "CURRENT" } else { "SUPPORTED" };
            json!({ "id": format!("v2.{minor}"), "status": status, "links": [] })
        });
        json!({ "versions": versions.collect::<Vec<_>>() })
    }

    fn balancer(&self, id: &str) -> Result<&Value, (u16, String)> {
        found("Load Balancer", &self.balancers, id)
    }

    /// Begins a write to a load balancer, if it may be changed.
    fn begin(&mut self, id: &str, status: &str) -> Result<(), (u16, String)> {
        let before = self.balancer(id)?["provisioning_status"].as_str().unwrap().to_owned();
        let may = before == "ACTIVE" || before == "ERROR" && status == "PENDING_DELETE";
        if !may {
            return Err((409, format!("Invalid state {before} of loadbalancer resource {id}")));
        }
        self.start(id, status);
        Ok(())
    }

    fn start(&mut self, id: &str, status: &str) {
        self.touch(id, status);
        self.pending.insert(id.to_owned(), self.polls);
        if self.holds_all {
            self.held.insert(id.to_owned());
        }
    }

    /// Begins a write to a child of the load balancer.
    fn begin_child(&mut self, balancer: &str) -> Result<(), (u16, String)> {
        self.begin(balancer, "PENDING_UPDATE").map_err(|(status, words)| match status {
            409 => (409, format!("Load Balancer {balancer} is immutable and cannot be updated.")),
            _ => (status, words),
        })
    }

    /// Ends the work that is under way at the load balancer.
    fn end(&mut self, id: &str, status: &str) {
        self.touch(id, status);
        let forgets = self.forgets_nested;
        for rows in [&mut self.listeners, &mut self.pools, &mut self.members, &mut self.monitors] {
            rows.retain(|row| {
                row["_balancer"] != *id || row["provisioning_status"] != "PENDING_DELETE"
            });
            for row in rows.iter_mut().filter(|row| row["_balancer"] == *id) {
                let before = row["provisioning_status"].as_str().unwrap();
                let stays = forgets && row["_nested"] == true && before == "PENDING_CREATE";
                if before.starts_with("PENDING") && !stays {
                    row["provisioning_status"] = json!(status);
                }
            }
        }
        // Members and monitors go with their pool, and listeners go on without it.
        let left = |pool: &Value| self.pools.iter().any(|row| row["id"] == *pool);
        self.members.retain(|row| left(&row["_pool"]));
        self.monitors.retain(|row| left(&row["_pool"]));
        for row in self.listeners.iter_mut().filter(|row| !left(&row["default_pool_id"])) {
            row["default_pool_id"] = Value::Null;
        }
    }

    fn touch(&mut self, id: &str, status: &str) {
        self.clock += self.seconds_per_change;
        let now = self.now();
        let row = self.balancers.iter_mut().find(|row| row["id"] == *id).unwrap();
        row["provisioning_status"] = json!(status);
        row["updated_at"] = json!(now);
    }

    fn forget(&mut self, id: &str) {
        self.balancers.retain(|row| row["id"] != *id);
        for rows in [&mut self.listeners, &mut self.pools, &mut self.members, &mut self.monitors] {
            rows.retain(|row| row["_balancer"] != *id);
        }
    }

    /// Returns the time as Octavia writes it, in whole seconds.
    fn now(&self) -> String {
        let (minutes, seconds) = (self.clock / 60, self.clock % 60);
        format!("2026-01-01T{:02}:{:02}:{seconds:02}", minutes / 60, minutes % 60)
    }

    fn next_id(&mut self) -> String {
        self.made += 1;
        uuid(5_000_000 + self.made)
    }

    /// Builds a load balancer anew, also one in `ERROR`, with all that is below it.
    fn fail_over(&mut self, id: &str) -> Reply {
        let row = self.balancer(id)?;
        if !self.may_fail_over {
            return Err(denied());
        }
        let provider = row["provider"].as_str().unwrap_or_default();
        if provider == "ovn" {
            let why = "does not support a requested action: This provider does not support it";
            return Err((501, format!("Provider '{provider}' {why}.")));
        }
        let status = row["provisioning_status"].as_str().unwrap_or_default().to_owned();
        if !["ACTIVE", "ERROR"].contains(&status.as_str()) {
            return Err((409, format!("Invalid state {status} of loadbalancer resource {id}")));
        }
        self.start(id, "PENDING_UPDATE");
        for rows in [&mut self.listeners, &mut self.pools, &mut self.members, &mut self.monitors] {
            let failed = rows.iter_mut().filter(|row| row["_balancer"] == *id);
            for row in failed.filter(|row| row["provisioning_status"] == "ERROR") {
                row["provisioning_status"] = json!("PENDING_UPDATE");
            }
        }
        Ok((202, Value::Null))
    }

    fn show_quotas(&self) -> Reply {
        if self.hides_quotas {
            return Err(denied());
        }
        let limit = |name: &str| self.quotas.get(name).map_or(json!(-1), |limit| json!(limit));
        let balancers = limit("Load Balancer");
        let quota = json!({
            "loadbalancer": balancers, "load_balancer": balancers, "listener": limit("Listener"),
            "pool": limit("Pool"), "member": limit("Member"),
            "health_monitor": limit("Health Monitor"),
        });
        Ok((200, json!({ "quota": quota })))
    }

    fn within_quota(&self, name: &'static str, more: usize) -> Result<(), (u16, String)> {
        let rows = match name {
            "Load Balancer" => &self.balancers,
            "Listener" => &self.listeners,
            "Pool" => &self.pools,
            "Member" => &self.members,
            _ => &self.monitors,
        };
        match self.quotas.get(name) {
            Some(limit) if rows.len() + more > *limit => {
                Err((403, format!("Quota has been met for resources: {name}")))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the row of this ID, or Octavia's word that it does not exist.
fn found<'a>(name: &str, rows: &'a [Value], id: &str) -> Result<&'a Value, (u16, String)> {
    let row = rows.iter().find(|row| row["id"] == *id);
    row.ok_or_else(|| (404, format!("{name} {id} not found.")))
}

/// Returns the answer if a policy refuses the request.
fn denied() -> (u16, String) {
    (403, "Policy does not allow this request to be performed.".to_owned())
}

fn invalid(why: &str) -> (u16, String) {
    (400, format!("Validation failure: {why}"))
}
