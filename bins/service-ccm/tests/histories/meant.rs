//! Nodes that were meant to go leave load balancers within the interval of changes; on a list that is
//! short, at least half of the members stay.

use std::time::Duration;

use ccm_base::clock;
use ccm_objects::instance_gone;
use ccm_sim::{cloud::Operation, faults::Effect};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, World},
};

/// `--member-update-interval`, and what the calls take.
const INTERVAL: Duration = Duration::from_secs(12);
/// A new leader reads the members of all load balancers by then, if nobody told it that they are right.
const LOOK: Duration = Duration::from_mins(6);

impl World {
    async fn with_nodes(count: usize) -> Self {
        let world = Self::new().await;
        (NODES..count).for_each(|number| world.add_node(number));
        (count..NODES).for_each(|number| world.remove_node(number));
        world.create(0);
        sleep(SOON).await;
        assert_eq!(world.members(0), count);
        // The changes so far do not delay the next one.
        sleep(INTERVAL).await;
        world
    }

    fn remove_node(&self, number: usize) {
        self.api.delete("nodes", &Self::node_name(number)).unwrap();
    }

    fn cordon(&self, number: usize) {
        self.patch_node(number, json!({"spec": {"unschedulable": true}}));
    }

    /// As lifecycle-ccm does it.
    fn remove_with_proof(&self, number: usize) {
        let proof = instance_gone::value("by_id", clock::wall().into());
        self.patch_node(number, json!({"metadata": {"annotations": {instance_gone::KEY: proof}}}));
        self.remove_node(number);
    }
}

#[tokio::test(start_paused = true)]
async fn forty_of_fifty_nodes_that_an_autoscaler_marks_leave_at_once() {
    let world = World::with_nodes(50).await;
    let taint = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
    for number in 0..40 {
        world.patch_node(number, json!({"spec": {"taints": taint}}));
        world.remove_node(number);
    }
    sleep(INTERVAL).await;
    assert_eq!(world.members(0), 10);
    assert!(world.events("LoadBalancerMembersHeld").is_empty());
}

#[tokio::test(start_paused = true)]
async fn forty_of_fifty_nodes_with_a_proof_leave_at_once() {
    let world = World::with_nodes(50).await;
    (0..40).for_each(|number| world.remove_with_proof(number));
    sleep(INTERVAL).await;
    assert_eq!(world.members(0), 10);
    assert!(world.events("LoadBalancerMembersHeld").is_empty());
}

#[tokio::test(start_paused = true)]
async fn twelve_cordoned_nodes_go_to_six() {
    let world = World::with_nodes(12).await;
    (0..6).for_each(|number| world.cordon(number));
    for number in 0..6 {
        world.remove_node(number);
        sleep(INTERVAL).await;
        assert_eq!(world.members(0), 11 - number, "within {INTERVAL:?}");
        sleep(Duration::from_secs(20) - INTERVAL).await;
    }
    assert!(world.events("LoadBalancerMembersHeld").is_empty());
    // The floor: six of twelve stay.
    world.cordon(6);
    world.remove_node(6);
    sleep(INTERVAL).await;
    assert_eq!(world.members(0), 6);
    sleep(Duration::from_hours(5)).await;
    assert_eq!(world.members(0), 6);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.members(0), 5);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_short_by_half_leaves_half_of_the_members() {
    for (count, stay) in [(1, 1), (2, 1), (3, 2), (4, 2), (8, 5), (50, 45)] {
        let mut world = World::with_nodes(count).await;
        (0..count.div_ceil(2)).for_each(|number| world.remove_node(number));
        sleep(Duration::from_mins(4)).await;
        world.restart().await;
        sleep(Duration::from_mins(4)).await;
        assert_eq!(world.members(0), stay, "of {count}");
    }
}

/// The marks of a node are known to the next leader, whether the last one saw it go or a standby.
#[tokio::test(start_paused = true)]
async fn the_next_leader_knows_what_nodes_said() {
    let mut world = World::with_nodes(20).await;
    // The cloud takes no changes while the nodes go.
    world.add_fault(Effect::Unavailable, Operation::SetMembers, SOON);
    (0..5).for_each(|number| world.remove_with_proof(number));
    (5..10).for_each(|number| world.cordon(number));
    (5..10).for_each(|number| world.remove_node(number));
    sleep(SOON - Duration::from_secs(1)).await;
    assert_eq!(world.members(0), 20);
    world.restart().await;
    sleep(LOOK).await;
    assert_eq!(world.members(0), 10);

    let mut world = World::with_nodes(20).await;
    let standby = world.stand_by().await;
    world.stop();
    (0..5).for_each(|number| world.remove_with_proof(number));
    (5..10).for_each(|number| world.cordon(number));
    (5..10).for_each(|number| world.remove_node(number));
    sleep(SOON).await;
    world.take_over(standby);
    sleep(LOOK).await;
    assert_eq!(world.members(0), 10);
}

/// A proof that is older does not say why a node goes now.
#[tokio::test(start_paused = true)]
async fn an_old_proof_does_not_count() {
    let world = World::with_nodes(20).await;
    let old = json!({instance_gone::KEY: "by_id 2001-01-01T00:00:00.000Z"});
    (0..5).for_each(|number| world.patch_node(number, json!({"metadata": {"annotations": old}})));
    (0..5).for_each(|number| world.remove_node(number));
    sleep(Duration::from_mins(5)).await;
    assert_eq!(world.members(0), 17);
}
