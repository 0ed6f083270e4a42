//! The loop: which nodes are to be looked up, one lookup of them all, the policy, and what
//! it decides carried out.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use ccm_cloud::Claim;
use ccm_controller::passes::{Next, Pass};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::plans::{Plans, Step};
use futures::StreamExt as _;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    execute::{self, Executor, Stopped},
    metrics::States,
    observe::{self, Heard, Nodes, Observer},
    policy::{
        Agenda, Decider, Deletion, NodeView, Verdict,
        action::{Action, Write},
        backlog::Backlog,
        shutdown,
    },
    report::{self, Reporter},
    settings::LifecycleSettings,
};

/// How long to wait when no node is to be looked up; any change wakes.
const IDLE: Duration = Duration::from_mins(1);

/// What a leader does. The memory of its policy is a new one: what an earlier leader
/// suspected is no evidence here.
pub(crate) struct Controller {
    pub(crate) observer: Arc<Observer>,
    pub(crate) executor: Executor,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) plans: Plans,
    pub(crate) settings: watch::Receiver<Arc<LifecycleSettings>>,
    /// Cancelled when nothing new is to be begun.
    pub(crate) closing: CancellationToken,
    pub(crate) decider: Decider,
    pub(crate) backlog: Backlog,
}

impl Pass for Controller {
    fn period(&self) -> Duration {
        self.settings().policy.monitor_period
    }

    async fn pass(&mut self) -> Next {
        let (started, closing) = (Instant::now(), self.closing.clone());
        let settings = self.settings();
        let mut nodes = self.observer.look(&settings);
        let marks = nodes.marks_of_ready(&settings);
        let ready = nodes.iter().filter(|(view, _)| view.ready).map(|(_, node)| node);
        self.publish(ready, steps(&marks));
        let mut is_done = self.carry_out(marks, &settings).await;
        let agenda = self.agenda(&nodes);
        if !agenda.is_empty() {
            let heard = tokio::select! {
                biased;
                () = closing.cancelled() => return Next::At(started),
                heard = self.observer.ask(&agenda, &nodes, &settings) => heard,
            };
            let settings = self.settings();
            let actions;
            (nodes, actions) = self.decide(heard, &settings);
            is_done &= self.carry_out(actions, &settings).await;
            self.reporter.metrics.passed(started.elapsed());
        }
        self.show(&nodes);
        let next = self.agenda(&nodes);
        let now = self.observer.now();
        let due = if !is_done || !next.is_empty() {
            // What failed or found no place in this pass waits a period.
            now + self.period()
        } else {
            next.next.unwrap_or(now + IDLE)
        };
        Next::At(self.observer.instant(due))
    }
}

impl Controller {
    fn settings(&self) -> Arc<LifecycleSettings> {
        Arc::clone(&self.settings.borrow())
    }

    fn agenda(&mut self, nodes: &Nodes) -> Agenda {
        let (now, policy) = (self.observer.now(), &self.settings().policy);
        self.backlog.track(now, &nodes.views);
        let agenda = self.decider.agenda(now, &nodes.views, policy);
        for decision in &agenda.ended {
            let node = self.observer.store.get(&decision.name);
            self.reporter.decided(node.as_deref(), decision, now, policy);
            // What is to be done about a Ready node is published by each pass.
            if node.is_none_or(|node| !node.is_ready()) {
                self.plans.clear("Node", &decision.name);
            }
        }
        agenda
    }

    /// Decides by what was heard and the nodes as they are now. Returns these nodes, and
    /// what is to be done.
    fn decide(&mut self, heard: Heard, settings: &LifecycleSettings) -> (Nodes, Vec<Action>) {
        let nodes = self.observer.look(settings);
        let answers = self.observer.answers(heard, &nodes);
        self.reporter.answered(&answers.lookups);
        if let Some(list) = &answers.list {
            report::list(list);
        }
        let mut actions = nodes.marks_of_watched(&observe::powers(&answers.lookups), settings);
        let (before, now) = (*self.decider.breaker(), self.observer.now());
        let decisions = self.decider.decide(now, &nodes.views, answers, &settings.policy);
        self.reporter.breaker(before, *self.decider.breaker());
        let by_name = nodes.by_name();
        let (mut decided, mut held) = (Vec::new(), Vec::new());
        for decision in decisions {
            if let Some((verdict, waited)) = self.backlog.decided(now, &decision) {
                self.reporter.metrics.settled(verdict, waited);
            }
            let node = by_name.get(&decision.name);
            self.reporter.decided(node.map(|node| &**node), &decision, now, &settings.policy);
            decided.extend(node);
            held.extend(execute::held(&decision).map(|step| (Arc::clone(&decision.name), step)));
            if let (Verdict::Delete, Some(node)) = (decision.verdict, node) {
                let (node, write) = (Arc::clone(node), Write::Delete(Box::new(decision)));
                actions.push(Action { node, write });
            }
        }
        self.publish(decided.into_iter(), steps(&actions).chain(held));
        (nodes, actions)
    }

    /// Publishes all that is to be done about these nodes.
    fn publish<'a>(
        &self,
        nodes: impl Iterator<Item = &'a Arc<Node>>,
        steps: impl Iterator<Item = (Name, Step)>,
    ) {
        let mut by_name: HashMap<Name, Vec<Step>> = HashMap::new();
        for (name, step) in steps {
            by_name.entry(name).or_default().push(step);
        }
        for node in nodes {
            if let Some(steps) = by_name.remove(&node.name) {
                self.plans.set(&node.reference(), steps);
                if self.observer.store.get(&node.name).is_some() {
                    continue;
                }
            }
            self.plans.clear("Node", &node.name);
        }
    }

    /// Carries out what was decided by these settings: the one place where decisions leave
    /// for the API server. Returns whether no mark failed; a deletion that did is due again
    /// by the policy.
    async fn carry_out(&mut self, actions: Vec<Action>, by: &Arc<LifecycleSettings>) -> bool {
        if self.plans.is_observing() {
            for action in actions {
                if let Write::Delete(decision) = &action.write {
                    let now = self.observer.now();
                    self.decider.deleted(now, decision, Deletion::Observed, &by.policy);
                }
            }
            return true;
        }
        let mut is_done = true;
        let mut ended = pin!(self.executor.execute(actions, by));
        while let Some((action, result)) = ended.next().await {
            let now = self.observer.now();
            self.reporter.ended(&action, &result, now);
            if result.is_ok() {
                self.plans.clear("Node", &action.node.name);
            }
            match &action.write {
                Write::Delete(decision) => {
                    let outcome =
                        result.as_ref().map_or_else(Stopped::outcome, |()| Deletion::Done);
                    self.decider.deleted(now, decision, outcome, &by.policy);
                }
                Write::Marks(_) => is_done &= result.is_ok(),
            }
        }
        is_done
    }

    fn show(&self, nodes: &Nodes) {
        let count =
            |test: fn(&NodeView) -> bool| nodes.views.iter().filter(|view| test(view)).count();
        let now = self.observer.now();
        let states = States {
            ready: count(|view| view.ready),
            foreign: count(|view| view.claim == Claim::Foreign),
            unselected: count(|view| !view.selected),
            shutdown: nodes.nodes.iter().filter(|node| node.taint(shutdown::KEY).is_some()).count(),
            undecided: self.backlog.line(now),
        };
        let budget = self.decider.budget(now, &nodes.views, &self.settings().policy);
        let (breaker, counts) = (self.decider.breaker().is_open(), self.decider.counts());
        self.reporter.metrics.waits(self.decider.oldest_case(now));
        self.reporter.metrics.stand(breaker, budget, counts, states);
    }
}

/// Each write as `/plan` shows it, and the node that it is about.
fn steps(actions: &[Action]) -> impl Iterator<Item = (Name, Step)> {
    actions.iter().map(|action| (Arc::clone(&action.node.name), execute::published(action)))
}
