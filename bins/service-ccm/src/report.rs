//! User-visible reports: events on the Service, and log lines. The reasons are upstream's.

mod orphans;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_cloud::{CloudError, Note};
use ccm_controller::{
    queue::Pace,
    repeat_reports::RepeatMetrics,
    repeats::Repeated,
    reports::{Report, Reports, When},
};
use ccm_kube::{ApiError, events::EventRecorder};
use ccm_objects::Service;
use parking_lot::Mutex;

pub(crate) use self::orphans::{adoptable, rebuilt};
use crate::plan::{
    CallKind,
    eligible::without_numbers,
    front_end::{Problem, in_words},
    members::Decision,
    shown::{Part, Refused},
};
use crate::{machine::effect::Tell, metrics::ServiceMetrics};

/// How many names of nodes a text holds.
const NAMES: usize = 20;
/// The maximum number of remarks about one load balancer that are reported one by one.
const NOTES: usize = 8;
/// The maximum number of annotations that the log names one by one: a provider may have any number.
const ANNOTATIONS: usize = 100;

/// Reports about Services. Clones share one memory.
#[derive(Clone)]
pub(crate) struct ServiceReports {
    reports: Arc<Reports>,
    annotations: Arc<Annotations>,
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
            reports: Arc::new(Reports::new(events, Duration::ZERO, ccm_controller::log_here!())),
            annotations: Arc::default(),
        }
    }

    /// Forgets the reports about a deleted Service.
    pub(crate) fn forget(&self, key: &str) {
        self.reports.memory().forget(key);
    }

    fn report(&self, service: &Service, when: When, report: Report<'_>) {
        self.reports.report(&service.reference(), when, report);
    }

    fn normal(&self, service: &Service, when: When, topic: &'static str, state: &str, text: &str) {
        let report = Report::line(topic, state, format!("{}: {text}", service.key));
        let report = report.with_event(topic, text);
        self.report(service, when, report);
    }

    fn warning(
        &self,
        service: &Service,
        topic: &'static str,
        event: &'static str,
        state: &str,
        text: String,
    ) {
        let report = Report::warning(topic, state, format!("{}: {text}", service.key));
        let report = report.with_event(event, text);
        self.report(service, When::Changed, report);
    }

    /// Makes a report about a Service.
    pub(crate) fn tell(
        &self,
        service: &Service,
        what: Tell,
        metrics: &ServiceMetrics,
        repeats: &RepeatMetrics,
    ) {
        match what {
            Tell::Ensuring(digest) => self.ensuring(service, &digest.to_string()),
            Tell::Ensured => self.ensured(service),
            Tell::MembersChanged => self.members_changed(service),
            Tell::NoMembers(why) => self.no_members(service, why.as_deref()),
            Tell::Gone { id, by } => {
                if self.gone(service, &id, by.as_deref()) {
                    metrics.gone();
                }
            }
            Tell::AddressChanged(text) => {
                self.address_changed(service, &text);
                metrics.address_changed();
            }
            Tell::Deleting => self.deleting(service),
            Tell::Deleted => self.deleted(service),
            Tell::Kept(kept) => self.kept(service, &kept),
            Tell::DuplicateDeleted => self.duplicate_deleted(service),
            Tell::Failed { call, members, error, pace } => {
                self.failed(service, call, &members, &error, pace);
            }
            Tell::NotWritten { what, error, pace } => self.refused(service, what, &error, pace),
            Tell::Problems(problems) => self.problems(service, &problems),
            Tell::Notes(notes) => self.notes(service, &notes),
            Tell::Held(members) => self.held(service, &members),
            Tell::Refused(parts) => self.refused_parts(service, &parts),
            Tell::ReleaseHeld(why) => self.release_held(service, &why),
            Tell::ReplacementHeld(why) => self.replacement_held(service, &why),
            Tell::Full(why) => self.full(service, &why),
            Tell::Unclaimed(why) => self.unclaimed(service, &why),
            Tell::Repeated(one) => self.repeated(service, repeats, &one),
        }
    }

    /// Counts a repeated write, and reports it if `is_news`.
    fn repeated(&self, service: &Service, metrics: &RepeatMetrics, one: &Repeated) {
        metrics.report(&self.reports, &service.reference(), one);
    }

    /// Reports that a load balancer is created or updated.
    fn ensuring(&self, service: &Service, digest: &str) {
        let text = "Ensuring load balancer";
        self.normal(service, When::Changed, "EnsuringLoadBalancer", digest, text);
    }

    /// Reports that a load balancer is as its Service asks for.
    fn ensured(&self, service: &Service) {
        self.normal(service, When::Always, "EnsuredLoadBalancer", "", "Ensured load balancer");
    }

    /// Reports that the members have changed.
    fn members_changed(&self, service: &Service) {
        let text = "Updated load balancer with new hosts";
        self.normal(service, When::Always, "UpdatedLoadBalancer", "", text);
    }

    /// Reports that no node can be a member, and why. Other numbers of nodes alone are not reported.
    fn no_members(&self, service: &Service, why: Option<&str>) {
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let event = "UnAvailableLoadBalancer";
        let text = format!("There are no available nodes for LoadBalancer{why}");
        self.warning(service, event, event, &without_numbers(&why), text);
    }

    /// Reports that the load balancer whose address a Service shows is gone. Returns true if that
    /// is new.
    fn gone(&self, service: &Service, id: &str, by: Option<&str>) -> bool {
        let next = by.map_or_else(
            || "no other one could be made yet, and the Service keeps its address".to_owned(),
            |by| format!("{by} takes its place"),
        );
        let (topic, text) = (
            "LoadBalancerGone",
            format!("load balancer {id} is not in the cloud any more; {next}"),
        );
        let report = Report::warning(topic, id, format!("{}: {text}", service.key));
        self.reports.report(&service.reference(), When::Once, report.with_event(topic, text))
    }

    /// Reports that the address of a Service has changed.
    fn address_changed(&self, service: &Service, change: &str) {
        let topic = "LoadBalancerAddressChanged";
        let text = format!("the address of the load balancer has changed: {change}");
        let report = Report::warning(topic, change, format!("{}: {text}", service.key));
        self.report(service, When::Always, report.with_event(topic, text));
    }

    /// Reports that a load balancer is being deleted.
    fn deleting(&self, service: &Service) {
        let text = "Deleting load balancer";
        self.normal(service, When::Once, "DeletingLoadBalancer", "", text);
    }

    /// Reports that a load balancer does not exist any more.
    fn deleted(&self, service: &Service) {
        self.normal(service, When::Once, "DeletedLoadBalancer", "", "Deleted load balancer");
    }

    /// Reports what the provider has left in the cloud on purpose.
    fn kept(&self, service: &Service, kept: &str) {
        let text = format!("The provider has kept {kept}");
        self.normal(service, When::Always, "KeptInCloud", kept, &text);
    }

    /// Reports that the second load balancer of a Service has been deleted.
    fn duplicate_deleted(&self, service: &Service) {
        let text = "Deleted the second load balancer of this Service";
        self.normal(service, When::Always, "DeletedLoadBalancer", "duplicate", text);
    }

    /// Reports that a call to the cloud has failed.
    fn failed(
        &self,
        service: &Service,
        call: CallKind,
        members: &Decision,
        error: &CloudError,
        pace: Pace,
    ) {
        let (topic, text) = match call {
            CallKind::Ensure => (
                "SyncLoadBalancerFailed",
                "Error syncing load balancer: failed to ensure load balancer".to_owned(),
            ),
            CallKind::Members => {
                let names = in_brackets(members);
                (
                    "UpdateLoadBalancerFailed",
                    format!("Error updating load balancer with new hosts {names}"),
                )
            }
            CallKind::Delete => {
                ("DeleteLoadBalancerFailed", "Error deleting load balancer".to_owned())
            }
            CallKind::DeleteDuplicate => (
                "DeleteLoadBalancerFailed",
                "Error deleting the second load balancer of this Service".to_owned(),
            ),
        };
        let text = format!("{text}: {error}; retrying {pace}");
        self.warning(service, topic, topic, error.kind.reason(), text);
    }

    /// Reports what is wrong with a Service.
    fn problems(&self, service: &Service, problems: &[Problem]) {
        if problems.is_empty() {
            return;
        }
        let problems: Vec<&Problem> = problems.iter().collect();
        let text = format!("Error syncing load balancer: {}", in_words(&problems));
        self.warning(service, "InvalidService", "SyncLoadBalancerFailed", &text.clone(), text);
    }

    /// Reports the provider's remarks about a load balancer, each one once, and how many more there
    /// are. A Service has room for thousands of annotations with a mistake, and the reports about one
    /// object for a few states.
    fn notes(&self, service: &Service, notes: &[Note]) {
        let (notes, more) = first_notes(notes);
        for Note { reason, message, warning } in notes.iter().chain(&more) {
            let text = format!("{reason}: {message}");
            let (topic, warning) = ("LoadBalancerNote", *warning);
            let line = Report::line(topic, &text, format!("{}: {text}", service.key));
            let report = Report { warning, ..line.with_event(topic, &*text) };
            self.report(service, When::Once, report);
        }
    }

    /// Reports that members are held.
    fn held(&self, service: &Service, members: &Decision) {
        if members.held.is_empty() {
            return;
        }
        let names: Vec<&str> = members.held.keys().take(NAMES).map(|name| &**name).collect();
        let text = format!(
            "{} members stay although their nodes are gone, changed or excluded, because that happened to too many at once: {}; look whether a setting or the list of nodes is wrong, or approve with the annotation {}=yes",
            members.held.len(),
            names.join(" "),
            crate::plan::APPROVED,
        );
        let event = "LoadBalancerMembersHeld";
        self.warning(service, event, event, &format!("{} held", members.held.len()), text);
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
            let event = "LoadBalancerAddressRefused";
            let text = of_status.join("; ");
            let line = format!(
                "The Service does not show what the provider gives: {text}; if that is right, the operator allows it with --load-balancer-allowed-addresses"
            );
            self.warning(service, event, event, &text, line);
        }
        for one in refused.iter().filter(|one| one.part == Part::Annotation) {
            if self.annotations.is_new(&one.why) {
                tracing::warn!(service = &*service.key, "{}, so it is not written", one.why);
            }
        }
    }

    /// Reports that the API server rejects a write.
    fn refused(&self, service: &Service, what: &str, error: &ApiError, pace: Pace) {
        let text = format!("Failed to write {what}: {error}; retrying {pace}");
        self.warning(service, "WriteFailed", "WriteFailed", error.reason(), text);
    }

    /// Reports that the load balancer of a Service that is not served any more stays.
    fn release_held(&self, service: &Service, why: &str) {
        let event = "LoadBalancerReleaseHeld";
        self.warning(service, event, event, why, why.to_owned());
    }

    /// Reports that a load balancer is gone or has failed, and that no other one is made yet.
    fn replacement_held(&self, service: &Service, why: &str) {
        let event = "LoadBalancerReplacementHeld";
        self.warning(service, event, event, &without_numbers(why), why.to_owned());
    }

    /// Reports that a Service waits for room in its namespace.
    fn full(&self, service: &Service, why: &str) {
        let event = "LoadBalancerLimitReached";
        self.warning(service, event, event, why, why.to_owned());
    }

    /// Reports a finalizer that no known controller removes.
    fn unclaimed(&self, service: &Service, why: &str) {
        let event = "UnclaimedFinalizer";
        self.warning(service, event, event, why, why.to_owned());
    }
}

/// The first remarks, and one that says how many more there are.
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
