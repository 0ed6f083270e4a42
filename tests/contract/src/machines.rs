//! The promises of every provider about machines.

use std::sync::Arc;

use ccm_cloud::{
    Claim, CloudError, Detail, ErrorKind, Instances, Lookup, LookupResult, NodeIdentity,
    ProofMethod,
};

use crate::lab::{Lab, Place, call};

fn instances(lab: &Lab) -> Arc<dyn Instances> {
    lab.cloud().instances().unwrap().expect("instances are offered")
}

async fn look_all(lab: &Lab, nodes: &[NodeIdentity]) -> Vec<LookupResult> {
    let answers = instances(lab).lookup(nodes, Detail::Everything, call()).await;
    assert_eq!(answers.len(), nodes.len());
    answers
}

async fn look(lab: &Lab, node: NodeIdentity) -> LookupResult {
    look_all(lab, &[node]).await.remove(0)
}

fn named(number: usize) -> NodeIdentity {
    NodeIdentity::named(format!("node-{number:05}"))
}

fn with_id(name: &str, id: String) -> NodeIdentity {
    NodeIdentity { provider_id: Some(id), ..NodeIdentity::named(name) }
}

/// Returns the name of what was found.
fn found(answer: LookupResult) -> String {
    let Ok(Lookup::Found(instance)) = answer else { panic!("not found: {answer:?}") };
    assert!(!instance.addresses.is_empty(), "{instance:?}");
    instance.name
}

fn is_gone(answer: &Result<Lookup, CloudError>, method: ProofMethod, what: &str) {
    let Ok(Lookup::Gone(proof)) = answer else { panic!("{what} is not gone: {answer:?}") };
    assert_eq!(proof.method, method, "{proof:?}");
    assert!(proof.evidence.contains(what), "{proof:?}");
}

pub(crate) async fn are_claimed_by_scheme(place: Place) {
    let lab = place.lab().await;
    let (cloud, own) = (lab.cloud(), lab.rig.machines().id(1));
    let (scheme, rest) = own.split_once("://").unwrap();
    assert_eq!(cloud.schemes(), [scheme]);
    for (id, expect) in [
        (Some(own.as_str()), Claim::Ours),
        (Some("elsewhere:///i-1"), Claim::Foreign),
        (Some(&*format!("{scheme}ish://{rest}")), Claim::Foreign),
        (Some("node0.aws.12345"), Claim::Foreign),
        (Some(""), Claim::Unclaimed),
        (None, Claim::Unclaimed),
    ] {
        assert_eq!(cloud.claim(id), expect, "{id:?}");
    }
}

pub(crate) async fn are_found_by_id_then_uuid_then_name(place: Place) {
    let lab = place.lab().await;
    let side = lab.rig.machines();
    (1..=4).for_each(|number| side.build(number));
    for number in [3, 4] {
        side.rename(number, "twin");
    }
    let uuid = |name: &str, number| NodeIdentity {
        system_uuid: Some(side.uuid(number).to_uppercase()),
        ..NodeIdentity::named(name)
    };
    // The ID decides, even if the name and the UUID contradict it.
    let contradicting = NodeIdentity { provider_id: Some(side.id(2)), ..uuid("node-00001", 1) };
    assert_eq!(found(look(&lab, contradicting).await), "node-00002");
    assert_eq!(found(look(&lab, with_id("renamed", side.other_id(1))).await), "node-00001");
    assert_eq!(found(look(&lab, uuid("renamed", 1)).await), "node-00001");
    assert_eq!(found(look(&lab, named(2)).await), "node-00002");
    for (node, method, what) in [
        (with_id("node-00001", side.id(9)), ProofMethod::ById, side.id(9)),
        (named(9), ProofMethod::ByName, "node-00009".to_owned()),
        (NodeIdentity::named("node-0000"), ProofMethod::ByName, "node-0000".to_owned()),
        (uuid("node-00009", 9), ProofMethod::ByName, "node-00009".to_owned()),
    ] {
        is_gone(&look(&lab, node).await, method, &what);
    }
    for id in ["elsewhere:///i-00001", "nonsense"] {
        let answer = look(&lab, with_id("node-00001", id.to_owned())).await;
        let Ok(Lookup::NotOurs(reason)) = answer else { panic!("{id} is ours") };
        assert!(reason.contains(id), "{reason}");
    }
    let error = look(&lab, NodeIdentity::named("twin")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert_eq!(found(look(&lab, with_id("twin", side.id(4))).await), "twin");
}

/// The nodes are looked up in one call, for which the provider may make many requests.
pub(crate) async fn are_answered_each_by_itself_and_in_order(place: Place) {
    let lab = place.lab().await;
    (0..40).for_each(|number| lab.rig.machines().build(number));
    let mut nodes: Vec<_> = (0..60).rev().map(named).collect();
    nodes[5].provider_id = Some("elsewhere:///x".to_owned());
    for (number, answer) in (0..60).rev().zip(look_all(&lab, &nodes).await) {
        let name = format!("node-{number:05}");
        match number {
            54 => assert!(matches!(answer, Ok(Lookup::NotOurs(_))), "{name}: {answer:?}"),
            40.. => is_gone(&answer, ProofMethod::ByName, &name),
            _ => assert_eq!(found(answer), name),
        }
    }
    assert_eq!(look_all(&lab, &[]).await, []);
    let fleet = instances(&lab).list(call()).await.unwrap();
    let names: Vec<_> = fleet.instances.into_iter().map(|instance| instance.name).collect();
    assert_eq!(names, (0..40).map(|number| format!("node-{number:05}")).collect::<Vec<_>>());
}

pub(crate) async fn that_a_list_lacks_are_not_gone(place: Place) {
    let lab = place.lab().await;
    let side = lab.rig.machines();
    (0..12).for_each(|number| side.build(number));
    side.hide(true);
    assert_eq!(instances(&lab).list(call()).await.unwrap().instances, []);
    // The node is looked up alone, and among so many nodes that the provider may read a list.
    let fresh = NodeIdentity { system_uuid: Some(side.uuid(11)), ..named(11) };
    let known: Vec<_> =
        (0..12).map(|number| with_id(&named(number).name, side.id(number))).collect();
    for node in [&known[11], &fresh] {
        assert_eq!(found(look(&lab, node.clone()).await), "node-00011");
    }
    for (node, answer) in known.iter().zip(look_all(&lab, &known).await) {
        assert_eq!(found(answer), node.name);
    }
}

pub(crate) async fn that_cannot_be_read_affect_no_others(place: Place) {
    let lab = place.lab().await;
    let side = lab.rig.machines();
    (0..8).for_each(|number| side.build(number));
    side.spoil(6);
    let nodes: Vec<_> =
        (0..8).map(|number| with_id(&format!("node-{number:05}"), side.id(number))).collect();
    for (number, answer) in look_all(&lab, &nodes).await.into_iter().enumerate() {
        match number {
            6 => assert_eq!(answer.unwrap_err().kind, ErrorKind::Malformed),
            _ => assert_eq!(found(answer), format!("node-{number:05}")),
        }
    }
    let fleet = instances(&lab).list(call()).await.unwrap();
    assert_eq!((fleet.instances.len(), fleet.malformed.len()), (7, 1));
}

/// A wrong project also looks like an empty cloud, where a name alone may not prove anything.
pub(crate) async fn may_all_be_missing(place: Place) {
    let lab = place.lab().await;
    assert_eq!(instances(&lab).list(call()).await.unwrap().instances, []);
    let id = lab.rig.machines().id(9);
    is_gone(&look(&lab, with_id("x", id.clone())).await, ProofMethod::ById, &id);
    match look(&lab, NodeIdentity::named("x")).await {
        Ok(Lookup::Gone(_)) => {}
        other => assert_eq!(other.unwrap_err().kind, ErrorKind::Unavailable),
    }
}
