//! Tests answers that lack ports, or contain ports that cannot be read.

use ccm_cloud::ErrorKind;
use ccm_openstack_client::scripted::port;
use serde_json::{Value, json};

use super::*;

/// The MAC address of server 1's second port.
const SECOND: &str = "fa:16:3e:ff:00:01";
const SUB_PORT: usize = 5_000_000;

/// Returns three servers. The second one has two ports, one of which carries another port.
fn rig() -> Rig {
    let rig = Rig::new(Scripted::with_servers(0..3));
    rig.cloud.change(
        1,
        "addresses",
        json!({
            "k8s": [fixed("10.0.0.2", "fa:16:3e:00:00:01"), floating("203.0.113.1")],
            "storage": [fixed("10.8.0.2", &SECOND.to_uppercase())],
        }),
    );
    let sub = json!({"id": uuid(SUB_PORT), "device_id": "", "status": "ACTIVE",
                     "network_id": uuid(78), "fixed_ips": [{"ip_address": "10.9.0.1"}]});
    let mut world = rig.cloud.world.lock();
    world.ports.push(second());
    world.ports.push(sub);
    world.networks = vec![json!({"id": uuid(78), "name": "trunked"})];
    drop(world);
    rig
}

fn second() -> Value {
    let mut second = port(1);
    second["id"] = json!(uuid(2_000_000));
    second["network_id"] = json!(uuid(79));
    second["mac_address"] = json!(SECOND);
    second["fixed_ips"] = json!([{"ip_address": "10.8.0.2"}]);
    second["trunk_details"] = json!({"sub_ports": [{"port_id": uuid(SUB_PORT)}]});
    second
}

fn fixed(ip: &str, mac: &str) -> Value {
    json!({"addr": ip, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": mac})
}

fn floating(ip: &str) -> Value {
    json!({"addr": ip, "OS-EXT-IPS:type": "floating", "OS-EXT-IPS-MAC:mac_addr": SECOND})
}

/// Hides the ports of these IDs; the list answers 200 all the same.
fn hide(rig: &Rig, hidden: &[String]) {
    let mut world = rig.cloud.world.lock();
    world.ports.retain(|port| !hidden.iter().any(|id| port["id"] == **id));
}

/// Returns server 1's internal addresses from a refresh and from a lookup, or the kind of the error
/// and the line that both report.
async fn addresses(rig: &Rig) -> Result<Vec<String>, (ErrorKind, String)> {
    let all = rig.refresh().await;
    let answer = rig.look(known(1)).await;
    assert_eq!(all[1], answer);
    match answer {
        Err(error) => {
            let found = all.iter().filter(|answer| answer.is_ok()).count();
            assert_eq!(found, 2, "the others are shown");
            Err((error.kind, error.message))
        }
        Ok(Lookup::Found(instance)) => {
            assert!(all.iter().all(Result::is_ok));
            let internal =
                |a: &&ccm_cloud::NodeAddress| a.kind == ccm_cloud::AddressKind::InternalIp;
            Ok(instance.addresses.iter().filter(internal).map(|a| a.address.clone()).collect())
        }
        other => panic!("{other:?}"),
    }
}

const ALL: [&str; 3] = ["10.0.0.2", "10.8.0.2", "10.9.0.1"];

#[expect(clippy::unnecessary_wraps, reason = "it is compared with a result")]
fn is(expect: &[&str]) -> Result<Vec<String>, (ErrorKind, String)> {
    Ok(expect.iter().map(|text| (*text).to_owned()).collect())
}

#[track_caller]
fn refused(answer: Result<Vec<String>, (ErrorKind, String)>, kind: ErrorKind, parts: &[&str]) {
    let (told, line) = answer.unwrap_err();
    assert_eq!(told, kind, "{line}");
    assert!(line.contains(&uuid(1)), "{line}");
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
}

#[tokio::test]
async fn a_sub_port_that_cannot_be_read_fails_its_server_alone() {
    let rig = rig();
    assert_eq!(addresses(&rig).await, is(&ALL));
    rig.cloud.world.lock().ports[4]["fixed_ips"] = json!(17);
    refused(addresses(&rig).await, ErrorKind::Malformed, &[&uuid(SUB_PORT), "invalid type"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_any_port_is_refused_as_long_as_nova_lists_its_addresses() {
    let rig = rig();
    assert_eq!(addresses(&rig).await, is(&ALL));
    hide(&rig, &[uuid(1_000_001), uuid(2_000_000)]);
    for _ in 0..3 {
        refused(addresses(&rig).await, ErrorKind::Unavailable, &["fa:16:3e:00:00:01"]);
        tokio::time::advance(Duration::from_hours(1)).await;
    }
    rig.cloud.change(1, "addresses", json!({}));
    assert_eq!(addresses(&rig).await, is(&[]));
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_ports_are_never_shown_is_described_without_them_in_the_end() {
    let rig = rig();
    hide(&rig, &[uuid(1_000_001), uuid(2_000_000)]);
    for _ in 0..2 {
        refused(addresses(&rig).await, ErrorKind::Unavailable, &["fa:16:3e:00:00:01"]);
        tokio::time::advance(Duration::from_secs(30)).await;
    }
    assert_eq!(addresses(&rig).await, is(&["10.0.0.2", "10.8.0.2"]), "by Nova's list alone");
}

#[tokio::test]
async fn an_empty_list_of_ports_is_believed_only_where_none_was_ever_shown() {
    let blind = rig();
    blind.cloud.world.lock().ports.clear();
    assert_eq!(addresses(&blind).await, is(&["10.0.0.2", "10.8.0.2"]));

    let rig = rig();
    assert_eq!(addresses(&rig).await, is(&ALL));
    rig.cloud.world.lock().ports.clear();
    assert!(rig.refresh().await.iter().all(Result::is_err));
    assert_eq!(error(&rig.look(known(0)).await).kind, ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_missed_is_waited_for_and_then_given_up() {
    for (hidden, named, without) in [
        (uuid(2_000_000), SECOND.to_owned(), ["10.0.0.2", "10.8.0.2"].as_slice()),
        (uuid(SUB_PORT), uuid(SUB_PORT), &["10.0.0.2", "10.8.0.2"]),
    ] {
        let rig = rig();
        assert_eq!(addresses(&rig).await, is(&ALL));
        let ports = rig.cloud.world.lock().ports.clone();
        hide(&rig, std::slice::from_ref(&hidden));
        refused(addresses(&rig).await, ErrorKind::Unavailable, &[&named]);
        rig.cloud.world.lock().ports.clone_from(&ports);
        assert_eq!(addresses(&rig).await, is(&ALL), "it is back");
        // The time starts again here.
        tokio::time::advance(Duration::from_mins(20)).await;
        hide(&rig, &[hidden]);
        for minute in [0, 5, 9] {
            refused(addresses(&rig).await, ErrorKind::Unavailable, &[&named]);
            tokio::time::advance(Duration::from_mins(if minute == 9 { 1 } else { 4 })).await;
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        for _ in 0..2 {
            assert_eq!(addresses(&rig).await, is(without), "what is left, in the same order");
        }
    }
}

#[tokio::test]
async fn a_port_that_is_detached_is_gone_once_nova_says_so() {
    let rig = rig();
    assert_eq!(addresses(&rig).await, is(&ALL));
    hide(&rig, &[uuid(2_000_000)]);
    refused(addresses(&rig).await, ErrorKind::Unavailable, &[SECOND]);
    let left = json!({"k8s": [fixed("10.0.0.2", "fa:16:3e:00:00:01")]});
    rig.cloud.change(1, "addresses", left);
    assert_eq!(addresses(&rig).await, is(&["10.0.0.2"]));
}

#[tokio::test]
async fn a_trunk_may_let_go_of_a_port() {
    let rig = rig();
    assert_eq!(addresses(&rig).await, is(&ALL));
    rig.cloud.world.lock().ports[3]["trunk_details"] = json!({"sub_ports": []});
    hide(&rig, &[uuid(SUB_PORT)]);
    assert_eq!(addresses(&rig).await, is(&["10.0.0.2", "10.8.0.2"]));
}

#[tokio::test]
async fn addresses_that_name_no_port_are_accepted() {
    // A new port is not shown by Neutron yet, and Nova does not report MAC addresses.
    let rig = rig();
    assert_eq!(addresses(&rig).await, is(&ALL));
    rig.cloud.change(
        1,
        "addresses",
        json!({"k8s": [fixed("10.0.0.2", "fa:16:3e:00:00:01")],
               "storage": [fixed("10.8.0.2", SECOND), fixed("10.8.0.3", "fa:16:3e:ff:00:02")]}),
    );
    assert_eq!(addresses(&rig).await, is(&["10.0.0.2", "10.8.0.2", "10.8.0.3", "10.9.0.1"]));
    rig.cloud.change(1, "addresses", json!({"k8s": [{"addr": "10.0.0.2"}]}));
    hide(&rig, &[uuid(1_000_001), uuid(2_000_000)]);
    assert_eq!(addresses(&rig).await, is(&["10.0.0.2"]));
}

#[tokio::test(start_paused = true)]
async fn each_port_is_waited_for_by_itself() {
    let rig = rig();
    assert_eq!(addresses(&rig).await, is(&ALL));
    let ports = rig.cloud.world.lock().ports.clone();
    hide(&rig, &[uuid(2_000_000)]);
    refused(addresses(&rig).await, ErrorKind::Unavailable, &[SECOND]);
    tokio::time::advance(Duration::from_mins(9)).await;
    rig.cloud.world.lock().ports.clone_from(&ports);
    hide(&rig, &[uuid(SUB_PORT)]);
    for _ in 0..2 {
        refused(addresses(&rig).await, ErrorKind::Unavailable, &[&uuid(SUB_PORT)]);
        tokio::time::advance(Duration::from_mins(5)).await;
    }
    assert_eq!(addresses(&rig).await, is(&["10.0.0.2", "10.8.0.2"]));
}
