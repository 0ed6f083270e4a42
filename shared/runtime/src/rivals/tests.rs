use std::{slice, sync::Arc};

use bytes::Bytes;
use ccm_kube::events::EventMetrics;
use ccm_testing::Log;
use http::{Request, Response};
use http_body_util::Full;
use jiff::Timestamp;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use tower::{BoxError, service_fn};

use super::{decide::RivalsVerdict, *};
use crate::{health, programs, settings::sample::sample};

/// Returns the holder of a Lease of this program.
fn holder(program: &str) -> String {
    format!("host-1_{program}_00000000-0000-4000-8000-000000000000")
}

fn lease(name: &str, holder: &str) -> SeenLease {
    SeenLease {
        name: name.to_owned(),
        holder: holder.to_owned(),
        renewed: "1".to_owned(),
        acquired: None,
        may_live: true,
        is_held: false,
    }
}

fn own() -> Own {
    Own {
        program: "node-ccm",
        work: "cloud-node",
        lease: Some("node-ccm".to_owned()),
        allows_others: true,
    }
}

#[test]
fn only_other_programs_that_do_the_same_work_are_rivals() {
    for (name, holder, is_rival) in [
        ("cloud-controller-manager", "cp-1_5d0c".to_owned(), true),
        ("openstack-cloud-controller-manager", "cp-1_5d0c".to_owned(), true),
        ("rke2-cloud-controller-manager", "cp-1_5d0c".to_owned(), true),
        ("kube-controller-manager", "cp-1_5d0c".to_owned(), false),
        ("cloud-controller-manager-operator", "cp-1_5d0c".to_owned(), false),
        ("cloud-controller-manager", String::new(), false),
        ("node-ccm", holder("node-ccm"), false),
        ("node-ccm-2", holder("node-ccm"), true),
        ("route-ccm", holder("route-ccm"), false),
        // It took over the Lease of the Go program.
        ("cloud-controller-manager", holder("service-ccm"), false),
    ] {
        assert_eq!(own().is_rival(&lease(name, &holder)), is_rival, "{name} {holder}");
    }
    let renamed = Own { lease: Some("cloud-controller-manager".to_owned()), ..own() };
    assert!(!renamed.is_rival(&lease("cloud-controller-manager", "cp-1_5d0c")), "our own Lease");
    assert!(Own { lease: None, ..own() }.is_rival(&lease("node-ccm", &holder("node-ccm"))));
}

#[test]
fn a_lease_that_is_not_renewed_is_nobodys() {
    let before = [lease("cloud-controller-manager", "cp-1_5d0c")];
    assert_eq!(rivals(&own(), &before, &before), []);
    assert_eq!(rivals(&own(), &[], &before), [], "seen once");
    let after = [SeenLease { renewed: "2".to_owned(), ..before[0].clone() }];
    let found = rivals(&own(), &before, &after);
    let text: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["cp-1_5d0c renews the Lease cloud-controller-manager"]);
}

/// Returns the verdict about the holders of Leases that are renewed.
fn judged(mode: Mode, leases: &[SeenLease]) -> RivalsVerdict {
    let after: Vec<_> =
        leases.iter().map(|lease| SeenLease { renewed: "2".to_owned(), ..lease.clone() }).collect();
    decide::verdict(&own(), mode, &rivals(&own(), leases, &after))
}

#[test]
fn the_same_program_under_another_lease_is_named_and_not_counted() {
    let same = lease("node-ccm-2", &holder("node-ccm"));
    let go = lease("cloud-controller-manager", "cp-1_5d0c");
    assert_eq!(judged(Mode::Control, &[]), RivalsVerdict { count: 0, text: None });
    let RivalsVerdict { count, text } = judged(Mode::Control, slice::from_ref(&same));
    assert_eq!(count, 0, "two may divide nodes");
    let text = text.unwrap();
    assert!(text.starts_with("another node-ccm leads: ") && text.contains("node-ccm-2;"), "{text}");
    let RivalsVerdict { count, text } = judged(Mode::Control, &[same.clone(), go.clone()]);
    assert_eq!(count, 1);
    let text = text.unwrap();
    let what = "another cloud controller runs: cp-1_5d0c renews the Lease cloud-controller-manager; switch cloud-node off there, or end it (docs/explanation/leadership.md, Rivals). Also another node-ccm leads: ";
    assert!(text.starts_with(what), "{text}");
    let RivalsVerdict { count, text } = judged(Mode::Observe, &[same, go]);
    assert_eq!(count, 0, "an observer writes nothing that another one could undo");
    assert!(text.unwrap().contains("; this process only observes"));
}

#[test]
fn a_second_leader_is_a_fault_unless_it_is_allowed() {
    let same = lease("node-ccm-2", &holder("node-ccm"));
    let alone = Own { allows_others: false, ..own() };
    let after = [SeenLease { renewed: "2".to_owned(), ..same.clone() }];
    let found = rivals(&alone, &[same], &after);
    let RivalsVerdict { count, text } = decide::verdict(&alone, Mode::Control, &found);
    assert_eq!(count, 1);
    assert!(text.unwrap().contains("node-ccm-2; end one of the two, or set --allow-other-leaders"));
    assert_eq!(decide::verdict(&alone, Mode::Observe, &found).count, 0);
}

/// Of two leaders that see each other exactly one yields, with any content of their Leases.
#[test]
fn the_leader_that_led_first_stays() {
    let second = |at: i64| Some(Timestamp::from_second(at).unwrap());
    let leases = |[first, other]: [Option<Timestamp>; 2]| {
        let one = SeenLease { acquired: first, ..lease("node-ccm", &holder("node-ccm")) };
        let two = SeenLease { acquired: other, ..lease("node-ccm-2", &holder("node-ccm")) };
        [one, two]
    };
    let yields = |of: &Own, after: &[SeenLease]| {
        let before: Vec<_> =
            after.iter().map(|it| SeenLease { renewed: String::new(), ..it.clone() }).collect();
        yields_to(of, after, &rivals(of, &before, after)).map(|rival| rival.lease.clone())
    };
    let mine = Own { allows_others: false, ..own() };
    let theirs = Own { lease: Some("node-ccm-2".to_owned()), ..own() };
    let theirs = Own { allows_others: false, ..theirs };
    for (acquired, stays) in [
        ([second(1), second(2)], "node-ccm"),
        ([second(2), second(1)], "node-ccm-2"),
        ([second(1), second(1)], "node-ccm"),
        ([None, second(1)], "node-ccm"),
        ([None, None], "node-ccm"),
    ] {
        let all = leases(acquired);
        let ends: Vec<_> =
            [yields(&mine, &all), yields(&theirs, &all)].into_iter().flatten().collect();
        assert_eq!(ends, [stays], "{acquired:?}");
    }
    let all = leases([second(1), second(2)]);
    let elsewhere = Own { lease: None, ..Own { allows_others: false, ..own() } };
    assert_eq!(yields(&elsewhere, &all[1..]).as_deref(), Some("node-ccm-2"), "it is not seen");
    assert_eq!(yields(&Own { allows_others: true, ..theirs }, &all), None);
    let go = lease("cloud-controller-manager", "cp-1_5d0c");
    assert_eq!(yields(&mine, &[go]), None, "the other one may do other work");
}

/// The Lease of a program that was killed long ago does not cost a second look.
#[test]
fn a_lease_that_nobody_has_renewed_for_long_is_nobodys() {
    let hours = |ago: i64| {
        let time = clock::wall() - SignedDuration::from_hours(ago);
        let spec = json!({"holderIdentity": holder("node-ccm"), "renewTime": MicroTime(time)});
        let lease = json!({"metadata": {"name": "old"}, "spec": spec});
        own().is_rival(&seen(serde_json::from_value(lease).unwrap()))
    };
    assert_eq!([hours(0), hours(-3), hours(2)], [true, true, false]);
}

/// A leader that was stopped for a while leads again when it continues, unless its term is over.
#[test]
fn a_leader_that_pauses_within_its_term_is_a_rival() {
    let seconds = |ago: i64| {
        let time = clock::wall() - SignedDuration::from_secs(ago);
        let spec = json!({"holderIdentity": holder("node-ccm"), "renewTime": MicroTime(time), "leaseDurationSeconds": 120});
        let lease = json!({"metadata": {"name": "long"}, "spec": spec});
        let leases = [seen(serde_json::from_value(lease).unwrap())];
        rivals(&own(), &leases, &leases).len()
    };
    assert_eq!([seconds(60), seconds(180)], [1, 0]);
}

/// An API server with one Lease.
struct Server {
    name: &'static str,
    holder: String,
    /// True if it is renewed.
    lives: bool,
    lists: usize,
    status: u16,
}

struct Running {
    server: Arc<Mutex<Server>>,
    health: Health,
    metrics: Metrics,
    task: JoinSet<()>,
}

/// Returns a program beside a Go program.
fn run(mode: Mode) -> Running {
    let go = ("cloud-controller-manager", "cp-1_5d0c".to_owned());
    beside(go, mode, |survey| async { drop(survey.run().await) })
}

/// Returns a program beside the holder of a Lease, which is renewed.
fn beside<F: Future<Output = ()> + Send + 'static>(
    (name, holder): (&'static str, String),
    mode: Mode,
    act: impl FnOnce(Survey) -> F,
) -> Running {
    let server = Server { name, holder, lives: true, lists: 0, status: 200 };
    let server = Arc::new(Mutex::new(server));
    let (shared, start) = (Arc::clone(&server), Instant::now());
    let service = service_fn(move |request: Request<Body>| {
        assert_eq!(
            request.uri().path(),
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        );
        let mut server = shared.lock();
        server.lists += 1;
        let seconds = if server.lives { start.elapsed().as_secs() } else { 0 };
        let (hours, minutes) = (seconds / 3600, seconds % 3600 / 60);
        let renewed = format!("2126-11-27T{hours:02}:{minutes:02}:{:02}.000000Z", seconds % 60);
        let lease = json!({
            "metadata": {"name": server.name, "namespace": "kube-system"},
            "spec": {"holderIdentity": server.holder, "renewTime": renewed},
        });
        let body: Value = match server.status {
            200 => {
                json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {}, "items": [lease]})
            }
            code => {
                json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "Forbidden"})
            }
        };
        let answer = Response::builder().status(server.status);
        let answer = answer.body(Full::new(Bytes::from(body.to_string())));
        async move { Ok::<_, BoxError>(answer?) }
    });
    let (health, metrics) = (Health::default(), Metrics::new());
    let events = EventRecorder::muted(EventMetrics::default());
    let settings = sample(&[], &[], None).unwrap().common.election.clone();
    let client = Client::new(service, "default");
    let parts = (&health, &metrics);
    let clock = Box::new(|| None);
    let survey = Survey::new(&programs::NODE_CCM, (&settings, mode), client, &events, parts, clock);
    let mut task = JoinSet::new();
    task.spawn(act(survey));
    Running { server, health, metrics, task }
}

impl Running {
    fn verdict(&self) -> health::Verdict {
        let findings = self.health.findings();
        findings.into_iter().find(|finding| finding.name == "rivals").unwrap().verdict
    }

    fn gauge(&self) -> String {
        let text = self.metrics.encode().unwrap();
        text.lines().find_map(|line| line.strip_prefix("ccm_rivals ")).unwrap().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_rival_is_seen_at_the_start_and_told_once() {
    let log = Log::new();
    let _listening = log.listen(tracing::Level::WARN);
    let running = run(Mode::Control);
    sleep(LOOK + Duration::from_secs(1)).await;
    let verdict = running.verdict();
    assert!(!verdict.is_passed() && verdict.detail().contains("renews the Lease"), "{verdict:?}");
    assert_eq!(running.gauge(), "1");
    sleep(Duration::from_hours(2)).await;
    let told = log.text();
    assert_eq!(told.matches("another cloud controller runs").count(), 1, "{told}");

    running.server.lock().lives = false;
    sleep(PERIOD * 2).await;
    assert!(running.verdict().is_passed(), "{:?}", running.verdict());
    assert_eq!(running.gauge(), "0");
    let before = running.server.lock().lists;
    sleep(Duration::from_hours(10)).await;
    let looks = running.server.lock().lists - before;
    assert!((216..=220).contains(&looks), "{looks} in ten hours");
}

#[tokio::test(start_paused = true)]
async fn an_observer_has_no_rival_and_a_missing_right_is_said() {
    let running = run(Mode::Observe);
    sleep(LOOK * 2).await;
    let verdict = running.verdict();
    assert!(verdict.is_passed() && verdict.detail().contains("cp-1_5d0c"), "{verdict:?}");
    assert_eq!(running.gauge(), "0");
    running.server.lock().status = 403;
    sleep(PERIOD * 2).await;
    let verdict = running.verdict();
    assert!(!verdict.is_passed() && verdict.detail().contains("forbidden"), "{verdict:?}");
}

#[tokio::test(start_paused = true)]
async fn a_program_does_not_lead_while_another_one_of_its_kind_leads() {
    let second = ("node-ccm-2", holder("node-ccm"));
    let mut running =
        beside(second, Mode::Control, |mut survey| async move { survey.wait_alone().await });
    sleep(Duration::from_hours(1)).await;
    assert!(running.task.try_join_next().is_none(), "it waits");
    let verdict = running.verdict();
    assert!(!verdict.is_passed(), "{verdict:?}");
    assert!(
        verdict
            .detail()
            .contains("waits, and does not compete for its Lease: another node-ccm leads"),
        "{verdict:?}"
    );
    assert_eq!(running.gauge(), "1");
    running.server.lock().lives = false;
    sleep(LOOK * 3).await;
    assert!(running.task.try_join_next().is_some(), "it goes on");
    assert!(running.verdict().is_passed(), "{:?}", running.verdict());
    assert_eq!(running.gauge(), "0");
}

#[tokio::test(start_paused = true)]
async fn a_program_does_not_wait_for_what_is_not_a_leader_of_its_kind() {
    let kinds = [
        ("cloud-controller-manager", "cp-1_5d0c".to_owned(), 200, Mode::Control),
        ("node-ccm-2", holder("node-ccm"), 403, Mode::Control),
        ("node-ccm-2", holder("node-ccm"), 200, Mode::Observe),
    ];
    for (name, holder, status, mode) in kinds {
        let mut running =
            beside((name, holder), mode, |mut survey| async move { survey.wait_alone().await });
        running.server.lock().status = status;
        sleep(Duration::from_secs(1)).await;
        assert!(running.task.try_join_next().is_some(), "{name} {status} {mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_leader_ends() {
    let second = ("node-ccm-2", holder("node-ccm"));
    let reason = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&reason);
    let _running = beside(second, Mode::Control, |survey| async move {
        *seen.lock() = survey.run().await;
    });
    sleep(LOOK + Duration::from_secs(1)).await;
    let reason = reason.lock().clone();
    assert!(
        reason.starts_with("another node-ccm leads, and began earlier: host-1_node-ccm"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_told_once_until_it_is_right_again() {
    let seconds = Arc::new(Mutex::new(None));
    let clock = Arc::clone(&seconds);
    let told = Arc::new(Mutex::new(Vec::new()));
    let news = Arc::clone(&told);
    let go = ("cloud-controller-manager", "cp-1_5d0c".to_owned());
    let _running = beside(go, Mode::Control, |mut survey| async move {
        survey.clock = Box::new(move || clock.lock().map(|by: u32| format!("{by} s behind")));
        for by in [None, Some(20), Some(21), None, Some(30)] {
            *seconds.lock() = by;
            news.lock().push(survey.clock_news());
        }
    });
    sleep(Duration::from_secs(1)).await;
    let expect = [None, Some("20 s behind"), None, None, Some("30 s behind")];
    assert_eq!(*told.lock(), expect.map(|text| text.map(str::to_owned)));
}
