//! Says in words who owns a route.

use ccm_base::At;
use ccm_cloud::Route;

use super::{Decider, Whose};
use crate::routes::plan::{
    Lack, Planner, View, planned::target_of, targets::Targets, wanted::is_inside,
};

/// The owner of a route, and how the planner knows the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Title {
    /// This cluster's.
    Ours(String),
    /// The cloud is being asked.
    Open(String),
    /// Another owner's: it is never touched.
    Foreign(String),
}

impl Planner {
    /// Returns the owners of these routes, as far as the planner knows them now. It does not call the cloud.
    pub fn titles<'a>(
        &self,
        now: At,
        view: &View<'_>,
        routes: impl Iterator<Item = &'a Route>,
    ) -> Vec<(&'a Route, Title)> {
        let (targets, mut copy) = (Targets::new(view.nodes), self.clone());
        let mut decider = Decider::new(now, view, &targets, &mut copy);
        routes.map(|route| (route, decider.title_in_words(route))).collect()
    }
}

impl Decider<'_> {
    fn title_in_words(&mut self, route: &Route) -> Title {
        match self.title(route) {
            Whose::Node(place) => {
                let name = self.view.nodes.get(place).map(|one| one.node.name.to_string());
                Title::Ours(format!("its target is node {}", name.unwrap_or_default()))
            }
            Whose::Orphan(orphan) => Title::Ours(orphan.why),
            Whose::Claimed(node) => Title::Open(claimed(route, &node).cause),
            Whose::Unknown => Title::Open(unknown(route).cause),
            Whose::Foreign => Title::Foreign(self.why_foreign(route)),
        }
    }

    fn why_foreign(&self, route: &Route) -> String {
        if let (true, Some(owner)) = (self.is_theirs(route), &route.owner) {
            let cluster = &owner.cluster;
            return format!("cluster {} (UID {}) is recorded with it", cluster.name, cluster.uid);
        }
        if !is_inside(route.destination.trunc(), &self.view.parameters.cluster_cidrs) {
            return "it is not inside --cluster-cidr, and no owner is recorded".to_owned();
        }
        match &route.target {
            None => "it drops packets, and no owner is recorded".to_owned(),
            Some(target) => {
                format!(
                    "its target {target} exists in the cloud, and is not a node of this cluster"
                )
            }
        }
    }
}

/// Says what a route to a target that is not known means for a node that needs its destination.
pub(super) fn unknown(route: &Route) -> Lack {
    let (destination, target) = (route.destination, target_of(route));
    Lack::pending(format!(
        "there is a route of {destination} to {target}, which is not a node of this cluster; asking the cloud if it exists"
    ))
}

/// Says what a route to a target means for a node that needs its destination, if another node names the target as its own.
pub(super) fn claimed(route: &Route, node: &str) -> Lack {
    let (destination, target) = (route.destination, target_of(route));
    Lack::pending(format!(
        "there is a route of {destination} to {target}, which node {node} claims; asking the cloud if the node has it"
    ))
}

pub(super) fn foreign(route: &Route) -> Lack {
    let (destination, target) = (route.destination, target_of(route));
    let whose = match &route.owner {
        Some(owner) => format!("of cluster {} (UID {})", owner.cluster.name, owner.cluster.uid),
        None => "of another owner".to_owned(),
    };
    let cause = format!("there is a route of {destination} to {target}, {whose}");
    let fix = Some("remove it, or give the node another pod CIDR".to_owned());
    Lack { fix, ..Lack::failed(cause) }
}
