//! Nodes with which something is wrong that no write of node-ccm can mend: counted and reported at
//! each refresh.

use std::collections::HashMap;

use ccm_controller::instances;

use super::Handles;
use crate::{
    metrics::{Problem, State},
    plan::addresses,
};

/// Counts and reports them, and forgets nodes that are gone.
pub(crate) fn take(handles: &Handles) {
    let nodes = handles.store.list();
    handles.states.retain(|name| handles.store.get(name).is_some());
    handles.agreed.retain(|name| handles.store.get(name).is_some());
    let mut counts: HashMap<Problem, usize> = HashMap::new();
    let mut count = |problem: Problem| *counts.entry(problem).or_default() += 1;
    for node in &nodes {
        match handles.states.get(&node.name) {
            Some(State::Unconfirmed) => count(Problem::Unconfirmed),
            Some(State::InstanceGone) if node.is_ready() => count(Problem::InstanceGone),
            Some(State::Foreign | State::NotOurs | State::NotSelected) => {}
            _ if !node.is_uninitialised() && !addresses::have_ip(&node.addresses) => {
                count(Problem::NoAddress);
            }
            _ => {}
        }
    }
    let (cloud, mut own) = (&*handles.cloud, nodes);
    own.retain(|node| handles.is_ours(node) == Some(true));
    for (id, nodes) in instances::duplicates(cloud, &own) {
        let names: Vec<_> = nodes.iter().map(|node| &*node.name).collect();
        for node in &nodes {
            count(Problem::DuplicateProviderId);
            handles.reports.duplicate(node, &id, &names.join(", "));
        }
    }
    handles.metrics.irregular(&counts);
}
