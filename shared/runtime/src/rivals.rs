//! Finds other cloud controllers: at the start of leadership and every five minutes it looks for a
//! Lease that one of them renews. Two controllers that do the same work undo each other's changes.
//! A program does not lead beside another leader of its kind, unless a setting says that the two
//! divide the work.
//!
//! A Lease stays when its program is uninstalled, so a Lease counts only if it changes between two
//! looks. A Lease does not show which controllers its program runs, and a program with a Lease in
//! another namespace is not found.

mod decide;

use std::{collections::BTreeSet, mem, time::Duration};

use ccm_base::clock;
use ccm_kube::{
    ApiError,
    events::{EventKind, EventRecorder},
};
use ccm_metrics::{Gauge, level, metrics};
use ccm_objects::ObjectRef;
use jiff::SignedDuration;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{Api, Client, api::ListParams};
use tokio::time::sleep;

use self::decide::{Own, Rival, SeenLease, rivals, verdict, yields_to};
use crate::{
    health::{Condition, Health, Scope},
    identity::Identity,
    metrics::Metrics,
    plans::Mode,
    settings::ElectionSettings,
};

/// Where cloud controllers have their Leases.
pub(crate) const NAMESPACE: &str = "kube-system";
/// The time between the two looks. Leases are renewed every few seconds.
const LOOK: Duration = Duration::from_secs(30);
/// The time between two surveys.
const PERIOD: Duration = Duration::from_mins(5);
/// The time until the next survey after the first one, and while the Leases cannot be read: another
/// leader may have begun at the same moment.
const SOON: Duration = Duration::from_mins(1);

metrics! {
    pub(crate) struct RivalMetrics {
        /// Leases in kube-system renewed by other cloud controllers that do the same work; a Lease of the same
        /// program counts unless --allow-other-leaders is set
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
    /// The Leases of the competing controllers that were reported.
    reported: BTreeSet<String>,
    clock: WrongClock,
    is_clock_reported: bool,
}

/// Returns the fault of this machine's clock, if it has one.
pub(crate) type WrongClock = Box<dyn Fn() -> Option<String> + Send + Sync>;

impl Survey {
    /// Creates a survey for this program. Its line and its metric appear at once; the first request
    /// is made by [`Survey::run`].
    pub(crate) fn new(
        program: &Identity,
        (election, mode): (&ElectionSettings, Mode),
        client: Client,
        events: &EventRecorder,
        (health, metrics): (&Health, &Metrics),
        clock: WrongClock,
    ) -> Self {
        let line = health.condition("rivals", Scope::Information, "");
        line.pass("not checked yet");
        // The leader beside an observer holds the observer's Lease.
        let elects = election.enabled || mode == Mode::Observe;
        let is_here = elects && election.namespace == NAMESPACE;
        let lease = election.enabled.then(|| (election.namespace.clone(), election.lease.clone()));
        Self {
            own: Own {
                program: program.binary,
                work: program.alias,
                lease: is_here.then(|| election.lease.clone()),
                allows_others: election.allows_others,
            },
            lease,
            mode,
            leases: Api::namespaced(client, NAMESPACE),
            events: events.clone(),
            line,
            metrics: RivalMetrics::new(metrics),
            reported: BTreeSet::new(),
            clock,
            is_clock_reported: false,
        }
    }

    /// Waits while the same program leads by another Lease. Does not wait if the Leases cannot be read.
    pub(crate) async fn wait_alone(&mut self) {
        if self.mode == Mode::Observe || self.own.allows_others {
            return;
        }
        loop {
            match self.survey(|lease| self.own.is_second(lease)).await {
                Ok((found, _)) if !found.iter().any(|rival| rival.is_same_program) => break,
                Ok((mut found, _)) => {
                    found.retain(|rival| rival.is_same_program);
                    self.show(&found, "waits, and does not compete for its Lease: ");
                }
                Err(error) => return self.cannot_look(&error),
            }
        }
        self.metrics.rivals.set(0);
        self.line.pass(
            "no other leader of this program has renewed a Lease in kube-system at the start",
        );
    }

    /// Looks for other leaders before a new leader works: a standby may take over while a second
    /// leader exists. Returns the reason if this leader must yield.
    pub(crate) async fn yields(&mut self) -> Option<String> {
        if self.mode == Mode::Observe {
            return None;
        }
        let (found, leases) = self.survey(|lease| self.own.is_second(lease)).await.ok()?;
        self.first_leader(&found, &leases)
    }

    fn first_leader(&self, found: &[Rival], leases: &[SeenLease]) -> Option<String> {
        let first = yields_to(&self.own, leases, found)?;
        Some(format!("another {} leads, and began earlier: {first}", self.own.program))
    }

    /// Surveys the Leases and the clock while this process leads. Ends with the reason if this
    /// leader must yield to another one of its program.
    pub(crate) async fn run(mut self) -> String {
        let mut next = SOON;
        loop {
            let pause = match self.survey(|lease| self.own.is_rival(lease)).await {
                Ok((found, leases)) => {
                    self.show(&found, "");
                    if self.mode == Mode::Control
                        && let Some(why) = self.first_leader(&found, &leases)
                    {
                        return why;
                    }
                    mem::replace(&mut next, PERIOD)
                }
                Err(error) => {
                    self.cannot_look(&error);
                    SOON
                }
            };
            if let Some(text) = self.clock_news() {
                self.record("ClockDiffers", &text);
            }
            sleep(pause).await;
        }
    }

    /// Returns the fault of the clock, if it was not reported yet.
    fn clock_news(&mut self) -> Option<String> {
        let wrong = (self.clock)();
        let was_reported = mem::replace(&mut self.is_clock_reported, wrong.is_some());
        wrong.filter(|_| !was_reported)
    }

    /// Shows that the Leases cannot be read. The metric keeps its last value.
    fn cannot_look(&self, error: &ApiError) {
        self.line.fail(format!("cannot look for other cloud controllers: {error}"));
    }

    /// Returns the competing controllers that renewed their Leases between two looks, and the
    /// Leases. One look is enough if it does not show any Lease that may belong to such a
    /// controller.
    async fn survey(
        &self,
        may_be_rival: impl Fn(&SeenLease) -> bool,
    ) -> Result<(Vec<Rival>, Vec<SeenLease>), ApiError> {
        let before = self.look().await?;
        if !before.iter().any(may_be_rival) {
            return Ok((Vec::new(), before));
        }
        sleep(LOOK).await;
        let after = self.look().await?;
        Ok((rivals(&self.own, &before, &after), after))
    }

    async fn look(&self) -> Result<Vec<SeenLease>, ApiError> {
        let leases = self.leases.list(&ListParams::default()).await?;
        Ok(leases.items.into_iter().map(seen).collect())
    }

    /// Shows the competing controllers. `state` begins the text.
    fn show(&mut self, found: &[Rival], state: &str) {
        let news = found.iter().any(|rival| !self.reported.contains(&rival.lease));
        self.reported = found.iter().map(|rival| rival.lease.clone()).collect();
        let verdict = verdict(&self.own, self.mode, found);
        self.metrics.rivals.set(level(verdict.count));
        let Some(text) = verdict.text else {
            return self.line.pass("no other cloud controller has renewed a Lease in kube-system when the leader looked last, at most five minutes ago");
        };
        let text = format!("{state}{text}");
        if news && self.mode == Mode::Control {
            tracing::warn!("{text}");
            self.record("OtherCloudController", &text);
        }
        match verdict.count {
            0 => self.line.pass(text),
            _ => self.line.fail(text),
        }
    }

    fn record(&self, reason: &'static str, text: &str) {
        let Some((namespace, name)) = &self.lease else { return };
        let about = ObjectRef::lease(namespace, name);
        self.events.record(&about, EventKind::Warning, reason, text);
    }
}

fn seen(lease: Lease) -> SeenLease {
    let spec = lease.spec.unwrap_or_default();
    let is_old =
        |time: &MicroTime| clock::wall().duration_since(time.0) > SignedDuration::from_hours(1);
    let may_live = !spec.renew_time.as_ref().is_some_and(is_old);
    // A leader may pause for as long as its Lease lasts.
    let term = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into());
    let is_held = |time: &MicroTime| clock::wall().duration_since(time.0).abs() < term;
    let is_held = spec.renew_time.as_ref().is_some_and(is_held);
    SeenLease {
        name: lease.metadata.name.unwrap_or_default(),
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
        acquired: spec.acquire_time.map(|time| time.0),
        may_live,
        is_held,
    }
}

#[cfg(test)]
mod tests;
