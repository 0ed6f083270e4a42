use super::*;

#[test]
fn labels_are_checked_as_the_api_server_does() {
    let long = "x".repeat(63);
    let too_long = "x".repeat(64);
    let prefix = format!("{}.example", "p".repeat(245));
    for (key, value, legal) in [
        ("zone", "a", true),
        ("example.com/zone", "nova", true),
        ("example.com/Zone_1.x", "Az-1_b.c", true),
        ("example.com/zone", "", true),
        ("example.com/zone", long.as_str(), true),
        ("example.com/zone", too_long.as_str(), false),
        ("example.com/zone", "zone one", false),
        ("example.com/zone", " ", false),
        ("example.com/zone", "-a", false),
        ("example.com/zone", "a.", false),
        ("example.com/zone", "zöne", false),
        ("example.com/zone", "a/b", false),
        ("", "a", false),
        ("example.com/", "a", false),
        ("/zone", "a", false),
        ("Example.com/zone", "a", false),
        ("example..com/zone", "a", false),
        ("-example.com/zone", "a", false),
        ("a/b/c", "a", false),
        (long.as_str(), "a", true),
        (too_long.as_str(), "a", false),
        (&format!("{prefix}/x"), "a", true),
        (&format!("{prefix}s/x"), "a", false),
    ] {
        assert_eq!(check(key, value).is_ok(), legal, "{key:?}={value:?}");
    }
}

#[test]
fn reserved_keys_are_those_of_kubernetes_domains() {
    for (key, expect) in [
        ("kubernetes.io/x", true),
        ("k8s.io/y", true),
        ("topology.kubernetes.io/region", true),
        ("x.k8s.io/y", true),
        ("topology.k8s.cp/zone-id", false),
        ("app.k8snio/bar", false),
        ("k8snio/bar", false),
        ("mykubernetes.io/x", false),
        ("quartet.dev/deletion-approved", true),
        ("openstack.quartet.dev/pci", false),
        ("example.com/kubernetes.io", false),
        ("", false),
    ] {
        assert_eq!(is_reserved(key), expect, "{key}");
    }
}

#[test]
fn subdomains_of_quartet_dev_belong_to_providers() {
    for (key, expect) in [
        ("openstack.quartet.dev/rack", true),
        ("a.b.quartet.dev/rack", true),
        ("quartet.dev/change-approved", false),
        ("notquartet.dev/rack", false),
        ("openstack.quartet.dev", false),
        ("example.com/openstack.quartet.dev", false),
    ] {
        assert_eq!(is_of_provider(key), expect, "{key}");
    }
}
