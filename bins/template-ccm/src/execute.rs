//! Syncs one node after another: looks it up, plans, executes the plan, and schedules the next
//! sync.

use std::{sync::Arc, time::Duration};

use ccm_controller::{
    queue::{Priority, WorkQueue},
    writer::{Stopped, Writer},
};
use ccm_kube::{ApiError, write::Patch};
use ccm_objects::{Node, Shared as Name};
use ccm_runtime::{
    plans::{self, Plans},
    program::{Context, Program},
};
use tokio::sync::watch;

use crate::{
    metrics::TemplateMetrics,
    observe::Observer,
    plan::{INSTANCE_NAME, Outcome, Plan, Step, plan},
    report::NodeReports,
    settings::TemplateSettings,
};

/// The worker.
pub(crate) struct Executor {
    observer: Arc<Observer>,
    queue: WorkQueue<Name>,
    writer: Writer<Node>,
    reports: NodeReports,
    plans: Plans,
    metrics: TemplateMetrics,
    settings: watch::Receiver<Arc<TemplateSettings>>,
}

impl Executor {
    pub(crate) fn new<P>(
        context: &Context<P>,
        observer: Arc<Observer>,
        queue: WorkQueue<Name>,
        writer: Writer<Node>,
    ) -> Self
    where
        P: Program<Settings = TemplateSettings>,
    {
        Self {
            observer,
            queue,
            writer,
            reports: NodeReports::new(context.events.clone()),
            plans: context.plans.clone(),
            metrics: TemplateMetrics::new(&context.metrics),
            settings: context.settings.clone(),
        }
    }

    /// Syncs the node of this name.
    pub(crate) async fn work(self: Arc<Self>, name: Name) {
        let Some((node, answer)) = self.observer.lookup(&name).await else {
            self.reports.forget(&name);
            self.plans.clear("Node", &name);
            self.queue.forget(&name);
            return;
        };
        self.metrics.answered(&answer);
        let plan = plan(&node, &answer);
        self.plans.set(&node.reference(), published(&plan));
        if self.plans.is_observing() {
            return self.settled(&node, &plan.outcome);
        }
        match self.apply(&node, &plan).await {
            Ok(()) => {
                self.plans.clear("Node", &name);
                self.settled(&node, &plan.outcome);
            }
            Err(Stopped::Refused(error)) => self.refused(&node, &error),
            // A term that is only short is extended by the next renewal.
            Err(unsent) => {
                tracing::debug!(node = &*name, "not written: {unsent}");
                self.queue.retry(name);
            }
        }
    }

    /// One request per step, each on the node as the previous step left it.
    async fn apply(&self, node: &Arc<Node>, plan: &Plan) -> Result<(), Stopped> {
        let mut latest = Arc::clone(node);
        for step in &plan.steps {
            let answer = self.writer.patch(&latest, &patch(step)).await;
            match &answer {
                Ok(_) => self.metrics.written(Ok(())),
                Err(Stopped::Refused(error)) => self.metrics.written(Err(error)),
                Err(Stopped::Lost(_) | Stopped::Superseded(_)) => {}
            }
            latest = answer?;
            self.reports.written(node, step);
        }
        Ok(())
    }

    /// Schedules the next sync. Changes of the node reach the queue by the watch; changes in
    /// the cloud are only found by polling.
    fn settled(&self, node: &Node, outcome: &Outcome) {
        let name = &node.name;
        match outcome {
            Outcome::Named => self.sync_after(name, self.settings.borrow().instance_name_period),
            Outcome::Skipped(why) => {
                self.reports.skipped(node, why);
                self.sync_after(name, self.settings.borrow().instance_name_period);
            }
            Outcome::Waits { class, reason, message } => {
                self.reports.waits(node, reason, message);
                self.queue.retry_as(Arc::clone(name), *class);
            }
        }
    }

    fn refused(&self, node: &Node, error: &ApiError) {
        let name = &node.name;
        match error {
            // Deleted in the meantime: the informer reports it.
            ApiError::NotFound => {}
            // The plan was made for an older version of the node.
            ApiError::Conflict => {
                tracing::debug!(node = &**name, "the node has changed, planning again");
                self.queue.retry(Arc::clone(name));
            }
            error => {
                self.reports.refused(node, error);
                self.queue.retry_as(Arc::clone(name), error.class());
            }
        }
    }

    fn sync_after(&self, name: &Name, after: Duration) {
        self.queue.forget(name);
        self.queue.add_after(Arc::clone(name), after, Priority::Routine);
    }
}

/// The steps of a plan for the page `/plan`.
fn published(plan: &Plan) -> Vec<plans::Step> {
    let step = |step: &Step| match step {
        Step::SetName { name, why } => plans::Step {
            step: "name",
            changes: vec![format!("annotation {INSTANCE_NAME}={name}")],
            reason: why.clone(),
            held: None,
        },
    };
    plan.steps.iter().map(step).collect()
}

fn patch(step: &Step) -> Patch {
    match step {
        Step::SetName { name, .. } => Patch {
            annotations: [(INSTANCE_NAME.to_owned(), Some(name.clone()))].into(),
            ..Patch::default()
        },
    }
}
