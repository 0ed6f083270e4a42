//! The memory of [`Agreed`], by node. A new leader begins without it.

use std::{collections::HashMap, sync::Arc};

use ccm_cloud::Instance;
use ccm_objects::{Node, Shared as Name};
use parking_lot::Mutex;

use crate::plan::Agreed;

/// The cloud's answer at the time when each node last agreed with it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct AgreedNodes {
    nodes: Arc<Mutex<HashMap<Name, Agreed>>>,
}

impl AgreedNodes {
    /// The cloud's answer at the time when this node last agreed with it.
    pub(crate) fn of(&self, node: &Node) -> Agreed {
        self.nodes.lock().get(&node.name).copied().unwrap_or_default()
    }

    /// Takes note of a node as it is now, and of the cloud's answer about it.
    pub(crate) fn note(&self, node: &Node, instance: &Instance) {
        let mut nodes = self.nodes.lock();
        nodes.entry(Name::clone(&node.name)).or_default().note(node, instance);
    }

    /// Forgets nodes that are gone.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.nodes.lock().retain(|name, _| exists(name));
    }
}
