//! Other cloud controllers: at the start of leadership and hourly this looks for a Lease that one of them
//! renews. Two controllers that do the same work undo each other's changes.
//!
//! A Lease stays when its program is uninstalled, so only one that changes between two looks counts. What a
//! Lease cannot show: which controllers its program runs, and a program whose Lease is in another namespace.

mod decide;

use std::{collections::BTreeSet, time::Duration};

use ccm_kube::{
    ApiError,
    events::{EventKind, EventRecorder},
};
use ccm_metrics::{Gauge, level, metrics};
use ccm_objects::ObjectRef;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::decide::{Own, Rival, Seen, rivals, verdict};
use crate::{
    health::{Condition, Health, Scope},
    metrics::Metrics,
    plans::Mode,
    settings::ElectionSettings,
};

/// Where cloud controllers have their Leases.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Between the two looks. Leases are renewed every few seconds.
const LOOK: Duration = Duration::from_secs(30);
/// Between two surveys.
const PERIOD: Duration = Duration::from_hours(1);
/// Between two surveys while there is a rival, or while the Leases cannot be read.
const SOON: Duration = Duration::from_mins(5);

metrics! {
    pub(crate) struct RivalMetrics {
        /// Leases in kube-system that other cloud controllers renew, on the leader; not that of the same program,
        /// because two of them may divide the work
        [ALPHA] ccm_rivals => rivals: Gauge;
    }
}

/// Looks for other cloud controllers.
pub(crate) struct Survey {
    own: Own,
    /// The namespace and name of the Lease that events are about.
    lease: Option<(String, String)>,
    mode: Mode,
    leases: Api<Lease>,
    events: EventRecorder,
    line: Condition,
    metrics: RivalMetrics,
    /// The Leases of the rivals that were reported.
    reported: BTreeSet<String>,
}

impl Survey {
    /// A survey for this program. Its line and its metric appear at once; the first request is made by
    /// [`Survey::run`].
    pub(crate) fn new(
        program: &'static str,
        (election, mode): (&ElectionSettings, Mode),
        client: Client,
        events: &EventRecorder,
        (health, metrics): (&Health, &Metrics),
    ) -> Self {
        let line = health.condition("rivals", Scope::Information, "");
        line.pass("not looked for yet");
        // The leader beside an observer holds the observer's Lease.
        let elects = election.enabled || mode == Mode::Observe;
        let is_here = elects && election.namespace == NAMESPACE;
        let lease = election.enabled.then(|| (election.namespace.clone(), election.lease.clone()));
        Self {
            own: Own { program, lease: is_here.then(|| election.lease.clone()) },
            lease,
            mode,
            leases: Api::namespaced(client, NAMESPACE),
            events: events.clone(),
            line,
            metrics: RivalMetrics::new(metrics),
            reported: BTreeSet::new(),
        }
    }

    /// Surveys until the token is cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        token.run_until_cancelled(self.surveys()).await;
    }

    async fn surveys(&mut self) {
        loop {
            let pause = match self.survey().await {
                Ok(found) => {
                    self.show(&found);
                    if found.is_empty() { PERIOD } else { SOON }
                }
                Err(error) => {
                    self.line.fail(format!("cannot look for other cloud controllers: {error}"));
                    SOON
                }
            };
            sleep(pause).await;
        }
    }

    async fn survey(&self) -> Result<Vec<Rival>, ApiError> {
        let before = self.look().await?;
        if !before.iter().any(|lease| self.own.is_rival(lease)) {
            return Ok(Vec::new());
        }
        sleep(LOOK).await;
        Ok(rivals(&self.own, &before, &self.look().await?))
    }

    async fn look(&self) -> Result<Vec<Seen>, ApiError> {
        let leases = self.leases.list(&ListParams::default()).await?;
        Ok(leases.items.into_iter().map(seen).collect())
    }

    fn show(&mut self, found: &[Rival]) {
        let news = found.iter().any(|rival| !self.reported.contains(&rival.lease));
        self.reported = found.iter().map(|rival| rival.lease.clone()).collect();
        let verdict = verdict(self.own.program, self.mode, found);
        self.metrics.rivals.set(level(verdict.count));
        let Some(text) = verdict.text else {
            return self.line.pass("no other cloud controller renews a Lease in kube-system");
        };
        if news && self.mode == Mode::Control {
            tracing::warn!("{text}");
            self.record(&text);
        }
        match verdict.count {
            0 => self.line.pass(text),
            _ => self.line.fail(text),
        }
    }

    fn record(&self, text: &str) {
        let Some((namespace, name)) = &self.lease else { return };
        let about = ObjectRef::lease(namespace, name);
        self.events.record(&about, EventKind::Warning, "OtherCloudController", text);
    }
}

fn seen(lease: Lease) -> Seen {
    let spec = lease.spec.unwrap_or_default();
    Seen {
        name: lease.metadata.name.unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
