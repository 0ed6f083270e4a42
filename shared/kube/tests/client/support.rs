//! Servers and configurations for the tests.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use ccm_kube::{
    client::{ClientConfig, Clients, ResponseBody, Unlimited},
    metrics::RestMetrics,
};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, client::Body};
use tokio::{net::TcpListener, task::JoinSet};
use tower::{BoxError, service_fn};

/// How long a call may take in these tests.
pub const TIMEOUT: Duration = Duration::from_secs(30);

pub fn config() -> ClientConfig {
    ClientConfig {
        credentials_over_http: false,
        kubeconfig: None,
        master: None,
        user_agent: "test/1.0 (linux/amd64)".to_owned(),
        request_timeout: TIMEOUT,
        limiter: Arc::new(Unlimited),
        metrics: Arc::new(RestMetrics::default()),
    }
}

/// The response of an in-process server.
pub type Served = Result<Response<ResponseBody>, BoxError>;

/// Returns clients of an in-process server: a function from request to response.
pub fn served_by<F, Fut>(config: &ClientConfig, serve: F) -> Clients
where
    F: Fn(Request<Body>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Served> + Send + 'static,
{
    Clients::in_process(service_fn(serve), config).unwrap()
}

/// Returns a response with this body.
pub fn answer(status: u16, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// Returns a Kubernetes refusal.
pub fn refusal(code: u16, reason: &str, message: &str) -> Response<ResponseBody> {
    answer(code, refusal_body(code, reason, message).to_string())
}

pub fn refusal_body(code: u16, reason: &str, message: &str) -> serde_json::Value {
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

pub fn node_body(name: &str) -> String {
    serde_json::json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": "7"}}).to_string()
}

pub fn nodes(client: &kube::Client) -> Api<Node> {
    Api::all(client.clone())
}

/// Counts requests.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Count {
    pub fn next(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Returns the metrics as text, without help and type lines.
pub fn exposed(config: &ClientConfig) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    config.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// A server on a real socket. `serve` gets the number of the connection and the request.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Count,
    _tasks: JoinSet<()>,
}

pub type Handler = Arc<
    dyn Fn(usize, Request<hyper::body::Incoming>) -> BoxFuture<'static, Response<Full<Bytes>>>
        + Send
        + Sync,
>;

impl Server {
    pub async fn start(serve: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Count::default());
        let mut tasks = JoinSet::new();
        let count = connections.clone();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (number, serve) = (count.next(), Arc::clone(&serve));
                open.spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let answer = serve(number, request);
                        async move { Ok::<_, Infallible>(answer.await) }
                    });
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .ok();
                });
            }
        });
        Self { address, connections, _tasks: tasks }
    }

    pub async fn clients(&self, config: ClientConfig) -> Clients {
        let kubeconfig = Kubeconfig::new(&format!("http://{}", self.address), "{}");
        Clients::connect(ClientConfig { kubeconfig: Some(kubeconfig.path()), ..config })
            .await
            .unwrap()
    }
}

/// A kubeconfig in its own directory.
pub struct Kubeconfig(pub tempfile::TempDir);

impl Kubeconfig {
    /// Starts a kubeconfig with a server's URL and a user in YAML flow style.
    pub fn new(server: &str, user: &str) -> Self {
        Self::with_cluster(&format!("{{server: {server:?}}}"), user)
    }

    pub fn with_cluster(cluster: &str, user: &str) -> Self {
        let kubeconfig = Self(tempfile::tempdir().unwrap());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        std::fs::write(kubeconfig.path(), text).unwrap();
        kubeconfig
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("config")
    }
}
