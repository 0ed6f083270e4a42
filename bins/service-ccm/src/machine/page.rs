//! The plan of each Service on the page `/plan`.

use ccm_objects::{Service, service_keys};
use ccm_runtime::plans;

use super::planned::Planned;
use crate::plan::{
    ADOPT, BalancerState, Failed, Plan, Step,
    evidence::class,
    front_end::{SpecProblem, in_words},
    members::Decision,
    reason::Reason,
};

/// Returns the steps of a Service.
pub(super) fn steps(planned: &Planned, state: &BalancerState) -> Vec<plans::Step> {
    let adoption = planned.waits_for_adoption.then(|| adoption(state)).flatten();
    let next = match &planned.plan {
        // Its content belongs to another step.
        Plan::Next(Step::Preview(_)) => None,
        Plan::Next(step) => Some(published(step, &planned.members, state)),
        _ => None,
    };
    let held = planned.held_calls.iter().map(|(step, failed)| {
        let step = published(step, &planned.members, state);
        plans::Step { held: Some(why_held(failed)), ..step }
    });
    let none = planned.full.clone().or_else(|| planned.stays_on_foreign.clone());
    let replacement = planned.last_plan.held_replacement.clone().map(|(why, _)| why);
    let finalizer = || vec![format!("finalizer {}", service_keys::CLEANUP)];
    let waiting = |step, changes, reason: &str, why: Option<String>| {
        let reason = reason.to_owned();
        why.map(|why| plans::Step { step, changes, reason, held: Some(why) })
    };
    let released = "this service-ccm does not serve the Service";
    let lost = "the load balancer is gone or has failed";
    let asks_none = "the Service does not ask for a load balancer";
    let foreign = "the Service does not have its own load balancer";
    adoption
        .into_iter()
        .chain(waiting("delete", Vec::new(), released, planned.last_plan.held_release.clone()))
        .chain(waiting("replace", Vec::new(), lost, replacement))
        .chain(waiting("release", finalizer(), asks_none, planned.last_plan.unclaimed.clone()))
        .chain(waiting("ensure", Vec::new(), foreign, none))
        .chain(next)
        .chain(held)
        .collect()
}

/// Returns why nothing is done for a Service that asks for a load balancer, until its user changes
/// it.
pub(super) fn blocked(service: &Service, planned: &Planned) -> Option<String> {
    if !service.is_load_balancer || service.deleting {
        return None;
    }
    if planned.plan == Plan::NotOurs {
        return Some(not_served(service));
    }
    let fatal: Vec<&SpecProblem> = planned.problems.iter().filter(|one| one.fatal).collect();
    (!fatal.is_empty())
        .then(|| format!("{}: {}", Reason::InvalidConfiguration.as_str(), in_words(&fatal)))
}

/// Returns the reason why service-ccm does not serve a Service with this class.
pub(super) fn not_served(service: &Service) -> String {
    match class(service) {
        Some(class) => format!("load balancer class {class} is not served here"),
        None => "Services without a load balancer class are not served here".to_owned(),
    }
}

/// Returns the step of a load balancer that waits to be adopted.
fn adoption(state: &BalancerState) -> Option<plans::Step> {
    let (id, why) = state.adoptable.as_ref()?;
    let changes = state.previewed.as_ref().map(|(_, lines)| lines.clone());
    Some(plans::Step {
        step: "adopt",
        changes: changes.unwrap_or_default(),
        reason: format!("load balancer {id} was made by another controller: {why}"),
        held: Some(format!("the annotation {ADOPT}={id} is not set")),
    })
}

/// Returns why a call that has failed is not made now.
fn why_held(failed: &Failed) -> String {
    let Failed { error, times, retry_at, .. } = failed;
    let often = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("failed {often}, retry at {retry_at}: {error}")
}

fn published(step: &Step, members: &Decision, state: &BalancerState) -> plans::Step {
    let (name, changes, reason) = match step {
        Step::Protect => (
            "protect",
            vec![format!("finalizer {}", service_keys::CLEANUP)],
            "it will get a load balancer",
        ),
        Step::Ensure(front_end) | Step::Preview(front_end) => {
            let ports =
                front_end.ports.iter().map(|port| format!("{} {}", port.protocol, port.port));
            let previewed = state.previewed.iter().filter(|_| state.is_previewed(front_end));
            let lines = previewed.flat_map(|(_, lines)| lines.iter().cloned());
            let changes = ports.chain(lines).collect();
            ("ensure", changes, "the load balancer does not match the Service")
        }
        Step::SetMembers(id) => {
            let (present, absent) = (members.members.present.len(), members.members.absent.len());
            let line = format!("load balancer {id}: {present} members, {absent} leave");
            ("set-members", vec![line], "the nodes have changed")
        }
        Step::Delete => ("delete", Vec::new(), "the Service has no load balancer any more"),
        Step::DeleteDuplicate(id) => (
            "delete-duplicate",
            vec![format!("load balancer {id}")],
            "the Service has two load balancers",
        ),
        Step::Release => (
            "release",
            vec![format!("finalizer {} is removed", service_keys::CLEANUP)],
            "it no longer has a load balancer, or does not ask for one",
        ),
        Step::Write(change) => {
            let mut lines: Vec<String> = change
                .conditions
                .iter()
                .map(|(new, _)| format!("{}={} {}", new.condition(), new.status(), new.as_str()))
                .collect();
            if let Some(ingress) = &change.ingress {
                lines.push(format!("{} addresses", ingress.len()));
            }
            ("status", lines, "the Service does not show its load balancer")
        }
    };
    plans::Step { step: name, changes, reason: reason.to_owned(), held: None }
}
