use super::*;

fn flags(clusters: &str, services: &str) -> Flags {
    let list =
        |text: &str| text.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    Flags { cluster_cidrs: list(clusters), service_ranges: list(services), ..Flags::default() }
}

fn texts(remarks: &[Remark]) -> Vec<String> {
    remarks.iter().map(|one| format!("--{}: {}", one.flag, one.what)).collect()
}

fn ranges(flags: &Flags) -> Vec<String> {
    let (config, _) = flags.check().unwrap();
    config.ranges.iter().map(|range| format!("{} /{}", range.network, range.mask)).collect()
}

#[test]
fn each_family_has_its_mask() {
    let v4 = flags("10.0.0.0/8", "");
    let v6 = flags("fd00::/8", "");
    let dual = flags("10.0.0.0/8,fd00::/48", "10.96.0.0/16,fd01::/112");
    let reversed = flags("fd00::/48,10.0.0.0/8", "");
    for (flags, expect) in [
        (v4.clone(), vec!["10.0.0.0/8 /24"]),
        (v6.clone(), vec!["fd00::/8 /64"]),
        (dual.clone(), vec!["10.0.0.0/8 /24", "fd00::/48 /64"]),
        (reversed, vec!["fd00::/48 /64", "10.0.0.0/8 /24"]),
        (Flags { mask: 26, ..v4.clone() }, vec!["10.0.0.0/8 /26"]),
        (Flags { mask_v4: 26, ..v4 }, vec!["10.0.0.0/8 /26"]),
        (Flags { mask: 80, ..v6.clone() }, vec!["fd00::/8 /80"]),
        (Flags { mask_v6: 128, ..v6 }, vec!["fd00::/8 /128"]),
        (
            Flags { mask_v4: 32, mask_v6: 80, ..dual.clone() },
            vec!["10.0.0.0/8 /32", "fd00::/48 /80"],
        ),
        (Flags { mask_v6: 48, ..dual }, vec!["10.0.0.0/8 /24", "fd00::/48 /48"]),
    ] {
        assert_eq!(ranges(&flags), expect, "{flags:?}");
    }
}

#[test]
fn each_mistake_is_one_line_that_says_what_would_be_right() {
    let (v4, v6) = (flags("10.0.0.0/8", ""), flags("fd00::/16", ""));
    let dual = flags("10.0.0.0/8,fd00::/16", "");
    for (flags, expect) in [
        (flags("", ""), "--cluster-cidr: it is empty"),
        (flags("10.0.0.0/33", ""), "--cluster-cidr: \"10.0.0.0/33\" is not a network: expected"),
        (flags("0.0.0.0/0", ""), "0.0.0.0/0 has all IPv4 addresses: expected a smaller network"),
        (flags("::ffff:0.0.0.0/96", ""), "0.0.0.0/0 has all IPv4 addresses"),
        (flags("fd00::/8,::/0", ""), "::/0 has all IPv6 addresses"),
        (flags("10.0.0.0", ""), "such as 10.244.0.0/16"),
        (flags("10.0.0.0/8,fd00::/129", ""), "\"fd00::/129\" is not a network"),
        (flags("10.0.0.0/8,11.0.0.0/8", ""), "10.0.0.0/8 and 11.0.0.0/8 are both IPv4"),
        (flags("fd00::/16,10.0.0.0/8,fd01::/16", ""), "fd00::/16 and fd01::/16 are both IPv6"),
        (
            flags("10.0.0.0/8", "nonsense"),
            "--service-cluster-ip-range: \"nonsense\" is not a network",
        ),
        (flags("10.0.0.0/8", "10.96.0.0/16,10.97.0.0/16"), "are both IPv4: at most one"),
        (flags("10.0.0.0/16", "10.0.0.0/8"), "does not leave blocks of --cluster-cidr 10.0.0.0/16"),
        (
            flags("10.0.0.0/24", "10.0.0.0/28"),
            "does not leave blocks of --cluster-cidr 10.0.0.0/24",
        ),
        (
            flags("10.0.0.0/26", ""),
            "smaller than the block of one node, /24: use a larger network, or set --node-cidr-mask-size-ipv4 to 26 or more",
        ),
        (
            Flags { mask: 15, ..flags("10.0.0.0/16", "") },
            "or set --node-cidr-mask-size to 16 or more",
        ),
        (
            Flags { mask: 33, ..v4.clone() },
            "--node-cidr-mask-size: 33 is too long for IPv4: use 32 or less",
        ),
        (
            Flags { mask_v6: 256, ..v6.clone() },
            "--node-cidr-mask-size-ipv6: 256 is too long for IPv6: use 128 or less",
        ),
        (Flags { mask: 24, ..dual }, "--node-cidr-mask-size: it is for clusters of one family"),
        (
            Flags { mask: 24, mask_v4: 24, ..v4.clone() },
            "--node-cidr-mask-size: --node-cidr-mask-size-ipv4 is set as well",
        ),
        (
            Flags { mask: 24, mask_v6: 64, ..v4.clone() },
            "--node-cidr-mask-size: --node-cidr-mask-size-ipv6 is set as well",
        ),
        (
            Flags { mask_v6: 64, ..v4 },
            "--node-cidr-mask-size-ipv6: --cluster-cidr has no IPv6 network",
        ),
        (
            Flags { mask_v4: 24, ..v6 },
            "--node-cidr-mask-size-ipv4: --cluster-cidr has no IPv4 network",
        ),
    ] {
        let errors = texts(&flags.check().unwrap_err());
        assert!(errors.len() == 1 && errors[0].contains(expect), "{errors:?}, not {expect:?}");
        assert!(errors[0].starts_with("--"), "{errors:?} begins with no flag");
    }
}

#[test]
fn all_mistakes_are_named_at_once() {
    let wrong = Flags { mask: 129, mask_v6: 64, ..flags("10.0.0.0/8", "") };
    assert_eq!(wrong.check().unwrap_err().len(), 2);
    assert_eq!(flags("x,y", "z").check().unwrap_err().len(), 3);
}

/// The allocator handles the part that the service range covers. Here it is only reported.
#[test]
fn what_is_tolerated_is_said() {
    let (config, warnings) = flags("10.244.7.1/16", "10.244.0.0/20").check().unwrap();
    let warnings = texts(&warnings);
    assert_eq!(config.ranges[0].network.to_string(), "10.244.0.0/16");
    assert!(warnings[0].contains("10.244.7.1/16 has host bits and is taken as 10.244.0.0/16"));
    assert!(warnings[1].contains("10.244.0.0/20 is within --cluster-cidr 10.244.0.0/16"));
    assert_eq!(ranges(&flags("::ffff:10.244.0.0/112", "")), ["10.244.0.0/16 /24"]);
    assert_eq!(flags("10.0.0.0/16", "10.96.0.0/16").check().unwrap().1, []);
}

/// The cloud's allocator does not need a range, and blocks of any size may come from the cloud.
#[test]
fn the_clouds_allocator_needs_no_range() {
    let cloud = |flags| Flags { allocator: AllocatorType::CloudAllocator, ..flags };
    assert_eq!(cloud(flags("", "")).check().unwrap().0.ranges, []);
    assert_eq!(ranges(&cloud(flags("10.0.0.0/28", ""))), ["10.0.0.0/28 /28"]);
    let (_, warnings) = cloud(Flags { mask_v4: 24, ..flags("", "") }).check().unwrap();
    let warnings = texts(&warnings);
    assert!(warnings[0].contains("--node-cidr-mask-size-ipv4: no effect"), "{warnings:?}");
    assert_eq!(cloud(flags("nonsense", "")).check().unwrap_err().len(), 1);
}

/// A network of any length has blocks of any length.
#[test]
fn the_number_of_blocks_has_no_limit() {
    assert_eq!(ranges(&Flags { mask: 128, ..flags("8000::/1", "") }), ["8000::/1 /128"]);
    assert_eq!(ranges(&flags("fd00::/8", "")), ["fd00::/8 /64"]);
}
