use ccm_cloud::{NodeAddress, ProviderId};
use ccm_objects::{Taint, node_keys::UNINITIALIZED};

use super::*;

const UUID: &str = "0FA1B2C3-0000-4000-8000-000000000001";

fn instance(name: &str) -> Instance {
    let id = format!("sim://region/{}", UUID.to_lowercase());
    Instance::new(ProviderId::parse(&id).unwrap(), name)
}

fn with(mut instance: Instance, addresses: &[(AddressKind, &str)]) -> Instance {
    instance.addresses =
        addresses.iter().map(|(kind, address)| NodeAddress::new(*kind, *address)).collect();
    instance
}

fn node(name: &str) -> Node {
    Node { name: name.into(), uid: format!("uid-{name}").into(), ..Node::default() }
}

fn at(mut node: Node, kind: &str, address: &str) -> Node {
    node.addresses.push(Address::new(kind, address));
    node
}

fn provided(mut node: Node, ip: &str) -> Node {
    node.annotations.insert(PROVIDED_NODE_IP.into(), ip.into());
    node
}

fn uuid(node: Node, uuid: &str) -> Node {
    Node { system_uuid: Some(uuid.into()), ..node }
}

fn internal(ip: &str) -> (AddressKind, &str) {
    (AddressKind::InternalIp, ip)
}

#[test]
fn the_name_is_compared_without_case_and_domain() {
    for (own, name, expect) in [
        ("node-1", "node-1", Agreement::Name),
        ("node-1", "Node-1", Agreement::Name),
        ("node-1.example.com", "node-1.example.com.", Agreement::Name),
        ("node-1.example.com", "NODE-1", Agreement::FirstLabel),
        ("node-1", "node-1.example.com", Agreement::FirstLabel),
        ("node-1.internal", "node-1.example.com", Agreement::FirstLabel),
        ("node-1", "node-10", Agreement::Nothing),
        ("node-1", "1.node-1", Agreement::Nothing),
        // The first octets do not count as labels.
        ("10.0.0.1", "10.0.0.2", Agreement::Nothing),
        ("10", "10.0.0.2", Agreement::Nothing),
    ] {
        assert_eq!(Agreement::between(&node(own), &instance(name)), expect, "{own} and {name}");
    }
}

#[test]
fn a_host_name_of_the_instance_is_a_name() {
    for kind in [AddressKind::Hostname, AddressKind::InternalDns, AddressKind::ExternalDns] {
        let instance = with(instance("i-1"), &[(kind, "ip-10-0-0-1.internal")]);
        let of = |name| Agreement::between(&node(name), &instance);
        assert_eq!(of("ip-10-0-0-1.internal"), Agreement::Name, "{kind}");
        assert_eq!(of("ip-10-0-0-2.internal"), Agreement::Nothing, "{kind}");
    }
}

#[test]
fn an_address_can_be_the_name_of_a_node() {
    let instance = with(instance("web"), &[internal("10.0.0.1")]);
    assert_eq!(Agreement::between(&node("10.0.0.1"), &instance), Agreement::Name);
    assert_eq!(Agreement::between(&node("10.0.0.2"), &instance), Agreement::Nothing);
}

#[test]
fn what_the_kubelet_says_in_the_status_agrees_as_well() {
    let instance =
        with(instance("web"), &[internal("10.0.0.1"), internal("10.1.0.1"), internal("fd00::1")]);
    for (node, expect) in [
        (uuid(node("a"), UUID), Agreement::Status),
        (uuid(node("a"), &UUID.to_lowercase()), Agreement::Status),
        (uuid(node("a"), ""), Agreement::Nothing),
        (uuid(node("a"), "region"), Agreement::Nothing),
        (uuid(node("a"), "deadbeef-0000-4000-8000-000000000001"), Agreement::Nothing),
        (at(node("a"), "InternalIP", "10.1.0.1"), Agreement::Status),
        (at(node("a"), "ExternalIP", "fd00:0::1"), Agreement::Status),
        (at(node("a"), "InternalIP", "10.0.0.9"), Agreement::Nothing),
        (at(node("a"), "Hostname", "WEB.local"), Agreement::Status),
        (at(node("a"), "Hostname", "a"), Agreement::Nothing),
        (provided(node("a"), "10.0.0.1"), Agreement::Status),
        (provided(node("a"), "10.0.0.9,fd00::1"), Agreement::Status),
        (provided(node("a"), "no IP"), Agreement::Nothing),
    ] {
        assert_eq!(Agreement::between(&node, &instance), expect, "{node:?}");
    }
}

#[test]
fn an_address_that_each_machine_has_is_no_evidence() {
    let odd = with(instance("web"), &[internal("127.0.0.1"), internal("0.0.0.0")]);
    for ip in ["127.0.0.1", "0.0.0.0"] {
        assert_eq!(Agreement::between(&at(node("a"), "InternalIP", ip), &odd), Agreement::Nothing);
    }
}

#[test]
fn nothing_can_be_compared_if_one_side_gives_nothing() {
    let addressed = with(instance(""), &[internal("10.0.0.1")]);
    let is_own_id = instance(&UUID.to_lowercase());
    for (node, instance, expect) in [
        (node("a"), instance(""), Agreement::Unknown),
        (uuid(node("a"), "another"), instance(""), Agreement::Unknown),
        (at(node("a"), "InternalIP", "10.0.0.1"), instance(""), Agreement::Unknown),
        // The instance's name is its ID.
        (node("a"), is_own_id.clone(), Agreement::Unknown),
        (node(&UUID.to_lowercase()), is_own_id, Agreement::Name),
        // A kubelet without --node-ip gives no address.
        (node("a"), addressed.clone(), Agreement::Unknown),
        (at(node("a"), "Hostname", "a"), addressed.clone(), Agreement::Unknown),
        (at(node("a"), "InternalIP", "10.0.0.9"), addressed, Agreement::Nothing),
    ] {
        assert_eq!(Agreement::between(&node, &instance), expect, "{node:?} {instance:?}");
    }
}

#[test]
fn other_ids_of_the_instance_count() {
    let mut instance = instance("web");
    instance.other_ids = vec![ProviderId::parse("sim:///second").unwrap()];
    assert!(is_confirmed(&uuid(node("a"), "second"), &instance));
    assert!(!is_confirmed(&node("web"), &instance), "a name is not a confirmation");
}

fn created(node: Node, second: i64) -> Node {
    Node { created: Some(jiff::Timestamp::from_second(second).unwrap()), ..node }
}

fn new(node: Node) -> Node {
    let taint = Taint { key: UNINITIALIZED.into(), ..Taint::default() };
    Node { taints: vec![taint], ..node }
}

/// Each row has the node with the better claim first.
#[test]
fn one_of_two_nodes_has_the_better_right() {
    let instance = instance("web");
    let old = |name| created(node(name), 1);
    let young = |name| created(node(name), 2);
    for (why, better, worse) in [
        ("its name agrees", new(young("web")), old("a")),
        ("its whole name agrees", new(young("web")), old("web.local")),
        ("its first label agrees", new(young("web.local")), old("a")),
        ("it is initialised", young("a"), new(old("b"))),
        ("it agrees in something", new(uuid(young("a"), UUID)), new(old("b"))),
        ("it is older", old("a"), young("b")),
        ("both names agree, and it is older", old("WEB"), young("web")),
        ("its age is known", young("a"), node("b")),
        ("the order of UIDs", old("a"), old("b")),
    ] {
        assert!(has_better_right(&better, &worse, Some(&instance)), "{why}");
        assert!(!has_better_right(&worse, &better, Some(&instance)), "not the other one: {why}");
    }
    let same = old("a");
    assert!(!has_better_right(&same, &same, Some(&instance)));
}

#[test]
fn without_an_instance_the_nodes_are_compared() {
    let (old, young) = (created(node("b"), 1), created(node("a"), 2));
    assert!(has_better_right(&old, &young, None));
    assert!(has_better_right(&young, &new(old), None));
}
