//! Values and calls for the suite.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use ccm_cloud::{
    AbsenceProof, AddressKind, Answers, Call, CallClass, CallGate, CallReport, CloudError,
    ClusterId, Depth, FrontEnd, FrontEndPort, Ingress, IngressAddress, LoadBalancer,
    LoadBalancerList, LoadBalancers, Member, MemberChange, Members, MembersSet, NodeAddress, Owner,
    Permit, Progress, ProviderId, Scope, Unwanted, Wanted,
};
use ccm_sim::{
    cloud::balancers::{SimBalancer, Write, plain_front_end, plain_port},
    faults::{Effect, Fault, FaultId, Trouble},
};
use futures::{StreamExt as _, future::BoxFuture};

use crate::{rig::Rig, suite::call};

pub fn cluster() -> ClusterId {
    ClusterId { name: "kubernetes".to_owned(), uid: "cluster-1".to_owned() }
}

pub fn owner(name: &str) -> Owner {
    Owner {
        cluster: cluster(),
        uid: format!("uid of {name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// An owner of another cluster with the same names.
pub fn namesake(name: &str) -> Owner {
    let mut owner = owner(name);
    owner.cluster.uid = "cluster-2".to_owned();
    owner
}

/// The names of an owner, as another controller may know them.
pub fn names(name: &str) -> Owner {
    let mut owner = owner(name);
    owner.cluster.uid.clear();
    owner.uid.clear();
    owner
}

pub fn port(number: u16) -> FrontEndPort {
    FrontEndPort { name: format!("port-{number}"), ..plain_port(number, 30_000 + number) }
}

pub fn member(number: usize) -> Member {
    Member {
        node: format!("node-{number}"),
        provider_id: ProviderId::parse(&format!("sim://i-{number}")).ok(),
        addresses: vec![
            NodeAddress::new(AddressKind::Hostname, format!("node-{number}")),
            NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}")),
        ],
        labels: Arc::default(),
    }
}

pub fn members(present: &[usize], absent: &[usize]) -> Members {
    let list = |numbers: &[usize]| numbers.iter().copied().map(member).collect();
    Members { present: list(present), absent: list(absent) }
}

/// Ports 80 and 443, members 1 to 3.
pub fn wanted(name: &str) -> Wanted {
    let front_end = plain_front_end(owner(name), vec![port(80), port(443)]);
    Wanted {
        front_end: Arc::new(front_end),
        members: members(&[1, 2, 3], &[]),
        known: None,
        adopt: None,
        shown: Vec::new(),
        may_replace: true,
    }
}

/// The same with another configuration, and another digest.
pub fn changed(wanted: &Wanted, change: impl FnOnce(&mut FrontEnd)) -> Wanted {
    let mut wanted = wanted.clone();
    let front_end = Arc::make_mut(&mut wanted.front_end);
    front_end.digest.hash += 1;
    change(front_end);
    wanted
}

/// The same with an annotation.
pub fn with(wanted: &Wanted, key: &str, value: &str) -> Wanted {
    changed(wanted, |front_end| {
        front_end.settings.insert(key.to_owned(), value.to_owned());
    })
}

pub fn unwanted(name: &str, known: Option<&str>) -> Unwanted {
    Unwanted {
        owner: owner(name),
        known: known.map(str::to_owned),
        duplicate: false,
        settings: Some(BTreeMap::new()),
        address: None,
        service: None,
    }
}

pub fn ip(address: IpAddr) -> Vec<Ingress> {
    let address = IngressAddress::Ip(address);
    vec![Ingress { address, ip_mode: ccm_cloud::IpMode::Vip, failed_ports: Vec::new() }]
}

/// The parts of a load balancer that no call but the first one may change.
pub fn without_time(mut balancer: SimBalancer) -> SimBalancer {
    balancer.version = 0;
    balancer
}

/// All answers, in order. Each item must have one.
pub async fn gather<T>(answers: Answers<'_, T>, items: usize) -> Vec<Result<T, CloudError>> {
    let mut answers: Vec<_> = answers.collect().await;
    answers.sort_by_key(|(item, _)| *item);
    assert!(answers.iter().map(|(item, _)| *item).eq(0..items), "one answer for each item");
    answers.into_iter().map(|(_, answer)| answer).collect()
}

impl Rig {
    /// A new handle for each call: nothing is remembered between two calls.
    pub fn balancers(&self) -> Arc<dyn LoadBalancers> {
        self.cloud.load_balancers().unwrap().expect("load balancers are offered")
    }

    pub async fn ensure_all(
        &self,
        wanted: &[Wanted],
        call: Call,
    ) -> Vec<Result<Progress<LoadBalancer>, CloudError>> {
        gather(self.balancers().ensure(wanted, call), wanted.len()).await
    }

    pub async fn ensure(&self, wanted: &Wanted) -> Result<Progress<LoadBalancer>, CloudError> {
        self.ensure_all(std::slice::from_ref(wanted), call()).await.remove(0)
    }

    /// Calls until it is as wanted.
    pub async fn settle(&self, wanted: &Wanted) -> LoadBalancer {
        for _ in 0..20 {
            if let Progress::Done(balancer) = self.ensure(wanted).await.unwrap() {
                return balancer;
            }
        }
        panic!("20 calls were not enough: {:?}", self.ensure(wanted).await);
    }

    pub async fn preview(&self, wanted: &Wanted) -> Result<Vec<String>, CloudError> {
        gather(self.balancers().preview(std::slice::from_ref(wanted), call()), 1).await.remove(0)
    }

    pub async fn set_members(
        &self,
        name: &str,
        id: &str,
        members: Members,
    ) -> Result<Progress<MembersSet>, CloudError> {
        let change = MemberChange {
            owner: owner(name),
            id: id.to_owned(),
            members,
            front_end: None,
            settings: BTreeMap::new(),
        };
        gather(self.balancers().set_members(&[change], call()), 1).await.remove(0)
    }

    /// Changes members, which must be done at once. Returns the version.
    pub async fn members_set(&self, name: &str, id: &str, members: Members) -> Option<String> {
        match self.set_members(name, id, members).await {
            Ok(Progress::Done(set)) => set.version,
            other => panic!("not done: {other:?}"),
        }
    }

    pub async fn delete(&self, unwanted: &Unwanted) -> Result<Progress<AbsenceProof>, CloudError> {
        gather(self.balancers().delete(std::slice::from_ref(unwanted), call()), 1).await.remove(0)
    }

    /// Calls until nothing is left.
    pub async fn deleted(&self, unwanted: &Unwanted) -> AbsenceProof {
        for _ in 0..20 {
            if let Progress::Done(proof) = self.delete(unwanted).await.unwrap() {
                return proof;
            }
        }
        panic!("20 calls were not enough: {:?}", self.delete(unwanted).await);
    }

    pub async fn list(&self, scope: Scope, depth: Depth) -> LoadBalancerList {
        self.balancers().list(&cluster(), scope, depth, call()).await.unwrap()
    }

    pub async fn shown(&self, id: &str, depth: Depth) -> LoadBalancer {
        let list = self.list(Scope::Ids(vec![id.to_owned()]), depth).await;
        assert_eq!((list.load_balancers.len(), list.malformed.len()), (1, 0));
        list.load_balancers.into_iter().next().unwrap()
    }

    /// The cloud's own view of the only load balancer of an owner.
    pub fn only(&self, name: &str) -> SimBalancer {
        let mut all = self.sim.balancers().of(&owner(name));
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }

    /// The names of its members.
    pub fn nodes(&self, name: &str) -> Vec<String> {
        self.only(name).member_names().into_iter().map(str::to_owned).collect()
    }

    /// The writes since the last call.
    pub fn written(&self) -> Vec<Write> {
        self.sim.balancers().reset_writes()
    }

    pub fn trouble(&self, names: &[&str], trouble: Trouble) -> FaultId {
        let names = names.iter().map(|name| format!("default/{name}")).collect();
        self.sim.faults().add(Fault::new(Effect::LoadBalancers(names, trouble)))
    }
}

/// A gate that puts a term on writes.
#[derive(Default)]
pub struct Terms(AtomicU64);

impl Terms {
    pub fn set(&self, term: u64) {
        self.0.store(term, Ordering::Relaxed);
    }
}

impl CallGate for Terms {
    fn admit(&self, class: CallClass, _: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        let term = class.write.then(|| self.0.load(Ordering::Relaxed));
        Box::pin(std::future::ready(Ok(Permit::for_write(term, || {}))))
    }

    fn report(&self, _: CallClass, _: CallReport) {}
}
