use std::time::Duration;

use ccm_objects::ObjectRef;

use super::*;
use crate::{
    metrics::Metrics,
    plans::{Mode, Step},
};

fn explanations() -> Explanations {
    let plans = Plans::new(Mode::Control, &Metrics::new());
    let node = ObjectRef { kind: "Node", name: "n1".to_owned(), ..ObjectRef::default() };
    let step = Step {
        step: "delete",
        changes: Vec::new(),
        reason: "its instance is gone".to_owned(),
        held: Some("the budget is used up".to_owned()),
    };
    plans.set(&node, vec![step]);
    let all = Explanations::new(plans);
    all.add("routes", "Node", |name| match name {
        "n1" => Explanation {
            wanted: vec!["10.0.0.0/24 -> 10.1.1.1".to_owned()],
            there: vec!["no route".to_owned()],
            last: vec!["the cloud said\nno".to_owned()],
            next: "at once".to_owned(),
            ..Explanation::new(ObjectState::Held, "the budget is used up", "approve it")
        },
        _ => Explanation::new(ObjectState::Unknown, format!("no node {name:?}"), "check the name"),
    });
    all.add("node-ipam", "Node", |_| {
        Explanation::new(ObjectState::Unknown, "no such node", "none")
    });
    all.add("service-ccm", "Service", |_| Explanation::fine("it serves"));
    all
}

#[test]
fn the_first_three_lines_say_how_it_is_and_why_and_what_fixes_it() {
    let text = explanations().text(Some("node"), Some("n1")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["Node n1, routes: held", "cause:   the budget is used up", "fix:     approve it"]
    );
    assert_eq!(
        lines[3..6],
        ["wanted:  10.0.0.0/24 -> 10.1.1.1", "there:   no route", "last:    the cloud said no"]
    );
    let decided = "decided: delete (its instance is gone), held: the budget is used up; since 20";
    assert!(lines[6].starts_with(decided), "{text}");
    assert_eq!(lines[7..9], ["next:    at once", ""]);
    assert_eq!(lines[9], "Node n1, node-ipam: unknown");
}

#[test]
fn without_a_kind_those_answer_that_know_the_object() {
    let all = explanations();
    let text = all.text(None, Some("n1")).unwrap();
    assert!(text.contains("routes: held") && text.contains("service-ccm: fine"), "{text}");
    assert!(!text.contains("node-ipam"), "{text}");
    // If no controller knows the object, each of them says so.
    let nodes = explanations();
    nodes.all.lock().retain(|one| one.kind == "Node");
    let text = nodes.text(None, Some("n2")).unwrap();
    assert!(text.contains("routes: unknown") && text.contains("node-ipam: unknown"), "{text}");
}

#[test]
fn json_has_the_same() {
    let text = explanations().json(Some("Nodes"), Some("n1")).unwrap();
    let page: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(page["standby"], false);
    let first = &page["objects"][0];
    assert_eq!((first["kind"].as_str(), first["name"].as_str()), (Some("Node"), Some("n1")));
    assert_eq!(first["controller"], "routes");
    assert_eq!(
        (first["state"].as_str(), first["fix"].as_str()),
        (Some("held"), Some("approve it"))
    );
    assert_eq!(first["decided"]["steps"][0]["held"], "the budget is used up");
}

#[test]
fn a_bad_question_is_answered_by_what_would_be_right() {
    let all = explanations();
    for name in [None, Some("")] {
        assert_eq!(all.text(None, name), Err(Unexplained::NoName));
    }
    let why = all.json(Some("Pod"), Some("p")).unwrap_err().to_string();
    assert_eq!(why, "this program does not explain \"Pod\": use kind=Node or kind=Service");
}

#[test]
fn moments_have_their_distance() {
    let now = At(Duration::from_millis(1_763_836_412_345));
    assert_eq!(moment(now + Duration::from_secs(40), now), "at 2025-11-22T18:34:12Z, in 40 s");
    assert_eq!(moment(now - Duration::from_mins(12), now), "at 2025-11-22T18:21:32Z, 12 min ago");
}

#[test]
fn each_error_of_the_cloud_has_a_fix_of_its_own() {
    for kind in ErrorKind::ALL {
        let error = CloudError::new(*kind, "no");
        assert!(fix_for_error(&error).len() > 10, "{kind}");
    }
    let error = CloudError {
        subject: Some("floatingip".to_owned()),
        ..CloudError::new(ErrorKind::QuotaExceeded, "no")
    };
    assert!(fix_for_error(&error).contains("(floatingip)"));
}

#[test]
fn another_cloud_is_the_cause_of_everything_that_is_ours() {
    let refusal = Some(("another cloud".to_owned(), "approve it".to_owned()));
    for state in [ObjectState::Fine, ObjectState::Working, ObjectState::Held, ObjectState::Blocked]
    {
        let told = Explanation::new(state, "it was so", "do that");
        let refused = told.clone().while_refused(refusal.as_ref());
        let cause = "another cloud; at the last look: it was so";
        assert_eq!(refused, Explanation::new(ObjectState::Blocked, cause, "approve it"));
        assert_eq!(told.clone().while_refused(None), told);
    }
    for state in [ObjectState::Foreign, ObjectState::Unknown] {
        let told = Explanation::new(state, "it was so", "do that");
        assert_eq!(told.clone().while_refused(refusal.as_ref()), told);
    }
}

#[test]
fn what_ends_by_itself_is_not_blocked() {
    let state_of = |kind| state_for_error(&CloudError::new(kind, "no"));
    for kind in [ErrorKind::QuotaExceeded, ErrorKind::Forbidden, ErrorKind::NotFound] {
        assert_eq!(state_of(kind), ObjectState::Blocked, "{kind}");
    }
    for kind in [ErrorKind::Throttled, ErrorKind::Timeout, ErrorKind::Busy] {
        assert_eq!(state_of(kind), ObjectState::Working, "{kind}");
    }
    let unsent = CloudError { unsent: true, ..CloudError::new(ErrorKind::Invalid, "no time left") };
    assert_eq!(state_for_error(&unsent), ObjectState::Working);
    let (forbidden, fix) = refused_write(&ApiError::Forbidden("no right".to_owned()));
    assert!(forbidden == ObjectState::Blocked && fix.contains("the right"), "{fix}");
    assert_eq!(refused_write(&ApiError::Timeout).0, ObjectState::Working);
}
