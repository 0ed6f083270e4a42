//! Octavia's side, and Neutron's floating IPs.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ccm_cloud::{Cure, Protocol, Wanted};
use ccm_contract::{BalancerSide, Harm, Row, Whose, Wish, Written, cluster, namesake, owner};
use ccm_openstack_client::scripted::{octavia::Octavia, uuid};
use serde_json::{Value, json};

use crate::stage::{SUBNET, Side};

const INTERNAL: (&str, &str) =
    ("service.beta.kubernetes.io/openstack-internal-load-balancer", "true");
const KEEP: (&str, &str) = ("loadbalancer.openstack.org/keep-floatingip", "true");
const WRONG: (&str, &str) = ("loadbalancer.openstack.org/class", "none");
/// The tag that a digest is stored in.
const DIGEST: &str = "quartet-config=";

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap()
}

fn tags(row: &Value) -> Vec<&str> {
    row["tags"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

/// Returns the name of the load balancer of this Service, which is also a tag.
fn named(service: &str) -> String {
    format!("kube_service_{}_default_{service}", cluster().name)
}

/// Returns the rows below this load balancer.
fn below<'a>(rows: &'a [Value], id: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["_balancer"] == *id).collect()
}

/// Returns a row without the record of the owner, and without the fields that change with each
/// write.
fn lasting(row: &Value) -> Value {
    let mut row = row.clone();
    for key in ["tags", "updated_at", "revision_number", "provisioning_status", "operating_status"]
    {
        row.as_object_mut().unwrap().remove(key);
    }
    row
}

fn owners(row: &Value) -> Vec<String> {
    let ours = format!("kubernetes-cluster-id={}", cluster().uid);
    let uid = |tag: &&str| tag.strip_prefix("kubernetes-service-uid=").map(str::to_owned);
    match tags(row) {
        tags if tags.contains(&&*ours) => tags.iter().filter_map(uid).collect(),
        _ => Vec::new(),
    }
}

/// Returns the names of the members, which must be the same in all pools that have members.
fn nodes(octavia: &Octavia, id: &str) -> Vec<String> {
    let of = |pool: &Value| -> BTreeSet<String> {
        let own = octavia.members.iter().filter(|row| row["_pool"] == pool["id"]);
        own.map(|row| text(row, "name").to_owned()).collect()
    };
    let pools = below(&octavia.pools, id).into_iter();
    let all: BTreeSet<_> = pools.map(of).filter(|nodes| !nodes.is_empty()).collect();
    assert!(all.len() <= 1, "the pools differ: {all:?}");
    all.into_iter().next().unwrap_or_default().into_iter().collect()
}

fn port(row: &Value) -> (Protocol, u16) {
    let protocol = match text(row, "protocol") {
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => Protocol::Tcp,
    };
    (protocol, row["protocol_port"].as_u64().unwrap().try_into().unwrap())
}

/// Returns the wish with an annotation of the usual prefix.
fn annotated(wanted: &Wanted, all: &[(&str, &str)]) -> Wanted {
    let mut wanted = wanted.clone();
    let front_end = Arc::make_mut(&mut wanted.front_end);
    for (key, value) in all {
        let key = format!("loadbalancer.openstack.org/{key}");
        front_end.settings.insert(key, (*value).to_owned());
    }
    wanted
}

impl Side {
    fn update(&self, id: &str, change: impl FnOnce(&mut Value)) {
        let octavia = &mut self.0.world.lock().octavia;
        change(octavia.balancers.iter_mut().find(|row| row["id"] == *id).unwrap());
    }
}

impl BalancerSide for Side {
    fn annotation(&self, wish: Wish) -> Option<(&'static str, &'static str)> {
        match wish {
            Wish::Floating => None,
            Wish::Internal => Some(INTERNAL),
            Wish::Keep => Some(KEEP),
            Wish::Wrong => Some(WRONG),
            Wish::Elsewhere => panic!("this rig has no other controllers"),
        }
    }

    fn variants(&self, wanted: &Wanted) -> Vec<Wanted> {
        vec![
            annotated(wanted, &[("x-forwarded-for", "true"), ("lb-method", "SOURCE_IP")]),
            annotated(wanted, &[("proxy-protocol", "v1"), ("enable-health-monitor", "true")]),
        ]
    }

    fn choice(&self) -> IpAddr {
        [172, 24, 7, 7].into()
    }

    fn rows(&self) -> Vec<Row> {
        let world = self.0.world.lock();
        let octavia = &world.octavia;
        let row = |row: &Value| {
            let id = text(row, "id");
            let mut ports: Vec<_> = below(&octavia.listeners, id).into_iter().map(port).collect();
            ports.sort_unstable();
            let children = [&octavia.listeners, &octavia.pools, &octavia.monitors];
            let children =
                children.map(|rows| below(rows, id).into_iter().map(lasting).collect::<Value>());
            let ips = world.floating.ips.iter().filter(|ip| ip["port_id"] == row["vip_port_id"]);
            let ips: Vec<_> = ips.map(lasting).collect();
            Row {
                id: id.to_owned(),
                name: text(row, "name").to_owned(),
                owners: owners(row),
                addresses: vec![text(row, "vip_address").parse().unwrap()],
                ports,
                nodes: nodes(octavia, id),
                rest: json!([lasting(row), children, ips]).to_string(),
            }
        };
        octavia.balancers.iter().map(row).collect()
    }

    fn floating(&self) -> Vec<(IpAddr, bool)> {
        let ips = &self.0.world.lock().floating.ips;
        let of = |ip: &Value| {
            (text(ip, "floating_ip_address").parse().unwrap(), ip["port_id"].is_string())
        };
        ips.iter().map(of).collect()
    }

    fn written(&self) -> Written {
        let mut all = self.0.operations();
        all.retain(|name| !name.ends_with("_list") && !name.ends_with("_get"));
        let count = |start: &str| all.iter().filter(|name| name.starts_with(start)).count();
        // A floating IP and its tags are one change.
        let with_tags = count("floating_ip_create").min(count("floating_ip_tags_update"));
        let floating = count("floating_ip") - with_tags;
        Written { balancers: count("loadbalancer"), floating }
    }

    fn stranger(&self, whose: Whose<'_>) -> String {
        let ours = format!("kubernetes-cluster-id={}", cluster().uid);
        let theirs = format!("kubernetes-cluster-id={}", namesake("x").cluster.uid);
        let uid = |name: &str| format!("kubernetes-service-uid={}", owner(name).uid);
        let (name, tags) = match whose {
            Whose::Person => ("mine".to_owned(), Vec::new()),
            Whose::Older(name) => (named(name), vec![named(name)]),
            Whose::Namesake(name) => (named(name), vec![named(name), theirs, uid(name)]),
            Whose::Neighbour(name) => (named(name), vec![named(name), ours, uid(name)]),
            Whose::Shared(one, other) => {
                (named(one), vec![named(one), named(other), ours, uid(one)])
            }
        };
        let (_, service) = name.rsplit_once('_').unwrap_or(("", &name));
        let text = format!("Kubernetes external service default/{service} from cluster kubernetes");
        let balancers = &mut self.0.world.lock().octavia.balancers;
        let id = uuid(8_000_000 + balancers.len());
        balancers.push(json!({
            "id": id, "name": name, "tags": tags, "provisioning_status": "ACTIVE",
            "operating_status": "ONLINE", "provider": "amphora", "vip_address": "10.8.0.77",
            "vip_port_id": null, "vip_subnet_id": uuid(SUBNET), "vip_network_id": uuid(77),
            "additional_vips": [], "created_at": "2025-01-01T00:00:00", "updated_at": null,
            "description": text, "flavor_id": null, "availability_zone": null, "project_id": "p1",
        }));
        id
    }

    fn remove(&self, id: &str) {
        let world = &mut *self.0.world.lock();
        let octavia = &mut world.octavia;
        let row = octavia.balancers.iter().position(|row| row["id"] == *id).unwrap();
        let port = octavia.balancers.remove(row)["vip_port_id"].clone();
        for rows in [
            &mut octavia.listeners,
            &mut octavia.pools,
            &mut octavia.members,
            &mut octavia.monitors,
        ] {
            rows.retain(|row| row["_balancer"] != *id);
        }
        world.ports.retain(|row| row["id"] != port);
        for ip in world.floating.ips.iter_mut().filter(|ip| ip["port_id"] == port) {
            ip["port_id"] = Value::Null;
        }
    }

    fn harms(&self) -> &'static [Harm] {
        &[Harm::Listener, Harm::Members, Harm::Pool, Harm::Floating]
    }

    fn harm(&self, id: &str, harm: Harm) {
        {
            let world = &mut *self.0.world.lock();
            let octavia = &mut world.octavia;
            let pool = below(&octavia.pools, id)[0]["id"].clone();
            match harm {
                Harm::Listener => octavia.listeners.retain(|row| row["protocol_port"] != 443),
                Harm::Members => octavia.members.retain(|row| row["_balancer"] != *id),
                Harm::Pool => {
                    octavia.pools.retain(|row| row["id"] != pool);
                    octavia.members.retain(|row| row["_pool"] != pool);
                    for row in &mut octavia.listeners {
                        if row["default_pool_id"] == pool {
                            row["default_pool_id"] = Value::Null;
                        }
                    }
                }
                Harm::Floating => world.floating.ips.clear(),
            }
        }
        self.update(id, |row| row["updated_at"] = json!("2026-06-01T00:00:00"));
    }

    fn disown(&self, id: &str, rebuilt: bool) {
        assert!(!rebuilt, "the stage lacks that");
        let world = &mut *self.0.world.lock();
        let octavia = &mut world.octavia;
        let row = octavia.balancers.iter_mut().find(|row| row["id"] == *id).unwrap();
        let name = row["name"].clone();
        row["tags"] = json!([name]);
        for row in octavia.listeners.iter_mut().filter(|row| row["_balancer"] == *id) {
            row["tags"] = json!([name]);
        }
        for row in octavia.pools.iter_mut().filter(|row| row["_balancer"] == *id) {
            row["tags"] = json!([]);
        }
        world.floating.ips.iter_mut().for_each(|ip| ip["tags"] = json!([]));
    }

    fn drop_digest(&self, id: &str) {
        self.update(id, |row| {
            let tags = row["tags"].as_array_mut().unwrap();
            tags.retain(|tag| !tag.as_str().unwrap().starts_with(DIGEST));
        });
    }

    fn break_down(&self, id: &str, cure: Cure) {
        assert_eq!(cure, Cure::Ensure, "the stage lacks that");
        self.0.world.lock().octavia.break_down(id);
    }

    fn hold(&self, held: bool) {
        let world = &mut *self.0.world.lock();
        world.octavia.holds_all = held;
        let ids = world.octavia.balancers.iter().map(|row| text(row, "id").to_owned());
        let ids: Vec<_> = ids.filter(|_| !held).collect();
        for id in ids {
            world.let_go(&id);
        }
    }

    fn spoil(&self, id: &str, spoilt: bool) {
        let time = if spoilt { json!(7) } else { json!("2026-01-01T00:00:00") };
        self.update(id, |row| row["created_at"] = time);
    }

    fn hide(&self, hidden: bool) {
        let octavia = &mut self.0.world.lock().octavia;
        let ids = octavia.balancers.iter().map(|row| text(row, "id").to_owned());
        octavia.unlisted = ids.filter(|_| hidden).collect();
    }
}
