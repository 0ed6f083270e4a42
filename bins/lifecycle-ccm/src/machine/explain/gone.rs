//! Nodes whose instances the cloud reports as gone.

use ccm_runtime::explain::{Explanation, Fares, NOTHING, mend};

use super::{About, Heard, Machine, fares_of, observed, refused, unanswered};
use crate::policy::{
    Breaker, Doubt, Evidence, Reason, Verdict,
    action::{APPROVED, GONE, PROTECTED},
    text::kept,
};

impl Machine {
    /// The cloud has said that the instance is gone, now or before.
    pub(super) fn gone(&self, about: &About<'_>, heard: &Heard) -> Explanation {
        match heard.decision.verdict {
            Verdict::Delete => self.ending(about, heard),
            Verdict::Suspect { why, .. } => self.suspected(about, heard, why),
            Verdict::BreakerOpen
            | Verdict::OverBudget { .. }
            | Verdict::Keep(Reason::Protected | Reason::Ghost | Reason::Replaced) => {
                self.held(about, heard)
            }
            Verdict::Keep(Reason::Alive) => Explanation::new(
                Fares::Blocked,
                with(kept(Reason::Alive).text, &heard.decision.evidence),
                "check project, region and credentials in --cloud-config: the cloud denies a machine that lives",
            ),
            // An answer "gone" that is no evidence.
            Verdict::Keep(Reason::NoAnswer) => Explanation::new(
                Fares::Working,
                format!(
                    "{}: it came too late, or its proof is too weak",
                    kept(Reason::NoAnswer).text
                ),
                "wait; if it lasts, see if the cloud answers by the instance's ID, and within --cloud-call-timeout",
            ),
            Verdict::Keep(reason) => {
                Explanation::new(Fares::Working, kept(reason).text, "wait for the next lookup")
            }
        }
    }

    /// The deletion was decided.
    fn ending(&self, about: &About<'_>, heard: &Heard) -> Explanation {
        let due =
            with(format!("{GONE}, and the node is due for deletion"), &heard.decision.evidence);
        let watched = self.decider.watched(about.view, &self.parameters.policy);
        if watched.is_some_and(|(record, _)| record.deleted) {
            let cause =
                "the API server has accepted its deletion, and the watch has not shown it yet";
            return Explanation::new(Fares::Working, cause, NOTHING);
        }
        if self.observes {
            return observed(due);
        }
        let failed = self.last.failure(&about.view.name, true);
        match failed.filter(|failed| failed.at >= heard.said.answered) {
            Some(failed) => {
                let is_lost = failed.error.is_uncertain();
                let failed_how = if is_lost { "is not confirmed" } else { "failed" };
                let what = format!("{GONE}, but the deletion of the node {failed_how}");
                refused(what, &failed.error)
            }
            None => Explanation::new(Fares::Working, due, NOTHING),
        }
    }

    /// Something of the proof is missing.
    fn suspected(&self, about: &About<'_>, heard: &Heard, why: Doubt) -> Explanation {
        let name = &about.node.name;
        let cause = with(format!("{GONE}; {why}"), &heard.decision.evidence);
        let working = |mend: &str| Explanation::new(Fares::Working, cause.clone(), mend);
        match why {
            Doubt::Newborn => {
                working("wait: answers count when it is older than --node-grace-period")
            }
            Doubt::Unconfirmed if self.is_reported(about.view) => working(NOTHING),
            Doubt::Unconfirmed => working(&format!(
                "nothing has to be done; to keep it all the same: kubectl annotate node {name} {PROTECTED}=true"
            )),
            Doubt::NoAnswer => match &heard.said.result {
                Err(error) => {
                    let Explanation { fares, mend, .. } = unanswered(error);
                    Explanation::new(
                        fares,
                        with(format!("{GONE}; {why}: {error}"), &heard.decision.evidence),
                        mend,
                    )
                }
                Ok(_) => working(
                    "wait; if it lasts, see if the cloud answers by the instance's ID, and within --cloud-call-timeout",
                ),
            },
            Doubt::NoHeartbeat => working(
                "wait for one more confirmation period; if it lasts, grant the right to get Leases in kube-node-lease: docs/lifecycle-ccm.md, Rights",
            ),
            Doubt::NotListed if !about.view.has_id && !self.decider.lists() => Explanation::new(
                Fares::Blocked,
                format!(
                    "{cause}; the cloud has no list, without which a node without a provider ID is never deleted"
                ),
                format!("if its machine is gone: kubectl delete node {name}"),
            ),
            Doubt::NotListed => match self.last.fleet() {
                Some((_, error)) => Explanation::new(
                    fares_of(error),
                    format!("{GONE}; {why}: {error}"),
                    mend(error),
                ),
                None => working("wait: the fleet is looked at with the next lookups"),
            },
            Doubt::Listed => working(
                "wait; if it lasts, the list of the cloud contradicts its answer by ID: tell its support",
            ),
        }
    }

    /// A brake or a person holds the deletion.
    fn held(&self, about: &About<'_>, heard: &Heard) -> Explanation {
        let (view, name, policy) = (about.view, &about.node.name, &self.parameters.policy);
        let evidence = &heard.decision.evidence;
        let approve = format!("kubectl annotate node {name} {APPROVED}=yes");
        let held =
            |why: String, mend: String| Explanation::new(Fares::Held, with(why, evidence), mend);
        let passes = || {
            let cause = format!("{GONE}; what held its deletion may not hold it any more");
            Explanation::new(Fares::Working, with(cause, evidence), "wait for the next lookup")
        };
        let why = format!("{GONE}, but {}", heard.decision.held().unwrap_or_default());
        match (heard.decision.verdict, self.decider.breaker()) {
            (Verdict::BreakerOpen | Verdict::OverBudget { .. }, _) if view.approved => passes(),
            (Verdict::BreakerOpen, Breaker::Open { cause, .. }) => held(
                format!("{why}: {cause}"),
                format!(
                    "check project, region and credentials in --cloud-config: the breaker closes by itself when the cloud shows the fleet again; only if the machine is really gone: {approve} (many at once: docs/lifecycle-ccm.md, Approving a set)"
                ),
            ),
            (Verdict::OverBudget { until: Some(until) }, _) if until > about.now => held(
                why,
                format!(
                    "wait: the budget allows more {}; to delete it now: {approve}",
                    super::moment(until, about.now)
                ),
            ),
            (Verdict::OverBudget { until: None }, _) => {
                held(why, format!("raise --node-deletion-budget, or approve this one: {approve}"))
            }
            (Verdict::Keep(Reason::Protected), _) if view.protected => held(
                kept(Reason::Protected).text,
                format!(
                    "nothing has to be done; to let it go: kubectl annotate node {name} {PROTECTED}-"
                ),
            ),
            (Verdict::Keep(Reason::Ghost), _) if !view.may_be_deleted(policy) => held(
                kept(Reason::Ghost).text,
                format!("if no machine has this name: kubectl delete node {name}"),
            ),
            (Verdict::Keep(Reason::Replaced), _) if self.is_reported(view) => held(
                kept(Reason::Replaced).text,
                format!(
                    "kubectl delete node {name}, and restart its kubelet; or set --replaced-nodes=delete"
                ),
            ),
            _ => passes(),
        }
    }
}

/// A cause with the cloud's words.
fn with(cause: String, evidence: &Evidence) -> String {
    match evidence.first {
        Some(_) => format!("{cause}; {evidence}"),
        None => cause,
    }
}
