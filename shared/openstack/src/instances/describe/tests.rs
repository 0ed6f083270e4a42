use ccm_cloud::{AddressKind, NodeAddress};
use ccm_openstack_client::{compute::Row, scripted};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn config(region: Option<&str>, regional_ids: bool) -> Config {
    let mut config = crate::tests::config();
    (config.access.region, config.regional_ids) = (region.map(str::to_owned), regional_ids);
    config
}

fn server(change: impl FnOnce(&mut Value)) -> Server {
    let mut json = scripted::server(1);
    change(&mut json);
    let Row::Whole(server) = Row::read(&json.to_string()) else { panic!("{json}") };
    *server
}

fn described(server: &Server, config: &Config) -> Result<Instance, String> {
    let known = Inputs { server, ports: &[], sub_ports: &[], names: &BTreeMap::new() };
    let kind = Kind { name: Some("m1.large".to_owned()), id: Some("7".to_owned()) };
    describe(&known, kind, config)
}

#[test]
fn tells_everything() {
    let id = |text: &str| ProviderId::parse(text).unwrap();
    let plain = format!("openstack:///{}", scripted::uuid(1));
    let regional = format!("openstack://bench/{}", scripted::uuid(1));
    let server = server(|_| {});
    let mut bench = config(Some("bench"), false);
    bench.labels.flavor_id = true;
    let instance = described(&server, &bench).unwrap();
    let expect = Instance {
        provider_id: id(&plain),
        other_ids: vec![id(&regional)],
        name: "node-00001".to_owned(),
        instance_type: Some("m1.large".to_owned()),
        zone: Some("zone-1".to_owned()),
        region: Some("bench".to_owned()),
        addresses: vec![NodeAddress::new(AddressKind::InternalIp, "10.0.0.2")],
        labels: BTreeMap::from([("openstack.quartet.dev/flavor-id".to_owned(), "7".to_owned())]),
        power: PowerState::Running,
        pod_cidrs: Vec::new(),
        withheld: None,
    };
    assert_eq!(instance, expect);
    let instance = described(&server, &config(Some("bench"), true)).unwrap();
    assert_eq!((instance.provider_id, instance.other_ids), (id(&regional), vec![id(&plain)]));
    let instance = described(&server, &config(None, false)).unwrap();
    assert_eq!((instance.other_ids, instance.region), (vec![], None));
}

#[test]
fn trouble_names_the_server() {
    let server = server(|json| json["accessIPv4"] = json!("nonsense"));
    let error = described(&server, &config(None, false)).unwrap_err();
    assert!(error.contains(&scripted::uuid(1)) && error.contains("node-00001"), "{error}");
    assert!(error.contains("nonsense"), "{error}");
}

#[test]
fn every_status_has_its_meaning() {
    use PowerState::{Changing, Running, Stopped, Unknown};
    for (status, task, expect) in [
        ("ACTIVE", None, Running),
        ("ACTIVE", Some("powering-off"), Running),
        ("PASSWORD", None, Running),
        ("VERIFY_RESIZE", None, Running),
        ("SHUTOFF", None, Stopped),
        ("SHUTOFF", Some("image_uploading"), Stopped),
        ("SHUTOFF", Some("powering-on"), Changing),
        ("SHELVED_OFFLOADED", None, Stopped),
        ("SHELVED_OFFLOADED", Some("unshelving"), Changing),
        ("SHELVED_OFFLOADED", Some("spawning"), Changing),
        ("SHELVED", None, Changing),
        ("PAUSED", None, Changing),
        ("SUSPENDED", None, Changing),
        ("BUILD", Some("spawning"), Changing),
        ("REBUILD", None, Changing),
        ("REBOOT", None, Changing),
        ("HARD_REBOOT", None, Changing),
        ("RESIZE", None, Changing),
        ("REVERT_RESIZE", None, Changing),
        ("MIGRATING", None, Changing),
        ("RESCUE", None, Changing),
        ("ERROR", None, Unknown),
        ("UNKNOWN", None, Unknown),
        ("A_NEW_ONE", None, Unknown),
        ("", None, Unknown),
    ] {
        let server = server(|json| {
            json["status"] = json!(status);
            json["OS-EXT-STS:task_state"] = json!(task);
        });
        assert_eq!(power(&server), expect, "{status} {task:?}");
        assert!(server.exists(), "{status}");
    }
    for status in ["DELETED", "SOFT_DELETED"] {
        assert!(!server(|json| json["status"] = json!(status)).exists(), "{status}");
    }
}

#[test]
fn labels_come_by_rule() {
    let server = server(|json| {
        json["metadata"] = json!({
            "role": "worker", "rack name": "row 7/3", "rack:height": "", "other": "x",
            "日本": "x", "rack.bad": "...", "host-id": "forged",
        });
    });
    let labels = |metadata: &[&str], host_id: bool, flavor: Option<&str>| {
        let metadata = metadata.iter().map(|rule| (*rule).to_owned()).collect();
        let rules = Labels { metadata, host_id, flavor_id: true };
        let labels = labels(&server, flavor.map(str::to_owned), &rules);
        labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(labels(&[], false, None), [""; 0]);
    assert_eq!(labels(&["role"], false, None), ["openstack.quartet.dev/role=worker"]);
    assert_eq!(
        labels(&["rack*", "ro"], true, Some("7")),
        [
            "openstack.quartet.dev/flavor-id=7",
            "openstack.quartet.dev/host-id=0123456789abcdef",
            "openstack.quartet.dev/rack-height=",
            "openstack.quartet.dev/rack-name=row-7-3",
        ]
    );
    let all = labels(&["*"], true, None);
    assert!(all.contains(&"openstack.quartet.dev/host-id=0123456789abcdef".to_owned()), "{all:?}");
    assert_eq!(all.len(), 5, "{all:?}");
}

#[test]
fn no_more_labels_than_a_node_bears() {
    let server = server(|json| {
        json["metadata"] = (0..200).map(|n| (format!("k{n:03}"), json!("v"))).collect();
    });
    let rules = Labels { metadata: vec!["*".to_owned()], host_id: false, flavor_id: false };
    assert_eq!(labels(&server, None, &rules).len(), MAX_LABELS);
}

proptest! {
    #[test]
    fn labels_are_always_valid(
        metadata in prop::collection::btree_map("\\PC{0,70}", "\\PC{0,70}", 0..8),
        zone in "\\PC{0,80}",
    ) {
        let server = server(|json| {
            json["metadata"] = json!(metadata);
            json["OS-EXT-AZ:availability_zone"] = json!(zone);
        });
        let mut config = config(Some("Région 1"), false);
        config.labels.metadata = vec!["*".to_owned()];
        let instance = described(&server, &config).unwrap();
        let is_name = |text: &str| crate::labels::is_label_value(text);
        for (key, value) in &instance.labels {
            prop_assert!(is_name(key.strip_prefix("openstack.quartet.dev/").unwrap()), "{key}");
            prop_assert!(value.is_empty() || is_name(value), "{value}");
        }
        prop_assert!(instance.zone.is_none_or(|zone| is_name(&zone)));
        prop_assert_eq!(instance.region.as_deref(), Some("R-gion-1"));
    }
}
