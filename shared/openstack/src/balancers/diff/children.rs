//! Computes the changes of listeners, pools and health monitors.

use std::collections::BTreeSet;

use ccm_openstack_client::lbaas::{Child, ListenerRow, PoolRow, Provisioning};
use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Goal, members};
use crate::balancers::{
    current::Seen,
    merge::first,
    names::{self, OWN_TAGS},
    spec::{Listener, Monitor, Pool, USUAL_AFFINITY},
    steps::{Act, Step, unchanged},
};

/// Deletes a listener and its pool.
pub fn removal(seen: &Seen, listener: &ListenerRow) -> Vec<Step> {
    let ListenerRow { id, protocol, protocol_port, .. } = listener;
    let name = format!("{protocol_port}/{protocol}");
    let mut steps = Vec::new();
    let is_shared = |pool: &&PoolRow| pool.listeners.iter().any(|own| own.id != *id);
    if let Some(pool) = seen.pool_of(listener).filter(|pool| !is_shared(pool)) {
        let line = format!("delete the pool of listener {name}");
        steps.push(Step::new(line, Act::Delete(Child::Pool, pool.id.clone())));
    }
    let line = format!("delete listener {name}");
    steps.push(Step::new(line, Act::Delete(Child::Listener, id.clone())));
    steps
}

/// Creates a listener and what is below it.
pub fn creation(listener: &Listener, goal: &Goal<'_>, steps: &mut Vec<Step>) {
    let line = format!("create listener {}", shown(listener));
    steps.push(Step::new(line, Act::Create(Child::Listener, listener.body())));
    pool_creation(listener, None, goal, steps);
}

/// Creates the pool of a listener, which may still be to be created.
fn pool_creation(listener: &Listener, id: Option<&str>, goal: &Goal<'_>, steps: &mut Vec<Step>) {
    let mut body = listener.pool.body();
    let act = match id {
        None => Act::Later,
        Some(id) => {
            body["listener_id"] = id.into();
            Act::Create(Child::Pool, body)
        }
    };
    steps.push(Step::new(format!("create the pool of listener {}", shown(listener)), act));
    let count = goal.shape(listener).map_or(0, |shape| first(goal.members, shape).len());
    if count > 0 {
        steps.push(Step::new(members_line(count, listener), Act::Later));
    }
    if listener.pool.monitor.is_some() {
        steps.push(Step::new(monitor_line(listener), Act::Later));
    }
}

fn monitor_line(listener: &Listener) -> String {
    format!("create the health monitor of listener {}", shown(listener))
}

/// Changes what differs of a listener.
pub fn listener(there: &ListenerRow, listener: &Listener) -> Option<Step> {
    let mut body = differing(there, listener.settings(), |key, seen, wanted| match key {
        "connection_limit" => there.connection_limit.unwrap_or(-1) == listener.connection_limit,
        "insert_headers" => there.insert_headers.clone().unwrap_or_default() == listener.headers,
        "allowed_cidrs" => listener.allowed_cidrs.as_ref().is_none_or(|it| allows(there, it)),
        _ => seen.is_null() || seen == wanted,
    });
    // An adopted object lacks the UIDs, which are recorded on the load balancer. An object without
    // tags was made before tags existed.
    let own = listener.tags.iter().take(usize::from(!there.tags.is_empty()));
    let tags = with(&there.tags, own.chain(listener.tags.iter().skip(OWN_TAGS)));
    if tags.len() > there.tags.len() {
        body.insert("tags".to_owned(), json!(tags));
    }
    update(Child::Listener, &there.id, body, &format!("listener {}", shown(listener)))
}

/// Returns the wanted settings that an object does not have.
fn differing(
    there: &impl Serialize,
    wanted: Value,
    is_same: impl Fn(&str, &Value, &Value) -> bool,
) -> Map<String, Value> {
    let there = serde_json::to_value(there).unwrap_or_default();
    let Value::Object(mut settings) = wanted else { return Map::new() };
    settings.retain(|key, wanted| !is_same(key, &there[key.as_str()], wanted));
    settings
}

/// Returns the existing tags, and the missing ones.
fn with<'a>(there: &[String], wanted: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut tags = there.to_vec();
    for tag in wanted {
        if !tags.contains(tag) {
            tags.push(tag.clone());
        }
    }
    tags
}

/// Returns true if a listener admits exactly these networks. An empty list admits all.
fn allows(there: &ListenerRow, wanted: &BTreeSet<IpNet>) -> bool {
    let there = there.allowed_cidrs.as_deref().unwrap_or_default();
    let is_everything = |range: &IpNet| range.prefix_len() == 0;
    if there.is_empty() {
        return wanted.iter().all(is_everything);
    }
    let parsed: Option<BTreeSet<IpNet>> =
        there.iter().map(|text| text.parse::<IpNet>().ok().map(|range| range.trunc())).collect();
    parsed.is_some_and(|parsed| parsed == *wanted)
}

fn update(child: Child, id: &str, body: Map<String, Value>, name: &str) -> Option<Step> {
    if body.is_empty() {
        return None;
    }
    let keys = body.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let line = format!("change {name}: {keys}");
    Some(Step::new(line, Act::Update(child, id.to_owned(), body.into())))
}

/// Changes the pool of a listener, its members and its monitor.
pub fn pool(
    seen: &Seen,
    there: &ListenerRow,
    own: Option<&PoolRow>,
    listener: &Listener,
    goal: &Goal<'_>,
    steps: &mut Vec<Step>,
    updates: &mut Vec<Step>,
) {
    let Some(own) = own else {
        return pool_creation(listener, Some(&there.id), goal, steps);
    };
    if own.protocol != listener.pool.protocol {
        let line = format!("delete the pool of listener {}", shown(listener));
        steps.push(Step::new(line, Act::Delete(Child::Pool, own.id.clone())));
        return pool_creation(listener, Some(&there.id), goal, steps);
    }
    let mut body = Map::new();
    if own.lb_algorithm.as_ref().is_some_and(|algorithm| *algorithm != listener.pool.algorithm) {
        body.insert("lb_algorithm".to_owned(), json!(listener.pool.algorithm));
    }
    if !persists(own.session_persistence.as_ref(), &listener.pool) {
        body.insert("session_persistence".to_owned(), listener.pool.persistence());
    }
    let tags = with(&own.tags, listener.pool.tags.iter().skip(OWN_TAGS));
    if tags.len() > own.tags.len() {
        body.insert("tags".to_owned(), json!(tags));
    }
    let name = format!("the pool of listener {}", shown(listener));
    let is_left_pending = matches!(own.provisioning_status, Provisioning::Pending(_));
    let (mut below, mut checks) = (Vec::new(), Vec::new());
    monitor(seen, own, listener, &mut checks);
    if names::taken_back(&seen.row.tags) == Some(goal.digest) {
        // These monitors fail all members, so they are deleted first. Other changes of monitors
        // follow the members.
        let goes_first = if is_left_pending { &mut below } else { &mut *steps };
        goes_first.append(&mut checks);
    }
    below.extend(members(seen, &own.id, listener, goal));
    below.append(&mut checks);
    if body.is_empty() && !below.is_empty() && is_left_pending {
        let line =
            format!("update {name} with its present values, so that its members can be changed");
        updates
            .push(Step::new(line, Act::Update(Child::Pool, own.id.clone(), unchanged(&own.name))));
    }
    updates.extend(update(Child::Pool, &own.id, body, &name));
    updates.append(&mut below);
}

/// Returns true if a pool keeps a client at a member as wanted.
fn persists(there: Option<&Value>, pool: &Pool) -> bool {
    let there = there.filter(|value| !value.is_null());
    let Some(there) = there.filter(|_| pool.affinity) else {
        return there.is_none() && !pool.affinity;
    };
    let timeout = there.get("persistence_timeout").and_then(Value::as_u64);
    let same_time = match pool.affinity_timeout.map(u64::from) {
        None => true,
        // An object that another controller made without a time limit has the usual one and needs
        // no change.
        Some(wanted) => timeout.map_or(wanted == u64::from(USUAL_AFFINITY), |seen| seen == wanted),
    };
    there.get("type").and_then(Value::as_str) == Some("SOURCE_IP") && same_time
}

/// Changes the monitor of a pool.
fn monitor(seen: &Seen, pool: &PoolRow, listener: &Listener, steps: &mut Vec<Step>) {
    let name = format!("the health monitor of listener {}", shown(listener));
    let deletion =
        |id: &String| Step::new(format!("delete {name}"), Act::Delete(Child::Monitor, id.clone()));
    let creation = |monitor: &Monitor, may: bool| {
        let mut body = monitor.body();
        body["pool_id"] = pool.id.clone().into();
        let act = if may { Act::Create(Child::Monitor, body) } else { Act::Later };
        Step::new(monitor_line(listener), act)
    };
    match (seen.monitor_of(pool), &listener.pool.monitor) {
        (None, None) => {}
        (None, Some(wanted)) => steps.push(creation(wanted, true)),
        (Some(_), None) if listener.pool.keeps_monitor => {}
        (Some(there), None) => steps.push(deletion(&there.id)),
        (Some(there), Some(wanted)) if there.kind != wanted.kind => {
            steps.push(deletion(&there.id));
            steps.push(creation(wanted, false));
        }
        (Some(there), Some(wanted)) => {
            let body = differing(there, wanted.settings(), |key, seen, wanted| {
                seen == wanted || key == "max_retries_down" && seen.is_null()
            });
            steps.extend(update(Child::Monitor, &there.id, body, &name));
        }
    }
}

/// Returns how a listener is shown.
fn shown(listener: &Listener) -> String {
    format!("{}/{}", listener.port, listener.protocol)
}

pub fn members_line(count: usize, listener: &Listener) -> String {
    format!("set {count} members of listener {}", shown(listener))
}
