use std::slice;

use super::{super::breaker::FleetLook, *};

/// Returns a list that lacks these.
fn measure(views: &[NodeView], missing: BTreeSet<Arc<str>>) -> (ListCoverage, Option<Cause>) {
    let shown = FleetLook { asked: at(0.0), instances: 7, missing, witnesses: None };
    Decider::new().measure(views, &shown, &Policy::default())
}

/// Returns the breaker's cause, given the counts of nodes that are not Ready and Ready, and how
/// many of each are missing.
fn cause(others: (usize, usize), ready_nodes: (usize, usize)) -> Option<&'static str> {
    let named = |kind: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{kind}-{number}")).collect()
    };
    let (out, up) = (named("out", others.0), named("up", ready_nodes.0));
    let views: Vec<NodeView> =
        out.iter().map(|name| view(name)).chain(up.iter().map(|name| ready(name))).collect();
    let missing = out[..others.1].iter().chain(&up[..ready_nodes.1]);
    let missing = missing.map(|name| Arc::from(name.as_str())).collect();
    let (_, cause) = measure(&views, missing);
    cause.as_ref().map(Into::into)
}

#[test]
fn implausible_lists_open_the_breaker() {
    for (others, ready, expect) in [
        ((0, 0), (0, 0), None),
        ((5, 0), (5, 0), None),
        // None of the nodes is listed: one node is enough.
        ((1, 1), (0, 0), Some("empty")),
        ((0, 0), (1, 1), Some("empty")),
        ((50, 50), (50, 50), Some("empty")),
        // Two of three may be gone; three of six may; four of seven are too many.
        ((3, 2), (0, 0), None),
        ((6, 3), (0, 0), None),
        ((7, 4), (0, 0), Some("shrunk")),
        ((100, 50), (0, 0), None),
        ((100, 51), (0, 0), Some("shrunk")),
        // The instance of a Ready node runs. A few may have stopped a moment ago.
        ((0, 0), (10, 2), None),
        ((0, 0), (10, 3), Some("contradiction")),
        ((0, 0), (30, 3), None),
        ((0, 0), (29, 3), Some("contradiction")),
        // Fewer than half of the Ready nodes, however few there are.
        ((3, 0), (1, 1), Some("contradiction")),
        ((0, 0), (2, 1), None),
        ((0, 0), (3, 2), Some("contradiction")),
    ] {
        assert_eq!(cause(others, ready), expect, "{others:?} {ready:?}");
    }
}

#[test]
fn the_breaker_keeps_its_start_time_and_closes_by_itself() {
    let by = Source::List;
    let shrunk = Cause::Shrunk { by, missing: 4, known: 7 };
    let empty = Cause::Empty { by, known: 7 };
    let open = Breaker::Closed.after(at(1.0), Some(shrunk));
    assert_eq!(open, Breaker::Open { since: at(1.0), cause: shrunk });
    let open = open.after(at(2.0), Some(empty));
    assert_eq!(open, Breaker::Open { since: at(1.0), cause: empty });
    assert_eq!(open.after(at(3.0), None), Breaker::Closed);
}

#[test]
fn nodes_that_would_not_be_deleted_are_not_counted() {
    let changes: [fn(&mut NodeView); 7] = [
        |view| view.marked = true,
        |view| view.protected = true,
        |view| view.approved = true,
        |view| view.age = Duration::from_secs(119),
        |view| view.selected = false,
        |view| view.deleting = true,
        |view| view.claim = Claim::Foreign,
    ];
    for change in changes {
        let mut lost = view("lost");
        change(&mut lost);
        let missing = [Arc::from("lost")].into();
        let (coverage, cause) = measure(&[lost], missing);
        assert_eq!((coverage.known, cause), (0, None));
    }
}

#[test]
fn a_list_is_judged_by_the_nodes_without_a_mark() {
    let marked = |name: &str| NodeView { marked: true, ..view(name) };
    let newborn = NodeView { age: Duration::from_mins(1), ..ready("new") };
    let protected = NodeView { protected: true, ..ready("kept") };
    let stopped = NodeView { protected: true, ..view("kept") };
    let empty = |known| Cause::Empty { by: Source::List, known };
    for (others, shown, expect) in [
        // A scale-down to zero: no other node contradicts it.
        (&[][..], &[][..], None),
        (slice::from_ref(&stopped), &[], None),
        // Marked nodes prove as little for the list as against it.
        (&[marked("more"), view("a"), view("b")], &["more"], Some(empty(2))),
        (&[marked("more"), view("a"), view("b")], &["more", "a"], None),
        // A Ready node whose deletion is out of the question is a sign for the list as well.
        (slice::from_ref(&newborn), &[], Some(empty(1))),
        (slice::from_ref(&protected), &[], Some(empty(1))),
        (slice::from_ref(&newborn), &["new"], None),
        (&[newborn.clone(), protected.clone()], &["new"], None),
        (&[NodeView { selected: false, ..ready("far") }], &[], None),
    ] {
        let views: Vec<NodeView> = others.iter().cloned().chain([marked("lost")]).collect();
        let missing = views.iter().map(|view| Arc::clone(&view.name));
        let missing = missing.filter(|name| !shown.contains(&&**name)).collect();
        assert_eq!(measure(&views, missing).1, expect, "{views:?}");
    }
}

/// Returns the verdict about one node whose case is old enough, in the pass in which a list closes
/// the breaker.
fn when_the_breaker_closes(node: &NodeView) -> Verdict {
    let nodes = among_ready(node.clone());
    let all: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    let mut decider = Decider::new();
    decide(&mut decider, at(0.0), &nodes, ("n", gone()), Some(lacks(at(0.0), &all)));
    assert!(decider.breaker().is_open());
    decide(&mut decider, at(30.0), &nodes, ("n", gone()), Some(lacks(at(30.0), &["n"])))
}

#[test]
fn cases_start_over_when_the_breaker_closes() {
    assert_eq!(why(&when_the_breaker_closes(&view("n"))), ("suspect", "unconfirmed"));
    // The breaker does not apply to approved nodes.
    let approved = NodeView { approved: true, ..view("n") };
    assert_eq!(when_the_breaker_closes(&approved), Verdict::Delete);
}
