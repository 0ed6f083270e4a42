//! Complete electors on one API server, and a check of the number of leaders.

use std::time::Duration;

use ccm_kube::events::{EventMetrics, EventRecorder};
use ccm_runtime::{
    leadership::{Elector, Eligibility, Ended, Leadership, LeadershipMetrics},
    settings::ElectionSettings,
};
use prometheus_client::registry::Registry;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    lease_api::{LeaseApi, NAME, NAMESPACE},
    line::Line,
};

/// The interval of the check for leaders.
const LOOK: Duration = Duration::from_millis(5);

/// Returns the default terms.
pub fn terms() -> ElectionSettings {
    ElectionSettings {
        enabled: true,
        lease: NAME.to_owned(),
        namespace: NAMESPACE.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        allows_others: false,
    }
}

/// A process that takes part in the election.
pub struct Replica {
    pub identity: String,
    pub line: Line,
    leadership: Leadership,
    release: CancellationToken,
    registry: Registry,
    task: JoinSet<Ended>,
    _events: JoinSet<()>,
}

impl Replica {
    /// Starts a replica with a guard, at the default terms.
    pub fn start(api: &LeaseApi) -> Self {
        Self::over(&Line::new(api), terms(), true)
    }

    /// Starts a replica that is a candidate only while it is eligible.
    pub fn eligible(api: &LeaseApi, eligibility: Eligibility) -> Self {
        Self::with("node-ccm", &Line::new(api), terms(), true, eligibility)
    }

    /// Returns a replica over this connection.
    pub fn over(line: &Line, terms: ElectionSettings, guarded: bool) -> Self {
        Self::of("node-ccm", line, terms, guarded)
    }

    /// Returns a replica of this program.
    pub fn of(program: &str, line: &Line, terms: ElectionSettings, guarded: bool) -> Self {
        Self::with(program, line, terms, guarded, Eligibility::default())
    }

    fn with(
        program: &str,
        line: &Line,
        terms: ElectionSettings,
        guarded: bool,
        eligibility: Eligibility,
    ) -> Self {
        let metrics = LeadershipMetrics::new(NAME);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let (recorder, writer) =
            EventRecorder::new(line.client(None), "test", EventMetrics::default());
        let client = |guard| line.client(guarded.then_some(guard));
        let elector = Elector::new(program, terms, client, line.client(None), metrics, recorder)
            .while_eligible(eligibility);
        let (identity, leadership) = (elector.identity().to_owned(), elector.leadership().clone());
        let release = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(elector.run(release.clone()));
        let mut events = JoinSet::new();
        events.spawn(writer.run(CancellationToken::new()));
        Self { identity, line: line.clone(), leadership, release, registry, task, _events: events }
    }

    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    pub fn leads(&self) -> bool {
        self.leadership().is_leader()
    }

    /// Asks it to release the Lease and end.
    pub fn release(&self) {
        self.release.cancel();
    }

    /// Kills it.
    pub fn kill(self) {
        drop(self);
    }

    /// Returns how the replica ended, if it has.
    pub fn ended(&mut self) -> Option<Ended> {
        self.task.try_join_next().map(|ended| ended.expect("no panic"))
    }

    /// Returns how the replica ended, and how long that took from now.
    pub async fn end(&mut self) -> (Ended, Duration) {
        let start = Instant::now();
        let ended = self.task.join_next().await.expect("one end").expect("no panic");
        (ended, start.elapsed())
    }

    /// Returns the value of a metric; 0 if it is not there yet.
    pub fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// Waits for a condition, and returns how long that took. Checks that at most one replica leads at
/// a time.
pub async fn until(
    replicas: &[&Replica],
    limit: Duration,
    so: impl Fn() -> bool,
) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() <= limit {
        let leaders = replicas.iter().filter(|replica| replica.leads()).count();
        assert!(leaders <= 1, "{leaders} leaders after {:?}", start.elapsed());
        if so() {
            return Some(start.elapsed());
        }
        sleep(LOOK).await;
    }
    None
}
