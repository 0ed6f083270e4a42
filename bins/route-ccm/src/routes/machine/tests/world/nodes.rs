//! The API server, and the nodes as a process sees them.

use std::net::IpAddr;

use ccm_cloud::ProviderId;
use ccm_kube::ApiError;
use ccm_objects::{Address, Condition, Labels, Taint};

use super::{
    router::Computer,
    truth::{ips, is_left_out},
    *,
};
use crate::routes::{
    machine::Written,
    plan::{
        condition::{NETWORK_UNAVAILABLE, NewCondition},
        wanted::LeftOut,
    },
};

/// The label of excluded nodes.
pub(super) const EDGE: &str = "edge";
/// The reason of another controller that writes the condition, as cilium-operator does.
pub(super) const RIVAL: &str = "CiliumIsUp";
const INTERNAL: &str = "InternalIP";

/// A process that does not lead yet.
pub(super) struct Process {
    pub(super) machine: Machine,
    pub(super) store: BTreeMap<Name, NodeView>,
    pub(super) known: BTreeMap<RouteTarget, Arc<Node>>,
}

pub(super) fn name_of(number: u8) -> Name {
    format!("node-{number:02}").into()
}

pub(super) fn condition(status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        kind: NETWORK_UNAVAILABLE.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
    }
}

/// Returns the targets of a node, in all forms.
fn targets(view: &NodeView) -> impl Iterator<Item = RouteTarget> {
    let id = view.id.clone().map(RouteTarget::Instance);
    let name = RouteTarget::Node(view.node.name.to_string());
    view.ips().map(RouteTarget::Address).chain(id).chain([name])
}

impl World {
    /// Returns a process that has read all nodes.
    pub(super) fn process(&self) -> Process {
        let (mut machine, mut known) = (machine(), BTreeMap::new());
        let shown = self.nodes.values().filter(|node| !self.hidden.contains(&node.name));
        let store: BTreeMap<Name, NodeView> =
            shown.map(|node| (Name::clone(&node.name), self.view(node))).collect();
        for view in store.values() {
            known.extend(targets(view).map(|target| (target, Arc::clone(&view.node))));
            machine.apply(Event::Changed { before: None, after: view.clone() }, self.now);
        }
        Process { machine, store, known }
    }

    fn view(&self, node: &Arc<Node>) -> NodeView {
        let id = node.provider_id.as_deref().and_then(|id| ProviderId::parse(id).ok());
        let is_left_out = is_left_out(node) && self.variant != Variant::NobodyLeftOut;
        let left_out = is_left_out.then_some(LeftOut::NotSelected);
        let mut node = Arc::clone(node);
        if self.variant == Variant::UnseenConditions {
            Arc::make_mut(&mut node).conditions.clear();
        }
        NodeView { node, id, left_out }
    }

    /// Shows the process all nodes as they are.
    pub(super) fn catch_up(&mut self) {
        let names: BTreeSet<Name> = self.nodes.keys().chain(self.store.keys()).cloned().collect();
        for name in names {
            self.sync(&name);
        }
    }

    /// Shows the process this node as it is.
    pub(super) fn sync(&mut self, name: &Name) {
        let there = self.nodes.get(name);
        match there.filter(|node| is_left_out(node)) {
            Some(node) => drop(self.rules.left_out.entry(node.uid.clone()).or_insert(self.now)),
            None => drop(there.map(|node| self.rules.left_out.remove(&node.uid))),
        }
        if self.is_blind {
            return;
        }
        let shown = there.filter(|_| !self.hidden.contains(name));
        let after = shown.map(|node| self.view(node));
        let before = match &after {
            Some(view) => self.store.insert(Name::clone(name), view.clone()),
            None => self.store.remove(name),
        };
        for view in before.iter().chain(&after) {
            self.known.extend(targets(view).map(|target| (target, Arc::clone(&view.node))));
        }
        match (before, after) {
            (Some(before), None) => {
                let is_marked = !before.node.taints.is_empty();
                let marked = targets(&before).filter(|_| is_marked);
                self.marked.extend(marked.map(|target| (target, None)));
                let is_marked = before.node.has_taint_of(&[TAINT.to_owned()]);
                self.tell(Event::Gone { view: before, is_marked });
            }
            (before, Some(after)) => {
                for target in targets(&after) {
                    self.marked.entry(target).and_modify(|since| {
                        since.get_or_insert(self.now);
                    });
                }
                if before.as_ref().is_none_or(|before| before.node != after.node) {
                    self.tell(Event::Changed { before, after });
                }
            }
            (None, None) => {}
        }
    }

    /// Replaces the node of this name on the API server.
    pub(super) fn put(&mut self, node: Node) {
        let name = Name::clone(&node.name);
        self.hidden.remove(&name);
        let before = self.nodes.get(&name);
        let is_same = |before: &Arc<Node>| {
            (&before.uid, &before.pod_cidrs, &before.addresses, &before.provider_id)
                == (&node.uid, &node.pod_cidrs, &node.addresses, &node.provider_id)
        };
        if !before.is_some_and(is_same) {
            self.rules.moved.insert(node.uid.clone(), self.now);
        }
        self.nodes.insert(Name::clone(&name), Arc::new(node));
        self.sync(&name);
    }

    pub(super) fn change(&mut self, name: &Name, change: impl FnOnce(&mut Node)) {
        let Some(node) = self.nodes.get(name) else { return };
        let mut node = Node::clone(node);
        change(&mut node);
        self.put(node);
    }

    pub(super) fn delete(&mut self, name: &Name) {
        self.nodes.remove(name);
        self.sync(name);
    }

    /// Returns a new node of this name, as it registers.
    pub(super) fn new_node(&mut self, name: &Name) -> Node {
        self.made += 1;
        // Creation times are whole seconds.
        let created = At(Duration::from_secs(self.now.0.as_secs())).to_string();
        Node {
            name: Name::clone(name),
            uid: format!("u-{}", self.made).into(),
            created: created.parse().ok(),
            ..Node::default()
        }
    }

    /// Registers a node with its own machine and the pod CIDRs of its number.
    pub(super) fn add_node(&mut self, number: u8) {
        self.add_node_with(number, number);
    }

    pub(super) fn add_node_with(&mut self, number: u8, cidr: u8) {
        let name = name_of(number);
        if self.nodes.contains_key(&name) {
            return;
        }
        let cidrs = self.cidrs(cidr);
        let node = self.complete_node(&name, cidrs);
        self.put(node);
    }

    /// Returns a new node with its own machine.
    pub(super) fn complete_node(&mut self, name: &Name, cidrs: Vec<Box<str>>) -> Node {
        let (id, ips) = self.add_machine(name);
        let node = self.new_node(name);
        let (provider_id, addresses) = (Some(id.as_str().into()), addresses(&ips));
        Node { provider_id, addresses, pod_cidrs: cidrs, ..node }
    }

    /// Returns the pod CIDRs of this number.
    pub(super) fn cidrs(&self, number: u8) -> Vec<Box<str>> {
        let v6 = self.is_dual.then(|| format!("fd00:120:0:{number:x}::/64").into());
        [format!("10.120.{number}.0/24").into()].into_iter().chain(v6).collect()
    }

    /// Returns a new machine of this name, perhaps with an address that another one had before.
    pub(super) fn add_machine(&mut self, name: &str) -> (String, Vec<IpAddr>) {
        self.made += 1;
        let (id, ips) = (format!("sim://i-{:04}", self.made), self.free_addresses());
        let computer = Computer { name: name.to_owned(), ips: ips.clone() };
        self.router.machines.insert(id.clone(), computer);
        (id, ips)
    }

    /// Returns a free address of each family.
    pub(super) fn free_addresses(&mut self) -> Vec<IpAddr> {
        // They are few, so that others have had them, but enough for the remaining machines.
        let most = if self.router.machines.len() < 30 { 40 } else { 250 };
        loop {
            let last: u8 = self.dice.random_range(1..most);
            let v4 = IpAddr::from([10, 0, 0, last]);
            if !self.router.has_address(v4) {
                let v6 = IpAddr::from([0xfd00, 1, 0, 0, 0, 0, 0, u16::from(last)]);
                return vec![v4, v6];
            }
        }
    }

    /// Moves the node to other addresses, with its machine.
    pub(super) fn moves(&mut self, name: &Name) {
        let id = self.nodes.get(name).and_then(|node| node.provider_id.clone());
        let Some(id) = id.filter(|id| self.router.machines.contains_key(&**id)) else { return };
        let ips = self.free_addresses();
        if let Some(computer) = self.router.machines.get_mut(&*id) {
            computer.ips.clone_from(&ips);
        }
        self.change(name, |node| node.addresses = addresses(&ips));
    }

    /// Writes the condition of a node as the program does.
    pub(super) fn write(&mut self, node: &Arc<Node>, condition: NewCondition) {
        self.check_write(node, &condition);
        let answer = self.written(node, &condition);
        let (asked, status, moves) = (Arc::clone(node), condition.status, condition.moves);
        self.tell(Event::Written(Box::new(Written { asked, status, moves, answer, lack: None })));
    }

    fn written(&mut self, asked: &Node, new: &NewCondition) -> Result<NodeView, Option<ApiError>> {
        let there = self.nodes.get(&asked.name).filter(|there| there.uid == asked.uid);
        let there = Arc::clone(there.ok_or(Some(ApiError::NotFound))?);
        match self.dice.random_range(0..100) {
            0..2 if self.has_faults => return Err(None),
            2..5 if self.has_faults => return Err(Some(ApiError::Conflict)),
            5..7 if self.has_faults => return Err(Some(ApiError::Throttled { retry_after: None })),
            // A policy undoes the write.
            7 if self.has_faults => return Ok(self.seen_write(self.view(&there), new)),
            _ => {}
        }
        self.rules.count_writes(self.now, asked);
        let shown = condition(new.status.as_str(), new.reason, &new.message);
        self.change(&asked.name, |node| node.conditions = vec![shown]);
        let there = self.nodes.get(&asked.name).ok_or(Some(ApiError::NotFound))?;
        Ok(self.view(there))
    }

    /// Writes as another controller, each second, that the network of each node is up.
    pub(super) fn rival(&mut self, turn: u32) {
        if !self.has_rival {
            return;
        }
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            // It is as if the program mistook each heartbeat for a change of the node.
            if self.variant == Variant::NoPause {
                self.change(&name, |node| {
                    node.addresses.retain(|one| *one.kind == *INTERNAL);
                    node.addresses.push(Address::new("Hostname", format!("turn-{turn}")));
                });
            }
            let node = self.nodes.get(&name);
            if node.is_some_and(|node| node.condition(NETWORK_UNAVAILABLE) == Some("True")) {
                let shown = condition("False", RIVAL, "");
                self.change(&name, |node| node.conditions = vec![shown]);
            }
        }
        self.later(Duration::from_secs(1), Due::Rival(turn + 1));
    }

    /// Starts or stops the competing writer.
    pub(super) fn toggle_rival(&mut self) {
        self.has_rival = !self.has_rival;
        self.agenda.retain(|_, due| !matches!(due, Due::Rival(_)));
        self.rival(0);
    }

    /// Lets the API server show no node, or some, until it is asked again.
    pub(super) fn lie(&mut self) {
        if !self.hidden.is_empty() {
            return self.tell_the_truth();
        }
        let count =
            if self.dice.random() { 0 } else { self.dice.random_range(1..usize::from(NODES)) };
        self.hidden = self.nodes.keys().skip(count).cloned().collect();
        self.catch_up();
        let lasting = Duration::from_secs(self.dice.random_range(1..90));
        self.later(lasting, Due::Truth);
    }

    /// Shows all nodes again.
    pub(super) fn tell_the_truth(&mut self) {
        self.agenda.retain(|_, due| !matches!(due, Due::Truth));
        for name in mem::take(&mut self.hidden) {
            let since =
                self.nodes.get(&name).and_then(|node| self.rules.left_out.get_mut(&node.uid));
            if let Some(since) = since {
                *since = self.now;
            }
        }
        self.catch_up();
    }

    /// Returns a node that exists for the process alone.
    pub(super) fn phantom(&self) -> Option<NodeView> {
        let node = || Node { name: "phantom".into(), uid: "phantom".into(), ..Node::default() };
        let view = || NodeView { node: Arc::new(node()), id: None, left_out: None };
        (self.variant == Variant::PhantomNode).then(view)
    }

    /// Sets a taint on the node as an autoscaler does, or removes it.
    pub(super) fn mark(&mut self, name: &Name, is_marked: bool) {
        let taint = Taint { key: TAINT.into(), ..Taint::default() };
        self.change(name, |node| node.taints = is_marked.then_some(taint).into_iter().collect());
    }

    /// Sets or removes the label that excludes a node.
    pub(super) fn label(&mut self, name: &Name, is_left_out: bool) {
        let edge: Option<(Name, Name)> = is_left_out.then(|| (EDGE.into(), "".into()));
        let labels: Labels = edge.into_iter().collect();
        self.change(name, |node| node.labels = labels);
    }

    /// A kubelet reports an address for its node that belongs to a port of another project.
    pub(super) fn claim(&mut self, name: &Name) {
        let ports: Vec<IpAddr> = self.router.ports.iter().copied().collect();
        if let Some(port) = ports.get(self.dice.random_range(0..ports.len().max(1))) {
            let claimed = Address::new(INTERNAL, port.to_string());
            self.change(name, |node| {
                if !ips(node).any(|ip| ip == *port) && !node.addresses.is_empty() {
                    node.addresses.push(claimed);
                }
            });
        }
    }
}

pub(super) fn addresses(ips: &[IpAddr]) -> Vec<Address> {
    ips.iter().map(|ip| Address::new(INTERNAL, ip.to_string())).collect()
}
