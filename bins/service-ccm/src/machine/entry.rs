//! The memory of one load balancer.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::{
    Digest, Ingress, IngressAddress, IpFamily, LoadBalancer, LoadBalancerTraits, Members, Phase,
};
use ccm_controller::repeats::Repeats;
use ccm_kube::ApiError;
use ccm_objects::{Service, ServiceIngress, Shared as Name};
use serde::{Deserialize, Serialize};

use super::{decided::Decided, effect::Lane};
use crate::plan::{
    CallKind, Inputs, Known, State, Step,
    eligible::NodeSet,
    hangs::Slow,
    members::{Decision, Departures, Membership},
    room::Turn,
    shown::Refused,
    status::ingress,
};

/// The class of a Service.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServedClass {
    /// `None` for a Service without a class. It has a name, because a text does not tell
    /// `Some(None)` from `None`.
    pub(super) name: Option<Name>,
}

/// A call that is under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The Service as it was when the call was made.
    pub(super) service: Arc<Service>,
    pub(super) call: CallKind,
    /// The step that led to it, and the decision about the members.
    pub(super) step: Step,
    pub(super) members: Decision,
    /// The configuration that it is about.
    pub(super) digest: Option<Digest>,
    /// The members that go with it.
    pub(super) sent: Option<Members>,
    /// The other inputs of the call, besides the Service.
    pub(super) inputs: Inputs,
    /// True if it may make a new load balancer in the place of the one that the Service has.
    pub(super) may_replace: bool,
    /// When it was made.
    pub(super) began: At,
}

/// The memory of one load balancer.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The UID of the Service.
    pub(super) uid: Box<str>,
    pub(super) state: State,
    pub(super) membership: Membership,
    /// The number of members that are held.
    pub(super) held: usize,
    /// The class of the Service when this process last served it.
    pub(super) class: Option<ServedClass>,
    /// True if the load balancer stays although service-ccm does not serve the Service any more.
    pub(super) is_release_held: bool,
    /// True if the load balancer is gone or has failed, and no other one may be made yet.
    pub(super) is_replacement_held: bool,
    /// The calls that are under way: one on each lane, because the slow one may still hang when the next is made.
    asked: BTreeMap<Lane, Box<Asked>>,
    /// The turn of the Service, if it waits because its namespace has as many load balancers as it may have.
    pub(super) waits: Option<Turn>,
    /// True if there was room in the namespace for the load balancer of the Service.
    pub(super) is_admitted: bool,
    /// True if the Service has a mistake, so that its load balancer is not configured.
    pub(super) is_wrong: bool,
    /// The last call, if it did not return in time: the next one is made on a slower lane.
    pub(super) slow: Option<Slow>,
    /// True if the poll has queued it, and no call has been made since.
    pub(super) is_queued: bool,
    /// True if the start of a creation or change was reported, but not its end yet.
    pub(super) is_announced: bool,
    /// The load balancer that was reported to be gone.
    #[serde(default)]
    told_gone: Option<Box<str>>,
    /// True if the current change of members has changed something in the cloud.
    pub(super) has_changed: bool,
    /// The last plan, for the explanation.
    #[serde(default)]
    pub(super) decided: Option<Box<Decided>>,
    /// The last write that the API server refused, until a write succeeds: for the explanation.
    #[serde(default)]
    pub(super) refused_write: Option<Box<(String, ApiError)>>,
    /// How many writes in a row had a conflict.
    pub(super) conflicts: u32,
    /// When the cloud last answered a call about it.
    pub(super) answered: At,
    /// Annotations that the provider has written to the Service.
    pub(super) annotations: Vec<String>,
    /// The addresses of the load balancer that the Service has shown last.
    pub(super) addresses: Vec<ServiceIngress>,
    /// The addresses of the load balancer when service-ccm deleted it.
    pub(super) shown: Vec<ServiceIngress>,
    /// When it was last read in full.
    pub(super) read: Option<At>,
    /// True if its members should be read at the next opportunity, not only in their turn.
    pub(super) awaited: bool,
    /// The parts of the provider's answer that the Service does not show.
    pub(super) refused: Vec<Refused>,
    /// The digest of the nodes with which its members were seen to agree.
    pub(super) agrees: Option<Digest>,
}

impl Entry {
    /// The memory of a Service that is not served yet, or served again.
    pub(super) fn new(uid: Box<str>, repeats: Repeats, membership: Membership) -> Self {
        let state = State { repeats, ..State::default() };
        Self { uid, state, membership, ..Self::default() }
    }

    /// The parts that outlast the time in which the Service is served.
    pub(super) fn into_record(self) -> (Box<str>, State, Membership) {
        (self.uid, self.state, self.membership)
    }

    /// Records the turn in which the Service waits for room in its namespace, or that it has got it.
    pub(super) fn set_room(&mut self, waits: Option<Turn>, is_admitted: bool) {
        (self.waits, self.is_admitted) = (waits, is_admitted);
    }

    /// A call is made on this lane.
    pub(super) fn ask(&mut self, lane: Lane, asked: Asked) {
        self.asked.insert(lane, Box::new(asked));
    }

    /// The calls that are under way.
    pub(super) fn all_asked(&self) -> impl Iterator<Item = &Asked> {
        self.asked.values().map(|asked| &**asked)
    }

    /// The call that is under way on this lane is answered.
    pub(super) fn take_asked(&mut self, lane: Lane, call: CallKind) -> Option<Box<Asked>> {
        self.asked.remove(&lane).filter(|asked| asked.call == call)
    }

    /// Records the addresses that the Service shows, if the load balancer has the same addresses.
    pub(super) fn see_addresses(&mut self, service: &Service) {
        if let (Known::There(balancer), Some(details)) = (&self.state.known, &service.details)
            && !details.ingress.is_empty()
            && details.ingress != self.addresses
            && details.ingress == ingress(balancer)
        {
            self.addresses.clone_from(&details.ingress);
        }
    }

    /// Applies a load balancer that was read in full at the end of a call, with the configuration
    /// and the members of that call.
    pub(super) fn complete(
        &mut self,
        mut balancer: LoadBalancer,
        digest: Option<Digest>,
        asked: Option<&Members>,
        nodes: &NodeSet,
        now: At,
    ) {
        let wants = asked.map_or(&nodes.members, |asked| &asked.present);
        self.state.saw_pools(balancer.pools.take(), !wants.is_empty(), true, now);
        match (balancer.members.take(), asked) {
            (Some(members), asked) => {
                self.membership.shown(&members, nodes, now);
                if let Some(asked) = asked {
                    self.membership.selected(asked, nodes);
                }
                self.read = Some(now);
            }
            (None, Some(members)) => self.membership.applied(members, now),
            (None, None) => {}
        }
        self.state.configured = digest;
        (self.state.look, self.state.unreadable) = (false, None);
        // The Service has a load balancer again: a deletion that failed before is due no more.
        self.state.failed.retain(|failed| failed.call != CallKind::Delete);
        (self.state.adoptable, self.state.foreign) = (None, None);
        self.annotations = balancer.annotations.keys().cloned().collect();
        self.has_changed = false;
        self.state.known = Known::There(Box::new(balancer));
    }

    /// Returns true if it was not reported yet that the load balancer with this ID is gone.
    pub(super) fn begin_to_tell_gone(&mut self, id: &str) -> bool {
        self.told_gone.replace(id.into()).as_deref() != Some(id)
    }

    /// Forgets the members: the load balancer may have other members now.
    pub(super) fn forget_members(&mut self) {
        self.membership.forget();
        (self.state.pools, self.state.gap) = (None, None);
    }

    /// The families of its addresses, if a member needs an address of one of them.
    pub(super) fn families(&self, traits: &LoadBalancerTraits) -> Vec<IpFamily> {
        let Known::There(balancer) = &self.state.known else { return Vec::new() };
        let family = |one: &Ingress| match &one.address {
            IngressAddress::Ip(ip) => Some(IpFamily::of(*ip)),
            IngressAddress::Hostname(_) => None,
        };
        let families: Option<Vec<_>> = balancer.ingress.iter().map(family).collect();
        families.filter(|_| traits.member_addresses).unwrap_or_default()
    }

    /// The number of members that the cloud has shown last.
    pub(super) fn members_in_cloud(&self) -> Option<usize> {
        self.state.pools.iter().flatten().map(|pool| pool.members).max()
    }

    /// Returns true if its members should be read at the next opportunity.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited && self.lacks_members()
    }

    /// Has its members read at the next opportunity if they are not known.
    pub(crate) fn await_members(&mut self) {
        self.awaited |= self.lacks_members();
    }

    /// Has a new leader read the members at the next opportunity, if the nodes differ from the note of the last
    /// leader, or if the cloud works on the load balancer.
    pub(super) fn resume_members(&mut self, differs: bool) {
        let is_busy = self.state.pending.is_some();
        self.awaited |= (differs || is_busy) && self.lacks_members();
    }

    /// Records that the nodes have further labels, by which no load balancer selected before.
    pub(super) fn relabelled(&mut self, before: Option<Digest>, now: Option<Digest>) {
        if self.agrees == before {
            self.agrees = now.filter(|_| before.is_some());
        }
    }

    /// Adds the members that have left since this time.
    pub(super) fn add_departures(&self, since: At, to: &mut Departures) {
        self.membership.add_departures(since, to);
    }

    /// Returns true if it has the nodes of this digest, as this leader has seen, or the last one has left.
    pub(super) fn has(&self, nodes: Digest, left: Option<Digest>) -> bool {
        match self.state.known {
            Known::There(_) if self.state.pending.is_some() => false,
            Known::There(_) if self.membership.is_known() => self.agrees == Some(nodes),
            Known::There(_) => !self.awaited && left == Some(nodes),
            _ => true,
        }
    }

    /// Returns true if it serves, and service-ccm has not read its members since they were last known.
    pub(super) fn is_unread(&self, service: &Service) -> bool {
        let Known::There(balancer) = &self.state.known else { return false };
        let is_idle = self.state.pending.is_none() && balancer.phase == Phase::Ready;
        let is_due = self.awaited || self.read.is_none();
        let serves = self.state.was_complete(service, &balancer.id);
        is_idle && is_due && serves && self.lacks_members()
    }

    /// Returns true if it exists and its members are not known.
    pub(super) fn lacks_members(&self) -> bool {
        matches!(self.state.known, Known::There(_)) && !self.membership.is_known()
    }
}

/// For tests of what is made of the memory.
#[cfg(test)]
impl Entry {
    pub(crate) fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    pub(crate) fn set_wrong(&mut self) {
        self.is_wrong = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_tells_a_service_without_a_class_from_one_that_was_not_served() {
        for class in [None, Some(ServedClass { name: None })] {
            let entry = Entry { class, ..Entry::default() };
            let text = serde_json::to_string(&entry).expect("a text");
            let again: Entry = serde_json::from_str(&text).expect("an entry");
            assert_eq!(again.class, entry.class, "{text}");
        }
    }
}
