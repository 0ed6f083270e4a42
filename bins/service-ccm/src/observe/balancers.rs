//! Shares the memory of all load balancers between tasks, and counts its entries.

use std::collections::{BTreeMap, HashMap};

use ccm_cloud::{Cure, Phase};
use ccm_objects::{Service, Shared as Name};
use ccm_runtime::health::Verdict;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::{
    machine::{Entry, Machine},
    metrics,
    plan::{CallKind, Known, REPLACEMENT_APPROVED},
};

/// The memory of all load balancers.
#[derive(Default)]
pub(crate) struct Balancers {
    machine: Mutex<Machine>,
    /// Wakes the one who leaves departures to the next leader.
    departed: Notify,
    /// Held while the note for the next leader is made.
    pub(super) leaving: Mutex<()>,
}

impl Balancers {
    /// Passes an event about the load balancer of this Service on to the memory, or reads it.
    pub(crate) fn with<R>(&self, service: &Service, event: impl FnOnce(&mut Entry) -> R) -> R {
        event(self.machine().entry(service))
    }

    /// Does so for the Service with this name, if its load balancer is in the memory.
    pub(crate) fn with_name<R>(
        &self,
        name: &str,
        event: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        self.machine().named(name).map(event)
    }

    /// Passes an event about each load balancer on to the memory, or reads it.
    pub(crate) fn each(&self, mut event: impl FnMut(&Name, &mut Entry)) {
        self.machine().all().for_each(|(name, entry)| event(name, entry));
    }

    /// The memory as a whole.
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock()
    }

    /// Records that the note for the next leader has changed: members may leave, orphans are deleted, or
    /// load balancers are replaced.
    pub(crate) fn set_departures(&self) {
        self.machine().keep_departures();
        self.departed.notify_one();
    }

    /// Waits until that happens.
    pub(crate) async fn departed(&self) {
        self.departed.notified().await;
    }

    /// Sums up a number of each load balancer.
    fn sum(&self, number: impl Fn(&Entry) -> usize) -> usize {
        self.machine().all().map(|(_, entry)| number(entry)).sum()
    }

    /// Passes if no load balancer fails. If not, counts the failing ones by cause.
    pub(crate) fn verdict(&self) -> Verdict {
        let (mut all, mut failing) = (0, BTreeMap::<&str, usize>::new());
        for (_, entry) in self.machine().all() {
            all += 1;
            if state(entry) == metrics::State::Failing {
                let failed = entry.state().failed.first().map(|failed| failed.error.kind.reason());
                let wrong = if entry.is_wrong() { "wrong Service" } else { "failed in the cloud" };
                *failing.entry(failed.unwrap_or(wrong)).or_default() += 1;
            }
        }
        if failing.is_empty() {
            return Verdict::Passed(format!("{all} Services, none failing"));
        }
        let count: usize = failing.values().sum();
        let kinds: Vec<_> = failing.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        Verdict::Failed(format!("{count} of {all} Services: {}", kinds.join(", ")))
    }

    /// Passes if no load balancer waits to be replaced.
    pub(crate) fn replacements(&self) -> Verdict {
        match self.replacements_held() {
            0 => Verdict::Passed("no load balancer waits to be replaced".to_owned()),
            held => Verdict::Failed(format!(
                "{held} load balancers are gone or have failed, and are not replaced until that is proved or you approve it with {REPLACEMENT_APPROVED}=yes"
            )),
        }
    }

    /// The number of load balancers in each state.
    pub(crate) fn count(&self) -> HashMap<metrics::State, usize> {
        let mut counts: HashMap<metrics::State, usize> = HashMap::new();
        self.each(|_, entry| *counts.entry(state(entry)).or_default() += 1);
        counts
    }

    /// The number of load balancers that stay although service-ccm does not serve their Services.
    pub(crate) fn releases_held(&self) -> usize {
        self.sum(|entry| usize::from(entry.is_release_held()))
    }

    /// The number of load balancers that are gone or have failed and are not replaced yet.
    pub(crate) fn replacements_held(&self) -> usize {
        self.sum(|entry| usize::from(entry.is_replacement_held()))
    }

    /// The number of Services that wait for room in their namespaces.
    pub(crate) fn waiting(&self) -> usize {
        self.sum(|entry| usize::from(entry.waits()))
    }

    /// The number of members that are held.
    pub(crate) fn held(&self) -> usize {
        self.sum(Entry::held)
    }
}

/// The state of a load balancer that the metrics show.
fn state(entry: &Entry) -> metrics::State {
    use metrics::State;
    let known = entry.state();
    let has_failed = matches!(&known.known, Known::There(balancer)
        if matches!(balancer.phase, Phase::Failed { cure: Cure::Person, .. }));
    let is_elsewhere = matches!(known.known, Known::Elsewhere(_));
    let fails = known.failed.iter().any(|failed| !failed.error.unsent);
    if fails || has_failed || entry.is_wrong() && !is_elsewhere {
        return State::Failing;
    }
    if let Some(pending) = &known.pending {
        let is_deletion = pending.call == Some(CallKind::Delete);
        return if is_deletion { State::Deleting } else { State::Pending };
    }
    match &known.known {
        Known::Elsewhere(_) => State::Elsewhere,
        _ if known.configured.is_some() => State::Provisioned,
        // Its creation is under way. A first call that does not return does not have a state of its own.
        Known::Absent if !known.proved_absent && !known.is_of_others() => State::Pending,
        _ => State::Unknown,
    }
}

#[cfg(test)]
mod tests;
