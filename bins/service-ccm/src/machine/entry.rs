//! The memory of one load balancer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{
    Digest, Ingress, IngressAddress, IpFamily, LoadBalancer, LoadBalancerTraits, Members, Phase,
};
use ccm_kube::ApiError;
use ccm_objects::{Service, ServiceIngress};
use serde::{Deserialize, Serialize};

use super::{effect::Lane, last_plan::LastPlan};
use crate::plan::{
    BalancerState, CallKind, Inputs, Known, Step,
    eligible::NodeSet,
    hangs::SlowCall,
    members::{Decision, Membership},
    room::RoomTurn,
    status::ingress,
};

/// A call that is under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The Service as it was when the call was made.
    pub(super) service: Arc<Service>,
    pub(super) call: CallKind,
    /// The step that led to it, and the decision about the members.
    pub(super) step: Step,
    pub(super) members: Decision,
    /// The other inputs of the call, besides the Service.
    pub(super) inputs: Inputs,
    /// True if it may make a new load balancer to replace the one that the Service has.
    pub(super) may_replace: bool,
    /// When the call began.
    pub(super) began: At,
}

impl Asked {
    /// Returns the configuration that the call is about.
    pub(super) fn digest(&self) -> Option<Digest> {
        match &self.step {
            Step::Ensure(front_end) => Some(front_end.digest),
            _ => None,
        }
    }

    /// Returns the members that go with it.
    pub(super) fn sent(&self) -> Option<&Members> {
        let has_members = matches!(self.call, CallKind::Ensure | CallKind::Members);
        has_members.then_some(&self.members.members)
    }
}

/// The memory of one load balancer.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct BalancerEntry {
    /// The UID of the Service.
    pub(super) uid: Box<str>,
    pub(super) state: BalancerState,
    pub(super) membership: Membership,
    /// The number of members that are held.
    pub(super) held: usize,
    /// The class of the Service when this process last served it. Empty for a Service without a
    /// class.
    pub(super) class: Option<Box<str>>,
    /// The calls that are under way: one on each lane, because the slow one may still hang when the next is made.
    pub(super) asked: BTreeMap<Lane, Box<Asked>>,
    /// The turn of the Service, if it waits because its namespace has as many load balancers as it may have.
    pub(super) waits: Option<RoomTurn>,
    /// True if the namespace had room for the load balancer of the Service.
    pub(super) is_admitted: bool,
    /// True if the Service has a mistake, so that its load balancer is not configured.
    pub(super) is_wrong: bool,
    /// The last call, if it did not return in time: the next one is made on a slower lane.
    pub(super) slow: Option<SlowCall>,
    /// True if the poll has queued it, and no call has been made since.
    pub(super) is_queued: bool,
    /// True if the start of a creation or change was reported, but not its end yet.
    pub(super) is_announced: bool,
    /// The load balancer that was reported to be gone.
    #[serde(default)]
    pub(super) told_gone: Option<Box<str>>,
    /// True if the current change of members has changed something in the cloud.
    pub(super) has_changed: bool,
    /// The last plan.
    #[serde(default)]
    pub(super) last_plan: Box<LastPlan>,
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
    /// The digest of the nodes with which its members were seen to agree.
    pub(super) agrees: Option<Digest>,
}

impl BalancerEntry {
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
        (self.state.needs_look, self.state.unreadable) = (false, None);
        // The Service has a load balancer again, so a deletion that failed before is not due any
        // more.
        self.state.failed.retain(|failed| failed.call != CallKind::Delete);
        (self.state.adoptable, self.state.foreign) = (None, None);
        self.annotations = balancer.annotations.keys().cloned().collect();
        self.has_changed = false;
        self.state.known = Known::There(Box::new(balancer));
    }

    /// Forgets the members: the load balancer may have other members now.
    pub(super) fn forget_members(&mut self) {
        self.membership.forget();
        (self.state.pools, self.state.gap) = (None, None);
    }

    /// Returns the families of its addresses, if a member needs an address of one of them.
    pub(super) fn families(&self, traits: &LoadBalancerTraits) -> Vec<IpFamily> {
        let Some(balancer) = self.state.balancer() else { return Vec::new() };
        let family = |one: &Ingress| match &one.address {
            IngressAddress::Ip(ip) => Some(IpFamily::from_address(*ip)),
            IngressAddress::Hostname(_) => None,
        };
        let families: Option<Vec<_>> = balancer.ingress.iter().map(family).collect();
        families.filter(|_| traits.member_addresses).unwrap_or_default()
    }

    /// Returns the number of members that the cloud has shown last.
    pub(super) fn members_in_cloud(&self) -> Option<usize> {
        self.state.pools.iter().flatten().map(|pool| pool.members).max()
    }

    /// Returns true if its members should be read at the next opportunity.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited && self.lacks_members()
    }

    /// Marks its members to be read at the next opportunity, if they are not known.
    pub(crate) fn await_members(&mut self) {
        self.awaited |= self.lacks_members();
    }

    /// Records that the nodes have further labels, by which no load balancer selected before.
    pub(super) fn relabelled(&mut self, before: Option<Digest>, now: Option<Digest>) {
        if self.agrees == before {
            self.agrees = now.filter(|_| before.is_some());
        }
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
        let Some(balancer) = self.state.balancer() else { return false };
        let is_idle = self.state.pending.is_none() && balancer.phase == Phase::Ready;
        let is_due = self.awaited || self.read.is_none();
        let serves = self.state.was_complete(service, &balancer.id);
        is_idle && is_due && serves && self.lacks_members()
    }

    /// Returns true if it exists and its members are not known.
    pub(super) fn lacks_members(&self) -> bool {
        self.state.balancer().is_some() && !self.membership.is_known()
    }
}

/// Rounds a wait down to milliseconds, as in its text, so that a memory that is read from a text is
/// the same.
pub(super) fn in_milliseconds(wait: Duration) -> Duration {
    Duration::new(wait.as_secs(), wait.subsec_millis() * 1_000_000)
}
