//! Tests lost answers, failed requests, and other clusters.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, CloudError, ErrorKind, Phase, Progress};
use tokio::time::Instant;

use super::rig::{Rig, addresses, annotated, call, changed, port, wanted, with};

fn counts(rig: &Rig) -> (usize, usize) {
    let world = rig.cloud.world.lock();
    (world.octavia.balancers.len(), world.floating.ips.len())
}

#[tokio::test]
async fn what_was_made_without_an_answer_is_found_and_made_only_once() {
    for operation in ["loadbalancer_create", "floating_ip_create", "floating_ip_tags_update"] {
        for restarts in [false, true] {
            let rig = Rig::new();
            let (web, mut left) = (wanted("web"), 1);
            rig.cloud.lose_answers(move |request| {
                let is_lost = request.operation == operation && left > 0;
                left -= u8::from(is_lost);
                is_lost
            });
            assert!(rig.ensure(&web).await.unwrap_err().maybe_done, "{operation}");
            let rig = if restarts { rig.restarted() } else { rig };
            let done = rig.settle(&web).await;
            assert_eq!(counts(&rig), (1, 1), "{operation}");
            assert_eq!(addresses(&done).len(), 1);
            let world = rig.cloud.world.lock();
            let (ip, row) = (&world.floating.ips[0], &world.octavia.balancers[0]);
            assert_eq!(ip["port_id"], row["vip_port_id"], "{operation}");
            assert_eq!(ip["tags"].as_array().unwrap().len(), 2, "{operation}");
        }
    }
}

/// Octavia makes one load balancer after another, so a creation that is sent at the end of a call
/// would finish after it.
#[tokio::test]
async fn a_creation_for_which_a_call_has_little_time_left_is_the_next_calls() {
    let (rig, web) = (Rig::new(), [wanted("web")]);
    let late = Call { end: Instant::now() + Duration::from_secs(25), ..call() };
    let error = rig.ensure_in(&web, late).await.remove(0).unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, false), "{error}");
    assert_eq!(counts(&rig), (0, 0));
    rig.settle(&web[0]).await;
    assert_eq!(counts(&rig), (1, 1));
}

/// The call does not make a second attempt either if the refusal of the previous address took long.
/// The next call does not start with that address again.
#[tokio::test(start_paused = true)]
async fn a_second_attempt_at_a_creation_needs_time_as_well() {
    let rig = Rig::new();
    let internal = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    let web = with(&wanted("web"), internal, "true");
    let first = rig.settle(&web).await;
    rig.remove(&first.id);
    let mut port = ccm_openstack_client::scripted::port(9);
    port["fixed_ips"] = serde_json::json!([{
        "subnet_id": "s", "ip_address": addresses(&first)[0],
    }]);
    rig.cloud.world.lock().ports.push(port);
    let shown = addresses(&first).iter().map(|text| text.parse().unwrap()).collect();
    let known = ccm_cloud::Wanted { known: Some(first.id), shown, ..web };
    let rig = rig.restarted();
    rig.writes();
    // The requests are the versions, two lists, a look by ID, and the creation that is refused
    // after 35 of the 60 s.
    rig.cloud.world.lock().delay = Duration::from_secs(7);
    let error = rig.ensure(&known).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (ErrorKind::Timeout, false), "{error}");
    assert_eq!((rig.writes(), counts(&rig)), (vec!["loadbalancer_create"], (0, 0)));
    assert!(matches!(rig.ensure(&known).await, Ok(Progress::InProgress(_))));
    assert_eq!((rig.writes(), counts(&rig)), (vec!["loadbalancer_create"], (1, 0)));
    rig.cloud.world.lock().delay = Duration::ZERO;
    let id = rig.rows("balancers")[0]["id"].as_str().unwrap().to_owned();
    let shown = rig.shown(&id, ccm_cloud::Depth::Summary).await;
    let reason =
        |note: &ccm_cloud::Note| note.reason == "LoadBalancerAddressChanged" && !note.warning;
    assert!(shown.notes.iter().any(reason), "{:?}", shown.notes);
}

#[tokio::test]
async fn every_request_may_fail_or_lose_its_answer_and_nothing_is_there_twice() {
    let web = wanted("web");
    let rig = Rig::new();
    rig.settle(&web).await;
    for place in 1..=rig.cloud.operations().len() {
        for is_lost in [true, false] {
            let (rig, mut seen) = (Rig::new(), 0);
            let mut is_it = move || {
                seen += 1;
                seen == place
            };
            if is_lost {
                rig.cloud.lose_answers(move |_| is_it());
            } else {
                let error = || CloudError::new(ErrorKind::Unavailable, "HTTP 503");
                rig.cloud.refuse(move |_| is_it().then(error));
            }
            let mut calls = 0;
            let done = loop {
                calls += 1;
                assert!(calls < 20, "request {place}");
                if let Ok(Progress::Done(done)) = rig.ensure(&web).await {
                    break done;
                }
            };
            assert_eq!(counts(&rig), (1, 1), "request {place}, lost: {is_lost}");
            assert_eq!(addresses(&done).len(), 1);
        }
    }
}

/// The first load balancer fails in Octavia. The second one gets its floating IP.
#[tokio::test(start_paused = true)]
async fn a_creation_that_fails_leaves_nothing_behind() {
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.failures = 1;
    let done = rig.settle(&wanted("web")).await;
    assert_eq!((counts(&rig), done.phase), ((1, 1), Phase::Ready));
}

/// Whatever the load balancer was before, it ends like one that is created with these settings.
#[tokio::test]
async fn changes_end_as_a_creation_does() {
    const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    let plain = wanted("web");
    let ports = |numbers: &[u16]| {
        let tcp = |number: &u16| port(*number, ccm_cloud::Protocol::Tcp);
        changed(&plain, |front_end| front_end.ports = numbers.iter().map(tcp).collect())
    };
    let states = [
        plain.clone(),
        ports(&[80, 443, 8080]),
        ports(&[443]),
        annotated(&ports(&[443, 80]), "connection-limit", "7"),
        annotated(&plain, "enable-health-monitor", "true"),
        annotated(&plain, "x-forwarded-for", "true"),
        annotated(&plain, "proxy-protocol", "true"),
        with(&plain, INTERNAL, "true"),
        ports(&[80]),
    ];
    let rig = Rig::new();
    for (number, state) in states.iter().enumerate() {
        let mut state = state.clone();
        Arc::make_mut(&mut state.front_end).digest.hash = number as u128 + 100;
        let done = rig.settle(&state).await;
        assert_eq!(done.digest, Some(state.front_end.digest), "state {number}");
        rig.writes();
        rig.settle(&state).await;
        assert_eq!(rig.writes(), [] as [&str; 0], "state {number}");
        let fresh = Rig::new();
        fresh.settle(&state).await;
        assert_eq!(shape(&rig), shape(&fresh), "state {number}");
    }
}

/// Returns the children of the load balancer of a cloud, without IDs and names.
fn shape(rig: &Rig) -> Vec<String> {
    let world = rig.cloud.world.lock();
    let octavia = &world.octavia;
    assert_eq!(octavia.pools.len(), octavia.listeners.len(), "no pool is left over");
    let mut lines = vec![format!("{} floating IPs", world.floating.ips.len())];
    for listener in &octavia.listeners {
        let pool = octavia.pools.iter().find(|pool| pool["id"] == listener["default_pool_id"]);
        let pool = pool.expect("each listener has a pool");
        let member =
            |row: &serde_json::Value| format!("{} {}", row["address"], row["protocol_port"]);
        let own = octavia.members.iter().filter(|row| row["_pool"] == pool["id"]);
        let mut members: Vec<String> = own.map(member).collect();
        members.sort();
        let own = octavia.monitors.iter().filter(|row| row["_pool"] == pool["id"]);
        let monitors: Vec<_> = own.map(|row| &row["type"]).collect();
        let fields = ["protocol", "protocol_port", "connection_limit", "insert_headers"];
        let fields = fields.map(|field| listener[field].to_string()).join(" ");
        lines.push(format!("{fields} {} {members:?} {monitors:?}", pool["protocol"]));
    }
    lines.sort();
    lines
}
