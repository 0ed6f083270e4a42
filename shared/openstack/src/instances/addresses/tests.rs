use AddressKind::{ExternalIp, Hostname, InternalIp};
use ccm_openstack_client::compute::Row;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A server and what surrounds it, to be written down shortly.
#[derive(Clone, Debug)]
struct Case {
    server: Value,
    ports: Vec<Value>,
    sub_ports: Vec<Value>,
    names: Vec<(&'static str, &'static str)>,
    networking: Networking,
}

fn read<T: serde::de::DeserializeOwned>(values: &[Value]) -> Vec<T> {
    values.iter().map(|value| serde_json::from_value(value.clone()).unwrap()).collect()
}

impl Case {
    fn try_addresses(&self) -> Result<Vec<(AddressKind, String)>, String> {
        let Row::Whole(server) = Row::read(&self.server.to_string()) else { panic!() };
        let names =
            self.names.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect();
        let (ports, sub_ports): (Vec<Port>, Vec<Port>) = (read(&self.ports), read(&self.sub_ports));
        let known = Inputs { server: &server, ports: &ports, sub_ports: &sub_ports, names: &names };
        let list = node_addresses(&known, &self.networking)?;
        Ok(list.into_iter().map(|address| (address.kind, address.address)).collect())
    }

    fn withheld(&self) -> Option<String> {
        let Row::Whole(server) = Row::read(&self.server.to_string()) else { panic!() };
        let (ports, sub_ports): (Vec<Port>, Vec<Port>) = (read(&self.ports), read(&self.sub_ports));
        let names = BTreeMap::new();
        let known = Inputs { server: &server, ports: &ports, sub_ports: &sub_ports, names: &names };
        let shown = node_addresses(&known, &self.networking).unwrap();
        withheld(&known, &self.networking, &shown)
    }

    #[track_caller]
    fn gives(&self, expect: &[(AddressKind, &str)]) {
        let expect: Vec<_> =
            expect.iter().map(|(kind, text)| (*kind, (*text).to_owned())).collect();
        assert_eq!(self.try_addresses(), Ok(expect));
    }

    fn with(&self, change: impl FnOnce(&mut Networking)) -> Self {
        let mut case = self.clone();
        change(&mut case.networking);
        case
    }
}

fn port(id: &str, network: &str, created: &str, ips: &[&str]) -> Value {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"ip_address": ip})).collect();
    json!({"id": id, "device_id": "d", "status": "ACTIVE", "network_id": network,
           "fixed_ips": ips, "created_at": created})
}

fn entry(addr: &str, kind: &str) -> Value {
    json!({"addr": addr, "version": 4, "OS-EXT-IPS:type": kind})
}

fn some(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns the example of the published order.
fn example() -> Case {
    Case {
        server: json!({
            "id": "00000001-0000-4000-8000-000000000001", "name": "n", "status": "ACTIVE",
            "accessIPv4": "50.56.176.99",
            "accessIPv6": "2001:4800:790e:510:be76:4eff:fe04:82a8",
            "metadata": {"hostname": "a1-yinvcez57-0-bvynoyawrhcg-kube-minion-fg5i4jwcc2yy",
                         "name": "n"},
            "addresses": {
                "public": [entry("50.56.176.35", "fixed"),
                           entry("2001:4800:780e:510:be76:4eff:fe04:84a8", "fixed")],
                "private": [entry("10.0.0.32", "fixed"), entry("50.56.176.36", "floating"),
                            entry("10.0.0.31", "fixed")],
            },
        }),
        ports: vec![
            port("p1", "net-private", "2026-01-01T00:00:05Z", &["10.0.0.32"]),
            port("p2", "net-private", "2026-01-01T00:00:00Z", &["10.0.0.31"]),
        ],
        sub_ports: vec![],
        names: vec![],
        networking: Networking {
            ipv6_disabled: false,
            public_networks: some(&["public"]),
            internal_networks: vec![],
            sort_order: vec![],
        },
    }
}

const ACCESS_6: &str = "2001:4800:790e:510:be76:4eff:fe04:82a8";
const PUBLIC_6: &str = "2001:4800:780e:510:be76:4eff:fe04:84a8";
const HOST: &str = "a1-yinvcez57-0-bvynoyawrhcg-kube-minion-fg5i4jwcc2yy";

#[test]
fn the_published_example() {
    example().gives(&[
        (InternalIp, "10.0.0.32"),
        (InternalIp, "10.0.0.31"),
        (ExternalIp, "50.56.176.99"),
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
        (ExternalIp, "50.56.176.36"),
        (ExternalIp, "50.56.176.35"),
        (ExternalIp, PUBLIC_6),
    ]);
}

#[test]
fn networks_decide_by_name_or_id() {
    let by = |public: &[&str], internal: &[&str]| {
        example().with(|net| {
            net.public_networks = some(public);
            net.internal_networks = some(internal);
        })
    };
    // The settings name no public network, so all fixed addresses are internal.
    by(&[], &[]).gives(&[
        (InternalIp, "10.0.0.32"),
        (InternalIp, "10.0.0.31"),
        (ExternalIp, "50.56.176.99"),
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
        (ExternalIp, "50.56.176.36"),
        (InternalIp, "50.56.176.35"),
        (InternalIp, PUBLIC_6),
    ]);
    // An address of a public network is not internal, even if a port has it, too.
    for public in ["private", "net-private"] {
        by(&[public], &[]).gives(&[
            (ExternalIp, "50.56.176.99"),
            (ExternalIp, ACCESS_6),
            (Hostname, HOST),
            (ExternalIp, "10.0.0.32"),
            (ExternalIp, "50.56.176.36"),
            (ExternalIp, "10.0.0.31"),
            (InternalIp, "50.56.176.35"),
            (InternalIp, PUBLIC_6),
        ]);
    }
    // One internal network drops the addresses of all others, also those on ports.
    by(&[], &["public"]).gives(&[
        (ExternalIp, "50.56.176.99"),
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
        (ExternalIp, "50.56.176.36"),
        (InternalIp, "50.56.176.35"),
        (InternalIp, PUBLIC_6),
    ]);
    // The settings name several internal networks.
    for internal in ["private", "net-private"] {
        by(&[], &[internal, "public"]).gives(&[
            (InternalIp, "10.0.0.32"),
            (InternalIp, "10.0.0.31"),
            (ExternalIp, "50.56.176.99"),
            (ExternalIp, ACCESS_6),
            (Hostname, HOST),
            (ExternalIp, "50.56.176.36"),
            (InternalIp, "50.56.176.35"),
            (InternalIp, PUBLIC_6),
        ]);
    }
}

#[test]
fn ipv6_can_be_left_out_everywhere() {
    let mut case = example().with(|net| net.ipv6_disabled = true);
    case.ports[0] = port("p1", "net-private", "2026-01-01T00:00:00Z", &["10.0.0.32", "fd00::32"]);
    case.gives(&[
        (InternalIp, "10.0.0.32"),
        (InternalIp, "10.0.0.31"),
        (ExternalIp, "50.56.176.99"),
        (Hostname, HOST),
        (ExternalIp, "50.56.176.36"),
        (ExternalIp, "50.56.176.35"),
    ]);
}

#[test]
fn a_wished_order_mixes_kinds_and_leaves_the_rest_as_it_was() {
    let sorted = |order: &[&str]| {
        example().with(|net| {
            net.sort_order = order.iter().map(|text| text.parse().unwrap()).collect();
        })
    };
    sorted(&["10.0.0.31/32"]).gives(&[
        (InternalIp, "10.0.0.31"),
        (InternalIp, "10.0.0.32"),
        (ExternalIp, "50.56.176.99"),
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
        (ExternalIp, "50.56.176.36"),
        (ExternalIp, "50.56.176.35"),
        (ExternalIp, PUBLIC_6),
    ]);
    // Addresses are ascending within a network, and the first network comes first. Host names stay
    // last.
    sorted(&["2001:4800:790e::/64", "50.56.0.0/16", "2001:4800:780e::/48"]).gives(&[
        (ExternalIp, "50.56.176.35"),
        (ExternalIp, "50.56.176.36"),
        (ExternalIp, "50.56.176.99"),
        (ExternalIp, PUBLIC_6),
        (InternalIp, "10.0.0.32"),
        (InternalIp, "10.0.0.31"),
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
    ]);
    sorted(&["10.0.0.0/8", "0.0.0.0/0", "::/0"]).gives(&[
        (InternalIp, "10.0.0.31"),
        (InternalIp, "10.0.0.32"),
        (ExternalIp, "50.56.176.35"),
        (ExternalIp, "50.56.176.36"),
        (ExternalIp, "50.56.176.99"),
        (ExternalIp, PUBLIC_6),
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
    ]);
}

#[test]
fn sub_ports_of_trunks_add_their_addresses() {
    let mut case = example();
    case.ports[0]["trunk_details"] = json!({"sub_ports": [{"port_id": "s1"}, {"port_id": "s4"}]});
    case.sub_ports = vec![
        port("s4", "net-storage", "2026-01-02T00:00:00Z", &["10.9.0.2"]),
        port("s1", "net-public", "2026-01-02T00:00:00Z", &["50.56.176.37"]),
        port("s3", "net-hidden", "2026-01-02T00:00:00Z", &["10.8.0.3"]),
        port("s0", "net-storage", "2026-01-01T00:00:00Z", &["10.9.0.9"]),
    ];
    case.names = vec![("net-storage", "storage"), ("net-public", "public")];
    let mut expect = vec![
        (InternalIp, "10.0.0.32"),
        (InternalIp, "10.0.0.31"),
        (ExternalIp, "50.56.176.99"),
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
        // The name of this network is hidden from us: its ID stands for it.
        (InternalIp, "10.8.0.3"),
        (ExternalIp, "50.56.176.36"),
        (ExternalIp, "50.56.176.35"),
        (ExternalIp, PUBLIC_6),
        (ExternalIp, "50.56.176.37"),
        (InternalIp, "10.9.0.9"),
        (InternalIp, "10.9.0.2"),
    ];
    case.gives(&expect);
    for internal in [["private", "storage"], ["net-private", "net-storage"]] {
        let only = case.with(|net| net.internal_networks = some(&internal));
        expect.retain(|(_, address)| *address != "10.8.0.3");
        only.gives(&expect);
    }
}

#[test]
fn ports_on_internal_networks_come_in_the_order_of_their_ids() {
    let mut case = example().with(|net| net.internal_networks = some(&["storage", "private"]));
    case.networking.public_networks.clear();
    case.server = json!({
        "id": "00000001-0000-4000-8000-000000000001", "name": "n", "status": "ACTIVE",
        "addresses": {
            "private": [entry("10.0.0.3", "fixed"), entry("10.0.0.4", "fixed")],
            "storage": [entry("10.9.0.1", "fixed")],
            "edge": [entry("10.7.0.1", "fixed")],
        },
    });
    // The order of creation has no meaning: Neutron sorts its pages by ID, too.
    case.ports = vec![
        port("p4", "net-private", "2026-01-01T00:00:00Z", &["10.0.0.4"]),
        port("p1", "net-edge", "2026-01-01T00:00:00Z", &["10.7.0.1"]),
        port("p2", "net-private", "2026-01-03T00:00:00Z", &["10.0.0.3"]),
        port("p3", "net-storage", "2026-01-02T00:00:00Z", &["10.9.0.1"]),
    ];
    case.gives(&[(InternalIp, "10.0.0.3"), (InternalIp, "10.9.0.1"), (InternalIp, "10.0.0.4")]);
}

#[test]
fn an_address_of_a_network_that_is_not_internal_is_no_access_address_either() {
    let mut case = example().with(|net| net.internal_networks = some(&["public"]));
    case.networking.public_networks.clear();
    case.server["accessIPv4"] = json!("10.0.0.32");
    case.gives(&[
        (ExternalIp, ACCESS_6),
        (Hostname, HOST),
        (ExternalIp, "50.56.176.36"),
        (InternalIp, "50.56.176.35"),
        (InternalIp, PUBLIC_6),
    ]);
}

#[test]
fn addresses_of_one_port_have_an_order_of_their_own() {
    for ips in [["10.0.0.32", "fd00::32", "10.0.0.100"], ["fd00::32", "10.0.0.100", "10.0.0.32"]] {
        let mut case = example();
        case.ports = vec![port("p", "net-private", "2026-01-01T00:00:00Z", &ips)];
        let list: Vec<_> = case.try_addresses().unwrap().into_iter().take(3).collect();
        let expect = ["10.0.0.100", "10.0.0.32", "fd00::32"].map(|ip| (InternalIp, ip.to_owned()));
        assert_eq!(list, expect, "{ips:?}");
    }
}

#[test]
fn a_port_that_flaps_changes_nothing() {
    let case = example();
    let steady = case.try_addresses();
    for flapping in 0..case.ports.len() {
        for status in ["DOWN", "BUILD", "N/A"] {
            let mut case = case.clone();
            case.ports[flapping]["status"] = json!(status);
            assert_eq!(case.try_addresses(), steady, "port {flapping} {status}");
        }
    }
    // An address does not count if the server's own list lacks it and no active port carries it.
    let mut gone = case.clone();
    gone.ports.push(port("p9", "net-new", "2026-02-01T00:00:00Z", &["10.5.0.1"]));
    let with_new = gone.try_addresses().unwrap();
    assert_eq!(with_new[2], (InternalIp, "10.5.0.1".to_owned()), "an active port counts at once");
    gone.ports[2]["status"] = json!("DOWN");
    assert_eq!(gone.try_addresses(), steady);
}

#[test]
fn a_port_that_the_list_does_not_show_yet_obeys_the_networks() {
    let shows = |name: &'static str, public: &[&str], internal: &[&str]| {
        let mut case = example().with(|net| {
            net.public_networks = some(public);
            net.internal_networks = some(internal);
        });
        case.ports.push(port("p9", "net-new", "2026-02-01T00:00:00Z", &["10.5.0.1"]));
        case.names = vec![("net-new", name)];
        let list = case.try_addresses().unwrap();
        list.contains(&(InternalIp, "10.5.0.1".to_owned()))
    };
    assert!(shows("new", &[], &[]));
    assert!(shows("new", &[], &["new"]));
    assert!(shows("new", &[], &["net-new"]));
    assert!(!shows("new", &[], &["private"]));
    assert!(!shows("new", &["new"], &[]));
    assert!(!shows("new", &["net-new"], &[]));
}

#[test]
fn which_names_are_asked_for() {
    let mut case = example();
    let unlisted = port("p9", "net-new", "2026-02-01T00:00:00Z", &["10.5.0.1"]);
    case.ports.push(unlisted);
    case.sub_ports = vec![port("s", "net-storage", "2026-02-01T00:00:00Z", &[])];
    let Row::Whole(server) = Row::read(&case.server.to_string()) else { panic!() };
    let (ports, sub_ports): (Vec<Port>, Vec<Port>) = (read(&case.ports), read(&case.sub_ports));
    let asked = |networking: &Networking, subs: &[Port]| {
        let names = networks_to_name(&server, &ports, subs, networking);
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(asked(&case.networking, &sub_ports), ["net-storage", "net-new"]);
    assert_eq!(asked(&case.networking, &[]), ["net-new"]);
    case.networking.public_networks.clear();
    assert_eq!(asked(&case.networking, &[]), [""; 0], "no setting looks at names");
}

#[test]
fn overlapping_networks_are_distinguished_by_mac() {
    let mut case = example().with(|net| net.internal_networks = some(&["net-two"]));
    let with_mac = |mac: &str| json!({"addr": "10.0.0.5", "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": mac});
    case.server["addresses"] = json!({"one": [with_mac("aa:00")], "two": [with_mac("AA:01")]});
    case.server["metadata"] = json!({});
    case.ports = vec![
        port("p1", "net-one", "2026-01-01T00:00:00Z", &["10.0.0.5"]),
        port("p2", "net-two", "2026-01-02T00:00:00Z", &["10.0.0.5"]),
    ];
    case.ports[0]["mac_address"] = json!("aa:00");
    case.ports[1]["mac_address"] = json!("aa:01");
    let list = case.try_addresses().unwrap();
    assert!(list.contains(&(InternalIp, "10.0.0.5".to_owned())), "{list:?}");
    case.networking.internal_networks = some(&["net-three"]);
    let list = case.try_addresses().unwrap();
    assert!(!list.contains(&(InternalIp, "10.0.0.5".to_owned())), "{list:?}");
}

#[test]
fn wrong_text_is_an_error_or_left_out() {
    for (change, shown) in [
        (json!({"k": [entry("10.0.0", "fixed")]}), "\"10.0.0\""),
        (json!({"k": [entry("node.example", "floating")]}), "\"node.example\""),
    ] {
        let mut case = example();
        case.server["addresses"] = change;
        let error = case.try_addresses().unwrap_err();
        assert!(error.contains(shown), "{error}");
    }
    let mut case = example();
    case.ports[0]["fixed_ips"][0]["ip_address"] = json!("x\n");
    assert!(case.try_addresses().unwrap_err().contains("not an IP address"));
    let mut case = example();
    case.server["accessIPv4"] = json!("50.56");
    assert!(case.try_addresses().unwrap_err().contains("\"50.56\""));

    for name in ["", "two words", "line\n", &"x".repeat(300)] {
        let mut case = example();
        case.server["metadata"]["hostname"] = json!(name);
        let list = case.try_addresses().unwrap();
        assert!(list.iter().all(|(kind, _)| *kind != Hostname), "{list:?}");
    }
}

#[test]
fn one_address_in_two_spellings_counts_once() {
    let mut case = example();
    case.server["accessIPv6"] = json!("2001:4800:780E:0510:BE76:4EFF:FE04:84A8");
    let list = case.try_addresses().unwrap();
    assert_eq!(list.iter().filter(|(_, text)| text == PUBLIC_6).count(), 1, "{list:?}");
}

/// Returns a server with up to six ports on up to three networks.
fn any_case() -> impl Strategy<Value = (Case, Vec<Value>)> {
    let made = prop::collection::vec((0..3usize, 0..3u8, any::<bool>(), 0..3usize), 0..6);
    (made, 0..4usize, 0..4usize).prop_flat_map(|(made, public, internal)| {
        let mut case = example();
        let (mut lists, mut ports) = (json!({}), Vec::new());
        for (number, (network, age, active, ips)) in made.into_iter().enumerate() {
            let texts: Vec<_> = (0..ips).map(|ip| format!("10.{network}.{number}.{ip}")).collect();
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            let created = format!("2026-01-0{}T00:00:00Z", age + 1);
            let mut made = port(&format!("p{number}"), &format!("id{network}"), &created, &texts);
            made["status"] = json!(if active { "ACTIVE" } else { "DOWN" });
            let list = &mut lists[format!("net{network}")];
            let mut entries = list.as_array().cloned().unwrap_or_default();
            entries.extend(texts.iter().map(|text| entry(text, "fixed")));
            *list = entries.into();
            ports.push(made);
        }
        case.server["addresses"] = lists;
        case.ports.clone_from(&ports);
        case.networking.public_networks = vec![format!("net{public}")];
        case.networking.internal_networks =
            if internal == 3 { vec![] } else { vec![format!("id{internal}")] };
        (Just(case), Just(ports).prop_shuffle())
    })
}

proptest! {
    #[test]
    fn the_order_of_neutron_does_not_matter((mut case, shuffled) in any_case()) {
        let first = case.try_addresses().unwrap();
        case.ports = shuffled;
        prop_assert_eq!(&case.try_addresses().unwrap(), &first);
        let once: std::collections::HashSet<_> = first.iter().collect();
        prop_assert_eq!(once.len(), first.len(), "nothing is shown twice");
    }
}

#[test]
fn what_the_settings_leave_out_is_told_with_the_setting() {
    let case = example();
    assert_eq!(case.withheld(), None);
    let admits_none = case.with(|it| it.internal_networks = some(&["k8s-intern"]));
    let none = "[Networking] internal-network-name = k8s-intern does not admit it";
    assert_eq!(
        admits_none.withheld().unwrap(),
        format!("the server has 10.0.0.32 on private: {none}; 10.0.0.31 on private: {none}")
    );
    let without_v6 = case.with(|it| it.ipv6_disabled = true);
    assert_eq!(
        without_v6.withheld().as_deref(),
        Some(
            "the server has 2001:4800:780e:510:be76:4eff:fe04:84a8 on public: [Networking] ipv6-support-disabled leaves it out"
        )
    );
}
