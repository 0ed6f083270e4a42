//! Answers that take far more memory than they have bytes.

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

#[tokio::test]
async fn an_answer_about_one_node_is_small_and_the_answers_of_a_lookup_count_together() {
    let large = |name: &str, megabytes: usize| {
        let found = proto::Instance { zone: Some("z".repeat(megabytes << 20)), ..instance(name) };
        answer(name, Some(Answer::Found(found)))
    };
    let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    let nodes: Vec<_> = names.iter().map(NodeIdentity::named).collect();
    let steps = |megabytes| {
        let answers = names.iter().zip(0..);
        let step =
            |(name, place): (&String, u32)| Step::Answer(place, Box::new(large(name, megabytes)));
        answers.map(step).collect::<Vec<Step>>()
    };
    let running = Running::streaming(steps(7)).await;
    let answers = running.instances().lookup(&nodes, Detail::Everything, call()).await;
    let good = answers.iter().zip(&names).filter(|(answer, name)| is_found(answer, name));
    assert_eq!(good.count(), 6);
    let expect = "lookup_instances: the provider's answers take more than 48 MiB of memory";
    assert_eq!(heavy(answers[7].as_ref().unwrap_err()), expect);

    *running.rogue.streams.lock() = [Ok(steps(9))].into();
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
