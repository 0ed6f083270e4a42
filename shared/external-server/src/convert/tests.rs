use std::sync::Arc;

use ccm_cloud::{
    AbsenceProof, AddressKind, IpFamily, LoadBalancer, Member, MembersSet, NodeAddress, Phase,
    Pool, Protocol, ProviderId, RouteTraits, Waiting,
};
use ccm_external::{
    convert::{
        answer_from_wire, detail_to_wire,
        load_balancers::{ensured_from_wire, members_set_from_wire, waiting_from_wire},
        priority_to_wire, wants_from_wire,
    },
    status::{change_error_from_wire, from_status, may_be_done},
};

use super::{
    load_balancers::{balancer_to_wire, ensured_to_wire, members_set_to_wire, waiting_to_wire},
    *,
};

fn instance() -> Instance {
    let id = |text| ProviderId::parse(text).unwrap();
    let mut instance = Instance::new(id("sim://a/1"), "one");
    instance.other_ids = vec![id("sim:///1"), id("old://1")];
    instance.instance_type = Some("large".to_owned());
    instance.zone = Some("z".to_owned());
    instance.region = Some("r".to_owned());
    instance.addresses = [
        (AddressKind::ExternalIp, "2001:db8::1"),
        (AddressKind::InternalIp, "10.0.0.1"),
        (AddressKind::InternalIp, "10.0.0.2"),
        (AddressKind::Hostname, "one"),
        (AddressKind::InternalDns, "one.internal"),
        (AddressKind::ExternalDns, "one.example.com"),
    ]
    .map(|(kind, address)| NodeAddress::new(kind, address))
    .to_vec();
    instance.pod_cidrs = vec!["10.244.3.0/24".parse().unwrap(), "fd00:3::/64".parse().unwrap()];
    instance.labels = [("a".to_owned(), "b".to_owned()), ("c".to_owned(), String::new())].into();
    instance
}

#[test]
fn instances_survive_the_wire_whole() {
    for power in
        [PowerState::Running, PowerState::Stopped, PowerState::Changing, PowerState::Unknown]
    {
        let sent = Instance { power, ..instance() };
        assert_eq!(Instance::try_from(instance_to_wire(&sent)), Ok(sent));
    }
    let bare = Instance::new(ProviderId::parse("sim://x").unwrap(), "");
    assert_eq!(Instance::try_from(instance_to_wire(&bare)), Ok(bare));
}

#[test]
fn answers_survive_the_wire_whole() {
    let proof = |method, request_id: Option<&str>| {
        let evidence = "404 itemNotFound".to_owned();
        Ok(Lookup::Gone(AbsenceProof {
            method,
            evidence,
            request_id: request_id.map(str::to_owned),
            kept: None,
        }))
    };
    for sent in [
        Ok(Lookup::Found(Box::new(instance()))),
        proof(ProofMethod::ById, Some("req-1")),
        proof(ProofMethod::BySystemUuid, None),
        proof(ProofMethod::ByName, None),
        proof(ProofMethod::ProvidersWord, None),
        Ok(Lookup::NotOurs("another scheme".to_owned())),
        Err(CloudError::new(ErrorKind::Conflict, "two of one name")),
    ] {
        let wire = answer_to_wire("n", &sent);
        let provider_id = Some("sim://a".to_owned());
        let node = NodeIdentity { provider_id, ..NodeIdentity::named("n") };
        assert_eq!(answer_from_wire(&node, wire), sent);
    }
}

/// Every invalid instance is an error that names the instance and the problem.
#[test]
fn spoilt_instances_are_malformed() {
    type Spoil = fn(&mut proto::Instance);
    let spoil: [(&str, Spoil); 12] = [
        ("does not have the form", |wire| wire.provider_id = Some("one".to_owned())),
        ("does not have the form", |wire| wire.provider_id = None),
        ("does not have the form", |wire| wire.other_ids.push("://".to_owned())),
        ("unknown kind 0", |wire| wire.addresses[0].kind = None),
        ("unknown kind 77", |wire| wire.addresses[1].kind = Some(77)),
        ("unknown kind -1", |wire| wire.addresses[1].kind = Some(-1)),
        ("257 addresses", |wire| wire.addresses = vec![wire.addresses[0].clone(); 257]),
        ("257 other IDs", |wire| wire.other_ids = vec!["sim://b".to_owned(); 257]),
        ("1001 labels", |wire| {
            wire.labels = (0..1_001).map(|n| (n.to_string(), String::new())).collect();
        }),
        ("\"10.244.3.0\" is not a network", |wire| wire.pod_cidrs[0] = "10.244.3.0".to_owned()),
        ("257 pod CIDRs", |wire| wire.pod_cidrs = vec!["10.244.3.0/24".to_owned(); 257]),
        ("InternalIP is empty", |wire| wire.addresses[1].address = Some(String::new())),
    ];
    for (expect, spoil) in spoil {
        let mut wire = instance_to_wire(&instance());
        spoil(&mut wire);
        let error = Instance::try_from(wire).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(error.message.contains(expect) && error.message.contains("\"one\""), "{error}");
    }
}

#[test]
fn harmless_oddities_are_read_leniently() {
    let mut wire = instance_to_wire(&instance());
    wire.power = Some(99);
    wire.zone = Some(String::new());
    let read = Instance::try_from(wire).unwrap();
    assert_eq!((read.power, read.zone), (PowerState::Unknown, None));
}

#[test]
fn the_terms_of_a_call_cross_over() {
    for (priority, wire) in [
        (Priority::Waiting, proto::Priority::Waiting),
        (Priority::Routine, proto::Priority::Routine),
    ] {
        assert_eq!(priority_to_wire(priority), i32::from(wire));
        assert_eq!(priority_from_wire(wire), priority);
    }
    assert_eq!(priority_from_wire(proto::Priority::Unspecified), Priority::Waiting);
    for (detail, wire) in [
        (Detail::Everything, proto::Detail::Everything),
        (Detail::Presence, proto::Detail::Presence),
    ] {
        assert_eq!(detail_to_wire(detail), i32::from(wire));
        assert_eq!(detail_from_wire(wire), detail);
    }
    assert_eq!(detail_from_wire(proto::Detail::Unspecified), Detail::Everything);
}

#[test]
fn what_a_node_says_of_itself_crosses_over() {
    let sent = NodeIdentity {
        name: "n".to_owned(),
        provider_id: Some("sim://a".to_owned()),
        system_uuid: Some("uuid".to_owned()),
        uid: Some("uid".to_owned()),
        labels: [("a".to_owned(), String::new())].into(),
        addresses: instance().addresses,
    };
    for sent in [sent, NodeIdentity::named("bare")] {
        assert_eq!(node_from_wire((&sent).into()), sent);
    }
    for bits in 0..8_u8 {
        let wants = Wants { uid: bits & 1 > 0, labels: bits & 2 > 0, addresses: bits & 4 > 0 };
        assert_eq!(wants_from_wire(&wants_to_wire(wants)), wants);
    }
    assert_eq!(wants_from_wire(&[0, 99, -1]), Wants::default());
}

#[test]
fn what_a_cloud_says_of_its_routes_crosses_over() {
    for bits in 0..32_u8 {
        let sent = RouteTraits {
            families: vec![if bits & 1 > 0 { IpFamily::V4 } else { IpFamily::V6 }],
            several_targets: bits & 1 > 0,
            replaces: bits & 2 > 0,
            compares_version: bits & 4 > 0,
            target_ids: bits & 8 > 0,
            target_addresses: bits & 16 > 0,
            max_batch: 1 + usize::from(bits),
        };
        let wire = routes::traits_to_wire(&sent);
        assert_eq!(ccm_external::convert::routes::traits_from_wire(Some(wire)), sent);
    }
}

#[test]
fn a_load_balancer_with_the_wanted_members_shares_their_list() {
    let member = |name: &str, ip: &str| Member {
        node: name.to_owned(),
        provider_id: Some(ProviderId::parse(&format!("sim://{name}")).unwrap()),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, ip)],
        labels: Arc::default(),
    };
    let present: Arc<[Member]> = [member("a", "10.0.0.1"), member("b", "10.0.0.2")].into();
    let with = |members: Vec<Member>| {
        let members = Some(members.into());
        LoadBalancer { members, ..LoadBalancer::new("lb-1", "", None) }
    };
    let [a, b] = [member("a", "10.0.0.1"), member("b", "10.0.0.2")];
    let unknown_id = Member { provider_id: None, ..b.clone() };
    for (members, is_shared) in [
        (vec![a.clone(), b.clone()], true),
        (vec![b.clone(), a.clone()], true),
        (vec![a.clone(), unknown_id], true),
        (vec![a.clone()], false),
        (vec![a.clone(), member("b", "10.0.0.9")], false),
        (vec![a.clone(), b.clone(), member("c", "10.0.0.3")], false),
        (vec![a, Member { node: String::new(), ..b }], false),
    ] {
        let sent = with(members);
        let short = ensured_to_wire(sent.clone(), &present);
        assert_eq!(short.members.is_none(), is_shared, "{sent:?}");
        // A provider may send them nevertheless.
        for wire in [short, balancer_to_wire(&sent)] {
            let got = ensured_from_wire(wire, &present).unwrap().members.unwrap();
            assert_eq!(Arc::ptr_eq(&got, &present), is_shared, "{sent:?}");
            assert!(is_shared || got == sent.members.clone().unwrap(), "{got:?}");
        }
    }
    let silent = LoadBalancer { members: None, ..with(Vec::new()) };
    let got = ensured_from_wire(ensured_to_wire(silent, &present), &present).unwrap();
    assert_eq!(got.members, None, "a provider that has not looked says nothing");
}

fn pool(protocol: Protocol, members: usize, why_empty: Option<&str>) -> Pool {
    Pool { protocol, port: 443, members, why_empty: why_empty.map(str::to_owned) }
}

#[test]
fn what_is_there_and_what_was_changed_crosses_over() {
    let pools =
        vec![pool(Protocol::Tcp, 3, None), pool(Protocol::Udp, 0, Some("no node is labelled"))];
    for pools in [None, Some(Vec::new()), Some(pools)] {
        for changed in [true, false] {
            let version = changed.then(|| "7".to_owned());
            let sent = MembersSet { version, changed, pools: pools.clone() };
            assert_eq!(members_set_from_wire(members_set_to_wire(sent.clone())), Ok(sent));
            let waiting = Waiting {
                what: "PENDING_UPDATE".to_owned(),
                check_after: std::time::Duration::from_secs(2),
                id: Some("lb-1".to_owned()),
                request_id: None,
                changed,
            };
            assert_eq!(waiting_from_wire(waiting_to_wire(&waiting)), waiting);
            // A list ignores `changed`.
            let pending = Phase::Pending(waiting.clone());
            let sent = LoadBalancer {
                phase: pending,
                pools: pools.clone(),
                ..LoadBalancer::new("lb-1", "", None)
            };
            let got = LoadBalancer::try_from(balancer_to_wire(&sent)).unwrap();
            assert_eq!(got.phase, Phase::Pending(Waiting { changed: false, ..waiting }));
            assert_eq!(got.pools, pools);
        }
    }
}

fn error(kind: ErrorKind) -> CloudError {
    CloudError::new(kind, "the cloud's words")
        .with_request_id("req-1")
        .with_retry_after(std::time::Duration::from_millis(1500))
}

#[test]
fn every_kind_survives_the_wire_whole() {
    for kind in ErrorKind::ALL.iter().copied() {
        for sent in [
            error(kind),
            CloudError::new(kind, "bare"),
            error(kind).that_may_be_done(),
            error(kind).that_was_not_sent(),
        ] {
            assert_eq!(change_error_from_wire(error_to_wire(&sent)), sent, "about a route");
            if kind != ErrorKind::Pending {
                assert_eq!(from_status(&to_status(&sent)), sent, "as the status of a call");
                assert_eq!(CloudError::from(error_to_wire(&sent)), sent, "as an answer");
            }
        }
    }
}

/// Only the provider's explicit statement proves that a failed write was not executed.
#[test]
fn a_write_that_ended_in_the_dark_may_be_done() {
    for (status, expect) in [
        (Status::unavailable("connection lost"), true),
        (Status::new(Code::Cancelled, ""), true),
        (Status::unimplemented("no such method"), false),
        (to_status(&error(ErrorKind::QuotaExceeded)), false),
        (to_status(&error(ErrorKind::Timeout).that_may_be_done()), false),
    ] {
        assert_eq!(may_be_done(&status), expect, "{status:?}");
    }
}
