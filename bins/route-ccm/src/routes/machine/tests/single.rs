//! Tests of single events, whose effects the rules of histories cannot judge.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::At;
use ccm_cloud::{CloudError, ErrorKind, Route, RouteTable, RouteTarget, RouteTraits};
use ccm_controller::{
    brake::{Budget, Limit, Window},
    machine::Machine as _,
};
use ccm_objects::{Address, Condition, Node};

use crate::{
    networks::MaxPodCidr,
    node_ipam::machine::Event as Ipam,
    routes::{
        machine::{
            Applied, Call, Effect, Event, Fixed, Machine, Page, Pass, Sending, Term, Written,
        },
        plan::{
            Parameters, Planned, Planner,
            condition::{NETWORK_UNAVAILABLE, Status},
            tests::{approves, net, node},
            wanted::{LeftOut, NodeView},
        },
    },
};

const CIDR: &str = "10.120.1.0/24";

fn at(seconds: u64) -> At {
    At(Duration::from_secs(1_000_000 + seconds))
}

fn with(view: &NodeView, change: impl FnOnce(&mut Node)) -> NodeView {
    let mut node = Node::clone(&view.node);
    change(&mut node);
    NodeView { node: Arc::new(node), ..view.clone() }
}

fn condition(status: &str, reason: &str) -> Condition {
    Condition {
        kind: NETWORK_UNAVAILABLE.into(),
        status: status.into(),
        reason: Some(reason.into()),
        ..Condition::default()
    }
}

fn left_out(view: &NodeView) -> NodeView {
    NodeView { left_out: Some(LeftOut::NotSelected), ..view.clone() }
}

/// A machine that leads, and its nodes.
struct Bench {
    machine: Machine,
    parameters: Parameters,
    nodes: Vec<NodeView>,
}

impl Bench {
    fn new(nodes: Vec<NodeView>) -> Self {
        Self::with(nodes, true, false)
    }

    fn with(nodes: Vec<NodeView>, has_routes: bool, gives_cidrs: bool) -> Self {
        let cluster = ccm_cloud::ClusterId { name: "test".to_owned(), uid: "ours".to_owned() };
        let fixed = Fixed { cluster, has_routes, gives_cidrs, is_observing: false };
        let parameters = Parameters {
            cluster_cidrs: vec![net("10.120.0.0/16")],
            max_pod_cidr: MaxPodCidr::default(),
            budget: Budget { limit: Limit::Count(3), window: Duration::from_mins(10) },
            period: Duration::from_mins(10),
            node_selector: ccm_kube::selector::NodeSelector::default(),
            approval: None,
        };
        let mut bench = Self { machine: Machine::new(fixed), parameters, nodes };
        let (deleted, networks) = (Window::default(), Vec::new());
        let term = Term { begun: at(0), deleted, networks, blocks: None };
        bench.tell(0, Event::Term(Box::new(term)));
        bench
    }

    fn tell(&mut self, second: u64, event: Event) -> Vec<Effect> {
        self.machine.apply(event, at(second))
    }

    fn look(&self) -> Pass {
        Pass {
            parameters: self.parameters.clone(),
            nodes: self.nodes.clone(),
            lacks: BTreeMap::new(),
            awaited: Vec::new(),
            traits: RouteTraits::default(),
            has_instances: false,
            room: 8,
        }
    }

    fn pass(&mut self, second: u64) -> Vec<Effect> {
        let pass = self.look();
        self.tell(second, Event::Pass(Box::new(pass)))
    }

    /// Lists the table with routes to these instances. Returns what the next look says.
    fn listed(&mut self, second: u64, routes: &[(&str, u8)]) -> Vec<Effect> {
        self.pass(second);
        let route = |(cidr, number): &(&str, u8)| Route::new(net(cidr), instance(*number));
        let routes = routes.iter().map(route).collect();
        let answer = Ok(RouteTable { routes, ..RouteTable::default() });
        let pass = Box::new(self.look());
        self.tell(second, Event::Listed { answer, pass });
        self.pass(second)
    }

    /// Gives the changes of a call a lane.
    fn sending(&mut self, second: u64, batch: Vec<Planned>) -> (Vec<Planned>, Vec<Planned>) {
        let sending = Sending { batch, base: None, pass: self.look() };
        let (mut sent, mut withdrawn) = (Vec::new(), Vec::new());
        for effect in self.tell(second, Event::Sending(Box::new(sending))) {
            match effect {
                Effect::Call(Call::Send { batch, .. }) => sent.extend(batch),
                Effect::Withdrawn(planned) => withdrawn.push(planned),
                _ => {}
            }
        }
        (sent, withdrawn)
    }
}

fn instance(number: u8) -> RouteTarget {
    let id = format!("sim://i-{number}");
    RouteTarget::Instance(ccm_cloud::ProviderId::parse(&id).expect("an ID"))
}

/// Returns the changes that wait for a lane.
fn waiting(effects: Vec<Effect>) -> Vec<Planned> {
    let mut calls = effects.into_iter().filter_map(|effect| match effect {
        Effect::Call(Call::Apply { batch, .. }) => Some(batch),
        _ => None,
    });
    calls.next().expect("a call")
}

/// Returns a node that has gone, and whose route waits to go.
fn losing() -> (Bench, Vec<Planned>) {
    let (one, two) = (node(1, &[CIDR]), node(2, &["10.120.2.0/24"]));
    let mut bench = Bench::new(vec![one.clone(), two]);
    bench.listed(0, &[(CIDR, 1), ("10.120.2.0/24", 2)]);
    bench.nodes.remove(0);
    bench.tell(1, Event::Gone { view: one, is_marked: false });
    let call = waiting(bench.pass(2));
    assert_eq!(call.len(), 1);
    (bench, call)
}

#[test]
fn a_loss_that_waits_is_made_by_the_same_settings_and_the_same_approval() {
    let (mut bench, call) = losing();
    assert_eq!(bench.sending(3, call).0.len(), 1);

    let (mut bench, call) = losing();
    bench.parameters.budget.limit = Limit::Count(2);
    assert_eq!(bench.sending(3, call).1.len(), 1);

    let (mut bench, call) = losing();
    bench.parameters.approval = Some(approves("*"));
    assert_eq!(bench.sending(3, call).1.len(), 1, "another approval");
}

/// A pass, other settings and the next pass are of one moment.
#[test]
fn a_route_that_waits_is_not_made_by_settings_that_changed_at_the_same_moment() {
    for changes in [false, true] {
        let mut bench = Bench::new(vec![node(1, &[CIDR])]);
        let call = waiting(bench.listed(1, &[]));
        if changes {
            bench.parameters.budget.limit = Limit::Count(2);
        }
        bench.pass(1);
        let (sent, withdrawn) = bench.sending(2, call);
        assert_eq!((sent.is_empty(), withdrawn.is_empty()), (changes, !changes));
    }
}

/// The list was under way when the program began to end.
#[test]
fn no_change_begins_when_the_program_ends() {
    for ends in [false, true] {
        let mut bench = Bench::new(vec![node(1, &[CIDR])]);
        let [planned] = waiting(bench.listed(1, &[])).try_into().expect("one change");
        let answer = Err(CloudError::new(ErrorKind::Busy, "another version"));
        let applied =
            Applied { planned, answer, node: Some(bench.nodes[0].clone()), replaces: true };
        bench.tell(2, Event::Applied(Box::new(applied)));
        bench.tell(2, Event::Ended);
        if ends {
            bench.tell(3, Event::Ending);
        }
        let pass = Box::new(bench.look());
        let effects = bench.tell(3, Event::Listed { answer: Ok(RouteTable::default()), pass });
        let is_sent =
            effects.iter().any(|effect| matches!(effect, Effect::Call(Call::Apply { .. })));
        assert_eq!(is_sent, !ends, "{effects:?}");
        let is_due = effects.iter().any(|effect| matches!(effect, Effect::Due(_)));
        assert!(!is_due, "the wake makes the next pass: {effects:?}");
    }
}

/// A change waits for a lane when the program begins to end.
#[test]
fn a_change_that_waits_is_not_sent_when_the_program_ends() {
    let mut bench = Bench::new(vec![node(1, &[CIDR])]);
    let call = waiting(bench.listed(1, &[]));
    bench.tell(2, Event::Ending);
    let (sent, withdrawn) = bench.sending(3, call);
    assert!(sent.is_empty() && withdrawn.len() == 1, "{sent:?} {withdrawn:?}");
}

/// An entry that cannot be read may be the route of a node that is gone.
#[test]
fn a_route_that_cannot_be_read_is_a_route_for_node_ipam() {
    let line = format!("route to {CIDR:?}: its target is of an unknown kind");
    for malformed in [vec![], vec![line]] {
        let mut bench = Bench::with(vec![node(2, &[])], true, true);
        let mut pass = bench.look();
        pass.awaited = vec![net(CIDR)];
        let table = RouteTable { malformed: malformed.clone(), ..RouteTable::default() };
        let listed = Event::Listed { answer: Ok(table), pass: Box::new(pass.clone()) };
        let told = bench.tell(1, listed);
        let is_told = told.iter().any(|effect| {
            matches!(effect, Effect::Ipam(Ipam::RoutesAre { destinations, .. }) if destinations.contains(&net(CIDR)))
        });
        let effects = bench.tell(2, Event::Pass(Box::new(pass)));
        let is_free =
            effects.iter().any(|effect| matches!(effect, Effect::Ipam(Ipam::RouteGone(_))));
        assert_eq!(
            (is_told, is_free),
            (!malformed.is_empty(), malformed.is_empty()),
            "{malformed:?}"
        );
    }
}

/// The cloud is still making the route, so its pod CIDR is not free although lists lack the route.
#[test]
fn a_route_that_the_cloud_is_still_making_is_a_route_for_node_ipam() {
    let gone = |bench: &mut Bench, second: u64| {
        bench.listed(second, &[]);
        let mut pass = bench.look();
        pass.awaited = vec![net(CIDR)];
        let effects = bench.tell(second, Event::Pass(Box::new(pass)));
        effects.iter().any(|effect| matches!(effect, Effect::Ipam(Ipam::RouteGone(_))))
    };
    for (kind, is_free) in [(ErrorKind::Pending, false), (ErrorKind::Timeout, true)] {
        let mut bench = Bench::with(vec![node(1, &[CIDR])], true, true);
        let [planned] = waiting(bench.listed(1, &[])).try_into().expect("one change");
        let answer = Err(CloudError {
            retry_after: Some(Duration::from_mins(10)),
            ..CloudError::new(kind, "the fabric is programmed").that_may_be_done()
        });
        let one = bench.nodes.remove(0);
        let applied = Applied { planned, answer, node: None, replaces: true };
        bench.tell(2, Event::Applied(Box::new(applied)));
        bench.tell(2, Event::Gone { view: one, is_marked: false });
        bench.nodes.push(node(2, &[]));
        assert_eq!(gone(&mut bench, 10), is_free, "{kind}");
        let asked = if kind == ErrorKind::Pending { 601 } else { 301 };
        assert_eq!(gone(&mut bench, asked), is_free, "{kind}");
        assert!(gone(&mut bench, 700), "{kind}");
    }
}

#[test]
fn a_route_that_waits_is_made_for_a_node_that_is_there() {
    for is_gone in [false, true] {
        let mut bench = Bench::new(vec![node(1, &[CIDR])]);
        let call = waiting(bench.listed(1, &[]));
        if is_gone {
            bench.nodes.clear();
        }
        let (sent, withdrawn) = bench.sending(2, call);
        assert_eq!((sent.is_empty(), withdrawn.is_empty()), (is_gone, !is_gone));
    }
}

/// The plan of now decides again about a route that goes.
#[test]
fn a_loss_that_waits_is_made_if_the_plan_still_has_it() {
    type Change = fn(&mut Bench);
    let changes: [(Change, bool, &str); 5] = [
        (|_| {}, true, "nothing has changed"),
        (|bench| bench.nodes.push(node(1, &[CIDR])), false, "the node is back"),
        (|bench| bench.nodes.push(node(3, &[CIDR])), false, "another node has the pod CIDR"),
        (|bench| bench.nodes.clear(), false, "the cluster has no nodes"),
        (|bench| bench.nodes.push(node(3, &["10.120.0.0/20"])), true, "another pod CIDR"),
    ];
    for (change, expect, what) in changes {
        let (mut bench, call) = losing();
        change(&mut bench);
        let (sent, withdrawn) = bench.sending(3, call);
        assert_eq!((sent.len(), withdrawn.len()), (expect.into(), (!expect).into()), "{what}");
    }
}

/// An approval does not make a list without nodes credible: the same one covers the loss before.
#[test]
fn a_list_without_nodes_stops_an_approved_loss() {
    for is_empty in [false, true] {
        let (one, two) = (node(1, &[CIDR]), node(2, &["10.120.2.0/24"]));
        let mut bench = Bench::new(vec![one.clone(), two]);
        bench.parameters.approval = Some(approves("*"));
        bench.listed(0, &[(CIDR, 1), ("10.120.2.0/24", 2)]);
        bench.nodes.remove(0);
        bench.tell(1, Event::Gone { view: one, is_marked: false });
        let call = waiting(bench.pass(2));
        if is_empty {
            bench.nodes.clear();
        }
        let (sent, withdrawn) = bench.sending(3, call);
        assert_eq!((sent.is_empty(), withdrawn.is_empty()), (is_empty, !is_empty));
    }
}

/// A change that the current plan makes only with another charge is not sent, because the next
/// leader would not know about it.
#[test]
fn a_loss_that_waits_is_not_made_by_a_charge_that_is_not_stored() {
    let (mut bench, call) = losing();
    bench.machine.planner = Planner::resume(at(2), Window::default(), Vec::new());
    bench.machine.planner.sent(at(2), &call[0]);
    assert_eq!(bench.sending(3, call).1.len(), 1);
}

#[test]
fn a_loss_that_is_withdrawn_is_not_charged() {
    let (mut bench, call) = losing();
    let charged = |bench: &Bench| bench.machine.planner.window().after(At::default()).count();
    assert_eq!(charged(&bench), 1);
    bench.nodes.push(node(1, &[CIDR]));
    assert_eq!(bench.sending(3, call).1.len(), 1);
    assert_eq!(charged(&bench), 0);
}

#[test]
fn a_label_that_selects_a_node_is_noticed() {
    let mut bench = Bench::new(Vec::new());
    let view = node(1, &[CIDR]);
    for (before, after, expect) in [
        (view.clone(), left_out(&view), true),
        (left_out(&view), view.clone(), true),
        (view.clone(), view.clone(), false),
    ] {
        let effects = bench.tell(1, Event::Changed { before: Some(before), after });
        let wakes = effects.iter().any(|effect| matches!(effect, Effect::Wake));
        assert_eq!(wakes, expect, "{effects:?}");
    }
}

#[test]
fn a_node_that_is_left_out_gets_no_condition() {
    let mut bench = Bench::new(vec![node(1, &[CIDR])]);
    bench.listed(1, &[(CIDR, 1)]);
    let view = bench.nodes[0].clone();
    for (view, expect) in [(left_out(&view), false), (view.clone(), true)] {
        let (name, node) = ("n1".into(), Some(view));
        let effects = bench.tell(2, Event::Condition { name, node, lack: None });
        let is_written = effects.iter().any(|effect| matches!(effect, Effect::Write { .. }));
        assert_eq!(is_written, expect, "{effects:?}");
    }
}

/// Another writer has set the condition of a node. If the program gives nodes their pod CIDRs, no list shows that.
#[test]
fn a_condition_that_another_writer_sets_is_looked_at() {
    for gives_cidrs in [true, false] {
        let mut bench = Bench::with(Vec::new(), true, gives_cidrs);
        let after = node(1, &[CIDR]);
        let before =
            with(&after, |node| node.conditions = vec![condition("True", "NoRouteCreated")]);
        let effects = bench.tell(1, Event::Changed { before: Some(before), after });
        let is_queued = effects.iter().any(|effect| matches!(effect, Effect::Condition(..)));
        assert_eq!(is_queued, gives_cidrs, "{effects:?}");
    }
}

#[test]
fn conditions_that_an_earlier_controller_has_left_are_named() {
    let shows = |number, reason: &str| {
        with(&node(number, &[]), |node| node.conditions = vec![condition("True", reason)])
    };
    let nodes =
        vec![shows(1, "NoRouteCreated"), left_out(&shows(2, "NoRouteCreated")), shows(3, "Other")];
    for (has_routes, expect) in [(true, &["n2"][..]), (false, &["n1", "n2"])] {
        let mut bench = Bench::with(Vec::new(), has_routes, false);
        let effects = bench.tell(1, Event::LeftOver(nodes.clone()));
        let [Effect::LeftOver(left)] = &effects[..] else { panic!("{effects:?}") };
        let names: Vec<&str> = left.iter().map(|node| &*node.name).collect();
        assert_eq!(names, expect);
    }
}

#[test]
fn nodes_that_get_no_route_are_shown_with_the_reason() {
    let nodes = || vec![node(1, &[]), left_out(&node(2, &["10.120.2.0/24"]))];
    for (gives_cidrs, expect) in [(false, &["n1", "n2"][..]), (true, &["n2"])] {
        let mut bench = Bench::with(nodes(), true, gives_cidrs);
        let effects = bench.listed(1, &[]);
        let shown = effects.iter().find_map(|effect| match effect {
            Effect::Show(Page::Blocked(nodes)) => Some(nodes.iter().map(|(name, _)| &**name)),
            _ => None,
        });
        assert_eq!(shown.expect("a page").collect::<Vec<_>>(), expect);
    }
}

#[test]
fn the_cluster_cidrs_are_left_to_the_next_leader() {
    let mut bench = Bench::new(vec![node(1, &[CIDR])]);
    let effects = bench.listed(1, &[(CIDR, 1)]);
    let left = effects.iter().find_map(|effect| match effect {
        Effect::Leave { networks, .. } => Some(networks.clone()),
        _ => None,
    });
    assert_eq!(left, Some(vec![net("10.120.0.0/16")]));
}

/// The node has another machine when its route is refused. The route to that machine is another
/// change.
#[test]
fn a_refusal_for_an_earlier_machine_delays_no_route() {
    for moves in [true, false] {
        let mut bench = Bench::new(vec![node(1, &[CIDR])]);
        let batch = waiting(bench.listed(1, &[]));
        let moved = Address::new("InternalIP", "10.0.0.77");
        if moves {
            let after = with(&bench.nodes[0], |node| node.addresses = vec![moved]);
            let before = Some(std::mem::replace(&mut bench.nodes[0], after.clone()));
            bench.tell(2, Event::Changed { before, after });
            bench.pass(3);
        }
        let answer = Err(CloudError::new(ErrorKind::QuotaExceeded, "full"));
        let [planned] = batch.try_into().expect("one change");
        let applied =
            Applied { planned, answer, node: Some(bench.nodes[0].clone()), replaces: true };
        bench.tell(4, Event::Applied(Box::new(applied)));
        let effects = bench.pass(5);
        let is_sent =
            effects.iter().any(|effect| matches!(effect, Effect::Call(Call::Apply { .. })));
        assert_eq!(is_sent, moves, "{effects:?}");
    }
}

/// A node registers again under the same name, and its route exists at once.
#[test]
fn a_node_that_registers_again_is_another_node() {
    let created = |uid: &str, seconds: u64| {
        let created = at(seconds).to_string().parse().ok();
        with(&node(1, &[CIDR]), |node| {
            (node.uid, node.created) = (uid.into(), created);
        })
    };
    let mut bench = Bench::new(vec![created("a", 1)]);
    let completed = |effects: &[Effect]| {
        effects.iter().filter(|effect| matches!(effect, Effect::Completed(_))).count()
    };
    assert_eq!(completed(&bench.listed(2, &[(CIDR, 1)])), 1);
    assert_eq!(completed(&bench.pass(3)), 0);
    bench.nodes = vec![created("b", 4)];
    let (name, node) = ("n1".into(), bench.nodes.first().cloned());
    let effects = bench.tell(5, Event::Condition { name, node, lack: None });
    let is_written = effects.iter().any(|effect| matches!(effect, Effect::Write { .. }));
    assert!(!is_written, "nothing is known of this node yet: {effects:?}");
    assert_eq!(completed(&bench.pass(6)), 1);
}

/// A policy has taken the write of a condition back.
#[test]
fn a_condition_that_is_not_stored_is_written_again() {
    let mut bench = Bench::new(vec![node(1, &[CIDR])]);
    bench.listed(1, &[(CIDR, 1)]);
    let view = bench.nodes[0].clone();
    for (conditions, expect) in [(Vec::new(), true), (vec![condition("False", "x")], false)] {
        let answer = with(&view, |node| node.conditions = conditions);
        let (asked, status) = (Arc::clone(&view.node), Status::False);
        let written = Written { asked, status, moves: true, answer: Ok(answer), lack: None };
        let effects = bench.tell(2, Event::Written(Box::new(written)));
        let is_again =
            |effect: &Effect| matches!(effect, Effect::ConditionEvery(..) | Effect::Condition(..));
        assert_eq!(effects.iter().any(is_again), expect, "{effects:?}");
    }
}
