//! The candidate: acquires, renews and releases the Lease.

use std::time::Duration;

use ccm_base::{LogThrottle, duration};
use ccm_kube::{
    ApiError,
    events::{EventKind, EventRecorder},
};
use ccm_objects::ObjectRef;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube_leader_election::{Error, LeaseLock, LeaseLockParams, LeaseLockResult};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    eligibility::Eligibility,
    guard::LeaseGuard,
    identity,
    metrics::LeadershipMetrics,
    problem::{Reason, api_error},
    standby,
    term::{Leadership, Moment},
};
use crate::settings::ElectionSettings;

/// The upper limit for a single attempt.
const CALL: Duration = Duration::from_secs(5);
/// Spreads the attempts of standbys that see the same Lease released at the same time.
const HASTE_JITTER: Duration = Duration::from_millis(100);
/// How often the holder of the Lease writes it within an attempt, each time after another read,
/// while other clients write the Lease between its read and its write. With 300 writes a second by
/// others and a round trip of 3 to 7 ms, about one in three to eight succeeds.
const MOST_WRITES: usize = 20;
/// Pause between two attempts to release a Lease that another client modifies at the same time.
const RELEASE_AGAIN: Duration = Duration::from_millis(50);
/// How long a watch may take at the start to show that it works. It takes 40 s if nothing changes,
/// before Kubernetes 1.31.
const FIRST_PROOF: Duration = Duration::from_secs(45);
/// Time between two checks of the watches of a replica that is not a candidate.
const LOOK: Duration = Duration::from_millis(200);

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended on request. If this process held the Lease, it is free.
    Released,
    /// The term could not be renewed: the process must exit.
    Lost,
}

/// One candidate, driven by [`Elector::run`].
pub struct Elector {
    config: ElectionSettings,
    identity: String,
    guard: LeaseGuard,
    lock: LeaseLock,
    watcher: Client,
    eligibility: Eligibility,
    leadership: Leadership,
    metrics: LeadershipMetrics,
    events: EventRecorder,
    throttle: LogThrottle,
    /// The error of the last attempt, if it failed.
    last_error: Option<ApiError>,
    /// This process may hold the Lease: an attempt acquired it, or its result is unknown.
    may_hold: bool,
}

/// How a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The API server did not confirm the Lease in time. This process may still hold it.
    NotRenewed,
    /// The Lease names another holder.
    Taken,
}

/// The result of an attempt.
enum Attempt {
    /// This process holds the Lease from this moment, in the term of this number.
    Ours(Moment, u64),
    /// Another candidate holds the Lease.
    Theirs,
    /// Unknown: the request failed or was not answered in time.
    Failed,
}

impl Elector {
    /// Creates a candidate of this program, with a generated identity. `guarded` makes the client
    /// that writes the Lease; `watcher` watches it.
    pub fn new(
        program: &str,
        config: ElectionSettings,
        guarded: impl FnOnce(LeaseGuard) -> Client,
        watcher: Client,
        metrics: LeadershipMetrics,
        events: EventRecorder,
    ) -> Self {
        let identity = identity::new(program);
        let guard = LeaseGuard::new(&identity, config.lease_duration);
        let params = LeaseLockParams {
            lease_name: config.lease.clone(),
            holder_id: identity.clone(),
            lease_ttl: config.lease_duration,
        };
        let lock = LeaseLock::new(guarded(guard.clone()), &config.namespace, params);
        // Half of the rest of a regularly renewed term just before a renewal.
        let write_timeout = config.renew_deadline.saturating_sub(config.retry_period) / 2;
        let leadership = Leadership::standby(write_timeout, guard.annotations().clone());
        Self {
            config,
            identity,
            guard,
            lock,
            watcher,
            eligibility: Eligibility::default(),
            leadership,
            metrics,
            events,
            throttle: LogThrottle::default(),
            last_error: None,
            may_hold: false,
        }
    }

    /// Makes this a candidate only while it is eligible.
    #[must_use]
    pub fn while_eligible(mut self, eligibility: Eligibility) -> Self {
        self.eligibility = eligibility;
        self
    }

    /// Returns this candidate's holder identity.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns the other holder of the Lease and when the Lease is free, as text for pages. The
    /// text is empty if nobody else holds it.
    pub fn rival(&self) -> impl Fn() -> String + Send + Sync + 'static {
        let guard = self.guard.clone();
        move || guard.observed().rival(Instant::now())
    }

    /// Returns the problem if another program holds the Lease, as text for pages.
    pub fn shared(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let (guard, name) = (self.guard.clone(), self.lease_name());
        move || guard.observed().shared(&name)
    }

    fn lease_name(&self) -> String {
        format!("{}/{}", self.config.namespace, self.config.lease)
    }

    /// Returns the leadership state for the rest of the process.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Runs until the Lease is lost, or `release` is cancelled: then it releases the Lease. All
    /// writers must have stopped before.
    pub async fn run(mut self, release: CancellationToken) -> Ended {
        let loss = release.run_until_cancelled(self.campaign_and_lead()).await;
        self.end(loss).await;
        loss.map_or(Ended::Released, |_| Ended::Lost)
    }

    async fn campaign_and_lead(&mut self) -> Loss {
        let free = Notify::new();
        let watched =
            standby::watch(self.watcher.clone(), self.config.clone(), self.guard.clone(), &free);
        tokio::select! {
            () = self.campaign(&free) => (),
            never = watched => match never {},
        }
        self.lead().await
    }

    /// Tries to acquire the Lease until this candidate leads.
    async fn campaign(&mut self, free: &Notify) {
        let lease = self.config.lease.clone();
        tracing::info!(identity = self.identity, lease, "waiting to become leader");
        let mut known = String::new();
        loop {
            self.wait_eligible().await;
            match self.attempt(self.call_timeout()).await {
                Attempt::Ours(since, term) if self.begin(since, term) => return,
                Attempt::Theirs => {
                    let holder = self.guard.observed().holder().to_owned();
                    if holder != known {
                        self.log_holder(&holder);
                        known = holder;
                    }
                }
                Attempt::Ours(..) | Attempt::Failed => (),
            }
            tokio::select! {
                () = sleep_until(self.next_attempt()) => (),
                () = free.notified() => sleep(HASTE_JITTER.mul_f64(rand::random::<f64>())).await,
            }
        }
    }

    fn log_holder(&self, holder: &str) {
        let lease = &self.config.lease;
        let observed = self.guard.observed();
        let rival = observed.rival(Instant::now());
        match observed.shared(&self.lease_name()) {
            Some(problem) => tracing::error!(lease, holder, "{problem}; standing by: {rival}"),
            None => tracing::info!(lease, holder, "another replica leads; standing by: {rival}"),
        }
    }

    /// Waits until this replica may be a candidate.
    async fn wait_eligible(&self) {
        let mut is_logged = false;
        while let Some(obstacle) = self.eligibility.obstacle() {
            if !is_logged && obstacle.lasted > FIRST_PROOF {
                let lease = &self.config.lease;
                tracing::warn!(lease, "not a candidate for the lease: {obstacle}");
                is_logged = true;
            }
            sleep(LOOK).await;
        }
        if is_logged {
            tracing::info!(lease = self.config.lease, "a candidate for the lease again");
        }
    }

    /// Returns the time limit for an attempt that no term limits.
    fn call_timeout(&self) -> Duration {
        self.config.renew_deadline.min(CALL)
    }

    /// Returns the next attempt: after the retry period with client-go's jitter, or as soon as the
    /// Lease expires.
    fn next_attempt(&self) -> Instant {
        let jitter = 1.0 + 1.2 * rand::random::<f64>();
        let retry = Instant::now() + self.config.retry_period.mul_f64(jitter);
        let expiry = self.guard.observed().expires_at();
        match expiry {
            Some(expiry) if expiry > Instant::now() => retry.min(expiry),
            _ => retry,
        }
    }

    /// Starts to lead. Returns false if the term has already expired.
    fn begin(&self, since: Moment, term: u64) -> bool {
        if !self.leadership.renew(since, self.config.renew_deadline, term) {
            return false;
        }
        self.metrics.became_leader();
        tracing::info!(identity = self.identity, lease = self.config.lease, "became leader");
        self.record("became leader");
        true
    }

    /// Renews the Lease until a renewal does not complete within the term.
    async fn lead(&mut self) -> Loss {
        // The beginning of the renewal in progress, and the rest of the term at that time.
        let mut renewal = None;
        loop {
            let pause = sleep(self.config.retry_period.min(self.leadership.remaining()));
            tokio::select! {
                () = pause => (),
                () = self.guard.annotations().until_urgent() => (),
            }
            let left = self.leadership.remaining();
            if left.is_zero() {
                return Loss::NotRenewed;
            }
            let is_slow = renewal.is_some();
            let (start, remaining) = *renewal.get_or_insert((Instant::now(), left));
            match self.attempt(left.min(CALL)).await {
                Attempt::Ours(since, term) => {
                    self.metrics.renewed(start.elapsed(), remaining, is_slow);
                    renewal = None;
                    if !self.leadership.renew(since, self.config.renew_deadline, term) {
                        return Loss::NotRenewed;
                    }
                }
                Attempt::Theirs => return Loss::Taken,
                Attempt::Failed => (),
            }
        }
    }

    /// Makes one attempt. Another client may write the Lease between our read and our write, which
    /// is then refused. While the Lease is ours, it is read and written again at once. To the
    /// protocol, each time is a separate attempt, with a decision on the Lease that was read and a
    /// term that counts from before the read.
    async fn attempt(&mut self, limit: Duration) -> Attempt {
        let end = Instant::now() + limit;
        let mut writes = 1;
        let (error, reason) = loop {
            let error = match self.call(end).await {
                Ok(attempt) => {
                    self.last_error = None;
                    return attempt;
                }
                Err(error) => error,
            };
            let reason = Reason::from(&error);
            self.metrics.failed(reason);
            if reason != Reason::Conflict || !self.is_holder() || writes == MOST_WRITES {
                break (error, reason);
            }
            writes += 1;
        };
        // Losing a race is normal in an election.
        let is_race = reason == Reason::Conflict && !self.is_holder();
        if !is_race && self.throttle.allow() {
            let (identity, lease) = (&self.identity, self.lease_name());
            tracing::warn!(identity, lease, %error, "cannot acquire or renew the lease; {}", reason.remedy());
        }
        self.last_error = Some(error);
        Attempt::Failed
    }

    /// Makes one call of the library, until this time. The term counts from before the call.
    async fn call(&mut self, end: Instant) -> Result<Attempt, ApiError> {
        self.may_hold = true;
        let since = Moment::now();
        let answer = timeout_at(end, self.lock.try_acquire_or_renew()).await;
        {
            let observed = self.guard.observed();
            self.metrics.read_lease(observed.transitions(), observed.other_program().is_some());
        }
        match answer {
            Ok(Ok(LeaseLockResult::Acquired(lease))) if self.holds(&lease) => {
                Ok(Attempt::Ours(since, term_number(&lease)))
            }
            Ok(Ok(_)) => {
                self.may_hold = false;
                Ok(Attempt::Theirs)
            }
            Ok(Err(error)) => Err(api_error(error)),
            Err(_) => Err(ApiError::Timeout),
        }
    }

    /// Returns true if the Lease named this candidate when it was last read.
    fn is_holder(&self) -> bool {
        self.guard.observed().holder() == self.identity
    }

    /// Checks the holder; the library does not check it after its write.
    fn holds(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&self.identity)
    }

    /// Ends the term, then releases the Lease: in this order, so that this process no longer leads
    /// when another one can.
    async fn end(&self, loss: Option<Loss>) {
        let led = self.leadership.end();
        self.metrics.set_leading(false);
        match loss {
            Some(loss) => self.log_loss(loss),
            None if self.may_hold => self.step_down().await,
            None => (),
        }
        if led {
            self.record("stopped leading");
        }
    }

    fn log_loss(&self, loss: Loss) {
        let (identity, lease) = (&self.identity, &self.config.lease);
        match loss {
            Loss::NotRenewed => {
                let deadline = duration::format(self.config.renew_deadline);
                let why = self.last_error.as_ref().map(|error| format!(": {error}"));
                tracing::error!(
                    identity,
                    lease,
                    "lost the lease: it was not renewed within {deadline}{}",
                    why.unwrap_or_default()
                );
            }
            Loss::Taken => {
                let holder = self.guard.observed().holder().to_owned();
                tracing::error!(identity, lease, holder, "lost the lease: another replica took it");
            }
        }
    }

    async fn step_down(&self) {
        let lease = &self.config.lease;
        let error = match timeout(self.call_timeout(), self.free()).await {
            Ok(Ok(())) => return tracing::info!(lease, "released the lease"),
            Ok(Err(Error::ReleaseLockWhenNotLeading { .. })) => return, // This process does not hold the Lease.
            Ok(Err(error)) => api_error(error),
            Err(_) => ApiError::Timeout,
        };
        self.metrics.failed(Reason::from(&error));
        tracing::warn!(lease, %error, "the lease is not released; it expires on its own");
    }

    /// Releases the Lease. A concurrent modification costs another read.
    async fn free(&self) -> Result<(), Error> {
        loop {
            match self.lock.step_down().await {
                Err(Error::ReleaseLease(kube::Error::Api(status))) if status.code == 409 => {
                    sleep(RELEASE_AGAIN).await;
                }
                done => return done,
            }
        }
    }

    /// Records an event.
    fn record(&self, what: &str) {
        let about = ObjectRef::lease(&self.config.namespace, &self.config.lease);
        self.events.record(
            &about,
            EventKind::Normal,
            "LeaderElection",
            format!("{} {what}", self.identity),
        );
    }
}

/// Returns a number that grows with each leader: the Lease's creation time in the high bits, its
/// transitions in the low bits, because a recreated Lease counts from zero again.
fn term_number(lease: &Lease) -> u64 {
    const COUNT: u64 = (1 << 20) - 1;
    let created = lease.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let count = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    let positive = |number: i64| u64::try_from(number).unwrap_or_default();
    (positive(created) * (COUNT + 1)) | positive(count.into()).min(COUNT)
}
