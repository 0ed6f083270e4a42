//! A webhook that holds each request for a while and then allows it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use k8s_openapi::ByteString;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};
use tokio_rustls::TlsAcceptor;
use tower::BoxError;

/// How long it holds a request.
const HELD: Duration = Duration::from_secs(2);

/// The label of the objects whose writes are held.
pub const LABEL: &str = "pressure";

/// A running webhook.
pub struct Hold {
    port: u16,
    certificate: String,
    count: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Hold {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key =
            PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let count = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, acceptor, count.clone()));
        Ok(Self { port, certificate: cert.pem(), count, _tasks: tasks })
    }

    /// Returns how many requests it has held.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Returns the object that makes the API server ask the webhook about writes of ConfigMaps with
    /// [`LABEL`].
    pub fn webhook(&self) -> Result<Value> {
        let authority = serde_json::to_value(ByteString(self.certificate.clone().into_bytes()))?;
        let url = format!("https://127.0.0.1:{}/", self.port);
        Ok(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "pressure"},
            "webhooks": [{
                "name": "pressure.quartet.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"url": url, "caBundle": authority},
                "failurePolicy": "Fail", "timeoutSeconds": 10,
                "objectSelector": {"matchLabels": {LABEL: "true"}},
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                    "operations": ["CREATE", "UPDATE"],
                }],
            }],
        }))
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, count: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, count) = (acceptor.clone(), count.clone());
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| allow(request, count.clone()));
            let connection = auto::Builder::new(TokioExecutor::new());
            // The API server cuts idle connections.
            connection.serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

async fn allow(
    request: Request<Incoming>,
    count: Arc<AtomicUsize>,
) -> Result<Response<Full<Bytes>>, BoxError> {
    let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    sleep(HELD).await;
    count.fetch_add(1, Relaxed);
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true},
    });
    let mut response = Response::new(Full::from(answer.to_string()));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}
