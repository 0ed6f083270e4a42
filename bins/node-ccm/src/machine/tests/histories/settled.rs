//! The end of a history: all faults end, and other clients write no more.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{AddressKind, Instance};
use ccm_controller::brake::approval::{KEYS, SELECTOR, SetApproval, UNTIL};
use ccm_objects::{Node, Shared as Name, node_keys::ZONE};
use ccm_runtime::explain::ObjectState;

use super::{
    super::super::*,
    Kind,
    cloud::{ILLEGAL, RACK, agrees, is_of_name, is_same_machine},
    kubelets::wanted,
    outside::Part,
    rules::{is_comparable, label_policy},
    world::World,
};
use crate::plan::{IdentityPolicy, InternalIpChange, LabelPolicy, WaitReason, addresses};

/// The end that a node should have.
#[derive(Debug, PartialEq)]
enum End {
    State(NodeState),
    /// Initialised, and as its instance.
    Right,
    /// Several nodes have the ID, but no node has the instance's name.
    Unclear,
}

impl World {
    /// Ends all faults and what other clients do, and approves all changes.
    pub(super) fn settle(&mut self) {
        if self.kind == Kind::Others {
            self.fight();
        }
        self.calm();
        let until = (self.now + Duration::from_hours(1000)).to_string();
        let annotation = |key: &str| match key {
            SELECTOR => Some("*".to_owned()),
            UNTIL => Some(until.clone()),
            _ => None,
        };
        self.approve(SetApproval::read(KEYS, annotation).unwrap());
        self.rounds(if self.params.is_observing { 3 } else { 20 });
        if self.params.is_observing {
            return self.is_explained();
        }
        self.is_right();
        self.rules.is_quiet = true;
        self.rounds(6);
        self.rules.is_quiet = false;
        // The machine hears of no change of these nodes.
        self.is_split = true;
        self.rounds(2);
        self.is_right();
        if self.kind == Kind::Doubts {
            self.others_go();
        }
    }

    /// Checks that the page announces a write for each node that does not agree with its instance.
    fn is_explained(&self) {
        for node in self.objects.values() {
            let Some(instance) = self.find(node).filter(|_| self.end(node) == End::Right) else {
                continue;
            };
            let told = self.told(node);
            let is_due = node.is_uninitialised() || node.provider_id.is_none();
            let is_fine = told.state == ObjectState::Fine;
            assert!(!(is_due && is_fine), "Explained: {told:?} of {node:?}, {instance:?}");
        }
    }

    fn rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.begin_refresh();
            self.work(Duration::from_secs(61));
        }
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.drops.clear();
        self.fights.clear();
        self.params.selector = "!edge".parse().unwrap();
        let params = self.params_without();
        self.hear(Event::Set(params));
    }

    /// Lets another client set the taint of new nodes again, at once and for a while. The user is
    /// told.
    fn fight(&mut self) {
        self.drops.clear();
        self.fights.clear();
        let names: Vec<Name> = self.objects.keys().map(Name::clone).collect();
        for name in names {
            self.fights.insert((name, Part::Taint));
        }
        self.claims.contested.clear();
        self.rules.untaints.clear();
        self.work(Duration::from_mins(3));
        for (uid, times) in &self.rules.untaints {
            let is_told = *times < 5 || self.claims.contested.contains(uid);
            assert!(is_told, "Told: {uid} has lost its taint {times} times, and no report says so");
        }
    }

    /// Removes the nodes that are named like the instances of others: those may have their IDs at
    /// once.
    fn others_go(&mut self) {
        let held = |world: &Self, node: &Arc<Node>| {
            let instance = world.find(node)?;
            let is_its = is_same_machine(node, instance) && node.provider_id.is_some();
            let waits = world.end(node) == End::State(NodeState::Waiting(WaitReason::Identity));
            let id = node.provider_id.as_deref();
            let rivals = world.rivals_in_store(node, id);
            let one =
                rivals.first().filter(|one| rivals.len() == 1 && is_of_name(one, instance))?;
            (is_its && waits).then(|| (Name::clone(&node.name), Name::clone(&one.name)))
        };
        let mut all = self.objects.values().filter_map(|node| held(self, node));
        let Some((name, other)) = all.next_back() else { return };
        self.goes(&other);
        let Some(node) = self.store.get(&name).cloned() else { return };
        self.work(Duration::from_secs(30));
        if self.end(&node) == End::Right {
            let is_new = self.objects.get(&name).is_some_and(|node| node.is_uninitialised());
            assert!(!is_new, "Soon: {name} waits, and the other node of its ID is gone");
        }
    }

    fn end(&self, node: &Arc<Node>) -> End {
        let is_new = node.is_uninitialised();
        if !self.is_selected(node) {
            return End::State(NodeState::NotSelected);
        } else if self.is_foreign(node) {
            return End::State(NodeState::Foreign);
        }
        let Some(instance) = self.find(node) else {
            let waits = NodeState::Waiting(WaitReason::InstanceNotFound);
            return End::State(if is_new { waits } else { NodeState::InstanceGone });
        };
        let rivals = self.rivals_in_store(node, Some(instance.provider_id.as_str()));
        let is_named = is_of_name(node, instance);
        if !rivals.is_empty() && !is_named && !rivals.iter().any(|one| is_of_name(one, instance)) {
            return End::Unclear;
        }
        let has_id = node.provider_id.is_some();
        let is_anothers = !rivals.is_empty() && !is_named;
        let agrees = agrees(node, instance) || !is_comparable(node, instance);
        let is_strict = self.params.policy.identity == IdentityPolicy::Strict;
        let is_held = is_strict && (is_anothers || has_id && !agrees);
        match (is_new, has_id) {
            (true, _) if is_held => End::State(NodeState::Waiting(WaitReason::Identity)),
            (true, _) => self
                .lacks_address(node, instance)
                .map_or(End::Right, |reason| End::State(NodeState::Waiting(reason))),
            (false, false) if is_held || !is_confirmed(node, instance) => {
                End::State(NodeState::Unconfirmed)
            }
            (false, _) => End::Right,
        }
    }

    /// Returns the reason why a new node waits for an address.
    fn lacks_address(&self, node: &Node, instance: &Instance) -> Option<WaitReason> {
        let asked = wanted(node);
        let has = |ip: &String| instance.addresses.iter().any(|one| one.address == *ip);
        if !asked.iter().all(has) {
            return Some(WaitReason::NodeIp);
        }
        let has_ip = ips(instance).next().is_some();
        let names = instance.addresses.iter().any(|one| one.kind == AddressKind::Hostname);
        let is_known = has_ip || !names && addresses::have_ip(&node.addresses);
        (!is_known && !self.params.policy.without_address).then_some(WaitReason::NoAddress)
    }

    /// Checks that each node has ended as it should.
    fn is_right(&self) {
        for node in self.objects.values() {
            let end = self.end(node);
            let state = self.machine.state(&node.name);
            let told = self.told(node);
            let shown = || format!("{end:?}, {state:?}, {:?}: {node:?}, {told:?}", self.find(node));
            match &end {
                End::Unclear => {}
                End::State(end) => assert_eq!(Some(*end), state, "Converges: {}", shown()),
                End::Right => {
                    assert!(!node.is_uninitialised(), "Converges: {}", shown());
                    assert!(node.provider_id.is_some(), "Converges: {}", shown());
                    assert_eq!(state, Some(NodeState::Initialised), "Converges: {}", shown());
                    let Some(instance) = self.find(node) else { continue };
                    self.is_as(node, instance);
                    self.is_noted(node, instance);
                }
            }
        }
        let machine = &self.machine;
        assert!(machine.writing.is_empty(), "Ends: nothing is written any more");
        assert_eq!(machine.waiting(), 0, "Turns: {:?}: {:?}", machine.turns, self.objects);
        let brake = machine.brake(self.now);
        let is_free = brake.held.is_none() && brake.cause.is_none();
        assert!(is_free, "Held: all is approved: {brake:?}");
        let is_there = |name: &Name| self.store.contains_key(name);
        assert!(machine.entries.keys().all(is_there), "Forgotten: nodes that are gone");
    }

    /// Checks that the node agrees with its instance.
    fn is_as(&self, node: &Node, instance: &Instance) {
        let shown = || format!("{instance:?}: {node:?}");
        let asked = wanted(node);
        let internal = instance
            .addresses
            .iter()
            .find(|one| one.kind == AddressKind::InternalIp && one.address.contains(['.', ':']));
        let holds = self.params.policy.internal_ip_change == InternalIpChange::Hold;
        if let Some(internal) = internal.filter(|_| asked.is_empty() && !holds) {
            let own = addresses::primary(&node.addresses);
            assert_eq!(own, Some(&*internal.address), "Converges: {}", shown());
        }
        if label_policy(node, self.params.policy.labels) == LabelPolicy::Follow {
            let zone = node.labels.get(ZONE.1).map(|zone| &**zone);
            let is_right =
                zone == instance.zone.as_deref() || instance.zone.as_deref() == Some(ILLEGAL);
            assert!(is_right, "Converges: {}", shown());
            let rack = node.labels.get(RACK).map(|rack| &**rack);
            let wanted = instance.labels.get(RACK).map(|rack| &**rack);
            let may_stay = self.labels_only_add && wanted.is_none();
            assert!(rack == wanted || may_stay, "Owned: {}", shown());
        }
        let fits = asked.is_empty() && internal.is_some() && !holds;
        if fits && agrees(node, instance) && self.is_alone(node, instance) {
            let told = self.told(&Arc::new(node.clone()));
            assert_eq!(told.state, ObjectState::Fine, "Explained: {told:?}: {}", shown());
        }
    }

    fn is_alone(&self, node: &Node, instance: &Instance) -> bool {
        is_of_name(node, instance)
            || self.rivals_in_store(node, Some(instance.provider_id.as_str())).is_empty()
    }

    /// Checks that the user was told what of the cloud's answer was left out.
    fn is_noted(&self, node: &Node, instance: &Instance) {
        let noted = self.claims.noted.get(&*node.uid).cloned().unwrap_or_default();
        let is_off = instance.addresses.iter().any(|one| one.address == "not-an-address");
        assert!(!is_off || noted.contains("InvalidAddress"), "Noted: {noted:?} of {instance:?}");
        let is_v6 = |ip: &str| ip.contains(':');
        let internal = || ips(instance).filter(|ip| *ip != "192.0.2.1");
        let left_out = wanted(node).iter().any(|own| {
            let knows = internal().any(|ip| ip == own);
            knows && internal().any(|ip| is_v6(ip) != is_v6(own))
        });
        let is_told = noted.contains("NodeIPFamilyLeftOut");
        assert!(is_told || !left_out, "Noted: {noted:?} of {node:?}, {instance:?}");
    }
}

/// Returns the IP addresses of the instance.
fn ips(instance: &Instance) -> impl Iterator<Item = &str> {
    let all = instance.addresses.iter().map(|one| &*one.address);
    all.filter(|one| one.parse::<std::net::IpAddr>().is_ok())
}

/// Returns true if more than the name shows that the instance is the node's.
fn is_confirmed(node: &Node, instance: &Instance) -> bool {
    let is_own = |ip: &str| {
        node.addresses.iter().any(|own| *own.address == *ip)
            || wanted(node).iter().any(|own| own == ip)
    };
    is_same_machine(node, instance) || ips(instance).any(is_own)
}
