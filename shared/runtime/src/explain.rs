//! Explains single objects on the page `/explain`: what is wanted, what exists, what happened last,
//! what was decided and why, and what would unblock it.
//!
//! A controller adds one function for each kind of object that it knows. The function reads the
//! memory of the machine and changes nothing. The page adds the steps of the object in [`Plans`].

use std::sync::{Arc, OnceLock};

use ccm_base::{
    At,
    duration::in_words,
    message::{LONGEST_LINE, one_line},
};
use ccm_cloud::{CloudError, ErrorKind};
use ccm_kube::ApiError;
use parking_lot::Mutex;
use serde::Serialize;
use strum::Display;

use crate::plans::{ObjectSteps, Plans};

/// The state of an object, as a controller sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ObjectState {
    /// It is as it should be, as far as was seen last.
    Fine,
    /// Work is under way or due, and ends on its own.
    #[strum(to_string = "work is under way")]
    Working,
    /// A brake holds a change.
    Held,
    /// It stays as it is until somebody changes something.
    Blocked,
    /// This controller is not responsible for it.
    #[strum(to_string = "not responsible")]
    Foreign,
    /// The controller does not know the object, or has not looked at it yet.
    #[default]
    Unknown,
}

/// The explanation of one object by one controller. Each text is one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The state of the object.
    pub state: ObjectState,
    /// The reason, with the cloud's words and the ID of its request.
    pub cause: String,
    /// The fix: a change that a person can make, or the statement that nothing has to be done.
    pub fix: String,
    /// The wanted state.
    pub wanted: Vec<String>,
    /// The state that the controller saw last, and when.
    pub there: Vec<String>,
    /// The last answers and failures.
    pub last: Vec<String>,
    /// When the controller looks at the object again, or tries again.
    pub next: String,
}

impl Explanation {
    /// Creates one without details.
    pub fn new(state: ObjectState, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { state, cause: cause.into(), fix: fix.into(), ..Self::default() }
    }

    /// Returns the explanation of an object that is as it should be.
    pub fn fine(cause: impl Into<String>) -> Self {
        Self::new(ObjectState::Fine, cause, NOTHING)
    }

    /// Explains an object about which the cloud answers with this error. `cause` has the words of
    /// the error.
    pub fn of_error(error: &CloudError, cause: impl Into<String>) -> Self {
        Self::new(state_for_error(error), cause, fix_for_error(error))
    }

    /// Explains an object with a due step to the user of an observer. `found` begins the cause and
    /// may be empty.
    pub fn observed(found: &str) -> Self {
        let separator = if found.is_empty() { "" } else { "; " };
        let promise = "--mode=observe does not write; the line decided says which step is due";
        let fix = "the controller that leads does it, or this one with --mode=control";
        Self::new(ObjectState::Working, format!("{found}{separator}{promise}"), fix)
    }

    /// Explains that calls to the cloud are refused, if they are, with the reason and the fix.
    fn while_refused(self, refusal: Option<&(String, String)>) -> Self {
        let Some((why, fix)) = refusal else { return self };
        if matches!(self.state, ObjectState::Foreign | ObjectState::Unknown) {
            return self;
        }
        let cause = format!("{why}; at the last look: {}", self.cause);
        Self { state: ObjectState::Blocked, cause, fix: fix.clone(), ..self }
    }

    fn each_text(&mut self, change: impl Fn(&mut String)) {
        let lists = [&mut self.wanted, &mut self.there, &mut self.last];
        let texts = [&mut self.cause, &mut self.fix, &mut self.next];
        lists.into_iter().flatten().chain(texts).for_each(change);
    }
}

/// The fix of an object that is as it should be.
pub const NOTHING: &str = "nothing has to be done";

/// The fix of work that ends on its own.
pub const WAIT: &str = "wait: nothing has to be done";

/// Returns [`ObjectState::Working`] if this error of the cloud may end on its own, and [`ObjectState::Blocked`]
/// if a person has to act.
pub fn state_for_error(error: &CloudError) -> ObjectState {
    match error.kind {
        _ if error.unsent => ObjectState::Working,
        ErrorKind::NotFound
        | ErrorKind::Unauthorized
        | ErrorKind::Forbidden
        | ErrorKind::QuotaExceeded
        | ErrorKind::Invalid
        | ErrorKind::Conflict
        | ErrorKind::Unsupported => ObjectState::Blocked,
        ErrorKind::Throttled
        | ErrorKind::Busy
        | ErrorKind::Pending
        | ErrorKind::Stale
        | ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Malformed => ObjectState::Working,
    }
}

/// Returns the fix for an error of the cloud.
pub fn fix_for_error(error: &CloudError) -> String {
    let subject = error.subject.as_deref().map(|subject| format!(" ({subject})"));
    let subject = subject.unwrap_or_default();
    match error.kind {
        ErrorKind::NotFound => {
            format!("create what the cloud does not find{subject}, or name another one")
        }
        ErrorKind::Throttled => {
            "wait; if it lasts, lower --cloud-read-qps and --cloud-write-qps, or ask the cloud for a higher rate".to_owned()
        }
        ErrorKind::Unauthorized => {
            "renew the credentials of the cloud: they are wrong or expired".to_owned()
        }
        ErrorKind::Forbidden => {
            format!("give the cloud user the permission that is missing{subject}")
        }
        ErrorKind::QuotaExceeded => {
            format!("raise the quota of the cloud project{subject}, or free some of it")
        }
        ErrorKind::Invalid => {
            format!("change what the cloud refuses{subject} in the object or the cloud config")
        }
        ErrorKind::Busy => "wait: another change is under way in the cloud".to_owned(),
        ErrorKind::Pending => "wait: the cloud is still making the change".to_owned(),
        ErrorKind::Conflict => {
            format!("two facts in the cloud contradict each other{subject}: correct one")
        }
        ErrorKind::Stale => "ask the replica that leads".to_owned(),
        ErrorKind::Unavailable | ErrorKind::Timeout => {
            format!("wait; if it lasts, ask the cloud's support{}", about_request(error))
        }
        ErrorKind::Malformed => format!(
            "wait; if it lasts, report the answer{} to the author of the provider",
            about_request(error)
        ),
        ErrorKind::Unsupported => "use another provider, or do without it".to_owned(),
    }
}

fn about_request(error: &CloudError) -> String {
    let id = error.request_id.as_ref().map(|id| format!(" about request {id}"));
    id.unwrap_or_default()
}

/// Returns the state of an object whose write the API server does not accept, and the fix.
pub fn refused_write(error: &ApiError) -> (ObjectState, &'static str) {
    match error {
        ApiError::Forbidden(_) => (
            ObjectState::Blocked,
            "give the account of this program the right, or exempt it from the admission policy or webhook that the message names",
        ),
        ApiError::Invalid(_) => (
            ObjectState::Blocked,
            "find what refuses it, for instance an admission webhook: the message comes from it",
        ),
        ApiError::Unauthorized | ApiError::Credentials(_) => {
            (ObjectState::Blocked, "renew the credentials of this program for the API server")
        }
        _ => (ObjectState::Working, "wait: it is tried again; if it lasts, look at the API server"),
    }
}

/// Returns a moment, as `at 2026-11-28T17:30:05Z, in 4 min` or `..., 4 min ago`.
pub fn moment(at: At, now: At) -> String {
    let distance = if at > now {
        format!("in {}", in_words(at.since(now)))
    } else {
        format!("{} ago", in_words(now.since(at)))
    };
    let text = at.to_string();
    let seconds = text.split_once('.').map_or(text.clone(), |(before, _)| format!("{before}Z"));
    format!("at {seconds}, {distance}")
}

/// Returns a moment in the past, as `since 2026-11-28T17:30:05Z, 4 min ago`.
pub fn since(at: At, now: At) -> String {
    format!("since {}", moment(at, now).trim_start_matches("at "))
}

/// Returns why calls to the cloud are refused, and how to fix that.
type Refusal = Box<dyn Fn() -> Option<(String, String)> + Send + Sync>;
type Explain = Arc<dyn Fn(&str) -> Explanation + Send + Sync>;

struct Explainer {
    controller: &'static str,
    kind: &'static str,
    explain: Explain,
}

/// The explanations of a process. Clones share them.
#[derive(Clone)]
pub struct Explanations {
    all: Arc<Mutex<Vec<Explainer>>>,
    plans: Plans,
    refusal: Arc<OnceLock<Refusal>>,
}

/// An explanation on the page.
#[derive(Serialize)]
struct ShownExplanation<'a> {
    kind: &'static str,
    name: &'a str,
    controller: &'static str,
    #[serde(flatten)]
    explanation: Explanation,
    decided: Option<ObjectSteps>,
}

/// The page as JSON.
#[derive(Serialize)]
struct ExplainPage<'a> {
    /// True if this replica does not lead. Then it knows only the objects of the API server.
    standby: bool,
    objects: Vec<ShownExplanation<'a>>,
}

/// The reason why the page does not explain anything.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unexplained {
    /// The query names no object.
    #[error(
        "name an object: /explain?kind=KIND&name=NAME; the name of a Service is NAMESPACE/NAME"
    )]
    NoName,
    /// The controllers of this program do not explain anything.
    #[error("this program does not explain objects")]
    Nothing,
    /// The controllers of this program do not know such objects.
    #[error("this program does not explain {given:?}: use kind={}", known.join(" or kind="))]
    Kind {
        /// The kind in the query.
        given: String,
        /// The kinds that it could be.
        known: Vec<&'static str>,
    },
}

impl Explanations {
    /// Starts without explanations.
    pub fn new(plans: Plans) -> Self {
        Self { all: Arc::default(), plans, refusal: Arc::default() }
    }

    /// Sets the function that returns why calls to the cloud are refused, and how to fix that.
    /// While it returns a reason, this is the cause of everything.
    pub fn refused_by(
        &self,
        refusal: impl Fn() -> Option<(String, String)> + Send + Sync + 'static,
    ) {
        self.refusal.get_or_init(|| Box::new(refusal));
    }

    /// Adds a controller's explanations of the objects of a kind. The function gets the name of the
    /// object, or `NAMESPACE/NAME`.
    pub fn add(
        &self,
        controller: &'static str,
        kind: &'static str,
        explain: impl Fn(&str) -> Explanation + Send + Sync + 'static,
    ) {
        self.all.lock().push(Explainer { controller, kind, explain: Arc::new(explain) });
    }

    fn page<'a>(
        &self,
        kind: Option<&str>,
        name: Option<&'a str>,
    ) -> Result<ExplainPage<'a>, Unexplained> {
        let name = name.filter(|name| !name.is_empty()).ok_or(Unexplained::NoName)?;
        let mut chosen = Vec::new();
        let mut known = Vec::new();
        for Explainer { controller, kind: own, explain } in &*self.all.lock() {
            known.push(*own);
            if kind.is_none_or(|kind| is_kind(own, kind)) {
                chosen.push((*controller, *own, Arc::clone(explain)));
            }
        }
        known.sort_unstable();
        known.dedup();
        match kind {
            _ if known.is_empty() => return Err(Unexplained::Nothing),
            Some(given) if chosen.is_empty() => {
                return Err(Unexplained::Kind { given: one_line(given, 100), known });
            }
            _ => {}
        }
        let refusal = self.refusal.get().and_then(|refusal| refusal());
        let mut objects: Vec<ShownExplanation<'_>> = chosen
            .into_iter()
            .map(|(controller, kind, explain)| {
                let mut explanation = explain(name).while_refused(refusal.as_ref());
                explanation.each_text(|text| *text = one_line(text, LONGEST_LINE));
                let decided = self.plans.decided(kind, name);
                ShownExplanation { kind, name, controller, explanation, decided }
            })
            .collect();
        // Without a kind, only the explanations that know the name are of interest.
        let is_known =
            |shown: &ShownExplanation<'_>| shown.explanation.state != ObjectState::Unknown;
        if kind.is_none() && objects.iter().any(is_known) {
            objects.retain(is_known);
        }
        Ok(ExplainPage { standby: self.plans.is_standby(), objects })
    }

    /// Returns the page as JSON.
    pub fn json(&self, kind: Option<&str>, name: Option<&str>) -> Result<String, Unexplained> {
        let page = self.page(kind, name)?;
        Ok(serde_json::to_string_pretty(&page).unwrap_or_default() + "\n")
    }

    /// Returns the page as text. The first three lines about an object say its state, why, and
    /// how to fix it.
    pub fn text(&self, kind: Option<&str>, name: Option<&str>) -> Result<String, Unexplained> {
        let ExplainPage { standby, objects } = self.page(kind, name)?;
        let texts: Vec<String> = objects.iter().map(|shown| shown.text(standby)).collect();
        Ok(texts.join("\n"))
    }
}

/// Returns true if this is the kind. It may be in lower case or in the plural.
fn is_kind(kind: &str, given: &str) -> bool {
    let given = given.to_ascii_lowercase();
    let kind = kind.to_ascii_lowercase();
    given == kind || given.strip_suffix('s') == Some(&kind)
}

impl ShownExplanation<'_> {
    fn text(&self, standby: bool) -> String {
        let Self { kind, name, controller, explanation, decided } = self;
        let Explanation { state, cause, fix, wanted, there, last, next } = explanation;
        let standby = if standby { " (standby: the leader knows more)" } else { "" };
        let name = one_line(name, LONGEST_LINE);
        let head = format!("{kind} {name}, {controller}{standby}: {state}\n");
        let list = |title, texts: &[String]| -> String {
            texts.iter().map(|text| line(title, text)).collect()
        };
        let decided = decided.iter().map(|decided| list("decided", &decided.in_words()));
        [head, line("cause", cause), line("fix", fix)]
            .into_iter()
            .chain([list("wanted", wanted), list("there", there), list("last", last)])
            .chain(decided)
            .chain([line("next", next)])
            .collect()
    }
}

impl ObjectSteps {
    fn in_words(&self) -> Vec<String> {
        let blocked = self.blocked.iter().map(|why| format!("nothing, blocked: {why}"));
        let texts = blocked.chain(self.steps.iter().map(ToString::to_string));
        texts.map(|text| format!("{text}; since {:.0}", self.since)).collect()
    }
}

/// Returns a line of the page, or an empty text if the content is empty.
fn line(title: &str, text: &str) -> String {
    let title = format!("{title}:");
    if text.is_empty() { String::new() } else { format!("{title:<9}{text}\n") }
}

#[cfg(test)]
mod tests;
