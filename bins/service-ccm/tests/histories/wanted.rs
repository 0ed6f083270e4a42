//! The expected end state of a Service, computed from the Service itself and not by the program.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ccm_cloud::{IpFamily, LoadBalancers, Traffic};
use ccm_objects::service_keys::{EXCLUDE_NODE, SOURCE_RANGES};
use ccm_sim::cloud::balancers::{SimBalancer, State};
use serde_json::{Value, json};

use crate::{
    mends::{Mend, awaits},
    watched::ID,
    world::World,
};

/// An error in the end state of a Service.
pub(crate) struct Wrong {
    /// A description of the error.
    pub(crate) how: String,
    /// The part that the error is about.
    pub(crate) about: About,
}

/// The part that an error is about: it determines how long the program may need to correct it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// Everything that a list or the next attempt shows.
    All,
    /// The configuration: a person may have changed it in the cloud, and only a full read shows that.
    Configuration,
    /// Members; the program may hold them.
    Members,
}

fn of_all(how: String) -> Wrong {
    Wrong { how, about: About::All }
}

/// Returns true if a Service should have a load balancer of this program.
pub(crate) fn is_wanted(world: &World, service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer"
        && service["metadata"]["deletionTimestamp"].is_null()
        && world.serves(service)
}

/// Returns true if the user has said that another controller is responsible.
pub(crate) fn is_elsewhere(service: &Value) -> bool {
    service["metadata"]["annotations"]["sim/elsewhere"].is_string()
}

/// Returns the error in the end state of a Service.
pub(crate) fn wrong(world: &World, number: usize) -> Option<Wrong> {
    let key = World::service_key(number);
    let service = world.service(number)?;
    let found = world.balancers_of(service["metadata"]["uid"].as_str().unwrap());
    if !is_wanted(world, &service) {
        return unclean(world, &service, &found).map(|how| of_all(format!("{key} {how}")));
    }
    if found.len() > 1 {
        let ids: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
        return Some(of_all(format!(
            "{key} has the load balancers {ids:?}; {}",
            service["status"]
        )));
    }
    if is_elsewhere(&service) || is_refused(world, &service, found.first()) {
        // The load balancer stays as it was.
        return None;
    }
    let conditions = &service["status"]["conditions"];
    let [balancer] = found.as_slice() else {
        let waits = conditions.to_string().contains("WaitingForAdoption");
        return (!waits).then(|| of_all(format!("{key} has none; {}", service["status"])));
    };
    if matches!(balancer.state, State::Pending { .. }) {
        // Members may still leave one after another.
        let how = format!("{key} is {:?}", balancer.state);
        return Some(Wrong { how, about: About::Members });
    }
    if let Some(how) = differs(world, &service, balancer) {
        let how = format!("{key}: {how}; {}", service["status"]);
        return Some(Wrong { how, about: About::Configuration });
    }
    let (has, wants) = (members(balancer), eligible(world, balancer));
    // The last one stays.
    if has != wants && (has.len() > 1 || !wants.is_empty()) {
        let status = &service["status"];
        let how = format!("{key} has the members {has:?}, not {wants:?}; {status}");
        return Some(Wrong { how, about: About::Members });
    }
    shown_wrongly(world, &service, balancer).map(|how| of_all(format!("{key} {how}")))
}

/// Returns what service-ccm has not removed from a Service that should not have a load balancer.
fn unclean(world: &World, service: &Value, found: &[SimBalancer]) -> Option<String> {
    let metadata = &service["metadata"];
    let uid = metadata["uid"].as_str().unwrap();
    let is_theirs = world.neighbours.has(service);
    if world.persons.have_released(uid) && metadata["finalizers"].is_null() {
        return None;
    }
    if !found.is_empty() && is_kept(service) {
        return None;
    }
    if !found.is_empty() {
        return Some(format!("has still {} load balancers; {metadata}", found.len()));
    }
    let has_another_class = service["spec"]["type"] == "LoadBalancer";
    if is_theirs || has_another_class && awaits(Mend::AfterRestart) {
        return None;
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Some(format!("is still being deleted: {}", metadata["finalizers"]));
    }
    let status = &service["status"];
    let left = [
        ("finalizer", !metadata["finalizers"].is_null()),
        ("annotation", !metadata["annotations"][ID].is_null()),
        ("address", !status["loadBalancer"]["ingress"].is_null()),
        ("condition", condition(service, "LoadBalancerServing").is_some()),
    ];
    let left: Vec<_> = left.into_iter().filter_map(|(what, is)| is.then_some(what)).collect();
    (!left.is_empty())
        .then(|| format!("keeps {}; {metadata} {} {status}", left.join(", "), service["spec"]))
}

/// Returns true if a Service keeps its load balancers although the program does not serve it any more:
/// only the settings exclude it, and no user has approved that they go.
fn is_kept(service: &Value) -> bool {
    service["spec"]["type"] == "LoadBalancer" && service["metadata"]["deletionTimestamp"].is_null()
}

/// Returns true if the cloud cannot provide what the Service asks for: the load balancer stays then.
pub(crate) fn is_refused(world: &World, service: &Value, now: Option<&SimBalancer>) -> bool {
    let spec = &service["spec"];
    let address = spec["loadBalancerIP"].as_str();
    let parsed: Option<IpAddr> = address.and_then(|text| text.parse().ok());
    let is_floating = service["metadata"]["annotations"]["sim/floating"] == "true";
    let has_address = |ip: IpAddr| match is_floating {
        true => false,
        false => now.is_some_and(|one| one.addresses.contains(&ip)),
    };
    let refused_address = match (address, parsed) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(_), Some(ip)) => {
            !families(world, service).contains(&IpFamily::of(ip)) || !has_address(ip)
        }
    };
    let ranges = &service["metadata"]["annotations"][SOURCE_RANGES];
    *ranges == "nonsense" || refused_address
}

/// The families that the load balancer should have.
fn families(world: &World, service: &Value) -> Vec<IpFamily> {
    let all = service["spec"]["ipFamilies"].as_array().cloned().unwrap_or_default();
    let most = if LoadBalancers::traits(&world.cloud).dual_stack { 2 } else { 1 };
    let family = |one: &Value| if *one == "IPv6" { IpFamily::V6 } else { IpFamily::V4 };
    all.iter().take(most).map(family).collect()
}

/// Returns the difference between the configuration and what the Service asks for.
pub(crate) fn differs(world: &World, service: &Value, balancer: &SimBalancer) -> Option<String> {
    let (spec, annotations) = (&service["spec"], &service["metadata"]["annotations"]);
    let has = &balancer.configuration;
    if balancer.state != State::Ready {
        return Some(format!("it is {:?}", balancer.state));
    }
    let ports = spec["ports"].as_array().unwrap();
    let wants: BTreeMap<(String, u64), Option<u64>> = ports
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap().to_owned();
            ((protocol, port["port"].as_u64().unwrap()), port["nodePort"].as_u64())
        })
        .collect();
    let listeners: BTreeMap<(String, u64), Option<u64>> = has
        .listeners
        .iter()
        .map(|((protocol, port), to)| {
            ((protocol.to_string(), u64::from(*port)), to.member_port.map(u64::from))
        })
        .collect();
    if listeners != wants {
        return Some(format!("the listeners are {listeners:?}, not {wants:?}"));
    }
    let ranges: Vec<String> = has.source_ranges.iter().map(ToString::to_string).collect();
    if ranges != annotations[SOURCE_RANGES].as_str().map(str::to_owned).as_slice() {
        return Some(format!("the source ranges are {ranges:?}"));
    }
    if has.affinity.is_some() != (spec["sessionAffinity"] == "ClientIP") {
        return Some(format!("the affinity is {:?}", has.affinity));
    }
    let port = match has.traffic {
        Traffic::Local { health_check_port } => json!(health_check_port),
        Traffic::Cluster => Value::Null,
    };
    if port != spec["healthCheckNodePort"] {
        return Some(format!("the traffic policy is {:?}", has.traffic));
    }
    let note = has.settings.get("sim/note").map(String::as_str);
    if note != annotations["sim/note"].as_str() {
        return Some(format!("the note is {note:?}"));
    }
    let wants = families(world, service);
    let has: Vec<IpFamily> = balancer.addresses.iter().copied().map(IpFamily::of).collect();
    (has != wants).then(|| format!("the families are {has:?}, not {wants:?}"))
}

type Addresses = BTreeMap<String, BTreeSet<String>>;

/// The members of a load balancer and their addresses.
fn members(balancer: &SimBalancer) -> Addresses {
    let addresses = |one: &ccm_cloud::Member| {
        one.addresses.iter().map(|address| address.address.clone()).collect()
    };
    balancer.members.iter().map(|one| (one.node.clone(), addresses(one))).collect()
}

/// Returns true if a node should be a member, with any addresses.
pub(crate) fn is_eligible(node: &Value, needs_id: bool) -> bool {
    let marked = node["spec"]["taints"].to_string().contains("ToBeDeletedByClusterAutoscaler");
    !marked
        && node["metadata"]["labels"][EXCLUDE_NODE].is_null()
        && node["metadata"]["deletionTimestamp"].is_null()
        && !(needs_id && node["spec"]["providerID"].is_null())
}

/// Returns true if the load balancer selects this node by its labels.
pub(crate) fn is_selected(world: &World, balancer: &SimBalancer, node: &Value) -> bool {
    let selector = LoadBalancers::selector(&world.cloud, &balancer.configuration.settings);
    let labels = serde_json::from_value(node["metadata"]["labels"].clone());
    selector.matches(&labels.unwrap_or_default())
}

/// The members that a load balancer should have: the first address per family of each node.
pub(crate) fn eligible(world: &World, balancer: &SimBalancer) -> Addresses {
    let mut all = Addresses::new();
    let needs_id = LoadBalancers::traits(&world.cloud).member_ids;
    let is_member =
        |node: &&Value| is_eligible(node, needs_id) && is_selected(world, balancer, node);
    for node in world.list("nodes").iter().filter(is_member) {
        let its = node["status"]["addresses"].as_array().unwrap();
        let its = its.iter().filter_map(|one| one["address"].as_str());
        let mut reached = BTreeSet::new();
        for family in balancer.addresses.iter().copied().map(IpFamily::of) {
            let of_family = |text: &&str| text.parse().is_ok_and(|ip| IpFamily::of(ip) == family);
            reached.extend(its.clone().find(of_family).map(str::to_owned));
        }
        if !reached.is_empty() {
            all.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), reached);
        }
    }
    all
}

/// The addresses of a load balancer.
pub(crate) fn reached_at(world: &World, balancer: &SimBalancer) -> Vec<String> {
    if world.cloud.balancers().settings().hostnames {
        return vec![format!("{}.sim.example", balancer.id)];
    }
    if balancer.configuration.settings.get("sim/floating").is_some_and(|it| it == "true") {
        let all = world.cloud.balancers().floating();
        let its = |owner: &ccm_cloud::Owner| balancer.owners.iter().any(|one| one.is(owner));
        let of = all.iter().filter(|(_, owner)| owner.as_ref().is_some_and(its));
        return of.map(|(ip, _)| ip.to_string()).collect();
    }
    balancer.addresses.iter().map(ToString::to_string).collect()
}

/// The addresses in the status of a Service.
pub(crate) fn shown_at(service: &Value) -> Vec<String> {
    let all = service["status"]["loadBalancer"]["ingress"].as_array();
    let text = |one: &Value| {
        one["ip"].as_str().or_else(|| one["hostname"].as_str()).unwrap_or_default().to_owned()
    };
    all.into_iter().flatten().map(text).collect()
}

/// A condition of a Service.
pub(crate) fn condition<'a>(service: &'a Value, kind: &str) -> Option<&'a Value> {
    service["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == kind)
}

/// Returns what a Service shows wrongly about its load balancer.
fn shown_wrongly(world: &World, service: &Value, balancer: &SimBalancer) -> Option<String> {
    let (shown, is) = (shown_at(service), reached_at(world, balancer));
    if shown != is {
        return Some(format!("shows the address {shown:?}, its load balancer has {is:?}"));
    }
    let id = &service["metadata"]["annotations"][ID];
    if *id != balancer.id.as_str() {
        return Some(format!("names {id}, its load balancer is {}", balancer.id));
    }
    let says = |kind| condition(service, kind).map_or(&Value::Null, |one| &one["status"]);
    let serves = if balancer.members.is_empty() { "False" } else { "True" };
    if *says("LoadBalancerServing") != serves || *says("LoadBalancerProvisioning") != "False" {
        return Some(format!("says {}", service["status"]["conditions"]));
    }
    None
}
