//! Nodes that are gone when an answer about them comes.

use ccm_sim::{
    cloud::Operation,
    faults::{self, Effect},
};

use super::*;

const CLOUD: [&str; 3] =
    ["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator", NO_ROUTES];
/// The time that a lookup takes, and a moment in it.
const LOOKUP: Duration = Duration::from_secs(4);
const MEANWHILE: Duration = Duration::from_millis(1500);

impl World {
    /// Adds a node whose instance has this pod CIDR in the cloud.
    fn add_with(&self, number: usize, cidr: Option<&str>) -> String {
        let name = self.add(number);
        self.cloud.update(&SimInstance::numbered(number).id, |instance| {
            instance.pod_cidrs = cidr.into_iter().map(|cidr| cidr.parse().unwrap()).collect();
        });
        name
    }

    /// Lookups take their time.
    fn slow_lookups(&self) -> faults::FaultId {
        let slow = faults::Fault::new(Effect::Latency(LOOKUP)).on(Operation::Lookup);
        self.cloud.faults().add(slow)
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_during_its_lookup_holds_no_pod_cidr() {
    for same in [false, true] {
        let world = World::new();
        let leader = world.lead(&CLOUD).await;
        let slow = world.slow_lookups();
        let first = world.add_with(0, Some("10.9.0.0/24"));
        sleep(MEANWHILE).await;
        world.remove(&first);
        // The answer still has the instance.
        sleep(LOOKUP * 2).await;
        world.cloud.remove(&SimInstance::numbered(0).id);
        world.cloud.faults().remove(slow);
        // The cloud gives the network to the next instance, or the same one registers again.
        let next = world.add_with(usize::from(!same), Some("10.9.0.0/24"));
        sleep(Duration::from_secs(15)).await;
        assert_eq!(world.cidrs(&next), "10.9.0.0/24", "same: {same}");
        assert_eq!(world.count_events(&next, "CIDRNotAvailable"), 0);
        leader.has_nothing_to_do();
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_during_its_lookup_does_not_wait() {
    for found in [true, false] {
        let world = World::new();
        let leader = world.lead(&CLOUD).await;
        world.slow_lookups();
        let node = world.add_with(0, None);
        if !found {
            world.cloud.remove(&SimInstance::numbered(0).id);
        }
        // The first lookups fail.
        sleep(LOOKUP * 5).await;
        sleep(MEANWHILE).await;
        leader.shows("ccm_ipam_nodes_waiting", 1.0);
        world.remove(&node);
        sleep(LOOKUP * 5).await;
        leader.has_nothing_to_do();
    }
}

/// It got pod CIDRs from another client meanwhile.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_pod_cidrs_during_its_lookup_does_not_wait() {
    let world = World::new();
    let leader = world.lead(&CLOUD).await;
    world.slow_lookups();
    let node = world.add_with(0, None);
    sleep(MEANWHILE).await;
    world.assign(&node, "10.9.0.0/24");
    sleep(LOOKUP * 5).await;
    leader.has_nothing_to_do();
}

/// Its finalizer keeps it.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_being_deleted_does_not_wait() {
    let world = World::new();
    let leader = world.lead(&CLOUD).await;
    let node = world.add_with(0, None);
    let held = json!({"metadata": {"finalizers": ["example.com/wait"]}});
    world.api.patch("nodes", &node, "", PatchKind::Merge, held).unwrap();
    sleep(Duration::from_secs(5)).await;
    leader.shows("ccm_ipam_nodes_waiting", 1.0);
    world.api.delete("nodes", &node).unwrap();
    sleep(Duration::from_mins(5)).await;
    leader.has_nothing_to_do();
}

#[tokio::test(start_paused = true)]
async fn a_block_becomes_free_if_the_end_of_its_node_is_seen_before_the_answer() {
    for arguments in [&[NO_ROUTES][..], &[]] {
        let world = World::new();
        let leader = world.lead(&[&SMALL[..], arguments].concat()).await;
        // Without any node no route goes.
        let stays = world.add(9);
        world.assigned(&[stays]).await;
        let late = world.api.faults().add(World::fault(Action::DelayAnswer(LOOKUP / 2)));
        // As many routes as the brake lets go.
        for number in 0..3 {
            let name = world.add(number);
            sleep(Duration::from_millis(600)).await;
            assert!(!world.cidrs(&name).is_empty(), "it is carried out at once");
            world.remove(&name);
            sleep(LOOKUP).await;
        }
        world.api.faults().remove(late);
        sleep(FREE * 2).await;
        leader
            .shows("node_ipam_controller_cidrset_usage_cidrs{clusterCIDR=\"10.64.0.0/22\"}", 0.25);
        let nodes = world.add_many(4..7);
        world.assigned(&nodes).await;
        leader.has_nothing_to_do();
    }
}

/// The node registers again during the lookup, with another instance.
#[tokio::test(start_paused = true)]
async fn the_pod_cidr_of_an_instance_is_not_given_to_a_node_of_another_one() {
    let world = World::new();
    let leader = world.lead(&CLOUD).await;
    world.slow_lookups();
    let name = world.add_with(0, Some("10.9.0.0/24"));
    sleep(MEANWHILE).await;
    world.remove(&name);
    let mut other = SimInstance::numbered(7);
    other.pod_cidrs = vec!["10.9.7.0/24".parse().unwrap()];
    let id = other.provider_id().to_string();
    world.cloud.add(other);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"providerID": id},
    });
    world.api.create(node).unwrap();
    sleep(LOOKUP * 5).await;
    assert_eq!(world.cidrs(&name), "10.9.7.0/24");
    leader.has_nothing_to_do();
}

/// It waited until its provider ID said that it is another cloud's.
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

/// The next node of its name is another one.
#[tokio::test(start_paused = true)]
async fn a_block_becomes_free_if_its_node_registers_again_before_the_answer() {
    let world = World::new();
    let leader = world.lead(&[&SMALL[..], &[NO_ROUTES]].concat()).await;
    sleep(Duration::from_secs(5)).await;
    for _ in 0..3 {
        let once = World::fault(Action::DelayAnswer(LOOKUP / 2)).times(1);
        world.api.faults().add(once);
        let name = world.add(0);
        sleep(Duration::from_millis(600)).await;
        world.remove(&name);
        world.add(0);
        sleep(LOOKUP).await;
        world.assigned(std::slice::from_ref(&name)).await;
        world.remove(&name);
        sleep(LOOKUP).await;
    }
    sleep(FREE * 2).await;
    leader.shows("node_ipam_controller_cidrset_usage_cidrs{clusterCIDR=\"10.64.0.0/22\"}", 0.0);
    leader.has_nothing_to_do();
}
