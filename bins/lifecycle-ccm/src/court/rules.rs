//! The rules, in order: the first that applies decides.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use ccm_cloud::{AbsenceProof, ProofMethod};
use ccm_controller::brake::{Hold, Transition};

use super::{
    At, Court, Doubt, Evidence, Hearing, Listing, LookedUp, Policy, Proof, Reason, Roll, Ruling,
    Subject, Testimony, Verdict, agenda, breaker,
    record::{Case, Record},
};

impl Court {
    /// Judges the nodes that were asked about by what was answered. `subjects` are the
    /// nodes as they are now, not as they were when the cloud was asked; the list's
    /// `missing` must be measured by the same.
    ///
    /// The rulings about cases that ended by themselves come first (the node turned
    /// Ready, vanished, left the court's reach), then those about nodes that were looked
    /// up, and last those about the convicted in the order of their cases, then of their
    /// names, those whose deletion was refused behind the others: the order in which they
    /// get what budget there is.
    pub fn hear(
        &mut self,
        now: At,
        subjects: &[Subject],
        hearing: Hearing,
        policy: &Policy,
    ) -> Vec<Ruling> {
        let mut rulings = self.enrol(subjects);
        let ended: HashSet<Box<str>> = rulings.iter().map(|ruling| ruling.uid.clone()).collect();
        if hearing.list.is_some() {
            self.listed = Some(hearing.asked);
        }
        let list = hearing.list.and_then(|list| usable(list, policy)).map(|list| {
            let (roll, cause) = breaker::measure(subjects, &list.missing, list.instances, policy);
            if self.brake.observe(now, cause) == Transition::Closed {
                self.forget_evidence(subjects);
            }
            Roster { asked: list.asked, missing: list.missing, roll }
        });
        let session = Session {
            now,
            asked: hearing.asked,
            slow: hearing.answered.since(hearing.asked) > policy.evidence_age,
            list,
            policy,
        };
        let by_name: HashMap<&str, &Subject> =
            subjects.iter().map(|subject| (&*subject.name, subject)).collect();
        let mut convicted = Vec::new();
        for lookup in hearing.lookups {
            if ended.contains(&lookup.uid) {
                continue;
            }
            let subject = by_name.get(&*lookup.name).copied();
            let record = self.records.get_mut(&lookup.name);
            match session.judge(subject, record, lookup) {
                Judgement::Ruled(ruling) => rulings.push(ruling),
                Judgement::Convicted { ruling, approved } => convicted.push((ruling, approved)),
            }
        }
        let refused = |name: &Arc<str>| self.records.get(name).is_some_and(|record| record.refused);
        convicted.sort_by_cached_key(|(a, _)| (refused(&a.name), a.since, Arc::clone(&a.name)));
        let known = breaker::known(subjects, policy).count();
        for (mut ruling, approved) in convicted {
            ruling.verdict = self.sentence(now, &ruling.uid, approved, known, policy);
            self.hold(now, &ruling, policy);
            rulings.push(ruling);
        }
        rulings
    }

    /// What a cloud said while its list was not believable is no evidence once it is:
    /// every case begins anew, but those of approved nodes, which no breaker holds.
    fn forget_evidence(&mut self, subjects: &[Subject]) {
        for subject in subjects.iter().filter(|subject| !subject.approved) {
            if let Some(record) = self.records.get_mut(&subject.name) {
                record.case = None;
                record.look_again = At::default();
            }
        }
    }

    /// Those who are held are looked at more seldom.
    fn hold(&mut self, now: At, ruling: &Ruling, policy: &Policy) {
        let until = match ruling.verdict {
            Verdict::BreakerOpen => None,
            Verdict::OverBudget { until } => until,
            _ => return,
        };
        let together = agenda::held_until(now, policy);
        if let Some(record) = self.records.get_mut(&ruling.name) {
            record.look_again = until.map_or(together, |until| until.min(together));
        }
    }

    /// The brake; the operator's approval passes it.
    fn sentence(
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

/// Why the court has nothing to do with this node, if so.
pub fn acquitted(subject: &Subject) -> Option<Reason> {
    use ccm_cloud::Claim;
    match subject {
        Subject { claim: Claim::Foreign, .. } => Some(Reason::Foreign),
        Subject { selected: false, .. } => Some(Reason::NotSelected),
        Subject { deleting: true, .. } => Some(Reason::Deleting),
        Subject { ready: true, .. } => Some(Reason::Ready),
        _ => None,
    }
}

/// A list that may be used.
struct Roster {
    asked: At,
    missing: BTreeSet<Arc<str>>,
    roll: Roll,
}

struct Read {
    asked: At,
    instances: usize,
    missing: BTreeSet<Arc<str>>,
}

/// A list that failed or took too long says nothing.
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

enum Judgement {
    Ruled(Ruling),
    /// All that speaks against the node is together; the verdict is still to be filled in.
    Convicted {
        ruling: Ruling,
        approved: bool,
    },
}

/// What holds for every node of one hearing.
struct Session<'a> {
    now: At,
    asked: At,
    slow: bool,
    list: Option<Roster>,
    policy: &'a Policy,
}

impl Session<'_> {
    fn judge(
        &self,
        subject: Option<&Subject>,
        record: Option<&mut Record>,
        lookup: LookedUp,
    ) -> Judgement {
        let LookedUp { name, uid, testimony } = lookup;
        let bare = |reason| Ruling {
            name: Arc::clone(&name),
            uid: uid.clone(),
            verdict: Verdict::Keep(reason),
            since: None,
            evidence: Evidence::default(),
        };
        let Some(subject) = subject.filter(|subject| subject.uid == uid) else {
            return Judgement::Ruled(bare(Reason::AnotherNode));
        };
        let (None, Some(record)) = (acquitted(subject), record) else {
            return Judgement::Ruled(bare(acquitted(subject).unwrap_or(Reason::AnotherNode)));
        };
        record.looked = Some(self.now);
        record.look_again = self.now + self.policy.monitor_period;
        let before = record.case.as_ref().map(Case::opened);
        let mut ruling = bare(Reason::Exists);
        ruling.since = before;
        ruling.evidence = self.evidence(record);
        let proof = match testimony {
            Testimony::Present(_) => return dismiss(record, ruling, Reason::Exists),
            Testimony::NotOurs(_) => return dismiss(record, ruling, Reason::NotOurs),
            Testimony::Gone(proof) if self.counts(subject, &proof) => self.proof(proof),
            Testimony::Gone(_) | Testimony::NoAnswer(_) => {
                if record.case.is_some() {
                    ruling.verdict = doubt(record, Doubt::NoAnswer);
                } else {
                    ruling.verdict = Verdict::Keep(Reason::NoAnswer);
                }
                return Judgement::Ruled(ruling);
            }
        };
        self.gone(subject, record, ruling, proof)
    }

    /// The cloud said "gone", and its word counts.
    fn gone(
        &self,
        subject: &Subject,
        record: &mut Record,
        mut ruling: Ruling,
        proof: Proof,
    ) -> Judgement {
        match &mut record.case {
            Some(case) => case.add(proof),
            None => record.case = Some(Case::open(proof)),
        }
        ruling.evidence = self.evidence(record);
        if subject.protected {
            return dismiss(record, ruling, Reason::Protected);
        }
        if !subject.can_be_judged(self.policy) {
            return dismiss(record, ruling, Reason::Ghost);
        }
        let Some(opened) = record.case.as_ref().map(Case::opened) else {
            return dismiss(record, ruling, Reason::NoAnswer);
        };
        let confirmed_from = opened + self.policy.confirmation_period;
        let why = if !subject.was_grown(self.now, self.asked, self.policy) {
            record.case = None;
            Some(Doubt::Newborn)
        } else if ruling.evidence.answers < 2 || self.asked < confirmed_from {
            // A look that is asked a moment too soon is in vain, and the next one is a period
            // away: so this one waits for the moment.
            if confirmed_from <= record.look_again + self.policy.monitor_period / 2 {
                record.look_again = confirmed_from.max(self.now);
            }
            Some(Doubt::Unconfirmed)
        } else {
            self.list_doubt(subject, record, opened)
        };
        ruling.since = record.case.as_ref().map(Case::opened);
        match why {
            Some(why) => {
                ruling.verdict = doubt(record, why);
                Judgement::Ruled(ruling)
            }
            None => Judgement::Convicted { ruling, approved: subject.approved },
        }
    }

    /// What the list says against a conviction.
    fn list_doubt(&self, subject: &Subject, record: &mut Record, opened: At) -> Option<Doubt> {
        match self.list.as_ref().filter(|list| list.asked >= opened) {
            None => Some(Doubt::NotListed),
            Some(list) if !list.missing.contains(&subject.name) => {
                record.case = None;
                Some(Doubt::Listed)
            }
            Some(_) => None,
        }
    }

    /// Whether an answer "gone" is one: in time, and about the ID if there is one.
    fn counts(&self, subject: &Subject, proof: &AbsenceProof) -> bool {
        !self.slow && (!subject.has_id || proof.method == ProofMethod::ById)
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
        let roll = self.list.as_ref().map(|list| list.roll);
        record.case.as_ref().map(|case| case.evidence(roll)).unwrap_or_default()
    }
}

/// Ends the case, if there is one.
fn dismiss(record: &mut Record, mut ruling: Ruling, reason: Reason) -> Judgement {
    record.case = None;
    ruling.verdict = Verdict::Keep(reason);
    Judgement::Ruled(ruling)
}

fn doubt(record: &Record, why: Doubt) -> Verdict {
    Verdict::Suspect { look_again: record.look_again, why }
}
