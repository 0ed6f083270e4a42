//! A candidate's line to the API server, and the wall clock at the candidate's end.
//!
//! Requests travel outside of the candidate: a request that was sent arrives even if the candidate
//! is frozen or dead by then, and an answer waits for the candidate as in a socket.

use std::{sync::Arc, time::Duration};

use ccm_kube::client::{Clients, LeaseService, ResponseBody};
use ccm_runtime::leadership::guard::LeaseGuard;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use tokio::{runtime::Handle, sync::oneshot, task::JoinSet, time::sleep};
use tower::{BoxError, ServiceExt as _, layer::layer_fn, service_fn};

/// The longest that a slow line takes, each way.
pub const SLOWEST: Duration = Duration::from_millis(600);
/// Longer than any client waits for an answer.
const NEVER: Duration = Duration::from_secs(20);

/// The effect of the line on requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineMode {
    /// The line works.
    Normal,
    /// Requests and answers take time, each a different amount.
    Slow,
    /// Requests arrive, answers do not.
    Silence,
    /// Requests arrive, then the connection breaks.
    Cut,
}

/// The line of one candidate. Clones share it.
#[derive(Clone)]
pub struct Line {
    state: Arc<Mutex<State>>,
    under_way: Arc<Mutex<JoinSet<()>>>,
    /// Where requests travel.
    world: Handle,
}

struct State {
    mode: LineMode,
    ahead: SignedDuration,
    random: StdRng,
}

/// The fate of one request.
struct Passage {
    there: Duration,
    back: Duration,
    cut: bool,
}

impl Line {
    /// Creates a good line from the runtime that this is called on.
    pub fn new(seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let state = State { mode: LineMode::Normal, ahead: SignedDuration::ZERO, random };
        Self {
            state: Arc::new(Mutex::new(state)),
            under_way: Arc::default(),
            world: Handle::current(),
        }
    }

    /// Sets what happens to requests from now on.
    pub fn set(&self, mode: LineMode) {
        self.state.lock().mode = mode;
    }

    /// Sets the candidate's wall clock this many seconds ahead from now on.
    pub fn set_clock_ahead(&self, seconds: i64) {
        self.state.lock().ahead = SignedDuration::from_secs(seconds);
    }

    /// Returns a lease client over this line: the candidate's clock, the guard if there is one, the
    /// line, and the product's stack.
    pub fn client(&self, clients: &Clients, guard: Option<LeaseGuard>) -> Client {
        clients.lease_client(layer_fn(|stack: LeaseService| {
            let line = self.clone();
            let far = LeaseService::new(service_fn(move |request| {
                line.clone().carry(stack.clone(), request)
            }));
            let near = match &guard {
                None => far,
                Some(guard) => guard.layer(far),
            };
            let line = self.clone();
            service_fn(move |request| line.clone().by_own_clock(near.clone(), request))
        }))
    }

    async fn carry(
        self,
        stack: LeaseService,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let passage = self.state.lock().passage();
        let (reply, answer) = oneshot::channel();
        let journey = async move {
            sleep(passage.there).await;
            let answer = match stack.oneshot(request).await {
                Ok(answer) => received(answer).await,
                Err(error) => Err(error),
            };
            sleep(passage.back).await;
            if !passage.cut {
                reply.send(answer).ok(); // The candidate may be gone.
            }
        };
        {
            let mut under_way = self.under_way.lock();
            while under_way.try_join_next().is_some() {}
            under_way.spawn_on(journey, &self.world);
        }
        answer.await.map_err(|_| "the connection broke before the answer came")?
    }

    /// Translates the times that the candidate writes and reads.
    async fn by_own_clock(
        self,
        inner: LeaseService,
        request: Request<Body>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let ahead = self.state.lock().ahead;
        let (mut parts, body) = request.into_parts();
        let body = shifted(&body.collect_bytes().await?, ahead);
        parts.headers.remove(http::header::CONTENT_LENGTH);
        let request = Request::from_parts(parts, Body::from(body));
        let (mut parts, body) = inner.oneshot(request).await?.into_parts();
        let body = shifted(&body.collect().await?.to_bytes(), -ahead);
        parts.headers.remove(http::header::CONTENT_LENGTH);
        Ok(Response::from_parts(parts, boxed(Full::from(body))))
    }
}

impl State {
    fn passage(&mut self) -> Passage {
        let mut some = || SLOWEST.mul_f64(self.random.random());
        let (there, back) = match self.mode {
            LineMode::Normal | LineMode::Cut => (Duration::ZERO, Duration::ZERO),
            LineMode::Slow => (some(), some()),
            LineMode::Silence => (Duration::ZERO, NEVER),
        };
        Passage { there, back, cut: self.mode == LineMode::Cut }
    }
}

/// Returns the answer with all of its body.
async fn received(answer: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    let (parts, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Response::from_parts(parts, boxed(Full::new(body))))
}

fn boxed<B>(body: B) -> ResponseBody
where
    B: http_body_util::BodyExt<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Returns a Lease with its times moved. Anything else stays as it is.
fn shifted(body: &[u8], by: SignedDuration) -> Vec<u8> {
    let Ok(mut object) = serde_json::from_slice::<Value>(body) else { return body.to_vec() };
    for field in ["/spec/renewTime", "/spec/acquireTime"] {
        let Some(Value::String(text)) = object.pointer_mut(field) else { continue };
        if let Some(time) =
            text.parse::<Timestamp>().ok().and_then(|time| time.checked_add(by).ok())
        {
            *text = format!("{time:.6}");
        }
    }
    object.to_string().into_bytes()
}
