//! The API server answers writes.

use std::mem;

use ccm_base::At;
use ccm_controller::repeats::Repeated;
use ccm_objects::{Service, ServiceIngress};

use super::entry::Entry;
use crate::plan::{Known, Step, members::Decision, repeated};

impl Entry {
    /// Records a confirmed write. Returns the writes that do not last.
    pub(crate) fn step_written(&mut self, step: &Step, answer: &Service, now: At) -> Vec<Repeated> {
        repeated::written(&mut self.state.repeats, now, step, answer)
    }

    /// Records a call to the cloud that the provider has confirmed. Returns it if it does not last.
    pub(crate) fn step_called(
        &mut self,
        step: &Step,
        service: &Service,
        members: &Decision,
        now: At,
    ) -> Option<Repeated> {
        repeated::called(&mut self.state.repeats, now, step, service, members)
    }

    /// This process has set the finalizer. `is_new`: the Service shows no address, so it has no
    /// load balancer, and does not wait for a list.
    pub(crate) fn protected(&mut self, is_new: bool) {
        self.state.is_new = true;
        if is_new && self.state.known == Known::Nothing {
            self.state.known = Known::Absent;
        }
    }

    /// Addresses are written. Returns true if the load balancer has kept its addresses, so another client
    /// has overwritten the status.
    pub(crate) fn addresses_written(&mut self, written: &[ServiceIngress]) -> bool {
        mem::replace(&mut self.addresses, written.to_vec()) == written
    }
}
