//! What a person is told: events on the node, and log lines with the evidence.
//!
//! A state that lasts is told when it begins and every ten minutes; one that comes and
//! goes, once a minute.

use std::{collections::HashMap, fmt::Write as _, sync::Arc, time::Duration};

use ccm_cloud::{CloudError, PowerState};
use ccm_kube::events::{EventKind, EventRecorder};
use ccm_objects::{Node, Shared as Name};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    controller::Controller,
    court::{At, Breaker, Cause, Doubt, Listing, LookedUp, Reason, Ruling, Testimony, Verdict},
    execute::Stopped,
    observe,
    shutdown::Step,
};

/// How long what a person has been told is not repeated.
const REPEAT: Duration = Duration::from_mins(10);

/// What is told of a node, each with its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Topic {
    Verdict,
    Failed(Write),
}

/// How long a state that comes back is not told again: answers that come and go must
/// not become a flood of events.
const RETURN: Duration = Duration::from_mins(1);

/// A state and its reason.
type State = (&'static str, &'static str);

/// What was told of one topic: the state now, and when each was told last.
#[derive(Debug, Default)]
struct Line {
    now: State,
    told: HashMap<State, Instant>,
}

/// What was told of each node last.
#[derive(Debug, Default)]
pub(crate) struct Told {
    last: Mutex<HashMap<Name, HashMap<Topic, Line>>>,
    /// When each kind of error of the cloud was told last.
    unanswered: Mutex<HashMap<&'static str, Instant>>,
}

impl Told {
    /// Whether to tell this now: it is another state than last time, or some time has
    /// passed.
    fn again(&self, name: &Name, topic: Topic, state: &'static str, detail: &'static str) -> bool {
        let (mut last, now, state) = (self.last.lock(), Instant::now(), (state, detail));
        let line = last.entry(Arc::clone(name)).or_default().entry(topic).or_default();
        let pause = if line.now == state { REPEAT } else { RETURN };
        line.now = state;
        if line.told.get(&state).is_some_and(|at| now.duration_since(*at) < pause) {
            return false;
        }
        line.told.insert(state, now);
        true
    }

    /// Whether to tell now that lookups met this kind of error.
    fn unanswered_again(&self, kind: &'static str) -> bool {
        let (mut told, now) = (self.unanswered.lock(), Instant::now());
        let is_due = told.get(kind).is_none_or(|at| now.duration_since(*at) >= REPEAT);
        if is_due {
            told.insert(kind, now);
        }
        is_due
    }

    /// Whether the last thing told of a node spoke against it.
    fn is_accused(&self, name: &str) -> bool {
        let keep = Verdict::Keep(Reason::Exists).as_str();
        let last = self.last.lock();
        let verdict = last.get(name).and_then(|topics| topics.get(&Topic::Verdict));
        verdict.is_some_and(|line| line.now.0 != keep)
    }

    /// Forgets what was told of a node.
    pub(crate) fn forget(&self, name: &str) {
        self.last.lock().remove(name);
    }
}

impl Controller {
    /// Tells what the court said about a node, unless it is nothing.
    pub(crate) fn tell_ruling(&self, node: Option<&Node>, ruling: &Ruling, now: At) {
        self.metrics.ruled(&ruling.verdict);
        let Ruling { name, verdict, evidence, since, .. } = ruling;
        // A case may end before its ruling, as all do when the breaker closes.
        let is_case = since.is_some() || self.told.is_accused(name);
        if matches!(verdict, Verdict::Keep(Reason::Exists | Reason::Ready)) && !is_case {
            self.told.forget(name);
            return;
        }
        if *verdict == Verdict::Keep(Reason::AnotherNode) {
            // Mostly one that was deleted here a moment ago.
            tracing::debug!(node = &**name, "the node has vanished, or another has its name");
            return;
        }
        let (verdict_name, reason) = (verdict.as_str(), verdict.reason());
        if !self.told.again(name, Topic::Verdict, verdict_name, reason) {
            tracing::debug!(node = &**name, verdict = verdict_name, reason, %evidence, "as before");
            return;
        }
        let earliest = since.map(|since| since + self.settings().policy.confirmation_period);
        let said = Said::of(verdict, now, earliest);
        let proof = serde_json::to_value(evidence).unwrap_or_default().to_string();
        if said.is_warning {
            tracing::warn!(
                node = &**name,
                verdict = verdict_name,
                reason,
                proof,
                "node {name}: {}",
                said.text
            );
        } else {
            tracing::info!(
                node = &**name,
                verdict = verdict_name,
                reason,
                proof,
                "node {name}: {}",
                said.text
            );
        }
        if let (Some(node), Some(event)) = (node, said.event) {
            let kind = if said.is_warning { EventKind::Warning } else { EventKind::Normal };
            let text = match evidence.first {
                Some(_) => format!("{}; {evidence}", said.text),
                None => said.text,
            };
            record(&self.events, node, kind, event, text);
        }
    }

    /// Tells that the API server accepted the deletion.
    pub(crate) fn tell_deleted(&self, node: &Node, ruling: &Ruling) {
        let name = &*node.name;
        let text = format!("Deleting node {name} because it does not exist in the cloud provider");
        let approved = observe::is_approved(node);
        tracing::info!(node = name, provider_id = node.provider_id.as_deref(), approved, "{text}");
        let exempt = if approved {
            format!("; breaker and budget passed over by {}", observe::APPROVED)
        } else {
            String::new()
        };
        let text = format!("{text}; {}{exempt}", ruling.evidence);
        record(&self.events, node, EventKind::Normal, "DeletingNode", text);
    }

    /// Tells that a decision was not carried out. That is no failure if the node has
    /// changed meanwhile or this replica no longer leads: somebody looks again.
    pub(crate) fn tell_stopped(&self, node: &Node, write: Write, stopped: &Stopped) {
        use ccm_kube::ApiError;
        let (name, what) = (&*node.name, write.as_str());
        match stopped.refusal() {
            None | Some(ApiError::Conflict | ApiError::NotFound) => {
                tracing::info!(node = name, reason = %stopped, "node {name}: {what} waits for another look");
            }
            Some(error) => {
                if !self.told.again(&node.name, Topic::Failed(write), what, error.reason()) {
                    tracing::debug!(node = name, %error, "node {name}: {what} failed again");
                    return;
                }
                tracing::warn!(node = name, %error, "node {name}: {what} failed; tried again");
                if write == Write::Deletion {
                    let text = format!("Failed deleting node {name}: {error}");
                    record(&self.events, node, EventKind::Warning, "DeletingNodeFailed", text);
                }
            }
        }
    }

    /// Tells that the shutdown taint was written.
    pub(crate) fn tell_tainted(&self, node: &Node, step: Step, power: Option<PowerState>) {
        let (reason, text) = match step {
            Step::Add => ("NodeShutdown", "the machine is shut down; taint added"),
            Step::Remove if power.is_some() => {
                ("NodeRunning", "the machine runs; shutdown taint removed")
            }
            Step::Remove => ("NodeRunning", "the node is Ready; shutdown taint removed"),
        };
        tracing::info!(node = &*node.name, "node {}: {text}", node.name);
        record(&self.events, node, EventKind::Normal, reason, text.to_owned());
    }

    /// Tells that the approval to delete it was taken away from a node that is Ready.
    pub(crate) fn tell_approval_ended(&self, node: &Node) {
        let (name, key) = (&*node.name, observe::APPROVED);
        let text = format!("it is Ready, so the annotation {key} was taken away");
        tracing::info!(node = name, "node {name}: {text}");
        record(&self.events, node, EventKind::Normal, "NodeDeletionApprovalEnded", text);
    }

    /// Tells, once for each kind of error, that the cloud did not answer about nodes.
    pub(crate) fn tell_unanswered(&self, lookups: &[LookedUp]) {
        let mut kinds: HashMap<&'static str, (usize, &LookedUp, &CloudError)> = HashMap::new();
        for lookup in lookups {
            if let Testimony::NoAnswer(error) = &lookup.testimony {
                kinds.entry(error.kind.reason()).or_insert((0, lookup, error)).0 += 1;
            }
        }
        for (kind, (count, lookup, error)) in kinds {
            if self.told.unanswered_again(kind) {
                let name = &*lookup.name;
                tracing::warn!(
                    kind,
                    nodes = count,
                    %error,
                    "the cloud did not answer about {count} nodes, {name} among them: {error}; nobody is deleted for that"
                );
            }
        }
    }

    /// Tells that the breaker opened, changed its cause or closed.
    pub(crate) fn tell_breaker(&self, before: Breaker, after: Breaker) {
        match (before, after) {
            (Breaker::Closed, Breaker::Open { cause, .. }) => {
                self.metrics.opened(&cause);
                let text = describe(&cause);
                tracing::error!(cause = cause.as_str(), "no node is deleted: {text}");
                self.breaker.fail(open(&cause));
            }
            (Breaker::Open { cause: known, .. }, Breaker::Open { cause, .. }) => {
                if known.as_str() != cause.as_str() {
                    let text = describe(&cause);
                    tracing::error!(cause = cause.as_str(), "still no node is deleted: {text}");
                }
                self.breaker.fail(open(&cause));
            }
            (Breaker::Open { .. }, Breaker::Closed) => {
                tracing::warn!("the cloud's list shows the fleet again; nodes are judged again");
                self.breaker.pass("closed");
            }
            (Breaker::Closed, Breaker::Closed) => self.breaker.pass("closed"),
        }
    }
}

/// What is told of a verdict.
struct Said {
    text: String,
    event: Option<&'static str>,
    is_warning: bool,
}

impl Said {
    fn of(verdict: &Verdict, now: At, earliest: Option<At>) -> Self {
        match verdict {
            Verdict::Keep(reason) => kept(*reason),
            Verdict::Suspect { look_again, why } => {
                let seconds = |at: At| at.since(now).as_secs_f64().ceil();
                let mut text = format!(
                    "the cloud says that its instance is gone; {}; looked at again in {} s",
                    doubt(*why),
                    seconds(*look_again)
                );
                if let (Doubt::Unconfirmed, Some(earliest)) = (why, earliest) {
                    write!(
                        text,
                        "; deleted in {} s at the earliest, never with the annotation {}",
                        seconds(earliest),
                        observe::PROTECTED
                    )
                    .ok();
                }
                Self { text, event: Some("NodeGoneSuspected"), is_warning: true }
            }
            Verdict::Delete => Self {
                text: "its instance is gone for good, it is deleted".to_owned(),
                event: None,
                is_warning: false,
            },
            Verdict::BreakerOpen => held(
                "its list of the fleet is not believable (see /readyz?verbose): are the credentials still those of this project and region? If it is gone indeed,".to_owned(),
            ),
            Verdict::OverBudget { until: Some(until) } => held(format!(
                "--node-deletion-budget is used up for {} s;",
                until.since(now).as_secs_f64().ceil()
            )),
            Verdict::OverBudget { until: None } => {
                held("--node-deletion-budget allows no deletion;".to_owned())
            }
        }
    }
}

fn held(why: String) -> Said {
    let text = format!(
        "the cloud says that its instance is gone, but it is kept: {why} the annotation {}=yes lets it go",
        observe::APPROVED
    );
    Said { text, event: Some("NodeDeletionHeld"), is_warning: true }
}

fn kept(reason: Reason) -> Said {
    let (text, event, is_warning) = match reason {
        Reason::Protected => (
            "the cloud says that its instance is gone, but the annotation quartet.dev/deletion-protected keeps it",
            Some("NodeDeletionHeld"),
            true,
        ),
        Reason::Ghost => (
            "the cloud knows no instance for it; it has no provider ID and is not uninitialised, and such nodes are not judged (--ghost-deletion)",
            Some("NodeDeletionHeld"),
            true,
        ),
        Reason::NoAnswer => ("the cloud did not answer usably; it is kept", None, false),
        Reason::Exists => ("its instance exists after all; it is kept", Some("NodeKept"), false),
        Reason::Ready => ("it is Ready again; it is kept", Some("NodeKept"), false),
        Reason::NotOurs => ("the cloud says that it is somebody else's", None, false),
        Reason::NotSelected => ("it does not match --node-selector", None, false),
        Reason::Foreign => ("its provider ID is another provider's", None, false),
        Reason::Deleting => ("it is being deleted already", None, false),
        Reason::AnotherNode => ("it has vanished, or another has its name", None, false),
    };
    Said { text: text.to_owned(), event, is_warning }
}

const fn doubt(why: Doubt) -> &'static str {
    match why {
        Doubt::Newborn => "the node is too young for that to count",
        Doubt::Unconfirmed => "that is to be confirmed",
        Doubt::NoAnswer => "this time it did not answer usably",
        Doubt::NotListed => "the fleet could not be listed to confirm it",
        Doubt::Listed => "but the list of the fleet shows it, so the case begins anew",
    }
}

/// The line `breaker` of `/readyz?verbose`.
fn open(cause: &Cause) -> String {
    format!("open, no node is deleted but approved ones: {}", describe(cause))
}

fn describe(cause: &Cause) -> String {
    match cause {
        Cause::Empty { known } => format!(
            "the cloud's list shows none of {known} nodes: wrong project, region or credentials?"
        ),
        Cause::Shrunk { missing, known } => {
            format!("the cloud's list lacks {missing} of {known} nodes")
        }
        Cause::Contradiction { ready_missing, ready } => {
            format!("the cloud's list lacks {ready_missing} of {ready} nodes that are Ready")
        }
    }
}

/// Tells of a list that does not help, or not wholly.
pub(crate) fn list(list: &Listing) {
    match list {
        Listing::Failed(error) => {
            tracing::warn!(%error, "the fleet could not be listed; nobody is deleted without");
        }
        Listing::Read { malformed, .. } if *malformed > 0 => {
            tracing::warn!(
                malformed,
                "{malformed} entries of the cloud's list could not be understood; no node that they name is deleted"
            );
        }
        Listing::Read { .. } => {}
    }
}

/// What is written to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Write {
    Deletion,
    ShutdownTaint,
    Approval,
}

impl Write {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::ShutdownTaint => "the shutdown taint",
            Self::Approval => "taking the approval away",
        }
    }
}

fn record(
    events: &EventRecorder,
    node: &Node,
    kind: EventKind,
    reason: &'static str,
    text: String,
) {
    events.record(&node.reference(), kind, reason, text);
}
