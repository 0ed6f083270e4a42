//! A Service that goes through states, and its records in Octavia and Neutron in each state.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Service,
    balancing::{ANNOTATION, BALANCERS, CLUSTER_TAG, Calls, id, of_service, provisioned, tags},
    proxy::Request,
    rig::{Rig, SOON},
};
use crate::services;

/// How long no request may be sent before a state counts as reached.
const QUIET: Duration = Duration::from_secs(3);

/// How many requests a failure shows.
const LAST: usize = 25;

/// A change of a Service, and what follows from it.
pub struct State {
    /// The change, for messages.
    pub what: &'static str,
    /// A merge patch of the Service.
    pub change: Value,
    /// The expected part of its [`rows`].
    pub expect: Value,
}

/// Returns a change of annotations of the provider. Null removes an annotation. A key with a `/` is
/// written in full.
pub fn annotations(values: &[(&str, Value)]) -> Value {
    let key = |key: &str| match key.contains('/') {
        true => key.to_owned(),
        false => format!("{ANNOTATION}{key}"),
    };
    let all: Map<_, _> = values.iter().map(|(name, value)| (key(name), value.clone())).collect();
    json!({"metadata": {"annotations": all}})
}

/// Returns the records of Octavia and Neutron about the Service's only load balancer, and the
/// Service's status: `balancer`, `listeners` by port and protocol (`80/HTTP`) with their `pool`,
/// its `monitor` and its `members` by name; the project's `floating` IPs by address; the status's
/// `ingress`. Tags are keys. `ports`, `nodes` and `pools` are the names of listeners and members,
/// and the number of pools.
pub async fn rows(rig: &Rig, name: &str) -> Result<Value> {
    let user = &rig.cloud.user;
    let mut all = of_service(rig, name).await?;
    ensure!(all.len() == 1, "{} load balancers of {name}", all.len());
    let balancer = with_tags(all.remove(0));
    let of = format!("loadbalancer_id={}", id(&balancer)?);
    let monitors = by_id(user.balancer_parts("healthmonitors").await?)?;
    let pools = by_id(user.balancer_parts(&format!("pools?{of}")).await?)?;
    let (count, mut listeners) = (pools.len(), Map::new());
    for listener in user.balancer_parts(&format!("listeners?{of}")).await? {
        let key = format!("{}/{}", listener["protocol_port"], text(&listener["protocol"]));
        let mut listener = with_tags(listener);
        if let Some(pool) = pools.get(text(&listener["default_pool_id"])) {
            let mut pool = with_tags(pool.clone());
            let members = format!("pools/{}/members", id(&pool)?);
            let members = user.balancer_parts(&members).await?;
            pool["nodes"] = members.iter().map(|member| member["name"].clone()).collect();
            let named =
                members.into_iter().map(|member| (text(&member["name"]).to_owned(), member));
            pool["members"] = named.collect::<Map<_, _>>().into();
            pool["monitor"] =
                monitors.get(text(&pool["healthmonitor_id"])).cloned().unwrap_or_default();
            listener["pool"] = pool;
        }
        listeners.insert(key, listener);
    }
    let service = services::get(&rig.client, name).await?;
    let shown = service.status.and_then(|status| status.load_balancer).unwrap_or_default();
    let ports: Vec<_> = listeners.keys().cloned().collect();
    Ok(json!({
        "balancer": balancer, "listeners": listeners, "ports": ports, "pools": count,
        "floating": floating(rig).await?, "ingress": shown.ingress.unwrap_or_default(),
    }))
}

/// Returns the floating IPs of the project, by address.
pub async fn floating(rig: &Rig) -> Result<Map<String, Value>> {
    let all = rig.cloud.user.floating_ip_details().await?;
    let keyed = all.into_iter().map(|one| (text(&one["floating_ip_address"]).to_owned(), one));
    Ok(keyed.collect())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn with_tags(mut object: Value) -> Value {
    let tags: Map<_, _> =
        tags(&object).into_iter().map(|tag| (tag.to_owned(), true.into())).collect();
    object["tags"] = tags.into();
    object
}

fn by_id(objects: Vec<Value>) -> Result<BTreeMap<String, Value>> {
    objects.into_iter().map(|object| Ok((id(&object)?, object))).collect()
}

/// Adds a line for each part of `expected` that `seen` does not have. An object may have more keys.
/// A list of objects has these objects in this order, and any other list has the same entries in
/// any order. Null also matches a missing value.
fn compare(expected: &Value, seen: &Value, path: &str, lines: &mut Vec<String>) {
    let same = match (expected, seen) {
        (Value::Object(parts), Value::Object(all)) => {
            for (key, part) in parts {
                let path = format!("{path}/{key}");
                compare(part, all.get(key).unwrap_or(&Value::Null), &path, lines);
            }
            true
        }
        (Value::Array(expected), Value::Array(seen)) if expected.iter().any(Value::is_object) => {
            for (place, (part, seen)) in expected.iter().zip(seen).enumerate() {
                compare(part, seen, &format!("{path}/{place}"), lines);
            }
            expected.len() == seen.len()
        }
        (Value::Array(expected), Value::Array(seen)) => {
            let sorted = |all: &[Value]| all.iter().map(Value::to_string).collect::<BTreeSet<_>>();
            expected.len() == seen.len() && sorted(expected) == sorted(seen)
        }
        _ => expected == seen,
    };
    if !same {
        lines.push(format!("{path} is {seen}, not {expected}"));
    }
}

/// Fails if the Service's rows are not as expected.
async fn are(rig: &Rig, name: &str, expect: &Value) -> Result<Value> {
    let (seen, mut lines) = (rows(rig, name).await?, Vec::new());
    compare(expect, &seen, "", &mut lines);
    ensure!(lines.is_empty(), "{}", lines.join("\n"));
    Ok(seen)
}

/// Waits until the Service's rows are as expected and no more requests are sent. Returns the rows.
pub async fn reached(rig: &Rig, name: &str, what: &str, expect: &Value) -> Result<Value> {
    poll::until(what, 3 * SOON, || async {
        sleep(Duration::from_millis(200)).await;
        are(rig, name, expect).await.map(Some)
    })
    .await
    .with_context(|| last_requests(rig))?;
    settled(rig).await?;
    provisioned(rig, name, 3 * SOON).await.with_context(|| last_requests(rig))?;
    are(rig, name, expect).await.with_context(|| format!("{what}: it did not stay so"))
}

/// Returns the programs' last requests, for messages.
pub fn last_requests(rig: &Rig) -> String {
    let all = rig.cloud.proxy.log().since(0);
    let lines = all.iter().rev().take(LAST).rev().map(|one| {
        let status = one.status.map_or("no answer".to_owned(), |status| status.to_string());
        let ago = one.at.elapsed().as_secs_f64();
        format!("{ago:.1} s ago: {} {}?{}: {status}", one.method, one.path, one.query)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until the programs have sent nothing to Octavia and Neutron for a while, except the
/// audit's list.
async fn settled(rig: &Rig) -> Result<()> {
    poll::until("nothing to be done any more", 3 * SOON, || async {
        sleep(Duration::from_millis(200)).await;
        let all = rig.cloud.proxy.log().since(0);
        let last = all.iter().rfind(|one| is_work(one));
        Ok(last.is_none_or(|last| last.at.elapsed() > QUIET).then_some(()))
    })
    .await
    .with_context(|| last_requests(rig))
}

fn is_work(request: &Request) -> bool {
    let is_audit =
        request.path == BALANCERS && request.query.contains(CLUSTER_TAG.trim_end_matches('='));
    request.service != Service::Identity && !request.is_discovery() && !is_audit
}

/// Takes a Service through states one after another. Prints the cost of each. Its load balancer
/// stays the same.
pub async fn go_through(
    rig: &Rig,
    program: &Program,
    name: &str,
    states: Vec<State>,
) -> Result<()> {
    let balancer = rows(rig, name).await?["balancer"]["id"].take();
    for State { what, change, expect } in states {
        let mark = rig.cloud.proxy.log().mark();
        let start = Instant::now();
        services::patch(&rig.client, name, change).await.context(what)?;
        let seen = reached(rig, name, what, &expect).await;
        let seen = seen.with_context(|| format!("{what}\n{}", program.log()))?;
        ensure!(seen["balancer"]["id"] == balancer, "{what}: it is another load balancer");
        let Calls { calls, writes, polls, by_pattern } = Calls::since(rig, mark);
        let took = start.elapsed().saturating_sub(QUIET).as_secs_f64();
        let made: Vec<_> =
            by_pattern.iter().filter(|(pattern, _)| !pattern.contains(" GET ")).collect();
        eprintln!("{what}: {took:.1} s, {calls} calls, {polls} polls, {writes} writes: {made:?}");
    }
    Ok(())
}

/// Another client of Octavia changes one of its own tags, so that the next audit compares the whole
/// load balancer. Fails if anything is written after that.
pub async fn an_audit_writes_nothing(rig: &Rig, name: &str) -> Result<()> {
    let all = of_service(rig, name).await?;
    let balancer = all.first().context("no load balancer")?;
    let mut tags: BTreeSet<_> = tags(balancer);
    tags.insert("of-another-client");
    let mark = rig.cloud.proxy.log().mark();
    let part = format!("loadbalancers/{}", id(balancer)?);
    let body = json!({"loadbalancer": {"tags": tags}});
    rig.cloud.user.change_balancer_part(&part, body).await?;
    poll::until("the whole load balancer to be compared", 3 * SOON, || async {
        let calls = Calls::since(rig, mark);
        Ok((calls.of_pattern("load-balancer GET /v2.0/lbaas/listeners") > 0).then_some(()))
    })
    .await?;
    sleep(2 * QUIET).await;
    let calls = Calls::since(rig, mark);
    eprintln!("an audit compares everything: {} writes: {:?}", calls.writes, calls.by_pattern);
    ensure!(calls.writes == 0, "an audit writes: {calls:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::compare;

    #[test]
    fn what_differs_is_named() {
        let seen =
            json!({"a": {"b": 1, "c": ["x", "y"]}, "d": null, "e": "f", "g": [{"h": 1}, {"i": 2}]});
        for (expected, lines) in [
            (json!({"a": {"b": 1}}), &[][..]),
            (json!({"a": {"c": ["y", "x"]}, "d": null, "z": null}), &[]),
            (
                json!({"a": {"b": 2, "c": ["x"]}}),
                &["/a/b is 1, not 2", r#"/a/c is ["x","y"], not ["x"]"#],
            ),
            (json!({"g": [{"h": 1}, {}]}), &[]),
            (
                json!({"g": [{"h": 2}, {"i": null}]}),
                &["/g/0/h is 1, not 2", "/g/1/i is 2, not null"],
            ),
            (json!({"g": [{"h": 1}]}), &[r#"/g is [{"h":1},{"i":2}], not [{"h":1}]"#]),
            (json!({"d": {"b": null}}), &[r#"/d is null, not {"b":null}"#]),
            (json!({"e": null, "z": 1}), &[r#"/e is "f", not null"#, "/z is null, not 1"]),
        ] {
            let mut found = Vec::new();
            compare(&expected, &seen, "", &mut found);
            assert_eq!(found, lines, "{expected}");
        }
    }
}
