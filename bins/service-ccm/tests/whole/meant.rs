//! Nodes that leave on purpose leave load balancers within the interval of changes. With an
//! incomplete list, at least half of the members stay.

use std::time::Duration;

use ccm_base::clock;
use ccm_objects::instance_gone;
use ccm_sim::{cloud::Operation, faults::FaultEffect};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::SOON,
    world::{NODES, World},
};

/// `--member-update-interval`, and what the calls take.
const INTERVAL: Duration = Duration::from_secs(12);
/// By then a new leader has read the members of all load balancers, if the note did not say that
/// they are right.
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

    /// Removes the node as lifecycle-ccm does.
    fn remove_with_proof(&self, number: usize) {
        let proof = instance_gone::value("by_id", clock::wall().into());
        self.patch_node(number, json!({"metadata": {"annotations": {instance_gone::KEY: proof}}}));
        self.remove_node(number);
    }
}

/// The marks of a node are known to the next leader, whether the last one saw it go or a standby.
#[tokio::test(start_paused = true)]
async fn the_next_leader_knows_what_nodes_said() {
    let mut world = World::with_nodes(20).await;
    // The cloud does not accept changes while the nodes are deleted.
    world.add_fault(FaultEffect::Unavailable, Operation::SetMembers, SOON);
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
