use std::time::Duration;

use ccm_cloud::{Call, CloudError, ErrorKind};
use serde_json::{Value, json};

use super::{requests::BalancerRows, *};
use crate::{
    api::{Deletion, Request, Service},
    scripted::{Scripted, answer, subnet, uuid},
};

fn call() -> Call {
    Call::waiting(Duration::from_secs(10))
}

/// Octavia, and the requests to it, with one subnet.
struct Rig {
    cloud: Arc<Scripted>,
    octavia: Octavia,
}

impl Rig {
    fn new() -> Self {
        let cloud = Arc::new(Scripted::default());
        cloud.world.lock().subnets.push(subnet(1, "10.8.0.0/24"));
        Self { octavia: Octavia::new(Arc::clone(&cloud) as Arc<dyn Api>), cloud }
    }

    async fn made(&self, name: &str, tags: &[&str]) -> BalancerRow {
        let body = json!({ "name": name, "tags": tags, "vip_subnet_id": uuid(1), "listeners": [{
            "name": "l", "protocol": "TCP", "protocol_port": 80,
            "default_pool": { "name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
                "members": [{ "name": "n1", "address": "10.8.0.200", "protocol_port": 30080 }],
                "healthmonitor": { "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1 } },
        }] });
        let row = self.octavia.create(body, call()).await.unwrap();
        self.cloud.world.lock().let_go(&row.id);
        row
    }

    fn octavia<T>(&self, change: impl FnOnce(&mut crate::scripted::octavia::Octavia) -> T) -> T {
        change(&mut self.cloud.world.lock().octavia)
    }

    /// Returns the paths of the requests since the last call of this.
    fn paths(&self) -> Vec<String> {
        let calls = std::mem::take(&mut self.cloud.world.lock().calls);
        calls.into_iter().map(|(_, path)| path).collect()
    }
}

fn names(rows: &BalancerRows) -> Vec<&str> {
    rows.rows.iter().map(|row| row.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_current_version_is_read_once_in_an_hour() {
    let rig = Rig::new();
    let versions = futures::future::join_all((0..20).map(|_| rig.octavia.version(call()))).await;
    for version in versions {
        assert_eq!(version.unwrap(), ApiVersion { major: 2, minor: 26 });
    }
    assert_eq!(rig.paths(), [""]);
    rig.octavia(|octavia| octavia.minor = 30);
    assert_eq!(rig.octavia.version(call()).await.unwrap().minor, 26);
    tokio::time::advance(Duration::from_mins(61)).await;
    assert_eq!(rig.octavia.version(call()).await.unwrap().minor, 30);
    assert_eq!(rig.paths(), [""]);
}

/// An unreadable version is an error, never a version without features.
#[tokio::test(start_paused = true)]
async fn an_unknown_version_is_an_error() {
    for body in [
        json!({}),
        json!([]),
        json!({ "versions": [] }),
        json!({ "versions": [{ "id": "v2.26", "status": "SUPPORTED" }] }),
        json!({ "versions": [{ "id": "latest", "status": "CURRENT" }] }),
    ] {
        let rig = Rig::new();
        rig.cloud.fail(move |_, before| (before < 1).then(|| Ok(answer(200, &body))));
        let error = rig.octavia.version(call()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
        assert!(error.message.contains("version_list"), "{error}");
        // The failure is not remembered.
        assert_eq!(rig.octavia.version(call()).await.unwrap().minor, 26);
    }
    let rig = Rig::new();
    rig.cloud.refuse(|_| Some(CloudError::new(ErrorKind::Unavailable, "HTTP 503")));
    assert_eq!(rig.octavia.version(call()).await.unwrap_err().kind, ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_for_the_version_no_longer_than_its_call_lasts() {
    let rig = Rig::new();
    rig.cloud.world.lock().delay = Duration::from_secs(60);
    let begin = tokio::time::Instant::now();
    let calls = futures::future::join_all((0..3).map(|_| rig.octavia.version(call())));
    for outcome in calls.await {
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::Timeout);
    }
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn lists_are_filtered_by_one_request() {
    let rig = Rig::new();
    let one = rig.made("one", &["a", "owner-uid=1"]).await;
    let two = rig.made("two", &["a"]).await;
    rig.made("three", &[]).await;
    // A load balancer of another project, which an administrator would see.
    rig.octavia(|octavia| {
        let mut other = octavia.balancers[0].clone();
        (other["id"], other["project_id"]) = (json!(uuid(8)), json!("p2"));
        octavia.balancers.push(other);
    });
    rig.paths();
    let ids = [one.id.clone(), two.id.clone(), uuid(9)];
    let base = "/v2.0/lbaas/loadbalancers?project_id=p1";
    for (filter, expect, path) in [
        (Filter::All, &["one", "two", "three"][..], base.to_owned()),
        (Filter::Tags(&["a"]), &["one", "two"], format!("{base}&tags=a")),
        (Filter::Tags(&["a", "owner-uid=1"]), &["one"], format!("{base}&tags=a%2Cowner-uid%3D1")),
        (Filter::Tags(&["a", "b"]), &[], format!("{base}&tags=a%2Cb")),
        (
            Filter::AnyTag("a", &["owner-uid=1", "c"]),
            &["one"],
            format!("{base}&tags=a&tags-any=owner-uid%3D1%2Cc"),
        ),
        (Filter::Ids(&ids[..1]), &["one"], format!("{base}&id={}", one.id)),
        (Filter::Ids(&ids), &["one", "two"], base.to_owned()),
    ] {
        let rows = rig.octavia.balancers(filter, call()).await.unwrap();
        assert_eq!(names(&rows), expect, "{filter:?}");
        assert_eq!(rig.paths(), [path]);
    }
    let none = rig.octavia.balancers(Filter::Ids(&[]), call()).await.unwrap();
    assert_eq!((none, rig.paths().len()), (BalancerRows::default(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_read_page_by_page() {
    let rig = Rig::new();
    for number in 0..7 {
        rig.made(&format!("lb-{number}"), &["a"]).await;
    }
    rig.octavia(|octavia| octavia.page = 3);
    rig.paths();
    let rows = rig.octavia.balancers(Filter::Tags(&["a"]), call()).await.unwrap();
    assert_eq!(rows.rows.len(), 7);
    let paths = rig.paths();
    assert_eq!(paths.len(), 3);
    assert!(
        paths[1].starts_with("/v2.0/lbaas/loadbalancers?project_id=p1&tags=a&marker="),
        "{paths:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_malformed_load_balancer_is_a_line_and_a_malformed_child_an_error() {
    let rig = Rig::new();
    let row = rig.made("one", &[]).await;
    rig.made("two", &[]).await;
    let pool = rig.octavia.pools(&row.id, call()).await.unwrap().remove(0);
    rig.octavia(|octavia| {
        octavia.balancers[0]["vip_address"] = json!("somewhere");
        octavia.listeners[0]["protocol_port"] = json!("eighty");
        octavia.pools[0]["protocol"] = json!(7);
        octavia.members[0]["address"] = Value::Null;
        octavia.monitors[0]["delay"] = json!(-1);
    });
    let rows = rig.octavia.balancers(Filter::All, call()).await.unwrap();
    assert_eq!(names(&rows), ["two"]);
    assert_eq!(rows.malformed.len(), 1);
    assert!(rows.malformed[0].contains(&row.id), "{:?}", rows.malformed);
    let pools = [pool.id.clone()];
    let errors = [
        rig.octavia.listeners(&row.id, call()).await.map(drop).unwrap_err(),
        rig.octavia.pools(&row.id, call()).await.map(drop).unwrap_err(),
        rig.octavia.members(&pool.id, call()).await.map(drop).unwrap_err(),
        rig.octavia.monitors(&pools, call()).await.map(drop).unwrap_err(),
        rig.octavia.balancer(&row.id, call()).await.map(drop).unwrap_err(),
        rig.octavia.tree(&row.id, call()).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
        assert_eq!(error.request_id.as_deref(), Some("req-1"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn everything_below_a_load_balancer_is_read_and_written() {
    let rig = Rig::new();
    let row = rig.made("one", &["a"]).await;
    let settle = || rig.cloud.world.lock().let_go(&row.id);
    let tree = rig.octavia.tree(&row.id, call()).await.unwrap().unwrap();
    assert_eq!(tree.provisioning_status, Provisioning::Active);
    assert_eq!(tree.listeners[0].pools[0].members[0].address.to_string(), "10.8.0.200");
    let listener = rig.octavia.listeners(&row.id, call()).await.unwrap().remove(0);
    let pool = rig.octavia.pools(&row.id, call()).await.unwrap().remove(0);
    assert_eq!(listener.default_pool_id.as_deref(), Some(&*pool.id));
    assert_eq!(pool.listeners, [Reference { id: listener.id.clone() }]);
    let monitor =
        rig.octavia.monitors(std::slice::from_ref(&pool.id), call()).await.unwrap().remove(0);
    assert_eq!(pool.healthmonitor_id.as_deref(), Some(&*monitor.id));
    let member = rig.octavia.members(&pool.id, call()).await.unwrap().remove(0);
    assert_eq!((member.protocol_port, &member.others["weight"]), (30_080, &json!(1)));

    rig.octavia.update(&row.id, json!({ "tags": ["b"] }), call()).await.unwrap();
    settle();
    let limit = json!({ "connection_limit": 5 });
    rig.octavia.update_child(Child::Listener, &listener.id, limit, call()).await.unwrap();
    settle();
    let new = json!({ "loadbalancer_id": row.id, "protocol": "UDP", "protocol_port": 80 });
    let udp = rig.octavia.create_child(Child::Listener, new, call()).await.unwrap();
    settle();
    let new = json!({ "listener_id": udp, "protocol": "UDP", "lb_algorithm": "SOURCE_IP" });
    let udp_pool = rig.octavia.create_child(Child::Pool, new, call()).await.unwrap();
    settle();
    let members = vec![json!({ "address": "10.8.0.7", "protocol_port": 1 })];
    rig.octavia.set_members(&udp_pool, members, call()).await.unwrap();
    settle();
    let rows = rig.octavia.listeners(&row.id, call()).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].connection_limit, Some(5));
    assert_eq!(rows[1].default_pool_id.as_deref(), Some(&*udp_pool));
    assert_eq!(rig.octavia.members(&udp_pool, call()).await.unwrap().len(), 1);
    for (child, id) in [(Child::Monitor, &monitor.id), (Child::Pool, &udp_pool)] {
        let outcome = rig.octavia.delete_child(child, id, call()).await.unwrap();
        assert_eq!(outcome, Deletion::Accepted);
        settle();
        let again = rig.octavia.delete_child(child, id, call()).await.unwrap();
        assert_eq!(again, Deletion::Gone { request_id: Some("req-1".to_owned()) });
    }
    let outcome = rig.octavia.delete(&row.id, true, call()).await.unwrap();
    assert_eq!(outcome, Deletion::Accepted);
    settle();
    assert_eq!(rig.octavia.balancer(&row.id, call()).await.unwrap(), None);
    assert_eq!(rig.octavia.tree(&row.id, call()).await.unwrap(), None);
    let again = rig.octavia.delete(&row.id, true, call()).await.unwrap();
    assert!(matches!(again, Deletion::Gone { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_a_write_needs_and_is_not_there_is_an_error() {
    let rig = Rig::new();
    let new = json!({ "loadbalancer_id": uuid(9), "protocol": "TCP", "protocol_port": 80 });
    let errors = [
        rig.octavia.create_child(Child::Listener, new, call()).await.map(drop),
        rig.octavia.update(&uuid(9), json!({}), call()).await,
        rig.octavia.update_child(Child::Pool, &uuid(9), json!({}), call()).await,
        rig.octavia.set_members(&uuid(9), Vec::new(), call()).await,
        rig.octavia.members(&uuid(9), call()).await.map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }
}

/// A 404 about another object proves nothing about the requested one.
#[tokio::test(start_paused = true)]
async fn a_denial_of_another_object_is_no_proof() {
    let rig = Rig::new();
    rig.cloud.fail(|_, _| {
        let words = format!("Load Balancer {} not found.", uuid(8));
        Some(Ok(answer(404, &json!({ "faultcode": "Client", "faultstring": words }))))
    });
    let errors = [
        rig.octavia.balancer(&uuid(9), call()).await.map(drop),
        rig.octavia.tree(&uuid(9), call()).await.map(drop),
        rig.octavia.delete(&uuid(9), true, call()).await.map(drop),
        rig.octavia.delete_child(Child::Pool, &uuid(9), call()).await.map(drop),
    ];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind, ErrorKind::Malformed, "{error}");
    }
    assert_eq!(rig.octavia.balancer(&uuid(8), call()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_creation_without_a_readable_answer_may_have_taken_effect() {
    let rig = Rig::new();
    rig.cloud.lose_answers(|request| request.operation == "loadbalancer_create");
    let body = json!({ "name": "x", "tags": ["mine"], "vip_subnet_id": uuid(1) });
    let error = rig.octavia.create(body.clone(), call()).await.unwrap_err();
    assert!(error.maybe_done, "{error}");
    let found = rig.octavia.balancers(Filter::Tags(&["mine"]), call()).await.unwrap();
    assert_eq!(names(&found), ["x"]);

    let rig = Rig::new();
    rig.cloud.fail(|_, _| Some(Ok(answer(201, &json!({ "loadbalancer": {} })))));
    let error = rig.octavia.create(body, call()).await.unwrap_err();
    assert!(error.maybe_done && error.kind == ErrorKind::Malformed, "{error}");
    for made in [json!({}), json!({ "pool": { "id": "" } })] {
        rig.cloud.fail(move |_, _| Some(Ok(answer(201, &made))));
        let error = rig.octavia.create_child(Child::Pool, json!({}), call()).await.unwrap_err();
        assert!(error.maybe_done && error.kind == ErrorKind::Malformed, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_twice_is_refused_before_octavia_sees_it() {
    let rig = Rig::new();
    let member = json!({ "address": "10.8.0.7", "protocol_port": 1 });
    let twice = vec![member.clone(), member];
    let error = rig.octavia.set_members(&uuid(2), twice, call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("10.8.0.7") && rig.paths().is_empty(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_without_octavia_says_so() {
    let rig = Rig::new();
    assert!(rig.octavia.offered(call()).await.unwrap());
    rig.octavia(|octavia| octavia.offered = false);
    assert!(!rig.octavia.offered(call()).await.unwrap());
    let probe = Request::get(Service::Network, "network_extension_list", "/extensions");
    rig.cloud.send(probe, call()).await.unwrap();
}

#[test]
fn unknown_states_are_pending() {
    for (text, expect) in [
        ("ACTIVE", Provisioning::Active),
        ("ERROR", Provisioning::Error),
        ("DELETED", Provisioning::Deleted),
        ("PENDING_DELETE", Provisioning::PendingDelete),
        ("PENDING_UPDATE", Provisioning::Pending("PENDING_UPDATE".to_owned())),
        ("NEW", Provisioning::Pending("NEW".to_owned())),
    ] {
        let read: Provisioning = serde_json::from_value(json!(text)).unwrap();
        assert_eq!((read.to_string(), read), (text.to_owned(), expect));
    }
}

#[test]
fn an_object_without_an_id_is_malformed() {
    fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<(), String> {
        serde_json::from_value::<T>(answer).map(drop).map_err(|error| error.to_string())
    }
    let refused = |why: &str| Err(why.to_owned());
    for (id, expect) in [
        ("5", Ok(())),
        ("", refused("the ID is empty")),
        ("5\t6", refused("the ID has control characters")),
    ] {
        let row = json!({ "id": id, "name": "n", "protocol": "TCP", "protocol_port": 80,
            "provisioning_status": "ACTIVE", "type": "TCP", "delay": 5, "timeout": 3,
            "max_retries": 1 });
        assert_eq!(read::<BalancerRow>(row.clone()), expect);
        assert_eq!(read::<ListenerRow>(row.clone()), expect);
        assert_eq!(read::<PoolRow>(row.clone()), expect);
        assert_eq!(read::<MonitorRow>(row.clone()), expect);
        assert_eq!(read::<Reference>(row.clone()), expect);
        assert_eq!(read::<TreePool>(row.clone()), expect);
        assert_eq!(read::<tree::TreeListener>(row.clone()), expect);
        assert_eq!(read::<Tree>(row), expect);
    }
}

#[test]
fn an_empty_id_of_another_object_counts_as_none() {
    let ids = ["vip_port_id", "vip_subnet_id", "vip_network_id", "default_pool_id"];
    let mut row = json!({ "id": "5", "name": "n", "protocol": "TCP", "protocol_port": 80,
        "provisioning_status": "ACTIVE", "healthmonitor_id": "" });
    for id in ids {
        row[id] = json!("");
    }
    let balancer: BalancerRow = serde_json::from_value(row.clone()).expect("a load balancer");
    assert_eq!(balancer.vip_port_id, None);
    assert_eq!(balancer.vip_subnet_id, None);
    assert_eq!(balancer.vip_network_id, None);
    let listener: ListenerRow = serde_json::from_value(row.clone()).expect("a listener");
    assert_eq!(listener.default_pool_id, None);
    let pool: PoolRow = serde_json::from_value(row).expect("a pool");
    assert_eq!(pool.healthmonitor_id, None);
}

#[test]
fn a_protocol_is_one_line() {
    let row = json!({ "id": "5", "name": "n", "protocol": "TC\u{85}\nP", "protocol_port": 80,
        "provisioning_status": "ACTIVE" });
    let listener: ListenerRow = serde_json::from_value(row.clone()).expect("a listener");
    assert!(!listener.protocol.contains(char::is_control), "{:?}", listener.protocol);
    let pool: PoolRow = serde_json::from_value(row).expect("a pool");
    assert!(!pool.protocol.contains(char::is_control), "{:?}", pool.protocol);
}

#[tokio::test]
async fn what_is_kept_of_a_list_takes_a_bounded_memory() {
    let rig = Rig::new();
    let tags = vec![""; 600_000];
    rig.cloud.fail(move |path, _| {
        let entry = json!({ "id": uuid(1), "name": "n", "tags": tags });
        let page = json!({ "loadbalancers": [entry] });
        path.contains("/loadbalancers").then(|| Ok(answer(200, &page)))
    });
    let error = rig.octavia.balancers(Filter::All, call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert_eq!(error.message, "loadbalancer_list: the list takes more than 32 MiB of memory");
}
