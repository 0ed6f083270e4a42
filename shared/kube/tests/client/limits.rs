//! The requests that wait for the limiter.

use std::{sync::Arc, time::Duration};

use ccm_kube::{
    ApiError,
    client::{ClientConfig, RequestClass, RequestLimiter},
};
use futures::future::{BoxFuture, FutureExt as _, pending};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, WatchParams},
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::support::{
    Served, TIMEOUT, answer, config, exposed, node_body, nodes, refusal, served_by,
};

/// A call to the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    Asked(RequestClass),
    Answered(RequestClass, Option<u16>, Option<Duration>),
}

/// Makes reads wait, and records all calls.
#[derive(Default)]
struct Notes {
    read_wait: Duration,
    noted: Mutex<Vec<Noted>>,
}

impl Notes {
    fn take(&self) -> Vec<Noted> {
        std::mem::take(&mut *self.noted.lock())
    }
}

impl RequestLimiter for Notes {
    fn admit(&self, class: RequestClass) -> BoxFuture<'static, ()> {
        self.noted.lock().push(Noted::Asked(class));
        let wait = if class == RequestClass::Read { self.read_wait } else { Duration::ZERO };
        async move {
            if !wait.is_zero() {
                sleep(wait).await;
            }
        }
        .boxed()
    }

    fn report_answer(
        &self,
        class: RequestClass,
        status: Option<u16>,
        retry_after: Option<Duration>,
    ) {
        self.noted.lock().push(Noted::Answered(class, status, retry_after));
    }
}

fn limited(read_wait: Duration) -> (Arc<Notes>, ClientConfig) {
    let notes = Arc::new(Notes { read_wait, ..Notes::default() });
    (Arc::clone(&notes), ClientConfig { limiter: notes, ..config() })
}

/// Reads wait 10 s each, side by side; a write on the same client does not wait at all.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_blocks_no_other() {
    let (_notes, config) = limited(Duration::from_secs(10));
    let clients = served_by(&config, |_request| async { Ok(answer(200, node_body("a"))) });
    let api = nodes(&clients.main);
    let started = Instant::now();
    let reads = async {
        let (a, b, c) = tokio::join!(api.get("a"), api.get("a"), api.get("a"));
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        started.elapsed()
    };
    let write = async {
        // Behind the reads in the client's queue.
        sleep(Duration::from_millis(100)).await;
        api.patch("a", &PatchParams::default(), &Patch::Merge(serde_json::json!({})))
            .await
            .unwrap();
        started.elapsed()
    };
    let (reads, write) = tokio::join!(reads, write);
    assert_eq!((reads.as_secs(), write.as_millis()), (10, 100));
    let text = exposed(&config);
    let wait =
        r#"rest_client_rate_limiter_duration_seconds_sum{verb="GET",host="127.0.0.1:80"} 30"#;
    assert!(text.contains(wait), "{text}");
    // Waiting does not count as server time.
    let sum = r#"rest_client_request_duration_seconds_sum{verb="GET",host="127.0.0.1:80"} 0"#;
    assert!(text.contains(sum), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_limiter_cannot_outlast_the_deadline() {
    let (notes, config) = limited(TIMEOUT * 10);
    let clients = served_by(&config, |_request| async { Ok(answer(200, node_body("a"))) });
    let started = Instant::now();
    assert_eq!(ApiError::from(nodes(&clients.main).get("a").await.unwrap_err()), ApiError::Timeout);
    assert_eq!(started.elapsed().as_secs(), TIMEOUT.as_secs());
    // It was never admitted, so there is no result to report.
    assert_eq!(notes.take(), [Noted::Asked(RequestClass::Read)]);
}

#[tokio::test(start_paused = true)]
async fn requests_pay_by_class_and_watches_and_leases_do_not() {
    let (notes, config) = limited(Duration::ZERO);
    let clients = served_by(&config, |_request| async { Ok(refusal(404, "NotFound", "no")) });
    let lease = clients.lease_client(tower::layer::util::Identity::new());
    let patch = Patch::Merge(serde_json::json!({}));
    let check = |what: &str, expect: Option<RequestClass>| {
        let expect: Vec<_> = expect
            .into_iter()
            .flat_map(|class| [Noted::Asked(class), Noted::Answered(class, Some(404), None)])
            .collect();
        assert_eq!(notes.take(), expect, "{what}");
    };
    let api = nodes(&clients.main);
    api.get("a").await.unwrap_err();
    check("get", Some(RequestClass::Read));
    api.delete("a", &DeleteParams::default()).await.unwrap_err();
    check("delete", Some(RequestClass::Write));
    nodes(&clients.watch).list(&ListParams::default()).await.unwrap_err();
    check("an informer's list", Some(RequestClass::Read));
    assert!(nodes(&clients.watch).watch(&WatchParams::default(), "1").await.is_err());
    check("watch", None);
    for client in [&clients.events, &clients.main] {
        let events: Api<Event> = Api::namespaced(client.clone(), "x");
        events.patch("e", &PatchParams::default(), &patch).await.unwrap_err();
        check("event", Some(RequestClass::Event));
    }
    let leases: Api<Lease> = Api::namespaced(lease, "kube-system");
    leases.get("node-ccm").await.unwrap_err();
    leases.patch("node-ccm", &PatchParams::default(), &patch).await.unwrap_err();
    check("lease", None);
    let leases: Api<Lease> = Api::namespaced(clients.main.clone(), "kube-system");
    leases.get("node-ccm").await.unwrap_err();
    check("lease by another client", None);
}

/// Each attempt is admitted and reported once: also without a response, also if cancelled.
#[tokio::test(start_paused = true)]
async fn each_attempt_pays_and_is_answered_for_once() {
    let (notes, config) = limited(Duration::ZERO);
    let count = crate::support::Count::default();
    let clients = served_by(&config, move |_request| {
        let attempt = count.next();
        async move {
            match attempt {
                1 => {
                    let mut response = refusal(429, "TooManyRequests", "");
                    response.headers_mut().insert("retry-after", "2".parse().unwrap());
                    Ok(response)
                }
                2 => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
                _ => pending::<Served>().await,
            }
        }
    });
    nodes(&clients.main).get("a").await.unwrap_err();
    let read = RequestClass::Read;
    let expect = [
        Noted::Asked(read),
        Noted::Answered(read, Some(429), Some(Duration::from_secs(2))),
        Noted::Asked(read),
        Noted::Answered(read, None, None),
        Noted::Asked(read),
        Noted::Answered(read, None, None),
    ];
    assert_eq!(notes.take(), expect);
}
