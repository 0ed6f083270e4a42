//! What the page `/explain` says of a node's pod CIDRs. It tries the allocator on a copy, so it says what the node would
//! get now.

use std::time::Duration;

use ccm_base::{At, Backoff};
use ccm_controller::queue::Pace;
use ccm_kube::ApiError;
use ccm_objects::Node;
use ccm_runtime::explain::{Explanation, Fares, NOTHING, moment};
use ipnet::IpNet;

use super::{
    Machine,
    core::{Core, Failed},
};
use crate::{
    advice::{of_error, split},
    networks::{AllocatorType, join},
    node_ipam::ipam::{Problem, Refusal, Usage},
};

/// The waits of the queue after a failure.
const WAITS: Backoff = Backoff { first: Duration::ZERO, longest: Duration::from_mins(1) };
const WITHIN: &str = "it is tried again within a minute";
const NOT_STORED: &str = "find what takes spec.podCIDRs out of the write: kubectl get mutatingwebhookconfigurations, and mutatingadmissionpolicies where there are some";
const WAIT: &str = "wait: nothing has to be done";

impl Machine {
    /// Explains the pod CIDRs of a node. `anothers`: why it is another provider's, if it is.
    pub(crate) fn explain(
        &self,
        name: &str,
        node: Option<&Node>,
        anothers: Option<&str>,
        now: At,
    ) -> Explanation {
        let mut explanation = match (&self.core, node) {
            (Some(core), None) => core.no_node(name, now),
            (None, None) => Explanation::new(
                Fares::Unknown,
                format!("the API server shows no node {name:?}"),
                "check the name",
            ),
            (core, Some(node)) if !node.pod_cidrs.is_empty() => self.has_some(core.as_ref(), node),
            (_, Some(node)) if node.deleting => {
                Explanation::fine("the node has no podCIDRs and is being deleted: it gets none")
            }
            (Some(core), Some(node)) => self.bare(core, node, anothers, now),
            (None, Some(_)) => self.not_yet(),
        };
        explanation.wanted.extend(node.map(|_| self.gives()));
        let shown = node.map(|node| match node.pod_cidrs.is_empty() {
            true => "the node shows no podCIDRs".to_owned(),
            false => format!("the node shows podCIDRs {}", node.pod_cidrs.join(",")),
        });
        explanation.there.extend(shown);
        let usage = self.core.iter().flat_map(|core| core.allocator.usage());
        explanation.there.extend(usage.map(|Usage { cluster, capacity, used, .. }| {
            format!("{used} of {capacity} blocks of {cluster} are taken")
        }));
        explanation
    }

    /// What nodes get.
    fn gives(&self) -> String {
        let blocks = self.fixed.config.ranges.iter();
        let blocks: Vec<_> =
            blocks.map(|range| format!("a /{} of {}", range.mask, range.network)).collect();
        let all = blocks.join(" and ");
        match self.fixed.config.allocator {
            AllocatorType::RangeAllocator => format!("podCIDRs: {all}"),
            AllocatorType::CloudAllocator => {
                "podCIDRs: those that the cloud has assigned to its instance".to_owned()
            }
        }
    }

    /// A node with pod CIDRs.
    fn has_some(&self, core: Option<&Core>, node: &Node) -> Explanation {
        let shown = node.pod_cidrs.join(",");
        let Some(core) = core.filter(|core| core.is_here(node)) else {
            let why = match self.leads {
                true => "the leader reads the nodes",
                false => "this replica does not lead",
            };
            return Explanation::fine(format!(
                "the node has podCIDRs {shown}; {why}, and has not compared them with those of other nodes"
            ));
        };
        let problems = core.problems().get(&*node.uid).copied().unwrap_or_default();
        let wrong = problems.iter().find(|problem| !matches!(problem, Problem::Size { .. }));
        match wrong.or(problems.first()) {
            Some(problem @ Problem::Size { .. }) => Explanation::fine(problem.to_string()),
            Some(problem) => Explanation {
                last: problems.iter().map(ToString::to_string).collect(),
                ..split(Fares::Blocked, &problem.to_string())
            },
            None => {
                let ranges: Vec<IpNet> =
                    self.fixed.config.ranges.iter().map(|range| range.network).collect();
                let inside = match ranges.is_empty() {
                    true => String::new(),
                    false => format!(", inside of --cluster-cidr {}", join(&ranges)),
                };
                Explanation::fine(format!(
                    "the node has podCIDRs {shown}{inside}, and no other node has a part of them"
                ))
            }
        }
    }

    /// The nodes were not read in a term.
    fn not_yet(&self) -> Explanation {
        match self.leads {
            true => Explanation::new(
                Fares::Working,
                "the node has no podCIDRs, and all nodes are being read before any gets some",
                "wait: that takes seconds",
            ),
            false => Explanation::new(
                Fares::Unknown,
                "the node has no podCIDRs, and this replica does not lead: it assigns none",
                "ask the replica that leads",
            ),
        }
    }

    /// A node that needs pod CIDRs.
    fn bare(&self, core: &Core, node: &Node, anothers: Option<&str>, now: At) -> Explanation {
        let failed = core.failed.get(&node.name).filter(|_| core.is_here(node));
        let why = core.waiting.why(&node.name).filter(|_| core.is_here(node));
        let is_cloud = self.fixed.config.allocator == AllocatorType::CloudAllocator;
        match (failed, anothers) {
            (_, Some(why)) if is_cloud => foreign(why),
            (Some((at, Failed::NotOurs)), _) => foreign(&format!(
                "the cloud says that its instance is not its own ({})",
                moment(*at, now)
            )),
            (Some((at, Failed::Write(error))), _) => core.not_written(node, error, *at, now),
            (Some((at, Failed::Lookup(error))), _) => Explanation {
                last: vec![format!("the cloud was asked {}", moment(*at, now))],
                next: format!("the cloud is asked again {}", Pace::of(error.class(), WAITS)),
                ..of_error(error, why.unwrap_or_else(|| error.to_string()))
            },
            (Some((at, Failed::NotStored)), _) => Explanation {
                last: vec![format!("the write was answered {}", moment(*at, now))],
                next: WITHIN.to_owned(),
                ..Explanation::new(Fares::Blocked, why.unwrap_or_default(), NOT_STORED)
            },
            (None, _) if is_cloud => of_cloud(why),
            (None, _) => self.tried(core, node, now),
        }
    }

    /// What the allocator says.
    fn tried(&self, core: &Core, node: &Node, now: At) -> Explanation {
        let reserved = core.allocator.reserved(&node.uid);
        let being_written = reserved.filter(|(_, is_pending)| *is_pending);
        let being_written = being_written.map(|(cidrs, _)| join(cidrs));
        let cidrs = match core.allocator.clone().reserve(node, now) {
            Ok(reservation) => join(&reservation.cidrs),
            Err(refusal) => {
                let mut explanation = refused(&refusal);
                let free = core.allocator.next_release();
                explanation.next = match (&refusal, free) {
                    (Refusal::Exhausted(_), Some(at)) => {
                        format!("blocks of nodes that are gone become free {}", moment(at, now))
                    }
                    (Refusal::Exhausted(_), None) => {
                        "as soon as a block is free: a node goes, or a route".to_owned()
                    }
                    _ => WITHIN.to_owned(),
                };
                return explanation;
            }
        };
        match being_written {
            _ if self.fixed.is_observing => Explanation::new(
                Fares::Working,
                format!("--mode=observe writes nothing; the node would get podCIDRs {cidrs}"),
                "nothing has to be done; the program that assigns podCIDRs does it, or this one with --mode=control",
            ),
            Some(cidrs) => Explanation::new(
                Fares::Working,
                format!(
                    "podCIDRs {cidrs} are being written, and the API server has not answered yet"
                ),
                WAIT,
            ),
            None => Explanation::new(
                Fares::Working,
                format!("the node waits for its turn, and would get podCIDRs {cidrs} now"),
                WAIT,
            ),
        }
    }
}

impl Core {
    /// The API server has refused the write.
    fn not_written(&self, node: &Node, error: &ApiError, at: At, now: At) -> Explanation {
        let kept = self.allocator.reserved(&node.uid).map(|(cidrs, _)| join(cidrs));
        let kept = kept.unwrap_or_default();
        let (fares, mend) = match error {
            ApiError::Forbidden(_) => (
                Fares::Blocked,
                "give the account of route-ccm the right to patch nodes (kubectl auth can-i), or change the admission policy or webhook that denies it",
            ),
            ApiError::Unauthorized | ApiError::Credentials(_) => {
                (Fares::Blocked, "renew the credentials of route-ccm for the API server")
            }
            ApiError::Invalid(_) => (Fares::Blocked, "change what the API server names"),
            _ => (Fares::Working, "wait; if it lasts, look at the API server"),
        };
        let cause = format!("the write of podCIDRs {kept} has failed: {error}");
        Explanation {
            last: vec![format!("the write failed {}", moment(at, now))],
            next: format!("the write is repeated {}", Pace::of(error.class(), WAITS)),
            ..Explanation::new(fares, cause, mend)
        }
    }

    /// A node that the API server does not show. Its blocks may be held.
    fn no_node(&self, name: &str, now: At) -> Explanation {
        let Some((blocks, since, waiting)) = self.allocator.held_by(name).next() else {
            let cause =
                format!("the API server shows no node {name:?}, and no block is held for it");
            return Explanation::new(Fares::Unknown, cause, "check the name");
        };
        let (blocks, since) = (join(blocks), moment(since, now));
        let (until, mend) = match waiting.first() {
            Some(cidr) => (
                format!("no route leads to {}", join(waiting)),
                format!("wait; what keeps the route is on the page kind=Route&name={cidr}"),
            ),
            None => ("half a minute has passed".to_owned(), WAIT.to_owned()),
        };
        let cause = format!(
            "the node is gone ({since}), and its blocks {blocks} are given to no other node until {until}"
        );
        Explanation::new(Fares::Working, cause, mend)
    }
}

/// The allocator gives none now.
fn refused(refusal: &Refusal) -> Explanation {
    let text = refusal.to_string();
    match refusal {
        Refusal::Stopped(_) | Refusal::Exhausted(_) | Refusal::Taken(_) => {
            split(Fares::Blocked, &text)
        }
        Refusal::RoutesUnknown => Explanation::new(
            Fares::Working,
            format!("no block is given before the first list of routes: {text}"),
            "wait for the first list; routes says on this page why there is none",
        ),
        Refusal::Assigned | Refusal::Deleting => Explanation::fine(text),
    }
}

/// The cloud decides.
fn of_cloud(why: Option<String>) -> Explanation {
    let next = format!("the cloud is asked again {}", Pace::Backoff(WAITS));
    let explanation = match why {
        Some(why) if why.contains(": ") => split(Fares::Blocked, &why),
        Some(why) => Explanation::new(
            Fares::Blocked,
            why,
            "wait if the machine is new; otherwise correct spec.providerID, which takes a new Node, or delete the Node",
        ),
        None => Explanation::new(Fares::Working, "the cloud is being asked for its instance", WAIT),
    };
    Explanation { next, ..explanation }
}

fn foreign(why: &str) -> Explanation {
    let cause = format!("the node gets no podCIDRs: {why}");
    Explanation::new(Fares::Foreign, cause, NOTHING)
}

#[cfg(test)]
mod tests;
