//! Tests pools and their members, as different versions of Octavia leave them.

use ccm_cloud::{Call, LoadBalancers as _, Member, Members, Progress, Wanted};
use ccm_openstack_client::{
    api::{Api as _, Request, Service},
    scripted::uuid,
};
use serde_json::json;

use super::rig::{Rig, annotated, call, change, changed, gather, member, members, port, wanted};

/// Version 2.26 leaves the pools of a nested creation like this.
#[tokio::test]
async fn pools_that_stay_pending_are_changed_themselves_first() {
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.forgets_nested = true;
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    rig.writes();
    rig.members_set("web", &id, members(&[1, 2, 3, 4], &[])).await;
    let mut expect = ["loadbalancer_members_update"; 4];
    expect[2..].fill("loadbalancer_pool_update");
    assert_eq!(rig.writes(), expect);
    assert_eq!(rig.nodes(), [1, 2, 3, 4]);
    rig.members_set("web", &id, members(&[1, 2, 3, 4, 5], &[])).await;
    assert_eq!(rig.writes(), expect[..2], "once is enough");

    // A full comparison shows the same.
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.forgets_nested = true;
    rig.settle(&web).await;
    let mut more = annotated(&web, "enable-health-monitor", "true");
    more.members = members(&[1, 2, 3, 4], &[]);
    rig.settle(&more).await;
    assert_eq!(rig.nodes(), [1, 2, 3, 4]);
    assert_eq!(rig.rows("monitors").len(), 2);
}

/// Two nodes with one address: Octavia would be stuck for good.
#[tokio::test]
async fn an_address_of_two_nodes_is_one_member() {
    let rig = Rig::new();
    let twin = Member { node: "node-00009".to_owned(), ..member(2) };
    let mut web = wanted("web");
    web.members = Members { present: [member(1), member(2), twin].into(), ..Members::default() };
    let id = rig.settle(&web).await.id;
    assert_eq!(rig.nodes(), [1, 2]);
    rig.members_with(&web, &id, web.members.clone()).await;
    assert_eq!(rig.nodes(), [1, 2]);
}

#[tokio::test]
async fn a_stranger_stays_as_it_is() {
    let rig = Rig::new();
    let id = rig.settle(&wanted("web")).await.id;
    {
        let mut world = rig.cloud.world.lock();
        let mut stranger = world.octavia.members[0].clone();
        stranger["id"] = json!(uuid(4));
        stranger["name"] = json!("node-00099");
        stranger["address"] = json!("10.8.250.9");
        stranger["weight"] = json!(7);
        world.octavia.members.push(stranger);
    }
    rig.members_set("web", &id, members(&[1], &[2, 3])).await;
    let rows = rig.rows("members");
    let stranger = rows.iter().find(|row| row["name"] == "node-00099").unwrap();
    assert_eq!(stranger["weight"], 7);
    assert_eq!(rows.len(), 3, "one member in each pool, and the stranger");
}

#[tokio::test]
async fn one_that_is_held_delays_no_other() {
    let rig = Rig::new();
    let (mut changes, new) = (Vec::new(), members(&[1, 2, 3, 4], &[]));
    for name in ["a", "b", "c"] {
        let wanted = wanted(name);
        let id = rig.settle(&wanted).await.id;
        changes.push(change(&wanted, &id, new.clone()));
    }
    // Another client changes the first pool all the time.
    rig.cloud.world.lock().octavia.held.insert(changes[0].id.clone());
    let path = format!("/v2.0/lbaas/loadbalancers/{}", changes[0].id);
    let body = json!({ "loadbalancer": { "description": "x" } });
    let request = Request::put(Service::LoadBalancer, "by_hand", &path, body);
    rig.cloud.send(request, call()).await.unwrap();
    let done = async |call: Call| {
        let answers = gather(rig.balancers.set_members(&changes, call), 3).await;
        answers
            .into_iter()
            .map(|answer| matches!(answer, Ok(Progress::Done(_))))
            .collect::<Vec<_>>()
    };
    let mut calls = 1;
    while done(call()).await != [false, true, true] {
        calls += 1;
        assert!(calls < 12, "the others are not done");
    }
    let rows = rig.rows("members");
    let of = |at: usize| rows.iter().filter(|row| row["_balancer"] == *changes[at].id).count();
    assert_eq!((of(0), of(1), of(2)), (6, 8, 8));
}

/// Each change of a load balancer with three ports takes 100 s: members that another client adds in
/// the meantime are not overwritten.
#[tokio::test(start_paused = true)]
async fn members_are_not_written_from_an_old_view() {
    let rig = Rig::new();
    let web = changed(&wanted("web"), |it| {
        it.ports = (80..83).map(|number| port(number, ccm_cloud::Protocol::Tcp)).collect();
    });
    let id = rig.settle(&web).await.id;
    let more = members(&[1, 2, 3, 4], &[]);
    let mut written = Vec::new();
    for step in 0..3 {
        rig.writes();
        while rig.writes().is_empty() {
            let set = rig.set_members(&web, &id, more.clone()).await;
            assert!(matches!(set, Ok(Progress::InProgress(_))), "{set:?}");
        }
        written.push(rig.rows("members").len());
        tokio::time::advance(std::time::Duration::from_secs(100)).await;
        if step == 1 {
            let mut world = rig.cloud.world.lock();
            let octavia = &mut world.octavia;
            let full = |pool: &&serde_json::Value| {
                octavia.members.iter().filter(|row| row["_pool"] == pool["id"]).count() == 4
            };
            let last = octavia.pools.iter().find(|pool| !full(pool)).unwrap()["id"].clone();
            let own = octavia.members.iter().find(|row| row["_pool"] == last);
            let mut foreign = own.unwrap().clone();
            (foreign["id"], foreign["name"]) = (json!(uuid(4)), json!("node-00099"));
            foreign["address"] = json!("10.8.250.9");
            octavia.members.push(foreign);
        }
    }
    assert_eq!(written, [10, 11, 13]);
    rig.members_with(&web, &id, more).await;
    assert_eq!(rig.rows("members").len(), 13);
    assert!(rig.rows("members").iter().any(|row| row["name"] == "node-00099"));
}

/// From a status tree, another process cannot tell a renamed pool from another owner's pool.
#[tokio::test]
async fn a_renamed_pool_is_not_passed_over_by_another_process() {
    let (rig, web) = (Rig::new(), wanted("web"));
    let id = rig.settle(&web).await.id;
    rig.cloud.world.lock().octavia.pools[0]["name"] = json!("renamed");
    let rig = rig.restarted();
    let more = members(&[1, 2, 3, 4], &[]);
    let mut last = None;
    for _ in 0..9 {
        last = Some(rig.set_members(&web, &id, more.clone()).await.unwrap());
        if !matches!(last, Some(Progress::InProgress(_))) {
            break;
        }
    }
    let Some(Progress::NotSeen(why)) = last else { panic!("{last:?}") };
    assert!(why.contains(&id) && why.contains("a pool of another name"), "{why}");
    rig.settle(&Wanted { members: more.clone(), ..web.clone() }).await;
    rig.members_with(&web, &id, members(&[1, 2, 3], &[4])).await;
    assert_eq!(rig.nodes(), [1, 2, 3]);
}
