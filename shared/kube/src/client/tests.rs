//! Valid and invalid configurations, and a handshake that hangs.

use std::{fs, io::ErrorKind, path::Path, sync::Arc, time::Duration};

use ccm_base::Files;
use kube::config::InClusterError;
use tempfile::TempDir;

mod followed;

use super::{
    ClientConfig, ClientError, Clients, RestMetrics, Unlimited,
    source::{Surroundings, find, is_usable},
};

/// Returns a CA certificate in PEM.
fn ca() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem()
}

/// Returns a kubeconfig with these parts, in YAML flow style.
fn kubeconfig(context: &str, cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {context}}}]\n\
         clusters: [{{name: k, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
    )
}

const CONTEXT: &str = "{cluster: k, user: u}";
const CLUSTER: &str = "{server: \"https://10.0.0.1:6443\"}";

fn config(flag: Option<&Path>, master: Option<&str>) -> ClientConfig {
    ClientConfig {
        kubeconfig: flag.map(Path::to_owned),
        master: master.map(str::to_owned),
        user_agent: "test/1".to_owned(),
        request_timeout: Duration::from_secs(30),
        limiter: Arc::new(Unlimited),
        metrics: Arc::new(RestMetrics::default()),
        credentials_over_http: false,
    }
}

async fn connect(config: ClientConfig) -> Result<Clients, ClientError> {
    Clients::connect_in(config, &Surroundings::default(), &mut Files::default()).await
}

/// Returns the error for this kubeconfig; `$FILE` and `$DIR` stand for its location.
async fn problem(dir: &TempDir, text: &str) -> String {
    let path = dir.path().join("config");
    fs::write(&path, text).unwrap();
    let error = connect(config(Some(&path), None)).await;
    let line = error.expect_err(text).to_string();
    line.replace(&path.display().to_string(), "$FILE")
        .replace(&dir.path().display().to_string(), "$DIR")
}

/// Checks that each kubeconfig leads to this error, after the name of the setting.
async fn mistakes(rows: &[(String, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    fs::write(dir.path().join("ca.crt"), ca()).unwrap();
    for (text, expect) in rows {
        assert_eq!(problem(&dir, text).await, format!("--kubeconfig=$FILE: {expect}"), "{text}");
    }
}

#[tokio::test]
async fn each_mistake_in_a_context_is_one_clear_line() {
    let good = kubeconfig(CONTEXT, CLUSTER, "{}");
    let no_context = "failed to determine current context; choose a context with `kubectl config use-context <name>`";
    mistakes(&[
        (String::new(), no_context),
        ("apiVersion: v1\n".to_owned(), no_context),
        (
            good.replace("current-context: c", "current-context: x"),
            "failed to load current context: x; choose a context with `kubectl config use-context <name>`",
        ),
        (
            kubeconfig("{cluster: x, user: u}", CLUSTER, "{}"),
            "failed to load the cluster of context: x; name a cluster of this file in the context",
        ),
        (
            kubeconfig("{cluster: k, user: x}", CLUSTER, "{}"),
            "the context's user \"x\" is not among the users; name a user of this file in the context",
        ),
    ])
    .await;
}

#[tokio::test]
async fn each_mistake_in_a_cluster_is_one_clear_line() {
    let with = |cluster: &str| kubeconfig(CONTEXT, cluster, "{}");
    let secure = |more: &str| with(&format!("{{server: \"https://h\", {more}}}"));
    mistakes(&[
        (
            with("{}"),
            "cluster url is missing on selected cluster; set clusters[].cluster.server to https://host:port",
        ),
        (
            with("{server: \"10.0.0.1:6443\"}"),
            "10.0.0.1:6443 is not the URL of a server; must be https://host:port",
        ),
        (
            with("{server: \"https://h:x\"}"),
            "https://h:x/ is not the URL of a server; must be https://host:port",
        ),
        (
            with("{server: \"https://a b\"}"),
            "failed to parse cluster url: invalid uri character; set clusters[].cluster.server to https://host:port",
        ),
        (
            secure("certificate-authority: gone.crt"),
            "failed to load certificate authority: failed to read file '\"$DIR/gone.crt\"': \
             No such file or directory (os error 2); \
             give the API server's CA certificates in PEM, as a readable file or in base64",
        ),
        (
            secure("certificate-authority: empty"),
            "certificate-authority holds no certificate; give the API server's CA certificates in PEM",
        ),
        (
            secure("certificate-authority-data: \"!\""),
            "failed to load certificate authority: failed to decode base64 data: Invalid symbol 33, offset 0.; \
             give the API server's CA certificates in PEM, as a readable file or in base64",
        ),
        (
            secure("proxy-url: \"socks5://p:1\""),
            "the proxy's scheme socks5 is not supported; set proxy-url or HTTPS_PROXY to \
             http://host:port, or name the server in NO_PROXY",
        ),
        (
            secure("tls-server-name: \"a b\", certificate-authority: ca.crt"),
            "tls-server-name is not a host name; give a name that the server's certificate holds",
        ),
    ])
    .await;
}

#[tokio::test]
async fn each_mistake_in_a_user_is_one_clear_line() {
    let with = |user: &str| kubeconfig(CONTEXT, CLUSTER, user);
    let exec = |command: &str| {
        with(&format!(
            "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}, interactiveMode: Never}}}}"
        ))
    };
    mistakes(&[
        (
            with("{tokenFile: gone}"),
            "failed to read token file '\"$DIR/gone\"': No such file or directory (os error 2); \
             give a readable token file, or an exec command that prints an ExecCredential",
        ),
        (
            with("{client-certificate: gone.crt, client-key: gone.key}"),
            "failed to load client certificate: failed to read file '\"$DIR/gone.crt\"': \
             No such file or directory (os error 2); \
             give both client-certificate and client-key as readable files or in base64, or neither",
        ),
        (
            with("{client-certificate: ca.crt}"),
            "failed to load client key: no base64 data or file; \
             give both client-certificate and client-key as readable files or in base64, or neither",
        ),
        (
            with("{client-certificate: ca.crt, client-key: empty}"),
            "rustls tls error: identity PEM is missing a private key: the key must be PKCS8 or RSA/PKCS1; \
             certificate-authority, and client-certificate with its own client-key, have to be PEM",
        ),
        (
            exec("./gone"),
            "unable to run auth exec: No such file or directory (os error 2); \
             give a readable token file, or an exec command that prints an ExecCredential",
        ),
        // A plugin's environment can hold secrets: it is not shown.
        (
            exec("\"false\""),
            "the exec plugin ended with exit status: 1; \
             give a readable token file, or an exec command that prints an ExecCredential",
        ),
        (
            exec("\"true\""),
            "exec-plugin response did not contain a status; \
             give a readable token file, or an exec command that prints an ExecCredential",
        ),
        (
            with("{as: \"a\\nb\"}"),
            "the user or group to impersonate cannot be sent; use visible ASCII in users[].user.as",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_file_that_is_no_yaml_is_said_so_without_quoting_it() {
    let dir = tempfile::tempdir().unwrap();
    for text in [
        "users: [{name: u, user: {token: hunter2",
        "hunter2",
        "users: hunter2",
        "clusters:\n  - name: [hunter2]\n",
        "\thunter2",
    ] {
        let line = problem(&dir, text).await;
        assert!(line.starts_with("--kubeconfig=$FILE: not a kubeconfig"), "{text:?}: {line}");
        assert!(
            line.ends_with("; give the path of a readable kubeconfig file in YAML"),
            "{text:?}: {line}"
        );
        assert!(
            !line.contains("hunter2") && !line.contains('\n') && line.len() < 160,
            "{text:?}: {line}"
        );
    }
}

#[test]
fn sources_are_tried_in_order_and_a_named_one_has_to_be_good() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, server: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, kubeconfig(CONTEXT, &format!("{{server: \"https://{server}\"}}"), "{}"))
            .unwrap();
        path
    };
    let (flag, gone) = (write("flag", "flag"), dir.path().join("gone"));
    let pod = || Ok(kube::Config::new(http::Uri::from_static("https://pod")));
    let around = Surroundings { pod: Some(pod), no_proxy: None };
    let server = |flag: Option<&Path>, master, around: &Surroundings| {
        find(&config(flag, master), around, &mut Files::default())
            .map(|found| found.config.cluster_url.to_string())
            .map_err(|error| error.to_string())
    };
    assert_eq!(server(Some(&flag), None, &around).unwrap(), "https://flag/");
    assert_eq!(server(Some(&flag), Some("http://m:8080"), &around).unwrap(), "http://m:8080/");
    // A named file that is missing is an error, even if other sources exist.
    let missing = format!(
        "--kubeconfig={0}: failed to read kubeconfig from '\"{0}\"': No such file or directory (os error 2); \
         give the path of a readable kubeconfig file in YAML",
        gone.display()
    );
    assert_eq!(server(Some(&gone), None, &around).unwrap_err(), missing);
    assert_eq!(server(None, None, &around).unwrap(), "https://pod/");
    assert_eq!(server(Some(Path::new("")), Some(""), &around).unwrap(), "https://pod/");

    let nothing = Surroundings::default();
    assert_eq!(server(None, Some("http://m:8080"), &nothing).unwrap(), "http://m:8080/");
    assert_eq!(
        server(None, None, &nothing).unwrap_err(),
        "no Kubernetes configuration: --kubeconfig is not set, and this is not a pod (KUBERNETES_SERVICE_HOST is not \
         set); give --kubeconfig=<file> (KUBECONFIG and ~/.kube/config are not read)"
    );
    assert_eq!(
        server(None, Some("m:8080"), &nothing).unwrap_err(),
        "--master=m:8080: m:8080 is not the URL of a server; must be https://host:port"
    );
}

/// A token that crosses a network in clear is everybody's.
#[test]
fn credentials_need_tls_unless_a_setting_says_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let pod = || {
        let mut pod = kube::Config::new(http::Uri::from_static("https://pod"));
        pod.auth_info.token_file = Some("/var/run/token".to_owned());
        Ok(pod)
    };
    let around = Surroundings { pod: Some(pod), no_proxy: None };
    let line = |config: ClientConfig| match find(&config, &around, &mut Files::default()) {
        Ok(found) => found.config.cluster_url.to_string(),
        Err(error) => error.to_string().replace(&path.display().to_string(), "$FILE"),
    };
    let with = |server: &str, user: &str, master| {
        fs::write(&path, kubeconfig(CONTEXT, &format!("{{server: \"{server}\"}}"), user)).unwrap();
        line(config(Some(&path), master))
    };
    let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}}";
    for user in ["{token: abc}", "{tokenFile: t}", "{username: me, password: pw}", exec] {
        assert_eq!(with("https://h", user, None), "https://h/", "{user}");
        let why = "the credentials would go to http://h/ in clear; give the URL with https://, or set \
                   --kube-api-credentials-over-http";
        assert_eq!(with("http://h", user, None), format!("--kubeconfig=$FILE: {why}"), "{user}");
        assert_eq!(with("https://x", user, Some("http://h")), format!("--master=http://h: {why}"));
    }
    // These are valid: kubectl proxy, and a certificate that only TLS can show.
    for user in ["{}", "{as: someone}", "{client-certificate: a, client-key: b}"] {
        assert_eq!(with("http://h", user, None), "http://h/", "{user}");
    }
    let refused = line(config(None, Some("http://127.0.0.1:8001")));
    assert!(refused.starts_with("--master=http://127.0.0.1:8001: the credentials "), "{refused}");
    let named = line(config(None, Some("http://me:hush@h/a")));
    assert!(
        named.starts_with("--master=http://h/a: the credentials would go to http://h/a "),
        "{named}"
    );
    let odd = line(config(None, Some("ftp://me:hush@h")));
    assert_eq!(
        odd,
        "--master=ftp://h: ftp://h is not the URL of a server; must be https://host:port"
    );
    let allowed = ClientConfig { credentials_over_http: true, ..config(None, Some("http://h")) };
    assert_eq!(line(allowed), "http://h/");
}

/// The same files make it panic again, so the message does not blame a slow exec plugin.
#[tokio::test]
async fn a_reader_that_panics_is_said_so() {
    let plan = super::prepare::on_thread(|| panic!("hunter2")).await;
    let line = plan.err().expect("no plan").into_error("--kubeconfig=x").to_string();
    assert_eq!(
        line,
        "--kubeconfig=x: its reader panicked, see stderr; give another kubeconfig, and report this"
    );
}

#[test]
fn what_no_request_could_be_sent_to_is_no_server() {
    for (server, usable) in [
        ("https://10.0.0.1", true),
        ("http://[fd00::1]", true),
        ("https://[fd00::1]:6443/prefix", true),
        ("https://user:1@host", true),
        ("https://host:0", false),
        ("https://host:70000", false),
        ("https://host:", false),
        ("https://[fd00::1]:x", false),
        ("https://:443", false),
        ("ftp://host", false),
        ("/host", false),
    ] {
        assert_eq!(server.parse().is_ok_and(|uri| is_usable(&uri)), usable, "{server}");
    }
}

#[test]
fn a_pod_without_a_usable_service_account_says_what_it_lacks() {
    let pod = || Err(InClusterError::ReadCertificateBundle(ErrorKind::NotFound.into()));
    let around = Surroundings { pod: Some(pod), ..Surroundings::default() };
    assert_eq!(
        find(&config(None, None), &around, &mut Files::default()).unwrap_err().to_string(),
        "in-cluster configuration: failed to read a certificate bundle: entity not found; \
         the pod needs a service account with automountServiceAccountToken, and KUBERNETES_SERVICE_HOST and \
         KUBERNETES_SERVICE_PORT of an API server; or give --kubeconfig=<file>"
    );
}

#[tokio::test]
async fn a_user_agent_that_cannot_be_sent_is_refused() {
    let config =
        ClientConfig { user_agent: "a\nb".to_owned(), ..config(None, Some("http://127.0.0.1:1")) };
    let error = connect(config).await.unwrap_err();
    assert!(error.to_string().starts_with("--master=http://127.0.0.1:1: "), "{error}");
    assert!(error.to_string().contains("the user agent \"a\\nb/main\" cannot be sent"), "{error}");
}

/// A handshake with a peer that accepts but never answers ends long before the call's
/// deadline.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_hangs_ends() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (dir, started) = (tempfile::tempdir().unwrap(), tokio::time::Instant::now());
    fs::write(dir.path().join("ca.crt"), ca()).unwrap();
    let cluster = format!(
        "{{server: \"https://{}\", certificate-authority: ca.crt}}",
        listener.local_addr().unwrap()
    );
    fs::write(dir.path().join("config"), kubeconfig(CONTEXT, &cluster, "{}")).unwrap();
    let clients = connect(config(Some(&dir.path().join("config")), None));
    let lease = clients.await.unwrap().lease_client(tower::layer::util::Identity::new());
    let error = crate::ApiError::from(lease.apiserver_version().await.unwrap_err());
    assert!(error.to_string().contains("no connection within 10 s"), "{error}");
    assert_eq!(started.elapsed().as_secs(), 10);
}
