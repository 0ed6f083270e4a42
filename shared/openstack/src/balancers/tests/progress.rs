//! How a load balancer reaches its wanted state.

use ccm_cloud::{Depth, Digest, ErrorKind, LoadBalancers as _, Phase, Progress, Protocol, Scope};
use serde_json::{Value, json};

use super::rig::{
    Rig, addresses, annotated, call, change, changed, gather, members, port, wanted, with,
};

/// Changes of each kind, one after another.
fn histories() -> Vec<ccm_cloud::Wanted> {
    let one = wanted("web");
    let two = changed(&one, |it| {
        it.ports =
            vec![port(80, Protocol::Tcp), port(53, Protocol::Udp), port(8080, Protocol::Tcp)];
        it.affinity = Some(std::time::Duration::from_secs(60));
        it.source_ranges = vec!["192.0.2.0/24".parse().unwrap()];
    });
    let three = annotated(&annotated(&two, "x-forwarded-for", "true"), "lb-method", "SOURCE_IP");
    let four = annotated(&annotated(&two, "proxy-protocol", "v1"), "enable-health-monitor", "true");
    let five = with(&one, "service.beta.kubernetes.io/openstack-internal-load-balancer", "true");
    let histories = [one.clone(), two, three, four, five, one];
    let with_digest = |(number, wanted): (usize, &ccm_cloud::Wanted)| {
        let digest = Digest { version: 1, hash: u128::try_from(number).unwrap() };
        changed(wanted, |it| it.digest = digest)
    };
    histories.iter().enumerate().map(with_digest).collect()
}

/// Each change is one that the preview has named, in its order.
#[tokio::test]
async fn previews_what_it_then_does_by_one_change_per_call() {
    let rig = Rig::new();
    for wanted in histories() {
        let lines = rig.preview(&wanted).await.unwrap();
        assert!(!lines.is_empty());
        assert_eq!(rig.writes(), [""; 0], "a preview changes nothing");
        let mut made = 0;
        for _ in 0..100 {
            let answer = rig.ensure(&wanted).await.unwrap();
            let writes = rig.writes();
            let octavia = writes.iter().filter(|it| it.starts_with("loadbalancer")).count();
            assert!(octavia <= 1, "{writes:?}");
            // A floating IP and its tags are one change.
            made += writes.iter().filter(|it| **it != "floating_ip_tags_update").count();
            match answer {
                Progress::InProgress(waiting) => {
                    assert!(!waiting.what.is_empty() && waiting.id.is_some(), "{waiting:?}");
                    continue;
                }
                Progress::Done(done) => assert_eq!(done.digest, Some(wanted.front_end.digest)),
                other => panic!("not done: {other:?}"),
            }
            break;
        }
        assert_eq!(made, lines.len(), "{lines:#?}");
        assert_eq!(rig.preview(&wanted).await.unwrap(), [""; 0]);
    }
}

/// Each answer is lost, as if the process had ended, and the next one has only the cloud.
#[tokio::test]
async fn any_process_continues_after_any_step() {
    let mut rig = Rig::new();
    for wanted in histories() {
        rig.cloud.lose_answers(|request| request.method != http::Method::GET);
        for _ in 0..100 {
            rig = rig.restarted();
            let answer = rig.ensure(&wanted).await;
            match answer {
                Ok(Progress::Done(_)) => break,
                Ok(_) => {}
                Err(error) => assert!(error.maybe_done, "{error}"),
            }
        }
        rig.cloud.lose_answers(|_| false);
        let done = rig.settle(&wanted).await;
        assert_eq!(rig.preview(&wanted).await.unwrap(), [""; 0]);
        assert_eq!(rig.rows("balancers").len(), 1, "no second one");
        assert!(rig.cloud.world.lock().floating.ips.len() <= 1, "no second floating IP");
        assert_eq!(rig.nodes(), [1, 2, 3]);
        assert_eq!(rig.rows("listeners").len(), wanted.front_end.ports.len());
        assert_eq!(done.phase, Phase::Ready);
    }
    assert_eq!(rig.rows("pools").len(), 2, "nothing is left over");
}

#[tokio::test]
async fn the_state_decides_and_not_the_digest() {
    let rig = Rig::new();
    let old = wanted("web");
    rig.settle(&old).await;
    let set_digest = |digest: Option<&str>| {
        let tags = &mut rig.cloud.world.lock().octavia.balancers[0]["tags"];
        let tags = tags.as_array_mut().unwrap();
        tags.retain(|tag| !tag.as_str().unwrap().starts_with("quartet-config="));
        tags.extend(digest.map(|digest| json!(format!("quartet-config={digest}"))));
    };
    rig.writes();
    // Another version, or none: no write, until something is to be changed.
    let mut new = changed(&old, |it| it.digest = Digest { version: 2, hash: 99 });
    for stored in [Some("1-00000000000000000000000000000001"), None] {
        set_digest(stored);
        let Ok(Progress::Done(balancer)) = rig.ensure(&new).await else { panic!("not done") };
        assert_eq!(balancer.digest, stored.map(|text| text.parse().unwrap()));
        assert_eq!(rig.writes(), [""; 0]);
    }
    std::sync::Arc::make_mut(&mut new.front_end).ports.truncate(1);
    assert_eq!(rig.settle(&new).await.digest, Some(new.front_end.digest));
    assert!(rig.writes().contains(&"loadbalancer_update"), "the digest comes with the change");
    // The same version shows that something differs that the state does not.
    std::sync::Arc::make_mut(&mut new.front_end).digest.hash = 100;
    assert_eq!(rig.settle(&new).await.digest, Some(new.front_end.digest));
    assert_eq!(rig.writes(), ["loadbalancer_update"]);
    // Members are no part of it.
    set_digest(None);
    new.members = members(&[1, 2, 3, 4], &[]);
    assert_eq!(rig.settle(&new).await.digest, None);
    assert_eq!(rig.writes(), ["loadbalancer_members_update"]);
}

#[tokio::test]
async fn nothing_is_changed_while_octavia_works() {
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.holds_all = true;
    let web = wanted("web");
    let Ok(Progress::InProgress(waiting)) = rig.ensure(&web).await else { panic!("done") };
    assert!(waiting.what.contains("PENDING_CREATE"), "{waiting:?}");
    let id = waiting.id.unwrap();
    assert!(matches!(rig.shown(&id, Depth::Summary).await.phase, Phase::Pending(_)));
    rig.writes();
    let more = changed(&web, |it| it.ports.push(port(8080, Protocol::Tcp)));
    let unwanted = rig.unwanted(&web);
    for _ in 0..3 {
        assert!(matches!(rig.ensure(&more).await, Ok(Progress::InProgress(_))));
        let answer = rig.set_members(&web, &id, members(&[9], &[])).await;
        assert!(matches!(answer, Ok(Progress::InProgress(_))), "{answer:?}");
        assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::InProgress(_))));
    }
    assert_eq!(rig.writes(), [""; 0]);
    // What lasts for long needs the operator of the cloud, and is said.
    let Phase::Pending(waiting) = rig.shown(&id, Depth::Summary).await.phase else { panic!() };
    assert!(waiting.what.contains("only the operator of the cloud"), "{}", waiting.what);
    {
        let mut world = rig.cloud.world.lock();
        world.octavia.holds_all = false;
        world.let_go(&id);
    }
    rig.members_with(&web, &id, members(&[9], &[])).await;
    rig.settle(&more).await;
    rig.cloud.world.lock().octavia.holds_all = true;
    assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::InProgress(_))));
    let again = rig.ensure(&more).await;
    assert!(matches!(again, Ok(Progress::InProgress(_))), "no second one while it is deleted");
    assert_eq!(rig.rows("balancers").len(), 1);
}

/// A failed one is replaced with its addresses, also by another process.
#[tokio::test(start_paused = true)]
async fn repairs_what_failed_and_keeps_its_addresses() {
    for (internal, restarts) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new();
        let mut web = wanted("web");
        if internal {
            web = with(&web, "service.beta.kubernetes.io/openstack-internal-load-balancer", "true");
        }
        let other = rig.settle(&wanted("other")).await;
        let first = rig.settle(&web).await;
        let vip = vip_of(&rig, &first.id);
        // Its address would be the next one otherwise.
        rig.remove(&other.id);
        rig.cloud.world.lock().octavia.break_down(&first.id);
        let shown = rig.shown(&first.id, Depth::Summary).await;
        let Phase::Failed { why, cure } = &shown.phase else { panic!("{shown:?}") };
        assert!(why.contains("ERROR") && *cure == ccm_cloud::Cure::Ensure);
        let members = rig.set_members(&web, &first.id, members(&[4], &[])).await.unwrap_err();
        assert_eq!(members.kind, ErrorKind::Unavailable);
        let known = known(&web, &first);
        rig.rested(&known).await;
        assert!(matches!(rig.ensure(&known).await, Ok(Progress::InProgress(_))));
        let rig = if restarts { rig.restarted() } else { rig };
        let second = rig.settle(&known).await;
        assert_ne!(second.id, first.id);
        assert_eq!(addresses(&second), addresses(&first), "{internal} {restarts}");
        assert_eq!(vip_of(&rig, &second.id), vip, "{internal} {restarts}");
        assert_eq!((rig.rows("balancers").len(), second.notes.len()), (1, 0));
    }
}

/// What was deleted by others comes back with the address that clients know. One that is another's
/// by now is given up, and said.
#[tokio::test]
async fn the_address_of_an_internal_one_is_kept_if_it_is_free() {
    for taken in [false, true] {
        let rig = Rig::new();
        let key = "service.beta.kubernetes.io/openstack-internal-load-balancer";
        let web = with(&wanted("web"), key, "true");
        let other = rig.settle(&wanted("other")).await;
        let first = rig.settle(&web).await;
        for one in [&other, &first] {
            rig.remove(&one.id);
        }
        if taken {
            let mut port = ccm_openstack_client::scripted::port(9);
            port["fixed_ips"] = json!([{ "subnet_id": "s", "ip_address": addresses(&first)[0] }]);
            rig.cloud.world.lock().ports.push(port);
        }
        let rig = rig.restarted();
        rig.writes();
        let answer = rig.ensure(&known(&web, &first)).await;
        let Ok(Progress::InProgress(_)) = answer else { panic!("{answer:?}") };
        let tries = rig.writes().iter().filter(|name| **name == "loadbalancer_create").count();
        assert_eq!(tries, if taken { 2 } else { 1 });
        let list = rig.list(Scope::Cluster, Depth::Summary).await;
        let list = match list.load_balancers[0].phase {
            Phase::Ready => list,
            _ => rig.list(Scope::Cluster, Depth::Summary).await,
        };
        let second = &list.load_balancers[0];
        assert_eq!(addresses(second) == addresses(&first), !taken);
        let told = second.notes.iter().any(|note| note.message.contains(&addresses(&first)[0]));
        assert_eq!(told, taken, "{:?}", second.notes);
    }
}

/// A Service that shows this load balancer.
fn known(wanted: &ccm_cloud::Wanted, balancer: &ccm_cloud::LoadBalancer) -> ccm_cloud::Wanted {
    let shown = addresses(balancer).iter().map(|text| text.parse().unwrap()).collect();
    ccm_cloud::Wanted { known: Some(balancer.id.clone()), shown, ..wanted.clone() }
}

fn vip_of(rig: &Rig, id: &str) -> serde_json::Value {
    rig.rows("balancers").into_iter().find(|row| row["id"] == *id).unwrap()["vip_address"].clone()
}

/// One that has just failed is left alone for a while, and its Service says why.
#[tokio::test(start_paused = true)]
async fn says_why_it_failed_before_it_is_replaced() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    {
        let mut world = rig.cloud.world.lock();
        world.octavia.break_down(&id);
        world.octavia.pools[0]["provisioning_status"] = json!("ERROR");
    }
    rig.writes();
    let error = rig.ensure(&web).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("ERROR") && error.message.contains("pool"), "{error}");
    assert_eq!(error.retry_after.map(|after| after.as_secs()), Some(60), "{error:?}");
    assert_eq!(rig.writes(), [""; 0]);
}

/// One load balancer affects no other one of the same call.
#[tokio::test]
async fn an_item_affects_no_others() {
    let rig = Rig::new();
    let bad = annotated(&wanted("b"), "class", "none");
    let all = [wanted("a"), bad, wanted("c"), wanted("a")];
    let answers = rig.ensure_all(&all).await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert_eq!(answers[1].as_ref().unwrap_err().kind, ErrorKind::Invalid);
    let repeated = answers[3].as_ref().unwrap_err();
    assert_eq!((repeated.kind, repeated.subject.as_deref()), (ErrorKind::Invalid, Some("owner")));
    let list = rig.list(Scope::Cluster, Depth::Summary).await;
    assert_eq!(list.load_balancers.len(), 2);
    rig.settle(&all[0]).await;
    let id = rig.settle(&all[2]).await.id;
    let changes =
        [change(&all[0], "none", members(&[4], &[])), change(&all[2], &id, members(&[4], &[]))];
    let answers = gather(rig.balancers.set_members(&changes, call()), 2).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind, ErrorKind::NotFound);
    assert!(answers[1].is_ok());
}

/// A quota stops the floating IP, and what is there is found when there is room again.
#[tokio::test]
async fn a_quota_is_named_and_the_rest_goes_on() {
    let rig = Rig::new();
    rig.cloud.world.lock().floating.quota = 0;
    let web = wanted("web");
    for _ in 0..4 {
        match rig.ensure(&web).await {
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::QuotaExceeded, "{error}");
                assert_eq!(error.subject.as_deref(), Some("floatingip"));
            }
            Ok(progress) => assert!(matches!(progress, Progress::InProgress(_)), "{progress:?}"),
        }
    }
    assert_eq!(rig.rows("balancers").len(), 1);
    let list = rig.list(Scope::Cluster, Depth::Summary).await;
    assert_eq!(list.load_balancers[0].ingress, [], "no address before the final one");
    rig.cloud.world.lock().floating.quota = 1;
    assert_eq!(addresses(&rig.settle(&web).await), ["172.24.0.2"]);
    rig.cloud.world.lock().octavia.quotas.insert("Load Balancer", 1);
    let error = rig.ensure(&wanted("api")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::QuotaExceeded, "{error}");
}

/// The process ends after the first of two changes, and the user reverts the change before the next
/// process looks. The digest matches; only the first full comparison finds the difference.
#[tokio::test]
async fn the_half_of_a_change_that_was_taken_back_is_found_by_a_comparison() {
    let rig = Rig::new();
    let web = wanted("web");
    let made = rig.settle(&web).await;
    let ranges = vec!["192.0.2.0/24".parse().unwrap()];
    let narrow = changed(&web, |it| it.source_ranges = ranges);
    assert!(matches!(rig.ensure(&narrow).await, Ok(Progress::InProgress(_))));
    rig.shown(&made.id, Depth::Summary).await;
    let cidrs = |rig: &Rig| -> Vec<Value> {
        rig.rows("listeners").iter().map(|row| row["allowed_cidrs"].clone()).collect()
    };
    let half = cidrs(&rig);
    assert_ne!(half[0], half[1], "one of two listeners");
    let next = rig.restarted();
    assert_eq!(
        next.shown(&made.id, Depth::Summary).await.digest,
        made.digest,
        "a list shows nothing"
    );
    assert_eq!(next.shown(&made.id, Depth::Members).await.digest, None, "it is not verified yet");
    next.settle(&web).await;
    let whole = cidrs(&next);
    assert_eq!(whole[0], whole[1]);
}
