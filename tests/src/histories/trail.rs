//! The history of what a process has shown, asked and written so far.

use std::collections::{BTreeMap, BTreeSet};

use ccm_objects::{Node, Shared as Name};
use lifecycle_ccm::{
    machine::{Effect, effect::NodePlan},
    policy::action::{Action, Write},
};

/// The trail of a process.
#[derive(Default)]
pub struct Trail {
    /// The page `/plan`.
    pub plans: BTreeMap<Name, NodePlan>,
    /// The last confirmed write of each kind to each node, by its UID.
    written: BTreeMap<(Box<str>, &'static str), Made>,
    /// When each node was looked up last, by its UID.
    pub looked: BTreeMap<Box<str>, u64>,
    /// The nodes that run on another machine, by their UIDs, and since when this process knows.
    pub moved: BTreeMap<Box<str>, u64>,
    /// When it saw that a node was created, by its UID.
    pub appeared: BTreeMap<Box<str>, u64>,
    /// When its term began.
    pub began: u64,
    /// When it asked for the fleet last.
    pub listed: Option<u64>,
    /// True if it has read a list in time.
    pub has_list: bool,
    /// When the breaker closed last, and the UIDs of the nodes that were approved then.
    pub closed: Option<(u64, BTreeSet<Box<str>>)>,
}

/// A confirmed write.
struct Made {
    content: String,
    at: u64,
    is_shown: bool,
}

/// Returns the kind and the content of a write; `None` for a deletion.
fn content(write: &Write) -> Option<(&'static str, String)> {
    match write {
        Write::Delete(_) => None,
        Write::Proof(..) => Some(("proof", String::new())),
        Write::Marks(marks) => {
            let step = marks.taint.map(|(step, _)| step);
            Some(("marks", format!("{step:?} {} {}", marks.end_approval, marks.end_proof)))
        }
    }
}

impl Trail {
    /// Remembers these effects.
    pub fn follow(&mut self, now: u64, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Page(node, page) => {
                    self.plans.insert(node.name.clone(), page.clone());
                }
                Effect::Clear(name) | Effect::Forget(name) => drop(self.plans.remove(name)),
                Effect::Ask(ask) => {
                    self.listed = if ask.list { Some(now) } else { self.listed };
                    let looked = ask.look_up.iter().map(|node| (node.uid.clone(), now));
                    self.looked.extend(looked);
                }
                _ => {}
            }
        }
    }

    /// Remembers a change that a watch has shown.
    pub fn saw(&mut self, now: u64, known: Option<&Node>, node: &Node) {
        let known = known.filter(|known| known.uid == node.uid && node.provider_id.is_some());
        if known.is_some_and(|known| known.system_uuid != node.system_uuid) {
            self.moved.insert(node.uid.clone(), now);
        }
    }

    /// Returns when a write of this kind to this node was confirmed last.
    pub fn last(&self, uid: &str, kind: &'static str) -> Option<u64> {
        self.written.get(&(uid.into(), kind)).map(|made| made.at)
    }

    /// Returns the time of the same write, if that was the last one of its kind and the API server did not store it.
    pub fn dropped(&self, Action { node, write }: &Action) -> Option<u64> {
        let (kind, content) = content(write)?;
        let last = self.written.get(&(node.uid.clone(), kind))?;
        (last.content == content && !last.is_shown).then_some(last.at)
    }

    /// Remembers a confirmed write, and if the API server has stored it.
    pub fn wrote(&mut self, at: u64, Action { node, write }: &Action, is_shown: bool) {
        if let Some((kind, content)) = content(write) {
            self.written.insert((node.uid.clone(), kind), Made { content, at, is_shown });
        }
    }
}
