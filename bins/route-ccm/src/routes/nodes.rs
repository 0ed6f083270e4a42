//! The nodes as the machine sees them.

use std::sync::Arc;

use ccm_cloud::{Cloud, ProviderId};
use ccm_controller::instances;
use ccm_kube::store::Store;
use ccm_objects::{Node, WhoseNode, whose_node};
use tokio::sync::watch;

use super::plan::wanted::{LeftOut, NodeView};
use crate::settings::RouteSettings;

/// Reads nodes.
pub(crate) struct Nodes {
    pub(crate) store: Store<Node>,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) settings: watch::Receiver<Arc<RouteSettings>>,
}

impl Nodes {
    /// Returns the view of the node with the present schemes. It is current unless [the schemes
    /// have changed](has_own).
    pub(crate) fn view(&self, node: &Arc<Node>) -> NodeView {
        self.view_of(Arc::clone(node), &self.cloud.schemes())
    }

    fn view_of(&self, node: Arc<Node>, schemes: &[String]) -> NodeView {
        let id = instances::canonical_id(&*self.cloud, &node);
        let id = id.and_then(|id| ProviderId::parse(&id).ok());
        let left_out = self.left_out(&node, schemes);
        NodeView { node, id, left_out }
    }

    /// Returns the reason why the node itself is excluded.
    fn left_out(&self, node: &Node, schemes: &[String]) -> Option<LeftOut> {
        if !self.settings.borrow().node_selector.matches(node) {
            return Some(LeftOut::NotSelected);
        }
        let is_anothers = match whose_node(node.provider_id.as_deref(), schemes) {
            WhoseNode::Anothers(_) => true,
            WhoseNode::Unreadable => !schemes.is_empty(),
            WhoseNode::Nobodys | WhoseNode::Ours => false,
        };
        is_anothers.then_some(LeftOut::AnotherProvider)
    }

    /// Returns the view of the node, with what the other nodes show about the schemes.
    pub(crate) fn told(&self, node: &Arc<Node>) -> NodeView {
        let mut view = self.view(node);
        if view.left_out == Some(LeftOut::AnotherProvider)
            && !has_own(&self.store.list(), &self.cloud.schemes())
        {
            view.left_out = None;
        }
        view
    }

    /// Returns the reason why route-ccm excludes the node, if it does.
    pub(crate) fn why_left_out(&self, view: &NodeView) -> Option<String> {
        let is_selected = view.left_out? != LeftOut::NotSelected;
        Some(instances::why_left_out(&*self.cloud, &view.node, is_selected))
    }

    /// Returns the present nodes.
    pub(crate) fn all(&self) -> Vec<NodeView> {
        let (nodes, schemes) = (self.store.list(), self.cloud.schemes());
        let is_told = has_own(&nodes, &schemes);
        let mut views: Vec<_> =
            nodes.into_iter().map(|node| self.view_of(node, &schemes)).collect();
        if !is_told {
            let is_anothers =
                |view: &&mut NodeView| view.left_out == Some(LeftOut::AnotherProvider);
            views.iter_mut().filter(is_anothers).for_each(|view| view.left_out = None);
        }
        views
    }

    /// Returns the node of this name as it is now.
    pub(crate) fn named(&self, name: &str) -> Option<NodeView> {
        self.store.get(name).map(|node| self.view(&node))
    }
}

/// Returns true if a node has a scheme of the provider. If no node has, the provider IDs say
/// nothing: the provider uses other schemes than it names.
fn has_own(nodes: &[Arc<Node>], schemes: &[String]) -> bool {
    let is_own =
        |node: &Arc<Node>| whose_node(node.provider_id.as_deref(), schemes) == WhoseNode::Ours;
    nodes.iter().any(is_own)
}
