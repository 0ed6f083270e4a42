//! Answers that are lost, processes that end, and others who change things.

use super::*;

fn external() -> String {
    format!("floating-network-id = {}", uuid(PUBLIC))
}

/// Loses the answer of the first request of this name.
fn lose(rig: &Rig, operation: &'static str) {
    let mut losses = 1;
    rig.cloud.lose_answers(move |request| {
        let loses = request.operation == operation && losses > 0;
        losses -= u8::from(loses);
        loses
    });
}

#[tokio::test]
async fn what_was_made_without_an_answer_is_found_and_made_only_once() {
    for operation in ["loadbalancer_create", "floating_ip_create", "floating_ip_tags_update"] {
        for restarts in [false, true] {
            let rig = Rig::new(&external()).await;
            let web = wanted("web", &[80], &[]);
            lose(&rig, operation);
            assert!(rig.ensure(&web).await.unwrap_err().maybe_done, "{operation}");
            let rig = if restarts { rig.restarted(&external()) } else { rig };
            let done = rig.ensured(&web).await;
            assert_eq!(rig.counts(), (1, 1), "{operation}");
            let ip = rig.floating_ip();
            assert_eq!(ip["port_id"], rig.row()["vip_port_id"], "{operation}");
            assert_eq!(ip["tags"].as_array().unwrap().len(), 2, "{operation}");
            assert_eq!(done.ingress.len(), 1);
        }
    }
}

#[tokio::test]
async fn every_request_may_fail_once_and_nothing_is_there_twice() {
    let web = wanted("web", &[80, 443], &[]);
    let rig = Rig::new(&external()).await;
    rig.ensured(&web).await;
    let count = rig.requests().len();
    for place in 0..count {
        for is_lost in [true, false] {
            let rig = Rig::new(&external()).await;
            let mut seen = 0;
            let mut is_it = move || {
                seen += 1;
                seen == place + 1
            };
            if is_lost {
                rig.cloud.lose_answers(move |_| is_it());
            } else {
                rig.cloud.refuse(move |_| {
                    is_it().then(|| CloudError::new(ErrorKind::Unavailable, "HTTP 503"))
                });
            }
            let mut errors = 0;
            let done = loop {
                match rig.ensure(&web).await {
                    Ok(Progress::Done(done)) => break done,
                    Ok(_) => rig.settle(),
                    Err(_) => errors += 1,
                }
                assert!(errors < 3, "request {place}");
            };
            assert_eq!(
                (rig.counts(), done.ingress.len()),
                ((1, 1), 1),
                "request {place} {is_lost}"
            );
        }
    }
}

/// Two leaders at once, the tags of neither seen by the other one yet.
#[tokio::test]
async fn of_two_the_oldest_stays_and_only_the_second_one_is_a_duplicate() {
    let rig = Rig::new("internal-lb = true").await;
    let web = wanted("web", &[80], &[]);
    rig.ensured(&web).await;
    let first = text(&rig.row(), "id");
    {
        let mut world = rig.cloud.world.lock();
        let mut second = world.octavia.balancers[0].clone();
        second["id"] = json!(uuid(7));
        second["created_at"] = json!("2026-01-02T00:00:00");
        world.octavia.balancers.insert(0, second);
    }
    assert_eq!(rig.ensured(&web).await.id, first);
    let cluster = owner("web").cluster;
    let list = rig.balancers.list(&cluster, Scope::Cluster, Depth::Summary, call()).await.unwrap();
    assert_eq!(list.load_balancers.len(), 2);
    let mut duplicate = unwanted(&web, Some(&uuid(7)));
    duplicate.duplicate = true;
    rig.deleted(&duplicate).await;
    assert_eq!(text(&rig.row(), "id"), first);
    duplicate.known = Some(first.clone());
    let error = rig.delete(&duplicate).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "the only one is no duplicate: {error}");
    assert_eq!(text(&rig.row(), "id"), first);
}

#[tokio::test]
async fn two_clusters_of_one_name_have_a_load_balancer_each() {
    let rig = Rig::new(&external()).await;
    let web = wanted("web", &[80], &[]);
    let one = rig.ensured(&web).await;
    let mut other = web.clone();
    Arc::make_mut(&mut other.front_end).owner.cluster.uid = "c-2".to_owned();
    let two = rig.ensured(&other).await;
    assert_ne!(one.id, two.id);
    assert_eq!((one.name, rig.counts()), (two.name, (2, 2)));
    // Neither takes the other one's by its ID.
    other.known = Some(one.id);
    assert_eq!(rig.ensure(&other).await.unwrap_err().kind, ErrorKind::Conflict);
}

#[tokio::test]
async fn one_that_was_deleted_by_hand_comes_back_with_its_floating_ip() {
    let rig = Rig::new(&external()).await;
    let web = wanted("web", &[80], &[]);
    let id = rig.ensured(&web).await.id;
    let address = text(&rig.floating_ip(), "floating_ip_address");
    let path = format!("/v2.0/lbaas/loadbalancers/{id}?cascade=true");
    let request = crate::openstack::api::Request::delete(
        crate::openstack::api::Service::LoadBalancer,
        "by_hand",
        &path,
    );
    rig.cloud.send(request, call()).await.unwrap();
    rig.settle();
    let rig = rig.restarted(&external());
    rig.ensured(&Wanted { known: Some(id.clone()), ..web }).await;
    assert_ne!(text(&rig.row(), "id"), id);
    assert_eq!(rig.counts(), (1, 1));
    assert_eq!(text(&rig.floating_ip(), "floating_ip_address"), address);
    assert_eq!(rig.floating_ip()["port_id"], rig.row()["vip_port_id"]);
}

#[tokio::test]
async fn one_that_has_failed_is_replaced_and_keeps_its_addresses() {
    for lines in [external(), "internal-lb = true".to_owned()] {
        let rig = Rig::new(&lines).await;
        let web = wanted("web", &[80], &[]);
        let before = rig.ensured(&web).await;
        let vip = text(&rig.row(), "vip_address");
        rig.cloud.world.lock().octavia.break_down(&before.id);
        let after = rig.ensured(&Wanted { known: Some(before.id.clone()), ..web }).await;
        assert_ne!(after.id, before.id);
        assert_eq!(after.ingress, before.ingress, "{lines}");
        assert_eq!(text(&rig.row(), "vip_address"), vip);
        assert_eq!(rig.counts().0, 1);
    }
}

/// A creation that fails in Octavia, again and again, is told and does not pile up.
#[tokio::test]
async fn creations_that_fail_leave_one_load_balancer_at_most() {
    let rig = Rig::new(&external()).await;
    rig.cloud.world.lock().octavia.failures = 1;
    let done = rig.ensured(&wanted("web", &[80], &[])).await;
    assert_eq!((rig.counts(), done.phase), ((1, 1), ccm_cloud::Phase::Ready));
}

#[tokio::test]
async fn a_floating_ip_that_was_taken_away_comes_back() {
    let rig = Rig::new(&external()).await;
    let web = wanted("web", &[80], &[]);
    let known = Some(rig.ensured(&web).await.id);
    rig.cloud.world.lock().floating.ips.clear();
    rig.ensured(&Wanted { known, ..web }).await;
    assert_eq!(rig.floating_ip()["port_id"], rig.row()["vip_port_id"]);
}
