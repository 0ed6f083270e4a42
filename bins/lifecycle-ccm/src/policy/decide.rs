//! The rules, in order: the first matching rule decides.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use ccm_cloud::{AbsenceProof, Lookup, ProofMethod};
use ccm_controller::brake::{Hold, Transition};

use super::{
    Answers, At, Decider, Decision, Doubt, Evidence, ListCoverage, Listing, LookedUp, NodeView,
    Policy, Proof, Reason, Verdict, agenda, breaker,
    record::{Case, Record},
};

impl Decider {
    /// Decides about the looked-up nodes from the answers. `views` is the current state of the
    /// nodes, not the state at the time of the lookup; the list's `missing` must be computed
    /// from the same views.
    ///
    /// The decisions about cases that ended by themselves come first (the node turned Ready,
    /// was deleted, left the policy's reach), then those about looked-up nodes, and last those
    /// about nodes whose instance is proven to be gone. The last group is ordered by case and
    /// name, with nodes whose deletion was refused at the end: this is the order in which
    /// nodes receive budget.
    pub fn decide(
        &mut self,
        now: At,
        views: &[NodeView],
        answers: Answers,
        policy: &Policy,
    ) -> Vec<Decision> {
        let mut decisions = self.track(views);
        let ended: HashSet<Box<str>> =
            decisions.iter().map(|decision| decision.uid.clone()).collect();
        if answers.list.is_some() {
            self.listed = Some(answers.asked);
        }
        let list = answers.list.and_then(|list| usable(list, policy)).map(|list| {
            let (coverage, cause) = breaker::measure(views, &list.missing, list.instances, policy);
            if self.brake.observe(now, cause) == Transition::Closed {
                self.forget_evidence(views);
            }
            FreshList { asked: list.asked, missing: list.missing, coverage }
        });
        let pass = PassInput { now, asked: answers.asked, list, policy };
        let by_name: HashMap<&str, &NodeView> =
            views.iter().map(|view| (&*view.name, view)).collect();
        let mut proven = Vec::new();
        for lookup in answers.lookups {
            if ended.contains(&lookup.uid) {
                continue;
            }
            let view = by_name.get(&*lookup.name).copied();
            let record = self.records.get_mut(&lookup.name);
            match pass.evaluate(view, record, lookup) {
                Evaluation::Decided(decision) => decisions.push(decision),
                Evaluation::Proven { decision, approved } => proven.push((decision, approved)),
            }
        }
        let refused = |name: &Arc<str>| self.records.get(name).is_some_and(|record| record.refused);
        proven.sort_by_cached_key(|(a, _)| (refused(&a.name), a.since, Arc::clone(&a.name)));
        let known = breaker::known(views, policy).count();
        for (mut decision, approved) in proven {
            decision.verdict = self.verdict(now, &decision.uid, approved, known, policy);
            self.hold(now, &decision, policy);
            decisions.push(decision);
        }
        decisions
    }

    /// Answers of a cloud whose list was implausible are no evidence: every case starts over,
    /// except those of approved nodes, which the breaker does not hold.
    fn forget_evidence(&mut self, views: &[NodeView]) {
        for view in views.iter().filter(|view| !view.approved) {
            if let Some(record) = self.records.get_mut(&view.name) {
                record.case = None;
                record.look_again = At::default();
            }
        }
    }

    /// Held nodes are looked up less often.
    fn hold(&mut self, now: At, decision: &Decision, policy: &Policy) {
        let until = match decision.verdict {
            Verdict::BreakerOpen => None,
            Verdict::OverBudget { until } => until,
            _ => return,
        };
        let together = agenda::held_until(now, policy);
        if let Some(record) = self.records.get_mut(&decision.name) {
            record.look_again = until.map_or(together, |until| until.min(together));
        }
    }

    /// Breaker and budget; the operator's approval bypasses both.
    fn verdict(
        &mut self,
        now: At,
        uid: &str,
        approved: bool,
        known: usize,
        policy: &Policy,
    ) -> Verdict {
        if approved {
            return Verdict::Delete;
        }
        match self.brake.request(now, uid, known, policy.deletions()) {
            Ok(()) => Verdict::Delete,
            Err(Hold::Breaker) => Verdict::BreakerOpen,
            Err(Hold::Budget { until }) => Verdict::OverBudget { until },
        }
    }
}

/// The reason why the policy does not apply to this node, if any.
pub fn exempt(view: &NodeView) -> Option<Reason> {
    use ccm_cloud::Claim;
    match view {
        NodeView { claim: Claim::Foreign, .. } => Some(Reason::Foreign),
        NodeView { selected: false, .. } => Some(Reason::NotSelected),
        NodeView { deleting: true, .. } => Some(Reason::Deleting),
        NodeView { ready: true, .. } => Some(Reason::Ready),
        _ => None,
    }
}

/// A usable list.
struct FreshList {
    asked: At,
    missing: BTreeSet<Arc<str>>,
    coverage: ListCoverage,
}

struct Read {
    asked: At,
    instances: usize,
    missing: BTreeSet<Arc<str>>,
}

/// A list that failed or took too long proves nothing.
fn usable(list: Listing, policy: &Policy) -> Option<Read> {
    match list {
        Listing::Read { asked, answered, instances, missing, .. }
            if answered.since(asked) <= policy.evidence_age =>
        {
            Some(Read { asked, instances, missing })
        }
        Listing::Read { .. } | Listing::Failed(_) => None,
    }
}

enum Evaluation {
    Decided(Decision),
    /// The instance is proven to be gone; the caller sets the verdict.
    Proven {
        decision: Decision,
        approved: bool,
    },
}

/// The values shared by all nodes of one pass.
struct PassInput<'a> {
    now: At,
    asked: At,
    list: Option<FreshList>,
    policy: &'a Policy,
}

impl PassInput<'_> {
    fn evaluate(
        &self,
        view: Option<&NodeView>,
        record: Option<&mut Record>,
        lookup: LookedUp,
    ) -> Evaluation {
        let LookedUp { name, uid, answered, result } = lookup;
        let bare = |reason| Decision {
            name: Arc::clone(&name),
            uid: uid.clone(),
            verdict: Verdict::Keep(reason),
            since: None,
            evidence: Evidence::default(),
        };
        let Some(view) = view.filter(|view| view.uid == uid) else {
            return Evaluation::Decided(bare(Reason::AnotherNode));
        };
        let (None, Some(record)) = (exempt(view), record) else {
            return Evaluation::Decided(bare(exempt(view).unwrap_or(Reason::AnotherNode)));
        };
        record.looked = Some(self.now);
        record.look_again = self.now + self.policy.monitor_period;
        let before = record.case.as_ref().map(Case::opened);
        let mut decision = bare(Reason::Exists);
        decision.since = before;
        decision.evidence = self.evidence(record);
        let proof = match result {
            Ok(Lookup::Found(_)) => return close_case(record, decision, Reason::Exists),
            Ok(Lookup::NotOurs(_)) => return close_case(record, decision, Reason::NotOurs),
            Ok(Lookup::Gone(proof)) if self.counts(view, answered, &proof) => self.proof(proof),
            Ok(Lookup::Gone(_)) | Err(_) => {
                if record.case.is_some() {
                    decision.verdict = suspect(record, Doubt::NoAnswer);
                } else {
                    decision.verdict = Verdict::Keep(Reason::NoAnswer);
                }
                return Evaluation::Decided(decision);
            }
        };
        self.gone(view, record, decision, proof)
    }

    /// Handles an answer "gone" that counts.
    fn gone(
        &self,
        view: &NodeView,
        record: &mut Record,
        mut decision: Decision,
        proof: Proof,
    ) -> Evaluation {
        match &mut record.case {
            Some(case) => case.add(proof),
            None => record.case = Some(Case::open(proof)),
        }
        decision.evidence = self.evidence(record);
        if view.protected {
            return close_case(record, decision, Reason::Protected);
        }
        if !view.may_be_deleted(self.policy) {
            return close_case(record, decision, Reason::Ghost);
        }
        let Some(opened) = record.case.as_ref().map(Case::opened) else {
            return close_case(record, decision, Reason::NoAnswer);
        };
        let confirmed_from = opened + self.policy.confirmation_period;
        let why = if !view.was_past_grace_period(self.now, self.asked, self.policy) {
            record.case = None;
            Some(Doubt::Newborn)
        } else if decision.evidence.answers < 2 || self.asked < confirmed_from {
            // A lookup shortly before the confirmation period ends cannot confirm, and the
            // next one would be a monitor period later: so delay this one.
            if confirmed_from <= record.look_again + self.policy.monitor_period / 2 {
                record.look_again = confirmed_from.max(self.now);
            }
            Some(Doubt::Unconfirmed)
        } else {
            self.list_doubt(view, record, opened)
        };
        decision.since = record.case.as_ref().map(Case::opened);
        match why {
            Some(why) => {
                decision.verdict = suspect(record, why);
                Evaluation::Decided(decision)
            }
            None => Evaluation::Proven { decision, approved: view.approved },
        }
    }

    /// Why the list does not confirm the deletion, if it does not.
    fn list_doubt(&self, view: &NodeView, record: &mut Record, opened: At) -> Option<Doubt> {
        match self.list.as_ref().filter(|list| list.asked >= opened) {
            None => Some(Doubt::NotListed),
            Some(list) if !list.missing.contains(&view.name) => {
                record.case = None;
                Some(Doubt::Listed)
            }
            Some(_) => None,
        }
    }

    /// Whether an answer "gone" counts: received in time, and proven by ID if the node has one.
    fn counts(&self, view: &NodeView, answered: At, proof: &AbsenceProof) -> bool {
        let is_proof = match proof.method {
            ProofMethod::ById => true,
            ProofMethod::BySystemUuid | ProofMethod::ByName => !view.has_id,
            ProofMethod::ByOwner | ProofMethod::ProvidersWord => false,
        };
        is_proof && answered.since(self.asked) <= self.policy.evidence_age
    }

    fn proof(&self, proof: AbsenceProof) -> Proof {
        Proof {
            asked: self.asked,
            answered: self.now,
            method: proof.method,
            evidence: proof.evidence,
            request_id: proof.request_id,
        }
    }

    fn evidence(&self, record: &Record) -> Evidence {
        let coverage = self.list.as_ref().map(|list| list.coverage);
        record.case.as_ref().map(|case| case.evidence(coverage)).unwrap_or_default()
    }
}

/// Closes the case, if there is one.
fn close_case(record: &mut Record, mut decision: Decision, reason: Reason) -> Evaluation {
    record.case = None;
    decision.verdict = Verdict::Keep(reason);
    Evaluation::Decided(decision)
}

fn suspect(record: &Record, why: Doubt) -> Verdict {
    Verdict::Suspect { look_again: record.look_again, why }
}
