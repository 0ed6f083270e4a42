//! `--check-config` with files of `cloud.conf` as other tools generate them, and with settings that leave
//! the program without work. The files are in `shared/openstack/tests/cloud_conf`, named by their tools.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::{fs, process::Command};

use ccm_tests::cluster::repository;

const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}]}"#;

/// Returns the exit code and the lines that are printed, without what all of them begin with.
fn check(name: &str) -> (Option<i32>, Vec<String>) {
    let files = repository().join("shared/openstack/tests/cloud_conf");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = fs::read_to_string(files.join(name)).unwrap();
    fs::write(path("cloud.conf"), text.replace("/etc/quartet", &path(""))).unwrap();
    let authority = rcgen::generate_simple_self_signed(vec!["cloud".to_owned()]).unwrap();
    fs::write(path("file"), authority.cert.pem()).unwrap();
    fs::copy(files.join("clouds.yaml"), path("clouds.yaml")).unwrap();
    fs::write(path("kubeconfig"), KUBECONFIG).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_service-ccm"))
        .env_remove("KUBECONFIG")
        .args(["--check-config", "--cloud-provider=openstack", "--cluster-name=c"])
        .arg(format!("--cloud-config={}", path("cloud.conf")))
        .arg(format!("--kubeconfig={}", path("kubeconfig")))
        .output()
        .unwrap();
    let said = String::from_utf8(out.stderr).unwrap().replace(&path(""), "");
    (out.status.code(), said.lines().map(str::to_owned).collect())
}

/// Checks the result of one file: the exit code, and the content of its lines, one after the other.
fn leads_to(name: &str, code: i32, expect: &[&str]) {
    let (exit, lines) = check(name);
    assert_eq!((exit, lines.len()), (Some(code), expect.len()), "{name}: {lines:#?}");
    for (line, part) in lines.iter().zip(expect) {
        assert!(line.contains(part), "{name}: {line}\nlacks {part}");
        assert!(!line.contains("s3cret") && !line.contains("abc"), "{name}: {line}");
    }
}

const OCTAVIA: &str =
    "[LoadBalancer] use-octavia: has no effect: Octavia is always used; remove it";
const GROUPS: &str = "[LoadBalancer] manage-security-groups = \"true\": service-ccm will refuse new load balancers: security groups are not managed yet";
const INSECURE: &str = "tls-insecure: certificates are not verified";
const SHARED: &str = "several Services do not share a load balancer yet: each gets its own";
const PATTERNS: &str = ": service-ccm will refuse new floating IPs: patterns and tags do not choose the floating subnet yet";

#[test]
fn files_of_other_tools_have_no_word_or_one_for_what_will_not_work() {
    leads_to("capi-helm.conf", 0, &[INSECURE]);
    leads_to("gardener-appcred.conf", 0, &[GROUPS, PATTERNS]);
    leads_to("gardener-appcred-user.conf", 0, &[GROUPS, PATTERNS]);
    leads_to("helm-chart.conf", 0, &[OCTAVIA, SHARED, PATTERNS, INSECURE]);
    leads_to("kubermatic.conf", 0, &[OCTAVIA, GROUPS, PATTERNS]);
    leads_to("kubernikus.conf", 0, &[]);
    leads_to("kubespray-appcred.conf", 0, &[OCTAVIA, SHARED]);
    leads_to("magnum.conf", 0, &[OCTAVIA]);
    leads_to("openshift.conf", 0, &["verify of the entry \"openstack\" is not read", GROUPS]);
    leads_to("password-hash.conf", 0, &["[Global] password: is cut off at # or ;"]);
    leads_to("password-single-quotes.conf", 0, &["[Global] password: begins with ' or `"]);
    leads_to(
        "project-instead-of-tenant.conf",
        0,
        &[
            "[Global] project-id: unknown key; its name here is tenant-id",
            "[Global] project-name: unknown key; its name here is tenant-name",
            "[Global] project-domain-name: unknown key; its name here is tenant-domain-name",
            "no project is set",
        ],
    );
}

#[test]
fn a_file_that_leaves_the_program_without_work_says_so() {
    let idle = "warning: a start would be idle: the cloud provider openstack does not offer load-balancers: [LoadBalancer] enabled is false";
    leads_to("lb-disabled.conf", 0, &[idle]);
}

#[test]
fn a_file_that_no_login_follows_from_is_refused() {
    leads_to("occm-sample.conf", 2, &["[Global]: username needs the user's domain"]);
    let name = "application-credential-name needs user-id, or username with a domain; also ";
    leads_to("kubespray-appcred-name.conf", 2, &[name]);
}
