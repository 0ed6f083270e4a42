//! Tests answers that take far more memory than they have bytes.

use super::*;

fn heavy(error: &CloudError) -> &str {
    assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
    &error.message
}

#[tokio::test]
async fn a_list_is_refused_before_it_takes_much_memory() {
    let running = Running::new().await;
    let empty = proto::ListInstancesResponse {
        malformed: vec![String::new(); 1_200_000],
        ..Default::default()
    };
    let hollow = proto::ListInstancesResponse {
        instances: vec![proto::Instance::default(); 150_000],
        ..Default::default()
    };
    for page in [empty, hollow] {
        *running.rogue.lists.lock() = [Ok(page)].into();
        let error = running.instances().list(call()).await.unwrap_err();
        let expect = "list_instances: the provider's answers take more than 48 MiB of memory";
        assert_eq!(heavy(&error), expect);
    }
}

#[tokio::test]
async fn all_pages_of_a_list_count_together() {
    let running = Running::new().await;
    let page = |token: &str| proto::ListInstancesResponse {
        instances: vec![proto::Instance { name: Some("n".repeat(20 << 20)), ..instance("a") }],
        next_page_token: Some(token.to_owned()),
        ..Default::default()
    };
    *running.rogue.lists.lock() = ["1", "2", ""].map(|token| Ok(page(token))).into();
    let error = running.instances().list(call()).await.unwrap_err();
    let expect = "list_instances: the provider's answers take more than 48 MiB of memory";
    assert_eq!(heavy(&error), expect);
    *running.rogue.lists.lock() = ["1", ""].map(|token| Ok(page(token))).into();
    assert_eq!(running.instances().list(call()).await.unwrap().instances.len(), 2);
}

/// Controllers keep one answer for each node.
#[tokio::test]
async fn an_answer_about_one_node_is_small() {
    let labels = |count| (0..count).map(|at| (format!("{at}"), String::new())).collect();
    let with = |name: &str, labels| {
        answer(name, Some(Answer::Found(proto::Instance { labels, ..instance(name) })))
    };
    let small = with("a", labels(200));
    let many = with("b", labels(2000));
    let long =
        answer("c", Some(Answer::NotOurs(proto::NotOurs { reason: Some("x".repeat(1 << 20)) })));
    let expect = "the provider's answer about this node takes more than 64 KiB of memory";
    let check = |answers: &[LookupResult]| {
        assert!(is_found(&answers[0], "a"), "{answers:?}");
        for answer in &answers[1..] {
            assert_eq!(heavy(answer.as_ref().unwrap_err()), expect);
        }
    };
    let running = Running::new().await;
    let at_once = vec![small.clone(), many.clone(), long.clone()];
    check(&running.lookup(at_once, &["a", "b", "c"]).await);
    let steps = [small, many, long].into_iter().zip(0..);
    let steps = steps.map(|(answer, place)| Step::Answer(place, Box::new(answer))).collect();
    let running = Running::streaming(steps).await;
    let nodes = ["a", "b", "c"].map(NodeIdentity::named);
    check(&running.instances().lookup(&nodes, Detail::Everything, call()).await);
}

#[tokio::test]
async fn the_answers_of_a_lookup_count_together() {
    let names: Vec<String> = (0..1000).map(|number| format!("n{number}")).collect();
    let nodes: Vec<_> = names.iter().map(NodeIdentity::named).collect();
    let zone = || Some("z".repeat(60 << 10));
    let found = |name: &str| Answer::Found(proto::Instance { zone: zone(), ..instance(name) });
    let steps = names
        .iter()
        .zip(0..)
        .map(|(name, place)| Step::Answer(place, Box::new(answer(name, Some(found(name))))));
    // One request for all of them.
    let description = proto::DescribeResponse { max_batch: Some(1000), ..description() };
    let running = Running::describing(description).await;
    running.cloud.health(call()).await.unwrap();
    *running.rogue.streams.lock() = [Ok(steps.collect())].into();
    let answers = running.instances().lookup(&nodes, Detail::Everything, call()).await;
    let good = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((700..820).contains(&good), "{good}");
    let expect = "lookup_instances: the provider's answers take more than 48 MiB of memory";
    assert_eq!(heavy(answers[999].as_ref().unwrap_err()), expect);
}

#[tokio::test]
async fn a_message_about_one_node_that_is_very_large_ends_the_stream() {
    let found = proto::Instance { zone: Some("z".repeat(9 << 20)), ..instance("a") };
    let step = Step::Answer(0, Box::new(answer("a", Some(Answer::Found(found)))));
    let running = Running::streaming(vec![step]).await;
    let nodes = ["a", "b"].map(NodeIdentity::named);
    let answers = running.instances().lookup(&nodes, Detail::Everything, call()).await;
    let expect = "lookup_instances: an answer of the provider is longer than 8 MiB";
    assert!(answers.iter().all(|answer| heavy(answer.as_ref().unwrap_err()) == expect));
}

#[tokio::test]
async fn large_answers_wait_for_each_other_and_all_arrive() {
    let running = Running::new().await;
    let page = proto::ListInstancesResponse {
        instances: vec![proto::Instance { name: Some("n".repeat(30 << 20)), ..instance("a") }],
        ..Default::default()
    };
    *running.rogue.lists.lock() = [Ok(page)].into();
    let instances = running.instances();
    let lists = futures::future::join_all((0..8).map(|_| instances.list(call()))).await;
    for list in lists {
        assert_eq!(list.unwrap().instances.len(), 1);
    }
}
