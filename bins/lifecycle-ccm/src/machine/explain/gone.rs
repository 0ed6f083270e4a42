//! Nodes whose instances the cloud reports as gone.

use ccm_base::At;
use ccm_runtime::explain::{
    Explanation, NOTHING, ObjectState, fix_for_error, moment, state_for_error,
};

use super::{About, Heard, Machine, refused};
use crate::policy::{
    Breaker, Doubt, Evidence, Reason, Verdict,
    action::{GONE, PROTECTED, approval_command},
    text::kept,
};

impl Machine {
    /// Explains a node whose instance the cloud has reported as gone, now or before.
    pub(super) fn gone(&self, about: &About<'_>, heard: &Heard) -> Explanation {
        match heard.decision.verdict {
            Verdict::Delete => self.ending(about, heard),
            Verdict::Suspect { why, .. } => self.suspected(about, heard, why),
            Verdict::BreakerOpen
            | Verdict::OverBudget { .. }
            | Verdict::Keep(Reason::Protected | Reason::Ghost | Reason::Replaced) => {
                self.held(about, heard)
            }
            Verdict::Keep(Reason::Alive) => {
                denied(kept(Reason::Alive).text, &heard.decision.evidence)
            }
            // The cloud says "gone", but that does not count as evidence.
            Verdict::Keep(Reason::NoAnswer) => Explanation::new(
                ObjectState::Working,
                format!(
                    "{}: it came too late, or its proof is too weak",
                    kept(Reason::NoAnswer).text
                ),
                NO_EVIDENCE,
            ),
            Verdict::Keep(reason) => Explanation::new(
                ObjectState::Working,
                kept(reason).text,
                "wait for the next lookup",
            ),
        }
    }

    /// Explains a node whose deletion was decided.
    fn ending(&self, about: &About<'_>, heard: &Heard) -> Explanation {
        let due =
            with(format!("{GONE}, and the node is due for deletion"), &heard.decision.evidence);
        let watched = self.decider.watched(about.view, &self.parameters.policy);
        if watched.is_some_and(|(record, _)| record.deleted) {
            let cause =
                "the API server has accepted its deletion, and the watch has not shown it yet";
            return Explanation::new(ObjectState::Working, cause, NOTHING);
        }
        if self.observes {
            return Explanation::observed(&due);
        }
        let failed = self.last.failure(&about.view.name, &about.view.uid, true);
        match failed.filter(|failed| failed.at >= heard.said.answered) {
            Some(failed) => {
                let is_lost = failed.error.is_uncertain();
                let failed_how = if is_lost { "is not confirmed" } else { "failed" };
                let what = format!("{GONE}, but the deletion of the node {failed_how}");
                refused(&what, &failed.error)
            }
            None => Explanation::new(ObjectState::Working, due, NOTHING),
        }
    }

    /// Explains a node whose proof is not complete.
    fn suspected(&self, about: &About<'_>, heard: &Heard, why: Doubt) -> Explanation {
        if let Some(at) = self.lived(about) {
            return denied(
                format!(
                    "{GONE}, but its kubelet has renewed its Lease since, the last time {}; the node is kept",
                    moment(at, about.now)
                ),
                &heard.decision.evidence,
            );
        }
        let cause = with(format!("{GONE}; {why}"), &heard.decision.evidence);
        let fix = match why {
            Doubt::Newborn => "wait: answers count when it is older than --node-grace-period".to_owned(),
            Doubt::Unconfirmed if self.is_reported(about.view) => NOTHING.to_owned(),
            Doubt::Unconfirmed => format!(
                "{NOTHING}; to keep it nevertheless: kubectl annotate node {} --overwrite {PROTECTED}=true",
                about.node.name
            ),
            Doubt::NoAnswer => return without_answer(heard, cause),
            Doubt::NoHeartbeat => "wait for one more confirmation period; if it lasts, grant the right to get Leases in kube-node-lease: docs/reference/rights.md".to_owned(),
            Doubt::NotListed => return self.not_listed(about, cause),
            Doubt::Listed => "wait; if it lasts, the list of the cloud contradicts its answer by ID: report that to its support".to_owned(),
        };
        Explanation::new(ObjectState::Working, cause, fix)
    }

    /// Explains a node whose absence no list of the fleet has confirmed.
    fn not_listed(&self, about: &About<'_>, cause: String) -> Explanation {
        if !about.view.has_id && !self.decider.lists() {
            return Explanation::new(
                ObjectState::Blocked,
                format!(
                    "{cause}; the cloud cannot list its instances, and without a list lifecycle-ccm never deletes a node without a provider ID"
                ),
                format!("if its machine is gone: kubectl delete node {}", about.node.name),
            );
        }
        match self.last.fleet() {
            Some((_, error)) => Explanation::new(
                state_for_error(error),
                format!("{GONE}; {}: {error}", Doubt::NotListed),
                fix_for_error(error),
            ),
            None => Explanation::new(
                ObjectState::Working,
                cause,
                "wait: the fleet is checked with the next lookups",
            ),
        }
    }

    /// Explains a deletion that a brake or a person holds.
    fn held(&self, about: &About<'_>, heard: &Heard) -> Explanation {
        let evidence = &heard.decision.evidence;
        let held = match heard.decision.verdict {
            Verdict::BreakerOpen => self.held_by_breaker(about, heard),
            Verdict::OverBudget { until } => held_by_budget(about, heard, until),
            Verdict::Keep(reason) => self.held_by_setting(about, reason),
            _ => None,
        };
        match held {
            Some((why, fix)) => Explanation::new(ObjectState::Held, with(why, evidence), fix),
            None => {
                let cause = format!("{GONE}; its deletion may no longer be held");
                Explanation::new(
                    ObjectState::Working,
                    with(cause, evidence),
                    "wait for the next lookup",
                )
            }
        }
    }

    fn held_by_breaker(&self, about: &About<'_>, heard: &Heard) -> Option<(String, String)> {
        let Breaker::Open { cause, .. } = self.decider.breaker() else { return None };
        let why = format!("{}: {cause}", but_held(heard));
        let fix = format!(
            "check project, region and credentials in --cloud-config: the breaker closes on its own when the cloud shows the fleet again; only if the machine is really gone: {} (many at once: docs/how-to/operations.md, Approve what is held)",
            approval_command(about.node)
        );
        (!about.view.approved).then_some((why, fix))
    }

    /// Returns the annotation or the flag that keeps the node, and the remedy.
    fn held_by_setting(&self, about: &About<'_>, reason: Reason) -> Option<(String, String)> {
        let (view, name, policy) = (about.view, &about.node.name, &self.parameters.policy);
        let fix = match reason {
            Reason::Protected if view.protected => {
                format!(
                    "{NOTHING}; to allow its deletion: kubectl annotate node {name} {PROTECTED}-"
                )
            }
            Reason::Ghost if !view.may_be_deleted(policy) => {
                format!("if no machine has this name: kubectl delete node {name}")
            }
            Reason::Replaced if self.is_reported(view) => format!(
                "kubectl delete node {name}, and restart its kubelet; or set --replaced-nodes=delete, and open the admission policy: docs/explanation/lifecycle-ccm.md, Ready nodes and the admission policy"
            ),
            _ => return None,
        };
        Some((kept(reason).text, fix))
    }
}

fn held_by_budget(about: &About<'_>, heard: &Heard, until: Option<At>) -> Option<(String, String)> {
    let approve = approval_command(about.node);
    let fix = match until {
        _ if about.view.approved => return None,
        Some(until) if until <= about.now => return None,
        Some(until) => format!(
            "wait: the budget allows more {}; to delete it now: {approve}",
            moment(until, about.now)
        ),
        None => format!("raise --node-deletion-budget, or approve this one: {approve}"),
    };
    Some((but_held(heard), fix))
}

fn but_held(heard: &Heard) -> String {
    format!("{GONE}, but {}", heard.decision.held().unwrap_or_default())
}

/// Explains a node about which the cloud has not repeated its answer.
fn without_answer(heard: &Heard, cause: String) -> Explanation {
    match &heard.said.result {
        Err(error) => {
            let why = format!("{GONE}; {}: {error}", Doubt::NoAnswer);
            Explanation::new(
                state_for_error(error),
                with(why, &heard.decision.evidence),
                fix_for_error(error),
            )
        }
        Ok(_) => Explanation::new(ObjectState::Working, cause, NO_EVIDENCE),
    }
}

/// Returns the cloud denies an instance whose machine lives.
fn denied(cause: String, evidence: &Evidence) -> Explanation {
    let fix = "check project, region and credentials in --cloud-config: the cloud reports a running machine as gone";
    Explanation::new(ObjectState::Blocked, with(cause, evidence), fix)
}

/// The fix for an answer that is too late or proves nothing.
const NO_EVIDENCE: &str = "wait; if it lasts, check whether the cloud answers by the instance's ID and within --cloud-call-timeout";

/// Returns a cause with the cloud's words.
fn with(cause: String, evidence: &Evidence) -> String {
    match evidence.first {
        Some(_) => format!("{cause}; {evidence}"),
        None => cause,
    }
}
