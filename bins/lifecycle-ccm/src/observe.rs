//! Converts the nodes in the API server and the cloud's answers about them into the plain
//! values of the policy.

mod reports;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::clock::{self, Timeline};
use ccm_cloud::{Call, Claim, Cloud, CloudError, Detail, Fleet, Lookup, PowerState};
use ccm_controller::{
    approvals::Approvals,
    batch_size::{BatchCall, BatchSize},
    brake::approval::SetApproval,
    instances,
    inventory::Snapshot,
    reader::Reader,
};
use ccm_kube::store::{Change, Store};
use ccm_objects::{NODE_LEASES, Node, NodeLease, Shared as Name};
use ccm_runtime::program::{Context, Program};
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use self::reports::CloudReports;
use crate::{
    metrics::{LifecycleMetrics, States},
    policy::{
        Abilities, Agenda, Answers, At, Heartbeat, LOOKUPS_PER_PASS, Listing, LookedUp, NodeView,
        action::{self, Action, PROTECTED, is_approved},
        shutdown,
    },
    settings::LifecycleSettings,
};

/// The number of Leases of kubelets that are read at once.
const READS: usize = 16;

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
    pub(crate) fn states(&self) -> States {
        let count =
            |test: fn(&NodeView) -> bool| self.views.iter().filter(|view| test(view)).count();
        States {
            ready: count(|view| view.ready),
            foreign: count(|view| view.claim == Claim::Foreign),
            unselected: count(|view| !view.selected),
            marked: count(|view| view.marked),
            shutdown: self.nodes.iter().filter(|node| node.taint(shutdown::KEY).is_some()).count(),
            ..States::default()
        }
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
        powers: &Powers,
        settings: &LifecycleSettings,
    ) -> Vec<Action> {
        let removal = settings.shutdown_taint_removal;
        let watched = self.iter().filter(|(view, _)| view.is_watched());
        let marks = watched.filter_map(|(view, node)| {
            let power = *powers.get(&(Arc::clone(&view.name), view.uid.clone()))?;
            action::marks(view, node, Some(power), removal)
        });
        marks.collect()
    }
}

/// The states of the machines in the cloud, by name and UID of the node.
pub(crate) type Powers = HashMap<(Name, Box<str>), PowerState>;

/// The states of the machines.
pub(crate) fn powers(lookups: &[LookedUp]) -> Powers {
    let found = lookups.iter().filter_map(|lookup| match &lookup.result {
        Ok(Lookup::Found(instance)) => {
            Some(((Arc::clone(&lookup.name), lookup.uid.clone()), instance.power))
        }
        _ => None,
    });
    found.collect()
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
    timeline: Timeline,
    /// Nodes that were created while this process was watching, and when.
    appeared: Mutex<HashMap<Name, Instant>>,
    /// The UIDs of nodes whose system UUID has changed: they run on another machine.
    pub(crate) replaced: Mutex<BTreeSet<Box<str>>>,
    leases: Reader<NodeLease>,
    approval: Mutex<(Approvals, Option<SetApproval>)>,
    /// The number of nodes that the cloud answers in one lookup.
    batch: Mutex<BatchSize>,
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
            appeared: Mutex::default(),
            replaced: Mutex::default(),
            leases: Reader::new(context),
            approval: Mutex::new((approvals, None)),
            batch: Mutex::new(BatchSize::new(LOOKUPS_PER_PASS)),
            reports: CloudReports::new(context, metrics),
        }
    }

    /// The clock of this process.
    pub(crate) fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// The current time.
    pub(crate) fn now(&self) -> At {
        self.timeline.now()
    }

    /// Handles a node event; returns whether it needs a pass now. Never blocks.
    pub(crate) fn changed(&self, change: &Change<Node>) -> bool {
        match change {
            Change::Added(node) => {
                // Nodes of the initial list may be older than this process.
                if self.store.is_synced() {
                    self.appeared.lock().insert(Arc::clone(&node.name), Instant::now());
                }
                !node.is_ready()
            }
            Change::Updated { old, new } => {
                if is_replaced(old, new) {
                    self.replaced.lock().insert(new.uid.clone());
                }
                wakes(old, new)
            }
            Change::Deleted(node) => {
                self.appeared.lock().remove(&node.name);
                self.replaced.lock().remove(&node.uid);
                false
            }
        }
    }

    /// The current nodes. Until the provider has reported its schemes, nodes with a provider ID
    /// are omitted, because their owner is unknown.
    pub(crate) fn look(&self, settings: &LifecycleSettings) -> Nodes {
        let (wall, now, appeared) = (clock::wall(), self.now(), self.appeared.lock());
        let (replaced, mut approval) = (self.replaced.lock(), self.approval.lock());
        if let Some(changed) = approval.0.changed(now) {
            approval.1 = changed;
        }
        let approves =
            |node: &Node| approval.1.as_ref().is_some_and(|set| set.covers(now, &node.labels));
        let view = |node: Arc<Node>| {
            let claim = instances::claim(&*self.cloud, &node)?;
            let seen = appeared.get(&node.name).map(Instant::elapsed);
            let mut view = view(&node, claim, age(node.age(wall), seen));
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
        let collect = |place: usize, result| {
            if let Some(node) = asked.get(place) {
                let (name, uid) = (Arc::clone(&node.name), node.uid.clone());
                let answers = if place < watched.len() { &mut lookups } else { &mut witnesses };
                answers.push(LookedUp { name, uid, answered: self.now(), result, heartbeat: None });
            }
        };
        let lookup = instances::lookup_each(&*self.cloud, &asked, Detail::Presence, call, collect);
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
        self.learn(&lookups, start, settings.cloud_call_timeout);
        let gone = lookups.iter_mut().filter(|lookup| {
            let is_gone = matches!(lookup.result, Ok(Lookup::Gone(_)));
            is_gone && agenda.heartbeats.contains(&lookup.name)
        });
        let reads = stream::iter(gone).for_each_concurrent(READS, async |lookup| {
            lookup.heartbeat = self.heartbeat(&lookup.name).await;
        });
        // What was not read in time keeps its node.
        timeout(settings.cloud_call_timeout, reads).await.ok();
        Replies { lookups, witnesses, list, start }
    }

    /// What the Lease of the kubelet shows now; `None` if it cannot be read.
    async fn heartbeat(&self, node: &str) -> Option<Heartbeat> {
        let lease = self.leases.get(&format!("{NODE_LEASES}/{node}")).await;
        let lease = lease.map_err(|error| self.reports.unread(node, &error)).ok()?;
        let text = lease
            .map(|lease| format!("{} {} {}", lease.uid, lease.resource_version, lease.renewed));
        Some(Heartbeat(text.unwrap_or_default()))
    }

    /// What the cloud can answer next.
    pub(crate) fn abilities(&self) -> Abilities {
        let lists = instances::traits(&*self.cloud).lists;
        Abilities { most_lookups: self.batch.lock().get(), lists, seed: rand::random() }
    }

    /// Adapts the number of nodes in a lookup to what the cloud answers in time.
    fn learn(&self, lookups: &[LookedUp], start: At, limit: Duration) {
        let took = lookups.iter().map(|lookup| lookup.answered.since(start)).max();
        let results = lookups.iter().map(|lookup| &lookup.result);
        if let Some(call) = BatchCall::with_answers(results, took.unwrap_or_default(), limit) {
            self.batch.lock().learn(&call);
        }
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

/// The shortest possible age: by the wall clock, which may be wrong, and by the time since
/// this process saw the node's creation.
fn age(created: Option<Duration>, seen_for: Option<Duration>) -> Duration {
    let by_clock = created.unwrap_or_default();
    seen_for.map_or(by_clock, |seen| seen.min(by_clock))
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
    let (instances, unreadable) = (fleet.instances.len(), fleet.malformed.clone());
    let names = fleet.instances.iter().map(|instance| instance.name.to_lowercase()).collect();
    let snapshot = Snapshot::of_list(fleet.instances);
    let missing: BTreeSet<Name> = nodes
        .iter()
        .filter(|(view, node)| {
            let id = node.provider_id.as_deref().map(&spell);
            let (id, name) = (id.as_deref(), &*node.name);
            view.in_reach()
                && !shows((&snapshot, &names), name, id)
                && !may_be_in(&unreadable, name, id)
        })
        .map(|(view, _)| Arc::clone(&view.name))
        .collect();
    Listing::Read { asked, answered, instances, malformed: unreadable.len(), missing }
}

/// Whether the list shows the node's instance. Two matching instances count as shown: the
/// right one cannot be determined. Names of nodes are lower-case, those in a cloud need not be.
fn shows((ids, names): (&Snapshot, &HashSet<String>), node: &str, id: Option<&str>) -> bool {
    match id {
        Some(id) => !matches!(ids.get(id), Ok(None)),
        None => names.contains(&node.to_lowercase()),
    }
}

/// Whether an unreadable entry of the list may be about this node.
fn may_be_in(unreadable: &[String], node: &str, id: Option<&str>) -> bool {
    let id = id.unwrap_or(node);
    // Names in a cloud need not be lower-case, as those of nodes are. The provider's own part of an ID, as some providers name an instance by it.
    let tail = id.rsplit(['/', ':']).next().filter(|tail| !tail.is_empty()).unwrap_or(id);
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut words = unreadable.iter().flat_map(|line| line.split(|c| !is_word(c)));
    words.any(|word| {
        [tail, node].iter().any(|name| name.eq_ignore_ascii_case(word.trim_end_matches('.')))
    })
}

#[cfg(test)]
mod tests;
