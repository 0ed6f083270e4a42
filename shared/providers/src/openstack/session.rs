//! The session at Keystone: one token for all callers.
//!
//! At most one login runs at a time, as a task of its own: it outlives a caller whose time is
//! over. A token is renewed in the background when four fifths of its life are over. A failed
//! login is not repeated at once: until the back-off ends, callers get its error. After rejected
//! credentials the back-off is 30 s, doubled each time, up to half an hour: Keystone can lock an
//! account after a number of rejected logins. Callers are advised to retry sooner, which costs no
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

use self::pace::{LOGIN_AT, advice, is_refusal};
pub(crate) use self::{
    catalog::Catalog,
    login::Login,
    pace::{REFUSED, is_refused_login},
    token::{Project, Token},
};
use super::{
    client::{Failure, Hidden, Outgoing, Service, Wire},
    metrics::Renewal,
    single_flight::{Pending, SingleFlight},
};

/// The longest time for one login.
const LOGIN: Duration = Duration::from_secs(30);
/// The back-off after a login that failed for another reason than its credentials.
const FAILED: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
/// The longest wait that is advised to callers during a back-off: a change of the configuration
/// ends the back-off at once.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The name of a login in metrics.
const OPERATION: &str = "token_create";

/// A session.
pub(crate) struct Session {
    wire: Arc<Wire>,
    login: Login,
    /// Where, how and who logs in, for messages.
    name: String,
    state: Mutex<State>,
    logins: SingleFlight<Arc<Token>>,
}

#[derive(Default)]
struct State {
    /// The last token that Keystone gave.
    token: Option<Arc<Token>>,
    /// Tokens up to this generation are not used any more.
    given_up: u64,
    /// Consecutive rejected logins, counted as Keystone's lockout does.
    refusals: u32,
    /// Consecutive logins that failed for other reasons.
    failures: u32,
    /// Whether its credentials are in use: only those appear in the metrics.
    in_use: bool,
}

impl Session {
    /// A session that logs in for the first caller; it is a candidate until [`Session::activate`].
    pub(crate) fn new(wire: Arc<Wire>, login: Login) -> Arc<Self> {
        let name = format!("{LOGIN_AT}{} by {}", login.auth_url, login.method());
        let logins = SingleFlight::new(format!("{name} failed"));
        Arc::new(Self { wire, login, name, state: Mutex::default(), logins })
    }

    /// The token, from a login if there is none.
    pub(crate) async fn token(self: &Arc<Self>, call: Call) -> Result<Arc<Token>, Failure> {
        let pending = {
            let state = self.state.lock();
            let is_good = |token: &&Arc<Token>| token.generation > state.given_up && token.lives();
            if let Some(token) = state.token.as_ref().filter(is_good) {
                if token.ages() && self.login.prolongs() {
                    // The call does not wait for it.
                    self.start_login().ok();
                }
                return Ok(Arc::clone(token));
            }
            self.start_login()?
        };
        self.logins.wait(pending, call).await
    }

    /// Its credentials are in use from now on. Counts a login that it made as a candidate.
    pub(crate) fn activate(&self) {
        let mut state = self.state.lock();
        state.in_use = true;
        if state.token.is_some() {
            self.wire.metrics.renewal(Renewal::Done);
        }
    }

    /// It is not needed any more. Cancels a running login; its result is not counted.
    pub(crate) fn retire(&self) {
        self.state.lock().in_use = false;
        self.logins.abort();
    }

    /// The last token that Keystone gave, good or not.
    pub(crate) fn last(&self) -> Option<Arc<Token>> {
        self.state.lock().token.clone()
    }

    /// Stops using the token of this generation, since a service rejects it or its catalog lacks
    /// an entry: the next caller gets a newer one.
    pub(crate) fn give_up(&self, generation: u64) {
        let mut state = self.state.lock();
        state.given_up = state.given_up.max(generation);
    }

    /// Starts a login, unless one is running or the back-off of the last failure has not ended.
    fn start_login(self: &Arc<Self>) -> Result<Pending<Arc<Token>>, Failure> {
        self.logins.join(|| Arc::clone(self).log_in())
    }

    /// Logs in, and stores the result.
    async fn log_in(self: Arc<Self>) -> Result<Arc<Token>, Failure> {
        let outcome = self.request().await;
        let mut state = self.state.lock();
        let (outcome, result) = match outcome {
            Ok(token) => {
                (state.refusals, state.failures) = (0, 0);
                (Ok(Arc::clone(state.token.insert(Arc::new(token)))), Renewal::Done)
            }
            Err(failure) => {
                let (holds, result) = state.pause(&failure.error);
                let (mut error, next_in_s) = (failure.error, holds.as_secs_f64());
                tracing::warn!(%error, next_in_s, "no token from Keystone");
                if !failure.repeat {
                    error.retry_after = Some(holds.min(ASK_AGAIN));
                }
                (Err(Failure { error, holds, ..failure }), result)
            }
        };
        if state.in_use {
            self.wire.metrics.renewal(result);
        }
        outcome
    }

    async fn request(&self) -> Result<Token, Failure> {
        let outgoing = Outgoing {
            method: Method::POST,
            body: self.login.body(),
            secret: Some(self.login.secret().clone()),
            ..Outgoing::get(Service::Identity, OPERATION, self.login.url.clone())
        };
        let generation = self.last().map_or(1, |last| last.generation + 1);
        let hidden = Hidden::new([self.login.secret().expose()]);
        let answer = self.wire.send(outgoing, Call::waiting(LOGIN)).await;
        let token = answer.and_then(|answer| Ok(Token::read(&answer, generation, &hidden)?));
        token.map_err(|failure| {
            let error = CloudError { message: self.about(&failure.error), ..failure.error };
            // The next login may be luckier than one that hung.
            Failure { repeat: failure.repeat || error.kind == ErrorKind::Timeout, error, ..failure }
        })
    }

    fn about(&self, error: &CloudError) -> String {
        let what = if is_refusal(error.kind) { "refused" } else { "failed" };
        format!("{} {what}: {}{}", self.name, error.message, advice(error))
    }
}

impl State {
    /// Counts a login that failed: how long there is no other one, and the metric's word.
    fn pause(&mut self, error: &CloudError) -> (Duration, Renewal) {
        if is_refusal(error.kind) {
            self.refusals = self.refusals.saturating_add(1);
            return (REFUSED.after(self.refusals), Renewal::Refused);
        }
        self.failures = self.failures.saturating_add(1);
        (error.retry_after.unwrap_or(FAILED.after(self.failures)), Renewal::Failed)
    }
}
