//! The events of a history: nodes come and go, the cloud fails, and others change the routes.

use std::net::{IpAddr, Ipv4Addr};

use ccm_cloud::{ErrorKind, Owner, Route};

use super::{
    cloud::{Operation, Trouble},
    nodes::{addresses, name_of},
    *,
};

/// Returns an address that machines do not have.
pub(super) fn port(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 8, last).into()
}

/// Returns the network of a route that people make inside the cluster CIDRs.
fn of_people(number: u32) -> IpNet {
    net(&format!("10.120.{}.0/24", 211 + number % 40))
}

pub(super) fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

fn owner(cluster_uid: &str, uid: String, name: &str) -> Owner {
    let (namespace, name) = (String::new(), name.to_owned());
    Owner { cluster: cluster(cluster_uid), uid, namespace, name }
}

fn route(id: String, destination: IpNet, target: Option<IpAddr>) -> Route {
    let target = target.map(RouteTarget::Address);
    Route { id: Some(id), destination, target, owner: None, defect: None }
}

impl World {
    /// Adds the routes of others: of people, of another cluster and of this cluster before it was
    /// rebuilt. The routes without an owner lead to something that exists, except one
    /// that is left.
    pub(super) fn add_others(&mut self) {
        let others = [
            ("0.0.0.0/0", Some([10, 9, 9, 1]), None),
            ("10.0.0.0/8", Some([10, 9, 9, 77]), None),
            ("172.16.0.0/12", Some([10, 9, 9, 78]), None),
            ("10.120.200.0/24", Some([10, 9, 9, 2]), None),
            ("10.120.201.0/24", Some([10, 9, 9, 3]), Some("c-2")),
            ("10.120.202.0/24", Some([10, 9, 9, 4]), Some("c-0")),
            ("10.121.203.0/24", Some([10, 9, 9, 79]), Some("c-2")),
            ("10.120.204.0/24", None, None),
        ];
        let records = self.router.records_owner;
        // A route that is recorded as another cluster's stays, also if its target does not exist.
        for last in if records { 1..3 } else { 1..5 } {
            self.router.ports.insert([10, 9, 9, last].into());
        }
        for (number, (destination, target, cluster)) in (0..).zip(others) {
            let mut route =
                route(format!("of-others-{number}"), net(destination), target.map(IpAddr::from));
            let cluster = cluster.filter(|_| records);
            route.owner = cluster.map(|uid| owner(uid, "1".to_owned(), "node-00"));
            self.router.add(route, true);
        }
        let left = route("left".to_owned(), net("10.120.210.0/24"), Some([10, 9, 9, 99].into()));
        self.router.add(left, false);
    }

    /// Lets one random thing happen, and then some time pass.
    pub(in super::super) fn step(&mut self) {
        let number = self.dice.random_range(0..NODES);
        let name = name_of(number);
        match self.dice.random_range(0..114) {
            0..20 => self.node(number),
            20..28 => self.replace_node(number),
            28..33 => self.incomplete_node(number),
            33..36 => self.odd_node(number),
            36..38 => self
                .nodes
                .keys()
                .cloned()
                .collect::<Vec<_>>()
                .iter()
                .for_each(|name| self.delete(name)),
            38..44 => (0..NODES).for_each(|number| self.add_node(number)),
            44..50 => self.lie(),
            50..68 => self.fault(),
            68..80 => self.person(),
            80..84 => self.late_port(),
            84..87 => self.deny(),
            87..90 => self.stale_leader(),
            90..92 => self.router.create = Duration::from_secs(self.dice.random_range(0..10)),
            92..94 => self.toggle_rival(),
            94..97 => self.take_over(),
            97..100 => self.restart(),
            100..103 => self.label(&name, true),
            103..106 => self.label(&name, false),
            106..108 => self.claim(&name),
            108..110 => self.other_period(),
            110..112 => self.store_memory(),
            _ => self.old_table = self.router.table(),
        }
        let longest = if self.dice.random_bool(0.2) { 120_000 } else { 8000 };
        let time = Duration::from_millis(self.dice.random_range(0..longest));
        self.run(time);
        self.explain();
    }

    /// Deletes, adds, moves or marks a node.
    fn node(&mut self, number: u8) {
        let name = name_of(number);
        if !self.nodes.contains_key(&name) {
            return self.add_node(number);
        }
        match self.dice.random_range(0..5) {
            0 | 1 => self.delete_node(&name),
            2 => self.mark(&name, true),
            3 => self.mark(&name, false),
            _ => self.moves(&name),
        }
    }

    /// Deletes a node, and most times its machine.
    pub(super) fn delete_node(&mut self, name: &Name) {
        let id = self.nodes.get(name).and_then(|node| node.provider_id.clone());
        if let Some(id) = id.filter(|_| self.dice.random_bool(0.8)) {
            self.router.machines.remove(&*id);
        }
        self.delete(name);
    }

    /// Replaces a node by one with the same name and another machine, and perhaps another pod CIDR.
    fn replace_node(&mut self, number: u8) {
        self.delete_node(&name_of(number));
        let is_free = |cidr: &u8| {
            let cidr = format!("10.120.{cidr}.0/24");
            !self.nodes.values().any(|node| node.pod_cidrs.iter().any(|one| **one == *cidr))
        };
        let free: Vec<u8> = (0..NODES + 6).filter(is_free).collect();
        let cidr = free[self.dice.random_range(0..free.len())];
        self.add_node_with(number, cidr);
    }

    /// Adds a node that gets its provider ID, addresses or pod CIDRs after its registration.
    fn incomplete_node(&mut self, number: u8) {
        let lacks = |node: &&Arc<Node>| {
            node.pod_cidrs.is_empty() || node.provider_id.is_none() || node.addresses.is_empty()
        };
        if let Some(node) = self.nodes.values().find(lacks).cloned() {
            return self.completes(&node);
        }
        let name = name_of(number);
        if self.nodes.contains_key(&name) {
            return;
        }
        let cidrs = self.cidrs(number);
        let mut node = self.complete_node(&name, cidrs);
        if self.dice.random() {
            node.pod_cidrs.clear();
        }
        if self.dice.random() {
            node.provider_id = None;
        }
        if self.dice.random() {
            node.addresses.clear();
        }
        self.put(node);
    }

    /// Gives the node what it lacks.
    pub(super) fn completes(&mut self, node: &Node) {
        let named = self.router.machines.iter().rev().find(|(_, one)| *one.name == *node.name);
        let found = named.map(|(id, one)| (id.clone(), one.ips.clone()));
        let (id, ips) = found.unwrap_or_else(|| self.add_machine(&node.name));
        let number: u8 = node.name.trim_start_matches("node-").parse().unwrap_or_default();
        let cidrs = self.cidrs(number);
        let is_new = node.provider_id.is_none();
        self.change(&node.name, |node| {
            node.provider_id.get_or_insert_with(|| id.as_str().into());
            if node.pod_cidrs.is_empty() {
                node.pod_cidrs = cidrs;
            }
            if is_new || node.addresses.is_empty() {
                node.addresses = addresses(&ips);
            }
        });
    }

    /// Adds a node with the pod CIDR of another one, with a part of it, or with one outside.
    fn odd_node(&mut self, number: u8) {
        let name = name_of(number);
        if self.nodes.contains_key(&name) {
            return self.delete_node(&name);
        }
        let other = self.dice.random_range(0..NODES);
        let cidr = match self.dice.random_range(0..3) {
            0 => format!("10.120.{other}.0/24"),
            1 => format!("10.120.{other}.128/25"),
            _ => format!("10.99.{other}.0/24"),
        };
        let node = self.complete_node(&name, vec![cidr.into()]);
        self.put(node);
    }

    fn fault(&mut self) {
        let on = [Operation::Apply, Operation::List, Operation::Find, Operation::LookUp]
            [self.dice.random_range(0..7usize) / 2];
        let number = self.dice.random_range(0..NODES);
        let destination = self.cidrs(number).first().map_or_else(IpNet::default, |one| net(one));
        let one = Some((name_of(number), destination));
        let slow = Duration::from_millis(self.dice.random_range(100..20_000));
        let (trouble, one) = match self.dice.random_range(0..15) {
            0 => (Trouble::Fails(ErrorKind::Unavailable), None),
            1 => (Trouble::Fails(ErrorKind::Throttled), None),
            2 => (Trouble::Hangs, None),
            3 => (Trouble::ShowsNothing, None),
            4 => (Trouble::ShowsSome(self.dice.random_range(0..20)), None),
            5 => (Trouble::ShowsOld, None),
            6 => (Trouble::Hangs, one),
            7 => (Trouble::LosesAnswer, one),
            8 => (Trouble::IsLate, one),
            9 => (Trouble::Breaks, one),
            10 => (Trouble::Fails(ErrorKind::Invalid), one),
            11 => (Trouble::Malformed, one),
            12 => (Trouble::Fails(ErrorKind::QuotaExceeded), None),
            13 => (Trouble::Slow(slow), None),
            _ => (Trouble::LosesAnswer, None),
        };
        self.lasts(Fault { trouble, on, one, until: At::default() });
    }

    /// Lets the fault last for up to a minute.
    fn lasts(&mut self, fault: Fault) {
        let now = self.now;
        self.faults.retain(|fault| now < fault.until);
        let until = now + Duration::from_secs(self.dice.random_range(1..60));
        self.faults.push(Fault { until, ..fault });
    }

    /// Returns a route of ours, by chance.
    fn any_of_ours(&mut self) -> Option<Route> {
        let mut ours = self.router.only_ours();
        let place = self.dice.random_range(0..ours.len().max(1));
        (place < ours.len()).then(|| ours.swap_remove(place))
    }

    fn touch(&mut self, destination: IpNet) {
        self.rules.touched.insert(destination, self.now);
    }

    /// Lets a person change, double or delete a route of ours, or make their own route.
    fn person(&mut self) {
        self.made += 1;
        let (id, last) = (format!("of-people-{}", self.made), self.dice.random());
        let ours = if self.dice.random_bool(0.2) { None } else { self.any_of_ours() };
        let Some(ours) = ours else {
            self.router.ports.insert(port(last));
            let theirs = route(id, of_people(self.made), Some(port(last)));
            return self.router.add(theirs, true);
        };
        let destination = ours.destination;
        self.touch(destination);
        match self.dice.random_range(0..4) {
            0 => self.router.remove(destination),
            1 => {
                let target = self.any_of_ours().and_then(|other| other.target);
                let first =
                    self.router.routes.get_mut(&destination).and_then(|all| all.first_mut());
                if let Some(first) = first {
                    first.route.target = target;
                }
                self.router.version += 1;
            }
            2 if !self.router.records_owner => {
                self.router.ports.insert(port(last));
                self.router.remove(destination);
                self.router.add(route(id, destination, Some(port(last))), true);
            }
            _ => self.router.add(Route { id: Some(id), ..ours }, false),
        }
    }

    /// Lets a person make a route to something that comes a little later.
    fn late_port(&mut self) {
        self.made += 1;
        let (id, address) = (format!("early-{}", self.made), port(self.dice.random()));
        if self.router.exists(&RouteTarget::Address(address)) {
            return;
        }
        let theirs = route(id, of_people(self.made), Some(address));
        self.router.add(theirs, true);
        let after = Duration::from_secs(self.dice.random_range(5..50));
        self.later(after, Due::Port(address));
    }

    /// Lets the cloud say for a while that nothing exists.
    fn deny(&mut self) {
        self.denies_until = self.now + Duration::from_secs(self.dice.random_range(30..300));
    }

    /// Lets a leader of the past change the table.
    fn stale_leader(&mut self) {
        let Some(ours) = self.any_of_ours() else { return };
        self.touch(ours.destination);
        if self.dice.random_bool(0.3) {
            return self.router.remove(ours.destination);
        }
        // The process knew another node, which is gone.
        self.made += 1;
        let uid = format!("stale-{}", self.made);
        let [.., last] = (self.made % 250 + 1).to_be_bytes();
        let destination = match self.dice.random() {
            true => of_people(self.made + 20),
            false => {
                self.router.remove(ours.destination);
                ours.destination
            }
        };
        if !self.router.to(destination).is_empty() {
            return;
        }
        let mut stale = route(uid.clone(), destination, Some([10, 7, 0, last].into()));
        let records = self.router.records_owner;
        stale.owner = records.then(|| owner(CLUSTER, uid, "node-gone"));
        self.router.add(stale, false);
    }

    /// Lets a standby take over that has not seen the last changes of nodes.
    pub(super) fn take_over(&mut self) {
        if !self.hidden.is_empty() {
            return;
        }
        let standby = self.process();
        for _ in 0..self.dice.random_range(1..4) {
            let number = self.dice.random_range(0..NODES);
            if self.dice.random() {
                self.replace_node(number);
            } else {
                self.node(number);
            }
        }
        let time = Duration::from_secs(self.dice.random_range(3..25));
        self.run(time);
        self.lead(standby);
    }

    /// Sets another period of lists.
    fn other_period(&mut self) {
        let is_rare = self.parameters.period > Duration::from_mins(1);
        self.parameters.period = Duration::from_secs(if is_rare { 30 } else { 600 });
        self.wake();
    }
}
