//! Load balancers that are deleted, and what is left of them.

use super::*;

fn external() -> String {
    format!("floating-network-id = {}", uuid(PUBLIC))
}

/// A load balancer that is done, and its ID.
async fn made(rig: &Rig, settings: &[(&str, &str)]) -> (Wanted, String) {
    let web = wanted("web", &[80, 443], settings);
    let id = rig.ensured(&web).await.id;
    rig.requests();
    (web, id)
}

fn is_in_progress(outcome: Result<Progress<AbsenceProof>, CloudError>) -> String {
    match outcome.unwrap() {
        Progress::InProgress(waiting) => waiting.what,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn four_requests_and_a_look_delete_a_load_balancer_with_its_floating_ip() {
    let rig = Rig::new(&external()).await;
    let (web, id) = made(&rig, &[]).await;
    let gone = unwanted(&web, Some(&id));
    assert!(is_in_progress(rig.delete(&gone).await).starts_with("PENDING_DELETE"));
    let expect =
        ["floating_ip_delete", "floating_ip_list", "loadbalancer_delete", "loadbalancer_list"];
    assert_eq!(rig.requests(), expect);
    assert!(is_in_progress(rig.delete(&gone).await).starts_with("PENDING_DELETE"));
    assert_eq!(rig.requests(), ["loadbalancer_list"]);
    rig.settle();
    let proof = rig.deleted(&gone).await;
    assert!(proof.evidence.contains(&id), "{proof:?}");
    assert_eq!(rig.requests(), ["loadbalancer_get", "loadbalancer_list"]);
    assert_eq!(rig.counts(), (0, 0));
    assert!(rig.cloud.world.lock().ports.is_empty());
}

/// Without an ID, by another process: what the tags find.
#[tokio::test]
async fn what_is_not_known_by_id_is_found_by_its_tags() {
    let rig = Rig::new(&external()).await;
    let (web, _) = made(&rig, &[]).await;
    let other = rig.restarted(&external());
    let proof = other.deleted(&unwanted(&web, None)).await;
    assert!(proof.evidence.contains("default/web"), "{proof:?}");
    assert_eq!(rig.counts(), (0, 0));
    // Nothing of it was ever there, and that is proven as well.
    other.deleted(&unwanted(&wanted("other", &[80], &[]), None)).await;
}

#[tokio::test]
async fn a_floating_ip_stays_if_it_is_to_or_if_it_is_a_users() {
    let keep = [("loadbalancer.openstack.org/keep-floatingip", "true")];
    for (settings, description) in [(&keep[..], None), (&[], Some("mine"))] {
        let rig = Rig::new(&external()).await;
        let (web, id) = made(&rig, settings).await;
        if let Some(description) = description {
            let mut world = rig.cloud.world.lock();
            world.floating.ips[0]["description"] = json!(description);
            world.floating.ips[0]["tags"] = json!([]);
        }
        rig.deleted(&unwanted(&web, Some(&id))).await;
        assert_eq!(rig.counts(), (0, 1));
        assert_eq!(rig.floating_ip()["port_id"], Value::Null);
    }
}

/// Deleted by hand, or by an earlier call whose end was not seen.
#[tokio::test]
async fn what_is_left_of_a_load_balancer_that_is_gone_goes_as_well() {
    for known in [true, false] {
        let rig = Rig::new(&external()).await;
        let (web, id) = made(&rig, &[]).await;
        let (other, _) = (wanted("api", &[80], &[]), ());
        rig.ensured(&other).await;
        let path = format!("/v2.0/lbaas/loadbalancers/{id}?cascade=true");
        let request = crate::openstack::api::Request::delete(
            crate::openstack::api::Service::LoadBalancer,
            "by_hand",
            &path,
        );
        rig.cloud.send(request, call()).await.unwrap();
        rig.settle();
        assert_eq!(rig.counts(), (1, 2));
        let other = rig.restarted(&external());
        other.deleted(&unwanted(&web, known.then_some(&*id))).await;
        assert_eq!(rig.counts(), (1, 1), "the other Service keeps its own");
        assert_ne!(rig.floating_ip()["port_id"], Value::Null);
    }
}

#[tokio::test]
async fn one_that_is_being_changed_is_deleted_after_that_and_a_failed_one_at_once() {
    let rig = Rig::new(&external()).await;
    let web = wanted("web", &[80], &[]);
    rig.ensure(&web).await.unwrap();
    rig.requests();
    let gone = unwanted(&web, None);
    assert!(is_in_progress(rig.delete(&gone).await).starts_with("PENDING_CREATE"));
    assert_eq!(rig.requests(), ["loadbalancer_list"], "nothing is changed");
    assert_eq!(rig.counts(), (1, 1));
    {
        let mut world = rig.cloud.world.lock();
        let id = text(&world.octavia.balancers[0], "id");
        world.octavia.break_down(&id);
    }
    assert!(is_in_progress(rig.delete(&gone).await).starts_with("PENDING_DELETE"));
    rig.deleted(&gone).await;
    assert_eq!(rig.counts(), (0, 0));
}

#[tokio::test]
async fn without_a_cascade_each_call_deletes_one_child() {
    let lines = format!("{}\ncascade-delete = false", external());
    let rig = Rig::new(&lines).await;
    let (web, id) = made(&rig, &[]).await;
    let mut deletions = 0;
    loop {
        let progress = rig.delete(&unwanted(&web, Some(&id))).await.unwrap();
        let requests = rig.requests();
        let of_octavia = |operation: &&&str| {
            operation.starts_with("loadbalancer") && operation.ends_with("_delete")
        };
        let writes = requests.iter().filter(of_octavia).count();
        assert!(writes <= 1, "{requests:?}");
        deletions += writes;
        rig.settle();
        if matches!(progress, Progress::Done(_)) {
            break;
        }
    }
    assert_eq!((deletions, rig.counts()), (2 + 2 + 1, (0, 0)));
}

#[tokio::test]
async fn another_clusters_load_balancer_is_refused() {
    let rig = Rig::new(&external()).await;
    let (web, id) = made(&rig, &[]).await;
    let mut foreign = unwanted(&web, Some(&id));
    foreign.owner.cluster.uid = "c-2".to_owned();
    let error = rig.delete(&foreign).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.message.contains(&id), "{error}");
    // By its tags it has none, and nothing of the other cluster's goes.
    foreign.known = None;
    rig.deleted(&foreign).await;
    assert_eq!(rig.counts(), (1, 1));
}

/// Only what Octavia and Neutron themselves say counts.
#[tokio::test]
async fn an_error_is_no_end_and_the_next_call_goes_on() {
    for operation in [
        "loadbalancer_list",
        "floating_ip_list",
        "floating_ip_delete",
        "loadbalancer_delete",
        "loadbalancer_get",
    ] {
        for kind in
            [ErrorKind::Malformed, ErrorKind::Unavailable, ErrorKind::Forbidden, ErrorKind::Busy]
        {
            let rig = Rig::new(&external()).await;
            let (web, id) = made(&rig, &[]).await;
            let gone = unwanted(&web, Some(&id));
            let mut failures = 1;
            rig.cloud.refuse(move |request| {
                let fails = request.operation == operation && failures > 0;
                failures -= u8::from(fails);
                fails.then(|| CloudError::new(kind, "HTTP 404 without an OpenStack error"))
            });
            let mut errors = 0;
            for _ in 0..10 {
                match rig.delete(&gone).await {
                    Ok(Progress::Done(_)) => break,
                    Ok(_) => rig.settle(),
                    Err(error) => {
                        assert_eq!(error.kind, kind);
                        errors += 1;
                    }
                }
            }
            assert_eq!((errors, rig.counts()), (1, (0, 0)), "{operation} {kind}");
        }
    }
}

#[tokio::test]
async fn a_deletion_whose_answer_is_lost_has_begun_all_the_same() {
    for operation in ["floating_ip_delete", "loadbalancer_delete"] {
        let rig = Rig::new(&external()).await;
        let (web, id) = made(&rig, &[]).await;
        let mut losses = 1;
        rig.cloud.lose_answers(move |request| {
            let loses = request.operation == operation && losses > 0;
            losses -= u8::from(loses);
            loses
        });
        let gone = unwanted(&web, Some(&id));
        assert!(rig.delete(&gone).await.unwrap_err().maybe_done);
        rig.deleted(&gone).await;
        assert_eq!(rig.counts(), (0, 0), "{operation}");
    }
}
