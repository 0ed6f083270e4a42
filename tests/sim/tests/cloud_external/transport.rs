//! Untrusted networks.

use std::{sync::Arc, time::Duration};

use ccm_cloud::{Call, Detail, ErrorKind, NodeIdentity};
use ccm_external_server::ServerTls;
use ccm_sim::cloud::SimCloud;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

use crate::place::{Place, Served, call, instances, skip, until};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns certificate and key for a name.
fn leaf(authority: &Authority, name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let cert =
        CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    (cert.pem(), key.serialize_pem())
}

fn server(authority: &Authority, name: &str, client_ca: Option<&Authority>) -> ServerTls {
    let (cert, key) = leaf(authority, name);
    ServerTls {
        cert: cert.into(),
        key: key.into(),
        client_ca: client_ca.map(|ca| ca.pem().into_bytes()),
    }
}

#[tokio::test]
async fn only_valid_certificates_are_accepted() {
    let (ours, theirs) = (authority(), authority());
    let tls = "ca: ca.pem";
    let mutual = "ca: ca.pem, cert: client.pem, key: client.key";
    for (what, served, client, expect) in [
        ("right", Some(server(&ours, "localhost", None)), tls.to_owned(), None),
        ("right, both", Some(server(&ours, "localhost", Some(&ours))), mutual.to_owned(), None),
        (
            "right name given",
            Some(server(&ours, "a.test", None)),
            format!("{tls}, serverName: a.test"),
            None,
        ),
        (
            "wrong name",
            Some(server(&ours, "a.test", None)),
            tls.to_owned(),
            Some("not valid for name"),
        ),
        (
            "wrong authority",
            Some(server(&theirs, "localhost", None)),
            tls.to_owned(),
            Some("invalid peer certificate"),
        ),
        (
            "no client certificate",
            Some(server(&ours, "localhost", Some(&ours))),
            tls.to_owned(),
            Some(""),
        ),
        (
            "wrong client certificate",
            Some(server(&ours, "localhost", Some(&theirs))),
            mutual.to_owned(),
            Some(""),
        ),
        ("no TLS on the other side", None, tls.to_owned(), Some("")),
    ] {
        let place = Place::new();
        let (cert, key) = leaf(&ours, "client");
        place.write("ca.pem", ours.pem());
        place.write("client.pem", cert);
        place.write("client.key", key);
        let scheme = if served.is_some() { "https" } else { "http" };
        let running =
            Served::start(SimCloud::new(), &format!("{scheme}://localhost:0"), served).await;
        let endpoint = running.endpoint.replace("http://", "https://");
        place.write("cloud.yaml", format!("endpoint: {endpoint}\ntls: {{{client}}}"));
        let cloud = place.client().await.unwrap();
        match (expect, cloud.health(call()).await) {
            (None, outcome) => assert_eq!(outcome, Ok(()), "{what}"),
            (Some(words), outcome) => {
                let error = outcome.expect_err(what);
                assert_eq!(error.kind, ErrorKind::Unavailable, "{what}: {error}");
                assert!(error.message.contains(words), "{what}: {error}");
                assert!(error.message.contains(&endpoint), "{what}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn renewed_certificates_are_picked_up() {
    let (old, new) = (authority(), authority());
    let place = Place::new();
    place.write("ca.pem", old.pem());
    let running = Served::start(
        SimCloud::new(),
        "https://localhost:0",
        Some(server(&new, "localhost", None)),
    )
    .await;
    place.write("cloud.yaml", format!("endpoint: {}\ntls: {{ca: ca.pem}}", running.endpoint));
    let cloud = place.client().await.unwrap();
    assert_eq!(cloud.health(call()).await.unwrap_err().kind, ErrorKind::Unavailable);
    place.write("ca.pem", new.pem());
    skip(Duration::from_secs(11)).await;
    until("the new authority is trusted", || cloud.instances().ok()).await;
}

/// Forwards bytes until it is frozen: then connections stay open without traffic, as when a
/// machine or a firewall in between drops them.
struct Network {
    port: u16,
    frozen: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Network {
    async fn to(endpoint: &str) -> Self {
        let target = endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, frozen, mut tasks) =
            (listener.local_addr().unwrap().port(), Arc::new(Notify::new()), JoinSet::new());
        let freeze = Arc::clone(&frozen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass_on(client, target.clone(), Arc::clone(&freeze)));
            }
        });
        Self { port, frozen, _tasks: tasks }
    }

    /// Freezes existing connections; new ones work.
    fn forget(&self) {
        self.frozen.notify_waiters();
    }
}

async fn pass_on(mut client: TcpStream, target: String, frozen: Arc<Notify>) {
    let mut server = TcpStream::connect(&target).await.unwrap();
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        // Both sockets stay open, and neither is read.
        () = frozen.notified() => std::future::pending().await,
    }
}

#[tokio::test]
async fn a_dead_connection_is_replaced() {
    let place = Place::new();
    let sim = SimCloud::new();
    sim.add_many(0, 1);
    let running = Served::start(sim, "http://127.0.0.1:0", None).await;
    let network = Network::to(&running.endpoint).await;
    place.configure(&format!("http://127.0.0.1:{}", network.port));
    let cloud = place.client().await.unwrap();
    let instances = instances(&cloud).await;
    instances.list(call()).await.unwrap();
    network.forget();
    let node = [NodeIdentity::named("node-00000")];
    let answers = instances
        .lookup(&node, Detail::Everything, Call::waiting(Duration::from_millis(300)))
        .await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind, ErrorKind::Timeout);
    // The keeper detects the dead connection as well and replaces it. In each round its call
    // times out.
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        skip(Duration::from_secs(10)).await;
        let list = instances.list(Call::waiting(Duration::from_millis(500))).await;
        if list.is_ok_and(|fleet| fleet.instances.len() == 1) {
            return;
        }
    }
    panic!("the dead connection stays in use");
}
