//! Tests how many requests the work costs.

use ccm_cloud::{Depth, LoadBalancers as _, Progress, Scope, Traffic};
use ccm_openstack_client::scripted::uuid;

use super::rig::{
    Rig, annotated, call, change, changed, cluster, gather, member, members, port, wanted,
};

/// Returns a load balancer with three ports, twenty members and monitors.
fn large(name: &str) -> ccm_cloud::Wanted {
    let web = annotated(&wanted(name), "enable-health-monitor", "true");
    let mut web = changed(&web, |it| {
        it.ports = [80, 443, 8443].map(|number| port(number, ccm_cloud::Protocol::Tcp)).to_vec();
    });
    web.members.present = (1..=20).map(member).collect();
    web
}

/// Returns the calls besides the lookup of versions, which is done once in an hour.
fn counted(rig: &Rig) -> Vec<&'static str> {
    let mut all = rig.cloud.operations();
    all.retain(|operation| *operation != "version_list");
    all
}

#[tokio::test]
async fn a_creation_is_a_lookup_a_post_a_floating_ip_and_its_tags() {
    let rig = Rig::new();
    let web = large("web");
    let Ok(Progress::InProgress(waiting)) = rig.ensure(&web).await else { panic!("done") };
    assert_eq!(waiting.check_after.as_secs(), 2, "it is not ready before");
    assert_eq!(
        counted(&rig),
        [
            "floating_ip_create",
            "floating_ip_tags_update",
            "loadbalancer_create",
            "loadbalancer_list",
        ]
    );
    // The list that the controller polls shows all that it needs: no call follows.
    let list = rig.list(Scope::Cluster, Depth::Summary).await;
    let list = match list.load_balancers[0].phase {
        ccm_cloud::Phase::Ready => list,
        _ => rig.list(Scope::Cluster, Depth::Summary).await,
    };
    let shown = &list.load_balancers[0];
    assert_eq!(shown.digest, Some(web.front_end.digest));
    assert_eq!(super::addresses(shown), ["172.24.0.2"]);
    assert_eq!(rig.rows("members").len(), 60);
    assert_eq!(rig.rows("monitors").len(), 3);
    // Five creations at once have one common lookup.
    let five: Vec<_> = (0..5).map(|number| large(&format!("n{number}"))).collect();
    rig.cloud.operations();
    rig.ensure_all(&five).await;
    assert_eq!(counted(&rig).len(), 1 + 5 * 3);
    assert_eq!(rig.rows("balancers").len(), 6);
}

/// One look at all owners finds the load balancer of each of them, and none of anybody else.
#[tokio::test]
async fn owners_that_are_looked_for_together_find_their_own() {
    let rig = Rig::new();
    let all: Vec<_> = (0..5).map(|number| wanted(&format!("n{number}"))).collect();
    // Two exist, as if the answers to their creations were lost.
    let there = [rig.settle(&all[1]).await.id, rig.settle(&all[3]).await.id];
    let mut namesake = all[2].clone();
    std::sync::Arc::make_mut(&mut namesake.front_end).owner.cluster.uid = "c-2".to_owned();
    rig.settle(&namesake).await;
    let rig = rig.restarted();
    rig.cloud.operations();
    let answers = rig.ensure_all(&all).await;
    let done: Vec<_> = answers
        .iter()
        .map(|answer| match answer.as_ref().unwrap() {
            Progress::Done(balancer) => Some(balancer.id.clone()),
            _ => None,
        })
        .collect();
    let expect = [None, Some(there[0].clone()), None, Some(there[1].clone()), None];
    assert_eq!(done, expect);
    assert_eq!(rig.rows("balancers").len(), 6, "three are made, each once");
    let lists = rig.cloud.operations();
    assert_eq!(lists.iter().filter(|name| **name == "loadbalancer_list").count(), 1);
    // A load balancer that cannot be parsed may be anyone's: each call looks for its own.
    rig.cloud.world.lock().octavia.balancers[0]["created_at"] = serde_json::json!(7);
    let answers = rig.ensure_all(&all).await;
    let failed: Vec<_> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, false, false]);
    assert_eq!(rig.rows("balancers").len(), 6);
}

#[tokio::test]
async fn a_deletion_costs_four_calls() {
    let rig = Rig::new();
    let all: Vec<_> = (0..6).map(|number| large(&format!("n{number}"))).collect();
    for wanted in &all {
        rig.settle(wanted).await;
    }
    let unwanted: Vec<_> = all.iter().map(|wanted| rig.unwanted(wanted)).collect();
    rig.cloud.operations();
    for answer in gather(rig.balancers.delete(&unwanted, call()), 6).await {
        assert!(matches!(answer, Ok(Progress::InProgress(_))), "{answer:?}");
    }
    let begun = counted(&rig);
    let ids = unwanted.iter().filter_map(|one| one.known.clone()).collect();
    while !rig
        .list(Scope::Ids(std::clone::Clone::clone(&ids)), Depth::Summary)
        .await
        .load_balancers
        .is_empty()
    {}
    rig.cloud.operations();
    for answer in gather(rig.balancers.delete(&unwanted, call()), 6).await {
        assert!(matches!(answer, Ok(Progress::Done(_))), "{answer:?}");
    }
    let ended = counted(&rig);
    let shared = |calls: &[&str]| calls.iter().filter(|it| **it == "loadbalancer_list").count();
    assert_eq!((shared(&begun), shared(&ended)), (1, 1), "one look at all of them");
    assert_eq!(begun.len() + ended.len() - 2, 6 * 4, "{begun:?} {ended:?}");
    assert!(rig.cloud.world.lock().floating.ips.is_empty());
}

/// This also holds for one load balancer with any address: a second look at the owner costs
/// nothing.
#[tokio::test]
async fn the_deletion_of_one_costs_four_calls_and_two_lists() {
    let internal = super::with(
        &wanted("web"),
        "service.beta.kubernetes.io/openstack-internal-load-balancer",
        "true",
    );
    let wished = changed(&wanted("web"), |it| it.address = "172.24.9.9".parse().ok());
    for web in [wanted("web"), internal, wished] {
        let rig = Rig::new();
        rig.floating_ip("172.24.9.9", "mine");
        rig.settle(&web).await;
        let unwanted = rig.unwanted(&web);
        rig.cloud.operations();
        assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::InProgress(_))));
        let mut all = counted(&rig);
        let id = unwanted.known.clone().unwrap();
        while !rig
            .list(Scope::Ids(vec![id.clone()]), Depth::Summary)
            .await
            .load_balancers
            .is_empty()
        {}
        rig.cloud.operations();
        assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::Done(_))));
        all.extend(counted(&rig));
        let lists = all.iter().filter(|name| **name == "loadbalancer_list").count();
        assert_eq!((lists, all.len() - lists), (2, 4), "{all:?}");
        // The call makes no list by tags: the full list shows the same.
        let paths = rig.cloud.world.lock().calls.clone();
        let by_tag = |(name, path): &&(&str, String)| {
            *name == "loadbalancer_list" && path.contains("tags=") && path.contains("uid-web")
        };
        assert_eq!(paths.iter().filter(by_tag).count(), 0, "{paths:?}");
    }
}

#[tokio::test]
async fn a_node_that_joins_costs_a_put_for_each_pool_and_one_read() {
    let rig = Rig::new();
    let all: Vec<_> = (0..4).map(|number| large(&format!("n{number}"))).collect();
    let mut ids = Vec::new();
    for wanted in &all {
        ids.push(rig.settle(wanted).await.id);
    }
    let held = ids[0].clone();
    rig.cloud.world.lock().octavia.held.insert(held.clone());
    let joined: Vec<u8> = (1..=21).collect();
    let change = |at: usize| change(&all[at], &ids[at], members(&joined, &[]));
    // One load balancer is stuck from the first change on.
    let changes: Vec<_> = (0..4).map(change).collect();
    rig.cloud.operations();
    let (mut calls, mut left) = (Vec::new(), 4);
    for _ in 0..20 {
        let answers = gather(rig.balancers.set_members(&changes, call()), 4).await;
        let done = |it: &Result<Progress<_>, _>| matches!(it, Ok(Progress::Done(_)));
        left = answers.iter().filter(|answer| !done(answer)).count();
        calls.extend(counted(&rig));
        if left == 1 {
            break;
        }
    }
    assert_eq!(left, 1, "the one that is held delays no other one");
    let of = |name: &str| calls.iter().filter(|it| **it == name).count();
    assert_eq!(of("loadbalancer_status_get"), 4, "one read each");
    assert_eq!(of("loadbalancer_members_update"), 3 * 3 + 1);
    assert_eq!(calls.len(), 4 + 10 + of("loadbalancer_list"), "and shared lists");
}

#[tokio::test]
async fn a_restart_is_one_list_and_nothing_to_do_is_none() {
    let rig = Rig::new();
    for number in 0..5 {
        rig.settle(&large(&format!("n{number}"))).await;
    }
    let other = rig.restarted();
    other.cloud.operations();
    assert_eq!(other.list(Scope::Cluster, Depth::Summary).await.load_balancers.len(), 5);
    assert_eq!(other.cloud.operations(), ["loadbalancer_list"]);
    // An audit in which nothing has changed costs a list, a tree for each load balancer at its
    // turn, and one look at the floating IPs of all.
    let list = rig.list(Scope::Cluster, Depth::Members).await;
    assert!(list.load_balancers.iter().all(|it| it.digest.is_some()));
    let mut expect = vec!["floating_ip_list", "loadbalancer_list"];
    expect.extend(["loadbalancer_status_get"; 5]);
    assert_eq!(rig.cloud.operations(), expect);
    // A full comparison writes nothing.
    for number in 0..5 {
        assert!(matches!(other.ensure(&large(&format!("n{number}"))).await, Ok(Progress::Done(_))));
    }
    assert_eq!(other.writes(), [""; 0]);
}

/// Properties that are compared only if the Service asks for them.
#[tokio::test]
async fn a_comparison_costs_more_with_subnets_of_its_own() {
    let rig = Rig::new();
    let plain = wanted("web");
    rig.settle(&plain).await;
    let (members, floating) = ("member-subnet-id", "floating-subnet-id");
    for (web, more) in [
        (plain.clone(), vec![]),
        (
            annotated(&plain, members, &uuid(1)),
            vec!["loadbalancer_member_list", "loadbalancer_member_list", "subnet_get"],
        ),
        (annotated(&plain, floating, &uuid(3)), vec!["subnet_get"]),
    ] {
        rig.settle(&web).await;
        let other = rig.restarted();
        counted(&other);
        other.settle(&web).await;
        let usual = ["floating_ip_list", "loadbalancer_list", "loadbalancer_listener_list"];
        let usual = usual.into_iter().chain(["loadbalancer_pool_list", "loadbalancer_status_get"]);
        let mut expect: Vec<_> = usual.chain(more).collect();
        expect.sort_unstable();
        assert_eq!(counted(&other), expect, "{:?}", web.front_end.settings);
    }
}

/// Octavia shows the port of a check only in lists of members.
#[tokio::test]
async fn a_node_that_joins_is_checked_at_the_health_port() {
    let rig = Rig::new();
    let local = changed(&large("web"), |it| {
        it.traffic = Traffic::Local { health_check_port: 31_999 };
    });
    let id = rig.settle(&local).await.id;
    let kinds = || rig.rows("monitors").iter().map(|it| it["type"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds(), ["HTTP"; 3]);
    rig.members_with(&local, &id, members(&(1..=21).collect::<Vec<_>>(), &[])).await;
    assert_eq!(rig.rows("members").len(), 63);
    assert!(rig.rows("members").iter().all(|row| row["monitor_port"] == 31_999));
    // Back again: members are first set to be checked at their own port, before the monitor checks
    // there.
    let done = rig.settle(&large("web")).await;
    assert_eq!((done.id, kinds()), (id, vec!["TCP".into(); 3]));
    assert!(rig.rows("members").iter().all(|row| row["monitor_port"].is_null()));
    let list = rig.balancers.list(&cluster(), Scope::Cluster, Depth::Members, call()).await;
    assert!(list.unwrap().load_balancers[0].digest.is_some());
}
