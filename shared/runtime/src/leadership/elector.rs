//! The candidate: acquires, renews and releases the Lease.

use std::time::Duration;

use ccm_base::duration;
use ccm_kube::events::{EventKind, EventRecorder};
use ccm_objects::ObjectRef;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube_leader_election::{Error, LeaseLock, LeaseLockParams, LeaseLockResult};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    complaint::Complaint,
    guard::LeaseGuard,
    metrics::LeadershipMetrics,
    problem::{Problem, Reason},
    standby,
    term::{Leadership, Moment},
};

/// Upper limit for a single attempt.
const CALL: Duration = Duration::from_secs(5);
/// Spreads the attempts of standbys that see the same Lease released at the same time.
const HASTE_JITTER: Duration = Duration::from_millis(100);
/// Pause between two attempts to release a Lease that another client modifies meanwhile.
const RELEASE_AGAIN: Duration = Duration::from_millis(50);
/// Maximum length of the holder identity, which is also a field manager (128 bytes).
const IDENTITY_LIMIT: usize = 128;

/// The validated parameters of an election: lease > deadline > 1.2 × retry, whole seconds for
/// the lease.
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
    /// Time between two attempts.
    pub retry_period: Duration,
}

impl ElectionConfig {
    /// The time limit for an attempt.
    fn call_timeout(&self) -> Duration {
        self.renew_deadline.min(CALL)
    }

    /// The time limit for writes that a regularly renewed term covers.
    fn write_timeout(&self) -> Duration {
        self.renew_deadline.saturating_sub(self.retry_period) / 2
    }
}

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By [`Election::release`]: the Lease is free if this process held it.
    Released,
    /// The term could not be renewed: the process must exit.
    Lost,
}

/// The handle of a running election.
#[derive(Clone)]
pub struct Election {
    leadership: Leadership,
    release: CancellationToken,
}

impl Election {
    /// The leadership state for the rest of the process.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Releases the Lease and ends the election. All writers must have stopped before.
    pub fn release(&self) {
        self.release.cancel();
    }
}

/// One candidate, driven by [`Elector::run`].
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
    complaint: Complaint,
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
    /// A candidate with a generated identity. `guarded` makes the client that writes the Lease;
    /// `watcher` watches it.
    pub fn new(
        config: ElectionConfig,
        guarded: impl FnOnce(LeaseGuard) -> Client,
        watcher: Client,
        metrics: LeadershipMetrics,
        events: EventRecorder,
    ) -> (Self, Election) {
        Self::with_identity(identity(), config, guarded, watcher, metrics, events)
    }

    /// A candidate with a given identity, which must be unique to this process.
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
        let (complaint, may_hold) = (Complaint::default(), false);
        let elector = Self {
            config,
            identity,
            guard,
            lock,
            watcher,
            leadership,
            release,
            metrics,
            events,
            complaint,
            may_hold,
        };
        (elector, election)
    }

    /// This candidate's holder identity.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Runs until the Lease is released or lost.
    pub async fn run(mut self) -> Ended {
        let release = self.release.clone();
        let loss = tokio::select! {
            biased;
            () = release.cancelled() => None,
            loss = self.stand_and_lead() => Some(loss),
        };
        self.end(loss).await;
        loss.map_or(Ended::Released, |_| Ended::Lost)
    }

    async fn stand_and_lead(&mut self) -> Loss {
        let free = Notify::new();
        let (client, guard) = (self.watcher.clone(), self.guard.clone());
        let (namespace, name) = (self.config.namespace.clone(), self.config.name.clone());
        tokio::select! {
            () = self.stand(&free) => (),
            never = standby::watch(client, &namespace, &name, &guard, &free) => match never {},
        }
        self.lead().await
    }

    /// Tries to acquire the Lease until this candidate leads.
    async fn stand(&mut self, free: &Notify) {
        tracing::info!(identity = self.identity, lease = self.config.name, "waiting to lead");
        let mut holder = String::new();
        loop {
            match self.attempt(self.config.call_timeout()).await {
                Attempt::Ours(since, term) if self.begin(since, term) => return,
                Attempt::Theirs if holder != self.guard.holder() => {
                    holder = self.guard.holder();
                    tracing::info!(
                        lease = self.config.name,
                        holder,
                        "another replica leads; standing by"
                    );
                }
                Attempt::Ours(..) | Attempt::Theirs | Attempt::Failed => (),
            }
            tokio::select! {
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

    /// Starts to lead; `false` if the term has already expired.
    fn begin(&self, since: Moment, term: u64) -> bool {
        if !self.leadership.renew(since, self.config.renew_deadline, term) {
            return false;
        }
        self.metrics.became_leader();
        tracing::info!(identity = self.identity, lease = self.config.name, "became leader");
        self.tell("became leader");
        true
    }

    /// Renews the Lease until a renewal fails to complete in time.
    async fn lead(&mut self) -> Loss {
        loop {
            sleep(self.config.retry_period).await;
            if let Err(loss) = self.renew().await {
                return loss;
            }
        }
    }

    /// Renews within the remaining term.
    async fn renew(&mut self) -> Result<(), Loss> {
        let (start, remaining) = (Instant::now(), self.leadership.remaining());
        let mut tries = 0;
        loop {
            let left = self.leadership.remaining();
            if left.is_zero() {
                return Err(Loss::NotRenewed);
            }
            tries += 1;
            match self.attempt(left.min(CALL)).await {
                Attempt::Ours(since, term) => {
                    self.metrics.renewed(start.elapsed(), remaining, tries > 1);
                    let lasts = self.leadership.renew(since, self.config.renew_deadline, term);
                    return if lasts { Ok(()) } else { Err(Loss::NotRenewed) };
                }
                Attempt::Theirs => return Err(Loss::Taken),
                Attempt::Failed => {
                    sleep(self.config.retry_period.min(self.leadership.remaining())).await;
                }
            }
        }
    }

    /// One call of the library. The term counts from before the call.
    async fn attempt(&mut self, limit: Duration) -> Attempt {
        self.may_hold = true;
        let since = Moment::now();
        let answer = timeout(limit, self.lock.try_acquire_or_renew()).await;
        self.metrics.read_transitions(self.guard.transitions());
        let problem = match answer {
            Ok(Ok(LeaseLockResult::Acquired(lease))) if self.holds(&lease) => {
                return Attempt::Ours(since, term_number(&lease));
            }
            Ok(Ok(_)) => {
                self.may_hold = false;
                return Attempt::Theirs;
            }
            Ok(Err(error)) => Problem::from(error),
            Err(_) => Problem::Late,
        };
        self.metrics.failed(problem.reason());
        // Losing a race is normal in an election.
        if problem.reason() != Reason::Conflict && self.complaint.is_due() {
            let Self { config, identity, .. } = self;
            let lease = format!("{}/{}", config.namespace, config.name);
            tracing::warn!(identity, lease, error = %problem, "cannot take or renew the lease; {}", problem.remedy());
        }
        Attempt::Failed
    }

    /// Checks the holder; the library does not check it after its patch.
    fn holds(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&self.identity)
    }

    /// Ends the term, then releases the Lease: in this order, so that this process no longer leads
    /// when another one can.
    async fn end(&self, loss: Option<Loss>) {
        let led = self.leadership.end();
        self.metrics.set_leading(false);
        if let Some(loss) = loss {
            self.tell_loss(loss);
        } else if self.may_hold {
            self.step_down().await;
        }
        if led {
            self.tell("stopped leading");
        }
    }

    fn tell_loss(&self, loss: Loss) {
        let Self { config: ElectionConfig { name: lease, renew_deadline, .. }, identity, .. } =
            self;
        match loss {
            Loss::NotRenewed => {
                let deadline = duration::format(*renew_deadline);
                tracing::error!(
                    identity,
                    lease,
                    "lost the lease: it was not renewed within {deadline}"
                );
            }
            Loss::Taken => {
                let holder = self.guard.holder();
                tracing::error!(identity, lease, holder, "lost the lease: another replica took it");
            }
        }
    }

    async fn step_down(&self) {
        let lease = &self.config.name;
        let problem = match timeout(self.config.call_timeout(), self.free()).await {
            Ok(Ok(())) => return tracing::info!(lease, "released the lease"),
            Ok(Err(Error::ReleaseLockWhenNotLeading { .. })) => return, // Nothing to release.
            Ok(Err(error)) => Problem::from(error),
            Err(_) => Problem::Late,
        };
        self.metrics.failed(problem.reason());
        tracing::warn!(lease, error = %problem, "the lease is not released; it runs out by itself");
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

    fn tell(&self, what: &str) {
        let about = ObjectRef {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: Some(self.config.namespace.clone()),
            name: self.config.name.clone(),
            ..ObjectRef::default()
        };
        self.events.record(
            &about,
            EventKind::Normal,
            "LeaderElection",
            format!("{} {what}", self.identity),
        );
    }
}

/// A number that grows with each leader: the Lease's creation time in the high bits, its
/// transitions in the low bits, because a recreated Lease counts from zero again.
fn term_number(lease: &Lease) -> u64 {
    const COUNT: u64 = (1 << 20) - 1;
    let created = lease.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    let count = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    let positive = |number: i64| u64::try_from(number).unwrap_or_default();
    (positive(created) * (COUNT + 1)) | positive(count.into()).min(COUNT)
}

/// A unique identity for this process: two replicas may share a host name.
fn identity() -> String {
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    identity_on(host.as_deref().unwrap_or("localhost"))
}

fn identity_on(host: &str) -> String {
    let unique = uuid::Uuid::new_v4().to_string();
    let host: String = host
        .chars()
        .filter(char::is_ascii_graphic)
        .take(IDENTITY_LIMIT - 1 - unique.len())
        .collect();
    format!("{host}_{unique}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_this_processs_own_and_never_too_long() {
        let check = |host: &str, start: &str| {
            let (first, second) = (identity_on(host), identity_on(host));
            assert_ne!(first, second, "two processes on one host");
            assert!(first.len() <= IDENTITY_LIMIT, "{first}");
            assert!(first.starts_with(start), "{first}");
        };
        check("node-7.example.com", "node-7.example.com_");
        check(&"long".repeat(64), "longlong");
        check("büro 7\n", "bro7_");
        check("", "_");
    }
}
