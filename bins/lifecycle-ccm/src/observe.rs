//! Converts the nodes in the API server and the cloud's answers about them into the plain
//! values of the policy.

mod reports;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use ccm_base::{
    clock::{self, Timeline},
    message::one_line,
};
use ccm_cloud::{Call, Claim, Cloud, CloudError, Detail, Fleet, Lookup};
use ccm_controller::{
    ages::Ages, approvals::Approvals, fleet::Oddity, instances, kubelets::Kubelets,
    left_over::LeftOver, lookups::SizedLookups,
};
use ccm_kube::store::{Change, Store};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::program::{Context, Program};
use parking_lot::Mutex;

use self::reports::CloudReports;
use crate::{
    metrics::{LifecycleMetrics, State},
    policy::{
        Abilities, Agenda, Answers, At, Heartbeat, LOOKUPS_PER_PASS, Listing, LookedUp, NodeView,
        action::{self, Action, PROTECTED, is_approved},
        shutdown,
    },
    settings::LifecycleSettings,
};

/// The longest text about a node of another provider.
const FOREIGN: usize = 400;

/// All nodes at one moment, as policy views and as objects, in the same order.
pub(crate) struct Nodes {
    pub(crate) views: Vec<NodeView>,
    pub(crate) nodes: Vec<Arc<Node>>,
}

impl Nodes {
    /// Each node with its policy view.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeView, &Arc<Node>)> + Clone {
        self.views.iter().zip(&self.nodes)
    }

    /// The counts by state, without the policy's own.
    pub(crate) fn states(&self) -> [(State, usize); 5] {
        let count =
            |test: fn(&NodeView) -> bool| self.views.iter().filter(|view| test(view)).count();
        let shutdown = self.nodes.iter().filter(|node| node.taint(shutdown::KEY).is_some());
        [
            (State::Ready, count(|view| view.ready)),
            (State::Foreign, count(|view| view.claim == Claim::Foreign)),
            (State::NotSelected, count(|view| !view.selected)),
            (State::Marked, count(|view| view.marked)),
            (State::Shutdown, shutdown.count()),
        ]
    }

    /// The nodes by their names.
    pub(crate) fn by_name(&self) -> HashMap<Name, Arc<Node>> {
        self.nodes.iter().map(|node| (Arc::clone(&node.name), Arc::clone(node))).collect()
    }

    /// The nodes that are not looked up because nothing is wrong with them.
    pub(crate) fn well(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.iter().filter(|(view, _)| view.is_well()).map(|(_, node)| node)
    }

    /// The new marks of nodes with which nothing is wrong.
    pub(crate) fn marks_of_well(&self, settings: &LifecycleSettings) -> Vec<Action> {
        let well = self.iter().filter(|(view, _)| view.is_well());
        let removal = settings.shutdown_taint_removal;
        well.filter_map(|(view, node)| action::marks(view, node, None, removal)).collect()
    }

    /// The new marks of nodes that are not Ready, from the cloud's answers.
    pub(crate) fn marks_of_watched(
        &self,
        answers: &Answers,
        settings: &LifecycleSettings,
    ) -> Vec<Action> {
        let views = self.iter().map(|(view, node)| (&*view.name, (view, node)));
        let (views, removal): (HashMap<_, _>, _) =
            (views.collect(), settings.shutdown_taint_removal);
        let marks = answers.lookups.iter().filter_map(|lookup| {
            let Ok(Lookup::Found(instance)) = &lookup.result else { return None };
            let (view, node) = views.get(&*lookup.name)?;
            let is_meant = view.uid == lookup.uid && view.is_watched();
            is_meant.then(|| action::marks(view, node, Some(instance.power), removal))?
        });
        marks.collect()
    }
}

/// What shows the fleet.
enum List {
    /// The cloud's list, and when it was read.
    Of(Result<Fleet, CloudError>, At),
    /// The witnesses: the cloud has no list.
    Witnesses,
}

/// The cloud's answers.
pub(crate) struct Replies {
    lookups: Vec<LookedUp>,
    witnesses: Vec<LookedUp>,
    list: Option<List>,
    /// When the first request was sent.
    start: At,
}

/// Watches the nodes, on every replica, and looks them up in the cloud.
pub(crate) struct Observer {
    pub(crate) store: Store<Node>,
    cloud: Arc<dyn Cloud>,
    pub(crate) timeline: Timeline,
    ages: Ages,
    /// The UIDs of nodes whose system UUID has changed: they run on another machine.
    pub(crate) replaced: Mutex<BTreeSet<Box<str>>>,
    kubelets: Kubelets,
    approvals: Mutex<Approvals>,
    sized: SizedLookups,
    /// True if this process only observes.
    observes: bool,
    pub(crate) reports: CloudReports,
}

impl Observer {
    /// Starts without any observation.
    pub(crate) fn new<P: Program>(context: &Context<P>, metrics: LifecycleMetrics) -> Self {
        let approvals = Approvals::new(context.leadership.annotations(), "that nodes are deleted");
        Self {
            store: Store::new(),
            cloud: Arc::clone(&context.cloud),
            timeline: Timeline::begin(),
            ages: Ages::default(),
            replaced: Mutex::default(),
            kubelets: Kubelets::new(context),
            approvals: Mutex::new(approvals),
            sized: SizedLookups::new(Arc::clone(&context.cloud), LOOKUPS_PER_PASS),
            observes: context.plans.is_observing(),
            reports: CloudReports::new(context, metrics),
        }
    }

    /// The current time.
    pub(crate) fn now(&self) -> At {
        self.timeline.now()
    }

    /// Handles a node event; returns whether it needs a pass now. Never blocks.
    pub(crate) fn changed(&self, change: &Change<Node>) -> bool {
        self.ages.changed(&self.store, change);
        match change {
            Change::Added(node) => !node.is_ready(),
            Change::Updated { old, new } => {
                if is_replaced(old, new) {
                    self.replaced.lock().insert(new.uid.clone());
                }
                wakes(old, new)
            }
            Change::Deleted(node) => {
                self.replaced.lock().remove(&node.uid);
                false
            }
        }
    }

    /// The current nodes. Until the provider has reported its schemes, nodes with a provider ID
    /// are omitted, because their owner is unknown.
    pub(crate) fn look(&self, settings: &LifecycleSettings) -> Nodes {
        let wall = clock::wall();
        let (replaced, mut approvals) = (self.replaced.lock(), self.approvals.lock());
        approvals.read();
        let approves =
            |node: &Node| approvals.current().is_some_and(|set| set.covers(&node.labels));
        let view = |node: Arc<Node>| {
            let claim = instances::claim(&*self.cloud, &node)?;
            let mut view = view(&node, claim, self.ages.of(&node.name, node.age(wall)));
            view.selected = settings.node_selector.matches(&node);
            view.marked = node.has_taint_of(&settings.scale_down_taints);
            view.replaced = view.has_id && replaced.contains(&node.uid);
            view.approved = !view.is_well() && (view.approved || approves(&node));
            Some((view, node))
        };
        let (views, nodes) = self.store.list().into_iter().filter_map(view).unzip();
        Nodes { views, nodes }
    }

    /// Sends the lookups and the list of the agenda to the cloud, and reads the Leases of the
    /// kubelets whose instances it reports as gone.
    pub(crate) async fn ask(
        &self,
        agenda: &Agenda,
        nodes: &Nodes,
        settings: &LifecycleSettings,
    ) -> Replies {
        let by_name = nodes.by_name();
        let objects = |names: &[Name]| -> Vec<Arc<Node>> {
            names.iter().filter_map(|name| by_name.get(name).cloned()).collect()
        };
        let (watched, witnesses) = (objects(&agenda.look_up), objects(&agenda.witnesses));
        let asked = [&*watched, &*witnesses].concat();
        let call = Call::waiting(settings.cloud_call_timeout);
        let start = self.now();
        let (mut lookups, mut witnesses) = (Vec::with_capacity(watched.len()), Vec::new());
        // Each answer has its own time: one slow node must not void the answers of the others.
        let mut collect = |place: usize, result| {
            if let Some(node) = asked.get(place) {
                let (name, uid) = (Arc::clone(&node.name), node.uid.clone());
                let answers = if place < watched.len() { &mut lookups } else { &mut witnesses };
                answers.push(LookedUp { name, uid, answered: self.now(), result, heartbeat: None });
            }
        };
        let lookup = async {
            let late = self.sized.ask(&asked, Detail::Presence, call, &mut collect).await;
            for (place, result) in late {
                collect(place, result);
            }
        };
        let list = async {
            if !agenda.list {
                return None;
            }
            if !instances::traits(&*self.cloud).lists {
                return Some(List::Witnesses);
            }
            let fleet = instances::list(&*self.cloud, call).await;
            Some(List::Of(fleet, self.now()))
        };
        let ((), list) = tokio::join!(lookup, list);
        let gone = lookups.iter_mut().filter(|lookup| {
            let is_gone = matches!(lookup.result, Ok(Lookup::Gone(_)));
            is_gone && agenda.heartbeats.contains(&lookup.name)
        });
        let gone: Vec<&mut LookedUp> = gone.collect();
        let names = gone.iter().map(|lookup| Arc::clone(&lookup.name));
        // What was not read in time keeps its node.
        let shown = self.kubelets.heartbeats(names.collect(), settings.cloud_call_timeout).await;
        for (lookup, shown) in gone.into_iter().zip(shown) {
            let shown = shown.map_err(|error| self.reports.unread(&lookup.name, &error));
            lookup.heartbeat = shown.ok().map(Heartbeat);
        }
        Replies { lookups, witnesses, list, start }
    }

    /// Shows on the line `fleet` what is odd about all nodes together. The selector leaves out the
    /// nodes of another cloud controller on purpose.
    pub(crate) fn survey(&self, settings: &LifecycleSettings) {
        let mut selected = self.store.list();
        selected.retain(|node| settings.node_selector.matches(node));
        self.reports.survey(Oddity::of_ids(&*self.cloud, &selected));
    }

    /// Why a node is another provider's.
    pub(crate) fn why_foreign(&self, node: &Node) -> String {
        let id = node.provider_id.as_deref().unwrap_or_default();
        one_line(&format!("its provider ID {id} {}", self.cloud.why_foreign(id)), FOREIGN)
    }

    /// The taint of this node that another controller should remove and lifecycle-ccm does not. Of a node that is left
    /// out only that of a shutdown concerns it: node-ccm reports the other one.
    pub(crate) fn left_over(&self, node: &Node, settings: &LifecycleSettings) -> Option<LeftOver> {
        let is_ours =
            instances::is_ours(&*self.cloud, node)? && settings.node_selector.matches(node);
        let is_off = node.taints.iter().any(|taint| taint.is(shutdown::KEY, shutdown::EFFECT));
        match is_ours {
            true => node.is_uninitialised().then_some(LeftOver::Uninitialized),
            false => (node.is_ready() && is_off).then_some(LeftOver::Shutdown),
        }
    }

    /// The nodes that are not Ready and that are left out, and why.
    pub(crate) fn left_out<'a>(
        &self,
        nodes: &'a Nodes,
    ) -> impl Iterator<Item = (&'a Arc<Node>, String)> {
        let left_out = nodes.iter().filter(|(view, _)| !view.is_well() && !view.in_reach());
        left_out.map(|(view, node)| {
            let is_left = !view.selected || view.claim == Claim::Foreign;
            let why = match is_left {
                true => instances::why_left_out(&*self.cloud, node, view.selected),
                false => "it is already being deleted".to_owned(),
            };
            (node, why)
        })
    }

    /// What the cloud can answer next.
    pub(crate) fn abilities(&self) -> Abilities {
        let lists = instances::traits(&*self.cloud).lists;
        let (most_lookups, seed) = (self.sized.size(), rand::random());
        Abilities { most_lookups, lists, lists_once: self.observes, seed }
    }

    /// The cloud's answers, with the list compared with these nodes. Reports unusable answers.
    pub(crate) fn answers(&self, answers: Replies, nodes: &Nodes) -> Answers {
        let Replies { lookups, witnesses, list, start } = answers;
        let spell = |id: &str| self.cloud.canonical_id(id).into_owned();
        let list = list.map(|list| match list {
            List::Of(fleet, read) => listing(fleet, spell, nodes, (start, read)),
            List::Witnesses => Listing::Witnesses,
        });
        self.reports.answers(lookups.iter().chain(&witnesses), list.as_ref());
        self.reports.listed(list.as_ref(), &witnesses, nodes);
        // Its instance exists: the system UUID has changed for another reason.
        let found = lookups.iter().filter(|lookup| matches!(lookup.result, Ok(Lookup::Found(_))));
        let mut replaced = self.replaced.lock();
        found.for_each(|lookup| {
            replaced.remove(&lookup.uid);
        });
        Answers { asked: start, lookups, witnesses, list }
    }
}

/// The policy's view of a node, given its owner and its age, without what other objects and the
/// settings say about it.
fn view(node: &Node, claim: Claim, age: Duration) -> NodeView {
    NodeView {
        name: Arc::clone(&node.name),
        uid: node.uid.clone(),
        claim,
        has_id: node.provider_id.is_some(),
        selected: true,
        ready: node.is_ready(),
        deleting: node.deleting,
        uninitialised: node.is_uninitialised(),
        age,
        protected: node.annotations.get(PROTECTED).is_some_and(|value| &**value != "false"),
        approved: is_approved(node),
        marked: false,
        replaced: false,
    }
}

/// Whether a change of a node needs a pass now.
fn wakes(old: &Node, new: &Node) -> bool {
    old.is_ready() != new.is_ready()
        || old.annotations != new.annotations
        || old.provider_id != new.provider_id
        || old.labels != new.labels
        || old.taints != new.taints
        || old.system_uuid != new.system_uuid
}

/// Whether another machine has taken the node over: the provider ID stays, the system UUID
/// changes.
fn is_replaced(old: &Node, new: &Node) -> bool {
    let uuids = old.system_uuid.as_ref().zip(new.system_uuid.as_ref());
    let has_moved = uuids.is_some_and(|(old, new)| !old.eq_ignore_ascii_case(new));
    has_moved && old.uid == new.uid && new.provider_id.is_some()
}

/// Compares the list with these nodes. `spell` returns the list's spelling of a provider ID.
fn listing(
    fleet: Result<Fleet, CloudError>,
    spell: impl Fn(&str) -> String,
    nodes: &Nodes,
    (asked, answered): (At, At),
) -> Listing {
    let fleet = match fleet {
        Ok(fleet) => fleet,
        Err(error) => return Listing::Failed(error),
    };
    let in_reach = nodes.iter().filter(|(view, _)| view.in_reach()).map(|(_, node)| node);
    let missing = instances::unlisted(&fleet, spell, in_reach);
    let (instances, malformed) = (fleet.instances.len(), fleet.malformed.len());
    Listing::Read { asked, answered, instances, malformed, missing }
}

#[cfg(test)]
mod tests;
