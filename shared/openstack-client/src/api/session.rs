//! Keeps the session at Keystone: one token for all callers.
//!
//! At most one login runs at a time. It is a separate task, so it continues when a caller's time is
//! over. A token is renewed in the background when four fifths of its life are over. A failed login
//! is not repeated at once: until the back-off ends, callers get its error. After rejected
//! credentials the back-off is 30 s, doubled each time, up to half an hour: Keystone can lock an
//! account after a number of rejected logins. Callers are advised to retry sooner, which costs no
//! request: other credentials may be in use by then.
//!
//! Discovery is a part of a login: the first caller of a new token requests the versions of Nova.
//! The earlier result is used until the answer arrives, or if it never arrives.

mod catalog;
mod login;
mod pace;
mod token;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ccm_base::{Backoff, message::one_line};
use ccm_cloud::{Call, CloudError, ErrorKind};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::pace::{LOGIN_AT, advice, is_refusal};
pub use self::{
    login::Login,
    pace::{REFUSED, is_refused_login},
    token::{Project, Token},
};
use super::{
    Failure, Pending, Service, SingleFlight,
    endpoints::{self, Endpoint, Microversion},
    hidden::Hidden,
    retry::Repeat,
    send::{Outgoing, Wire},
};
use crate::{metrics::Renewal, text::MAX_MESSAGE};

/// The longest time for one login.
const LOGIN: Duration = Duration::from_secs(30);
/// The back-off after a login that failed for another reason than its credentials.
const FAILED: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
/// The longest wait that callers are told to keep during a back-off: a change of the configuration
/// ends the back-off at once.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The name of a login in metrics.
const OPERATION: &str = "token_create";
/// The time limit of one discovery.
const LOOK: Duration = Duration::from_secs(30);
/// The wait after a failed discovery.
const PAUSE: Duration = Duration::from_secs(1);
/// Nova is asked again after this time if it did not report its versions.
const VAGUE: Duration = Duration::from_mins(1);
/// The pause before another login for a service that also refused a new token.
const DISTRUST: Backoff =
    Backoff { first: Duration::from_secs(5), longest: Duration::from_mins(10) };

/// A session.
pub struct Session {
    /// The way to the cloud.
    pub wire: Wire,
    login: Login,
    /// Where, how and who logs in, for messages.
    name: String,
    state: Mutex<State>,
    logins: SingleFlight<Arc<Token>>,
    looks: SingleFlight<()>,
    /// The operations that rejected even a new token, with the number of rejections and the time of
    /// the last one. The key is the operation, because only one operation of a service may lack a
    /// right.
    distrusted: Mutex<BTreeMap<&'static str, (u32, Instant)>>,
}

/// Nova's versions, as it reported them.
struct NovaVersions {
    catalog_url: String,
    endpoint: Endpoint,
    /// The login that it was asked with.
    generation: u64,
    /// The time at which it was asked, if it did not report its versions.
    vague: Option<Instant>,
}

#[derive(Default)]
struct State {
    nova: Option<NovaVersions>,
    /// The last token that Keystone gave.
    token: Option<Arc<Token>>,
    /// The session does not use tokens up to this generation any more.
    given_up: u64,
    /// The number of consecutive rejected logins, counted as Keystone's lockout counts them.
    refusals: u32,
    /// The number of consecutive logins that failed for other reasons.
    failures: u32,
    /// True if the session's credentials are in use: only such sessions appear in the metrics.
    in_use: bool,
}

impl Session {
    /// Creates a session that logs in for the first caller; it is a candidate until
    /// [`Session::activate`].
    pub fn new(wire: Wire, login: Login) -> Arc<Self> {
        let name = format!("{LOGIN_AT}{} by {}", login.auth_url, login.method());
        let logins = SingleFlight::new(format!("{name} failed"));
        let looks = SingleFlight::new(format!("compute {}", endpoints::OPERATION));
        let (state, distrusted) = (Mutex::default(), Mutex::default());
        Arc::new(Self { wire, login, name, state, logins, looks, distrusted })
    }

    /// Returns the token. Logs in first if the session does not have one.
    pub async fn token(self: &Arc<Self>, call: Call) -> Result<Arc<Token>, Failure> {
        let pending = {
            let state = self.state.lock();
            let is_good = |token: &&Arc<Token>| token.generation > state.given_up && token.lives();
            if let Some(token) = state.token.as_ref().filter(is_good) {
                if token.ages() && self.login.prolongs() {
                    // The call does not wait for this task.
                    self.start_login().ok();
                }
                return Ok(Arc::clone(token));
            }
            self.start_login()?
        };
        self.logins.wait(pending, call).await
    }

    /// Puts its credentials into use from now on. Counts a login that it made as a candidate.
    pub fn activate(&self) {
        let mut state = self.state.lock();
        state.in_use = true;
        if state.token.is_some() {
            self.wire.metrics.renewal(Renewal::Done);
        }
    }

    /// Ends the session, which is not needed any more. Cancels a running login; its result is not
    /// counted.
    pub fn retire(&self) {
        self.state.lock().in_use = false;
        self.logins.abort();
        self.looks.abort();
    }

    /// Returns the last token that Keystone gave, good or not.
    pub fn last(&self) -> Option<Arc<Token>> {
        self.state.lock().token.clone()
    }

    /// Stops using the token of this generation, since a service rejects it or its catalog lacks
    /// an entry: the next caller gets a newer one.
    pub fn give_up(&self, generation: u64) {
        let mut state = self.state.lock();
        state.given_up = state.given_up.max(generation);
    }

    /// Returns true if another login may help an operation whose token is refused: not if the token
    /// was `renewed` for it, and not soon after another renewal.
    pub fn may_renew(&self, operation: &'static str, renewed: bool) -> bool {
        let mut distrusted = self.distrusted.lock();
        let before = distrusted.get(operation).copied();
        if before.is_some_and(|(times, since)| since.elapsed() < DISTRUST.after(times)) {
            return false;
        }
        if renewed {
            let times = before.map_or(1, |(times, _)| times.saturating_add(1));
            distrusted.insert(operation, (times, Instant::now()));
        }
        !renewed
    }

    /// Records that a token was accepted for this operation.
    pub fn trust(&self, operation: &'static str) {
        self.distrusted.lock().remove(operation);
    }

    /// Returns `auth-url` as configured, without credentials.
    pub fn auth_url(&self) -> &str {
        &self.login.auth_url
    }

    /// Returns the error of an endpoint that must not get a token of this session.
    pub fn leads_out_of_tls(&self, service: Service, url: &str) -> CloudError {
        let (keystone, url) = (&self.login.auth_url, one_line(url, MAX_MESSAGE));
        let why = format!(
            "the catalog of {keystone} names {url} for {}, where the token would cross the network in clear: correct \
             the catalog, or set [Global] http-endpoints = true",
            service.name()
        );
        CloudError::new(ErrorKind::Invalid, why)
    }

    /// Returns the place of Nova, by its URL in the catalog.
    pub async fn compute(
        self: &Arc<Self>,
        token: &Token,
        catalog_url: &str,
        call: Call,
    ) -> Result<Endpoint, Failure> {
        loop {
            let known = {
                let state = self.state.lock();
                let known = state.nova.as_ref().filter(|known| known.catalog_url == catalog_url);
                known.map(|known| {
                    let is_vague = known.vague.is_some_and(|since| since.elapsed() >= VAGUE);
                    (known.endpoint.clone(), known.generation == token.generation && !is_vague)
                })
            };
            let look = || self.looks.join(|| Arc::clone(self).look(catalog_url.to_owned()));
            match known {
                Some((endpoint, true)) => return Ok(endpoint),
                Some((endpoint, false)) => {
                    // The call does not wait for this task.
                    look().ok();
                    return Ok(endpoint);
                }
                // The catalog's URL may have changed after the discovery began.
                None => self.looks.wait(look()?, call).await?,
            }
        }
    }

    /// Asks Nova for its versions, with another login and once more if the token is refused.
    async fn look(self: Arc<Self>, catalog_url: String) -> Result<(), Failure> {
        let mut renewed = false;
        loop {
            let token = self.token(Call::waiting(LOOK)).await?;
            let found = endpoints::look(&self.wire, &token.value, &catalog_url, LOOK).await;
            if let Err(failure) = &found
                && failure.error.kind == ErrorKind::Unauthorized
                && self.may_renew(endpoints::OPERATION, renewed)
            {
                renewed = true;
                self.give_up(token.generation);
                continue;
            }
            return self.keep(catalog_url, token.generation, found);
        }
    }

    /// Keeps what Nova said. The earlier result is better than a failure or the answer of a
    /// maintenance page.
    fn keep(
        &self,
        catalog_url: String,
        generation: u64,
        found: Result<(Endpoint, bool), Failure>,
    ) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let before = state.nova.as_mut().filter(|known| known.catalog_url == catalog_url);
        if let (Some(before), false) = (before, matches!(found, Ok((_, true)))) {
            before.generation = generation;
            return Ok(());
        }
        let (endpoint, is_clear) = found.map_err(|failure| {
            // The gate keeps a pause that Nova asks for, and the next token comes soon.
            let Failure { error, .. } = &failure;
            let passes = error.retry_after.is_some() || error.kind == ErrorKind::Unauthorized;
            Failure { holds: if passes { Duration::ZERO } else { PAUSE }, ..failure }
        })?;
        self.trust(endpoints::OPERATION);
        let vague = (!is_clear).then(Instant::now);
        if vague.is_some() {
            let url = &endpoint.base;
            tracing::warn!(%url, "Nova does not report its versions; its lowest microversion is used");
        }
        state.nova = Some(NovaVersions { catalog_url, endpoint, generation, vague });
        Ok(())
    }

    /// Returns Nova's microversion in use, once it is known.
    pub fn microversion(&self) -> Option<Microversion> {
        self.state.lock().nova.as_ref()?.endpoint.microversion
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
                let next_in_s = holds.as_secs_f64();
                tracing::warn!(error = %failure.error, next_in_s, "no token from Keystone");
                let mut error = self.told(&failure);
                if failure.repeat == Repeat::No {
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
        let (url, secret) = (self.login.url.clone(), self.login.secret().clone());
        let outgoing = Outgoing::login(OPERATION, url, self.login.body(), secret);
        let generation = self.last().map_or(1, |last| last.generation + 1);
        let hidden = Hidden::new([self.login.secret().expose()]);
        let answer = self.wire.send(outgoing, Call::waiting(LOGIN)).await;
        let token = answer.and_then(|answer| {
            let read = Token::read(&answer, generation, &hidden);
            read.map_err(|error| Failure { status: Some(answer.status), ..error.into() })
        });
        token.map_err(|failure| {
            let message = self.about(&failure.error, &failure.error.message);
            let error = CloudError { message, ..failure.error };
            // After a login that hung, the next one may succeed, and an unneeded login does no
            // harm.
            let again = failure.repeat != Repeat::No || error.kind == ErrorKind::Timeout;
            let repeat = if again { Repeat::Any } else { Repeat::No };
            Failure { error, repeat, ..failure }
        })
    }

    /// Returns the error of a login for its callers. It ends on pages and in events, which more
    /// people can read than the log, and an answer to a login can repeat the secret in a form that
    /// cannot be taken out.
    fn told(&self, failure: &Failure) -> CloudError {
        let error = failure.error.clone();
        let Some(status) = failure.status else { return error };
        let words = format!("HTTP {status} (Keystone's words are in the log)");
        let message = self.about(&error, &words);
        CloudError { message, subject: None, request_id: None, ..error }
    }

    fn about(&self, error: &CloudError, words: &str) -> String {
        let what = if is_refusal(error.kind) { "refused" } else { "failed" };
        format!("{} {what}: {words}{}", self.name, advice(error))
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
        // The gate keeps a pause that Keystone asks for.
        let pause = error.retry_after.map_or(FAILED.after(self.failures), |_| Duration::ZERO);
        (pause, Renewal::Failed)
    }
}
