//! Client certificates that are renewed at runtime.

use std::{fs, path::Path, sync::Arc, time::Duration};

use ccm_kube::client::{ClientConfig, Clients};
use http::Response;
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::support::{Kubeconfig, config, node_body, nodes};

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns a certificate and its key, signed by `ca`.
fn issue(ca: &Ca, name: &str, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, ca).unwrap(), key)
}

/// Writes a new client certificate with this common name.
fn renew(ca: &Ca, dir: &Path, name: &str) {
    let (certificate, key) = issue(ca, name, ExtendedKeyUsagePurpose::ClientAuth);
    fs::write(dir.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(dir.join("tls.key"), key.serialize_pem()).unwrap();
}

/// Returns true if this DER certificate contains the name. The names here are unique enough.
fn holds(certificate: &CertificateDer<'_>, name: &str) -> bool {
    certificate.as_ref().windows(name.len()).any(|window| window == name.as_bytes())
}

/// Returns a TLS server that answers with the name in the client's certificate, and 401 to
/// `expired`, as an API server does on a connection that outlives its certificate.
async fn serve(ca: &Ca, tasks: &mut JoinSet<()>) -> String {
    let (certificate, key) = issue(ca, "server", ExtendedKeyUsagePurpose::ServerAuth);
    let mut roots = RootCertStore::empty();
    roots.add(ca.as_ref().der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            open.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let peer = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                let name = ["first", "expired", "second"]
                    .into_iter()
                    .find(|name| holds(&peer, name))
                    .unwrap();
                let service = hyper::service::service_fn(move |_request| async move {
                    let status = if name == "expired" { 401 } else { 200 };
                    Ok::<_, std::convert::Infallible>(
                        Response::builder()
                            .status(status)
                            .body(Full::<bytes::Bytes>::from(node_body(name)))
                            .unwrap(),
                    )
                });
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            });
        }
    });
    format!("https://{address}")
}

async fn name(clients: &Clients) -> Result<String, ccm_kube::ApiError> {
    Ok(nodes(&clients.main).get("a").await?.metadata.name.unwrap())
}

#[tokio::test]
async fn a_renewed_client_certificate_is_used_without_a_restart() {
    let (ca, mut tasks) = (ca(), JoinSet::new());
    let server = serve(&ca, &mut tasks).await;
    let cluster = format!("{{server: {server:?}, certificate-authority: ca.crt}}");
    let kubeconfig =
        Kubeconfig::with_cluster(&cluster, "{client-certificate: tls.crt, client-key: tls.key}");
    let dir = kubeconfig.0.path();
    fs::write(dir.join("ca.crt"), ca.as_ref().pem()).unwrap();
    renew(&ca, dir, "expired");
    let config = ClientConfig {
        kubeconfig: Some(kubeconfig.path()),
        request_timeout: Duration::from_secs(10),
        ..config()
    };
    let clients = Clients::connect(config).await.unwrap();
    assert_eq!(name(&clients).await, Err(ccm_kube::ApiError::Unauthorized));
    renew(&ca, dir, "second");
    assert_eq!(name(&clients).await.unwrap(), "second");
    // Half-written files change nothing, on new connections either.
    fs::write(dir.join("tls.key"), "-----BEGIN").unwrap();
    assert_eq!(name(&clients).await.unwrap(), "second");
    nodes(&clients.events).get("a").await.unwrap();
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_trusted() {
    let (mine, theirs, mut tasks) = (ca(), ca(), JoinSet::new());
    let server = serve(&theirs, &mut tasks).await;
    let cluster = format!("{{server: {server:?}, certificate-authority: ca.crt}}");
    let kubeconfig =
        Kubeconfig::with_cluster(&cluster, "{client-certificate: tls.crt, client-key: tls.key}");
    fs::write(kubeconfig.0.path().join("ca.crt"), mine.as_ref().pem()).unwrap();
    renew(&theirs, kubeconfig.0.path(), "first");
    let config = ClientConfig {
        kubeconfig: Some(kubeconfig.path()),
        request_timeout: Duration::from_secs(10),
        ..config()
    };
    let clients = Clients::connect(config).await.unwrap();
    let Err(ccm_kube::ApiError::Unavailable(message)) = name(&clients).await else {
        panic!("trusted")
    };
    assert!(message.contains("invalid peer certificate"), "{message}");
}
