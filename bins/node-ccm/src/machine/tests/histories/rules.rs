//! The rules of all histories.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use ccm_objects::{
    Node,
    node_keys::{INSTANCE_TYPE, REGION, ZONE},
};

use super::super::super::{Effect, Machine};
use crate::plan::{Step, UNINITIALIZED, addresses};

/// The most Ready nodes that change within the window.
pub(super) const BUDGET: usize = 2;
/// The window, less the time that a write may take.
const WINDOW: Duration = Duration::from_mins(55);
/// The most writes of the same content to a node within a minute: three at once, then after 10, 20 and 40 s.
const SAME: usize = 6;
/// The most corrections within ten seconds: the rate is one per second, and a turn is valid for ten.
const CORRECTIONS: usize = 22;

#[derive(Default)]
pub(super) struct Rules {
    /// How many nodes are in each state, by the metric.
    counts: BTreeMap<String, i64>,
    is_open: bool,
    /// The Ready nodes that were changed without approval.
    changes: Vec<(At, String)>,
    /// The confirmed writes, by node and content.
    writes: BTreeMap<String, Vec<At>>,
    corrections: Vec<At>,
}

impl Rules {
    /// A new leader knows nothing of the last one, but its budget.
    pub(super) fn leads_anew(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        *self = Self { changes, ..Self::default() };
    }

    pub(super) fn hear(&mut self, effect: &Effect) {
        match effect {
            Effect::Counts(state, by) => {
                *self.counts.entry(format!("{state:?}")).or_default() += by;
            }
            Effect::BrakeOpens(_) => assert!(!std::mem::replace(&mut self.is_open, true)),
            Effect::BrakeCloses => assert!(std::mem::take(&mut self.is_open)),
            _ => {}
        }
    }

    /// The metric agrees with the memory.
    pub(super) fn check(&self, machine: &Machine) {
        let mut known: BTreeMap<String, i64> = BTreeMap::new();
        for state in machine.entries.values().filter_map(|entry| entry.state) {
            *known.entry(format!("{state:?}")).or_default() += 1;
        }
        let mut counts = self.counts.clone();
        counts.retain(|_, count| *count != 0);
        assert_eq!(counts, known);
    }

    /// The API server has made this write to a node.
    pub(super) fn written(
        &mut self,
        old: &Node,
        new: &Node,
        step: &Step,
        is_approved: bool,
        now: At,
    ) {
        if old.is_uninitialised() && !new.is_uninitialised() {
            assert!(addresses::have_ip(&new.addresses), "initialised without address: {old:?}");
            assert!(new.provider_id.is_some(), "initialised without ID: {old:?}");
            let others = |node: &Node| {
                let others = node.taints.iter().filter(|taint| &*taint.key != UNINITIALIZED);
                others.cloned().collect::<Vec<_>>()
            };
            assert_eq!(others(old), others(new));
        }
        if old.is_ready() && !old.is_uninitialised() {
            assert!(
                addresses::primary(&new.addresses).is_some()
                    || addresses::primary(&old.addresses).is_none()
            );
            let is_changed = addresses::primary(&old.addresses)
                .is_some_and(|own| addresses::primary(&new.addresses) != Some(own))
                || [ZONE, REGION, INSTANCE_TYPE].iter().any(|(_, key)| {
                    let value = old.labels.get(*key);
                    value.is_some() && value != new.labels.get(*key)
                });
            if is_changed && !is_approved {
                self.changes.push((now, old.uid.to_string()));
            }
        }
        if !old.is_uninitialised() {
            self.corrections.push(now);
            self.corrections.retain(|at| now.since(*at) < Duration::from_secs(10));
            assert!(
                self.corrections.len() <= CORRECTIONS,
                "{} corrections",
                self.corrections.len()
            );
        }
        let same = self.writes.entry(format!("{} {:?}", old.uid, step.fields())).or_default();
        same.push(now);
        same.retain(|at| now.since(*at) < Duration::from_mins(1));
        assert!(
            same.len() <= SAME,
            "{:?} of {} is written {} times",
            step.fields(),
            old.name,
            same.len()
        );
    }

    /// No more Ready nodes have changed than the budget allows.
    pub(super) fn check_budget(&mut self, now: At) {
        self.changes.retain(|(at, _)| now.since(*at) < WINDOW);
        let mut uids: Vec<_> = self.changes.iter().map(|(_, uid)| uid).collect();
        uids.sort();
        uids.dedup();
        assert!(uids.len() <= BUDGET, "{:?}", self.changes);
    }
}
