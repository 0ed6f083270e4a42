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

use std::sync::Arc;

use ccm_cloud::{Depth, ErrorKind, Phase, Progress, Protocol, Scope, Title};
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
    assert_eq!(done.notes, []);
    let world = rig.cloud.world.lock();
    let row = &world.octavia.balancers[0];
    let name = "kube_service_prod_default_web";
    assert_eq!((&row["name"], &row["provider"]), (&json!(name), &json!("amphora")));
    assert_eq!(row["description"], "Kubernetes external service default/web from cluster prod");
    let own = [name, "kubernetes-cluster-id=c-1", "kubernetes-service-uid=uid-web"];
    let digest = names::digest_tag(web.front_end.digest);
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

#[tokio::test]
async fn lists_by_scope_and_depth() {
    let rig = Rig::new();
    let web = rig.settle(&wanted("web")).await;
    let api = rig.settle(&wanted("api")).await;
    rig.stranger("theirs", "kube_service_prod_default_db", &["kubernetes-cluster-id=c-2"]);
    rig.stranger("older", "kube_service_prod_default_old", &["kube_service_prod_default_old"]);
    rig.stranger("person's", "mine", &[]);
    let ids = |ids: &[&str]| Scope::Ids(ids.iter().map(|&id| id.to_owned()).collect());
    for (scope, mut expect) in [
        (Scope::All, vec![&*web.id, &*api.id, "theirs", "older", "person's"]),
        (Scope::Cluster, vec![&*web.id, &*api.id]),
        (ids(&["older", "none", &api.id]), vec![&*api.id, "older"]),
        (ids(&[]), vec![]),
    ] {
        for depth in [Depth::Summary, Depth::Members] {
            let list = rig.list(scope.clone(), depth).await;
            assert_eq!(list.malformed, [""; 0]);
            let mut found: Vec<_> = list.load_balancers.iter().map(|it| &*it.id).collect();
            found.sort_unstable();
            expect.sort_unstable();
            assert_eq!(found, expect, "{scope:?}");
            for balancer in &list.load_balancers {
                assert_eq!(balancer.members.is_some(), depth == Depth::Members);
                let title = match &*balancer.id {
                    "theirs" | "person's" => balancer.title == Title::Foreign,
                    "older" => matches!(balancer.title, Title::Adoptable { .. }),
                    _ => balancer.title == Title::Ours,
                };
                assert!(title, "{balancer:?}");
            }
        }
    }
    let shown = rig.shown(&web.id, Depth::Members).await;
    let nodes: Vec<_> = shown.members.iter().flat_map(|it| &**it).map(|it| &*it.node).collect();
    assert_eq!(nodes, ["node-00001", "node-00002", "node-00003"]);
    assert_eq!(shown.cost.as_deref(), Some("amphora with floating IP"));
    let shown = ccm_cloud::LoadBalancer { age: web.age, ..shown };
    assert_eq!(shown, web, "an ensured load balancer is shown as a list shows it");
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

/// What is done by hand is seen, and undone.
#[tokio::test]
async fn repairs_foreign_writes() {
    let rig = Rig::new();
    let web = wanted("web");
    let made = rig.settle(&web).await;
    for harm in ["listener", "members", "floating", "pool"] {
        {
            let mut world = rig.cloud.world.lock();
            match harm {
                "listener" => drop(world.octavia.listeners.pop()),
                "members" => {
                    let pool = world.octavia.pools[0]["id"].clone();
                    world.octavia.members.retain(|row| row["_pool"] != pool);
                }
                "floating" => world.floating.ips.clear(),
                _ => {
                    let pool = world.octavia.pools.remove(0);
                    let mut listeners = world.octavia.listeners.iter_mut();
                    let own = listeners.find(|row| row["default_pool_id"] == pool["id"]).unwrap();
                    own["default_pool_id"] = json!(null);
                    drop(listeners);
                    world.octavia.members.retain(|row| row["_pool"] != pool["id"]);
                }
            }
        }
        let seen = rig.shown(&made.id, Depth::Members).await;
        assert_eq!(seen.digest, None, "{harm}");
        let after = rig.settle(&web).await;
        let seen = rig.shown(&made.id, Depth::Members).await;
        assert_eq!((seen.digest, after.id), (made.digest, made.id.clone()), "{harm}");
        let nodes = after.members.as_ref().map(|members| members.len());
        assert_eq!(nodes, Some(3), "{harm}");
        assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
    }
    rig.remove(&made.id);
    assert_ne!(rig.settle(&web).await.id, made.id, "made again");
}

/// A load balancer that was deleted by hand comes back with its floating IP.
#[tokio::test]
async fn keeps_the_address_of_what_was_deleted_by_others() {
    let rig = Rig::new();
    let first = rig.settle(&wanted("web")).await;
    rig.remove(&first.id);
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
    let known = ccm_cloud::Wanted { known: Some(first.id.clone()), ..wanted("web") };
    let second = rig.settle(&known).await;
    assert_ne!(first.id, second.id);
    assert_eq!(first.ingress, second.ingress);
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
}

#[tokio::test]
async fn an_address_is_chosen_exchanged_and_given_up() {
    let rig = Rig::new();
    let mine = rig.floating_ip("172.24.9.9", "mine");
    let asked = changed(&wanted("web"), |it| it.address = "172.24.9.9".parse().ok());
    assert_eq!(addresses(&rig.settle(&asked).await), ["172.24.9.9"]);
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1, "none is created");
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

/// What was made for it goes with an internal one, unless it is to be kept.
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

#[tokio::test]
async fn a_thin_view_removes_no_member_and_the_last_one_stays() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    rig.writes();
    for thin in [members(&[], &[]), members(&[2], &[]), members(&[3], &[9])] {
        rig.members_set("web", &id, thin).await;
        assert_eq!((rig.nodes(), rig.writes().len()), (vec![1, 2, 3], 0));
    }
    // What is named leaves, and what is in both lists stays.
    rig.members_set("web", &id, members(&[1, 6], &[1, 2])).await;
    assert_eq!(rig.nodes(), [1, 3, 6]);
    assert_eq!(rig.writes().len(), 2, "one for each pool");
    rig.members_set("web", &id, members(&[], &[1, 3, 6])).await;
    assert_eq!(rig.nodes().len(), 1);
    rig.writes();
    let emptied = ccm_cloud::Wanted { members: members(&[], &[1, 2, 3, 6]), ..web.clone() };
    assert!(matches!(rig.ensure(&emptied).await, Ok(Progress::Done(_))));
    assert_eq!(rig.writes(), [""; 0]);
    rig.members_set("web", &id, members(&[8], &[1, 3, 6])).await;
    assert_eq!(rig.nodes(), [8]);
}

/// A change of the configuration, and the same in members: neither touches the other.
#[tokio::test]
async fn members_follow_while_the_configuration_is_wrong() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let before = rig.cloud.world.lock().octavia.balancers[0]["tags"].clone();
    let wrong = with(&web, "loadbalancer.openstack.org/class", "none");
    assert_eq!(rig.ensure(&wrong).await.unwrap_err().kind, ErrorKind::Invalid);
    rig.writes();
    rig.members_with(&wrong, &id, members(&[4], &[1])).await;
    assert_eq!(rig.nodes(), [2, 3, 4]);
    assert_eq!(rig.writes(), ["loadbalancer_members_update"; 2]);
    assert_eq!(rig.cloud.world.lock().octavia.balancers[0]["tags"], before);
    let world = Arc::clone(&rig.cloud);
    assert_eq!(world.world.lock().octavia.listeners.len(), 2);
}
