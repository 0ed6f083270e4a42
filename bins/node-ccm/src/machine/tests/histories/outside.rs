//! The API server, and what other clients and the operator do there.

use std::{collections::BTreeMap, sync::Arc};

use ccm_kube::ApiError;
use ccm_objects::{Address, Node, NodeChange, Shared as Name, Taint, node_keys::ZONE};

use super::{
    super::super::*,
    super::tainted,
    Kind,
    kubelets::NODES,
    variants::Without,
    world::{Basis, World},
};
use crate::plan::{APPROVED, Step, UNINITIALIZED, is_approved};

/// A part of a node that admission policies drop, or that another client sets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Addresses,
    Taint,
    Labels,
}

/// The answer of the API server to a write; `None`: nothing was sent.
pub(super) type Answered = Result<Arc<Node>, Option<ApiError>>;

/// Sets these keys, or removes them.
fn edit<V: for<'a> From<&'a str>>(
    map: &mut BTreeMap<Name, V>,
    changes: &BTreeMap<String, Option<String>>,
) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key.as_str().into(), value.as_str().into())),
            None => drop(map.remove(key.as_str())),
        }
    }
}

/// Returns the node after this write, without the parts that are dropped.
pub(super) fn changed(node: &Node, step: &Step, is_dropped: impl Fn(Part) -> bool) -> Node {
    let mut new = node.clone();
    match step {
        Step::SetAddresses { addresses, ends_approval, .. } => {
            if !is_dropped(Part::Addresses) {
                new.addresses.clone_from(addresses);
            }
            if *ends_approval {
                new.annotations.remove(APPROVED);
            }
        }
        Step::ChangeNode(change) => {
            let NodeChange { labels, annotations, provider_id, taints, .. } = change;
            if !is_dropped(Part::Labels) {
                edit(&mut new.labels, labels);
            }
            edit(&mut new.annotations, annotations);
            if let Some(taints) = taints.as_ref().filter(|_| !is_dropped(Part::Taint)) {
                new.taints.clone_from(taints);
            }
            if let Some(id) = provider_id {
                let is_own = node.provider_id.as_deref().is_none_or(|own| *own == **id);
                assert!(is_own, "Id: an ID was replaced: {node:?}");
                new.provider_id = Some(id.as_str().into());
            }
        }
    }
    new
}

impl World {
    /// Carries out a write as the API server does, or refuses it. Its answer may be lost.
    pub(super) fn write(&mut self, node: &Arc<Node>, step: &Step, basis: &Basis) -> Answered {
        let fails = !self.is_calm && self.kind == Kind::Faults && self.random.one_in(4);
        let errors = [
            None,
            Some(ApiError::Conflict),
            Some(ApiError::Unauthorized),
            Some(ApiError::Invalid("no".to_owned())),
            Some(ApiError::Timeout),
        ];
        let error = self.random.below(errors.len());
        if fails && (errors[error] != Some(ApiError::Timeout) || self.random.one_in(2)) {
            return Err(errors[error].clone());
        }
        let held = self.objects.get(&node.name).cloned().filter(|held| held.uid == node.uid);
        let Some(held) = held else { return Err(Some(ApiError::NotFound)) };
        let is_old = held.resource_version != node.resource_version;
        if is_old && self.without != Some(Without::Versions) {
            return Err(Some(ApiError::Conflict));
        }
        let name = &node.name;
        let chance = self.kind == Kind::Others && !self.is_calm && self.random.one_in(8);
        let drops = |part| chance || self.drops.contains(&(Name::clone(name), part));
        let new = changed(&held, step, drops);
        let is_approved = is_approved(&held) || self.approval.is_some();
        let limit = (self.kind == Kind::Budget).then_some(self.params.budget.limit);
        self.rules.written(&held, &new, step, basis, self.now);
        self.rules.check_budget(&held, &new, is_approved, limit, self.now);
        let new = self.set(new);
        self.stored.insert(Name::clone(&new.name), Arc::clone(&new));
        self.set_back(&new);
        if fails {
            return Err(Some(ApiError::Timeout));
        }
        self.store.insert(Name::clone(&new.name), Arc::clone(&new));
        Ok(new)
    }

    /// Lets another client set parts of the node back at once.
    fn set_back(&mut self, stored: &Node) {
        let fights = |part| self.fights.contains(&(Name::clone(&stored.name), part));
        let mut node = stored.clone();
        if fights(Part::Taint) && !node.is_uninitialised() {
            // It writes other taints as well.
            let key = format!("team-{}", self.versions);
            node.taints.retain(|taint| !taint.key.starts_with("team-"));
            node.taints.push(Taint { key: key.as_str().into(), ..Taint::default() });
            node.taints.extend(tainted(&node.name).taints);
        }
        if fights(Part::Labels) {
            node.labels.insert(ZONE.1.into(), "edited".into());
        }
        if fights(Part::Addresses) {
            node.addresses = vec![Address::new("InternalIP", "10.9.9.9")];
        }
        if node != *stored {
            self.set(node);
        }
    }

    pub(super) fn change_node(&mut self) {
        let name = self.name_at_work();
        let Some(mut node) = self.objects.get(&name).map(|held| Node::clone(held)) else { return };
        let others = self.kind == Kind::Others && !self.is_calm;
        match self.random.below(10) {
            0 if self.random.one_in(3) => return self.goes(&name),
            0 => {
                // The machine is reinstalled.
                self.goes(&name);
                return self.register_again(&name);
            }
            1 => node.conditions[0].status = "False".into(),
            2 | 3 => node.conditions[0].status = "True".into(),
            4 => drop(node.labels.insert("edited".into(), self.versions.to_string().into())),
            5 if others => drop(node.labels.insert(ZONE.1.into(), "edited".into())),
            6 if others => node.addresses = vec![Address::new("InternalIP", "10.9.9.9")],
            7 if others && !node.is_uninitialised() => node.taints.extend(tainted(&name).taints),
            7 if self.random.one_in(4) => {
                drop(node.annotations.insert(APPROVED.into(), "yes".into()));
            }
            8 if self.random.one_in(3) => return self.selects_or_not(&name),
            9 => {
                let key = format!("team-{}", self.versions);
                node.taints.retain(|taint| *taint.key == *UNINITIALIZED);
                node.taints.push(Taint { key: key.as_str().into(), ..Taint::default() });
            }
            _ => {}
        }
        self.set(node);
    }

    /// Lets another client change the address and the zone of a node that works.
    pub(super) fn is_edited(&mut self) {
        let name = self.name();
        let Some(mut node) = self.objects.get(&name).map(|held| Node::clone(held)) else { return };
        node.labels.insert(ZONE.1.into(), "edited".into());
        node.addresses = vec![Address::new("InternalIP", "10.9.9.9")];
        self.set(node);
    }

    /// Returns the name of a node, often a node that is being looked up or written.
    fn name_at_work(&mut self) -> Name {
        let name = self.name();
        if self.flights.is_empty() || !self.random.one_in(3) {
            return name;
        }
        let at = self.random.below(self.flights.len());
        Name::clone(self.flights[at].name())
    }

    /// Changes whether the selector selects the node.
    pub(super) fn selects_or_not(&mut self, name: &Name) {
        let Some(mut node) = self.objects.get(name).map(|held| Node::clone(held)) else { return };
        if node.labels.remove("edge").is_none() {
            node.labels.insert("edge".into(), "".into());
        }
        self.set(node);
    }

    pub(super) fn goes(&mut self, name: &Name) {
        self.objects.remove(name);
        self.news.push_back((Name::clone(name), None));
    }

    /// Changes the settings, and what other clients want.
    pub(super) fn change_settings(&mut self) {
        if self.kind == Kind::Others && self.random.one_in(2) {
            let part = [Part::Addresses, Part::Taint, Part::Labels][self.random.below(3)];
            let what = (self.name(), part);
            let all = if self.random.one_in(2) { &mut self.drops } else { &mut self.fights };
            if all.len() > NODES / 2 {
                all.clear();
            }
            all.insert(what);
        }
        if !self.random.one_in(4) {
            return;
        }
        if self.kind != Kind::Budget || self.random.one_in(4) {
            let selectors = ["!edge", "", "!edge,!edited"];
            self.params.selector = selectors[self.random.below(3)].parse().unwrap();
        }
        self.params.per_second = [Some(1.0), Some(0.5)][self.random.below(2)];
        let params = self.params_without();
        self.hear(Event::Set(params));
    }
}
