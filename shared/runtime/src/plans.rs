//! Plans: the steps that controllers have decided but not done yet, for the page `/plan`, its
//! metrics and log lines.
//!
//! A controller publishes an object's steps before it executes them, and clears them
//! afterwards. With `--mode=observe` it only publishes, so that the page shows the changes
//! that the program would make.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ccm_base::{
    clock,
    duration::in_words,
    message::{LONGEST_LINE, one_line},
};
use ccm_metrics::{Counter, Family, Gauge, metrics};
use ccm_objects::ObjectRef;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use crate::{health::Verdict, metrics::Metrics};

/// The mode of a program: whether it makes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Takes part in the election and, as the leader, writes.
    Control,
    /// Reads and decides like the leader, but takes no Lease and writes nothing.
    Observe,
}

/// Maximum number of objects on a page; `/plan?name=` finds the others.
const SHOWN: usize = 1000;

/// An object that has had steps for longer than this waits for something.
const LONG: Duration = Duration::from_mins(5);

/// One decided change of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The kind of step: a constant of the program, the label of `ccm_plan_steps_total`.
    pub step: &'static str,
    /// The changes, one per line.
    pub changes: Vec<String>,
    /// The reason.
    pub reason: String,
    /// Why the step is held; `None` if it is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// In words: `delete (its instance is gone), held: the budget is used up`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.step)?;
        if !self.changes.is_empty() {
            write!(f, ": {}", self.changes.join(", "))?;
        }
        write!(f, " ({})", self.reason)?;
        match &self.held {
            Some(why) => write!(f, ", held: {why}"),
            None => Ok(()),
        }
    }
}

/// The decided steps of one object, without its name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ObjectSteps {
    pub(crate) since: Timestamp,
    pub(crate) steps: Vec<Step>,
    /// The reason why the controller does nothing for the object, which then has no steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked: Option<String>,
}

/// The decided steps for one object.
#[derive(Clone, Debug, Serialize)]
struct ObjectPlan {
    kind: &'static str,
    /// With the namespace as a prefix (`namespace/name`) if it has one.
    name: String,
    #[serde(flatten)]
    decided: ObjectSteps,
    /// Since when it has had any.
    #[serde(skip)]
    waits: Instant,
}

metrics! {
    pub(crate) struct PlanMetrics {
        /// 1 if the process only observes (--mode=observe) and writes nothing, 0 otherwise
        [ALPHA] ccm_observing => observing: Gauge;
        /// Decided steps, by kind; an observer does not execute them
        [ALPHA] ccm_plan_steps { step } => decided: Family<Counter, &'static str>;
        /// Objects with decided steps that are not executed yet; /plan shows them
        [ALPHA] ccm_plan_objects => objects: Gauge;
    }
}

/// The plans of a process. Clones share them.
#[derive(Clone)]
pub struct Plans {
    shared: Arc<Shared>,
}

struct Shared {
    mode: Mode,
    /// This replica does not lead, so it plans nothing.
    standby: AtomicBool,
    /// By kind and key.
    plans: Mutex<BTreeMap<(&'static str, String), ObjectPlan>>,
    metrics: PlanMetrics,
}

/// The page as JSON.
#[derive(Serialize)]
struct PlanPage {
    mode: Mode,
    /// True if this replica does not lead, so that it plans nothing.
    standby: bool,
    objects: usize,
    /// The number of objects omitted here.
    omitted: usize,
    /// The number of due steps of all objects by kind.
    due: BTreeMap<&'static str, usize>,
    /// The number of held steps by kind.
    held: BTreeMap<&'static str, usize>,
    /// The number of objects without steps that nothing can be done for.
    blocked: usize,
    plans: Vec<ObjectPlan>,
}

impl Plans {
    /// Starts without plans. Registers its metrics, so create it once per registry.
    pub fn new(mode: Mode, metrics: &Metrics) -> Self {
        let metrics = PlanMetrics::new(metrics);
        metrics.observing.set((mode == Mode::Observe).into());
        let standby = AtomicBool::new(false);
        Self { shared: Arc::new(Shared { mode, standby, plans: Mutex::default(), metrics }) }
    }

    /// Shows on the page that this replica waits to become leader, or that it leads.
    pub(crate) fn stand_by(&self, is_standby: bool) {
        self.shared.standby.store(is_standby, Ordering::Relaxed);
    }

    /// Returns the mode: whether the program makes changes.
    pub fn mode(&self) -> Mode {
        self.shared.mode
    }

    /// Returns true if a controller must stop after it has published its steps.
    pub fn is_observing(&self) -> bool {
        self.shared.mode == Mode::Observe
    }

    /// Publishes all steps for an object; an empty list clears it. Unchanged steps have no
    /// effect.
    pub fn set(&self, object: &ObjectRef, steps: Vec<Step>) {
        self.replace(object.kind, object.key(), steps, None);
    }

    /// Publishes the reason why nothing is done for an object, instead of steps.
    pub fn block(&self, object: &ObjectRef, why: &str) {
        let why = one_line(why, LONGEST_LINE);
        self.replace(object.kind, object.key(), Vec::new(), Some(why));
    }

    /// Removes an object's plan, because it is done or nothing has to be done.
    pub fn clear(&self, kind: &'static str, key: &str) {
        self.replace(kind, key.to_owned(), Vec::new(), None);
    }

    /// Removes the plans of all objects of a kind except these.
    pub fn keep(&self, kind: &'static str, keys: &BTreeSet<String>) {
        let plans = self.shared.plans.lock();
        let of_kind = plans.keys().filter(|(one, _)| *one == kind).map(|(_, key)| key);
        let gone: Vec<String> = of_kind.filter(|key| !keys.contains(*key)).cloned().collect();
        drop(plans);
        for key in gone {
            self.clear(kind, &key);
        }
    }

    fn replace(
        &self,
        kind: &'static str,
        name: String,
        mut steps: Vec<Step>,
        blocked: Option<String>,
    ) {
        for step in &mut steps {
            let texts = step.changes.iter_mut().chain([&mut step.reason]).chain(&mut step.held);
            texts.for_each(|text| *text = one_line(text, LONGEST_LINE));
        }
        let (key, mut plans) = ((kind, name), self.shared.plans.lock());
        let plan = plans.get(&key);
        let known = plan.map(|plan| &*plan.decided.steps).unwrap_or_default();
        let is_blocked_by = plan.and_then(|plan| plan.decided.blocked.as_ref());
        if known == steps && is_blocked_by == blocked.as_ref() {
            return;
        }
        self.log(kind, &key.1, &steps, blocked.as_deref());
        for step in steps.iter().filter(|step| step.held.is_none() && !known.contains(step)) {
            self.shared.metrics.decided.series(step.step).inc();
        }
        if steps.is_empty() && blocked.is_none() {
            plans.remove(&key);
        } else {
            let waiting = plans.get(&key).filter(|plan| !plan.decided.steps.is_empty());
            let waits = waiting.map_or_else(Instant::now, |plan| plan.waits);
            let decided = ObjectSteps { since: clock::wall(), steps, blocked };
            let name = key.1.clone();
            plans.insert(key, ObjectPlan { kind, name, decided, waits });
        }
        let objects = with_steps(&plans).count();
        self.shared.metrics.objects.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Logs an observer's steps. A leader's steps are logged by its controller.
    fn log(&self, kind: &str, object: &str, steps: &[Step], blocked: Option<&str>) {
        let text = match (steps, blocked) {
            ([], Some(why)) => format!("nothing, blocked: {why}"),
            ([], None) => "nothing".to_owned(),
            (steps, _) => steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        match self.shared.mode {
            Mode::Observe => tracing::info!(kind, object, "would change {kind} {object}: {text}"),
            Mode::Control => tracing::debug!(kind, object, "planned for {kind} {object}: {text}"),
        }
    }

    /// Returns the page as JSON, for the objects of this name or for all.
    pub fn json(&self, name: Option<&str>) -> String {
        serde_json::to_string_pretty(&self.page(name)).unwrap_or_default() + "\n"
    }

    /// Returns the page as text.
    pub fn text(&self, name: Option<&str>) -> String {
        let PlanPage { mode, standby, objects, omitted, due, held, blocked, plans } =
            self.page(name);
        let mode = match mode {
            Mode::Observe => "mode: observe, no step is executed",
            Mode::Control if standby => {
                "mode: control, standby: only the leader's page shows plans"
            }
            Mode::Control => "mode: control, steps that are not executed yet",
        };
        let (due, held) = (counts(&due), counts(&held));
        let blocked =
            if blocked == 0 { String::new() } else { format!("; objects blocked: {blocked}") };
        let counts = format!("objects: {objects}; steps due: {due}; held: {held}{blocked}");
        let mut lines = vec![mode.to_owned(), counts];
        if let Some(name) = name.filter(|_| plans.is_empty() && !standby) {
            lines.push(format!(
                "\nthis page has nothing about {name:?} (the name of a Service is NAMESPACE/NAME)"
            ));
        }
        for ObjectPlan { kind, name, decided, .. } in plans {
            let ObjectSteps { since, steps, blocked } = decided;
            lines.push(format!("\n{kind} {name}, since {since:.0}"));
            lines.extend(blocked.map(|why| format!("  blocked: {why}")));
            lines.extend((1..).zip(steps).map(|(number, step)| format!("  {number}. {step}")));
        }
        if omitted > 0 {
            lines.push(format!("\n{omitted} more objects; use /plan?name=NAME for a single one"));
        }
        lines.join("\n") + "\n"
    }

    /// Returns the line `waiting` of `/readyz?verbose`: how many objects have steps, and which one
    /// has had them for the longest time. Fails if that is long. It does not fail for an observer,
    /// which executes no step.
    pub(crate) fn waiting(&self) -> Verdict {
        let plans = self.shared.plans.lock();
        let Some(oldest) = with_steps(&plans).min_by_key(|plan| plan.waits) else {
            return Verdict::Passed("no object".to_owned());
        };
        let (time, count) = (oldest.waits.elapsed(), with_steps(&plans).count());
        let objects = if count == 1 { "object" } else { "objects" };
        let first = oldest.decided.steps.iter().map(ToString::to_string).next().unwrap_or_default();
        let text = format!(
            "{count} {objects}, longest {} {} for {}: {first}",
            oldest.kind,
            oldest.name,
            in_words(time)
        );
        let is_late = time >= LONG && self.shared.mode == Mode::Control;
        if is_late { Verdict::Failed(text) } else { Verdict::Passed(text) }
    }

    /// Returns the plan of this object, if there is one.
    pub(crate) fn decided(&self, kind: &'static str, name: &str) -> Option<ObjectSteps> {
        let plans = self.shared.plans.lock();
        plans.get(&(kind, name.to_owned())).map(|plan| plan.decided.clone())
    }

    /// Returns true if this replica waits to become leader.
    pub(crate) fn is_standby(&self) -> bool {
        self.shared.standby.load(Ordering::Relaxed)
    }

    fn page(&self, name: Option<&str>) -> PlanPage {
        let plans = self.shared.plans.lock();
        let chosen = plans.values().filter(|plan| name.is_none_or(|name| plan.name == name));
        let (mut due, mut held) = (BTreeMap::new(), BTreeMap::new());
        for step in chosen.clone().flat_map(|plan| &plan.decided.steps) {
            let counts = if step.held.is_some() { &mut held } else { &mut due };
            *counts.entry(step.step).or_default() += 1;
        }
        // Objects that wait for this program come first.
        let (waiting, blocked): (Vec<&ObjectPlan>, Vec<&ObjectPlan>) =
            chosen.partition(|plan| plan.decided.blocked.is_none());
        let (objects, blocked_objects) = (waiting.len(), blocked.len());
        let shown = waiting.into_iter().chain(blocked).take(SHOWN);
        let plans: Vec<ObjectPlan> = shown.cloned().collect();
        let standby = self.is_standby();
        let omitted = objects + blocked_objects - plans.len();
        let (mode, blocked) = (self.shared.mode, blocked_objects);
        PlanPage { mode, standby, objects, omitted, due, held, blocked, plans }
    }
}

/// Returns the plans that have steps. A blocked object does not wait for this program.
fn with_steps<'a>(
    plans: &'a BTreeMap<(&'static str, String), ObjectPlan>,
) -> impl Iterator<Item = &'a ObjectPlan> {
    plans.values().filter(|plan| !plan.decided.steps.is_empty())
}

/// Returns the numbers of steps by kind, in words.
fn counts(steps: &BTreeMap<&'static str, usize>) -> String {
    let counts: Vec<_> = steps.iter().map(|(step, count)| format!("{count} {step}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

#[cfg(test)]
mod tests;
