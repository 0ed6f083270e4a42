//! Each rule on its own; what they do together is for the random histories.

mod breaker;
mod rules;
mod when;

use ccm_cloud::{AbsenceProof, Claim, CloudError, ErrorKind, PowerState, ProofMethod};

use super::*;

/// A node that is not Ready, old enough, and ours.
fn subject(name: &str) -> Subject {
    Subject {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        claim: Claim::Ours,
        has_id: true,
        selected: true,
        ready: false,
        deleting: false,
        uninitialised: false,
        age: Duration::from_secs(3600),
        protected: false,
        approved: false,
    }
}

fn ready(name: &str) -> Subject {
    Subject { ready: true, ..subject(name) }
}

/// The node that is judged, among ten that are Ready.
fn among_ready(judged: Subject) -> Vec<Subject> {
    (0..10).map(|number| ready(&format!("ready-{number}"))).chain([judged]).collect()
}

fn at(seconds: f64) -> At {
    At(Duration::from_secs_f64(seconds))
}

fn gone_by(method: ProofMethod) -> Testimony {
    Testimony::Gone(AbsenceProof {
        method,
        evidence: "no such instance".to_owned(),
        request_id: None,
    })
}

fn gone() -> Testimony {
    gone_by(ProofMethod::ById)
}

fn running() -> Testimony {
    Testimony::Present(PowerState::Running)
}

fn error(kind: ErrorKind) -> Testimony {
    Testimony::NoAnswer(CloudError::new(kind, "odd"))
}

/// A list that was read at once and lacks these nodes.
fn lacks(asked: At, missing: &[&str]) -> Listing {
    let missing = missing.iter().map(|name| Arc::from(*name)).collect();
    Listing::Read { asked, answered: asked, instances: 11, malformed: 0, missing }
}

/// Hears one answer about one node, given at once, and says what the court makes of it.
fn hear(
    court: &mut Court,
    now: At,
    subjects: &[Subject],
    (name, testimony): (&str, Testimony),
    list: Option<Listing>,
) -> Verdict {
    let policy = Policy::default();
    court.agenda(now, subjects, &policy);
    let uid = format!("uid-{name}").into();
    let lookups = vec![LookedUp { name: name.into(), uid, testimony }];
    let hearing = Hearing { asked: now, answered: now, lookups, list };
    let rulings = court.hear(now, subjects, hearing, &policy);
    let ruling = rulings.iter().find(|ruling| &*ruling.name == name);
    ruling.map(|ruling| ruling.verdict).unwrap()
}

/// The ruling by which the node was deleted.
fn ruling(name: &str) -> Ruling {
    Ruling {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        verdict: Verdict::Delete,
        since: None,
        evidence: Evidence::default(),
    }
}

fn why(verdict: &Verdict) -> (&'static str, &'static str) {
    (verdict.as_str(), verdict.reason())
}
