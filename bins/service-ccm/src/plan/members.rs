//! Computes a load balancer's members from the nodes: how they follow the nodes, and when they do
//! not.
//!
//! A node that joins, or gets the labels that the load balancer selects by, becomes a member at once.
//! A member whose node is gone, or is not eligible any more, leaves
//!
//! * at once, if that was **meant** ([`Mark::Meant`]), or if a user has approved it;
//! * at once, if its node has the exclusion label, or lost a label that the Service selects by, as long
//!   as at least half of the members stay: more within the window look like a mistake;
//! * otherwise as the kit's **brake** allows, unless its node was cordoned ([`Mark::Drained`]), and
//!   as long as at least half of the members stay: a list that lacks nodes by mistake does not
//!   empty load balancers.
//!
//! The brake counts the members that this load balancer has in the cloud, and not the nodes. Of the
//! members that left within the window, it counts those that no other node has replaced.
//!
//! A member is replaced if its provider ID changes, or the address of a family that load balancers
//! use; the budget counts that as well. An added address of another family is sent at once. The last
//! member never leaves.

mod departures;
mod floor;
mod joins;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ccm_base::At;
use ccm_cloud::{IpFamily, Member, Members, NodeSelector, are_shown_as};
use ccm_controller::brake::{Brake, Budget, Hold};
use serde::{Deserialize, Serialize};

pub use self::departures::Departures;
use self::{departures::add, floor::Floor, joins::Joins};
use super::{
    eligible::{Excluded, NodeSet, find},
    marks::Mark,
};

/// The rules for the members of one load balancer, and for the number of members that may leave it.
#[derive(Clone, Copy, Debug)]
pub struct MemberRules<'a> {
    /// How many members may leave within the window.
    pub budget: Budget,
    /// True if a user has approved that any member leaves.
    pub approved: bool,
    /// The labels that a node needs.
    pub selector: &'a NodeSelector,
    /// True if the Service has not chosen these labels: another selector is a change of the
    /// provider's configuration, and affects all load balancers.
    pub is_default: bool,
    /// A node needs an address of one of these families. Empty: it does not need an address.
    pub families: &'a [IpFamily],
    /// The number of members that the cloud has shown last, if it is known.
    pub in_cloud: Option<usize>,
}

impl MemberRules<'_> {
    /// Returns true if this node should be a member.
    fn select(&self, node: &Member) -> bool {
        takes(self.selector, self.families, node)
    }

    /// Returns the member as service-ccm tells the provider to keep it: with the labels that its node had.
    fn kept(&self, member: &Member) -> Member {
        match self.selector.matches(&member.labels) {
            true => member.clone(),
            false => Member {
                labels: Arc::new(self.selector.fulfilled(&member.labels)),
                ..member.clone()
            },
        }
    }
}

/// The members of one load balancer as far as they are known, and the members that have left it
/// recently.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Membership {
    /// Sorted by node. `None` while nothing is known. Shared with the set of nodes whenever the
    /// load balancer has exactly those.
    known: Option<Arc<[Member]>>,
    /// True if these are the members that service-ccm has sent, with all addresses of their nodes.
    /// A cloud may not show the addresses of a family that the load balancer does not have.
    is_told: bool,
    /// The selector by which the provider has selected the members from these nodes. `None` if the
    /// cloud has shown each of them as a member.
    picked: Option<NodeSelector>,
    /// The selector of the last decision, and its families.
    decided: (NodeSelector, Box<[IpFamily]>),
    /// True if the provider may have selected by other labels than the nodes have now. Counts only
    /// if only the provider knows which labels it asks for.
    is_relabelled: bool,
    /// It does not use the breaker: only the budget decides about each member.
    brake: Brake<()>,
    /// The members that may leave or be replaced, as long as that has not been done.
    charged: BTreeSet<Arc<str>>,
    /// True if service-ccm has sent the change and does not know the result: they may have left.
    is_sent: bool,
    /// The members that have left, until they are back.
    away: BTreeSet<Arc<str>>,
    /// The members whose nodes were deleted without a mark.
    vanished: Floor,
    /// The members that left because of a label, until they are back.
    labelled: Floor,
    joins: Joins,
}

/// The members of one load balancer while a decision about them is made.
struct MemberPool<'a> {
    /// Sorted by node.
    members: Vec<&'a Member>,
    /// How many there are in the cloud.
    count: usize,
    /// The number of nodes that join.
    joins: usize,
}

impl MemberPool<'_> {
    /// Returns true if this node is a member.
    fn has(&self, node: &str) -> bool {
        self.members.binary_search_by(|one| one.node.as_str().cmp(node)).is_ok()
    }
}

/// The reason why a member may not leave or be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Held {
    /// Too many have left within the window.
    Budget(Hold),
    /// Half of the members have vanished within the window.
    Floor,
    /// Half of the members have left because of a label within the window.
    Label,
    /// It is the last member.
    Last,
}

/// The decision about a load balancer's members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The wanted members.
    pub members: Members,
    /// True if they differ from the known members.
    pub changes: bool,
    /// The members that are held, by node.
    pub held: BTreeMap<Arc<str>, Held>,
    /// The reason why no node can be a member, or `None` if a node can.
    pub why_none: Option<String>,
}

impl Decision {
    fn of_all(nodes: &NodeSet, changes: bool) -> Self {
        let members = Members { present: Arc::clone(&nodes.members), absent: Arc::default() };
        Self { members, changes, held: BTreeMap::new(), why_none: nodes.why_none() }
    }
}

impl Membership {
    /// Creates the membership of unknown members, of which these have left under the last leader.
    pub fn resume(now: At, left: &Departures) -> Self {
        let charged = left.charged.iter().map(|(node, at)| (*at, node.as_str().into())).collect();
        let vanished = || left.charged.iter().chain(&left.drained);
        Self {
            brake: Brake::resume(now, charged),
            // The current members of this load balancer have not left it.
            away: vanished().chain(&left.labelled).map(|(node, _)| node.as_str().into()).collect(),
            vanished: Floor::resume(now, vanished()),
            labelled: Floor::resume(now, &left.labelled),
            ..Self::default()
        }
    }

    /// Adds the members that have left since this time, except unnamed ones: `to` has these already.
    pub fn add_departures(&self, since: At, to: &mut Departures) {
        let charged: BTreeMap<&str, At> =
            self.brake.window().after(since).map(|(at, node)| (node, at)).collect();
        let drained = self.vanished.entries().filter(|(node, _)| !charged.contains_key(node));
        add(&mut to.drained, since, drained);
        add(&mut to.charged, since, charged.iter().map(|(node, at)| (*node, *at)));
        add(&mut to.labelled, since, self.labelled.entries());
    }

    /// Returns true if members have left since this time, or may leave.
    pub fn has_departures(&self, since: At) -> bool {
        let charged = self.brake.window().after(At::default()).map(|(at, _)| at);
        let others = self.vanished.entries().chain(self.labelled.entries()).map(|(_, at)| at);
        charged.chain(others).any(|at| at >= since)
    }

    /// Returns true if the members are known.
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Returns the number of members; 0 while they are not known.
    pub fn count(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.len())
    }

    /// Applies what the cloud has shown. Members of unknown nodes are ignored: other clients have
    /// made them.
    pub fn shown(&mut self, members: &Arc<[Member]>, nodes: &NodeSet, now: At) {
        let before = self.known.clone().unwrap_or_default();
        self.is_relabelled |= self.is_told && have_other_labels(&before, &nodes.members);
        if *members == nodes.members {
            self.set_known(nodes, None);
            return self.settle(&before, now);
        }
        let mut named: Vec<&Member> = members.iter().filter(|one| !one.node.is_empty()).collect();
        named.sort_unstable_by(|one, other| one.node.cmp(&other.node));
        named.dedup_by(|one, other| one.node == other.node);
        let is_same = named.len() == members.len()
            && named.iter().zip(&**members).all(|(one, other)| std::ptr::eq(*one, other));
        if are_shown_as(&nodes.members, named.iter().copied()) {
            self.set_known(nodes, None);
        } else {
            let copied = || named.into_iter().cloned().collect();
            self.known = Some(if is_same { Arc::clone(members) } else { copied() });
            (self.is_told, self.picked) = (false, None);
        }
        self.settle(&before, now);
    }

    /// Records that the load balancer has exactly these nodes, or those that this selector has picked.
    fn set_known(&mut self, nodes: &NodeSet, picked: Option<NodeSelector>) {
        (self.known, self.is_told) = (Some(Arc::clone(&nodes.members)), true);
        self.picked = picked;
    }

    /// Records that the provider has selected the members by the labels of these nodes.
    pub fn selected(&mut self, members: &Members, nodes: &NodeSet) {
        self.is_relabelled = have_other_labels(&members.present, &nodes.members);
    }

    /// Records that the provider may have selected by other labels than the nodes have now.
    pub fn relabelled(&mut self) {
        self.is_relabelled = true;
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
        (self.is_told, self.is_relabelled) = (true, false);
        self.picked = Some(self.decided.0.clone());
        self.away.extend(members.absent.iter().map(|gone| gone.node.as_str().into()));
        self.settle(&before, now);
    }

    /// Records that the load balancer has the members that are known now, and had these before.
    fn settle(&mut self, before: &[Member], now: At) {
        self.is_sent = false;
        let known = self.known.clone().unwrap_or_default();
        let (open, made): (BTreeSet<Arc<str>>, _) = std::mem::take(&mut self.charged)
            .into_iter()
            .partition(|node| is_same(find(before, node), find(&known, node)));
        self.charged = open;
        for node in made {
            // The cloud may take a long time, so the window begins when the member has left.
            self.renew(now, &node);
            if find(&known, &node).is_none() {
                self.away.insert(node);
            }
        }
        // The node of a member that is not picked exists, but the member is still away.
        let families = &*self.decided.1;
        let is_picked = |one: &Member| {
            self.picked.as_ref().is_none_or(|selector| takes(selector, families, one))
        };
        let (back, away): (BTreeSet<Arc<str>>, _) = std::mem::take(&mut self.away)
            .into_iter()
            .partition(|node| find(&known, node).is_some_and(is_picked));
        self.away = away;
        // When one of them leaves again, that counts as well.
        for node in back {
            self.release(&node);
        }
    }

    fn renew(&mut self, now: At, node: &str) {
        self.brake.renew(now, node);
        self.vanished.renew(now, node);
    }

    fn release(&mut self, node: &str) {
        self.brake.release(node);
        self.vanished.release(node);
        self.labelled.release(node);
    }

    /// Records that service-ccm has sent a change and does not know the result.
    pub fn sent(&mut self) {
        self.is_sent = !self.charged.is_empty() || !self.labelled.is_empty();
    }

    /// Forgets the members: the load balancer may have others.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// Returns the wanted members. If the members are not known, all eligible ones should exist.
    ///
    /// A member that may leave is charged once, no matter how often this is asked before the
    /// change is made. Its window begins with the last time: it has not left before.
    pub fn decide(&mut self, now: At, nodes: &NodeSet, rules: MemberRules<'_>) -> Decision {
        let Some(known) = self.known.clone() else { return Decision::of_all(nodes, false) };
        self.labelled.expire(now, rules.budget.window);
        self.joins.expire(now, rules.budget.window);
        self.vanished.expire(now, rules.budget.window);
        let is_relabelled = self.is_relabelled && rules.selector.is_opaque();
        let is_picked = match rules.is_default {
            true => self.picked.as_ref() == Some(rules.selector),
            false => self.picked.is_some(),
        };
        let is_all = is_picked && self.charged.is_empty() && !is_relabelled;
        if is_all && known == nodes.members {
            return Decision::of_all(nodes, false);
        }
        let pool = self.pool(&known, nodes, rules);
        self.joined(now, &pool, nodes, rules);
        self.decided = (rules.selector.clone(), rules.families.into());
        let changes = pool.joins > 0 || is_relabelled;
        let mut decision = Decision { changes, why_none: nodes.why_none(), ..Decision::default() };
        let (mut kept, mut leaving) = (Vec::new(), Vec::new());
        for member in &pool.members {
            let wanted = nodes.get(&member.node).filter(|node| rules.select(node));
            if let Some(wanted) = wanted.filter(|wanted| wanted.is_shown_as(member)) {
                decision.changes |= self.is_told && tells_more(wanted, member, rules);
                self.stays(&member.node);
                continue;
            }
            match self.leaves(now, nodes, (member, wanted.is_none()), &pool, rules) {
                Ok(()) => {
                    decision.changes = true;
                    leaving.extend(wanted.is_none().then_some(*member));
                }
                Err(why) => {
                    kept.push(rules.kept(member));
                    decision.held.insert(member.node.as_str().into(), why);
                }
            }
        }
        let is_none_wanted = !nodes.members.iter().any(|node| rules.select(node));
        if is_none_wanted && kept.is_empty() && !leaving.is_empty() {
            let last = leaving.remove(0);
            decision.held.insert(last.node.as_str().into(), Held::Last);
            kept.push(rules.kept(last));
            decision.changes = !leaving.is_empty();
        }
        if !decision.changes && kept.is_empty() {
            self.set_known(nodes, Some(rules.selector.clone()));
        }
        // A node that has lost a label is not named as absent: the provider sees its labels.
        leaving.retain(|member| nodes.get(&member.node).is_none());
        decision.members = Members {
            present: merge(&nodes.members, &kept.iter().collect::<Vec<_>>()),
            absent: leaving.into_iter().cloned().collect(),
        };
        decision
    }

    /// Returns the members that the load balancer has.
    fn pool<'a>(
        &self,
        known: &'a [Member],
        nodes: &NodeSet,
        rules: MemberRules<'_>,
    ) -> MemberPool<'a> {
        // A Service chooses other labels on purpose, but another default may be a mistake.
        let picked = self.picked.as_ref();
        let by = if rules.is_default { picked } else { picked.and(Some(rules.selector)) };
        let is_member = |one: &&Member| by.is_none_or(|by| takes(by, rules.families, one));
        let members: Vec<&Member> = known.iter().filter(is_member).collect();
        let shown = rules.in_cloud.filter(|count| *count > 0).unwrap_or(usize::MAX);
        let mut pool = MemberPool { count: members.len().min(shown), members, joins: 0 };
        let is_new = |node: &&Member| rules.select(node) && !pool.has(&node.node);
        pool.joins = nodes.members.iter().filter(is_new).count();
        pool
    }

    /// Releases a member that is again as it was, after it had left or could have left.
    fn stays(&mut self, node: &str) {
        if self.is_sent {
            return;
        }
        self.labelled.release(node);
        self.joins.release(node);
        if self.charged.remove(node) || self.vanished.has(node) {
            self.release(node);
        }
    }

    /// Returns true if this member may leave, or be replaced.
    fn leaves(
        &mut self,
        now: At,
        nodes: &NodeSet,
        (member, is_gone): (&Member, bool),
        pool: &MemberPool<'_>,
        rules: MemberRules<'_>,
    ) -> Result<(), Held> {
        let node = member.node.as_str();
        let mark = nodes.marks.get(node);
        if rules.approved || mark == Some(Mark::Meant) {
            if !self.vanished.is_empty() {
                self.joins.leave(now, node);
            }
            return Ok(());
        }
        let is_unselected = || {
            let matches = |node: &Member| rules.selector.matches(&node.labels);
            !rules.is_default && nodes.get(node).is_some_and(|node| !matches(node))
        };
        if nodes.excluded.get(node) == Some(&Excluded::Label) || is_unselected() {
            return self.leaves_by_label(now, node, pool);
        }
        let is_replaced = is_gone && mark.is_some() && self.joins.replace(now, node);
        if is_gone && !is_replaced && !self.vanished.may_leave(node, pool) {
            return Err(Held::Floor);
        }
        if mark.is_none() {
            let request = self.brake.request(now, node, pool.count, rules.budget);
            request.map_err(Held::Budget)?;
        }
        if is_gone && !is_replaced {
            self.vanished.add(now, node);
        }
        // It leaves now, although it may have been charged earlier: it was the last member, it was
        // replaced, or the cloud refused the change.
        self.brake.renew(now, node);
        self.charged.insert(node.into());
        Ok(())
    }

    /// Lets a member leave because of a label, if at least half of the members stay.
    fn leaves_by_label(&mut self, now: At, node: &str, pool: &MemberPool<'_>) -> Result<(), Held> {
        if !self.labelled.may_leave(node, pool) {
            return Err(Held::Label);
        }
        self.labelled.add(now, node);
        Ok(())
    }
}

/// Returns true if this selector and these families make this node a member.
fn takes(selector: &NodeSelector, families: &[IpFamily], node: &Member) -> bool {
    let has_address = |family: &IpFamily| node.address(*family).is_some();
    selector.matches(&node.labels) && (families.is_empty() || families.iter().any(has_address))
}

/// Returns true if these have other labels than the nodes of the same names.
fn have_other_labels(members: &[Member], nodes: &[Member]) -> bool {
    let differs = |one: &Member| find(nodes, &one.node).is_some_and(|it| it.labels != one.labels);
    !std::ptr::eq(members, nodes) && members.iter().any(differs)
}

/// Returns true if the provider does not know something about this node that it should know.
fn tells_more(node: &Member, member: &Member, rules: MemberRules<'_>) -> bool {
    let has_other_labels = rules.selector.is_opaque() && node.labels != member.labels;
    node.has_more_families_than(member) || has_other_labels
}

/// Returns true if the load balancer certainly still has the member that it had before.
fn is_same(before: Option<&Member>, now: Option<&Member>) -> bool {
    let pair = before.zip(now);
    pair.is_some_and(|(before, now)| before.is_shown_as(now) && now.is_shown_as(before))
}

/// Returns `members`, with the nodes in `others` replaced by those. Both are sorted by node.
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
