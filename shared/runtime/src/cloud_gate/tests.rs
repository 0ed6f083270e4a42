use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::sleep;

use super::*;
use crate::limits::{Rate, Rates};

const LIST: CallClass = CallClass::read("compute", "list_servers");
const SHOW: CallClass = CallClass::read("compute", "show_server");
const CREATE: CallClass = CallClass::write_once("compute", "create_server");
const PORTS: CallClass = CallClass::read("network", "list_ports");

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn call(millis: u64) -> Call {
    Call::waiting(ms(millis))
}

fn gate(per_second: f64, burst: u32) -> (CloudGate, Metrics) {
    guarded_gate(per_second, burst, None)
}

fn guarded_gate(per_second: f64, burst: u32, guard: Option<WriteGuard>) -> (CloudGate, Metrics) {
    let metrics = Metrics::new();
    let rate = Rate::new(per_second, burst);
    let limits = Limits::new(Rates::each(rate), &metrics);
    (CloudGate::new(limits, &metrics, guard), metrics)
}

/// Builds the guard as the process does ([`crate::program`]).
#[tokio::test(start_paused = true)]
async fn an_observer_sends_no_write() {
    let leadership = crate::leadership::Leadership::observer();
    let guard: WriteGuard = Box::new(move || {
        leadership.check_cloud_write().map(|term| term.number).map_err(|lost| lost.to_string())
    });
    let (gate, metrics) = guarded_gate(10.0, 10, Some(guard));
    drop(gate.admit(LIST, call(1000)).await.unwrap());
    let error = gate.admit(CREATE, call(1000)).await.unwrap_err();
    let expect =
        "unavailable: compute create_server not sent: this process only observes (--mode=observe)";
    assert_eq!(error.to_string(), expect);
    let refused = "ccm_cloud_requests_refused_total{api=\"compute\",reason=\"leadership\"} 1";
    let page = metrics.encode().unwrap();
    assert!(page.contains(refused), "{page}");
}

fn report(error: Option<ErrorKind>, retry_after: Option<Duration>) -> CallReport {
    CallReport { error, retry_after, took: ms(200) }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_its_turn_within_its_time() {
    let (gate, _) = gate(10.0, 1);
    let began = Instant::now();
    drop(gate.admit(LIST, call(1000)).await.unwrap());
    drop(gate.admit(SHOW, call(1000)).await.unwrap());
    assert!(
        (100..105).contains(&began.elapsed().as_millis()),
        "one bucket for the reads of a service"
    );
    drop(gate.admit(PORTS, call(0)).await.unwrap());
    drop(gate.admit(CREATE, call(0)).await.unwrap());
    assert!(began.elapsed() < ms(105), "another service and writes have their own");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_admitted_in_time_fails_at_once() {
    let (gate, metrics) = gate(0.1, 1);
    drop(gate.admit(LIST, call(1000)).await.unwrap());
    let began = Instant::now();
    let error = gate.admit(LIST, call(5000)).await.unwrap_err();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(
        error.to_string(),
        "throttled: compute list_servers not sent: the rate limit of reads, now 0.1 requests/s, does not admit it within its 5 s"
    );
    assert_eq!(error.retry_after, None);
    let text = metrics.encode().unwrap();
    assert!(
        text.contains(r#"ccm_cloud_requests_refused_total{api="compute",reason="rate_limit"} 1"#),
        "{text}"
    );
    assert!(
        !text.contains("ccm_cloud_requests_total{"),
        "what was not sent is not counted as sent: {text}"
    );
    drop(gate.admit(LIST, Call::waiting(Duration::MAX)).await.unwrap());
    assert!((10_000..10_010).contains(&began.elapsed().as_millis()));
}

#[tokio::test(start_paused = true)]
async fn retry_after_closes_the_bucket_of_that_service_alone() {
    let (gate, metrics) = gate(100.0, 100);
    gate.report(LIST, report(Some(ErrorKind::Throttled), Some(ms(30_000))));
    let error = gate.admit(SHOW, call(10_000)).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after), (ErrorKind::Throttled, Some(ms(30_000))));
    assert_eq!(
        error.message,
        "compute show_server not sent: the Retry-After pause of reads lasts longer than the 10 s left for the call"
    );
    drop(gate.admit(PORTS, call(0)).await.unwrap());
    let began = Instant::now();
    drop(gate.admit(SHOW, call(31_000)).await.unwrap());
    assert_eq!(began.elapsed(), ms(30_000));
    assert_eq!(gate.shared.limits.bucket("compute", RequestClass::Read).in_force(), Some(50.0));
    assert_eq!(gate.shared.limits.bucket("network", RequestClass::Read).in_force(), Some(100.0));
    let text = metrics.encode().unwrap();
    assert!(
        text.contains(r#"ccm_cloud_requests_refused_total{api="compute",reason="closed"} 1"#),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn only_answers_that_are_no_complaint_restore_the_rate() {
    for (error, grows) in [
        (None, true),
        (Some(ErrorKind::NotFound), true),
        (Some(ErrorKind::Conflict), true),
        (Some(ErrorKind::Timeout), false),
        (Some(ErrorKind::Unavailable), false),
    ] {
        let (gate, _) = gate(100.0, 1);
        gate.report(LIST, report(Some(ErrorKind::Throttled), None));
        sleep(ms(5000)).await;
        gate.report(LIST, report(error, None));
        let rate = gate.shared.limits.bucket("compute", RequestClass::Read).in_force().unwrap();
        assert_eq!(rate > 50.0, grows, "{error:?}: {rate}");
    }
}

#[tokio::test(start_paused = true)]
async fn services_report_when_they_last_answered() {
    let (gate, _) = gate(0.0, 1);
    assert_eq!(gate.verdict(), Verdict::Passed("not called yet".to_owned()));
    gate.report(PORTS, report(Some(ErrorKind::Unauthorized), None));
    sleep(ms(7000)).await;
    gate.report(LIST, report(None, None));
    let expect = "compute last success 0 s ago; network last success never, last failure 7 s ago: unauthorized, list_ports refused 7 s ago: unauthorized";
    assert_eq!(gate.verdict(), Verdict::Failed(expect.to_owned()));
    sleep(ms(1000)).await;
    gate.report(CREATE, report(Some(ErrorKind::QuotaExceeded), None));
    gate.report(PORTS, report(Some(ErrorKind::NotFound), None));
    let failing = "compute last success 1 s ago, last failure 0 s ago: quota_exceeded";
    let verdict = gate.verdict();
    assert!(!verdict.is_passed() && verdict.detail().starts_with(failing), "{verdict:?}");
    gate.report(SHOW, report(Some(ErrorKind::NotFound), None));
    assert!(gate.verdict().is_passed(), "{:?}", gate.verdict());
}

#[tokio::test(start_paused = true)]
async fn metrics_count_what_was_sent() {
    let (gate, metrics) = gate(10.0, 1);
    drop(gate.admit(LIST, call(1000)).await.unwrap());
    gate.report(LIST, report(None, None));
    drop(gate.admit(LIST, call(1000)).await.unwrap());
    for kind in ErrorKind::ALL.iter().copied() {
        gate.report(LIST, report(Some(kind), None));
    }
    let text = metrics.encode().unwrap();
    let all = ErrorKind::ALL.len() + 1;
    let mut lines = vec![
        r#"ccm_cloud_requests_total{api="compute",operation="list_servers",result="success"} 1"#.to_owned(),
        format!(r#"ccm_cloud_request_duration_seconds_count{{api="compute",operation="list_servers"}} {all}"#),
        format!(r#"ccm_cloud_request_duration_seconds_bucket{{le="0.25",api="compute",operation="list_servers"}} {all}"#),
        r#"ccm_cloud_request_duration_seconds_bucket{le="0.1",api="compute",operation="list_servers"} 0"#.to_owned(),
        r#"ccm_cloud_limiter_wait_seconds_count{api="compute"} 2"#.to_owned(),
        r#"ccm_cloud_limiter_wait_seconds_bucket{le="0.1",api="compute"} 1"#.to_owned(),
    ];
    lines.extend(ErrorKind::ALL.iter().map(|kind| {
        format!(r#"ccm_cloud_requests_total{{api="compute",operation="list_servers",result="{kind}"}} 1"#)
    }));
    for line in lines {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_need_the_guard_before_and_after_the_wait() {
    let leads = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&leads);
    let guard: WriteGuard = Box::new(move || {
        asked.load(Ordering::Relaxed).then_some(Some(7)).ok_or("the term has ended".to_owned())
    });
    let (gate, metrics) = guarded_gate(10.0, 1, Some(guard));
    drop(gate.admit(CREATE, call(1000)).await.unwrap());
    let end = async {
        sleep(ms(50)).await;
        leads.store(false, Ordering::Relaxed);
    };
    let (during, ()) = tokio::join!(gate.admit(CREATE, call(1000)), end);
    assert_eq!(
        during.unwrap_err().to_string(),
        "unavailable: compute create_server not sent: the term has ended"
    );
    let began = Instant::now();
    assert!(gate.admit(CREATE, call(1000)).await.is_err());
    assert_eq!(began.elapsed(), Duration::ZERO, "it does not wait first");
    drop(gate.admit(LIST, call(0)).await.unwrap());
    let text = metrics.encode().unwrap();
    assert!(
        text.contains(r#"ccm_cloud_requests_refused_total{api="compute",reason="leadership"} 2"#),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn errors_are_shown_before_the_first_one() {
    let (gate, metrics) = gate(10.0, 10);
    gate.report(LIST, report(None, None));
    let text = metrics.encode().unwrap();
    let series = |result: &str, value: u32| {
        format!(
            r#"ccm_cloud_requests_total{{api="compute",operation="list_servers",result="{result}"}} {value}"#
        )
    };
    for series in [series("success", 1), series("throttled", 0), series("unauthorized", 0)] {
        assert!(text.contains(&series), "{series} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_carries_its_term_and_a_read_none() {
    let guard: WriteGuard = Box::new(|| Ok(Some(7)));
    let (gate, _) = guarded_gate(10.0, 10, Some(guard));
    assert_eq!(gate.admit(CREATE, call(1000)).await.unwrap().term, Some(7));
    assert_eq!(gate.admit(LIST, call(1000)).await.unwrap().term, None);
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_writes_under_way_and_lets_none_begin() {
    let began = Instant::now();
    let (idle, _) = gate(10.0, 10);
    idle.end_writes().await;
    assert_eq!(began.elapsed(), Duration::ZERO, "no write is under way");

    let (gate, _) = gate(10.0, 10);
    let answered = gate.admit(CREATE, call(30_000)).await.unwrap();
    let lost = gate.admit(CREATE, call(20_000)).await.unwrap();
    let read = gate.admit(LIST, call(60_000)).await.unwrap();
    let answer = async {
        sleep(ms(5_000)).await;
        answered.finish();
        let error = gate.admit(CREATE, call(1000)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "unavailable: compute create_server not sent: the process is shutting down"
        );
        drop(gate.admit(LIST, call(1000)).await.unwrap());
    };
    tokio::join!(gate.end_writes(), answer);
    // This is the longest time limit of the writes, because one is never answered.
    assert_eq!(began.elapsed(), ms(30_000));
    drop((lost, read));
    gate.end_writes().await;
    assert_eq!(began.elapsed(), ms(30_000));
}

/// A worker that is cancelled drops the call that it waits for. The cloud may still carry it out.
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_the_time_limit_of_a_write_that_was_cancelled() {
    let (gate, _) = gate(10.0, 10);
    let began = Instant::now();
    let write = async {
        let permit = gate.admit(CREATE, call(30_000)).await.unwrap();
        sleep(ms(10_000)).await;
        permit.finish();
    };
    tokio::time::timeout(ms(2_000), write).await.unwrap_err();
    gate.end_writes().await;
    assert_eq!(began.elapsed(), ms(30_000));
}

/// A successful request for many items does not fail because some of them fail.
#[tokio::test(start_paused = true)]
async fn items_that_fail_are_counted_and_shown_and_are_no_failure_of_the_service() {
    let (gate, metrics) = gate(10.0, 10);
    gate.report(LIST, report(None, None));
    gate.items(LIST, &[None, Some(ErrorKind::Busy), Some(ErrorKind::Pending)]);
    assert!(gate.items_verdict().is_passed(), "the cloud is at work");
    let unauthorized = Some(ErrorKind::Unauthorized);
    gate.items(LIST, &[None, unauthorized, Some(ErrorKind::QuotaExceeded), unauthorized]);
    sleep(ms(7000)).await;
    let expect = "list_servers: 3 of 4 failed 7 s ago: quota_exceeded 1, unauthorized 2";
    assert_eq!(gate.items_verdict(), Verdict::Failed(expect.to_owned()));
    assert!(gate.verdict().is_passed());
    let text = metrics.encode().unwrap();
    for (result, count) in
        [("success", 2), ("busy", 1), ("pending", 1), ("unauthorized", 2), ("conflict", 0)]
    {
        let line = format!(
            r#"ccm_cloud_items_total{{api="compute",operation="list_servers",result="{result}"}} {count}"#
        );
        assert!(text.contains(&line), "{line} in\n{text}");
    }
    sleep(SHOWN).await;
    assert!(gate.items_verdict().is_passed(), "each would have been repeated");
}

/// Successful operations of a service do not hide that another one is refused each time.
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_refused_is_shown_while_others_succeed() {
    let (gate, _) = gate(10.0, 10);
    gate.report(CREATE, report(Some(ErrorKind::Unauthorized), None));
    sleep(ms(2000)).await;
    gate.report(LIST, report(None, None));
    sleep(ms(5000)).await;
    let line = "compute last success 5 s ago, last failure 7 s ago: unauthorized, create_server refused 7 s ago: unauthorized";
    assert_eq!(gate.verdict(), Verdict::Failed(line.to_owned()));
    gate.report(CREATE, report(Some(ErrorKind::Busy), None));
    gate.report(LIST, report(None, None));
    assert!(!gate.verdict().is_passed(), "busy says nothing about credentials");
    gate.report(CREATE, report(None, None));
    assert!(gate.verdict().is_passed(), "{:?}", gate.verdict());
    gate.report(CREATE, report(Some(ErrorKind::Forbidden), None));
    gate.report(LIST, report(None, None));
    assert!(!gate.verdict().is_passed());
    sleep(SHOWN).await;
    assert!(gate.verdict().is_passed(), "it would have been repeated");
}
