//! The rules of all histories.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::At;
use ccm_objects::{Node, Service, Shared as Name};
use ccm_runtime::explain::{Explanation, Fares};

use super::cloud::Cloud;
use crate::{
    machine::effect::{Ask, Effect, Question, Write},
    plan::{
        Step,
        reason::{PROVISIONING, Reason},
        status::shows,
    },
};

/// The most members that leave a load balancer within the window without a mark.
const LOSS: usize = 3;
/// The window, less the time that a call may take.
const WINDOW: Duration = Duration::from_mins(355);
/// How old a note may be: it comes with the renewals of the Lease.
const UNTOLD: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Rules {
    /// The nodes that were marked when they were last seen.
    marked: BTreeSet<String>,
    /// Members that have left without a mark, by the UID of the Service.
    left: BTreeMap<String, Vec<(At, String)>>,
    /// The members of load balancers as they were seen last, and how many have joined, by the UID of the Service.
    members: BTreeMap<String, (BTreeSet<String>, usize)>,
    /// The load balancers that have had members.
    served: BTreeSet<String>,
    /// True if another client has changed the cloud: then the counts say nothing.
    is_spoilt: bool,
    /// True if a user has approved that any member leaves.
    pub(super) is_approved: bool,
    is_quiet: bool,
}

impl Rules {
    pub(super) fn hear(&mut self, effect: &Effect, now: At) {
        if self.is_quiet {
            let is_work = matches!(effect, Effect::Write(_) | Effect::Ask(_));
            assert!(!is_work, "nothing has changed, and at {now} there is work: {effect:?}");
        }
    }

    /// Another process begins to lead. What has left within the last two seconds is not in the note.
    pub(super) fn leads(&mut self, now: At) {
        for left in self.left.values_mut() {
            left.retain(|(at, _)| now.since(*at) > UNTOLD);
        }
    }

    pub(super) fn marked(&mut self, node: &str) {
        self.marked.insert(node.to_owned());
    }

    pub(super) fn spoilt(&mut self) {
        self.is_spoilt = true;
    }

    /// No load balancer loses its last member.
    pub(super) fn check(&mut self, cloud: &Cloud) {
        for (id, one) in &cloud.balancers {
            match one.members.is_empty() {
                true => assert!(!self.served.contains(id), "{id} has no member any more"),
                false => drop(self.served.insert(id.clone())),
            }
            let names: BTreeSet<String> = one.members.keys().cloned().collect();
            let first = || (names.clone(), 0);
            let known = self.members.entry(one.owner.uid.clone()).or_insert_with(first);
            known.1 += names.difference(&known.0).count();
            known.0 = names;
        }
    }

    /// A call names its own load balancer, and one is made only for a Service with the finalizer.
    pub(super) fn asked(ask: &Ask, api: &BTreeMap<Name, Arc<Service>>, cloud: &Cloud) {
        let known = match &ask.question {
            Question::Ensure(wanted) | Question::Preview(wanted) => wanted.known.as_deref(),
            Question::Members(change) => Some(&*change.id),
            Question::Delete(unwanted) => unwanted.known.as_deref(),
        };
        let owner = known.and_then(|id| cloud.balancers.get(id)).map(|one| &*one.owner.uid);
        assert!(owner.is_none_or(|uid| *uid == *ask.uid), "{ask:?} is about the one of {owner:?}");
        let service = api.get(&ask.name).filter(|service| service.uid == ask.uid);
        if let (Question::Ensure(_), Some(service)) = (&ask.question, service) {
            assert!(service.has_finalizer, "{ask:?}");
        }
    }

    /// A Service has one load balancer, unless others have made a second one.
    pub(super) fn ensured(&self, uid: &str, cloud: &Cloud) {
        assert!(self.is_spoilt || cloud.of(uid).len() <= 1, "{uid} has {:?}", cloud.of(uid));
    }

    /// No more members leave than the brake allows.
    pub(super) fn members_left(&mut self, uid: &str, nodes: &[String], now: At) {
        let left = self.left.entry(uid.to_owned()).or_default();
        left.retain(|(at, _)| now.since(*at) < WINDOW);
        let unmarked = nodes.iter().filter(|node| !self.marked.contains(*node));
        left.extend(unmarked.map(|node| (now, node.clone())));
        let names: BTreeSet<&String> = left.iter().map(|(_, node)| node).collect();
        // A node that joins takes the place of one that has left.
        let joined = self.members.get(uid).map_or(0, |(_, joined)| *joined);
        let is_right = names.len() <= LOSS + joined || self.is_approved || self.is_spoilt;
        assert!(is_right, "{uid} has lost {left:?}, and {joined} have joined");
    }

    /// The finalizer goes after the load balancer.
    pub(super) fn written(service: &Service, write: &Write, cloud: &Cloud) {
        if write.step == Step::Release {
            assert_eq!(cloud.of(&service.uid), Vec::<String>::new(), "{service:?}");
        }
    }

    /// Each explanation has a cause and a mend, and a Service without an address is never fine. When nothing is left
    /// to
    /// be done, each Service is fine, or asks for nothing.
    pub(super) fn explained(&self, service: &Service, told: &Explanation) {
        assert!(!told.cause.is_empty() && !told.mend.is_empty(), "{service:?}: {told:?}");
        assert_ne!(told.fares, Fares::Unknown, "{service:?}: {told:?}");
        let asks = service.is_load_balancer && !service.deleting;
        let has_address =
            service.details.as_ref().is_some_and(|details| !details.ingress.is_empty());
        let is_fine = told.fares == Fares::Fine;
        assert!(!is_fine || asks && has_address, "{service:?}: {told:?}");
        if self.is_quiet {
            let expected = if asks { Fares::Fine } else { Fares::Foreign };
            assert_eq!(told.fares, expected, "{service:?}: {told:?}");
        }
    }

    /// In the end each Service has what it asks for.
    pub(super) fn right(
        now: At,
        api: &BTreeMap<Name, Arc<Service>>,
        nodes: &BTreeMap<Name, Arc<Node>>,
        cloud: &Cloud,
    ) {
        let expected: BTreeSet<&str> =
            nodes.values().filter(|node| node.taints.is_empty()).map(|node| &*node.name).collect();
        for service in api.values() {
            let own = cloud.of(&service.uid);
            if !service.is_load_balancer || service.deleting {
                assert_eq!(own, Vec::<String>::new(), "{service:?} at {now}");
                assert!(!service.has_finalizer, "{service:?} at {now}");
                continue;
            }
            let [id] = &own[..] else { panic!("{service:?} has {own:?} at {now}") };
            let one = &cloud.balancers[id];
            let details = service.details.as_deref().expect("details");
            let ports: Vec<u16> = details.ports.iter().map(|port| port.port).collect();
            assert_eq!(one.ports, ports, "{service:?} at {now}");
            let members: BTreeSet<&str> = one.members.keys().map(String::as_str).collect();
            if !expected.is_empty() {
                assert_eq!(members, expected, "{service:?} at {now}");
            }
            assert_eq!(details.ingress.len(), 1, "{service:?} at {now}");
            let condition = service.condition(PROVISIONING);
            assert!(shows(condition, Reason::Provisioned), "{service:?} at {now}");
        }
    }

    pub(super) fn begin_quiet(&mut self) {
        self.is_quiet = true;
    }

    pub(super) fn end_quiet(&mut self) {
        self.is_quiet = false;
    }
}
