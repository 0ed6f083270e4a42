//! The rules of all histories.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_cloud::{NodeSelector, Unwanted};
use ccm_objects::{Node, Service, Shared as Name};
use ccm_runtime::explain::{Explanation, ObjectState};

use super::{
    cloud::Cloud,
    labels::{self, Excuses},
    operator::Served,
    outside::THEIRS,
    refusals::Calls,
    rooms::Waiting,
    world::ROOM,
};
use crate::{
    machine::effect::{Ask, Effect, OrphanDue, Question, Write},
    plan::{
        Step,
        reason::Reason,
        status::{ID, shows},
    },
};

/// The maximum number of members that leave a load balancer within the window without a mark.
const LOSS: usize = 3;
/// The window, less the time that a call may take.
const WINDOW: Duration = Duration::from_mins(355);
/// The most writes to a Service in ten minutes.
const WRITES: usize = 60;
/// How old a note may be, because it is written with the renewals of the Lease.
const UNTOLD: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Rules {
    /// The nodes that were marked when they were last seen.
    marked: BTreeSet<String>,
    /// Members that have left without a mark, and when, by the UID of the Service.
    left: BTreeMap<String, BTreeMap<String, At>>,
    /// The members of load balancers as they were seen last, by ID.
    members: BTreeMap<String, BTreeSet<String>>,
    /// The load balancers that have had members.
    served: BTreeSet<String>,
    /// When load balancers without a Service were deleted, and when others were replaced.
    deleted: BTreeMap<String, At>,
    replaced: BTreeMap<String, At>,
    /// The writes to each Service that the API server has made, by its UID.
    writes: BTreeMap<String, Vec<At>>,
    /// True if another client has changed the cloud. Then the counts are meaningless.
    is_spoilt: bool,
    /// True if a user has approved that any member leaves.
    pub(super) is_approved: bool,
    is_quiet: bool,
    pub(super) calls: Calls,
    pub(super) classes: Served,
    pub(super) waiting: Waiting,
    pub(super) excuses: Excuses,
    /// The number of writes to each Service in all, by its UID.
    written: BTreeMap<String, usize>,
}

fn is_theirs(service: &Service) -> bool {
    service.details.as_ref().is_some_and(|details| details.class.as_deref() == Some(THEIRS))
}

/// Returns true if this Service should have a load balancer.
pub(super) fn asks_for_one(service: &Service) -> bool {
    service.is_load_balancer && !service.deleting && !is_theirs(service)
}

/// Returns true if the Service waits for room in its namespace.
pub(super) fn is_full(service: &Service) -> bool {
    shows(service, Reason::LimitReached)
}

/// Returns the load balancers of the namespace.
fn rooms(api: &BTreeMap<Name, Arc<Service>>, cloud: &Cloud) -> usize {
    let all = api.values().filter(|service| service.key.starts_with("shop/"));
    all.filter(|service| !cloud.of(&service.uid).is_empty()).count()
}

impl Rules {
    pub(super) fn hear(&mut self, effect: &Effect, now: At) {
        Calls::told(effect);
        if let Effect::Write(write) = effect {
            self.calls.written(write, now);
        }
        if self.is_quiet {
            let is_work = matches!(effect, Effect::Write(_) | Effect::Ask(_));
            assert!(!is_work, "Quiet: nothing has changed, and at {now} there is work: {effect:?}");
        }
    }

    /// Records that another process begins to lead. What has left within the last two seconds is
    /// not in the note.
    pub(super) fn leads(&mut self, now: At) {
        for left in self.left.values_mut() {
            left.retain(|_, at| now.since(*at) > UNTOLD);
        }
        self.calls.leads();
        self.classes.leads();
        self.waiting.leads();
    }

    /// Records that the node may leave at once, also if it has just come back.
    pub(super) fn marked(&mut self, node: &str) {
        self.marked.insert(node.to_owned());
        for left in self.left.values_mut() {
            left.remove(node);
        }
    }

    pub(super) fn spoilt(&mut self) {
        self.is_spoilt = true;
    }

    /// Checks that no load balancer loses its last member, or more members than the brake allows.
    pub(super) fn check(&mut self, cloud: &Cloud, now: At) {
        for (id, one) in &cloud.balancers {
            match one.members.is_empty() {
                true => {
                    assert!(!self.served.contains(id), "LastMember: {id} no longer has a member");
                }
                false if self.served.contains(id) => {}
                false => drop(self.served.insert(id.clone())),
            }
            let before = self.members.get(id);
            if before.is_some_and(|before| before.iter().eq(one.members.keys())) {
                continue;
            }
            let names: BTreeSet<String> = one.members.keys().cloned().collect();
            if let Some(before) = before.cloned() {
                self.have_changed(&one.owner.uid, &before, &names, now);
            }
            self.members.insert(id.clone(), names);
        }
    }

    /// Checks that a node that joins takes the place of a node that left.
    fn have_changed(
        &mut self,
        uid: &str,
        before: &BTreeSet<String>,
        names: &BTreeSet<String>,
        now: At,
    ) {
        let left = self.left.entry(uid.to_owned()).or_default();
        let gone = before
            .difference(names)
            .filter(|node| !self.marked.contains(*node) && !self.excuses.excuse(uid, node, now));
        left.extend(gone.map(|node| (node.clone(), now)));
        let joined = names.difference(before).filter(|node| !left.contains_key(*node)).count();
        left.retain(|node, at| !names.contains(node) && now.since(*at) < WINDOW);
        for _ in 0..joined {
            let first = left.iter().min_by_key(|(_, at)| **at).map(|(node, _)| node.clone());
            first.and_then(|node| left.remove(&node));
        }
        let is_right = left.len() <= LOSS || self.is_approved || self.is_spoilt;
        assert!(is_right, "Loss: {uid} has lost {left:?}");
    }

    /// Checks that a call names its own load balancer, and that one is made only for a Service with
    /// the finalizer.
    pub(super) fn asked(&self, ask: &Ask, api: &BTreeMap<Name, Arc<Service>>, cloud: &Cloud) {
        let known = match &ask.question {
            Question::Ensure(wanted) | Question::Preview(wanted) => wanted.known.as_deref(),
            Question::Members(change) => Some(&*change.id),
            Question::Delete(unwanted) => unwanted.known.as_deref(),
        };
        let owner = known.and_then(|id| cloud.balancers.get(id)).map(|one| &*one.owner.uid);
        let is_own = owner.is_none_or(|uid| *uid == *ask.uid);
        assert!(is_own, "Foreign: {ask:?} is about the load balancer of {owner:?}");
        let service = api.get(&ask.name).filter(|service| service.uid == ask.uid);
        let has_changed = self.classes.has_changed(&ask.uid);
        let is_served = has_changed || service.is_none_or(|service| !is_theirs(service));
        assert!(is_served, "OtherClass: {ask:?} is about {service:?}");
        if let (Question::Ensure(_), Some(service)) = (&ask.question, service) {
            assert!(service.has_finalizer, "Protected: {ask:?}");
        }
    }

    /// Checks that a Service with two load balancers keeps the one whose address it shows.
    pub(super) fn deleted(unwanted: &Unwanted, service: Option<&Service>, cloud: &Cloud) {
        let (Some(id), true) = (&unwanted.known, unwanted.duplicate) else { return };
        let Some(one) = cloud.balancers.get(id) else { return };
        let details = service.and_then(|service| service.details.as_deref());
        let shown = details.and_then(|details| details.ingress.first()?.ip.as_deref());
        assert_ne!(shown, Some(&*one.address().to_string()), "Address: {id} of {service:?} goes");
    }

    /// Checks that no namespace has more load balancers than its room.
    pub(super) fn check_room(api: &BTreeMap<Name, Arc<Service>>, cloud: &Cloud) {
        let count = rooms(api, cloud);
        assert!(count <= ROOM, "Room: the namespace has {count}");
    }

    /// Checks that a Service has one load balancer, unless others have made a second one.
    pub(super) fn ensured(&self, uid: &str, cloud: &Cloud) {
        assert!(self.is_spoilt || cloud.of(uid).len() <= 1, "One: {uid} has {:?}", cloud.of(uid));
    }

    /// Checks the deletion of a load balancer without a Service: no more than the budget allows,
    /// also over leaders.
    pub(super) fn orphan_goes(
        &mut self,
        due: &OrphanDue,
        api: &BTreeMap<Name, Arc<Service>>,
        now: At,
    ) {
        let owner = &due.orphan.owner;
        let mut concerned = api.values().filter(|service| service.concerns_load_balancers());
        let has_service = concerned.any(|service| *service.uid == *owner.uid);
        assert!(!has_service, "Orphans: {due:?} has its Service");
        self.deleted.retain(|_, at| now.since(*at) < WINDOW);
        self.deleted.entry(due.orphan.id.clone()).or_insert(now);
        assert!(self.deleted.len() <= LOSS, "Orphans: {:?} are deleted", self.deleted);
    }

    /// Records that a load balancer that exists is replaced, because another cloud does not show
    /// it.
    pub(super) fn replaced(&mut self, uid: &str, now: At) {
        self.replaced.retain(|_, at| now.since(*at) < WINDOW);
        self.replaced.entry(uid.to_owned()).or_insert(now);
        let is_right = self.replaced.len() <= LOSS || self.is_approved;
        assert!(is_right, "Replaced: {:?}", self.replaced);
    }

    /// Records that the API server has made a write. Another client may take it back, again and
    /// again.
    pub(super) fn wrote(&mut self, write: &Write, now: At) {
        *self.written.entry(write.service.uid.to_string()).or_default() += 1;
        let all = self.writes.entry(write.service.uid.to_string()).or_default();
        all.retain(|at| now.since(*at) < Duration::from_mins(10));
        all.push(now);
        assert!(all.len() <= WRITES, "Writes: {} of {:?} in ten minutes", all.len(), write.service);
    }

    /// Returns the number of writes to this Service.
    pub(super) fn written_in_all(&self, uid: &str) -> usize {
        self.written.get(uid).copied().unwrap_or_default()
    }

    /// Checks that the finalizer goes after the load balancer. A Service names one that is
    /// complete.
    pub(super) fn written(&self, service: &Service, write: &Write, cloud: &Cloud) {
        let is_right = !is_theirs(service) || self.classes.has_changed(&service.uid);
        assert!(is_right, "OtherClass: {write:?}");
        if let Step::Write(change) = &write.step
            && let Some(Some(id)) = change.annotations.get(ID)
        {
            let is_partial = cloud.balancers.get(id).is_some_and(|one| one.is_partial);
            assert!(!is_partial, "Whole: {id} is not complete, and {write:?}");
        }
        if write.step == Step::Release && !cloud.has_lied(&service.uid) {
            assert_eq!(cloud.of(&service.uid), Vec::<String>::new(), "Released: {service:?}");
        }
    }

    /// Checks that each explanation has a cause and a fix, and a Service without an address is
    /// never fine. When nothing is left to do, each Service is fine, or asks for nothing.
    pub(super) fn explained(&self, service: &Service, told: &Explanation) {
        assert!(!told.cause.is_empty() && !told.fix.is_empty(), "Explained: {service:?}: {told:?}");
        assert_ne!(told.state, ObjectState::Unknown, "Explained: {service:?}: {told:?}");
        let asks = asks_for_one(service);
        let has_address =
            service.details.as_ref().is_some_and(|details| !details.ingress.is_empty());
        let is_fine = told.state == ObjectState::Fine;
        // It may not have been planned since then.
        let has_changed = self.classes.has_changed(&service.uid) && !self.is_quiet;
        let is_right = !is_fine || has_changed || asks && has_address;
        assert!(is_right, "Explained: {service:?}: {told:?}");
        if self.is_quiet {
            let expected = match asks {
                true if is_full(service) => ObjectState::Blocked,
                true => ObjectState::Fine,
                false => ObjectState::Foreign,
            };
            assert_eq!(told.state, expected, "Explained: {service:?}: {told:?}");
        }
    }

    /// Checks that in the end each Service has what it asks for.
    pub(super) fn right(
        now: At,
        api: &BTreeMap<Name, Arc<Service>>,
        nodes: &BTreeMap<Name, Arc<Node>>,
        cloud: &Cloud,
        selector: &NodeSelector,
    ) {
        for service in api.values() {
            let own = cloud.of(&service.uid);
            if !asks_for_one(service) {
                let is_right = own.is_empty() || cloud.has_lied(&service.uid);
                assert!(is_right, "Converges: {service:?} has {own:?} at {now}");
                assert!(!service.has_finalizer, "Converges: {service:?} at {now}");
                continue;
            }
            if is_full(service) {
                let count = rooms(api, cloud);
                assert_eq!(count, ROOM, "Room: {service:?} waits");
                continue;
            }
            let [id] = &own[..] else { panic!("Converges: {service:?} has {own:?} at {now}") };
            let one = &cloud.balancers[id];
            let details = service.details.as_deref().expect("details");
            let ports: Vec<u16> = details.ports.iter().map(|port| port.port).collect();
            assert!(one.digest.is_some(), "Converges: what others have changed stays: {service:?}");
            assert_eq!(one.ports, ports, "Converges: {service:?} at {now}");
            let by = labels::selector(service, selector);
            let is_member =
                |node: &&Arc<Node>| labels::is_eligible(node) && labels::is_selected(node, &by);
            let expected: BTreeSet<&str> =
                nodes.values().filter(is_member).map(|node| &*node.name).collect();
            let members: BTreeSet<&str> = one.members.keys().map(String::as_str).collect();
            assert!(
                members == expected || expected.is_empty() && members.len() < 2,
                "Converges: {service:?} has {members:?}, not {expected:?}, at {now}"
            );
            assert!(!one.is_drained, "Converges: the pools of {id} have no members at {now}");
            assert_eq!(details.ingress.len(), 1, "Converges: {service:?} at {now}");
            assert!(shows(service, Reason::Provisioned), "Converges: {service:?} at {now}");
        }
    }

    /// Begins the quiet: nothing is left to do. Without a list each load balancer is still looked
    /// at.
    pub(super) fn begin_quiet(&mut self, lists: bool) {
        self.is_quiet = lists;
    }

    pub(super) fn end_quiet(&mut self) {
        self.is_quiet = false;
    }
}
