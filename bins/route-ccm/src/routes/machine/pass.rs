//! A pass over all nodes: the plan, and the calls that follow.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::RouteChange;
use ccm_controller::queue::Priority;
use ccm_objects::{Node, Shared as Name};

use super::{Blocked, Call, Effect, Machine, Page, Pass};
use crate::{
    node_ipam::machine::Event as Ipam,
    routes::plan::{Held, Plan, Planned, Planner, View, wanted::NodeView},
};

/// How long to sleep when nothing is due. Any change wakes the loop.
const IDLE: Duration = Duration::from_mins(1);
/// How many nodes are looked up at once.
const LOOKED_UP: usize = 500;

/// The nodes by name.
type Nodes<'a> = HashMap<&'a str, &'a NodeView>;

impl Machine {
    /// Plans, and says what follows. Waits for no call.
    pub(super) fn pass(&mut self, pass: &Pass, now: At, effects: &mut Vec<Effect>) {
        let nodes: Nodes<'_> = pass.nodes.iter().map(|view| (&*view.node.name, view)).collect();
        self.decide_by(&pass.parameters);
        self.listing.within(pass.parameters.period);
        if self.listing.begin(now) {
            effects.push(Effect::Call(Call::List));
        }
        let next = self.plan(pass, &nodes, now, effects);
        self.due_conditions(pass, now, effects);
        let gone = pass.awaited.iter().filter(|network| self.has_no_route(**network));
        effects.extend(gone.map(|network| Effect::Ipam(Ipam::RouteGone(*network))));
        let due = [
            next,
            self.listing.next(),
            self.progress.next_condition(now),
            self.planner.in_flight.next(now),
        ];
        effects.push(Effect::Due(due.into_iter().flatten().fold(now + IDLE, At::min)));
    }

    /// Plans a pass, and adds its effects. Returns when to plan again. Before the first list there is
    /// nothing to change.
    fn plan(
        &mut self,
        pass: &Pass,
        nodes: &Nodes<'_>,
        now: At,
        effects: &mut Vec<Effect>,
    ) -> Option<At> {
        // Node IPAM itself reports why a node has no pod CIDRs.
        let bare = self.progress.bare(now, &pass.nodes).into_iter();
        let bare = bare.filter(|view| !pass.lacks.contains_key(&view.node.name));
        effects.extend(bare.map(|view| Effect::Bare(Arc::clone(&view.node))));
        let changed = self.take_changed();
        let Some(mut plan) = self.make_plan(pass, now, changed) else {
            let why = self.listing.why_unlisted();
            effects.push(Effect::Counted(self.progress.unlisted(now, &pass.nodes, &why)));
            return None;
        };
        let blocked = pass.nodes.iter().filter_map(|view| {
            Some((Name::clone(&view.node.name), self.why_without_route(view, &plan)?))
        });
        effects.push(Effect::Show(Page::Blocked(blocked.collect())));
        if plan.is_full() {
            self.listing.wait_for_room();
        }
        let completed = self.progress.planned(now, mem::take(&mut plan.nodes));
        effects.push(Effect::Show(Page::Routes(plan.changes.clone())));
        self.calls(pass, &plan, now, effects);
        for view in completed.iter().filter_map(|name| nodes.get(&**name)) {
            self.completed(&view.node, effects);
        }
        tell(&plan, nodes, effects);
        plan.next
    }

    /// Plans; `None` before the first list.
    fn make_plan(
        &mut self,
        pass: &Pass,
        now: At,
        changed: impl IntoIterator<Item = ipnet::IpNet>,
    ) -> Option<Plan> {
        let table = self.listing.table.as_ref()?;
        self.planner.node_changed(changed.into_iter());
        self.former.retain(now, &table.targets());
        let mut planner = mem::take(&mut self.planner);
        let sendable = self.sendable(&planner, pass, now);
        let plan = self.view(pass, sendable).map(|view| planner.plan(now, &view));
        self.planner = planner;
        plan
    }

    /// Returns the plan that would be made now, without any consequence; `None` before the first
    /// list.
    pub(super) fn rehearse(&self, pass: &Pass, now: At) -> Option<Plan> {
        let view = self.view(pass, self.sendable(&self.planner, pass, now))?;
        Some(self.planner.rehearse(now, &view, self.changed.iter().flatten().copied()))
    }

    /// Returns the changes of this call by which a route goes, as far as the present plan has them
    /// as well.
    pub(super) fn lost_again(&self, batch: &[Planned], pass: &Pass, now: At) -> Vec<RouteChange> {
        if batch.iter().all(|planned| planned.old().is_none()) {
            return Vec::new();
        }
        let view = self.view(pass, usize::MAX);
        view.map(|view| self.planner.again(now, &view, batch)).unwrap_or_default()
    }

    fn sendable(&self, planner: &Planner, pass: &Pass, now: At) -> usize {
        match self.fixed.is_observing {
            true => usize::MAX,
            false => planner.in_flight.room(now, &pass.traits),
        }
    }

    /// Returns the inputs of a plan; `None` before the first list.
    pub(super) fn view<'a>(&'a self, pass: &'a Pass, sendable: usize) -> Option<View<'a>> {
        Some(View {
            nodes: &pass.nodes,
            table: self.listing.table.as_ref()?,
            traits: &pass.traits,
            cluster: &self.fixed.cluster,
            parameters: &pass.parameters,
            blocks: self.blocks.as_ref(),
            former: &self.former,
            has_instances: pass.has_instances,
            sendable,
        })
    }

    /// Says why a node does not get a route, if there is an obstacle. Node IPAM itself says why a node does not have
    /// pod CIDRs.
    fn why_without_route(&self, view: &NodeView, plan: &Plan) -> Option<Blocked> {
        let NodeView { node, left_out, .. } = view;
        match left_out {
            Some(left_out) => Some(Blocked::LeftOut(Arc::clone(node), *left_out)),
            None if node.pod_cidrs.is_empty() => (!self.fixed.gives_cidrs)
                .then(|| Blocked::Because("the node has no podCIDRs".to_owned())),
            None => plan.nodes.get(&node.name)?.problem.clone().map(Blocked::Because),
        }
    }

    /// Makes the calls that follow from a plan. A question changes nothing: an observer asks, too.
    fn calls(&mut self, pass: &Pass, plan: &Plan, now: At, effects: &mut Vec<Effect>) {
        if !self.fixed.is_observing {
            // Routes are deleted only after this is stored.
            effects.push(Effect::Leave {
                deleted: self.planner.window().clone(),
                networks: self.planner.networks.clone(),
            });
        }
        // Only one question of each kind is asked at a time.
        if !plan.questions.is_empty() && !mem::replace(&mut self.is_asking, true) {
            let (targets, witnesses) = (plan.questions.clone(), plan.witnesses.clone());
            effects.push(Effect::Call(Call::Ask { targets, witnesses }));
        }
        if !plan.claims.is_empty() && !mem::replace(&mut self.is_looking_up, true) {
            let claims = plan.claims.iter().take(LOOKED_UP).cloned().collect();
            effects.push(Effect::Call(Call::LookUp(claims)));
        }
        if !self.fixed.is_observing {
            self.apply_plan(pass, plan, now, effects);
        }
    }

    /// Makes the calls that carry out this plan.
    fn apply_plan(&mut self, pass: &Pass, plan: &Plan, now: At, effects: &mut Vec<Effect>) {
        let traits = &pass.traits;
        // A second call would be decided on a version that the first one changes.
        let calls = match traits.compares_version {
            true if !self.is_idle() || self.listing.is_stale => 0,
            true => 1,
            false => pass.room,
        };
        let mut due = plan.due();
        for _ in 0..calls {
            let batch: Vec<Planned> = due.by_ref().take(traits.max_batch.max(1)).cloned().collect();
            if batch.is_empty() {
                break;
            }
            let version = self.listing.table.as_ref().and_then(|table| table.version.clone());
            let base = version.filter(|_| traits.compares_version);
            // They are under way from now on.
            for planned in &batch {
                self.planner.sent(now, planned);
            }
            effects.push(Effect::Call(Call::Apply { batch, base }));
        }
    }

    /// Records that a node has all its routes: how long it took, if that is new.
    pub(super) fn completed(&mut self, node: &Arc<Node>, effects: &mut Vec<Effect>) {
        if self.progress.completes(node) {
            effects.push(Effect::Completed(Arc::clone(node)));
        }
    }

    /// Queues the nodes whose condition route-ccm may have to write. An observer does not say that a route is
    /// missing which it would make.
    fn due_conditions(&self, pass: &Pass, now: At, effects: &mut Vec<Effect>) {
        let is_observing = self.fixed.is_observing;
        let known = pass.nodes.iter().filter(|view| self.progress.knows(&view.node.name));
        let due = known.filter_map(|view| {
            let name = &view.node.name;
            let lack = pass.lacks.get(name).map(String::as_str);
            let wanted = self.condition(now, view, lack)?;
            let is_shown = !is_observing || !self.progress.is_pending(name);
            is_shown.then(|| (Name::clone(name), wanted))
        });
        // A leader's conditions are written soon, because the next plan may be a minute away.
        match is_observing {
            true => effects.push(Effect::Show(Page::Conditions(due.collect()))),
            false => {
                effects.extend(due.map(|(name, _)| Effect::Condition(name, Priority::Routine)));
            }
        }
    }
}

/// Tells what a plan has found.
fn tell(plan: &Plan, nodes: &Nodes<'_>, effects: &mut Vec<Effect>) {
    effects.push(Effect::Counted(plan.counts));
    effects.extend(plan.breaker.map(Effect::Breaker));
    let node = |name: &Name| nodes.get(&**name).map(|view| Arc::clone(&view.node));
    for problems in plan.problems.chunk_by(|(one, _), (other, _)| one == other) {
        let found = problems.first().and_then(|(name, _)| node(name));
        let problems = problems.iter().map(|(_, problem)| problem.clone());
        effects.extend(found.map(|node| Effect::Problems(node, problems.collect())));
    }
    let waiting = plan.changes.iter().find_map(|planned| {
        let held = planned.held.as_ref()?;
        let words = format!("{}: {held}", planned.words());
        Some(Effect::WaitsForAPerson(node(held.waits_for_a_person()?)?, words))
    });
    effects.extend(waiting);
    let example = plan.changes.iter().find_map(|planned| {
        let held = planned.held.as_ref();
        let held = held.filter(|held| !matches!(held, Held::Retry(_) | Held::NoRoom))?;
        Some(format!("{} ({}): {held}", planned.words(), planned.why))
    });
    let count = plan.counts.held;
    let brake = match &example {
        Some(example) => Err(format!("{count} held, first: {example}")),
        None => refused(plan).map_or(Ok(()), Err),
    };
    effects.extend([Effect::Held(count, example), Effect::Brake(brake)]);
}

/// Returns the pod CIDRs that get no route because of their nodes, in words.
fn refused(plan: &Plan) -> Option<String> {
    let mut refused = plan.problems.iter().filter(|(_, problem)| problem.is_of_its_node());
    let (node, first) = refused.next()?;
    Some(format!("{} pod CIDRs get no route, first of node {node}: {first}", 1 + refused.count()))
}
