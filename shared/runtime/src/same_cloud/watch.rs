//! Shows whether the cloud is still the recorded one: on `/readyz?verbose`, as a metric, an event
//! of the Lease and a line of the log.

use std::{sync::atomic::Ordering, time::Duration};

use ccm_kube::events::{EventKind, EventRecorder};
use ccm_metrics::{Gauge, metrics};
use ccm_objects::ObjectRef;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{APPROVED_UNTIL, SameCloud, Standing};
use crate::{
    health::{Condition, Health, Scope},
    leadership::CLOUD_IDENTITY,
    metrics::Metrics,
    plans::Mode,
    settings::CommonSettings,
};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// A cloud that has not reported its identity for this long counts as not reporting it any more. A
/// new process of an external provider may need a while.
const UNTOLD: Duration = Duration::from_mins(2);

metrics! {
    pub(crate) struct SameCloudMetrics {
        /// 1 if the cloud is not the one that this program has worked with, or no longer reports
        /// its identity, so that nothing is changed until a person approves it, 0 otherwise
        [ALPHA] ccm_cloud_identity_changed => changed: Gauge;
    }
}

/// Where the identity of the cloud is recorded.
#[derive(Clone, Debug)]
pub struct Where {
    /// The namespace and the name of the Lease; `None` without election.
    lease: Option<(String, String)>,
}

impl Where {
    /// Watches the Lease of these settings.
    pub fn new(settings: &CommonSettings) -> Self {
        let election = &settings.election;
        let elects = election.enabled && settings.mode == Mode::Control;
        let lease = || (election.namespace.clone(), election.lease.clone());
        Self { lease: elects.then(lease) }
    }

    /// Watches this Lease.
    pub fn named(namespace: &str, name: &str) -> Self {
        Self { lease: Some((namespace.to_owned(), name.to_owned())) }
    }

    /// Describes how a person approves another cloud.
    pub(super) fn remedy(&self) -> String {
        match &self.lease {
            Some((namespace, name)) => {
                format!("kubectl annotate lease -n {namespace} {name} {CLOUD_IDENTITY}-")
            }
            None => "restart this program".to_owned(),
        }
    }
}

/// Watches the cloud while this process leads.
pub struct Watch {
    same: SameCloud,
    events: EventRecorder,
    place: Where,
    /// The cloud that calls were made to last.
    last: Option<String>,
    /// True if anything was reported.
    is_announced: bool,
    /// The reported reason why calls are refused.
    reported: Option<String>,
    /// Since when the cloud does not report its identity.
    untold: Option<Instant>,
}

impl Watch {
    pub(super) fn new(same: SameCloud, events: &EventRecorder, place: &Where) -> Self {
        let (events, place) = (events.clone(), place.clone());
        Self { same, events, place, last: None, is_announced: false, reported: None, untold: None }
    }

    /// Shows the state until the token is cancelled.
    pub fn run(
        mut self,
        health: &Health,
        metrics: &Metrics,
        token: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let line = health.condition("cloud-identity", Scope::Information, "");
        let metrics = SameCloudMetrics::new(metrics);
        self.look(&line, &metrics);
        async move {
            while token.run_until_cancelled(sleep(LOOK)).await.is_some() {
                self.look(&line, &metrics);
            }
        }
    }

    fn look(&mut self, line: &Condition, metrics: &SameCloudMetrics) {
        let standing = self.same.standing();
        let since = *self.untold.get_or_insert_with(Instant::now);
        self.untold = (standing == Standing::Untold).then_some(since);
        let is_changed = match standing {
            Standing::Changed { .. } => true,
            Standing::Untold => since.elapsed() >= UNTOLD,
            _ => false,
        };
        metrics.changed.set(is_changed.into());
        let objection = self.same.objection(&standing);
        match &objection {
            Some(why) => {
                let refused = self.same.0.refused.load(Ordering::Relaxed);
                line.fail(format!("{why}; {refused} calls not made{}", self.approval()));
            }
            None => line.pass(format!("{}{}", shown(&standing), self.approval())),
        }
        match (standing, objection) {
            (standing, Some(why)) if is_changed => self.report_held(standing, why),
            // The cloud may report its identity in a moment.
            (_, Some(_)) => {}
            (standing, None) => self.report_free(standing.cloud()),
        }
    }

    /// Returns the state of an approval given ahead, for the line of health.
    fn approval(&self) -> String {
        match self.same.approval() {
            Ok(None) => String::new(),
            Ok(Some(until)) => {
                format!("; another one is approved until {until} ({APPROVED_UNTIL})")
            }
            Err(why) => format!("; {why}"),
        }
    }

    fn report_held(&mut self, standing: Standing, why: String) {
        if self.reported.as_ref() == Some(&why) {
            return;
        }
        if let Standing::Changed { before, .. } = standing {
            self.last = Some(before);
        }
        tracing::error!("{why}");
        self.record(EventKind::Warning, "CloudChanged", why.clone());
        self.reported = Some(why);
    }

    fn report_free(&mut self, cloud: Option<&str>) {
        let is_news = self.reported.take().is_some() || !self.is_announced;
        self.is_announced = true;
        let before = self.last.clone();
        self.last = cloud.map(str::to_owned).or(self.last.take());
        match (before, cloud) {
            (Some(before), Some(cloud)) if before != cloud => {
                let what = format!("another cloud is approved: it was {before:?}, it is {cloud:?}");
                tracing::warn!("{what}");
                self.record(EventKind::Normal, "CloudApproved", what);
            }
            _ if is_news => tracing::info!(cloud, "calls to the cloud are made"),
            _ => {}
        }
    }

    fn record(&self, kind: EventKind, reason: &'static str, what: String) {
        let Some((namespace, name)) = &self.place.lease else { return };
        let about = ObjectRef::lease(namespace, name);
        self.events.record(&about, kind, reason, what);
    }
}

fn shown(standing: &Standing) -> String {
    match standing.cloud() {
        Some(cloud) => format!("the cloud is the one that is recorded: {cloud:?}"),
        None => "the cloud does not report its identity; a change of it is not noticed".to_owned(),
    }
}
