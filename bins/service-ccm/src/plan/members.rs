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
//! A member is replaced if its provider ID changes, or the address of a family that load balancers
//! use; the brake counts that as well. An added address of another family is sent at once. The last
//! member never leaves.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_base::At;
use ccm_cloud::{Member, Members, are_shown_as};
use ccm_controller::brake::{Brake, Budget, Hold, is_sum, split, summed_up};
use serde::{Deserialize, Serialize};

use super::eligible::{Excluded, NodeSet, find};

/// Members have no breaker: each is decided by the budget alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBreaker {}

/// The members of one load balancer as far as they are known, and what has left it lately.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    /// Sorted by node. None while nothing is known. Shared with the set of nodes whenever the
    /// load balancer has exactly those.
    known: Option<Arc<[Member]>>,
    /// True if these are the members that service-ccm has sent, with all addresses of their nodes.
    /// A cloud may not show the addresses of a family that the load balancer does not have.
    is_told: bool,
    brake: Brake<NoBreaker>,
    /// The members that may leave or be replaced, as long as that has not been done.
    charged: BTreeSet<Arc<str>>,
    /// True if service-ccm has sent the change and does not know the result: they may have left.
    is_sent: bool,
    /// The members that have left, until they are back.
    away: BTreeSet<Arc<str>>,
    /// The members that left because of the exclusion label, and when.
    labelled: BTreeMap<Arc<str>, At>,
}

/// The members that have left load balancers lately, by node, with the time: what a leader leaves to
/// the next one, so that a change of leader gives no new budget. It does not tell which load
/// balancers they have left: the next leader counts them for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Departures {
    /// Charged to the budget.
    charged: BTreeMap<String, At>,
    /// Left because of the exclusion label.
    labelled: BTreeMap<String, At>,
}

impl Departures {
    /// Keeps those since this time.
    pub fn retain(&mut self, since: At) {
        self.charged.retain(|_, at| *at > since);
        self.labelled.retain(|_, at| *at > since);
    }

    /// Replaces the older half of the longer map by one entry. Returns true if it could.
    pub fn sum_up(&mut self) -> bool {
        let part = match self.charged.len() > self.labelled.len() {
            true => &mut self.charged,
            false => &mut self.labelled,
        };
        let entries: Vec<_> = part.iter().map(|(node, at)| (*at, &**node)).collect();
        let Some((at, sum, older)) = summed_up(&entries) else { return false };
        let older: Vec<String> = older.into_iter().map(str::to_owned).collect();
        for node in older {
            part.remove(&node);
        }
        part.insert(sum.into(), at);
        true
    }
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
    /// Why no node can be a member; None if a node can.
    pub why_none: Option<String>,
}

impl Decision {
    fn of_all(nodes: &NodeSet, changes: bool) -> Self {
        let members = Members { present: Arc::clone(&nodes.members), absent: Arc::default() };
        Self { members, changes, held: BTreeMap::new(), why_none: nodes.why_none() }
    }
}

impl Membership {
    /// Members that are not known, of which these have left under the last leader.
    pub fn resume(now: At, left: &Departures) -> Self {
        let charged = left.charged.iter().map(|(node, at)| (*at, node.as_str().into())).collect();
        let labelled = left.labelled.iter().flat_map(|(node, at)| {
            split(node).map(|node| (Arc::<str>::from(node), (*at).min(now)))
        });
        let (brake, labelled) = (Brake::resume(now, charged), labelled.collect());
        // Those that are members of this load balancer have not left it.
        let away = left.charged.keys().map(|node| node.as_str().into()).collect();
        Self { brake, away, labelled, ..Self::default() }
    }

    /// Adds the members that have left since this time, except unnamed ones: `to` has these already.
    pub fn add_departures(&self, since: At, to: &mut Departures) {
        for (at, node) in self.brake.window().after(since).filter(|(_, node)| !is_sum(node)) {
            later(&mut to.charged, node, at);
        }
        let labelled = self.labelled.iter().filter(|(node, at)| **at > since && !is_sum(node));
        for (node, at) in labelled {
            later(&mut to.labelled, node, *at);
        }
    }

    /// Returns true if members have left since this time, or may leave.
    pub fn has_departures(&self, since: At) -> bool {
        let charged = self.brake.window().after(At::default()).map(|(at, _)| at);
        charged.chain(self.labelled.values().copied()).any(|at| at >= since)
    }

    /// Whether the members are known.
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// The number of members; 0 while they are not known.
    pub fn len(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.len())
    }

    /// Whether no member is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies what the cloud has shown. Members of no known node are left out: other clients
    /// have made them.
    pub fn shown(&mut self, members: &Arc<[Member]>, nodes: &NodeSet, now: At) {
        let before = self.known.clone().unwrap_or_default();
        if Arc::ptr_eq(members, &nodes.members) {
            self.has_all_of(nodes);
            return self.settle(&before, now);
        }
        let mut named: Vec<&Member> = members.iter().filter(|one| !one.node.is_empty()).collect();
        named.sort_unstable_by(|one, other| one.node.cmp(&other.node));
        named.dedup_by(|one, other| one.node == other.node);
        let is_same = named.len() == members.len()
            && named.iter().zip(&**members).all(|(one, other)| std::ptr::eq(*one, other));
        if are_shown_as(&nodes.members, named.iter().copied()) {
            self.has_all_of(nodes);
        } else {
            let copied = || named.into_iter().cloned().collect();
            self.known = Some(if is_same { Arc::clone(members) } else { copied() });
            self.is_told = false;
        }
        self.settle(&before, now);
    }

    /// Records that the load balancer has exactly these nodes.
    fn has_all_of(&mut self, nodes: &NodeSet) {
        (self.known, self.is_told) = (Some(Arc::clone(&nodes.members)), true);
    }

    /// Applies a change that the cloud has made.
    pub fn applied(&mut self, members: &Members, now: At) {
        let is_named = |one: &Member| {
            find(&members.present, &one.node).is_some()
                || members.absent.iter().any(|gone| gone.node == one.node)
        };
        let before = self.known.clone().unwrap_or_default();
        let others: Vec<&Member> = before.iter().filter(|one| !is_named(one)).collect();
        self.known = Some(merge(&members.present, &others));
        self.is_told = true;
        self.away.extend(members.absent.iter().map(|gone| gone.node.as_str().into()));
        self.settle(&before, now);
    }

    /// The load balancer has the members that are known now, and had these before.
    fn settle(&mut self, before: &[Member], now: At) {
        self.is_sent = false;
        let known = self.known.clone().unwrap_or_default();
        let (open, made): (BTreeSet<Arc<str>>, _) = std::mem::take(&mut self.charged)
            .into_iter()
            .partition(|node| is_same(find(before, node), find(&known, node)));
        self.charged = open;
        for node in made {
            // The cloud may take long: the window begins when the member has left.
            self.brake.renew(now, &node);
            if find(&known, &node).is_none() {
                self.away.insert(node);
            }
        }
        let (back, away): (BTreeSet<Arc<str>>, _) = std::mem::take(&mut self.away)
            .into_iter()
            .partition(|node| find(&known, node).is_some());
        self.away = away;
        // When one of them leaves again, that counts as well.
        for node in back {
            self.brake.release(&node);
        }
    }

    /// Records that service-ccm has sent a change and does not know the result.
    pub fn sent(&mut self) {
        self.is_sent = !self.charged.is_empty();
    }

    /// Forgets the members: the load balancer may have others.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// What the members are to be. `approved` says that a user has approved that any of them
    /// leaves. Of members that are not known, all that are eligible are to be there.
    ///
    /// A member that may leave is charged once, no matter how often this is asked before the
    /// change is made. Its window begins with the last time: it has not left before.
    pub fn decide(&mut self, now: At, nodes: &NodeSet, budget: Budget, approved: bool) -> Decision {
        let Some(known) = self.known.clone() else { return Decision::of_all(nodes, false) };
        self.labelled.retain(|_, at| *at + budget.window > now);
        if self.charged.is_empty() && Arc::ptr_eq(&known, &nodes.members) {
            return Decision::of_all(nodes, false);
        }
        let joins = nodes.members.iter().any(|one| find(&known, &one.node).is_none());
        let mut decision =
            Decision { changes: joins, why_none: nodes.why_none(), ..Decision::default() };
        let (mut kept, mut absent) = (Vec::new(), Vec::new());
        for member in &*known {
            let wanted = nodes.get(&member.node);
            if let Some(wanted) = wanted.filter(|wanted| wanted.is_shown_as(member)) {
                decision.changes |= self.is_told && wanted.has_more_families_than(member);
                // It was to leave or to be replaced, and is again as it was.
                if !self.is_sent && self.charged.remove(&*member.node) {
                    self.brake.release(&member.node);
                }
                continue;
            }
            match self.leaves(now, nodes, &member.node, &known, budget, approved) {
                Ok(()) => {
                    decision.changes = true;
                    absent.extend(wanted.is_none().then_some(member));
                }
                Err(why) => {
                    kept.push(member);
                    decision.held.insert(member.node.as_str().into(), why);
                }
            }
        }
        if nodes.members.is_empty() && kept.is_empty() && !absent.is_empty() {
            let last = absent.remove(0);
            decision.held.insert(last.node.as_str().into(), Held::Last);
            kept.push(last);
            decision.changes = !absent.is_empty();
        }
        if !decision.changes && kept.is_empty() {
            self.has_all_of(nodes);
        }
        decision.members = Members {
            present: merge(&nodes.members, &kept),
            absent: absent.into_iter().cloned().collect(),
        };
        decision
    }

    /// Whether the member of this node may leave, or be replaced.
    fn leaves(
        &mut self,
        now: At,
        nodes: &NodeSet,
        node: &str,
        known: &[Member],
        budget: Budget,
        approved: bool,
    ) -> Result<(), Held> {
        if approved || nodes.marked.contains_key(node) {
            return Ok(());
        }
        if nodes.excluded.get(node) == Some(&Excluded::Label) {
            return self.leaves_by_label(now, node, known);
        }
        self.brake.request(now, node, known.len(), budget).map_err(Held::Budget)?;
        // It leaves now, although it may have been charged before: it was the last member, it was
        // replaced, or the cloud refused the change.
        self.brake.renew(now, node);
        self.charged.insert(node.into());
        Ok(())
    }

    /// Lets a member with the exclusion label leave, if fewer than half have it.
    fn leaves_by_label(&mut self, now: At, node: &str, known: &[Member]) -> Result<(), Held> {
        if self.labelled.contains_key(node) {
            return Ok(());
        }
        let gone = self.labelled.keys().filter(|name| find(known, name).is_none()).count();
        if (self.labelled.len() + 1) * 2 > known.len() + gone {
            return Err(Held::Label);
        }
        self.labelled.insert(node.into(), now);
        Ok(())
    }
}

/// Returns true if the load balancer certainly still has the member that it had before.
fn is_same(before: Option<&Member>, now: Option<&Member>) -> bool {
    let pair = before.zip(now);
    pair.is_some_and(|(before, now)| before.is_shown_as(now) && now.is_shown_as(before))
}

fn later(times: &mut BTreeMap<String, At>, node: &str, at: At) {
    match times.get_mut(node) {
        Some(known) => *known = (*known).max(at),
        None => drop(times.insert(node.to_owned(), at)),
    }
}

/// `members`, and of the nodes in `others` those instead. Both are sorted by node.
fn merge(members: &Arc<[Member]>, others: &[&Member]) -> Arc<[Member]> {
    if others.is_empty() {
        return Arc::clone(members);
    }
    let is_other = |node: &str| others.binary_search_by(|one| one.node.as_str().cmp(node)).is_ok();
    let mut all: Vec<Member> = members.iter().filter(|one| !is_other(&one.node)).cloned().collect();
    all.extend(others.iter().copied().cloned());
    all.sort_unstable_by(|one, other| one.node.cmp(&other.node));
    all.into()
}

#[cfg(test)]
mod tests;
