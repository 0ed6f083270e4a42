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
use ccm_cloud::{Cure, Digest, LoadBalancer, Member, Members, Phase};
use ccm_controller::repeats::Repeats;
use ccm_objects::{Service, ServiceIngress, Shared as Name};
use ccm_runtime::health::Verdict;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    metrics,
    plan::{
        CallKind, Known, List, State,
        eligible::{self, NodeSet},
        members::{Departures, Membership},
    },
};

/// The remembered state of all load balancers.
#[derive(Default)]
pub(crate) struct Balancers {
    entries: Mutex<HashMap<Name, Entry>>,
    /// The confirmed writes to Services that have no entry any more, with the UIDs of the Services.
    written: Mutex<HashMap<Name, (Box<str>, Repeats)>>,
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
}

/// What the last leader has left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherited {
    /// The members that have left.
    pub(crate) departures: Departures,
    /// The digest of the nodes that all load balancers had. None if some had others.
    pub(crate) settled: Option<Digest>,
}

/// What is remembered of one load balancer.
#[derive(Default)]
pub(crate) struct Entry {
    /// The UID of the Service.
    uid: Box<str>,
    pub(crate) state: State,
    pub(crate) membership: Membership,
    /// The number of members that are held.
    pub(crate) held: usize,
    /// Whether the Service has a mistake, so that its load balancer is not configured.
    pub(crate) is_wrong: bool,
    /// Whether the last call did not return in time: the next one is made on a slower lane.
    pub(crate) is_slow: bool,
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
            let (since, left) = &*self.inherited.lock();
            let membership = Membership::resume(*since, &left.departures);
            *entry = Entry { uid: service.uid.clone(), membership, ..Entry::default() };
            let written = self.written.lock().remove(&service.key);
            if let Some((_, repeats)) = written.filter(|(uid, _)| *uid == service.uid) {
                entry.state.repeats = repeats;
            }
        }
        change(entry)
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

    /// Records that members may leave, or that orphans are deleted.
    pub(crate) fn set_departures(&self) {
        self.keep_departures();
        self.departed.notify_one();
    }

    /// Records that what has left is to be told again, without haste.
    pub(crate) fn keep_departures(&self) {
        self.has_departures.store(true, Ordering::Release);
    }

    /// Waits until members may leave, or orphans are deleted.
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
            left
        })
    }

    /// Calls this for each load balancer.
    pub(crate) fn each(&self, mut read: impl FnMut(&Name, &mut Entry)) {
        for (name, entry) in self.entries.lock().iter_mut() {
            read(name, entry);
        }
    }

    /// Forgets a Service, but not the writes to it: another client may undo them again and again.
    pub(crate) fn forget(&self, name: &Name) {
        let entry = self.entries.lock().remove(name);
        if let Some(Entry { uid, state: State { repeats, .. }, .. }) = entry
            && repeats != Repeats::default()
        {
            self.written.lock().insert(Name::clone(name), (uid, repeats));
        }
    }

    /// Forgets a Service that is gone.
    pub(crate) fn remove(&self, name: &str) {
        self.entries.lock().remove(name);
        self.written.lock().remove(name);
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

    /// The number of load balancers in each state.
    pub(crate) fn count(&self) -> HashMap<metrics::State, usize> {
        let mut counts: HashMap<metrics::State, usize> = HashMap::new();
        for entry in self.entries.lock().values() {
            *counts.entry(entry.shown()).or_default() += 1;
        }
        counts
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
            (Some(members), _) => {
                self.membership.shown(&members, nodes, now);
                self.read = Some(now);
            }
            (None, Some(members)) => self.membership.applied(members, now),
            (None, None) => {}
        }
        self.state.configured = digest;
        self.state.look = false;
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

    /// Whether it exists and its members are not known.
    pub(crate) fn lacks_members(&self) -> bool {
        matches!(self.state.known, Known::There(_)) && !self.membership.is_known()
    }

    fn shown(&self) -> metrics::State {
        use metrics::State;
        let has_failed = matches!(&self.state.known, Known::There(balancer)
            if matches!(balancer.phase, Phase::Failed { cure: Cure::Person, .. }));
        let is_elsewhere = matches!(self.state.known, Known::Elsewhere(_));
        if !self.state.failed.is_empty() || has_failed || self.is_wrong && !is_elsewhere {
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
mod tests {
    use ccm_cloud::{Digest, LoadBalancer};

    use super::*;

    fn shown(change: impl FnOnce(&mut Entry)) -> metrics::State {
        let mut balancer = LoadBalancer::new("lb-1", "", None);
        balancer.phase = Phase::Ready;
        let mut entry = Entry::default();
        entry.state.known = Known::There(Box::new(balancer));
        entry.state.configured = Some(Digest { version: 1, hash: 7 });
        change(&mut entry);
        entry.shown()
    }

    fn member(node: &str) -> Member {
        let (node, addresses) = (node.to_owned(), Vec::new());
        Member { node, provider_id: None, addresses, labels: Arc::default() }
    }

    /// Two load balancers that exist and whose members are not known yet.
    fn resumed(left: Option<Digest>, nodes: &Arc<[Member]>) -> Balancers {
        let balancers = Balancers::default();
        let inherited = Inherited { settled: left, ..Inherited::default() };
        balancers.inherit(At::default(), inherited);
        balancers.publish(nodes);
        balancers.set_list(List::Compared);
        for name in ["default/web", "default/api"] {
            let service = Service {
                key: name.into(),
                uid: format!("uid-{name}").into(),
                ..Service::default()
            };
            balancers.with(&service, |entry| {
                let balancer = LoadBalancer::new(format!("lb-{name}"), "", None);
                entry.state.known = Known::There(Box::new(balancer));
            });
        }
        balancers
    }

    fn awaited(balancers: &Balancers) -> usize {
        let mut count = 0;
        balancers.each(|_, entry| count += usize::from(entry.is_awaited()));
        count
    }

    #[test]
    fn with_the_nodes_of_the_last_leader_members_wait_for_their_turn() {
        let nodes: Arc<[Member]> = vec![member("a"), member("b")].into();
        let own = eligible::digest(&nodes);
        for (left, expect) in [
            (Some(own), (false, 0)),
            (Some(eligible::digest(&[member("a")])), (true, 2)),
            (None, (false, 2)),
        ] {
            let balancers = resumed(left, &nodes);
            assert_eq!(balancers.settled(), left.filter(|left| *left == own));
            assert_eq!((balancers.await_members(), awaited(&balancers)), expect, "{left:?}");
            assert_eq!(balancers.settled().is_some(), left == Some(own));
        }
        // One on which the cloud works may be without a change of the last leader.
        let balancers = resumed(Some(own), &nodes);
        balancers.with_name("default/web", |entry| {
            let (call, digest, members) = (None, None, None);
            let (what, check_at, since) = (String::new(), At::default(), At::default());
            let pending = crate::plan::Pending { call, digest, members, what, check_at, since };
            entry.state.pending = Some(pending);
        });
        assert_eq!((balancers.await_members(), awaited(&balancers)), (false, 1));
        balancers.with_name("default/web", |entry| entry.state.pending = None);
        assert_eq!(balancers.settled(), None, "it has still to be read");
    }

    #[test]
    fn settled_is_what_all_load_balancers_have() {
        let nodes: Arc<[Member]> = vec![member("a"), member("b")].into();
        let balancers = resumed(None, &nodes);
        let set =
            crate::plan::eligible::NodeSet { members: Arc::clone(&nodes), ..Default::default() };
        balancers.each(|_, entry| {
            entry.membership.shown(&nodes, &set, At::default());
            entry.agrees = Some(eligible::digest(&nodes));
        });
        assert_eq!(balancers.settled(), Some(eligible::digest(&nodes)));
        balancers.with_name("default/web", |entry| entry.agrees = None);
        assert_eq!(balancers.settled(), None, "one has other members");
        // With other nodes none has them.
        balancers.publish(&vec![member("a")].into());
        assert_eq!((balancers.digest_of(&nodes), balancers.settled()), (None, None));
    }

    #[test]
    fn the_line_names_how_many_fail_and_why() {
        let balancers = resumed(None, &Vec::new().into());
        let passed = |text: &str| Verdict::Passed(text.to_owned());
        assert_eq!(balancers.verdict(), passed("2 Services, none failing"));
        balancers.with_name("default/web", |entry| {
            entry.state.failed = vec![crate::plan::Failed {
                call: CallKind::Ensure,
                digest: None,
                named: Default::default(),
                error: ccm_cloud::CloudError::new(ccm_cloud::ErrorKind::Unauthorized, "no"),
                times: 1,
                retry_at: At::default(),
            }];
        });
        balancers.with_name("default/api", |entry| entry.is_wrong = true);
        let text = "2 of 2 Services: unauthorized 1, wrong Service 1";
        assert_eq!(balancers.verdict(), Verdict::Failed(text.to_owned()));
    }

    #[test]
    fn what_needs_a_person_is_counted_as_failing() {
        assert_eq!(shown(|_| {}), metrics::State::Provisioned);
        let in_first_call =
            |known| shown(|entry| (entry.state.known, entry.state.configured) = (known, None));
        assert_eq!(in_first_call(Known::Absent), metrics::State::Pending);
        assert_eq!(in_first_call(Known::Nothing), metrics::State::Unknown);
        assert_eq!(shown(|entry| entry.is_wrong = true), metrics::State::Failing);
        let broken = |cure| {
            move |entry: &mut Entry| {
                if let Known::There(balancer) = &mut entry.state.known {
                    balancer.phase = Phase::Failed { why: "no capacity".to_owned(), cure };
                }
            }
        };
        let elsewhere = shown(|entry| {
            entry.is_wrong = true;
            entry.state.known = Known::Elsewhere("an ingress controller".to_owned());
        });
        assert_eq!(elsewhere, metrics::State::Elsewhere, "its mistake is another controller's");
        assert_eq!(shown(broken(Cure::Person)), metrics::State::Failing);
        assert_eq!(shown(broken(Cure::Ensure)), metrics::State::Provisioned);
    }
}
