//! The statements of Services, events and metrics must agree with the cloud.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_objects::{Node, Service, Shared as Name};

use super::{cloud::Cloud, labels::is_eligible, world::Kind};
use crate::{
    machine::effect::{Count, Effect, Tell},
    plan::{reason::Reason, status::shows},
};

/// How long a claim may be false: until the next list, a failed one before it, and the pauses between two writes.
const LONGEST: Duration = Duration::from_mins(8);
/// The same while calls fail, and answers are lost.
const FAILING: Duration = Duration::from_mins(25);

#[derive(Default)]
pub(super) struct Claims {
    /// The claims that are false now, and since when.
    since: BTreeMap<String, At>,
    /// The numbers in the metrics: of load balancers without a Service, and of nodes that can be
    /// members.
    orphans: usize,
    eligible: usize,
    /// The owners of the load balancers that the cloud had at the last list, and when that was.
    listed: (BTreeMap<String, String>, At),
}

impl Claims {
    /// Checks that a report agrees with the cloud when it is made.
    pub(super) fn hear(&mut self, effect: &Effect, cloud: &Cloud, (kind, now): (Kind, At)) {
        match effect {
            Effect::Tell(service, Tell::Deleted) => {
                let left = cloud.of(&service.uid);
                assert_eq!(
                    left,
                    Vec::<String>::new(),
                    "Events: {service:?} is reported without one"
                );
            }
            // Another cloud may have said so.
            Effect::Tell(service, Tell::Gone { id, .. }) if kind != Kind::Lies => {
                assert!(!cloud.balancers.contains_key(id), "Events: {id} of {service:?} exists");
            }
            // Another client may have deleted it since the answer.
            Effect::Tell(service, Tell::Ensured) if kind != Kind::Others => {
                assert_ne!(cloud.of(&service.uid), Vec::<String>::new(), "Events: {service:?}");
            }
            Effect::Count(Count::Audited(Ok(orphans))) => {
                let owner = |(id, uid): (&String, &str)| (id.clone(), uid.to_owned());
                self.listed = (cloud.owners().map(owner).collect(), now);
                self.orphans = *orphans;
            }
            Effect::Count(Count::Eligible(nodes)) => self.eligible = *nodes,
            _ => {}
        }
    }

    /// Checks that no claim of a Service is false for long, unless it is kept as it was. The
    /// machine may not know a change by the user yet.
    pub(super) fn check(
        &mut self,
        [api, store]: [&BTreeMap<Name, Arc<Service>>; 2],
        cloud: &Cloud,
        is_kept: impl Fn(&Service) -> bool,
        (is_slow, now): (bool, At),
    ) {
        let longest = if is_slow { FAILING } else { LONGEST };
        let is_known = |one: &&Arc<Service>| {
            let known = store.get(&one.key);
            known.is_some_and(|known| known.resource_version == one.resource_version)
        };
        let known = api.values().filter(is_known).filter(|one| !is_kept(one));
        let wrong: Vec<String> = known.filter_map(|one| false_claim(one, cloud)).collect();
        self.since.retain(|claim, _| wrong.contains(claim));
        for claim in wrong {
            let since = *self.since.entry(claim.clone()).or_insert(now);
            assert!(now.since(since) < longest, "{claim} since {since}");
        }
    }

    /// Handles a cloud that answers no call, so that no claim becomes right.
    pub(super) fn pause(&mut self) {
        self.since.clear();
    }

    /// Records that another process leads, which has to look first.
    pub(super) fn leads(&mut self) {
        *self = Self::default();
    }

    /// Checks that in the end the metrics are right. A load balancer without a Service may be gone
    /// since the last list.
    pub(super) fn right(
        &self,
        api: &BTreeMap<Name, Arc<Service>>,
        nodes: &BTreeMap<Name, Arc<Node>>,
        cloud: &Cloud,
        (lists, now): (bool, At),
    ) {
        let concerned = || api.values().filter(|service| service.concerns_load_balancers());
        let has = |uid: &str| concerned().any(|service| *service.uid == *uid);
        if lists {
            let (listed, at) = &self.listed;
            assert!(now.since(*at) < LONGEST, "Reported: nothing since {at}");
            let left: Vec<&String> =
                listed.iter().filter(|(_, uid)| !has(uid)).map(|(id, _)| id).collect();
            assert_eq!(self.orphans, left.len(), "Reported: without a Service there were {left:?}");
            let new = cloud.owners().find(|(id, uid)| !has(uid) && !left.contains(id));
            assert_eq!(new, None, "Reported: not every one without a Service");
        }
        let eligible = nodes.values().filter(|node| is_eligible(node)).count();
        assert_eq!(self.eligible, eligible, "Metrics: nodes that can be members");
    }
}

/// Returns a claim of the Service that is false now.
fn false_claim(service: &Service, cloud: &Cloud) -> Option<String> {
    let own = cloud.of(&service.uid);
    let ([] | [_]) = &own[..] else { return None };
    let one = own.first().and_then(|id| cloud.balancers.get(id));
    let says = |reason| shows(service, reason);
    let (name, details) = (&service.key, service.details.as_deref()?);
    let ports: Vec<u16> = details.ports.iter().map(|port| port.port).collect();
    if says(Reason::Serving) && one.is_none_or(|one| one.members.is_empty()) {
        return Some(format!("Claims: {name} says that {own:?} serves"));
    }
    // Only a full look shows that another client has taken its ports.
    let is_whole = one.is_some_and(|one| one.ports == ports || one.is_bare);
    if says(Reason::Provisioned) && service.is_load_balancer && !is_whole {
        return Some(format!("Claims: {name} says that {own:?} has {ports:?}"));
    }
    let shown = details.ingress.first().and_then(|ingress| ingress.ip.as_deref());
    let address = one.map(|one| one.address().to_string());
    let is_other = shown.zip(address).is_some_and(|(shown, address)| *shown != *address);
    is_other.then(|| format!("Shown: {name} shows {shown:?}, the address of another one"))
}
