//! Questions to the cloud, which change nothing: one of each kind at a time.

use ccm_base::At;
use ccm_cloud::LookupResult;

use super::{Job, State};
use crate::routes::plan::{Plan, claims::Claim};

/// How many nodes are looked up at once.
const LOOKED_UP: usize = 500;

impl State {
    /// The question about targets that is due, if one is.
    pub(crate) fn question(&mut self, plan: &Plan) -> Option<Job> {
        if plan.questions.is_empty() || self.is_asking {
            return None;
        }
        self.is_asking = true;
        let (targets, witnesses) = (plan.questions.clone(), plan.witnesses.clone());
        Some(Job::Ask { targets, witnesses })
    }

    /// The lookup of nodes whose word is not confirmed, if one is due.
    pub(crate) fn lookup(&mut self, plan: &Plan) -> Option<Job> {
        if plan.claims.is_empty() || self.is_looking_up {
            return None;
        }
        self.is_looking_up = true;
        Some(Job::LookUp(plan.claims.iter().take(LOOKED_UP).cloned().collect()))
    }

    /// The cloud has answered about targets.
    pub(crate) fn asked(&mut self) {
        self.is_asking = false;
    }

    /// The cloud has answered about the instances of nodes.
    pub(crate) fn looked_up(&mut self, now: At, answers: Vec<(Claim, LookupResult)>) {
        self.is_looking_up = false;
        self.planner.claimed(now, answers);
    }
}
