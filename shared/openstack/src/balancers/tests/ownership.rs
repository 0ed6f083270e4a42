//! Only what is the owner's is changed, and what is gone is proven.

use ccm_cloud::{ErrorKind, LoadBalancers as _, Progress, ProofMethod, Scope, Unwanted, Wanted};
use ccm_openstack_client::lbaas::{Filter, Octavia};
use serde_json::json;

use super::rig::{Rig, annotated, call, cluster, gather, members, owner, wanted};

const NAME: &str = "kube_service_prod_default_web";

/// A person's, one of another controller, one of another cluster of this name, one of another
/// Service, and one that two Services share.
fn add_strangers(rig: &Rig) -> [&'static str; 5] {
    let ids = ["person's", "older", "rebuilt", "neighbour's", "shared"];
    let (ours, web) = ("kubernetes-cluster-id=c-1", "kubernetes-service-uid=uid-web");
    rig.stranger("person's", "mine", &[]);
    rig.stranger("older", NAME, &[NAME]);
    rig.stranger("rebuilt", NAME, &[NAME, "kubernetes-cluster-id=c-2", web]);
    rig.stranger("neighbour's", "x", &["x", ours, "kubernetes-service-uid=uid-api"]);
    rig.stranger("shared", NAME, &[NAME, "kube_service_prod_default_api", ours, web]);
    ids
}

#[tokio::test]
async fn changes_only_what_is_its_owners() {
    let rig = Rig::new();
    let ids = add_strangers(&rig);
    let before = rig.rows("balancers");
    for id in ids {
        let known = Wanted { known: Some(id.to_owned()), ..wanted("web") };
        let unwanted = |duplicate| Unwanted {
            owner: owner("web"),
            known: Some(id.to_owned()),
            duplicate,
            settings: Some([].into()),
            address: None,
            service: None,
        };
        let errors = [
            rig.ensure(&known).await.unwrap_err(),
            rig.preview(&known).await.unwrap_err(),
            rig.delete(&unwanted(false)).await.unwrap_err(),
            rig.delete(&unwanted(true)).await.unwrap_err(),
            rig.set_members(&known, id, members(&[9], &[])).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
            assert!(error.subject.as_deref().is_some_and(|it| it.contains(id)), "{error}");
        }
    }
    assert_eq!((rig.rows("balancers"), rig.writes().len()), (before, 0));
    // By its tags the owner has a shared one, and makes no second one beside it.
    assert_eq!(rig.ensure(&wanted("web")).await.unwrap_err().kind, ErrorKind::Conflict);
    rig.cloud.world.lock().octavia.balancers.retain(|row| row["id"] != "shared");
    let before = rig.rows("balancers");
    let own = rig.settle(&wanted("web")).await;
    let unwanted = Unwanted { known: None, ..rig.unwanted(&wanted("web")) };
    rig.deleted(&unwanted).await;
    assert!(rig.rows("balancers").iter().all(|row| row["id"] != own.id));
    assert_eq!(rig.rows("balancers"), before);
}

#[tokio::test]
async fn a_proof_says_that_nothing_is_left() {
    for (known, method) in [(true, ProofMethod::ById), (false, ProofMethod::ByOwner)] {
        for by_hand in [false, true] {
            for cascade in [true, false] {
                let rig = Rig::with(|options| {
                    options.networks.subnet_id = Some(ccm_openstack_client::scripted::uuid(1));
                    options.balancer.cascade_delete = cascade;
                });
                let web = annotated(&wanted("web"), "enable-health-monitor", "true");
                rig.settle(&web).await;
                rig.settle(&wanted("other")).await;
                let mut unwanted = rig.unwanted(&web);
                let id = unwanted.known.clone().unwrap();
                if !known {
                    unwanted.known = None;
                }
                if by_hand {
                    rig.remove(&id);
                }
                let proof = rig.deleted(&unwanted).await;
                assert_eq!(proof.method, method);
                let names = if known { &*id } else { "default/web" };
                assert!(proof.evidence.contains(names), "{proof:?}");
                let left = |kind| rig.rows(kind).iter().filter(|it| it["_balancer"] == *id).count();
                assert_eq!([left("listeners"), left("pools"), left("members")], [0; 3]);
                assert_eq!(rig.rows("balancers").len(), 1, "the other one stays");
                assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1, "and so does its address");
                rig.writes();
                assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::Done(_))));
                assert_eq!(rig.writes(), [""; 0]);
            }
        }
    }
}

/// A floating IP that stands for something else by now is not deleted.
#[tokio::test]
async fn what_another_one_uses_by_now_stays() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let unwanted = rig.unwanted(&web);
    rig.remove(&id);
    rig.cloud.world.lock().floating.ips[0]["port_id"] = json!("a server's");
    assert!(matches!(rig.delete(&unwanted).await, Ok(Progress::Done(_))));
    assert_eq!(rig.cloud.world.lock().floating.ips.len(), 1);
}

/// Two processes look, find nothing, and create.
#[tokio::test]
async fn two_of_one_owner_are_listed_and_one_is_deleted() {
    let rig = Rig::new();
    rig.settle(&wanted("other")).await;
    let web = wanted("web");
    let octavia = Octavia::new(std::sync::Arc::clone(&rig.cloud) as _);
    let older = rig.settle(&web).await;
    // What the other process has made.
    let mut twin = rig.rows("balancers").pop().unwrap();
    twin["id"] = json!("twin");
    twin["created_at"] = json!("2026-02-01T00:00:00");
    twin["vip_port_id"] = json!(null);
    rig.cloud.world.lock().octavia.balancers.push(twin);
    assert_eq!(octavia.balancers(Filter::All, call()).await.unwrap().rows.len(), 3);
    let list = rig.list(Scope::Cluster, ccm_cloud::Depth::Summary).await.load_balancers;
    let own = list.iter().filter(|it| it.owner == Some(owner("web")));
    assert_eq!(own.filter(|it| it.title == ccm_cloud::Title::Ours).count(), 2);
    // The one that is known is brought up to date, else the oldest.
    let named = Wanted { known: Some("twin".to_owned()), ..web.clone() };
    let Ok(Progress::InProgress(waiting)) = rig.ensure(&named).await else { panic!("done") };
    assert_eq!(waiting.id.as_deref(), Some("twin"));
    rig.cloud.world.lock().let_go("twin");
    assert_eq!(rig.settle(&web).await.id, older.id);
    let unwanted =
        Unwanted { known: Some("twin".to_owned()), duplicate: true, ..rig.unwanted(&web) };
    let proof = rig.deleted(&unwanted).await;
    assert!(proof.method == ProofMethod::ById && proof.evidence.contains("twin"), "{proof:?}");
    assert_eq!(rig.settle(&web).await.ingress, older.ingress);
    // The last one is no duplicate.
    let only = Unwanted { duplicate: true, ..rig.unwanted(&web) };
    assert_eq!(rig.delete(&only).await.unwrap_err().kind, ErrorKind::Conflict);
}

#[tokio::test]
async fn a_list_that_lacks_a_row_proves_nothing() {
    let rig = Rig::new();
    let web = wanted("web");
    let id = rig.settle(&web).await.id;
    let unwanted = rig.unwanted(&web);
    rig.cloud.world.lock().octavia.balancers[0]["created_at"] = json!(7);
    for known in [Some(id.clone()), None] {
        let known_web = Wanted { known: known.clone(), ..web.clone() };
        assert_eq!(rig.ensure(&known_web).await.unwrap_err().kind, ErrorKind::Malformed);
        let unwanted = Unwanted { known, ..unwanted.clone() };
        assert_eq!(rig.delete(&unwanted).await.unwrap_err().kind, ErrorKind::Malformed);
    }
    assert_eq!(rig.list(Scope::Cluster, ccm_cloud::Depth::Summary).await.malformed.len(), 1);
    assert_eq!(rig.rows("balancers").len(), 1);
}

#[tokio::test]
async fn what_a_provider_writes_is_no_configuration() {
    let rig = Rig::new();
    let written = rig.settle(&wanted("web")).await.annotations;
    assert_eq!(written.len(), 2);
    let traits = rig.balancers.traits();
    for key in written.keys() {
        assert!(!traits.configures(key), "{key}");
        let with_it = super::with(&wanted("web"), key, "x");
        assert_eq!(rig.ensure(&with_it).await.unwrap_err().kind, ErrorKind::Invalid, "{key}");
    }
    assert!(traits.configures("loadbalancer.openstack.org/class"));
    assert!(traits.stores_digest && traits.lists && traits.member_labels);
}

/// A read that fails stops a deletion, and a creation.
#[tokio::test]
async fn octavia_without_an_answer_proves_nothing() {
    let rig = Rig::new();
    let web = wanted("web");
    rig.settle(&web).await;
    let unwanted = rig.unwanted(&web);
    rig.cloud.refuse(|request| {
        let what = ccm_cloud::CloudError::new(ErrorKind::Unavailable, "down");
        (request.service == ccm_openstack_client::api::Service::LoadBalancer).then_some(what)
    });
    assert_eq!(rig.ensure(&web).await.unwrap_err().kind, ErrorKind::Unavailable);
    let answers = gather(rig.balancers.delete(&[unwanted], call()), 1).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind, ErrorKind::Unavailable);
    let cluster = cluster();
    let list = rig.balancers.list(&cluster, Scope::All, ccm_cloud::Depth::Summary, call());
    assert_eq!(list.await.unwrap_err().kind, ErrorKind::Unavailable);
}
