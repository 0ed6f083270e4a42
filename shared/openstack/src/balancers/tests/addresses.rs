//! Floating IPs that are exchanged, and virtual addresses that are kept.

use ccm_cloud::{CloudError, ErrorKind, Wanted};
use ccm_openstack_client::{api::Request, scripted::uuid};
use serde_json::{Value, json};

use super::rig::{EXTERNAL, Rig, addresses, changed, wanted, with};

/// Another external network.
const OTHER: usize = 51;
/// Addresses that a user has.
const SAME: &str = "172.24.9.9";
const FAR: &str = "172.30.0.9";

/// Returns a Service with a floating IP of ours, and the wish for another address.
async fn with_wish(address: &str, network: usize) -> (Rig, Wanted) {
    let rig = Rig::new();
    rig.settle(&wanted("web")).await;
    rig.floating_ip(address, "mine");
    rig.cloud.world.lock().floating.ips[1]["floating_network_id"] = json!(uuid(network));
    rig.writes();
    (rig, changed(&wanted("web"), |it| it.address = address.parse().ok()))
}

/// Returns the addresses of all floating IPs, and whether each is attached to the VIP.
fn ips(rig: &Rig) -> Vec<(String, bool)> {
    let world = rig.cloud.world.lock();
    let port = &world.octavia.balancers[0]["vip_port_id"];
    let shown = |ip: &Value| {
        (ip["floating_ip_address"].as_str().unwrap().to_owned(), ip["port_id"] == *port)
    };
    world.floating.ips.iter().map(shown).collect()
}

fn own_alone(other: &str) -> Vec<(String, bool)> {
    vec![("172.24.0.2".to_owned(), true), (other.to_owned(), false)]
}

/// Refuses a number of attempts to attach the floating IP of this place.
fn refuse_to_attach(rig: &Rig, place: usize, mut attempts: usize, kind: ErrorKind) {
    let id = rig.cloud.world.lock().floating.ips[place]["id"].as_str().unwrap().to_owned();
    rig.cloud.refuse(move |request| {
        let is_attached = |body: &Value| body["floatingip"]["port_id"].is_string();
        let is_it = request.operation == "floating_ip_update"
            && request.path.contains(&id)
            && request.body.as_ref().is_some_and(is_attached)
            && attempts > 0;
        attempts -= usize::from(is_it);
        is_it.then(|| CloudError::new(kind, "HTTP 412: the revision is another one"))
    });
}

#[tokio::test]
async fn an_address_that_is_not_reachable_leaves_the_one_of_now() {
    let (rig, asked) = with_wish(FAR, OTHER).await;
    rig.cloud.world.lock().floating.unreachable.insert(uuid(OTHER));
    for _ in 0..3 {
        let error = rig.ensure(&asked).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
        for words in ["spec.loadBalancerIP", FAR, "not reachable"] {
            assert!(error.message.contains(words), "{error}");
        }
        assert_eq!(ips(&rig), own_alone(FAR));
        assert_eq!(rig.writes(), ["floating_ip_update"], "the current one is not interrupted");
    }
    rig.cloud.world.lock().floating.unreachable.clear();
    assert_eq!(addresses(&rig.settle(&asked).await), [FAR]);
    assert_eq!(ips(&rig), [(FAR.to_owned(), true)], "its own was released at last");
}

/// The process ends after any request, whether Neutron has done what it asked or not.
#[tokio::test]
async fn an_exchange_that_was_interrupted_is_completed() {
    for (address, network) in [(FAR, OTHER), (SAME, EXTERNAL)] {
        for operation in ["floating_ip_update", "floating_ip_delete"] {
            for case in 0..8 {
                let (number, is_lost, restarts) = (1 + case / 4, case % 2 == 0, case % 4 < 2);
                let (rig, asked) = with_wish(address, network).await;
                let mut seen = 0;
                let mut is_it = move |request: &Request<'_>| {
                    seen += usize::from(request.operation == operation);
                    request.operation == operation && seen == number
                };
                match is_lost {
                    true => rig.cloud.lose_answers(is_it),
                    false => rig.cloud.refuse(move |request| {
                        is_it(request).then(|| CloudError::new(ErrorKind::Unavailable, "HTTP 503"))
                    }),
                }
                drop(rig.ensure(&asked).await);
                let rig = if restarts { rig.restarted() } else { rig };
                rig.cloud.lose_answers(|_| false);
                rig.cloud.refuse(|_| None);
                assert_eq!(addresses(&rig.settle(&asked).await), [address]);
                let case = format!("{operation} of {network}, case {case}");
                assert_eq!(ips(&rig), [(address.to_owned(), true)], "{case}");
            }
        }
    }
}

/// Both are attached at the same time, and Neutron lists the previous one first.
#[tokio::test]
async fn the_wished_address_is_shown_while_another_is_still_attached() {
    let rig = Rig::new();
    rig.floating_ip(SAME, "mine");
    rig.settle(&changed(&wanted("web"), |it| it.address = SAME.parse().ok())).await;
    rig.floating_ip(FAR, "mine");
    rig.cloud.world.lock().floating.ips[1]["floating_network_id"] = json!(uuid(OTHER));
    let asked = changed(&wanted("web"), |it| it.address = FAR.parse().ok());
    rig.cloud.refuse(|request| {
        let detaches = request.operation == "floating_ip_update"
            && request.body.as_ref().is_some_and(|it| it["floatingip"]["port_id"].is_null());
        detaches.then(|| CloudError::new(ErrorKind::Unavailable, "HTTP 503"))
    });
    rig.ensure(&asked).await.unwrap_err();
    rig.cloud.refuse(|_| None);
    let rig = rig.restarted();
    assert_eq!(addresses(&rig.settle(&asked).await), [FAR]);
}

/// Another client is faster, or Neutron fails.
#[tokio::test]
async fn the_address_of_now_comes_back_if_the_wished_one_cannot_be_had() {
    for kind in [ErrorKind::Busy, ErrorKind::Forbidden, ErrorKind::Unavailable] {
        let (rig, asked) = with_wish(SAME, EXTERNAL).await;
        refuse_to_attach(&rig, 1, 1, kind);
        let error = rig.ensure(&asked).await.unwrap_err();
        assert!(error.message.contains(SAME), "{error}");
        assert_eq!(ips(&rig), own_alone(SAME), "{kind}");
        // It has the other client's port now.
        rig.cloud.world.lock().floating.ips[1]["port_id"] = json!("another's");
        rig.writes();
        let error = rig.ensure(&asked).await.unwrap_err();
        assert!(error.message.contains("another's"), "{error}");
        assert_eq!((ips(&rig), rig.writes().len()), (own_alone(SAME), 0));
        rig.cloud.world.lock().floating.ips[1]["port_id"] = Value::Null;
        assert_eq!(addresses(&rig.settle(&asked).await), [SAME]);
        assert_eq!(ips(&rig), [(SAME.to_owned(), true)]);
    }
}

/// Neither the wished nor the previous one could be attached: the next look has to do it.
#[tokio::test]
async fn a_detached_address_comes_back_by_another_process() {
    let (rig, asked) = with_wish(SAME, EXTERNAL).await;
    rig.cloud.refuse(|request| {
        let attaches = request.operation == "floating_ip_update"
            && request.body.as_ref().is_some_and(|it| it["floatingip"]["port_id"].is_string());
        attaches.then(|| CloudError::new(ErrorKind::Unavailable, "HTTP 503"))
    });
    assert_eq!(rig.ensure(&asked).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(ips(&rig).iter().all(|(_, attached)| !attached));
    let rig = rig.restarted();
    refuse_to_attach(&rig, 1, 9, ErrorKind::Conflict);
    for _ in 0..3 {
        assert!(rig.ensure(&asked).await.unwrap_err().message.contains(SAME));
        assert_eq!(ips(&rig), own_alone(SAME));
    }
}

#[tokio::test]
async fn an_address_that_is_to_be_kept_is_only_detached_in_an_exchange() {
    for (address, network) in [(FAR, OTHER), (SAME, EXTERNAL)] {
        let (rig, asked) = with_wish(address, network).await;
        let keep = with(&asked, "loadbalancer.openstack.org/keep-floatingip", "true");
        assert_eq!(addresses(&rig.settle(&keep).await), [address]);
        assert_eq!(ips(&rig), [("172.24.0.2".to_owned(), false), (address.to_owned(), true)]);
    }
}

/// The virtual address behind a wished floating IP that was made for it.
#[tokio::test(start_paused = true)]
async fn another_process_keeps_the_virtual_address_behind_a_wished_one() {
    let rig = Rig::new();
    rig.cloud.world.lock().floating.may_choose = true;
    let other = rig.settle(&wanted("other")).await;
    let web = changed(&wanted("web"), |it| it.address = "172.24.7.7".parse().ok());
    let first = rig.settle(&web).await;
    let vip = |rig: &Rig, id: &str| {
        rig.rows("balancers").into_iter().find(|row| row["id"] == *id).unwrap()["vip_address"]
            .clone()
    };
    let before = vip(&rig, &first.id);
    // Its address would be the next one otherwise.
    rig.remove(&other.id);
    rig.cloud.world.lock().octavia.break_down(&first.id);
    let known =
        Wanted { known: Some(first.id.clone()), shown: vec!["172.24.7.7".parse().unwrap()], ..web };
    rig.rested(&known).await;
    rig.ensure(&known).await.unwrap();
    let rig = rig.restarted();
    let second = rig.settle(&known).await;
    assert_ne!(second.id, first.id);
    assert_eq!((addresses(&second), vip(&rig, &second.id)), (addresses(&first), before));
}
