//! The simulated cloud's own side.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ccm_cloud::{Cloud, CloudError, Cure, Owner, Protocol, ProviderId, RouteTarget};
use ccm_contract::{
    BalancerSide, Harm, MachineSide, Rig, RouterSide, Row, Whose, Wish, Written, cluster, namesake,
    owner,
};
use ccm_sim::{
    cloud::{
        SimInstance,
        balancers::{SimBalancer, State, Times},
        routes::SimRoute,
    },
    faults::{Fault, FaultEffect, FaultId, Trouble},
};
use ipnet::IpNet;
use parking_lot::Mutex;

use crate::stage::Wired;

/// A simulated cloud, and what is wrong with it, by name.
pub struct Side {
    wired: Wired,
    faults: Mutex<BTreeMap<String, Vec<FaultId>>>,
}

impl Side {
    pub fn of(wired: Wired) -> Self {
        Self { wired, faults: Mutex::default() }
    }

    /// Replaces the faults of this name from now on.
    fn wrong(&self, name: &str, effects: Vec<FaultEffect>) {
        let plan = self.wired.sim.faults();
        let new = effects.into_iter().map(|effect| plan.add(Fault::new(effect))).collect();
        for old in self.faults.lock().insert(name.to_owned(), new).unwrap_or_default() {
            plan.remove(old);
        }
    }

    fn update(&self, id: &str, change: impl FnOnce(&mut SimBalancer)) {
        assert!(self.wired.sim.balancers().update(id, change), "{id}");
    }

    fn machine(&self, number: usize, change: impl FnOnce(&mut SimInstance)) {
        assert!(self.wired.sim.update(&SimInstance::numbered(number).id, change), "{number}");
    }
}

/// Returns the names of an owner, as another controller knows them.
fn names(mut owner: Owner) -> Owner {
    owner.cluster.uid.clear();
    owner.uid.clear();
    owner
}

fn row(balancer: SimBalancer) -> Row {
    let SimBalancer { id, name, owners, addresses, configuration, members, .. } = balancer;
    let ours = owners.into_iter().filter(|owner| owner.cluster.uid == cluster().uid);
    let mut nodes: Vec<_> = members.into_iter().map(|member| member.node).collect();
    nodes.sort();
    let ports = configuration.listeners.keys().copied().collect();
    let owners = ours.map(|owner| owner.uid).collect();
    let rest = format!("{configuration:?}");
    Row { id, name, owners, addresses, ports, nodes, rest }
}

impl Rig for Side {
    fn process(&self) -> Arc<dyn Cloud> {
        // Nothing is remembered between two calls.
        Arc::clone(&self.wired.cloud)
    }

    fn lose_answers(&self, lost: bool) {
        let all = [FaultEffect::LoadBalancers, FaultEffect::Routes];
        let all = all.map(|effect| effect(Vec::new(), Trouble::LoseAnswer));
        self.wrong("lost", if lost { all.into() } else { Vec::new() });
    }

    fn refuse(&self, error: Option<CloudError>) {
        self.wrong("refused", error.into_iter().map(FaultEffect::Error).collect());
    }

    fn slow(&self, time: Duration) {
        let is_slow = !time.is_zero();
        self.wrong("slow", is_slow.then_some(FaultEffect::Latency(time)).into_iter().collect());
    }

    fn lead(&self, term: u64) {
        self.wired.terms.0.store(term, Ordering::Relaxed);
    }

    fn machines(&self) -> &dyn MachineSide {
        self
    }

    fn balancers(&self) -> &dyn BalancerSide {
        self
    }

    fn router(&self) -> &dyn RouterSide {
        self
    }
}

impl MachineSide for Side {
    fn build(&self, number: usize) {
        let mut instance = SimInstance::numbered(number);
        instance.other_ids = vec![ProviderId::parse(&self.other_id(number)).unwrap()];
        self.wired.sim.add(instance);
    }

    fn id(&self, number: usize) -> String {
        SimInstance::numbered(number).provider_id().to_string()
    }

    fn other_id(&self, number: usize) -> String {
        format!("sim:///old-{number}")
    }

    fn uuid(&self, number: usize) -> String {
        SimInstance::numbered(number).system_uuid.unwrap()
    }

    fn rename(&self, number: usize, name: &str) {
        self.machine(number, |instance| name.clone_into(&mut instance.name));
    }

    fn hide(&self, hidden: bool) {
        self.wrong("hidden", hidden.then_some(FaultEffect::EmptyList).into_iter().collect());
    }

    fn spoil(&self, number: usize) {
        let names = vec![SimInstance::numbered(number).name];
        self.wrong("spoilt", vec![FaultEffect::MalformedInstances(names)]);
    }
}

impl BalancerSide for Side {
    fn annotation(&self, wish: Wish) -> Option<(&'static str, &'static str)> {
        match wish {
            Wish::Floating => Some(("sim/floating", "true")),
            Wish::Internal => None,
            Wish::Keep => Some(("sim/keep-address", "true")),
            Wish::Wrong => Some(("sim/floating", "maybe")),
            Wish::Elsewhere => Some(("sim/elsewhere", "type is external")),
        }
    }

    fn choice(&self) -> IpAddr {
        [100, 64, 7, 7].into()
    }

    fn rows(&self) -> Vec<Row> {
        let mut all = self.wired.sim.balancers().all();
        all.sort_by_key(|balancer| balancer.created);
        all.into_iter().map(row).collect()
    }

    fn floating(&self) -> Vec<(IpAddr, bool)> {
        let all = self.wired.sim.balancers().floating();
        all.into_iter().map(|(address, owner)| (address, owner.is_some())).collect()
    }

    fn written(&self) -> Written {
        let balancers = self.wired.sim.balancers().reset_writes().len();
        Written { balancers, floating: 0 }
    }

    fn stranger(&self, whose: Whose<'_>) -> String {
        let balancers = self.wired.sim.balancers();
        let id = format!("stranger-{}", balancers.all().len());
        let mut balancer = SimBalancer::foreign(&id, [10, 9, 9, 9].into(), 80);
        match whose {
            Whose::Person => {}
            Whose::Older(name) => balancer.made_for = Some(names(owner(name))),
            Whose::Namesake(name) => {
                balancer.name = format!("kubernetes_default_{name}");
                balancer.owners = vec![namesake(name)];
            }
            Whose::Neighbour(name) => balancer.owners = vec![owner(name)],
            Whose::Shared(one, other) => balancer.owners = vec![owner(one), owner(other)],
        }
        balancers.add(balancer);
        id
    }

    fn remove(&self, id: &str) {
        self.wired.sim.balancers().remove(id).unwrap();
    }

    fn harms(&self) -> &'static [Harm] {
        &[Harm::Listener, Harm::Members]
    }

    fn harm(&self, id: &str, harm: Harm) {
        self.update(id, |balancer| match harm {
            Harm::Listener => drop(balancer.configuration.listeners.remove(&(Protocol::Tcp, 443))),
            Harm::Members => balancer.members.clear(),
            other => panic!("{other:?}"),
        });
    }

    fn disown(&self, id: &str, rebuilt: bool) {
        self.update(id, |balancer| {
            let owner = balancer.owners.remove(0);
            match rebuilt {
                true => balancer.owners.push(namesake(&owner.name)),
                false => balancer.made_for = Some(names(owner)),
            }
            balancer.applied = None;
            balancer.members.iter_mut().for_each(|member| member.node.clear());
        });
    }

    fn drop_digest(&self, id: &str) {
        self.update(id, |balancer| balancer.applied = None);
    }

    fn break_down(&self, id: &str, cure: Cure) {
        self.update(id, |it| it.state = State::Failed { why: "ERROR".to_owned(), cure });
    }

    fn hold(&self, held: bool) {
        let hour = if held { Duration::from_hours(1) } else { Duration::ZERO };
        let times = Times { create: hour, configure: hour, members: hour, delete: hour };
        self.wired.sim.balancers().configure(|settings| settings.times = times);
        for balancer in self.wired.sim.balancers().all() {
            self.update(&balancer.id, |it| it.state = State::Ready);
        }
    }

    fn spoil(&self, id: &str, spoilt: bool) {
        let name = self.wired.sim.balancers().get(id).unwrap().name;
        let fault = FaultEffect::LoadBalancers(vec![name], Trouble::Malformed);
        self.wrong("spoilt", if spoilt { vec![fault] } else { Vec::new() });
    }

    fn hide(&self, hidden: bool) {
        MachineSide::hide(self, hidden);
    }
}

impl RouterSide for Side {
    fn table(&self) -> Vec<(IpNet, RouteTarget)> {
        let all = self.wired.sim.router().all();
        all.into_iter().map(|route| (route.destination, route.target.unwrap())).collect()
    }

    fn add(&self, destination: IpNet, target: RouteTarget) {
        let id = format!("by hand, to {destination}");
        self.wired.sim.router().add(SimRoute::foreign(id, destination, target));
    }

    fn retarget(&self, destination: IpNet, target: RouteTarget) {
        self.wired.sim.router().update(destination, |route| route.target = Some(target));
    }

    fn written(&self) -> usize {
        self.wired.sim.router().reset_writes().len()
    }

    fn limit(&self, most: usize) {
        self.wired.sim.router().configure(|it| it.quota = u32::try_from(most).ok());
    }

    fn break_new(&self, broken: bool) {
        let fault = FaultEffect::Routes(Vec::new(), Trouble::Break(Cure::Ensure));
        self.wrong("broken", if broken { vec![fault] } else { Vec::new() });
    }

    fn clear_targets(&self) {
        let router = self.wired.sim.router();
        for address in router.ports() {
            router.remove_port(address);
        }
        self.wired.sim.clear();
    }
}
