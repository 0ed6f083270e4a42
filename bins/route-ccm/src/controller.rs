//! The loop: plans, and sends the calls that follow. It waits for no call.

use std::{sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::RouteTraits;
use ccm_controller::{
    approvals::Approvals,
    passes::{Next, Pass},
};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::leadership::LeaseAnnotations;
use tokio::sync::mpsc;

use crate::{
    Handles,
    execute::page::Published,
    lease::Handover,
    observe::state::{Basis, Job, State},
    report,
    routes::plan::{Held, Plan, View, wanted::NodeView},
    settings::RouteSettings,
};

/// How long to sleep when nothing is due; any change wakes the loop.
const IDLE: Duration = Duration::from_mins(1);
/// How often to look for an approval while something is held.
const APPROVALS: Duration = Duration::from_secs(2);

/// The leader's work.
pub(crate) struct Controller {
    handles: Handles,
    jobs: mpsc::Sender<Job>,
    handover: Arc<Handover>,
    approvals: Approvals,
    published: Published,
}

impl Pass for Controller {
    fn period(&self) -> Duration {
        self.handles.settings.borrow().route_reconciliation_period
    }

    async fn pass(&mut self) -> Next {
        let now = self.handles.timeline.now();
        let list = {
            let mut state = self.handles.state.lock();
            state.list_within(self.period());
            state.list(now)
        };
        if let Some(list) = list {
            self.send(list);
        }
        let next = self.plan(now);
        let conditions = self.handles.due_conditions();
        // A leader's are written by then: the next plan may be a minute away.
        match self.handles.plans.is_observing() {
            true => self.published.conditions(&self.handles.plans, conditions),
            false => self.handles.queue_conditions(conditions),
        }
        let state = self.handles.state.lock();
        if let Some(cidrs) = &self.handles.cidrs {
            let awaited = cidrs.awaited();
            for network in awaited.into_iter().filter(|network| state.has_no_route(*network)) {
                cidrs.route_gone(network);
            }
        }
        let due = [
            next,
            state.next_list(),
            state.next_condition(now),
            state.planner.in_flight().next(now),
            Some(now + IDLE),
        ];
        let due = due.into_iter().flatten().min().unwrap_or(now + IDLE);
        Next::At(self.handles.timeline.instant(due))
    }
}

impl Handles {
    /// Why a node gets no route, if something hinders it. Node IPAM says itself why a node has no pod CIDRs.
    fn why_without_route(&self, view: &NodeView, plan: &Plan) -> Option<String> {
        let NodeView { node, left_out, .. } = view;
        match left_out {
            Some(left_out) => Some(self.observer.why_left_out(node, *left_out)),
            None if node.pod_cidrs.is_empty() => {
                self.cidrs.is_none().then(|| "the node has no podCIDRs".to_owned())
            }
            None => plan.nodes.get(&node.name)?.problem.clone(),
        }
    }
}

impl Controller {
    pub(crate) fn new(
        handles: &Handles,
        jobs: mpsc::Sender<Job>,
        lease: &LeaseAnnotations,
        handover: Arc<Handover>,
    ) -> Self {
        Self {
            handles: handles.clone(),
            jobs,
            handover,
            approvals: Approvals::new(lease, "that held changes of routes are made"),
            published: Published::default(),
        }
    }

    fn send(&self, job: Job) {
        // The number of jobs is limited by the channel's room.
        if let Err(error) = self.jobs.try_send(job) {
            tracing::error!("a call to the cloud cannot be queued: {error}");
        }
    }

    /// Plans, and sends what is due. Returns when to plan again. Before the first list there is nothing to change.
    fn plan(&mut self, now: At) -> Option<At> {
        self.approvals.read();
        let handles = self.handles.clone();
        let traits = handles.routes().map(|routes| routes.traits()).unwrap_or_default();
        let settings = handles.settings.borrow().clone();
        let (changed, is_observing) =
            (handles.observer.take_changed(), handles.plans.is_observing());
        let mut known = handles.state.lock();
        let state = &mut *known;
        let nodes = handles.observer.nodes();
        self.report_bare(state.bare(now, &nodes));
        let Some(table) = &state.table else {
            handles.metrics.counted(&state.unlisted(now, &nodes));
            return None;
        };
        state.planner.node_changed(changed.into_iter());
        let widths = state.widths(&settings);
        let mut plan = handles.observer.with_former(|former| {
            former.retain(now, &table.targets());
            let view = View {
                nodes: &nodes,
                table,
                traits: &traits,
                cluster: &handles.cluster,
                cluster_cidrs: &settings.cluster_cidrs(),
                widths: &widths,
                former,
                has_instances: !matches!(handles.cloud.instances(), Ok(None)),
                budget: settings.budget(),
                approval: self.approvals.current(),
                sendable: if is_observing {
                    usize::MAX
                } else {
                    state.planner.in_flight().room(now, &traits)
                },
            };
            state.planner.plan(now, &view)
        });
        self.show_blocked(&nodes, &plan);
        let completed = state.planned(now, &mut plan);
        self.published.routes(&handles.plans, &plan.changes);
        if !is_observing {
            // No route is deleted before this is stored.
            self.handover.change(|left| {
                left.deleted.clone_from(state.planner.window());
                left.networks = state.planner.networks().to_vec();
            });
        }
        let jobs = self.jobs(now, state, &plan, &traits, settings);
        drop(known);
        for job in jobs {
            self.send(job);
        }
        for name in &completed {
            handles.completed(name);
        }
        self.report(&plan);
        let waits = plan.counts.held + plan.counts.cidrs_wider_than_most > 0;
        let approvals = waits.then_some(now + APPROVALS);
        [plan.next, approvals].into_iter().flatten().min()
    }

    /// The calls that follow from a plan. A question changes nothing: an observer asks, too.
    fn jobs(
        &self,
        now: At,
        state: &mut State,
        plan: &Plan,
        traits: &RouteTraits,
        settings: Arc<RouteSettings>,
    ) -> Vec<Job> {
        let questions = [state.question(plan), state.lookup(plan)];
        let mut jobs: Vec<Job> = questions.into_iter().flatten().collect();
        if !self.handles.plans.is_observing() {
            let room = self.jobs.capacity().saturating_sub(3);
            let by = Basis { settings, approval: self.approvals.current().cloned() };
            jobs.extend(state.calls(now, plan, traits, room, &by));
        }
        jobs
    }

    /// Shows why nodes have no route.
    fn show_blocked(&mut self, nodes: &[NodeView], plan: &Plan) {
        let blocked = nodes.iter().filter_map(|view| {
            Some((Name::clone(&view.node.name), self.handles.why_without_route(view, plan)?))
        });
        self.published.blocked(&self.handles.plans, blocked);
    }

    /// Reports nodes without pod CIDRs, unless node IPAM says why they have none.
    fn report_bare(&self, nodes: Vec<&Node>) {
        let Handles { cidrs, reports, .. } = &self.handles;
        let is_explained =
            |node: &Node| cidrs.as_ref().is_some_and(|cidrs| cidrs.lack(&node.name).is_some());
        nodes.into_iter().filter(|node| !is_explained(node)).for_each(|node| reports.bare(node));
    }

    fn report(&self, plan: &Plan) {
        let handles = &self.handles;
        handles.metrics.counted(&plan.counts);
        if let Some(transition) = plan.breaker {
            report::breaker(transition);
        }
        for problems in plan.problems.chunk_by(|(one, _), (other, _)| one == other) {
            let node = problems.first().and_then(|(name, _)| handles.observer.store.get(name));
            if let Some(node) = node {
                handles.reports.problems(&node, problems.iter().map(|(_, problem)| problem));
            }
        }
        let waiting = plan.changes.iter().find_map(|planned| {
            let (node, why) = planned.held.as_ref()?.waits_for_a_person()?;
            Some((handles.observer.store.get(node)?, why))
        });
        if let Some((node, why)) = waiting {
            handles.reports.waits_for_a_person(&node, why);
        }
        let held = plan.changes.iter().find(|planned| {
            planned
                .held
                .as_ref()
                .is_some_and(|held| !matches!(held, Held::Retry { .. } | Held::NoRoom))
        });
        let example = held.map(|planned| {
            let why = planned.held.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{} ({}): {why}", planned.words(), planned.why)
        });
        handles.reports.held(plan.counts.held, example.as_deref().unwrap_or_default());
        match example {
            Some(example) => {
                handles.brake.fail(format!("{} held, first: {example}", plan.counts.held));
            }
            None => match refused(plan) {
                Some(why) => handles.brake.fail(why),
                None => handles.brake.pass("no change of a route is held"),
            },
        }
    }
}

/// The pod CIDRs that get no route because of their nodes, in words.
fn refused(plan: &Plan) -> Option<String> {
    let mut refused = plan.problems.iter().filter(|(_, problem)| problem.is_of_its_node());
    let (node, first) = refused.next()?;
    Some(format!("{} pod CIDRs get no route, first of node {node}: {first}", 1 + refused.count()))
}
