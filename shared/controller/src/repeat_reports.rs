//! The metric and the event of writes that are [repeated](crate::repeats), in all programs.

use std::{collections::HashMap, sync::Arc};

use ccm_base::clock::Timeline;
use ccm_metrics::{Counter, Family, metrics};
use ccm_objects::{ObjectRef, Shared as Name};
use ccm_runtime::metrics::Metrics;
use parking_lot::Mutex;

use crate::{
    repeats::{Content, Kind, Repeated, Repeats},
    reports::{Report, Reports, When},
};

/// The reason of the event.
pub const REASON: &str = "RepeatedWrite";

metrics! {
    /// Counts repeated writes. Clones share the metric.
    pub struct RepeatMetrics {
        /// Writes to the API server or to the cloud that were answered as done and were due again with the same content,
        /// from the third time in a row on, or whose answer did not show them, by kind of object and of write
        [ALPHA] ccm_repeated_writes { object, write } => repeated: Family<Counter, (&'static str, Kind)>;
    }
}

impl RepeatMetrics {
    /// Registers the metric of a program that writes to this kind of object. The series of its most
    /// important write exists from the start, so that an alert sees the first repetition.
    pub fn beginning(metrics: &Metrics, object: &'static str, write: &'static str) -> Self {
        let this = Self::new(metrics);
        this.repeated.of((object, write.into()));
        this
    }

    /// Counts a repeated write to this kind of object; `write` is its field or kind of content.
    pub fn count(&self, object: &'static str, write: impl Into<Kind>) {
        self.repeated.of((object, write.into())).inc();
    }

    /// Counts a repeated write, and reports it if `is_news`.
    pub fn report(&self, reports: &Reports, about: &ObjectRef, repeated: &Repeated) {
        self.count(about.kind, repeated.kind.clone());
        let line = format!("{} {}: {repeated}", about.kind, about.key());
        tell(reports, about, repeated, line, repeated.to_string());
    }
}

fn tell(reports: &Reports, about: &ObjectRef, repeated: &Repeated, line: String, text: String) {
    if repeated.is_news {
        let report = Report::warning(REASON, &repeated.kind, line);
        reports.report(about, When::Always, report.with_event(REASON, text));
    }
}

/// The recent writes to many objects. Clones share them.
#[derive(Clone, Debug)]
pub struct Written {
    metrics: RepeatMetrics,
    timeline: Timeline,
    objects: Arc<Mutex<HashMap<Name, Repeats>>>,
}

impl Written {
    /// Starts without writes.
    pub fn new(metrics: &RepeatMetrics) -> Self {
        let (metrics, timeline) = (metrics.clone(), Timeline::begin());
        Self { metrics, timeline, objects: Arc::default() }
    }

    /// Checks if this may be written to the object now.
    ///
    /// # Errors
    ///
    /// The write must wait.
    pub fn check(&self, name: &str, kind: &str, content: Content) -> Result<(), Repeated> {
        let objects = self.objects.lock();
        let Some(repeats) = objects.get(name) else { return Ok(()) };
        repeats.check(self.timeline.now(), kind, || content)
    }

    /// Records a confirmed write. `is_shown`: the answer shows it, or does not contradict it.
    /// Counts, reports and returns the write if it is repeated.
    pub fn answered(
        &self,
        reports: &Reports,
        about: &ObjectRef,
        (kind, content): (&'static str, Content),
        is_shown: bool,
    ) -> Option<Repeated> {
        let repeated = self.record(about.key(), (kind, content), is_shown)?;
        self.metrics.report(reports, about, &repeated);
        Some(repeated)
    }

    /// Returns the same for a confirmed write to something that is not an object of the API server,
    /// such as a route: its kind and its name. The event about a repeated write is on the object
    /// `about`, and names the write.
    pub fn answered_beside(
        &self,
        reports: &Reports,
        what: (&'static str, &str),
        about: &ObjectRef,
        write: (&'static str, Content),
    ) -> Option<Repeated> {
        let (object, name) = what;
        let repeated = self.record(name.to_owned(), write, true)?;
        self.metrics.count(object, repeated.kind.clone());
        let text = format!("{object} {name}: {repeated}");
        tell(reports, about, &repeated, text.clone(), text);
        Some(repeated)
    }

    fn record(
        &self,
        key: String,
        (kind, content): (&'static str, Content),
        is_shown: bool,
    ) -> Option<Repeated> {
        let (now, mut objects) = (self.timeline.now(), self.objects.lock());
        // Now and then, because the program does not learn the end of some kinds of object.
        if objects.len() == objects.capacity() {
            objects.retain(|_, repeats| !repeats.is_settled(now));
        }
        let repeats = objects.entry(key.into()).or_default();
        match is_shown {
            true => repeats.made(now, kind, content),
            false => repeats.refused(now, kind, content),
        }
    }

    /// Records a confirmed write that is due again for reasons of this program: it is delayed like a
    /// repeated one, and not reported.
    pub fn changed(&self, about: &ObjectRef, (kind, content): (&'static str, Content)) {
        let mut objects = self.objects.lock();
        objects.entry(about.key().into()).or_default().made(self.timeline.now(), kind, content);
    }

    /// Forgets an object that does not exist any more.
    pub fn forget(&self, name: &str) {
        self.objects.lock().remove(name);
    }
}

/// Registers the metric, for the metrics reference.
pub fn specimens(metrics: &Metrics) {
    RepeatMetrics::new(metrics).specimens();
}
