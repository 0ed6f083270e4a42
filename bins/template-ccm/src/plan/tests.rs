use std::{sync::Arc, time::Duration};

use ccm_cloud::{AbsenceProof, CloudError, ErrorKind, Instance, ProofMethod, ProviderId};

use super::*;

fn node(annotation: Option<&str>) -> Node {
    let annotations = annotation.map(|name| (Arc::from(INSTANCE_NAME), name.into()));
    Node {
        name: "node-1".into(),
        annotations: annotations.into_iter().collect(),
        ..Node::default()
    }
}

fn found(name: &str) -> Lookup {
    let id = ProviderId::parse("sim://i-1").unwrap();
    Lookup::Found(Box::new(Instance::new(id, name)))
}

fn failed(kind: ErrorKind) -> CloudError {
    CloudError::new(kind, "no route")
}

/// A plan as a line: its steps, then the node's state.
fn line(plan: &Plan) -> String {
    let steps: Vec<_> = plan.steps.iter().map(ToString::to_string).collect();
    let outcome = match &plan.outcome {
        Outcome::Named => "named".to_owned(),
        Outcome::Skipped(why) => format!("skipped: {why}"),
        Outcome::Waits { class, reason, message } => {
            format!("waits ({reason}, {class:?}): {message}")
        }
    };
    format!("{} -> {outcome}", steps.join(", "))
}

#[test]
fn each_answer_has_its_plan() {
    let proof = AbsenceProof {
        method: ProofMethod::ById,
        evidence: "404".to_owned(),
        request_id: None,
        kept: None,
    };
    let throttled = failed(ErrorKind::Throttled).with_retry_after(Duration::from_secs(3));
    let deleting = Node { deleting: true, ..node(None) };
    let lines: Vec<_> = [
        (node(None), Ok(found("i-1"))),
        (node(Some("i-0")), Ok(found("i-1"))),
        (node(Some("i-1")), Ok(found("i-1"))),
        (deleting, Ok(found("i-1"))),
        (node(Some("i-0")), Ok(Lookup::Gone(proof))),
        (node(None), Ok(Lookup::NotOurs("it is elsewhere".to_owned()))),
        (node(None), Err(failed(ErrorKind::Unavailable))),
        (node(None), Err(throttled)),
        (node(None), Err(failed(ErrorKind::Invalid))),
    ]
    .iter()
    .map(|(node, answer)| line(&plan(node, answer)))
    .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
