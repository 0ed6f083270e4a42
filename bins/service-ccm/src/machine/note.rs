//! The note to the next leader: which members have left, which load balancers without a Service
//! were deleted and which load balancers were replaced, so that a change of leader does not give a
//! new budget, and the nodes that all load balancers have, so that it does not cost reads.

use std::{collections::BTreeSet, mem, time::Duration};

use ccm_base::At;
use ccm_cloud::Digest;
use ccm_objects::Shared as Name;
use serde::{Deserialize, Serialize};

use super::{Machine, effect::Effect, left::LeaderNote};
use crate::plan::{
    losses::{self, Losses},
    orphans::{BUDGET, Orphans},
};

/// For how long after the node's end its mark is left to the next leader, because members may be
/// held, or the cloud may fail.
const MARKED: Duration = Duration::from_hours(1);

/// The memory of the note.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct NoteMemory {
    /// True if something may have changed since the last one.
    pub(super) has_changed: bool,
    /// The digest of the nodes in the last one.
    settled: Option<Digest>,
}

impl Machine {
    /// Begins the term.
    pub(super) fn begin(&mut self, mut left: LeaderNote, now: At) -> Vec<Effect> {
        self.nodes.went.add_earlier(mem::take(&mut left.marks));
        self.orphans = Orphans::resume(now, mem::take(&mut left.orphans));
        self.losses = Losses::resume(now, mem::take(&mut left.replaced));
        self.balancers.inherited = (now, left);
        // The leader after this one should also learn of the changes that are still in the window.
        vec![self.change_note()]
    }

    /// Returns the nodes that were marked when they were last seen.
    pub(crate) fn marked_nodes(&self) -> Vec<Name> {
        self.nodes.set.marks.nodes().map(Name::from).collect()
    }

    /// Returns true if a note is due.
    pub(crate) fn has_note(&self) -> bool {
        self.note.has_changed || self.note.settled != self.balancers.settled()
    }

    /// Leaves a note, if it may differ from the last one.
    pub(super) fn leave(&mut self, gone: &[Name], must: bool, now: At) -> Vec<Effect> {
        if !must && !self.has_note() {
            return Vec::new();
        }
        let settled = self.balancers.settled();
        let gone: BTreeSet<&str> = gone.iter().map(|name| &**name).collect();
        let is_gone = |node: &str| gone.contains(node);
        let left = LeaderNote {
            members: self.balancers.departures(now - self.parameters.budget.window),
            marks: self.nodes.set.marks.of_gone(|node| !is_gone(node), now - MARKED),
            orphans: self.orphans.window(now - BUDGET.window),
            replaced: self.losses.window(now - losses::BUDGET.window),
            settled: None,
        };
        // They leave the window after some time.
        self.note.has_changed = left != LeaderNote::default();
        self.note.settled = settled;
        vec![Effect::Leave(Box::new(LeaderNote { settled, ..left }))]
    }
}
