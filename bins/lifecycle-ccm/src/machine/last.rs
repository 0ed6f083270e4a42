//! What came last about each node, for its explanation. No decision depends on it.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::CloudError;
use ccm_kube::ApiError;
use ccm_objects::Shared as Name;
use serde::{Deserialize, Serialize};

use super::event::Answer;
use crate::policy::{
    Answers, Decision, Listing, LookedUp,
    action::{Action, Write},
};

/// The last answers about the nodes that are looked up, and the writes that have failed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Last {
    heard: BTreeMap<Name, Heard>,
    failed: BTreeMap<Name, Failed>,
    /// Why the last look at the fleet has shown nothing.
    fleet: Option<(At, CloudError)>,
}

/// The cloud's answer about a node, and what was decided on it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Heard {
    pub(super) said: LookedUp,
    pub(super) decision: Decision,
}

/// A write that the API server has not accepted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failed {
    pub(super) at: At,
    /// True if it should have deleted the node, and false if it should have changed its marks.
    pub(super) is_deletion: bool,
    pub(super) error: ApiError,
}

impl Last {
    /// The cloud has answered, and this was decided.
    pub(super) fn heard(&mut self, lookups: Vec<LookedUp>, decisions: &[Decision]) {
        let mut said: BTreeMap<Name, LookedUp> =
            lookups.into_iter().map(|said| (Arc::clone(&said.name), said)).collect();
        for decision in decisions {
            if let Some(said) = said.remove(&decision.name) {
                let heard = Heard { said, decision: decision.clone() };
                self.heard.insert(Arc::clone(&decision.name), heard);
            }
        }
    }

    /// Takes over whether the fleet was shown.
    pub(super) fn saw(&mut self, now: At, answers: &Answers) {
        let why = match &answers.list {
            None => return,
            Some(Listing::Failed(error)) => Some(error),
            Some(Listing::Read { .. }) => None,
            Some(Listing::Witnesses) => {
                let is_shown = answers.witnesses.iter().any(|one| one.result.is_ok());
                let mut errors =
                    answers.witnesses.iter().filter_map(|one| one.result.as_ref().err());
                errors.next().filter(|_| !is_shown)
            }
        };
        self.fleet = why.map(|error| (now, error.clone()));
    }

    /// The API server has answered a write. What it has seen change is decided anew, so that is no failure.
    pub(super) fn wrote(&mut self, at: At, action: &Action, answer: &Answer) {
        let name = &action.node.name;
        match answer {
            // It was not sent.
            Err(None) => {}
            Ok(_) | Err(Some(ApiError::Conflict | ApiError::NotFound)) => {
                self.failed.remove(name);
            }
            Err(Some(error)) => {
                let is_deletion = !matches!(action.write, Write::Marks(_));
                let failed = Failed { at, is_deletion, error: error.clone() };
                self.failed.insert(Arc::clone(name), failed);
            }
        }
    }

    /// Nothing is wrong with this node any more.
    pub(super) fn is_well(&mut self, name: &str) {
        self.heard.remove(name);
    }

    /// The node is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.heard.remove(name);
        self.failed.remove(name);
    }

    /// What was heard about the node with this UID.
    pub(super) fn of(&self, name: &str, uid: &str) -> Option<&Heard> {
        self.heard.get(name).filter(|heard| *heard.said.uid == *uid)
    }

    /// The last write to the node, if it has failed: a deletion of it, or a change of its marks.
    pub(super) fn failure(&self, name: &str, is_deletion: bool) -> Option<&Failed> {
        self.failed.get(name).filter(|failed| failed.is_deletion == is_deletion)
    }

    /// When the fleet could not be looked at, and why, if that was the last look.
    pub(super) fn fleet(&self) -> Option<&(At, CloudError)> {
        self.fleet.as_ref()
    }
}
