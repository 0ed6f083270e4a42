//! Tests deletions that meet errors, lost answers, and objects that others have left.

use ccm_cloud::{CloudError, ErrorKind, Progress};
use ccm_openstack_client::api::{Api as _, Request, Service};
use http::Method;
use serde_json::{Value, json};

use super::rig::{Rig, call, wanted, with};

fn counts(rig: &Rig) -> (usize, usize) {
    let world = rig.cloud.world.lock();
    (world.octavia.balancers.len(), world.floating.ips.len())
}

/// Only answers of Octavia and Neutron themselves count.
#[tokio::test]
async fn an_error_is_no_end_and_the_next_call_goes_on() {
    for operation in [
        "loadbalancer_list",
        "floating_ip_list",
        "floating_ip_delete",
        "loadbalancer_delete",
        "loadbalancer_get",
    ] {
        for kind in [ErrorKind::Malformed, ErrorKind::Unavailable, ErrorKind::Forbidden] {
            let rig = Rig::new();
            let web = wanted("web");
            rig.settle(&web).await;
            let unwanted = rig.unwanted(&web);
            let mut failures = 1;
            rig.cloud.refuse(move |request| {
                let fails = request.operation == operation && failures > 0;
                failures -= u8::from(fails);
                fails.then(|| CloudError::new(kind, "HTTP 404 without an OpenStack error"))
            });
            let mut errors = 0;
            for _ in 0..10 {
                match rig.delete(&unwanted).await {
                    Ok(Progress::Done(_)) => break,
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind, kind);
                        errors += 1;
                    }
                }
            }
            assert_eq!((errors, counts(&rig)), (1, (0, 0)), "{operation} {kind}");
        }
    }
}

#[tokio::test]
async fn a_list_that_lacks_it_is_no_proof_that_it_is_gone() {
    let rig = Rig::new();
    let web = wanted("web");
    rig.settle(&web).await;
    let unwanted = rig.unwanted(&web);
    let id = unwanted.known.clone().unwrap();
    rig.cloud.world.lock().octavia.unlisted.insert(id);
    for _ in 0..3 {
        let answer = rig.delete(&unwanted).await.unwrap();
        assert!(matches!(answer, Progress::InProgress(_)), "{answer:?}");
    }
    assert_eq!(counts(&rig), (1, 1));
    rig.cloud.world.lock().octavia.unlisted.clear();
    rig.deleted(&unwanted).await;
    assert_eq!(counts(&rig), (0, 0));
}

#[tokio::test]
async fn one_that_is_being_created_is_deleted_after_that_and_a_failed_one_at_once() {
    let rig = Rig::new();
    let web = wanted("web");
    rig.cloud.world.lock().octavia.holds_all = true;
    rig.ensure(&web).await.unwrap();
    let unwanted = rig.unwanted(&web);
    rig.writes();
    assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::InProgress(_))));
    assert_eq!(rig.writes(), [] as [&str; 0]);
    assert_eq!(counts(&rig), (1, 1));
    {
        let mut world = rig.cloud.world.lock();
        world.octavia.break_down(unwanted.known.as_deref().unwrap());
        world.octavia.holds_all = false;
        world.octavia.held.clear();
    }
    rig.deleted(&unwanted).await;
    assert_eq!(counts(&rig), (0, 0));
    assert!(rig.cloud.world.lock().ports.is_empty());
}

#[tokio::test]
async fn without_a_cascade_each_call_deletes_one_child() {
    let rig = Rig::with(|options| {
        options.load_balancer.cascade_delete = false;
        options.load_balancer.internal = true;
        options.networks.subnet_id = Some(ccm_openstack_client::scripted::uuid(1));
    });
    let web = wanted("web");
    rig.settle(&web).await;
    let (unwanted, mut deletions) = (rig.unwanted(&web), 0);
    loop {
        rig.writes();
        let progress = rig.delete(&unwanted).await.unwrap();
        let writes = rig.writes();
        assert!(writes.len() <= 1, "{writes:?}");
        deletions += writes.len();
        if matches!(progress, Progress::Done(_)) {
            break;
        }
    }
    assert_eq!((deletions, counts(&rig)), (2 + 2 + 1, (0, 0)));
}

/// The load balancer was deleted by hand, or by an earlier call whose end was not seen.
#[tokio::test]
async fn what_is_left_of_a_load_balancer_that_is_gone_goes_as_well() {
    for is_known in [true, false] {
        let rig = Rig::new();
        let web = wanted("web");
        rig.settle(&web).await;
        rig.settle(&wanted("api")).await;
        let mut unwanted = rig.unwanted(&web);
        let id = unwanted.known.clone().unwrap();
        let path = format!("/v2.0/lbaas/loadbalancers/{id}?cascade=true");
        let request = Request::delete(Service::LoadBalancer, "by_hand", &path);
        assert_eq!(request.method, Method::DELETE);
        rig.cloud.send(request, call()).await.unwrap();
        rig.cloud.world.lock().let_go(&id);
        assert_eq!(counts(&rig), (1, 2));
        unwanted.known = unwanted.known.filter(|_| is_known);
        rig.restarted().deleted(&unwanted).await;
        assert_eq!(counts(&rig), (1, 1), "the other Service keeps its own");
        assert_ne!(rig.cloud.world.lock().floating.ips[0]["port_id"], Value::Null);
    }
}

#[tokio::test]
async fn a_floating_ip_of_a_user_stays() {
    let rig = Rig::new();
    let web = wanted("web");
    rig.settle(&web).await;
    {
        let mut world = rig.cloud.world.lock();
        world.floating.ips[0]["description"] = json!("mine");
        world.floating.ips[0]["tags"] = json!([]);
    }
    let proof = rig.deleted(&rig.unwanted(&web)).await;
    assert_eq!((counts(&rig), proof.kept), ((0, 1), None), "it is the user's");
    let keep = with(&web, "loadbalancer.openstack.org/keep-floatingip", "true");
    rig.cloud.world.lock().floating.ips.clear();
    rig.settle(&keep).await;
    let proof = rig.deleted(&rig.unwanted(&keep)).await;
    let world = rig.cloud.world.lock();
    let [ip] = &world.floating.ips[..] else { panic!("one is kept") };
    assert_eq!(ip["port_id"], Value::Null);
    let address = ip["floating_ip_address"].as_str().unwrap();
    assert_eq!(proof.kept, Some(format!("floating IP {address}")));
}

/// The proof names what stays, also if an earlier call has detached it.
#[tokio::test]
async fn what_stays_is_named_after_several_calls_as_well() {
    let rig = Rig::with(|options| {
        options.load_balancer.cascade_delete = false;
        options.networks.subnet_id = Some(ccm_openstack_client::scripted::uuid(1));
    });
    let keep = with(&wanted("web"), "loadbalancer.openstack.org/keep-floatingip", "true");
    rig.settle(&keep).await;
    let proof = rig.deleted(&rig.unwanted(&keep)).await;
    let world = rig.cloud.world.lock();
    let address = world.floating.ips[0]["floating_ip_address"].as_str().unwrap();
    assert_eq!(proof.kept, Some(format!("floating IP {address}")));
}

/// Adds a second load balancer of the owner, with its own address: a former leader's creation that
/// arrived late.
fn add_twin(rig: &Rig) {
    let mut world = rig.cloud.world.lock();
    let mut twin = world.octavia.balancers[0].clone();
    for (key, value) in [
        ("id", "twin"),
        ("created_at", "2026-02-01T00:00:00"),
        ("vip_address", "10.8.0.99"),
        ("vip_port_id", "twin's port"),
    ] {
        twin[key] = json!(value);
    }
    world.octavia.balancers.push(twin);
    world.ports.push(json!({
        "id": "twin's port", "device_id": "lb-twin", "_of_octavia": true,
        "fixed_ips": [{ "subnet_id": "s", "ip_address": "10.8.0.99" }],
    }));
    let mut ip = world.floating.ips[0].clone();
    (ip["id"], ip["floating_ip_address"]) = (json!("twin's"), json!("172.24.0.99"));
    (ip["port_id"], ip["fixed_ip_address"]) = (json!("twin's port"), json!("10.8.0.99"));
    world.floating.ips.push(ip);
}

#[tokio::test]
async fn a_deletion_ends_when_no_second_one_is_left_either() {
    for (is_known, restarts) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut rig = Rig::new();
        let web = wanted("web");
        rig.settle(&web).await;
        let mut unwanted = rig.unwanted(&web);
        unwanted.known = unwanted.known.filter(|_| is_known);
        add_twin(&rig);
        let mut calls = 0;
        while let Ok(Progress::InProgress(_)) = rig.delete(&unwanted).await {
            calls += 1;
            assert!(calls < 20, "no end");
            if restarts {
                rig = rig.restarted();
            }
        }
        assert_eq!(counts(&rig), (0, 0), "known: {is_known}, restarts: {restarts}");
        assert_eq!(rig.balancers.memory.sizes(), [0; 3], "what is gone is forgotten");
    }
}

/// Octavia itself says that the load balancer that was just listed is gone.
#[tokio::test]
async fn a_load_balancer_that_is_gone_meanwhile_is_no_proof_for_a_second_one() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    add_twin(&rig);
    let gone = format!("/v2.0/lbaas/loadbalancers/{id}?cascade=true");
    let words = format!("Load Balancer {id} not found.");
    rig.cloud.fail(move |path, _| {
        let body = json!({ "faultcode": "Client", "faultstring": words, "debuginfo": null });
        (path == gone).then(|| Ok(ccm_openstack_client::scripted::answer(404, &body)))
    });
    rig.deleted(&rig.unwanted(&web)).await;
    let left: Vec<_> = rig.rows("balancers").iter().map(|row| row["id"].clone()).collect();
    assert_eq!((left, counts(&rig).1), (vec![json!(id)], 0));
}

/// A floating IP was kept when the Service became internal, and should no longer be kept.
#[tokio::test]
async fn a_floating_ip_that_was_detached_before_goes_with_the_last_load_balancer() {
    for restarts in [false, true] {
        let rig = Rig::new();
        let keep = with(&wanted("web"), "loadbalancer.openstack.org/keep-floatingip", "true");
        let internal =
            with(&keep, "service.beta.kubernetes.io/openstack-internal-load-balancer", "true");
        rig.settle(&keep).await;
        rig.settle(&internal).await;
        assert_eq!(counts(&rig), (1, 1));
        let rig = if restarts { rig.restarted() } else { rig };
        rig.deleted(&rig.unwanted(&wanted("web"))).await;
        assert_eq!(counts(&rig), (0, 0));
    }
}

/// The deletion of a second one takes nothing from the first.
#[tokio::test]
async fn a_duplicate_goes_with_its_own_address_only() {
    let rig = Rig::new();
    let web = wanted("web");
    rig.settle(&web).await;
    add_twin(&rig);
    // The floating IP is detached for a moment, during an exchange.
    rig.cloud.world.lock().floating.ips[0]["port_id"] = Value::Null;
    let twin = ccm_cloud::Unwanted {
        known: Some("twin".to_owned()),
        duplicate: true,
        ..rig.unwanted(&web)
    };
    rig.deleted(&twin).await;
    assert_eq!(counts(&rig), (1, 1));
    assert_eq!(rig.cloud.world.lock().floating.ips[0]["floating_ip_address"], "172.24.0.2");
}

/// Deleted load balancers are forgotten, however they were deleted.
#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_what_is_gone() {
    let rig = Rig::new();
    let (web, sizes) = (wanted("web"), || rig.balancers.memory.sizes());
    rig.settle(&web).await;
    rig.deleted(&rig.unwanted(&web)).await;
    assert_eq!(sizes(), [0; 3]);
    // The Service is deleted between the deletion of a failed load balancer and the creation of the
    // next.
    let id = rig.settle(&web).await.id;
    rig.cloud.world.lock().octavia.break_down(&id);
    let unwanted = rig.unwanted(&web);
    rig.rested(&web).await;
    rig.ensure(&web).await.unwrap();
    assert_eq!(sizes(), [0, 1, 0]);
    rig.deleted(&unwanted).await;
    assert_eq!(sizes(), [0; 3]);
    // Others delete one. A complete list shows that, but does not show load balancers that were
    // created after it began.
    let other = rig.settle(&wanted("other")).await.id;
    let id = rig.settle(&web).await.id;
    rig.remove(&id);
    let shown = rig.shown(&other, ccm_cloud::Depth::Summary).await;
    assert_eq!((sizes(), shown.ingress.len()), ([2, 0, 0], 1));
    let before = tokio::time::Instant::now() - std::time::Duration::from_secs(60);
    rig.balancers.memory.keep_only(&[].into(), before);
    assert_eq!(sizes(), [2, 0, 0]);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    rig.list(ccm_cloud::Scope::Cluster, ccm_cloud::Depth::Summary).await;
    assert_eq!(sizes(), [1, 0, 0]);
    let shown = rig.shown(&other, ccm_cloud::Depth::Summary).await;
    assert_eq!(shown.ingress.len(), 1, "the existing one is remembered");
}

/// Neutron does not delete a floating IP with port forwardings.
#[tokio::test]
async fn a_floating_ip_that_is_in_use_otherwise_holds_no_deletion() {
    let rig = Rig::new();
    rig.settle(&wanted("web")).await;
    rig.cloud.refuse(|request| {
        let in_use = || CloudError::new(ErrorKind::Conflict, "HTTP 409: it has port forwardings");
        (request.operation == "floating_ip_delete").then(in_use)
    });
    rig.deleted(&rig.unwanted(&wanted("web"))).await;
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
}
