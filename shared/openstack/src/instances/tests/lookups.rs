//! Tests lookups.

use ccm_cloud::{AbsenceProof, ErrorKind, ProofMethod};
use ccm_openstack_client::{
    api::Microversion,
    scripted::{answer, server},
};
use serde_json::json;

use super::*;

#[track_caller]
fn gone(answer: &LookupResult) -> &AbsenceProof {
    let Ok(Lookup::Gone(proof)) = answer else { panic!("{answer:?}") };
    assert_eq!(proof.request_id.as_deref(), Some("req-1"));
    proof
}

/// Returns the lookup alone, and among enough others that the project is listed.
async fn both_ways(rig: &Rig, node: &NodeIdentity) -> [LookupResult; 2] {
    let crowd: Vec<_> = (0..9).map(known).chain([node.clone()]).collect();
    let alone = rig.look(node.clone()).await;
    [alone, rig.look_all(&crowd).await.pop().unwrap()]
}

#[tokio::test]
async fn by_id_then_uuid_then_name() {
    let rig = Rig::new(Scripted::with_servers(0..20));
    rig.cloud.change(12, "name", json!("twin"));
    rig.cloud.change(13, "name", json!("twin"));
    let twin = |id: Option<&str>, uuid: Option<String>| NodeIdentity {
        name: "twin".to_owned(),
        provider_id: id.map(str::to_owned),
        system_uuid: uuid,
        ..NodeIdentity::default()
    };
    let regional = format!("openstack://bench/{}", uuid(14).to_uppercase());
    for (node, expect) in [
        (known(10), "node-00010"),
        // The ID decides, whatever UUID and name say.
        (
            NodeIdentity {
                system_uuid: Some(uuid(3)),
                ..with_id(4, &format!("openstack:///{}", uuid(11)))
            },
            "node-00011",
        ),
        (with_id(0, &regional), "node-00014"),
        (NodeIdentity { provider_id: Some(String::new()), ..named(15) }, "node-00015"),
        (fresh(16), "node-00016"),
        // No server has the node's name.
        (NodeIdentity { name: "renamed".to_owned(), ..fresh(17) }, "node-00017"),
        (NodeIdentity { system_uuid: Some(uuid(900)), ..named(18) }, "node-00018"),
        (NodeIdentity { system_uuid: Some("Not Specified".to_owned()), ..named(18) }, "node-00018"),
        (twin(None, Some(uuid(12))), "twin"),
        (twin(Some(&format!("openstack:///{}", uuid(13))), None), "twin"),
    ] {
        for answer in both_ways(&rig, &node).await {
            assert_eq!(found(&answer), expect, "{node:?}");
        }
    }
    for answer in both_ways(&rig, &twin(None, None)).await {
        let error = error(&answer);
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(error.message.contains(&uuid(12)) && error.message.contains(&uuid(13)), "{error}");
    }
    // UUID and name lead to two servers, and the provider does not guess which of them belongs to
    // the node.
    for answer in
        both_ways(&rig, &NodeIdentity { name: "node-00003".to_owned(), ..fresh(17) }).await
    {
        let error = error(&answer);
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(error.message.contains(&uuid(3)) && error.message.contains(&uuid(17)), "{error}");
    }
    // Of two servers only one exists, so the name belongs to it.
    rig.cloud.change(13, "status", json!("SOFT_DELETED"));
    for answer in both_ways(&rig, &twin(None, None)).await {
        let Ok(Lookup::Found(instance)) = answer else { panic!("{answer:?}") };
        assert!(instance.provider_id.as_str().ends_with(&uuid(12)));
    }
}

#[tokio::test]
async fn not_ours_and_never_asked_for() {
    let rig = Rig::new(Scripted::with_servers(0..3));
    let elsewhere = format!("openstack://north/{}", uuid(1));
    for (id, shown) in [
        (elsewhere.as_str(), "north"),
        ("aws:///i-1", "aws:///i-1"),
        ("nonsense", "nonsense"),
        ("openstackish:///x", "openstackish"),
    ] {
        let Ok(Lookup::NotOurs(reason)) = rig.look(with_id(1, id)).await else { panic!("{id}") };
        assert!(reason.contains(shown), "{reason}");
    }
    for id in ["openstack:///", "openstack:///no-uuid", "openstack://x", "openstack:///a/b"] {
        let error = error(&rig.look(with_id(1, id)).await);
        assert_eq!(error.kind, ErrorKind::Invalid, "{id}: {error}");
        assert!(error.message.contains(id), "{error}");
    }
    assert_eq!(rig.cloud.operations(), [""; 0]);
}

#[tokio::test]
async fn gone_by_id() {
    let rig = Rig::new(Scripted::with_servers(0..10));
    for answer in both_ways(&rig, &known(404)).await {
        let proof = gone(&answer);
        assert_eq!(proof.method, ProofMethod::ById);
        let id = format!("openstack:///{}", uuid(404));
        for part in [id.as_str(), "404", "could not be found"] {
            assert!(proof.evidence.contains(part), "{proof:?}");
        }
    }
    for status in ["DELETED", "SOFT_DELETED"] {
        rig.cloud.change(9, "status", json!(status));
        for answer in both_ways(&rig, &known(9)).await {
            let proof = gone(&answer);
            assert_eq!(proof.method, ProofMethod::ById);
            assert!(proof.evidence.contains(status), "{proof:?}");
        }
    }
}

#[tokio::test]
async fn a_404_that_is_not_novas_own_proves_nothing() {
    // The client reports it like this.
    let page =
        CloudError::new(ErrorKind::Malformed, "HTTP 404: no such page").with_request_id("req-1");
    let rig = Rig::new(Scripted::with_servers(0..10));
    rig.cloud.fail(move |path, _| path.starts_with("/servers/0").then(|| Err(page.clone())));
    for node in [known(404), fresh(404), fresh(3)] {
        let error = error(&rig.look(node).await);
        assert_eq!(error.kind, ErrorKind::Malformed);
        assert!(error.message.contains("no such page"), "{error}");
        assert_eq!(error.request_id.as_deref(), Some("req-1"));
    }
    let crowd: Vec<_> = (0..9).map(known).chain([known(404), fresh(404)]).collect();
    let answers = rig.look_all(&crowd).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 9);
    assert_eq!(error(&answers[9]).kind, ErrorKind::Malformed);
}

#[tokio::test]
async fn gone_by_name() {
    let rig = Rig::new(Scripted::with_servers(0..10));
    for name in ["node-00404", "node-0000", "node.00001", "node-0000."] {
        for node in
            [NodeIdentity::named(name), NodeIdentity { name: name.to_owned(), ..fresh(404) }]
        {
            for answer in both_ways(&rig, &node).await {
                let proof = gone(&answer);
                assert_eq!(proof.method, ProofMethod::ByName, "{name}");
                assert!(proof.evidence.contains(name), "{proof:?}");
                assert!(proof.evidence.contains("none of the 10 servers"), "{proof:?}");
                let tried = node.system_uuid.as_ref().map(|uuid| {
                    format!("no server has the node's system UUID {uuid} as its ID, and none")
                });
                assert!(tried.is_none_or(|it| proof.evidence.starts_with(&it)), "{proof:?}");
            }
        }
    }
    rig.cloud.change(9, "status", json!("SOFT_DELETED"));
    for node in [named(9), fresh(9)] {
        for answer in both_ways(&rig, &node).await {
            assert_eq!(gone(&answer).method, ProofMethod::ByName);
        }
    }
}

#[tokio::test]
async fn names_may_differ_in_case() {
    let rig = Rig::new(Scripted::with_servers(0..10));
    rig.cloud.change(3, "name", json!("K8s-Worker-1"));
    let worker = || NodeIdentity::named("k8s-worker-1");
    for answer in both_ways(&rig, &worker()).await {
        assert_eq!(found(&answer), "K8s-Worker-1");
    }
    // Of two servers the one that is spelt like the node counts. Without such a server, neither
    // counts.
    rig.cloud.change(4, "name", json!("k8s-worker-1"));
    for answer in both_ways(&rig, &worker()).await {
        assert_eq!(found(&answer), "k8s-worker-1");
    }
    rig.cloud.change(4, "name", json!("K8S-worker-1"));
    for answer in both_ways(&rig, &worker()).await {
        assert_eq!(error(&answer).kind, ErrorKind::Conflict);
    }
    // Another server's UUID and a name that differs in case are still two servers.
    rig.cloud.change(4, "name", json!("other"));
    let twofold = NodeIdentity { name: "k8s-worker-1".to_owned(), ..fresh(5) };
    for answer in both_ways(&rig, &twofold).await {
        assert_eq!(error(&answer).kind, ErrorKind::Conflict);
    }
}

#[tokio::test]
async fn a_name_proves_nothing_while_names_are_missing() {
    let silent = |rig: &Rig| rig.cloud.take_cell_down(9);
    let unreadable = |rig: &Rig| rig.cloud.change(9, "name", json!(9));
    let nameless: [&dyn Fn(&Rig); 2] = [&silent, &unreadable];
    for (spoil, kind) in nameless.into_iter().zip([ErrorKind::Unavailable, ErrorKind::Malformed]) {
        let rig = Rig::new(Scripted::with_servers(0..10));
        spoil(&rig);
        for node in [named(9), named(404)] {
            for answer in both_ways(&rig, &node).await {
                let error = error(&answer);
                assert_eq!(error.kind, ErrorKind::Unavailable);
                assert!(error.message.contains("1 of the 10"), "{error}");
            }
        }
        // The server exists, so its node is kept as it is.
        for node in [known(9), fresh(9)] {
            for answer in both_ways(&rig, &node).await {
                let error = error(&answer);
                assert_eq!(error.kind, kind, "{error}");
                assert!(error.message.contains(&uuid(9)), "{error}");
            }
        }
        for answer in both_ways(&rig, &named(3)).await {
            assert_eq!(found(&answer), "node-00003");
        }
    }
}

/// Spoils a rig.
type Spoil = fn(&Rig);

#[tokio::test]
async fn a_name_proves_nothing_where_the_list_may_lack_servers() {
    let speak = |rig: &Rig, minor: Option<u32>| {
        rig.cloud.world.lock().spoken.0 = minor.map(|minor| Microversion { major: 2, minor });
    };
    let cases: [(Spoil, &str); 5] = [
        (|rig| rig.cloud.world.lock().page = Some(10), "several pages"),
        (|rig| rig.cloud.world.lock().page = Some(3), "several pages"),
        (|rig| rig.cloud.world.lock().unlisted = (0..10).map(uuid).collect(), "it is empty"),
        (
            |rig| {
                let mut list = answer(200, &json!({"servers": [server(0)]}));
                list.request_id = None;
                rig.cloud
                    .fail(move |path, _| (path == "/servers/detail").then(|| Ok(list.clone())));
            },
            "no request ID",
        ),
        (|rig| rig.cloud.world.lock().spoken.0 = None, "no microversion"),
    ];
    let refused = |answer: &LookupResult, expect: &str| {
        let error = error(answer);
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        for part in ["node-00404", "does not prove it", expect] {
            assert!(error.message.contains(part), "{error}");
        }
    };
    for (spoil, expect) in cases {
        let rig = Rig::new(Scripted::with_servers(0..10));
        spoil(&rig);
        for node in [named(404), fresh(404)] {
            both_ways(&rig, &node).await.iter().for_each(|answer| refused(answer, expect));
        }
    }
    for (minor, proves) in [(1, false), (68, false), (69, true), (100, true)] {
        let rig = Rig::new(Scripted::with_servers(0..10));
        speak(&rig, Some(minor));
        for answer in both_ways(&rig, &named(404)).await {
            if proves {
                assert_eq!(gone(&answer).method, ProofMethod::ByName);
            } else {
                refused(&answer, &format!("supports 2.{minor}"));
            }
        }
        // A lookup by ID is proof, even if the list shows the server.
        assert_eq!(gone(&rig.look(known(404)).await).method, ProofMethod::ById);
    }
}

#[tokio::test]
async fn a_server_of_a_silent_cell_is_never_gone_by_name() {
    for minor in [68, 79] {
        for page in [3, 5, 1_000] {
            let rig = Rig::new(Scripted::with_servers(0..10));
            rig.cloud.world.lock().spoken.0 = Some(Microversion { major: 2, minor });
            rig.cloud.world.lock().page = Some(page);
            rig.cloud.take_cell_down(9);
            for answer in both_ways(&rig, &named(9)).await {
                assert_eq!(error(&answer).kind, ErrorKind::Unavailable, "2.{minor}, {page} a page");
            }
        }
    }
}

#[tokio::test]
async fn an_error_concerns_only_those_who_need_the_answer() {
    let rig = Rig::new(Scripted::with_servers(0..10));
    let failed = CloudError::new(ErrorKind::Unavailable, "no").with_request_id("req-7");
    let expect = failed.clone();
    let one = format!("/servers/{}", uuid(2));
    rig.cloud.fail(move |path, _| (path == one).then(|| Err(failed.clone())));
    let answers = rig.look_all(&[known(1), known(2), known(404)]).await;
    assert_eq!(found(&answers[0]), "node-00001");
    assert_eq!(answers[1], Err(expect.clone()));
    gone(&answers[2]);
    // Without ports no instance can be described, but a missing one is still gone.
    let failed = expect.clone();
    rig.cloud.fail(move |path, _| path.starts_with("/ports").then(|| Err(failed.clone())));
    let answers = rig.look_all(&[known(1), known(404), with_id(3, "aws:///x")]).await;
    assert_eq!(answers[0], Err(expect.clone()));
    gone(&answers[1]);
    assert!(matches!(answers[2], Ok(Lookup::NotOurs(_))));
    // After a failed list no instance counts as found or gone.
    let failed = expect.clone();
    rig.cloud.fail(move |path, _| path.starts_with("/servers").then(|| Err(failed.clone())));
    let nodes: Vec<_> = (0..9).map(known).chain([with_id(3, "aws:///x")]).collect();
    let mut answers = rig.look_all(&nodes).await;
    assert!(matches!(answers.pop(), Some(Ok(Lookup::NotOurs(_)))));
    assert!(answers.into_iter().all(|answer| answer == Err(expect.clone())));
}

#[tokio::test]
async fn an_answer_about_another_server_is_refused() {
    let rig = Rig::new(Scripted::with_servers(0..2));
    rig.cloud.fail(|path, _| {
        let other = json!({"server": ccm_openstack_client::scripted::server(1)});
        path.starts_with("/servers/").then(|| Ok(answer(200, &other)))
    });
    let error = error(&rig.look(known(0)).await);
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert!(error.message.contains(&uuid(0)) && error.message.contains(&uuid(1)), "{error}");
}

#[tokio::test]
async fn two_nodes_may_ask_for_one_server() {
    let rig = Rig::new(Scripted::with_servers(0..10));
    let nodes: Vec<_> = (0..9).map(|_| known(5)).collect();
    for answer in rig.look_all(&nodes).await {
        assert_eq!(found(&answer), "node-00005");
    }
}

/// A node may have an ID with the region although no region is configured.
#[tokio::test]
async fn the_id_with_the_region_in_use_is_one_of_the_spellings() {
    let plain = format!("openstack:///{}", uuid(3));
    for (configured, expect) in [(None, "openstack://r1/"), (Some("bench"), "openstack://bench/")] {
        let rig = Rig::shaped(Scripted::with_servers(0..10), |config| {
            config.access.region = configured.map(str::to_owned);
        });
        rig.cloud.world.lock().region = Some("r1".to_owned());
        let mut all = rig.refreshed().await;
        all.extend(rig.instances.list(call()).await.unwrap().instances);
        all.retain(|instance| instance.provider_id.as_str() == plain);
        let others = [format!("{expect}{}", uuid(3))];
        assert_eq!(all.len(), 2);
        for instance in all {
            assert!(
                instance.other_ids.iter().map(ccm_cloud::ProviderId::as_str).eq(&others),
                "{instance:?}"
            );
        }
    }
}
