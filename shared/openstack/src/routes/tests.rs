//! Tests the contract of routes on scripted services that count requests.

mod full;
mod races;
mod rights;

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, NodeAddress, NodeIdentity, Owner, WantedRoute};
use ccm_openstack_client::scripted::{Scripted, port, uuid};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::*;

type Answer = Result<AppliedChange, CloudError>;

struct Rig {
    cloud: Arc<Scripted>,
    routes: NeutronRoutes,
    cluster: ClusterId,
}

impl Rig {
    /// Creates a router on the network of these servers, whose ports are protected.
    fn new(servers: usize) -> Self {
        let scripted = Scripted::with_servers(0..servers);
        let id = {
            let mut world = scripted.world.lock();
            for port in &mut world.ports {
                port["revision_number"] = json!(1);
                port["port_security_enabled"] = json!(true);
                port["allowed_address_pairs"] = json!([]);
            }
            let id = world.router.id.clone();
            let mut own = port(8_000_000);
            own["device_id"] = json!(id);
            own["fixed_ips"] = json!([{ "ip_address": "10.0.255.254" }]);
            world.ports.push(own);
            id
        };
        let cloud = Arc::new(scripted);
        let routes = NeutronRoutes::new(Arc::clone(&cloud) as _, &id);
        let cluster = ClusterId { name: "kubernetes".to_owned(), uid: "c1".to_owned() };
        Self { cloud, routes, cluster }
    }

    fn change_ports(&self, change: impl Fn(&mut Value)) {
        self.cloud.world.lock().ports.iter_mut().for_each(change);
    }

    async fn list(&self) -> RouteTable {
        self.routes.list(&self.cluster, call()).await.unwrap()
    }

    async fn apply(&self, changes: &[RouteChange]) -> Vec<Answer> {
        self.apply_at(changes, None).await
    }

    async fn apply_at(&self, changes: &[RouteChange], base: Option<&str>) -> Vec<Answer> {
        let answers = self.routes.apply(&self.cluster, changes, base, call());
        let mut answers: Vec<_> = answers.collect().await;
        answers.sort_by_key(|(at, _)| *at);
        let places: Vec<_> = answers.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, (0..changes.len()).collect::<Vec<_>>(), "one answer for each change");
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Returns the routes of the router.
    fn table(&self) -> Vec<(String, String)> {
        let world = self.cloud.world.lock();
        let text = |route: &Value, key: &str| route[key].as_str().unwrap().to_owned();
        let routes = world.router.routes.iter();
        routes.map(|route| (text(route, "destination"), text(route, "nexthop"))).collect()
    }

    fn pairs(&self, number: usize) -> Value {
        let world = self.cloud.world.lock();
        world.ports[number]["allowed_address_pairs"].clone()
    }
}

fn call() -> Call {
    Call::waiting(Duration::from_secs(30))
}

fn hop(number: usize) -> String {
    format!("10.0.{}.{}", number / 250, number % 250 + 1)
}

fn network(number: usize) -> IpNet {
    format!("172.{}.{}.0/24", 16 + number / 250, number % 250).parse().unwrap()
}

fn wanted(number: usize, address: &str) -> Arc<WantedRoute> {
    let cluster = ClusterId { name: "kubernetes".to_owned(), uid: "c1".to_owned() };
    let name = format!("node-{number}");
    let owner = Owner { cluster, uid: name.clone(), namespace: String::new(), name: name.clone() };
    let node = NodeIdentity::named(name);
    let addresses = vec![
        NodeAddress::new(ccm_cloud::AddressKind::ExternalIp, "203.0.113.9"),
        NodeAddress::new(ccm_cloud::AddressKind::InternalIp, address),
    ];
    Arc::new(WantedRoute { owner, destination: network(number), node, addresses })
}

fn create(number: usize) -> RouteChange {
    RouteChange::Create(wanted(number, &hop(number)))
}

fn route(number: usize) -> Route {
    Route::new(network(number), RouteTarget::Address(hop(number).parse().unwrap()))
}

fn delete(number: usize) -> RouteChange {
    RouteChange::Delete(Box::new(route(number)))
}

#[track_caller]
fn kinds(answers: &[Answer]) -> Vec<Option<ErrorKind>> {
    answers.iter().map(|answer| answer.as_ref().err().map(|error| error.kind)).collect()
}

#[tokio::test]
async fn three_hundred_nodes_get_routes_by_six_requests_and_one_leaves_by_two() {
    let rig = Rig::new(300);
    rig.change_ports(|port| port["port_security_enabled"] = json!(false));
    assert_eq!(rig.list().await.routes, []);
    let changes: Vec<_> = (0..300).map(create).collect();
    assert!(rig.apply(&changes).await.iter().all(Result::is_ok));
    assert_eq!(rig.table().len(), 300);
    let calls = rig.cloud.operations();
    assert!(calls.len() <= 6, "{calls:?}");
    let table = rig.list().await;
    assert!(table.routes.iter().all(|route| route.defect.is_none()));
    assert_eq!(rig.cloud.operations(), ["router_get"], "the ports are known");
    assert!(rig.apply(&[delete(7)]).await[0].is_ok());
    rig.list().await;
    assert_eq!(rig.cloud.operations(), ["router_get", "router_update"]);
    assert_eq!(rig.table().len(), 299);
}

#[tokio::test]
async fn where_ports_are_protected_each_costs_one_request_more() {
    let rig = Rig::new(300);
    rig.list().await;
    let changes: Vec<_> = (0..300).map(create).collect();
    let answers = rig.apply(&changes).await;
    let route = answers[3].as_ref().unwrap().route.clone().unwrap();
    assert_eq!((route.destination, route.defect), (network(3), None));
    assert_eq!(rig.pairs(3), json!([{ "ip_address": network(3).to_string() }]));
    let calls = rig.cloud.operations();
    let updates = calls.iter().filter(|operation| **operation == "port_update").count();
    assert!(updates == 300 && calls.len() <= 6 + 300, "{} calls", calls.len());
    // The port exists at first, and then it is gone.
    assert!(rig.apply(&[delete(7)]).await[0].is_ok());
    assert_eq!(rig.pairs(7), json!([]));
    assert_eq!(rig.cloud.operations(), ["port_update", "router_update"]);
    rig.cloud.world.lock().ports.remove(8);
    assert!(rig.apply(&[delete(8)]).await[0].is_ok());
    assert_eq!(rig.cloud.operations(), ["port_update", "router_update"]);
    assert_eq!(rig.table().len(), 298);
}

#[tokio::test]
async fn foreign_routes_and_pairs_stay() {
    for extensions in [
        vec!["extraroute", "extraroute-atomic", "allowed-address-pairs"],
        vec!["extraroute", "allowed-address-pairs"],
    ] {
        let rig = Rig::new(3);
        let foreign = json!({ "destination": "192.168.0.0/16", "nexthop": "10.0.0.77" });
        let odd = json!({ "destination": "somewhere", "nexthop": "10.0.0.78" });
        let pairs = json!([
            { "ip_address": "10.0.0.200", "mac_address": "fa:16:3e:00:00:01" },
            { "ip_address": network(1).to_string(), "mac_address": "aa:aa:aa:aa:aa:aa" },
        ]);
        {
            let mut world = rig.cloud.world.lock();
            world.router.extensions = extensions;
            world.router.routes = vec![foreign.clone(), odd.clone()];
            world.ports[1]["allowed_address_pairs"] = pairs.clone();
        }
        let table = rig.list().await;
        assert_eq!((table.routes.len(), table.malformed.len()), (1, 1), "{table:?}");
        assert!(rig.apply(&[create(1), create(2)]).await.iter().all(Result::is_ok));
        let shown = rig.list().await;
        assert!(shown.routes.contains(&route(1)) && shown.routes.contains(&route(2)));
        assert_eq!(rig.pairs(1).as_array().unwrap().len(), 3);
        assert!(rig.apply(&[delete(1), delete(2)]).await.iter().all(Result::is_ok));
        assert_eq!(rig.cloud.world.lock().router.routes, [foreign, odd]);
        assert_eq!(rig.pairs(1), pairs);
    }
}

#[tokio::test]
async fn a_destination_with_another_next_hop_is_left_alone() {
    let rig = Rig::new(3);
    let other = json!({ "destination": network(1).to_string(), "nexthop": "10.0.0.77" });
    rig.cloud.world.lock().router.routes = vec![other.clone()];
    rig.list().await;
    let answers = rig.apply(&[create(1), create(2), create(2)]).await;
    assert_eq!(kinds(&answers), [Some(ErrorKind::Conflict), None, Some(ErrorKind::Invalid)]);
    assert_eq!(kinds(&rig.apply(&[delete(1)]).await), [Some(ErrorKind::Busy)]);
    assert_eq!(rig.cloud.world.lock().router.routes[0], other);
    // The deletion of a route that is gone already is done.
    assert_eq!(kinds(&rig.apply(&[delete(0)]).await), [None]);
    // The change names another next hop for the same destination.
    let moved = RouteChange::Replace { old: Box::new(route(2)), new: wanted(2, &hop(0)) };
    assert_eq!(kinds(&rig.apply(&[moved]).await), [None]);
    assert_eq!(rig.table()[1], (network(2).to_string(), hop(0)));
    assert_eq!(rig.pairs(2), json!([]));
    assert_eq!(rig.pairs(0), json!([{ "ip_address": network(2).to_string() }]));
}

#[tokio::test]
async fn one_wrong_route_affects_no_other_one() {
    for extensions in [vec!["extraroute", "extraroute-atomic"], vec!["extraroute"]] {
        let rig = Rig::new(0);
        rig.cloud.world.lock().router.extensions = extensions;
        let mut changes: Vec<_> = (0..50).map(create).collect();
        changes[33] = RouteChange::Create(wanted(33, "172.31.0.1"));
        changes[34] = RouteChange::Create(wanted(34, "fd00::1"));
        for (at, answer) in rig.apply(&changes).await.iter().enumerate() {
            let error = answer.as_ref().err().map(|error| error.kind);
            let expect = [33, 34].contains(&at).then_some(ErrorKind::Invalid);
            assert_eq!(error, expect, "{at}: {answer:?}");
        }
        assert_eq!(rig.table().len(), 48);
    }
}

#[tokio::test]
async fn quotas_are_named_and_what_fits_is_made() {
    let rig = Rig::new(40);
    rig.cloud.world.lock().router.max_routes = 30;
    rig.cloud.world.lock().router.routes =
        vec![json!({ "destination": "192.168.0.0/16", "nexthop": "10.0.0.77" })];
    rig.list().await;
    let changes: Vec<_> = (0..40).map(create).collect();
    let answers = rig.apply(&changes).await;
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!((rig.table().len(), refused.len()), (30, 11));
    assert!(refused.iter().all(|error| error.kind == ErrorKind::QuotaExceeded));
    assert_eq!(refused[0].subject.as_deref(), Some("routes"));

    let rig = Rig::new(2);
    rig.cloud.world.lock().router.max_pairs = 0;
    let answer = rig.apply(&[create(1)]).await.remove(0).unwrap_err();
    assert_eq!(answer.kind, ErrorKind::QuotaExceeded);
    assert_eq!(answer.subject.as_deref(), Some("allowed address pairs of a port"));
    let shown = rig.list().await;
    let defect = shown.routes[0].defect.as_deref();
    assert_eq!(defect, Some("the port of 10.0.0.2 does not allow 172.16.1.0/24"));
    // The next creation repairs it.
    rig.cloud.world.lock().router.max_pairs = 10;
    assert_eq!(kinds(&rig.apply(&[create(1)]).await), [None]);
    assert_eq!(rig.list().await.routes, [route(1)]);
}

#[tokio::test]
async fn what_fits_is_made_where_the_refusal_names_no_maximum() {
    for (quota, there) in [(100, 60), (60, 60), (60, 300)] {
        let rig = Rig::new(900);
        rig.change_ports(|port| port["port_security_enabled"] = json!(false));
        let foreign = |at| json!({ "destination": format!("192.168.{}.{}/32", at / 250, at % 250), "nexthop": "10.0.0.77" });
        rig.cloud.world.lock().router.routes = (0..there).map(foreign).collect();
        rig.cloud.world.lock().router.route_quota = quota;
        rig.list().await;
        rig.cloud.operations();
        let changes: Vec<_> = (0..450).map(create).collect();
        let answers = rig.apply(&changes).await;
        let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        let room = quota.saturating_sub(there);
        assert_eq!((rig.table().len() - there, refused.len()), (room, 450 - room));
        assert!(refused.iter().all(|error| error.kind == ErrorKind::QuotaExceeded));
        assert_eq!(refused[0].subject.as_deref(), Some("router_route"));
        let operations = rig.cloud.operations();
        let writes = operations.iter().filter(|operation| **operation == "router_update").count();
        assert!(writes <= 16, "{writes} requests to find what fits");
    }
}

#[tokio::test]
async fn pairs_for_which_a_call_has_no_time_left_are_defects_that_the_next_one_repairs() {
    let rig = Rig::new(3);
    rig.list().await;
    let id = uuid(1_000_001);
    rig.cloud.fail(move |path, _| {
        let late = || Err(CloudError::new(ErrorKind::Throttled, "not sent: the rate limit"));
        path.contains(&id).then(late)
    });
    let answers = rig.apply(&[create(1), create(2)]).await;
    assert_eq!(kinds(&answers), [None, None]);
    let defect = |answer: &Answer| answer.as_ref().unwrap().route.as_ref().unwrap().defect.clone();
    assert!(defect(&answers[0]).unwrap().contains("not sent"), "{answers:?}");
    assert_eq!(defect(&answers[1]), None);
    rig.cloud.world.lock().fault = None;
    rig.cloud.operations();
    let answers = rig.apply(&[create(1)]).await;
    assert_eq!((kinds(&answers), defect(&answers[0])), (vec![None], None));
    // The route is added again: others may have removed it since the table was read.
    assert_eq!(rig.cloud.operations(), ["port_update", "router_update"]);
}

#[tokio::test]
async fn a_next_hop_without_a_port_is_an_error_until_it_has_one() {
    let rig = Rig::new(2);
    let all = rig.cloud.world.lock().ports.clone();
    rig.cloud.world.lock().ports.remove(1);
    let error = rig.apply(&[create(1)]).await.remove(0).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    // A port of another network does not count.
    rig.cloud.world.lock().ports.clone_from(&all);
    rig.change_ports(|port| {
        if port["id"] == *uuid(1_000_001) {
            port["network_id"] = json!(uuid(99));
        }
    });
    assert_eq!(kinds(&rig.apply(&[create(1)]).await), [Some(ErrorKind::NotFound)]);
    rig.cloud.world.lock().ports.clone_from(&all);
    assert_eq!(kinds(&rig.apply(&[create(1)]).await), [None]);
}

#[tokio::test]
async fn targets_exist_where_any_port_has_their_address() {
    let rig = Rig::new(2);
    let targets = ["10.0.0.1", "10.0.0.50", "10.0.255.254"]
        .map(|address| RouteTarget::Address(address.parse().unwrap()));
    let found: Vec<_> = rig.routes.find_targets(&targets, call()).collect().await;
    assert!(matches!(found[0].1, Ok(TargetState::Exists)));
    assert!(matches!(found[1].1, Ok(TargetState::Gone(_))));
    assert!(matches!(found[2].1, Ok(TargetState::Exists)), "the router's own");
    assert_eq!(rig.cloud.operations(), ["port_list", "port_list"]);
    let named = [RouteTarget::Node("n".to_owned())];
    let found: Vec<_> = rig.routes.find_targets(&named, call()).collect().await;
    assert!(matches!(&found[0].1, Err(error) if error.kind == ErrorKind::Invalid));
    rig.cloud.world.lock().ports.clear();
    let found: Vec<_> = rig.routes.find_targets(&targets, call()).collect().await;
    assert!(found.iter().all(|(_, answer)| answer.is_err()), "nothing at all proves nothing");
}

#[tokio::test]
async fn what_is_offered_is_known_by_the_extensions() {
    let rig = Rig::new(1);
    rig.cloud.fail(|_, _| Some(Err(CloudError::new(ErrorKind::Unavailable, "down"))));
    assert!(rig.routes.offered().is_err());
    assert!(rig.routes.learn(call()).await.is_err());
    assert!(rig.routes.offered().is_err());
    rig.cloud.world.lock().fault = None;
    rig.routes.learn(call()).await.unwrap();
    assert_eq!(rig.routes.offered(), Ok(true));
    assert!(!Routes::traits(&rig.routes).compares_version);
    let none = Rig::new(1);
    none.cloud.world.lock().router.extensions = vec!["router"];
    none.routes.learn(call()).await.unwrap();
    assert_eq!(none.routes.offered(), Ok(false));
    let missing = NeutronRoutes::new(Arc::clone(&rig.cloud) as _, &uuid(404));
    let error = missing.list(&rig.cluster, call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.message.contains("[Route] router-id"), "{error}");
}
