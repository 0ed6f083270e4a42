use ccm_objects::Taint;
use ccm_objects::node_keys;

use super::*;

/// A tainted node that is this many minutes old at 12:00.
fn tainted(name: &str, minutes: u32) -> Node {
    let created = format!("2026-01-01T11:{:02}:00Z", 60 - minutes);
    let taint = Taint {
        key: node_keys::UNINITIALIZED.into(),
        value: None,
        effect: "NoSchedule".into(),
        time_added: None,
    };
    Node {
        name: name.into(),
        created: created.parse().ok(),
        taints: vec![taint],
        ..Node::default()
    }
}

#[test]
fn only_nodes_of_this_provider_count() {
    let states = States::new(|_, _| {});
    states.set(&"waits".into(), State::Pending);
    states.set(&"foreign".into(), State::Foreign);
    states.set(&"elsewhere".into(), State::NotOurs);
    states.set(&"left-out".into(), State::NotSelected);
    let check = |nodes: &[Node], minutes: u64| {
        let nodes: Vec<_> = nodes.iter().cloned().map(Arc::new).collect();
        let age = |node: &Node| node.age("2026-01-01T12:00:00Z".parse().unwrap());
        let expect = Duration::from_mins(minutes);
        assert_eq!(oldest(&nodes, &states, age), expect, "{nodes:?}");
    };
    check(&[], 0);
    check(&[tainted("waits", 3), tainted("unheard-of", 5), tainted("waits-2", 4)], 5);
    let others = ["foreign", "elsewhere", "left-out"].map(|name| tainted(name, 9));
    check(&[&[tainted("waits", 3)], others.as_slice()].concat(), 3);
    check(&[Node { taints: Vec::new(), ..tainted("initialised", 9) }], 0);
    check(&[Node { deleting: true, ..tainted("leaves", 9) }], 0);
    check(&[Node { created: None, ..tainted("no-date", 9) }], 0);
}
