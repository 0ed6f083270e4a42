//! Applies the changes to a model of Octavia until no change is left.

use std::collections::BTreeMap;

use ccm_cloud::{AddressKind, ClusterId, FrontEnd, FrontEndPort, Member, NodeAddress, Traffic};
use ccm_openstack_client::lbaas::{ApiVersion, BalancerRow, MonitorRow, PoolRow};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::balancers::{
    annotations::{Settings, read},
    features::Features,
    merge::SeenMember,
    spec::Unasked,
    spec::transport,
};

fn owner() -> Owner {
    let cluster = ClusterId { name: "c".to_owned(), uid: "c-1".to_owned() };
    let (uid, namespace, name) = ("u".to_owned(), "ns".to_owned(), "web".to_owned());
    Owner { cluster, uid, namespace, name }
}

/// The random part of a Service.
#[derive(Clone, Debug)]
struct Drawn {
    ports: BTreeSet<(bool, u16)>,
    annotations: Vec<(&'static str, &'static str)>,
    affinity: bool,
    local: bool,
    members: BTreeSet<u8>,
    hash: u128,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let annotations = prop::sample::subsequence(
        vec![
            ("enable-health-monitor", "true"),
            ("connection-limit", "9"),
            ("timeout-client-data", "7"),
            ("lb-method", "SOURCE_IP"),
            ("listener-tags", "l"),
            ("pool-tags", "p"),
            ("load-balancer-tags", "b"),
        ],
        0..7,
    );
    let layer_7 = prop::sample::select(vec![
        None,
        Some(("x-forwarded-for", "true")),
        Some(("proxy-protocol", "v1")),
        Some(("proxy-protocol", "v2")),
    ]);
    let ports = prop::collection::btree_set((any::<bool>(), 1_u16..5), 1..5);
    let members = prop::collection::btree_set(1_u8..6, 1..5);
    (ports, annotations, layer_7, any::<bool>(), any::<bool>(), members, 0_u128..3).prop_map(
        |(ports, mut annotations, layer_7, affinity, local, members, hash)| {
            annotations.extend(layer_7);
            Drawn { ports, annotations, affinity, local, members, hash }
        },
    )
}

fn front_end(drawn: &Drawn) -> FrontEnd {
    let port = |(udp, port): &(bool, u16)| FrontEndPort {
        name: String::new(),
        protocol: if *udp { Protocol::Udp } else { Protocol::Tcp },
        port: *port,
        member_port: Some(30_000 + port),
        app_protocol: None,
    };
    let settings = drawn.annotations.iter();
    FrontEnd {
        owner: owner(),
        digest: Digest { version: 1, hash: drawn.hash },
        families: vec![IpFamily::V4],
        requires_families: false,
        ports: drawn.ports.iter().map(port).collect(),
        source_ranges: Vec::new(),
        address: None,
        affinity: drawn.affinity.then_some(std::time::Duration::from_secs(60)),
        traffic: match drawn.local {
            true => Traffic::Local { health_check_port: 31_000 },
            false => Traffic::Cluster,
        },
        class: None,
        settings: settings
            .map(|(key, value)| (format!("loadbalancer.openstack.org/{key}"), (*value).to_owned()))
            .collect(),
        service: None,
    }
}

/// A model of Octavia as far as the changes need it. Rows are JSON.
#[derive(Clone, Debug, Default)]
struct Model {
    tags: Vec<String>,
    listeners: BTreeMap<String, Value>,
    pools: BTreeMap<String, Value>,
    monitors: BTreeMap<String, Value>,
    members: BTreeMap<String, Vec<SeenMember>>,
    made: usize,
}

impl Model {
    /// Creates a model with a listener of another owner.
    fn new() -> Self {
        let mut model = Self {
            tags: names::tags(names::balancer(&owner()), &owner()).to_vec(),
            ..Self::default()
        };
        let foreign = json!({
            "id": "foreign", "name": "mine", "tags": ["mine"], "protocol": "TCP",
            "protocol_port": 999, "provisioning_status": "ACTIVE",
        });
        model.listeners.insert("foreign".to_owned(), foreign);
        model
    }

    fn seen(&self) -> Seen {
        fn rows<T: serde::de::DeserializeOwned>(rows: &BTreeMap<String, Value>) -> Vec<T> {
            rows.values().map(|row| serde_json::from_value(row.clone()).unwrap()).collect()
        }
        let row: BalancerRow = serde_json::from_value(json!({
            "id": "lb", "name": names::balancer(&owner()), "tags": self.tags,
            "provisioning_status": "ACTIVE", "vip_address": "10.0.0.1",
        }))
        .unwrap();
        let mut pools: Vec<PoolRow> = rows(&self.pools);
        let monitors: Vec<MonitorRow> = rows(&self.monitors);
        for pool in &mut pools {
            let own = self.monitors.values().find(|row| row["pool_id"] == *pool.id);
            pool.healthmonitor_id = own.map(|row| row["id"].as_str().unwrap().to_owned());
            let owns = |row: &&Value| row["default_pool_id"] == *pool.id;
            let ids = self.listeners.values().filter(owns).map(|row| row["id"].clone());
            pool.listeners =
                ids.map(|id| serde_json::from_value(json!({ "id": id })).unwrap()).collect();
        }
        let (listeners, members) = (rows(&self.listeners), self.members.clone());
        Seen {
            row,
            listeners,
            pools,
            monitors,
            members,
            failing: BTreeSet::new(),
            floating: Vec::new(),
        }
    }

    fn apply(&mut self, act: Act) {
        match act {
            Act::Create(child, mut body) => {
                self.made += 1;
                let id = format!("{child:?}-{}", self.made);
                body["id"] = json!(id);
                body["provisioning_status"] = json!("ACTIVE");
                match child {
                    Child::Listener => drop(self.listeners.insert(id, body)),
                    Child::Monitor => drop(self.monitors.insert(id, body)),
                    Child::Pool => {
                        let listener = body["listener_id"].as_str().unwrap().to_owned();
                        let listener = self.listeners.get_mut(&listener).unwrap();
                        assert!(listener["default_pool_id"].is_null(), "it has a pool already");
                        listener["default_pool_id"] = json!(id);
                        self.pools.insert(id, body);
                    }
                }
            }
            Act::Update(child, id, body) => {
                let rows = match child {
                    Child::Listener => &mut self.listeners,
                    Child::Pool => &mut self.pools,
                    Child::Monitor => &mut self.monitors,
                };
                let row = rows.get_mut(&id).unwrap().as_object_mut().unwrap();
                row.extend(body.as_object().unwrap().clone());
            }
            Act::Delete(Child::Listener, id) => drop(self.listeners.remove(&id).unwrap()),
            Act::Delete(Child::Monitor, id) => drop(self.monitors.remove(&id).unwrap()),
            Act::Delete(Child::Pool, id) => {
                self.pools.remove(&id).unwrap();
                self.members.remove(&id);
                self.monitors.retain(|_, row| row["pool_id"] != *id);
                for listener in self.listeners.values_mut() {
                    if listener["default_pool_id"] == *id {
                        listener["default_pool_id"] = Value::Null;
                    }
                }
            }
            Act::Members { pool, members } => {
                let read = |member: &Value| {
                    let mut row = member.clone();
                    row["id"] = json!("m");
                    SeenMember::of_row(serde_json::from_value(row).unwrap())
                };
                self.members.insert(pool, members.iter().map(read).collect());
            }
            Act::Balancer(body) | Act::TakeBack(body) => {
                self.tags = serde_json::from_value(body["tags"].clone()).unwrap();
            }
            Act::Floating(_) | Act::Later => panic!("{act:?}"),
        }
    }

    /// Checks that Octavia has one listener for each port of a transport protocol.
    fn check(&self) {
        let key = |row: &Value| {
            (transport(row["protocol"].as_str().unwrap()), row["protocol_port"].as_u64().unwrap())
        };
        let keys: BTreeSet<_> = self.listeners.values().map(key).collect();
        assert_eq!(keys.len(), self.listeners.len(), "two listeners of one port");
    }
}

fn settings(front_end: &FrontEnd) -> Settings {
    read(&front_end.settings, &crate::tests::config(), front_end.traffic).unwrap()
}

fn steps(model: &Model, drawn: &Drawn, touched: bool) -> Result<Vec<Step>, CloudError> {
    let front_end = front_end(drawn);
    let settings = settings(&front_end);
    let features = Features::new(ApiVersion { major: 2, minor: 26 }, "amphora");
    let unasked = match drawn.hash {
        0 => Unasked::Kept,
        1 => Unasked::Added,
        _ => Unasked::TakenBack,
    };
    let tree = Tree::new(
        names::balancer(&owner()),
        &front_end,
        &settings,
        features,
        &[IpFamily::V4],
        unasked,
    )
    .unwrap();
    let node = |number: &u8| Member {
        node: format!("n{number}"),
        provider_id: None,
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.0.1.{number}"))],
        labels: std::sync::Arc::default(),
    };
    let absent = (1..6).filter(|number| !drawn.members.contains(number));
    let members = Members {
        present: drawn.members.iter().map(node).collect(),
        absent: absent.map(|number| node(&number)).collect(),
    };
    let goal = Goal {
        owner: &front_end.owner,
        digest: front_end.digest,
        tree: &tree,
        tags: &settings.tags.balancer,
        members: &members,
        family: IpFamily::V4,
        selector: &settings.selector,
        subnet: Some("s"),
        touched,
    };
    diff(&model.seen(), &goal, Vec::new())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The changes lead from any configuration to any other one, also if they are stopped anywhere
    /// in between. There are as many as were announced, and they touch nothing of another owner.
    #[test]
    fn any_configuration_leads_to_any_other_one(
        history in prop::collection::vec((drawn(), 0_usize..30), 1..4),
    ) {
        let mut model = Model::new();
        let foreign = model.listeners["foreign"].clone();
        let last = history.len() - 1;
        for (at, (drawn, stop)) in history.into_iter().enumerate() {
            let announced = steps(&model, &drawn, false).unwrap().len();
            let most = if at == last { 200 } else { stop };
            let (mut made, mut touched) = (0, false);
            while let Some(step) = steps(&model, &drawn, touched).unwrap().into_iter().next() {
                if made == most {
                    break;
                }
                touched |= step.act.changes_configuration() && !matches!(step.act, Act::Balancer(_));
                let closes = matches!(step.act, Act::Balancer(_));
                model.apply(step.act);
                model.check();
                touched &= !closes;
                made += 1;
            }
            prop_assert!(made < 200, "the changes do not end");
            if at == last {
                prop_assert_eq!(made, announced);
                prop_assert_eq!(model.listeners.len(), drawn.ports.len() + 1);
                prop_assert_eq!(model.pools.len(), drawn.ports.len());
                for members in model.members.values() {
                    prop_assert_eq!(members.len(), drawn.members.len());
                }
            }
            prop_assert_eq!(&model.listeners["foreign"], &foreign);
        }
    }
}

#[test]
fn a_protocol_is_switched_by_a_deletion_first() {
    let mut model = Model::new();
    let plain = Drawn {
        ports: [(false, 1)].into(),
        annotations: Vec::new(),
        affinity: false,
        local: false,
        members: [1].into(),
        hash: 1,
    };
    while let Some(step) = steps(&model, &plain, false).unwrap().into_iter().next() {
        model.apply(step.act);
    }
    let switched =
        Drawn { annotations: vec![("x-forwarded-for", "true")], hash: 2, ..plain.clone() };
    let lines: Vec<String> =
        steps(&model, &switched, false).unwrap().into_iter().map(|step| step.line).collect();
    let expect = [
        "delete the pool of listener 1/TCP",
        "delete listener 1/TCP",
        "create listener 1/HTTP",
        "create the pool of listener 1/HTTP",
        "set 1 members of listener 1/HTTP",
        "record with load balancer lb that this configuration is applied",
    ];
    assert_eq!(lines, expect);
    // A listener of another owner that blocks a port is an error, and the provider changes nothing.
    let taken = Drawn { ports: [(false, 999)].into(), ..plain };
    assert_eq!(steps(&model, &taken, false).unwrap_err().kind, ErrorKind::Conflict);
}
