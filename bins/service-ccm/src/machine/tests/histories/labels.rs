//! Nodes describe themselves: labels by which load balancers select, the exclusion label, and marks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{CloudError, ErrorKind, NodeSelector};
use ccm_objects::{Node, Service, Shared as Name, Taint, service_keys::EXCLUDE_NODE};

use super::{
    rules::Rules,
    variants::Without,
    world::{Kind, World},
};
use crate::{
    machine::event::{Changed, Event},
    plan::status::ID,
};

/// The annotation by which a Service selects nodes, and the prefix of all that the provider reads.
pub(super) const POOL: &str = "example.com/pool";
pub(super) const PROVIDER: &str = "example.com/";
/// A taint that a setting names, and no autoscaler has.
pub(super) const OTHER: &str = "example.com/other";
/// For how long a label may still be the reason why a member leaves.
const LATELY: Duration = Duration::from_mins(15);

/// Returns the nodes that the provider selects for this Service.
pub(super) fn selector(service: &Service, default: &NodeSelector) -> NodeSelector {
    service.annotation(POOL).map_or_else(|| default.clone(), NodeSelector::parse)
}

/// Returns true if the node can be a member.
pub(super) fn is_eligible(node: &Node) -> bool {
    node.taints.is_empty() && !node.labels.contains_key(EXCLUDE_NODE)
}

/// Returns the labels of a node as the provider compares them.
pub(super) fn is_selected(node: &Node, by: &NodeSelector) -> bool {
    let labels = node.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    by.matches(&labels.collect())
}

/// The labels that excuse that a member leaves.
#[derive(Default)]
pub(super) struct Excuses {
    /// When a node was last seen with the exclusion label.
    excluded: BTreeMap<String, At>,
    /// When a Service was last seen to select its nodes itself, by UID.
    choosers: BTreeMap<String, At>,
    /// The Services whose load balancer was complete once, by UID.
    complete: BTreeSet<String>,
    nodes: BTreeSet<String>,
}

impl Excuses {
    fn look<'a>(
        &mut self,
        nodes: &BTreeMap<Name, Arc<Node>>,
        services: impl Iterator<Item = &'a Arc<Service>>,
        now: At,
    ) {
        self.nodes = nodes.keys().map(ToString::to_string).collect();
        let excluded = nodes.values().filter(|node| node.labels.contains_key(EXCLUDE_NODE));
        self.excluded.extend(excluded.map(|node| (node.name.to_string(), now)));
        let services: Vec<_> = services.collect();
        let complete = services.iter().filter(|service| service.annotation(ID).is_some());
        let complete = complete.map(|service| service.uid.to_string());
        let choosers = services.iter().filter(|service| service.annotation(POOL).is_some());
        self.choosers.extend(choosers.map(|service| (service.uid.to_string(), now)));
        self.complete.extend(complete);
    }

    /// Returns true if the node may leave the load balancer of this Service, however many others have left.
    pub(super) fn excuse(&self, uid: &str, node: &str, now: At) -> bool {
        let lately = |at: Option<&At>| at.is_some_and(|at| now.since(*at) < LATELY);
        let is_chosen = lately(self.choosers.get(uid)) && self.nodes.contains(node);
        // A load balancer that was never complete does not carry traffic.
        let is_new = !self.nodes.is_empty() && !self.complete.contains(uid);
        is_new || is_chosen || lately(self.excluded.get(node))
    }
}

impl World {
    pub(super) fn see_labels(&mut self) {
        if self.kind == Kind::Labels {
            let services = self.api.values().chain(self.store.values());
            self.rules.excuses.look(&self.nodes, services, self.now);
        }
    }

    /// Returns the labels by which the Services select.
    pub(super) fn selectors(&self) -> Vec<NodeSelector> {
        let mut selectors = Vec::new();
        for service in self.store.values().filter(|service| service.is_load_balancer) {
            let selector = selector(service, &self.offer.selector);
            let counts = self.offer.traits.member_labels && self.without != Some(Without::Labels);
            if counts && !selectors.contains(&selector) {
                selectors.push(selector);
            }
        }
        selectors
    }

    /// Makes a Service due whose selector may ask for labels that did not count.
    pub(super) fn tell_labels(&mut self, selector: &NodeSelector) {
        if self.without != Some(Without::Labels) && self.machine.lacks_labels(selector) {
            let nodes = self.nodes.values().cloned().collect();
            self.hear(Event::Labels { selector: selector.clone(), nodes });
        }
    }

    pub(super) fn labels(&self, number: usize) -> ccm_objects::Labels {
        let pool = if number.is_multiple_of(3) { "b" } else { "a" };
        let has_pool = self.kind == Kind::Labels;
        has_pool.then(|| ("pool".into(), pool.into())).into_iter().collect()
    }

    fn change_node(&mut self, name: &Name, change: impl FnOnce(&mut Node)) {
        let Some(old) = self.nodes.get(name).cloned() else { return };
        let mut node = Node::clone(&old);
        change(&mut node);
        let new = Arc::new(node);
        self.nodes.insert(Name::clone(name), Arc::clone(&new));
        self.hear(Event::Node(Changed { old: Some(old), new: Some(new) }));
    }

    /// Changes labels of nodes, the choice of a Service or the default of the provider.
    pub(super) fn change_labels(&mut self) {
        let names: Vec<Name> = self.nodes.keys().cloned().collect();
        let place = self.random.below(names.len());
        let Some(name) = names.get(place) else { return };
        let pool: Name = ["a", "b"][self.random.below(2)].into();
        match self.random.below(8) {
            0 => self.change_node(name, |node| drop(node.labels.insert("pool".into(), pool))),
            1 => self
                .change_node(name, |node| drop(node.labels.insert(EXCLUDE_NODE.into(), "".into()))),
            2 => self.change_node(name, |node| drop(node.labels.remove(EXCLUDE_NODE))),
            3 => {
                let taint = Taint { key: OTHER.into(), ..Taint::default() };
                let count = 1 + self.random.below(names.len());
                for name in names.iter().skip(place).take(count) {
                    self.change_node(name, |node| node.taints = vec![taint.clone()]);
                }
            }
            4 => names.iter().for_each(|name| self.change_node(name, |node| node.taints.clear())),
            // No call is made by the one, and carried out by the other.
            5 if self.flights.is_empty() => self.change_default(),
            _ => self.choose_pool(),
        }
    }

    /// Lets the provider select by other labels by default.
    fn change_default(&mut self) {
        let pool = ["", "pool=a", "pool=b"][self.random.below(3)];
        self.offer.selector = NodeSelector::parse(pool);
        self.cloud.selector = self.offer.selector.clone();
        self.offered(self.random.clone().one_in(2));
    }

    /// Lets a user have a Service select nodes, or not any more.
    fn choose_pool(&mut self) {
        let place = self.random.below(self.api.len());
        let Some(key) = self.api.keys().nth(place).cloned() else { return };
        let pool = [None, Some("pool=a"), Some("pool=b")][self.random.below(3)];
        self.change_details(Some(key), |details| match pool {
            Some(pool) => drop(details.annotations.insert(POOL.into(), pool.into())),
            None => drop(details.annotations.remove(POOL)),
        });
    }

    /// Checks that load balancers soon follow another default of the provider.
    pub(super) fn follows_default(&mut self) {
        if self.kind != Kind::Labels {
            return;
        }
        for pool in ["pool=a", ""] {
            self.offer.selector = NodeSelector::parse(pool);
            self.cloud.selector = self.offer.selector.clone();
            self.offered(false);
            self.run(self.now + Duration::from_secs(90) + 2 * self.cloud.takes);
            Rules::right(self.now, &self.api, &self.nodes, &self.cloud, &self.offer.selector);
        }
    }

    /// Checks that nodes that are marked right before they go leave load balancers, also if many
    /// go, and if another process leads by then.
    pub(super) fn marked_leave(&mut self) {
        if self.kind != Kind::Nodes {
            return;
        }
        self.tell_all();
        self.run(self.now + Duration::from_mins(45));
        let names: Vec<Name> = self.nodes.keys().cloned().collect();
        let going: Vec<Name> =
            names.iter().take(5.min(names.len().saturating_sub(3))).cloned().collect();
        let ends = self.random.one_in(2);
        if ends {
            self.trouble = Some(CloudError::new(ErrorKind::Unavailable, "no"));
        }
        for name in &going {
            let Some(number) = name.rsplit('-').next().and_then(|it| it.parse().ok()) else {
                continue;
            };
            self.set_node(number, true);
            let mut old = self.nodes.remove(name);
            if self.without == Some(Without::Marks) {
                old = old.map(|node| Arc::new(Node { taints: Vec::new(), ..Node::clone(&node) }));
            }
            self.hear(Event::Node(Changed { old, new: None }));
        }
        if ends {
            self.run(self.now + Duration::from_secs(6));
            self.lead();
            self.trouble = None;
        }
        self.run(self.now + Duration::from_mins(45));
        for (id, one) in self.cloud.balancers.iter().filter(|(_, one)| !one.is_foreign) {
            let is_last = one.members.len() <= 1;
            let stays = going.iter().find(|node| one.members.contains_key(&***node));
            assert!(is_last || stays.is_none(), "Marked: {stays:?} is a member of {id} still");
        }
    }
}
