//! Finds the targets that the cloud confirms. A node reports its addresses itself. So a route
//! without a recorded owner belongs to this cluster only if the cloud says that the address belongs
//! to the node's instance.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use ccm_base::{At, Backoff};
use ccm_cloud::{ErrorKind, Instance, Lookup, LookupResult, RouteTarget};
use ccm_controller::identity::Agreement;
use ccm_objects::{Node, parse_ip};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{pairs, targets::KEPT};

/// The wait before the cloud is asked again about a target that it has not confirmed, or after an error.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(15), longest: Duration::from_mins(10) };

/// A node, and the targets of it that the cloud has not confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The node.
    pub node: Arc<Node>,
    /// The targets.
    pub targets: Vec<RouteTarget>,
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// The cloud has confirmed it, or cannot be asked.
    Counts,
    /// The cloud is being asked.
    Open,
    /// The cloud knows nothing of it.
    Denied,
}

/// The last answer about a target that is not confirmed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Case {
    /// The UID of the node.
    uid: Box<str>,
    word: Word,
    /// The last answer was that the credentials are not valid.
    is_unauthorized: bool,
    answers: u32,
    due: At,
}

/// The targets that the cloud has confirmed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Claims {
    /// The targets, with the time since when no route has had the target.
    #[serde(with = "pairs")]
    confirmed: HashMap<RouteTarget, Option<At>>,
    /// The routes that this process has made, with the same time. They belong to this cluster,
    /// wherever they lead.
    #[serde(with = "pairs")]
    made: HashMap<(IpNet, RouteTarget), Option<At>>,
    #[serde(with = "pairs")]
    open: HashMap<RouteTarget, Case>,
}

impl Claims {
    /// Returns true if the target of a route was confirmed. A node has no name but its own, so names need no answer.
    pub(super) fn confirms(&self, destination: IpNet, target: &RouteTarget) -> bool {
        let is_made = || self.made.contains_key(&(destination.trunc(), target.clone()));
        let is_name = matches!(target, RouteTarget::Node(_));
        is_name || self.confirmed.contains_key(target) || is_made()
    }

    /// Returns the state of the claim to a target that this node names, or has named, as its own.
    pub(super) fn word(&self, target: &RouteTarget, node: &Node) -> Word {
        self.case(target, node).map_or(Word::Open, |case| case.word)
    }

    /// Returns true if route-ccm should ask about such a target now.
    pub(super) fn is_due(&self, now: At, target: &RouteTarget, node: &Node) -> bool {
        self.case(target, node).is_none_or(|case| case.due <= now)
    }

    fn case(&self, target: &RouteTarget, node: &Node) -> Option<&Case> {
        self.open.get(target).filter(|case| case.uid == node.uid)
    }

    /// Returns when the next question is due.
    pub(super) fn next(&self, now: At) -> Option<At> {
        self.open.values().map(|case| case.due).filter(|due| *due > now).min()
    }

    /// Records that the cloud has answered about the instance of a node.
    pub(super) fn record_answer(&mut self, now: At, claim: Claim, answer: &LookupResult) {
        let Claim { node, targets } = claim;
        let is_unauthorized =
            answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Unauthorized);
        for target in targets {
            let was_unauthorized =
                || self.case(&target, &node).is_some_and(|case| case.is_unauthorized);
            let word = match answer {
                Ok(Lookup::Found(instance)) if has(instance, &node, &target) => {
                    self.open.remove(&target);
                    self.confirmed.insert(target, None);
                    continue;
                }
                Ok(_) => Word::Denied,
                // The node's own statement counts, as with a cloud without instances. A token that
                // has just expired is not valid either, so one such answer is not enough.
                Err(error)
                    if cannot_be_asked(error.kind) && (!is_unauthorized || was_unauthorized()) =>
                {
                    Word::Counts
                }
                Err(_) => self.case(&target, &node).map_or(Word::Open, |case| case.word),
            };
            let answers = self.case(&target, &node).map_or(0, |case| case.answers) + 1;
            let (uid, due) = (node.uid.clone(), now + AGAIN.after(answers));
            self.open.insert(target, Case { uid, word, is_unauthorized, answers, due });
        }
    }

    /// Records that this process has made a route.
    pub(super) fn made(&mut self, destination: IpNet, target: RouteTarget) {
        self.made.insert((destination.trunc(), target), None);
    }

    /// Forgets what no route of the table has had for a while. A call to create one may be carried out late.
    pub(super) fn retain(&mut self, now: At, in_table: &HashSet<&RouteTarget>) {
        let keeps = |target: &RouteTarget, absent: &mut Option<At>| {
            if in_table.contains(target) {
                *absent = None;
                return true;
            }
            now.since(*absent.get_or_insert(now)) < KEPT
        };
        self.confirmed.retain(|target, absent| keeps(target, absent));
        self.made.retain(|(_, target), absent| keeps(target, absent));
        self.open.retain(|target, _| in_table.contains(target));
    }
}

/// Returns true if the cloud offers no instances, or refuses to show them to these credentials, as OpenStack does with
/// access rules.
const fn cannot_be_asked(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unsupported | ErrorKind::Forbidden | ErrorKind::Unauthorized)
}

/// Returns true if the instance has this target, and is the node's if only its ID says so.
fn has(instance: &Instance, node: &Node, target: &RouteTarget) -> bool {
    match target {
        RouteTarget::Address(address) => {
            instance.addresses.iter().any(|one| parse_ip(&one.address) == Some(*address))
        }
        RouteTarget::Instance(id) => {
            let is_its = instance.provider_id == *id || instance.other_ids.contains(id);
            is_its && Agreement::between(node, instance) > Agreement::Nothing
        }
        RouteTarget::Node(name) => **name == *node.name,
        RouteTarget::Blackhole(_) => false,
    }
}

#[cfg(test)]
mod tests;
