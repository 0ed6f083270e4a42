//! Writes that fail.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_reported_and_stops_no_other_node() {
    let world = World::new();
    let _leader = world.lead(&LARGE).await;
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
    assert!(world.patches() < 30, "{}", world.patches());
    world.api.faults().remove(fault);
    world.assigned(&[bad]).await;
}
