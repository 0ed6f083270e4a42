//! Properties that hold for every node and every answer.

use ccm_objects::{Shared, label_rules};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;

/// Returns the node as the API server stores it after the plan's steps.
pub(super) fn after(node: &Node, plan: &Plan) -> Node {
    let mut node = node.clone();
    for step in &plan.steps {
        match step {
            Step::SetAddresses { addresses, .. } => node.addresses.clone_from(addresses),
            Step::ChangeNode(change) => apply(&mut node, change),
        }
    }
    node
}

fn apply(node: &mut Node, change: &NodeChange) {
    if let Some(id) = &change.provider_id {
        assert_eq!(node.provider_id, None, "a provider ID is set once");
        node.provider_id = Some(id.as_str().into());
    }
    for (key, value) in &change.labels {
        match value {
            Some(value) => assert_ne!(
                node.labels.insert(key.as_str().into(), value.as_str().into()).as_deref(),
                Some(value.as_str()),
                "{key}"
            ),
            None => assert!(
                node.labels.remove(key.as_str()).is_some(),
                "{key} is removed though it is not there"
            ),
        }
    }
    for (key, value) in &change.annotations {
        match value {
            Some(value) => {
                drop(node.annotations.insert(key.as_str().into(), value.as_str().into()));
            }
            None => drop(node.annotations.remove(key.as_str())),
        }
    }
    if let Some(taints) = &change.taints {
        node.taints.clone_from(taints);
    }
}

const KEYS: [&str; 9] = [
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "e.com/a",
    "e.com/b",
    "e.com/c",
    "bad key",
];
const VALUES: [&str; 5] = ["", "a", "b", "zone one", "-"];
const IPS: [&str; 6] = ["10.0.0.1", "10.0.0.2", "fd00::1", "::ffff:10.0.0.1", "host", ""];
const KINDS: [&str; 4] = ["InternalIP", "ExternalIP", "Hostname", "Other"];
const TAINTS: [&str; 3] = [UNINITIALIZED, "e.com/x", "e.com/y"];

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    vec((select(&KEYS[..]), select(&VALUES[..])), 0..7).prop_map(|pairs| {
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    })
}

fn taints() -> impl Strategy<Value = Vec<Taint>> {
    vec((select(&TAINTS[..]), select(&VALUES[..])), 0..5)
        .prop_map(|list| list.into_iter().map(|(key, value)| taint(key, value)).collect())
}

prop_compose! {
    fn nodes()(
        labels in labels(),
        owned in vec(select(&KEYS[..]), 0..4),
        taints in taints(),
        addresses in vec((select(&KINDS[..]), select(&IPS[..])), 0..5),
        annotation in option::weighted(0.3, select(vec!["10.0.0.1", "10.0.0.2", "10.0.0.1,fd00::1", "x", ""])),
        provider_id in option::of(Just(Shared::from("fake://12345"))),
        is_ready: bool,
    ) -> Node {
        let owned: Vec<_> = owned.into_iter().collect();
        let mut annotations: BTreeMap<Shared, Box<str>> =
            annotation.into_iter().map(|value| (PROVIDED_NODE_IP.into(), value.into())).collect();
        if !owned.is_empty() {
            annotations.insert(OWNED_LABELS.into(), owned.join(",").into());
        }
        Node {
            name: "node0".into(),
            provider_id,
            labels: labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            annotations,
            taints,
            addresses: addresses.into_iter().map(|(kind, address)| Address::new(kind, address)).collect(),
            conditions: ready(if is_ready { "True" } else { "False" }),
            ..Node::default()
        }
    }
}

prop_compose! {
    fn instances()(
        labels in labels(),
        addresses in vec((select(&KINDS[..3]), select(&IPS[..])), 0..5),
        zone in option::of(select(&VALUES[..])),
        instance_type in option::of(select(&VALUES[..])),
    ) -> Instance {
        let mut instance = instance();
        instance.labels = labels;
        let parsed = |(kind, address): (&str, &str)| NodeAddress::new(kind.parse().unwrap(), address);
        instance.addresses = addresses.into_iter().map(parsed).collect();
        instance.zone = zone.map(str::to_owned);
        instance.instance_type = instance_type.map(str::to_owned);
        instance
    }
}

fn answers() -> impl Strategy<Value = LookupResult> {
    let gone = AbsenceProof {
        method: ProofMethod::ById,
        evidence: "404".to_owned(),
        request_id: None,
        kept: None,
    };
    prop_oneof![
        6 => instances().prop_map(found),
        1 => Just(Ok(Lookup::Gone(gone))),
        1 => Just(Ok(Lookup::NotOurs("elsewhere".to_owned()))),
        1 => select(ErrorKind::ALL).prop_map(failed),
    ]
}

fn policies() -> impl Strategy<Value = Policy> {
    let labels = vec![LabelPolicy::Follow, LabelPolicy::Once, LabelPolicy::Off];
    let changes = vec![InternalIpChange::Apply, InternalIpChange::Hold];
    (select(changes), select(labels), any::<bool>()).prop_map(
        |(internal_ip_change, labels, without_address)| Policy {
            internal_ip_change,
            labels,
            without_address,
            ..Policy::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn planning_again_after_a_plan_has_no_steps(node in nodes(), answer in answers(), policy in policies()) {
        let first = plan(&node, Claim::Ours, &answer, policy, PlanInputs::default());
        let second = plan(&after(&node, &first), Claim::Ours, &answer, policy, PlanInputs::default());
        prop_assert!(second.steps.is_empty(), "first {first}\nthen {second}");
    }

    #[test]
    fn a_ready_node_keeps_an_internal_ip_and_changes_it_only_by_the_brake(
        node in nodes(), answer in answers(), policy in policies(),
    ) {
        let taints = Vec::new();
        let node = Node { taints, conditions: ready("True"), ..node };
        let got = plan(&node, Claim::Ours, &answer, policy, PlanInputs::default());
        let done = after(&node, &got);
        let first = |node: &Node| addresses::primary(&node.addresses).map(str::to_owned);
        prop_assert!(first(&node).is_none() || first(&done).is_some(), "{got}");
        let zone = |node: &Node| node.labels.get("topology.kubernetes.io/zone").cloned();
        // Without a value of the cloud the beta label is mirrored: that is the node's own word.
        let follows = matches!(&answer, Ok(Lookup::Found(one)) if one.zone.as_ref().is_some_and(|zone| !zone.is_empty() && label_rules::check_value(zone).is_ok()));
        let has_changed = (first(&node).is_some() && first(&node) != first(&done))
            || (follows && zone(&node).is_some() && zone(&node) != zone(&done));
        prop_assert!(!has_changed || got.needs_brake(), "{got}");
    }

    #[test]
    fn an_initialised_node_has_an_address(node in nodes(), answer in answers()) {
        let got = plan(&node, Claim::Ours, &answer, Policy::default(), PlanInputs::default());
        let done = after(&node, &got);
        prop_assert!(got.outcome != Outcome::Initialised || addresses::have_ip(&done.addresses), "{got}");
    }

    #[test]
    fn a_foreign_node_is_never_touched(node in nodes(), answer in answers(), policy in policies()) {
        prop_assert!(plan(&node, Claim::Foreign, &answer, policy, PlanInputs::default()).steps.is_empty());
    }

    #[test]
    fn only_a_found_instance_leads_to_writes(node in nodes(), answer in answers(), policy in policies()) {
        let got = plan(&node, Claim::Ours, &answer, policy, PlanInputs::default());
        prop_assert!(got.steps.is_empty() || matches!(answer, Ok(Lookup::Found(_))), "{got}");
    }

    #[test]
    fn the_taint_is_removed_by_the_last_step(node in nodes(), answer in answers(), policy in policies()) {
        let got = plan(&node, Claim::Ours, &answer, policy, PlanInputs::default());
        prop_assert!(got.steps.len() <= 2, "{got}");
        let writes_node = |step: &Step| matches!(step, Step::ChangeNode(_));
        prop_assert!(got.steps.iter().rev().skip(1).all(|step| !writes_node(step)), "{got}");
        let others = |taints: &[Taint]| taints.iter().filter(|taint| &*taint.key != UNINITIALIZED).cloned().collect::<Vec<_>>();
        let done = after(&node, &got);
        prop_assert_eq!(others(&done.taints), others(&node.taints));
        if node.is_uninitialised() {
            let initialised = got.outcome == Outcome::Initialised;
            prop_assert_eq!(done.is_uninitialised(), !initialised);
            prop_assert!(initialised || got.steps.is_empty(), "a waiting node is not written: {}", got);
        } else {
            prop_assert_eq!(&done.taints, &node.taints);
        }
    }

    #[test]
    fn written_labels_are_valid_and_only_recorded_labels_are_removed(node in nodes(), answer in answers()) {
        let got = plan(&node, Claim::Ours, &answer, Policy::default(), PlanInputs::default());
        for step in &got.steps {
            let Step::ChangeNode(change) = step else { continue };
            for (key, value) in &change.labels {
                match value {
                    // A mirrored value was accepted by the API server when it was written.
                    Some(value) if node.labels.values().any(|present| **present == **value) => {}
                    Some(value) => prop_assert!(label_rules::check(key, value).is_ok(), "{key}={value:?}"),
                    None => prop_assert!(labels::owned(&node).contains(key), "{key}"),
                }
            }
        }
    }
}
