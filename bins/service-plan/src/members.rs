//! Which members a load balancer is to have: how its members follow the nodes, and when they
//! do not.
//!
//! A node that joins becomes a member at once. A member whose node is gone, or is not eligible
//! any more, leaves
//!
//! * at once, if that was **meant**: the node was marked for scale-down before it went, or a
//!   user approved it;
//! * at once, if its node has the exclusion label, as long as fewer than half of the members
//!   got it within the window: more look like a mistake, and are held;
//! * otherwise as the kit's **brake** allows: a list of nodes that is short by mistake empties no
//!   load balancer.
//!
//! A member whose provider ID or first address changes is replaced; the brake counts that as
//! well. The last member never leaves.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::{Member, Members};
use ccm_controller::brake::{Brake, Budget, Hold};

use super::eligible::{Eligible, Excluded};

/// Members have no breaker: each is decided by the budget alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBreaker {}

/// The members of one load balancer as far as they are known, and what has left it lately.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    known: BTreeMap<Arc<str>, Known>,
    brake: Brake<NoBreaker>,
    /// The members that left because of the exclusion label, and when.
    labelled: BTreeMap<Arc<str>, At>,
}

/// A member as the load balancer has it.
#[derive(Clone, Debug)]
struct Known {
    member: Member,
    /// Whether the node was marked for scale-down when it was last seen.
    marked: bool,
}

/// Why a member may not leave or be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Too many have left within the window.
    Budget(Hold),
    /// Half of the members have got the exclusion label within the window.
    Label,
    /// It is the last member.
    Last,
}

/// The decision about a load balancer's members.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What the members are to be.
    pub members: Members,
    /// Whether that differs from what is known.
    pub changes: bool,
    /// The members that are held, by node.
    pub held: BTreeMap<Arc<str>, Held>,
}

impl Membership {
    /// Applies what the cloud has shown. Members of no known node are left out: they are
    /// somebody else's.
    pub fn shown(&mut self, members: &[Member]) {
        let old = std::mem::take(&mut self.known);
        for member in members.iter().filter(|member| !member.node.is_empty()) {
            let marked = old.get(&*member.node).is_some_and(|known| known.marked);
            let known = Known { member: member.clone(), marked };
            self.known.insert(member.node.as_str().into(), known);
        }
    }

    /// Applies a change that the cloud has made.
    pub fn applied(&mut self, members: &Members) {
        for member in &*members.absent {
            self.known.remove(&*member.node);
        }
        for member in &*members.present {
            let known = self.known.entry(member.node.as_str().into());
            let known = known.or_insert_with(|| Known { member: member.clone(), marked: false });
            known.member = member.clone();
        }
    }

    /// What the members are to be. `approved` says of a node whether a user has approved that
    /// it leaves.
    ///
    /// A member that may leave is charged once, no matter how often this is asked before the
    /// change is made.
    pub fn decide(
        &mut self,
        now: At,
        eligible: &Eligible,
        budget: Budget,
        approved: impl Fn(&str) -> bool,
    ) -> Decision {
        self.note_marks(eligible);
        self.labelled.retain(|_, at| *at + budget.window > now);
        let mut decision = Decision::default();
        let mut present: BTreeMap<Arc<str>, Member> = eligible.members.clone();
        let mut absent: BTreeMap<Arc<str>, Member> = BTreeMap::new();
        for name in present.keys().filter(|name| !self.known.contains_key(*name)) {
            decision.changes = true;
            // It is back: when it leaves again, that counts anew.
            self.brake.release(name);
        }
        for name in self.known.keys().cloned().collect::<Vec<_>>() {
            let Some(Known { member, marked }) = self.known.get(&name).cloned() else { continue };
            let wanted = eligible.members.get(&name);
            if wanted.is_some_and(|wanted| wanted.is_shown_as(&member)) {
                self.brake.release(&name);
                continue;
            }
            let outcome = match eligible.excluded.get(&name) {
                _ if marked || approved(&name) => Ok(()),
                Some(Excluded::Label) => self.leaves_by_label(now, &name),
                _ => {
                    let population = self.known.len();
                    self.brake.request(now, &name, population, budget).map_err(Held::Budget)
                }
            };
            match outcome {
                Ok(()) => {
                    decision.changes = true;
                    if wanted.is_none() {
                        absent.insert(name, member);
                    }
                }
                Err(why) => {
                    present.insert(Arc::clone(&name), member);
                    decision.held.insert(name, why);
                }
            }
        }
        if present.is_empty()
            && let Some((name, member)) = absent.pop_first()
        {
            decision.held.insert(Arc::clone(&name), Held::Last);
            present.insert(name, member);
            decision.changes = !absent.is_empty();
        }
        decision.members = Members {
            present: present.into_values().collect(),
            absent: absent.into_values().collect(),
        };
        decision
    }

    /// Remembers which nodes are marked for scale-down: a node that goes keeps the mark that it
    /// had.
    fn note_marks(&mut self, eligible: &Eligible) {
        for (name, known) in &mut self.known {
            match eligible.excluded.get(name) {
                Some(Excluded::ScaleDown) => known.marked = true,
                Some(_) => known.marked = false,
                None if eligible.members.contains_key(name) => known.marked = false,
                None => {}
            }
        }
    }

    /// Lets a member with the exclusion label leave, if fewer than half have it.
    fn leaves_by_label(&mut self, now: At, name: &Arc<str>) -> Result<(), Held> {
        if self.labelled.contains_key(name) {
            return Ok(());
        }
        let gone = self.labelled.keys().filter(|name| !self.known.contains_key(*name)).count();
        let all = self.known.len() + gone;
        if (self.labelled.len() + 1) * 2 > all {
            return Err(Held::Label);
        }
        self.labelled.insert(Arc::clone(name), now);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
