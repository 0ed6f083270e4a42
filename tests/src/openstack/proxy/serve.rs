//! Listeners, and the handling of each request.

use std::{io, net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use super::{
    Effect, Shared, forward, log,
    spoil::{self, Body},
};
use crate::openstack::Service;

pub(super) async fn bind(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).await.with_context(|| format!("listening on {at}"))
}

/// Serves until the set is dropped or shut down, which also cuts the connections.
pub(super) fn run(listener: TcpListener, service: Service, shared: Arc<Shared>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(listener, service, shared));
    tasks
}

async fn accept(listener: TcpListener, service: Service, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, service, shared.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, service: Service, shared: Arc<Shared>) {
    let answer = service_fn(move |request| {
        let shared = shared.clone();
        async move { handle(&shared, service, request).await.map_err(cut) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), answer);
    // Clients that disconnect and faults that break connections end here.
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Returns the error of an answer that ends the connection, like a stopped service.
fn cut(error: anyhow::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, error.to_string())
}

async fn handle(
    shared: &Arc<Shared>,
    service: Service,
    request: Request<Incoming>,
) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts, body.collect().await?.to_bytes());
    let number = shared.log.asked(describe(service, &request));
    let effect = shared.faults.hit(service, request.method(), request.uri().path());
    let Some((fault, effect)) = effect else {
        let answer = ask(shared, service, request).await?;
        shared.log.answered(number, answer.status().as_u16());
        return Ok(answer.map(spoil::whole));
    };
    if effect == Effect::Late {
        let shared = shared.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "it outlives its client; the test's runtime ends it"
        )]
        tokio::spawn(async move {
            shared.faults.is_removed(fault).await;
            if let Err(error) = ask(&shared, service, request).await {
                tracing::warn!(%error, "a late request failed");
            }
        });
        anyhow::bail!("cut by the fault proxy, before the service has the request");
    }
    let answer = treat(shared, service, request, effect).await?;
    shared.log.answered(number, answer.status().as_u16());
    Ok(answer)
}

fn describe(service: Service, request: &Request<Bytes>) -> log::Request {
    log::Request {
        service,
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        user_agent: user_agent(request),
        at: Instant::now(),
        status: None,
    }
}

fn user_agent(request: &Request<Bytes>) -> String {
    let value = request.headers().get(header::USER_AGENT);
    value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

async fn treat(
    shared: &Arc<Shared>,
    service: Service,
    mut request: Request<Bytes>,
    effect: Effect,
) -> Result<Response<Body>> {
    match effect {
        Effect::Answer { status, headers, body } => {
            let answer = Response::builder().status(status);
            let answer = headers
                .into_iter()
                .fold(answer, |answer, (name, value)| answer.header(name, value));
            return Ok(answer.body(spoil::whole(body))?);
        }
        Effect::Hang => return std::future::pending().await,
        Effect::Cut => anyhow::bail!("cut by the fault proxy"),
        Effect::Slow(time) => tokio::time::sleep(time).await,
        Effect::SlowPages(entries, time) => {
            let (path, query) = (request.uri().path(), request.uri().query());
            let query = query.map_or_else(String::new, |query| format!("{query}&"));
            *request.uri_mut() = format!("{path}?{query}limit={entries}").parse()?;
            tokio::time::sleep(time).await;
        }
        _ => {}
    }
    // A client that ends in the meantime does not undo the request.
    let asked = shared.clone();
    #[expect(clippy::disallowed_methods, reason = "the handle is awaited")]
    let asked = tokio::spawn(async move { ask(&asked, service, request).await });
    let answer = asked.await??;
    Ok(match effect {
        Effect::LoseAnswer => anyhow::bail!("cut by the fault proxy, with the answer"),
        Effect::EmptyList => answer.map(spoil::without_lists).map(spoil::whole),
        Effect::Without(alias) => answer.map(|body| spoil::without(&body, alias)).map(spoil::whole),
        Effect::HalfJson => answer.map(|body| spoil::half(&body)).map(spoil::whole),
        Effect::Truncated => spoil::truncated(answer),
        _ => answer.map(spoil::whole),
    })
}

/// Returns the service's answer, with its addresses replaced by the proxy's.
async fn ask(
    shared: &Shared,
    service: Service,
    request: Request<Bytes>,
) -> Result<Response<Bytes>> {
    let place = shared.place(service)?;
    let user_agent = user_agent(&request);
    let answer = shared.upstream.ask(place.upstream, request).await?;
    if service != Service::Identity {
        return Ok(answer);
    }
    let token = answer.headers().get("x-subject-token").and_then(|value| value.to_str().ok());
    if let Some(token) = token.filter(|_| answer.status() == http::StatusCode::CREATED) {
        shared.log.issued(&user_agent, token);
    }
    Ok(answer.map(|body| forward::readdress(body, shared.places.values())))
}
