use super::*;

#[test]
fn a_node_completes_once_and_counts_only_if_this_term_has_seen_its_creation() {
    let mut state =
        State::new(At::default(), At(Duration::from_millis(1_000_500)), Planner::default(), None);
    let node = |uid: &str, created: &str| Node {
        name: "n".into(),
        uid: uid.into(),
        created: Some(created.parse().expect("a time")),
        ..Node::default()
    };
    let mut completes = |node: Node| {
        let mut routes = NodeRoutes::default();
        routes.uid.clone_from(&node.uid);
        state.nodes.insert(Name::clone(&node.name), routes);
        state.completes(&node)
    };
    assert!(!completes(Node::default()), "nothing is known of its creation");
    assert!(!completes(node("a", "1970-01-01T00:16:39Z")));
    assert!(completes(node("b", "1970-01-01T00:16:40Z")));
    assert!(!completes(node("b", "1970-01-01T00:16:40Z")));
    assert!(completes(node("c", "1970-01-01T00:16:41Z")), "another node of that name");
    let next = node("d", "1970-01-01T00:16:42Z");
    assert!(!state.completes(&next), "the routes are those of the node before");
}
