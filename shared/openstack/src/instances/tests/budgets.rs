//! Tests how many requests the work costs.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;

/// Returns the operations and how often each came.
fn counted(rig: &Rig) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for operation in rig.cloud.operations() {
        *counts.entry(operation).or_default() += 1;
    }
    counts
}

fn total(counts: &BTreeMap<&'static str, usize>) -> usize {
    counts.values().sum()
}

#[tokio::test]
async fn a_refresh_of_300_servers() {
    let rig = Rig::new(Scripted::with_servers(0..300));
    for _ in 0..3 {
        assert_eq!(rig.refreshed().await.len(), 300);
        assert_eq!(counted(&rig), [("port_list", 2), ("server_list", 1)].into(), "3 requests");
    }
}

#[tokio::test]
async fn a_refresh_of_20_nodes_in_a_project_of_10_000_servers() {
    let rig = Rig::new(Scripted::with_servers(0..10_000));
    let nodes: Vec<_> = (5_000..5_020).map(known).collect();
    // The first lookup learns from a page that the project is large.
    for pages in [1, 0, 0] {
        assert!(rig.look_all(&nodes).await.iter().all(Result::is_ok));
        let mut counts = counted(&rig);
        assert_eq!(counts.remove("server_list").unwrap_or_default(), pages);
        assert_eq!(counts, [("port_list", 1), ("server_get", 20)].into());
    }
    assert_eq!(rig.instances.list(call()).await.unwrap().instances.len(), 10_000);
    assert_eq!(counted(&rig), [("server_list", 11)].into(), "the ports are not needed");
}

#[tokio::test]
async fn twenty_new_nodes_at_once() {
    for node in [fresh, named, known] {
        let rig = Rig::new(Scripted::with_servers(0..300));
        let nodes: Vec<_> = (100..120).map(node).collect();
        for (number, answer) in (100..120).zip(rig.look_all(&nodes).await) {
            assert_eq!(found(&answer), format!("node-{number:05}"));
        }
        assert_eq!(counted(&rig), [("port_list", 1), ("server_list", 1)].into());
    }
}

#[tokio::test]
async fn a_restart_with_300_nodes() {
    let rig = Rig::new(Scripted::with_servers(0..300));
    let nodes: Vec<_> = (0..300).map(known).collect();
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_ok));
    assert_eq!(rig.refreshed().await.len(), 300);
    let counts = counted(&rig);
    assert!(total(&counts) <= 6, "{counts:?}");
}

#[tokio::test]
async fn one_node() {
    for node in [fresh, named, known] {
        let rig = Rig::new(Scripted::with_servers(0..300));
        assert_eq!(found(&rig.look(node(7)).await), "node-00007");
        assert_eq!(total(&counted(&rig)), 2);
    }
    let rig = Rig::new(Scripted::with_servers(0..300));
    let nodes = [known(1), known(2), known(3)];
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_ok));
    assert_eq!(counted(&rig), [("port_list", 1), ("server_get", 3)].into());
    // From the fourth node on, a list is cheaper.
    let nodes = [known(1), with_id(9, "aws:///x"), known(2), known(3), known(4)];
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_ok));
    assert_eq!(counted(&rig), [("port_list", 1), ("server_list", 1)].into());
}

#[tokio::test]
async fn an_empty_lookup_makes_no_request() {
    let rig = Rig::new(Scripted::with_servers(0..5));
    assert_eq!(rig.look_all(&[]).await, []);
    let foreign: Vec<_> = (0..9).map(|number| with_id(number, "aws:///i-1")).collect();
    rig.look_all(&foreign).await;
    assert_eq!(counted(&rig), BTreeMap::new());
    let rig = Rig::new(Scripted::default());
    assert_eq!(rig.instances.list(call()).await, Ok(ccm_cloud::Fleet::default()));
    assert_eq!(counted(&rig), [("server_list", 1)].into(), "no servers, no ports");
}

#[tokio::test]
async fn a_large_project_is_not_listed_for_a_few_nodes() {
    let rig = Rig::new(Scripted::with_servers(0..2_000));
    // 2000 servers fill two pages, so a third page is requested.
    assert_eq!(rig.refreshed().await.len(), 2_000);
    assert_eq!(counted(&rig), [("port_list", 13), ("server_list", 3)].into());
    let nodes: Vec<_> = (0..20).map(known).collect();
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_ok));
    assert_eq!(counted(&rig), [("port_list", 1), ("server_get", 20)].into());
    let nodes: Vec<_> = (0..200).map(known).collect();
    assert!(rig.look_all(&nodes).await.iter().all(Result::is_ok));
    assert_eq!(counted(&rig), [("port_list", 2), ("server_list", 3)].into());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_can_prove_nothing_is_not_asked_for() {
    let list = ("server_list", 2);
    let old = Rig::new(Scripted::with_servers(0..30));
    old.cloud.world.lock().spoken.0 = None;
    for node in [named(404), fresh(404)] {
        let by_uuid = usize::from(node.system_uuid.is_some());
        assert_eq!(error(&old.look(node).await).kind, ccm_cloud::ErrorKind::Unavailable);
        let mut counts = counted(&old);
        assert_eq!(counts.remove("server_get").unwrap_or_default(), by_uuid);
        assert_eq!(counts, [("server_list", 1)].into(), "the search by name");
    }
    let large = Rig::new(Scripted::with_servers(0..30));
    large.cloud.world.lock().page = Some(10);
    for searched in [2, 1, 1] {
        assert_eq!(error(&large.look(named(404)).await).kind, ccm_cloud::ErrorKind::Unavailable);
        assert_eq!(counted(&large), [("server_list", searched)].into());
    }
    // The project may have become smaller.
    large.cloud.world.lock().servers.truncate(5);
    tokio::time::advance(Duration::from_mins(10)).await;
    for _ in 0..2 {
        assert!(matches!(large.look(named(404)).await, Ok(Lookup::Gone(_))));
        assert_eq!(counted(&large), [list].into(), "the search by name, the list");
    }
}

#[tokio::test]
async fn no_more_than_eight_at_once() {
    let rig = Rig::new(Scripted::with_servers(0..4));
    let nodes: Vec<_> = (0..50).map(known).collect();
    let gone =
        rig.look_all(&nodes).await.iter().filter(|a| matches!(a, Ok(Lookup::Gone(_)))).count();
    assert_eq!(gone, 46);
    let most = rig.cloud.world.lock().under_way.1;
    assert!((8..=9).contains(&most), "{most}: eight servers, and their ports");
}

#[tokio::test]
async fn names_of_networks_cost_one_request() {
    let rig = Rig::shaped(Scripted::with_servers(0..300), |config| {
        config.networking.internal_networks = vec!["k8s".to_owned(), "storage".to_owned()];
    });
    rig.refreshed().await;
    let counts = counted(&rig);
    assert_eq!(counts, [("port_list", 2), ("server_list", 1)].into(), "servers tell the names");
    {
        let mut world = rig.cloud.world.lock();
        for port in world.ports.iter_mut().take(200) {
            let trunk = json!({"sub_ports": [{"port_id": uuid(5_000_000)}]});
            port["trunk_details"] = trunk;
        }
        let storage = uuid(78);
        world.ports.push(json!({
            "id": uuid(5_000_000), "device_id": "", "status": "ACTIVE", "network_id": storage,
            "fixed_ips": [{"ip_address": "10.9.0.1"}],
        }));
        world.networks.push(json!({"id": storage, "name": "storage"}));
    }
    for networks in [1, 0] {
        let fleet = rig.refreshed().await;
        assert_eq!(fleet[0].addresses[1].address, "10.9.0.1");
        assert_eq!(fleet[200].addresses.len(), 1);
        let mut counts = counted(&rig);
        assert_eq!(counts.remove("network_list").unwrap_or_default(), networks);
        assert_eq!(counts, [("port_list", 3), ("server_list", 1)].into());
    }
    // Old names are used while Neutron does not answer. The lookup waits for unknown names.
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(11)).await;
    let down = CloudError::new(ccm_cloud::ErrorKind::Unavailable, "no");
    rig.cloud.fail(move |path, _| path.starts_with("/networks").then(|| Err(down.clone())));
    assert_eq!(rig.refreshed().await[0].addresses.len(), 2);
    // The name is requested, but the lookup does not wait for it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(counted(&rig).remove("network_list"), Some(1));
    rig.cloud.world.lock().ports[300]["network_id"] = json!(uuid(79));
    assert!(rig.refresh().await.iter().all(Result::is_err));
}
