//! The API server answers writes to Services.

use std::{mem, sync::Arc, time::Duration};

use ccm_base::{At, RetryClass};
use ccm_controller::queue::{Pace, Priority};
use ccm_kube::ApiError;
use ccm_objects::{Service, ServiceIngress, Shared as Name};

use super::{
    Machine, RETRY,
    due::tell,
    effect::{Count, Effect, Lane, Tell, Turn},
    event::Written,
};
use crate::plan::{
    Known, Step, repeated,
    status::{StatusPatch, has_address},
};

/// Delay after a conflict, so that the informer receives the other writer's change.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);
/// After this many conflicts in a row, the informer may be far behind, so a further one counts as a
/// failure.
const MANY_CONFLICTS: u32 = 8;

/// Returns the kind of a write, in metrics and reports.
pub(crate) const fn kind(step: &Step) -> &'static str {
    match step {
        Step::Protect => "protect",
        Step::Release => "release",
        _ => "status",
    }
}

impl Machine {
    /// Handles the API server's answer to a write.
    pub(super) fn written(&mut self, written: &Written, now: At) -> Vec<Effect> {
        let Written { lane, service, step, answer } = written;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.not_written(*lane, service, step, error.clone()),
        };
        let entry = self.balancers.entry(service);
        (entry.conflicts, entry.refused_write) = (0, None);
        let repeated = repeated::written(&mut entry.state.repeats, now, step, answer);
        let mut effects: Vec<Effect> =
            repeated.into_iter().map(|one| tell(service, Tell::Repeated(one))).collect();
        let has_no_address = !has_address(service);
        match step {
            // The store may show it until the watch reports its end.
            Step::Release if service.deleting => {
                effects.extend(self.forget(&service.key));
                return effects;
            }
            Step::Release => self.balancers.forget(&service.key),
            // Without finalizer and address it is new: it does not wait for a list.
            Step::Protect => {
                entry.state.is_new = true;
                if has_no_address && entry.state.known == Known::Nothing {
                    entry.state.known = Known::Absent;
                }
            }
            Step::Write(change) => {
                if !change.conditions.is_empty() {
                    entry.state.condition_written = Some(now);
                }
                effects.extend(self.address_changed(service, change).into_iter().flatten());
                let has_address =
                    change.ingress.as_ref().is_some_and(|ingress| !ingress.is_empty());
                if has_address && has_no_address {
                    effects.push(Effect::Count(Count::Provisioned(Arc::clone(service))));
                }
            }
            _ => {}
        }
        if self.offer.is_ok() {
            effects.push(Effect::Look(*lane, Name::clone(&service.key)));
        }
        effects
    }

    /// Reports that the Service has got other addresses.
    fn address_changed(
        &mut self,
        service: &Arc<Service>,
        change: &StatusPatch,
    ) -> Option<[Effect; 2]> {
        let (written, details) = (change.ingress.as_ref()?, service.details.as_ref()?);
        let (before, now) = (addresses(&details.ingress), addresses(written));
        // If the load balancer has kept its addresses, another client has overwritten the status.
        let shown = mem::replace(&mut self.balancers.entry(service).addresses, written.clone());
        let is_restored = shown == *written;
        if is_restored || now.is_empty() || before.iter().all(|one| now.contains(one)) {
            return None;
        }
        let text = format!("{} -> {}", before.join(", "), now.join(", "));
        let tell = tell(service, Tell::AddressChanged(text));
        Some([Effect::Count(Count::AddressChanged), tell])
    }

    fn not_written(
        &mut self,
        lane: Lane,
        service: &Arc<Service>,
        step: &Step,
        error: Option<ApiError>,
    ) -> Vec<Effect> {
        let turn = match &error {
            // The plan was made for an older version of the Service.
            Some(ApiError::Conflict) => {
                let conflicts = &mut self.balancers.entry(service).conflicts;
                *conflicts = conflicts.saturating_add(1);
                match *conflicts > MANY_CONFLICTS {
                    true => Turn::Failed(RetryClass::Retry),
                    false => Turn::After(AFTER_CONFLICT, Priority::Urgent),
                }
            }
            // The Service is gone, which the informer reports.
            Some(ApiError::NotFound) => Turn::Well,
            Some(error) => Turn::Failed(error.class()),
            // The next renewal extends a term that is only too short.
            None => Turn::Failed(RetryClass::Retry),
        };
        let mut effects = vec![Effect::queue(lane, service, turn)];
        if let (Turn::Failed(class), Some(error)) = (turn, error) {
            self.balancers.entry(service).refused_write =
                Some(Box::new((kind(step).to_owned(), error.clone())));
            let (what, pace) = (kind(step), Pace::after_error(class, RETRY));
            effects.push(tell(service, Tell::NotWritten { what, error, pace }));
        }
        effects
    }
}

/// Returns the addresses in the status of a Service, as text.
fn addresses(ingress: &[ServiceIngress]) -> Vec<&str> {
    ingress.iter().filter_map(|one| one.ip.as_deref().or(one.hostname.as_deref())).collect()
}
