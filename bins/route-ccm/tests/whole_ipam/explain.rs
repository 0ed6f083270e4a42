//! The page `/explain` about the pod CIDRs of nodes.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Fault as CloudFault, FaultEffect},
};

use super::*;

/// Checks that the parts of routes and node-ipam on the page agree.
fn fare_alike(replica: &Replica, name: &str, state: &str) {
    let page = replica.process.explain("Node", name);
    for part in ["node-ipam", "routes"] {
        assert!(page.contains(&format!("Node {name}, {part}: {state}\n")), "{state}: {page}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_routes_of_a_node_without_pod_cidrs_fare_like_these() {
    let world = World::new();
    let leader = world.lead(&LARGE).await;
    sleep(Duration::from_secs(3)).await;
    let refusal = Action::Status { code: 403, retry_after: None };
    let refused = world.api.faults().add(World::fault(refusal));
    let node = world.add(0);
    sleep(Duration::from_mins(10)).await;
    fare_alike(&leader, &node, "blocked");
    world.api.faults().remove(refused);
    world.assigned(std::slice::from_ref(&node)).await;
    let world = World::new();
    let arguments = ["--allocate-node-cidrs", "--cidr-allocator-type=CloudAllocator"];
    let leader = world.lead(&[&arguments[..], &["--cluster-cidr=10.64.0.0/10"]].concat()).await;
    sleep(Duration::from_secs(3)).await;
    let node = world.add(0);
    for (kind, state) in
        [(ErrorKind::Forbidden, "blocked"), (ErrorKind::Timeout, "work is under way")]
    {
        let error = CloudError::new(kind, "no");
        let fault = CloudFault::new(FaultEffect::Error(error)).on(Operation::Lookup);
        let fault = world.cloud.faults().add(fault);
        sleep(Duration::from_mins(10)).await;
        fare_alike(&leader, &node, state);
        world.cloud.faults().remove(fault);
    }
}
