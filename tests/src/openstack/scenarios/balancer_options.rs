//! One Service goes through what its fields and annotations can ask for, and Octavia and Neutron have
//! it each time.

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::Program;
use k8s_openapi::api::core::v1::Service as KubeService;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    openstack::{
        admin::{FloatingIp, NarrowNetwork, Port},
        balancing::{add_node, add_nodes, delete_all, of_service, provisioned, quick, service},
        many_balancers::restarted,
        rig::{Rig, SOON},
        states::{
            State, an_audit_writes_nothing, annotations, floating, go_through, last_requests,
            reached, rows,
        },
    },
    services,
};

/// Makes an internal load balancer.
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
/// Which clients may connect, where the spec names none.
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn state(what: &'static str, change: Value, expect: Value) -> State {
    State { what, change, expect }
}

fn spec(fields: Value) -> Value {
    json!({ "spec": fields })
}

/// The same expectation of the listeners for TCP and UDP.
fn both(listener: Value) -> Value {
    json!({"listeners": {"80/TCP": listener, "53/UDP": listener}})
}

/// The ports 80 of TCP and 53 of UDP.
fn two_ports() -> Value {
    json!([
        {"name": "web", "protocol": "TCP", "port": 80, "targetPort": 80},
        {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 53}
    ])
}

/// The same, and 132 of SCTP.
fn three_ports() -> Value {
    let mut ports = two_ports();
    if let Some(ports) = ports.as_array_mut() {
        ports.push(json!({"name": "sig", "protocol": "SCTP", "port": 132, "targetPort": 132}));
    }
    ports
}

/// Starts the program, creates a Service from this and waits for its load balancer.
async fn serve(rig: &Rig, service: &Value, name: &str) -> Result<Program> {
    add_nodes(rig, 3).await?;
    let program = rig.start(&quick(rig)).await?;
    services::create(&rig.client, service).await?;
    services::address(&rig.client, name, SOON).await.with_context(|| program.log())?;
    provisioned(rig, name, SOON).await.with_context(|| last_requests(rig))?;
    Ok(program)
}

pub(super) async fn listeners_pools_and_monitors_are_as_asked_for(rig: &Rig) -> Result<()> {
    rig.balance_with("create-monitor = true\n").await?;
    let mut web = service("web", 1);
    web["spec"]["ports"] = two_ports();
    let program = serve(rig, &web, "web").await?;
    reached(rig, "web", "a Service without options", &plain()).await?;
    let mut states = protocols();
    states.extend(clients());
    states.extend(checks());
    states.extend(numbers_and_names());
    go_through(rig, &program, "web", states).await?;
    // The port is known once the Service has it.
    let health = services::patch(&rig.client, "web", everything().0).await?;
    let health = health.spec.and_then(|spec| spec.health_check_node_port).context("no port")?;
    let start = Instant::now();
    let mut expect = everything().1;
    for key in ["80/HTTP", "53/UDP", "132/SCTP"] {
        expect["listeners"][key]["pool"]["members"]["member-001"]["monitor_port"] = health.into();
    }
    reached(rig, "web", "all at once", &expect).await.with_context(|| program.log())?;
    eprintln!(
        "all at once: {:.1} s, with 3 s in which nothing is written",
        start.elapsed().as_secs_f64()
    );
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

/// What a Service without options has.
fn plain() -> Value {
    let all = ["member-001", "member-002", "member-003"];
    let pool = |protocol: &str, check: &str| {
        json!({
            "protocol": protocol, "lb_algorithm": "ROUND_ROBIN", "session_persistence": null, "nodes": all,
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

/// Protocols of listeners and pools.
fn protocols() -> Vec<State> {
    let proxy = |value: &str| annotations(&[("proxy-protocol", value.into())]);
    let udp = json!({"pool": {"protocol": "UDP", "monitor": {"type": "UDP-CONNECT"}}});
    let with = |listener: &str, tcp: Value, mode: &str| {
        json!({
            "ports": [listener, "53/UDP"], "pools": 2, "ingress": [{"ipMode": mode}],
            "listeners": {listener: tcp, "53/UDP": udp}
        })
    };
    let pool = |protocol: &str| json!({"pool": {"protocol": protocol, "monitor": {"type": "TCP"}}});
    let mut forwarded = pool("HTTP");
    forwarded["insert_headers"] = json!({"X-Forwarded-For": "true"});
    vec![
        state(
            "x-forwarded-for: true",
            annotations(&[("x-forwarded-for", "true".into())]),
            with("80/HTTP", forwarded, "VIP"),
        ),
        state("x-forwarded-for removed", annotations(&[("x-forwarded-for", Value::Null)]), plain()),
        state("proxy-protocol: v1", proxy("v1"), with("80/TCP", pool("PROXY"), "Proxy")),
        state("proxy-protocol: v2", proxy("v2"), with("80/TCP", pool("PROXYV2"), "Proxy")),
        state("proxy-protocol: false", proxy("false"), plain()),
        state(
            "a port of SCTP",
            spec(json!({"ports": three_ports()})),
            json!({
                "ports": ["80/TCP", "53/UDP", "132/SCTP"], "pools": 3,
                "listeners": {"132/SCTP": {"pool": {
                    "protocol": "SCTP", "monitor": {"type": "SCTP"},
                    "nodes": ["member-001", "member-002", "member-003"]
                }}}
            }),
        ),
    ]
}

/// Which clients may connect, and to which members.
fn clients() -> Vec<State> {
    let kept = |persistence: Value| json!({"pool": {"session_persistence": persistence}});
    let timed = kept(json!({"type": "SOURCE_IP", "persistence_timeout": 600}));
    let affinity = json!({
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}
    });
    let selected = |nodes: &[&str]| both(json!({"pool": {"nodes": nodes}}));
    let select = |value: Value| annotations(&[("node-selector", value)]);
    let ranges = ["192.0.2.0/24", "198.51.100.7/32"];
    vec![
        state(
            "loadBalancerSourceRanges",
            spec(json!({"loadBalancerSourceRanges": ranges})),
            both(json!({"allowed_cidrs": ranges})),
        ),
        state(
            "source ranges by annotation",
            {
                let mut change = annotations(&[(RANGES, "203.0.113.0/24".into())]);
                change["spec"] = json!({"loadBalancerSourceRanges": null});
                change
            },
            both(json!({"allowed_cidrs": ["203.0.113.0/24"]})),
        ),
        state(
            "no source ranges",
            annotations(&[(RANGES, Value::Null)]),
            both(json!({"allowed_cidrs": ["0.0.0.0/0"]})),
        ),
        state(
            "sessionAffinity: ClientIP",
            spec(affinity),
            json!({"listeners": {
                "80/TCP": kept(json!({"type": "SOURCE_IP"})), "53/UDP": timed, "132/SCTP": timed
            }}),
        ),
        state(
            "sessionAffinity: None",
            spec(json!({"sessionAffinity": "None", "sessionAffinityConfig": null})),
            both(kept(Value::Null)),
        ),
        state(
            "node-selector",
            select("kubernetes.io/hostname=member-002".into()),
            selected(&["member-002"]),
        ),
        state(
            "another node-selector",
            select("kubernetes.io/hostname=member-003,kubernetes.io/os".into()),
            selected(&["member-003"]),
        ),
        state(
            "no node-selector",
            select(Value::Null),
            selected(&["member-001", "member-002", "member-003"]),
        ),
    ]
}

/// How members are checked.
fn checks() -> Vec<State> {
    let http = json!({"pool": {"monitor": {
        "type": "HTTP", "url_path": "/healthz", "http_method": "GET", "expected_codes": "200"
    }}});
    let numbers = [
        ("enable-health-monitor", "true".into()),
        ("health-monitor-delay", "9".into()),
        ("health-monitor-timeout", "7".into()),
        ("health-monitor-max-retries", "2".into()),
        ("health-monitor-max-retries-down", "4".into()),
    ];
    let none = numbers.clone().map(|(key, _)| (key, Value::Null));
    vec![
        state("externalTrafficPolicy: Local", spec(json!({"externalTrafficPolicy": "Local"})), {
            let mut all = both(http.clone());
            all["listeners"]["132/SCTP"] = http;
            all
        }),
        state(
            "externalTrafficPolicy: Cluster",
            spec(json!({"externalTrafficPolicy": "Cluster"})),
            json!({"listeners": plain()["listeners"]}),
        ),
        state(
            "enable-health-monitor: false",
            annotations(&[("enable-health-monitor", "false".into())]),
            both(json!({"pool": {"monitor": null}})),
        ),
        state(
            "health-monitor-*",
            annotations(&numbers),
            both(json!({"pool": {"monitor": {
                "delay": 9, "timeout": 7, "max_retries": 2, "max_retries_down": 4
            }}})),
        ),
        state(
            "no health-monitor-*",
            annotations(&none),
            json!({"listeners": plain()["listeners"]}),
        ),
    ]
}

/// Numbers, algorithms, tags and the host name.
fn numbers_and_names() -> Vec<State> {
    let limits = [
        ("connection-limit", "1000".into()),
        ("timeout-client-data", "60000".into()),
        ("timeout-member-connect", "6000".into()),
        ("timeout-member-data", "61000".into()),
        ("timeout-tcp-inspect", "500".into()),
    ];
    let none = limits.clone().map(|(key, _)| (key, Value::Null));
    let method = |value: Value| annotations(&[("lb-method", value)]);
    let algorithm = |value: &str| both(json!({"pool": {"lb_algorithm": value}}));
    vec![
        state(
            "timeout-* and connection-limit",
            annotations(&limits),
            both(json!({
                "connection_limit": 1000, "timeout_client_data": 60_000, "timeout_member_connect": 6000,
                "timeout_member_data": 61_000, "timeout_tcp_inspect": 500
            })),
        ),
        state("none of them", annotations(&none), json!({"listeners": plain()["listeners"]})),
        state(
            "lb-method: LEAST_CONNECTIONS",
            method("LEAST_CONNECTIONS".into()),
            algorithm("LEAST_CONNECTIONS"),
        ),
        state("lb-method: SOURCE_IP", method("SOURCE_IP".into()), algorithm("SOURCE_IP")),
        state("no lb-method", method(Value::Null), algorithm("ROUND_ROBIN")),
        state(
            "tags",
            annotations(&[
                ("load-balancer-tags", "team=web, cost-7".into()),
                ("listener-tags", "front".into()),
                ("pool-tags", "back".into()),
            ]),
            {
                let mut all =
                    both(json!({"tags": {"front": true}, "pool": {"tags": {"back": true}}}));
                all["balancer"] = json!({"tags": {"team=web": true, "cost-7": true}});
                all
            },
        ),
        state(
            "hostname",
            annotations(&[("hostname", "web.example.com".into())]),
            json!({"ingress": [{"hostname": "web.example.com"}]}),
        ),
    ]
}

/// Most options together: a change, and what follows from it.
fn everything() -> (Value, Value) {
    let mut change = annotations(&[
        ("x-forwarded-for", "true".into()),
        ("connection-limit", "500".into()),
        ("timeout-client-data", "70000".into()),
        ("lb-method", "LEAST_CONNECTIONS".into()),
        ("health-monitor-delay", "8".into()),
        ("node-selector", "kubernetes.io/hostname=member-001".into()),
        ("keep-floatingip", "true".into()),
    ]);
    change["spec"] = json!({
        "loadBalancerSourceRanges": ["192.0.2.0/24"], "externalTrafficPolicy": "Local",
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 900}}
    });
    let listener = |protocol: &str, persistence: Value| {
        json!({
            "connection_limit": 500, "timeout_client_data": 70_000, "allowed_cidrs": ["192.0.2.0/24"],
            "tags": {"front": true},
            "pool": {
                "protocol": protocol, "lb_algorithm": "LEAST_CONNECTIONS", "nodes": ["member-001"],
                "session_persistence": persistence, "monitor": {"type": "HTTP", "delay": 8},
                "tags": {"back": true}
            }
        })
    };
    let timed = json!({"type": "SOURCE_IP", "persistence_timeout": 900});
    let expect = json!({
        "ports": ["80/HTTP", "53/UDP", "132/SCTP"], "pools": 3, "ingress": [{"hostname": "web.example.com"}],
        "listeners": {
            "80/HTTP": listener("HTTP", json!({"type": "SOURCE_IP"})),
            "53/UDP": listener("UDP", timed.clone()), "132/SCTP": listener("SCTP", timed)
        }
    });
    (change, expect)
}

/// What a user has set up for the Service of the next scenario.
struct Ground {
    /// For the virtual address.
    port: Port,
    /// A floating IP that the user has.
    own: FloatingIp,
    /// Another network of the project.
    narrow: NarrowNetwork,
}

/// The virtual address, floating IPs and subnets; and the Service becomes another type and comes back.
pub(super) async fn addresses_are_as_asked_for(rig: &Rig) -> Result<()> {
    let user = &rig.cloud.user;
    rig.balance().await?;
    let (home, public) = (user.network("k8s").await?, user.network("public").await?);
    let mut ports = user.create_ports_in(&home, &["vip".to_owned()], true).await?;
    let ground = Ground {
        port: ports.pop().context("a port")?,
        own: user.free_floating_ip(&public, "of a user").await?,
        narrow: user.narrow_network("options", "127.38.0.0/24", 20).await?,
    };
    let outcome = addresses(rig, &ground).await;
    user.clear_balancers().await?;
    user.delete_port(&ground.port.id).await?;
    for id in user.floating_ips().await? {
        user.delete_floating_ip(&id).await?;
    }
    user.delete_network(&ground.narrow.network).await?;
    outcome
}

async fn addresses(rig: &Rig, ground: &Ground) -> Result<()> {
    let Ground { port, own, .. } = ground;
    let mut place = service("place", 1);
    place["metadata"] = json!({"name": "place", "annotations": {
        "loadbalancer.openstack.org/port-id": port.id
    }});
    let program = serve(rig, &place, "place").await?;
    let vip = json!({"vip_port_id": port.id, "vip_address": port.address});
    let seen = reached(rig, "place", "port-id", &json!({"balancer": vip})).await?;
    let made = seen["ingress"][0]["ip"].as_str().context("no floating IP")?;
    ensure!(seen["floating"][made]["port_id"] == port.id.as_str(), "{made} is not of the port");
    let chosen = json!({"port_id": port.id, "description": "of a user"});
    let given = json!({
        "balancer": vip, "floating": {made: null, &own.address: chosen}, "ingress": [{"ip": own.address}]
    });
    let internal = json!({
        "balancer": vip, "floating": {&own.address: {"port_id": null}}, "ingress": [{"ip": port.address}]
    });
    let inside = |value: Value| annotations(&[(INTERNAL, value)]);
    let states = vec![
        state(
            "loadBalancerIP of a user's floating IP",
            spec(json!({"loadBalancerIP": own.address})),
            given.clone(),
        ),
        state("internal", inside("true".into()), internal),
        state("external again", inside(Value::Null), given.clone()),
        state("loadBalancerIP removed", spec(json!({"loadBalancerIP": null})), given),
        state(
            "internal without loadBalancerIP",
            inside("true".into()),
            json!({"ingress": [{"ip": port.address}]}),
        ),
    ];
    go_through(rig, &program, "place", states).await?;
    services::patch(&rig.client, "place", inside("false".into())).await?;
    let is_new = |shown: &String| shown.starts_with("127.33.") && *shown != own.address;
    let has_new = |service: &KubeService| services::addresses(service).iter().any(is_new);
    let what = "at a new floating IP";
    let now = services::wait_for(&rig.client, "place", what, 2 * SOON, has_new).await?;
    let address = services::addresses(&now).pop().context("it was there")?;
    let kept = |port: Value, shown: &str| {
        json!({
            "ingress": [{"ip": shown}], "floating": {&address: {"port_id": port}}
        })
    };
    let keep = annotations(&[("keep-floatingip", "true".into()), (INTERNAL, "true".into())]);
    let states = vec![
        state("keep-floatingip and internal", keep, kept(Value::Null, &port.address)),
        state(
            "external with the floating IP that was kept",
            inside("false".into()),
            kept(json!(port.id), &address),
        ),
    ];
    go_through(rig, &program, "place", states).await?;
    other_type(rig, ground, &address).await.with_context(|| program.log())?;
    elsewhere(rig, &program, ground).await
}

/// The Service gets this spec, which needs no load balancer.
async fn without(rig: &Rig, fields: Value) -> Result<()> {
    services::patch(&rig.client, "place", spec(fields)).await?;
    let is_free = |service: &KubeService| {
        !services::is_protected(service) && services::addresses(service).is_empty()
    };
    services::wait_for(&rig.client, "place", "without a load balancer", 2 * SOON, is_free).await?;
    ensure!(of_service(rig, "place").await?.is_empty(), "its load balancer is still there");
    Ok(())
}

/// The Service is of the type ClusterIP for a time: its load balancer goes, and what a user has stays.
async fn other_type(rig: &Rig, ground: &Ground, address: &str) -> Result<()> {
    without(rig, json!({"type": "ClusterIP"})).await?;
    let left = floating(rig).await?;
    for address in [address, &ground.own.address] {
        ensure!(left[address]["port_id"].is_null(), "{address} is kept, and free: {left:?}");
    }
    let ports = rig.cloud.user.ports_named("vip").await?;
    ensure!(ports == [ground.port.id.clone()], "the port of a user stays: {ports:?}");
    Ok(())
}

/// It is of the type LoadBalancer again, elsewhere.
async fn elsewhere(rig: &Rig, program: &Program, ground: &Ground) -> Result<()> {
    let (operator, user) = (&rig.cloud.operator, &rig.cloud.user);
    let (flavor, zone) = (operator.balancer_flavor("small").await?, "zone-2");
    operator.offer_balancer_zone(zone).await?;
    let home = user.subnet("k8s").await?;
    let mut change = annotations(&[
        ("port-id", Value::Null),
        ("subnet-id", ground.narrow.subnet.clone().into()),
        ("member-subnet-id", home.clone().into()),
        ("flavor-id", flavor.clone().into()),
        ("availability-zone", zone.into()),
        (INTERNAL, "true".into()),
    ]);
    change["spec"] = json!({"type": "LoadBalancer", "loadBalancerIP": "127.38.0.9"});
    services::patch(&rig.client, "place", change).await?;
    let in_home = json!({"subnet_id": home});
    let expect = json!({
        "balancer": {
            "vip_subnet_id": ground.narrow.subnet, "vip_network_id": ground.narrow.network,
            "vip_address": "127.38.0.9", "flavor_id": flavor, "availability_zone": zone
        },
        "listeners": {"8000/TCP": {"pool": {"members": {"member-001": in_home}}}},
        "ingress": [{"ip": "127.38.0.9"}]
    });
    let start = Instant::now();
    let again = "LoadBalancer again, with subnet-id, flavor-id and availability-zone";
    reached(rig, "place", again, &expect).await.with_context(|| program.log())?;
    eprintln!("{again}: {:.1} s", start.elapsed().as_secs_f64());
    // A new member is in the subnet that the annotation names now; those that are there stay.
    let narrow = ground.narrow.subnet.clone();
    services::patch(
        &rig.client,
        "place",
        annotations(&[("member-subnet-id", narrow.clone().into())]),
    )
    .await?;
    let joined = add_node(rig, 4).await?;
    let members = json!({"member-001": in_home, joined: {"subnet_id": narrow}});
    let expect = json!({"listeners": {"8000/TCP": {"pool": {"members": members}}}});
    reached(rig, "place", "member-subnet-id", &expect).await.with_context(|| program.log())?;
    an_audit_writes_nothing(rig, "place").await?;
    let balancer = rows(rig, "place").await?["balancer"]["id"].take();
    // On a network, Octavia chooses the address.
    let network = annotations(&[
        ("network-id", ground.narrow.network.clone().into()),
        ("subnet-id", "".into()),
    ]);
    without(rig, json!({"type": "ClusterIP", "loadBalancerIP": null})).await?;
    services::patch(&rig.client, "place", network).await?;
    services::patch(&rig.client, "place", spec(json!({"type": "LoadBalancer"}))).await?;
    let expect = json!({"balancer": {"vip_network_id": ground.narrow.network}});
    let seen = reached(rig, "place", "network-id", &expect).await.with_context(|| program.log())?;
    ensure!(seen["balancer"]["id"] != balancer, "another load balancer: {}", seen["balancer"]);
    delete_all(rig, &["place".to_owned()], 2 * SOON).await
}
