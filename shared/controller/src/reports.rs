//! Reports to users: an event together with a log line, and the memory of what was
//! reported, so that a lasting state does not flood either.

mod news;

use std::{collections::HashMap, time::Duration};

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_kube::events::{EventKind, EventRecorder};
use ccm_objects::{Node, ObjectRef, Shared as Name};
use news::comparable;
use parking_lot::Mutex;
use tokio::time::Instant;

/// For this long, a lasting state is not reported again.
pub const REPEAT: Duration = Duration::from_mins(10);

/// The maximum number of states that are remembered per object. The oldest is dropped first.
const STATES: usize = 16;

/// When a report is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Each time.
    Always,
    /// When the topic's state has changed, and every [`REPEAT`].
    Changed,
    /// Once for each state of the topic.
    Once,
}

/// A report about an object.
#[derive(Clone, Debug, Default)]
pub struct Report<'a> {
    /// The topic: each topic of an object has its own state.
    pub topic: &'static str,
    /// The state that is remembered.
    pub state: &'a str,
    /// True if it is a warning: level of the line and type of the event.
    pub warning: bool,
    /// The log line.
    pub line: String,
    /// The decision, as a field of the line.
    pub verdict: Option<&'a str>,
    /// The reason, as a field of the line.
    pub reason: Option<&'a str>,
    /// The evidence, as a field of the line.
    pub proof: Option<String>,
    /// Reason and text of the event, if the report has one.
    pub event: Option<(&'static str, String)>,
}

impl<'a> Report<'a> {
    /// Returns a line about this state of the topic.
    pub fn line(topic: &'static str, state: &'a str, line: impl Into<String>) -> Self {
        Self { topic, state, line: line.into(), ..Self::default() }
    }

    /// Returns a warning about this state of the topic.
    pub fn warning(topic: &'static str, state: &'a str, line: impl Into<String>) -> Self {
        Self { warning: true, ..Self::line(topic, state, line) }
    }

    /// Returns a warning about this state of a node, with an event whose reason is the topic.
    pub fn of_node(node: &Node, topic: &'static str, state: &'a str, text: &str) -> Self {
        Self::warning(topic, state, format!("node {}: {text}", node.name)).with_event(topic, text)
    }

    /// Adds this reason as a field of the line.
    #[must_use]
    pub fn because(self, reason: &'a str) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Adds an event of this reason and text.
    #[must_use]
    pub fn with_event(self, reason: &'static str, text: impl Into<String>) -> Self {
        Self { event: Some((reason, text.into())), ..self }
    }
}

/// A log line of a report.
#[derive(Clone, Copy, Debug)]
pub struct LogLine<'a> {
    /// True if the object is a node: then the log field with its key is `node`.
    pub is_of_a_node: bool,
    /// The object.
    pub key: &'a str,
    /// True if it was reported before: then it is a line for debugging.
    pub is_news: bool,
    /// The report.
    pub report: &'a Report<'a>,
    /// Its text, in one line.
    pub text: &'a str,
}

/// Makes a function that writes a [`LogLine`] with this log target, or with the module that uses the macro as
/// its target, so that `--log-filter` can select the lines of one controller.
#[macro_export]
macro_rules! log_here {
    () => {
        $crate::log_here!(module_path!())
    };
    ($target:expr) => {
        |line: &$crate::reports::LogLine<'_>| match (line.is_of_a_node, line.is_news, line.report.warning) {
            (true, true, true) => $crate::log_here!(warn, node, $target, line),
            (true, true, false) => $crate::log_here!(info, node, $target, line),
            (true, false, _) => $crate::log_here!(debug, node, $target, line),
            (false, true, true) => $crate::log_here!(warn, object, $target, line),
            (false, true, false) => $crate::log_here!(info, object, $target, line),
            (false, false, _) => $crate::log_here!(debug, object, $target, line),
        }
    };
    ($level:ident, $label:ident, $target:expr, $line:ident) => {
        tracing::$level!(
            target: $target,
            $label = $line.key,
            verdict = $line.report.verdict,
            reason = $line.report.reason,
            proof = $line.report.proof.as_deref(),
            "{}",
            $line.text
        )
    };
}

/// Reports about objects, and the memory of past reports.
pub struct Reports {
    events: EventRecorder,
    memory: ReportMemory,
    log: fn(&LogLine<'_>),
}

impl Reports {
    /// Reports through this recorder and this log, [`log_here`] of the program. A state that comes
    /// back is not reported again within `pause`.
    pub fn new(events: EventRecorder, pause: Duration, log: fn(&LogLine<'_>)) -> Self {
        Self { events, memory: ReportMemory::new(pause), log }
    }

    /// Returns the memory of past reports, for direct queries.
    pub fn memory(&self) -> &ReportMemory {
        &self.memory
    }

    /// Writes the line and records the event. If that was done recently, only logs at debug level.
    /// Returns true if the report was new. Both texts are turned into one line, because they may
    /// quote the cloud or the node itself.
    pub fn report(&self, about: &ObjectRef, when: When, report: Report<'_>) -> bool {
        let (key, text) = (about.key(), one_line(&report.line, LONGEST_LINE));
        let is_news = match when {
            When::Always => true,
            When::Changed => self.memory.changed(&key, report.topic, report.state),
            When::Once => self.memory.first(&key, report.topic, report.state),
        };
        let is_of_a_node = about.kind == "Node";
        (self.log)(&LogLine { is_of_a_node, key: &key, is_news, report: &report, text: &text });
        if is_news && let Some((reason, text)) = report.event {
            let kind = if report.warning { EventKind::Warning } else { EventKind::Normal };
            self.events.record(about, kind, reason, one_line(&text, LONGEST_LINE));
        }
        is_news
    }
}

/// The reported states of each object.
#[derive(Debug)]
pub struct ReportMemory {
    pause: Duration,
    objects: Mutex<HashMap<Name, Vec<Reported>>>,
}

#[derive(Debug)]
struct Reported {
    topic: &'static str,
    state: String,
    at: Instant,
    /// True if it is still the topic's current state.
    lasts: bool,
}

impl ReportMemory {
    /// Creates an empty memory. See [`Reports::new`] for `pause`.
    pub fn new(pause: Duration) -> Self {
        Self { pause, objects: Mutex::default() }
    }

    /// Returns true if this state must be reported now: it has changed, or enough time has passed.
    pub fn changed(&self, object: &str, topic: &'static str, state: &str) -> bool {
        let state = &*comparable(state);
        self.with(object, |reported| {
            let now = Instant::now();
            let mut known = None;
            for entry in reported.iter_mut().filter(|entry| entry.topic == topic) {
                let same = entry.state == state;
                let lasted = std::mem::replace(&mut entry.lasts, same);
                if same {
                    known = Some((entry, if lasted { REPEAT } else { self.pause }));
                }
            }
            match known {
                Some((entry, pause)) if now.duration_since(entry.at) < pause => false,
                Some((entry, _)) => {
                    entry.at = now;
                    true
                }
                None => add(reported, topic, state, now),
            }
        })
    }

    /// Returns true if this state is reported for the first time.
    pub fn first(&self, object: &str, topic: &'static str, state: &str) -> bool {
        let state = &*comparable(state);
        self.with(object, |reported| {
            let known = reported.iter().any(|entry| entry.topic == topic && entry.state == state);
            !known && add(reported, topic, state, Instant::now())
        })
    }

    /// Returns the topic's state as last reported or repeated.
    pub fn state(&self, object: &str, topic: &'static str) -> Option<String> {
        let objects = self.objects.lock();
        let mut reported = objects.get(object)?.iter();
        let entry = reported.find(|entry| entry.topic == topic && entry.lasts)?;
        Some(entry.state.clone())
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, object: &str) {
        self.objects.lock().remove(object);
    }

    fn with<R>(&self, object: &str, change: impl FnOnce(&mut Vec<Reported>) -> R) -> R {
        let mut objects = self.objects.lock();
        if let Some(reported) = objects.get_mut(object) {
            return change(reported);
        }
        change(objects.entry(object.into()).or_default())
    }
}

fn add(reported: &mut Vec<Reported>, topic: &'static str, state: &str, at: Instant) -> bool {
    if reported.len() >= STATES {
        reported.remove(0);
    }
    reported.push(Reported { topic, state: state.to_owned(), at, lasts: true });
    true
}

#[cfg(test)]
mod tests;
