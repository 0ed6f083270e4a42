//! The numbers are those of the scenarios in docs/parity.md.

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

/// `cloud`, as chosen by `wanted`, reads `expect`; `None` for an error.
fn check(number: u32, cloud: &str, wanted: &str, expect: Option<&str>) {
    let wanted = parse(wanted).expect("legal annotation");
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

/// The parsed addresses, or the start of the error message.
#[test]
fn annotations_are_read_strictly() {
    let unparsable = Err("could not parse");
    let neither = Err("must contain either a single IP or a dual-stack pair");
    let unspecified = Err("dual-stack node IP cannot include");
    for (number, text, expect) in [
        (61, "", unparsable),
        (62, " ", unparsable),
        (63, "word", unparsable),
        (64, "1.2.3.4", Ok("1.2.3.4")),
        (65, " 1.2.3.4 ", unparsable),
        (66, "01.2.3.004", Ok("1.2.3.4")),
        (67, "1.2.3", unparsable),
        (68, "1.2.3.0/24", unparsable),
        (69, "0.0.0.0", Ok("0.0.0.0")),
        (70, "1.2.3.4,word", unparsable),
        (71, "abcd::ef01", Ok("abcd::ef01")),
        (72, "abcd:0abc:0:0:0:0:0:ef01", Ok("abcd:abc::ef01")),
        (73, "1.2.3.4,abcd::ef01", Ok("1.2.3.4,abcd::ef01")),
        (74, "abcd::ef01 , 1.2.3.4", unparsable),
        (75, "1.2.3.4,5.6.7.8", neither),
        (76, "abcd::1,abcd::2", neither),
        (77, "1.2.3.4,::", unspecified),
        (78, "0.0.0.0,abcd::1", unspecified),
        (79, "1.2.3.4,abcd::ef01,garbage", unparsable),
        (80, "1.2.3.4,abcd::ef01,5.6.7.8", neither),
        (0, "1.2.3.4,::ffff:5.6.7.8", neither),
        (0, "256.2.3.4", unparsable),
        (0, "0256.2.3.4", unparsable),
        (0, "0000000001.2.3.4", Ok("1.2.3.4")),
        (0, "1.2.3.4.5", unparsable),
        (0, "1..3.4", unparsable),
        (0, "+1.2.3.4", unparsable),
        (0, "fe80::1%eth0", unparsable),
        (0, "1.2.3.4,", unparsable),
    ] {
        let join =
            |ips: Vec<IpAddr>| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let got = parse(text).map(join).map_err(|error| error.to_string());
        match (&got, expect) {
            (Ok(got), Ok(expect)) => assert_eq!(got, expect, "scenario {number}: {text:?}"),
            (Err(got), Err(expect)) => {
                assert!(got.contains(expect), "scenario {number}: {text:?}: {got}");
            }
            _ => panic!("scenario {number}: {text:?} is {got:?}, not {expect:?}"),
        }
    }
}

#[test]
fn an_error_lists_the_clouds_addresses() {
    let error = select(&list("int=10.0.0.1 host=h"), &parse("192.0.2.7").unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to get node address from cloud provider that matches ip: 192.0.2.7; \
         the cloud's addresses are InternalIP 10.0.0.1, Hostname h"
    );
}
