use std::{net::SocketAddr, path::PathBuf, time::Duration};

use ccm_settings::{Invocation, LoadError, Origin, redact};

use super::sample::{IDENTITY, SampleSettings, sample};
use crate::{limits::Rate, logging::LogFormat, plans::Mode, programs};

/// Returns the problems, without the folder of the file.
fn problems(arguments: &[&str], environment: &[(&str, &str)], file: Option<&str>) -> Vec<String> {
    match sample(arguments, environment, file) {
        Ok(loaded) => panic!("no problem with {arguments:?} {environment:?} {file:?}: {loaded:?}"),
        Err(LoadError::Usage(error)) => vec![error.to_string()],
        Err(LoadError::Problems(problems)) => {
            problems.iter().map(|problem| without_folder(&problem.to_string())).collect()
        }
    }
}

/// Removes the folder of the file: `x (/tmp/abc/ccm.yaml): y` as `x (ccm.yaml): y`.
fn without_folder(line: &str) -> String {
    let words = line.split(' ').map(|word| match (word.split_once('/'), word.rsplit_once('/')) {
        (Some((before, _)), Some((_, name))) if name.contains("ccm.yaml") => {
            format!("{before}{name}")
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn defaults_are_upstreams_or_justified() {
    let loaded = sample(&[], &[], None).unwrap();
    let common = &*loaded.common;
    assert!(common.enabled);
    assert_eq!(common.min_resync, Duration::from_hours(12));
    assert_eq!(common.kube.requests, Rate { per_second: Some(1000.0), burst: 2000 });
    assert_eq!(common.kube.events, Rate { per_second: Some(20.0), burst: 100 });
    assert_eq!((common.kube.kubeconfig.clone(), common.kube.master.clone()), (None, None));
    assert_eq!(
        (common.cloud.provider.as_str(), common.cloud.cluster_name.as_str()),
        ("sim", "kubernetes")
    );
    let election = &common.election;
    assert!(election.enabled);
    assert_eq!((election.lease.as_str(), election.namespace.as_str()), ("node-ccm", "kube-system"));
    let seconds = [election.lease_duration, election.renew_deadline, election.retry_period]
        .map(|time| time.as_secs());
    assert_eq!(seconds, [15, 10, 2]);
    let pages = common.pages.as_ref().unwrap();
    assert_eq!(pages.address, SocketAddr::from(([0, 0, 0, 0], 10258)));
    assert_eq!((&pages.tls, pages.open.is_empty()), (&None, true));
    assert_eq!(common.mode, Mode::Control);
    assert_eq!((common.logging.verbosity, common.logging.format), (0, LogFormat::Text));
    assert_eq!((loaded.own.syncs, loaded.own.period), (32, Duration::from_mins(5)));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn later_layers_win_and_are_remembered() {
    let name = "concurrent-node-syncs";
    let variable = ("CCM__CONCURRENT_NODE_SYNCS", "3");
    let check = |arguments: &[&str],
                 environment: &[(&str, &str)],
                 file: Option<&str>,
                 expect: u32,
                 from: &str| {
        let loaded = sample(arguments, environment, file).unwrap();
        assert_eq!(loaded.own.syncs, expect, "{arguments:?} {environment:?} {file:?}");
        let origin = match &loaded.raw.value(name).unwrap().origin {
            Origin::File(path) => path.rsplit('/').next().unwrap().to_owned(),
            other => other.to_string(),
        };
        assert_eq!(origin, from);
    };
    let file = Some("concurrent_node_syncs: 2");
    check(&[], &[], None, 32, "default");
    check(&[], &[], file, 2, "ccm.yaml");
    check(&[], &[variable], file, 3, "environment");
    check(&["--concurrent-node-syncs=4"], &[variable], file, 4, "flag");
    check(&["--concurrent-node-syncs=4"], &[], file, 4, "flag");
    check(&[], &[], Some("concurrent-node-syncs: 2"), 2, "ccm.yaml");
    check(&[], &[], Some("concurrent_node_syncs: '2'"), 2, "ccm.yaml");
}

#[test]
fn values_of_a_file_keep_their_meaning() {
    let text = "
controllers: ['*', '-service']
leader_elect: false
kube_api_qps: 12.5
node_status_update_frequency: 1h30m
bind_address: '::'
cluster_name: prod
kubeconfig: /etc/kube.conf
";
    let loaded = sample(&[], &[], Some(text)).unwrap();
    assert!(loaded.common.enabled && !loaded.common.election.enabled);
    assert_eq!(*loaded.raw.value("controllers").unwrap().text, "*,-service");
    assert_eq!(loaded.common.kube.requests.per_second, Some(12.5));
    assert_eq!(loaded.own.period, Duration::from_mins(90));
    assert_eq!(loaded.common.pages.as_ref().unwrap().address.to_string(), "[::]:10258");
    assert_eq!(loaded.common.kube.kubeconfig, Some(PathBuf::from("/etc/kube.conf")));
}

#[test]
fn the_file_may_be_yaml_toml_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let mut invocation = Invocation::with_arguments(["--cloud-provider=sim"]);
        invocation.environment.insert("CCM__CONFIG".to_owned(), path.display().to_string());
        assert_eq!(
            super::load::<SampleSettings>(IDENTITY, Vec::new(), &invocation).unwrap().own.syncs,
            7,
            "{name}"
        );
    };
    check("a.yaml", "concurrent_node_syncs: 7");
    check("a.yml", "concurrent_node_syncs: 7");
    check("a.toml", "concurrent_node_syncs = 7");
    check("a.json", "{\"concurrent_node_syncs\": 7}");
    check("a.JSON", "{\"concurrent-node-syncs\": \"7\"}");
    // The file begins with a byte order mark.
    check("b.yaml", "\u{feff}concurrent_node_syncs: 7");
    check("b.toml", "\u{feff}concurrent_node_syncs = 7");
    check("b.json", "\u{feff}{\"concurrent_node_syncs\": 7}");
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let file = "
concurrent_node_sync: 5
page_size: 0
node_monitor_period: 5s
event_qps: fast
logging: {format: json}
";
    let environment = [
        ("CCM__KUBE_API_BURST", "-1"),
        ("CCM__KUBE_API_QSP", "5"),
        ("CCM_PORT", "tcp://10.0.0.1:80"),
    ];
    let arguments = ["--concurrent-node-syncs=0", "--secure-port=70000", "--controllers=nodes,*"];
    let known: Vec<_> = programs::controllers()
        .flat_map(|controller| [controller.name, controller.alias])
        .collect();
    let known = known.join(", ");
    let found = problems(&arguments, &environment, Some(file)).into_iter();
    assert_eq!(
        found.map(|line| line.replace(&known, "<known>")).collect::<Vec<_>>(),
        [
            "concurrent_node_sync (ccm.yaml): unknown setting; did you mean concurrent_node_syncs?",
            "logging (ccm.yaml): unknown setting; --help shows the known ones",
            "CCM__KUBE_API_QSP (environment): unknown setting; did you mean CCM__KUBE_API_QPS?",
            "--controllers=nodes,* (flag): \"nodes\" is not in the list of known controllers: <known>",
            "CCM__KUBE_API_BURST=-1 (environment): must be a whole number from 0 to 4294967295",
            "event_qps: fast (ccm.yaml): must be a number",
            "--secure-port=70000 (flag): must be a whole number from 0 to 65535",
            "--concurrent-node-syncs=0 (flag): must be at least 1",
            "page_size: 0 (ccm.yaml): must be at least 1",
        ]
    );
}

#[test]
fn each_rule_has_its_line() {
    let check = |argument: &str, expect: &str| {
        assert_eq!(problems(&[argument], &[], None), [format!("{argument} (flag): {expect}")]);
    };
    check("--cloud-provider=", "must be the name of a cloud provider");
    check("--cluster-name=", "must not be empty, and must not have a comma, which separates tags");
    check("--user-agent=caf\u{e9}", "must be printable ASCII, as in HTTP headers");
    check("--leader-elect=yes", "must be true or false");
    check(
        "--leader-elect-resource-lock=configmapsleases",
        "must be leases, the only supported lock",
    );
    for wrong in ["0s", "1500ms", "601s", "2147483647s"] {
        let argument = format!("--leader-elect-lease-duration={wrong}");
        check(&argument, "must be whole seconds, from 1s to 10m0s");
    }
    check(
        "--leader-elect-renew-deadline=15s",
        "must be shorter than --leader-elect-lease-duration, which is 15s",
    );
    check(
        "--leader-elect-retry-period=9s",
        "times 1.2 must be shorter than --leader-elect-renew-deadline, which is 10s",
    );
    check("--leader-elect-retry-period=0s", "must be at least 100ms");
    check("--kube-api-timeout=1ns", "must be at least 1s");
    check("--kube-api-timeout=-5s", "must be a duration of zero or more, such as 5m0s");
    check("--min-resync-period=12", "must be a duration such as 5m0s, 1h30m or 250ms");
    check("--bind-address=localhost", "must be an IP address, for instance 0.0.0.0 or ::");
    check("--mode=watch", "must be control or observe");
    check("--open-pages=plan,metrics", "must be a list of the pages configz, plan");
    check("--tls-cert-file=/a", "requires --tls-private-key-file");
    check("--tls-private-key-file=/a", "requires --tls-cert-file");
    check("--tls-min-version=VersionTLS10", "must be VersionTLS12 or VersionTLS13");
    check("--logging-format=xml", "must be text or json");
    check("-v=300".replace("-v", "--v").as_str(), "must be a whole number from 0 to 255");
    check("--kube-api-qps=NaN", "must be a number");
    check(
        "--controllers=x",
        &problems(&["--controllers=x"], &[], None)[0].replace("--controllers=x (flag): ", ""),
    );
    let lease = &problems(&["--leader-elect-resource-name=Node_CCM"], &[], None)[0];
    assert!(
        lease.starts_with(
            "--leader-elect-resource-name=Node_CCM (flag): must be a Kubernetes object name"
        ),
        "{lease}"
    );
    for filter in ["loud", "info,loud", "ccm_runtime=loud", "info,,", "[", "info ccm=debug"] {
        let found = problems(&[&format!("--log-filter={filter}")], &[], None);
        assert!(
            found[0].starts_with(&format!("--log-filter={filter} (flag): must be levels")),
            "{found:?}"
        );
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let check = |file: &str, expect: &str| {
        let found = problems(&[], &[], Some(file));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expect), "{found:?}");
    };
    check("v: 1\na: [\nb", "ccm.yaml, line 3: cannot be read: ");
    check("v: 1\npage_size: 5\nv: 2", "ccm.yaml, line 3: cannot be read: ");
    check("v: 1\nkube_api_qps: .nan", "ccm.yaml: cannot be read: Parsing .nan as floating point");
    check("- a\n- b", "ccm.yaml: cannot be read: ");
    for empty in ["", "# nothing", "---\n{}", "{}"] {
        check(empty, "ccm.yaml: must hold at least one setting");
    }
    check(&"- ".repeat(20_000), "ccm.yaml, line 1: cannot be read: more than 64 levels of nesting");
    for kib in [256, 1024, 4096] {
        let large = format!("#{}", "x".repeat(kib << 10));
        check(&large, "--config=ccm.yaml (flag): must be a readable file: is larger than 256 KiB");
    }
    check("page_size: [[1], 2]", "page_size (ccm.yaml): must be a single value or a list");
    check("config: /other", "config (ccm.yaml): must be given as flag --config");
    check("page_size: 5\npage-size: 6", "page_size (ccm.yaml): must be given once");
    // The file was cut after its first key.
    let empty = "page_size (ccm.yaml): must have a value; to use the default, leave the key out";
    for cut in ["page_size:", "page_size: ~", "page_size: null", "page-size: # as before"] {
        check(cut, &empty.replace("page_size", cut.split(':').next().unwrap()));
    }
    check("page_size: [1, ~]", "page_size (ccm.yaml): must be a single value or a list");
    check("page_size: {a: 1}", "page_size (ccm.yaml): must be a single value or a list");
    assert_eq!(
        problems(&["--config=/nowhere/x.yaml"], &[], None),
        ["--config=/nowhere/x.yaml (flag): must be a readable file: there is no such file"]
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.ini");
    std::fs::write(&path, "a=b").unwrap();
    let flag = format!("--config={}", path.display());
    let expect = format!("{flag} (flag): must be a file that ends in .yaml, .yml, .json or .toml");
    assert_eq!(problems(&[&flag], &[], None), [expect]);
}

#[test]
fn every_format_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, text: &str, expect: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let found = problems(&[&format!("--config={}", path.display())], &[], None);
        let path = path.display().to_string();
        assert_eq!(found, [expect.replace("PATH", &path)], "{name}");
    };
    check("a.toml", "v = 1\nv = 2\n", "PATH, line 2: cannot be read: duplicate key");
    check(
        "b.toml",
        "v = 1\nx y\n",
        "PATH, line 2: cannot be read: key with no value, expected `=`",
    );
    check("a.json", "{\"v\": 1,\n\"x\": NaN}", "PATH, line 2: cannot be read: expected value");
    let deep = format!("{{\"v\": {}", "[".repeat(100_000));
    check("deep.json", &deep, "PATH, line 1: cannot be read: recursion limit exceeded");
    let too_deep = "PATH, line 1: cannot be read: cannot recurse further; max recursion depth met";
    check("deep.toml", &deep.replace("{\"v\":", "v ="), too_deep);
}

#[test]
fn settings_of_siblings_warn_in_every_layer() {
    let environment = [("CCM__NODE_MONITOR_PERIOD", "5s")];
    let flags = ["--profiling", "--enable-leader-migration=true"];
    let loaded = sample(&flags, &environment, Some("cluster_cidr: 10.0.0.0/8")).unwrap();
    let lines: Vec<String> = loaded.warnings.iter().map(|line| without_folder(line)).collect();
    assert_eq!(
        lines,
        [
            "--enable-leader-migration has no effect here: leader migration is not supported; switch this controller \
             off in the other controller manager first",
            "--profiling has no effect here: it configures the Go runtime",
            "cluster_cidr (ccm.yaml) has no effect here: it belongs to route-ccm",
            "CCM__NODE_MONITOR_PERIOD (environment) has no effect here: it belongs to lifecycle-ccm",
        ]
    );
}

#[test]
fn rates_are_read_as_client_go_reads_them() {
    let check = |qps: &str, burst: &str, per_second: Option<f64>, expect: u32| {
        let loaded = sample(
            &[&format!("--kube-api-qps={qps}"), &format!("--kube-api-burst={burst}")],
            &[],
            None,
        )
        .unwrap();
        assert_eq!(
            loaded.common.kube.requests,
            Rate { per_second, burst: expect },
            "{qps} {burst}"
        );
    };
    check("20", "30", Some(20.0), 30);
    check("0.5", "1", Some(0.5), 1);
    check("0", "0", Some(1000.0), 2000);
    check("-1", "30", None, 30);
}

#[test]
fn port_0_means_no_pages() {
    let loaded = sample(&["--secure-port=0"], &[], None).unwrap();
    assert_eq!(loaded.common.pages, None);
}

#[test]
fn passwords_in_urls_are_not_shown() {
    let check = |text: &str, expect: &str| assert_eq!(redact(text), expect);
    check("https://10.0.0.1:6443", "https://10.0.0.1:6443");
    check("https://me:secret@10.0.0.1:6443/x?y=a@b", "https://[redacted]@10.0.0.1:6443/x?y=a@b");
    check("https://secret@host", "https://[redacted]@host");
    check("a@b", "a@b");
    let loaded = sample(&["--master=https://me:secret@host"], &[], None).unwrap();
    let page = loaded.configz();
    assert!(page.contains("https://[redacted]@host"), "{page}");
    assert!(!page.contains("secret@"), "{page}");
    let error = problems(
        &["--master=https://me:secret@host", "--bind-address=https://me:secret@host"],
        &[],
        None,
    );
    assert!(!error[0].contains("secret@"), "{error:?}");
}

#[test]
fn configz_shows_values_with_their_origin() {
    let loaded = sample(&["--concurrent-node-syncs=4", "--kube-api-qps=0"], &[], None).unwrap();
    let page = loaded.configz();
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let check = |pointer: &str, expect: serde_json::Value| {
        assert_eq!(page.pointer(pointer), Some(&expect), "{pointer}");
    };
    check(
        "/node-ccm/settings/concurrent_node_syncs",
        serde_json::json!({"value": "4", "origin": "flag"}),
    );
    check("/node-ccm/settings/page_size", serde_json::json!({"value": "500", "origin": "default"}));
    check("/node-ccm/effective/program/syncs", 4.into());
    check("/node-ccm/effective/program/period", "5m0s".into());
    check("/node-ccm/effective/common/kube/requests/per_second", 1000.0.into());
    check("/node-ccm/effective/common/election/lease_duration", "15s".into());
}

#[test]
fn the_provider_must_be_one_that_exists() {
    let check = |arguments: &[&str], expect: &str| {
        let (providers, invocation) =
            (vec!["openstack".to_owned()], Invocation::with_arguments(arguments));
        let read = super::load::<SampleSettings>(IDENTITY, providers, &invocation);
        assert_eq!(read.err().map(|error| error.to_string()).unwrap_or_default(), expect);
    };
    check(&["--cloud-provider=openstack"], "");
    let rule = "must be the name of a cloud provider; known are: openstack";
    check(&[], &format!("--cloud-provider= (default): {rule}"));
    let both = format!(
        "--cloud-provider=aws (flag): {rule}\n--concurrent-node-syncs=0 (flag): must be at least 1"
    );
    check(&["--cloud-provider=aws", "--concurrent-node-syncs=0"], &both);
}
