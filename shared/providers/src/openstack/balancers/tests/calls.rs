//! The calls of the contract on a scripted Octavia and Neutron that count requests.

mod create;
mod delete;
mod members;
mod races;

use std::{io::Write as _, time::Duration};

use ccm_base::Files;
use ccm_cloud::{
    AddressKind, Digest, FrontEnd, FrontEndPort, IpFamily, Member, Members, NodeAddress, Owner,
    Protocol, Traffic,
};
use serde_json::{Value, json};

use super::super::*;
use crate::openstack::{
    config::{Config, Environment},
    scripted::{Scripted, subnet, uuid},
};

/// The number of the external network.
const PUBLIC: usize = 88;
/// The members' port of the first port of a Service.
const NODE_PORT: u16 = 30_000;

type Ensured = Result<Progress<LoadBalancer>, CloudError>;

struct Rig {
    cloud: Arc<Scripted>,
    balancers: OctaviaBalancers,
}

impl Rig {
    /// A cloud with a subnet, an external network, and these lines below `[LoadBalancer]`.
    async fn new(lines: &str) -> Self {
        let cloud = Arc::new(Scripted::default());
        {
            let mut world = cloud.world.lock();
            world.subnets = vec![subnet(1, "10.8.0.0/16"), subnet(2, "fd08::/64")];
            world.networks = vec![
                json!({ "id": uuid(PUBLIC), "name": "public", "router:external": true, "subnets": [uuid(9)] }),
            ];
        }
        let rig = Self { balancers: balancers(&cloud, lines), cloud };
        rig.balancers.learn(call()).await.unwrap();
        rig.requests();
        rig
    }

    /// The same cloud for another process.
    fn restarted(&self, lines: &str) -> Self {
        Self { balancers: balancers(&self.cloud, lines), cloud: Arc::clone(&self.cloud) }
    }

    async fn ensure(&self, wanted: &Wanted) -> Ensured {
        let wanted = std::slice::from_ref(wanted);
        let answers: Vec<_> = self.balancers.ensure(wanted, call()).collect().await;
        answers.into_iter().next().unwrap().1
    }

    /// Calls until it is done, and settles what Octavia works on between the calls.
    async fn ensured(&self, wanted: &Wanted) -> LoadBalancer {
        for _ in 0..40 {
            let before = self.cloud.world.lock().calls.len();
            let progress = self.ensure(wanted).await.unwrap();
            let calls = self.cloud.world.lock().calls.split_off(before);
            let of_octavia = |operation: &str| operation.starts_with("loadbalancer_");
            let writes = calls.iter().filter(|(one, _)| of_octavia(one) && is_write(one)).count();
            assert!(writes <= 1, "{calls:?}");
            self.cloud.world.lock().calls.extend(calls);
            match progress {
                Progress::Done(done) => return done,
                Progress::InProgress(_) => self.settle(),
                Progress::Elsewhere(what) => panic!("{what}"),
            }
        }
        panic!("it is not done after 40 calls");
    }

    async fn delete(&self, unwanted: &Unwanted) -> Result<Progress<AbsenceProof>, CloudError> {
        let unwanted = std::slice::from_ref(unwanted);
        let answers: Vec<_> = self.balancers.delete(unwanted, call()).collect().await;
        answers.into_iter().next().unwrap().1
    }

    async fn deleted(&self, unwanted: &Unwanted) -> AbsenceProof {
        for _ in 0..40 {
            match self.delete(unwanted).await.unwrap() {
                Progress::Done(proof) => return proof,
                Progress::InProgress(_) => self.settle(),
                Progress::Elsewhere(what) => panic!("{what}"),
            }
        }
        panic!("it is not deleted after 40 calls");
    }

    /// Ends all that Octavia works on.
    fn settle(&self) {
        let mut world = self.cloud.world.lock();
        let ids: Vec<String> = world.octavia.balancers.iter().map(|row| text(row, "id")).collect();
        ids.iter().for_each(|id| world.let_go(id));
    }

    /// The operations since the last call of this, in alphabetical order.
    fn requests(&self) -> Vec<&'static str> {
        self.cloud.operations()
    }

    /// The one load balancer.
    fn row(&self) -> Value {
        let world = self.cloud.world.lock();
        assert_eq!(world.octavia.balancers.len(), 1);
        world.octavia.balancers[0].clone()
    }

    /// The one floating IP.
    fn floating_ip(&self) -> Value {
        let world = self.cloud.world.lock();
        assert_eq!(world.floating.ips.len(), 1, "{:?}", world.floating.ips);
        world.floating.ips[0].clone()
    }

    fn counts(&self) -> (usize, usize) {
        let world = self.cloud.world.lock();
        (world.octavia.balancers.len(), world.floating.ips.len())
    }
}

fn is_write(operation: &str) -> bool {
    ["_create", "_update", "_delete"].iter().any(|end| operation.ends_with(end))
}

fn balancers(cloud: &Arc<Scripted>, lines: &str) -> OctaviaBalancers {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let global = "auth-url = http://keystone\nuser-id = u\npassword = p\ntenant-id = t";
    write!(file, "[Global]\n{global}\n[LoadBalancer]\nsubnet-id = {}\n{lines}\n", uuid(1)).unwrap();
    let config = Config::load(file.path(), &Environment::of_process(), &mut Files::default());
    let options = Options::of(&config.unwrap().config);
    OctaviaBalancers::new(&(Arc::clone(cloud) as Arc<dyn Api>), options)
}

fn call() -> Call {
    Call::waiting(Duration::from_secs(20))
}

fn text(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap_or_default().to_owned()
}

fn owner(name: &str) -> Owner {
    let cluster = ClusterId { name: "prod".to_owned(), uid: "c-1".to_owned() };
    Owner {
        cluster,
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn node(number: u8) -> Member {
    Member {
        node: format!("node-{number}"),
        provider_id: None,
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, format!("10.8.200.{number}"))],
        labels: Arc::default(),
    }
}

fn nodes(numbers: impl IntoIterator<Item = u8>) -> Members {
    Members { present: numbers.into_iter().map(node).collect(), absent: Arc::default() }
}

/// A Service with these ports, a digest that follows from all that it says, and two nodes.
fn wanted(name: &str, ports: &[u16], settings: &[(&str, &str)]) -> Wanted {
    let port = |(place, port): (usize, &u16)| FrontEndPort {
        name: format!("p{port}"),
        protocol: Protocol::Tcp,
        port: *port,
        member_port: Some(NODE_PORT + u16::try_from(place).unwrap()),
        app_protocol: None,
    };
    let settings: BTreeMap<String, String> =
        settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let said = format!("{ports:?} {settings:?}");
    let hash = said.bytes().fold(7_u128, |hash, byte| hash.wrapping_mul(31) + u128::from(byte));
    let front_end = FrontEnd {
        owner: owner(name),
        digest: Digest { version: 1, hash },
        families: vec![IpFamily::V4],
        ports: ports.iter().enumerate().map(port).collect(),
        source_ranges: Vec::new(),
        address: None,
        affinity: None,
        traffic: Traffic::Cluster,
        class: None,
        settings,
        service: None,
    };
    Wanted { front_end: Arc::new(front_end), members: nodes([1, 2]), known: None, adopt: None }
}

fn unwanted(wanted: &Wanted, known: Option<&str>) -> Unwanted {
    Unwanted {
        owner: wanted.front_end.owner.clone(),
        known: known.map(str::to_owned),
        duplicate: false,
        settings: wanted.front_end.settings.clone(),
        service: None,
    }
}

fn what(progress: &Progress<LoadBalancer>) -> &str {
    match progress {
        Progress::InProgress(waiting) => &waiting.what,
        other => panic!("{other:?}"),
    }
}
