//! The tower service: faults, routing and audit around each request.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;

use super::{
    Core,
    audit::{Entry, Outcome},
    body::{ConnectionReset, ResponseBody},
    faults::{Action, Effects},
    request::RequestInfo,
    respond,
    status::StatusError,
};

/// The largest request body that the real server accepts.
const BODY_MAX: usize = 3 * 1024 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The API server as a tower service over any request body, as `kube::Client::new` needs it.
/// An error is a connection that a fault has broken.
#[derive(Clone)]
pub struct ApiService {
    core: Arc<Core>,
}

impl ApiService {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = ConnectionReset;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let core = Arc::clone(&self.core);
        Box::pin(async move { core.serve(request).await })
    }
}

impl Core {
    async fn serve<B>(
        self: Arc<Self>,
        request: Request<B>,
    ) -> Result<Response<ResponseBody>, ConnectionReset>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let info = RequestInfo::new(&parts);
        let entry = self.audit.begin(&info, self.identity.uptime());
        let Injected { effects, policies, late } = match self.inject(&info).await {
            Ok(effects) => effects,
            Err(Broken::Refused(error)) => {
                return Ok(finish(&entry, respond::refusal(&info, &error)));
            }
            Err(Broken::Dropped) => {
                entry.finish(Outcome::Dropped);
                return Err(ConnectionReset);
            }
        };
        let answer = match collect(body).await {
            Ok(body) => {
                entry.received(body.len() as u64);
                let body = admitted(&policies, body);
                self.route(&info, &body, &effects)
            }
            Err(error) => Err(error),
        };
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        if effects.drop_after {
            entry.finish(Outcome::Dropped);
            return Err(ConnectionReset);
        }
        let response = match answer {
            Ok(answer) => respond::answer(&info, answer, &effects, self.identity.now()),
            Err(error) => respond::refusal(&info, &error),
        };
        Ok(finish(&entry, response))
    }

    /// Applies the active faults to a request.
    async fn inject(&self, info: &RequestInfo) -> Result<Injected, Broken> {
        let Injected { mut effects, mut policies, mut late } = Injected::default();
        for action in self.faults.strike(info) {
            match action {
                Action::Delay(duration) => tokio::time::sleep(duration).await,
                Action::DelayAnswer(duration) => late = duration,
                Action::DropBeforeApply => return Err(Broken::Dropped),
                Action::DropAfterApply => effects.drop_after = true,
                Action::Status { code, retry_after } => {
                    return Err(Broken::Refused(StatusError::of_code(code, retry_after)));
                }
                Action::Stall => std::future::pending().await,
                Action::StaleRead { versions } => effects.stale = versions,
                policy @ (Action::TakeBack(_) | Action::Mutate(_)) => policies.push(policy),
                Action::ShortList(most) => effects.short = Some(most),
                Action::CutWatch { after, abrupt } => effects.cut = Some((after, abrupt)),
                Action::WatchError { code } => effects.watch_error = Some(code),
                Action::DuplicateEvents => effects.duplicate = true,
                Action::SilentWatch => effects.silent = true,
                Action::Malformed { name, instead } => effects.malformed.push((name, instead)),
            }
        }
        Ok(Injected { effects, policies, late })
    }
}

/// Returns the body of a request as these admission policies let it pass.
fn admitted(policies: &[Action], body: Bytes) -> Bytes {
    let Ok(mut json) = serde_json::from_slice::<Value>(&body) else { return body };
    if policies.is_empty() {
        return body;
    }
    for policy in policies {
        match policy {
            Action::TakeBack(field) => without(field, &mut json),
            Action::Mutate(change) => change(&mut json),
            _ => {}
        }
    }
    json.to_string().into()
}

fn without(field: &str, json: &mut Value) {
    let Some((parent, key)) = field.rsplit_once('/') else { return };
    if let Some(Value::Object(parent)) = json.pointer_mut(parent) {
        parent.remove(&key.replace("~1", "/"));
    }
}

/// The effect of faults on a request that is processed.
#[derive(Default)]
struct Injected {
    effects: Effects,
    /// The admission policies that change it.
    policies: Vec<Action>,
    /// How much later the response comes.
    late: Duration,
}

enum Broken {
    Refused(StatusError),
    Dropped,
}

fn finish(entry: &Arc<Entry>, response: Response<ResponseBody>) -> Response<ResponseBody> {
    entry.finish(Outcome::Answered(response.status().as_u16()));
    response.map(|body| body.counted(Arc::clone(entry)))
}

async fn collect<B>(body: B) -> Result<Bytes, StatusError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {BODY_MAX}");
            Err(StatusError::new(413, "RequestEntityTooLarge", message))
        }
        Err(error) => Err(StatusError::bad_request(format!(
            "the body of the request could not be read: {error}"
        ))),
    }
}
