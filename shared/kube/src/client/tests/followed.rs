//! The kubeconfig and its files are replaced while the process runs.

use std::os::unix::fs::symlink;

use tokio::time::timeout;

use super::*;

/// This is longer than the period of reading files.
const SOON: Duration = Duration::from_secs(6);
const WITH_CA: &str = "{server: \"https://10.0.0.1:6443\", certificate-authority: ca.crt}";

/// A folder with a kubeconfig and all files that it may name.
struct Folder(TempDir);

impl Folder {
    fn new(cluster: &str, user: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("ca.crt", &ca());
        folder.write("token", "one");
        folder.identity();
        folder.write("config", &kubeconfig(CONTEXT, cluster, user));
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Writes a client's certificate and key.
    fn identity(&self) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap();
        self.write("tls.crt", &certificate.self_signed(&key).unwrap().pem());
        self.write("tls.key", &key.serialize_pem());
    }

    async fn clients(&self) -> Clients {
        Clients::connect(config(Some(&self.0.path().join("config")), None)).await.unwrap()
    }
}

async fn is_outdated(clients: &Clients) -> bool {
    timeout(SOON, clients.outdated()).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_token_in_the_kubeconfig_is_replaced() {
    let folder = Folder::new(CLUSTER, "{token: one}");
    let clients = folder.clients().await;
    assert!(!is_outdated(&clients).await);
    folder.write("config", &kubeconfig(CONTEXT, CLUSTER, "{token: one}"));
    assert!(!is_outdated(&clients).await, "the same content");
    folder.write("config", &kubeconfig(CONTEXT, CLUSTER, "{token: two}"));
    assert!(is_outdated(&clients).await);
    assert!(is_outdated(&clients.clone()).await, "it stays so, for all clones");
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_cannot_be_used_changes_nothing() {
    let folder = Folder::new(WITH_CA, "{token: one}");
    let clients = folder.clients().await;
    for text in ["", "users: [", "clusters: []", &kubeconfig(CONTEXT, "{server: x}", "{}")] {
        folder.write("config", text);
        assert!(!is_outdated(&clients).await, "{text:?}");
    }
    fs::remove_file(folder.0.path().join("config")).unwrap();
    assert!(!is_outdated(&clients).await, "there is none");
    folder.write("ca.crt", "half of it");
    folder.write("config", &kubeconfig(CONTEXT, WITH_CA, "{token: two}"));
    assert!(!is_outdated(&clients).await, "it names a CA that cannot be read");
    folder.write("ca.crt", &ca());
    assert!(is_outdated(&clients).await);
}

#[tokio::test(start_paused = true)]
async fn a_link_is_moved_to_another_kubeconfig() {
    let folder = Folder::new(CLUSTER, "{token: one}");
    let at = |name: &str| folder.0.path().join(name);
    fs::rename(at("config"), at("first")).unwrap();
    symlink("first", at("config")).unwrap();
    let clients = folder.clients().await;
    folder.write("second", &kubeconfig(CONTEXT, CLUSTER, "{token: two}"));
    assert!(!is_outdated(&clients).await);
    symlink("second", at("new")).unwrap();
    fs::rename(at("new"), at("config")).unwrap();
    assert!(is_outdated(&clients).await);
}

/// Files that are read again do not need a new process.
#[tokio::test(start_paused = true)]
async fn only_files_that_are_read_once_count() {
    let halves = format!(
        "{{client-certificate: tls.crt, client-key-data: {:?}}}",
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCkFBPT0KLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo="
    );
    for (user, file, expect) in [
        ("{token: one}", "ca.crt", true),
        ("{tokenFile: token}", "token", false),
        ("{client-certificate: tls.crt, client-key: tls.key}", "tls.crt", false),
        ("{token: one}", "tls.crt", false),
    ] {
        let folder = Folder::new(WITH_CA, user);
        let clients = folder.clients().await;
        match file {
            "ca.crt" => folder.write(file, &ca()),
            "token" => folder.write(file, "two"),
            _ => folder.identity(),
        }
        assert_eq!(is_outdated(&clients).await, expect, "{user}: {file}");
    }
    let (folder, mut files) = (Folder::new(WITH_CA, &halves), Files::default());
    let path = folder.0.path().join("config");
    // The half in the kubeconfig does not match here, which shows later.
    find(&config(Some(&path), None), &Surroundings::default(), &mut files).unwrap();
    folder.identity();
    assert!(timeout(SOON, files.changed()).await.is_ok(), "half of a certificate");
}
