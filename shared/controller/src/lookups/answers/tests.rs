use ccm_cloud::{CloudError, ErrorKind};

use super::*;

fn name() -> Name {
    "node-1".into()
}

fn node(uid: &str) -> Arc<Node> {
    Arc::new(Node { name: name(), uid: uid.into(), ..Node::default() })
}

fn answer() -> LookupResult {
    Err(CloudError::new(ErrorKind::Invalid, "no"))
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_reused_for_30_s_and_for_the_same_node_only() {
    let answers = Answers::default();
    answers.remember(node("a"), answer());
    assert_eq!(answers.recall(&node("a")), Some(answer()));
    tokio::time::advance(FRESH).await;
    assert_eq!(answers.recall(&node("a")), Some(answer()));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(answers.recall(&node("a")), None);

    answers.remember(node("a"), answer());
    let mut named = Node::clone(&node("a"));
    named.provider_id = Some("sim://i-1".into());
    assert_eq!(answers.recall(&named), None, "its identity has changed");
    answers.remember(node("a"), answer());
    assert_eq!(answers.recall(&node("b")), None, "another node of the same name");
    answers.remember(node("a"), answer());
    answers.settled(&name());
    assert_eq!(answers.recall(&node("a")), None, "the node is up to date");
}

#[test]
fn a_required_lookup_is_taken_once() {
    let answers = Answers::default();
    assert!(!answers.take_required(&name()));
    answers.require(&name());
    assert!(answers.take_required(&name()));
    assert!(!answers.take_required(&name()));
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_a_series_of_lookups_without_one() {
    let answers = Answers::default();
    assert_eq!([answers.unanswered(&name()), answers.unanswered(&name())], [1, 2]);
    answers.remember(node("a"), answer());
    assert_eq!([answers.unanswered(&name()), answers.unanswered(&name())], [1, 2]);
    answers.answered(&name());
    assert_eq!(answers.unanswered(&name()), 1);
}
