//! What is remembered of the load balancer of each Service.
//!
//! A new leader begins with a list of the cloud, and with the members that left under the last one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ccm_base::At;
use ccm_cloud::{
    Cure, Digest, Ingress, IngressAddress, IpFamily, LoadBalancer, LoadBalancerTraits, Member,
    Members, Phase,
};
use ccm_controller::repeats::Repeats;
use ccm_objects::{Service, ServiceIngress, Shared as Name};
use ccm_runtime::health::Verdict;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    metrics,
    plan::{
        CallKind, Known, List, REPLACEMENT_APPROVED, State,
        eligible::{self, NodeSet},
        hangs::Slow,
        members::{Departures, Membership},
        shown::Refused,
        status::ingress,
    },
};

/// The remembered state of all load balancers.
#[derive(Default)]
pub(crate) struct Balancers {
    entries: Mutex<HashMap<Name, Entry>>,
    /// The records of Services that service-ccm does not serve now.
    kept: Mutex<HashMap<Name, Kept>>,
    /// What the list of the cluster's load balancers has shown since this process leads.
    list: Mutex<List>,
    /// When this process began to lead, and what the last leader has left.
    inherited: Mutex<(At, Inherited)>,
    /// The nodes that load balancers are to have now, and their digest.
    nodes: Mutex<(Arc<[Member]>, Option<Digest>)>,
    /// Whether members may have left since [`Balancers::departures`] was called.
    has_departures: AtomicBool,
    /// Wakes the one who leaves them to the next leader.
    departed: Notify,
    /// Held while the note for the next leader is made.
    pub(super) leaving: Mutex<()>,
}

/// What the last leader has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    /// The members that have left.
    pub(crate) departures: Departures,
    /// The digest of the nodes that all load balancers had. None if some had others.
    pub(crate) settled: Option<Digest>,
}

/// The record of a Service that service-ccm does not serve now. Its load balancer may still exist, and
/// service-ccm may serve the Service again.
struct Kept {
    /// The UID of the Service.
    uid: Box<str>,
    /// The confirmed writes to it: another client may undo them again and again.
    repeats: Repeats,
    /// The departures from its load balancer, without the members: when service-ccm serves the
    /// Service again, the load balancer gets no new budget.
    membership: Membership,
}

/// The class of a Service; None for a Service without a class.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServedClass(pub(crate) Option<Name>);

/// What is remembered of one load balancer.
#[derive(Default)]
pub(crate) struct Entry {
    /// The UID of the Service.
    uid: Box<str>,
    pub(crate) state: State,
    pub(crate) membership: Membership,
    /// The number of members that are held.
    pub(crate) held: usize,
    /// The class of the Service when this process last served it.
    pub(crate) class: Option<ServedClass>,
    /// True if the load balancer stays although service-ccm does not serve the Service any more.
    pub(crate) is_release_held: bool,
    /// True if the load balancer is gone or has failed, and no other one may be made yet.
    pub(crate) is_replacement_held: bool,
    /// True if the Service waits because its namespace has as many load balancers as it may have.
    pub(crate) waits: bool,
    /// True if there was room in the namespace for the load balancer of the Service.
    pub(crate) is_admitted: bool,
    /// Whether the Service has a mistake, so that its load balancer is not configured.
    pub(crate) is_wrong: bool,
    /// The last call, if it did not return in time: the next one is made on a slower lane.
    pub(crate) slow: Option<Slow>,
    /// Whether the poll has queued it, and no call has been made since.
    pub(crate) is_queued: bool,
    /// True if the start of a creation or change was reported, but not its end yet.
    pub(crate) is_announced: bool,
    /// True if the current change of members has changed something in the cloud.
    pub(crate) has_changed: bool,
    /// When the cloud last answered a call about it.
    pub(crate) answered: At,
    /// Annotations that the provider has written to the Service.
    pub(crate) annotations: Vec<String>,
    /// The addresses of the load balancer that the Service has shown last.
    pub(crate) addresses: Vec<ServiceIngress>,
    /// The addresses of the load balancer when service-ccm deleted it.
    pub(crate) shown: Vec<ServiceIngress>,
    /// When it was last read in full.
    pub(crate) read: Option<At>,
    /// Whether its members are to be read at the next opportunity, not only in their turn.
    pub(crate) awaited: bool,
    /// The parts of the provider's answer that the Service does not show.
    pub(crate) refused: Vec<Refused>,
    /// The digest of the nodes with which its members were seen to agree.
    pub(crate) agrees: Option<Digest>,
}

impl Balancers {
    /// Reads or changes what is remembered of the load balancer of this Service. Nothing is
    /// remembered of another Service of the same name.
    pub(crate) fn with<R>(&self, service: &Service, change: impl FnOnce(&mut Entry) -> R) -> R {
        let mut entries = self.entries.lock();
        let entry = entries.entry(Name::clone(&service.key)).or_default();
        if entry.uid != service.uid {
            let kept = self.kept.lock().remove(&service.key);
            let kept = kept.filter(|kept| kept.uid == service.uid);
            let Kept { uid, repeats, membership } = kept.unwrap_or_else(|| self.resumed(service));
            *entry = Entry { uid, membership, ..Entry::default() };
            entry.state.repeats = repeats;
        }
        change(entry)
    }

    /// Returns the record of a new Service: the departures that the last leader has recorded.
    fn resumed(&self, service: &Service) -> Kept {
        let nodes = self.nodes.lock().1;
        let (since, left) = &*self.inherited.lock();
        let mut membership = Membership::resume(*since, &left.departures);
        if left.settled.is_none() || left.settled != nodes {
            membership.relabelled();
        }
        Kept { uid: service.uid.clone(), repeats: Repeats::default(), membership }
    }

    /// The same by name, if anything is remembered.
    pub(crate) fn with_name<R>(&self, name: &str, read: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.entries.lock().get_mut(name).map(read)
    }

    /// Takes over what the last leader has left.
    pub(crate) fn inherit(&self, now: At, left: Inherited) {
        *self.inherited.lock() = (now, left);
    }

    /// Records which nodes load balancers are to have from now on.
    pub(crate) fn publish(&self, members: &Arc<[Member]>) {
        *self.nodes.lock() = (Arc::clone(members), Some(eligible::digest(members)));
    }

    /// The digest of the nodes that load balancers are to have now.
    pub(crate) fn published(&self) -> Option<Digest> {
        self.nodes.lock().1
    }

    /// Records that the nodes have further labels, by which no load balancer selected before.
    pub(crate) fn relabel(&self, members: &Arc<[Member]>) {
        let before = self.nodes.lock().1;
        self.publish(members);
        let now = self.nodes.lock().1;
        self.each(|_, entry| {
            if entry.agrees == before {
                entry.agrees = now.filter(|_| before.is_some());
            }
        });
    }

    /// The digest of these nodes, if they are those that load balancers are to have now.
    pub(crate) fn digest_of(&self, members: &Arc<[Member]>) -> Option<Digest> {
        let (published, digest) = &*self.nodes.lock();
        digest.filter(|_| Arc::ptr_eq(published, members))
    }

    /// The digest of the nodes that all load balancers have, as far as this leader or the last one
    /// has seen it. None if one has others, or may have.
    pub(crate) fn settled(&self) -> Option<Digest> {
        let (nodes, left) = (self.nodes.lock().1?, self.inherited.lock().1.settled);
        let has_list = self.list() == List::Compared;
        let agree = || self.entries.lock().values().all(|entry| entry.has(nodes, left));
        (has_list && agree()).then_some(nodes)
    }

    /// Has the members of all load balancers read soon, unless the last leader has left that they
    /// are those of the nodes as they are now. Returns whether they are known to be others.
    pub(crate) fn await_members(&self) -> bool {
        let (nodes, left) = (self.nodes.lock().1, self.inherited.lock().1.settled);
        let differs = left.is_none() || left != nodes;
        self.each(|_, entry| {
            let is_busy = entry.state.pending.is_some();
            entry.awaited |= (differs || is_busy) && entry.lacks_members();
        });
        left.is_some() && differs
    }

    /// Records that the note for the next leader has changed: members may leave, orphans are deleted, or
    /// load balancers are replaced.
    pub(crate) fn set_departures(&self) {
        self.keep_departures();
        self.departed.notify_one();
    }

    /// Records that what has left is to be told again, without haste.
    pub(crate) fn keep_departures(&self) {
        self.has_departures.store(true, Ordering::Release);
    }

    /// Waits until that happens.
    pub(crate) async fn departed(&self) {
        self.departed.notified().await;
    }

    /// The members that have left any load balancer since this time. None if no member has left
    /// since the last call.
    pub(crate) fn departures(&self, since: At) -> Option<Departures> {
        self.has_departures.swap(false, Ordering::AcqRel).then(|| {
            let mut left = self.inherited.lock().1.departures.clone();
            left.retain(since);
            self.each(|_, entry| entry.membership.add_departures(since, &mut left));
            for kept in self.kept.lock().values() {
                kept.membership.add_departures(since, &mut left);
            }
            left
        })
    }

    /// Calls this for each load balancer.
    pub(crate) fn each(&self, mut read: impl FnMut(&Name, &mut Entry)) {
        for (name, entry) in self.entries.lock().iter_mut() {
            read(name, entry);
        }
    }

    /// Forgets a Service, but not the writes to it, nor the members that have left.
    pub(crate) fn forget(&self, name: &Name) {
        let Some(entry) = self.entries.lock().remove(name) else { return };
        let Entry { uid, state: State { repeats, .. }, mut membership, .. } = entry;
        let since = self.inherited.lock().0;
        if repeats != Repeats::default() || membership.has_departures(since) {
            membership.forget();
            self.kept.lock().insert(Name::clone(name), Kept { uid, repeats, membership });
        }
    }

    /// Forgets a Service that is gone.
    pub(crate) fn remove(&self, name: &str) {
        self.entries.lock().remove(name);
        self.kept.lock().remove(name);
    }

    /// What is known of the list.
    pub(crate) fn list(&self) -> List {
        *self.list.lock()
    }

    /// Records what is known of the list.
    pub(crate) fn set_list(&self, list: List) {
        *self.list.lock() = list;
    }

    /// Passes if no load balancer fails. If not, counts the failing ones by cause.
    pub(crate) fn verdict(&self) -> Verdict {
        let (mut all, mut failing) = (0, BTreeMap::<&str, usize>::new());
        for entry in self.entries.lock().values() {
            all += 1;
            if entry.shown() == metrics::State::Failing {
                let failed = entry.state.failed.first().map(|failed| failed.error.kind.reason());
                let wrong = if entry.is_wrong { "wrong Service" } else { "failed in the cloud" };
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
        for entry in self.entries.lock().values() {
            *counts.entry(entry.shown()).or_default() += 1;
        }
        counts
    }

    /// The number of load balancers that stay although service-ccm does not serve their Services.
    pub(crate) fn releases_held(&self) -> usize {
        self.entries.lock().values().filter(|entry| entry.is_release_held).count()
    }

    /// The number of load balancers that are gone or have failed and are not replaced yet.
    pub(crate) fn replacements_held(&self) -> usize {
        self.entries.lock().values().filter(|entry| entry.is_replacement_held).count()
    }

    /// The number of Services that wait for room in their namespaces.
    pub(crate) fn waiting(&self) -> usize {
        self.entries.lock().values().filter(|entry| entry.waits).count()
    }

    /// The number of members that are held.
    pub(crate) fn held(&self) -> usize {
        self.entries.lock().values().map(|entry| entry.held).sum()
    }
}

impl Entry {
    /// The UID of the Service.
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// Records the addresses that the Service shows, if the load balancer has the same addresses.
    pub(crate) fn see_addresses(&mut self, service: &Service) {
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
    pub(crate) fn complete(
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
        self.state.look = false;
        // The Service has a load balancer again: a deletion that failed before is due no more.
        self.state.failed.retain(|failed| failed.call != CallKind::Delete);
        (self.state.adoptable, self.state.foreign) = (None, None);
        self.annotations = balancer.annotations.keys().cloned().collect();
        self.has_changed = false;
        self.state.known = Known::There(Box::new(balancer));
    }

    /// Forgets the members: the load balancer may have other members now.
    pub(crate) fn forget_members(&mut self) {
        self.membership.forget();
        (self.state.pools, self.state.gap) = (None, None);
    }

    /// The families of its addresses, if a member needs an address of one of them.
    pub(crate) fn families(&self, traits: &LoadBalancerTraits) -> Vec<IpFamily> {
        let Known::There(balancer) = &self.state.known else { return Vec::new() };
        let family = |one: &Ingress| match &one.address {
            IngressAddress::Ip(ip) => Some(IpFamily::of(*ip)),
            IngressAddress::Hostname(_) => None,
        };
        let families: Option<Vec<_>> = balancer.ingress.iter().map(family).collect();
        families.filter(|_| traits.member_addresses).unwrap_or_default()
    }

    /// The number of members that the cloud has shown last.
    pub(crate) fn members_in_cloud(&self) -> Option<usize> {
        self.state.pools.iter().flatten().map(|pool| pool.members).max()
    }

    /// Whether its members are to be read at the next opportunity.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited && self.lacks_members()
    }

    /// Whether it has the nodes of this digest, as this leader has seen, or the last one has left.
    fn has(&self, nodes: Digest, left: Option<Digest>) -> bool {
        match self.state.known {
            Known::There(_) if self.state.pending.is_some() => false,
            Known::There(_) if self.membership.is_known() => self.agrees == Some(nodes),
            Known::There(_) => !self.awaited && left == Some(nodes),
            _ => true,
        }
    }

    /// Returns true if it serves, and service-ccm has not read its members since they were last known.
    pub(crate) fn is_unread(&self, service: &Service) -> bool {
        let Known::There(balancer) = &self.state.known else { return false };
        let is_idle = self.state.pending.is_none() && balancer.phase == Phase::Ready;
        let is_due = self.awaited || self.read.is_none();
        let serves = self.state.was_complete(service, &balancer.id);
        is_idle && is_due && serves && self.lacks_members()
    }

    /// Whether it exists and its members are not known.
    pub(crate) fn lacks_members(&self) -> bool {
        matches!(self.state.known, Known::There(_)) && !self.membership.is_known()
    }

    fn shown(&self) -> metrics::State {
        use metrics::State;
        let has_failed = matches!(&self.state.known, Known::There(balancer)
            if matches!(balancer.phase, Phase::Failed { cure: Cure::Person, .. }));
        let is_elsewhere = matches!(self.state.known, Known::Elsewhere(_));
        let fails = self.state.failed.iter().any(|failed| !failed.error.unsent);
        if fails || has_failed || self.is_wrong && !is_elsewhere {
            return State::Failing;
        }
        if let Some(pending) = &self.state.pending {
            let is_deletion = pending.call == Some(CallKind::Delete);
            return if is_deletion { State::Deleting } else { State::Pending };
        }
        match &self.state.known {
            Known::Elsewhere(_) => State::Elsewhere,
            _ if self.state.configured.is_some() => State::Provisioned,
            // Its creation is under way: a first call that does not return is no state of its own.
            Known::Absent if !self.state.proved_absent && !self.state.is_of_others() => {
                State::Pending
            }
            _ => State::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
