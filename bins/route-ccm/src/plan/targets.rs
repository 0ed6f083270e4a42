//! Which node a target is.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::RouteTarget;
use ccm_objects::Shared;

use super::wanted::NodeView;

/// How long a target is remembered that no route has: a call to create one may be under way, or
/// be carried out late.
const KEPT: Duration = Duration::from_mins(30);

/// The targets of a node, in all forms in which a cloud may show them.
fn targets_of(view: &NodeView) -> impl Iterator<Item = RouteTarget> {
    let name = RouteTarget::Node(view.node.name.to_string());
    let id = view.id.clone().map(RouteTarget::Instance);
    [name].into_iter().chain(id).chain(view.ips().map(RouteTarget::Address))
}

/// The present nodes by target.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    places: HashMap<RouteTarget, usize>,
}

impl Targets {
    /// The targets of these nodes.
    pub fn of(nodes: &[NodeView]) -> Self {
        let mut places = HashMap::with_capacity(nodes.len() * 3);
        for (place, view) in nodes.iter().enumerate() {
            for target in targets_of(view) {
                places.entry(target).or_insert(place);
            }
        }
        Self { places }
    }

    /// The place of the node with this target.
    pub fn place(&self, target: &RouteTarget) -> Option<usize> {
        self.places.get(target).copied()
    }
}

/// Whether this is a target of this node.
pub fn is_target(target: &RouteTarget, view: &NodeView) -> bool {
    match target {
        RouteTarget::Node(name) => **name == *view.node.name,
        RouteTarget::Instance(id) => view.id.as_ref() == Some(id),
        RouteTarget::Address(address) => view.ips().any(|ip| ip == *address),
    }
}

/// A node that is gone, or that had a target before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerNode {
    /// Its name.
    pub name: Shared,
    /// Whether it was marked for scale-down when it was last seen, so that its routes go without
    /// being counted.
    pub was_marked: bool,
    /// Its labels, for approvals.
    pub labels: BTreeMap<Shared, Shared>,
}

/// Targets that were those of nodes while this process watched.
#[derive(Clone, Debug, Default)]
pub struct Former {
    /// With the time since when no route has had the target.
    targets: HashMap<RouteTarget, (FormerNode, Option<At>)>,
}

impl Former {
    /// The node that had this target.
    pub fn get(&self, target: &RouteTarget) -> Option<&FormerNode> {
        self.targets.get(target).map(|(node, _)| node)
    }

    /// A node is gone.
    pub fn gone(&mut self, view: &NodeView, was_marked: bool) {
        self.remember(targets_of(view), view, was_marked);
    }

    /// A node has changed.
    pub fn changed(&mut self, before: &NodeView, after: &NodeView) {
        let lost = targets_of(before).filter(|target| !is_target(target, after));
        self.remember(lost, before, false);
    }

    fn remember(
        &mut self,
        targets: impl Iterator<Item = RouteTarget>,
        view: &NodeView,
        was_marked: bool,
    ) {
        for target in targets {
            let (name, labels) = (Shared::clone(&view.node.name), view.node.labels.clone());
            self.targets.insert(target, (FormerNode { name, was_marked, labels }, None));
        }
    }

    /// Forgets what no route of the table has had as its target for [`KEPT`].
    pub fn retain(&mut self, now: At, in_table: &HashSet<&RouteTarget>) {
        self.targets.retain(|target, (_, absent)| {
            if in_table.contains(target) {
                *absent = None;
                return true;
            }
            now.since(*absent.get_or_insert(now)) < KEPT
        });
    }

    /// The number of targets.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }
}
