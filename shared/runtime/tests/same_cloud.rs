//! The guard on a cloud that becomes another one.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_base::clock::Timeline;
use ccm_cloud::{
    Call, Capability, Cloud, CloudError, Detail, ErrorKind, Instances, NodeIdentity, Shortfall,
};
use ccm_kube::events::{EventMetrics, EventRecorder};
use ccm_runtime::{
    health::Health,
    leadership::{CLOUD_IDENTITY, Leadership},
    metrics::Metrics,
    same_cloud::{APPROVED_UNTIL, SameCloud, Where},
};
use ccm_sim::cloud::{SimCloud, SimInstance};
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const OTHER: &str = "sim, project other";

/// A cloud with one machine behind the guard, and what is shown of it.
struct Rig {
    cloud: SimCloud,
    leadership: Leadership,
    same: SameCloud,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
}

impl Rig {
    fn new(leadership: Leadership) -> Self {
        let cloud = SimCloud::new();
        cloud.add(SimInstance::new("a", "a"));
        Self::of(cloud, leadership)
    }

    fn of(cloud: SimCloud, leadership: Leadership) -> Self {
        let place = Where::named("kube-system", "service-ccm");
        let same = SameCloud::new(Arc::new(cloud.clone()), &leadership, &place);
        let (health, metrics, stop) = (Health::default(), Metrics::new(), CancellationToken::new());
        let events = EventRecorder::muted(EventMetrics::new(&metrics));
        let watch = same.watch(&events, &place).run(&health, &metrics, stop.clone());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
        tokio::spawn(watch);
        Self { cloud, leadership, same, health, metrics, stop }
    }

    /// Returns a process after this one.
    fn next(&self) -> Self {
        self.stop.cancel();
        Self::of(self.cloud.clone(), Leadership::unconditional().after(&self.leadership))
    }

    fn annotate(&self, key: &str, text: Option<&str>) {
        self.leadership.annotations().annotate(key, text);
    }

    /// Returns the result of a lookup, the metric, and whether the cloud is proven.
    async fn seen(&self) -> (Result<(), ErrorKind>, bool, bool) {
        sleep(Duration::from_secs(3)).await;
        let instances = self.same.guarded().instances().unwrap().unwrap();
        let asked = [NodeIdentity::named("a")];
        let call = Call::waiting(Duration::from_secs(10));
        let answers = instances.lookup(&asked, Detail::Everything, call).await;
        let listed = instances.list(call).await.map(drop);
        let answer = answers.into_iter().next().unwrap().map(drop);
        assert_eq!(answer, listed);
        let each = instances.lookup_each(&asked, Detail::Everything, call).next().await.unwrap();
        assert_eq!(answer, each.1.map(drop));
        let page = self.metrics.encode().unwrap();
        let is_changed = page.contains("ccm_cloud_identity_changed 1");
        (answer.map_err(|error| error.kind), is_changed, self.same.is_proven())
    }

    /// Returns the number of events, none of which was sent.
    fn events(&self) -> u32 {
        let page = self.metrics.encode().unwrap();
        let name = "ccm_events_dropped_total{reason=\"observing\"} ";
        page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
    }

    fn line(&self) -> String {
        let findings = self.health.findings();
        let found = findings.iter().find(|finding| finding.name == "cloud-identity").unwrap();
        let mark = if found.verdict.is_passed() { "[+]" } else { "[!]" };
        format!("{mark}{}", found.verdict.detail())
    }
}

const HELD: (Result<(), ErrorKind>, bool, bool) = (Err(ErrorKind::Unavailable), true, false);
const FREE: (Result<(), ErrorKind>, bool, bool) = (Ok(()), false, true);

#[tokio::test(start_paused = true)]
async fn no_call_reaches_another_cloud_until_a_person_approves_it() {
    let rig = Rig::new(Leadership::unconditional());
    assert_eq!(rig.seen().await, (Ok(()), false, false), "recorded, and not on the Lease yet");
    rig.annotate("quartet.dev/other", Some("a renewal"));
    assert_eq!(rig.seen().await, FREE);
    let before = rig.cloud.calls();

    rig.cloud.set_identity(Some(OTHER));
    assert_eq!(rig.seen().await, HELD);
    let line = rig.line();
    for part in [
        "[!]the cloud is another one",
        ccm_sim::cloud::IDENTITY,
        OTHER,
        "kubectl annotate lease -n kube-system service-ccm quartet.dev/cloud-identity-",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let rig = rig.next();
    assert_eq!(rig.seen().await, HELD, "the next process reads it from the Lease");
    assert_eq!(rig.cloud.calls(), before, "no call was made");

    rig.annotate(CLOUD_IDENTITY, None);
    assert!(rig.seen().await.0.is_ok());
    rig.annotate("quartet.dev/other", None);
    assert_eq!(rig.seen().await, FREE, "the other one is recorded");
    assert!(rig.line().starts_with("[+]"), "{}", rig.line());

    rig.cloud.set_identity(Some("a third"));
    assert_eq!(rig.seen().await, HELD);
    rig.annotate(CLOUD_IDENTITY, Some("a third"));
    assert_eq!(rig.seen().await, FREE, "named by a person");
}

#[tokio::test(start_paused = true)]
async fn planned_work_is_approved_ahead_for_a_time() {
    let rig = Rig::new(Leadership::unconditional());
    let timeline = Timeline::begin();
    let until = |time: Duration| (timeline.now() + time).to_string();
    rig.annotate(APPROVED_UNTIL, Some("tomorrow"));
    assert!(rig.seen().await.0.is_ok());
    assert!(rig.line().contains("\"tomorrow\" is not a time"), "{}", rig.line());
    rig.cloud.set_identity(Some(OTHER));
    assert_eq!(rig.seen().await, HELD, "an invalid text approves nothing");
    rig.annotate(APPROVED_UNTIL, Some(&until(Duration::from_hours(1))));
    assert!(rig.seen().await.0.is_ok());
    rig.annotate("quartet.dev/other", None);
    assert_eq!(rig.seen().await, FREE);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(rig.seen().await, FREE, "what was taken over stays");
    rig.cloud.set_identity(Some("a third"));
    assert_eq!(rig.seen().await, HELD, "the time is over");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_does_not_say_which_one_it_is_any_more_is_not_trusted() {
    let rig = Rig::new(Leadership::unconditional());
    assert!(rig.seen().await.0.is_ok());
    rig.cloud.set_identity(None);
    assert_eq!(rig.seen().await, (Err(ErrorKind::Unavailable), false, false), "not yet, perhaps");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(rig.seen().await, HELD);
    rig.cloud.set_identity(Some(ccm_sim::cloud::IDENTITY));
    assert!(rig.seen().await.0.is_ok());
    sleep(Duration::from_mins(3)).await;
    rig.cloud.set_identity(None);
    assert_eq!(rig.seen().await, (Err(ErrorKind::Unavailable), false, false), "silent again");

    let silent = SimCloud::new();
    silent.set_identity(None);
    let silent = Rig::of(silent, Leadership::unconditional());
    assert_eq!(silent.seen().await, (Ok(()), false, false), "a provider that cannot tell");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_new_connection_to_say_where_it_leads() {
    let rig = Rig::new(Leadership::unconditional());
    assert!(rig.seen().await.0.is_ok());
    for (identity, expect) in [(ccm_sim::cloud::IDENTITY, true), (OTHER, false)] {
        rig.cloud.set_identity(None);
        let instances = rig.same.guarded().instances().unwrap().unwrap();
        let mut listed = Box::pin(instances.list(Call::waiting(Duration::from_secs(10))));
        assert!(listed.as_mut().now_or_never().is_none());
        rig.cloud.set_identity(Some(identity));
        assert_eq!(listed.await.is_ok(), expect, "{identity}");
    }
}

/// A call that was under way is answered by the other cloud.
#[tokio::test(start_paused = true)]
async fn an_answer_of_another_cloud_is_not_used() {
    let rig = Rig::new(Leadership::unconditional());
    assert!(rig.seen().await.0.is_ok());
    let slow = ccm_sim::faults::FaultEffect::Latency(Duration::from_secs(5));
    rig.cloud.faults().add(ccm_sim::faults::Fault::new(slow));
    let instances = rig.same.guarded().instances().unwrap().unwrap();
    let nodes = [NodeIdentity::named("a")];
    let call = || Call::waiting(Duration::from_secs(20));
    let mut looked = instances.lookup_each(&nodes, Detail::Everything, call());
    let swap = async {
        sleep(Duration::from_secs(1)).await;
        rig.cloud.clear();
        rig.cloud.set_identity(Some(OTHER));
    };
    let (listed, answers, ()) = tokio::join!(instances.list(call()), looked.next(), swap);
    assert_eq!(listed.unwrap_err().kind, ErrorKind::Unavailable);
    let error = answers.unwrap().1.unwrap_err();
    assert!(error.kind == ErrorKind::Unavailable && error.maybe_done, "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_and_its_approval_are_an_event_each() {
    let rig = Rig::new(Leadership::unconditional());
    assert!(rig.seen().await.0.is_ok());
    rig.annotate("quartet.dev/other", Some("a renewal"));
    assert_eq!(rig.seen().await, FREE);
    assert_eq!(rig.events(), 0);
    rig.cloud.set_identity(Some(OTHER));
    sleep(Duration::from_mins(1)).await;
    assert_eq!(rig.events(), 1, "not one at each look");
    rig.annotate(CLOUD_IDENTITY, None);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(rig.events(), 2);
}

/// A cloud that tells more than it must.
struct Telling;

#[async_trait]
impl Cloud for Telling {
    fn name(&self) -> &'static str {
        "telling"
    }

    fn schemes(&self) -> Vec<String> {
        Vec::new()
    }

    fn why_foreign(&self, provider_id: &str) -> String {
        format!("{provider_id} is elsewhere")
    }

    fn why_not_offered(&self, capability: Capability) -> Option<String> {
        Some(format!("no {capability}"))
    }

    fn shortfalls(&self) -> Vec<Shortfall> {
        vec![Shortfall { capability: Capability::Routes, text: "no router".to_owned() }]
    }

    fn in_clear(&self) -> Option<String> {
        Some("all of it".to_owned())
    }

    fn instances(&self) -> Result<Option<Arc<dyn Instances>>, CloudError> {
        Ok(None)
    }

    async fn health(&self, _: Call) -> Result<(), CloudError> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_cloud_tells_passes_the_guard() {
    let (leadership, place) = (Leadership::unconditional(), Where::named("kube-system", "x"));
    let guarded = SameCloud::new(Arc::new(Telling), &leadership, &place).guarded();
    assert_eq!(guarded.why_foreign("x://1"), "x://1 is elsewhere");
    assert_eq!(
        guarded.why_not_offered(Capability::Routes),
        Telling.why_not_offered(Capability::Routes)
    );
    assert_eq!(guarded.shortfalls(), Telling.shortfalls());
    assert_eq!(guarded.in_clear(), Telling.in_clear());
}
