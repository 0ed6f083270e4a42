use std::ffi::OsString;

use proptest::prelude::*;

use ccm_settings::{Action, Catalogue, CommandLine, parse};

use super::{
    controllers,
    sample::{IDENTITY, SampleSettings},
};
use crate::identity::{COMMIT, VERSION};

fn catalogue() -> Catalogue {
    super::catalogue::<SampleSettings>(&IDENTITY)
}

fn read(arguments: &[&str]) -> Result<CommandLine, String> {
    let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
    parse(&catalogue(), &arguments).map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_flags_panic(text in "\\PC{0,20}", flag in "[-a-z=_*\u{e4} ]{0,12}") {
        read(&[&flag, &text]).ok();
    }
}

#[test]
fn flags_are_read_as_pflag_reads_them() {
    let check = |arguments: &[&str], key: &str, expect: &str| {
        let read = read(arguments).unwrap();
        assert_eq!(read.flags.get(key).map(String::as_str), Some(expect), "{arguments:?}");
        assert_eq!((read.action, read.warnings), (Action::Run, Vec::new()), "{arguments:?}");
    };
    check(&["--kubeconfig=/etc/kube.conf"], "kubeconfig", "/etc/kube.conf");
    check(&["--kubeconfig", "/etc/kube.conf"], "kubeconfig", "/etc/kube.conf");
    check(&["--kube_api_qps=5"], "kube_api_qps", "5");
    check(&["--kube-api-qps=-1"], "kube_api_qps", "-1");
    check(&["--kube-api-qps", "-1"], "kube_api_qps", "-1");
    check(&["--cluster-name=a_b=c"], "cluster_name", "a_b=c");
    check(&["--leader-elect"], "leader_elect", "true");
    check(&["--leader-elect=false"], "leader_elect", "false");
    check(&["--leader_elect=false", "--leader-elect=true"], "leader_elect", "true");
    check(&["-v=4"], "v", "4");
    check(&["-v", "4"], "v", "4");
    check(&["-v4"], "v", "4");
    check(&["--v=4"], "v", "4");
    check(&["--controllers=*,-cloud-node"], "controllers", "*,-cloud-node");
    check(&["--controllers", "-cloud-node"], "controllers", "-cloud-node");
    check(
        &["--controllers=service", "--controllers=cloud-node"],
        "controllers",
        "service,cloud-node",
    );
    check(&["--kubeconfig="], "kubeconfig", "");
    check(&["--concurrent-node-syncs=4"], "concurrent_node_syncs", "4");
}

#[test]
fn a_wrong_command_line_gives_one_clear_line() {
    let check = |arguments: &[&str], expect: &str| {
        let line = read(arguments).unwrap_err();
        assert_eq!(line, format!("{expect} (see --help)"), "{arguments:?}");
    };
    check(&["--kubeconfg=x"], "unknown flag --kubeconfg; did you mean --kubeconfig?");
    check(
        &["--concurent_node_syncs", "3"],
        "unknown flag --concurent-node-syncs; did you mean --concurrent-node-syncs?",
    );
    check(&["--chek-config"], "unknown flag --chek-config; did you mean --check-config?");
    check(&["--nothing-like-it"], "unknown flag --nothing-like-it");
    check(&["-x"], "unknown flag -x");
    check(&["run"], "unexpected argument \"run\"; everything is set with flags");
    check(
        &["--leader-elect", "false"],
        "unexpected argument \"false\"; everything is set with flags",
    );
    check(&["--kubeconfig"], "--kubeconfig needs a value: --kubeconfig=<file>");
    check(
        &["--concurrent-node-syncs"],
        "--concurrent-node-syncs needs a value: --concurrent-node-syncs=<count>",
    );
    check(&["--cluster-cidr"], "--cluster-cidr needs a value: --cluster-cidr=<value>");
}

#[test]
fn arguments_must_be_text() {
    use std::os::unix::ffi::OsStringExt as _;
    let argument = OsString::from_vec(b"--kubeconfig=\xff".to_vec());
    let error = parse(&catalogue(), &[argument]).unwrap_err();
    assert!(error.to_string().ends_with("is not UTF-8"), "{error}");
}

#[test]
fn flags_of_siblings_and_of_upstream_warn_once() {
    let check = |arguments: &[&str], expect: &[&str]| {
        let read = read(arguments).unwrap();
        assert_eq!(read.warnings, expect, "{arguments:?}");
        assert_eq!(read.action, Action::Run);
        assert!(read.flags.is_empty(), "{arguments:?}");
    };
    check(
        &["--route-reconciliation-period=10s"],
        &["--route-reconciliation-period has no effect here: it belongs to route-ccm"],
    );
    check(
        &["--configure-cloud-routes", "--configure_cloud_routes=false"],
        &["--configure-cloud-routes has no effect here: it belongs to route-ccm"],
    );
    check(
        &["--concurrent-service-syncs", "3"],
        &["--concurrent-service-syncs has no effect here: it belongs to service-ccm"],
    );
    check(
        &["--profiling=false"],
        &["--profiling has no effect here: it configures the Go runtime"],
    );
    check(&["--vmodule=a=1,b=2"], &["--vmodule has no effect here: use --log-filter"]);
    check(
        &["--tls-sni-cert-key=a,b", "--tls-sni-cert-key=c,d"],
        &["--tls-sni-cert-key has no effect here: one certificate is served; use --tls-cert-file"],
    );
}

/// The command line of upstream's own options test, limited to flags that exist in more than
/// one release.
#[test]
fn a_manifest_of_the_monolith_is_accepted() {
    let arguments = [
        "--allocate-node-cidrs=true",
        "--authorization-always-allow-paths=",
        "--bind-address=192.168.4.21",
        "--cert-dir=/a/b/c",
        "--cloud-config=/cloud-config",
        "--cloud-provider=gce",
        "--cluster-cidr=1.2.3.4/24",
        "--cluster-name=k8s",
        "--configure-cloud-routes=false",
        "--contention-profiling=true",
        "--controller-start-interval=2m",
        "--controllers=foo,bar",
        "--concurrent-node-syncs=5",
        "--http2-max-streams-per-connection=47",
        "--kube-api-burst=100",
        "--kube-api-content-type=application/vnd.kubernetes.protobuf",
        "--kube-api-qps=50.0",
        "--kubeconfig=/kubeconfig",
        "--leader-elect=false",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=15s",
        "--leader-elect-resource-lock=configmap",
        "--leader-elect-retry-period=5s",
        "--master=192.168.4.20",
        "--min-resync-period=100m",
        "--node-status-update-frequency=10m",
        "--profiling=false",
        "--route-reconciliation-period=30s",
        "--secure-port=10001",
        "--use-service-account-credentials=false",
        "--concurrent-node-status-updates=10",
        "--webhooks=foo,bar,-baz",
        "--webhook-secure-port=10250",
        "-v=2",
    ];
    let read = read(&arguments).unwrap();
    let warned = read.warnings.len();
    assert_eq!(read.flags.len() + warned, arguments.len(), "{read:?}");
    assert_eq!(read.flags["secure_port"], "10001");
    assert_eq!(read.flags["kube_api_qps"], "50.0");
    assert_eq!(warned, 15, "{:?}", read.warnings);
}

#[test]
fn help_and_version_are_texts() {
    let text = |argument: &str| match read(&["--kubeconfig=x", argument]).unwrap().action {
        Action::Print(text) => text,
        other => panic!("{argument}: {other:?}"),
    };
    let version = format!("node-ccm {VERSION} (commit {COMMIT})\n");
    assert_eq!(text("--version"), version);
    assert_eq!(text("--version=raw"), version);
    let json: serde_json::Value = serde_json::from_str(&text("--version=json")).unwrap();
    let expect = serde_json::json!({
        "program": "node-ccm", "version": VERSION, "commit": COMMIT,
    });
    assert_eq!(json, expect);
    // Line breaks depend on the terminal.
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for help in [words(text("--help")), words(text("-h"))] {
        for part in [
            "--concurrent-node-syncs <count>",
            "[default: 32]",
            "Leader election",
            "[default: 10258]",
            "--check-config",
            "--print-config",
            "together. [default: 20s] Live.",
            "CCM__A_B",
        ] {
            assert!(help.contains(part), "{part} is missing in:\n{help}");
        }
        assert!(!help.contains("--webhooks"), "what has no effect is not shown:\n{help}");
    }
    assert_eq!(read(&["--check-config"]).unwrap().action, Action::CheckConfig);
    assert_eq!(read(&["--print-config"]).unwrap().action, Action::PrintConfig);
    assert_eq!(read(&["--print-options-markdown"]).unwrap().action, Action::PrintOptions);
}

#[test]
fn the_list_of_controllers_decides_as_upstream() {
    let check = |list: &str, expect: bool| {
        let items: Vec<String> =
            list.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect();
        assert!(controllers::unknown(&items, &IDENTITY).is_empty(), "{list:?}");
        assert_eq!(controllers::enabled(&items, &IDENTITY), expect, "{list:?}");
    };
    check("*", true);
    check("", false);
    check("cloud-node-controller", true);
    check("cloud-node", true);
    check("-cloud-node-controller", false);
    check("*,-cloud-node", false);
    check("-cloud-node,*", false);
    check("-cloud-node,cloud-node-controller", false);
    check("cloud-node-controller,-cloud-node", true);
    check("service,route", false);
    check("*,-service-lb-controller", true);
    check("-cloud-node-lifecycle", false);
    check("cloud-node-lifecycle-controller", false);
}

#[test]
fn unknown_controllers_are_named() {
    let unknown = |list: &[&str]| -> Vec<String> {
        let items: Vec<String> = list.iter().map(|item| (*item).to_owned()).collect();
        controllers::unknown(&items, &IDENTITY).into_iter().map(|error| error.name).collect()
    };
    assert_eq!(
        unknown(&["*", "cloud-node", "nodes", "-service-controller", "-route"]),
        ["nodes", "service-controller"]
    );
    let line = controllers::UnknownController { name: "nodes".to_owned() }.to_string();
    assert!(
        line.starts_with(
            "\"nodes\" is not in the list of known controllers: cloud-node-controller,"
        ),
        "{line}"
    );
}

#[test]
fn every_setting_is_documented_once_and_well() {
    let catalogue = catalogue();
    let mut flags: Vec<&str> = catalogue.entries().iter().map(|entry| entry.setting.flag).collect();
    flags.extend(catalogue.foreign().map(|foreign| foreign.flag));
    let count = flags.len();
    flags.sort_unstable();
    flags.dedup();
    assert_eq!(flags.len(), count, "a flag is both a setting and without effect, or there twice");
    for entry in catalogue.entries() {
        let doc = entry.setting;
        assert!(doc.meaning.ends_with('.'), "--{}: {:?}", doc.flag, doc.meaning);
        assert!(
            doc.flag.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{}",
            doc.flag
        );
    }
}

#[test]
fn the_table_shows_every_setting() {
    let table = ccm_settings::markdown(&catalogue());
    let catalogue = catalogue();
    for entry in catalogue.entries() {
        assert!(
            table.contains(&format!("| `--{}` (", entry.setting.flag)),
            "{}",
            entry.setting.flag
        );
    }
    for part in [
        "# Settings of node-ccm\n",
        "| `--concurrent-node-syncs` (count) | `32` | Nodes worked on at once. Live. |\n",
        "| `--leader-elect-resource-name` (text) | `node-ccm` | ",
        "| `--kube-api-qps` | `CCM__KUBE_API_QPS` | `kube_api_qps` |\n",
        "| `--node-monitor-period` | it belongs to lifecycle-ccm |\n",
    ] {
        assert!(table.contains(part), "{part} is missing in:\n{table}");
    }
    assert!(!table.contains("| `--concurrent-node-syncs` | it belongs"), "{table}");
}
