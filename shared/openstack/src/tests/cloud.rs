//! A cloud in memory: Keystone, Nova, Neutron and Octavia behind hyper's server, one pipe per
//! connection, so that paused time passes only when all callers wait.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Write as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use ccm_base::Files;
use ccm_cloud::{Call, CallClass, CallGate, CallReport, Cloud as _, CloudError, ErrorKind, Permit};
use ccm_openstack_client::{
    api::{Answer, Api as _, Client, Clients, Request, Service, Transport},
    config::{Access, Environment},
    metrics::OpenStackMetrics,
};
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Response, Uri};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    rt::{Read, ReadBufCursor, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{io::DuplexStream, task::JoinSet, time::Instant};

use crate::{cloud::OpenStackCloud, config::Config};

pub const PASSWORD: &str = "correct horse";

/// The cloud's reaction to one request.
#[derive(Clone, Debug)]
pub enum Move {
    Answer(u16, Vec<(&'static str, String)>, Bytes),
    /// Answers as usual, but later.
    Slow(Duration),
    /// Accepts the request and never answers.
    Hang,
    /// Closes the connection.
    Cut,
    /// Closes the connection within the body.
    Truncate,
}

impl Move {
    pub fn text(status: u16, body: &str) -> Self {
        Self::Answer(status, Vec::new(), Bytes::from(body.to_owned()))
    }

    pub fn with(self, name: &'static str, value: &str) -> Self {
        let Self::Answer(status, mut headers, body) = self else { panic!("no answer") };
        headers.push((name, value.to_owned()));
        Self::Answer(status, headers, body)
    }
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub host: String,
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: Instant,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

struct State {
    seen: Vec<Seen>,
    /// Unusual moves, each for one request to a host.
    script: HashMap<&'static str, VecDeque<Move>>,
    /// Moves for all requests to a host.
    always: HashMap<&'static str, Move>,
    tokens: u32,
    good: Vec<String>,
    password: String,
    project: Option<&'static str>,
    /// A path to which no token gives the right.
    denied: Option<&'static str>,
    life: Duration,
    versions: Value,
    /// Octavia's URL in the catalog and its region, if it is listed.
    octavia: Option<(&'static str, &'static str)>,
    connections: JoinSet<()>,
    /// The number of connections that are refused from now on.
    refused: usize,
}

#[derive(Clone)]
pub struct Cloud(Arc<Mutex<State>>);

impl Cloud {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            seen: Vec::new(),
            script: HashMap::new(),
            always: HashMap::new(),
            tokens: 0,
            good: Vec::new(),
            password: PASSWORD.to_owned(),
            project: Some("p1"),
            denied: None,
            life: Duration::from_secs(3600),
            versions: json!({ "version": { "id": "v2.1", "status": "CURRENT", "version": "2.93", "min_version": "2.1" } }),
            octavia: Some(("http://octavia/v2.0", "one")),
            connections: JoinSet::new(),
            refused: 0,
        })))
    }

    /// Sets how the next requests to the host go.
    pub fn next(&self, host: &'static str, moves: impl IntoIterator<Item = Move>) {
        self.0.lock().script.entry(host).or_default().extend(moves);
    }

    pub fn always(&self, host: &'static str, act: Option<Move>) {
        let mut state = self.0.lock();
        match act {
            Some(act) => state.always.insert(host, act),
            None => state.always.remove(host),
        };
    }

    /// Ends all connections, and refuses the next ones.
    pub fn refuse_connections(&self, times: usize) {
        let mut state = self.0.lock();
        state.connections.abort_all();
        state.refused = times;
    }

    pub fn revoke(&self) {
        self.0.lock().good.clear();
    }

    pub fn set_password(&self, password: &str) {
        self.0.lock().password = password.to_owned();
    }

    /// Sets the project of new tokens.
    pub fn set_project(&self, project: Option<&'static str>) {
        self.0.lock().project = project;
    }

    pub fn deny(&self, path: &'static str) {
        self.0.lock().denied = Some(path);
    }

    pub fn set_life(&self, life: Duration) {
        self.0.lock().life = life;
    }

    pub fn set_versions(&self, versions: Value) {
        self.0.lock().versions = versions;
    }

    pub fn set_octavia(&self, octavia: Option<(&'static str, &'static str)>) {
        self.0.lock().octavia = octavia;
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.0.lock().seen.clone()
    }

    /// Returns how many requests to the host there were, by the beginning of their path.
    pub fn count(&self, host: &str, path: &str) -> usize {
        let state = self.0.lock();
        state.seen.iter().filter(|seen| seen.host == host && seen.path.starts_with(path)).count()
    }

    pub fn logins(&self) -> usize {
        self.count("keystone", "/v3/auth/tokens")
    }

    pub fn transport(&self) -> Transport {
        let cloud = self.clone();
        Transport::over(tower::service_fn(move |_: Uri| {
            let mut state = cloud.0.lock();
            if state.refused > 0 {
                state.refused -= 1;
                let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
                return std::future::ready(Err(refused));
            }
            let (near, far) = tokio::io::duplex(1 << 16);
            let served = cloud.clone();
            state.connections.spawn(async move {
                let service = service_fn(|request| served.serve(request));
                // Connections that are cut off are part of the tests.
                http1::Builder::new().serve_connection(TokioIo::new(far), service).await.ok();
            });
            std::future::ready(Ok(Pipe(TokioIo::new(near))))
        }))
    }

    async fn serve(
        &self,
        request: http::Request<Incoming>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, io::Error>>, io::Error> {
        let (parts, body) = request.into_parts();
        let host = parts.headers["host"].to_str().unwrap().to_owned();
        let path = parts.uri.path_and_query().unwrap().to_string();
        let body = body.collect().await.unwrap().to_bytes();
        let (method, headers, at) = (parts.method, parts.headers, Instant::now());
        let seen = Seen { host, method, path, headers, body, at };
        let act = {
            let mut state = self.0.lock();
            state.seen.push(seen.clone());
            let scripted = state.script.get_mut(seen.host.as_str()).and_then(VecDeque::pop_front);
            scripted.or_else(|| state.always.get(seen.host.as_str()).cloned())
        };
        let (status, headers, body) = match act {
            None => self.ordinary(&seen),
            Some(Move::Answer(status, headers, body)) => (status, headers, body),
            Some(Move::Slow(wait)) => {
                tokio::time::sleep(wait).await;
                self.ordinary(&seen)
            }
            Some(Move::Hang) => std::future::pending().await,
            Some(Move::Cut) => return Err(io::Error::other("cut off")),
            Some(Move::Truncate) => {
                let part = Ok(Frame::data(Bytes::from_static(b"{\"servers\": [")));
                let frames = [part, Err(io::Error::other("cut off"))];
                let body = StreamBody::new(futures::stream::iter(frames));
                return Ok(Response::new(body.boxed_unsync()));
            }
        };
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(name, value);
        }
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        Ok(response.body(body).unwrap())
    }

    /// Returns the answer of a good cloud.
    fn ordinary(&self, seen: &Seen) -> (u16, Vec<(&'static str, String)>, Bytes) {
        let mut state = self.0.lock();
        let id = format!("req-{}", state.seen.len());
        let mut headers = vec![("x-openstack-request-id", id)];
        let (status, body) = if seen.host == "keystone" {
            state.issue(seen, &mut headers)
        } else if state.denied.is_some_and(|denied| seen.path.ends_with(denied))
            || !state.good.iter().any(|token| seen.header("x-auth-token") == Some(token))
        {
            (
                401,
                json!({ "error": { "code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication." } }),
            )
        } else if seen.host == "nova" && seen.path == "/v2.1/" {
            (200, state.versions.clone())
        } else {
            let key = match seen.host.as_str() {
                "nova" => "servers",
                "octavia" => "loadbalancers",
                _ => "ports",
            };
            (200, json!({ key: [] }))
        };
        (status, headers, Bytes::from(body.to_string()))
    }
}

impl State {
    fn issue(&mut self, seen: &Seen, headers: &mut Vec<(&'static str, String)>) -> (u16, Value) {
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        if asked["auth"]["identity"]["password"]["user"]["password"] != self.password {
            return (
                401,
                json!({ "error": { "code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication." } }),
            );
        }
        self.tokens += 1;
        let token = format!("gAAAA-token-{}", self.tokens);
        self.good.push(token.clone());
        headers.push(("x-subject-token", token));
        let now = ccm_base::clock::wall();
        let endpoint = |url: &str| json!({ "interface": "public", "region": "one", "region_id": "one", "url": url });
        let mut catalog = json!([
            { "type": "compute", "endpoints": [endpoint("http://nova/v2.1/p1")] },
            { "type": "network", "endpoints": [endpoint("http://neutron/")] },
        ]);
        if let Some((url, region)) = self.octavia {
            let mut endpoint = endpoint(url);
            (endpoint["region"], endpoint["region_id"]) = (json!(region), json!(region));
            let entry = json!({ "type": "load-balancer", "endpoints": [endpoint] });
            catalog.as_array_mut().unwrap().push(entry);
        }
        let ends = now + jiff::SignedDuration::try_from(self.life).unwrap();
        let document = json!({ "token": {
            "issued_at": now.to_string(), "expires_at": ends.to_string(), "catalog": catalog,
            "project": self.project.map(|id| json!({ "id": id, "name": "k8s" })),
        } });
        (201, document)
    }
}

/// The provider on the cloud, and what its gate saw.
pub struct Rig {
    pub cloud: Cloud,
    pub openstack: OpenStackCloud,
    pub gate: Arc<Gate>,
    pub metrics: OpenStackMetrics,
}

impl Rig {
    pub fn new() -> Self {
        let (cloud, gate) = (Cloud::new(), Arc::new(Gate::default()));
        let metrics = OpenStackMetrics::default();
        let clients = clients(&cloud, &gate, &metrics);
        let openstack = OpenStackCloud::new(clients, &config(PASSWORD)).unwrap();
        Self { cloud, openstack, gate, metrics }
    }

    /// Returns a cloud.conf without a region.
    pub fn without_region() -> Self {
        let (cloud, gate) = (Cloud::new(), Arc::new(Gate::default()));
        let metrics = OpenStackMetrics::default();
        let clients = clients(&cloud, &gate, &metrics);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(
            file,
            "[Global]\nauth-url = http://keystone\nuser-id = u1\ntenant-id = p1\npassword = {PASSWORD}\n"
        )
        .unwrap();
        let files = &mut Files::default();
        let config = Config::load(file.path(), &Environment::of_process(), files).unwrap().config;
        let openstack = OpenStackCloud::new(clients, &config).unwrap();
        Self { cloud, openstack, gate, metrics }
    }

    /// Returns more clients of the cloud, with the same gate and metrics.
    pub fn clients(&self) -> Clients {
        clients(&self.cloud, &self.gate, &self.metrics)
    }

    pub fn client(&self) -> Arc<Client> {
        self.openstack.client()
    }

    /// Asks Nova by the settings in use, also if they change in the meantime.
    pub async fn ask(&self, seconds: u64) -> Result<(), CloudError> {
        self.openstack.health(Call::waiting(Duration::from_secs(seconds))).await
    }

    pub async fn get(&self, service: Service, seconds: u64) -> Result<Answer, CloudError> {
        let (operation, path) = match service {
            Service::Network => ("port_list", "ports?limit=1"),
            Service::LoadBalancer => ("loadbalancer_list", "v2.0/lbaas/loadbalancers?limit=1"),
            Service::Compute | Service::Identity => ("server_list", "servers?limit=1"),
        };
        let call = Call::waiting(Duration::from_secs(seconds));
        self.client().send(Request::get(service, operation, path), call).await
    }

    pub async fn nova(&self, seconds: u64) -> Result<Answer, CloudError> {
        self.get(Service::Compute, seconds).await
    }
}

fn clients(cloud: &Cloud, gate: &Arc<Gate>, metrics: &OpenStackMetrics) -> Clients {
    let (served, gate) = (cloud.clone(), Arc::clone(gate) as Arc<dyn CallGate>);
    let connect = Box::new(move |_: &Access| Ok(served.transport()));
    Clients::over(connect, gate, metrics.clone(), "cluster/7 node-ccm/1")
}

/// Returns the settings of a file, as the program reads them.
pub fn config(password: &str) -> Config {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        "[Global]\nauth-url = http://keystone\nregion = one\nuser-id = u1\ntenant-id = p1\npassword = {password}\n"
    )
    .unwrap();
    let files = &mut Files::default();
    Config::load(file.path(), &Environment::of_process(), files).unwrap().config
}

/// A gate that closes a service for the pause that it asked for, as the process's gate does, and
/// keeps a record.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<HashMap<&'static str, Instant>>,
    pub admitted: Mutex<Vec<CallClass>>,
    pub reports: Mutex<Vec<(CallClass, CallReport)>>,
}

impl CallGate for Gate {
    fn admit(&self, class: CallClass, call: Call) -> BoxFuture<'_, Result<Permit, CloudError>> {
        Box::pin(async move {
            let end = self.closed.lock().get(class.service).copied();
            if let Some(end) = end.filter(|end| *end > Instant::now()) {
                if end > call.end {
                    let error = CloudError::new(ErrorKind::Throttled, "a pause");
                    return Err(error.with_retry_after(end - Instant::now()));
                }
                tokio::time::sleep_until(end).await;
            }
            self.admitted.lock().push(class);
            Ok(Permit::default())
        })
    }

    fn report(&self, class: CallClass, report: CallReport) {
        if let Some(pause) = report.retry_after {
            self.closed.lock().insert(class.service, Instant::now() + pause);
        }
        self.reports.lock().push((class, report));
    }
}

struct Pipe(TokioIo<DuplexStream>);

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Pipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
