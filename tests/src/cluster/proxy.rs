//! A proxy in front of an API server, which disturbs watches on request.

use std::{
    convert::Infallible,
    future::ready,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Result;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, BodyStream, Empty, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// The treatment of watches, also of open ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// They pass.
    Pass,
    /// They are accepted, and only their end passes.
    Swallow,
    /// They end at once, in order.
    Cut,
}

type Body = UnsyncBoxBody<Bytes, kube::Error>;

/// The proxy. It has the credentials of the account that it was started for, and accepts any
/// client.
pub struct WatchProxy {
    watches: watch::Sender<Watches>,
    kubeconfig: PathBuf,
    _tasks: JoinSet<()>,
}

impl WatchProxy {
    /// Starts a proxy in front of the API server of this kubeconfig. Writes its own kubeconfig into
    /// `folder`.
    pub async fn start(kubeconfig: &Path, folder: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let address = listener.local_addr()?;
        let own = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "any", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "any"}}],
        });
        let path = folder.join(format!("proxy-{}.kubeconfig", address.port()));
        std::fs::write(&path, serde_json::to_vec(&own)?)?;
        let watches = watch::Sender::new(Watches::Pass);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, client, watches.subscribe()));
        Ok(Self { watches, kubeconfig: path, _tasks: tasks })
    }

    /// Returns the file that leads a program through the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Sets the treatment of watches from now on.
    pub fn treat(&self, watches: Watches) {
        self.watches.send_replace(watches);
    }
}

async fn accept(listener: TcpListener, client: Client, watches: watch::Receiver<Watches>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, client.clone(), watches.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, client: Client, watches: watch::Receiver<Watches>) {
    let answer = service_fn(move |request| {
        let (client, watches) = (client.clone(), watches.clone());
        async move { Ok::<_, Infallible>(forward(client, watches, request).await) }
    });
    let http = http1::Builder::new().timer(TokioTimer::new()).to_owned();
    // A client that leaves ends here.
    http.serve_connection(TokioIo::new(stream), answer).await.ok();
}

async fn forward(
    client: Client,
    mut watches: watch::Receiver<Watches>,
    request: Request<Incoming>,
) -> Response<Body> {
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let answer = match is_watch && *watches.borrow() == Watches::Cut {
        true => return Response::new(nothing()),
        false => ask(&client, request).await,
    };
    let Ok(answer) = answer else {
        let mut bad = Response::new(nothing());
        *bad.status_mut() = StatusCode::BAD_GATEWAY;
        return bad;
    };
    if !is_watch {
        return answer;
    }
    let treated = watches.clone();
    let cut = async move {
        watches.wait_for(|watches| *watches == Watches::Cut).await.ok();
    };
    answer.map(|body| {
        let frames = BodyStream::new(body)
            .try_filter(move |_| ready(*treated.borrow() != Watches::Swallow))
            .take_until(cut);
        StreamBody::new(frames).boxed_unsync()
    })
}

async fn ask(client: &Client, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    for own in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH] {
        parts.headers.remove(own);
    }
    let body = body.collect().await?.to_bytes().to_vec();
    let answer = client.send(Request::from_parts(parts, body.into())).await?;
    let (mut parts, body) = answer.into_parts();
    for own in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        parts.headers.remove(own);
    }
    Ok(Response::from_parts(parts, body.boxed_unsync()))
}

fn nothing() -> Body {
    Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync()
}
