//! One Service goes through all settings of its fields and annotations for listeners, pools,
//! members and monitors, and Octavia has each of them.

use anyhow::{Context as _, Result, ensure};
use ccm_sim::{poll, program::Program};
use serde_json::{Value, json};

use crate::{
    openstack::{
        balancing::{Calls, add_nodes, delete_all, quick, service},
        many_balancers::restarted,
        rig::{Rig, SOON},
        states::{State, an_audit_writes_nothing, annotations, floating, go_through, reached},
    },
    services,
};

/// The clients that may connect, unless the spec names them.
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// The members of all pools.
const ALL: [&str; 3] = ["member-001", "member-002", "member-003"];

fn state(what: &'static str, change: Value, expect: Value) -> State {
    State { what, change, expect }
}

/// Returns a change of the annotations and of the spec.
fn change(values: &[(&str, Value)], spec: Value) -> Value {
    let mut change = annotations(values);
    change["spec"] = spec;
    change
}

/// Returns the ports 80 of TCP and 53 of UDP, and with `sctp` also 132 of SCTP.
fn ports(sctp: bool) -> Value {
    let port = |name: &str, protocol: &str, port: u16| {
        json!({
            "name": name, "protocol": protocol, "port": port, "targetPort": port
        })
    };
    let mut ports = vec![port("web", "TCP", 80), port("dns", "UDP", 53)];
    ports.extend(sctp.then(|| port("sig", "SCTP", 132)));
    ports.into()
}

/// Starts the program and creates a Service without options.
async fn serve(rig: &Rig) -> Result<Program> {
    rig.balance_with("create-monitor = true\n").await?;
    add_nodes(rig, ALL.len()).await?;
    let program = rig.start(&quick(rig)).await?;
    let mut web = service("web", 1);
    web["spec"]["ports"] = ports(false);
    services::create(&rig.client, &web).await?;
    reached(rig, "web", "a Service without options", &plain())
        .await
        .with_context(|| program.log())?;
    Ok(program)
}

/// Returns the load balancer of a Service without options.
fn plain() -> Value {
    let pool = |protocol: &str, check: &str| {
        json!({
            "protocol": protocol, "lb_algorithm": "ROUND_ROBIN", "session_persistence": null, "nodes": ALL,
            "members": {"member-001": {"monitor_port": null}}, "monitor": {"type": check, "delay": 5}
        })
    };
    let listener = |pool: Value| {
        json!({
            "connection_limit": -1, "allowed_cidrs": ["0.0.0.0/0"], "timeout_client_data": 50_000,
            "insert_headers": {"X-Forwarded-For": null}, "pool": pool
        })
    };
    json!({
        "ports": ["80/TCP", "53/UDP"], "pools": 2, "ingress": [{"ipMode": "VIP"}],
        "listeners": {"80/TCP": listener(pool("TCP", "TCP")), "53/UDP": listener(pool("UDP", "UDP-CONNECT"))}
    })
}

pub(super) async fn protocols_and_checks_are_as_asked_for(rig: &Rig) -> Result<()> {
    let program = serve(rig).await?;
    go_through(rig, &program, "web", protocols()).await?;
    let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
    let local = services::patch(&rig.client, "web", local).await?;
    let port = local.spec.and_then(|spec| spec.health_check_node_port).context("no port")?;
    let listener = json!({"pool": {
        "monitor": {"type": "HTTP", "url_path": "/healthz", "http_method": "GET", "expected_codes": "200"},
        "nodes": ALL, "members": {"member-001": {"monitor_port": port}, "member-003": {"monitor_port": port}}
    }});
    let expect =
        json!({"listeners": {"80/TCP": listener, "53/UDP": listener, "132/SCTP": listener}});
    reached(rig, "web", "externalTrafficPolicy: Local", &expect)
        .await
        .with_context(|| program.log())?;
    an_audit_writes_nothing(rig, "web").await?;
    let back = json!({"spec": {"externalTrafficPolicy": "Cluster", "ports": ports(false)}});
    let back = vec![state("externalTrafficPolicy: Cluster, and no port of SCTP", back, plain())];
    go_through(rig, &program, "web", back).await?;
    delete_all(rig, &["web".to_owned()], 2 * SOON).await
}

/// Returns protocols of listeners and pools. UDP keeps its own.
fn protocols() -> Vec<State> {
    let udp = json!({"pool": {"protocol": "UDP", "monitor": {"type": "UDP-CONNECT"}}});
    let with = |listener: &str, tcp: Value, mode: &str| {
        json!({
            "ports": [listener, "53/UDP"], "pools": 2, "ingress": [{"ipMode": mode}],
            "listeners": {listener: tcp, "53/UDP": udp}
        })
    };
    let pool = |protocol: &str| {
        json!({
            "insert_headers": {"X-Forwarded-For": null},
            "pool": {"protocol": protocol, "monitor": {"type": "TCP"}, "nodes": ALL}
        })
    };
    let mut forwarded = pool("HTTP");
    forwarded["insert_headers"] = json!({"X-Forwarded-For": "true"});
    let mut sctp = plain();
    sctp["ports"] = json!(["80/TCP", "53/UDP", "132/SCTP"]);
    sctp["pools"] = 3.into();
    sctp["listeners"]["132/SCTP"] =
        json!({"pool": {"protocol": "SCTP", "monitor": {"type": "SCTP"}, "nodes": ALL}});
    vec![
        state(
            "x-forwarded-for: true",
            annotations(&[("x-forwarded-for", "true".into())]),
            with("80/HTTP", forwarded, "VIP"),
        ),
        state(
            "proxy-protocol: v1 instead of x-forwarded-for",
            annotations(&[("x-forwarded-for", Value::Null), ("proxy-protocol", "v1".into())]),
            with("80/TCP", pool("PROXY"), "Proxy"),
        ),
        state(
            "proxy-protocol: v2",
            annotations(&[("proxy-protocol", "v2".into())]),
            with("80/TCP", pool("PROXYV2"), "Proxy"),
        ),
        state(
            "proxy-protocol: false, and a port of SCTP",
            change(&[("proxy-protocol", "false".into())], json!({"ports": ports(true)})),
            sctp,
        ),
    ]
}

pub(super) async fn clients_numbers_and_names_are_as_asked_for(rig: &Rig) -> Result<()> {
    let program = serve(rig).await?;
    go_through(rig, &program, "web", vec![first(), second()]).await?;
    taken_back(rig).await.with_context(|| program.log())?;
    go_through(rig, &program, "web", vec![without(), together()]).await?;
    an_audit_writes_nothing(rig, "web").await?;
    program.terminate().await?;
    let program = restarted(rig, &quick(rig), 1).await?;
    delete_all(rig, &["web".to_owned()], 2 * SOON).await?;
    let left = floating(rig).await?;
    let is_free = |ip: &Value| ip["port_id"].is_null();
    ensure!(left.len() == 1 && left.values().all(is_free), "its floating IP is kept: {left:?}");
    program.terminate().await?;
    Ok(())
}

/// Returns annotations with numbers, words and names, for [`first`] and [`together`].
fn numbers() -> Vec<(&'static str, Value)> {
    vec![
        ("connection-limit", "1000".into()),
        ("timeout-client-data", "60000".into()),
        ("timeout-member-connect", "6000".into()),
        ("timeout-member-data", "61000".into()),
        ("timeout-tcp-inspect", "500".into()),
        ("lb-method", "LEAST_CONNECTIONS".into()),
        ("enable-health-monitor", "true".into()),
        ("health-monitor-delay", "9".into()),
        ("health-monitor-timeout", "7".into()),
        ("health-monitor-max-retries", "2".into()),
        ("health-monitor-max-retries-down", "4".into()),
        ("load-balancer-tags", "team=web, cost-7".into()),
        ("listener-tags", "front".into()),
        ("pool-tags", "back".into()),
        ("hostname", "web.example.com".into()),
        ("node-selector", "kubernetes.io/hostname=member-002".into()),
    ]
}

/// Returns the result of [`numbers`] for a listener whose pool keeps clients at a member like this.
fn numbered(persistence: Value) -> Value {
    json!({
        "connection_limit": 1000, "timeout_client_data": 60_000, "timeout_member_connect": 6000,
        "timeout_member_data": 61_000, "timeout_tcp_inspect": 500, "tags": {"front": true},
        "allowed_cidrs": ["192.0.2.0/24", "198.51.100.7/32"],
        "pool": {
            "lb_algorithm": "LEAST_CONNECTIONS", "session_persistence": persistence, "nodes": ["member-002"],
            "tags": {"back": true},
            "monitor": {"delay": 9, "timeout": 7, "max_retries": 2, "max_retries_down": 4}
        }
    })
}

/// Returns the fields that go with [`numbers`].
fn restricted() -> Value {
    json!({
        "loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.7/32"],
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}
    })
}

fn first() -> State {
    let timed = json!({"type": "SOURCE_IP", "persistence_timeout": 600});
    let expect = json!({
        "balancer": {"tags": {"team=web": true, "cost-7": true}}, "ports": ["80/TCP", "53/UDP"],
        "listeners": {"80/TCP": numbered(json!({"type": "SOURCE_IP"})), "53/UDP": numbered(timed)},
        "ingress": [{"hostname": "web.example.com"}]
    });
    state("source ranges, affinity, numbers, names", change(&numbers(), restricted()), expect)
}

/// Returns other values, and source ranges by annotation.
fn second() -> State {
    let values = [
        (RANGES, "203.0.113.0/24".into()),
        ("lb-method", "SOURCE_IP".into()),
        ("node-selector", "kubernetes.io/hostname=member-003,kubernetes.io/os".into()),
        ("hostname", Value::Null),
    ];
    let spec = json!({
        "loadBalancerSourceRanges": null, "sessionAffinity": "None", "sessionAffinityConfig": null
    });
    let listener = json!({
        "allowed_cidrs": ["203.0.113.0/24"],
        "pool": {"lb_algorithm": "SOURCE_IP", "session_persistence": null, "nodes": ["member-003"]}
    });
    let expect = json!({
        "listeners": {"80/TCP": listener, "53/UDP": listener}, "ingress": [{"ipMode": "VIP"}]
    });
    state("ranges by annotation, other values, no affinity", change(&values, spec), expect)
}

/// Undoes a change of both listeners when the first one has been changed.
async fn taken_back(rig: &Rig) -> Result<()> {
    let limit = |value: &str| annotations(&[("connection-limit", value.into())]);
    let mark = rig.cloud.proxy.log().mark();
    services::patch(&rig.client, "web", limit("7")).await?;
    poll::until("the first listener to be changed", 2 * SOON, || async {
        let changed = "load-balancer PUT /v2.0/lbaas/listeners/{id}";
        Ok((Calls::since(rig, mark).of_pattern(changed) > 0).then_some(()))
    })
    .await?;
    services::patch(&rig.client, "web", limit("1000")).await?;
    let listener = json!({"connection_limit": 1000});
    let expect = json!({"listeners": {"80/TCP": listener, "53/UDP": listener}});
    reached(rig, "web", "a change that is undone", &expect).await?;
    eprintln!("a change that is undone: {:?}", Calls::since(rig, mark).by_pattern);
    Ok(())
}

/// Returns a state without the options and without a monitor. Tags stay.
fn without() -> State {
    let none = numbers().into_iter().map(|(key, _)| (key, Value::Null));
    let mut none: Vec<_> = none.filter(|(key, _)| *key != "enable-health-monitor").collect();
    none.extend([(RANGES, Value::Null), ("enable-health-monitor", "false".into())]);
    let mut expect = plain();
    for listener in ["80/TCP", "53/UDP"] {
        expect["listeners"][listener]["pool"]["monitor"] = Value::Null;
    }
    state("no options, and no monitors", annotations(&none), expect)
}

/// Returns all that goes together, so that an audit has much to compare.
fn together() -> State {
    let mut values = numbers();
    values.extend([("x-forwarded-for", "true".into()), ("keep-floatingip", "true".into())]);
    let mut spec = restricted();
    spec["externalTrafficPolicy"] = "Local".into();
    let timed = json!({"type": "SOURCE_IP", "persistence_timeout": 600});
    let (mut http, mut udp) = (numbered(json!({"type": "SOURCE_IP"})), numbered(timed));
    for listener in [&mut http, &mut udp] {
        listener["pool"]["monitor"]["type"] = "HTTP".into();
    }
    let expect = json!({
        "ports": ["80/HTTP", "53/UDP"], "pools": 2, "listeners": {"80/HTTP": http, "53/UDP": udp},
        "ingress": [{"hostname": "web.example.com"}]
    });
    state("all at once", change(&values, spec), expect)
}
