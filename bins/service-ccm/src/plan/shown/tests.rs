//! Tests which parts of a provider's answer service-ccm writes to a Service.

use ccm_cloud::{Ingress, LoadBalancer};
use ccm_objects::Address;

use super::{
    super::{
        Known, Plan, Step,
        members::Decision,
        reason::{PROVISIONING, Reason, SERVING},
        status::StatusPatch,
        tests::{planned_with, service, there},
    },
    *,
};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().expect("a network")).collect()
}

/// Returns a cluster with Services, nodes and an API server.
fn in_use() -> InUse {
    let mut in_use = InUse::default();
    for (key, ips) in [
        ("default/kubernetes", ["10.96.0.1", "fd00:10:96::1"]),
        ("kube-system/kube-dns", ["10.96.0.10", "fd00:10:96::a"]),
    ] {
        let cluster_ips = ips.map(|text| Some(ip(text)));
        let service = Service { key: key.into(), cluster_ips, ..Service::default() };
        in_use.service_changed(None, Some(&service));
    }
    in_use.node_changed(None, Some(&node(&["10.0.0.7", "2001:db8::7"])));
    in_use.set_api_server([ip("198.51.100.6")]);
    in_use
}

fn node(ips: &[&str]) -> Node {
    let mut addresses = vec![Address::new("Hostname", "node-7")];
    addresses.extend(ips.iter().map(|ip| Address::new("InternalIP", *ip)));
    Node { name: "node-7".into(), addresses, ..Node::default() }
}

fn entry_of(text: &str, ip_mode: IpMode) -> Ingress {
    let name = || IngressAddress::Hostname(text.to_owned());
    let address = text.parse().map_or_else(|_| name(), IngressAddress::Ip);
    Ingress { address, ip_mode, failed_ports: Vec::new() }
}

/// Returns the ingress entries that service-ccm writes to a Service whose load balancer has these
/// addresses.
fn change_with(
    service: &Service,
    ingress: Vec<Ingress>,
    rules: &ShownRules,
    change: impl FnOnce(&mut LoadBalancer),
) -> StatusPatch {
    let mut state = there(service);
    let Known::There(balancer) = &mut state.known else { panic!("{state:?}") };
    balancer.ingress = ingress;
    change(balancer);
    // The view of a test needs values that live forever.
    let guard: (&'static ShownRules, &'static InUse) =
        (Box::leak(Box::new(rules.clone())), Box::leak(Box::new(in_use())));
    let plan = planned_with(service, &state, &Decision::default(), 100, |view| view.guard = guard);
    match plan {
        Plan::Next(Step::Write(change)) => change,
        Plan::Settled => StatusPatch::default(),
        plan => panic!("{plan:?}"),
    }
}

fn change(service: &Service, ingress: Vec<Ingress>) -> StatusPatch {
    change_with(service, ingress, &ShownRules::default(), |_| {})
}

/// Returns the addresses that are written.
fn written(change: &StatusPatch) -> Vec<&str> {
    let entries = change.ingress.iter().flatten();
    entries.filter_map(|one| one.ip.as_deref().or(one.hostname.as_deref())).collect()
}

fn message(change: &StatusPatch, kind: &str) -> (Reason, String) {
    let one = change.conditions.iter().find(|one| one.0.condition() == kind);
    let one = one.unwrap_or_else(|| panic!("no {kind}: {change:?}"));
    one.clone()
}

#[test]
fn addresses_that_the_cluster_uses_itself_are_not_shown() {
    use IpMode::{Proxy, Vip};
    for (text, mode, why) in [
        ("127.0.0.1", Vip, "a loopback address"),
        ("127.8.0.1", Proxy, "a loopback address"),
        ("::1", Vip, "a loopback address"),
        ("169.254.169.254", Vip, "a link-local address"),
        ("169.254.20.10", Proxy, "a link-local address"),
        ("fe80::1", Vip, "a link-local address"),
        ("0.0.0.0", Vip, "an unspecified address"),
        ("0.1.2.3", Vip, "an unspecified address"),
        ("::", Vip, "an unspecified address"),
        ("224.0.0.1", Vip, "a multicast address"),
        ("ff02::1", Vip, "a multicast address"),
        ("255.255.255.255", Vip, "the broadcast address"),
        ("10.96.0.1", Vip, "the cluster IP of Service default/kubernetes"),
        ("10.96.0.10", Proxy, "the cluster IP of Service kube-system/kube-dns"),
        ("fd00:10:96::a", Vip, "the cluster IP of Service kube-system/kube-dns"),
        ("::ffff:10.96.0.1", Vip, "the cluster IP of Service default/kubernetes"),
        ("::ffff:127.0.0.1", Vip, "a loopback address"),
        ("198.51.100.6", Vip, "the address of the API server"),
        ("198.51.100.6", Proxy, "the address of the API server"),
        ("10.0.0.7", Vip, "an address of node node-7, and ipMode is VIP"),
        ("2001:db8::7", Vip, "an address of node node-7, and ipMode is VIP"),
    ] {
        let change = change(&service(), vec![entry_of(text, mode)]);
        assert_eq!(written(&change), [""; 0], "{text} {mode:?}");
        let canonical = ip(text).to_canonical();
        let expect = format!("the Service shows no address: {canonical} is {why}");
        assert_eq!(message(&change, SERVING), (Reason::AddressRefused, expect));
        let remark = message(&change, PROVISIONING);
        assert_eq!(remark.0, Reason::PartlyProvisioned, "{text}: {remark:?}");
    }
    for (text, mode) in [
        ("203.0.113.5", Vip),
        ("2001:db8::5", Vip),
        ("192.168.1.5", Vip),
        ("10.0.0.8", Vip),
        ("240.1.2.3", Vip),
        ("10.0.0.7", Proxy),
    ] {
        let change = change(&service(), vec![entry_of(text, mode)]);
        assert_eq!(written(&change), [text], "{mode:?}");
        assert_eq!(message(&change, PROVISIONING).0, Reason::Provisioned, "{text}");
    }
    let mapped = change(&service(), vec![entry_of("::ffff:203.0.113.5", Vip)]);
    assert_eq!(written(&mapped), ["203.0.113.5"]);
}

#[test]
fn the_operator_decides_about_networks() {
    let shown = |text: &str, rules: &ShownRules| {
        let ingress = vec![entry_of(text, IpMode::Vip)];
        !written(&change_with(&service(), ingress, rules, |_| {})).is_empty()
    };
    let ranges = ShownRules {
        service_ranges: networks(&["10.96.0.0/16", "fd00:10:96::/112"]),
        ..ShownRules::default()
    };
    assert!(!shown("10.96.200.7", &ranges) && !shown("fd00:10:96::ff", &ranges));
    assert!(shown("10.97.0.1", &ranges) && shown("10.96.200.7", &ShownRules::default()));
    let allowed = networks(&["169.254.0.0/16", "10.96.0.1/32", "10.0.0.0/24", "198.51.100.6/32"]);
    let allowed = ShownRules { allowed, ..ranges };
    for text in ["169.254.1.1", "10.96.0.1", "10.0.0.7", "198.51.100.6"] {
        assert!(shown(text, &allowed), "{text}");
    }
    assert!(!shown("10.96.0.2", &allowed) && !shown("127.0.0.1", &allowed));
}

/// An upgrade does not interrupt traffic, and the provider cannot use an existing address in
/// another mode.
#[test]
fn an_address_that_the_service_shows_stays() {
    let mut service = service();
    let entry = |mode: &str| ServiceIngress {
        ip: Some("10.0.0.7".into()),
        ip_mode: Some(mode.into()),
        ..ServiceIngress::default()
    };
    service.details.as_mut().expect("details").ingress = vec![entry("VIP")];
    let vip = || entry_of("10.0.0.7", IpMode::Vip);
    let same = change(&service, vec![vip()]);
    assert!(same.ingress.is_none(), "{same:?}");
    assert_eq!(message(&same, PROVISIONING).0, Reason::Provisioned);
    let text = message(&same, SERVING).1;
    assert!(text.contains("no node of the cluster"), "{text}");
    // A second address joins it.
    let more = change(&service, vec![vip(), entry_of("203.0.113.5", IpMode::Vip)]);
    assert_eq!(written(&more), ["10.0.0.7", "203.0.113.5"]);
    // The cloud has other addresses now.
    let other = change(&service, vec![entry_of("10.96.0.1", IpMode::Vip)]);
    assert!(other.ingress.is_none(), "{other:?}");
    let moved = change(&service, vec![entry_of("203.0.113.5", IpMode::Vip)]);
    assert_eq!(written(&moved), ["203.0.113.5"]);
    service.details.as_mut().expect("details").ingress = vec![entry("Proxy")];
    let changed = change(&service, vec![vip()]);
    assert!(changed.ingress.is_none(), "{changed:?}");
    assert_eq!(message(&changed, PROVISIONING).0, Reason::PartlyProvisioned);
}

#[test]
fn of_several_addresses_the_right_ones_are_shown() {
    let ingress = ["127.0.0.1", "203.0.113.5", "Kéy.example", "lb.example.com", "203.0.113.5"];
    let change = change(&service(), ingress.map(|one| entry_of(one, IpMode::Vip)).into());
    assert_eq!(written(&change), ["203.0.113.5", "lb.example.com"]);
    let (reason, text) = message(&change, PROVISIONING);
    assert_eq!(reason, Reason::PartlyProvisioned);
    for part in ["127.0.0.1 is a loopback address", "\"Kéy.example\" is not a host name"] {
        assert!(text.contains(part), "{text}");
    }
    assert_ne!(message(&change, SERVING).0, Reason::AddressRefused);
}

#[test]
fn a_provider_writes_annotations_below_confirmed_prefixes_only() {
    let rules =
        ShownRules { annotations: vec!["example.com/".to_owned()], ..ShownRules::default() };
    let traits = LoadBalancerTraits {
        own_annotations: vec!["other.dev/id".to_owned(), "quartet.dev/*".to_owned()],
        ..LoadBalancerTraits::default()
    };
    for (key, is_written) in [
        ("example.com/id", true),
        ("example.com/", false),
        ("example.com/a b", false),
        ("example.community/id", false),
        ("other.dev/id", false),
        ("id", false),
        ("quartet.dev/member-loss-approved", false),
        ("quartet.dev/load-balancer-id", false),
        ("openstack.quartet.dev/x", false),
        ("kubernetes.io/x", false),
        ("external-dns.alpha.kubernetes.io/hostname", false),
        ("networking.k8s.io/x", false),
    ] {
        assert_eq!(rules.why_not_written(key, &traits).is_none(), is_written, "{key}");
    }
    // Even a wrong rule does not confirm these.
    let all = ShownRules { annotations: vec![String::new()], ..ShownRules::default() };
    for key in ["quartet.dev/x", "kubernetes.io/x", "a.kubernetes.io/x", "k8s.io/x"] {
        assert!(all.why_not_written(key, &traits).is_some(), "{key}");
    }
    let built_in = LoadBalancerTraits { is_built_in: true, ..traits };
    assert!(rules.why_not_written("other.dev/id", &built_in).is_none());
    assert!(rules.why_not_written("other.dev/id2", &built_in).is_some());
    let written =
        ["example.com/id", "external-dns.alpha.kubernetes.io/hostname"].map(str::to_owned);
    for (key, is_removed) in [
        ("example.com/id", true),
        ("example.com/other", false),
        ("external-dns.alpha.kubernetes.io/hostname", false),
        ("quartet.dev/member-loss-approved", false),
        ("other.dev/id", true),
    ] {
        assert_eq!(rules.is_removed(key, &built_in, &written), is_removed, "{key}");
    }
    for (start, can) in [
        ("example.com/", true),
        ("example.com/lb-", true),
        ("openstack.quartet.dev/", false),
        ("x.y.quartet.dev/lb-", false),
        ("quartet.dev.example.com/", true),
        ("notquartet.dev/", true),
        ("quartet.dev/", false),
        ("kubernetes.io/", false),
        ("a.kubernetes.io/", false),
        ("a.k8s.io/", false),
        ("k8s.io/", false),
        ("example.com", false),
        ("", false),
        ("/", false),
        ("Example.com/", false),
    ] {
        assert_eq!(can_be_confirmed(start), can, "{start:?}");
    }
}

#[test]
fn annotations_that_are_not_confirmed_are_not_written() {
    let rules =
        ShownRules { annotations: vec!["example.com/".to_owned()], ..ShownRules::default() };
    let ingress = vec![entry_of("203.0.113.5", IpMode::Vip)];
    let change = change_with(&service(), ingress, &rules, |balancer| {
        let keys = ["example.com/id", "quartet.dev/member-loss-approved", "other.dev/id"];
        balancer.annotations = keys.map(|key| (key.to_owned(), Some("yes".to_owned()))).into();
    });
    let keys: Vec<&str> = change.annotations.keys().map(String::as_str).collect();
    assert_eq!(keys, ["example.com/id", super::super::status::ID]);
    // The user cannot fix that.
    assert_eq!(message(&change, PROVISIONING).0, Reason::Provisioned);
}

#[test]
fn an_address_is_free_again_when_its_user_goes() {
    let mut in_use = in_use();
    let why = |in_use: &InUse, text| {
        in_use.why_refused(&ShownRules::default(), ip(text), IpMode::Vip).is_some()
    };
    let old = node(&["10.0.0.7", "2001:db8::7"]);
    let new = node(&["10.0.0.9", "2001:db8::7"]);
    in_use.node_changed(Some(&old), Some(&new));
    assert!(!why(&in_use, "10.0.0.7") && why(&in_use, "10.0.0.9") && why(&in_use, "2001:db8::7"));
    in_use.node_changed(Some(&new), None);
    assert!(!why(&in_use, "10.0.0.9"));
    let other = Service {
        key: "a/b".into(),
        cluster_ips: [Some(ip("10.96.0.1")), None],
        ..Service::default()
    };
    in_use.service_changed(None, Some(&other));
    in_use.service_changed(Some(&other), None);
    assert!(why(&in_use, "10.96.0.1"), "it is another one's, too");
}
