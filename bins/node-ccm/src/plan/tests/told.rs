//! The messages about addresses that a node does not get.

use super::*;

/// Addresses that the provider's own settings leave out are not missing in the cloud.
#[test]
fn what_settings_leave_out_is_told_with_the_setting() {
    let mut instance = instance();
    instance.addresses.clear();
    let text = "the server has 10.0.0.1 on k8s-net: [Networking] internal-network-name = k8s-intern does not admit it";
    instance.withheld = Some(text.to_owned());
    let Outcome::Waits(wait) =
        follow(&tainted(), &instance, Policy::default(), PlanInputs::default()).outcome
    else {
        panic!("it has no address")
    };
    assert_eq!(
        wait.message,
        format!("{text}; the kubelet does not report an IP address of the node")
    );
    let node = settled(&super::instance());
    instance.addresses = vec![NodeAddress::new(AddressKind::ExternalIp, "132.143.154.163")];
    let notes = follow(&node, &instance, Policy::default(), PlanInputs::default()).notes;
    let said = notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(said.starts_with(&format!("{text}, so there is no InternalIP")), "{said}");
}

#[test]
fn a_family_that_node_ip_leaves_out_is_told() {
    let mut dual = instance();
    dual.addresses.push(NodeAddress::new(AddressKind::InternalIp, "fd00::1"));
    let said = |node_ip: &str| {
        let node = annotated(tainted(), PROVIDED_NODE_IP, node_ip);
        follow(&node, &dual, Policy::default(), PlanInputs::default()).notes
    };
    let notes = said("10.0.0.1");
    assert_eq!(
        notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "left out because of the kubelet's --node-ip 10.0.0.1: fd00::1; to have both families, set --node-ip to one address of each"
        ]
    );
    assert_eq!(notes[0].event(), ("NodeIPFamilyLeftOut", true));
    assert_eq!(said("10.0.0.1,fd00::1"), []);
    dual.addresses.pop();
    dual.addresses.push(NodeAddress::new(AddressKind::InternalIp, "10.0.0.9"));
    let node = annotated(tainted(), PROVIDED_NODE_IP, "10.0.0.1");
    assert_eq!(
        follow(&node, &dual, Policy::default(), PlanInputs::default()).notes,
        [],
        "another one of the same family"
    );
}
