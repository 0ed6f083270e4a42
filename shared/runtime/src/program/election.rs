//! The election task of this process, if election is enabled.

use std::time::Duration;

use ccm_kube::{client::Clients, events::EventRecorder};
use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use crate::{
    health::{Health, Scope, Verdict},
    leadership::{Election, ElectionConfig, Elector, Ended, Leadership, LeadershipMetrics},
    metrics::Metrics,
    plans::Mode,
    settings::CommonSettings,
    supervisor::Supervisor,
};

/// Time limit for releasing the Lease. The Lease expires by itself if that fails.
const RELEASE: Duration = Duration::from_secs(6);

/// This process as a candidate. Without election it leads from the start; an observer never
/// leads.
pub(super) struct Candidacy {
    leadership: Leadership,
    election: Option<Election>,
    lease: String,
    waiting: Mutex<Option<Elector>>,
    ended: watch::Sender<Option<Ended>>,
}

impl Candidacy {
    /// A candidate that has not started.
    pub(super) fn new(
        common: &CommonSettings,
        clients: &Clients,
        events: &EventRecorder,
        metrics: &Metrics,
    ) -> Self {
        let ended = watch::Sender::new(None);
        let settings = &common.election;
        let unelected = match common.mode {
            Mode::Observe => Some(Leadership::observer()),
            Mode::Control if !settings.enabled => Some(Leadership::unconditional()),
            Mode::Control => None,
        };
        if let Some(leadership) = unelected {
            let (lease, waiting) = (String::new(), Mutex::default());
            return Self { leadership, election: None, lease, waiting, ended };
        }
        let config = ElectionConfig {
            name: settings.lease.clone(),
            namespace: settings.namespace.clone(),
            lease_duration: settings.lease_duration,
            renew_deadline: settings.renew_deadline,
            retry_period: settings.retry_period,
        };
        let election_metrics = LeadershipMetrics::new(&settings.lease);
        metrics.with(|registry| election_metrics.register(registry));
        let guarded = |guard| clients.lease_client(guard);
        let (elector, election) =
            Elector::new(config, guarded, clients.watch.clone(), election_metrics, events.clone());
        let leadership = election.leadership().clone();
        let lease = settings.lease.clone();
        Self {
            leadership,
            election: Some(election),
            lease,
            waiting: Mutex::new(Some(elector)),
            ended,
        }
    }

    /// The leadership state that the program checks before each write.
    pub(super) fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Starts the election and adds its health check.
    pub(super) fn start(&self, tasks: &Supervisor, health: &Health) {
        let Some(elector) = self.waiting.lock().take() else { return };
        show(health, &self.leadership, &self.lease, elector.identity());
        let ended = self.ended.clone();
        tasks.spawn_job("election", async move {
            let how = elector.run().await;
            ended.send_replace(Some(how));
        });
    }

    /// Waits until this process leads or observes.
    pub(super) async fn won(&self) {
        self.leadership.wait_leading().await;
    }

    /// Waits until leadership is lost.
    pub(super) async fn lost(&self) {
        // The sender lives as long as this value: waiting cannot fail.
        self.ended.subscribe().wait_for(|ended| *ended == Some(Ended::Lost)).await.ok();
    }

    /// Releases the Lease if this process holds it. All writers must have stopped.
    pub(super) async fn release(&self) {
        let never_stood = self.waiting.lock().is_some();
        let Some(election) = self.election.as_ref().filter(|_| !never_stood) else { return };
        election.release();
        let mut ended = self.ended.subscribe();
        if timeout(RELEASE, ended.wait_for(Option::is_some)).await.is_err() {
            tracing::warn!("the Lease could not be given back in time; it expires by itself");
        }
    }
}

/// Upstream's check: fails for a process that still leads after its term expired.
fn show(health: &Health, leadership: &Leadership, lease: &str, identity: &str) {
    let (leadership, lease, me) = (leadership.clone(), lease.to_owned(), identity.to_owned());
    health.add("leaderElection", Scope::Liveness, move || {
        if leadership.is_overdue() {
            return Verdict::Failed(format!(
                "failed election to renew leadership on lease {lease}"
            ));
        }
        Verdict::Passed(match leadership.remaining().as_secs() {
            _ if !leadership.is_leader() => format!("standing by for lease {lease} as {me}"),
            left => format!("leads by lease {lease} as {me}, term ends in {left} s unless renewed"),
        })
    });
}
