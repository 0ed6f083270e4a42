//! Values and calls for the tests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_cloud::{
    AbsenceProof, AddressKind, Answers, Call, CloudError, ClusterId, Depth, Digest, FrontEnd,
    FrontEndPort, IngressAddress, IpFamily, LoadBalancer, LoadBalancerList, LoadBalancers as _,
    Member, MemberChange, Members, MembersSet, NodeAddress, Owner, Progress, Protocol, Scope,
    Traffic, Unwanted, Wanted,
};
use ccm_openstack_client::scripted::{Scripted, octavia::PROJECT, subnet, uuid};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::{balancers::OctaviaBalancers, config::Config};

/// The subnet of the virtual addresses, the external network, and another IPv6 subnet.
pub const SUBNET: usize = 1;
pub const EXTERNAL: usize = 50;

pub fn call() -> Call {
    Call::waiting(Duration::from_secs(60))
}

pub fn cluster() -> ClusterId {
    ClusterId { name: "prod".to_owned(), uid: "c-1".to_owned() }
}

pub fn owner(name: &str) -> Owner {
    Owner {
        cluster: cluster(),
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

pub fn port(number: u16, protocol: Protocol) -> FrontEndPort {
    FrontEndPort {
        name: format!("port-{number}"),
        protocol,
        port: number,
        member_port: Some(30_000 + number),
        app_protocol: None,
    }
}

pub fn member(number: u8) -> Member {
    let address = NodeAddress::new(AddressKind::InternalIp, format!("10.8.1.{number}"));
    Member {
        node: format!("node-{number:05}"),
        provider_id: None,
        addresses: vec![address],
        labels: Arc::new([("number".to_owned(), number.to_string())].into()),
    }
}

pub fn members(present: &[u8], absent: &[u8]) -> Members {
    let list = |numbers: &[u8]| numbers.iter().copied().map(member).collect();
    Members { present: list(present), absent: list(absent) }
}

/// Returns a load balancer with ports 80 and 443, members 1 to 3.
pub fn wanted(name: &str) -> Wanted {
    let front_end = FrontEnd {
        owner: owner(name),
        digest: Digest { version: 1, hash: 1 },
        families: vec![IpFamily::V4],
        requires_families: false,
        ports: vec![port(80, Protocol::Tcp), port(443, Protocol::Tcp)],
        source_ranges: Vec::new(),
        address: None,
        affinity: None,
        traffic: Traffic::Cluster,
        class: None,
        settings: BTreeMap::new(),
        service: None,
    };
    let front_end = Arc::new(front_end);
    Wanted {
        front_end,
        members: members(&[1, 2, 3], &[]),
        known: None,
        adopt: None,
        shown: Vec::new(),
        may_replace: true,
    }
}

/// Returns this request with another configuration, and another digest.
pub fn changed(wanted: &Wanted, change: impl FnOnce(&mut FrontEnd)) -> Wanted {
    let mut wanted = wanted.clone();
    let front_end = Arc::make_mut(&mut wanted.front_end);
    front_end.digest.hash += 1;
    change(front_end);
    wanted
}

/// Returns this request with an annotation.
pub fn with(wanted: &Wanted, key: &str, value: &str) -> Wanted {
    changed(wanted, |front_end| {
        front_end.settings.insert(key.to_owned(), value.to_owned());
    })
}

/// Returns this request with an annotation of the usual prefix.
pub fn annotated(wanted: &Wanted, key: &str, value: &str) -> Wanted {
    with(wanted, &format!("loadbalancer.openstack.org/{key}"), value)
}

/// Returns the addresses and host names that are published.
pub fn addresses(balancer: &LoadBalancer) -> Vec<String> {
    let shown = |address: &IngressAddress| match address {
        IngressAddress::Ip(ip) => ip.to_string(),
        IngressAddress::Hostname(name) => name.clone(),
    };
    balancer.ingress.iter().map(|entry| shown(&entry.address)).collect()
}

/// Scripted services and the provider.
pub struct Rig {
    pub cloud: Arc<Scripted>,
    pub balancers: OctaviaBalancers,
    pub options: Config,
}

impl Rig {
    /// Creates a rig with the VIP subnet and the floating network configured.
    pub fn new() -> Self {
        Self::with(|options| {
            options.networks.subnet_id = Some(uuid(SUBNET));
            options.networks.floating_network_id = Some(uuid(EXTERNAL));
        })
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let cloud = Scripted::default();
        {
            let mut world = cloud.world.lock();
            world.subnets.push(subnet(SUBNET, "10.8.0.0/24"));
            world.subnets.push(subnet(2, "2001:db8::/64"));
            let mut outer = subnet(3, "172.24.0.0/16");
            outer["network_id"] = json!(uuid(EXTERNAL));
            world.subnets.push(outer);
            world.networks.push(json!({
                "id": uuid(EXTERNAL), "name": "public", "router:external": true,
                "subnets": [uuid(3)],
            }));
        }
        let mut options = crate::tests::config();
        change(&mut options);
        let cloud = Arc::new(cloud);
        Self {
            balancers: OctaviaBalancers::new(&(Arc::clone(&cloud) as _), options.clone()),
            cloud,
            options,
        }
    }

    /// Returns another process, with the same services.
    pub fn restarted(&self) -> Self {
        let (cloud, options) = (Arc::clone(&self.cloud), self.options.clone());
        Self {
            balancers: OctaviaBalancers::new(&(Arc::clone(&cloud) as _), options.clone()),
            cloud,
            options,
        }
    }

    pub async fn ensure(&self, wanted: &Wanted) -> Result<Progress<LoadBalancer>, CloudError> {
        self.ensure_all(std::slice::from_ref(wanted)).await.remove(0)
    }

    pub async fn ensure_all(
        &self,
        wanted: &[Wanted],
    ) -> Vec<Result<Progress<LoadBalancer>, CloudError>> {
        self.ensure_in(wanted, call()).await
    }

    pub async fn ensure_in(
        &self,
        wanted: &[Wanted],
        call: Call,
    ) -> Vec<Result<Progress<LoadBalancer>, CloudError>> {
        gather(self.balancers.ensure(wanted, call), wanted.len()).await
    }

    /// Calls until it is as wanted. Waits as long as an answer asks for: with a paused clock only.
    pub async fn settle(&self, wanted: &Wanted) -> LoadBalancer {
        for _ in 0..60 {
            match self.ensure(wanted).await {
                Ok(Progress::Done(balancer)) => return balancer,
                Ok(_) => {}
                Err(CloudError { retry_after: Some(after), .. }) => tokio::time::sleep(after).await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("60 calls were not enough: {:?}", self.preview(wanted).await);
    }

    /// Lets the rest of a load balancer in `ERROR` pass, with a paused clock: the next call acts.
    pub async fn rested(&self, wanted: &Wanted) {
        if let Err(CloudError { retry_after: Some(after), .. }) = self.ensure(wanted).await {
            tokio::time::advance(after).await;
        }
    }

    pub async fn preview(&self, wanted: &Wanted) -> Result<Vec<String>, CloudError> {
        gather(self.balancers.preview(std::slice::from_ref(wanted), call()), 1).await.remove(0)
    }

    pub async fn set_members(
        &self,
        wanted: &Wanted,
        id: &str,
        members: Members,
    ) -> Result<Progress<MembersSet>, CloudError> {
        let change = change(wanted, id, members);
        gather(self.balancers.set_members(&[change], call()), 1).await.remove(0)
    }

    /// Calls until the members are as wanted. Returns the version.
    pub async fn members_with(
        &self,
        wanted: &Wanted,
        id: &str,
        members: Members,
    ) -> Option<String> {
        for _ in 0..60 {
            if let Progress::Done(set) =
                self.set_members(wanted, id, members.clone()).await.unwrap()
            {
                return set.version;
            }
        }
        panic!("60 calls were not enough");
    }

    pub async fn members_set(&self, name: &str, id: &str, members: Members) -> Option<String> {
        self.members_with(&wanted(name), id, members).await
    }

    pub fn unwanted(&self, wanted: &Wanted) -> Unwanted {
        let rows = &self.cloud.world.lock().octavia.balancers;
        let tag = format!("kubernetes-service-uid={}", wanted.front_end.owner.uid);
        let own = rows.iter().find(|row| row["tags"].as_array().unwrap().contains(&json!(tag)));
        Unwanted {
            owner: wanted.front_end.owner.clone(),
            known: own.map(|row| row["id"].as_str().unwrap().to_owned()),
            duplicate: false,
            settings: Some(wanted.front_end.settings.clone()),
            address: wanted.front_end.address,
            service: None,
        }
    }

    pub async fn delete(&self, unwanted: &Unwanted) -> Result<Progress<AbsenceProof>, CloudError> {
        gather(self.balancers.delete(std::slice::from_ref(unwanted), call()), 1).await.remove(0)
    }

    /// Calls until nothing is left.
    pub async fn deleted(&self, unwanted: &Unwanted) -> AbsenceProof {
        for _ in 0..60 {
            if let Progress::Done(proof) = self.delete(unwanted).await.unwrap() {
                return proof;
            }
        }
        panic!("60 calls were not enough");
    }

    pub async fn list(&self, scope: Scope, depth: Depth) -> LoadBalancerList {
        self.balancers.list(&cluster(), scope, depth, call()).await.unwrap()
    }

    pub async fn shown(&self, id: &str, depth: Depth) -> LoadBalancer {
        let list = self.list(Scope::Ids(vec![id.to_owned()]), depth).await;
        let [shown] = &list.load_balancers[..] else { panic!("{list:?}") };
        shown.clone()
    }

    /// Returns the writes since the last call of this, in alphabetical order; forgets the reads.
    pub fn writes(&self) -> Vec<&'static str> {
        let mut all = self.cloud.operations();
        all.retain(|name| !name.ends_with("_list") && !name.ends_with("_get"));
        all
    }

    /// Returns the numbers of the nodes that are members of each pool that has any.
    pub fn nodes(&self) -> Vec<u8> {
        let world = self.cloud.world.lock();
        let of = |pool: &Value| -> Vec<u8> {
            let own = world.octavia.members.iter().filter(|row| row["_pool"] == pool["id"]);
            let mut all: Vec<u8> = own
                .map(|row| {
                    row["name"].as_str().unwrap().trim_start_matches("node-").parse().unwrap()
                })
                .collect();
            all.sort_unstable();
            all
        };
        let mut all: Vec<_> =
            world.octavia.pools.iter().map(of).filter(|it| !it.is_empty()).collect();
        all.dedup();
        assert_eq!(all.len(), 1, "the pools differ: {all:?}");
        all.remove(0)
    }

    /// Adds a load balancer of another owner.
    pub fn stranger(&self, id: &str, name: &str, tags: &[&str]) {
        let (_, service) = name.rsplit_once('_').unwrap_or(("", name));
        let row = json!({
            "id": id, "name": name, "tags": tags, "provisioning_status": "ACTIVE",
            "operating_status": "ONLINE", "provider": "amphora", "vip_address": "10.8.0.77",
            "vip_port_id": null, "vip_subnet_id": uuid(SUBNET), "vip_network_id": uuid(77),
            "additional_vips": [], "created_at": "2025-01-01T00:00:00", "updated_at": null,
            "description": format!("Kubernetes external service default/{service} from cluster prod"),
            "flavor_id": null, "availability_zone": null, "project_id": "p1",
        });
        self.cloud.world.lock().octavia.balancers.push(row);
    }

    /// Creates a floating IP that is not attached. Returns its ID.
    pub fn floating_ip(&self, address: &str, description: &str) -> String {
        let mut world = self.cloud.world.lock();
        let id = uuid(7_000_000 + world.floating.ips.len());
        world.floating.ips.push(json!({
            "id": id, "floating_ip_address": address, "floating_network_id": uuid(EXTERNAL),
            "port_id": null, "fixed_ip_address": null, "description": description, "tags": [],
            "revision_number": 0, "project_id": PROJECT,
        }));
        id
    }

    /// Deletes a load balancer in the cloud, as an operator would, without the provider.
    pub fn remove(&self, id: &str) {
        let mut world = self.cloud.world.lock();
        let port =
            world.octavia.balancers.iter().find(|row| row["id"] == *id).unwrap()["vip_port_id"]
                .clone();
        world.octavia.balancers.retain(|row| row["id"] != *id);
        let octavia = &mut world.octavia;
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

    /// Returns a row of one kind of Octavia's objects.
    pub fn rows(&self, kind: &str) -> Vec<Value> {
        let octavia = &self.cloud.world.lock().octavia;
        match kind {
            "balancers" => octavia.balancers.clone(),
            "listeners" => octavia.listeners.clone(),
            "pools" => octavia.pools.clone(),
            "members" => octavia.members.clone(),
            _ => octavia.monitors.clone(),
        }
    }
}

pub fn change(wanted: &Wanted, id: &str, members: Members) -> MemberChange {
    MemberChange {
        owner: wanted.front_end.owner.clone(),
        id: id.to_owned(),
        members,
        front_end: None,
        settings: wanted.front_end.settings.clone(),
    }
}

/// Returns all answers, in order. Each item must have one.
pub async fn gather<T>(answers: Answers<'_, T>, items: usize) -> Vec<Result<T, CloudError>> {
    let mut answers: Vec<_> = answers.collect().await;
    answers.sort_by_key(|(item, _)| *item);
    assert!(answers.iter().map(|(item, _)| *item).eq(0..items), "one answer for each item");
    answers.into_iter().map(|(_, answer)| answer).collect()
}
