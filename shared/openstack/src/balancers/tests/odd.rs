//! Tests answers and rows that are not as they should be.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use ccm_cloud::{
    CloudError, Depth, ErrorKind, LoadBalancers as _, Phase, Progress, Protocol, Scope,
};
use ccm_openstack_client::{api::Answer, scripted};
use serde_json::{Value, json};

use super::rig::{Rig, annotated, call, changed, cluster, members, port, wanted};

/// Bodies of answers that say 200.
const BODIES: [&str; 5] =
    ["<html><title>Sign in</title></html>", "{\"loadbalancers\": [{\"id\"", "{}", "null", ""];

/// Returns true if the client sees that this is not an answer to a write.
fn is_seen(body: &str) -> bool {
    body.starts_with('<') || body.ends_with("id\"")
}

/// Answers the request of this number with this body.
fn spoil(rig: &Rig, number: usize, body: &'static str) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    rig.cloud.fail(move |_, _| {
        let is_it = count.fetch_add(1, Ordering::Relaxed) == number;
        let answer = Answer { body: Bytes::from(body), ..scripted::answer(200, &json!(null)) };
        is_it.then_some(Ok(answer))
    });
    rig.cloud.refuse(move |request| {
        let is_it = counted.load(Ordering::Relaxed) == number + 1;
        let error = || CloudError::new(ErrorKind::Malformed, "no JSON").that_may_be_done();
        (is_it && request.method != http::Method::GET && is_seen(body)).then(error)
    });
}

/// Each request of a creation, a change and a deletion gets a wrong answer once: the call reports
/// it, and in the end the result is the same as without it.
#[tokio::test]
async fn a_page_instead_of_an_answer_loses_nothing() {
    for body in BODIES {
        for number in 0..14 {
            let rig = Rig::new();
            let web = annotated(&wanted("web"), "enable-health-monitor", "true");
            let more = changed(&web, |it| it.ports.push(port(53, Protocol::Udp)));
            for state in [&web, &more] {
                spoil(&rig, number, body);
                let mut calls = 0;
                loop {
                    calls += 1;
                    assert!(calls < 40, "{body:?} instead of answer {number}");
                    match rig.ensure(state).await {
                        Ok(Progress::Done(_)) => break,
                        Ok(_) => {}
                        Err(error) => assert_eq!(error.kind, ErrorKind::Malformed, "{error}"),
                    }
                }
                let world = rig.cloud.world.lock();
                let counts = (world.octavia.balancers.len(), world.floating.ips.len());
                assert_eq!(counts, (1, 1), "{body:?} instead of answer {number}");
            }
            let unwanted = rig.unwanted(&more);
            spoil(&rig, number, body);
            let mut calls = 0;
            loop {
                calls += 1;
                assert!(calls < 40, "{body:?} instead of answer {number}");
                match rig.delete(&unwanted).await {
                    Ok(Progress::Done(proof)) => {
                        assert!(proof.evidence.contains(unwanted.known.as_ref().unwrap()));
                        break;
                    }
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind, ErrorKind::Malformed, "{error}"),
                }
            }
            assert!(rig.rows("balancers").is_empty(), "a proof without a deletion");
            let left = rig.cloud.world.lock().floating.ips.len();
            assert!(left == 0 || !is_seen(body), "{body:?} instead of answer {number}");
        }
    }
}

/// Fields that Octavia omits, or that later versions add, change nothing.
#[tokio::test]
async fn nulls_and_unknown_fields_are_read() {
    let rig = Rig::new();
    let web = annotated(&wanted("web"), "enable-health-monitor", "true");
    let id = rig.settle(&web).await.id;
    {
        let octavia = &mut rig.cloud.world.lock().octavia;
        let nulls: [(&mut Vec<Value>, &[&str]); 4] = [
            (
                &mut octavia.balancers,
                &["description", "operating_status", "additional_vips", "flavor_id"],
            ),
            (&mut octavia.listeners, &["name", "insert_headers", "default_tls_container_ref"]),
            (&mut octavia.members, &["monitor_port", "monitor_address", "operating_status"]),
            (&mut octavia.monitors, &["name", "url_path"]),
        ];
        for (rows, keys) in nulls {
            for row in rows {
                for key in keys {
                    row[*key] = Value::Null;
                }
                row["of_a_later_version"] = json!({ "some": ["thing"] });
            }
        }
    }
    let other = rig.restarted();
    other.writes();
    assert!(matches!(other.ensure(&web).await, Ok(Progress::Done(_))));
    assert_eq!(other.writes(), [""; 0]);
    other.members_with(&web, &id, members(&[1, 2, 3, 4], &[])).await;
    assert_eq!(other.nodes(), [1, 2, 3, 4]);
    let tags = rig.cloud.world.lock().octavia.balancers[0]["tags"].take();
    rig.cloud.world.lock().octavia.balancers[0]["name"] = Value::Null;
    let shown = other.shown(&id, Depth::Members).await;
    assert_eq!(shown.title, ccm_cloud::Title::Foreign, "without tags it has no owner");
    rig.cloud.world.lock().octavia.balancers[0]["tags"] = tags;
    assert_eq!(other.shown(&id, Depth::Members).await.title, ccm_cloud::Title::Ours);
}

/// A state that no version of today has: nothing is sent until it ends.
#[tokio::test]
async fn an_unknown_state_is_waited_for() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    rig.cloud.world.lock().octavia.balancers[0]["provisioning_status"] = json!("MIGRATING");
    rig.writes();
    let more = changed(&web, |it| it.ports.push(port(8080, Protocol::Tcp)));
    let Ok(Progress::InProgress(waiting)) = rig.ensure(&more).await else { panic!("done") };
    assert!(waiting.what.contains("MIGRATING"), "{waiting:?}");
    let set = rig.set_members(&web, &id, members(&[4], &[])).await;
    assert!(matches!(set, Ok(Progress::InProgress(_))), "{set:?}");
    let deleted = rig.delete(&rig.unwanted(&web)).await;
    assert!(matches!(deleted, Ok(Progress::InProgress(_))), "{deleted:?}");
    assert!(matches!(rig.shown(&id, Depth::Summary).await.phase, Phase::Pending(_)));
    assert_eq!(rig.writes(), [""; 0]);
}

/// Octavia refuses every change for a while, as if another client were writing all the time.
#[tokio::test]
async fn refusals_without_end_are_busy_and_end() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let more = changed(&web, |it| it.ports.push(port(8080, Protocol::Tcp)));
    rig.cloud.refuse(|request| {
        let words = "HTTP 409: Load Balancer is immutable and cannot be updated.";
        let busy = || ccm_cloud::CloudError::new(ErrorKind::Busy, words);
        let writes = request.service == ccm_openstack_client::api::Service::LoadBalancer
            && request.method != http::Method::GET;
        writes.then(busy)
    });
    for _ in 0..20 {
        assert_eq!(rig.ensure(&more).await.unwrap_err().kind, ErrorKind::Busy);
        let set = rig.set_members(&web, &id, members(&[4], &[])).await;
        assert_eq!(set.unwrap_err().kind, ErrorKind::Busy);
        assert_eq!(rig.delete(&rig.unwanted(&web)).await.unwrap_err().kind, ErrorKind::Busy);
    }
    rig.cloud.refuse(|_| None);
    rig.settle(&more).await;
    assert_eq!((rig.rows("balancers").len(), rig.rows("listeners").len()), (1, 3));
}

/// A load balancer whose status cannot be read does not hide other load balancers.
#[tokio::test]
async fn an_unreadable_status_is_reported_and_the_others_are_listed() {
    let rig = Rig::new();
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(rig.settle(&wanted(name)).await.id);
    }
    let list =
        async || rig.balancers.list(&cluster(), Scope::Cluster, Depth::Members, call()).await;
    let spoil = |ids: &[String], answer: Result<Answer, CloudError>| {
        let paths: Vec<_> = ids.iter().map(|id| format!("{id}/status")).collect();
        rig.cloud.fail(move |path, _| {
            paths.iter().any(|end| path.ends_with(end.as_str())).then(|| answer.clone())
        });
    };
    let broken = scripted::answer(200, &json!({ "statuses": {} }));
    let fails = CloudError::new(ErrorKind::Unavailable, "HTTP 500");
    for answer in [Ok(broken), Err(fails)] {
        spoil(&ids[1..2], answer.clone());
        let found = list().await.unwrap();
        let shown: Vec<_> = found.load_balancers.iter().map(|one| &one.id).collect();
        assert_eq!(shown, [&ids[0], &ids[2]], "{answer:?}");
        assert!(found.load_balancers.iter().all(|one| one.members.is_some()));
        let [line] = &found.malformed[..] else { panic!("{:?}", found.malformed) };
        assert!(line.contains(&ids[1]), "{line}");
        // Without any status the provider knows nothing.
        spoil(&ids, answer);
        assert!(list().await.is_err());
    }
}
