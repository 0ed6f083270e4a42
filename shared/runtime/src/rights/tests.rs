use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use super::*;
use crate::{
    health::{Finding, Health},
    metrics::Metrics,
    settings::sample::sample,
};

/// An API server that reviews permissions. It holds the denied permissions, the received requests,
/// and the status of a refused review, if it refuses.
#[derive(Default)]
struct Reviewer {
    denied: BTreeSet<String>,
    asked: Vec<String>,
    refuses: Option<u16>,
    hangs: bool,
}

type Shared = Arc<Mutex<Reviewer>>;

fn client(shared: &Shared) -> Client {
    let shared = Arc::clone(shared);
    let service = service_fn(move |request: Request<Body>| {
        let shared = Arc::clone(&shared);
        async move {
            assert_eq!(
                request.uri().path(),
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            );
            let body = request.into_body().collect_bytes().await?;
            if shared.lock().hangs {
                std::future::pending::<()>().await;
            }
            let (code, answer) = shared.lock().answer(&serde_json::from_slice(&body)?);
            let body = Full::new(Bytes::from(answer.to_string()));
            Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
        }
    });
    Client::new(service, "default")
}

impl Reviewer {
    fn answer(&mut self, review: &Value) -> (u16, Value) {
        let of = |part: &str| {
            review["spec"]["resourceAttributes"][part].as_str().unwrap_or("-").to_owned()
        };
        let asked = ["verb", "group", "resource", "subresource", "namespace", "name"].map(of);
        let asked = asked.join(" ");
        let allowed = !self.denied.contains(&asked);
        self.asked.push(asked);
        match self.refuses {
            Some(code) => (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code, "message": "not here"}),
            ),
            None => (201, json!({"spec": {}, "status": {"allowed": allowed}})),
        }
    }
}

/// A running review and its outputs.
struct Running {
    server: Shared,
    health: Health,
    metrics: Metrics,
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    /// Reviews four permissions against this server.
    fn start(server: Reviewer) -> Self {
        let (health, metrics) = (Health::default(), Metrics::new());
        let server = Shared::new(Mutex::new(server));
        let rights = vec![
            Right::new("list", "nodes"),
            Right::on_part("patch", "nodes", "status"),
            Right::new("create", "events").within("default"),
            Right {
                group: "coordination.k8s.io".into(),
                name: "node-ccm".into(),
                ..Right::new("get", "leases").within("kube-system")
            },
        ];
        let review = Review::new("node-ccm", rights, client(&server), &health, &metrics);
        let stop = CancellationToken::new();
        #[expect(clippy::disallowed_methods, reason = "the handle is kept and looked at")]
        let task = tokio::spawn(review.run(stop.clone()));
        Self { server, health, metrics, task, stop }
    }

    fn check(&self) -> Finding {
        self.health.findings().into_iter().find(|finding| finding.name == "rights").unwrap()
    }

    fn missing(&self) -> String {
        let page = self.metrics.encode().unwrap();
        let line = page.lines().find(|line| line.starts_with("ccm_missing_rights ")).unwrap();
        line.to_owned()
    }

    fn asked(&self) -> usize {
        self.server.lock().asked.len()
    }

    fn deny(&self, denied: &[&str]) {
        self.server.lock().denied = denied.iter().map(|text| (*text).to_owned()).collect();
    }
}

const STATUS: &str = "patch - nodes status - -";
const EVENTS: &str = "create - events - default -";
const LEASE: &str = "get coordination.k8s.io leases - kube-system node-ccm";

#[tokio::test(start_paused = true)]
async fn each_right_is_asked_for_once_when_all_are_granted() {
    let running = Running::start(Reviewer::default());
    assert!(!running.health.is_ready(), "not ready before the first review");
    sleep(Duration::from_mins(10)).await;
    assert!(running.task.is_finished(), "there is nothing more to ask");
    assert_eq!(running.server.lock().asked, ["list - nodes - - -", STATUS, EVENTS, LEASE]);
    assert!(running.health.is_ready());
    assert_eq!(running.check().verdict.detail(), "all 4 that are needed are granted");
    assert_eq!(running.missing(), "ccm_missing_rights 0");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named_and_asked_for_again_until_it_is_there() {
    let denied = [STATUS, LEASE].map(str::to_owned).into();
    let running = Running::start(Reviewer { denied, ..Reviewer::default() });
    sleep(Duration::from_secs(1)).await;
    assert!(!running.health.is_ready());
    let check = running.check();
    let start = "node-ccm may not patch nodes/status, nor get leases.coordination.k8s.io node-ccm \
                 in namespace kube-system; apply the roles";
    assert!(check.verdict.detail().starts_with(start), "{check:?}");
    assert_eq!((running.missing().as_str(), running.asked()), ("ccm_missing_rights 2", 4));

    running.deny(&[STATUS]);
    sleep(Duration::from_secs(30)).await;
    assert!(!running.health.is_ready());
    assert_eq!((running.missing().as_str(), running.asked()), ("ccm_missing_rights 1", 6));

    running.deny(&[]);
    sleep(Duration::from_secs(30)).await;
    assert!(running.health.is_ready());
    assert_eq!((running.missing().as_str(), running.asked()), ("ccm_missing_rights 0", 7));
    assert!(running.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_failed_review_does_not_make_a_replica_unready() {
    let check = async |refuses: Option<u16>, hangs: bool, ends: bool, detail: &str| {
        let running = Running::start(Reviewer { refuses, hangs, ..Reviewer::default() });
        sleep(Duration::from_secs(6)).await;
        let found = running.check();
        assert!(running.health.is_ready(), "{found:?}");
        assert!(found.verdict.detail().starts_with(detail), "{found:?}");
        assert_eq!(running.task.is_finished(), ends, "{found:?}");
        // A permission in unknown state is reviewed again, and then counts.
        {
            let mut server = running.server.lock();
            (server.refuses, server.hangs) = (None, false);
            server.denied = [EVENTS.to_owned()].into();
        }
        sleep(Duration::from_secs(40)).await;
        assert_eq!(running.health.is_ready(), ends);
    };
    check(Some(503), false, false, "not known yet, reviewed again every 30 s: unavailable").await;
    check(Some(401), false, false, "not known yet, reviewed again every 30 s: the API").await;
    check(None, true, false, "not known yet, reviewed again every 30 s: no response in time").await;
    let never = "not known: this API server does not review them: ";
    check(Some(403), false, true, never).await;
    check(Some(404), false, true, never).await;
    check(Some(405), false, true, never).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_a_later_review_does_not_hide_what_is_missing() {
    let denied = [STATUS.to_owned()].into();
    let running = Running::start(Reviewer { denied, ..Reviewer::default() });
    sleep(Duration::from_secs(1)).await;
    running.server.lock().refuses = Some(503);
    sleep(Duration::from_mins(2)).await;
    assert!(!running.health.is_ready(), "{:?}", running.check());
    assert_eq!(running.missing(), "ccm_missing_rights 1");
    // A server that temporarily refuses reviews does not end them either.
    running.server.lock().refuses = Some(403);
    sleep(Duration::from_mins(2)).await;
    assert!(!running.health.is_ready(), "{:?}", running.check());
    running.server.lock().refuses = None;
    running.deny(&[]);
    sleep(Duration::from_secs(31)).await;
    assert!(running.health.is_ready(), "{:?}", running.check());
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_the_process_ends() {
    let running = Running::start(Reviewer { hangs: true, ..Reviewer::default() });
    sleep(Duration::from_secs(1)).await;
    running.stop.cancel();
    timeout(Duration::from_secs(1), running.task).await.expect("it hangs").unwrap();
}

/// Returns the permissions of a program.
fn rights() -> Vec<Right> {
    vec![Right::new("list", "nodes"), Right::new("watch", "nodes")]
}

#[test]
fn an_observer_needs_to_read() {
    let own = [rights(), vec![Right::new("delete", "nodes")]].concat();
    let mut expect = rights();
    expect.push(of_rivals());
    assert_eq!(reads(own), expect);
}

#[test]
fn what_is_needed_follows_the_settings() {
    let check = |arguments: &[&str], expect: &[&str]| {
        let election = &sample(arguments, &[], None).unwrap().common.election;
        let needed: Vec<_> = needed(rights(), election).iter().map(ToString::to_string).collect();
        assert_eq!(needed, expect, "{arguments:?}");
    };
    let always = [
        "list nodes",
        "watch nodes",
        "create events in namespace default",
        "patch events in namespace default",
        "list leases.coordination.k8s.io in namespace kube-system",
    ];
    check(&["--leader-elect=false"], &always);
    let lease = |namespace: &str, name: &str| {
        let verb =
            |verb| format!("{verb} leases.coordination.k8s.io {name} in namespace {namespace}");
        // All Leases of kube-system may be listed.
        let verbs = ["get", "list", "watch", "update"].into_iter();
        let verbs = verbs.filter(|verb| namespace != "kube-system" || *verb != "list");
        let mut all: Vec<_> = verbs.map(verb).collect();
        all.push(format!("mark leases.quartet.dev {name} in namespace {namespace}"));
        all.push(format!("create leases.coordination.k8s.io in namespace {namespace}"));
        all
    };
    let check_lease = |arguments: &[&str], lease: &[String], events: &[&str]| {
        let lease = lease.iter().map(String::as_str);
        let all: Vec<_> = always.into_iter().chain(lease).chain(events.iter().copied()).collect();
        check(arguments, &all);
    };
    let events = ["create events in namespace kube-system"];
    check_lease(&[], &lease("kube-system", "node-ccm"), &events);
    let elsewhere =
        ["--leader-elect-resource-name=mine", "--leader-elect-resource-namespace=default"];
    check_lease(&elsewhere, &lease("default", "mine"), &[]);
}
