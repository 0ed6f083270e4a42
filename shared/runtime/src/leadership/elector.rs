//! The candidate: takes the Lease, renews it, gives it back.

use std::time::Duration;

use ccm_kube::events::{EventKind, EventRecorder, ObjectRef};
use kube::Client;
use kube_leader_election::{Error, LeaseLock, LeaseLockParams, LeaseLockResult};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    guard::LeaseGuard,
    metrics::{Failed, LeadershipMetrics},
    standby,
    term::{Leadership, Moment},
};

/// No single attempt takes longer.
const CALL: Duration = Duration::from_secs(5);
/// Standbys that hear of a released Lease together do not all ask at the same moment.
const HASTE_JITTER: Duration = Duration::from_millis(100);
/// A failing candidate says so at most this often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);
/// The longest holder identity: it doubles as a field manager, which may have 128 bytes.
const IDENTITY_LIMIT: usize = 128;

/// The terms of an election, already validated: lease > deadline > 1.2 × retry, whole
/// seconds for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// The Lease's name.
    pub name: String,
    /// The Lease's namespace.
    pub namespace: String,
    /// How long an unchanged Lease is respected.
    pub lease_duration: Duration,
    /// How long a term lasts without renewal.
    pub renew_deadline: Duration,
    /// Between two attempts.
    pub retry_period: Duration,
}

impl ElectionConfig {
    /// The time limit for writes that a term in good order covers.
    fn write_timeout(&self) -> Duration {
        self.renew_deadline.saturating_sub(self.retry_period) / 2
    }
}

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By [`Election::release`]: the Lease is free if it was ours.
    Released,
    /// The term could not be renewed: the process is to end.
    Lost,
}

/// The handle of a running election.
#[derive(Clone)]
pub struct Election {
    leadership: Leadership,
    release: CancellationToken,
}

impl Election {
    /// What the rest of the process asks.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Gives the Lease back and ends the election. Everything that writes must have
    /// stopped before.
    pub fn release(&self) {
        self.release.cancel();
    }
}

/// One candidate. [`Elector::run`] is its whole life.
pub struct Elector {
    config: ElectionConfig,
    identity: String,
    guard: LeaseGuard,
    lock: LeaseLock,
    watcher: Client,
    leadership: Leadership,
    release: CancellationToken,
    metrics: LeadershipMetrics,
    events: EventRecorder,
    complained: Option<Instant>,
}

/// What an attempt came to.
enum Attempt {
    /// The Lease is ours, counted from this moment.
    Ours(Moment),
    /// Somebody else's.
    Theirs,
    /// Unknown: the request failed or was not answered in time.
    Failed,
}

impl Elector {
    /// A candidate with an identity of its own. `guarded` makes the client that writes
    /// the Lease; `watcher` watches it.
    pub fn new(
        config: ElectionConfig,
        guarded: impl FnOnce(LeaseGuard) -> Client,
        watcher: Client,
        metrics: LeadershipMetrics,
        events: EventRecorder,
    ) -> (Self, Election) {
        Self::with_identity(identity(), config, guarded, watcher, metrics, events)
    }

    /// The same with a given identity, which must be this process's alone.
    pub fn with_identity(
        identity: String,
        config: ElectionConfig,
        guarded: impl FnOnce(LeaseGuard) -> Client,
        watcher: Client,
        metrics: LeadershipMetrics,
        events: EventRecorder,
    ) -> (Self, Election) {
        let guard = LeaseGuard::new(&identity, config.lease_duration);
        let params = LeaseLockParams {
            lease_name: config.name.clone(),
            holder_id: identity.clone(),
            lease_ttl: config.lease_duration,
        };
        let lock = LeaseLock::new(guarded(guard.clone()), &config.namespace, params);
        let leadership = Leadership::standby(config.write_timeout());
        let release = CancellationToken::new();
        let election = Election { leadership: leadership.clone(), release: release.clone() };
        let elector =
            Self { config, identity, guard, lock, watcher, leadership, release, metrics, events, complained: None };
        (elector, election)
    }

    /// Who this candidate is.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Runs until the Lease is released or lost.
    pub async fn run(mut self) -> Ended {
        let free = std::sync::Arc::new(Notify::new());
        let watch = {
            let (client, free) = (self.watcher.clone(), free.clone());
            let (namespace, name) = (self.config.namespace.clone(), self.config.name.clone());
            async move { standby::watch(client, &namespace, &name, &free).await }
        };
        let mut watch = std::pin::pin!(watch);
        let since = tokio::select! {
            since = self.stand(&free) => since,
            () = &mut watch => None,
        };
        let Some(since) = since else { return Ended::Released };
        self.begin(since);
        self.lead().await
    }

    /// Tries until the Lease is ours; `None` if it is released first.
    async fn stand(&mut self, free: &Notify) -> Option<Moment> {
        tracing::info!(identity = self.identity, lease = self.config.name, "waiting to lead");
        let mut holder = String::new();
        loop {
            match self.attempt(CALL).await {
                Attempt::Ours(since) => return Some(since),
                Attempt::Theirs if holder != self.guard.holder() => {
                    holder = self.guard.holder();
                    tracing::info!(lease = self.config.name, holder, "another replica leads; standing by");
                }
                Attempt::Theirs => (),
                Attempt::Failed if self.release.is_cancelled() => self.step_down().await,
                Attempt::Failed => (),
            }
            tokio::select! {
                () = self.release.cancelled() => return None,
                () = sleep_until(self.next_attempt()) => (),
                () = free.notified() => sleep(HASTE_JITTER.mul_f64(rand::random::<f64>())).await,
            }
        }
    }

    /// After the retry period with client-go's jitter, or as soon as the Lease expires.
    fn next_attempt(&self) -> Instant {
        let jitter = 1.0 + 1.2 * rand::random::<f64>();
        let retry = Instant::now() + self.config.retry_period.mul_f64(jitter);
        match self.guard.expires_at() {
            Some(expiry) if expiry > Instant::now() => retry.min(expiry),
            _ => retry,
        }
    }

    fn begin(&self, since: Moment) {
        self.leadership.renew(since, self.config.renew_deadline);
        self.metrics.became_leader();
        tracing::info!(identity = self.identity, lease = self.config.name, "became leader");
        self.tell("became leader");
    }

    /// Renews until the Lease is released or lost.
    async fn lead(&mut self) -> Ended {
        loop {
            tokio::select! {
                () = self.release.cancelled() => {
                    self.step_down().await;
                    return self.end(Ended::Released);
                }
                () = sleep(self.config.retry_period) => (),
            }
            if !self.renew().await {
                tracing::error!(identity = self.identity, lease = self.config.name, "lost the lease: it could not be renewed in time, or another replica took it");
                return self.end(Ended::Lost);
            }
        }
    }

    /// Renews within what is left of the term. `false` if that did not work.
    async fn renew(&mut self) -> bool {
        let remaining = self.leadership.remaining();
        let end = Instant::now() + remaining;
        let (start, mut tries) = (Instant::now(), 0);
        loop {
            let left = self.leadership.remaining();
            if left.is_zero() {
                return false;
            }
            tries += 1;
            let attempt = timeout_at(end, self.attempt(left.min(CALL))).await.unwrap_or(Attempt::Failed);
            match attempt {
                Attempt::Ours(since) => {
                    self.leadership.renew(since, self.config.renew_deadline);
                    self.metrics.renewed(start.elapsed(), remaining, tries > 1);
                    return true;
                }
                Attempt::Theirs => return false,
                Attempt::Failed => sleep(self.config.retry_period.min(self.leadership.remaining())).await,
            }
        }
    }

    /// One call of the library. The term counts from before it was made.
    async fn attempt(&mut self, limit: Duration) -> Attempt {
        let since = Moment::now();
        match timeout(limit, self.lock.try_acquire_or_renew()).await {
            Ok(Ok(LeaseLockResult::Acquired(lease))) => {
                let holder = lease.spec.and_then(|spec| spec.holder_identity);
                if holder.as_deref() == Some(&self.identity) { Attempt::Ours(since) } else { Attempt::Theirs }
            }
            Ok(Ok(LeaseLockResult::NotAcquired(_))) => Attempt::Theirs,
            Ok(Err(error)) => {
                let reason = reason(&error);
                self.metrics.failed(reason);
                // Losing a race is how elections go.
                if reason != Failed::Conflict {
                    self.complain(&error.to_string());
                }
                Attempt::Failed
            }
            Err(_) => {
                self.metrics.failed(Failed::Timeout);
                self.complain("the API server does not answer");
                Attempt::Failed
            }
        }
    }

    fn complain(&mut self, error: &str) {
        if self.complained.is_none_or(|at| at.elapsed() >= COMPLAIN_EVERY) {
            self.complained = Some(Instant::now());
            let Self { config, identity, .. } = self;
            tracing::warn!(identity, lease = format!("{}/{}", config.namespace, config.name), error, "cannot take or renew the lease; trying on");
        }
    }

    async fn step_down(&self) {
        let limit = self.config.renew_deadline.min(CALL);
        match timeout(limit, self.lock.step_down()).await {
            Ok(Ok(())) => tracing::info!(lease = self.config.name, "released the lease"),
            // Nothing to give back.
            Ok(Err(Error::ReleaseLockWhenNotLeading { .. })) => (),
            Ok(Err(error)) => tracing::warn!(error = %error, "lease not released; it runs out by itself"),
            Err(_) => tracing::warn!("lease not released in time; it runs out by itself"),
        }
    }

    fn end(&self, ended: Ended) -> Ended {
        self.leadership.end();
        self.metrics.set_leading(false);
        self.tell("stopped leading");
        ended
    }

    fn tell(&self, what: &str) {
        let about = ObjectRef {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: Some(self.config.namespace.clone()),
            name: self.config.name.clone(),
            ..ObjectRef::default()
        };
        self.events.record(&about, EventKind::Normal, "LeaderElection", format!("{} {what}", self.identity));
    }
}

fn reason(error: &Error) -> Failed {
    let code = match error {
        Error::ApiError { response } => response.code,
        Error::GetLease(kube::Error::Api(status))
        | Error::CreateLease(kube::Error::Api(status))
        | Error::AcquireLease(kube::Error::Api(status))
        | Error::RenewLease(kube::Error::Api(status))
        | Error::Kube(kube::Error::Api(status)) => status.code,
        _ => 0,
    };
    match code {
        401 => Failed::Unauthorized,
        403 => Failed::Forbidden,
        409 => Failed::Conflict,
        _ => Failed::Other,
    }
}

/// An identity that no other process has: two replicas may share a host's name.
fn identity() -> String {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "localhost".to_owned());
    let unique = uuid::Uuid::new_v4().to_string();
    let host: String = host.chars().filter(char::is_ascii_graphic).take(IDENTITY_LIMIT - 1 - unique.len()).collect();
    format!("{host}_{unique}")
}

