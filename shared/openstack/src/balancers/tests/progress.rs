//! Tests how a load balancer reaches its wanted state.

use ccm_cloud::{Depth, ErrorKind, Phase, Progress, Scope};
use serde_json::{Value, json};

use super::rig::{Rig, addresses, changed, wanted, with};

/// A state that lasts for a long time needs the operator of the cloud, and the message says so.
#[tokio::test]
async fn a_long_wait_names_who_can_end_it() {
    let rig = Rig::new();
    rig.cloud.world.lock().octavia.holds_all = true;
    let Ok(Progress::InProgress(waiting)) = rig.ensure(&wanted("web")).await else {
        panic!("done")
    };
    let shown = rig.shown(&waiting.id.unwrap(), Depth::Summary).await;
    let Phase::Pending(waiting) = shown.phase else { panic!("{shown:?}") };
    assert!(waiting.what.contains("only the operator of the cloud"), "{}", waiting.what);
}

/// A load balancer that others deleted comes back with the address that clients know. If the
/// address belongs to another owner by now, the provider gives it up with a message.
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

/// Returns a Service that shows this load balancer.
fn known(wanted: &ccm_cloud::Wanted, balancer: &ccm_cloud::LoadBalancer) -> ccm_cloud::Wanted {
    let shown = addresses(balancer).iter().map(|text| text.parse().unwrap()).collect();
    ccm_cloud::Wanted { known: Some(balancer.id.clone()), shown, ..wanted.clone() }
}

/// A load balancer that has just failed is left alone for a while, and its Service says why.
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

/// A quota stops the floating IP. The provider finds the existing objects again when the quota has
/// room.
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
