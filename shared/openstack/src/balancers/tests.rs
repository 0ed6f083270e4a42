//! The promises of load balancers, on a scripted Octavia that has the real one's rules and counts.

mod addresses;
mod adoption;
mod annotated;
mod answers;
mod bad_input;
mod budgets;
mod deletion;
mod failed;
mod local;
mod lost;
mod misspelt;
mod no_effect;
mod odd;
mod ownership;
mod pools;
mod progress;
mod races;
mod renamed;
mod rig;
mod rights;
mod whose;

use ccm_cloud::{Depth, ErrorKind, Phase, Progress, Protocol, Title};
use serde_json::json;

use self::rig::{Rig, addresses, changed, members, port, wanted, with};
use super::names;

/// The lists that a controller makes while it waits, and their end.
#[tokio::test]
async fn a_service_gets_a_load_balancer_with_a_floating_ip() {
    let rig = Rig::new();
    let web = wanted("web");
    let done = rig.settle(&web).await;
    assert_eq!(addresses(&done), ["172.24.0.2"]);
    assert_eq!((&done.title, &done.phase), (&Title::Ours, &Phase::Ready));
    assert_eq!(done.digest, Some(web.front_end.digest));
    assert_eq!(done.owner.as_ref(), Some(&web.front_end.owner));
    assert_eq!((done.notes.len(), done.cost.as_deref()), (0, Some("amphora with floating IP")));
    let world = rig.cloud.world.lock();
    let row = &world.octavia.balancers[0];
    let name = "kube_service_prod_default_web";
    assert_eq!((&row["name"], &row["provider"]), (&json!(name), &json!("amphora")));
    assert_eq!(row["description"], "Kubernetes external service default/web from cluster prod");
    let own = [name, "kubernetes-cluster-id=c-1", "kubernetes-service-uid=uid-web"];
    let digest = names::tag(names::DIGEST, web.front_end.digest);
    assert_eq!(row["tags"], json!([own[0], own[1], own[2], digest]));
    let listeners = &world.octavia.listeners;
    assert_eq!(listeners[1]["name"], format!("listener_1_{name}"));
    assert_eq!((listeners.len(), world.octavia.pools.len()), (2, 2));
    for child in listeners.iter().chain(&world.octavia.pools) {
        assert_eq!(child["tags"], json!(own), "each child says to whom it belongs");
    }
    assert_eq!(world.octavia.members.len(), 6);
    let ip = &world.floating.ips[0];
    let text = "Floating IP for Kubernetes external service default/web from cluster prod";
    assert_eq!((&ip["description"], &ip["tags"]), (&json!(text), &json!(own[1..])));
    assert_eq!(ip["port_id"], row["vip_port_id"]);
}

/// Another process knows nothing of an address, and compares each load balancer once.
#[tokio::test]
async fn a_new_process_compares_before_it_trusts_a_digest() {
    let rig = Rig::new();
    let web = wanted("web");
    let made = rig.settle(&web).await;
    let other = rig.restarted();
    let heads = other.shown(&made.id, Depth::Summary).await;
    assert_eq!((heads.digest, heads.ingress.len()), (made.digest, 0));
    assert_eq!(other.shown(&made.id, Depth::Members).await.digest, None);
    other.cloud.operations();
    let Progress::Done(again) = other.ensure(&web).await.unwrap() else { panic!("not done") };
    assert_eq!((again.ingress, again.digest), (made.ingress, made.digest));
    let writes = other.writes();
    assert_eq!(writes, [""; 0]);
    assert_eq!(other.shown(&made.id, Depth::Members).await.digest, made.digest);
}

#[tokio::test]
async fn an_address_is_chosen_exchanged_and_given_up() {
    let rig = Rig::new();
    let mine = rig.floating_ip("172.24.9.9", "mine");
    let asked = changed(&wanted("web"), |it| it.address = "172.24.9.9".parse().ok());
    assert_eq!(addresses(&rig.settle(&asked).await), ["172.24.9.9"]);
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1, "no floating IP is created");
    // A second Service cannot have it.
    let other = changed(&wanted("api"), |it| it.address = "172.24.9.9".parse().ok());
    let error = rig.ensure(&other).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.message.contains("spec.loadBalancerIP"), "{error}");
    assert_eq!(rig.cloud.world.lock().octavia.balancers.len(), 1, "nothing is made by halves");
    // Internal: a person's address is detached, and stays.
    let internal =
        with(&asked, "service.beta.kubernetes.io/openstack-internal-load-balancer", "true");
    let internal = changed(&internal, |it| it.address = None);
    let done = rig.settle(&internal).await;
    let vip = rig.cloud.world.lock().octavia.balancers[0]["vip_address"].clone();
    assert_eq!(addresses(&done), [vip.as_str().unwrap()]);
    assert_eq!(rig.cloud.world.lock().floating.ips[0]["port_id"], json!(null));
    // Back, with one of the cloud's choice, which is then exchanged for the wished one.
    let any = rig.settle(&wanted("web")).await;
    assert_ne!(addresses(&any), ["172.24.9.9"]);
    assert_eq!(addresses(&rig.settle(&asked).await), ["172.24.9.9"]);
    let world = rig.cloud.world.lock();
    assert_eq!(world.floating.ips.len(), 1, "its own was released");
    assert_eq!(world.floating.ips[0]["id"], *mine);
}

/// A floating IP that was made for it is deleted with an internal one, unless it should be kept.
#[tokio::test]
async fn a_floating_ip_is_deleted_or_kept() {
    for keep in [false, true] {
        let rig = Rig::new();
        let mut web = wanted("web");
        if keep {
            web = with(&web, "loadbalancer.openstack.org/keep-floatingip", "true");
        }
        rig.settle(&web).await;
        let internal =
            with(&web, "service.beta.kubernetes.io/openstack-internal-load-balancer", "true");
        rig.settle(&internal).await;
        assert_eq!(rig.cloud.world.lock().floating.ips.len(), usize::from(keep));
        // Kept for the same Service, which looks for it by its tags.
        assert_eq!(addresses(&rig.settle(&web).await).len(), 1);
        assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
        let done = rig.deleted(&rig.unwanted(&web)).await;
        assert_eq!(done.method, ccm_cloud::ProofMethod::ById);
        assert_eq!(rig.cloud.world.lock().floating.ips.len(), usize::from(keep));
    }
}

#[tokio::test]
async fn each_protocol_has_listeners_of_its_own() {
    let rig = Rig::new();
    let all = changed(&wanted("web"), |it| {
        it.ports = vec![port(53, Protocol::Tcp), port(53, Protocol::Udp), port(99, Protocol::Sctp)];
    });
    rig.settle(&all).await;
    let protocols = |kind: &str| -> Vec<String> {
        let world = rig.cloud.world.lock();
        let rows =
            if kind == "listeners" { &world.octavia.listeners } else { &world.octavia.pools };
        rows.iter().map(|row| row["protocol"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(protocols("listeners"), ["TCP", "UDP", "SCTP"]);
    // PROXY is a matter of TCP: the others keep their protocol.
    let proxied = with(&all, "loadbalancer.openstack.org/proxy-protocol", "v2");
    let done = rig.settle(&proxied).await;
    let mut pools = protocols("pools");
    pools.sort_unstable();
    assert_eq!(pools, ["PROXYV2", "SCTP", "UDP"]);
    assert_eq!(done.ingress[0].ip_mode, ccm_cloud::IpMode::Proxy);
}
