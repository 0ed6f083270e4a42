//! Tests messages about words that have no effect, options that are not managed yet, and truncated
//! secrets.

use super::*;

fn each_is_told(cases: &[(&str, &str)]) {
    for (rest, expect) in cases {
        assert_eq!(good(rest).warnings, [format!("/etc/cloud.conf: {expect}")], "{rest}");
    }
}

#[test]
fn foreign_and_retired_words_are_told_with_what_is_right() {
    each_is_told(&[
        (
            "project_id = x\n",
            "line 6: [Global] project_id: unknown key; its name here is tenant-id",
        ),
        ("Region-Name = x\n", "line 6: [Global] Region-Name: unknown key; its name here is region"),
        (
            "os-interface = x\n",
            "line 6: [Global] os-interface: unknown key; its name here is os-endpoint-type",
        ),
        ("[Networks]\na\n", "line 6: [Networks]: unknown section; did you mean [Networking]?"),
        (
            "[LoadBalancerClass \"x\"]\nexternal_network_id = x\n",
            "line 7: [LoadBalancerClass] external_network_id: unknown key; its name here is floating-network-id",
        ),
        (
            "secret-name = x\n",
            "line 6: [Global] secret-name: has no effect: credentials are read from this file or clouds.yaml, never from a Secret",
        ),
        (
            "kubeconfig-path = x\n",
            "line 6: [Global] kubeconfig-path: has no effect: use the flag --kubeconfig",
        ),
        (
            "[LoadBalancer]\nuse-octavia = no\n",
            "line 7: [LoadBalancer] use-octavia: has no effect: the only load balancers are Octavia's",
        ),
        (
            "[LoadBalancer]\nuse-octavia = true\n",
            "line 7: [LoadBalancer] use-octavia: has no effect: Octavia is always used; remove it",
        ),
    ]);
}

#[test]
fn what_is_not_managed_is_told_with_what_follows() {
    each_is_told(&[
        (
            "[LoadBalancer]\nmanage-security-groups = true\n",
            "line 7: [LoadBalancer] manage-security-groups = \"true\": service-ccm will refuse new load balancers: security groups are not managed yet: set it to false, and open the node ports to the load balancers yourself",
        ),
        (
            "[LoadBalancer]\nprovider-requires-serial-api-calls = 1\n",
            "line 7: [LoadBalancer] provider-requires-serial-api-calls = \"1\": service-ccm will refuse new load balancers: each load balancer is created by one request: set it to false",
        ),
        (
            "[LoadBalancer]\ndefault-tls-container-ref = x\n",
            "line 7: [LoadBalancer] default-tls-container-ref = \"x\": service-ccm will refuse new load balancers: TLS is not terminated by the load balancer yet: remove it, or set it to the empty text",
        ),
        (
            "[LoadBalancer]\nmax-shared-lb = 4\n",
            "line 7: [LoadBalancer] max-shared-lb = \"4\": several Services do not share a load balancer yet: each gets its own",
        ),
    ]);
}

/// The program does not report these options if load balancers or floating IPs are not used, or if
/// an ID takes precedence.
#[test]
fn what_is_not_managed_is_told_only_where_it_matters() {
    let patterns = "floating-subnet = a*\nfloating-subnet-tags = b\n";
    let all = "manage-security-groups = true\nmax-shared-lb = 4\n";
    for (rest, warnings, unmanaged) in [
        (format!("[LoadBalancer]\nenabled = false\n{all}{patterns}"), 0, 0),
        (format!("[LoadBalancer]\n{all}{patterns}"), 4, 3),
        (format!("[LoadBalancer]\ninternal-lb = true\n{all}{patterns}"), 2, 1),
        (format!("[LoadBalancer]\nfloating-subnet-id = x\n{patterns}"), 0, 0),
        (
            format!(
                "[LoadBalancer]\nfloating-subnet-id = x\n[LoadBalancerClass \"c\"]\n{patterns}"
            ),
            2,
            2,
        ),
        ("[LoadBalancer]\nmax-shared-lb = 1\nmanage-security-groups = false\n".to_owned(), 0, 0),
        ("[LoadBalancer]\ndefault-tls-container-ref =\n".to_owned(), 0, 0),
    ] {
        let Loaded { config, warnings: said } = good(&rest);
        assert_eq!((said.len(), config.unmanaged.len()), (warnings, unmanaged), "{rest}: {said:?}");
        assert!(config.unmanaged.iter().all(|line| said.contains(line)), "{rest}");
    }
}

#[test]
fn a_secret_that_a_comment_cuts_is_told_without_it() {
    let cut = "is cut off at # or ;, which begins a comment: if that belongs to the value, put it in double quotes";
    let quote = "begins with ' or `, which quotes nothing here and is a part of the value: use double quotes";
    let ways = "[Global]\nauth-url = https://k\n";
    let trust = format!("{ways}trust-id = t\ntrustee-id = u\n");
    let application = format!("{ways}application-credential-id = u\n");
    for (begin, line, key, text, what) in [
        (&trust, 5, "trustee-password", "hush#hush", cut),
        (&trust, 5, "trustee-password", "'hush'", quote),
        (&application, 4, "application-credential-secret", "hush;hush", cut),
        (&application, 4, "application-credential-secret", "`hush#`", quote),
    ] {
        let loaded = parsed(&format!("{begin}{key} = {text}\n")).unwrap();
        assert_eq!(
            loaded.warnings,
            [format!("/etc/cloud.conf: line {line}: [Global] {key}: {what}")]
        );
    }
    // A value that is not a secret is shown as it was read, even if it is wrong.
    assert_eq!(good("region = 'a#b\n").warnings, Vec::<String>::new());
}

#[test]
fn a_lost_line_break_shows_no_secret() {
    let place = Place::new();
    for (rest, expect) in [
        ("tls-insecure = true password = q7x", "line 6: [Global] tls-insecure: holds password ="),
        ("ca-file = /x password=q7x", "line 6: [Global] ca-file: holds password ="),
        ("ca-file = /xpassword=q7x", "line 6: [Global] ca-file: holds password ="),
        ("ca-file = /x OS_PASSWORD=q7x", "line 6: [Global] ca-file: holds password ="),
        (
            "region = r\u{a0}application-credential-secret  =  q7x",
            "line 6: [Global] region: holds application-credential-secret =",
        ),
        (
            "use-clouds = true trustee-password=q7x",
            "line 6: [Global] use-clouds: holds trustee-password =",
        ),
        ("request-timeout = 5s token=q7x", "line 6: [Global] request-timeout: holds token ="),
        (
            "[Networking]\npublic-network-name = a\npublic-network-name = b token=q7x",
            "line 8: [Networking] public-network-name: holds token =",
        ),
        (
            "[Networking]\naddress-sort-order = 10.0.0.0/8 token=q7x",
            "line 7: [Networking] address-sort-order: holds token =",
        ),
        ("[Labels]\nmetadata = a*b token=q7x", "line 7: [Labels] metadata: holds token ="),
        (
            "[LoadBalancer]\nnode-selector = a=b token=q7x",
            "line 7: [LoadBalancer] node-selector: holds token =",
        ),
        (
            "[LoadBalancer]\nlb-method = A password=q7x",
            "line 7: [LoadBalancer] lb-method: holds password =",
        ),
        (
            "[LoadBalancerClass \"c\"]\nsubnet-id = s password=q7x",
            "line 7: [LoadBalancerClass] subnet-id: holds password =",
        ),
    ] {
        let problem = place.refused(&format!("{LOGIN}{rest}\n"));
        assert_eq!(problem, format!("{expect} as well: is a line break missing?"), "{rest}");
    }
    // Operators choose the names of node labels.
    let selector = "[LoadBalancer]\nnode-selector = example.com/token=yes,password=no\n";
    assert_eq!(good(selector).warnings, Vec::<String>::new());
}

#[test]
fn what_may_hold_a_secret_is_not_shown() {
    for (rest, expect) in [
        (
            "tls-insecure = true passwd: q7x",
            "line 6: [Global] tls-insecure: only exactly true counts",
        ),
        (
            "tls-insecure = true password q7x",
            "line 6: [Global] tls-insecure: only exactly true counts",
        ),
        (
            "cert-file = /x secret=q7x",
            "line 6: [Global] cert-file: not used: cert-file and key-file must both be set",
        ),
        (
            "[Networking]\naddress-sort-order = passwd=q7x",
            "line 7: [Networking] address-sort-order: ignored (not shown because it may hold a secret): not a network prefix such as 10.0.0.0/8",
        ),
    ] {
        assert_eq!(good(&format!("{rest}\n")).warnings, [format!("/etc/cloud.conf: {expect}")]);
    }
}
