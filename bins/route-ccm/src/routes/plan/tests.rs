use std::{sync::Arc, time::Duration};

use ccm_cloud::{AbsenceProof, Owner, ProofMethod, ProviderId, Route, RouteChange, RouteTable};
use ccm_controller::brake::{Limit, approval::KEYS};
use ccm_objects::{Address, Node};

use super::*;

mod burst;
mod charged;
mod foreign;
mod late;
mod proven;
mod shown;

pub(super) fn at(seconds: u64) -> At {
    At(Duration::from_secs(1_000_000 + seconds))
}

pub(in crate::routes) fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

/// Returns a node with this number: its name, ID, address, pod CIDRs and time of creation follow.
pub(in crate::routes) fn node(number: u8, cidrs: &[&str]) -> NodeView {
    let id = format!("sim://i-{number}");
    let created = format!("2026-01-01T00:00:{number:02}Z").parse().expect("a time");
    let node = Node {
        name: format!("n{number}").into(),
        uid: format!("uid-{number}").into(),
        created: Some(created),
        provider_id: Some(id.as_str().into()),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).into()).collect(),
        addresses: vec![Address::new("InternalIP", format!("10.0.0.{number}"))],
        ..Node::default()
    };
    NodeView { node: Arc::new(node), id: ProviderId::parse(&id).ok(), left_out: None }
}

/// Returns an approval of the nodes of this selector.
pub(in crate::routes) fn approves(selector: &str) -> SetApproval {
    let texts = [(KEYS.selector, selector), (KEYS.until, "2030-01-01T00:00:00Z")];
    let read = |key: &str| Some(texts.iter().find(|(name, _)| *name == key)?.1.to_owned());
    SetApproval::read(KEYS, read).expect("an approval").expect("an approval")
}

pub(super) fn instance(number: u8) -> RouteTarget {
    RouteTarget::Instance(ProviderId::parse(&format!("sim://i-{number}")).expect("an ID"))
}

pub(super) fn route(destination: &str, target: RouteTarget) -> Route {
    Route::new(net(destination), target)
}

pub(super) fn owner(cluster: &str, number: u8) -> Owner {
    Owner {
        cluster: ClusterId { name: "test".to_owned(), uid: cluster.to_owned() },
        uid: format!("uid-{number}"),
        namespace: String::new(),
        name: format!("n{number}"),
    }
}

/// A planner, and all that it looks at.
pub(super) struct World {
    pub(super) planner: Planner,
    pub(super) nodes: Vec<NodeView>,
    pub(super) table: Table,
    pub(super) traits: RouteTraits,
    cidrs: Vec<IpNet>,
    pub(super) blocks: Option<Config>,
    pub(super) most: MaxPodCidr,
    pub(super) former: Former,
    sendable: usize,
    limit: Limit,
    pub(super) has_instances: bool,
    pub(super) approval: Option<SetApproval>,
}

impl World {
    pub(super) fn new(nodes: Vec<NodeView>, routes: Vec<Route>) -> Self {
        Self {
            planner: Planner::default(),
            nodes,
            table: RouteTable { routes, ..RouteTable::default() }.into(),
            traits: RouteTraits::default(),
            cidrs: vec![net("10.120.0.0/16"), net("fd00::/48")],
            blocks: None,
            most: MaxPodCidr::default(),
            former: Former::default(),
            sendable: usize::MAX,
            limit: Limit::Percent(10),
            approval: None,
            has_instances: false,
        }
    }

    pub(super) fn plan(&mut self, now: At) -> Plan {
        let cluster = ClusterId { name: "test".to_owned(), uid: "ours".to_owned() };
        let parameters = Parameters {
            cluster_cidrs: self.cidrs.clone(),
            max_pod_cidr: self.most,
            budget: Budget { limit: self.limit, window: Duration::from_mins(10) },
            period: Duration::from_mins(10),
            node_selector: NodeSelector::default(),
            approval: self.approval.clone(),
        };
        let view = View {
            nodes: &self.nodes,
            table: &self.table,
            traits: &self.traits,
            cluster: &cluster,
            parameters: &parameters,
            blocks: self.blocks.as_ref(),
            former: &self.former,
            has_instances: self.has_instances,
            sendable: self.sendable,
        };
        self.planner.plan(now, &view)
    }

    /// Returns the due changes in words.
    pub(super) fn due(&mut self, now: At) -> Vec<String> {
        self.plan(now).due().map(words).collect()
    }

    /// Executes all due changes, until no change is left, like a cloud without faults.
    pub(super) fn settle(&mut self, now: At) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..10 {
            let plan = self.plan(now);
            if plan.due().next().is_none() {
                break;
            }
            for planned in plan.due() {
                done.push(words(planned));
                self.planner.sent(now, planned);
                let answer = Ok(applied(planned));
                self.planner.applied(now, planned, &answer);
                self.table.apply(&planned.change, &applied(planned));
            }
        }
        done
    }

    /// Deletes a node, as the informer shows it.
    pub(super) fn goes(&mut self, number: u8, was_marked: bool) {
        let name = format!("n{number}");
        let place = self.nodes.iter().position(|view| *view.node.name == *name).expect("a node");
        let view = self.nodes.remove(place);
        self.former.gone(&view, was_marked);
    }
}

fn applied(planned: &Planned) -> AppliedChange {
    let made = |wanted: &ccm_cloud::WantedRoute| Route {
        owner: Some(wanted.owner.clone()),
        ..Route::new(
            wanted.destination,
            RouteTarget::Instance(
                ProviderId::parse(wanted.node.provider_id.as_deref().expect("an ID"))
                    .expect("an ID"),
            ),
        )
    };
    let route = match &planned.change {
        RouteChange::Create(new) | RouteChange::Replace { new, .. } => Some(made(new)),
        RouteChange::Delete(_) => None,
    };
    AppliedChange { route, version: None }
}

fn words(planned: &Planned) -> String {
    planned.words()
}

pub(super) fn gone() -> TargetState {
    TargetState::Gone(AbsenceProof {
        method: ProofMethod::ById,
        evidence: "404".to_owned(),
        request_id: None,
        kept: None,
    })
}

/// Returns why a node lacks routes, and whether it is a failure.
pub(super) fn why(plan: &Plan, name: &str) -> (String, Option<bool>) {
    let why = plan.nodes.get(name).and_then(NodeRoutes::why);
    why.map_or_else(Default::default, |(why, failed)| (why, Some(failed)))
}

const NOTHING: [String; 0] = [];

#[test]
fn each_pod_cidr_gets_its_route() {
    // Upstream's scenarios 15, 18, 22, 23 and 26.
    let dual = |number: u8| {
        node(number, &[&format!("10.120.{number}.0/24"), &format!("fd00:0:0:{number}::/64")])
    };
    let mut world = World::new(vec![dual(1), dual(2), node(3, &[])], Vec::new());
    let done = world.settle(at(0));
    assert_eq!(
        done,
        [
            "create 10.120.1.0/24 to n1",
            "create 10.120.2.0/24 to n2",
            "create fd00:0:0:1::/64 to n1",
            "create fd00:0:0:2::/64 to n2"
        ]
    );
    let plan = world.plan(at(1));
    assert_eq!((plan.counts.nodes_complete, plan.counts.nodes_without_cidrs), (2, 1));
    assert!(plan.nodes.get("n1").is_some_and(NodeRoutes::is_complete));
    assert_eq!(plan.nodes.get("n3"), None);
}

#[test]
fn right_routes_stay() {
    // 16 and 20. Networks are compared instead of texts, because host bits have no meaning.
    let nodes = vec![node(1, &["10.120.1.7/24"]), node(2, &["10.120.2.0/24"])];
    let routes = vec![route("10.120.1.0/24", instance(1)), route("10.120.2.9/24", instance(2))];
    let mut world = World::new(nodes, routes);
    assert_eq!(world.settle(at(0)), NOTHING);
    // A next hop and a name are also targets.
    world.table = RouteTable {
        routes: vec![
            route("10.120.1.0/24", RouteTarget::Address("10.0.0.1".parse().expect("an address"))),
            route("10.120.2.0/24", RouteTarget::Node("n2".to_owned())),
        ],
        ..RouteTable::default()
    }
    .into();
    assert_eq!(world.settle(at(0)), NOTHING);
}

#[test]
fn swapped_targets_are_replaced_in_place() {
    // 17.
    let nodes = vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.2.0/24"])];
    let routes = vec![route("10.120.1.0/24", instance(2)), route("10.120.2.0/24", instance(1))];
    let mut world = World::new(nodes, routes.clone());
    assert_eq!(
        world.settle(at(0)),
        [
            "replace 10.120.1.0/24 of n1: sim://i-2 -> sim://i-1",
            "replace 10.120.2.0/24 of n2: sim://i-1 -> sim://i-2"
        ]
    );
    // With several targets the old one is removed after the new one exists.
    let mut world = World::new(world.nodes, routes);
    world.traits.several_targets = true;
    assert_eq!(world.due(at(0)), ["create 10.120.1.0/24 to n1", "create 10.120.2.0/24 to n2"]);
    let done = world.settle(at(0));
    assert_eq!(
        done[2..],
        ["delete 10.120.1.0/24 to sim://i-2", "delete 10.120.2.0/24 to sim://i-1"]
    );
}

#[test]
fn a_destination_has_one_change_at_a_time() {
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], Vec::new());
    let plan = world.plan(at(0));
    let planned = plan.due().next().expect("a change");
    world.planner.sent(at(0), planned);
    assert_eq!(world.due(at(0)), NOTHING);
    world.goes(1, false);
    assert_eq!(world.due(at(0)), NOTHING, "not deleted while it is being created");
    world.planner.applied(at(1), planned, &Ok(applied(planned)));
    world.table.apply(&planned.change, &applied(planned));
    world.nodes.push(node(2, &["10.120.1.0/24"]));
    assert_eq!(world.due(at(1)), ["replace 10.120.1.0/24 of n2: sim://i-1 -> sim://i-2"]);
}

#[test]
fn the_route_of_a_node_that_went_is_deleted() {
    let nodes = vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.2.0/24"])];
    let routes = vec![route("10.120.1.0/24", instance(1)), route("10.120.2.0/24", instance(2))];
    let mut world = World::new(nodes, routes);
    world.goes(2, false);
    assert_eq!(world.settle(at(0)), ["delete 10.120.2.0/24 to sim://i-2"]);
}

#[test]
fn a_thin_view_deletes_few_routes() {
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let world = |gone: std::ops::Range<u8>, marked: bool| {
        let nodes = (1..60).map(|number| node(number, &[&cidr(number)])).collect();
        let routes = (1..60).map(|number| route(&cidr(number), instance(number))).collect();
        let mut world = World::new(nodes, routes);
        gone.for_each(|number| world.goes(number, marked));
        world
    };
    let mut half = world(1..30, false);
    assert_eq!(half.settle(at(0)).len(), 6, "a tenth of 59, rounded up");
    let plan = half.plan(at(1));
    assert_eq!((plan.counts.held, plan.next), (23, Some(at(600))));
    assert_eq!(half.settle(at(599)).len(), 0);
    assert_eq!(half.settle(at(600)).len(), 6, "of 53 that are left");
    let mut marked = world(1..30, true);
    assert_eq!(marked.settle(at(0)).len(), 29, "marked for scale-down");
    let mut all = world(1..60, false);
    assert_eq!(all.settle(at(0)).len(), 0, "no node at all is not believed");
    let breaker = all.plan(at(1)).breaker;
    assert!(matches!(breaker, Some(Transition::StaysOpen(..))), "{breaker:?}");
    let mut all = world(1..60, true);
    assert_eq!(all.settle(at(0)).len(), 0, "no node at all is not believed of marked nodes either");
    all.nodes.push(node(60, &[&cidr(60)]));
    assert_eq!(all.settle(at(1)).len(), 60, "one is left, and gets its route");
}

#[test]
fn a_user_approves_what_is_held() {
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes = (1..60).map(|number| node(number, &[&cidr(number)])).collect();
    let routes = (1..60).map(|number| route(&cidr(number), instance(number))).collect();
    let mut world = World::new(nodes, routes);
    (1..59).for_each(|number| world.goes(number, false));
    assert_eq!(world.settle(at(0)).len(), 6);
    world.approval = Some(approves("*"));
    assert_eq!(world.due(at(1)).len(), 52);
}

#[test]
fn a_failure_is_retried_for_its_route_alone() {
    let mut world =
        World::new(vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.2.0/24"])], Vec::new());
    let plan = world.plan(at(0));
    let mut waits = Vec::new();
    let mut now = at(0);
    let failing = plan.due().next().expect("a change").clone();
    for _ in 0..4 {
        world.planner.sent(at(0), &failing);
        let error = CloudError::new(ErrorKind::Unavailable, "down");
        assert!(!world.planner.applied(now, &failing, &Err(error)));
        let plan = world.plan(now);
        assert_eq!(why(&plan, "n1"), ("unavailable: down".to_owned(), Some(true)));
        assert_eq!(why(&plan, "n2").1, Some(false));
        let due = plan.next.expect("a retry");
        waits.push(due.since(now).as_secs());
        assert!(world.plan(due).due().any(|planned| planned.change == failing.change));
        now = due;
    }
    assert_eq!(waits, [2, 4, 8, 16]);
    // The conditions of the failure have changed.
    let error = CloudError::new(ErrorKind::Invalid, "no");
    world.planner.applied(now, &failing, &Err(error));
    assert_eq!(world.plan(now).due().count(), 1);
    world.planner.node_changed(std::iter::once(net("10.120.1.0/24")));
    assert_eq!(world.plan(now).due().count(), 2);
}

#[test]
fn a_full_table_holds_creations_and_nothing_else() {
    let nodes =
        vec![node(1, &["10.120.1.0/24"]), node(2, &["10.120.2.0/24"]), node(3, &["10.120.3.0/24"])];
    let mut world = World::new(nodes, vec![route("10.120.3.0/24", instance(2))]);
    world.table.room = Some(1);
    let plan = world.plan(at(0));
    let due: Vec<String> = plan.due().map(words).collect();
    assert_eq!(
        due,
        ["create 10.120.1.0/24 to n1", "replace 10.120.3.0/24 of n3: sim://i-2 -> sim://i-3"]
    );
    assert!(why(&plan, "n2").0.contains("no room"));
    world.settle(at(0));
    assert_eq!(world.table.room, Some(0));
    world.goes(1, false);
    assert_eq!(
        world.settle(at(1)),
        ["delete 10.120.1.0/24 to sim://i-1", "create 10.120.2.0/24 to n2"]
    );
}

#[test]
fn a_defect_is_repaired_and_shown() {
    let broken =
        Route { defect: Some("no address pair".to_owned()), ..route("10.120.1.0/24", instance(1)) };
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], vec![broken]);
    let plan = world.plan(at(0));
    assert_eq!(plan.counts.defective, 1);
    // The cloud may still be making it.
    assert_eq!(why(&plan, "n1"), ("no address pair".to_owned(), Some(false)));
    assert_eq!(world.settle(at(0)), ["create 10.120.1.0/24 to n1"]);
    assert_eq!(world.table.to(net("10.120.1.0/24")).len(), 1);
    assert_eq!(world.plan(at(1)).counts.nodes_complete, 1);
}

#[test]
fn a_node_lacks_its_route_while_a_defect_is_being_repaired() {
    let broken =
        Route { defect: Some("no address pair".to_owned()), ..route("10.120.1.0/24", instance(1)) };
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], vec![broken]);
    let due: Vec<Planned> = world.plan(at(0)).due().cloned().collect();
    world.planner.sent(at(0), &due[0]);
    let plan = world.plan(at(1));
    assert_eq!(plan.due().count(), 0, "it is under way");
    assert_eq!(plan.counts.nodes_complete, 0);
    assert_eq!(why(&plan, "n1"), ("no address pair".to_owned(), Some(false)));
}

#[test]
fn a_defect_that_stays_is_repaired_with_back_off() {
    let broken =
        Route { defect: Some("no address pair".to_owned()), ..route("10.120.1.0/24", instance(1)) };
    let mut world = World::new(vec![node(1, &["10.120.1.0/24"])], vec![broken.clone()]);
    let mut attempts = 0;
    for second in 0..3600 {
        let due: Vec<Planned> = world.plan(at(second)).due().cloned().collect();
        for planned in due {
            attempts += 1;
            world.planner.sent(at(0), &planned);
            let answer = AppliedChange { route: Some(broken.clone()), version: None };
            world.planner.applied(at(second), &planned, &Ok(answer));
        }
    }
    assert!((5..=30).contains(&attempts), "{attempts} attempts in an hour");
}

#[test]
fn of_two_equal_routes_one_goes() {
    // 29 and quirk 13.
    let twin = |id: &str| Route { id: Some(id.to_owned()), ..route("10.120.1.0/24", instance(1)) };
    let nodes = vec![node(1, &["10.120.1.0/24", "10.120.1.0/24"])];
    let mut world = World::new(nodes, vec![twin("a"), twin("b"), twin("c")]);
    assert_eq!(world.settle(at(0)).len(), 2);
    assert_eq!(world.table.to(net("10.120.1.0/24")), [twin("a")]);
}

#[test]
fn a_node_that_moves_is_replaced_within_the_budget() {
    // 14 and 21: the next hop is another address of the same node.
    let hop =
        |number: u8| RouteTarget::Address(format!("10.0.1.{number}").parse().expect("an address"));
    let cidr = |number: u8| format!("10.120.{number}.0/24");
    let nodes: Vec<NodeView> = (1..60).map(|number| node(number, &[&cidr(number)])).collect();
    let routes = (1..60).map(|number| route(&cidr(number), hop(number))).collect();
    let mut world = World::new(nodes.clone(), routes);
    for (number, after) in (1..60).zip(&nodes) {
        let mut before = Node::clone(&after.node);
        before.addresses = vec![Address::new("InternalIP", format!("10.0.1.{number}"))];
        let before = NodeView { node: Arc::new(before), ..after.clone() };
        world.former.record_change(&before, after);
    }
    assert_eq!(world.settle(at(0)).len(), 6);
    assert_eq!(world.plan(at(1)).counts.held, 53);
}

#[test]
fn what_is_wrong_with_a_node_is_said_and_affects_no_other() {
    let mut without_id = NodeView { id: None, ..node(7, &["10.120.7.0/24"]) };
    Arc::make_mut(&mut without_id.node).provider_id = None;
    let nodes = vec![
        node(1, &["10.120.1.0/24"]),
        node(2, &["10.120.1.0/24"]),
        node(3, &["10.120.0.0/23"]),
        node(4, &["10.99.0.0/24"]),
        node(5, &["ten"]),
        node(6, &["10.120.6.0/24", "fd01::/64"]),
        without_id,
    ];
    let kept = vec![route("10.99.0.0/24", instance(1))];
    let mut world = World::new(nodes, kept);
    assert_eq!(world.settle(at(0)), ["create 10.120.1.0/24 to n1", "create 10.120.6.0/24 to n6"]);
    let plan = world.plan(at(1));
    let text = |name: &str| why(&plan, name).0;
    for (name, expect) in [
        ("n2", "pod CIDR 10.120.1.0/24 also belongs to node n1, which is older"),
        ("n3", "pod CIDR 10.120.0.0/23 overlaps 10.120.1.0/24 of node n1, which is older"),
        ("n4", "pod CIDR 10.99.0.0/24 is not inside --cluster-cidr"),
        ("n5", "spec.podCIDRs has \"ten\", which is not a CIDR"),
        ("n6", "pod CIDR fd01::/64 is not inside --cluster-cidr"),
        ("n7", "the node has no provider ID yet"),
    ] {
        assert!(text(name).starts_with(expect), "{name}: {}", text(name));
    }
    assert!(plan.nodes.get("n1").is_some_and(NodeRoutes::is_complete));
}

#[test]
fn a_node_without_address_keeps_its_route() {
    let mut view = node(1, &["10.120.1.0/24"]);
    let hop = RouteTarget::Address("10.0.0.1".parse().expect("an address"));
    let mut world = World::new(vec![view.clone()], vec![route("10.120.1.0/24", hop)]);
    world.traits =
        RouteTraits { target_addresses: true, target_ids: false, ..RouteTraits::default() };
    let mut bare = Node::clone(&view.node);
    bare.addresses.clear();
    let before = view.clone();
    view.node = Arc::new(bare);
    world.former.record_change(&before, &view);
    world.nodes = vec![view];
    assert_eq!(world.settle(at(0)), NOTHING);
    let plan = world.plan(at(0));
    assert!(why(&plan, "n1").0.contains("InternalIP"));
}
