//! Describes the last seen state of a load balancer.

use ccm_base::At;
use ccm_cloud::{Cure, IngressAddress, LoadBalancer, Phase};
use ccm_objects::service_keys;
use ccm_runtime::explain::{ObjectState, moment};

use super::{super::entry::BalancerEntry, About};
use crate::plan::Known;

/// Describes the load balancer as the cloud showed it last, and the conditions of the Service.
pub(super) fn there(about: About<'_>) -> Vec<String> {
    let (service, now) = (about.service, about.now);
    let mut lines: Vec<String> = about.entry.into_iter().flat_map(|one| seen(one, now)).collect();
    if service.has_finalizer {
        lines.push(format!("the Service has the finalizer {}", service_keys::CLEANUP));
    }
    let conditions = service.details.iter().flat_map(|details| &details.conditions);
    lines.extend(conditions.map(|one| {
        let since = one.last_transition_time.map(|at| moment(At::from(at), now));
        let since = since.map(|since| format!(" ({since})")).unwrap_or_default();
        format!("{}={} {}: {}{since}", one.kind, one.status, one.reason, one.message)
    }));
    lines
}

fn seen(entry: &BalancerEntry, now: At) -> Vec<String> {
    let mut lines = vec![match &entry.state.known {
        Known::Nothing => "service-ccm has not seen a load balancer yet".to_owned(),
        Known::Absent => "no load balancer".to_owned(),
        Known::There(balancer) => balancer_in_words(balancer),
        Known::Recorded { id } => format!("load balancer {id}, by the Service alone"),
        Known::Elsewhere(who) => format!("another controller is responsible: {who}"),
    }];
    if entry.membership.is_known() {
        lines.push(format!("members: {}, held: {}", entry.membership.count(), entry.held));
    }
    lines.extend(
        entry.last_plan.refused.iter().map(|refused| format!("not shown: {}", refused.why)),
    );
    lines.extend(entry.read.map(|at| format!("read in full {}", moment(at, now))));
    lines
}

/// Returns the state of a load balancer, apart from its Service.
pub(super) const fn state_for(balancer: &LoadBalancer) -> ObjectState {
    match &balancer.phase {
        Phase::Ready => ObjectState::Fine,
        Phase::Pending(_) => ObjectState::Working,
        Phase::Failed { cure: Cure::Person, .. } => ObjectState::Blocked,
        Phase::Failed { .. } => ObjectState::Working,
    }
}

pub(super) fn balancer_in_words(balancer: &LoadBalancer) -> String {
    let phase = match &balancer.phase {
        Phase::Ready => "ready".to_owned(),
        Phase::Pending(waiting) => format!("the cloud works: {}", waiting.what),
        Phase::Failed { why, .. } => format!("failed: {why}"),
    };
    let addresses: Vec<String> = balancer.ingress.iter().map(|one| address(&one.address)).collect();
    let addresses = match addresses.is_empty() {
        true => "no address".to_owned(),
        false => addresses.join(", "),
    };
    format!("load balancer {} ({}), {phase}, {addresses}", balancer.id, balancer.name)
}

fn address(address: &IngressAddress) -> String {
    match address {
        IngressAddress::Ip(ip) => ip.to_string(),
        IngressAddress::Hostname(name) => name.clone(),
    }
}
