//! A candidate's connection to the API server, with injected faults.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_runtime::leadership::guard::LeaseGuard;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinSet, time::sleep};
use tower::{BoxError, ServiceExt as _, service_fn, util::BoxCloneSyncService};

use crate::lease_api::{Answer, LeaseApi, NAMESPACE, refusal};

/// The effect on requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Connections are refused.
    Refused,
    /// Requests are lost silently.
    Silent,
    /// Requests arrive, responses are lost.
    Deaf,
    /// Latency of requests and of responses.
    Slow(Duration, Duration),
    /// The API server answers with this status.
    Status(StatusCode),
    /// Watches fail, everything else works.
    NoWatch,
    /// The API server refuses writes with this status, everything else works.
    NoWrite(StatusCode),
}

/// The connection of one candidate, and the candidate's wall clock. Clones share it.
#[derive(Clone)]
pub struct Line {
    api: LeaseApi,
    shared: Arc<Mutex<Shared>>,
    /// Requests in flight. They continue after their sender has timed out.
    under_way: Arc<Mutex<JoinSet<()>>>,
}

#[derive(Default)]
struct Shared {
    fault: Fault,
    clock_ahead: SignedDuration,
    hold: Option<(Method, oneshot::Sender<()>, oneshot::Receiver<()>)>,
}

/// A request that is held before the API server.
pub struct Held {
    came: oneshot::Receiver<()>,
    go: oneshot::Sender<()>,
}

impl Held {
    /// Waits until the request is held.
    pub async fn came(&mut self) {
        (&mut self.came).await.expect("the request comes");
    }

    /// Delivers it.
    pub fn deliver(self) {
        self.go.send(()).expect("the request waits");
    }
}

impl Line {
    /// Creates a line without faults, with a correct clock.
    pub fn new(api: &LeaseApi) -> Self {
        Self { api: api.clone(), shared: Arc::default(), under_way: Arc::default() }
    }

    /// Sets the fault.
    pub fn set(&self, fault: Fault) {
        self.shared.lock().fault = fault;
    }

    /// Sets the candidate's wall clock ahead by these seconds.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.shared.lock().clock_ahead = SignedDuration::from_secs(seconds);
    }

    /// Holds the next request of this method.
    pub fn hold(&self, method: Method) -> Held {
        let (tell, came) = oneshot::channel();
        let (go, wait) = oneshot::channel();
        self.shared.lock().hold = Some((method, tell, wait));
        Held { came, go }
    }

    /// Returns a client over this connection, with or without a guard. It sees the candidate's
    /// clock.
    pub fn client(&self, guard: Option<LeaseGuard>) -> Client {
        let line = self.clone();
        let wire = Wire::new(service_fn(move |request| line.clone().send(request)));
        let inner = match guard {
            None => wire,
            Some(guard) => guard.layer(wire),
        };
        let line = self.clone();
        let clocked = service_fn(move |request| line.clone().with_clock(inner.clone(), request));
        Client::new(clocked, NAMESPACE)
    }

    async fn with_clock(
        self,
        inner: Wire,
        request: Request<Body>,
    ) -> Result<Response<Answer>, BoxError> {
        if is_watch(&request) {
            return inner.oneshot(request).await;
        }
        let (parts, body) = request.into_parts();
        let body = self.shift(&body.collect_bytes().await?, 1);
        let request = Request::from_parts(parts, body.to_vec().into());
        let (parts, body) = inner.oneshot(request).await?.into_parts();
        let body = self.shift(&body.collect().await?.to_bytes(), -1);
        Ok(into_answer(Response::from_parts(parts, Full::new(body))))
    }

    async fn send(self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let (parts, body) = request.into_parts();
        let request = Request::from_parts(parts, body.collect_bytes().await?);
        let (reply, answer) = oneshot::channel();
        let line = self.clone();
        self.under_way.lock().spawn(async move {
            let answer = line.carry(request).await;
            reply.send(answer).ok();
        });
        answer.await.map_err(|_| "the process has ended")?
    }

    async fn carry(self, request: Request<Bytes>) -> Result<Response<Answer>, BoxError> {
        let watch = is_watch(&request);
        let hold = {
            let mut shared = self.shared.lock();
            shared.hold.take_if(|(method, ..)| method == request.method() && !watch)
        };
        if let Some((_, tell, wait)) = hold {
            tell.send(()).ok();
            wait.await?;
        }
        let fault = self.shared.lock().fault;
        match fault {
            Fault::Refused => return Err("connection refused".into()),
            Fault::NoWatch if watch => return Err("connection refused".into()),
            Fault::Silent => std::future::pending().await,
            Fault::NoWrite(status) if request.method() != Method::GET => {
                return Ok(refusal(status, "", "as the test wants it"));
            }
            Fault::Status(status) => return Ok(refusal(status, "", "as the test wants it")),
            Fault::Slow(there, _) => sleep(there).await,
            Fault::None | Fault::Deaf | Fault::NoWatch | Fault::NoWrite(_) => (),
        }
        let response = self.api.serve(&request);
        match fault {
            Fault::Deaf => std::future::pending().await,
            Fault::Slow(_, back) => sleep(back).await,
            _ => (),
        }
        if watch {
            return Ok(self.carry_watch(response));
        }
        Ok(response)
    }

    /// Carries a watch, which is subject to the fault at the time of each event.
    fn carry_watch(self, response: Response<Answer>) -> Response<Answer> {
        response.map(|body| {
            let frames =
                body.into_data_stream().map_ok(http_body::Frame::data).then(move |frame| {
                    let fault = self.shared.lock().fault;
                    async move {
                        match fault {
                            Fault::None | Fault::NoWrite(_) => frame,
                            Fault::Slow(_, back) => {
                                sleep(back).await;
                                frame
                            }
                            Fault::Silent | Fault::Deaf => std::future::pending().await,
                            Fault::Refused | Fault::NoWatch | Fault::Status(_) => {
                                Err("connection reset".into())
                            }
                        }
                    }
                });
            StreamBody::new(frames).boxed_unsync()
        })
    }

    /// Translates what the candidate's clock says into the world's time, or back.
    fn shift(&self, body: &Bytes, direction: i32) -> Bytes {
        let Ok(mut object) = serde_json::from_slice::<Value>(body) else { return body.clone() };
        let ahead = (self.shared.lock().clock_ahead + self.api.passed()) * direction;
        for field in ["/spec/renewTime", "/spec/acquireTime"] {
            if let Some(Value::String(time)) = object.pointer_mut(field) {
                let shifted = time.parse::<Timestamp>().expect("a time") + ahead;
                *time = format!("{shifted:.6}");
            }
        }
        object.to_string().into()
    }
}

/// The service that takes requests.
type Wire = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

fn into_answer<B>(response: Response<B>) -> Response<Answer>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}

fn is_watch<B>(request: &Request<B>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true"))
}
