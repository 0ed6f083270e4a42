//! Listeners, pools, members and health monitors.

use std::net::IpAddr;

use http::Method;
use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::{
    Octavia, PROJECT, Reply, found, invalid,
    rows::{MONITOR, check, check_monitor},
};

type Done<T> = Result<T, (u16, String)>;

const LISTENER: [&str; 14] = [
    "name",
    "description",
    "tags",
    "admin_state_up",
    "connection_limit",
    "default_pool_id",
    "default_tls_container_ref",
    "insert_headers",
    "allowed_cidrs",
    "timeout_client_data",
    "timeout_member_connect",
    "timeout_member_data",
    "timeout_tcp_inspect",
    "sni_container_refs",
];
const POOL: [&str; 6] =
    ["name", "description", "tags", "admin_state_up", "lb_algorithm", "session_persistence"];
const MEMBER: [&str; 10] = [
    "name",
    "tags",
    "admin_state_up",
    "address",
    "protocol_port",
    "subnet_id",
    "monitor_port",
    "monitor_address",
    "weight",
    "backup",
];
const ALGORITHMS: [&str; 4] = ["LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT", "ROUND_ROBIN"];

/// Returns the protocols of pools that a listener of this protocol may have.
fn pools_of(listener: &str) -> &'static [&'static str] {
    match listener {
        "TCP" => &["HTTP", "HTTPS", "PROXY", "PROXYV2", "TCP"],
        "HTTP" | "TERMINATED_HTTPS" => &["HTTP", "PROXY", "PROXYV2"],
        "HTTPS" => &["HTTPS", "PROXY", "PROXYV2", "TCP"],
        "UDP" => &["UDP"],
        "SCTP" => &["SCTP"],
        _ => &[],
    }
}

/// Returns the protocols that share a port.
fn family(protocol: &str) -> &str {
    if matches!(protocol, "UDP" | "SCTP") { protocol } else { "TCP" }
}

impl Octavia {
    fn kind(&mut self, kind: &str) -> Done<(&'static str, &'static str, &mut Vec<Value>)> {
        match kind {
            "listeners" => Ok(("listener", "Listener", &mut self.listeners)),
            "pools" => Ok(("pool", "Pool", &mut self.pools)),
            "healthmonitors" => Ok(("healthmonitor", "Health Monitor", &mut self.monitors)),
            _ => Err((404, String::new())),
        }
    }

    pub fn create_child(&mut self, kind: &str, body: &Value) -> Reply {
        let (key, name, _) = self.kind(kind)?;
        let mut given = body[key].clone();
        if !given.is_object() {
            return Err((400, format!("Missing argument: \"{key}_\"")));
        }
        // The real one fails in the same way.
        if ["default_pool", "members", "healthmonitor"]
            .iter()
            .any(|nested| given.get(nested).is_some())
        {
            return Err((500, "'dict' object has no attribute '_sa_instance_state'".to_owned()));
        }
        let mut take = |field: &str| {
            let taken = given.as_object_mut().unwrap().remove(field);
            taken.and_then(|id| id.as_str().map(str::to_owned))
        };
        let (balancer, listener, pool) =
            (take("loadbalancer_id"), take("listener_id"), take("pool_id"));
        let of = |row: &Value| row["_balancer"].as_str().unwrap().to_owned();
        let balancer = match (&balancer, &listener, &pool) {
            (_, Some(id), _) => of(found("Listener", &self.listeners, id)?),
            (_, _, Some(id)) => of(found("Pool", &self.pools, id)?),
            (Some(id), ..) => id.clone(),
            _ => return Err(invalid("Must provide at least one of: loadbalancer_id.")),
        };
        self.balancer(&balancer)?;
        self.within_quota(name, 1)?;
        let id = self.insert_child(key, &balancer, listener.as_deref(), pool.as_deref(), &given)?;
        self.begin_child(&balancer)?;
        let (_, _, rows) = self.kind(kind)?;
        let row = found(name, rows, &id)?.clone();
        Ok((201, json!({ key: self.shown_row(kind, &row) })))
    }

    fn insert_child(
        &mut self,
        key: &str,
        balancer: &str,
        listener: Option<&str>,
        pool: Option<&str>,
        given: &Value,
    ) -> Done<String> {
        match (key, listener, pool) {
            ("listener", ..) => self.insert_listener(balancer, given),
            ("pool", None, _) => self.insert_pool(balancer, given),
            ("pool", Some(listener), _) => {
                let row = found("Listener", &self.listeners, listener)?;
                if !row["default_pool_id"].is_null() {
                    return Err((409, "This listener already has a default pool".to_owned()));
                }
                let id = self.insert_pool(balancer, given)?;
                self.join(listener, &id)?;
                Ok(id)
            }
            (_, _, Some(pool)) => self.insert_monitor(balancer, pool, given),
            _ => Err(invalid("Missing pool_id.")),
        }
    }

    pub fn update_child(&mut self, kind: &str, id: &str, body: &Value) -> Reply {
        let (key, name, rows) = self.kind(kind)?;
        let row = found(name, rows, id)?.clone();
        let known: &[&str] = match key {
            "listener" => &LISTENER,
            "pool" => &POOL,
            _ => &MONITOR,
        };
        let mut fields = self.fields(&format!("{key}_.{key}"), &body[key], known)?;
        let balancer = row["_balancer"].as_str().unwrap().to_owned();
        self.pool_mutable(&row)?;
        self.begin_child(&balancer)?;
        if let Some(pool) = fields.get("default_pool_id").and_then(Value::as_str) {
            self.join(id, pool)?;
        }
        if let Some(cidrs) = fields.get("allowed_cidrs") {
            self.check_cidrs(&balancer, cidrs)?;
        }
        fields.insert("provisioning_status".to_owned(), json!("PENDING_UPDATE"));
        let (_, _, rows) = self.kind(kind)?;
        let row = rows.iter_mut().find(|row| row["id"] == *id).unwrap();
        row.as_object_mut().unwrap().extend(fields);
        let row = row.clone();
        Ok((200, json!({ key: self.shown_row(kind, &row) })))
    }

    pub fn delete_child(&mut self, kind: &str, id: &str) -> Reply {
        let (_, name, rows) = self.kind(kind)?;
        let row = found(name, rows, id)?.clone();
        self.pool_mutable(&row)?;
        self.begin_child(row["_balancer"].as_str().unwrap())?;
        let (_, _, rows) = self.kind(kind)?;
        let row = rows.iter_mut().find(|row| row["id"] == *id).unwrap();
        row["provisioning_status"] = json!("PENDING_DELETE");
        Ok((204, Value::Null))
    }

    /// Requests about the members of a pool. Below a pool, another part of Octavia refuses.
    pub fn members_of(
        &mut self,
        method: &Method,
        pool: &str,
        rest: &[&str],
        body: &Value,
    ) -> Reply {
        let Some(row) = self.pools.iter().find(|row| row["id"] == *pool).cloned() else {
            let words = format!("Pool {pool} not found.");
            return Ok((404, json!({ "code": 404, "title": "Bad Request", "description": words })));
        };
        match (method.as_str(), rest) {
            ("GET", []) => {
                let of_pool = self.members.iter().filter(|member| member["_pool"] == *pool);
                let rows: Vec<Value> = of_pool.cloned().collect();
                Ok((200, self.list("members", &rows, &[])?))
            }
            ("PUT", []) => self.replace_members(&row, body),
            _ => Err((404, String::new())),
        }
    }

    /// Replaces the members of a pool: by address and port as they are written.
    fn replace_members(&mut self, pool: &Value, body: &Value) -> Reply {
        let balancer = pool["_balancer"].as_str().unwrap().to_owned();
        let id = pool["id"].as_str().unwrap().to_owned();
        let given = body["members"].as_array().cloned().unwrap_or_default();
        for member in &given {
            self.check_member(member)?;
        }
        self.pool_mutable(&json!({ "_pool": id }))?;
        let key = |row: &Value| (row["address"].clone(), row["protocol_port"].clone());
        let own = |row: &Value| row["_pool"] == *id;
        let known: Vec<_> = self.members.iter().filter(|row| own(row)).map(key).collect();
        let more = given.iter().filter(|member| !known.contains(&key(member))).count();
        self.begin_child(&balancer)?;
        let fewer = known.iter().filter(|known| !given.iter().any(|new| key(new) == **known));
        self.within_quota("Member", more.saturating_sub(fewer.count()))?;
        let mut changed = Vec::new();
        for member in &given {
            if !known.contains(&key(member)) {
                self.insert_member(&balancer, &id, member)?;
                continue;
            }
            let mut rows = self.members.iter_mut();
            let row = rows.find(|row| own(row) && key(row) == key(member)).unwrap();
            row.as_object_mut().unwrap().extend(member.as_object().unwrap().clone());
            row["provisioning_status"] = json!("PENDING_UPDATE");
            // The worker of the real Octavia fails, and the load balancer keeps its state.
            if changed.contains(&key(member)) {
                self.held.insert(balancer.clone());
            }
            changed.push(key(member));
        }
        for row in self.members.iter_mut().filter(|row| own(row)) {
            if !given.iter().any(|new| key(new) == key(row)) {
                row["provisioning_status"] = json!("PENDING_DELETE");
            }
        }
        let row = self.pools.iter_mut().find(|row| row["id"] == *id).unwrap();
        row["provisioning_status"] = json!("PENDING_UPDATE");
        Ok((202, Value::Null))
    }

    /// Fails unless the pool of a member or monitor may be changed.
    fn pool_mutable(&self, row: &Value) -> Done<()> {
        match self.pools.iter().find(|pool| pool["id"] == row["_pool"]) {
            Some(pool) if pool["provisioning_status"] != "ACTIVE" => {
                let id = pool["id"].as_str().unwrap();
                Err((409, format!("Pool {id} is immutable and cannot be updated.")))
            }
            _ => Ok(()),
        }
    }

    pub fn insert_listener(&mut self, balancer: &str, given: &Value) -> Done<String> {
        let known = [&LISTENER[..], &["protocol", "protocol_port"]].concat();
        let mut fields = self.fields("listener_.listener", given, &known)?;
        let protocol = given["protocol"].as_str().unwrap_or_default().to_owned();
        let known = !pools_of(&protocol).is_empty() && (protocol != "SCTP" || self.minor >= 23);
        check("protocol", Some(&given["protocol"]), |_| known)?;
        let limit = |value: &Value| value.as_i64().is_some_and(|limit| limit >= -1);
        check("connection_limit", given.get("connection_limit"), limit)?;
        if given["insert_headers"].as_object().is_some_and(|headers| !headers.is_empty())
            && !matches!(protocol.as_str(), "HTTP" | "TERMINATED_HTTPS")
        {
            let why =
                format!("insert-headers is not a valid option for a {protocol} protocol listener.");
            return Err((400, why));
        }
        if protocol == "TERMINATED_HTTPS" && given["default_tls_container_ref"].is_null() {
            let why = "An SNI or default certificate container reference must be provided for \
                       TERMINATED_HTTPS protocol listeners.";
            return Err(invalid(why));
        }
        self.suits_driver(balancer, "listener", &protocol, given)?;
        let port = &given["protocol_port"];
        let mut own = self.listeners.iter().filter(|row| row["_balancer"] == *balancer);
        let twin = own.find(|row| {
            row["protocol_port"] == *port
                && family(row["protocol"].as_str().unwrap()) == family(&protocol)
        });
        if let Some(twin) = twin {
            let other = twin["protocol"].as_str().unwrap();
            let why = format!(
                "Another Listener on this Load Balancer is already using protocol {other} and \
                 protocol_port {port}"
            );
            return Err((409, why));
        }
        self.check_cidrs(balancer, &given["allowed_cidrs"])?;
        let pool = fields.remove("default_pool_id").and_then(|id| id.as_str().map(str::to_owned));
        let id = self.next_id();
        let mut row = self.row(balancer, &id, fields, json!({
            "connection_limit": -1, "default_pool_id": null, "default_tls_container_ref": null,
            "insert_headers": {}, "allowed_cidrs": null, "timeout_client_data": 50000,
            "timeout_member_connect": 5000, "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
            "l7policies": [], "sni_container_refs": [],
        }));
        row["updated_at"] = json!(self.now());
        self.listeners.push(row);
        if let Some(pool) = pool {
            self.join(&id, &pool)?;
        }
        Ok(id)
    }

    /// Gives a listener its default pool.
    fn join(&mut self, listener: &str, pool: &str) -> Done<()> {
        let pool = found("Pool", &self.pools, pool)?;
        let (id, theirs) = (pool["id"].clone(), pool["protocol"].as_str().unwrap().to_owned());
        let row = self.listeners.iter_mut().find(|row| row["id"] == *listener).unwrap();
        let own = row["protocol"].as_str().unwrap();
        if !pools_of(own).contains(&theirs.as_str()) {
            return Err(invalid(&format!(
                "The pool protocol '{theirs}' is invalid while the listener protocol is '{own}'."
            )));
        }
        row["default_pool_id"] = id;
        Ok(())
    }

    /// Checks that the ranges are of the family of an address of the load balancer.
    fn check_cidrs(&self, balancer: &str, cidrs: &Value) -> Done<()> {
        let row = self.balancer(balancer)?;
        let more = row["additional_vips"].as_array().into_iter().flatten();
        let vips = std::iter::once(&row["vip_address"]).chain(more.map(|vip| &vip["ip_address"]));
        let vips: Vec<IpAddr> = vips.map(|vip| vip.as_str().unwrap().parse().unwrap()).collect();
        for cidr in cidrs.as_array().into_iter().flatten() {
            let text = cidr.as_str().unwrap_or_default();
            let Ok(net) = text.parse::<IpNet>() else {
                return check("allowed_cidrs", Some(cidr), |_| false);
            };
            // Since 2.27 any address counts; before, only the first one counted.
            let counted = if self.minor > 26 { &vips[..] } else { &vips[..1] };
            if counted.iter().all(|vip| vip.is_ipv4() != net.addr().is_ipv4()) {
                let with = if self.minor > 26 { "all VIPs" } else { "VIP" };
                let why = format!(
                    "CIDR {text} IP version incompatible with {with} {} IP version.",
                    vips[0]
                );
                return Err(invalid(&why));
            }
        }
        Ok(())
    }

    pub fn insert_pool(&mut self, balancer: &str, given: &Value) -> Done<String> {
        let known = [&POOL[..], &["protocol"]].concat();
        let fields = self.fields("pool_.pool", given, &known)?;
        let protocol = given["protocol"].as_str().unwrap_or_default();
        let known = ["TCP", "UDP", "SCTP", "PROXYV2", "HTTPS", "HTTP", "PROXY"].contains(&protocol)
            && (protocol != "SCTP" || self.minor >= 23)
            && (protocol != "PROXYV2" || self.minor >= 22);
        check("protocol", Some(&given["protocol"]), |_| known)?;
        let algorithm =
            |value: &Value| value.as_str().is_some_and(|name| ALGORITHMS.contains(&name));
        check("lb_algorithm", Some(&given["lb_algorithm"]), algorithm)?;
        let persistence = &given["session_persistence"];
        if !persistence["persistence_timeout"].is_null() && protocol != "UDP" {
            let why =
                "persistence_timeout and persistence_granularity is only for UDP protocol pools.";
            return Err(invalid(why));
        }
        self.suits_driver(balancer, "pool", protocol, given)?;
        let id = self.next_id();
        let row = self.row(balancer, &id, fields, json!({ "session_persistence": null }));
        self.pools.push(row);
        Ok(id)
    }

    fn check_member(&self, given: &Value) -> Done<()> {
        self.fields("members_.members", given, &MEMBER)?;
        let address = |value: &Value| value.as_str().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
        check("address", Some(&given["address"]), address)?;
        check("protocol_port", Some(&given["protocol_port"]), |port| {
            port.as_u64().is_some_and(|port| (1..=65_535).contains(&port))
        })
    }

    pub fn insert_member(&mut self, balancer: &str, pool: &str, given: &Value) -> Done<String> {
        self.check_member(given)?;
        let twin = self.members.iter().any(|row| {
            row["_pool"] == *pool
                && row["address"] == given["address"]
                && row["protocol_port"] == given["protocol_port"]
        });
        if twin {
            return Err((
                409,
                format!(
                    "Another member on this pool is already using ip {} on protocol_port {}",
                    given["address"].as_str().unwrap(),
                    given["protocol_port"]
                ),
            ));
        }
        let id = self.next_id();
        let fields = given.as_object().unwrap().clone();
        let mut row = self.row(
            balancer,
            &id,
            fields,
            json!({
                "weight": 1, "backup": false, "subnet_id": null, "monitor_address": null,
                "monitor_port": null,
            }),
        );
        row["_pool"] = json!(pool);
        row["operating_status"] = json!("NO_MONITOR");
        self.members.push(row);
        Ok(id)
    }

    pub fn insert_monitor(&mut self, balancer: &str, pool: &str, given: &Value) -> Done<String> {
        let fields = self.fields(
            "healthmonitor_.healthmonitor",
            given,
            &[&MONITOR[..], &["type"]].concat(),
        )?;
        if self.monitors.iter().any(|row| row["_pool"] == *pool) {
            return Err((409, "This pool already has a health monitor".to_owned()));
        }
        let row = found("Pool", &self.pools, pool)?;
        // A pool that the same request makes accepts the monitor.
        let is_new = self.balancer(balancer)?["provisioning_status"] == "PENDING_CREATE"
            && !self.pending.contains_key(balancer);
        if !is_new {
            self.pool_mutable(&json!({ "_pool": pool }))?;
        }
        let (kind, protocol) = (given["type"].as_str().unwrap_or_default(), &row["protocol"]);
        let is_connectionless = protocol == "UDP" || protocol == "SCTP";
        check_monitor(given)?;
        if matches!(kind, "UDP-CONNECT" | "SCTP") && !is_connectionless {
            let why = format!("The {kind} type is only supported for pools of type UDP/SCTP.");
            return Err(invalid(&why));
        }
        if kind == "HTTP" && protocol == "UDP" && self.minor < 16 {
            return Err(invalid("The HTTP type is not supported for pools of type UDP."));
        }
        self.suits_driver(balancer, "monitor", kind, given)?;
        let http = kind == "HTTP" || kind == "HTTPS";
        let or_null = |text: &str| if http { json!(text) } else { Value::Null };
        let id = self.next_id();
        let mut row = self.row(
            balancer,
            &id,
            fields,
            json!({
                "max_retries_down": 3, "http_method": or_null("GET"), "url_path": or_null("/"),
                "expected_codes": or_null("200"),
            }),
        );
        row["_pool"] = json!(pool);
        self.monitors.push(row);
        Ok(id)
    }

    /// Refuses what the driver `ovn` cannot do.
    fn suits_driver(&self, balancer: &str, kind: &str, what: &str, given: &Value) -> Done<()> {
        if self.balancer(balancer)?["provider"] != "ovn" {
            return Ok(());
        }
        let option = match kind {
            "monitor" if !matches!(what, "TCP" | "UDP-CONNECT") => "this health monitor type",
            "listener" | "pool" if !matches!(what, "TCP" | "UDP" | "SCTP") => "this protocol",
            "pool" if given["lb_algorithm"] != "SOURCE_IP_PORT" => "this algorithm",
            "listener" if given["allowed_cidrs"].is_array() => "allowed_cidrs",
            _ => return Ok(()),
        };
        Err((501, format!("Provider 'ovn' does not support a requested option: {option}")))
    }

    /// Returns a row with these fields, else with these defaults.
    fn row(&self, balancer: &str, id: &str, fields: Map<String, Value>, more: Value) -> Value {
        let mut row = json!({
            "id": id, "name": "", "description": "", "tags": [], "admin_state_up": true,
            "project_id": PROJECT, "created_at": self.now(), "updated_at": null,
            "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE",
            "_balancer": balancer,
        });
        let Value::Object(more) = more else { panic!("{more} is not an object") };
        let members = row.as_object_mut().unwrap();
        members.extend(more);
        members.extend(fields);
        row
    }
}
