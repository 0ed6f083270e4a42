//! The rules, in order: the first matching rule decides.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ccm_cloud::{AbsenceProof, ErrorKind, Lookup, ProofMethod};
use ccm_controller::brake::{Hold, Transition};

use super::{
    Answers, At, Decider, Decision, Doubt, Evidence, Heartbeat, ListCoverage, Listing, LookedUp,
    NodeView, Policy, Proof, Reason, Replaced, Verdict, agenda,
    breaker::FleetLook,
    record::{Case, Record},
};

impl Decider {
    /// Decides about the looked-up nodes from the answers. `views` is the current state of the
    /// nodes, not the state at the time of the lookup; the list's `missing` must be computed
    /// from the same views.
    ///
    /// First come the decisions about cases that ended on their own (the node became Ready, was
    /// deleted, left the policy's reach), then decisions about looked-up nodes, and last decisions
    /// about nodes whose instance is proven to be gone. The last group is ordered by case and name,
    /// with nodes whose deletion was refused at the end: this is the order in which nodes receive
    /// budget.
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
        self.learn(&answers);
        let shown = self.shown(views, &answers, policy);
        self.has_seen |= shown.is_some();
        let list = shown.map(|shown| {
            let (coverage, cause) = self.measure(views, &shown, policy);
            if self.brake.observe(now, cause) == Transition::Closed {
                self.forget_evidence(views, &shown);
            }
            (shown, coverage)
        });
        let cloud_lists = self.abilities.lists;
        let pass = PassInput { now, asked: answers.asked, list, cloud_lists, policy };
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
                Evaluation::Proven(decision, view) => proven.push((decision, view)),
            }
        }
        let refused = |name: &Arc<str>| self.records.get(name).is_some_and(|record| record.refused);
        proven.sort_by_cached_key(|(a, _)| (refused(&a.name), a.since, Arc::clone(&a.name)));
        let known = self.known(views, policy).count();
        for (mut decision, view) in proven {
            decision.approved = view.approved;
            decision.verdict = self.verdict(now, view, known, policy);
            self.hold(now, &decision, policy);
            decisions.push(decision);
        }
        decisions
    }

    /// Remembers for which nodes the provider cannot answer. If there are new ones, the breaker may
    /// have opened because of them, so the fleet is listed again at once. If it can answer for all
    /// witnesses, no others are looked up until the next list.
    fn learn(&mut self, answers: &Answers) {
        let before = self.unjudged.len();
        for LookedUp { name, uid, result, .. } in answers.witnesses.iter().chain(&answers.lookups) {
            self.unlisted.remove(name);
            match result {
                Ok(Lookup::Found(_) | Lookup::Gone(_)) => drop(self.unjudged.take(uid)),
                Ok(Lookup::NotOurs(_)) => drop(self.unjudged.replace(uid.clone())),
                Err(error) if error.kind == ErrorKind::Invalid => {
                    self.unjudged.insert(uid.clone());
                }
                Err(_) => {}
            }
        }
        if self.unjudged.len() > before {
            self.listed = None;
        } else if !answers.witnesses.is_empty() {
            self.unlisted.clear();
        }
    }

    /// Returns the result of the list, or of the witnesses. A list that failed or took too long
    /// proves nothing, nor do witnesses without an answer in time.
    fn shown(&self, views: &[NodeView], answers: &Answers, policy: &Policy) -> Option<FleetLook> {
        let in_time = |answered: At, asked: At| answered.since(asked) <= policy.evidence_age;
        match answers.list.as_ref()? {
            Listing::Read { asked, answered, instances, missing, .. } => {
                let shown = FleetLook {
                    asked: *asked,
                    instances: *instances,
                    missing: missing.clone(),
                    witnesses: None,
                };
                in_time(*answered, *asked).then_some(shown)
            }
            Listing::Witnesses => {
                let well: HashSet<&str> =
                    views.iter().filter(|view| view.is_well()).map(|view| &*view.uid).collect();
                let asked = answers.witnesses.iter().filter(|one| well.contains(&*one.uid));
                let heard = asked.clone().filter(|one| in_time(one.answered, answers.asked));
                let found = heard.clone().filter(|one| matches!(one.result, Ok(Lookup::Found(_))));
                let gone = heard.filter(|one| matches!(one.result, Ok(Lookup::Gone(_))));
                let (found, gone) = (found.count(), gone.count());
                let cases = self.records.iter().filter(|(_, record)| record.case.is_some());
                let missing = cases.map(|(name, _)| Arc::clone(name)).collect();
                let witnesses = Some((found, gone));
                let shown =
                    FleetLook { asked: answers.asked, instances: found, missing, witnesses };
                (found + gone > 0 || asked.count() == 0).then_some(shown)
            }
            Listing::Failed(_) => None,
        }
    }

    /// Forgets the answers of a cloud whose list was implausible: every case starts over, except
    /// the cases of approved nodes, which the breaker does not hold, and the cases that were proven
    /// for so long that they have closed it.
    fn forget_evidence(&mut self, views: &[NodeView], shown: &FleetLook) {
        for view in views.iter().filter(|view| !view.approved) {
            if self.is_proven(&view.name) && shown.missing.contains(&view.name) {
                continue;
            }
            if let Some(record) = self.records.get_mut(&view.name) {
                record.case = None;
                record.look_again = At::default();
            }
        }
    }

    /// Schedules the next lookup of a held node: such nodes are looked up less often.
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

    /// Applies breaker and budget; the operator's approval bypasses both, an autoscaler's mark
    /// bypasses the budget.
    fn verdict(&mut self, now: At, view: &NodeView, known: usize, policy: &Policy) -> Verdict {
        if view.approved || (view.marked && !self.breaker().is_open()) {
            return Verdict::Delete;
        }
        match self.brake.request(now, &view.uid, known, policy.deletions()) {
            Ok(()) => {
                // It may have been charged for an earlier deletion that had no effect.
                self.brake.renew(now, &view.uid);
                Verdict::Delete
            }
            Err(Hold::Breaker) => Verdict::BreakerOpen,
            Err(Hold::Budget { until }) => Verdict::OverBudget { until },
        }
    }
}

/// Returns the reason why the policy does not apply to this node, if any.
pub fn exempt(view: &NodeView) -> Option<Reason> {
    use ccm_cloud::Claim;
    match view {
        NodeView { claim: Claim::Foreign, .. } => Some(Reason::Foreign),
        NodeView { selected: false, .. } => Some(Reason::NotSelected),
        NodeView { deleting: true, .. } => Some(Reason::Deleting),
        view if view.is_well() => Some(Reason::Ready),
        _ => None,
    }
}

enum Evaluation<'a> {
    Decided(Decision),
    /// The instance is proven to be gone; the caller sets the verdict.
    Proven(Decision, &'a NodeView),
}

/// The values shared by all nodes of one pass.
struct PassInput<'a> {
    now: At,
    asked: At,
    list: Option<(FleetLook, ListCoverage)>,
    cloud_lists: bool,
    policy: &'a Policy,
}

impl PassInput<'_> {
    fn evaluate<'v>(
        &self,
        view: Option<&'v NodeView>,
        record: Option<&mut Record>,
        lookup: LookedUp,
    ) -> Evaluation<'v> {
        let LookedUp { name, uid, answered, result, heartbeat } = lookup;
        let bare = |reason| Decision {
            name: Arc::clone(&name),
            uid: uid.clone(),
            verdict: Verdict::Keep(reason),
            since: None,
            evidence: Evidence::default(),
            approved: false,
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
        self.gone(view, record, decision, (proof, heartbeat))
    }

    /// Handles an answer "gone" that counts.
    fn gone<'v>(
        &self,
        view: &'v NodeView,
        record: &mut Record,
        mut decision: Decision,
        (proof, heartbeat): (Proof, Option<Heartbeat>),
    ) -> Evaluation<'v> {
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
        let Some(case) = &mut record.case else {
            return close_case(record, decision, Reason::NoAnswer);
        };
        match (&case.heartbeat, &heartbeat) {
            (Some((_, first)), Some(now)) if first != now => {
                return close_case(record, decision, Reason::Alive);
            }
            (None, Some(now)) => case.heartbeat = Some((self.now, now.clone())),
            _ => {}
        }
        let why = self.doubt(view, record, heartbeat.is_some());
        decision.since = record.case.as_ref().map(Case::opened);
        if let Some(why) = why {
            decision.verdict = suspect(record, why);
        } else if view.ready && self.policy.replaced == Replaced::Report {
            decision.verdict = Verdict::Keep(Reason::Replaced);
        } else {
            return Evaluation::Proven(decision, view);
        }
        Evaluation::Decided(decision)
    }

    /// Returns the missing proof of the case, if any.
    fn doubt(&self, view: &NodeView, record: &mut Record, is_beat_read: bool) -> Option<Doubt> {
        let Self { now, asked, policy, .. } = *self;
        let case = record.case.as_ref()?;
        let (periods, answers) = case.needs(self.cloud_lists);
        let opened = case.opened();
        let confirmed_from = opened + policy.confirmation_period * periods;
        let read = case.heartbeat.as_ref().map(|(at, _)| *at + policy.confirmation_period);
        if !view.was_past_grace_period(now, asked, policy) {
            record.case = None;
            Some(Doubt::Newborn)
        } else if case.answers() < answers || asked < confirmed_from {
            // A lookup shortly before the confirmation period ends cannot confirm, and the
            // next one would be a monitor period later: so delay this one.
            if confirmed_from <= record.look_again + policy.monitor_period / 2 {
                record.look_again = confirmed_from.max(now);
            }
            Some(Doubt::Unconfirmed)
        } else if view.ready {
            let only_reports = policy.replaced == Replaced::Report;
            (!only_reports).then(|| self.list_doubt(view, record, opened)).flatten()
        } else if !is_beat_read || read.is_none_or(|from| asked < from) {
            Some(Doubt::NoHeartbeat)
        } else {
            self.list_doubt(view, record, opened)
        }
    }

    /// Returns why the list does not confirm the deletion, if it does not. Witnesses confirm only
    /// what was proven by ID.
    fn list_doubt(&self, view: &NodeView, record: &mut Record, opened: At) -> Option<Doubt> {
        match self.list.as_ref().filter(|(shown, _)| shown.asked >= opened) {
            None => Some(Doubt::NotListed),
            Some((shown, _)) if shown.witnesses.is_some() => {
                (!view.has_id).then_some(Doubt::NotListed)
            }
            Some((shown, _)) if !shown.missing.contains(&view.name) => {
                record.case = None;
                Some(Doubt::Listed)
            }
            Some(_) => None,
        }
    }

    /// Returns true if an answer "gone" counts: received in time, and proven by ID if the node has
    /// one.
    fn counts(&self, view: &NodeView, answered: At, proof: &AbsenceProof) -> bool {
        let is_proof = match proof.method {
            ProofMethod::ById => true,
            ProofMethod::BySystemUuid | ProofMethod::ByName => !view.has_id,
            ProofMethod::ProvidersWord => view.has_id,
            ProofMethod::ByOwner => false,
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
        let coverage = self.list.as_ref().map(|(_, coverage)| *coverage);
        record.case.as_ref().map(|case| case.evidence(coverage)).unwrap_or_default()
    }
}

/// Closes the case, if there is one.
fn close_case<'v>(record: &mut Record, mut decision: Decision, reason: Reason) -> Evaluation<'v> {
    record.case = None;
    decision.verdict = Verdict::Keep(reason);
    Evaluation::Decided(decision)
}

fn suspect(record: &Record, why: Doubt) -> Verdict {
    Verdict::Suspect { look_again: record.look_again, why }
}
