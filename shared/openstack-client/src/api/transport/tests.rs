use std::{
    convert::Infallible,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use ccm_cloud::ErrorKind;
use http::{Response, Version, header::HOST};
use hyper::{body::Frame, service::service_fn};
use hyper_util::{
    client::proxy::matcher::Matcher,
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair, date_time_ymd,
    generate_simple_self_signed,
};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::config::Tls;

/// A server on loopback that notes version and target of each request.
struct Served {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    ca: PathBuf,
    _folder: TempDir,
    _tasks: JoinSet<()>,
}

async fn serve(tls: bool) -> Served {
    let names = ["127.0.0.1".to_owned(), "cloud.test".to_owned()];
    serve_with(tls.then(|| generate_simple_self_signed(names).unwrap())).await
}

async fn serve_with(identity: Option<CertifiedKey<KeyPair>>) -> Served {
    let folder = TempDir::new().unwrap();
    let tls = identity.is_some();
    let CertifiedKey { cert, signing_key } = identity.unwrap_or_else(|| authority("unused", 2100));
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut tasks, notes) = (JoinSet::new(), Arc::clone(&seen));
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, notes) = (acceptor.clone(), Arc::clone(&notes));
            connections.spawn(async move {
                match tls {
                    false => answer(stream, notes).await,
                    true => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            answer(stream, notes).await;
                        }
                    }
                }
            });
        }
    });
    Served { address, seen, ca, _folder: folder, _tasks: tasks }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    notes: Arc<Mutex<Vec<String>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let credentials =
            request.headers().get(PROXY_AUTHORIZATION).map(|value| format!("{value:?}"));
        let host = request.headers().get(HOST).map(|value| value.to_str().unwrap().to_owned());
        let version = match request.version() {
            Version::HTTP_2 => "h2",
            _ => "h1",
        };
        notes.lock().push(format!(
            "{version} {} {} {host:?} {credentials:?}",
            request.method(),
            request.uri()
        ));
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}")))))
    });
    // Some tests have clients that refuse the certificate or leave.
    auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await
        .ok();
}

fn config(url: &str, tls: Tls) -> Access {
    Access { auth_url: url.parse().unwrap(), tls, ..crate::config::access() }
}

async fn get(transport: &Transport, url: &str) -> Result<Raw, Broken> {
    let request = Request::get(url).body(Full::default()).unwrap();
    transport.exchange(request).await
}

fn direct(config: &Access) -> Transport {
    Transport::with_proxies(config, Proxies::none()).unwrap()
}

#[tokio::test]
async fn the_ca_file_replaces_the_roots_of_the_system() {
    let served = serve(true).await;
    let url = format!("https://{}/", served.address);
    let trusting = Tls { ca_file: Some(served.ca.clone()), ..Tls::default() };
    let transport = direct(&config(&url, trusting));
    for _ in 0..2 {
        assert_eq!(get(&transport, &url).await.unwrap().status, 200);
    }
    assert!(served.seen.lock().iter().all(|line| line.starts_with("h2 GET")), "by ALPN");

    let other = serve(true).await;
    let strange = Tls { ca_file: Some(other.ca.clone()), ..Tls::default() };
    let refused = get(&direct(&config(&url, strange)), &url).await.unwrap_err();
    let Broken::Certificate(why) = refused else { panic!("{refused:?}") };
    assert!(why.contains("ca-file"), "{why}");
    let careless = Tls { insecure: true, ..Tls::default() };
    assert_eq!(get(&direct(&config(&url, careless)), &url).await.unwrap().status, 200);
}

/// Returns a server whose own certificate may sign others, as `openssl req -x509` makes it.
fn authority(name: &str, until: i32) -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned(), name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let signing_key = KeyPair::generate().unwrap();
    CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
}

#[tokio::test]
async fn a_self_signed_authority_may_be_the_server_itself() {
    let trust = |ca: &PathBuf| Tls { ca_file: Some(ca.clone()), ..Tls::default() };
    let served = serve_with(Some(authority("cloud.test", 2100))).await;
    let url = format!("https://{}/", served.address);
    let transport = direct(&config(&url, trust(&served.ca)));
    assert_eq!(get(&transport, &url).await.unwrap().status, 200);

    let refused = async |served: &Served, ca: &PathBuf, host: &str, expect: &str| {
        let url = format!("https://{host}:{}/", served.address.port());
        let refused = get(&direct(&config(&url, trust(ca))), &url).await.unwrap_err();
        let Broken::Certificate(why) = refused else { panic!("{refused:?}") };
        assert!(why.contains(expect), "{why}");
    };
    let other = serve_with(Some(authority("cloud.test", 2100))).await;
    refused(&served, &other.ca, "127.0.0.1", "CaUsedAsEndEntity").await;
    refused(&served, &served.ca, "localhost", "not valid for name").await;
    let expired = serve_with(Some(authority("cloud.test", 2021))).await;
    refused(&expired, &expired.ca, "127.0.0.1", "expired").await;
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let (missing, garbage) = (folder.path().join("missing.pem"), folder.path().join("garbage.pem"));
    std::fs::write(&garbage, "garbage").unwrap();
    let good = serve(true).await.ca;
    let kept = folder.path().join("good.pem");
    let CertifiedKey { cert, .. } = generate_simple_self_signed(["x".to_owned()]).unwrap();
    std::fs::write(&kept, cert.pem()).unwrap();
    assert!(!good.exists(), "its folder has gone");
    let with_ca = |file: &PathBuf| Tls { ca_file: Some(file.clone()), ..Tls::default() };
    let with_client = |cert: &PathBuf, key: &PathBuf| Tls {
        client: Some((cert.clone(), key.clone())),
        ..with_ca(&kept)
    };
    for (tls, expect) in [
        (with_ca(&missing), "ca-file: "),
        (
            with_ca(&PathBuf::from("/none\u{200b}")),
            "ca-file: /none\\u{200b}: there is no such file",
        ),
        (with_ca(&garbage), "holds no certificate"),
        (with_client(&missing, &kept), "cert-file: "),
        (with_client(&kept, &kept), "holds no private key"),
        (with_client(&kept, &missing), "key-file: "),
    ] {
        let error = Transport::new(&config("https://cloud.test", tls)).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.message.contains(expect), "{error}");
    }
}

#[tokio::test]
async fn plain_requests_are_handed_to_the_proxy() {
    let proxy = serve(false).await;
    let proxies = Matcher::builder()
        .http(format!("http://me:secret@{}", proxy.address))
        .no("direct.test")
        .build();
    let proxies = Proxies::by(proxies);
    let config = config("http://cloud.test", Tls::default());
    let transport = Transport::with_proxies(&config, proxies).unwrap();
    get(&transport, "http://cloud.test/v3/").await.unwrap();
    assert_eq!(
        *proxy.seen.lock(),
        ["h1 GET http://cloud.test/v3/ Some(\"cloud.test\") Some(\"Sensitive\")".to_owned()]
            .map(|line| line.replace("\"Sensitive\"", "\"\\\"Basic bWU6c2VjcmV0\\\"\""))
    );
    let local = serve(false).await;
    get(&transport, &format!("http://{}/", local.address)).await.unwrap();
    assert_eq!((proxy.seen.lock().len(), local.seen.lock().len()), (1, 1), "loopback is near");
    get(&transport, "http://direct.test.invalid:1/").await.unwrap();
    assert!(get(&transport, "http://direct.test:1/").await.is_err(), "there is no such host");
    assert_eq!(proxy.seen.lock().len(), 2);
}

#[tokio::test]
async fn tls_goes_through_a_tunnel() {
    let served = serve(true).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    let target = served.address;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(near.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"CONNECT cloud.test:443 HTTP/1.1\r\n"));
        near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let mut far = tokio::net::TcpStream::connect(target).await.unwrap();
        tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
    });
    let tls = Tls { ca_file: Some(served.ca.clone()), ..Tls::default() };
    let config = config("https://cloud.test", tls);
    let transport =
        Transport::with_proxies(&config, Proxies::by(Matcher::builder().https(proxy).build()))
            .unwrap();
    assert_eq!(get(&transport, "https://cloud.test/v3/").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_proxy_of_another_kind_is_refused_at_start() {
    let config = config("https://cloud.test", Tls { insecure: true, ..Tls::default() });
    let proxies = || Matcher::builder().all("socks5://proxy:1080");
    let error = Transport::with_proxies(&config, Proxies::by(proxies().build())).err().unwrap();
    assert!(error.message.contains("socks5") && error.message.contains("HTTPS_PROXY"), "{error}");
    assert!(Transport::with_proxies(&config, Proxies::by(proxies().no("*").build())).is_ok());
}

#[tokio::test]
async fn a_proxy_of_another_kind_learns_nothing_of_any_service() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("https://user:s3cret@{}", listener.local_addr().unwrap());
    let config = config("https://keystone.test", Tls { insecure: true, ..Tls::default() });
    let proxies = Proxies::by(Matcher::builder().all(proxy).no("keystone.test").build());
    let transport = Transport::with_proxies(&config, proxies).unwrap();
    for url in ["https://nova.test/v2.1/", "http://nova.test/v2.1/"] {
        let error = get(&transport, url).await.unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, Broken::Proxy(_)), "{error:?}");
        assert!(told.starts_with("the proxy for nova.test has the scheme https, which"), "{told}");
        assert!(told.contains("NO_PROXY") && !told.contains("s3cret"), "{told}");
    }
    let called = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(called.is_err(), "there is no connection");
}

#[tokio::test]
async fn a_closed_port_is_a_broken_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let error = get(&direct(&config(&url, Tls::default())), &url).await.unwrap_err();
    assert!(matches!(error, Broken::NotConnected(_)), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

/// A body of unknown length that counts the bytes that were read from all bodies.
struct Flowing {
    left: usize,
    read: Arc<AtomicUsize>,
}

impl Body for Flowing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.left.min(64 << 10);
        if part == 0 {
            return Poll::Ready(None);
        }
        // The other bodies have their turn before the next part.
        if !self.left.is_multiple_of(2) {
            self.left -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.left = self.left - part + 1;
        self.read.fetch_add(part, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; part])))))
    }
}

#[tokio::test]
async fn the_answers_of_all_requests_together_are_bounded() {
    let (read, memory) = (Arc::new(AtomicUsize::new(0)), AnswerMemory::new(1 << 20));
    let most = AtomicUsize::new(0);
    let length = 15 * (64 << 10);
    let one = async || {
        let body = Flowing { left: length, read: Arc::clone(&read) };
        let answer = whole(body, AnswerMemory::LONGEST, &memory).await.unwrap();
        most.fetch_max(read.load(Ordering::Relaxed), Ordering::Relaxed);
        tokio::task::yield_now().await;
        assert!(answer.len() >= length);
        read.fetch_sub(answer.len(), Ordering::Relaxed);
    };
    futures::future::join_all((0..8).map(|_| one())).await;
    let most = most.into_inner();
    assert!(most <= (1 << 20) + length + (64 << 10), "{most} bytes at once");
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_read() {
    let longer = || Full::new(Bytes::from(vec![0; LONGEST_FAULT + 1]));
    let memory = AnswerMemory::new(1 << 20);
    let refused = whole(longer(), LONGEST_FAULT, &memory).await;
    assert!(matches!(refused, Err(Broken::TooLong(LONGEST_FAULT))), "{refused:?}");
    let left = LONGEST_FAULT + 2;
    let flowing = Flowing { left, read: Arc::default() };
    let refused = whole(flowing, LONGEST_FAULT, &memory).await;
    assert!(matches!(refused, Err(Broken::TooLong(LONGEST_FAULT))), "{refused:?}");
    let read = whole(longer(), AnswerMemory::LONGEST, &memory).await.unwrap();
    assert_eq!(read.len(), LONGEST_FAULT + 1);
}
