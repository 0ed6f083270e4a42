//! What a Service is to show, given what is known of its load balancer.

use std::{collections::BTreeMap, sync::Arc};

use ccm_cloud::{Cure, FrontEnd, IngressAddress, LoadBalancer, Phase};

use super::{
    ADOPT, APPROVED, CallKind, Known, PATIENCE, View,
    front_end::{Problem, in_words},
    reason::{Reason, SERVING},
    status::{DIGEST, ID, Wished, ingress, shows},
};

/// What a Service is to show.
pub(super) fn wished(view: View<'_>) -> Wished {
    let state = view.state;
    let mut wished = Wished::default();
    if view.service.deleting || !view.service.is_load_balancer {
        wished.conditions.extend(deletion(view));
        return wished;
    }
    if let Known::There(balancer) = &state.known
        && balancer.phase == Phase::Ready
    {
        // A list may not show them: what is there stays.
        wished.ingress = Some(ingress(balancer)).filter(|ingress| !ingress.is_empty());
        wished.annotations = annotations(view, balancer);
        // Until the members have been read, none is held as far as this leader knows.
        let was_held = shows(view.service.condition(SERVING), Reason::MembersHeld);
        if view.members_known || !was_held {
            wished.conditions.push(serving(view, balancer));
        }
    }
    wished.conditions.extend(provisioning(view));
    wished
}

/// The condition of a load balancer that is being deleted, if that has failed.
fn deletion(view: View<'_>) -> Option<(Reason, String)> {
    let failed = view.state.failure(CallKind::Delete)?;
    Some((Reason::DeletionFailed, failed.error.to_string()))
}

fn annotations(view: View<'_>, balancer: &LoadBalancer) -> BTreeMap<String, Option<String>> {
    let mut annotations = balancer.annotations.clone();
    annotations.insert(ID.to_owned(), Some(balancer.id.clone()));
    if !view.traits.stores_digest
        && let Some(configured) = view.state.configured
    {
        annotations.insert(DIGEST.to_owned(), Some(configured.to_string()));
    }
    annotations
}

/// Why the load balancer is not as the Service asks for; or that it is.
fn provisioning(view: View<'_>) -> Option<(Reason, String)> {
    let fatal: Vec<&Problem> =
        view.desired.problems.iter().filter(|problem| problem.fatal).collect();
    if !fatal.is_empty() {
        return Some((Reason::InvalidConfiguration, in_words(&fatal)));
    }
    if let Known::There(balancer) = &view.state.known
        && let Phase::Failed { why, cure: Cure::Person } = &balancer.phase
    {
        let text = format!("load balancer {} has failed: {why}; repair or delete it", balancer.id);
        return Some((Reason::LoadBalancerFailed, text));
    }
    if let Some((id, why)) = &view.state.adoptable
        && view.state.waits_for_adoption(view)
    {
        let text = format!(
            "load balancer {id} was made by another controller ({why}); adopt it with the annotation {ADOPT}={id}"
        );
        return Some((Reason::WaitingForAdoption, text));
    }
    if let Some(failed) = [CallKind::Ensure, CallKind::Members]
        .into_iter()
        .find_map(|call| view.state.failure(call))
        .filter(|failed| !failed.may_pass())
    {
        return Some((Reason::of(failed.error.kind), failed.error.to_string()));
    }
    if let Some(pending) = &view.state.pending {
        let text = || format!("waiting for the cloud: {}", pending.what);
        return (pending.since + PATIENCE <= view.now).then(|| (Reason::WaitingForCloud, text()));
    }
    let front_end = view.desired.front_end.as_ref()?;
    if view.state.configured != Some(front_end.digest) {
        return None;
    }
    let remarks: Vec<&Problem> = view.desired.problems.iter().collect();
    Some(if remarks.is_empty() {
        (Reason::Provisioned, "the load balancer is as the Service asks for".to_owned())
    } else {
        (Reason::PartlyProvisioned, in_words(&remarks))
    })
}

fn serving(view: View<'_>, balancer: &LoadBalancer) -> (Reason, String) {
    let first = balancer.ingress.first().map(|ingress| match &ingress.address {
        IngressAddress::Ip(ip) => ip.to_string(),
        IngressAddress::Hostname(name) => name.clone(),
    });
    let of_status = || {
        let entry = view.service.details.as_deref()?.ingress.first()?;
        entry.hostname.as_deref().or(entry.ip.as_deref()).map(str::to_owned)
    };
    let Some(address) = first.or_else(of_status) else {
        return (Reason::NoAddress, format!("load balancer {} has no address yet", balancer.id));
    };
    let members = &view.members;
    if !members.held.is_empty() {
        let text = format!(
            "{} of {} members are held because too many nodes went or changed at once; approve with the annotation {}=yes",
            members.held.len(),
            members.members.present.len(),
            APPROVED,
        );
        return (Reason::MembersHeld, text);
    }
    if members.members.present.is_empty() {
        return (Reason::NoMembers, "no node of the cluster can be a member".to_owned());
    }
    let has_node_port =
        |front_end: &Arc<FrontEnd>| front_end.ports.iter().any(|one| one.member_port.is_some());
    if !view.desired.front_end.as_ref().is_none_or(has_node_port) {
        return (Reason::NoMembers, "no port of the Service has a node port".to_owned());
    }
    (Reason::Serving, format!("clients reach it at {address}"))
}

#[cfg(test)]
mod tests {
    use ccm_base::At;
    use ccm_cloud::{CloudError, ErrorKind};

    use super::super::{
        CallKind, Failed, Known, Plan, State, Step,
        reason::{Reason, SERVING},
        status::shows,
        tests::{service, step, there, written},
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
        assert_eq!(step(&shown, &state), Plan::Settled, "what is there stays");
        let without = written(&bare, &step(&bare, &state));
        assert!(shows(without.condition(SERVING), Reason::NoAddress));
    }

    #[test]
    fn a_cloud_that_stays_busy_is_reported() {
        let service = service();
        for (times, is_shown) in [(4, false), (5, true)] {
            let there = there(&service);
            let failed = Failed {
                call: CallKind::Ensure,
                digest: there.configured,
                named: [None, None],
                error: CloudError::new(ErrorKind::Busy, "it is immutable"),
                times,
                retry_at: At(std::time::Duration::MAX),
            };
            let state = State { failed: vec![failed], configured: None, ..there };
            let Plan::Next(Step::Write(change)) = step(&service, &state) else {
                panic!("no write")
            };
            let reasons = change.conditions.iter().map(|condition| condition.reason);
            assert_eq!(reasons.filter(|it| *it == Reason::WaitingForCloud).count() > 0, is_shown);
        }
    }
}
