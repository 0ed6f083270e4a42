//! What the leader knows of the route table, and which calls to the cloud follow from it: no call,
//! no task, the time as a value.

mod questions;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use ccm_base::{At, Backoff, RetryClass};
use ccm_cloud::{
    AppliedChange, CloudError, Route, RouteChange, RouteTable, RouteTarget, RouteTraits,
};
use ccm_controller::brake::approval::SetApproval;
use ccm_objects::{Node, Shared as Name};
use ipnet::IpNet;

use crate::{
    metrics::Look,
    node_ipam::ipam::Config,
    routes::plan::{
        Counts, Lack, NodeRoutes, Plan, Planned, Planner,
        claims::Claim,
        condition::{GRACE, NETWORK_UNAVAILABLE},
        failures::is_conflict,
        table::Table,
        targets::is_target,
        wanted::NodeView,
        widths::Widths,
    },
    settings::RouteSettings,
};

/// The wait after a list that has failed.
const LIST_RETRY: Backoff =
    Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(1) };
/// The wait before a list because of an unexpected answer: others may follow. The change is tried
/// again after the list.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The wait before a list because others have changed the table, after the first such list: nodes
/// wait for it.
const CONFLICTS: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// How long before its term a leader takes a node for one that joins. An older node without the condition
/// has had its pods without it.
const JOINING: Duration = Duration::from_mins(10);
/// Creation times have no fractions.
const SECOND: Duration = Duration::from_secs(1);

/// How long a node may have no pod CIDRs before that is reported.
const BARE: Duration = Duration::from_mins(1);
/// The time between two lists while nodes wait for room in the table, which others may make.
const FULL: Duration = Duration::from_mins(1);

/// A call to the cloud.
#[derive(Debug)]
pub(crate) enum Job {
    /// Lists the table.
    List,
    /// Asks whether targets exist, together with some that do.
    Ask { targets: Vec<RouteTarget>, witnesses: Vec<RouteTarget> },
    /// Looks up the instances of nodes.
    LookUp(Vec<Claim>),
    /// Changes the table.
    Apply { batch: Vec<Planned>, base: Option<String>, by: Basis },
}

/// The settings and the approval by which changes were decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Basis {
    pub(crate) settings: Arc<RouteSettings>,
    /// The user's approval.
    pub(crate) approval: Option<SetApproval>,
}

/// The state of the leader.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) planner: Planner,
    /// `None` until the first list.
    pub(crate) table: Option<Table>,
    /// How nodes get their pod CIDRs, if they get them from this program.
    blocks: Option<Config>,
    /// What has been changed since the list that is under way began.
    changed_since: Option<Vec<(RouteChange, AppliedChange)>>,
    /// When the list that is under way, or the last one, began.
    read_at: At,
    /// Destinations of changes that may be carried out, though they have failed, since the last list
    /// began; and those of before, which the list under way will show.
    doubted: BTreeSet<IpNet>,
    shown_soon: BTreeSet<IpNet>,
    /// When to list, and when the last list ended.
    list_at: At,
    ended_at: At,
    /// When to list because of an answer.
    look_at: Option<At>,
    /// Whether others have changed the table since the last list began, so that its version is of
    /// no use; and how many lists in a row have begun because of that, without a change since.
    is_stale: bool,
    conflicts: u32,
    /// Routes of nodes that were refused because of that, with what was there. They follow the
    /// list at once: if others write all the time, a later call is refused again.
    refused: Vec<(Planned, Vec<Route>)>,
    failed_lists: u32,
    /// Why the last list has failed, if it has.
    list_error: Option<String>,
    is_asking: bool,
    is_looking_up: bool,
    /// The routes of each node with pod CIDRs, as of the last plan and the answers since.
    nodes: HashMap<Name, NodeRoutes>,
    /// Since when a node has lacked routes.
    lacking: HashMap<Name, At>,
    /// Since when a node has had no pod CIDRs.
    bare: HashMap<Name, At>,
    /// When this term began, by the clock of creation times.
    begun: At,
    /// The UIDs of nodes created since then that have had all their routes.
    completed: HashMap<Name, Box<str>>,
}

impl State {
    /// The state at the beginning of a term.
    pub(crate) fn new(now: At, begun: At, planner: Planner, blocks: Option<Config>) -> Self {
        Self {
            planner,
            table: None,
            blocks,
            changed_since: None,
            read_at: now,
            doubted: BTreeSet::new(),
            shown_soon: BTreeSet::new(),
            list_at: now,
            ended_at: now,
            look_at: None,
            is_stale: false,
            conflicts: 0,
            refused: Vec::new(),
            failed_lists: 0,
            list_error: None,
            is_asking: false,
            is_looking_up: false,
            nodes: HashMap::new(),
            lacking: HashMap::new(),
            bare: HashMap::new(),
            begun,
            completed: HashMap::new(),
        }
    }

    /// The list that is due, if one is.
    pub(crate) fn list(&mut self, now: At) -> Option<Job> {
        if self.next_list().is_none_or(|due| now < due) {
            return None;
        }
        self.look_at = None;
        self.conflicts += u32::from(self.is_stale);
        self.changed_since = Some(Vec::new());
        self.read_at = now;
        self.shown_soon.append(&mut self.doubted);
        Some(Job::List)
    }

    /// The period has changed: a shorter one holds at once.
    pub(crate) fn list_within(&mut self, period: Duration) {
        self.list_at = self.list_at.min(self.ended_at + period);
    }

    /// When the next list is due; `None` while one is under way.
    pub(crate) fn next_list(&self) -> Option<At> {
        let due = self.look_at.map_or(self.list_at, |look| look.min(self.list_at));
        self.changed_since.is_none().then_some(due)
    }

    /// A list has ended. Returns whether it was the first one that succeeded.
    pub(crate) fn listed(
        &mut self,
        now: At,
        answer: Result<RouteTable, CloudError>,
        period: Duration,
    ) -> bool {
        let changes = self.changed_since.take().unwrap_or_default();
        self.ended_at = now;
        match answer {
            Ok(listed) => {
                let mut table = Table::from(listed);
                // The list may be older than they are.
                for (change, applied) in &changes {
                    table.apply(change, applied);
                }
                self.planner.listed(now, &table);
                (self.failed_lists, self.list_error) = (0, None);
                self.shown_soon.clear();
                self.list_at = now + period;
                // Unless that was seen after the list had begun.
                self.is_stale &= self.look_at.is_some();
                self.table.replace(table).is_none()
            }
            Err(error) => {
                self.failed_lists += 1;
                self.list_error = Some(error.to_string());
                let wait = match error.class() {
                    RetryClass::RetryAfter(after) => after.max(LIST_RETRY.first),
                    RetryClass::Permanent => LIST_RETRY.longest,
                    RetryClass::Retry => LIST_RETRY.after(self.failed_lists),
                };
                self.list_at = now + wait.min(period);
                false
            }
        }
    }

    /// The destinations of all routes, with those that are being made, and when the table was read;
    /// `None` before the first list.
    pub(crate) fn destinations(&self) -> Option<(Vec<IpNet>, At)> {
        let table = self.table.as_ref()?;
        let made = self.planner.in_flight().destinations().chain(self.doubted.iter().copied());
        Some((table.destinations().chain(made).collect(), self.read_at))
    }

    /// Whether there is no route to this destination, and none is being made.
    pub(crate) fn has_no_route(&self, destination: IpNet) -> bool {
        let is_absent = |table: &Table| table.to(destination).is_empty();
        self.table.as_ref().is_some_and(is_absent)
            && !self.planner.in_flight().contains(destination)
            && !self.doubted.contains(&destination)
            && !self.shown_soon.contains(&destination)
    }

    /// The calls that carry out this plan.
    pub(crate) fn calls(
        &mut self,
        now: At,
        plan: &Plan,
        traits: &RouteTraits,
        room: usize,
        by: &Basis,
    ) -> Vec<Job> {
        let mut jobs = Vec::new();
        // A second call would be decided on a version that the first one changes.
        let calls = match traits.compares_version {
            true if !self.planner.in_flight().is_empty() || self.is_stale => 0,
            true => 1,
            false => room,
        };
        if calls > 0 {
            self.refused.clear();
        }
        let mut due = plan.due();
        for _ in 0..calls {
            let batch: Vec<Planned> = due.by_ref().take(traits.max_batch.max(1)).cloned().collect();
            if batch.is_empty() {
                break;
            }
            for planned in &batch {
                self.planner.sent(now, planned);
            }
            let base = self.table.as_ref().and_then(|table| table.version.clone());
            let base = base.filter(|_| traits.compares_version);
            jobs.push(Job::Apply { batch, base, by: by.clone() });
        }
        jobs
    }

    /// The call that repeats what was refused only because others have changed other routes, right
    /// after the list that shows it.
    pub(crate) fn repeated(&mut self, now: At, traits: &RouteTraits, by: &Basis) -> Option<Job> {
        if self.is_stale || !self.planner.in_flight().is_empty() {
            return None;
        }
        let table = self.table.as_ref()?;
        let mut batch = std::mem::take(&mut self.refused);
        batch.retain(|(planned, seen)| table.to(planned.change.destination()) == seen.as_slice());
        batch.truncate(traits.max_batch.max(1));
        let batch: Vec<Planned> = batch.into_iter().map(|(planned, _)| planned).collect();
        for planned in &batch {
            self.planner.sent(now, planned);
        }
        let base = table.version.clone();
        (!batch.is_empty()).then(|| Job::Apply { batch, base, by: by.clone() })
    }

    /// These changes are not due any more.
    pub(crate) fn withdrawn(&mut self, over: &[Planned]) {
        for planned in over {
            tracing::info!("{}: not due any more", planned.words());
            self.planner.withdrawn(planned);
        }
    }

    /// How wide pod CIDRs may be.
    pub(crate) fn widths(&self, settings: &RouteSettings) -> Widths {
        Widths { blocks: self.blocks.clone(), most: settings.max_pod_cidr() }
    }

    /// Records the answer to a change. Returns true if its node has all its routes now. `view` is that node as it is now, if the
    /// answer [concerns](Planned::concerns) it.
    pub(crate) fn applied(
        &mut self,
        now: At,
        planned: &Planned,
        answer: &Result<AppliedChange, CloudError>,
        view: Option<&NodeView>,
    ) -> bool {
        let destination = planned.change.destination();
        if answer.as_ref().is_err_and(|error| error.maybe_done) {
            self.doubted.insert(destination);
        }
        let must_look = self.planner.applied(now, planned, answer);
        let is_outdated = planned.node.is_some() && view.is_none();
        if is_outdated {
            // The next attempt is another change.
            self.planner.node_changed([destination].into_iter());
        }
        if must_look {
            let is_conflict = answer.as_ref().is_err_and(is_conflict);
            let wait = match (is_conflict, self.conflicts) {
                (false, _) => LOOK_AGAIN,
                (true, 0) => Duration::ZERO,
                (true, before) => CONFLICTS.after(before),
            };
            if is_conflict {
                self.refuse(planned);
            }
            let due = now + wait;
            self.look_at = Some(self.look_at.map_or(due, |look| look.min(due)));
        }
        if let Ok(applied) = answer {
            self.conflicts = 0;
            if let Some(table) = &mut self.table {
                table.apply(&planned.change, applied);
            }
            if let Some(changes) = &mut self.changed_since {
                changes.push((planned.change.clone(), applied.clone()));
            }
        }
        let Some(view) = view else { return false };
        let routes = self.nodes.get_mut(&view.node.name);
        let Some(routes) = routes.filter(|routes| routes.are_of(&view.node)) else { return false };
        match answer {
            Ok(AppliedChange { route: Some(route), .. }) if route.defect.is_none() => {
                // If the node has another address now, the next plan says so.
                if route.target.as_ref().is_some_and(|target| is_target(target, view)) {
                    routes.found(destination);
                }
            }
            Ok(AppliedChange { route, .. }) => {
                let defect = route.as_ref().and_then(|route| route.defect.clone());
                let none = || Lack::failed("the cloud shows no such route");
                routes.lack(destination, defect.map_or_else(none, Lack::pending));
            }
            Err(error) => {
                let has_failed = !is_conflict(error);
                routes.lack(destination, Lack { why: error.to_string(), has_failed });
            }
        }
        routes.is_complete()
    }

    /// Others have changed the table. A route that needs no budget of the brake is repeated.
    fn refuse(&mut self, planned: &Planned) {
        self.is_stale = true;
        if let (RouteChange::Create(_), Some(table)) = (&planned.change, &self.table) {
            let seen = table.to(planned.change.destination()).to_vec();
            self.refused.push((planned.clone(), seen));
        }
    }

    /// Takes the states of the nodes over from a plan. Returns the nodes that have all their routes
    /// and had not when this was last seen.
    pub(crate) fn planned(&mut self, now: At, plan: &mut Plan) -> Vec<Name> {
        if plan.is_full() {
            self.list_at = self.list_at.min(self.read_at + FULL);
        }
        let before = std::mem::replace(&mut self.nodes, std::mem::take(&mut plan.nodes));
        let nodes = &self.nodes;
        let earlier = |name: &Name, routes: &NodeRoutes| {
            before.get(name).filter(|before| before.uid == routes.uid)
        };
        let completes = |(name, routes): &(&Name, &NodeRoutes)| {
            let was_complete = earlier(name, routes).is_some_and(NodeRoutes::is_complete);
            routes.is_complete() && !was_complete
        };
        let complete = nodes.iter().filter(completes);
        let complete = complete.map(|(name, _)| Name::clone(name)).collect();
        self.completed.retain(|name, _| nodes.contains_key(name));
        self.lacking.retain(|name, _| {
            let lacks = nodes.get(name).filter(|routes| !routes.is_complete());
            lacks.is_some_and(|routes| earlier(name, routes).is_some())
        });
        for (name, routes) in nodes {
            if !routes.is_complete() {
                self.lacking.entry(Name::clone(name)).or_insert(now);
            }
        }
        complete
    }

    /// Nodes as long as no table was listed: those that join lack their routes, and more is not known. What other
    /// nodes show is the word of a leader who knew the table.
    pub(crate) fn unlisted(&mut self, now: At, nodes: &[NodeView]) -> Counts {
        let why = match &self.list_error {
            Some(error) => format!("cannot list the routes: {error}"),
            None => "the routes are not listed yet".to_owned(),
        };
        let mut counts = Counts::default();
        nodes.iter().filter_map(|view| view.left_out).for_each(|why| counts.left_out(why));
        let served = || nodes.iter().filter(|view| view.left_out.is_none());
        let joins = |node: &Node| {
            node.condition(NETWORK_UNAVAILABLE) != Some("False")
                && Self::is_created_since(self.begun - JOINING, node)
        };
        let mut plan = Plan::default();
        for view in served().filter(|view| joins(&view.node)) {
            for cidr in view.pod_cidrs() {
                let routes = plan.nodes.entry(Name::clone(&view.node.name)).or_default();
                routes.uid.clone_from(&view.node.uid);
                routes.lack(cidr, Lack::pending(why.as_str()));
            }
        }
        let bare = served().filter(|view| view.node.pod_cidrs.is_empty());
        let (nodes_without_cidrs, nodes_incomplete) = (bare.count(), plan.nodes.len());
        self.planned(now, &mut plan);
        Counts { nodes_without_cidrs, nodes_incomplete, ..counts }
    }

    /// The nodes that have had no pod CIDRs for [`BARE`].
    pub(crate) fn bare<'a>(&mut self, now: At, nodes: &'a [NodeView]) -> Vec<&'a Node> {
        let before = std::mem::take(&mut self.bare);
        let served = nodes.iter().filter(|view| view.left_out.is_none());
        let bare = served.map(|view| &*view.node).filter(|node| node.pod_cidrs.is_empty());
        let since = |node: &Node| before.get(&node.name).map_or(now, |since| *since);
        self.bare = bare.clone().map(|node| (Name::clone(&node.name), since(node))).collect();
        bare.filter(|node| now.since(since(node)) >= BARE).collect()
    }

    fn is_created_since(moment: At, node: &Node) -> bool {
        node.created.is_some_and(|created| moment < At::from(created) + SECOND)
    }

    /// A node has all its routes. Returns whether that is so for the first time since it was
    /// created, which was in this term.
    pub(crate) fn completes(&mut self, node: &Node) -> bool {
        if !self.nodes.get(&node.name).is_some_and(|routes| routes.are_of(node)) {
            return false;
        }
        if !Self::is_created_since(self.begun, node) {
            return false;
        }
        let before = self.completed.insert(Name::clone(&node.name), node.uid.clone());
        before.is_none_or(|uid| uid != node.uid)
    }

    /// The routes of a node, and how long it has lacked some. Nothing is known of a node that has come since the last
    /// plan, even if there was one of its name.
    pub(crate) fn routes_of(&self, now: At, node: &Node) -> Option<(NodeRoutes, Duration)> {
        let routes = self.nodes.get(&node.name).filter(|routes| routes.are_of(node))?;
        let waited = self.lacking.get(&node.name).map(|since| now.since(*since));
        Some((routes.clone(), waited.unwrap_or_default()))
    }

    /// Whether a node lacks a route only because it is being made.
    pub(crate) fn is_pending(&self, name: &str) -> bool {
        self.nodes.get(name).and_then(NodeRoutes::why).is_some_and(|(_, has_failed)| !has_failed)
    }

    /// When the next node has lacked routes for so long that its condition says so.
    pub(crate) fn next_condition(&self, now: At) -> Option<At> {
        self.lacking.values().map(|since| *since + GRACE).filter(|due| *due > now).min()
    }

    /// What a scrape shows.
    pub(crate) fn look(&self, now: At) -> Look {
        let first = self.lacking.values().min();
        Look {
            longest_wait: first.map(|since| now.since(*since)).unwrap_or_default(),
            room: self.table.as_ref().and_then(|table| table.room),
        }
    }

    /// The names of all nodes with pod CIDRs.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.nodes.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
