//! Tests a cluster that gets another name, and listeners that others add.

use std::sync::Arc;

use ccm_cloud::{Depth, ErrorKind, LoadBalancers as _, Protocol, Scope, Title, Wanted};
use serde_json::{Value, json};

use super::rig::{Rig, annotated, call, changed, members, port, wanted};

const NAME: &str = "kube_service_prod_default_web";

/// Returns the same Service of the same cluster, whose name has changed.
fn renamed(wanted: &Wanted) -> Wanted {
    let mut wanted = wanted.clone();
    Arc::make_mut(&mut wanted.front_end).owner.cluster.name = "staging".to_owned();
    wanted
}

/// Returns the names that openstack-cloud-controller-manager reads in the tags of an object.
fn names_of(row: &Value) -> Vec<&str> {
    let tags = row["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap());
    tags.filter(|tag| tag.starts_with("kube_service_")).collect()
}

#[tokio::test]
async fn another_cluster_name_renames_nothing_and_locks_nothing() {
    let rig = Rig::new();
    let web = renamed(&wanted("web"));
    let made = rig.settle(&wanted("web")).await;
    let rig = rig.restarted();
    rig.writes();
    assert_eq!(rig.settle(&web).await.id, made.id);
    assert_eq!(rig.writes(), [""; 0], "a name is not configuration");
    let owner = &web.front_end.owner;
    let list = rig.balancers.list(&owner.cluster, Scope::All, Depth::Summary, call()).await;
    let shown = list.unwrap().load_balancers.remove(0);
    assert_eq!((shown.title, shown.owner.as_ref()), (Title::Ours, Some(owner)));
    // It works like any other load balancer: a new port, members of all ports, and its deletion.
    let more = annotated(&web, "enable-health-monitor", "true");
    let more = changed(&more, |it| it.ports.push(port(8080, Protocol::Tcp)));
    assert_eq!(rig.settle(&more).await.id, made.id);
    rig.members_with(&more, &made.id, members(&[1, 2, 3, 4], &[])).await;
    assert_eq!((rig.nodes(), rig.rows("members").len()), (vec![1, 2, 3, 4], 12));
    // The other controller finds it by either name of the cluster: all objects have the same name.
    for kind in ["balancers", "listeners", "pools", "monitors"] {
        for row in rig.rows(kind) {
            assert!(row["name"].as_str().unwrap().ends_with(NAME), "{row}");
            assert!(kind == "monitors" || names_of(&row) == [NAME], "{row}");
        }
    }
    rig.deleted(&rig.unwanted(&more)).await;
    assert!(rig.rows("balancers").is_empty() && rig.cloud.world.lock().floating.ips.is_empty());
    // A new load balancer has the new name.
    rig.settle(&more).await;
    assert_eq!(names_of(&rig.rows("balancers")[0]), ["kube_service_staging_default_web"]);
}

/// This also holds for a load balancer whose own name says nothing.
#[tokio::test]
async fn a_load_balancer_has_one_name_in_its_tags() {
    let rig = Rig::new();
    let made = rig.settle(&wanted("web")).await;
    rig.cloud.world.lock().octavia.balancers[0]["name"] = json!("mine");
    let web = renamed(&changed(&wanted("web"), |it| it.ports.push(port(8080, Protocol::Tcp))));
    rig.settle(&web).await;
    assert_eq!(names_of(&rig.rows("balancers")[0]), [NAME]);
    rig.members_with(&web, &made.id, members(&[4], &[1])).await;
    assert_eq!((rig.nodes(), rig.rows("members").len()), (vec![2, 3, 4], 9));
}

/// Adds a listener with a pool to the load balancer, as the client of OpenStack does.
fn add_listener(rig: &Rig, name: &str, number: u16) -> String {
    let octavia = &mut rig.cloud.world.lock().octavia;
    let (mut listener, mut pool) = (octavia.listeners[0].clone(), octavia.pools[0].clone());
    let ids = [name, number.to_string().as_str()].join("-");
    (pool["id"], pool["name"], pool["tags"]) = (json!(format!("{ids}-pool")), json!(""), json!([]));
    for (key, value) in [
        ("id", json!(ids)),
        ("name", json!(name)),
        ("tags", json!([])),
        ("protocol_port", json!(number)),
        ("default_pool_id", pool["id"].clone()),
    ] {
        listener[key] = value;
    }
    octavia.listeners.push(listener);
    octavia.pools.push(pool);
    ids
}

fn ports(rig: &Rig) -> Vec<u64> {
    let rows = rig.rows("listeners");
    rows.iter().map(|row| row["protocol_port"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_listener_of_a_person_stays_with_its_pool() {
    for name in ["", "metrics", "listener", "listener_x"] {
        let rig = Rig::new();
        let web = wanted("web");
        let made = rig.settle(&web).await;
        let id = add_listener(&rig, name, 9999);
        rig.writes();
        assert_eq!(rig.settle(&web).await.id, made.id);
        assert_eq!(rig.writes(), [""; 0], "{name:?}");
        let fewer = changed(&web, |it| it.ports.truncate(1));
        rig.settle(&fewer).await;
        assert_eq!((ports(&rig), rig.rows("pools").len()), (vec![80, 9999], 2), "{name:?}");
        // It does not cause a full comparison at each look.
        let shown = rig.shown(&made.id, Depth::Members).await;
        assert_eq!(shown.digest, Some(fewer.front_end.digest), "{name:?}");
        // The Service cannot have its port, and gets an error that says whose it is.
        let both = changed(&fewer, |it| it.ports.push(port(9999, Protocol::Tcp)));
        rig.writes();
        let error = rig.ensure(&both).await.unwrap_err();
        assert_eq!((error.kind, rig.writes().len()), (ErrorKind::Conflict, 0), "{error}");
        assert!(error.message.contains(&id), "{error}");
    }
}

/// Objects that are named after the load balancer were made before tags existed.
#[tokio::test]
async fn a_listener_of_an_old_layout_goes_with_its_port() {
    for name in [format!("listener_7_{NAME}"), format!("listener_{NAME}_7")] {
        let rig = Rig::new();
        let web = wanted("web");
        rig.settle(&web).await;
        add_listener(&rig, &name, 9999);
        let same = changed(&web, |it| it.ports.push(port(9999, Protocol::Tcp)));
        rig.settle(&same).await;
        assert_eq!(ports(&rig), [80, 443, 9999], "{name}");
        rig.settle(&web).await;
        assert_eq!((ports(&rig), rig.rows("pools").len()), (vec![80, 443], 2), "{name}");
    }
}
