//! Tests wrong values: the message is one line that names the annotation and a right value. Members
//! continue to be updated.

use ccm_cloud::{ErrorKind, Progress};
use ccm_openstack_client::scripted::uuid;
use serde_json::json;

use super::rig::{Rig, annotated, changed, members, wanted};

/// Nodes that determine the place of a load balancer may come later, without a change of the
/// Service.
#[tokio::test]
async fn a_cluster_without_nodes_is_no_mistake_of_the_service() {
    let rig = Rig::with(|_| {});
    let mut web = wanted("web");
    let nodes = std::mem::replace(&mut web.members.present, [].into());
    let error = rig.ensure(&web).await.unwrap_err();
    assert_eq!(error.class(), ccm_base::RetryClass::Retry, "{error}");
    assert!(error.message.contains("no node has"), "{error}");
    web.members.present = nodes;
    let error = rig.ensure(&web).await.unwrap_err();
    assert_eq!(error.class(), ccm_base::RetryClass::Retry, "{error}");
    assert!(error.message.contains("10.8.1.1"), "{error}");
    let mut port = ccm_openstack_client::scripted::port(1);
    port["fixed_ips"] = json!([{ "subnet_id": uuid(1), "ip_address": "10.8.1.1" }]);
    rig.cloud.world.lock().ports.push(port);
    rig.settle(&web).await;
}

/// Annotations that cannot be met, with the words of the error besides their name.
const WRONG: [(&str, &str, &str); 20] = [
    ("class", "none", "cloud.conf does not have any"),
    ("connection-limit", "-5", "from -1 to"),
    ("timeout-client-data", "86400001", "from 0 to 86400000"),
    ("timeout-member-connect", "-1", "from 0 to 86400000"),
    ("health-monitor-max-retries", "0", "from 1 to 10"),
    ("health-monitor-max-retries-down", "11", "from 1 to 10"),
    ("health-monitor-delay", "-1", "from 0 to"),
    ("load-balancer-tags", "kubernetes-service-uid=x", "records an owner"),
    ("default-tls-container-ref", "https://barbican/v1/secrets/x", "empty text"),
    ("floating-subnet", "public-*", "floating-subnet-id"),
    ("floating-subnet-tags", "a,b", "floating-subnet-id"),
    ("subnet-id", "not there", "that this project may use"),
    ("member-subnet-id", "not there", "that this project may use"),
    ("floating-subnet-id", "not there", "that this project may use"),
    ("hostname", "10.0.0.1", "DNS name in lower case"),
    ("hostname", "My_Host", "DNS name in lower case"),
    ("port-id", "not there", "that this project may use"),
    ("floating-network-id", "not there", "that this project may use"),
    ("flavor-id", "not there", "that this project may use"),
    ("availability-zone", "nowhere", "that this project may use"),
];

#[tokio::test]
async fn what_cannot_be_names_the_annotation_and_what_would_be_right() {
    for (key, value, right) in WRONG {
        let rig = Rig::new();
        let web = annotated(&wanted("web"), "enable-health-monitor", "true");
        let wrong = annotated(&web, key, value);
        let mut answer = rig.ensure(&wrong).await;
        // A floating IP comes after the load balancer.
        for _ in 0..4 {
            if answer.is_ok() {
                answer = rig.ensure(&wrong).await;
            }
        }
        let error = answer.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{key}: {error}");
        let annotation = format!("annotation loadbalancer.openstack.org/{key}");
        assert!(error.message.contains(&annotation), "{error}");
        assert!(error.message.contains(right), "{error}");
        assert_eq!(error.subject.as_deref(), Some(&*annotation), "{error}");
    }
}

/// If openstack-cloud-controller-manager takes the default instead of a value, the provider does
/// the same, with a remark.
#[tokio::test]
async fn what_counts_as_its_default_is_a_remark() {
    for (key, value, right) in [
        ("connection-limit", "many", "a whole number"),
        ("timeout-member-data", "5s", "a whole number"),
        ("keep-floatingip", "yes", "true or false"),
        ("x-forwarded-for", "1", "true or false"),
        ("enable-health-monitor", "", "true or false"),
        ("proxy-protocol", "v3", "true, v1, v2 or false"),
        ("lb-method", "RANDOM", "one of ROUND_ROBIN"),
        ("node-selector", "zone in (a, b)", "key=value,key2"),
        ("node-selector", "=", "key=value,key2"),
        ("conection-limit", "5", "is unknown and ignored"),
    ] {
        let rig = Rig::new();
        let done = rig.settle(&annotated(&wanted("web"), key, value)).await;
        let [note] = &done.notes[..] else { panic!("{key}: {:?}", done.notes) };
        assert!(note.warning && note.message.contains(key), "{note:?}");
        assert!(note.message.contains(right), "{note:?}");
    }
}

#[tokio::test]
async fn all_that_is_wrong_is_in_one_error() {
    let rig = Rig::new();
    let wrong = annotated(&annotated(&wanted("web"), "class", "none"), "connection-limit", "-9");
    let wrong = annotated(&annotated(&wrong, "proxy-protocol", "v1"), "x-forwarded-for", "true");
    let error = rig.ensure(&wrong).await.unwrap_err();
    for part in ["class", "connection-limit", "excludes x-forwarded-for"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert_eq!(rig.writes(), [""; 0]);
}

/// Each of these is wrong on a load balancer that works; its members continue to be updated.
#[tokio::test]
async fn members_go_on_whatever_is_wrong() {
    let rig = Rig::new();
    let id = rig.settle(&wanted("web")).await.id;
    let mut joined = vec![1, 2, 3];
    for (number, (key, value, _)) in WRONG.iter().enumerate() {
        let wrong = annotated(&wanted("web"), key, value);
        rig.ensure(&wrong).await.ok();
        joined.push(10 + u8::try_from(number).unwrap());
        for _ in 0..20 {
            let list = rig.set_members(&wrong, &id, members(&joined, &[])).await.unwrap();
            if matches!(list, Progress::Done(_)) {
                break;
            }
        }
        assert_eq!(rig.nodes(), joined, "{key}");
    }
}

/// Values that no annotation accepts.
const ODD: [&str; 29] = [
    "",
    " ",
    ",",
    " , ,",
    "a, ,b,,",
    "-1",
    "0",
    "-0",
    "+5",
    "1e9",
    "0x10",
    "3.5",
    "true,false",
    "TRUE",
    "99999999999999999999",
    "-9223372036854775809",
    "2147483648",
    "null",
    "{}",
    "[]",
    "\"",
    "\\",
    "\n\t",
    "\u{0}",
    "\u{feff}true",
    "ü☃𝕏",
    "../../x",
    "%00%2f?a=b&c#d",
    "a=b=c",
];

/// No value of an annotation breaks anything: the error says what is wrong, and nothing of another
/// Service is touched.
#[tokio::test]
async fn odd_values_are_said_or_taken() {
    let long = "x".repeat(5_000);
    let odd = || ODD.into_iter().chain([long.as_str()]);
    for key in super::super::annotations::KNOWN {
        for value in odd() {
            let rig = Rig::new();
            let web = annotated(&wanted("web"), key, value);
            if !ccm_cloud::LoadBalancers::traits(&rig.balancers)
                .configures(&format!("loadbalancer.openstack.org/{key}"))
            {
                continue;
            }
            let mut answer = rig.ensure(&web).await;
            for _ in 0..4 {
                if !matches!(answer, Ok(Progress::InProgress(_))) {
                    break;
                }
                answer = rig.ensure(&web).await;
            }
            match answer {
                Ok(Progress::Done(done)) => {
                    let about = |note: &ccm_cloud::Note| note.message.contains(key);
                    let others = done.notes.iter().filter(|note| !about(note)).count();
                    assert_eq!(others, 0, "{key}={value:?}: {:?}", done.notes);
                }
                Ok(other) => panic!("{key}={value:?}: {other:?}"),
                Err(error) => {
                    // Then the nodes decide on the place, and other nodes may join.
                    let is_open = key == "subnet-id" && error.message.contains("is not set");
                    let kind = if is_open { ErrorKind::Conflict } else { ErrorKind::Invalid };
                    assert_eq!(error.kind, kind, "{key}={value:?}: {error}");
                    assert!(error.message.contains(key), "{key}={value:?}: {error}");
                    let lines = error.message.lines().count();
                    assert!(lines == 1 && error.message.len() < 1_500, "{key}={value:?}: {error}");
                }
            }
        }
    }
}

/// Octavia has a minimum time between two checks of UDP members.
#[tokio::test]
async fn checks_that_come_too_often_are_named() {
    let rig = Rig::new();
    let web = annotated(&wanted("web"), "enable-health-monitor", "true");
    let web = annotated(&web, "health-monitor-delay", "1");
    let web = changed(&web, |it| it.ports.push(super::port(53, ccm_cloud::Protocol::Udp)));
    let error = rig.ensure(&web).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    for words in ["health-monitor-delay", "monitor-delay", "larger than 3"] {
        assert!(error.message.contains(words), "{error}");
    }
}

/// A floating IP of another project is one that this one does not see.
#[tokio::test]
async fn an_address_that_cannot_be_had_is_named() {
    let rig = Rig::new();
    let web = changed(&wanted("web"), |it| it.address = "172.24.200.1".parse().ok());
    let mut error = None;
    for _ in 0..4 {
        error = rig.ensure(&web).await.err().or(error);
    }
    let error = error.unwrap();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.message.contains("spec.loadBalancerIP"), "{error}");
    let id = rig.rows("balancers")[0]["id"].as_str().unwrap().to_owned();
    rig.members_with(&web, &id, members(&[7], &[])).await;
    assert_eq!(rig.nodes(), [1, 2, 3, 7]);
}

#[tokio::test]
async fn full_networks_are_named() {
    let rig = Rig::new();
    rig.cloud.world.lock().floating.room = 0;
    let web = annotated(&wanted("web"), "floating-network-id", &uuid(50));
    let mut error = None;
    for _ in 0..4 {
        error = rig.ensure(&web).await.err().or(error);
    }
    let error = error.unwrap();
    assert!(error.message.contains("floating-network-id"), "{error}");
    assert!(error.message.contains("free addresses"), "{error}");
}

/// A listener of another owner has the port: the error names it, and the provider does not change it.
#[tokio::test]
async fn listeners_that_collide_are_named() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    {
        let mut world = rig.cloud.world.lock();
        let mut foreign = world.octavia.listeners[0].clone();
        foreign["id"] = json!("foreign");
        foreign["protocol"] = json!("HTTP");
        foreign["protocol_port"] = json!(8080);
        foreign["default_pool_id"] = json!(null);
        foreign["tags"] = json!(["a person's"]);
        foreign["_balancer"] = json!(id);
        world.octavia.listeners.push(foreign);
    }
    let more = changed(&web, |it| it.ports.push(super::port(8080, ccm_cloud::Protocol::Tcp)));
    let error = rig.ensure(&more).await.unwrap_err();
    assert_eq!((error.kind, error.subject.as_deref()), (ErrorKind::Conflict, Some("8080/TCP")));
    assert!(error.message.contains("foreign"), "{error}");
    // The same port with another protocol is another port.
    let udp = changed(&web, |it| it.ports.push(super::port(8080, ccm_cloud::Protocol::Udp)));
    rig.settle(&udp).await;
    assert!(rig.rows("listeners").iter().any(|row| row["id"] == "foreign"));
}

#[tokio::test]
async fn refuses_what_no_load_balancer_can_be() {
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.minor = 20;
    let good = wanted("web");
    let sctp = |it: &mut ccm_cloud::FrontEnd| it.ports[0].protocol = ccm_cloud::Protocol::Sctp;
    let twice =
        |it: &mut ccm_cloud::FrontEnd| it.ports.push(super::port(80, ccm_cloud::Protocol::Tcp));
    let mut other = good.clone();
    std::sync::Arc::make_mut(&mut other.front_end).settings.insert("other/x".into(), String::new());
    for (wanted, subject) in [
        (changed(&good, |it| it.ports.clear()), "ports"),
        (changed(&good, twice), "80/TCP"),
        (changed(&good, sctp), "80/SCTP"),
        (changed(&good, |it| it.address = "::1".parse().ok()), "::1"),
        (other, "other/x"),
        (annotated(&good, "proxy-protocol", "v2"), "proxy-protocol"),
    ] {
        let error = rig.ensure(&wanted).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
        assert!(error.subject.as_deref().is_some_and(|it| it.contains(subject)), "{error}");
        assert_eq!(rig.preview(&wanted).await, Err(error));
    }
    assert_eq!(rig.writes(), [""; 0]);
    // Without tags no load balancer can be owned.
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.minor = 4;
    assert_eq!(rig.ensure(&good).await.unwrap_err().kind, ErrorKind::Unsupported);
}
