//! The cloud answers a call: what the answer says about the load balancer.

use std::{ops::Range, time::Duration};

use ccm_base::{At, Backoff};
use ccm_cloud::{
    CloudError, ErrorKind, LoadBalancer, LoadBalancerTraits, Members, MembersSet, Owner, Phase,
    Waiting,
};
use ccm_controller::{queue::Pace, repeats::Repeated};
use ccm_objects::Service;
use sha2::{Digest as _, Sha256};

use super::{
    RETRY,
    effect::Lane,
    entry::{Asked, BalancerEntry, in_milliseconds},
    polled::pause_of_calls,
};
use crate::plan::{
    CallKind, Failed, Known, Pending, copied, eligible::NodeSet, hangs::SlowCall, named, repeated,
    replaced, status::ingress,
};

/// How long the cloud may work on a load balancer without an ID before each further step counts.
const LASTING: Duration = Duration::from_mins(10);

impl BalancerEntry {
    /// Records that the cloud has carried out a call.
    pub(crate) fn done(&mut self, call: CallKind) {
        self.state.pending = None;
        self.state.failed.retain(|failed| failed.call != call);
    }

    /// Returns true if the answer to this call may show the load balancer that a list lacked: the call is not
    /// allowed to make another one.
    pub(crate) fn may_be_unlisted(&self, asked: &Asked) -> bool {
        asked.call == CallKind::Ensure && !asked.may_replace && self.state.known == Known::Absent
    }

    /// Records the end of a call to create or update. Returns the ID of the load balancer that this
    /// one replaces, if the Service shows its address.
    pub(crate) fn ensured(
        &mut self,
        asked: &Asked,
        balancer: LoadBalancer,
        nodes: &NodeSet,
        now: At,
    ) -> Option<String> {
        let gone = self.replaced(&asked.service, &balancer.id);
        self.complete(balancer, asked.digest(), asked.sent(), nodes, now);
        gone
    }

    fn replaced(&mut self, service: &Service, id: &str) -> Option<String> {
        let gone = replaced(service, self.state.id(), id)?.to_owned();
        self.is_announced = true;
        Some(gone)
    }

    /// Records that a change of members has ended.
    pub(crate) fn members_set(&mut self, members: Option<&Members>, set: MembersSet, now: At) {
        self.has_changed |= set.changed;
        if let Some(members) = members {
            self.membership.applied(members, now);
            self.state.saw_pools(set.pools, !members.present.is_empty(), false, now);
        }
        // service-ccm must not mistake its own write for another client's.
        if let Known::There(balancer) = &mut self.state.known {
            balancer.version = set.version;
        }
    }

    /// Records that the load balancer is deleted.
    pub(crate) fn deleted(&mut self) {
        match &self.state.known {
            Known::There(balancer) => {
                self.annotations.extend(balancer.annotations.keys().cloned());
                self.shown = ingress(balancer);
            }
            Known::Recorded { .. } => self.shown.clone_from(&self.addresses),
            _ => {}
        }
        self.state.known = Known::Absent;
        self.state.configured = None;
        self.state.proved_absent = true;
    }

    /// Records that another controller is responsible for the load balancer.
    pub(crate) fn elsewhere(&mut self, asked: &Asked, why: String) {
        self.state.pending = None;
        self.state.failed.clear();
        if asked.call == CallKind::DeleteDuplicate {
            // The answer says nothing about the first one.
            self.state.duplicate = None;
            return;
        }
        self.state.known = Known::Elsewhere(why);
        self.state.needs_look = false;
        // The other controller may change them.
        self.forget_members();
        match asked.call {
            CallKind::Ensure => self.state.configured = asked.digest(),
            CallKind::Delete => self.state.proved_absent = true,
            CallKind::Members | CallKind::DeleteDuplicate => {}
        }
    }

    /// Records that the load balancer is gone or has failed although the call was not meant to
    /// replace it.
    pub(crate) fn lost(&mut self, call: CallKind, is_gone: bool) {
        self.done(call);
        if is_gone {
            self.state.known = Known::Absent;
            self.state.configured = None;
            self.forget_members();
        }
    }

    /// Records that the cloud works on a call. `owner` is the owner of the load balancer. Returns
    /// the step that the cloud repeats because its result does not last; and, if the Service gets another
    /// load balancer, the IDs of the previous and the new one.
    pub(crate) fn in_progress(
        &mut self,
        asked: &Asked,
        waiting: Waiting,
        owner: Owner,
        now: At,
    ) -> (Option<Repeated>, Option<(String, String)>) {
        let earlier = self.state.pending.take().filter(|last| last.call == Some(asked.call));
        let Waiting { what, check_after, id, changed, .. } = waiting.clone();
        self.sent(asked.call);
        self.has_changed |= changed && asked.call == CallKind::Members;
        let since = earlier.map_or(now, |earlier| earlier.since);
        // No list shows a load balancer without an ID: service-ccm calls again, less and less often.
        let is_named = id.is_some() || self.state.id().is_some();
        let check_after = match is_named {
            true => check_after,
            false => pause_of_calls(check_after, now.since(since)),
        };
        // Without this count service-ccm would repeat a step without end that the cloud does not keep.
        // A load balancer that does not have an ID yet does not show soon whether the cloud keeps it.
        let counts = is_named || now.since(since) >= LASTING;
        let is_step = changed && counts && asked.call == CallKind::Ensure;
        let step = is_step
            .then(|| repeated::step_made(&mut self.state.repeats, now, &what, asked.digest()));
        let made = id.clone().filter(|_| asked.call == CallKind::Ensure);
        let replaced = made.and_then(|id| Some((self.replaced(&asked.service, &id)?, id)));
        self.state.failed.retain(|failed| failed.call != asked.call);
        self.state.pending = Some(Pending {
            call: Some(asked.call),
            digest: asked.digest(),
            members: asked.sent().cloned(),
            what,
            check_at: now + check_after,
            since,
        });
        if let Some(id) = id
            && !matches!(self.state.known, Known::There(_))
        {
            let mut balancer = LoadBalancer::new(id, "", Some(owner));
            balancer.phase = Phase::Pending(waiting);
            self.state.known = Known::There(Box::new(balancer));
        }
        (step.flatten(), replaced)
    }

    /// Records that the members of a call may have arrived, even if its answer is an error.
    fn sent(&mut self, call: CallKind) {
        if matches!(call, CallKind::Ensure | CallKind::Members) {
            self.membership.sent();
        }
    }

    /// Records that the Service has the ID of another Service's load balancer, if the error of a call says
    /// that. Returns true if that is news: the next call looks for no ID.
    pub(crate) fn note_copied(&mut self, asked: &Asked, error: &CloudError) -> bool {
        let id = copied(&asked.service, self.state.id(), error);
        let is_new = |id: &&str| self.state.copied.as_deref() != Some(*id);
        let Some(id) = id.filter(|_| asked.call == CallKind::Ensure).filter(is_new) else {
            return false;
        };
        self.state.pending = None;
        self.state.copied = Some(id.into());
        true
    }

    /// Records that a call has failed. `spread` is by how much waits are shortened, so that what
    /// failed together does not come back together. Returns the wait before the call is repeated,
    /// and true if the failure may pass soon.
    pub(crate) fn record_failure(
        &mut self,
        asked: &Asked,
        (error, pace): (CloudError, Pace),
        traits: &LoadBalancerTraits,
        spread: Range<f64>,
        now: At,
    ) -> (Duration, bool) {
        let last = self.state.failure(asked.call).map_or(0, |failed| failed.times);
        let times = last.saturating_add(1);
        let share = spread.start + (spread.end - spread.start) * chance(&self.uid, times);
        let backoff = |backoff: Backoff| in_milliseconds(backoff.after(times).mul_f64(share));
        let (wait, soonest) = match pace {
            Pace::Backoff(pace) => (backoff(pace), None),
            Pace::RetryAfter(wait) => (wait, None),
            Pace::Every(wait) => (wait, Some(backoff(RETRY))),
        };
        self.sent(asked.call);
        self.done(asked.call);
        let failed = Failed {
            call: asked.call,
            digest: asked.digest(),
            named: named(&asked.service, traits).map(|id| id.map(Into::into)),
            error,
            times,
            retry_at: now + wait,
            soonest: now + soonest.unwrap_or(wait),
            inputs: asked.inputs,
        };
        let may_pass = failed.may_pass();
        self.state.failed.push(failed);
        (wait, may_pass)
    }

    /// Records that the cloud answers such calls again. Returns true if the Service waited for
    /// that: its next call is due. While a slow lane still makes a call, that call's own answer ends the wait: of
    /// two calls at a time, each could make a load balancer, or one could delete what the other has made.
    pub(crate) fn answers_again(&mut self, call: CallKind, now: At) -> bool {
        let is_under_way = self.asked.contains_key(&Lane::Slow);
        if self.slow != Some(SlowCall { call, alone: false }) || is_under_way {
            return false;
        }
        self.slow = None;
        for failed in &mut self.state.failed {
            if failed.call == call && failed.error.kind == ErrorKind::Timeout {
                failed.retry_at = failed.retry_at.min(now);
            }
        }
        true
    }
}

/// Returns a pseudo-random number between 0 and 1 for each UID and number of failures. It is the
/// same in each process.
fn chance(uid: &str, times: u32) -> f64 {
    let hash = Sha256::digest(format!("{uid} {times}")).first_chunk().copied().unwrap_or_default();
    f64::from(u32::from_be_bytes(hash)) / f64::from(u32::MAX)
}
