//! The numbers refer to the scenarios in docs/internal/parity.md.

use ccm_cloud::ProviderId;

use super::*;

fn node(addresses: &[(&str, &str)]) -> Node {
    Node {
        name: "node0".into(),
        addresses: addresses.iter().map(|(kind, address)| Address::new(*kind, *address)).collect(),
        ..Node::default()
    }
}

fn instance(addresses: &[(AddressKind, &str)]) -> Instance {
    let mut instance = Instance::new(ProviderId::parse("sim://i-0").unwrap(), "node0");
    instance.addresses =
        addresses.iter().map(|(kind, address)| NodeAddress::new(*kind, *address)).collect();
    instance
}

const INTERNAL: (AddressKind, &str) = (AddressKind::InternalIp, "10.0.0.1");
const EXTERNAL: (AddressKind, &str) = (AddressKind::ExternalIp, "132.143.154.163");
const HOSTNAME: (AddressKind, &str) = (AddressKind::Hostname, "node0.cloud.internal");

/// Checks the list for a node with these addresses of its own, `-` if it keeps them.
fn check(
    scenario: &str,
    own: &[(&str, &str)],
    cloud: &[(AddressKind, &str)],
    annotation: Option<&str>,
    expect: &str,
) {
    let mut node = node(own);
    node.annotations =
        annotation.into_iter().map(|value| (PROVIDED_NODE_IP.into(), value.into())).collect();
    let got = match desired(&node, &instance(cloud)) {
        Ok(Some(list)) => list.iter().map(|entry| &*entry.address).collect::<Vec<_>>().join(" "),
        Ok(None) => "-".to_owned(),
        Err(error) => format!("error: {error}"),
    };
    assert!(
        got == expect || (expect == "error" && got.starts_with("error: ")),
        "{scenario}: {got}"
    );
}

#[test]
fn the_clouds_addresses_are_used_and_kubelets_hostname_is_kept() {
    let own: &[_] = &[("Hostname", "node0-own")];
    check(
        "1",
        own,
        &[HOSTNAME, INTERNAL, EXTERNAL],
        None,
        "node0.cloud.internal 10.0.0.1 132.143.154.163",
    );
    check("2", own, &[INTERNAL, EXTERNAL], None, "10.0.0.1 132.143.154.163 node0-own");
    check(
        "3",
        &[],
        &[HOSTNAME, INTERNAL, EXTERNAL],
        None,
        "node0.cloud.internal 10.0.0.1 132.143.154.163",
    );
    check(
        "own addresses other than the host name go",
        &[("InternalIP", "10.9.9.9")],
        &[INTERNAL],
        None,
        "10.0.0.1",
    );
    check(
        "quirk 22",
        &[("Hostname", "a"), ("Hostname", "b"), ("Hostname", "c")],
        &[INTERNAL],
        None,
        "10.0.0.1 a",
    );
    check("no address", own, &[], None, "-");
    check("twice the same", &[], &[INTERNAL, EXTERNAL, INTERNAL], None, "10.0.0.1 132.143.154.163");
    let dual = &[INTERNAL, (AddressKind::InternalIp, "fd00::1")];
    check("both families stay", &[], dual, None, "10.0.0.1 fd00::1");
}

#[test]
fn the_annotation_selects_addresses() {
    let own: &[_] = &[("Hostname", "node0-own")];
    let cloud = &[(AddressKind::InternalIp, "10.0.0.9"), INTERNAL, EXTERNAL];
    check("7, 17", own, cloud, Some("10.0.0.1"), "10.0.0.1 132.143.154.163 node0-own");
    check("8", own, cloud, Some("invalid-ip"), "error");
    check("9", own, cloud, Some("10.0.0.2"), "error");
    check("an empty one is wrong, not absent", own, cloud, Some(""), "error");
    check("no address to choose from", own, &[], Some("10.0.0.1"), "error");
}

/// The helper that providers and the plan use.
#[test]
fn appending_skips_duplicates() {
    for (scenario, present, more, expect) in [
        (43, &[] as &[_], &[] as &[_], &[] as &[_]),
        (44, &[], &[INTERNAL, EXTERNAL], &[INTERNAL, EXTERNAL]),
        (45, &[], &[INTERNAL, INTERNAL], &[INTERNAL]),
        (46, &[INTERNAL, HOSTNAME], &[HOSTNAME, EXTERNAL], &[INTERNAL, HOSTNAME, EXTERNAL]),
    ] {
        let mut list = instance(present).addresses;
        NodeAddress::append_new(&mut list, instance(more).addresses);
        assert_eq!(list, instance(expect).addresses, "scenario {scenario}");
    }
}

#[test]
fn primary_is_the_first_internal_ip() {
    let list =
        node(&[("ExternalIP", "1.1.1.1"), ("InternalIP", "10.0.0.2"), ("InternalIP", "10.0.0.1")])
            .addresses;
    assert_eq!(primary(&list), Some("10.0.0.2"));
    assert_eq!(primary(&[]), None);
}
