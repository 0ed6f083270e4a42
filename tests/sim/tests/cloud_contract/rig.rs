//! A simulated cloud and a transport to it.

use std::{path::Path, sync::Arc, time::Duration};

use ccm_cloud::{CallGate, Cloud, OpenGate, ProviderConfig, ProviderContext, ProviderFactory};
use ccm_external::ExternalFactory;
use ccm_external_server::{Listener, ServerTls, serve};
use ccm_sim::cloud::SimCloud;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How the cloud is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a method call.
    Direct,
    /// Over a Unix socket.
    Unix,
    /// Over plain TCP.
    Tcp,
    /// Over TLS with certificates on both sides.
    MutualTls,
}

/// A simulated cloud, and the contract as a controller sees it.
pub struct Rig {
    /// The cloud's own side: its machines, faults and counts.
    pub sim: SimCloud,
    /// The controller's side.
    pub cloud: Arc<dyn Cloud>,
    _folder: tempfile::TempDir,
    _server: JoinSet<()>,
}

impl Rig {
    pub async fn new(way: Way) -> Self {
        Self::behind(way, Arc::new(OpenGate)).await
    }

    /// A rig whose controller's side has this gate.
    pub async fn behind(way: Way, gate: Arc<dyn CallGate>) -> Self {
        Self::of(SimCloud::new(), way, gate).await
    }

    /// A rig of this cloud, which describes itself as it is now.
    pub async fn of(sim: SimCloud, way: Way, gate: Arc<dyn CallGate>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = JoinSet::new();
        let (endpoint, tls) = match way {
            Way::Direct => {
                return Self {
                    cloud: Arc::new(sim.behind(gate)),
                    sim,
                    _folder: folder,
                    _server: server,
                };
            }
            Way::Unix => (format!("unix://{}/s", folder.path().display()), None),
            Way::Tcp => ("http://127.0.0.1:0".to_owned(), None),
            Way::MutualTls => ("https://127.0.0.1:0".to_owned(), Some(certificates(folder.path()))),
        };
        let listener = Listener::bind(&endpoint).await.unwrap();
        let mut config = format!("endpoint: {}\n", listener.endpoint());
        if tls.is_some() {
            config +=
                "tls: {ca: ca.pem, cert: client.pem, key: client.key, serverName: cloud.test}\n";
        }
        let file = folder.path().join("cloud.yaml");
        std::fs::write(&file, config).unwrap();
        let behind: Arc<dyn Cloud> = Arc::new(sim.clone());
        server.spawn(async move {
            serve(behind, listener, tls, CancellationToken::new()).await.unwrap();
        });
        let config = ProviderConfig { path: Some(file) };
        let context = ProviderContext { gate, ..ProviderContext::ungated(config, "test/1") };
        let cloud = ExternalFactory.build(context).await.unwrap();
        for _ in 0..500 {
            if cloud.instances().is_ok() {
                return Self { sim, cloud, _folder: folder, _server: server };
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the provider never described itself: {:?}", cloud.instances().err());
    }
}

/// A certificate authority, and certificates for both sides. The server's names only
/// `cloud.test`, so that `serverName` is needed.
fn certificates(folder: &Path) -> ServerTls {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let leaf = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let cert =
            CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        (cert.pem(), key.serialize_pem())
    };
    let ((cert, key), (client_cert, client_key)) = (leaf("cloud.test"), leaf("client"));
    for (name, text) in
        [("ca.pem", authority.pem()), ("client.pem", client_cert), ("client.key", client_key)]
    {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let client_ca = Some(authority.pem().into_bytes());
    ServerTls { cert: cert.into_bytes(), key: key.into_bytes(), client_ca }
}
