//! Load balancers that openstack-cloud-controller-manager has made, and the way back.

use ccm_cloud::{
    Depth, ErrorKind, LoadBalancer, LoadBalancers as _, Progress, Scope, Title, Wanted,
};
use ccm_openstack_client::scripted::uuid;
use serde_json::{Value, json};

use super::rig::{Rig, annotated, changed, owner, wanted};

const NAME: &str = "kube_service_prod_default_web";

/// Returns a load balancer as openstack-cloud-controller-manager makes it for the usual Service:
/// without UIDs and digest, and with its own defaults.
async fn made_by_the_other(rig: &Rig, web: &Wanted) -> LoadBalancer {
    let made = rig.settle(web).await;
    let mut world = rig.cloud.world.lock();
    world.octavia.balancers[0]["tags"] = json!([NAME]);
    for row in &mut world.octavia.listeners {
        row["tags"] = json!([NAME]);
    }
    for row in &mut world.octavia.pools {
        row["tags"] = json!([]);
    }
    world.floating.ips.iter_mut().for_each(|ip| ip["tags"] = json!([]));
    made
}

/// Returns everything but the record of the owner, and what changes with each write.
fn without_record(rig: &Rig) -> Value {
    let world = rig.cloud.world.lock();
    let clean = |rows: &[Value]| -> Vec<Value> {
        let mut rows = rows.to_vec();
        for row in &mut rows {
            for key in ["tags", "updated_at", "revision_number"] {
                row.as_object_mut().unwrap().remove(key);
            }
        }
        rows
    };
    let octavia = &world.octavia;
    json!([
        clean(&octavia.balancers),
        clean(&octavia.listeners),
        clean(&octavia.pools),
        clean(&octavia.members),
        clean(&octavia.monitors),
        clean(&world.floating.ips),
    ])
}

/// Settings that the other controller omits, or does not know, do not count as differences.
#[tokio::test]
async fn adoption_changes_nothing_that_the_other_leaves_out() {
    let plain = wanted("web");
    let udp = changed(&plain, |it| {
        it.ports = vec![super::port(53, ccm_cloud::Protocol::Udp)];
        it.affinity = Some(std::time::Duration::from_secs(10_800));
    });
    let full =
        annotated(&annotated(&plain, "enable-health-monitor", "true"), "proxy-protocol", "v1");
    for web in [udp, full] {
        let first = Rig::new();
        let made = made_by_the_other(&first, &web).await;
        // It knows of no time for UDP.
        for pool in &mut first.cloud.world.lock().octavia.pools {
            if !pool["session_persistence"].is_null() {
                pool["session_persistence"]["persistence_timeout"] = Value::Null;
            }
        }
        let rig = first.restarted();
        let before = without_record(&rig);
        let adopting = Wanted { adopt: Some(made.id.clone()), ..web.clone() };
        let lines = rig.preview(&adopting).await.unwrap();
        assert!(lines.iter().all(|line| line.starts_with("record ")), "{lines:?}");
        rig.writes();
        assert!(matches!(rig.ensure(&adopting).await, Ok(Progress::InProgress(_))));
        assert_eq!(rig.writes(), ["loadbalancer_update"]);
        rig.settle(&adopting).await;
        assert_eq!(rig.writes(), ["floating_ip_tags_update"]);
        assert_eq!(without_record(&rig), before);
        let tags = &rig.rows("balancers")[0]["tags"];
        assert!(tags.as_array().unwrap().contains(&json!(NAME)), "the other one finds it again");
    }
}

#[tokio::test]
async fn names_of_before_there_were_tags_are_known_and_other_clusters_tags_are_respected() {
    let rig = Rig::new();
    rig.stranger("legacy", "a0123456789abcdef0123456789abcde", &[]);
    rig.stranger("theirs", NAME, &[NAME, "kubernetes-cluster-id=c-2", "kubernetes-service-uid=x"]);
    let adopting = |id: &str| Wanted { adopt: Some(id.to_owned()), ..wanted("web") };
    assert_eq!(rig.ensure(&adopting("theirs")).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(rig.writes(), [""; 0]);
    let answer = rig.preview(&adopting("legacy")).await;
    assert_eq!(answer.unwrap_err().kind, ErrorKind::Conflict);
}

/// Two Services of the other controller on one load balancer: the list says for which of them it
/// was made, the annotation leads there from both, and no Service gets a second one.
#[tokio::test]
async fn what_services_share_stays_and_no_second_one_is_made() {
    let first = Rig::new();
    let made = made_by_the_other(&first, &wanted("web")).await;
    let api = "kube_service_prod_default_api";
    first.cloud.world.lock().octavia.balancers[0]["tags"] = json!([NAME, api]);
    let rig = first.restarted();
    rig.writes();
    let before = without_record(&rig);
    let annotation = rig.balancers.traits().id_annotation;
    assert_eq!(annotation.as_deref(), Some("loadbalancer.openstack.org/load-balancer-id"));
    let list = rig.list(Scope::All, Depth::Summary).await.load_balancers;
    assert_eq!((list.len(), &list[0].title), (1, &Title::Shared { others: 1 }));
    assert_eq!(list[0].owner.as_ref().unwrap().to_string(), "default/web");
    for name in ["web", "api"] {
        let named = Wanted { known: Some(made.id.clone()), ..wanted(name) };
        let asked = Wanted { adopt: Some(made.id.clone()), ..named.clone() };
        for wanted in [named, asked] {
            let error = rig.ensure(&wanted).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
            for words in [&*made.id, "2 Services share it", "not managed yet"] {
                assert!(error.message.contains(words), "{error}");
            }
        }
    }
    assert_eq!((rig.writes(), without_record(&rig)), (vec![], before));
    // The other Service leaves it.
    rig.cloud.world.lock().octavia.balancers[0]["tags"] = json!([NAME]);
    let adopting = Wanted { adopt: Some(made.id.clone()), ..wanted("web") };
    assert_eq!(rig.settle(&adopting).await.id, made.id);
}

/// A cluster that was rebuilt has another UID. Nothing shows that it is not a neighbour of the same
/// name, so its load balancer is left alone until an operator removes the old tags.
#[tokio::test]
async fn what_a_rebuilt_cluster_had_is_adopted_after_its_tags_were_removed() {
    let rig = Rig::new();
    let mut before = wanted("web");
    let front_end = std::sync::Arc::make_mut(&mut before.front_end);
    front_end.owner.cluster.uid = "c-0".to_owned();
    front_end.owner.uid = "uid-before".to_owned();
    let old = rig.settle(&before).await;
    let rig = rig.restarted();
    rig.writes();
    let list = rig.list(Scope::All, Depth::Summary).await.load_balancers;
    assert_eq!(list[0].title, Title::Foreign);
    assert_eq!(list[0].owner.as_ref(), Some(&before.front_end.owner), "it says whose it is");
    let adopting = Wanted { adopt: Some(old.id.clone()), ..wanted("web") };
    let error = rig.ensure(&adopting).await.unwrap_err();
    assert_eq!((error.kind, rig.writes().len()), (ErrorKind::Conflict, 0));
    let tags = ["kubernetes-cluster-id=c-0", "kubernetes-service-uid=uid-before"];
    for words in ["can be adopted", "does not exist any more", tags[0], tags[1]] {
        assert!(error.message.contains(words), "{error}");
    }
    // With the client of OpenStack, of the load balancer alone.
    {
        let mut world = rig.cloud.world.lock();
        let own = world.octavia.balancers[0]["tags"].as_array_mut().unwrap();
        own.retain(|tag| !tags.contains(&tag.as_str().unwrap()));
    }
    let adopted = rig.settle(&adopting).await;
    assert_eq!((&adopted.id, &adopted.ingress), (&old.id, &old.ingress));
    assert_eq!((adopted.title, adopted.owner), (Title::Ours, Some(owner("web"))));
    let ip = rig.cloud.world.lock().floating.ips[0]["tags"].clone();
    assert_eq!(ip, json!(["kubernetes-cluster-id=c-1", "kubernetes-service-uid=uid-web"]));
    // From now on it is like any other, to its end.
    let more = changed(&wanted("web"), |it| {
        it.ports.push(super::port(8080, ccm_cloud::Protocol::Tcp));
    });
    assert_eq!(rig.settle(&more).await.id, old.id);
    rig.deleted(&rig.unwanted(&more)).await;
    assert!(rig.rows("balancers").is_empty() && rig.cloud.world.lock().floating.ips.is_empty());
}

/// An adopted load balancer keeps the properties that the provider does not manage yet.
#[tokio::test]
async fn what_is_not_managed_yet_goes_on() {
    let first = Rig::new();
    let made = made_by_the_other(&first, &wanted("web")).await;
    let mut options = first.options.clone();
    options.load_balancer.manage_security_groups = true;
    options.load_balancer.serial_calls = true;
    options.networks.floating_subnet = Some("public-*".to_owned());
    let rig = Rig {
        balancers: super::super::OctaviaBalancers::new(
            &(std::sync::Arc::clone(&first.cloud) as _),
            options.clone(),
        ),
        options,
        cloud: std::sync::Arc::clone(&first.cloud),
    };
    let adopted = rig.settle(&Wanted { adopt: Some(made.id.clone()), ..wanted("web") }).await;
    assert_eq!(adopted.notes.len(), 3, "{:?}", adopted.notes);
    assert!(adopted.notes.iter().all(|note| note.warning), "they are in the condition");
    let text: String = adopted.notes.iter().map(|note| note.message.as_str()).collect();
    assert!(text.contains("[LoadBalancer] manage-security-groups"), "{text}");
    assert!(text.contains("[LoadBalancer] floating-subnet"), "{text}");
    assert!(text.contains("[LoadBalancer] provider-requires-serial-api-calls"), "{text}");
    rig.members_set("web", &made.id, super::members(&[4], &[1])).await;
    assert_eq!(rig.nodes(), [2, 3, 4]);
    // A new Service is refused, with all that is wrong.
    let error = rig.ensure(&wanted("new")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("manage-security-groups"), "{error}");
    assert!(error.message.contains("floating-subnet-id"), "{error}");
}

/// In `ERROR` its data plane often still serves: it is not deleted while no new one can be created.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_created_again_is_not_deleted() {
    let first = Rig::new();
    let id = rig_in_error(&first).await;
    let known = Wanted { known: Some(id.clone()), ..wanted("web") };
    let process = |change: &dyn Fn(&mut crate::config::Config)| {
        let mut options = first.options.clone();
        change(&mut options);
        let cloud = std::sync::Arc::clone(&first.cloud);
        let balancers = super::super::OctaviaBalancers::new(
            &(std::sync::Arc::clone(&cloud) as _),
            options.clone(),
        );
        Rig { cloud, balancers, options }
    };
    let managed = process(&|options| options.load_balancer.manage_security_groups = true);
    let nowhere = process(&|options| options.networks.subnet_id = None);
    let by_ovn = process(&|options| options.load_balancer.provider = "ovn".to_owned());
    first.cloud.world.lock().octavia.providers = vec!["ovn", "amphora"];
    let proxy = annotated(&known, "proxy-protocol", "v1");
    let taken = process(&|_| {});
    taken.floating_ip("172.24.9.9", "mine");
    taken.cloud.world.lock().floating.ips[1]["port_id"] = json!("another's");
    let wish = changed(&known, |it| it.address = "172.24.9.9".parse().ok());
    let tls = annotated(&known, "default-tls-container-ref", "https://barbican/v1/secrets/x");
    let mut without_nodes = known.clone();
    without_nodes.members.present = [].into();
    for (rig, wanted, words) in [
        (&managed, &known, "manage-security-groups"),
        (&first, &tls, "default-tls-container-ref"),
        (&by_ovn, &proxy, "proxy-protocol"),
        (&nowhere, &without_nodes, "no node has"),
        (&taken, &wish, "another's"),
    ] {
        rig.rested(wanted).await;
        rig.ensure(wanted).await.unwrap_err();
        rig.writes();
        for _ in 0..2 {
            let error = rig.ensure(wanted).await.unwrap_err();
            // Not final: what is missing may come.
            assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
            for words in [words, "ERROR", &id] {
                assert!(error.message.contains(words), "{error}");
            }
        }
        assert_eq!(rig.writes(), [""; 0], "{words}");
        assert!(rig.preview(wanted).await.unwrap_err().message.contains(words));
    }
    assert_eq!(rig_ids(&first), [id.as_str()]);
    assert_ne!(first.settle(&known).await.id, id);
}

async fn rig_in_error(rig: &Rig) -> String {
    let made = made_by_the_other(rig, &wanted("web")).await;
    rig.settle(&Wanted { adopt: Some(made.id.clone()), ..wanted("web") }).await;
    rig.cloud.world.lock().octavia.break_down(&made.id);
    made.id
}

fn rig_ids(rig: &Rig) -> Vec<String> {
    rig.rows("balancers").iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// A listener with TLS that the other controller has made stays as it is.
#[tokio::test]
async fn tls_of_before_stays() {
    let first = Rig::new();
    let web = changed(&wanted("web"), |it| it.ports.truncate(1));
    let made = made_by_the_other(&first, &annotated(&web, "x-forwarded-for", "true")).await;
    first.cloud.world.lock().octavia.listeners[0]["protocol"] = json!("TERMINATED_HTTPS");
    let tls = annotated(&web, "default-tls-container-ref", "https://barbican/v1/secrets/x");
    let tls = annotated(&tls, "x-forwarded-for", "true");
    let rig = first.restarted();
    let before = without_record(&rig);
    let adopted = rig.settle(&Wanted { adopt: Some(made.id), ..tls.clone() }).await;
    assert_eq!(without_record(&rig), before);
    assert_eq!(adopted.notes.len(), 1, "{:?}", adopted.notes);
    // Another port with TLS is not made.
    let more = changed(&tls, |it| it.ports.push(super::port(8443, ccm_cloud::Protocol::Tcp)));
    let error = rig.ensure(&more).await.unwrap_err();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("tls-container"), "{error}");
}

/// The other controller finds by name and tag, and compares listeners by their tag.
#[tokio::test]
async fn the_way_back_needs_no_change() {
    let rig = Rig::new();
    rig.settle(&wanted("web")).await;
    let row = &rig.rows("balancers")[0];
    assert_eq!(row["name"], NAME);
    assert_eq!(row["vip_subnet_id"], uuid(1));
    for listener in rig.rows("listeners") {
        assert!(listener["tags"].as_array().unwrap().contains(&json!(NAME)));
        assert_eq!(listener["allowed_cidrs"], json!(["0.0.0.0/0"]));
        assert_eq!(listener["connection_limit"], -1);
    }
    for (place, pool) in rig.rows("pools").iter().enumerate() {
        assert_eq!(pool["name"], format!("pool_{place}_{NAME}"));
    }
    for member in rig.rows("members") {
        assert!(member["name"].as_str().unwrap().starts_with("node-"));
        assert_eq!(member["subnet_id"], uuid(1));
        assert_eq!(member["monitor_port"], Value::Null);
    }
}
