//! User-visible reports: events on the Service, and log lines. The reasons are upstream's.

mod orphans;

use std::{collections::BTreeSet, time::Duration};

use ccm_cloud::{CloudError, Note};
use ccm_controller::{
    queue::Pace,
    repeat_reports::RepeatMetrics,
    reports::{Report, Reports, When},
};
use ccm_kube::events::EventRecorder;
use ccm_objects::Service;
use parking_lot::Mutex;

use crate::machine::effect::Tell;
use crate::plan::{
    APPROVED, CallKind, approving_mark,
    eligible::without_numbers,
    front_end::{SpecProblem, in_words},
    members::Decision,
    shown::{Part, Refused},
};

/// The maximum number of names of nodes in a text.
const NAMES: usize = 20;
/// The maximum number of remarks about one load balancer that are reported one by one.
const NOTES: usize = 8;
/// The maximum number of annotations that the log names one by one: a provider may have any number.
const ANNOTATIONS: usize = 100;

/// Reports about Services.
pub(crate) struct ServiceReports {
    reports: Reports,
    annotations: Annotations,
}

/// The annotations of a provider that the log has named.
#[derive(Debug, Default)]
struct Annotations(Mutex<BTreeSet<String>>);

impl Annotations {
    /// Returns true if the log should name this one: it has not been named, and there are not too many.
    fn is_new(&self, why: &str) -> bool {
        let mut named = self.0.lock();
        named.len() < ANNOTATIONS && !named.contains(why) && named.insert(why.to_owned())
    }
}

impl ServiceReports {
    pub(crate) fn new(events: EventRecorder) -> Self {
        Self {
            reports: Reports::new(events, Duration::ZERO, ccm_controller::log_here!()),
            annotations: Annotations::default(),
        }
    }

    /// Forgets the reports about a deleted Service.
    pub(crate) fn forget(&self, key: &str) {
        self.reports.memory().forget(key);
    }

    /// Makes a report about a Service.
    pub(crate) fn tell(&self, service: &Service, what: &Tell, repeats: &RepeatMetrics) {
        match what {
            Tell::Notes(notes) => self.notes(service, notes),
            Tell::Refused(parts) => self.refused_parts(service, parts),
            Tell::Repeated(one) => {
                repeats.report(&self.reports, &service.reference(), one);
            }
            what => self.say(service, Said::in_words(service, what)),
        }
    }

    fn say(&self, service: &Service, said: Said) {
        let Said { when, warning, topic, event, state, text } = said;
        let line = Report::line(topic, &state, format!("{}: {text}", service.key));
        let report = Report { warning, ..line.with_event(event, text) };
        self.reports.report(&service.reference(), when, report);
    }

    /// Reports the provider's remarks about a load balancer, each one once, and how many more there
    /// are. A Service has room for thousands of annotations with a mistake, and the reports about one
    /// object for a few states.
    fn notes(&self, service: &Service, notes: &[Note]) {
        let (notes, more) = first_notes(notes);
        for Note { reason, message, warning } in notes.iter().chain(&more) {
            let text = format!("{reason}: {message}");
            let said = Said::new(When::Once, "LoadBalancerNote", text.clone(), text);
            self.say(service, Said { warning: *warning, ..said });
        }
    }

    /// Reports what the Service does not show of the provider's answer. An annotation is the operator's
    /// matter: one line for each, without an event.
    fn refused_parts(&self, service: &Service, refused: &[Refused]) {
        let of_status: Vec<&str> = refused
            .iter()
            .filter(|one| one.part != Part::Annotation && !one.stays)
            .map(|one| &*one.why)
            .collect();
        if !of_status.is_empty() {
            let text = of_status.join("; ");
            let line = format!(
                "The Service does not show everything from the provider: {text}; if it is right, the operator can allow it with --load-balancer-allowed-addresses"
            );
            self.say(service, Said::warning("LoadBalancerAddressRefused", text, line));
        }
        for one in refused.iter().filter(|one| one.part == Part::Annotation) {
            if self.annotations.is_new(&one.why) {
                tracing::warn!(service = &*service.key, "{}, so it is not written", one.why);
            }
        }
    }
}

/// A report about a Service, in words.
struct Said {
    when: When,
    warning: bool,
    topic: &'static str,
    /// The reason of the event.
    event: &'static str,
    /// The state that is remembered: a report with the same one is not news.
    state: String,
    text: String,
}

impl Said {
    fn new(
        when: When,
        event: &'static str,
        state: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        let (state, text) = (state.into(), text.into());
        Self { when, warning: false, topic: event, event, state, text }
    }

    fn warning(event: &'static str, state: impl Into<String>, text: impl Into<String>) -> Self {
        Self { warning: true, ..Self::new(When::Changed, event, state, text) }
    }

    /// Puts a report in words. Other numbers of nodes alone are not news.
    fn in_words(service: &Service, what: &Tell) -> Self {
        use When::{Always, Changed, Once};
        let good = |when, event, text: &str| Self::new(when, event, "", text);
        let held = |event, why: &str| Self::warning(event, why, why);
        match what {
            Tell::Ensuring(digest) => {
                let text = "Ensuring load balancer";
                Self::new(Changed, "EnsuringLoadBalancer", digest.to_string(), text)
            }
            Tell::Ensured => good(Always, "EnsuredLoadBalancer", "Ensured load balancer"),
            Tell::MembersChanged => {
                good(Always, "UpdatedLoadBalancer", "Updated load balancer with new hosts")
            }
            Tell::Deleting => good(Once, "DeletingLoadBalancer", "Deleting load balancer"),
            Tell::Deleted => good(Once, "DeletedLoadBalancer", "Deleted load balancer"),
            Tell::Kept(kept) => {
                Self::new(Always, "KeptInCloud", kept, format!("The provider has kept {kept}"))
            }
            Tell::DuplicateDeleted => {
                let text = "Deleted the second load balancer of this Service";
                Self::new(Always, "DeletedLoadBalancer", "duplicate", text)
            }
            Tell::NoMembers(why) => {
                let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let text = format!("There are no available nodes for LoadBalancer{why}");
                Self::warning("UnAvailableLoadBalancer", without_numbers(&why), text)
            }
            Tell::Gone { id, by } => Self { when: Always, ..gone(id, by.as_deref()) },
            Tell::AddressChanged(change) => {
                let text = format!("the address of the load balancer has changed: {change}");
                let said = Self::warning("LoadBalancerAddressChanged", change, text);
                Self { when: Always, ..said }
            }
            Tell::Failed { call, members, error, pace } => {
                failure_report(*call, members, error, *pace)
            }
            Tell::Trouble(why) => {
                let text = format!("Error syncing load balancer: {why}");
                let said = Self::warning("SyncLoadBalancerFailed", why, text);
                Self { topic: "LoadBalancerTrouble", ..said }
            }
            Tell::NotWritten { what, error, pace } => {
                let text = format!("Failed to write {what}: {error}; retrying {pace}");
                Self::warning("WriteFailed", error.reason(), text)
            }
            Tell::Problems(problems) => invalid(problems),
            Tell::Held(members) => members_held(service, members),
            Tell::ReleaseHeld(why) => held("LoadBalancerReleaseHeld", why),
            Tell::ReplacementHeld(why) => {
                Self::warning("LoadBalancerReplacementHeld", without_numbers(why), why)
            }
            Tell::Full(why) => held("LoadBalancerLimitReached", why),
            Tell::Unclaimed(why) => held("UnclaimedFinalizer", why),
            Tell::Notes(_) | Tell::Refused(_) | Tell::Repeated(_) => good(Once, "", ""),
        }
    }
}

/// Reports that the load balancer whose address a Service shows is gone.
fn gone(id: &str, by: Option<&str>) -> Said {
    let next = by.map_or_else(
        || "a new one could not be created yet, and the Service keeps its address".to_owned(),
        |by| format!("{by} replaces it"),
    );
    let text = format!("load balancer {id} is not in the cloud any more; {next}");
    Said::warning("LoadBalancerGone", id, text)
}

/// Returns the report that a call to the cloud has failed.
fn failure_report(call: CallKind, members: &Decision, error: &CloudError, pace: Pace) -> Said {
    let (event, text) = match call {
        CallKind::Ensure => (
            "SyncLoadBalancerFailed",
            "Error syncing load balancer: failed to ensure load balancer".to_owned(),
        ),
        CallKind::Members => (
            "UpdateLoadBalancerFailed",
            format!("Error updating load balancer with new hosts {}", in_brackets(members)),
        ),
        CallKind::Delete => ("DeleteLoadBalancerFailed", "Error deleting load balancer".to_owned()),
        CallKind::DeleteDuplicate => (
            "DeleteLoadBalancerFailed",
            "Error deleting the second load balancer of this Service".to_owned(),
        ),
    };
    Said::warning(event, error.kind.reason(), format!("{text}: {error}; retrying {pace}"))
}

/// Returns the report that the Service has mistakes.
fn invalid(problems: &[SpecProblem]) -> Said {
    let problems: Vec<&SpecProblem> = problems.iter().collect();
    let text = format!("Error syncing load balancer: {}", in_words(&problems));
    let said = Said::warning("SyncLoadBalancerFailed", text.clone(), text);
    Said { topic: "InvalidService", ..said }
}

/// Returns the report that members are held.
fn members_held(service: &Service, members: &Decision) -> Said {
    let mark = approving_mark(service, APPROVED);
    let names: Vec<&str> = members.held.keys().take(NAMES).map(|name| &**name).collect();
    let count = members.held.len();
    let text = format!(
        "{count} members stay although their nodes are gone, changed or excluded, because these are too many at once: {}; check whether a setting or the list of nodes is wrong, or approve with the annotation {mark}",
        names.join(" "),
    );
    // An approval that does not approve is news.
    Said::warning("LoadBalancerMembersHeld", format!("{count} held, {mark}"), text)
}

/// Returns the first remarks, and one that says how many more there are.
fn first_notes(notes: &[Note]) -> (&[Note], Option<Note>) {
    let (first, others) = notes.split_at(notes.len().min(NOTES));
    let more = (!others.is_empty()).then(|| Note {
        reason: "MoreRemarks".to_owned(),
        message: format!("{} more remarks are not reported", others.len()),
        warning: others.iter().any(|note| note.warning),
    });
    (first, more)
}

fn in_brackets(members: &Decision) -> String {
    let present = &members.members.present;
    let names: Vec<&str> = present.iter().take(NAMES).map(|member| &*member.node).collect();
    let more = present.len().saturating_sub(NAMES);
    let rest = if more > 0 { format!(" <{more} more>") } else { String::new() };
    format!("[{}{rest}]", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_each_annotation_once_and_not_more_than_a_hundred() {
        let annotations = Annotations::default();
        let named = |why: &str| annotations.is_new(why);
        assert_eq!(["a", "b", "a", "b", "c"].map(named), [true, true, false, false, true]);
        let count = (0..1000).filter(|number| named(&number.to_string())).count();
        assert_eq!(count, ANNOTATIONS - 3);
        assert!(!named("a"));
    }

    #[test]
    fn of_many_remarks_the_first_are_reported_and_the_others_are_counted() {
        let note = |number: usize| Note {
            reason: "UnknownAnnotation".to_owned(),
            message: number.to_string(),
            warning: number == 4999,
        };
        let all: Vec<Note> = (0..5000).map(note).collect();
        let (first, more) = first_notes(&all);
        let more = more.expect("more");
        assert_eq!(first, &all[..NOTES]);
        assert!(more.message.starts_with("4992 more") && more.warning, "{more:?}");
        assert_eq!(first_notes(&all[..NOTES]), (&all[..NOTES], None));
    }
}
