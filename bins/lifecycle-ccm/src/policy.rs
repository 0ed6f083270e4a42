//! The deletion policy: decides from the cloud's answers whether to delete a node.
//!
//! It has no clock, no I/O and no `async`: the caller passes the time in as [`At`]. A pass of
//! the controller is
//!
//! ```text
//! agenda(now, views) -> calls to the cloud -> decide(now, views, answers) -> decisions
//! ```
//!
//! with the current views at each of the two moments. A decision with [`Verdict::Delete`] has taken
//! budget; [`Decider::deleted`] records the result of the deletion.
//!
//! A node is deleted only if all of these conditions hold, checked in this order:
//!
//! 1. It is owned by this provider, selected, not being deleted, and not Ready; or it is Ready on
//!    another machine than before, and `--replaced-nodes=delete` is set.
//! 2. A lookup of this node (same UID) has reported its instance as gone, it is not protected, and
//!    it has a provider ID or `--ghost-deletion` allows its deletion.
//! 3. Its kubelet has not renewed its Lease since the first such lookup. (Not for a Ready node.)
//! 4. It was past its grace period when the lookup began.
//! 5. A confirmation period later, another lookup has reported the same, and the Lease was read
//!    again. A cloud without a list needs three answers.
//! 6. A list of the fleet that was read after the first lookup does not contain it; a cloud without
//!    a list needs witnesses.
//! 7. The breaker is closed, and the budget is not used up. A person's approval replaces both, an
//!    autoscaler's mark the budget.
//!
//! `docs/explanation/deletion-court.md` explains this to operators.
//!
//! | module | what it holds |
//! |---|---|
//! | `decide` | the rules, in order: what follows from the answers about a node |
//! | `agenda` | which nodes are looked up next, and whether the fleet is listed |
//! | `record` | the memory of one node: its open case, and what the case still needs |
//! | `breaker` | whether the list of the fleet is plausible |
//! | `decision`, `text` | the verdicts, reasons and doubts; decisions as text |
//! | `input`, `parameters` | the nodes and the cloud's answers as the policy sees them; the operator's parameters |
//! | [`action`], [`shutdown`] | decided writes that are not executed yet; the step for the shutdown taint |
//! | `backlog` | how long nodes wait for a verdict, for metrics |

pub mod action;
mod agenda;
pub(crate) mod backlog;
mod breaker;
mod decide;
mod decision;
mod input;
mod parameters;
mod record;
pub mod shutdown;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use ccm_controller::brake::{Brake, Usage, Window};
use serde::{Deserialize, Serialize};

use self::record::Record;

pub use ccm_base::At;
pub use ccm_controller::brake::Limit;

pub use self::{
    agenda::{Abilities, Agenda, LOOKUPS_PER_PASS, WITNESSES},
    breaker::{Breaker, Cause, PROVEN},
    decision::{Decision, Doubt, Evidence, ListCoverage, Proof, Reason, Source, Verdict},
    input::{Answers, Heartbeat, Listing, LookedUp, NodeView},
    parameters::{Ghosts, Policy, Replaced},
};

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionOutcome {
    /// The node is deleted, though it may still be in the views.
    Done,
    /// Not sent, or the node has changed: the case stays open, and its budget is released.
    NotDone,
    /// The API server refuses it. As [`DeletionOutcome::NotDone`], but retried later and after the
    /// other nodes.
    Refused,
    /// Unknown. The case stays open and keeps its budget.
    Uncertain,
    /// Nothing was sent, because the program only observes. The case stays open, and its budget is
    /// released.
    Observed,
}

/// The number of nodes by state, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Nodes that are not Ready, or on a replaced machine, and that the policy applies to.
    pub watched: usize,
    /// The nodes among them with an open case: a lookup reported the instance as gone.
    pub suspected: usize,
    /// The suspected nodes that are Ready, on another machine.
    pub replaced: usize,
}

/// The memory of one leader: cases, breaker and budget. A new leader starts without cases, so
/// that every node needs a fresh confirmation, and with the budget that the last one left.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Decider {
    records: HashMap<Arc<str>, Record>,
    brake: Brake<Cause>,
    /// When the fleet was last listed, with or without success.
    listed: Option<At>,
    /// True if a list of the fleet has been read.
    has_seen: bool,
    /// Since when every list has shown most of the Ready nodes.
    shown_since: Option<At>,
    /// Nodes that the provider cannot answer for, by UID: they are missing in every list.
    unjudged: HashSet<Box<str>>,
    /// Ready nodes that the last list lacks, and that have not been looked up since then.
    unlisted: BTreeSet<Arc<str>>,
    /// The monitor period that determines when nodes are due.
    period: Duration,
    abilities: Abilities,
}

impl Decider {
    /// Returns a memory that is empty except for the last leader's deletions.
    pub fn resume(now: At, window: Window) -> Self {
        Self { brake: Brake::resume(now, window), ..Self::default() }
    }

    /// Returns the deletions that still count for the budget, for the next leader.
    pub fn window(&self, now: At, policy: &Policy) -> Window {
        let changes = self.brake.window().after(now - policy.deletions().window);
        changes.map(|(at, uid)| (at, uid.into())).collect()
    }

    /// Adapts the next agenda to the cloud.
    pub fn adapt_to(&mut self, abilities: Abilities) {
        self.abilities = abilities;
    }

    /// Returns the breaker: holds deletions because of what the last list showed.
    pub fn breaker(&self) -> &Breaker {
        self.brake.breaker()
    }

    /// Returns the current budget, for gauges.
    pub fn budget(&self, now: At, views: &[NodeView], policy: &Policy) -> Usage {
        self.brake.usage(now, self.known(views, policy).count(), policy.deletions())
    }

    /// Returns the number of watched and suspected nodes.
    pub fn counts(&self) -> Counts {
        let cases = self.records.values().filter(|record| record.case.is_some());
        Counts {
            watched: self.records.len(),
            suspected: cases.clone().count(),
            replaced: cases.filter(|record| record.was_ready).count(),
        }
    }

    /// Returns how long the oldest open case has been open; `None` without an open case.
    pub fn oldest_case(&self, now: At) -> Option<Duration> {
        let cases = self.records.values().filter_map(|record| record.case.as_ref());
        cases.map(|case| now.since(case.opened())).max()
    }

    /// Records the result of a deletion.
    pub fn deleted(
        &mut self,
        now: At,
        decision: &Decision,
        outcome: DeletionOutcome,
        policy: &Policy,
    ) {
        let record = self.records.get_mut(&decision.name);
        let record = record.filter(|record| record.uid == decision.uid);
        match outcome {
            // The window counts from the deletion: it may have waited behind others.
            DeletionOutcome::Done | DeletionOutcome::Uncertain => {
                self.brake.renew(now, &decision.uid);
            }
            // The informer may still show a node that an earlier deletion has deleted.
            _ if record.as_ref().is_some_and(|record| record.answer_was_lost) => {}
            DeletionOutcome::NotDone | DeletionOutcome::Refused | DeletionOutcome::Observed => {
                self.brake.release(&decision.uid);
            }
        }
        if let Some(record) = record {
            record.answer_was_lost |= outcome == DeletionOutcome::Uncertain;
            record.deleted = outcome == DeletionOutcome::Done;
            record.refused = outcome == DeletionOutcome::Refused;
            record.look_again = match outcome {
                DeletionOutcome::Refused | DeletionOutcome::Observed => {
                    agenda::held_until(now, policy)
                }
                _ => At::default(),
            };
        }
    }

    /// Forgets nodes that were deleted, became Ready, were recreated or left the policy's reach,
    /// and adds new nodes in reach. Returns a decision for each case that this closed.
    fn track(&mut self, views: &[NodeView]) -> Vec<Decision> {
        let by_name: HashMap<&str, &NodeView> =
            views.iter().map(|view| (&*view.name, view)).collect();
        let mut ended = Vec::new();
        self.records.retain(|name, record| {
            let same = by_name.get(&**name).filter(|view| view.uid == record.uid);
            let reason = same.map_or(Some(Reason::AnotherNode), |node| decide::exempt(node));
            if let (Some(reason), Some(case)) = (reason, &record.case) {
                ended.push(Decision {
                    name: Arc::clone(name),
                    uid: record.uid.clone(),
                    verdict: Verdict::Keep(reason),
                    since: Some(case.opened()),
                    evidence: case.evidence(None),
                    approved: false,
                });
            }
            reason.is_none()
        });
        if !self.unjudged.is_empty() {
            let uids: HashSet<&str> = views.iter().map(|view| &*view.uid).collect();
            self.unjudged.retain(|uid| uids.contains(&**uid));
        }
        for view in views.iter().filter(|view| view.is_watched()) {
            match self.records.get_mut(&view.name) {
                Some(record) => record.update(view),
                None => {
                    self.records.insert(Arc::clone(&view.name), Record::new(view));
                }
            }
        }
        ended.sort_by(|a, b| a.name.cmp(&b.name));
        ended
    }
}
