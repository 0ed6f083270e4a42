//! A proxy between a program and the API server. It notes each write of a Lease, and with
//! [`Manner::Patching`] turns updates of Leases into patches.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use http::{
    HeaderValue, Method, Request, Response,
    header::{CONTENT_TYPE, HOST},
};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::JoinSet, time::Instant};
use tower::BoxError;

use super::{Manner, write_kubeconfig};

/// The header with the UID of the priority level that served a request.
const LEVEL: &str = "x-kubernetes-pf-prioritylevel-uid";

/// A write of a Lease.
#[derive(Clone, Debug)]
pub struct Write {
    /// As the API server received it.
    pub method: Method,
    /// The priority level.
    pub level: Option<String>,
    /// The status, and after what time it came.
    pub answer: Option<(u16, Duration)>,
}

/// The proxy of one program. Dropping it cuts all connections.
pub struct Wire {
    kubeconfig: PathBuf,
    writes: Arc<Mutex<Vec<Write>>>,
    _tasks: JoinSet<()>,
}

#[derive(Clone)]
struct Relay {
    client: Client,
    manner: Manner,
    writes: Arc<Mutex<Vec<Write>>>,
}

impl Wire {
    /// Returns a proxy that has the credentials of the kubeconfig `account`.
    pub async fn start(account: &Path, folder: &Path, manner: Manner) -> Result<Self> {
        let file = Kubeconfig::read_from(account)?;
        let mut config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let kubeconfig = folder.join(format!("wire-{port}.kubeconfig"));
        let kubeconfig = write_kubeconfig(&kubeconfig, &format!("http://127.0.0.1:{port}"))?;
        let writes = Arc::<Mutex<Vec<Write>>>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Relay { client, manner, writes: writes.clone() }));
        Ok(Self { kubeconfig, writes, _tasks: tasks })
    }

    /// Returns the kubeconfig for the program.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the writes so far, with the UIDs of their levels.
    pub fn writes(&self) -> Vec<Write> {
        self.writes.lock().clone()
    }
}

async fn accept(listener: TcpListener, relay: Relay) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let relay = relay.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| relay.clone().pass(request));
            // A program that ends cuts its connections.
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

impl Relay {
    async fn pass(self, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(HOST);
        let is_lease = parts.uri.path().contains("/leases");
        if is_lease && self.manner == Manner::Patching && parts.method == Method::PUT {
            parts.method = Method::PATCH;
            let merge = HeaderValue::from_static("application/merge-patch+json");
            parts.headers.insert(CONTENT_TYPE, merge);
        }
        let note = (is_lease && parts.method != Method::GET).then(|| self.note(&parts.method));
        let body = body.collect().await?.to_bytes();
        let start = Instant::now();
        let response = self.client.send(Request::from_parts(parts, Body::from(body))).await?;
        if let Some(at) = note
            && let Some(write) = self.writes.lock().get_mut(at)
        {
            let level = response.headers().get(LEVEL).and_then(|uid| uid.to_str().ok());
            write.level = level.map(str::to_owned);
            write.answer = Some((response.status().as_u16(), start.elapsed()));
        }
        Ok(response)
    }

    /// Notes a write that is about to be sent.
    fn note(&self, method: &Method) -> usize {
        let mut writes = self.writes.lock();
        writes.push(Write { method: method.clone(), level: None, answer: None });
        writes.len() - 1
    }
}
