//! Members that come and go.

use super::*;

async fn set(
    rig: &Rig,
    id: &str,
    members: Members,
) -> Result<Progress<Option<String>>, CloudError> {
    let settings = BTreeMap::new();
    let change =
        MemberChange { owner: owner("web"), id: id.to_owned(), members, front_end: None, settings };
    let changes = [change];
    let answers: Vec<_> = rig.balancers.set_members(&changes, call()).collect().await;
    answers.into_iter().next().unwrap().1
}

/// Calls until it is done. Returns the requests.
async fn set_all(rig: &Rig, id: &str, members: &Members) -> Vec<&'static str> {
    rig.requests();
    for _ in 0..20 {
        if let Progress::Done(_) = set(rig, id, members.clone()).await.unwrap() {
            return rig.requests();
        }
        rig.settle();
    }
    panic!("it is not done after 20 calls");
}

fn addresses(rig: &Rig) -> Vec<String> {
    let world = rig.cloud.world.lock();
    let mut all: Vec<String> = world
        .octavia
        .members
        .iter()
        .map(|row| format!("{}:{}", text(row, "address"), row["protocol_port"]))
        .collect();
    all.sort();
    all
}

const INTERNAL: &str = "internal-lb = true";

#[tokio::test]
async fn a_node_more_is_one_write_for_each_pool_and_one_look() {
    let rig = Rig::new(INTERNAL).await;
    let id = rig.ensured(&wanted("web", &[80, 443, 8080], &[])).await.id;
    let requests = set_all(&rig, &id, &nodes([1, 2, 3])).await;
    let count = |operation| requests.iter().filter(|one| **one == operation).count();
    assert_eq!(count("loadbalancer_members_update"), 3);
    assert_eq!(count("loadbalancer_status_get"), 1, "{requests:?}");
    assert_eq!(addresses(&rig).len(), 9);
    let requests = set_all(&rig, &id, &nodes([1, 2, 3])).await;
    assert!(!requests.contains(&"loadbalancer_members_update"), "{requests:?}");
}

/// As version 2.26 of Octavia leaves the pools of a nested creation.
#[tokio::test]
async fn pools_that_stay_pending_are_changed_themselves_first() {
    let rig = Rig::new(INTERNAL).await;
    rig.cloud.world.lock().octavia.forgets_nested = true;
    let web = wanted("web", &[80, 443], &[]);
    let id = rig.ensured(&web).await.id;
    let requests = set_all(&rig, &id, &nodes([1, 2, 3])).await;
    let count = |operation| requests.iter().filter(|one| **one == operation).count();
    assert_eq!(count("loadbalancer_pool_update"), 2);
    assert_eq!(count("loadbalancer_members_update"), 2);
    assert_eq!(addresses(&rig).len(), 6);
    let requests = set_all(&rig, &id, &nodes([1, 2, 3, 4])).await;
    assert!(!requests.contains(&"loadbalancer_pool_update"), "once is enough: {requests:?}");

    // And by a full comparison.
    let rig = Rig::new(INTERNAL).await;
    rig.cloud.world.lock().octavia.forgets_nested = true;
    rig.ensured(&web).await;
    let monitor = ("loadbalancer.openstack.org/enable-health-monitor", "true");
    let mut more = wanted("web", &[80, 443], &[monitor]);
    more.members = nodes([1, 2, 3]);
    rig.ensured(&more).await;
    assert_eq!(addresses(&rig).len(), 6);
    assert_eq!(rig.cloud.world.lock().octavia.monitors.len(), 2);
}

#[tokio::test]
async fn the_last_member_never_leaves_and_a_stranger_stays_as_it_is() {
    let rig = Rig::new(INTERNAL).await;
    let id = rig.ensured(&wanted("web", &[80], &[])).await.id;
    {
        let mut world = rig.cloud.world.lock();
        let mut stranger = world.octavia.members[0].clone();
        stranger["id"] = json!(uuid(4));
        stranger["name"] = json!("by-hand");
        stranger["address"] = json!("10.8.250.9");
        stranger["weight"] = json!(7);
        world.octavia.members.push(stranger);
    }
    let left = Members { present: [node(1)].into(), absent: [node(2)].into() };
    set_all(&rig, &id, &left).await;
    {
        let world = rig.cloud.world.lock();
        let of = |name: &str| world.octavia.members.iter().find(|row| row["name"] == *name);
        assert_eq!(of("by-hand").unwrap()["weight"], 7);
        assert!(of("node-2").is_none() && of("node-1").is_some());
    }
    rig.cloud.world.lock().octavia.members.retain(|row| row["name"] == "node-1");
    let none = Members { present: Arc::default(), absent: [node(1), node(2)].into() };
    set_all(&rig, &id, &none).await;
    assert_eq!(addresses(&rig), ["10.8.200.1:30000"]);
}

/// Two nodes with one address: Octavia would be stuck for good.
#[tokio::test]
async fn an_address_of_two_nodes_is_one_member() {
    let rig = Rig::new(INTERNAL).await;
    let mut twin = node(2);
    twin.node = "twin".to_owned();
    let mut web = wanted("web", &[80], &[]);
    web.members = Members { present: [node(1), node(2), twin].into(), absent: Arc::default() };
    let id = rig.ensured(&web).await.id;
    assert_eq!(addresses(&rig).len(), 2);
    set_all(&rig, &id, &web.members).await;
    assert_eq!(addresses(&rig).len(), 2);
}

#[tokio::test]
async fn one_that_is_held_delays_no_other() {
    let rig = Rig::new(INTERNAL).await;
    let mut changes = Vec::new();
    for name in ["a", "b", "c"] {
        let id = rig.ensured(&wanted(name, &[80], &[])).await.id;
        let (settings, members) = (BTreeMap::new(), nodes([1, 2, 3]));
        changes.push(MemberChange { owner: owner(name), id, members, front_end: None, settings });
    }
    rig.cloud.world.lock().octavia.polls = 0;
    // Something else changes the first one, without end.
    let path = format!("/v2.0/lbaas/loadbalancers/{}", changes[0].id);
    let body = json!({ "loadbalancer": { "description": "x" } });
    rig.cloud.world.lock().octavia.held.insert(changes[0].id.clone());
    let request = crate::openstack::api::Request::put(
        crate::openstack::api::Service::LoadBalancer,
        "by_hand",
        &path,
        body,
    );
    rig.cloud.send(request, call()).await.unwrap();
    for _ in 0..3 {
        let answers: Vec<_> = rig.balancers.set_members(&changes, call()).collect().await;
        for (at, answer) in answers {
            assert!(at != 0 || matches!(answer, Ok(Progress::InProgress(_))), "{answer:?}");
        }
    }
    let world = rig.cloud.world.lock();
    let of = |at: usize| {
        world.octavia.members.iter().filter(|row| row["_balancer"] == *changes[at].id).count()
    };
    assert_eq!((of(0), of(1), of(2)), (2, 3, 3));
}
