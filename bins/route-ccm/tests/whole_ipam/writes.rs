//! Writes that fail.

use super::*;

/// The metric of upstream's controller, in its own name.
const RUNNING: &str = "running_managed_controllers{name=\"node-ipam-controller\",manager=\"cloud-controller-manager\"}";

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_reported_and_stops_no_other_node() {
    let world = World::new();
    let leader = world.lead(&LARGE).await;
    sleep(Duration::from_secs(3)).await;
    let refusal = Action::Status { code: 422, retry_after: None };
    let name = SimInstance::numbered(0).name;
    let fault = world.api.faults().add(World::fault(refusal).name(&name));
    let (bad, others) = (world.add(0), world.add_many(1..20));
    world.assigned(&others).await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(world.cidrs(&bad), "");
    let failed = world.events(&bad);
    assert!(
        failed.iter().any(|(reason, text)| reason == "CIDRAssignmentFailed"
            && text.starts_with("Node node-00000 status is now: CIDRAssignmentFailed")),
        "{failed:?}"
    );
    let ours = world.api.list("events").into_iter();
    let mut ours = ours.filter(|event| event["reason"] == "CIDRAssignmentFailed");
    assert!(ours.all(|event| event["source"]["component"] == "cidrAllocator"));
    leader.shows(RUNNING, 1.0);
    assert!(world.patches() < 30, "{}", world.patches());
    world.api.faults().remove(fault);
    world.assigned(&[bad]).await;
}
