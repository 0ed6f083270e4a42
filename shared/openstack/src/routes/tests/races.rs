//! Tests another client that writes at the same time.

use super::*;

/// Returns a Neutron without atomic changes of routes.
fn classic(servers: usize) -> Rig {
    let rig = Rig::new(servers);
    rig.cloud.world.lock().router.extensions = vec!["extraroute", "allowed-address-pairs"];
    rig
}

#[tokio::test]
async fn a_write_between_our_look_and_our_write_is_not_lost() {
    let rig = classic(3);
    rig.list().await;
    // The router changes after it was read for this call.
    rig.cloud.fail(|path, _| {
        let stale = || Err(CloudError::new(ErrorKind::Busy, "HTTP 412: another revision"));
        (path.starts_with("/routers") && !path.contains('?')).then(stale)
    });
    assert_eq!(kinds(&rig.apply(&[create(1)]).await), [Some(ErrorKind::Busy)]);
    assert_eq!(rig.table(), []);
    rig.cloud.world.lock().fault = None;
    assert_eq!(kinds(&rig.apply(&[create(1)]).await), [None]);
}

#[tokio::test]
async fn nothing_is_added_to_a_list_that_has_changed() {
    let rig = classic(3);
    assert_eq!(kinds(&rig.apply(&[create(1)]).await), [None]);
    rig.list().await;
    rig.cloud.fail(|path, _| {
        let stale = || Err(CloudError::new(ErrorKind::Busy, "HTTP 412: another revision"));
        (path.starts_with("/routers") && !path.contains('?')).then(stale)
    });
    rig.cloud.operations();
    let answers = rig.apply(&[create(2), delete(1)]).await;
    assert_eq!(kinds(&answers), [Some(ErrorKind::Busy); 2]);
    let writes = rig.cloud.operations().into_iter().filter(|one| *one == "router_update");
    assert_eq!(writes.count(), 1);
}

#[tokio::test]
async fn a_next_hop_that_another_client_adds_meanwhile_wins() {
    let rig = Rig::new(3);
    rig.list().await;
    let other = json!({ "destination": network(1).to_string(), "nexthop": "10.0.0.77" });
    rig.cloud.world.lock().router.routes.push(other.clone());
    let answers = rig.apply(&[create(1), create(2)]).await;
    assert_eq!(kinds(&answers), [Some(ErrorKind::Conflict), None]);
    assert_eq!(rig.cloud.world.lock().router.routes[0], other);
    assert_eq!(rig.table().len(), 2, "ours is removed again");
}

#[tokio::test]
async fn a_port_that_changes_meanwhile_keeps_what_was_added() {
    let rig = Rig::new(3);
    rig.list().await;
    rig.apply(&[create(1)]).await;
    let added = json!({ "ip_address": "10.0.0.200", "mac_address": "fa:16:3e:00:00:01" });
    {
        let mut world = rig.cloud.world.lock();
        let port = &mut world.ports[1];
        port["allowed_address_pairs"].as_array_mut().unwrap().push(added.clone());
        port["revision_number"] = json!(9);
    }
    assert_eq!(kinds(&rig.apply(&[delete(1)]).await), [None]);
    assert_eq!(rig.pairs(1), json!([added]));
}

#[tokio::test]
async fn a_route_stays_while_its_pair_cannot_be_removed() {
    let rig = Rig::new(3);
    rig.apply(&[create(1), create(2)]).await;
    let id = uuid(1_000_001);
    rig.cloud.fail(move |path, _| {
        let down = || Err(CloudError::new(ErrorKind::Unavailable, "down").that_may_be_done());
        path.contains(&id).then(down)
    });
    let answers = rig.apply(&[delete(1), delete(2)]).await;
    assert_eq!(kinds(&answers), [Some(ErrorKind::Unavailable), None]);
    assert_eq!(rig.table(), [(network(1).to_string(), hop(1))]);
    rig.cloud.world.lock().fault = None;
    assert_eq!(kinds(&rig.apply(&[delete(1)]).await), [None]);
    assert_eq!((rig.table(), rig.pairs(1)), (vec![], json!([])));
}

#[tokio::test(start_paused = true)]
async fn a_port_whose_view_expires_while_others_are_read_is_still_closed() {
    let rig = Rig::new(3);
    assert_eq!(kinds(&rig.apply(&[create(1)]).await), [None]);
    tokio::time::sleep(Duration::from_secs(299)).await;
    // The second port is not known yet: it is read while the view of the first port expires.
    rig.cloud.world.lock().ports[2]["allowed_address_pairs"] =
        json!([{ "ip_address": network(2).to_string() }]);
    rig.cloud.world.lock().delay = Duration::from_secs(2);
    assert_eq!(kinds(&rig.apply(&[delete(1), delete(2)]).await), [None; 2]);
    assert_eq!((rig.pairs(1), rig.pairs(2)), (json!([]), json!([])));
}
