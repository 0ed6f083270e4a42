//! The calls and the values of the cases.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use ccm_cloud::{
    AbsenceProof, AddressKind, Answers, Call, Cloud, CloudError, ClusterId, Depth, Digest,
    FrontEnd, FrontEndPort, IngressAddress, IpFamily, LoadBalancer, LoadBalancerList,
    LoadBalancers, Member, MemberChange, Members, MembersSet, NodeAddress, Owner, Progress,
    Protocol, Scope, Traffic, Unwanted, Wanted,
};
use futures::StreamExt as _;
use parking_lot::Mutex;

use crate::{BalancerSide, Need, Rig, Row, Stage, Wish};

/// The most calls until something is as wanted.
const CALLS: usize = 60;

/// Returns a call with a generous timeout.
pub(crate) fn call() -> Call {
    Call::waiting(Duration::from_secs(60))
}

/// Returns the cluster of all owners.
pub fn cluster() -> ClusterId {
    ClusterId { name: "kubernetes".to_owned(), uid: "cluster-1".to_owned() }
}

/// Returns the Service of this name.
pub fn owner(name: &str) -> Owner {
    Owner {
        cluster: cluster(),
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// Returns the Service of this name in another cluster of the same name.
pub fn namesake(name: &str) -> Owner {
    let mut owner = owner(name);
    owner.cluster.uid = "cluster-2".to_owned();
    owner
}

pub(crate) fn port(number: u16, protocol: Protocol) -> FrontEndPort {
    FrontEndPort {
        name: format!("port-{number}"),
        protocol,
        port: number,
        member_port: Some(30_000 + number),
        app_protocol: None,
    }
}

pub(crate) fn tcp(number: u16) -> FrontEndPort {
    port(number, Protocol::Tcp)
}

pub(crate) fn member(number: usize) -> Member {
    Member {
        node: format!("node-{number:05}"),
        provider_id: None,
        addresses: vec![
            NodeAddress::new(AddressKind::Hostname, format!("node-{number:05}")),
            NodeAddress::new(AddressKind::InternalIp, format!("10.0.0.{number}")),
        ],
        labels: Arc::default(),
    }
}

/// Returns the member without an address.
pub(crate) fn homeless(number: usize) -> Member {
    Member { addresses: Vec::new(), ..member(number) }
}

/// Returns the members with these numbers.
pub(crate) fn members(present: &[usize], absent: &[usize]) -> Members {
    let list = |numbers: &[usize]| numbers.iter().copied().map(member).collect();
    Members { present: list(present), absent: list(absent) }
}

/// Returns the names of the members with these numbers.
pub(crate) fn nodes(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| member(*number).node).collect()
}

/// Returns a wish for ports 80 and 443, and members 1 to 3.
pub(crate) fn wanted(name: &str) -> Wanted {
    let front_end = FrontEnd {
        owner: owner(name),
        digest: Digest { version: 1, hash: 1 },
        families: vec![IpFamily::V4],
        requires_families: false,
        ports: vec![tcp(80), tcp(443)],
        source_ranges: Vec::new(),
        address: None,
        affinity: None,
        traffic: Traffic::Cluster,
        class: None,
        settings: BTreeMap::new(),
        service: None,
    };
    Wanted {
        front_end: Arc::new(front_end),
        members: members(&[1, 2, 3], &[]),
        known: None,
        adopt: None,
        shown: Vec::new(),
        may_replace: true,
    }
}

/// Returns the wish with another configuration, and another digest.
pub(crate) fn changed(wanted: &Wanted, change: impl FnOnce(&mut FrontEnd)) -> Wanted {
    let mut wanted = wanted.clone();
    let front_end = Arc::make_mut(&mut wanted.front_end);
    front_end.digest.hash += 1;
    change(front_end);
    wanted
}

/// Returns the wish with another annotation.
pub(crate) fn with(wanted: &Wanted, (key, value): (&str, &str)) -> Wanted {
    changed(wanted, |front_end| {
        front_end.settings.insert(key.to_owned(), value.to_owned());
    })
}

/// Returns a Service that shows this load balancer.
pub(crate) fn known(wanted: &Wanted, shown: &LoadBalancer) -> Wanted {
    Wanted { known: Some(shown.id.clone()), shown: addresses(shown), ..wanted.clone() }
}

pub(crate) fn unwanted(wanted: &Wanted, known: Option<&str>) -> Unwanted {
    Unwanted {
        owner: wanted.front_end.owner.clone(),
        known: known.map(str::to_owned),
        duplicate: false,
        settings: Some(wanted.front_end.settings.clone()),
        address: wanted.front_end.address,
        service: None,
    }
}

/// Returns the addresses that are published.
pub(crate) fn addresses(shown: &LoadBalancer) -> Vec<IpAddr> {
    let address = |entry: &IngressAddress| match entry {
        IngressAddress::Ip(address) => *address,
        IngressAddress::Hostname(name) => panic!("{name} instead of an address"),
    };
    shown.ingress.iter().map(|entry| address(&entry.address)).collect()
}

/// Returns all answers, in order. Each item must have one.
pub(crate) async fn gather<T>(answers: Answers<'_, T>, items: usize) -> Vec<Result<T, CloudError>> {
    let mut answers: Vec<_> = answers.collect().await;
    answers.sort_by_key(|(item, _)| *item);
    assert!(answers.iter().map(|(item, _)| *item).eq(0..items), "one answer for each item");
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The environment of a case.
#[derive(Clone)]
pub(crate) struct Place {
    /// The way to the cloud.
    pub(crate) stage: Arc<dyn Stage>,
    /// The needs of the case.
    pub(crate) needs: &'static [Need],
}

impl Place {
    /// Returns a new cloud with what the case needs, and a provider of it.
    pub(crate) async fn lab(&self) -> Lab {
        Lab::new(self.stage.rig(self.needs).await)
    }
}

/// A cloud under test, and a process of its provider.
pub(crate) struct Lab {
    /// The cloud's own side.
    pub(crate) rig: Box<dyn Rig>,
    process: Mutex<Arc<dyn Cloud>>,
}

type Ensured = Result<Progress<LoadBalancer>, CloudError>;

impl Lab {
    pub(crate) fn new(rig: Box<dyn Rig>) -> Self {
        Self { process: Mutex::new(rig.process()), rig }
    }

    /// Ends the process, and starts another one.
    pub(crate) fn restart(&self) {
        *self.process.lock() = self.rig.process();
    }

    pub(crate) fn cloud(&self) -> Arc<dyn Cloud> {
        Arc::clone(&self.process.lock())
    }

    /// Returns the cloud's own side of load balancers.
    pub(crate) fn side(&self) -> &dyn BalancerSide {
        self.rig.balancers()
    }

    pub(crate) fn balancers(&self) -> Arc<dyn LoadBalancers> {
        self.cloud().load_balancers().unwrap().expect("load balancers are offered")
    }

    /// Returns the wanted state with this wish.
    pub(crate) fn wishes(&self, wanted: &Wanted, wish: Wish) -> Wanted {
        match self.side().annotation(wish) {
            Some(annotation) => with(wanted, annotation),
            None => wanted.clone(),
        }
    }

    pub(crate) async fn ensure_all(&self, wanted: &[Wanted]) -> Vec<Ensured> {
        gather(self.balancers().ensure(wanted, call()), wanted.len()).await
    }

    pub(crate) async fn ensure(&self, wanted: &Wanted) -> Ensured {
        self.ensure_all(std::slice::from_ref(wanted)).await.remove(0)
    }

    /// Calls until the load balancer is as wanted. Waits as long as an answer asks for.
    pub(crate) async fn settle(&self, wanted: &Wanted) -> LoadBalancer {
        for _ in 0..CALLS {
            match self.ensure(wanted).await {
                Ok(Progress::Done(balancer)) => return balancer,
                Ok(_) => {}
                Err(CloudError { retry_after: Some(after), .. }) => tokio::time::sleep(after).await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{CALLS} calls were not enough: {:?}", self.preview(wanted).await);
    }

    /// Returns the answer, or after a refusal that asks for a pause the answer of the next call.
    pub(crate) async fn rested(&self, wanted: &Wanted) -> Ensured {
        match self.ensure(wanted).await {
            Err(CloudError { retry_after: Some(after), .. }) => {
                tokio::time::sleep(after).await;
                self.ensure(wanted).await
            }
            other => other,
        }
    }

    pub(crate) async fn preview(&self, wanted: &Wanted) -> Result<Vec<String>, CloudError> {
        gather(self.balancers().preview(std::slice::from_ref(wanted), call()), 1).await.remove(0)
    }

    pub(crate) async fn set_members(
        &self,
        wanted: &Wanted,
        id: &str,
        members: Members,
    ) -> Result<Progress<MembersSet>, CloudError> {
        let change = change(wanted, id, members);
        gather(self.balancers().set_members(&[change], call()), 1).await.remove(0)
    }

    /// Calls until the members are as wanted.
    pub(crate) async fn members_set(
        &self,
        wanted: &Wanted,
        id: &str,
        members: Members,
    ) -> MembersSet {
        for _ in 0..CALLS {
            match self.set_members(wanted, id, members.clone()).await.unwrap() {
                Progress::Done(set) => return set,
                Progress::InProgress(_) => {}
                other => panic!("neither done nor in progress: {other:?}"),
            }
        }
        panic!("{CALLS} calls were not enough");
    }

    pub(crate) async fn delete(
        &self,
        unwanted: &Unwanted,
    ) -> Result<Progress<AbsenceProof>, CloudError> {
        gather(self.balancers().delete(std::slice::from_ref(unwanted), call()), 1).await.remove(0)
    }

    /// Calls until nothing is left.
    pub(crate) async fn deleted(&self, unwanted: &Unwanted) -> AbsenceProof {
        for _ in 0..CALLS {
            if let Progress::Done(proof) = self.delete(unwanted).await.unwrap() {
                return proof;
            }
        }
        panic!("{CALLS} calls were not enough");
    }

    pub(crate) async fn list(&self, scope: Scope, depth: Depth) -> LoadBalancerList {
        self.balancers().list(&cluster(), scope, depth, call()).await.unwrap()
    }

    pub(crate) async fn shown(&self, id: &str, depth: Depth) -> LoadBalancer {
        let list = self.list(Scope::Ids(vec![id.to_owned()]), depth).await;
        let [shown] = &list.load_balancers[..] else { panic!("{list:?}") };
        shown.clone()
    }

    /// Returns the row of this load balancer in the cloud.
    pub(crate) fn row(&self, id: &str) -> Row {
        let mut rows = self.side().rows();
        rows.retain(|row| row.id == id);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }

    /// Returns the rows of the load balancers of the Service of this name.
    pub(crate) fn rows_of(&self, name: &str) -> Vec<Row> {
        let mut rows = self.side().rows();
        rows.retain(|row| row.owners.contains(&owner(name).uid));
        rows
    }

    pub(crate) fn only(&self, name: &str) -> Row {
        let mut rows = self.rows_of(name);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }

    /// Returns the number of writes since the last call of this.
    pub(crate) fn written(&self) -> usize {
        self.side().written().total()
    }
}

pub(crate) fn change(wanted: &Wanted, id: &str, members: Members) -> MemberChange {
    MemberChange {
        owner: wanted.front_end.owner.clone(),
        id: id.to_owned(),
        members,
        front_end: None,
        settings: wanted.front_end.settings.clone(),
    }
}
