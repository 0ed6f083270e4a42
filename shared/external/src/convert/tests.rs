use ccm_cloud::{LoadBalancer, MembersSet, Pool, Protocol};

use super::{
    load_balancers::{members_set_from_wire, waiting_from_wire},
    *,
};

/// Nodes are deleted because of "gone": an incomplete proof must not count.
#[test]
fn an_answer_that_is_not_whole_is_malformed() {
    let gone = |method, evidence: &str| {
        Some(Answer::Gone(proto::Absence {
            method: Some(method),
            evidence: Some(evidence.to_owned()),
            request_id: None,
            kept: None,
        }))
    };
    let node = NodeIdentity::named("n");
    for (name, answer, expect) in [
        ("n", None, "none of found"),
        ("n", gone(0, "404"), "unknown method 0"),
        ("n", gone(9, "404"), "unknown method 9"),
        ("n", gone(1, " "), "without evidence"),
        ("n", gone(4, "no"), "a node without an ID"),
        ("m", gone(1, "404"), "answered about \"m\""),
        ("", Some(Answer::NotOurs(proto::NotOurs::default())), "answered about \"\""),
    ] {
        let wire = proto::LookupAnswer { node: Some(name.to_owned()), answer };
        let error = answer_from_wire(&node, wire).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(error.message.contains(expect), "{error}");
    }
}

fn pool(protocol: Protocol, members: usize, why_empty: Option<&str>) -> Pool {
    Pool { protocol, port: 443, members, why_empty: why_empty.map(str::to_owned) }
}

/// The text of a remark reaches people, whatever its reason is.
#[test]
fn a_remark_whose_reason_is_not_one_word_is_kept() {
    for (reason, expect) in [
        ("PartNotManaged", "PartNotManaged"),
        ("not-managed yet", "notmanagedyet"),
        (" ", "ProviderNote"),
        // Without an ellipsis at the end.
        (&"Long".repeat(50), &"Long".repeat(32)),
    ] {
        let note = proto::Note {
            reason: Some(reason.to_owned()),
            message: Some("security groups".to_owned()),
            warning: Some(true),
        };
        let wire = proto::LoadBalancer {
            id: Some("lb-1".to_owned()),
            phase: Some(proto::LoadBalancerPhase::Ready.into()),
            notes: vec![note],
            ..Default::default()
        };
        let notes = LoadBalancer::try_from(wire).unwrap().notes;
        assert_eq!((&*notes[0].reason, &*notes[0].message), (expect, "security groups"));
    }
}

/// An older server does not set these fields.
#[test]
fn an_older_server_has_changed_something_and_knows_no_pools() {
    let done = members_set_from_wire(proto::MembersSet::default());
    assert_eq!(done, Ok(MembersSet { version: None, changed: true, pools: None }));
    assert!(waiting_from_wire(proto::InProgress::default()).changed);
}

#[test]
fn pools_that_make_no_sense_are_malformed() {
    let good = || proto::Pool {
        protocol: Some(proto::TransportProtocol::Tcp.into()),
        port: Some(443),
        members: Some(2),
        why_empty: Some("it has members".to_owned()),
    };
    let read = |pools: Vec<proto::Pool>| {
        let pools = Some(proto::PoolList { pools });
        members_set_from_wire(proto::MembersSet { pools, ..Default::default() })
    };
    let kept = read(vec![good()]).unwrap().pools;
    assert_eq!(kept, Some(vec![pool(Protocol::Tcp, 2, None)]));
    for (pools, expect) in [
        (vec![proto::Pool { protocol: None, ..good() }], "a pool has no protocol"),
        (vec![proto::Pool { protocol: Some(99), ..good() }], "a pool has no protocol"),
        (vec![proto::Pool { port: Some(70_000), ..good() }], "70000"),
        (vec![proto::Pool { members: None, ..good() }], "TCP port 443 does not say how many"),
        (vec![good(), good()], "TCP port 443 has two pools"),
        (vec![good(); 10_000], "10000 pools, more than"),
    ] {
        let error = read(pools.clone()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(error.message.contains(expect), "{error}");
        let balancer = proto::LoadBalancer {
            id: Some("lb-1".to_owned()),
            phase: Some(proto::LoadBalancerPhase::Ready.into()),
            pools: Some(proto::PoolList { pools }),
            ..Default::default()
        };
        let error = LoadBalancer::try_from(balancer).unwrap_err();
        let is_named = error.message.contains("lb-1") && error.message.contains(expect);
        assert!(is_named, "{error}");
    }
    // The number of members has no upper limit.
    let many = proto::Pool { members: Some(u32::MAX), ..good() };
    assert_eq!(read(vec![many]).unwrap().pools.unwrap()[0].members, u32::MAX as usize);
    let long = proto::Pool { members: Some(0), why_empty: Some("x\n".repeat(100_000)), ..good() };
    let why = read(vec![long]).unwrap().pools.unwrap().remove(0).why_empty.unwrap();
    assert!(why.len() < 10_000 && !why.contains('\n'));
}
