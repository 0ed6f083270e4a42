//! What the cloud refuses as a mistake of the user is tried again: rarely, and soon when something
//! that it is about may have changed.

use std::time::Duration;

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::{
    cloud::Operation,
    faults::{Effect, Fault, Trouble},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    cases::{SOON, on},
    world::{NODES, World},
};

/// A world in which the cloud has refused the load balancer of Service 0 for a while, and does not
/// any more.
async fn refused(kind: ErrorKind) -> World {
    let world = World::new().await;
    let error = CloudError::new(kind, "no such subnet");
    let fault = Fault::new(Effect::Error(error)).on(Operation::EnsureLoadBalancers);
    world.cloud.faults().add(fault.lasting(Duration::from_secs(15)));
    world.create(0);
    sleep(Duration::from_secs(30)).await;
    assert!(!world.has_address(0));
    assert_eq!(world.cloud.calls().load_balancers.ensure, 1, "{kind}: not again and again");
    world
}

/// The subnet that an annotation names comes a minute later, and nobody touches the Service.
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_tried_again_rarely() {
    for kind in [ErrorKind::Invalid, ErrorKind::Unsupported] {
        let world = refused(kind).await;
        let said = world.events("SyncLoadBalancerFailed");
        assert!(said[0].ends_with("; retrying every 5m0s"), "{said:?}");
        sleep(Duration::from_mins(4)).await;
        assert!(!world.has_address(0), "{kind}: nothing has changed");
        sleep(Duration::from_mins(1)).await;
        assert!(world.has_address(0), "{kind}");
        let said = world.events("SyncLoadBalancerFailed");
        assert_eq!(said.len(), 1, "{said:?}");
    }
}

/// What changes, and how.
type Change = (&'static str, fn(&World));

/// Nodes, settings and the provider are part of what a call is about.
#[tokio::test(start_paused = true)]
async fn what_was_refused_is_tried_soon_when_something_else_has_changed() {
    let changes: [Change; 4] = [
        ("a node", |world| world.add_node(NODES)),
        ("settings", |world| world.reload(|settings| settings.adopt_load_balancers = true)),
        ("the provider", |world| world.cloud.balancers().configure(|it| it.hostnames = true)),
        ("the Service", |world| {
            world.patch(0, json!({"metadata": {"annotations": {"sim/note": "other"}}}));
        }),
    ];
    for (what, change) in changes {
        let world = refused(ErrorKind::Invalid).await;
        change(&world);
        sleep(SOON).await;
        let service = world.service(0).unwrap();
        let ingress = &service["status"]["loadBalancer"]["ingress"][0];
        assert!(!ingress.is_null(), "{what} has changed");
    }
}

/// A fleet that changes all the time does not make a call that fails any more frequent than one
/// that the cloud could not answer.
#[tokio::test(start_paused = true)]
async fn changes_without_end_do_not_repeat_a_refused_call_without_end() {
    let world = World::new().await;
    let error = CloudError::new(ErrorKind::Invalid, "no such subnet");
    world.cloud.faults().add(on(Operation::EnsureLoadBalancers, 0, Trouble::Fail(error)));
    world.create(0);
    sleep(Duration::from_secs(30)).await;
    for number in 0..30 {
        world.add_node(NODES + number);
        sleep(SOON).await;
    }
    let calls = world.cloud.calls().load_balancers.ensure;
    assert!((5..10).contains(&calls), "{calls} calls in ten minutes");
}
