//! A pass: selects the nodes to look up, and handles the answers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{CloudError, Lookup, LookupResult};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::plans::Step;
use serde::{Deserialize, Serialize};

use super::{
    Machine, ShownFleet,
    effect::{Ask, Decided, Effect, NodePlan, deletion_step, marks_step},
    event::{FleetList, HandoverNote, Sight, Unlisted},
};
use crate::policy::{
    Abilities, Agenda, Answers, Decision, DeletionOutcome, Heartbeat, Listing, LookedUp, NodeView,
    Reason, Source,
    action::{self, Action, Write},
    text::kept,
};

/// The wait when no node is due; any change wakes the loop.
const IDLE: Duration = Duration::from_mins(1);

type ByName = HashMap<Name, Arc<Node>>;

/// The look at the cloud that is under way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LookUnderWay {
    pub(super) answers: Answers,
    /// The nodes whose kubelet's Lease is read after an answer "gone".
    heartbeats: BTreeSet<Name>,
}

impl Machine {
    /// Removes the marks of nodes that work: this does not need an answer of the cloud.
    pub(super) fn begin_pass(&mut self, sight: Sight, now: At) -> Vec<Effect> {
        (self.has_failed, self.asked) = (false, None);
        self.nodes.sight(sight);
        let views = self.views(now);
        let removal = self.parameters.shutdown_taint_removal;
        let (mut effects, mut actions) = (Vec::new(), Vec::new());
        for view in views.iter().filter(|view| view.is_well()) {
            let Some(node) = self.nodes.get(&view.name).cloned() else { continue };
            self.last.forget_answers(&view.name);
            let action = action::marks(view, &node, None, removal);
            let steps = action.iter().map(marks_step).collect();
            effects.extend(self.page(&node, NodePlan::Steps(steps)));
            actions.extend(action);
        }
        self.write(now, actions, &mut effects);
        effects
    }

    /// Selects the nodes that are due, and asks the cloud about them.
    pub(super) fn due(
        &mut self,
        now: At,
        (most_lookups, lists, seed): (usize, bool, u64),
    ) -> Vec<Effect> {
        let lists_once = self.observes;
        self.decider.adapt_to(Abilities { most_lookups, lists, lists_once, seed });
        let (agenda, mut effects) = self.agenda(now, &self.views(now));
        if agenda.is_empty() {
            return effects;
        }
        let objects = |names: &[Name]| -> Vec<Arc<Node>> {
            names.iter().filter_map(|name| self.nodes.get(name).cloned()).collect()
        };
        let (look_up, witnesses) = (objects(&agenda.look_up), objects(&agenda.witnesses));
        effects.push(Effect::Ask(Ask { look_up, witnesses, list: agenda.list && lists }));
        let list = (agenda.list && !lists).then_some(Listing::Witnesses);
        let answers = Answers { asked: now, lookups: Vec::new(), witnesses: Vec::new(), list };
        self.asked = Some(LookUnderWay { answers, heartbeats: agenda.heartbeats });
        effects
    }

    /// Records the answers. Each one has its own time: a slow node must not invalidate the answers
    /// of the others.
    pub(super) fn looked_up(
        &mut self,
        answered: At,
        (name, uid): (Name, Box<str>),
        is_witness: bool,
        result: LookupResult,
    ) {
        let Some(LookUnderWay { answers, .. }) = &mut self.asked else { return };
        let looked_up = LookedUp { name, uid, answered, result, heartbeat: None };
        let known = if is_witness { &mut answers.witnesses } else { &mut answers.lookups };
        known.push(looked_up);
    }

    /// Keeps the list until it is compared with the nodes.
    pub(super) fn listed(&mut self, answered: At, list: Result<FleetList, CloudError>) {
        let Some(LookUnderWay { answers, .. }) = &mut self.asked else { return };
        let (asked, missing) = (answers.asked, BTreeSet::new());
        answers.list = Some(match list {
            Err(error) => Listing::Failed(error),
            Ok(FleetList { instances, malformed }) => {
                Listing::Read { asked, answered, instances, malformed, missing }
            }
        });
    }

    /// Requests the Leases of the kubelets whose instances the cloud reports as gone.
    pub(super) fn heartbeats(&self) -> Vec<Effect> {
        let Some(LookUnderWay { answers, heartbeats }) = &self.asked else { return Vec::new() };
        let gone = answers.lookups.iter().filter(|lookup| {
            matches!(lookup.result, Ok(Lookup::Gone(_))) && heartbeats.contains(&lookup.name)
        });
        let names: Vec<_> = gone.map(|lookup| Arc::clone(&lookup.name)).collect();
        if names.is_empty() { Vec::new() } else { vec![Effect::ReadLeases(names)] }
    }

    /// A Lease that was not read in time keeps its node.
    pub(super) fn beat(&mut self, name: &str, shown: Option<Heartbeat>) {
        let Some(LookUnderWay { answers, .. }) = &mut self.asked else { return };
        let lookup = answers.lookups.iter_mut().find(|lookup| *lookup.name == *name);
        if let Some(lookup) = lookup {
            lookup.heartbeat = shown;
        }
    }

    /// Decides from the answers and the current nodes.
    pub(super) fn decide(&mut self, now: At, sight: Sight, unlisted: &Unlisted) -> Vec<Effect> {
        self.nodes.sight(sight);
        let Some(LookUnderWay { answers, .. }) = self.asked.take() else { return Vec::new() };
        let views = self.views(now);
        let answers = self.compared_with(answers, unlisted, &views);
        let mut effects = failures(&answers);
        let marks = self.marks_of_watched(&answers, &views);
        let (errors, lookups) = (answers.errors(), answers.lookups.clone());
        self.last.saw(now, &answers);
        let (before, policy) = (*self.decider.breaker(), &self.parameters.policy);
        let decisions = self.decider.decide(now, &views, answers, policy);
        let are_there = decisions.iter().filter(|one| self.nodes.has(&one.name, &one.uid));
        self.last.heard(now, lookups, are_there);
        let (after, deleted) = (*self.decider.breaker(), self.decider.window(now, policy));
        effects.push(Effect::Breaker { before, after });
        // Deletions wait until this is stored.
        effects
            .push(Effect::Leave(HandoverNote { deleted, replaced: self.nodes.replaced.clone() }));
        let known = views.iter().filter_map(|view| self.nodes.get(&view.name));
        let known: ByName = known.map(|node| (Arc::clone(&node.name), Arc::clone(node))).collect();
        self.plan(&known, (&marks, &decisions), &errors, &mut effects);
        let mut actions = marks;
        for decision in decisions {
            let node = known.get(&decision.name);
            effects.push(self.decided(now, node.cloned(), decision.clone()));
            actions.extend(action::deletion(node, decision));
        }
        self.write(now, actions, &mut effects);
        effects
    }

    /// Says when the next pass is due, and why nothing is done about excluded nodes.
    pub(super) fn end_pass(&mut self, now: At) -> Vec<Effect> {
        let views = self.views(now);
        let (next, mut effects) = self.agenda(now, &views);
        let left_out = views.iter().filter(|view| !view.is_well() && !view.in_reach());
        for view in left_out {
            let Some(node) = self.nodes.get(&view.name).cloned() else { continue };
            let is_left = !view.selected || view.claim == ccm_cloud::Claim::Foreign;
            let page = match is_left {
                true => NodePlan::LeftOut { is_selected: view.selected },
                false => NodePlan::Blocked(kept(Reason::Deleting).text),
            };
            effects.extend(self.page(&node, page));
        }
        let due = if self.has_failed || !next.is_empty() {
            // Nodes that failed or did not fit into this pass wait for a period.
            now + self.parameters.policy.monitor_period
        } else {
            next.next.unwrap_or(now + IDLE)
        };
        effects.push(Effect::Next(due));
        effects
    }

    fn agenda(&mut self, now: At, views: &[NodeView]) -> (Agenda, Vec<Effect>) {
        self.backlog.track(now, views);
        let mut agenda = self.decider.agenda(now, views, &self.parameters.policy);
        let mut effects = Vec::new();
        for decision in std::mem::take(&mut agenda.ended) {
            let name = Arc::clone(&decision.name);
            let node = self.nodes.get(&name).cloned();
            // Each pass shows the plans of nodes that work.
            let is_over = node.as_ref().is_none_or(|node| !node.is_ready());
            effects.push(self.decided(now, node, decision));
            if is_over && self.planned.remove(&name) {
                effects.push(Effect::Clear(name));
            }
        }
        (agenda, effects)
    }

    /// Returns the answers with the list compared with these nodes. Remembers what they show.
    fn compared_with(
        &mut self,
        mut answers: Answers,
        unlisted: &Unlisted,
        views: &[NodeView],
    ) -> Answers {
        if let Some(Listing::Read { missing, .. }) = &mut answers.list {
            let in_reach = views.iter().filter(|view| view.in_reach()).map(|view| &view.name);
            let lacking = in_reach.filter(|name| self.nodes.is_unlisted(name, unlisted));
            *missing = lacking.map(Arc::clone).collect();
        }
        self.shown = shown(&answers, views).or(self.shown);
        let found = answers.lookups.iter().filter(|one| matches!(one.result, Ok(Lookup::Found(_))));
        for lookup in found {
            // The instance exists: the system UUID of the node has changed for another reason.
            self.nodes.replaced.remove(&lookup.uid);
        }
        answers
    }

    /// Returns the new marks of nodes that are not Ready, from the cloud's answers.
    fn marks_of_watched(&self, answers: &Answers, views: &[NodeView]) -> Vec<Action> {
        let views: HashMap<&str, &NodeView> =
            views.iter().map(|view| (&*view.name, view)).collect();
        let removal = self.parameters.shutdown_taint_removal;
        let marks = answers.lookups.iter().filter_map(|lookup| {
            let Ok(Lookup::Found(instance)) = &lookup.result else { return None };
            let (view, node) = (views.get(&*lookup.name)?, self.nodes.get(&lookup.name)?);
            let is_meant = view.uid == lookup.uid && view.is_watched();
            is_meant.then(|| action::marks(view, node, Some(instance.power), removal))?
        });
        marks.collect()
    }

    /// Shows the plans of the nodes that were decided on, or why nothing is done. `errors` has the
    /// kinds of the cloud's errors.
    fn plan(
        &mut self,
        nodes: &ByName,
        (marks, decisions): (&[Action], &[Decision]),
        errors: &HashMap<Name, &'static str>,
        effects: &mut Vec<Effect>,
    ) {
        let mut steps: HashMap<&str, Vec<Step>> = HashMap::new();
        for action in marks {
            steps.entry(&action.node.name).or_default().push(marks_step(action));
        }
        for decision in decisions {
            let name = &*decision.name;
            let Some(node) = nodes.get(name) else { continue };
            let mut steps = steps.remove(name).unwrap_or_default();
            steps.extend(deletion_step(decision));
            let page = match decision.blocked() {
                Some(why) if steps.is_empty() => {
                    let error = errors.get(name).map(|error| format!(" ({error})"));
                    NodePlan::Blocked(why + &error.unwrap_or_default())
                }
                _ => NodePlan::Steps(steps),
            };
            effects.extend(self.page(node, page));
        }
    }

    fn page(&mut self, node: &Arc<Node>, page: NodePlan) -> Option<Effect> {
        if matches!(&page, NodePlan::Steps(steps) if steps.is_empty()) {
            let is_shown = self.planned.remove(&node.name);
            return is_shown.then(|| Effect::Clear(Arc::clone(&node.name)));
        }
        self.planned.insert(Arc::clone(&node.name));
        Some(Effect::Page(Arc::clone(node), page))
    }

    fn decided(&mut self, now: At, node: Option<Arc<Node>>, decision: Decision) -> Effect {
        let settled = self.backlog.decided(now, &decision);
        let message = decision.message(now, &self.parameters.policy, node.as_deref());
        Effect::Decided(Box::new(Decided { node, decision, message, settled }))
    }

    /// Requests the writes of these actions, unless this process only observes.
    fn write(&mut self, now: At, actions: Vec<Action>, effects: &mut Vec<Effect>) {
        for Action { node, write } in actions {
            match write {
                Write::Delete(decision) if self.observes => {
                    let policy = &self.parameters.policy;
                    self.decider.deleted(now, &decision, DeletionOutcome::Observed, policy);
                }
                _ if self.observes => {}
                write if self.may(now, &node, &write) => {
                    let write = self.with_proof(now, &node, write);
                    effects.push(Effect::Write(Action { node, write }));
                }
                _ => {}
            }
        }
    }
}

/// Returns the failed lookups, by the kind of their error.
fn failures(answers: &Answers) -> Vec<Effect> {
    let mut kinds: BTreeMap<&'static str, (usize, &Name, &CloudError)> = BTreeMap::new();
    for lookup in answers.lookups.iter().chain(&answers.witnesses) {
        if let Err(error) = &lookup.result {
            kinds.entry(error.kind.reason()).or_insert((0, &lookup.name, error)).0 += 1;
        }
    }
    let failures = kinds.into_values().map(|(nodes, first, error)| Effect::LookupsFailed {
        nodes,
        first: Arc::clone(first),
        error: error.clone(),
    });
    failures.collect()
}

/// Counts the initialised nodes that the list has shown, or the witnesses that lookups have found.
fn shown(answers: &Answers, views: &[NodeView]) -> Option<ShownFleet> {
    match answers.list.as_ref()? {
        Listing::Read { missing, .. } => {
            let initialised = views.iter().filter(|view| view.in_reach() && !view.uninitialised);
            let found = initialised.clone().filter(|view| !missing.contains(&view.name));
            Some(ShownFleet { by: Source::List, found: found.count(), of: initialised.count() })
        }
        Listing::Witnesses => {
            let is_gone = |one: &&LookedUp| matches!(one.result, Ok(Lookup::Gone(_)));
            let (of, gone) =
                (answers.witnesses.len(), answers.witnesses.iter().filter(is_gone).count());
            Some(ShownFleet { by: Source::Lookups, found: of - gone, of })
        }
        Listing::Failed(_) => None,
    }
}
