//! Tests lookups that are answered node by node, out of order, in part, or not at all.

use tokio::time::Instant;

use super::*;

fn step(place: u32, name: &str) -> Step {
    Step::Answer(place, Box::new(good(name)))
}

const HANG: Step = Step::Wait(Duration::from_secs(3600));

#[tokio::test]
async fn a_node_that_is_never_answered_delays_no_other() {
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let nodes: Vec<_> = names.iter().map(NodeIdentity::named).collect();
    // The server answers about the last nodes first, and about all but one.
    let mut steps: Vec<Step> = (0..100)
        .rev()
        .filter(|place| *place != 7)
        .map(|place| step(place, &format!("n{place}")))
        .collect();
    steps.push(HANG);
    let running = Running::streaming(steps).await;
    let instances = running.instances();
    let began = Instant::now();
    let mut each = instances.lookup_each(&nodes, Detail::Everything, call());
    for _ in 0..99 {
        let (place, answer) = each.next().await.unwrap();
        assert!(place != 7 && is_found(&answer, &names[place]), "{place}: {answer:?}");
    }
    assert!(began.elapsed() < call().timeout / 2, "{:?}", began.elapsed());
    drop(each);

    let call = Call::waiting(Duration::from_millis(700));
    let answers = instances.lookup(&nodes, Detail::Everything, call).await;
    assert_eq!(answers[7].as_ref().unwrap_err().kind, ErrorKind::Timeout);
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 99);
}

/// A server that keeps the deadline of the call says no more than "Deadline Exceeded".
#[tokio::test]
async fn the_end_of_the_call_is_worded_alike_at_both_ends() {
    let expired = Status::deadline_exceeded("Deadline Exceeded");
    let steps = vec![step(0, "a"), Step::Wait(Duration::from_millis(650)), Step::Fail(expired)];
    let running = Running::streaming(steps).await;
    let nodes = ["a", "b"].map(NodeIdentity::named);
    let call = Call::waiting(Duration::from_millis(700));
    let answers = running.instances().lookup(&nodes, Detail::Everything, call).await;
    let error = answers[1].as_ref().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    assert!(error.message.contains("did not answer within"), "{error}");
}

#[tokio::test]
async fn what_a_stream_leaves_open_is_unknown_for_that_node_alone() {
    let wrong = || Step::Answer(1, Box::new(good("c")));
    for (end, kind) in [
        (vec![], ErrorKind::Malformed),
        (vec![Step::Fail(Status::resource_exhausted("slow down"))], ErrorKind::Throttled),
        (vec![Step::Fail(Status::unimplemented("half way"))], ErrorKind::Unsupported),
        (vec![wrong()], ErrorKind::Malformed),
        // The first answer counts, and an answer that was not asked for does not.
        (vec![wrong(), step(1, "b"), step(0, "x"), step(7, "x")], ErrorKind::Malformed),
    ] {
        let steps = [vec![step(2, "c"), step(0, "a")], end].concat();
        let running = Running::streaming(steps).await;
        let nodes = ["a", "b", "c"].map(NodeIdentity::named);
        let answers = running.instances().lookup(&nodes, Detail::Everything, call()).await;
        assert!(is_found(&answers[0], "a") && is_found(&answers[2], "c"), "{answers:?}");
        assert_eq!(answers[1].as_ref().unwrap_err().kind, kind, "{answers:?}");
    }
}

/// A stream that repeats itself may have no end.
#[tokio::test]
async fn a_stream_ends_with_the_first_answer_that_was_not_asked_for() {
    for (place, expect) in [(0, "a second answer about"), (7, "an answer that was not asked for")] {
        let steps = vec![step(0, "a"), step(place, "a"), HANG];
        let running = Running::streaming(steps).await;
        let (nodes, began) = (["a", "b"].map(NodeIdentity::named), Instant::now());
        let answers = running.instances().lookup(&nodes, Detail::Everything, call()).await;
        assert!(began.elapsed() < call().timeout / 2, "{:?}", began.elapsed());
        assert!(is_found(&answers[0], "a"), "{answers:?}");
        let error = answers[1].as_ref().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(error.message.contains(expect), "{error}");
    }
}

#[tokio::test]
async fn a_server_without_streams_is_asked_at_once() {
    let running = Running::streaming(Vec::new()).await;
    *running.rogue.streams.lock() = [Err(Status::unimplemented("unknown method"))].into();
    let answers = running.lookup(vec![good("a"), good("b")], &["a", "b"]).await;
    assert!(is_found(&answers[0], "a") && is_found(&answers[1], "b"), "{answers:?}");
}
