//! The last answers, writes and failures of each node, for its explanation. Decisions do not read them.

use std::{collections::BTreeMap, sync::Arc};

use ccm_base::At;
use ccm_cloud::CloudError;
use ccm_kube::ApiError;
use ccm_objects::Shared as Name;
use serde::{Deserialize, Serialize};

use super::event::WriteAnswer;
use crate::policy::{
    Answers, Decision, Listing, LookedUp, Reason, Verdict,
    action::{Action, Write},
};

/// The last answers about the nodes that are looked up, and the writes that have failed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Last {
    heard: BTreeMap<Name, Heard>,
    failed: BTreeMap<Name, Failed>,
    /// The UIDs of nodes whose kubelets have renewed their Leases while the cloud denied their instances, and when
    /// that was seen last.
    #[serde(default)]
    alive: BTreeMap<Name, (Box<str>, At)>,
    /// The reason why the last look at the fleet failed.
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
    /// The UID of the node.
    #[serde(default)]
    uid: Box<str>,
    /// True if it should have deleted the node, and false if it should have changed its marks.
    pub(super) is_deletion: bool,
    pub(super) error: ApiError,
}

impl Last {
    /// Records the cloud's answers, and the decisions about existing nodes.
    pub(super) fn heard<'a>(
        &mut self,
        now: At,
        lookups: Vec<LookedUp>,
        decisions: impl IntoIterator<Item = &'a Decision>,
    ) {
        let mut said: BTreeMap<Name, LookedUp> =
            lookups.into_iter().map(|said| (Arc::clone(&said.name), said)).collect();
        for decision in decisions {
            if let Some(said) = said.remove(&decision.name) {
                self.lives(now, decision);
                let heard = Heard { said, decision: decision.clone() };
                self.heard.insert(Arc::clone(&decision.name), heard);
            }
        }
    }

    /// Records that a kubelet has renewed its Lease. An open case does not show whether the kubelet
    /// still does.
    fn lives(&mut self, now: At, decision: &Decision) {
        let Decision { name, uid, verdict, .. } = decision;
        match verdict {
            Verdict::Keep(Reason::Alive) => {
                self.alive.insert(Arc::clone(name), (uid.clone(), now));
            }
            Verdict::Suspect { .. } | Verdict::Keep(Reason::NoAnswer) => {}
            _ => drop(self.alive.remove(name)),
        }
    }

    /// Records if the check of the fleet failed.
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

    /// Records the API server's answer to a write to an existing node. A conflict does not count as
    /// a failure, because the changed node is decided again.
    pub(super) fn wrote(&mut self, at: At, action: &Action, answer: &WriteAnswer) {
        let name = &action.node.name;
        match answer {
            // Nothing was sent.
            Err(None) => {}
            Ok(_) | Err(Some(ApiError::Conflict | ApiError::NotFound)) => {
                self.failed.remove(name);
            }
            Err(Some(error)) => {
                let is_deletion = !matches!(action.write, Write::Marks(_));
                let (uid, error) = (action.node.uid.clone(), error.clone());
                let failed = Failed { at, uid, is_deletion, error };
                self.failed.insert(Arc::clone(name), failed);
            }
        }
    }

    /// Forgets this node, because it works again.
    pub(super) fn forget_answers(&mut self, name: &str) {
        self.heard.remove(name);
        self.alive.remove(name);
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.forget_answers(name);
        self.failed.remove(name);
    }

    /// Returns the last answer about the node with this UID.
    pub(super) fn answer_about(&self, name: &str, uid: &str) -> Option<&Heard> {
        self.heard.get(name).filter(|heard| *heard.said.uid == *uid)
    }

    /// Returns when lifecycle-ccm last saw that the kubelet of the node with this UID renewed its Lease while the
    /// cloud denied the instance.
    pub(super) fn alive(&self, name: &str, uid: &str) -> Option<At> {
        self.alive.get(name).filter(|(own, _)| **own == *uid).map(|(_, at)| *at)
    }

    /// Returns the last write to the node with this UID, if it has failed: a deletion of it, or a
    /// change of its marks.
    pub(super) fn failure(&self, name: &str, uid: &str, is_deletion: bool) -> Option<&Failed> {
        let failed = self.failed.get(name)?;
        (*failed.uid == *uid && failed.is_deletion == is_deletion).then_some(failed)
    }

    /// Returns when and why the last look at the fleet failed, if it did.
    pub(super) fn fleet(&self) -> Option<&(At, CloudError)> {
        self.fleet.as_ref()
    }
}
