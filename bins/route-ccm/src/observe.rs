//! What is known of the nodes, as the plan sees them.

pub(crate) mod state;

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloud::{Cloud, ProviderId};
use ccm_controller::instances;
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, WhoseNode, whose_node};
use ccm_runtime::program::{Context, Program};
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    routes::plan::{
        condition::NETWORK_UNAVAILABLE,
        targets::Former,
        wanted::{LeftOut, NodeView},
    },
    settings::RouteSettings,
};

/// Watches the nodes, on every replica.
pub(crate) struct Observer {
    pub(crate) store: Store<Node>,
    cloud: Arc<dyn Cloud>,
    settings: watch::Receiver<Arc<RouteSettings>>,
    memory: Mutex<Memory>,
}

/// What a list of the present nodes does not show.
#[derive(Default)]
struct Memory {
    former: Former,
    /// The pod CIDRs of nodes that have changed since the last plan; `None` before the first one.
    changed: Option<BTreeSet<IpNet>>,
}

impl Observer {
    pub(crate) fn new<P: Program<Settings = RouteSettings>>(context: &Context<P>) -> Self {
        Self {
            store: Store::new(),
            cloud: Arc::clone(&context.cloud),
            settings: context.settings.clone(),
            memory: Mutex::default(),
        }
    }

    /// The node as the plan sees it, unless [the schemes are others](has_own).
    fn view(&self, node: Arc<Node>, schemes: &[String]) -> NodeView {
        let id = instances::canonical_id(&*self.cloud, &node);
        let id = id.and_then(|id| ProviderId::parse(&id).ok());
        let left_out = self.left_out(&node, schemes);
        NodeView { node, id, left_out }
    }

    /// Why the node is left out, by itself.
    fn left_out(&self, node: &Node, schemes: &[String]) -> Option<LeftOut> {
        if !self.settings.borrow().node_selector.matches(node) {
            return Some(LeftOut::NotSelected);
        }
        let whose = whose_node(node.provider_id.as_deref(), schemes);
        matches!(whose, WhoseNode::Anothers(_)).then_some(LeftOut::AnotherProvider)
    }

    /// Returns true if the node gets no route and no condition.
    pub(crate) fn is_left_out(&self, node: &Node) -> bool {
        let schemes = self.cloud.schemes();
        match self.left_out(node, &schemes) {
            Some(LeftOut::NotSelected) => true,
            Some(LeftOut::AnotherProvider) => has_own(&self.store.list(), &schemes),
            None => false,
        }
    }

    /// Why a node is left out, in words.
    pub(crate) fn why_left_out(&self, node: &Node, left_out: LeftOut) -> String {
        instances::why_left_out(&*self.cloud, node, left_out != LeftOut::NotSelected)
    }

    /// The present nodes.
    pub(crate) fn nodes(&self) -> Vec<NodeView> {
        let (nodes, schemes) = (self.store.list(), self.cloud.schemes());
        let is_told = has_own(&nodes, &schemes);
        let mut views: Vec<_> = nodes.into_iter().map(|node| self.view(node, &schemes)).collect();
        if !is_told {
            let is_anothers =
                |view: &&mut NodeView| view.left_out == Some(LeftOut::AnotherProvider);
            views.iter_mut().filter(is_anothers).for_each(|view| view.left_out = None);
        }
        views
    }

    /// The node of this name as it is now.
    pub(crate) fn node(&self, name: &str) -> Option<NodeView> {
        self.store.get(name).map(|node| self.view(node, &self.cloud.schemes()))
    }

    /// Runs with the targets that were those of nodes.
    pub(crate) fn with_former<R>(&self, run: impl FnOnce(&mut Former) -> R) -> R {
        run(&mut self.memory.lock().former)
    }

    /// The pod CIDRs of nodes that have changed since the last call.
    pub(crate) fn take_changed(&self) -> BTreeSet<IpNet> {
        self.memory.lock().changed.replace(BTreeSet::new()).unwrap_or_default()
    }

    /// Handles a change of a node; returns whether the routes have to be compared with it. The informer calls it on
    /// every replica; never blocks.
    pub(crate) fn changed(&self, change: &Change<Node>) -> bool {
        let view = |node: &Arc<Node>| self.view(Arc::clone(node), &self.cloud.schemes());
        match change {
            Change::Added(node) => {
                self.has_changed(&view(node));
                // A node without pod CIDRs needs no route yet; passes are rare.
                !node.pod_cidrs.is_empty()
            }
            Change::Updated { old, new } => {
                if !matters(old, new) && old.labels == new.labels {
                    return false;
                }
                let (before, after) = (view(old), view(new));
                let is_left_out_anew = before.left_out != after.left_out;
                if !matters(old, new) && !is_left_out_anew {
                    return false;
                }
                self.memory.lock().former.changed(&before, &after);
                // A changed condition does not repair the route: the pause after its failure goes on.
                if has_moved(old, new) || is_left_out_anew {
                    self.has_changed(&after);
                }
                true
            }
            Change::Deleted(node) => {
                let is_marked = self.is_marked(node);
                self.memory.lock().former.gone(&view(node), is_marked);
                true
            }
        }
    }

    /// The node has got its pod CIDRs from us, which the informer does not report.
    pub(crate) fn assigned(&self, node: &Arc<Node>) {
        self.has_changed(&self.view(Arc::clone(node), &self.cloud.schemes()));
    }

    fn has_changed(&self, view: &NodeView) {
        if let Some(changed) = &mut self.memory.lock().changed {
            changed.extend(view.pod_cidrs());
        }
    }

    /// Whether an autoscaler has said that the node goes.
    fn is_marked(&self, node: &Node) -> bool {
        node.has_taint_of(&self.settings.borrow().scale_down_taints)
    }
}

/// Returns true if a node has a scheme of the provider. If none has, the provider IDs say nothing: the provider uses other schemes than it names.
fn has_own(nodes: &[Arc<Node>], schemes: &[String]) -> bool {
    let is_own =
        |node: &Arc<Node>| whose_node(node.provider_id.as_deref(), schemes) == WhoseNode::Ours;
    nodes.iter().any(is_own)
}

/// Whether the plan, or the condition that follows from it, looks at what has changed.
fn matters(old: &Node, new: &Node) -> bool {
    has_moved(old, new) || old.condition(NETWORK_UNAVAILABLE) != new.condition(NETWORK_UNAVAILABLE)
}

/// Returns true if the node may need other routes now.
fn has_moved(old: &Node, new: &Node) -> bool {
    old.uid != new.uid
        || old.pod_cidrs != new.pod_cidrs
        || old.addresses != new.addresses
        || old.provider_id != new.provider_id
}
