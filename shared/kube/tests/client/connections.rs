//! Each client has its own connections and user agent.

use std::{sync::Arc, time::Duration};

use ccm_kube::{
    ApiError,
    client::{ClientConfig, Clients, ResponseBody},
};
use futures::future::BoxFuture;
use http::{Request, Response, header::USER_AGENT};
use kube::{api::WatchParams, client::Body};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tower::ServiceExt as _;

use crate::support::{Count, Kubeconfig, Server, config, node_body, nodes, refusal, served_by};

/// Programs pass clients to their tasks.
const _: fn() = || {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Clients>();
};

/// The user agent and connection number of each request seen.
type Seen = Arc<Mutex<Vec<(String, usize)>>>;

async fn recording() -> (Server, Seen) {
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    let server = Server::start(Arc::new(move |connection, request| {
        let agent = request.headers()[USER_AGENT].to_str().unwrap().to_owned();
        record.lock().push((agent, connection));
        Box::pin(async { Response::new(node_body("a").into()) })
    }))
    .await;
    (server, seen)
}

#[tokio::test]
async fn clients_share_no_connections_and_say_who_they_are() {
    let (server, seen) = recording().await;
    let clients = server.clients(config()).await;
    assert_eq!(server.connections.get(), 0, "connecting contacts no server");
    assert_eq!(clients.server, server.address.to_string());
    let lease = clients.lease_client(tower::layer::util::Identity::new());
    for client in [&clients.main, &clients.watch, &clients.events, &lease, &clients.main, &lease] {
        nodes(client).get("a").await.unwrap();
    }
    // Clients for the lease share their connections.
    nodes(&clients.lease_client(tower::layer::util::Identity::new())).get("a").await.unwrap();
    let seen: Vec<_> =
        seen.lock().iter().map(|(agent, connection)| format!("{agent} {connection}")).collect();
    let expect = [
        "main 1",
        "watch 2",
        "events 3",
        "leader-election 4",
        "main 1",
        "leader-election 4",
        "leader-election 4",
    ];
    assert_eq!(seen, expect.map(|expect| format!("test/1.0 (linux/amd64)/{expect}")));
}

/// 32 writes at once need 32 connections, and find them again.
#[tokio::test]
async fn connections_of_a_burst_are_kept() {
    const AT_ONCE: usize = 32;
    let gate = Arc::new(Semaphore::new(0));
    let waiting = Count::default();
    let server = Server::start({
        let (gate, waiting) = (Arc::clone(&gate), waiting.clone());
        Arc::new(move |_connection, _request| {
            // All must have arrived before any gets a response.
            if waiting.next() % AT_ONCE == 0 {
                gate.add_permits(AT_ONCE);
            }
            let gate = Arc::clone(&gate);
            Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                Response::new(node_body("a").into())
            })
        })
    })
    .await;
    let clients = server.clients(config()).await;
    for _burst in 0..3 {
        let api = nodes(&clients.main);
        let gets = futures::future::join_all((0..AT_ONCE).map(|_| api.get("a"))).await;
        assert!(gets.iter().all(Result::is_ok));
    }
    let opened = server.connections.get();
    assert!(
        (AT_ONCE..AT_ONCE + 8).contains(&opened),
        "{opened} connections for 3 bursts of {AT_ONCE}"
    );
}

/// Changes what passes it, as the guard of leader election does.
#[derive(Clone)]
struct Mark;

impl<S> tower::Layer<S> for Mark
where
    S: tower::Service<Request<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Service = tower::util::BoxService<Request<Body>, S::Response, S::Error>;

    fn layer(&self, inner: S) -> Self::Service {
        let mark = tower::util::MapRequestLayer::new(|mut request: Request<Body>| {
            request.headers_mut().insert("x-mark", "1".parse().unwrap());
            request
        });
        mark.layer(inner).boxed()
    }
}

#[tokio::test]
async fn the_lease_client_takes_a_layer() {
    let marked = Count::default();
    let server = Server::start({
        let marked = marked.clone();
        Arc::new(move |_connection, request| {
            if request.headers().contains_key("x-mark") {
                marked.next();
            }
            Box::pin(async { Response::new(node_body("a").into()) })
        })
    })
    .await;
    let clients = server.clients(config()).await;
    nodes(&clients.lease_client(Mark)).get("a").await.unwrap();
    nodes(&clients.main).get("a").await.unwrap();
    assert_eq!(marked.get(), 1);
}

/// The response statuses that a layer around the lease client sees.
#[derive(Clone, Default)]
struct Statuses(Arc<Mutex<Vec<u16>>>);

impl<S> tower::Layer<S> for Statuses
where
    S: tower::Service<Request<Body>, Response = Response<ResponseBody>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Service = tower::util::BoxService<Request<Body>, S::Response, S::Error>;

    fn layer(&self, inner: S) -> Self::Service {
        let statuses = Arc::clone(&self.0);
        inner
            .map_response(move |response: S::Response| {
                statuses.lock().push(response.status().as_u16());
                response
            })
            .boxed()
    }
}

/// Leader election must know that the Lease does not exist.
#[tokio::test]
async fn a_layer_around_the_lease_client_sees_refusals_as_answers() {
    let clients = served_by(&config(), |_request| async { Ok(refusal(404, "NotFound", "no")) });
    let statuses = Statuses::default();
    let lease = nodes(&clients.lease_client(statuses.clone()));
    let error = lease.get("a").await.unwrap_err();
    assert_eq!(ccm_kube::ApiError::from(error), ccm_kube::ApiError::NotFound);
    assert_eq!(*statuses.0.lock(), [404]);
    // A refused watch would be parsed as events.
    assert!(lease.watch(&WatchParams::default(), "1").await.is_err());
    assert_eq!(*statuses.0.lock(), [404]);
}

/// A refused client certificate belongs to its connection.
#[tokio::test]
async fn a_connection_on_which_credentials_were_refused_is_not_used_again() {
    let server = Server::start(Arc::new(|connection, _request| {
        Box::pin(async move {
            let status = if connection == 1 { 401 } else { 200 };
            Response::builder().status(status).body(node_body("a").into()).unwrap()
        })
    }))
    .await;
    let clients = server.clients(config()).await;
    let error = nodes(&clients.main).get("a").await.unwrap_err();
    assert_eq!(ccm_kube::ApiError::from(error), ccm_kube::ApiError::Unauthorized);
    nodes(&clients.main).get("a").await.unwrap();
    nodes(&clients.main).get("a").await.unwrap();
    assert_eq!(server.connections.get(), 2);
}

/// Sends a token, a token from a file, and impersonation headers.
#[tokio::test]
async fn credentials_are_sent() {
    let server = Server::start(Arc::new(|_connection, request: Request<hyper::body::Incoming>| {
        let header = |name: &str| {
            request.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
        };
        let name = format!("{:?} {:?}", header("authorization"), header("impersonate-user"));
        let answer: BoxFuture<'static, _> =
            Box::pin(async move { Response::new(node_body(&name.replace('"', "'")).into()) });
        answer
    }))
    .await;
    let check = async |user: &str, expect: &str| {
        let kubeconfig = Kubeconfig::new(&format!("http://{}", server.address), user);
        std::fs::write(kubeconfig.0.path().join("token"), "from-file").unwrap();
        let kubeconfig = Some(kubeconfig.path());
        let config = ClientConfig { kubeconfig, credentials_over_http: true, ..config() };
        let clients = Clients::connect(config).await.unwrap();
        let name = nodes(&clients.main).get("a").await.unwrap().metadata.name;
        assert_eq!(name.as_deref(), Some(expect), "{user}");
    };
    check("{}", "None None").await;
    check("{token: abc, as: someone}", "Some('Bearer abc') Some('someone')").await;
    check("{tokenFile: token}", "Some('Bearer from-file') None").await;
    check("{username: me, password: pw}", "Some('Basic bWU6cHc=') None").await;
}

/// `--master` overrides the server and keeps the credentials.
#[tokio::test]
async fn master_replaces_the_server() {
    let (server, seen) = recording().await;
    let kubeconfig = Kubeconfig::new("https://127.0.0.1:1", "{token: abc}");
    let config = ClientConfig {
        kubeconfig: Some(kubeconfig.path()),
        master: Some(format!("http://{}", server.address)),
        request_timeout: Duration::from_secs(5),
        credentials_over_http: true,
        ..config()
    };
    let clients = Clients::connect(config).await.unwrap();
    nodes(&clients.main).get("a").await.unwrap();
    assert_eq!(seen.lock().len(), 1);
    assert_eq!(clients.server, server.address.to_string());
}

/// Some servers are mounted below a path.
#[tokio::test]
async fn a_path_of_the_server_is_kept() {
    let server = Server::start(Arc::new(|_connection, request: Request<hyper::body::Incoming>| {
        let path = request.uri().path().to_owned();
        Box::pin(async move { Response::new(node_body(&path).into()) })
    }))
    .await;
    let kubeconfig = Kubeconfig::new(&format!("http://{}/cluster/one/", server.address), "{}");
    let config = ClientConfig { kubeconfig: Some(kubeconfig.path()), ..config() };
    let clients = Clients::connect(config).await.unwrap();
    let name = nodes(&clients.main).get("a").await.unwrap().metadata.name;
    assert_eq!(name.as_deref(), Some("/cluster/one/api/v1/nodes/a"));
}

/// With several API servers, or a wrong address, it is what a person has to know first.
#[tokio::test]
async fn an_error_of_a_connection_names_the_server() {
    let (server, _) = recording().await;
    let (clients, address) = (server.clients(config()).await, server.address);
    drop(server);
    let error = ApiError::from(nodes(&clients.main).get("a").await.unwrap_err());
    let expect = format!("unavailable: {address}: ");
    assert!(error.to_string().starts_with(&expect), "{error}");
}

/// Returns a proxy that connects to the requested address and counts.
async fn proxy(tasks: &mut JoinSet<()>) -> (String, Count) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Count::default());
    let seen = count.clone();
    tasks.spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            seen.next();
            open.spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
                let mut server = TcpStream::connect(target).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
            });
        }
    });
    (format!("http://{address}"), count)
}

#[tokio::test]
async fn the_kubeconfigs_proxy_is_used() {
    let ((server, seen), mut tasks) = (recording().await, JoinSet::new());
    let (proxy, proxied) = proxy(&mut tasks).await;
    let cluster = format!("{{server: \"http://{}\", proxy-url: {proxy:?}}}", server.address);
    let kubeconfig = Kubeconfig::with_cluster(&cluster, "{}");
    let config = ClientConfig { kubeconfig: Some(kubeconfig.path()), ..config() };
    let clients = Clients::connect(config).await.unwrap();
    nodes(&clients.main).get("a").await.unwrap();
    assert_eq!((seen.lock().len(), proxied.get()), (1, 1));
}
