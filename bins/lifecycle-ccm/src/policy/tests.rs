//! Each rule alone; the random histories test the rules together.

mod action;
mod breaker;
mod budget;
mod decide;
mod fleet;
mod life;
mod marked;
mod unlisted;
mod when;

use ccm_cloud::{
    AbsenceProof, Claim, CloudError, ErrorKind, Instance, Lookup, LookupResult, ProofMethod,
    ProviderId,
};

use super::*;

/// The defaults of the settings.
impl Default for Policy {
    fn default() -> Self {
        Self {
            confirmation_period: Duration::from_secs(20),
            grace_period: Duration::from_secs(120),
            monitor_period: Duration::from_secs(5),
            budget: Limit::Percent(10),
            budget_window: Duration::from_secs(600),
            shrink_threshold: 50,
            ghosts: Ghosts::default(),
            replaced: Replaced::default(),
            evidence_age: Duration::from_secs(30),
        }
    }
}

impl Decider {
    fn new() -> Self {
        Self::default()
    }
}

/// Returns a node that is not Ready, old enough, and ours.
fn view(name: &str) -> NodeView {
    NodeView {
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
        marked: false,
        replaced: false,
    }
}

fn ready(name: &str) -> NodeView {
    NodeView { ready: true, ..view(name) }
}

/// Returns this node and ten that are Ready.
fn among_ready(node: NodeView) -> Vec<NodeView> {
    (0..10).map(|number| ready(&format!("ready-{number}"))).chain([node]).collect()
}

fn at(seconds: f64) -> At {
    At(Duration::from_secs_f64(seconds))
}

#[expect(clippy::unnecessary_wraps, reason = "an answer like those that are errors")]
fn gone_by(method: ProofMethod) -> LookupResult {
    Ok(Lookup::Gone(AbsenceProof {
        method,
        evidence: "no such instance".to_owned(),
        request_id: None,
        kept: None,
    }))
}

fn gone() -> LookupResult {
    gone_by(ProofMethod::ById)
}

#[expect(clippy::unnecessary_wraps, reason = "an answer like those that are errors")]
fn running() -> LookupResult {
    let id = ProviderId::parse("sim://i-a").unwrap();
    Ok(Lookup::Found(Box::new(Instance::new(id, "a"))))
}

fn error(kind: ErrorKind) -> LookupResult {
    Err(CloudError::new(kind, "odd"))
}

/// Returns a list that was read at once, without these nodes.
fn lacks(asked: At, missing: &[&str]) -> Listing {
    let missing = missing.iter().map(|name| Arc::from(*name)).collect();
    Listing::Read { asked, answered: asked, instances: 11, malformed: 0, missing }
}

/// Decides from one answer about one node, given at once.
fn decide(
    decider: &mut Decider,
    now: At,
    views: &[NodeView],
    (name, result): (&str, LookupResult),
    list: Option<Listing>,
) -> Verdict {
    let policy = Policy::default();
    decider.agenda(now, views, &policy);
    let uid = format!("uid-{name}").into();
    let heartbeat = Some(Heartbeat::default());
    let lookups = vec![LookedUp { name: name.into(), uid, answered: now, result, heartbeat }];
    let answers = Answers { asked: now, lookups, witnesses: Vec::new(), list };
    let decisions = decider.decide(now, views, answers, &policy);
    let decision = decisions.iter().find(|decision| &*decision.name == name);
    decision.map(|decision| decision.verdict).unwrap()
}

/// Returns the decision that deleted the node.
fn decision(name: &str) -> Decision {
    Decision {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        verdict: Verdict::Delete,
        since: None,
        evidence: Evidence::default(),
        approved: false,
    }
}

fn why(verdict: &Verdict) -> (&'static str, &'static str) {
    (verdict.as_str(), verdict.reason())
}
