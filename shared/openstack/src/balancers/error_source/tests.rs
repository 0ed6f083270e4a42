use std::collections::BTreeMap;

use ccm_cloud::Traffic;
use ccm_openstack_client::scripted::uuid;

use super::*;

/// Returns the settings of a Service that has all of these values. A message may contain several of
/// them.
fn settings() -> Settings {
    let annotations = [
        ("port-id", 1),
        ("member-subnet-id", 3),
        ("floating-network-id", 4),
        ("floating-subnet-id", 5),
    ];
    let annotation = |(key, id): (&str, usize)| (format!("{PREFIX}{key}"), uuid(id));
    let annotations: BTreeMap<_, _> = annotations.into_iter().map(annotation).collect();
    let mut options = crate::tests::config();
    options.networks.subnet_id = Some(uuid(2));
    annotations::read(&annotations, &options, Traffic::Cluster).unwrap()
}

fn blame(kind: ErrorKind, about: About, words: &str) -> CloudError {
    let error = CloudError::new(kind, format!("an_operation: HTTP 404: {words}"));
    let after = add_source(error.clone(), about, &settings());
    assert!(after.message.contains(words), "the service's words stay: {after}");
    if after.subject.is_none() {
        assert_eq!(after, error);
    }
    after
}

#[test]
fn an_external_network_without_a_router_is_said_so() {
    let words = format!(
        "External network {} is not reachable from subnet {}.  Therefore, cannot associate Port {} \
         with a Floating IP.",
        uuid(4),
        uuid(2),
        uuid(1)
    );
    let error = blame(ErrorKind::NotFound, About::FloatingIp, &words);
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert_eq!(error.subject, Some(format!("external network {}", uuid(4))));
    let right = format!(
        "no router connects subnet {} with external network {}: add the subnet to a router whose \
         gateway is {}, make the Service internal",
        uuid(2),
        uuid(4),
        uuid(4)
    );
    assert!(error.message.starts_with(&right), "{error}");
    assert!(error.message.contains("name another floating-network-id"), "{error}");
    let wished = not_attached(CloudError::new(ErrorKind::NotFound, words), [192, 0, 2, 1].into());
    assert!(wished.message.contains(&right), "{wished}");
    assert!(wished.message.contains("choose another address"), "{wished}");
    let again = add_source(wished.clone(), About::FloatingIp, &settings());
    assert_eq!(again, wished, "the wish is the cause");
}

#[test]
fn the_object_that_is_refused_is_named_and_no_other() {
    use About::{FloatingIp, LoadBalancer};
    use ErrorKind::{Invalid, NotFound};
    let [port, subnet, member, network, outer, other] = [1, 2, 3, 4, 5, 9].map(uuid);
    for (kind, about, words, key) in [
        (NotFound, LoadBalancer, format!("Port {port} not found."), Some("port-id")),
        (Invalid, LoadBalancer, format!("Subnet {member} not found."), Some("member-subnet-id")),
        (
            NotFound,
            FloatingIp,
            format!("Network {network} could not be found."),
            Some("floating-network-id"),
        ),
        (
            NotFound,
            FloatingIp,
            format!("Subnet {outer} could not be found."),
            Some("floating-subnet-id"),
        ),
        (
            Invalid,
            FloatingIp,
            format!("Bad floatingip request: Network {network} is not a valid external network."),
            Some("floating-network-id"),
        ),
        // The port of the virtual address is gone: no value of the Service is wrong.
        (NotFound, FloatingIp, format!("Port {port} could not be found."), None),
        // Another kind of object, another object, and objects that the text only mentions.
        (NotFound, LoadBalancer, format!("Pool {port} not found."), None),
        (NotFound, LoadBalancer, format!("Port {other} not found."), None),
        (NotFound, LoadBalancer, format!("Load Balancer {other} of port {port} not found."), None),
        (Invalid, LoadBalancer, format!("Port {port} is bound to a host."), None),
        (Invalid, LoadBalancer, format!("Provider is not allowed with subnet {subnet}."), None),
    ] {
        let error = blame(kind, about, &words);
        let expect = key.map(|key| format!("annotation {PREFIX}{key}"));
        assert_eq!(error.subject, expect, "{words}");
        let is_final = key.is_some() || kind == Invalid;
        assert_eq!(error.kind == Invalid, is_final, "{words}");
    }
}
