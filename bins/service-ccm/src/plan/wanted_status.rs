//! Computes the wanted status of a Service from the known state of its load balancer.

use ccm_cloud::{LoadBalancer, Note, Phase};
use ccm_objects::Service;

use super::{
    ADOPT, APPROVED, CallKind, Known, REPLACEMENT_APPROVED, View, approving_mark,
    front_end::{SpecProblem, in_words},
    losses,
    named::shown_id,
    pools::{self, Gap},
    reason::{Reason, SERVING},
    shown::{Shown, shown},
    status::{DIGEST, ID, NewCondition, StatusPatch, shows},
};

/// Returns the wanted status of a Service.
pub(super) fn wanted_status(view: View<'_>) -> StatusPatch {
    let state = view.state;
    let mut wanted = StatusPatch::default();
    if !view.wants() {
        wanted.conditions.extend(deletion(view));
        return wanted;
    }
    if let Some(balancer) = state.balancer()
        && balancer.phase == Phase::Ready
        && state.was_complete(view.service, &balancer.id)
    {
        let shown = shown(view, balancer);
        // A list may not show the addresses. Then the Service keeps its addresses.
        wanted.ingress = Some(shown.ingress).filter(|ingress| !ingress.is_empty());
        wanted.annotations = shown.annotations;
        wanted.annotations.insert(ID.to_owned(), Some(balancer.id.clone()));
        if let Some(digest) = state.configured.filter(|_| !view.traits.stores_digest) {
            wanted.annotations.insert(DIGEST.to_owned(), Some(digest.to_string()));
        }
    }
    let ready = state.balancer().filter(|balancer| balancer.phase == Phase::Ready);
    let serving = ready.map_or_else(|| doubt(view), |balancer| serving(view, balancer));
    wanted.conditions.extend(serving);
    wanted.conditions.extend(provisioning(view));
    // A condition says that a service-ccm serves the Service; the signature says which one.
    wanted.annotations.extend(view.classes.signature());
    wanted
}

/// Returns the conditions while a load balancer is being deleted.
fn deletion(view: View<'_>) -> Vec<NewCondition> {
    let failed = view.state.failure(CallKind::Delete).filter(|failed| !failed.may_pass());
    let provisioning = match failed {
        Some(failed) => (Reason::DeletionFailed, failed.error.to_string()),
        None => (Reason::Deleting, "the load balancer is being deleted".to_owned()),
    };
    let serving = view.service.condition(SERVING).is_some().then(|| {
        (Reason::BeingDeleted, "the load balancer of this Service is being deleted".to_owned())
    });
    serving.into_iter().chain([provisioning]).collect()
}

/// Returns the condition if service-ccm does not know any more whether the load balancer serves. It
/// only replaces a condition that the Service already has.
fn doubt(view: View<'_>) -> Option<NewCondition> {
    view.service.condition(SERVING)?;
    if view.state.known == Known::Absent && shows(view.service, Reason::BeingDeleted) {
        return Some((Reason::NoAddress, "the Service has no load balancer yet".to_owned()));
    }
    let shown = shown_id(view.service);
    let unknown = |text: String| Some((Reason::NotConfirmed, text));
    match &view.state.known {
        Known::Elsewhere(why) => unknown(responsible(why)),
        Known::Absent => shown.map(gone),
        Known::There(balancer) if shown.is_some_and(|shown| shown != balancer.id) => {
            shown.map(gone)
        }
        Known::There(balancer) => match &balancer.phase {
            Phase::Failed { why, .. } => {
                unknown(format!("load balancer {} has failed: {why}", balancer.id))
            }
            _ => None,
        },
        Known::Nothing | Known::Recorded { .. } => None,
    }
}

fn gone(id: &str) -> NewCondition {
    let text = format!(
        "the cloud does not show load balancer {id} any more; the status keeps its address until another one is proven"
    );
    (Reason::LoadBalancerGone, text)
}

fn responsible(why: &str) -> String {
    format!("owned by another controller: {why}")
}

/// Returns why the load balancer does not match the Service, if it does not.
fn provisioning(view: View<'_>) -> Option<NewCondition> {
    if let Known::Elsewhere(why) = &view.state.known {
        return Some((Reason::Elsewhere, responsible(why)));
    }
    let fatal: Vec<&SpecProblem> =
        view.spec.problems.iter().filter(|problem| problem.fatal).collect();
    if !fatal.is_empty() {
        return Some((Reason::InvalidConfiguration, in_words(&fatal)));
    }
    if let losses::LossVerdict::Held(why, _) = view.loss {
        let text = format!(
            "the load balancer is gone or has failed, and is not replaced yet: {why}; approve the replacement with the annotation {}",
            approving_mark(view.service, REPLACEMENT_APPROVED)
        );
        return Some((Reason::ReplacementHeld, text));
    }
    if let Some(why) = view.full {
        return Some((Reason::LimitReached, why.to_owned()));
    }
    let trouble = view.state.trouble();
    if view.state.needs_person() {
        return trouble;
    }
    if let Some((id, why)) = &view.state.adoptable
        && view.state.waits_for_adoption(view)
    {
        let text = format!(
            "load balancer {id} was made by another controller ({why}); adopt it with the annotation {ADOPT}={id}"
        );
        return Some((Reason::WaitingForAdoption, text));
    }
    if let Some(why) = view.state.stays_on_foreign(view.service, view.traits) {
        return Some((Reason::Conflict, why));
    }
    if let Some(failed) = [CallKind::Ensure, CallKind::Members]
        .into_iter()
        .find_map(|call| view.state.failure(call))
        .filter(|failed| !failed.may_pass())
    {
        return Some((Reason::from_error(&failed.error), failed.error.to_string()));
    }
    if let Some(pending) = &view.state.pending {
        let text = || format!("waiting for the cloud: {}", pending.what);
        let is_long = view.state.long_pending_at().is_some_and(|at| at <= view.now);
        return is_long.then(|| trouble.unwrap_or_else(|| (Reason::WaitingForCloud, text())));
    }
    if trouble.is_some() {
        return trouble;
    }
    let front_end = view.spec.front_end.as_ref()?;
    if view.state.configured != Some(front_end.digest) {
        return None;
    }
    let notes = warnings(view)?;
    let remarks: Vec<&SpecProblem> = view.spec.problems.iter().chain(&notes).collect();
    Some(if remarks.is_empty() {
        (Reason::Provisioned, "the load balancer matches the Service".to_owned())
    } else {
        (Reason::PartlyProvisioned, in_words(&remarks))
    })
}

/// Returns the provider's warnings; `None` if they are not known again yet, and the Service shows
/// some.
fn warnings(view: View<'_>) -> Option<Vec<SpecProblem>> {
    let Some(balancer) = view.state.balancer() else { return Some(Vec::new()) };
    let is_shown = shows(view.service, Reason::PartlyProvisioned);
    if is_shown && balancer.ingress.is_empty() {
        return None;
    }
    let warnings = balancer.notes.iter().filter(|note| note.warning);
    let mut all: Vec<SpecProblem> =
        warnings.map(|Note { reason, message, .. }| SpecProblem::remark(reason, message)).collect();
    let shown = shown(view, balancer);
    all.extend(shown.left_out().map(|one| SpecProblem::remark("AddressRefused", one.why.as_str())));
    Some(all)
}

/// Returns the condition of a load balancer that can be changed, as last seen. `None` if
/// service-ccm has not seen that yet and the Service has the condition of the last leader, which
/// then stays.
fn serving(view: View<'_>, balancer: &LoadBalancer) -> Option<NewCondition> {
    let is_complete = view.state.was_complete(view.service, &balancer.id);
    if let Some(shown) =
        shown_id(view.service).filter(|shown| !is_complete && *shown != balancer.id)
    {
        return Some(gone(shown));
    }
    let shown = shown(view, balancer);
    if let Some(refused) =
        shown.left_out().next().filter(|_| is_complete && shown.ingress.is_empty())
    {
        return Some((
            Reason::AddressRefused,
            format!("the Service shows no address: {}", refused.why),
        ));
    }
    let Some(address) = address(view, &shown, is_complete) else {
        let why =
            if shown.ingress.is_empty() { "has no address yet" } else { "is not complete yet" };
        return Some((Reason::NoAddress, format!("load balancer {} {why}", balancer.id)));
    };
    if let Some(why) = view.state.gap.as_ref().and_then(Gap::unseen) {
        let text = format!("the members of load balancer {} cannot be seen: {why}", balancer.id);
        return Some((Reason::NotConfirmed, text));
    }
    let ports = view.spec.front_end.as_ref().map(|front_end| &front_end.ports);
    if ports.is_some_and(|ports| ports.iter().all(|port| port.member_port.is_none())) {
        return Some((Reason::NoMembers, "no port of the Service has a node port".to_owned()));
    }
    let members = &view.members;
    let is_empty = members.members.present.is_empty();
    let Some(pools) = view.state.pools.as_deref() else {
        if !view.members_known {
            let text = || "its members have not been read yet".to_owned();
            return (!shows_members(view.service)).then(|| (Reason::NotConfirmed, text()));
        }
        return Some(if is_empty { no_node(view) } else { with_members(view, &address) });
    };
    // A new port has no pool before the configuration is complete.
    let front_end = view.spec.front_end.as_deref();
    let is_complete = |digest| pools.is_empty() || view.state.configured == Some(digest);
    let configured = front_end.filter(|front_end| is_complete(front_end.digest));
    let empty = pools::empty(pools, configured);
    if empty.is_empty() {
        return Some(with_members(view, &address));
    }
    if is_empty && empty.iter().all(|one| one.why.is_none()) {
        return Some(no_node(view));
    }
    Some((Reason::NoMembers, pools::in_words(&empty)))
}

/// Returns true if the Service shows the state of its members: a new leader keeps that condition
/// until it has read the members.
pub fn shows_members(service: &Service) -> bool {
    let seen = [Reason::Serving, Reason::MembersHeld, Reason::NoMembers];
    seen.iter().any(|reason| shows(service, *reason))
}

/// Returns the address of the load balancer, from the cloud, or else from the status of the
/// Service.
fn address(view: View<'_>, shown: &Shown, is_complete: bool) -> Option<String> {
    let first = shown.ingress.first().filter(|_| is_complete);
    let entry = first.or_else(|| view.service.details.as_deref()?.ingress.first())?;
    entry.hostname.as_deref().or(entry.ip.as_deref()).map(str::to_owned)
}

fn no_node(view: View<'_>) -> NewCondition {
    let why = view.members.why_none.clone();
    (Reason::NoMembers, why.unwrap_or_else(|| "no node of the cluster can be a member".to_owned()))
}

fn with_members(view: View<'_>, address: &str) -> NewCondition {
    let members = &view.members;
    if members.held.is_empty() {
        return (Reason::Serving, format!("clients reach it at {address}"));
    }
    let text = format!(
        "{} of {} members are held because too many nodes were deleted, changed or excluded at once; check whether a setting or the list of nodes is wrong, or approve with the annotation {}",
        members.held.len(),
        members.members.present.len(),
        approving_mark(view.service, APPROVED),
    );
    (Reason::MembersHeld, text)
}

#[cfg(test)]
mod tests {
    use ccm_base::At;
    use ccm_cloud::{CloudError, ErrorKind, Members, Note};
    use ccm_objects::Service;

    use super::super::{
        APPROVED, BalancerState, CallKind, Failed, Inputs, Known, Plan, Step,
        members::{Decision, Held},
        reason::{PROVISIONING, Reason},
        status::{ID, shows},
        tests::{planned_with, service, step, there, written},
    };

    #[test]
    fn a_list_without_an_address_takes_none_from_a_service() {
        let bare = service();
        let mut state = there(&bare);
        let first = step(&bare, &state);
        let Plan::Next(Step::Write(change)) = &first else { panic!("{first:?}") };
        let mut shown = written(&bare, &first);
        let details = shown.details.as_mut().expect("details");
        details.ingress = change.ingress.clone().expect("an address");
        for (key, value) in &change.annotations {
            let value = value.clone().expect("a value");
            details.annotations.insert(key.as_str().into(), value.into());
        }
        assert_eq!(step(&shown, &state), Plan::Settled);
        let Known::There(balancer) = &mut state.known else { panic!("{state:?}") };
        balancer.ingress.clear();
        assert_eq!(step(&shown, &state), Plan::Settled, "existing addresses stay");
        let without = written(&bare, &step(&bare, &state));
        assert!(shows(&without, Reason::NoAddress));
    }

    #[test]
    fn a_cloud_that_stays_busy_is_reported() {
        let service = service();
        for (times, is_shown) in [(4, false), (5, true)] {
            let there = there(&service);
            let failed = Failed {
                call: CallKind::Ensure,
                digest: there.configured,
                named: Default::default(),
                error: CloudError::new(ErrorKind::Busy, "it is immutable"),
                times,
                retry_at: At(std::time::Duration::MAX),
                soonest: At(std::time::Duration::MAX),
                inputs: Inputs::default(),
            };
            let state = BalancerState { failed: vec![failed], configured: None, ..there };
            let Plan::Next(Step::Write(change)) = step(&service, &state) else {
                panic!("no write")
            };
            let reasons = change.conditions.iter().map(|condition| condition.0);
            let reasons: Vec<Reason> = reasons.collect();
            assert_eq!(reasons.contains(&Reason::WaitingForCloud), is_shown);
            assert!(!reasons.contains(&Reason::Provisioned), "another configuration is wanted");
        }
    }

    /// Returns the Service after this plan.
    fn shown(service: &Service, state: &BalancerState) -> Service {
        written(service, &step(service, state))
    }

    fn with_notes(state: &mut BalancerState, notes: &[(&str, bool)]) {
        let Known::There(balancer) = &mut state.known else { panic!("{state:?}") };
        balancer.notes = notes
            .iter()
            .map(|(message, warning)| Note {
                reason: "PartNotManaged".to_owned(),
                message: (*message).to_owned(),
                warning: *warning,
            })
            .collect();
    }

    #[test]
    fn a_warning_of_the_provider_is_in_the_condition() {
        let bare = service();
        let mut state = there(&bare);
        let message = |state: &BalancerState| {
            let shown = shown(&bare, state);
            let condition = shown.condition(PROVISIONING).expect("a condition").clone();
            (condition.reason.to_string(), condition.message.to_string())
        };
        with_notes(&mut state, &[("an address was chosen", false)]);
        assert_eq!(message(&state).0, "Provisioned", "it asks for nothing");
        with_notes(&mut state, &[("an address was chosen", false), ("security groups", true)]);
        let expect = ("PartlyProvisioned", "PartNotManaged: security groups");
        assert_eq!(message(&state), (expect.0.to_owned(), expect.1.to_owned()));
    }

    #[test]
    fn what_a_list_does_not_show_of_the_warnings_stays_in_the_condition() {
        let bare = service();
        let mut state = there(&bare);
        with_notes(&mut state, &[("security groups", true)]);
        let partly = shown(&bare, &state);
        // The writes of another leader, before the first comparison and after it.
        with_notes(&mut state, &[]);
        let change = |state: &BalancerState| {
            let Plan::Next(Step::Write(change)) = step(&partly, state) else { panic!("a write") };
            let mut reasons = change.conditions.into_iter().map(|condition| condition.0);
            reasons.find(|reason| reason.condition() == PROVISIONING)
        };
        assert_eq!(change(&state), Some(Reason::Provisioned));
        let Known::There(balancer) = &mut state.known else { panic!("{state:?}") };
        balancer.ingress.clear();
        assert_eq!(change(&state), None);
    }

    /// The address and the ID belong to a load balancer that was complete once.
    #[test]
    fn what_was_never_complete_is_not_shown() {
        let bare = service();
        let Plan::Next(Step::Write(change)) = step(&bare, &there(&bare)) else { panic!("a write") };
        assert!(change.ingress.is_some() && change.annotations.contains_key(ID));
        let failed = Failed {
            call: CallKind::Ensure,
            digest: there(&bare).configured,
            named: Default::default(),
            error: CloudError::new(ErrorKind::QuotaExceeded, "no floating address"),
            times: 1,
            retry_at: At(std::time::Duration::MAX),
            soonest: At(std::time::Duration::MAX),
            inputs: Inputs::default(),
        };
        let state = BalancerState { failed: vec![failed], configured: None, ..there(&bare) };
        let Plan::Next(Step::Write(change)) = step(&bare, &state) else { panic!("a write") };
        assert!(change.ingress.is_none() && change.annotations.is_empty(), "{change:?}");
        let reasons: Vec<Reason> = change.conditions.iter().map(|one| one.0).collect();
        assert_eq!(reasons, [Reason::NoAddress, Reason::QuotaExceeded]);
        // The cloud shows an address, so the message does not deny it.
        assert_eq!(change.conditions[0].1, "load balancer lb-1 is not complete yet");
        // It was complete before.
        let mut known = bare.clone();
        let details = known.details.as_mut().expect("details");
        details.annotations.insert(ID.into(), "lb-1".into());
        let named = [None, Some("lb-1".into()), None];
        let failed =
            state.failed.iter().map(|failed| Failed { named: named.clone(), ..failed.clone() });
        let state = BalancerState { failed: failed.collect(), ..state.clone() };
        let Plan::Next(Step::Write(change)) = step(&known, &state) else { panic!("a write") };
        assert!(change.ingress.is_some(), "{change:?}");
    }

    #[test]
    fn a_load_balancer_without_members_says_so() {
        let member = r#"[{"node": "a", "provider_id": null, "addresses": [], "labels": {}}]"#;
        let present = serde_json::from_str(member).expect("a member");
        let none = Decision::default();
        let reasons = |service: &Service, members: &Decision| {
            let plan = planned_with(service, &there(service), members, 100, |_| {});
            let Plan::Next(Step::Write(change)) = plan else { panic!("{plan:?}") };
            change.conditions.iter().map(|one| one.0).collect::<Vec<_>>()
        };
        let mut service = service();
        let with_member =
            Decision { members: Members { present, ..Members::default() }, ..none.clone() };
        assert_eq!(reasons(&service, &with_member), [Reason::Serving, Reason::Provisioned]);
        assert_eq!(reasons(&service, &none), [Reason::NoMembers, Reason::Provisioned]);
        let held = [("b".into(), Held::Last)].into();
        let with_held = Decision { held, ..with_member.clone() };
        assert_eq!(reasons(&service, &with_held), [Reason::MembersHeld, Reason::Provisioned]);
        // An approval with a wrong value is named.
        let mut wrong = service.clone();
        let details = wrong.details.as_mut().expect("details");
        details.annotations.insert(APPROVED.into(), "ja".into());
        let plan = planned_with(&wrong, &there(&wrong), &with_held, 100, |_| {});
        let Plan::Next(Step::Write(change)) = plan else { panic!("{plan:?}") };
        let message = &change.conditions[0].1;
        assert!(message.contains("its present value \"ja\" does not approve"), "{message}");
        service.details.as_mut().expect("details").ports[0].node_port = None;
        assert_eq!(reasons(&service, &with_member), [Reason::NoMembers, Reason::PartlyProvisioned]);
    }
}
