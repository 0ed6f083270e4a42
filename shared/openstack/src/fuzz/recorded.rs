//! Writes and checks the corpora of `nova`, `neutron` and `octavia`: the answers of scripted
//! services. `QUARTET_WRITE_CORPUS=1` writes them.

use std::{collections::BTreeSet, env, fs, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use ccm_cloud::{Call, CloudError};
use ccm_openstack_client::{
    api::{Answer, Api, Microversion, Request, Service},
    scripted::{Scripted, World, port, server, subnet, uuid},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    balancers::{live, octavia},
    machines::{change_routes, look_up, neutron, nova},
    played::{Settings, paused},
};

/// Scripted services that record their answers.
struct Recorder {
    inner: Scripted,
    lines: Mutex<Vec<String>>,
}

#[async_trait]
impl Api for Recorder {
    async fn send(&self, request: Request<'_>, call: Call) -> Result<Answer, CloudError> {
        let operation = request.operation;
        let answer = self.inner.send(request, call).await;
        let line = match &answer {
            Ok(Answer { status, body, .. }) => {
                format!("{operation} {status} {}", String::from_utf8_lossy(body))
            }
            Err(error) => {
                let status = if error.kind == ccm_cloud::ErrorKind::Busy { 409 } else { 503 };
                format!("{operation} {status} {}", json!({ "faultstring": error.message }))
            }
        };
        self.lines.lock().push(line);
        answer
    }

    async fn offers(&self, service: Service, call: Call) -> Result<bool, CloudError> {
        self.inner.offers(service, call).await
    }

    async fn project_id(&self, call: Call) -> Result<String, CloudError> {
        self.inner.project_id(call).await
    }

    fn microversion(&self) -> Option<Microversion> {
        self.inner.microversion()
    }
}

/// Records the answers of these services to this provider as an input.
fn recorded<W: Future<Output = ()>>(
    settings: &Settings,
    change: impl FnOnce(&mut World),
    work: impl FnOnce(Arc<dyn Api>) -> W,
) -> String {
    let inner = Scripted::default();
    change(&mut inner.world.lock());
    let minor = inner.microversion().map(|spoken| spoken.minor);
    let recorder = Arc::new(Recorder { inner, lines: Mutex::default() });
    let settings = Settings { microversion: minor, ..settings.clone() };
    paused(work(Arc::clone(&recorder) as _));
    let first = serde_json::to_string(&settings).unwrap();
    let lines = std::mem::take(&mut *recorder.lines.lock());
    std::iter::once(first).chain(lines).map(|line| line + "\n").collect()
}

/// Returns the folder of a target's corpus.
fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Compares an input with the one in the corpus, or writes it.
fn keep(target: &str, name: &str, input: &str) {
    let folder = corpus(target);
    let path = folder.join(name);
    if env::var("QUARTET_WRITE_CORPUS").is_ok() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&path, input).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == input, "{} is old: QUARTET_WRITE_CORPUS=1 writes it again", path.display());
}

fn conf(text: &str) -> Settings {
    Settings { conf: text.to_owned(), ..Settings::default() }
}

#[test]
fn nova_is_recorded() {
    let four = |world: &mut World| {
        for number in 1..5 {
            world.servers.push(server(number));
            world.ports.push(port(number));
        }
        world.networks.push(json!({ "id": uuid(77), "name": "k8s" }));
    };
    let rich = "[Networking]\npublic-network-name=ext\naddress-sort-order=10.0.0.0/8\n[Labels]\n\
                metadata=*\nhost-id=true\nflavor-id=true\n";
    let work = |settings: Settings| move |api| async move { look_up(&settings, api).await };
    keep("nova", "plain", &recorded(&conf(""), four, work(conf(""))));
    let all = |world: &mut World| {
        four(world);
        world.page = Some(2);
        world.servers[0]["addresses"]["ext"] = json!([
            { "addr": "203.0.113.7", "version": 4, "OS-EXT-IPS:type": "floating" },
            { "addr": "2001:db8::7", "version": 6, "OS-EXT-IPS:type": "fixed" },
        ]);
        world.ports[0]["trunk_details"] = json!({
            "trunk_id": uuid(5), "sub_ports": [{ "port_id": uuid(1_000_002), "segmentation_id": 2 }],
        });
        world.servers[3] = json!({ "id": uuid(4), "status": "UNKNOWN", "tenant_id": "t",
                                   "links": [], "created": "2026-01-01T00:00:00Z" });
        world.flavors.push(json!({ "id": "f1", "name": "m1.large" }));
    };
    keep("nova", "rich", &recorded(&conf(rich), all, work(conf(rich))));
}

#[test]
fn neutron_is_recorded() {
    let world = |world: &mut World| {
        for number in 1..5 {
            let mut port = port(number);
            port["revision_number"] = json!(1);
            port["port_security_enabled"] = json!(true);
            port["allowed_address_pairs"] = json!([]);
            world.ports.push(port);
        }
        let mut own = port(8_000_000);
        own["device_id"] = json!(world.router.id);
        own["fixed_ips"] = json!([{ "ip_address": "10.0.255.254" }]);
        world.ports.push(own);
    };
    keep("neutron", "atomic", &recorded(&conf(""), world, change_routes));
    let whole = |all: &mut World| {
        world(all);
        all.router.extensions = vec!["extraroute"];
    };
    keep("neutron", "whole", &recorded(&conf(""), whole, change_routes));
}

#[test]
fn octavia_is_recorded() {
    let world = |world: &mut World| {
        world.subnets.push(subnet(1, "10.8.0.0/24"));
        let mut outer = subnet(3, "172.24.0.0/16");
        outer["network_id"] = json!(uuid(50));
        world.subnets.push(outer);
        world.networks.push(json!({ "id": uuid(50), "name": "public", "router:external": true,
                                    "subnets": [uuid(3)] }));
    };
    let subnet = format!("[LoadBalancer]\nsubnet-id={}\n", uuid(1));
    let floating = format!("{subnet}floating-network-id={}\n", uuid(50));
    let annotated = |conf_text: &str, all: &[(&str, &str)]| {
        let named = |(key, value): &(&str, &str)| {
            (format!("loadbalancer.openstack.org/{key}"), (*value).to_owned())
        };
        Settings { annotations: all.iter().map(named).collect(), ..conf(conf_text) }
    };
    let internal = format!("{subnet}internal-lb=true\n");
    let monitored = format!("{floating}create-monitor=true\n");
    for (name, settings) in [
        ("floating", conf(&floating)),
        ("internal", conf(&internal)),
        ("monitored", Settings { local: true, ..conf(&monitored) }),
        ("udp", Settings { udp: true, ..conf(&monitored) }),
        (
            "annotated",
            annotated(
                &floating,
                &[
                    ("keep-floatingip", "true"),
                    ("timeout-client-data", "60000"),
                    ("proxy-protocol", "true"),
                    ("load-balancer-tags", "a,b"),
                    ("hostname", "web.example.com"),
                    ("node-selector", "pool=web"),
                ],
            ),
        ),
    ] {
        let work = |api| {
            let settings = settings.clone();
            async move { live(&settings, api).await }
        };
        keep("octavia", name, &recorded(&settings, world, work));
    }
    let ovn = |all: &mut World| {
        world(all);
        all.octavia.providers = vec!["ovn", "amphora"];
    };
    let settings = conf(&format!("{internal}lb-provider=ovn\nlb-method=SOURCE_IP_PORT\n"));
    let own = settings.clone();
    let work = move |api| async move { live(&own, api).await };
    keep("octavia", "ovn", &recorded(&settings, ovn, work));
}

/// Plays an input.
type Play = fn(&[u8]);

/// Empties all IDs of this member.
fn without(ids: &str, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(id) if name == ids => id.clear(),
                    other => without(ids, other),
                }
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(|entry| without(ids, entry)),
        _ => {}
    }
}

#[test]
fn answers_with_empty_ids_lead_to_no_request_with_one() {
    let targets: [(&str, Play); 3] = [("nova", nova), ("neutron", neutron), ("octavia", octavia)];
    let ids = ["id", "port_id", "vip_port_id", "device_id", "default_pool_id", "healthmonitor_id"];
    for (target, play) in targets {
        for entry in fs::read_dir(corpus(target)).unwrap() {
            // A fuzzer's input need not be text.
            let input = fs::read(entry.unwrap().path()).unwrap();
            let input = String::from_utf8_lossy(&input);
            let operations: BTreeSet<_> =
                input.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
            for (operation, ids) in operations.iter().flat_map(|of| ids.map(|ids| (of, ids))) {
                let emptied = |line: &str| {
                    let parts: Vec<_> = line.splitn(3, ' ').collect();
                    match (&parts[..], parts.get(2).map(|body| serde_json::from_str(body))) {
                        ([name, status, _], Some(Ok(mut body))) if name == operation => {
                            without(ids, &mut body);
                            format!("{name} {status} {body}\n")
                        }
                        _ => format!("{line}\n"),
                    }
                };
                play(input.lines().map(emptied).collect::<String>().as_bytes());
            }
        }
    }
}
