use super::{super::proto::lookup_answer::Answer, *};

fn take(malformed: Vec<String>) -> Result<(), CloudError> {
    let page = proto::ListInstancesResponse { malformed, ..Default::default() };
    add(&mut Fleet::default(), page)
}

/// A node that a malformed entry names is not deleted, so no line may be lost.
#[test]
fn a_list_with_lost_lines_proves_nothing() {
    let lines = |count: usize| vec!["server s: no flavor".to_owned(); count];
    assert_eq!(take(lines(MAX_MALFORMED)), Ok(()));
    assert_eq!(take(lines(MAX_MALFORMED + 1)).unwrap_err().kind, ErrorKind::Malformed);
    assert_eq!(take(vec!["x".repeat(LONGEST_LINE)]), Ok(()));
    for start in [LONGEST_LINE - 1, LONGEST_LINE] {
        let long = format!("{} node-1", "x".repeat(start));
        assert_eq!(take(vec![long]).unwrap_err().kind, ErrorKind::Malformed);
    }
    let instance = proto::Instance {
        provider_id: Some("y".repeat(LONGEST_LINE)),
        name: Some("node-1".to_owned()),
        ..Default::default()
    };
    let page = proto::ListInstancesResponse { instances: vec![instance], ..Default::default() };
    let error = add(&mut Fleet::default(), page).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
}

#[test]
fn large_nodes_go_in_smaller_parts() {
    let node = |labels: usize| NodeIdentity {
        labels: (0..labels).map(|number| (format!("{number}"), "x".repeat(1000))).collect(),
        ..NodeIdentity::named("n")
    };
    let small = vec![node(0); 5];
    assert_eq!(parts(&small, 2), [0..2, 2..4, 4..5]);
    assert_eq!(parts(&[], 2), []);
    let nodes = vec![node(1_500); 5];
    assert_eq!(parts(&nodes, 500), [0..1, 1..2, 2..3, 3..4, 4..5]);
    let nodes = vec![node(900); 5];
    assert_eq!(parts(&nodes, 500), [0..2, 2..4, 4..5]);
    let nodes = [node(9_000), node(0), node(0)];
    assert_eq!(parts(&nodes, 500), [0..1, 1..3], "one node that is too large goes alone");
}

/// The controllers see an error for such an answer, so the metrics of the cloud must, too.
#[test]
fn an_unusable_answer_is_an_error_of_the_provider() {
    let node = NodeIdentity::named("a");
    let answer = |answer| {
        let wire = proto::LookupAnswer { node: Some("a".to_owned()), answer: Some(answer) };
        let item = proto::LookupInstancesItem { place: Some(0), answer: Some(wire) };
        assert_eq!(item.about(), (Some(0), "a".into()));
        item.answer(&node).err().map(|error| error.kind)
    };
    let not_ours = || Answer::NotOurs(proto::NotOurs::default());
    let throttled = || {
        Answer::Error(proto::Error {
            kind: Some(proto::ErrorKind::Throttled.into()),
            ..proto::Error::default()
        })
    };
    assert_eq!(answer(not_ours()), None);
    assert_eq!(answer(Answer::Found(proto::Instance::default())), Some(ErrorKind::Malformed));
    assert_eq!(answer(throttled()), Some(ErrorKind::Throttled));
}
