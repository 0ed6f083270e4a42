use super::*;

fn node() -> Node {
    Node { name: "node-1".into(), uid: "u-1".into(), ..Node::default() }
}

#[test]
fn only_changes_that_the_plan_reads_queue_a_node() {
    let change = |new: Node| Change::Updated { old: Arc::new(node()), new: Arc::new(new) };
    let named = [(Arc::from(INSTANCE_NAME), "i-1".into())];
    let labelled = [(Arc::from("zone"), Arc::from("a"))];
    for (change, expect) in [
        (Change::Added(Arc::new(node())), Some(Priority::Urgent)),
        (Change::Deleted(Arc::new(node())), Some(Priority::Routine)),
        (change(node()), None),
        (change(Node { labels: labelled.into(), ..node() }), None),
        (change(Node { unschedulable: true, ..node() }), None),
        (change(Node { annotations: named.into(), ..node() }), Some(Priority::Routine)),
        (change(Node { uid: "u-2".into(), ..node() }), Some(Priority::Urgent)),
        (change(Node { provider_id: Some("sim://i-1".into()), ..node() }), Some(Priority::Urgent)),
        (change(Node { system_uuid: Some("1".into()), ..node() }), Some(Priority::Urgent)),
    ] {
        assert_eq!(sync_priority(&change).map(|(_, priority)| priority), expect, "{change:?}");
    }
}
