//! Tests requests that cannot be met: each look reports them, and nothing changes.

use std::sync::Arc;

use ccm_cloud::{IpFamily, Note, Protocol, Wanted};
use ccm_openstack_client::scripted::{subnet, uuid};
use serde_json::json;

use super::rig::{EXTERNAL, Rig, addresses, annotated, changed, port, wanted};
use crate::config::LoadBalancerClass;
use crate::{balancers::OctaviaBalancers, config::Config};

/// Changes the value of an option.
type Change = fn(&mut Config);

const KEPT: &str = "LoadBalancerNotChanged";

/// Returns another process with other options and the same services.
fn with_options(rig: &Rig, change: impl FnOnce(&mut Config)) -> Rig {
    let (cloud, mut options) = (Arc::clone(&rig.cloud), rig.options.clone());
    change(&mut options);
    let balancers = OctaviaBalancers::new(&(Arc::clone(&cloud) as _), options.clone());
    Rig { cloud, balancers, options }
}

/// Returns the notes of this process and of another one, which do not differ; and that nothing is
/// written.
async fn said(rig: &Rig, web: &Wanted) -> Vec<Note> {
    // Only the digest is recorded.
    rig.settle(web).await;
    rig.writes();
    let notes = rig.settle(web).await.notes;
    assert_eq!(rig.restarted().settle(web).await.notes, notes);
    assert_eq!(rig.writes(), [""; 0]);
    notes
}

fn only<'a>(notes: &'a [Note], reason: &str) -> &'a Note {
    let [note] = notes else { panic!("not one note: {notes:?}") };
    assert_eq!(note.reason, reason, "{note:?}");
    note
}

#[tokio::test]
async fn where_it_is_cannot_be_changed_by_an_annotation() {
    let rig = Rig::new();
    rig.cloud.world.lock().subnets.push(subnet(8, "10.9.0.0/24"));
    let web = wanted("web");
    rig.settle(&web).await;
    for (key, value, seen) in [
        ("network-id", uuid(78), uuid(77)),
        ("subnet-id", uuid(8), uuid(1)),
        ("member-subnet-id", uuid(8), uuid(1)),
        ("floating-network-id", uuid(51), uuid(EXTERNAL)),
    ] {
        let notes = said(&rig, &annotated(&web, key, &value)).await;
        let note = only(&notes, KEPT);
        assert!(note.warning, "the user asks for it: {note:?}");
        for words in [key, &value, &seen] {
            assert!(note.message.contains(words), "{key}: {note:?}");
        }
        // An existing value does not count as a difference.
        assert_eq!(said(&rig, &annotated(&web, key, &seen)).await, [], "{key}");
    }
    // A port takes precedence over network and subnet.
    let own = rig.rows("balancers")[0]["vip_port_id"].as_str().unwrap().to_owned();
    let placed = annotated(&annotated(&web, "port-id", &own), "network-id", &uuid(78));
    assert_eq!(said(&rig, &placed).await, []);
    assert_eq!(only(&said(&rig, &annotated(&web, "port-id", "p")).await, KEPT).reason, KEPT);
}

/// The class of a Service asks for it, too; a request of `cloud.conf` alone does not warn.
#[tokio::test]
async fn what_cloud_conf_says_later_is_for_new_ones() {
    let rig = Rig::new();
    let web = wanted("web");
    rig.settle(&web).await;
    let networks = LoadBalancerClass { network_id: Some(uuid(78)), ..Default::default() };
    let of_class = with_options(&rig, |options| {
        options.classes.insert("dmz".to_owned(), networks.clone());
    });
    let notes = said(&of_class, &annotated(&web, "class", "dmz")).await;
    assert!(only(&notes, KEPT).warning, "{notes:?}");
    assert!(notes[0].message.contains("[LoadBalancerClass \"dmz\"] network-id"), "{notes:?}");
    let all: [(&str, &str, Change); 6] = [
        ("network-id", "", |it| it.networks.network_id = Some(uuid(78))),
        ("subnet-id", "", |it| it.networks.subnet_id = Some(uuid(78))),
        ("floating-network-id", "", |it| it.networks.floating_network_id = Some(uuid(78))),
        ("flavor-id", "none", |it| it.load_balancer.flavor_id = Some(uuid(78))),
        ("availability-zone", "none", |it| it.load_balancer.availability_zone = Some(uuid(78))),
        ("lb-provider", "amphora", |it| it.load_balancer.provider = "ovn".to_owned()),
    ];
    for (key, seen, change) in all {
        let notes = said(&with_options(&rig, change), &web).await;
        let note = only(&notes, KEPT);
        assert!(!note.warning, "{key}: {note:?}");
        assert!(note.message.contains(&format!("[LoadBalancer] {key}")), "{note:?}");
        assert!(note.message.contains(seen), "{key}: {note:?}");
    }
    // These are three names of one driver.
    for name in ["octavia", "amphorav2", "amphora"] {
        let renamed = with_options(&rig, |it| it.load_balancer.provider = name.to_owned());
        assert_eq!(said(&renamed, &web).await, [], "{name}");
    }
}

#[tokio::test]
async fn a_floating_ip_stays_while_the_load_balancer_is_external() {
    let rig = Rig::new();
    {
        let mut world = rig.cloud.world.lock();
        let mut other = subnet(30, "198.51.100.0/24");
        other["network_id"] = json!(uuid(EXTERNAL));
        world.subnets.push(other);
    }
    let web = wanted("web");
    let shown = addresses(&rig.settle(&web).await);
    let stays = |notes: &[Note], source: &str| {
        let note = only(notes, KEPT);
        assert!(note.warning && note.message.contains(source), "{note:?}");
        assert!(note.message.contains(&shown[0]), "{note:?}");
        assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1, "{source}");
    };
    // An empty network counts as absent, and removes nothing.
    let notes = said(&rig, &annotated(&web, "floating-network-id", "")).await;
    stays(&notes, "floating-network-id");
    assert!(notes[0].message.contains("openstack-internal-load-balancer"), "{notes:?}");
    let other = annotated(&web, "floating-subnet-id", &uuid(30));
    stays(&said(&rig, &other).await, "floating-subnet-id");
    let same = annotated(&web, "floating-subnet-id", &uuid(3));
    assert_eq!(said(&rig, &same).await, []);
    // A difference from a subnet that this project may not see is unknown.
    assert_eq!(said(&rig, &annotated(&web, "floating-subnet-id", &uuid(31))).await, []);
    // The project does not have this address.
    let wished = changed(&web, |it| it.address = "172.24.99.9".parse().ok());
    stays(&said(&rig, &wished).await, "spec.loadBalancerIP: 172.24.99.9");
    // The project has this address: the network of the address counts.
    rig.floating_ip("172.24.99.9", "mine");
    let elsewhere = annotated(&wished, "floating-network-id", &uuid(51));
    assert_eq!(said(&rig, &elsewhere).await, []);
    assert_eq!(addresses(&rig.settle(&wished).await), ["172.24.99.9"]);
}

/// Members that join are in the new subnet, existing members are not.
#[tokio::test]
async fn a_members_subnet_is_that_of_members_that_join() {
    let rig = Rig::new();
    rig.cloud.world.lock().subnets.push(subnet(8, "10.9.0.0/24"));
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let moved = annotated(&web, "member-subnet-id", &uuid(8));
    rig.settle(&moved).await;
    rig.members_with(&moved, &id, super::members(&[4], &[1, 2])).await;
    let subnets = || -> Vec<_> {
        let of = |row: &serde_json::Value| {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            (text("name"), text("subnet_id"))
        };
        rig.rows("members").iter().map(of).collect()
    };
    let node = |number: u8| format!("node-{number:05}");
    assert!(subnets().contains(&(node(4), uuid(8))) && subnets().contains(&(node(3), uuid(1))));
    let left = Wanted { members: super::members(&[3, 4], &[]), ..moved.clone() };
    let notes = said(&rig, &left).await;
    let text = &only(&notes, KEPT).message;
    assert!(text.contains(&node(3)) && !text.contains(&node(4)), "{text}");
    rig.members_with(&moved, &id, super::members(&[4], &[3])).await;
    let left = Wanted { members: super::members(&[4], &[]), ..moved };
    assert_eq!(said(&rig, &left).await, []);
}

/// This Octavia or its driver does not have these features, at the creation and later.
#[tokio::test]
async fn what_octavia_does_not_have_is_said() {
    let flavor = ("flavor-id", uuid(7), "LoadBalancerFlavorIgnored");
    let zone = ("availability-zone", "zone 1".to_owned(), "LoadBalancerAvailabilityZonesIgnored");
    let method = ("lb-method", "ROUND_ROBIN".to_owned(), "LoadBalancerLbMethodUnknown");
    let of_ovn = ("lb-method", "SOURCE_IP_PORT".to_owned(), "LoadBalancerLbMethodUnknown");
    let checks = ("enable-health-monitor", "true".to_owned(), "LoadBalancerHealthMonitorIgnored");
    for (minor, driver, (key, value, reason)) in [
        (5, "amphora", &flavor),
        (13, "amphora", &zone),
        (26, "ovn", &flavor),
        (26, "ovn", &zone),
        (26, "ovn", &method),
        (26, "amphora", &of_ovn),
        (26, "ovn", &checks),
    ] {
        let rig = Rig::new();
        let rig = with_options(&rig, |options| options.load_balancer.provider = driver.to_owned());
        {
            let mut world = rig.cloud.world.lock();
            (world.octavia.minor, world.octavia.providers) = (minor, vec![driver]);
        }
        let plain = match minor {
            26 => changed(&wanted("web"), |it| it.ports.push(port(99, Protocol::Sctp))),
            _ => wanted("web"),
        };
        let asks = annotated(&plain, key, value);
        let is_said = |notes: &[Note]| {
            let note = only(notes, reason);
            assert!(note.warning && note.message.contains(key), "{note:?}");
        };
        let mut made = rig.ensure(&asks).await;
        while matches!(made, Ok(ccm_cloud::Progress::InProgress(_))) {
            let shown = rig.list(ccm_cloud::Scope::All, ccm_cloud::Depth::Summary).await;
            is_said(&shown.load_balancers[0].notes);
            made = rig.ensure(&asks).await;
        }
        is_said(&said(&rig, &asks).await);
        assert_eq!(said(&rig, &plain).await, [], "{key}");
        is_said(&said(&rig, &asks).await);
    }
}

/// The network has no subnet of the second family.
#[tokio::test]
async fn a_second_family_that_the_network_lacks_is_said() {
    let rig = Rig::new();
    rig.cloud.world.lock().subnets.retain(|row| row["ip_version"] == 4);
    let both = changed(&wanted("web"), |it| it.families = vec![IpFamily::V4, IpFamily::V6]);
    rig.ensure(&both).await.unwrap();
    let made = rig.list(ccm_cloud::Scope::All, ccm_cloud::Depth::Summary).await;
    let [made] = &made.load_balancers[..] else { panic!("{made:?}") };
    let note = only(&made.notes, "LoadBalancerSingleStack");
    for words in ["spec.ipFamilies", &uuid(77), "no IPv6 subnet"] {
        assert!(note.message.contains(words), "{note:?}");
    }
    assert_eq!(addresses(made).len(), 1);
    // Later it is compared with the actual state.
    let later = said(&rig, &both).await;
    let note = only(&later, "LoadBalancerSingleStack");
    assert!(note.warning && note.message.contains("IPv6 subnet"), "{note:?}");
}
