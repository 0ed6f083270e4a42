//! Explanations of nodes and routes in each state.

mod others;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_cloud::{
    AppliedChange, CloudError, ClusterId, ErrorKind, Owner, RouteTable, RouteTarget, RouteTraits,
};
use ccm_controller::{
    brake::{Budget, Limit},
    machine::Machine as _,
};
use ccm_objects::{Address, Condition, Node, Taint, node_keys};

use super::*;
use crate::{
    networks::MaxPodCidr,
    routes::{
        machine::{Applied, Call, Effect, Event, Fixed, Parameters, Term},
        plan::tests::{net, node as view},
    },
};

fn at(seconds: u64) -> At {
    At(Duration::from_secs(1_000_000 + seconds))
}

fn cluster(uid: &str) -> ClusterId {
    ClusterId { name: "test".to_owned(), uid: uid.to_owned() }
}

fn available(status: &str) -> Condition {
    let kind = NETWORK_UNAVAILABLE.into();
    Condition { kind, status: status.into(), ..Condition::default() }
}

/// Returns a node with this number, the label of its name and its network.
fn node(number: u8, cidrs: &[&str]) -> NodeView {
    let mut view = view(number, cidrs);
    let node = Arc::make_mut(&mut view.node);
    node.labels = [("kubernetes.io/hostname".into(), node.name.clone())].into_iter().collect();
    node.conditions = vec![available("False")];
    view
}

fn with(view: &NodeView, change: impl FnOnce(&mut Node)) -> NodeView {
    let mut node = Node::clone(&view.node);
    change(&mut node);
    NodeView { node: Arc::new(node), ..view.clone() }
}

fn owner(uid: &str, name: &str) -> Owner {
    let (namespace, name) = (String::new(), name.to_owned());
    Owner { cluster: cluster(uid), uid: "u".to_owned(), namespace, name }
}

/// Returns a route to the address of the node with this number.
fn route(cidr: &str, number: u8) -> Route {
    Route::new(net(cidr), RouteTarget::Address([10, 0, 0, number].into()))
}

/// Begins a term after a leader with these networks.
fn term(networks: Vec<IpNet>) -> Event {
    let deleted = ccm_controller::brake::Window::default();
    Event::Term(Box::new(Term { begun: at(0), deleted, networks, blocks: None }))
}

/// Nodes, a table and a leader.
struct World {
    machine: Machine,
    asked: Asked,
    routes: Vec<Route>,
    room: Option<u32>,
}

impl World {
    fn new(nodes: Vec<NodeView>, routes: Vec<Route>) -> Self {
        let fixed = Fixed {
            cluster: cluster("ours"),
            has_routes: true,
            gives_cidrs: false,
            is_observing: false,
        };
        let parameters = Parameters {
            cluster_cidrs: vec![net("10.120.0.0/16"), net("fd00::/48")],
            max_pod_cidr: MaxPodCidr::default(),
            budget: Budget { limit: Limit::Count(3), window: Duration::from_mins(10) },
            period: Duration::from_mins(10),
            node_selector: ccm_kube::selector::NodeSelector::default(),
            approval: None,
        };
        let mut machine = Machine::new(fixed);
        machine.apply(term(Vec::new()), at(0));
        let traits = RouteTraits {
            target_ids: false,
            target_addresses: true,
            max_batch: 1,
            ..RouteTraits::default()
        };
        let pass = Pass {
            parameters,
            nodes,
            lacks: BTreeMap::new(),
            awaited: Vec::new(),
            traits,
            has_instances: false,
            room: 1,
        };
        let lease = ObjectRef::lease("kube-system", "route-ccm");
        let asked = Asked { pass, left_out: None, ipam: None, lease };
        Self { machine, asked, routes, room: None }
    }

    fn list(&mut self) {
        self.pass(0);
        let table =
            RouteTable { routes: self.routes.clone(), room: self.room, ..RouteTable::default() };
        self.listed(1, Ok(table));
    }

    fn listed(&mut self, second: u64, answer: Result<RouteTable, CloudError>) {
        let pass = Box::new(self.asked.pass.clone());
        self.machine.apply(Event::Listed { answer, pass }, at(second));
    }

    fn pass(&mut self, second: u64) -> Vec<Effect> {
        self.machine.apply(Event::Pass(Box::new(self.asked.pass.clone())), at(second))
    }

    /// Gives this answer to the first change that a look sends.
    fn answer(&mut self, second: u64, answer: Result<AppliedChange, CloudError>) {
        let sent = self.pass(second).into_iter().find_map(|effect| match effect {
            Effect::Call(Call::Apply { batch, .. }) => batch.into_iter().next(),
            _ => None,
        });
        let planned = sent.expect("a change is sent");
        let mut nodes = self.asked.pass.nodes.iter();
        let node = nodes.find(|view| Some(&view.node.name) == planned.node.as_ref()).cloned();
        let applied = Applied { planned, answer, node, replaces: false };
        self.machine.apply(Event::Applied(Box::new(applied)), at(second));
    }

    fn node(&self, name: &str) -> Explanation {
        self.unchanged(|machine| machine.explain_node(name, &self.asked, at(60)))
    }

    fn route(&self, name: &str) -> Explanation {
        self.unchanged(|machine| machine.explain_route(name, &self.asked, at(60)))
    }

    /// Checks that an explanation changes nothing.
    fn unchanged(&self, explain: impl Fn(&Machine) -> Explanation) -> Explanation {
        let memory = || serde_json::to_value(&self.machine).expect("it can be written");
        let (before, explained) = (memory(), explain(&self.machine));
        assert_eq!(memory(), before);
        explained
    }
}

fn listed(nodes: Vec<NodeView>, routes: Vec<Route>) -> World {
    let mut world = World::new(nodes, routes);
    world.list();
    world
}

/// Checks that the first three lines have these words.
fn says(explained: &Explanation, state: ObjectState, cause: &str, fix: &str) {
    assert_eq!(explained.state, state, "{explained:#?}");
    assert!(explained.cause.contains(cause), "{cause:?}: {explained:#?}");
    assert!(explained.fix.contains(fix), "{fix:?}: {explained:#?}");
}

#[test]
fn before_the_first_list_the_page_says_only_what_nodes_say() {
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"]), node(2, &[])], Vec::new());
    world.pass(0);
    says(&world.node("n1"), ObjectState::Working, "the routes are not listed yet", "wait");
    says(&world.node("n2"), ObjectState::Blocked, "has no podCIDRs", "--allocate-node-cidrs=true");
    let typo = "the API server does not show a node \"n3\"; the routes are not listed yet";
    says(&world.node("n3"), ObjectState::Unknown, typo, "check the name");
    for (kind, state, fix) in [
        (ErrorKind::Forbidden, ObjectState::Blocked, "give the cloud user the permission"),
        (ErrorKind::Unavailable, ObjectState::Working, "wait"),
    ] {
        let error = CloudError::new(kind, "no").with_request_id("r-1");
        world.listed(1, Err(error));
        let explained = world.route("10.120.1.0/24");
        let cause = format!("cannot list the routes: {kind}: no (request r-1)");
        says(&explained, state, &cause, fix);
        assert!(explained.next.starts_with("a list is due since 1970-01-12T13:4"), "{explained:?}");
    }
    world.machine.leads = false;
    says(
        &world.node("n1"),
        ObjectState::Unknown,
        "this replica does not lead",
        "get lease route-ccm",
    );
}

#[test]
fn a_list_that_fails_later_is_named_with_what_was_seen_before() {
    let mut world = listed(vec![node(1, &["10.120.1.0/24"])], vec![route("10.120.1.0/24", 1)]);
    let explained = world.node("n1");
    let fine = "the route of 10.120.1.0/24 to 10.0.0.1 exists, by the list of the cloud's routes that began at 1970-01-12T13:46:40Z, 1 min ago, and the answers since";
    assert_eq!(explained.cause, fine);
    says(&explained, ObjectState::Fine, fine, NOTHING);
    world.listed(50, Err(CloudError::new(ErrorKind::Timeout, "late")));
    let cause = "1 min ago, and the answers since; the last list has failed (at 1970-01-12T13:47:30Z, 10 s ago): timeout: late";
    says(&world.node("n1"), ObjectState::Fine, cause, NOTHING);
}

type Case = (Vec<NodeView>, Vec<Route>, ObjectState, &'static str, &'static str);

/// Checks the explanation of the first node after the first list.
fn each_says<const N: usize>(cases: [Case; N]) {
    for (nodes, routes, state, cause, fix) in cases {
        says(&listed(nodes, routes).node("n1"), state, cause, fix);
    }
}

fn own() -> NodeView {
    node(1, &["10.120.1.0/24"])
}

#[test]
fn a_node_that_lacks_what_a_route_needs_names_who_gives_it() {
    let taint = Taint {
        key: node_keys::UNINITIALIZED.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    };
    let bare = with(&own(), |node| node.addresses.clear());
    let new = with(&bare, |node| node.taints = vec![taint]);
    let two = node(1, &["10.120.1.0/24", "fd00::/64"]);
    let node_ccm = "/explain?kind=Node&name=n1 of node-ccm";
    each_says([
        (vec![bare], vec![], ObjectState::Blocked, "no InternalIP", node_ccm),
        (vec![new], vec![], ObjectState::Working, "no InternalIP", node_ccm),
        // The IPv6 route needs a person.
        (
            vec![two],
            vec![route("10.120.1.0/24", 1)],
            ObjectState::Blocked,
            "of family IPv6",
            node_ccm,
        ),
        (
            vec![own()],
            vec![],
            ObjectState::Working,
            "the change `create 10.120.1.0/24 to n1` is due",
            "wait",
        ),
    ]);
}

/// node-ccm does not give the node another one.
#[test]
fn an_unreadable_provider_id_is_named() {
    let mut view = with(&own(), |node| node.provider_id = Some("SIM://i-1".into()));
    view.id = None;
    let mut world = World::new(vec![view], vec![]);
    world.asked.pass.traits.target_ids = true;
    world.list();
    let explained = world.node("n1");
    let cause = "provider ID \"SIM://i-1\" does not have the form <scheme>://<id>";
    says(&explained, ObjectState::Blocked, cause, "delete this Node");
    assert!(!explained.fix.contains("node-ccm"), "{explained:#?}");
    assert!(explained.wanted[0].contains("\"SIM://i-1\" is not a provider ID"), "{explained:#?}");
}

#[test]
fn a_pod_cidr_without_a_route_says_what_is_wrong_with_it() {
    let older = node(0, &["10.120.1.0/24"]);
    let same_id = NodeView { id: node(0, &[]).id, ..own() };
    let mut liar = with(&own(), |one| {
        (one.provider_id, one.addresses) = (None, node(0, &[]).node.addresses.clone());
    });
    liar.id = None;
    let small = |number: u8| node(number, &[&format!("10.120.{number}.0/26")]);
    let most = vec![own(), small(2), small(3), small(4)];
    let outside = || vec![node(1, &["10.99.1.0/24"])];
    let there = vec![route("10.99.1.0/24", 1)];
    let blocked = ObjectState::Blocked;
    let stays = "and the answers since, but route-ccm would not create it again: pod CIDR 10.99.1.0/24 is not inside --cluster-cidr";
    let set = "set --max-pod-cidr; or, if this one is right: kubectl -n kube-system annotate lease route-ccm --overwrite 'quartet.dev/approved-selector=kubernetes.io/hostname=n1'";
    let id = "delete the Node to which the machine does not belong";
    each_says([
        (vec![own(), older], vec![], blocked, "also belongs to node n0", "delete this Node"),
        (vec![same_id, node(0, &[])], vec![], blocked, "has the same provider ID", id),
        (vec![liar, node(0, &[])], vec![], blocked, "has the same InternalIP", "status.addresses"),
        (most, vec![], blocked, "until a person approves it", set),
        (vec![node(1, &["x"])], vec![], blocked, "not a CIDR such as", "delete this Node"),
        (outside(), vec![], blocked, "not inside", "extend --cluster-cidr"),
        (outside(), there, ObjectState::Fine, stays, "extend --cluster-cidr"),
    ]);
}

#[test]
fn a_route_of_others_in_the_way_is_named() {
    let lent = Route { owner: Some(owner("theirs", "n1")), ..route("10.120.1.0/24", 1) };
    let foreign = Route { target: None, ..route("10.120.1.0/24", 1) };
    let unknown = route("10.120.1.0/24", 77);
    each_says([
        (vec![own()], vec![lent], ObjectState::Fine, "made by cluster test", "check --cluster-uid"),
        (
            vec![own()],
            vec![foreign],
            ObjectState::Blocked,
            "to nothing, of another owner",
            "remove it",
        ),
        (vec![own()], vec![unknown], ObjectState::Working, "asking the cloud", "wait"),
    ]);
}

/// This is not a failure, and the page says when it is sent again.
#[test]
fn a_change_that_the_cloud_is_still_making_says_so() {
    let mut world = listed(vec![own()], Vec::new());
    world.answer(59, Err(CloudError::new(ErrorKind::Pending, "the fabric is programmed")));
    let explained = world.node("n1");
    let cause = "the cloud is still making the change `create 10.120.1.0/24 to n1`: pending: the fabric is programmed";
    says(&explained, ObjectState::Working, cause, "wait: the cloud is still making the change");
    assert!(
        explained.next.starts_with("it is tried again at 1970-01-12T13:47:41Z"),
        "{explained:?}"
    );
}

#[test]
fn a_change_that_is_sent_or_fails_says_so() {
    let mut world = listed(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    let error = CloudError::new(ErrorKind::QuotaExceeded, "no more").with_request_id("r-2");
    world.answer(2, Err(error));
    for explained in [world.node("n1"), world.route("10.120.1.0/24")] {
        let cause = "the change `create 10.120.1.0/24 to n1` has failed once: quota_exceeded: no more (request r-2)";
        says(&explained, ObjectState::Blocked, cause, "raise the quota of the cloud project");
        assert_eq!(explained.next, "it is tried again at 1970-01-12T13:51:42Z, in 4 min");
    }
    let mut world = listed(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    world.pass(2);
    let explained = world.node("n1");
    says(
        &explained,
        ObjectState::Working,
        "the cloud has not answered yet",
        "nothing has to be done",
    );
    assert!(explained.next.starts_with("a call to the cloud is under way"), "{explained:?}");
    let mut world = listed(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    let late = CloudError::new(ErrorKind::Timeout, "late");
    world.answer(2, Err(late));
    says(&world.node("n1"), ObjectState::Working, "has failed once: timeout: late", "wait");
    world.pass(70);
    let explained = world.node("n1");
    says(&explained, ObjectState::Working, "has failed once: timeout: late", "wait");
    assert!(explained.next.starts_with("a call to the cloud is under way"), "{explained:?}");
}

#[test]
fn a_route_without_traffic_or_room_or_that_does_not_last_says_so() {
    let broken = Route { defect: Some("the port is down".to_owned()), ..route("10.120.1.0/24", 1) };
    let mut world = listed(vec![node(1, &["10.120.1.0/24"])], vec![broken.clone()]);
    says(
        &world.node("n1"),
        ObjectState::Working,
        "does not carry traffic: the port is down",
        "wait",
    );
    world.answer(2, Ok(AppliedChange { route: Some(broken), ..AppliedChange::default() }));
    says(
        &world.node("n1"),
        ObjectState::Working,
        "does not carry traffic",
        "fix the problem in the cause",
    );
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    world.room = Some(0);
    world.list();
    says(&world.node("n1"), ObjectState::Blocked, "no room for another route", "raise the quota");
    let mut world = listed(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    world.machine.planner.failures.postpone(net("10.120.1.0/24"), at(90), "something undoes it");
    let kept = "the cloud does not keep the change: something undoes it";
    says(&world.node("n1"), ObjectState::Blocked, kept, "find out who undoes it in the cloud");
}

/// Returns the command that approves a change, for a node or for all.
fn approval(selector: &str) -> String {
    format!(
        "kubectl -n kube-system annotate lease route-ccm --overwrite 'quartet.dev/approved-selector={selector}' \"quartet.dev/approved-until=$(date -u -d '+10 minutes' +%FT%TZ)\""
    )
}

#[test]
fn what_is_held_names_the_approval() {
    let of_one = approval("kubernetes.io/hostname=n1");
    // The node has another address than its route.
    let (before, now) = (node(1, &["10.120.1.0/24"]), node(1, &["10.120.1.0/24"]));
    let before = with(&before, |node| {
        node.addresses = vec![Address::new("InternalIP", "10.0.1.1")];
    });
    let old = Route::new(net("10.120.1.0/24"), RouteTarget::Address([10, 0, 1, 1].into()));
    let mut world = listed(vec![now.clone()], vec![old.clone()]);
    let moved = Event::Changed { before: Some(before), after: now };
    world.machine.apply(moved, at(1));
    world.asked.pass.parameters.budget.limit = Limit::Count(0);
    says(
        &world.node("n1"),
        ObjectState::Held,
        "--route-loss=0 does not allow any deletion",
        &of_one,
    );
    says(
        &world.node("n1"),
        ObjectState::Held,
        "--route-loss=0 does not allow any deletion",
        "raise --route-loss",
    );
    says(
        &world.route("10.120.1.0/24"),
        ObjectState::Held,
        "the change `replace 10.120.1.0/24 of n1: 10.0.1.1 -> 10.0.0.1` is held",
        &of_one,
    );
    // The API server's list is empty.
    world.asked.pass.nodes.clear();
    says(
        &world.node("n1"),
        ObjectState::Held,
        "the API server's list has no nodes at all",
        &of_one,
    );
    // This leader has not seen the node, but the note contains its name.
    let recorded = Route { owner: Some(owner("ours", "n8")), ..route("10.120.8.0/24", 8) };
    let mut world = listed(vec![node(1, &[])], vec![recorded]);
    world.asked.pass.parameters.budget.limit = Limit::Count(0);
    let all = approval("*") + " (this approves all routes that are held: look at /plan first)";
    says(
        &world.node("n8"),
        ObjectState::Held,
        "the change `delete 10.120.8.0/24 to 10.0.0.8` is",
        &all,
    );
    says(&world.node("n9"), ObjectState::Unknown, "does not show a node \"n9\"", "check the name");
    // The node is excluded.
    let left_out = NodeView { left_out: Some(LeftOut::NotSelected), ..node(1, &["10.120.1.0/24"]) };
    let mut world = listed(vec![left_out.clone()], Vec::new());
    world.asked.left_out = Some("--node-selector does not select it".to_owned());
    says(&world.node("n1"), ObjectState::Foreign, "--node-selector does not select it", NOTHING);
    let world = listed(vec![left_out], vec![route("10.120.1.0/24", 1)]);
    says(&world.node("n1"), ObjectState::Held, "node n1 does not match --node-selector", &of_one);
    // It is inside only since the setting was changed.
    let mut world = World::new(vec![node(1, &[])], vec![route("10.120.1.0/24", 1)]);
    world.machine.apply(term(vec![net("10.119.0.0/16")]), at(0));
    world.list();
    let newly = "inside --cluster-cidr only since that was changed";
    says(&world.route("10.120.1.0/24"), ObjectState::Held, newly, &of_one);
}

#[test]
fn a_condition_that_is_taken_back_is_named() {
    let view = with(&node(1, &["10.120.1.0/24"]), |node| node.conditions = vec![available("True")]);
    let mut world = listed(vec![view.clone()], vec![route("10.120.1.0/24", 1)]);
    let due = "all routes exist, but the condition NetworkUnavailable=False is not written yet";
    says(&world.node("n1"), ObjectState::Working, due, "wait");
    world.pass(2);
    says(&world.node("n1"), ObjectState::Working, due, "wait");
    let shown = with(&view, |node| {
        node.conditions.iter_mut().for_each(|one| one.status = "False".into());
    });
    for _ in 0..4 {
        let written = super::super::Written {
            asked: Arc::clone(&view.node),
            status: crate::routes::plan::condition::Status::False,
            moves: true,
            answer: Ok(shown.clone()),
            lack: None,
        };
        world.machine.apply(Event::Written(Box::new(written)), at(59));
    }
    let explained = world.node("n1");
    says(&explained, ObjectState::Blocked, "something undoes it", "kubectl get node n1");
    assert!(explained.next.starts_with("the condition is written at"), "{explained:?}");
}
