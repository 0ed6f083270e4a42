//! The session at Keystone: one token for all callers.
//!
//! However many callers need a token, one login is under way at a time, as a task of
//! its own: a caller with little time leaves it to the others. A token is renewed in
//! the background when four fifths of its life are over. A login that failed is not
//! repeated at once: its error is remembered. Where the credentials were refused that is
//! for 30 s, then for twice as long each time, up to half an hour: Keystone can lock an
//! account after a number of refusals. Callers are told to ask again sooner, which costs no
//! request: other credentials may be in use by then.

mod catalog;
mod login;
mod pace;
mod token;

use std::{sync::Arc, time::Duration};

use ccm_base::Backoff;
use ccm_cloud::{Call, CloudError, ErrorKind};
use http::Method;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::pace::{LOGIN_AT, advice, is_refusal};
pub(crate) use self::{
    catalog::Catalog,
    login::Login,
    pace::{REFUSED, is_refused_login},
    token::{Project, Token},
};
use super::{
    client::{Failure, Hidden, Outgoing, Service, Wire},
    deadline::Deadline,
    flight::{self, Flight, Missed},
    metrics::Renewal,
};

/// The longest time for one login.
const LOGIN: Call = Call::waiting(Duration::from_secs(30));
/// After a login that failed for another reason than its credentials.
const FAILED: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
/// Nobody is told to wait longer than this for the end of a pause: a change of the
/// configuration ends it at once.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The name of a login in metrics.
const OPERATION: &str = "token_create";

type Outcome = Result<Arc<Token>, Failure>;
/// Where callers wait for the login under way.
type Landing = flight::Landing<Outcome>;

/// A session.
pub(crate) struct Session {
    wire: Arc<Wire>,
    login: Login,
    state: Mutex<State>,
    logins: Flight<Outcome>,
}

#[derive(Default)]
struct State {
    /// Logins that succeeded.
    generation: u64,
    token: Option<Arc<Token>>,
    /// The last generation that is not used any more.
    given_up: u64,
    failed: Option<Failed>,
    /// Logins that Keystone refused since the last one that succeeded: it counts like that.
    refusals: u32,
    /// Logins that failed otherwise since then.
    failures: u32,
    /// Whether its credentials are those in use: the metrics tell of no others.
    in_use: bool,
}

/// A login that failed, and until when it speaks for others.
struct Failed {
    failure: Failure,
    until: Instant,
}

/// What a caller does for a token.
enum Next {
    Take(Arc<Token>),
    Fail(Failure),
    /// Keystone asked for a pause.
    Pause,
    Wait(Landing),
}

impl Session {
    /// A session that begins with the first caller, on trial until it is put to use.
    pub(crate) fn new(wire: Arc<Wire>, login: Login) -> Arc<Self> {
        Arc::new(Self { wire, login, state: Mutex::default(), logins: Flight::default() })
    }

    /// The token, from a login if there is none.
    pub(crate) async fn token(self: &Arc<Self>, deadline: Deadline) -> Outcome {
        loop {
            let landing = match self.next() {
                Next::Take(token) => return Ok(token),
                Next::Fail(failure) => return Err(failure),
                Next::Pause => {
                    self.wire.open(Service::Identity, OPERATION, deadline).await?;
                    continue;
                }
                Next::Wait(landing) => landing,
            };
            return match self.logins.wait(landing, deadline.at).await {
                Ok(outcome) => outcome,
                Err(Missed::CutOff) => {
                    Err(Failure::passing(self.error(ErrorKind::Unavailable, "it was cut off")))
                }
                Err(Missed::Late) => {
                    let why = format!("no answer within the {} s of the call", deadline.seconds());
                    Err(Failure::lasting(self.error(ErrorKind::Timeout, &why)))
                }
            };
        }
    }

    /// Its credentials are in use from now on. A login of the trial counts with the others.
    pub(crate) fn put_to_use(&self) {
        let mut state = self.state.lock();
        state.in_use = true;
        if state.token.is_some() {
            self.wire.shared.metrics.renewal(Renewal::Done);
        }
    }

    /// Nobody needs it any more. A login under way is cut off, and its outcome does not
    /// pass for that of the session in use.
    pub(crate) fn end(&self) {
        self.state.lock().in_use = false;
        self.logins.cut_off();
    }

    /// The last token that Keystone gave, good or not.
    pub(crate) fn last(&self) -> Option<Arc<Token>> {
        self.state.lock().token.clone()
    }

    /// A service does not accept the token of this generation, or its catalog lacks
    /// something. It is not used any more; a newer one is.
    pub(crate) fn give_up(&self, generation: u64) {
        let mut state = self.state.lock();
        state.given_up = state.given_up.max(generation);
    }

    fn next(self: &Arc<Self>) -> Next {
        let state = self.state.lock();
        let now = Instant::now();
        let barred = state.failed.as_ref().filter(|failed| failed.until > now);
        let pause = self.wire.shared.pauses.end(Service::Identity).is_some();
        let good = |token: &Arc<Token>| token.generation > state.given_up && token.lives();
        if let Some(token) = state.token.clone().filter(good) {
            if token.ages() && self.login.prolongs() && barred.is_none() && !pause {
                drop(self.depart());
            }
            return Next::Take(token);
        }
        if let Some(landing) = self.logins.under_way() {
            return Next::Wait(landing);
        }
        match barred {
            // A pause that Keystone asked for is waited for by those who have the time.
            Some(failed) if !(pause && failed.failure.repeat) => Next::Fail(failed.now(now)),
            _ if pause => Next::Pause,
            _ => Next::Wait(self.depart()),
        }
    }

    /// Starts a login, unless one is under way.
    fn depart(self: &Arc<Self>) -> Landing {
        self.logins.join(|| {
            let session = Arc::clone(self);
            async move {
                let outcome = session.log_in().await;
                session.land(outcome)
            }
        })
    }

    async fn log_in(&self) -> Outcome {
        let outgoing = Outgoing {
            method: Method::POST,
            body: self.login.body(),
            secret: Some(self.login.secret().clone()),
            ..Outgoing::get(Service::Identity, OPERATION, self.login.url.clone())
        };
        let generation = self.state.lock().generation + 1;
        let reply = self.wire.send(outgoing, Deadline::start(LOGIN)).await.map_err(|failure| {
            let error = CloudError { message: self.about(&failure.error), ..failure.error };
            // The next login may be luckier than one that hung.
            Failure { repeat: failure.repeat || error.kind == ErrorKind::Timeout, error }
        })?;
        let hidden = Hidden::new([self.login.secret().expose()]);
        let token = Token::read(&reply, generation, &hidden)
            .map_err(|error| CloudError { message: self.about(&error), ..error })?;
        Ok(Arc::new(token))
    }

    /// Keeps what a login brought.
    fn land(&self, outcome: Outcome) -> Outcome {
        let mut state = self.state.lock();
        let tell = |state: &State, result| {
            if state.in_use {
                self.wire.shared.metrics.renewal(result);
            }
        };
        outcome
            .inspect(|token| {
                state.generation = token.generation;
                state.token = Some(Arc::clone(token));
                (state.failed, state.refusals, state.failures) = (None, 0, 0);
                tell(&state, Renewal::Done);
            })
            .map_err(|mut failure| {
                let (pause, result) = state.pause(failure.error.kind);
                let next_in_s = pause.as_secs_f64();
                tracing::warn!(error = %failure.error, next_in_s, "no token from Keystone");
                if !failure.repeat {
                    failure.error.retry_after = Some(pause.min(ASK_AGAIN));
                }
                let until = Instant::now() + pause;
                state.failed = Some(Failed { failure: failure.clone(), until });
                tell(&state, result);
                failure
            })
    }

    fn about(&self, error: &CloudError) -> String {
        let what = if is_refusal(error.kind) { "refused" } else { "failed" };
        let (auth_url, method) = (&self.login.auth_url, self.login.method());
        let advice = advice(error);
        format!("{LOGIN_AT}{auth_url} by {method} {what}: {}{advice}", error.message)
    }

    fn error(&self, kind: ErrorKind, why: &str) -> CloudError {
        let error = CloudError::new(kind, why);
        CloudError { message: self.about(&error), ..error }
    }
}

impl State {
    /// Counts a login that failed: how long nobody logs in again, and the metric's word.
    fn pause(&mut self, kind: ErrorKind) -> (Duration, Renewal) {
        if is_refusal(kind) {
            self.refusals = self.refusals.saturating_add(1);
            return (REFUSED.after(self.refusals), Renewal::Refused);
        }
        self.failures = self.failures.saturating_add(1);
        (FAILED.after(self.failures), Renewal::Failed)
    }
}

impl Failed {
    /// The failure as seen now, with the time after which asking again may help.
    fn now(&self, now: Instant) -> Failure {
        let mut failure = self.failure.clone();
        if !failure.repeat {
            failure.error.retry_after = Some((self.until - now).min(ASK_AGAIN));
        }
        failure
    }
}
