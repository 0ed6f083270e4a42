//! Explains a node's pod CIDRs on the page `/explain`. It tries the allocator on a copy, so it says
//! what the node would get now.

use std::time::Duration;

use ccm_base::{At, Backoff};
use ccm_controller::queue::Pace;
use ccm_kube::ApiError;
use ccm_objects::Node;
use ccm_runtime::explain::{Explanation, NOTHING, ObjectState, WAIT, moment, refused_write};
use ipnet::IpNet;

use super::{
    Machine,
    core::{Core, Failed},
};
use crate::{
    networks::{AllocatorType, join},
    node_ipam::ipam::{Exhausted, Problem, Refusal, Rival, Unusable, Usage},
};

/// The waits of the queue after a failure.
const WAITS: Backoff = Backoff { first: Duration::ZERO, longest: Duration::from_mins(1) };
const WITHIN: &str = "it is tried again within a minute";
const NOT_STORED: &str = "find out what removes spec.podCIDRs from the write: kubectl get mutatingwebhookconfigurations, and mutatingadmissionpolicies if the cluster has them";
const NO_INSTANCE: &str = "wait if the machine is new; otherwise correct spec.providerID, which takes a new Node, or delete the Node";

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
                ObjectState::Unknown,
                format!("the API server does not show a node {name:?}"),
                "check the name",
            ),
            (core, Some(node)) if !node.pod_cidrs.is_empty() => {
                self.explain_assigned(core.as_ref(), node)
            }
            (_, Some(node)) if node.deleting => {
                Explanation::fine("the node is being deleted, and does not get podCIDRs any more")
            }
            (Some(core), Some(node)) => self.bare(core, node, anothers, now),
            (None, Some(_)) => self.not_yet(),
        };
        explanation.wanted.extend(node.map(|_| self.gives()));
        let shown = node.map(|node| match node.pod_cidrs.is_empty() {
            true => "the node does not show podCIDRs".to_owned(),
            false => format!("the node shows podCIDRs {}", node.pod_cidrs.join(",")),
        });
        explanation.there.extend(shown);
        let usage = self.core.iter().flat_map(|core| core.allocator.usage());
        explanation.there.extend(usage.map(|Usage { cluster, capacity, used, .. }| {
            format!("{used} of {capacity} blocks of {cluster} are taken")
        }));
        explanation
    }

    /// Returns the blocks that nodes get, in words.
    fn gives(&self) -> String {
        let blocks = self.fixed.config.ranges.iter();
        let blocks: Vec<_> =
            blocks.map(|range| format!("a /{} of {}", range.mask, range.network)).collect();
        let all = blocks.join(" and ");
        match self.fixed.config.allocator {
            AllocatorType::RangeAllocator => format!("podCIDRs: {all}"),
            AllocatorType::CloudAllocator => {
                "podCIDRs: the networks that the cloud has assigned to its instance".to_owned()
            }
        }
    }

    /// Explains a node with pod CIDRs.
    fn explain_assigned(&self, core: Option<&Core>, node: &Node) -> Explanation {
        let shown = node.pod_cidrs.join(",");
        let Some(core) = core.filter(|core| core.is_here(node)) else {
            let why = match self.leads {
                true => "the leader reads the nodes",
                false => "this replica does not lead",
            };
            return Explanation::fine(format!(
                "the node has podCIDRs {shown}; {why}, and has not compared them with the podCIDRs of other nodes"
            ));
        };
        let problems = core.problems().get(&*node.uid).copied().unwrap_or_default();
        let wrong = problems.iter().find(|problem| !matches!(problem, Problem::Size { .. }));
        match wrong.or(problems.first()) {
            Some(problem) => match problem.parts() {
                (what, None) => Explanation::fine(what),
                (cause, Some(fix)) => Explanation {
                    last: problems.iter().map(ToString::to_string).collect(),
                    ..Explanation::new(ObjectState::Blocked, cause, fix)
                },
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

    /// Explains a node that was not read in a term.
    fn not_yet(&self) -> Explanation {
        match self.leads {
            true => Explanation::new(
                ObjectState::Working,
                "the node does not have podCIDRs, and node-ipam reads all nodes before it assigns any",
                "wait: that takes seconds",
            ),
            false => Explanation::new(
                ObjectState::Unknown,
                "the node does not have podCIDRs, and this replica does not lead, so it does not assign any",
                "ask the replica that leads",
            ),
        }
    }

    /// Explains a node that needs pod CIDRs.
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
            (Some((at, Failed::NotStored)), _) => Explanation {
                last: vec![format!("the write was answered {}", moment(*at, now))],
                next: WITHIN.to_owned(),
                ..Explanation::new(ObjectState::Blocked, why.unwrap_or_default(), NOT_STORED)
            },
            (Some((at, failed)), _) => self.of_cloud(core, node, failed, *at, now),
            (None, _) if is_cloud => self.asked(core, node),
            (None, _) => self.tried(core, node, now),
        }
    }

    /// Explains a node for which the cloud has answered, and which has got nothing.
    fn of_cloud(&self, core: &Core, node: &Node, failed: &Failed, at: At, now: At) -> Explanation {
        let again = |pace| format!("the cloud is asked again {pace}");
        let usual = again(Pace::Backoff(WAITS));
        let (explanation, next) = match failed {
            Failed::Lookup(error) => {
                let cause = format!("cannot look up its instance: {error}");
                (
                    Explanation::of_error(error, cause),
                    again(Pace::after_error(error.class(), WAITS)),
                )
            }
            Failed::Unusable(Unusable { cause, fix }) => {
                (Explanation::new(ObjectState::Blocked, cause, fix), usual)
            }
            Failed::NoInstance => {
                let cause = "the cloud does not have an instance for it";
                (Explanation::new(ObjectState::Blocked, cause, NO_INSTANCE), usual)
            }
            Failed::Refused(refusal) if core.still(refusal) => {
                (refused(refusal), WITHIN.to_owned())
            }
            _ => return self.asked(core, node),
        };
        let last = vec![format!("the cloud was asked {}", moment(at, now))];
        Explanation { last, next, ..explanation }
    }

    /// Explains a node for which the cloud decides and has not failed.
    fn asked(&self, core: &Core, node: &Node) -> Explanation {
        self.reserved_for(core, node).unwrap_or_else(|| {
            Explanation::new(
                ObjectState::Working,
                "the cloud is being asked for its instance",
                WAIT,
            )
        })
    }

    /// Explains a node for which blocks are reserved.
    fn reserved_for(&self, core: &Core, node: &Node) -> Option<Explanation> {
        let (cidrs, is_pending) = core.allocator.reserved(&node.uid)?;
        if self.fixed.is_observing {
            return Some(Explanation::observed(""));
        }
        let cause = format!(
            "podCIDRs {} are being written, and the API server has not answered yet",
            join(cidrs)
        );
        is_pending.then(|| Explanation::new(ObjectState::Working, cause, WAIT))
    }

    /// Explains a node by the answer of a copy of the allocator.
    fn tried(&self, core: &Core, node: &Node, now: At) -> Explanation {
        match core.allocator.clone().reserve(node, now) {
            Ok(reservation) => self.reserved_for(core, node).unwrap_or_else(|| {
                let cidrs = join(&reservation.cidrs);
                let cause =
                    format!("the node waits for its turn, and would get podCIDRs {cidrs} now");
                Explanation::new(ObjectState::Working, cause, WAIT)
            }),
            Err(refusal) => {
                let next = match (&refusal, core.allocator.next_release()) {
                    (Refusal::Exhausted(_), Some(at)) => {
                        format!("blocks of nodes that are gone become free {}", moment(at, now))
                    }
                    (Refusal::Exhausted(_), None) => {
                        "as soon as a block is free: a node or a route is deleted".to_owned()
                    }
                    _ => WITHIN.to_owned(),
                };
                Explanation { next, ..refused(&refusal) }
            }
        }
    }
}

impl Core {
    /// Returns true if the reason may still hold. Its end queues the node.
    fn still(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::RoutesUnknown => !self.allocator.knows_routes(),
            Refusal::Stopped(_) => self.is_stopped(),
            _ => true,
        }
    }

    /// Explains a write that the API server has refused.
    fn not_written(&self, node: &Node, error: &ApiError, at: At, now: At) -> Explanation {
        let kept = self.allocator.reserved(&node.uid).map(|(cidrs, _)| join(cidrs));
        let kept = kept.unwrap_or_default();
        let (state, fix) = refused_write(error);
        let cause = format!("the write of podCIDRs {kept} has failed: {error}");
        Explanation {
            last: vec![format!("the write failed {}", moment(at, now))],
            next: format!("the write is repeated {}", Pace::after_error(error.class(), WAITS)),
            ..Explanation::new(state, cause, fix)
        }
    }

    /// Explains a node that the API server does not show. Its blocks may be held.
    fn no_node(&self, name: &str, now: At) -> Explanation {
        let Some((blocks, since, waiting)) = self.allocator.held_by(name).next() else {
            let cause = format!(
                "the API server does not show a node {name:?}, and no block is held for a node of this name that this leader has seen"
            );
            return Explanation::new(ObjectState::Unknown, cause, "check the name");
        };
        let (blocks, since) = (join(blocks), moment(since, now));
        let (until, fix) = match waiting.first() {
            Some(cidr) => (
                format!("no route leads to {}", join(waiting)),
                format!("wait; the page kind=Route&name={cidr} says what keeps the route"),
            ),
            None => ("half a minute has passed".to_owned(), WAIT.to_owned()),
        };
        let cause = format!(
            "the node is gone ({since}), and its blocks {blocks} are not given to another node until {until}"
        );
        Explanation::new(ObjectState::Working, cause, fix)
    }
}

/// Explains why the allocator does not assign blocks now.
fn refused(refusal: &Refusal) -> Explanation {
    let blocked = |cause, fix| Explanation::new(ObjectState::Blocked, cause, fix);
    match refusal {
        Refusal::Stopped(rival) => blocked(rival.cause(), Rival::MEND),
        Refusal::Exhausted(exhausted) => blocked(exhausted.cause(), Exhausted::MEND),
        Refusal::Taken(problem) => {
            let (cause, fix) = problem.parts();
            blocked(cause, fix.unwrap_or(NOTHING))
        }
        Refusal::RoutesUnknown => Explanation::new(
            ObjectState::Working,
            format!("blocks are not given before the first list of routes: {refusal}"),
            "wait for the first list; routes says on this page why it is missing",
        ),
        Refusal::Assigned => Explanation::new(
            ObjectState::Working,
            "the node has got podCIDRs, and the nodes as they are read here do not show that yet",
            WAIT,
        ),
        Refusal::Deleting => Explanation::fine(refusal.to_string()),
    }
}

fn foreign(why: &str) -> Explanation {
    let cause = format!("the node does not get podCIDRs: {why}");
    Explanation::new(ObjectState::Foreign, cause, NOTHING)
}

#[cfg(test)]
mod tests;
