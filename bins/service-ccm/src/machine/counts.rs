//! Counts the memory for metrics and `/readyz?verbose`.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_objects::Service;
use ccm_runtime::health::Verdict;
use strum::{IntoStaticStr, VariantArray};

use super::{Machine, entry::BalancerEntry};
use crate::plan::{
    APPROVED, CallKind, Known, RELEASE_APPROVED, REPLACEMENT_APPROVED, evidence::class, shown::Part,
};

/// The state of a Service of type LoadBalancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ServiceState {
    /// Not compared with the cloud yet.
    Unknown,
    /// It is being created, or the cloud works on it.
    Pending,
    /// It matches the Service.
    Provisioned,
    /// The last call failed, the load balancer has failed in the cloud, or the Service is wrong.
    Failing,
    /// It is being deleted.
    Deleting,
    /// Another controller is responsible.
    Elsewhere,
}

/// The numbers of what is held and what waits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    /// Members that are held.
    pub(crate) members_held: usize,
    /// Load balancers that stay although service-ccm does not serve their Services.
    pub(crate) releases_held: usize,
    /// Load balancers that are gone or have failed and are not replaced yet.
    pub(crate) replacements_held: usize,
    /// Services that wait for room in their namespaces.
    pub(crate) waiting: usize,
    /// Services whose finalizer no known controller removes.
    pub(crate) unclaimed_finalizers: usize,
}

impl Machine {
    /// Returns the number of load balancers in each state.
    pub(crate) fn states(&self) -> BTreeMap<ServiceState, usize> {
        let mut counts = BTreeMap::new();
        for (_, entry) in self.balancers.all() {
            *counts.entry(state(entry)).or_default() += 1;
        }
        counts
    }

    /// Counts what is held and what waits.
    pub(crate) fn numbers(&self, now: At) -> Numbers {
        let mut numbers =
            Numbers { unclaimed_finalizers: self.unclaimed.count(now), ..Numbers::default() };
        for (_, entry) in self.balancers.all() {
            numbers.members_held += entry.held;
            numbers.releases_held += usize::from(entry.last_plan.held_release.is_some());
            numbers.replacements_held += usize::from(entry.last_plan.held_replacement.is_some());
            numbers.waiting += usize::from(entry.waits.is_some());
        }
        numbers
    }

    /// Counts the Services that do not show everything that the provider gives, by part of the answer.
    pub(crate) fn refused(&self) -> BTreeMap<Part, usize> {
        let mut counts = BTreeMap::new();
        for (_, entry) in self.balancers.all() {
            let mut parts: Vec<Part> = entry.last_plan.refused.iter().map(|one| one.part).collect();
            parts.dedup();
            for part in parts {
                *counts.entry(part).or_default() += 1;
            }
        }
        counts
    }

    /// Counts the Services of type LoadBalancer that this program does not serve, by class. Nothing is
    /// stored for them.
    pub(crate) fn not_served(&self, services: &[Arc<Service>]) -> BTreeMap<Arc<str>, usize> {
        let mut counts = BTreeMap::new();
        for service in services.iter().filter(|service| service.is_load_balancer) {
            let class = class(service);
            if !self.parameters.classes.serves(class) {
                *counts.entry(Arc::from(class.unwrap_or("none"))).or_default() += 1;
            }
        }
        first_classes(counts)
    }

    /// Passes if no load balancer fails. If not, counts the failing ones by cause.
    pub(crate) fn provisioning(&self) -> Verdict {
        let (mut all, mut failing) = (0, BTreeMap::<&str, usize>::new());
        for (_, entry) in self.balancers.all() {
            all += 1;
            if state(entry) == ServiceState::Failing {
                let failed = entry.state.failed.first().map(|failed| failed.error.kind.reason());
                let wrong = match entry.state.unreadable {
                    _ if entry.is_wrong => "wrong Service",
                    Some(_) => "unreadable in the cloud",
                    None => "failed in the cloud",
                };
                *failing.entry(failed.unwrap_or(wrong)).or_default() += 1;
            }
        }
        if failing.is_empty() {
            return Verdict::Passed(format!("{all} Services, 0 failing"));
        }
        let count: usize = failing.values().sum();
        let kinds: Vec<_> = failing.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        Verdict::Failed(format!("{count} of {all} Services: {}", kinds.join(", ")))
    }

    /// Passes if no load balancer waits to be replaced.
    pub(crate) fn replacements(&self) -> Verdict {
        match self.numbers(At::default()).replacements_held {
            0 => Verdict::Passed("no load balancer waits to be replaced".to_owned()),
            held => Verdict::Failed(format!(
                "{held} load balancers are gone or have failed, and are not replaced before a proof or your approval with {REPLACEMENT_APPROVED}=yes"
            )),
        }
    }

    /// Passes if no member is held.
    pub(crate) fn members(&self) -> Verdict {
        let line = self.nodes.set.summary();
        match self.numbers(At::default()).members_held {
            0 => Verdict::Passed(line),
            held => Verdict::Failed(format!(
                "{line}; {held} members of load balancers stay although their nodes are gone or changed: too many at once; if that is right, approve it with {APPROVED}=yes"
            )),
        }
    }

    /// Passes if no load balancer stays only because its class is not served.
    pub(crate) fn classes(&self, services: &[Arc<Service>]) -> Verdict {
        let counts = self.not_served(services);
        let line = |(class, count)| format!("{count} of class {class}");
        let lines: Vec<String> = counts.iter().map(line).collect();
        let line = match lines.is_empty() {
            true => "every Service of type LoadBalancer is served".to_owned(),
            false => format!("not served by this program: {}", lines.join(", ")),
        };
        match self.numbers(At::default()).releases_held {
            0 => Verdict::Passed(line),
            held => Verdict::Failed(format!(
                "{line}; of these, {held} with load balancers, which stay until you serve the class again or approve their deletion with {RELEASE_APPROVED}=yes"
            )),
        }
    }

    /// Passes if Services show everything from the provider. If not, names an example.
    pub(crate) fn shown(&self) -> Verdict {
        let refused = self.balancers.all().filter(|(_, entry)| !entry.last_plan.refused.is_empty());
        let count = refused.clone().count();
        let first = refused
            .clone()
            .find_map(|(name, entry)| Some((name, entry.last_plan.refused.first()?)));
        let Some((name, refused)) = first else {
            return Verdict::Passed("Services show everything from the provider".to_owned());
        };
        let stays = if refused.stays { ", which the Service shows already and keeps" } else { "" };
        Verdict::Failed(format!(
            "{count} Services do not show everything from the provider, or should not: {name}: {}{stays}",
            refused.why
        ))
    }
}

/// The maximum number of classes that the metric names. Tenants choose the names of classes.
const CLASSES: usize = 10;

/// Keeps the first classes by name and sums up the rest as `other`.
fn first_classes(mut counts: BTreeMap<Arc<str>, usize>) -> BTreeMap<Arc<str>, usize> {
    let Some(limit) = counts.keys().nth(CLASSES).cloned() else { return counts };
    let others: usize = counts.split_off(&limit).into_values().sum();
    *counts.entry("other".into()).or_default() += others;
    counts
}

/// Returns the state of a load balancer that the metrics show.
fn state(entry: &BalancerEntry) -> ServiceState {
    let known = &entry.state;
    let fails = known.failed.iter().any(|failed| !failed.error.unsent);
    if fails || known.trouble().is_some() || entry.is_wrong && !known.is_elsewhere() {
        return ServiceState::Failing;
    }
    if let Some(pending) = &known.pending {
        let is_deletion = pending.call == Some(CallKind::Delete);
        return if is_deletion { ServiceState::Deleting } else { ServiceState::Pending };
    }
    match &known.known {
        Known::Elsewhere(_) => ServiceState::Elsewhere,
        _ if known.configured.is_some() => ServiceState::Provisioned,
        // Its creation is under way. A first call that does not return does not have a separate
        // state.
        Known::Absent if !known.proved_absent && !known.is_of_others() => ServiceState::Pending,
        _ => ServiceState::Unknown,
    }
}

#[cfg(test)]
mod tests;
