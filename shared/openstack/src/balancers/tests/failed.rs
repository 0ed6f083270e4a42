//! Tests load balancers in `ERROR`: they are failed over, kept or replaced.

use std::time::Duration;

use ccm_cloud::{
    CloudError, Cure, Depth, ErrorKind, LoadBalancer, Loss, Phase, Progress, Scope, Wanted,
};
use serde_json::json;

use super::rig::{Rig, addresses, wanted, with};

const REST: Duration = Duration::from_mins(1);

fn known(name: &str, id: &str, may_replace: bool) -> Wanted {
    Wanted { known: Some(id.to_owned()), may_replace, ..wanted(name) }
}

/// Creates load balancers that were complete and are in `ERROR`, as this process has seen for a
/// minute.
async fn broken(rig: &Rig, count: usize, may_replace: bool) -> Vec<Wanted> {
    let mut all = Vec::new();
    for number in 0..count {
        let name = format!("n{number}");
        let id = rig.settle(&wanted(&name)).await.id;
        rig.cloud.world.lock().octavia.break_down(&id);
        all.push(known(&name, &id, may_replace));
    }
    for answer in rig.ensure_all(&all).await {
        let error = answer.unwrap_err();
        assert_eq!((error.kind, error.retry_after), (ErrorKind::Unavailable, Some(REST)));
        assert!(error.message.contains("ERROR"), "{error}");
    }
    assert!(rig.writes().iter().all(|write| write.contains("create") || write.contains("tags")));
    tokio::time::advance(REST).await;
    all
}

async fn one_broken(rig: &Rig, may_replace: bool) -> (String, Wanted) {
    let wanted = broken(rig, 1, may_replace).await.remove(0);
    (wanted.known.clone().unwrap(), wanted)
}

fn lost(answer: &Result<Progress<LoadBalancer>, CloudError>) -> &Loss {
    match answer {
        Ok(Progress::Lost(loss @ Loss { is_gone: false, .. })) => loss,
        other => panic!("not lost: {other:?}"),
    }
}

fn is_in_progress(answer: &Result<Progress<LoadBalancer>, CloudError>) -> bool {
    matches!(answer, Ok(Progress::InProgress(_)))
}

/// Returns the writes to load balancers since the last call of this.
fn acts(rig: &Rig) -> Vec<&'static str> {
    rig.writes().into_iter().filter(|write| write.starts_with("loadbalancer")).collect()
}

#[tokio::test(start_paused = true)]
async fn twenty_in_error_are_kept_until_they_may_be_replaced() {
    let rig = Rig::new();
    let all = broken(&rig, 20, false).await;
    // The first call finds out that no fail-over is offered.
    for _ in 0..3 {
        rig.ensure_all(&all).await;
    }
    for (wanted, answer) in all.iter().zip(rig.ensure_all(&all).await) {
        let loss = lost(&answer);
        assert!(loss.why.contains("ERROR"), "{loss:?}");
        assert!(loss.why.contains(wanted.known.as_deref().unwrap()), "{loss:?}");
    }
    let acts = acts(&rig);
    assert!(acts.iter().all(|act| *act == "loadbalancer_failover") && acts.len() <= 3, "{acts:?}");
    assert_eq!(rig.rows("balancers").len(), 20);
    assert_eq!(rig.preview(&all[0]).await.unwrap(), [""; 0]);
    let first = known("n0", all[0].known.as_deref().unwrap(), true);
    let lines = rig.preview(&first).await.unwrap();
    assert!(lines[0].starts_with("delete load balancer") && lines[1].starts_with("create"));
    assert!(is_in_progress(&rig.ensure(&first).await));
    assert_eq!(self::acts(&rig), ["loadbalancer_delete"], "it and no other one");
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_failure_is_what_this_process_has_seen() {
    let rig = Rig::new();
    let id = rig.settle(&wanted("n0")).await.id;
    for time in ["2020-01-01T00:00:00", "2099-01-01T00:00:00"] {
        let rig = rig.restarted();
        rig.cloud.world.lock().octavia.break_down(&id);
        rig.cloud.world.lock().octavia.balancers[0]["updated_at"] = json!(time);
        let wanted = known("n0", &id, false);
        rig.cloud.operations();
        for left in [60, 30] {
            let error = rig.ensure(&wanted).await.unwrap_err();
            assert_eq!(error.retry_after, Some(Duration::from_secs(left)), "{time}: {error}");
            tokio::time::advance(Duration::from_secs(30)).await;
        }
        assert_eq!(acts(&rig), [""; 0]);
        lost(&rig.ensure(&wanted).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fail_over_goes_before_everything_else() {
    for may_replace in [false, true] {
        let rig = Rig::new();
        let (id, wanted) = one_broken(&rig, may_replace).await;
        let before = rig.rows("balancers")[0]["vip_address"].clone();
        rig.cloud.world.lock().octavia.may_fail_over = true;
        assert_eq!(
            rig.preview(&wanted).await.unwrap(),
            [format!("fail over load balancer {id}, which is in ERROR")]
        );
        let answer = rig.ensure(&wanted).await;
        let Ok(Progress::InProgress(waiting)) = &answer else { panic!("{answer:?}") };
        assert!(waiting.changed && waiting.what.contains("fail over"), "{waiting:?}");
        let done = rig.settle(&wanted).await;
        assert_eq!((&*done.id, addresses(&done)), (&*id, vec!["172.24.0.2".to_owned()]));
        assert_eq!(rig.rows("balancers")[0]["vip_address"], before);
        assert_eq!(acts(&rig), ["loadbalancer_failover"], "{may_replace}");
        // The next failure counts separately.
        rig.cloud.world.lock().octavia.break_down(&id);
        rig.settle(&wanted).await;
        assert_eq!(acts(&rig), ["loadbalancer_failover"]);
    }
}

#[tokio::test(start_paused = true)]
async fn one_fail_over_for_each_failure() {
    let rig = Rig::new();
    let (id, wanted) = one_broken(&rig, false).await;
    {
        let mut world = rig.cloud.world.lock();
        (world.octavia.may_fail_over, world.octavia.failures) = (true, 1);
    }
    assert!(is_in_progress(&rig.ensure(&wanted).await));
    let mut answer = rig.ensure(&wanted).await;
    for _ in 0..3 {
        tokio::time::advance(REST).await;
        answer = rig.ensure(&wanted).await;
    }
    assert!(lost(&answer).why.contains("fail-over"), "{answer:?}");
    assert_eq!(acts(&rig), ["loadbalancer_failover"], "it has not helped");
    let replaced = rig.settle(&known("n0", &id, true)).await;
    assert_ne!(replaced.id, id);
}

/// If a policy forbids the fail-over, the provider tries once in an hour, and never with the driver
/// ovn.
#[tokio::test(start_paused = true)]
async fn a_refused_fail_over_is_not_asked_for_again() {
    let rig = Rig::new();
    let all = broken(&rig, 2, false).await;
    for _ in 0..3 {
        lost(&rig.ensure(&all[0]).await);
    }
    lost(&rig.ensure(&all[1]).await);
    assert_eq!(acts(&rig), ["loadbalancer_failover"]);
    tokio::time::advance(60 * REST).await;
    lost(&rig.ensure(&all[1]).await);
    assert_eq!(acts(&rig), ["loadbalancer_failover"]);
    rig.cloud.world.lock().octavia.may_fail_over = true;
    let kinds = [ErrorKind::Unauthorized, ErrorKind::Unsupported, ErrorKind::Malformed];
    for kind in kinds {
        tokio::time::advance(60 * REST).await;
        rig.cloud.refuse(move |request| {
            let is_it = request.operation == "loadbalancer_failover";
            is_it.then(|| CloudError::new(kind, "HTTP 4xx"))
        });
        for _ in 0..3 {
            lost(&rig.ensure(&all[1]).await);
        }
        assert_eq!(acts(&rig), ["loadbalancer_failover"], "{kind}");
    }
    tokio::time::advance(60 * REST).await;
    rig.cloud.world.lock().octavia.balancers[1]["provider"] = json!("ovn");
    lost(&rig.ensure(&all[1]).await);
    assert_eq!(acts(&rig), [""; 0]);
}

/// An Octavia that does not answer has refused nothing, but the provider does not ask forever.
#[tokio::test(start_paused = true)]
async fn a_fail_over_without_an_answer_is_tried_again() {
    let rig = Rig::new();
    let (_, wanted) = one_broken(&rig, true).await;
    rig.cloud.world.lock().octavia.may_fail_over = true;
    rig.cloud.refuse(|request| {
        let is_it = request.operation == "loadbalancer_failover";
        is_it.then(|| CloudError::new(ErrorKind::Unavailable, "HTTP 503"))
    });
    for _ in 0..3 {
        assert_eq!(rig.ensure(&wanted).await.unwrap_err().kind, ErrorKind::Unavailable);
        tokio::time::advance(REST).await;
    }
    assert_eq!(acts(&rig), ["loadbalancer_failover"; 3]);
    assert!(is_in_progress(&rig.ensure(&wanted).await));
    assert_eq!(acts(&rig), ["loadbalancer_delete"]);
}

/// Each one needs new machines: a cloud that cannot build is not asked for all at once.
#[tokio::test(start_paused = true)]
async fn few_are_failed_over_at_a_time() {
    let rig = Rig::new();
    let all = broken(&rig, 10, true).await;
    {
        let mut world = rig.cloud.world.lock();
        (world.octavia.may_fail_over, world.octavia.holds_all) = (true, true);
    }
    for _ in 0..3 {
        rig.ensure_all(&all).await;
    }
    assert_eq!(acts(&rig), ["loadbalancer_failover"; 3]);
    {
        let mut world = rig.cloud.world.lock();
        world.octavia.holds_all = false;
        for wanted in &all {
            world.let_go(wanted.known.as_deref().unwrap());
        }
    }
    for wanted in &all {
        let done = rig.settle(wanted).await;
        assert_eq!(Some(done.id), wanted.known);
    }
    assert_eq!(acts(&rig), ["loadbalancer_failover"; 7]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_without_room_keeps_what_failed() {
    let rig = Rig::new();
    let (id, wanted) = one_broken(&rig, true).await;
    let quota = |limit| {
        rig.cloud.world.lock().octavia.quotas.insert("Load Balancer", limit);
    };
    quota(0);
    for _ in 0..2 {
        let error = rig.ensure(&wanted).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::QuotaExceeded, "{error}");
        assert_eq!(error.subject.as_deref(), Some("Load Balancer"));
        assert!(error.message.contains(&id) && error.message.contains("is kept"), "{error}");
        assert_eq!(rig.preview(&wanted).await.unwrap_err().kind, ErrorKind::QuotaExceeded);
    }
    assert!(!acts(&rig).contains(&"loadbalancer_delete"));
    // Another load balancer fills the quota.
    quota(2);
    rig.stranger("person's", "mine", &[]);
    quota(1);
    assert_eq!(rig.ensure(&wanted).await.unwrap_err().kind, ErrorKind::QuotaExceeded);
    quota(2);
    assert!(is_in_progress(&rig.ensure(&wanted).await), "its own place is free then");
}

/// Many clouds hide quotas; one that cannot be read now does not justify a deletion.
#[tokio::test(start_paused = true)]
async fn a_hidden_quota_is_none_and_an_unknown_one_keeps() {
    let rig = Rig::new();
    let (_, wanted) = one_broken(&rig, true).await;
    rig.cloud.refuse(|request| {
        let is_it = request.operation == "loadbalancer_quota_get";
        is_it.then(|| CloudError::new(ErrorKind::Unavailable, "HTTP 503"))
    });
    assert_eq!(rig.ensure(&wanted).await.unwrap_err().kind, ErrorKind::Unavailable);
    assert!(!acts(&rig).contains(&"loadbalancer_delete"));
    rig.cloud.refuse(|_| None);
    rig.cloud.world.lock().octavia.hides_quotas = true;
    assert!(is_in_progress(&rig.ensure(&wanted).await));
    assert_eq!(acts(&rig), ["loadbalancer_delete"]);
}

/// The quota of floating IPs counts only for a load balancer that cannot keep one.
#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_would_be_needed_must_fit() {
    for attached in [true, false] {
        let rig = Rig::new();
        let (_, wanted) = one_broken(&rig, true).await;
        rig.cloud.world.lock().floating.quota = 0;
        if attached {
            assert_ne!(rig.settle(&wanted).await.id, wanted.known.unwrap());
            continue;
        }
        rig.cloud.world.lock().floating.ips.clear();
        let error = rig.ensure(&wanted).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::QuotaExceeded, "{error}");
        assert_eq!(error.subject.as_deref(), Some("floatingip"));
        assert_eq!(rig.rows("balancers").len(), 1);
        rig.cloud.world.lock().floating.quota = 1;
        assert_ne!(rig.settle(&wanted).await.id, wanted.known.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_of_others_keep_their_load_balancer() {
    for (kind, foreign) in [
        ("listeners", json!({ "id": "x", "name": "mine", "tags": [] })),
        ("listeners", json!({ "id": "x", "name": "mine", "tags": ["another's"] })),
        ("pools", json!({ "id": "x", "name": "mine", "tags": [] })),
    ] {
        for may_replace in [true, false] {
            let rig = Rig::new();
            let (id, wanted) = one_broken(&rig, may_replace).await;
            {
                let octavia = &mut rig.cloud.world.lock().octavia;
                let rows = match kind {
                    "listeners" => &mut octavia.listeners,
                    _ => &mut octavia.pools,
                };
                let mut row = rows[0].clone();
                row.as_object_mut().unwrap().extend(foreign.as_object().unwrap().clone());
                if kind == "listeners" {
                    (row["protocol_port"], row["default_pool_id"]) = (json!(9999), json!(null));
                }
                rows.push(row);
            }
            rig.cloud.operations();
            for _ in 0..2 {
                let error = rig.ensure(&wanted).await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
                assert!(error.message.contains("mine") && error.message.contains(&id), "{error}");
            }
            assert_eq!(rig.preview(&wanted).await.unwrap_err().kind, ErrorKind::Conflict);
            assert!(!acts(&rig).contains(&"loadbalancer_delete"));
            for depth in [Depth::Summary, Depth::Members] {
                let shown = rig.shown(&id, depth).await;
                let Phase::Failed { why, cure: Cure::Person } = &shown.phase else {
                    panic!("{shown:?}")
                };
                assert!(why.contains("mine"), "{why}");
            }
            // After a while the next call looks again.
            match kind {
                "listeners" => drop(rig.cloud.world.lock().octavia.listeners.pop()),
                _ => drop(rig.cloud.world.lock().octavia.pools.pop()),
            }
            tokio::time::advance(10 * REST).await;
            let shown = rig.shown(&id, Depth::Summary).await;
            assert!(matches!(shown.phase, Phase::Failed { cure: Cure::Ensure, .. }));
            match may_replace {
                true => assert_ne!(rig.settle(&wanted).await.id, id),
                false => drop(lost(&rig.ensure(&wanted).await)),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_not_deleted() {
    for operation in
        ["loadbalancer_status_get", "loadbalancer_listener_list", "loadbalancer_pool_list"]
    {
        for may_replace in [true, false] {
            let rig = Rig::new();
            let (id, wanted) = one_broken(&rig, may_replace).await;
            rig.cloud.refuse(move |request| {
                let is_it = request.operation == operation;
                is_it.then(|| CloudError::new(ErrorKind::Unavailable, "HTTP 500"))
            });
            let error = rig.ensure(&wanted).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unavailable, "{operation}: {error}");
            assert!(error.message.contains("is kept"), "{error}");
            assert!(!acts(&rig).contains(&"loadbalancer_delete"));
            assert_eq!(rig.rows("balancers")[0]["id"], *id);
        }
    }
}

/// The permission to replace one covers its creation: without it nothing would serve.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_has_begun_is_finished() {
    let key = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    for (internal, is_lost) in [(true, false), (false, false), (false, true)] {
        let rig = Rig::new();
        let (id, mut wanted) = one_broken(&rig, true).await;
        if internal {
            wanted = with(&wanted, key, "true");
        }
        rig.cloud.lose_answers(move |it| is_lost && it.operation == "loadbalancer_delete");
        assert_eq!(is_in_progress(&rig.ensure(&wanted).await), !is_lost);
        wanted.may_replace = false;
        let second = rig.settle(&wanted).await;
        assert_ne!(second.id, id);
        // The permission does not cover another load balancer.
        rig.remove(&second.id);
        let wanted = Wanted { known: Some(second.id), ..wanted };
        let answer = rig.ensure(&wanted).await;
        assert!(matches!(&answer, Ok(Progress::Lost(loss)) if loss.is_gone), "{answer:?}");
    }
}

/// The Service does not know the ID of a load balancer that was never complete, and there is
/// nothing to keep.
#[tokio::test(start_paused = true)]
async fn one_that_no_service_names_is_replaced() {
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.failures = 1;
    let web = Wanted { may_replace: false, ..wanted("web") };
    assert!(is_in_progress(&rig.ensure(&web).await));
    let first = rig.list(Scope::Cluster, Depth::Summary).await.load_balancers[0].id.clone();
    assert_ne!(rig.settle(&web).await.id, first);
}
