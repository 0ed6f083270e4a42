//! Plays Nova, Neutron and Octavia as far as the tests need them: they filter, make pages, omit
//! fields that were not requested, and count.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

pub mod floating;
pub mod octavia;
mod routers;

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use ccm_cloud::{Call, CloudError, ErrorKind};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::api::{Answer, Api, Microversion, Request, Service, scripted_answer};

/// May answer instead of the services. It gets the path and the number of earlier requests.
pub type Fault = Box<dyn Fn(&str, usize) -> Option<Result<Answer, CloudError>> + Send>;

/// Answers instead of the services, or loses an answer, depending on the request.
type Hook<T> = Box<dyn FnMut(&Request<'_>) -> T + Send>;

/// The data of the services.
#[derive(Default)]
pub struct World {
    pub servers: Vec<Value>,
    /// IDs of servers that lists omit.
    pub unlisted: BTreeSet<String>,
    pub ports: Vec<Value>,
    pub networks: Vec<Value>,
    pub subnets: Vec<Value>,
    pub floating: floating::Floating,
    pub octavia: octavia::Octavia,
    pub flavors: Vec<Value>,
    pub router: routers::Router,
    pub spoken: Spoken,
    /// The region of Nova's endpoint.
    pub region: Option<String>,
    /// The number of entries on a page, if it is not 1000.
    pub page: Option<usize>,
    pub fault: Option<Fault>,
    /// The answer to give instead, if any.
    refusal: Option<Hook<Option<CloudError>>>,
    /// True if an answer is lost although the service has carried out the request.
    loss: Option<Hook<bool>>,
    /// The operations and paths of all requests.
    pub calls: Vec<(&'static str, String)>,
    /// Service, method and path of each request, without its query.
    pub seen: HashSet<(Service, Method, String)>,
    /// The number of requests that are under way, and the maximum so far.
    pub under_way: (usize, usize),
    /// How long each answer takes.
    pub delay: Duration,
    /// How long each page of a list of servers takes, if that is longer.
    pub delay_of_lists: Duration,
}

/// The microversion that Nova speaks, if any.
pub struct Spoken(pub Option<Microversion>);

impl Default for Spoken {
    fn default() -> Self {
        Self(Some(Microversion { major: 2, minor: 79 }))
    }
}

impl Spoken {
    /// Returns true if lists show servers of cells that are down.
    fn shows_silent_cells(&self) -> bool {
        self.0.is_some_and(|spoken| spoken >= Microversion { major: 2, minor: 69 })
    }
}

/// The services.
#[derive(Default)]
pub struct Scripted {
    pub world: Mutex<World>,
}

/// Returns the ID of the server, port or network of this number.
pub fn uuid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{number:012x}")
}

/// Returns a server as Nova 2.79 describes it, on network `k8s`.
pub fn server(number: usize) -> Value {
    let address = format!("10.0.{}.{}", number / 250, number % 250 + 1);
    json!({
        "id": uuid(number),
        "name": format!("node-{number:05}"),
        "status": "ACTIVE",
        "tenant_id": "t",
        "user_id": "u",
        "image": "",
        "links": [{"rel": "self", "href": "http://nova/servers/x"}],
        "OS-EXT-STS:task_state": null,
        "OS-EXT-STS:vm_state": "active",
        "OS-EXT-AZ:availability_zone": "zone 1",
        "accessIPv4": "",
        "accessIPv6": "",
        "addresses": {"k8s": [{
            "addr": address, "version": 4, "OS-EXT-IPS:type": "fixed",
            "OS-EXT-IPS-MAC:mac_addr": format!("fa:16:3e:00:{:02x}:{:02x}", number / 256, number % 256),
        }]},
        "metadata": {"role": "worker"},
        "flavor": {"original_name": "m1.large", "vcpus": 4, "ram": 1, "disk": 1, "swap": 0,
                   "ephemeral": 0, "extra_specs": {}},
        "hostId": "0123456789abcdef",
        "created": "2026-01-01T00:00:00Z",
    })
}

/// Returns the port of the server of this number.
pub fn port(number: usize) -> Value {
    let address = format!("10.0.{}.{}", number / 250, number % 250 + 1);
    json!({
        "id": uuid(1_000_000 + number),
        "device_id": uuid(number),
        "device_owner": "compute:zone 1",
        "status": "ACTIVE",
        "project_id": octavia::PROJECT,
        "network_id": uuid(77),
        "fixed_ips": [{"subnet_id": "s", "ip_address": address}],
        "mac_address": format!("fa:16:3e:00:{:02x}:{:02x}", number / 256, number % 256),
        "created_at": "2026-01-01T00:00:00Z",
    })
}

/// Returns the subnet of this number with these addresses, in network 77.
pub fn subnet(number: usize, cidr: &str) -> Value {
    let version = if cidr.contains(':') { 6 } else { 4 };
    json!({
        "id": uuid(number), "name": format!("subnet-{number}"), "network_id": uuid(77),
        "ip_version": version, "cidr": cidr, "tags": [],
    })
}

/// Returns an answer of the service itself.
pub fn answer(status: u16, body: &Value) -> Answer {
    let (headers, body) = (HeaderMap::new(), Bytes::from(body.to_string()));
    Answer { operation: "", status, headers, body, request_id: Some("req-1".to_owned()) }
}

/// Returns the answer, or the error that a client makes of it.
fn replied(request: &Request<'_>, status: StatusCode, body: &Value) -> Result<Answer, CloudError> {
    let mut headers = HeaderMap::new();
    headers.insert("x-openstack-request-id", HeaderValue::from_static("req-1"));
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    scripted_answer(request, status, headers, body)
}

impl Scripted {
    /// Creates services with these servers and a port for each.
    pub fn with_servers(numbers: impl IntoIterator<Item = usize>) -> Self {
        let scripted = Self::default();
        for number in numbers {
            scripted.world.lock().servers.push(server(number));
            scripted.world.lock().ports.push(port(number));
        }
        scripted
    }

    /// Changes the server of this number.
    pub fn change(&self, number: usize, key: &str, value: Value) {
        let id = uuid(number);
        let mut world = self.world.lock();
        let server = world.servers.iter_mut().find(|server| server["id"] == *id).unwrap();
        server[key] = value;
    }

    /// Makes it a server whose cell does not answer.
    pub fn take_cell_down(&self, number: usize) {
        let id = uuid(number);
        let mut world = self.world.lock();
        let server = world.servers.iter_mut().find(|server| server["id"] == *id).unwrap();
        *server = json!({"id": id, "status": "UNKNOWN", "tenant_id": "t", "links": [],
                         "created": "2026-01-01T00:00:00Z"});
    }

    /// Sets what answers instead.
    pub fn fail(
        &self,
        fault: impl Fn(&str, usize) -> Option<Result<Answer, CloudError>> + Send + 'static,
    ) {
        self.world.lock().fault = Some(Box::new(fault));
    }

    /// Sets which requests fail without an effect, and how.
    pub fn refuse(&self, refusal: impl FnMut(&Request<'_>) -> Option<CloudError> + Send + 'static) {
        self.world.lock().refusal = Some(Box::new(refusal));
    }

    /// Sets which requests take effect without an answer that arrives.
    pub fn lose_answers(&self, loss: impl FnMut(&Request<'_>) -> bool + Send + 'static) {
        self.world.lock().loss = Some(Box::new(loss));
    }

    /// Returns the operations since the last call of this, in alphabetical order.
    pub fn operations(&self) -> Vec<&'static str> {
        let calls = std::mem::take(&mut self.world.lock().calls);
        let mut operations: Vec<_> = calls.into_iter().map(|(operation, _)| operation).collect();
        operations.sort_unstable();
        operations
    }
}

#[async_trait]
impl Api for Scripted {
    async fn send(&self, get: Request<'_>, call: Call) -> Result<Answer, CloudError> {
        assert!(get.path.len() < 8_000, "the path has {} bytes", get.path.len());
        let delay = {
            let mut world = self.world.lock();
            world.calls.push((get.operation, get.path.to_owned()));
            let path = get.path.split('?').next().unwrap_or_default().to_owned();
            world.seen.insert((get.service, get.method.clone(), path));
            world.under_way.0 += 1;
            world.under_way.1 = world.under_way.1.max(world.under_way.0);
            let is_list = get.operation == "server_list";
            world.delay.max(if is_list { world.delay_of_lists } else { Duration::ZERO })
        };
        let is_late = delay > call.left();
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(delay.min(call.left())).await;
        }
        let mut world = self.world.lock();
        world.under_way.0 -= 1;
        if is_late {
            return Err(CloudError::new(ErrorKind::Timeout, "no answer in time"));
        }
        let before = world.calls.len() - 1;
        let fault = world.fault.as_ref().and_then(|fault| fault(get.path, before));
        if let Some(error) = world.refusal.as_mut().and_then(|refusal| refusal(&get)) {
            return Err(error);
        }
        let answer = fault.unwrap_or_else(|| world.served(&get));
        match world.loss.as_mut().is_some_and(|loss| loss(&get)) {
            true => Err(cut_off(&get)),
            false => answer.map(|answer| Answer { operation: get.operation, ..answer }),
        }
    }

    async fn offers(&self, service: Service, _: Call) -> Result<bool, CloudError> {
        Ok(service != Service::LoadBalancer || self.world.lock().octavia.offered)
    }

    async fn project_id(&self, _: Call) -> Result<String, CloudError> {
        Ok(octavia::PROJECT.to_owned())
    }

    fn microversion(&self) -> Option<Microversion> {
        self.world.lock().spoken.0
    }

    fn region(&self) -> Option<String> {
        self.world.lock().region.clone()
    }
}

/// Returns the error of a write, or of a read, whose answer is cut off.
fn cut_off(request: &Request<'_>) -> CloudError {
    let error = CloudError::new(ErrorKind::Unavailable, "the connection was cut off");
    if request.method == Method::GET { error } else { error.that_may_be_done() }
}

/// Returns the path and the decoded query of a request.
fn query_of(path: &str) -> (&str, Vec<(String, String)>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let decoded = |text| percent_decode_str(text).decode_utf8().unwrap().into_owned();
    let terms = query.split('&').filter_map(|term| term.split_once('='));
    (path, terms.map(|(key, value)| (decoded(key), decoded(value))).collect())
}

/// Returns the decoded segments of a path.
fn segments(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| percent_decode_str(part).decode_utf8().unwrap().into_owned()).collect()
}

impl World {
    fn served(&mut self, request: &Request<'_>) -> Result<Answer, CloudError> {
        if request.service == Service::LoadBalancer {
            return self.balanced(request);
        }
        let answered = self.floated(request).or_else(|| self.routed(request));
        answered.unwrap_or_else(|| Ok(self.answer(request)))
    }

    fn answer(&self, get: &Request<'_>) -> Answer {
        let (path, query) = query_of(get.path);
        let query: Vec<(&str, String)> =
            query.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        match (get.service, path) {
            (Service::Compute, "/servers/detail" | "/servers") => self.servers_page(&query),
            (Service::Compute, "/flavors") => paged("flavors", self.flavors.iter(), &query, 1_000),
            (Service::Compute, path) => self.one(path),
            (Service::Network, "/ports") => paged("ports", self.ports.iter(), &query, self.limit()),
            (Service::Network, "/networks") => {
                paged("networks", self.networks.iter(), &query, self.limit())
            }
            other => panic!("nothing answers {other:?}"),
        }
    }

    fn limit(&self) -> usize {
        self.page.unwrap_or(1_000)
    }

    fn one(&self, path: &str) -> Answer {
        let (kind, id) = path.trim_start_matches('/').split_once('/').unwrap();
        let (key, list) = match kind {
            "servers" => ("server", &self.servers),
            "flavors" => ("flavor", &self.flavors),
            _ => panic!("nothing answers {path}"),
        };
        match list.iter().find(|entry| entry["id"] == *id) {
            Some(entry) => answer(200, &json!({key: entry})),
            None => {
                let message = format!("{key} {id} could not be found.");
                answer(404, &json!({"itemNotFound": {"code": 404, "message": message}}))
            }
        }
    }

    /// Returns a page of Nova's list: a filter, a limit, a marker or an old microversion hides the
    /// servers of cells that are down.
    fn servers_page(&self, query: &[(&str, String)]) -> Answer {
        let name = query.iter().find(|(key, _)| *key == "name").map(|(_, pattern)| {
            let name = pattern.strip_prefix('^').unwrap().strip_suffix('$').unwrap();
            name.replace('\\', "").to_lowercase()
        });
        let listed = self.servers.iter().filter(|server| {
            let id = server["id"].as_str().unwrap_or_default();
            let found = match (&name, server["name"].as_str()) {
                // A database that ignores case does the same.
                (Some(wanted), Some(name)) => name.to_lowercase() == *wanted,
                (_, None) if server.get("name").is_none() => {
                    query.is_empty() && self.spoken.shows_silent_cells()
                }
                (wanted, _) => wanted.is_none(),
            };
            found && !self.unlisted.contains(id)
        });
        let paging: Vec<_> = query.iter().filter(|(key, _)| *key != "name").cloned().collect();
        paged("servers", listed, &paging, self.limit())
    }
}

/// Returns a page of the entries that match, with the wanted fields.
fn paged<'a>(
    key: &str,
    entries: impl Iterator<Item = &'a Value>,
    query: &[(&str, String)],
    limit: usize,
) -> Answer {
    let values = |wanted: &str| -> Vec<&str> {
        query.iter().filter(|(key, _)| *key == wanted).map(|(_, value)| &**value).collect()
    };
    let (fields, marker) = (values("fields"), values("marker"));
    let filters: BTreeSet<_> = query
        .iter()
        .map(|(key, _)| *key)
        .filter(|key| !["fields", "marker"].contains(key))
        .collect();
    let all: Vec<&Value> = entries
        .filter(|entry| {
            filters.iter().all(|filter| match *filter {
                "fixed_ips" => has_address(entry, &values(filter)),
                "tags" => values(filter).iter().all(|tags| has_tags(entry, tags)),
                filter => match &entry[filter] {
                    Value::String(text) => values(filter).contains(&text.as_str()),
                    other => values(filter).contains(&other.to_string().as_str()),
                },
            })
        })
        .collect();
    let start = match marker.first() {
        Some(marker) => all.iter().position(|entry| entry["id"] == **marker).unwrap() + 1,
        None => 0,
    };
    let page: Vec<Value> =
        all[start..].iter().take(limit).map(|entry| only(entry, &fields)).collect();
    let mut body = json!({});
    if page.len() == limit {
        body[format!("{key}_links")] =
            json!([{"rel": "next", "href": "http://elsewhere/?marker=x"}]);
    }
    body[key] = page.into();
    answer(200, &body)
}

/// Returns true if a port has one of these addresses, as Neutron's filter writes them.
fn has_address(port: &Value, wanted: &[&str]) -> bool {
    let fixed = port["fixed_ips"].as_array().unwrap().iter();
    let mut own = fixed.map(|ip| format!("ip_address={}", ip["ip_address"].as_str().unwrap()));
    own.any(|own| wanted.contains(&&*own))
}

/// Returns true if an entry has all of these tags, with commas between them.
fn has_tags(entry: &Value, tags: &str) -> bool {
    let own = entry["tags"].as_array().unwrap();
    tags.split(',').all(|tag| own.iter().any(|own| own == tag))
}

fn only(entry: &Value, fields: &[&str]) -> Value {
    if fields.is_empty() {
        return entry.clone();
    }
    let members = entry.as_object().unwrap().iter();
    let kept = members.filter(|(key, _)| fields.contains(&key.as_str()));
    Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>())
}

/// Generates any JSON, but often with the keys and values that Nova uses.
pub fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["\\PC{0,12}".boxed(), Just(uuid(1)).boxed()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let keys = [
        "id",
        "server",
        "servers",
        "ports",
        "networks",
        "flavors",
        "servers_links",
        "ports_links",
        "rel",
        "next",
        "name",
        "status",
        "addresses",
        "metadata",
        "flavor",
        "accessIPv4",
        "hostId",
        "addr",
        "original_name",
        "OS-EXT-AZ:availability_zone",
        "OS-EXT-IPS:type",
        "k8s",
        "device_id",
        "network_id",
        "fixed_ips",
        "ip_address",
        "trunk_details",
        "sub_ports",
        "port_id",
    ];
    leaf.prop_recursive(4, 40, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(keys.to_vec()), inner), 0..8).prop_map(
                |members| members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Value>()
            ),
        ]
    })
}
