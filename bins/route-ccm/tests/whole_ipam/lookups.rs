//! `--cidr-allocator-type=CloudAllocator`.

use super::*;

const CLOUD: [&str; 3] =
    ["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", NO_ROUTES];

/// Adds a node whose instance has this pod CIDR in the cloud.
fn add(world: &World, number: usize, cidr: Option<&str>) -> String {
    let name = world.add(number);
    world.cloud.update(&SimInstance::numbered(number).id, |instance| {
        instance.pod_cidrs = cidr.into_iter().map(|cidr| cidr.parse().unwrap()).collect();
    });
    name
}

#[tokio::test(start_paused = true)]
async fn nodes_get_what_the_cloud_has_assigned_in_batches() {
    let world = World::new();
    let _leader = world.lead(&CLOUD).await;
    let nodes: Vec<_> =
        (0..200).map(|number| add(&world, number, Some(&format!("10.9.{number}.0/24")))).collect();
    world.assigned(&nodes).await;
    assert_eq!(world.cidrs(&nodes[7]), "10.9.7.0/24");
    let calls = world.cloud.calls();
    assert_eq!((calls.nodes_looked_up, calls.routes.total()), (200, 0), "{calls}");
    assert!(calls.lookup < 10, "{calls}");
    assert_eq!(world.writes(), vec!["patch nodes"; 200]);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.cloud.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_pod_cidrs_is_reported_once_and_asked_about_again() {
    let world = World::new();
    let leader = world.lead(&CLOUD).await;
    let (none, some) = (add(&world, 0, None), add(&world, 1, Some("10.9.1.0/24")));
    world.assigned(&[some]).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.count_events(&none, "CIDRNotAvailable"), 1);
    let (status, reason, text) = world.condition(&none).unwrap();
    assert_eq!((&*status, &*reason), ("True", "CIDRNotAvailable"));
    assert!(text.contains("the cloud does not name a pod CIDR of instance node-00000"), "{text}");
    assert!(leader.health("pod-cidrs").detail().contains("does not name a pod CIDR"));
    world.cloud.update("i-00000", |instance| {
        instance.pod_cidrs = vec!["10.9.0.0/24".parse().unwrap()];
    });
    sleep(Duration::from_mins(2)).await;
    assert_eq!(world.cidrs(&none), "10.9.0.0/24");
    assert_eq!(world.condition(&none).unwrap().0, "False");
}

/// The node waited until its provider ID showed that it belongs to another cloud.
#[tokio::test(start_paused = true)]
async fn a_node_of_another_cloud_does_not_wait() {
    let world = World::new();
    let leader = world.lead(&CLOUD).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}});
    world.api.create(node).unwrap();
    sleep(Duration::from_mins(1)).await;
    leader.shows("ccm_ipam_nodes_waiting", 1.0);
    let id = json!({"spec": {"providerID": "elsewhere://i-1"}});
    world.api.patch("nodes", "other", "", PatchKind::Merge, id).unwrap();
    sleep(Duration::from_mins(1)).await;
    leader.has_nothing_to_do();
}
