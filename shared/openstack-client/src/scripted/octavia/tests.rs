//! Tests the rules of the scripted Octavia. Each rule was observed in the real one.

use std::time::Duration;

use ErrorKind::{Conflict, Invalid, QuotaExceeded};
use ccm_cloud::{Call, CloudError, ErrorKind};
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{Api as _, Service},
    scripted::{Scripted, subnet},
};

/// An answer's body, or the error's kind and message.
type Outcome = Result<Value, (ErrorKind, String)>;

struct Rig(Scripted);

impl Rig {
    fn new() -> Self {
        let cloud = Scripted::default();
        let mut world = cloud.world.lock();
        world.subnets =
            vec![subnet(1, "10.8.0.0/24"), subnet(2, "fd08::/64"), subnet(3, "10.9.0.0/30")];
        world.networks = vec![json!({ "id": uuid(88), "name": "public", "router:external": true })];
        drop(world);
        Self(cloud)
    }

    async fn sent(&self, service: Service, method: Method, path: &str, body: Value) -> Outcome {
        let body = (!body.is_null()).then_some(body);
        let request = Request { method, body, ..Request::get(service, "x", path) };
        let answer = self.0.send(request, Call::waiting(Duration::from_secs(5))).await;
        let answer = answer.map_err(|CloudError { kind, message, .. }| (kind, message))?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status == 404 {
            return Err((ErrorKind::NotFound, body.to_string()));
        }
        Ok(body)
    }

    async fn octavia(&self, method: Method, path: &str, body: Value) -> Outcome {
        let path = format!("/v2.0/lbaas/{path}");
        self.sent(Service::LoadBalancer, method, &path, body).await
    }

    async fn get(&self, path: &str) -> Outcome {
        self.octavia(Method::GET, path, Value::Null).await
    }

    async fn delete(&self, path: &str) -> Outcome {
        self.octavia(Method::DELETE, path, Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Outcome {
        self.octavia(Method::POST, path, body).await
    }

    async fn put(&self, path: &str, body: Value) -> Outcome {
        self.octavia(Method::PUT, path, body).await
    }

    async fn create(&self, more: Value) -> Outcome {
        let mut body = json!({ "name": "lb", "vip_subnet_id": uuid(1) });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Ok(self.post("loadbalancers", json!({ "loadbalancer": body })).await?["loadbalancer"]
            .take())
    }

    /// Returns a load balancer with these listeners that is ready.
    async fn ready(&self, listeners: Value) -> Value {
        let made = self.create(json!({ "listeners": listeners })).await.unwrap();
        self.let_go(&made);
        made
    }

    fn let_go(&self, row: &Value) {
        self.0.world.lock().let_go(row["id"].as_str().unwrap());
    }

    fn change(&self, change: impl FnOnce(&mut Octavia)) {
        change(&mut self.0.world.lock().octavia);
    }
}

fn listener(protocol: &str, port: u16) -> Value {
    json!({ "name": "l", "protocol": protocol, "protocol_port": port, "default_pool": {
        "name": format!("p-{protocol}-{port}"), "protocol": protocol, "lb_algorithm": "ROUND_ROBIN",
        "members": [
            { "address": "10.8.0.101", "protocol_port": 30_000 },
            { "address": "10.8.0.102", "protocol_port": 30_000 },
        ],
    } })
}

#[track_caller]
fn refused(outcome: Outcome, kind: ErrorKind, words: &str) {
    let (seen, message) = outcome.unwrap_err();
    assert_eq!(seen, kind, "{message}");
    assert!(message.contains(words), "{message}");
}

fn text(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn one_write_at_a_time_and_a_state_lasts_as_many_answers_as_it_is_told() {
    let rig = Rig::new();
    rig.change(|octavia| octavia.polls = 2);
    let made = rig.create(json!({ "listeners": [listener("TCP", 80)] })).await.unwrap();
    let (id, one) = (text(&made, "id"), format!("loadbalancers/{}", text(&made, "id")));
    assert_eq!(made["provisioning_status"], "PENDING_CREATE");
    let listener_path = format!("listeners/{}", text(&made["listeners"][0], "id"));
    let pool = text(&made["pools"][0], "id");
    let limit = json!({ "listener": { "connection_limit": 3 } });
    let pending = "Invalid state PENDING_CREATE of loadbalancer resource";
    let immutable = format!("Load Balancer {id} is immutable and cannot be updated.");
    let name = json!({ "loadbalancer": { "name": "x" } });
    refused(rig.put(&one, name.clone()).await, ErrorKind::Busy, pending);
    refused(rig.delete(&format!("{one}?cascade=true")).await, ErrorKind::Busy, pending);
    refused(rig.put(&listener_path, limit.clone()).await, ErrorKind::Busy, &immutable);
    let none = json!({ "members": [] });
    let words = format!("Pool {pool} is immutable");
    refused(rig.put(&format!("pools/{pool}/members"), none).await, ErrorKind::Busy, &words);
    for expect in ["PENDING_CREATE", "PENDING_CREATE", "ACTIVE"] {
        assert_eq!(rig.get(&one).await.unwrap()["loadbalancer"]["provisioning_status"], expect);
    }
    rig.put(&listener_path, limit).await.unwrap();
    refused(rig.put(&one, name.clone()).await, ErrorKind::Busy, "PENDING_UPDATE");
    rig.get(&format!("{one}/status")).await.unwrap();
    rig.get("loadbalancers").await.unwrap();
    let listeners = rig.get(&format!("listeners?loadbalancer_id={id}")).await.unwrap();
    assert_eq!(listeners["listeners"][0]["provisioning_status"], "ACTIVE");
    // Held until the test lets go.
    rig.change(|octavia| octavia.holds_all = true);
    rig.put(&one, name).await.unwrap();
    for _ in 0..5 {
        let row = rig.get(&one).await.unwrap();
        assert_eq!(row["loadbalancer"]["provisioning_status"], "PENDING_UPDATE");
    }
    rig.let_go(&made);
    assert_eq!(rig.get(&one).await.unwrap()["loadbalancer"]["provisioning_status"], "ACTIVE");
}

#[tokio::test]
async fn a_nested_creation_makes_all_or_nothing() {
    let rig = Rig::new();
    let made = rig.ready(json!([listener("TCP", 80), listener("UDP", 80)])).await;
    let counts = |rig: &Rig| {
        let world = rig.0.world.lock();
        let octavia = &world.octavia;
        (octavia.balancers.len(), octavia.listeners.len(), octavia.members.len(), world.ports.len())
    };
    assert_eq!(counts(&rig), (1, 2, 4, 1));
    assert_eq!(rig.0.world.lock().ports[0]["id"], made["vip_port_id"]);
    let (mut v6, mut dup, mut unnamed, mut other) =
        (listener("TCP", 1), listener("TCP", 1), listener("TCP", 1), listener("TCP", 1));
    v6["allowed_cidrs"] = json!(["fd00::/8"]);
    dup["default_pool"]["members"][1] = dup["default_pool"]["members"][0].clone();
    unnamed["default_pool"]["name"] = json!("");
    other["default_pool"]["protocol"] = json!("UDP");
    for (listeners, kind, words) in [
        (
            json!([listener("TCP", 80), listener("HTTP", 80)]),
            Conflict,
            "is already using protocol TCP and protocol_port 80",
        ),
        (json!([v6]), Invalid, "IP version incompatible with VIP"),
        (json!([dup]), Conflict, "Another member on this pool"),
        (json!([unnamed]), Invalid, "Pools must be named"),
        (json!([listener("TCP", 1), listener("TCP", 1)]), Invalid, "Pool names must be unique"),
        (
            json!([other]),
            Invalid,
            "The pool protocol 'UDP' is invalid while the listener protocol is 'TCP'",
        ),
    ] {
        refused(rig.create(json!({ "listeners": listeners })).await, kind, words);
        assert_eq!(counts(&rig), (1, 2, 4, 1), "{words}");
    }
    for (field, value, kind, words) in [
        ("vip_subnet_id", json!(uuid(9)), Invalid, "Subnet"),
        ("vip_subnet_id", Value::Null, Invalid, "VIP must contain one of"),
        ("vip_port_id", json!(uuid(9)), Invalid, "Port"),
        ("vip_port_id", made["vip_port_id"].clone(), Invalid, "is already used by device lb-"),
        ("provider", json!("ovn"), Invalid, "Provider 'ovn' is not enabled."),
        ("vip_address", made["vip_address"].clone(), Conflict, "already allocated in subnet"),
        ("vip_address", json!("10.1.1.1"), Invalid, "is not a valid IP for the specified subnet"),
        (
            "nonsense",
            json!(1),
            Invalid,
            "Unknown attribute for argument load_balancer.loadbalancer: nonsense",
        ),
        ("name", json!("x".repeat(256)), Invalid, "Invalid input for field/attribute name"),
    ] {
        refused(rig.create(json!({ field: value })).await, kind, words);
    }
    let tiny = json!({ "vip_subnet_id": uuid(3) });
    rig.create(tiny.clone()).await.unwrap();
    refused(rig.create(tiny).await, QuotaExceeded, "No more IP addresses available");
}

#[tokio::test]
async fn quotas_are_named_and_leave_nothing_behind() {
    let rig = Rig::new();
    let made = rig.ready(json!([listener("TCP", 80)])).await;
    let (balancer, pool) = (text(&made, "id"), text(&made["pools"][0], "id"));
    rig.change(|octavia| {
        octavia.quotas = BTreeMap::from([
            ("Load Balancer", 1),
            ("Listener", 1),
            ("Pool", 1),
            ("Member", 2),
            ("Health Monitor", 0),
        ]);
    });
    let words = |name: &str| format!("Quota has been met for resources: {name}");
    let quota = ErrorKind::QuotaExceeded;
    refused(rig.create(json!({})).await, quota, &words("Load Balancer"));
    rig.change(|octavia| octavia.quotas.extend([("Load Balancer", 5)]));
    refused(rig.create(json!({ "listeners": [listener("TCP", 1)] })).await, quota, &words("Pool"));
    assert_eq!(rig.0.world.lock().octavia.balancers.len(), 1);
    let new = json!({ "listener": { "loadbalancer_id": balancer, "protocol": "TCP", "protocol_port": 1 } });
    refused(rig.post("listeners", new).await, quota, &words("Listener"));
    let new = json!({ "pool": { "loadbalancer_id": balancer, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN" } });
    refused(rig.post("pools", new).await, quota, &words("Pool"));
    let three: Vec<_> =
        (1..4).map(|n| json!({ "address": "10.8.0.9", "protocol_port": n })).collect();
    let members = rig.put(&format!("pools/{pool}/members"), json!({ "members": three })).await;
    refused(members, quota, &words("Member"));
    let new = json!({ "healthmonitor": { "pool_id": pool, "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1 } });
    refused(rig.post("healthmonitors", new).await, quota, &words("Health Monitor"));
    let row = rig.get(&format!("loadbalancers/{balancer}")).await.unwrap();
    assert_eq!(row["loadbalancer"]["provisioning_status"], "ACTIVE", "nothing was begun");
}

#[tokio::test]
async fn members_are_replaced_by_address_and_port() {
    let rig = Rig::new();
    let made = rig.ready(json!([listener("TCP", 80)])).await;
    let path = format!("pools/{}/members", text(&made["pools"][0], "id"));
    let ids = async || -> Vec<(String, String)> {
        let read = rig.get(&path).await.unwrap();
        let rows = read["members"].as_array().unwrap().clone();
        rows.iter().map(|row| (text(row, "address"), text(row, "id"))).collect()
    };
    let before = ids().await;
    let member =
        |address: &str| json!({ "name": "n", "address": address, "protocol_port": 30_000 });
    let new = json!({ "members": [member("10.8.0.101"), member("10.8.0.103")] });
    rig.put(&path, new).await.unwrap();
    rig.let_go(&made);
    let after = ids().await;
    let addresses: Vec<_> = after.iter().map(|(address, _)| address.as_str()).collect();
    assert_eq!(addresses, ["10.8.0.101", "10.8.0.103"]);
    assert_eq!(after[0], before[0], "the same member");
    // The change names a new member twice.
    let twice = json!({ "members": [member("10.8.0.104"), member("10.8.0.104")] });
    refused(rig.put(&path, twice).await, ErrorKind::Conflict, "Another member on this pool");
    let odd = json!({ "members": [member("x")] });
    refused(rig.put(&path, odd).await, ErrorKind::Invalid, "attribute address. Value: 'x'");
    assert_eq!(ids().await, after);
    // The change names an existing member twice: the load balancer is stuck.
    let twice = json!({ "members": [member("10.8.0.101"), member("10.8.0.101")] });
    rig.put(&path, twice).await.unwrap();
    let one = format!("loadbalancers/{}", text(&made, "id"));
    for _ in 0..5 {
        let row = rig.get(&one).await.unwrap();
        assert_eq!(row["loadbalancer"]["provisioning_status"], "PENDING_UPDATE");
    }
    let unknown = rig.get(&format!("pools/{}/members", uuid(9))).await;
    refused(unknown, ErrorKind::NotFound, "\"description\":\"Pool ");
}

/// Version 2.26 of the real Octavia does the same.
#[tokio::test]
async fn a_nested_pool_may_stay_pending_until_it_is_changed_itself() {
    let rig = Rig::new();
    rig.change(|octavia| octavia.forgets_nested = true);
    let made = rig.ready(json!([listener("TCP", 80)])).await;
    let pool = text(&made["pools"][0], "id");
    let tree = rig.get(&format!("loadbalancers/{}/status", text(&made, "id"))).await.unwrap();
    let tree = &tree["statuses"]["loadbalancer"];
    assert_eq!(tree["provisioning_status"], "ACTIVE");
    assert_eq!(tree["listeners"][0]["pools"][0]["provisioning_status"], "PENDING_CREATE");
    let none = json!({ "members": [] });
    let members = rig.put(&format!("pools/{pool}/members"), none.clone()).await;
    refused(members, ErrorKind::Busy, "is immutable");
    rig.put(&format!("pools/{pool}"), json!({ "pool": { "name": "p" } })).await.unwrap();
    rig.let_go(&made);
    rig.put(&format!("pools/{pool}/members"), none).await.unwrap();
}

#[tokio::test]
async fn children_are_deleted_one_by_one_or_all_at_once() {
    let rig = Rig::new();
    let made = rig.ready(json!([listener("TCP", 80), listener("TCP", 81)])).await;
    let one = format!("loadbalancers/{}", text(&made, "id"));
    refused(rig.delete(&one).await, ErrorKind::Invalid, "it has children");
    rig.delete(&format!("pools/{}", text(&made["pools"][0], "id"))).await.unwrap();
    rig.let_go(&made);
    {
        let world = rig.0.world.lock();
        assert_eq!((world.octavia.pools.len(), world.octavia.members.len()), (1, 2));
        assert_eq!(world.octavia.listeners[0]["default_pool_id"], Value::Null);
    }
    let new = json!({ "pool": { "listener_id": made["listeners"][1]["id"], "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN" } });
    let already = "This listener already has a default pool";
    refused(rig.post("pools", new.clone()).await, ErrorKind::Conflict, already);
    let mut nested = new;
    nested["pool"]["listener_id"] = made["listeners"][0]["id"].clone();
    nested["pool"]["members"] = json!([]);
    refused(rig.post("pools", nested).await, ErrorKind::Unavailable, "_sa_instance_state");
    // The port is deleted with the load balancer; the floating IP stays and is attached to nothing.
    let port = made["vip_port_id"].clone();
    let new = json!({ "floatingip": { "floating_network_id": uuid(88), "port_id": port } });
    let ip = rig.sent(Service::Network, Method::POST, "/floatingips", new).await.unwrap();
    assert_eq!(ip["floatingip"]["fixed_ip_address"], made["vip_address"]);
    rig.delete(&format!("{one}?cascade=true")).await.unwrap();
    let state = rig.get(&one).await.unwrap()["loadbalancer"]["provisioning_status"].clone();
    assert_eq!(state, "PENDING_DELETE");
    refused(rig.get(&one).await, ErrorKind::NotFound, "not found.");
    refused(rig.delete(&one).await, ErrorKind::NotFound, "not found.");
    let world = rig.0.world.lock();
    assert!(world.ports.is_empty() && world.octavia.members.is_empty());
    assert_eq!(world.floating.ips[0]["port_id"], Value::Null);
}

#[tokio::test]
async fn what_has_failed_can_only_be_deleted() {
    let rig = Rig::new();
    rig.change(|octavia| octavia.failures = 1);
    let made = rig.ready(json!([listener("TCP", 80)])).await;
    let one = format!("loadbalancers/{}", text(&made, "id"));
    let row = rig.get(&one).await.unwrap();
    assert_eq!(row["loadbalancer"]["provisioning_status"], "ERROR");
    let name = json!({ "loadbalancer": { "name": "x" } });
    refused(rig.put(&one, name).await, ErrorKind::Conflict, "Invalid state ERROR");
    let pool = format!("pools/{}", text(&made["pools"][0], "id"));
    let name = json!({ "pool": { "name": "x" } });
    refused(rig.put(&pool, name).await, ErrorKind::Busy, "is immutable");
    rig.delete(&format!("{one}?cascade=true")).await.unwrap();
    rig.let_go(&made);
    let made = rig.ready(json!([])).await;
    rig.change(|octavia| octavia.break_down(made["id"].as_str().unwrap()));
    let row = rig.get(&format!("loadbalancers/{}", text(&made, "id"))).await.unwrap();
    assert_eq!(row["loadbalancer"]["provisioning_status"], "ERROR");
}

#[tokio::test]
async fn every_change_moves_the_time_of_the_load_balancer() {
    let rig = Rig::new();
    let made = rig.create(json!({ "listeners": [listener("TCP", 80)] })).await.unwrap();
    assert_eq!(made["updated_at"], Value::Null);
    rig.let_go(&made);
    let (one, pool) =
        (format!("loadbalancers/{}", text(&made, "id")), text(&made["pools"][0], "id"));
    let mut before = Value::Null;
    let monitor = json!({ "healthmonitor": { "pool_id": pool, "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1 } });
    for (method, path, body) in [
        (Method::PUT, one.clone(), json!({ "loadbalancer": { "tags": ["a"] } })),
        (
            Method::PUT,
            format!("listeners/{}", text(&made["listeners"][0], "id")),
            json!({ "listener": {} }),
        ),
        (Method::PUT, format!("pools/{pool}"), json!({ "pool": {} })),
        (Method::PUT, format!("pools/{pool}/members"), json!({ "members": [] })),
        (Method::POST, "healthmonitors".to_owned(), monitor),
        (Method::DELETE, format!("pools/{pool}"), Value::Null),
    ] {
        rig.octavia(method, &path, body).await.unwrap();
        rig.let_go(&made);
        let now = rig.get(&one).await.unwrap()["loadbalancer"]["updated_at"].take();
        assert_ne!(now, before, "{path}");
        before = now;
    }
}

#[tokio::test]
async fn a_filter_twice_is_an_error_and_so_is_an_unknown_one() {
    let rig = Rig::new();
    rig.ready(json!([])).await;
    let twice = rig.get("loadbalancers?name=a&name=b").await;
    refused(twice, ErrorKind::Unavailable, "OperationalError");
    refused(rig.get("loadbalancers?nonsense=1").await, ErrorKind::Invalid, "duplicate or invalid");
    let none = rig.get("loadbalancers?name=other").await.unwrap();
    assert_eq!(none, json!({ "loadbalancers": [], "loadbalancers_links": [] }));
}

#[tokio::test]
async fn an_old_version_does_not_know_new_fields() {
    let rig = Rig::new();
    rig.change(|octavia| octavia.minor = 4);
    for (field, value) in
        [("tags", json!(["a"])), ("flavor_id", json!(uuid(1))), ("additional_vips", json!([]))]
    {
        refused(rig.create(json!({ field: value })).await, ErrorKind::Invalid, field);
    }
    let made = rig.create(json!({})).await.unwrap();
    assert_eq!(made.get("tags").or(made.get("additional_vips")), None);
    let sctp = json!({ "listeners": [listener("SCTP", 1)] });
    refused(rig.create(sctp).await, ErrorKind::Invalid, "attribute protocol");
}

#[tokio::test]
async fn both_families_and_the_driver_ovn() {
    let rig = Rig::new();
    rig.change(|octavia| octavia.providers.push("ovn"));
    let vips = json!([{ "subnet_id": uuid(2) }]);
    let made = rig.create(json!({ "additional_vips": vips })).await.unwrap();
    assert!(made["additional_vips"][0]["ip_address"].as_str().unwrap().starts_with("fd08::"));
    assert_eq!(rig.0.world.lock().ports[0]["fixed_ips"].as_array().unwrap().len(), 2);
    let mut wrong = listener("TCP", 80);
    let ovn = |listener: &Value| json!({ "provider": "ovn", "listeners": [listener] });
    refused(
        rig.create(ovn(&wrong)).await,
        ErrorKind::Unsupported,
        "Provider 'ovn' does not support",
    );
    wrong["default_pool"]["lb_algorithm"] = json!("SOURCE_IP_PORT");
    rig.create(ovn(&wrong)).await.unwrap();
    wrong["allowed_cidrs"] = json!(["10.0.0.0/8"]);
    refused(rig.create(ovn(&wrong)).await, ErrorKind::Unsupported, "allowed_cidrs");
    refused(rig.create(ovn(&listener("HTTP", 1))).await, ErrorKind::Unsupported, "this protocol");
}
