//! The loop: selects the due nodes, looks them up in one call, applies the policy, and
//! executes its decisions.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ccm_controller::{
    passes::{Next, Pass},
    reports::Reports,
};
use ccm_objects::Node;
use tokio::time::Instant;

use crate::{
    execute::{Executor, Left},
    metrics::LifecycleMetrics,
    observe::{Nodes, Observer, Replies},
    policy::{
        Agenda, At, Decider, Decision, Policy, Reason, Verdict,
        action::{self, Action},
        backlog::Backlog,
    },
    report,
    settings::LifecycleSettings,
};

/// How long to sleep when no node is due; any change wakes the loop.
const IDLE: Duration = Duration::from_mins(1);

/// The leader's work. Its policy starts without cases: the suspicions of an earlier leader are no
/// evidence. What that leader has deleted counts.
pub(crate) struct Controller {
    observer: Arc<Observer>,
    executor: Executor,
    reports: Arc<Reports>,
    metrics: LifecycleMetrics,
    decider: Decider,
    backlog: Backlog,
}

impl Pass for Controller {
    fn period(&self) -> Duration {
        self.executor.settings().policy.monitor_period
    }

    async fn pass(&mut self) -> Next {
        let (started, settings) = (Instant::now(), self.executor.settings());
        let mut nodes = self.observer.look(&settings);
        let marks = nodes.marks_of_well(&settings);
        self.executor.publish(nodes.well(), &marks, (&[], &HashMap::new()));
        let mut is_done = self.executor.apply(marks, &settings, &mut self.decider).await;
        let agenda = self.agenda(&nodes);
        if !agenda.is_empty() {
            let answers = tokio::select! {
                biased;
                () = self.executor.closing() => return Next::At(started),
                answers = self.observer.ask(&agenda, &nodes, &settings) => answers,
            };
            let settings = self.executor.settings();
            let actions;
            (nodes, actions) = self.decide(answers, &settings);
            is_done &= self.executor.apply(actions, &settings, &mut self.decider).await;
            self.metrics.passed(started.elapsed());
        }
        self.update_gauges(&nodes);
        self.observer.survey(&self.executor.settings());
        let next = self.agenda(&nodes);
        for (node, why) in self.observer.left_out(&nodes) {
            self.executor.block(node, &why);
        }
        let now = self.observer.now();
        let due = if !is_done || !next.is_empty() {
            // Nodes that failed or did not fit into this pass wait for a period.
            now + self.period()
        } else {
            next.next.unwrap_or(now + IDLE)
        };
        Next::At(self.observer.timeline.instant(due))
    }
}

impl Controller {
    pub(crate) fn new(
        observer: Arc<Observer>,
        executor: Executor,
        reports: Arc<Reports>,
        metrics: LifecycleMetrics,
    ) -> Self {
        let left = executor.last_leaders();
        observer.replaced.lock().extend(left.replaced);
        let decider = Decider::resume(observer.now(), left.deleted);
        Self { observer, executor, reports, metrics, decider, backlog: Backlog::default() }
    }

    fn agenda(&mut self, nodes: &Nodes) -> Agenda {
        let (now, policy) = (self.observer.now(), &self.executor.settings().policy);
        self.backlog.track(now, &nodes.views);
        self.decider.adapt_to(self.observer.abilities());
        let agenda = self.decider.agenda(now, &nodes.views, policy);
        for decision in &agenda.ended {
            let node = self.observer.store.get(&decision.name);
            self.decided(node.as_deref(), decision, now, policy);
            self.executor.withdraw(&decision.name);
        }
        agenda
    }

    /// Decides from the answers and the current nodes. Returns these nodes and the actions.
    fn decide(&mut self, answers: Replies, settings: &LifecycleSettings) -> (Nodes, Vec<Action>) {
        let nodes = self.observer.look(settings);
        let answers = self.observer.answers(answers, &nodes);
        let mut actions = nodes.marks_of_watched(&answers, settings);
        let errors = answers.errors();
        let (before, now) = (*self.decider.breaker(), self.observer.now());
        let decisions = self.decider.decide(now, &nodes.views, answers, &settings.policy);
        self.observer.reports.breaker(before, *self.decider.breaker());
        // The executor deletes nothing before this is stored.
        let deleted = self.decider.window(now, &settings.policy);
        self.executor.leave(&Left { deleted, replaced: self.observer.replaced.lock().clone() });
        let by_name = nodes.by_name();
        let decided = decisions.iter().filter_map(|decision| by_name.get(&decision.name));
        self.executor.publish(decided, &actions, (&decisions, &errors));
        for decision in decisions {
            let node = by_name.get(&decision.name);
            self.decided(node.map(|node| &**node), &decision, now, &settings.policy);
            actions.extend(action::deletion(node, decision));
        }
        (nodes, actions)
    }

    fn decided(&mut self, node: Option<&Node>, decision: &Decision, now: At, policy: &Policy) {
        self.metrics.decided(&decision.verdict);
        if let Some((verdict, waited)) = self.backlog.decided(now, decision) {
            self.metrics.settled(verdict, waited);
        }
        let foreign = node.filter(|_| decision.verdict == Verdict::Keep(Reason::Foreign));
        let foreign = foreign.map(|node| self.observer.why_foreign(node));
        report::decided(&self.reports, node, decision, (now, policy), foreign);
    }

    fn update_gauges(&self, nodes: &Nodes) {
        let (now, counts) = (self.observer.now(), self.decider.counts());
        let budget = self.decider.budget(now, &nodes.views, &self.executor.settings().policy);
        self.metrics.set_oldest_case(self.decider.oldest_case(now));
        let (open, undecided) = (self.decider.breaker().is_open(), self.backlog.size(now));
        self.metrics.set_gauges(open, budget, counts, undecided, nodes.states());
    }
}
