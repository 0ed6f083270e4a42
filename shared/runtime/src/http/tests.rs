use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{Method, Request, Response, StatusCode, header, request};
use http_body_util::BodyExt as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{PageSettings, Pages, Scrapes, Server, TlsSettings, pages::Content};
use crate::{
    explain::Explanations,
    health::{Health, Scope, Verdict},
    metrics::Metrics,
    plans::{Mode, Plans},
    records::Records,
};

mod checks;
mod crowd;
mod explain;
mod record;

fn pages(checks: &[(&'static str, Scope, Result<&'static str, &'static str>)]) -> Pages {
    let health = Health::default();
    for (name, scope, result) in checks {
        let verdict = match *result {
            Ok(text) => Verdict::Passed(text.to_owned()),
            Err(text) => Verdict::Failed(text.to_owned()),
        };
        health.add(*name, *scope, move || verdict.clone());
    }
    let metrics = Metrics::new();
    let plans = Plans::new(Mode::Control, &metrics);
    Pages {
        health,
        configz: Arc::new(ArcSwap::from_pointee("{}\n".to_owned())),
        explanations: Explanations::new(plans.clone()),
        plans,
        records: Records::new(&metrics),
        scrapes: Scrapes::new(metrics),
        open: Vec::new(),
    }
}

/// Returns a request to a loopback host.
fn to(method: &Method, target: &str) -> request::Builder {
    Request::builder().method(method).uri(target).header(header::HOST, "localhost")
}

/// Returns the response to a peer on loopback.
fn answer(pages: &Pages, method: &Method, target: &str) -> Response<Content> {
    // Hyper only passes on requests with such a target.
    let target = if target.starts_with('/') { target } else { "*" };
    let request = to(method, target).body(()).unwrap();
    pages.answer(&request, true)
}

/// Status and text of a page.
async fn get(pages: &Pages, target: &str) -> (u16, String) {
    let answer = answer(pages, &Method::GET, target);
    assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-cache, private", "{target}");
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.to_vec()).unwrap())
}

async fn check(pages: &Pages, target: &str, status: u16, text: &str) {
    assert_eq!(get(pages, target).await, (status, text.to_owned()), "{target}");
}

#[tokio::test]
async fn healthz_is_as_upstream_has_it() {
    let none = pages(&[]);
    check(&none, "/healthz", 200, "ok").await;
    check(&none, "/healthz?verbose", 200, "healthz check passed\n").await;

    let good = pages(&[("good", Scope::Liveness, Ok("leads"))]);
    check(&good, "/healthz", 200, "ok").await;
    check(&good, "/healthz?verbose=true", 200, "[+]good ok\nhealthz check passed\n").await;
    check(&good, "/healthz/good", 200, "ok").await;
    check(&good, "/healthz/other", 404, "404 page not found\n").await;

    let mixed =
        pages(&[("good", Scope::Liveness, Ok("")), ("bad", Scope::Liveness, Err("secret reason"))]);
    let lines = "[+]good ok\n[-]bad failed: reason withheld\nhealthz check failed\n";
    check(&mixed, "/healthz", 500, lines).await;
    check(&mixed, "/healthz?verbose", 500, lines).await;
    check(&mixed, "/healthz/bad", 500, "internal server error: reason withheld\n").await;
    check(&mixed, "/healthz?exclude=bad", 200, "ok").await;
    let excluded = "[+]good ok\n[+]bad excluded: ok\nhealthz check passed\n";
    check(&mixed, "/healthz?verbose&exclude=bad", 200, excluded).await;
    let warned = "[+]good excluded: ok\n[+]bad excluded: ok\n\
                  warn: some health checks cannot be excluded: no matches for \"x\",\"y\"\nhealthz check passed\n";
    check(&mixed, "/healthz?verbose&exclude=bad&exclude=good&exclude=x&exclude=y", 200, warned)
        .await;
}

#[tokio::test]
async fn a_check_that_comes_later_counts() {
    let pages = pages(&[("good", Scope::Liveness, Ok(""))]);
    check(&pages, "/healthz", 200, "ok").await;
    pages.health.condition("late", Scope::Liveness, "broken");
    let lines = "[+]good ok\n[-]late failed: reason withheld\nhealthz check failed\n";
    check(&pages, "/healthz", 500, lines).await;
}

#[tokio::test]
async fn readyz_says_why_and_livez_only_what_a_restart_mends() {
    let pages = pages(&[
        ("leaderElection", Scope::Liveness, Ok("standby")),
        ("nodes", Scope::Readiness, Err("the first list is not complete")),
        ("config", Scope::Information, Err("refused")),
    ]);
    check(&pages, "/livez", 200, "ok").await;
    check(&pages, "/livez?verbose", 200, "[+]leaderElection ok: standby\nlivez check passed\n")
        .await;
    check(&pages, "/healthz?verbose", 200, "[+]leaderElection ok\nhealthz check passed\n").await;
    let lines = "[+]leaderElection ok: standby\n[-]nodes failed: the first list is not complete\n[!]config: refused\n\
                 readyz check failed\n";
    check(&pages, "/readyz", 500, lines).await;
    check(&pages, "/readyz?exclude=nodes", 200, "ok").await;
    check(&pages, "/readyz/nodes", 500, "internal server error: the first list is not complete\n")
        .await;
    check(&pages, "/readyz/config", 200, "ok").await;
    check(&pages, "/livez/nodes", 404, "404 page not found\n").await;
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let pages = pages(&[]);
    for path in [
        "/version",
        "/healthz/",
        "/metrics/",
        "/metrics/x",
        "/debug/pprof",
        "healthz",
        "",
        "//healthz",
    ] {
        check(&pages, path, 404, "404 page not found\n").await;
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let refused = answer(&pages, &method, "/metrics");
        assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(refused.headers()[header::ALLOW], "GET, HEAD");
        let unknown = answer(&pages, &method, "/nothing").status();
        assert_eq!(unknown, StatusCode::NOT_FOUND, "{method}");
    }
}

#[tokio::test]
async fn metrics_and_configz_have_their_types() {
    let pages = pages(&[]);
    let metrics = answer(&pages, &Method::GET, "/metrics");
    assert_eq!(metrics.headers()[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    assert!(!get(&pages, "/metrics").await.1.contains("# EOF"));
    let open = "application/openmetrics-text";
    let request = to(&Method::GET, "/metrics").header(header::ACCEPT, open).body(()).unwrap();
    let metrics = pages.answer(&request, true);
    assert!(metrics.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with(open));
    let configz = answer(&pages, &Method::GET, "/configz");
    assert_eq!(configz.headers()[header::CONTENT_TYPE], "application/json");
    pages.configz.store(Arc::new("{\"new\": 1}\n".to_owned()));
    check(&pages, "/configz", 200, "{\"new\": 1}\n").await;
}

#[tokio::test]
async fn the_plan_is_text_or_json() {
    let pages = pages(&[]);
    let check = async |target: &str, accept: &str, kind: &str| {
        let request = to(&Method::GET, target).header(header::ACCEPT, accept).body(()).unwrap();
        let answer = pages.answer(&request, true);
        assert_eq!(answer.status(), StatusCode::OK, "{target} {accept}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], kind, "{target} {accept}");
    };
    check("/plan", "*/*", "text/plain; charset=utf-8").await;
    check("/plan?name=x", "*/*", "text/plain; charset=utf-8").await;
    check("/plan?format=json", "*/*", "application/json").await;
    for name in ["default/shop", "default%2Fshop"] {
        let (_, page) = get(&pages, &format!("/plan?name={name}")).await;
        assert!(page.contains("this page has nothing about \"default/shop\""), "{page}");
    }
    check("/plan", "text/html, application/json;q=0.9", "application/json").await;
}

#[tokio::test]
async fn a_misspelt_parameter_is_not_ignored() {
    let pages = pages(&[]);
    for (target, known) in [
        ("/plan?nmae=x", "/plan has the parameters name and format, not \"nmae\""),
        ("/explain?kind=Node&nmae=x", "/explain has the parameters kind, name and format, not"),
        ("/record?nmae=x", "/record has the parameters name and anonymous, not"),
    ] {
        let (status, page) = get(&pages, target).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{page}");
        assert!(page.starts_with(known), "{page}");
    }
}

#[tokio::test]
async fn pages_with_details_answer_on_loopback_only_unless_they_are_opened() {
    let mut pages = pages(&[]);
    let check = async |pages: &Pages, method: Method, path: &str, status: u16| {
        let request = to(&method, path).body(()).unwrap();
        let answer = pages.answer(&request, false);
        assert_eq!(answer.status().as_u16(), status, "{method} {path}");
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let name = path.trim_start_matches('/').split('?').next().unwrap();
        let opened_by = if name == "record" { "plan" } else { name };
        let expect = format!(
            "/{name} is served on loopback only: use kubectl port-forward, or --open-pages={opened_by}\n"
        );
        assert_eq!(text == expect, status == 403, "{method} {path}: {text:?}");
    };
    for page in ["/configz", "/plan", "/plan?format=json"] {
        check(&pages, Method::GET, page, 403).await;
        check(&pages, Method::HEAD, page, 403).await;
        assert_eq!(get(&pages, page).await.0, 200, "{page} on loopback");
    }
    check(&pages, Method::GET, "/record?name=x", 403).await;
    for page in ["/healthz", "/livez", "/readyz", "/metrics"] {
        check(&pages, Method::GET, page, 200).await;
    }
    for path in ["//configz", "/configz/", "/plan/x", "/nothing"] {
        check(&pages, Method::GET, path, 404).await;
    }
    pages.open = vec!["plan".to_owned()];
    check(&pages, Method::GET, "/plan", 200).await;
    check(&pages, Method::GET, "/record", 404).await;
    check(&pages, Method::GET, "/configz", 403).await;
}

#[tokio::test]
async fn pages_with_details_are_for_requests_that_name_a_loopback_host() {
    let mut pages = pages(&[]);
    let status = async |pages: &Pages, path: &str, host: &str| {
        let request = Request::get(path).header(header::HOST, host).body(()).unwrap();
        pages.answer(&request, true).status().as_u16()
    };
    for host in ["127.0.0.1:10258", "127.0.0.1", "localhost:1", "LocalHost", "[::1]:10258"] {
        assert_eq!(status(&pages, "/plan", host).await, 200, "{host}");
    }
    for host in ["evil.example.com:10258", "localhost.evil.com", "10.0.0.1", ""] {
        assert_eq!(status(&pages, "/plan", host).await, 403, "{host}");
        assert_eq!(status(&pages, "/configz", host).await, 403, "{host}");
        assert_eq!(status(&pages, "/readyz", host).await, 200, "{host}");
    }
    for host in ["user@", "a b", "evil@localhost"] {
        assert_eq!(status(&pages, "/readyz", host).await, 400, "{host}");
    }
    pages.open = vec!["plan".to_owned()];
    assert_eq!(status(&pages, "/plan", "evil.example.com").await, 200);
}

/// The peer's address comes from the system, also on a dual-stack socket.
#[tokio::test]
async fn a_socket_knows_its_peer() {
    let others = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // This does not send anything: the system only selects the source address.
    let own = others.connect("192.0.2.1:9").and_then(|()| others.local_addr());
    let settings = PageSettings { address: SocketAddr::from(([0; 16], 0)), ..local(None) };
    let server = Server::bind(&settings, pages(&[])).unwrap();
    let (port, token) = (server.address().unwrap().port(), CancellationToken::new());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(server.run(token.clone()));
    let ask = async |address: SocketAddr| {
        let stream = TcpStream::connect(address).await.unwrap();
        exchange(stream, &GET_AND_CLOSE.replace("healthz", "configz")).await
    };
    let local = ask(SocketAddr::from(([127, 0, 0, 1], port))).await;
    assert!(local.starts_with("HTTP/1.1 200"), "{local}");
    if let Some(own) = own.ok().map(|own| own.ip()).filter(|own| !own.is_loopback()) {
        let remote = ask(SocketAddr::new(own, port)).await;
        assert!(remote.starts_with("HTTP/1.1 403"), "{own}: {remote}");
    }
    token.cancel();
}

/// Returns settings for a free port on loopback.
fn local(tls: Option<TlsSettings>) -> PageSettings {
    PageSettings { address: SocketAddr::from(([127, 0, 0, 1], 0)), tls, open: Vec::new() }
}

/// Returns a server on a free port on loopback.
fn serve(tls: Option<TlsSettings>) -> (SocketAddr, CancellationToken, tokio::task::JoinSet<()>) {
    let server = Server::bind(&local(tls), pages(&[])).unwrap();
    let (address, token) = (server.address().unwrap(), CancellationToken::new());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(server.run(token.clone()));
    (address, token, tasks)
}

/// Sends a text and reads until the server closes, which it may do before it has read
/// everything.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.ok();
    let mut answer = Vec::new();
    timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await.expect("an end").ok();
    String::from_utf8(answer).unwrap()
}

const GET_AND_CLOSE: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_socket_is_answered() {
    let (address, token, mut tasks) = serve(None);
    let ask =
        async |request: &str| exchange(TcpStream::connect(address).await.unwrap(), request).await;
    let answer = ask(GET_AND_CLOSE).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok"),
        "{answer}"
    );
    let head = ask(&GET_AND_CLOSE.replace("GET", "HEAD")).await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("content-length: 2\r\n"),
        "{head}"
    );
    assert!(head.ends_with("\r\n\r\n"), "HEAD has no body: {head}");
    let long =
        ask(&format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(100_000)))
            .await;
    assert!(
        long.is_empty() || long.starts_with("HTTP/1.1 431"),
        "a header without end is refused: {long}"
    );
    let rubbish = ask("\u{1}\u{2}\r\n\r\n").await;
    assert!(rubbish.is_empty() || rubbish.starts_with("HTTP/1.1 400"), "{rubbish}");
    token.cancel();
    timeout(Duration::from_secs(5), tasks.join_next()).await.unwrap();
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_the_end() {
    let (address, token, mut tasks) = serve(None);
    let mut idle = TcpStream::connect(address).await.unwrap();
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET /healthz HT").await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    token.cancel();
    timeout(Duration::from_secs(5), tasks.join_next()).await.expect("the server ends");
}

#[tokio::test]
async fn a_port_in_use_gives_one_clear_line() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let settings = PageSettings { address, ..local(None) };
    let Err(error) = Server::bind(&settings, pages(&[])) else {
        panic!("two servers on {address}")
    };
    let expect = format!(
        "--bind-address and --secure-port: cannot listen on {address}: the port is in use; choose another --secure-port"
    );
    assert_eq!(error.to_string(), expect);
}

/// A certificate for `localhost` in two files.
struct Pair {
    der: CertificateDer<'static>,
    certificate: String,
    key: String,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Pair {
        der: made.cert.der().clone(),
        certificate: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
}

fn write(folder: &std::path::Path, certificate: &str, key: &str) -> TlsSettings {
    let path = |name: &str, text: &str| -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsSettings {
        certificate: path("tls.crt", certificate),
        key: path("tls.key", key),
        only_tls13: true,
    }
}

/// Returns true if a client that trusts only this certificate gets an answer.
async fn trusted(address: SocketAddr, certificate: &CertificateDer<'static>) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    match tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(stream) => exchange(stream, GET_AND_CLOSE).await.ends_with("ok"),
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_new_certificate_is_taken_over_while_serving() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (pair(), pair());
    let settings = write(folder.path(), &first.certificate, &first.key);
    let (address, token, _tasks) = serve(Some(settings));
    assert!(trusted(address, &first.der).await);
    assert!(!trusted(address, &second.der).await);
    // Only one of the two files is new, so they do not match, and the old pair stays.
    write(folder.path(), &second.certificate, &first.key);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(trusted(address, &first.der).await);
    write(folder.path(), &second.certificate, &second.key);
    let renewed = async {
        while !trusted(address, &second.der).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(15), renewed).await.expect("the new certificate is served");
    token.cancel();
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (good, other) = (pair(), pair());
    let check = |certificate: &str, key: &str, expect: &str| {
        let settings = write(folder.path(), certificate, key);
        let Err(error) = super::tls::Certificate::read(&settings) else {
            panic!("{expect}: accepted")
        };
        let line = error.to_string().replace(&format!("{}/", folder.path().display()), "");
        assert_eq!(line, expect);
    };
    check("", &good.key, "--tls-cert-file: tls.crt: holds no certificate in PEM form");
    check(
        "no certificate",
        &good.key,
        "--tls-cert-file: tls.crt: holds no certificate in PEM form",
    );
    check(
        &good.certificate,
        "",
        "--tls-private-key-file: tls.key: holds no private key in PEM form",
    );
    check(
        &good.certificate,
        &good.certificate,
        "--tls-private-key-file: tls.key: holds no private key in PEM form",
    );
    check(
        &good.certificate,
        &other.key,
        "--tls-private-key-file: tls.key: is not the key of the first certificate in tls.crt: keys may not be consistent: KeyMismatch",
    );
    let missing = TlsSettings {
        certificate: "/nowhere/a".into(),
        key: "/nowhere/b".into(),
        only_tls13: false,
    };
    let Err(error) = super::tls::Certificate::read(&missing) else { panic!("accepted") };
    assert_eq!(
        ccm_base::message::chain(&error),
        "--tls-cert-file: /nowhere/a: there is no such file"
    );
}
