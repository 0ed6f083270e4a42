//! The numbers refer to the scenarios in docs/internal/parity.md.

use ccm_objects::node_ips;

use super::*;

fn list(text: &str) -> Vec<Address> {
    let kinds = [
        ("int", "InternalIP"),
        ("ext", "ExternalIP"),
        ("host", "Hostname"),
        ("idns", "InternalDNS"),
        ("edns", "ExternalDNS"),
    ];
    text.split_whitespace()
        .map(|entry| {
            let (kind, address) = entry.split_once('=').expect("kind=address");
            let kind = kinds.iter().find(|(short, _)| *short == kind).expect("a known kind").1;
            Address::new(kind, address)
        })
        .collect()
}

/// Checks that `cloud`, as chosen by `wanted`, reads `expect`; `None` for an error.
fn check(number: u32, cloud: &str, wanted: &str, expect: Option<&str>) {
    let wanted = node_ips::parse(wanted).expect("legal annotation");
    assert_eq!(select(&list(cloud), &wanted).ok(), expect.map(list), "scenario {number}");
}

#[test]
fn entries_are_chosen_by_ip() {
    check(47, "int=10.0.0.1 host=h", "10.0.0.1", Some("int=10.0.0.1 host=h"));
    check(
        48,
        "int=10.0.0.1 ext=1.1.1.1 host=h",
        "1.1.1.1",
        Some("ext=1.1.1.1 int=10.0.0.1 host=h"),
    );
    check(
        49,
        "int=10.0.0.1 ext=10.0.0.1 int=10.0.0.2 ext=10.0.0.2 host=h",
        "10.0.0.2",
        Some("int=10.0.0.2 ext=10.0.0.2 host=h"),
    );
    check(
        50,
        "edns=e ext=1.1.1.1 idns=i int=10.0.0.1 host=h",
        "10.0.0.1",
        Some("int=10.0.0.1 edns=e ext=1.1.1.1 idns=i host=h"),
    );
    check(
        51,
        "int=10.0.0.1 int=10.0.0.2 int=10.0.0.3 ext=1.1.1.1 host=h",
        "10.0.0.1",
        Some("int=10.0.0.1 ext=1.1.1.1 host=h"),
    );
    check(52, "int=10.0.0.1 host=h", "10.0.0.9", None);
}

#[test]
fn families_are_distinguished_and_spellings_are_not() {
    let (long, short) = ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1");
    check(
        53,
        &format!("int=10.0.0.1 int={long} host=h"),
        short,
        Some(&format!("int={long} host=h")),
    );
    check(54, "int=10.0.0.1 host=h", "10.0.0.1,2001:db8::1", None);
    check(
        55,
        "int=10.0.0.1 int=2001:db8::1 host=h",
        "10.0.0.1,2001:db8::1",
        Some("int=10.0.0.1 int=2001:db8::1 host=h"),
    );
    check(
        56,
        "int=2001:db8::1 int=10.0.0.1 host=h",
        "10.0.0.1,2001:db8::1",
        Some("int=10.0.0.1 int=2001:db8::1 host=h"),
    );
    let four = "int=10.0.0.1 int=10.0.0.2 int=2001:db8::1 int=2001:db8::2";
    check(57, four, "10.0.0.2,2001:db8::1", Some("int=10.0.0.2 int=2001:db8::1"));
    check(
        58,
        &format!("{four} ext=1.1.1.1"),
        "10.0.0.2,2001:db8::1",
        Some("int=10.0.0.2 int=2001:db8::1 ext=1.1.1.1"),
    );
    let dual = "int=10.0.0.1 int=2001:db8::1 ext=1.1.1.1 ext=2001:db8::e host=h";
    check(
        59,
        dual,
        "2001:db8::1,10.0.0.1",
        Some("int=2001:db8::1 int=10.0.0.1 ext=1.1.1.1 ext=2001:db8::e host=h"),
    );
    check(60, dual, "1.1.1.1,2001:db8::1", Some("ext=1.1.1.1 int=2001:db8::1 host=h"));
    check(0, "int=::ffff:10.0.0.1 int=10.0.0.2", "10.0.0.1", Some("int=::ffff:10.0.0.1"));
}

#[test]
fn an_error_lists_the_clouds_addresses() {
    let error =
        select(&list("int=10.0.0.1 host=h"), &node_ips::parse("192.0.2.7").unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to get node address from cloud provider that matches ip: 192.0.2.7; \
         the cloud's addresses are InternalIP 10.0.0.1, Hostname h"
    );
}
