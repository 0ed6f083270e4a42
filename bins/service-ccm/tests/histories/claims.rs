//! Compares what Services, events and metrics say about load balancers with the cloud.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ccm_sim::cloud::balancers::{SimBalancer, State};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    mends::{Mend, awaits},
    quiet::{FULL, is_held_and_gone},
    rules::Rule,
    wanted::{condition, differs, is_elsewhere, reached_at, shown_at},
    world::{SERVICES, World},
};

/// The time for which a claim may be false: an audit, a failed audit before it, and the pause
/// between two writes of a condition.
const AUDIT: Duration = Duration::from_mins(8);

/// The false claims of each Service, and since when they have been false.
#[derive(Default)]
pub(crate) struct Claims {
    since: BTreeMap<(Rule, String), Instant>,
    /// The events that were checked, with their counts.
    events: BTreeSet<(String, u64)>,
    /// The revision of the API server at the last check of events.
    revision: u64,
}

/// A claim: its rule, its text, and true if the claim is true.
type Claim = (Rule, String, bool);

impl Claims {
    /// Checks that no claim is false for longer than an audit.
    pub(crate) fn look(&mut self, world: &World) {
        self.look_at_events(world);
        let now = Instant::now();
        let mut since = BTreeMap::new();
        for number in 0..SERVICES {
            for (rule, words, is_true) in claims_of(world, number) {
                if is_true {
                    continue;
                }
                let before = self.since.get(&(rule, words.clone())).copied().unwrap_or(now);
                let longest = if words.contains("rovisioned") { FULL } else { AUDIT };
                // While lists fail or lie, the program cannot know it.
                let known = world.blind_until.map_or(before, |until| before.max(until));
                if known + longest < now && world.has_lists() {
                    world.broken.add(rule, words.clone());
                }
                since.insert((rule, words), before);
            }
        }
        self.since = since;
    }

    /// Checks that each event about a load balancer is true when it is written. The program cannot
    /// know that while the cloud fails or changes.
    fn look_at_events(&mut self, world: &World) {
        if self.revision == world.api.revision() {
            return;
        }
        self.revision = world.api.revision();
        for event in &*world.list("events") {
            let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let count = event["series"]["count"].as_u64().or(event["count"].as_u64());
            if self.events.insert((name, count.unwrap_or_default()))
                && world.cloud.faults().is_empty()
                && let Some(how) = false_event(world, event)
            {
                world.broken.add(Rule::Events, how);
            }
        }
    }
}

fn false_event(world: &World, event: &Value) -> Option<String> {
    let about =
        if event["regarding"].is_null() { &event["involvedObject"] } else { &event["regarding"] };
    let left = world.balancers_of(about["uid"].as_str()?).len();
    let message = event["message"].as_str().or_else(|| event["note"].as_str()).unwrap_or_default();
    let is_true = match event["reason"].as_str()? {
        "DeletedLoadBalancer" => left == 0 || message.contains("second"),
        "EnsuredLoadBalancer" => left > 0,
        _ => true,
    };
    (!is_true).then(|| format!("{message:?} about {}, and {left} are there", about["name"]))
}

/// Returns the claims that a Service makes now.
fn claims_of(world: &World, number: usize) -> Vec<Claim> {
    let Some(service) = world.service(number) else { return Vec::new() };
    // What was written before the class changed may stay.
    if !world.serves(&service) && awaits(Mend::AfterRestart) {
        return Vec::new();
    }
    let found = world.balancers_of(service["metadata"]["uid"].as_str().unwrap());
    if found.len() > 1 || is_elsewhere(&service) || world.neighbours.has(&service) {
        return Vec::new();
    }
    let key = World::service_key(number);
    let mut claims = Vec::new();
    claims.extend(address(world, &key, &service, found.first()));
    claims.extend(serving(world, &key, &service, found.first()));
    claims.extend(provisioning(world, &key, &service, found.first()));
    claims
}

/// The claim that the Service shows the address of its load balancer, if there is one, unless the
/// Service says that it shows the address of a load balancer that is gone.
fn address(
    world: &World,
    key: &str,
    service: &Value,
    balancer: Option<&SimBalancer>,
) -> Option<Claim> {
    let (shown, is) = (shown_at(service), reached_at(world, balancer?));
    let words = format!("{key} shows {shown:?}, its load balancer has {is:?}");
    let says_so = condition(service, "LoadBalancerServing")
        .is_some_and(|condition| condition["reason"] == "LoadBalancerGone");
    (!says_so && !shown.is_empty() && !is.is_empty()).then(|| (Rule::Shown, words, shown == is))
}

/// The claim of the condition `LoadBalancerServing`.
fn serving(
    world: &World,
    key: &str,
    service: &Value,
    balancer: Option<&SimBalancer>,
) -> Option<Claim> {
    let condition = condition(service, "LoadBalancerServing")?;
    let members = balancer.map_or(0, |one| one.members.len());
    let at = balancer.map(|one| serves_at(world, one)).unwrap_or_default();
    let status = condition["status"].as_str()?;
    let is_true = match (status, condition["reason"].as_str()?) {
        ("Unknown", _) => true,
        (_, "Serving") => members > 0 && at.iter().any(|one| names(condition, one)),
        ("True", _) => members > 0 && !at.is_empty(),
        (_, "NoMembers") => members == 0 || has_no_node_port(service),
        _ => true,
    };
    let words = format!("{key} says {condition}, its load balancer has {at:?}, {members} members");
    Some((Rule::Claims, words, is_true))
}

/// The addresses at which clients reach a load balancer now: its own ones until it gets the floating
/// address that it should have.
fn serves_at(world: &World, balancer: &SimBalancer) -> Vec<String> {
    let at = reached_at(world, balancer);
    let own = || balancer.addresses.iter().map(ToString::to_string).collect();
    if at.is_empty() { own() } else { at }
}

fn names(condition: &Value, address: &str) -> bool {
    condition["message"].as_str().is_some_and(|message| message.contains(address))
}

fn has_no_node_port(service: &Value) -> bool {
    service["spec"]["ports"].as_array().unwrap().iter().all(|port| port["nodePort"].is_null())
}

/// The claim of the condition `LoadBalancerProvisioning`.
fn provisioning(
    world: &World,
    key: &str,
    service: &Value,
    balancer: Option<&SimBalancer>,
) -> Option<Claim> {
    let condition = condition(service, "LoadBalancerProvisioning")?;
    let is_ready = balancer.is_some_and(|one| one.state == State::Ready);
    let is_whole = balancer.is_some_and(|one| differs(world, service, one).is_none());
    let is_true = match condition["reason"].as_str()? {
        "Provisioned" | "PartlyProvisioned" => is_whole,
        "Creating" => !is_ready,
        "LoadBalancerFailed" => balancer.is_some() && !is_ready,
        _ => true,
    };
    let state = balancer.map(|one| &one.state);
    Some((Rule::Claims, format!("{key} says {condition}, its load balancer is {state:?}"), is_true))
}

/// Returns the error in the metrics, if there is one when everything has converged.
pub(crate) fn metrics(world: &World) -> Option<String> {
    let number = |name: &str| world.metric::<f64>(name);
    let held = number("ccm_service_members_held ");
    if held > 0.0 {
        return Some(format!("{held} members are held"));
    }
    let failing = number("ccm_service_load_balancers{state=\"failing\"} ");
    let pending = number("ccm_service_load_balancers{state=\"pending\"} ");
    let deleting = number("ccm_service_load_balancers{state=\"deleting\"} ");
    let may_fail = |at: &usize| is_refused_now(world, *at) || is_held_and_gone(world, *at);
    let refused = (0..SERVICES).filter(may_fail).map(|_| 1.0).sum::<f64>();
    (pending + deleting > 0.0 || failing > refused).then(|| {
        format!(
            "{failing} failing of {refused}, {pending} pending, {deleting} deleting: {}",
            statuses(world)
        )
    })
}

fn is_refused_now(world: &World, number: usize) -> bool {
    world.service(number).is_some_and(|service| {
        let found = world.balancers_of(service["metadata"]["uid"].as_str().unwrap());
        crate::wanted::is_refused(world, &service, found.first())
    })
}

fn statuses(world: &World) -> String {
    let of = |number| {
        world.service(number).map(|one| format!("{} {}", one["spec"], one["status"]["conditions"]))
    };
    (0..SERVICES).filter_map(of).collect()
}
