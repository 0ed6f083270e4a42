//! The answers of the cloud.

use std::{collections::BTreeSet, sync::Arc};

use ccm_cloud::{AbsenceProof, ErrorKind, Lookup, LookupResult, PowerState, ProofMethod};
use ccm_objects::{Node, Shared as Name};
use lifecycle_ccm::{
    machine::{
        Event,
        event::{FleetList, Unlisted},
    },
    policy::{Ghosts, NodeView},
};

use super::{
    Run, Sabotage,
    faults::{self, AnswerMode},
    rules::Look,
    world::{self, Kind},
};

impl Run {
    /// Returns the answer about a node, asked at this time.
    pub fn answer(
        &mut self,
        node: &Node,
        is_witness: bool,
        asked: u64,
        mode: AnswerMode,
    ) -> LookupResult {
        let index = self.index(&node.uid);
        let sees = |index: usize| faults::sees(&self.world, &self.schedule, index, asked, mode);
        let is_seen = index.is_some_and(sees);
        let misnamed = index.and_then(|index| self.world.nodes.get(index)?.misnamed(asked));
        let by = if node.provider_id.is_some() { ProofMethod::ById } else { ProofMethod::ByName };
        let method = misnamed.unwrap_or(by);
        // A witness that was not asked counts as found.
        let is_bribed = is_witness && self.sabotage == Some(Sabotage::Witnesses);
        match mode {
            _ if is_bribed => {}
            AnswerMode::Error(kind) => return Err(faults::error(kind)),
            _ if self.is_stranger(&node.uid) => {
                return Ok(Lookup::NotOurs("another region".to_owned()));
            }
            _ if is_seen && misnamed.is_none() => {}
            _ => {
                let (evidence, request_id) = (format!("{mode:?}"), None);
                return Ok(Lookup::Gone(AbsenceProof { method, evidence, request_id, kept: None }));
            }
        }
        // Each machine is sometimes off.
        let turn = asked / 60_000 + index.unwrap_or_default() as u64;
        let is_off = turn.is_multiple_of(4);
        self.instance.power = if is_off { PowerState::Stopped } else { PowerState::Running };
        Ok(Lookup::Found(Box::new(self.instance.clone())))
    }

    /// Returns a list requested at `asked` and read by `now`, after lookups in that mode.
    pub fn list(
        &mut self,
        asked: u64,
        now: u64,
        lookups: AnswerMode,
        look: &mut Look,
    ) -> (Option<Unlisted>, AnswerMode) {
        let mut mode = self.schedule.answer_mode(&mut self.dice, asked);
        let zone = world::within((self.schedule.zone.0, self.schedule.zone.1 + 120_000), asked);
        // Lookups and list do not lie at the same time: see `faults`.
        if mode == AnswerMode::Shrunken && (lookups == AnswerMode::Wrong || zone) {
            mode = AnswerMode::True;
        }
        let views = self.views(now);
        let shown = faults::list(&self.world, &self.schedule, &mut self.dice, asked, mode);
        let is_missing =
            |node: &&Arc<Node>| self.index(&node.uid).is_none_or(|index| !shown.contains(&index));
        let nodes = self.leader.store.values();
        let missing: BTreeSet<Name> =
            nodes.filter(is_missing).map(|node| Arc::clone(&node.name)).collect();
        let is_hidden = world::within(self.schedule.zone, asked) && !self.is_mass(&views, &missing);
        let lies = matches!(mode, AnswerMode::Wrong | AnswerMode::Empty);
        let error = match mode {
            AnswerMode::Error(kind) => Some(kind),
            _ if is_hidden || (lies && !self.lacks_a_witness(&views, &missing)) => {
                Some(ErrorKind::Unavailable)
            }
            _ => None,
        };
        let (_, mut as_of) = self.leader.machine.compared();
        if self.sabotage == Some(Sabotage::Arrival) {
            as_of = u64::MAX;
        }
        let listed = FleetList { instances: shown.len(), malformed: 0 };
        let list = error.map_or(Ok(listed), |kind| Err(faults::error(kind)));
        self.leader.tell(now, Event::Listed(list));
        if error.is_none() {
            look.listed(now, shown);
            self.leader.trail.has_list |= look.shown.is_some();
        }
        (error.is_none().then_some(Unlisted { missing, as_of }), mode)
    }

    /// Returns true if the list lacks too many nodes to be credible: an invisible zone of only one
    /// or two nodes looks the same as deleted machines.
    pub fn is_mass(&self, views: &[NodeView], missing: &BTreeSet<Name>) -> bool {
        let known = views.iter().filter(|node| self.is_counted(node));
        let lacking = known.clone().filter(|node| missing.contains(&node.name)).count();
        lacking >= 3 && lacking * 2 > known.count()
    }

    /// Returns true if a list of another project is noticed, because it lacks a node that should be
    /// in it.
    pub fn lacks_a_witness(&self, views: &[NodeView], missing: &BTreeSet<Name>) -> bool {
        views.iter().filter(|node| missing.contains(&node.name)).any(|node| {
            let runs = node.in_reach() && node.has_id && node.is_well() && !node.marked;
            self.is_counted(node) || (runs && !self.is_stranger(&node.uid))
        })
    }

    /// Returns true if the breaker counts it.
    pub fn is_counted(&self, node: &NodeView) -> bool {
        let is_judged = node.in_reach() && !node.approved && !node.protected && !node.marked;
        let is_judged = is_judged && (node.has_id || self.deletes_ghost(node));
        is_judged && node.age >= self.policy.grace_period && !self.is_stranger(&node.uid)
    }

    /// Returns true if the settings cause the deletion of a node without a provider ID.
    pub fn deletes_ghost(&self, node: &NodeView) -> bool {
        node.uninitialised && self.policy.ghosts == Ghosts::Uninitialised
    }

    fn is_stranger(&self, uid: &str) -> bool {
        let node = self.index(uid).and_then(|index| self.world.nodes.get(index));
        node.is_some_and(|node| node.kind == Kind::Stranger)
    }
}
