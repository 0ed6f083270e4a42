//! A simulated cloud and a transport to it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use ccm_cloud::{
    Call, CallClass, CallGate, CallReport, Cloud, CloudError, Permit, ProviderContext,
    ProviderFactory,
};
use ccm_contract::{Need, Rig, Stage};
use ccm_external::ExternalFactory;
use ccm_external_server::{Listener, ServerTls, serve};
use ccm_sim::cloud::SimCloud;
use futures::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::side::Side;

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

/// The simulated cloud, reached in this way.
pub struct SimStage(pub Way);

#[async_trait]
impl Stage for SimStage {
    fn name(&self) -> &str {
        match self.0 {
            Way::Direct => "sim",
            Way::Unix => "external_over_a_unix_socket",
            Way::Tcp => "external_over_tcp",
            Way::MutualTls => "external_over_tls",
        }
    }

    fn lacks(&self, _: Need) -> Option<&'static str> {
        None
    }

    async fn rig(&self, needs: &[Need]) -> Box<dyn Rig> {
        let sim = SimCloud::new();
        for need in needs {
            sim.balancers().configure(|settings| match need {
                Need::Steps => settings.nested = false,
                Need::Fences => settings.fences = true,
                Need::HidesEmptyPools => settings.shows_empty = false,
                _ => {}
            });
            sim.router().configure(|settings| match need {
                Need::Fences => settings.fences = true,
                Need::SeveralTargets => settings.traits.several_targets = true,
                Need::RouteOwners => settings.records_owner = true,
                Need::TableVersions => settings.traits.compares_version = true,
                _ => {}
            });
        }
        // These are the next hops of routes.
        for number in 1..10 {
            sim.router().add_port([10, 0, 0, number].into());
        }
        Box::new(Side::of(Wired::new(sim, self.0).await))
    }
}

/// A gate that puts a term on writes.
#[derive(Default)]
pub struct Terms(pub AtomicU64);

impl CallGate for Terms {
    fn admit(&self, class: CallClass, _: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        let term = self.0.load(Ordering::Relaxed);
        let term = (class.write && term > 0).then_some(term);
        Box::pin(std::future::ready(Ok(Permit::for_write(term, || {}))))
    }

    fn report(&self, _: CallClass, _: CallReport) {}
}

/// A simulated cloud, and the contract as a controller sees it.
pub struct Wired {
    /// The cloud's own side: its machines, faults and counts.
    pub sim: SimCloud,
    /// The controller's side.
    pub cloud: Arc<dyn Cloud>,
    /// The terms of its writes.
    pub terms: Arc<Terms>,
    _folder: tempfile::TempDir,
    _server: JoinSet<()>,
}

impl Wired {
    /// Creates this cloud, which describes itself as it is now.
    pub async fn new(sim: SimCloud, way: Way) -> Self {
        let (folder, mut server) = (tempfile::tempdir().unwrap(), JoinSet::new());
        let terms = Arc::new(Terms::default());
        let gate: Arc<dyn CallGate> = Arc::clone(&terms) as _;
        let (endpoint, tls) = match way {
            Way::Direct => {
                let cloud = Arc::new(sim.behind(gate));
                return Self { cloud, sim, terms, _folder: folder, _server: server };
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
        let config = Some(file);
        let context = ProviderContext { gate, ..ProviderContext::ungated(config, "test/1") };
        let cloud = ExternalFactory.build(context).await.unwrap();
        for _ in 0..500 {
            if cloud.instances().is_ok() {
                return Self { sim, cloud, terms, _folder: folder, _server: server };
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the provider never described itself: {:?}", cloud.instances().err());
    }
}

/// Returns a certificate authority, and certificates for both sides. The server's names only
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
