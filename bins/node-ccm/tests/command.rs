//! Commands of the built program that need no API server, and their exit codes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::{path::Path, process::Command, time::Duration};

use tempfile::TempDir;
use tokio::time::{sleep, timeout};

const DONE: i32 = 0;
const BROKEN: i32 = 1;
const USAGE: i32 = 2;

/// The files that the settings refer to.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Returns the flags for a cloud that does not answer now.
    fn unavailable(&self) -> Vec<String> {
        self.cloud("unavailable", "endpoint: unix:///nowhere/cloud.sock\n")
    }

    /// Returns the flags for a cloud whose configuration is wrong.
    fn invalid(&self) -> Vec<String> {
        self.cloud("invalid", "endpoint: nowhere\n")
    }

    fn cloud(&self, name: &str, text: &str) -> Vec<String> {
        let config = self.file(name, text);
        vec!["--cloud-provider=external".to_owned(), format!("--cloud-config={config}")]
    }
}

/// Runs the program with these arguments to its end.
fn check(cloud: &[String], arguments: &[&str], expect: i32) {
    let out = Command::new(Path::new(env!("CARGO_BIN_EXE_node-ccm")))
        .env_remove("KUBECONFIG")
        .args(cloud)
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(expect), "{cloud:?} {arguments:?}: {out:?}");
}

#[test]
fn commands_without_an_api_server_have_their_exit_code() {
    let files = Files::new();
    let (invalid, unavailable) = (files.invalid(), files.unavailable());
    check(&[], &["--version"], DONE);
    check(&[], &["--help"], DONE);
    check(&[], &["--print-options-markdown"], DONE);
    check(&[], &["--print-config"], USAGE);
    check(&invalid, &["--print-config"], DONE);
    check(&[], &["--no-such-flag"], USAGE);
    check(&[], &["extra"], USAGE);
    check(&[], &[], USAGE);
    check(&[], &["--cloud-provider=unknown"], USAGE);
    check(&invalid, &["--node-status-update-frequency=0s"], USAGE);
    check(&invalid, &["--config=/nowhere.yaml"], USAGE);
    check(&invalid, &["--check-config"], USAGE);
    check(&unavailable, &["--check-config"], DONE);
    check(&[], &["--check-config"], USAGE);
    check(&unavailable, &["--check-config", "--cloud-call-timeout=0s"], USAGE);
    check(&unavailable, &["--check-config", "--user-agent=a b"], DONE);
    check(&unavailable, &["--check-config", "--user-agent"], USAGE);
}

/// The same page as /configz: what is in force, and where it comes from.
#[test]
fn the_settings_in_force_are_printed() {
    let out = Command::new(Path::new(env!("CARGO_BIN_EXE_node-ccm")))
        .args(["--cloud-provider=external", "--cloud-config=/x", "--master=https://me:secret@host"])
        .args(["--print-config", "--kube-api-qps=7"])
        .env("CCM__CLOUD_READ_QPS", "3")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(DONE), "{out:?}");
    let page: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let setting = |key: &str| &page["node-ccm"]["settings"][key];
    assert_eq!(setting("kube_api_qps")["value"], "7");
    assert_eq!(setting("kube_api_qps")["origin"], "flag");
    assert_eq!(setting("cloud_read_qps")["origin"], "environment");
    assert_eq!(setting("cloud_write_qps")["origin"], "default");
    assert!(!page.to_string().contains("secret"), "{page}");
}

/// A configuration that would fail soon after the start is invalid.
#[test]
fn check_config_validates_the_files_that_settings_name() {
    let files = Files::new();
    let check = |arguments: &[String], expect: i32| {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        check(&files.unavailable(), &[&["--check-config"], &*arguments].concat(), expect);
    };
    let kubeconfig = |path: &str| format!("--kubeconfig={path}");
    let cluster = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n\
                   contexts: [{name: c, context: {cluster: c, user: u}}]\n\
                   users: [{name: u, user: {}}]\ncurrent-context: c\n";
    check(&[kubeconfig(&files.file("good", cluster))], DONE);
    check(&[kubeconfig("/nowhere/kubeconfig")], USAGE);
    check(&[kubeconfig(&files.file("bad", "a: ["))], USAGE);
    check(&["--master=nonsense://".to_owned()], USAGE);
    // The token would cross the network in clear.
    let clear = kubeconfig(&files.file("clear", &cluster.replace("{}", "{token: hush}")));
    check(std::slice::from_ref(&clear), USAGE);
    check(&[clear, "--kube-api-credentials-over-http".to_owned()], DONE);
    let text = files.file("tls.pem", "no certificate");
    let tls =
        |path: &str| [format!("--tls-cert-file={path}"), format!("--tls-private-key-file={path}")];
    check(&tls(&text), BROKEN);
    check(&tls("/nowhere/tls.pem"), BROKEN);
    let [certificate, key] = tls(&text);
    check(&[certificate, key, "--secure-port=0".to_owned()], DONE);
}

/// The cluster of a person's kubectl may be a production cluster, with all rights.
#[test]
fn the_cluster_of_the_shell_is_not_taken() {
    let files = Files::new();
    let kubeconfig = files.file("config", "apiVersion: v1\nkind: Config\n");
    std::fs::create_dir(files.0.path().join(".kube")).unwrap();
    std::fs::copy(&kubeconfig, files.0.path().join(".kube/config")).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_node-ccm"))
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("KUBECONFIG", &kubeconfig)
        .env("HOME", files.0.path())
        .args(files.unavailable())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(USAGE), "{told}");
    assert!(
        told.contains("give --kubeconfig=<file> (KUBECONFIG and ~/.kube/config are not"),
        "{told}"
    );
}

/// A process that runs leaves no core dump; no test ends one by a crash.
#[tokio::test]
async fn a_running_program_has_forbidden_core_dumps() {
    let files = Files::new();
    let mut program = Command::new(Path::new(env!("CARGO_BIN_EXE_node-ccm")))
        .args(files.unavailable())
        .args(["--master=http://127.0.0.1:9", "--secure-port=0"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let limits = format!("/proc/{}/limits", program.id());
    let is_forbidden = || {
        let text = std::fs::read_to_string(&limits).unwrap();
        let line = text.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        let line = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        line.ends_with("size 0 0 bytes")
    };
    let soon = timeout(Duration::from_secs(20), async {
        while !is_forbidden() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let forbidden = soon.await.is_ok();
    program.kill().unwrap();
    program.wait().unwrap();
    assert!(forbidden);
}
