//! Tests whole lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use ccm_cloud::ErrorKind;
use ccm_openstack_client::scripted::{answer, any_json, port, server};
use proptest::prelude::*;
use serde_json::json;

use super::*;

async fn names(rig: &Rig) -> Vec<String> {
    let fleet = rig.instances.list(call()).await.unwrap();
    assert_eq!(fleet.malformed, [""; 0]);
    fleet.instances.into_iter().map(|instance| instance.name).collect()
}

#[tokio::test]
async fn page_by_page() {
    for page in [1, 7, 10, 1_000] {
        let rig = Rig::new(Scripted::with_servers(0..20));
        rig.cloud.world.lock().page = Some(page);
        let expect: Vec<_> = (0..20).map(|number| format!("node-{number:05}")).collect();
        assert_eq!(names(&rig).await, expect, "pages of {page}");
        let lists = rig.cloud.operations().iter().filter(|o| **o == "server_list").count();
        assert_eq!(lists, 20 / page + 1);
    }
}

#[tokio::test]
async fn a_server_on_two_pages_counts_once() {
    let rig = Rig::new(Scripted::with_servers(0..6));
    rig.cloud.world.lock().page = Some(3);
    rig.cloud.fail(|path, _| {
        // Another user created server 9 in the meantime, so server 2 moved to the second page.
        let page: Vec<_> = [2, 3, 4, 5].map(server).into();
        path.contains("/servers?marker").then(|| Ok(answer(200, &json!({"servers": page}))))
    });
    let expect: Vec<_> = (0..6).map(|number| format!("node-{number:05}")).collect();
    assert_eq!(names(&rig).await, expect);
}

#[tokio::test]
async fn a_list_with_a_hole_is_no_list() {
    let broken = [
        Err(CloudError::new(ErrorKind::Unavailable, "no")),
        Ok(answer(200, &json!({}))),
        Ok(answer(200, &json!([]))),
        Ok(answer(200, &json!({"servers": {}, "ports": 5}))),
        Ok(answer(200, &json!({"servers": null, "ports": null}))),
        Ok(answer(404, &json!({"itemNotFound": {}}))),
        // This list never ends.
        Ok(answer(
            200,
            &json!({"servers": [server(3)], "servers_links": [{"rel": "next"}],
                               "ports": [port(3)], "ports_links": [{"rel": "next"}]}),
        )),
        Ok(answer(
            200,
            &json!({"servers": [], "servers_links": [{"rel": "next"}],
                               "ports": [], "ports_links": [{"rel": "next"}]}),
        )),
    ];
    let lists = ["/servers", "/servers?marker"];
    let lookups = ["/servers/detail", "/servers/detail?marker", "/ports?", "marker"];
    for what in lists.into_iter().chain(lookups) {
        for answer in &broken {
            let rig = Rig::new(Scripted::with_servers(0..6));
            rig.cloud.world.lock().page = Some(4);
            let answer = answer.clone();
            let is_list = lists.contains(&what);
            let affects = move |path: &str| match is_list {
                true => path.starts_with(what) && !path.starts_with("/servers/"),
                false => path.contains(what),
            };
            rig.cloud.fail(move |path, _| affects(path).then(|| answer.clone()));
            if is_list {
                let error = rig.instances.list(call()).await.unwrap_err();
                let kinds = [ErrorKind::Unavailable, ErrorKind::Malformed, ErrorKind::NotFound];
                assert!(kinds.contains(&error.kind), "{error}");
                assert!(!matches!(error.kind, ErrorKind::Malformed) || error.request_id.is_some());
            }
            for answer in rig.refresh().await {
                assert!(!matches!(answer, Ok(Lookup::Gone(_))), "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn one_malformed_server_never_spoils_the_rest() {
    let rig = Rig::new(Scripted::with_servers(0..8));
    rig.cloud.change(1, "status", json!(7));
    rig.cloud.change(2, "addresses", json!({"k8s": [{"addr": "10.0.0.300"}]}));
    rig.cloud.take_cell_down(3);
    rig.cloud.world.lock().servers[4] = json!("nonsense");
    rig.cloud.world.lock().ports[5]["fixed_ips"] = json!(17);
    rig.cloud.world.lock().servers.push(json!({"id": 5, "name": "odd"}));
    let fleet = rig.instances.list(call()).await.unwrap();
    let names: Vec<_> = fleet.instances.iter().map(|instance| instance.name.as_str()).collect();
    let expect = [0, 1, 2, 5, 6, 7].map(|number| format!("node-{number:05}"));
    assert_eq!(names, expect);
    assert_eq!(fleet.malformed.len(), 3, "{:?}", fleet.malformed);
    for expect in [uuid(3), "without one".to_owned(), "odd".to_owned()] {
        let lines = &fleet.malformed;
        assert!(lines.iter().any(|line| line.contains(&expect)), "{expect:?} not in {lines:?}");
    }
    let nodes = [0, 6, 7, 1, 2, 3, 5].map(known);
    let answers = rig.look_all(&nodes).await;
    assert!(answers[..3].iter().all(Result::is_ok));
    let expect = [
        [&*uuid(1), "node-00001"],
        [&uuid(2), "10.0.0.300"],
        [&uuid(3), "UNKNOWN"],
        [&uuid(5), "port"],
    ];
    for (answer, parts) in answers[3..].iter().zip(expect) {
        let message = error(answer).message;
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?} not in {message}");
    }
}

#[tokio::test]
async fn a_page_may_end_with_a_server_of_a_silent_cell() {
    // After such a server Nova would find no page.
    let rig = Rig::new(Scripted::with_servers(0..6));
    rig.cloud.world.lock().page = Some(3);
    rig.cloud.take_cell_down(2);
    let fleet = rig.instances.list(call()).await.unwrap();
    assert_eq!((fleet.instances.len(), fleet.malformed.len()), (5, 1));
    assert_eq!(rig.refresh().await.iter().filter(|answer| answer.is_ok()).count(), 5);
    let calls = rig.cloud.world.lock().calls.clone();
    let markers: BTreeSet<_> =
        calls.iter().filter_map(|(_, path)| path.split_once("marker=")).collect();
    assert!(markers.iter().all(|(_, marker)| *marker != uuid(2)), "{markers:?}");
}

#[tokio::test]
async fn nova_is_never_given_a_reason_to_hide_silent_cells() {
    let rig = Rig::new(Scripted::with_servers(0..4));
    rig.refreshed().await;
    rig.instances.list(call()).await.unwrap();
    let calls = rig.cloud.world.lock().calls.clone();
    let lists = calls.iter().filter(|(operation, _)| *operation == "server_list");
    assert!(lists.map(|(_, path)| &**path).eq(["/servers/detail", "/servers"]));
}

#[tokio::test]
async fn a_list_with_too_many_malformed_entries_proves_nothing() {
    let rig = Rig::new(Scripted::default());
    rig.cloud.world.lock().servers = (0..900).map(|_| json!(1)).collect();
    assert_eq!(rig.instances.list(call()).await.unwrap().malformed.len(), 900);
    let rows: Vec<_> = (0..1_200).map(|_| json!(1)).collect();
    rig.cloud.fail(move |_, _| Some(Ok(answer(200, &json!({"servers": rows})))));
    let error = rig.instances.list(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Malformed);
    assert!(error.message.starts_with("1200 entries"), "{error}");
}

/// Answers all lists of servers with pages of five, which never end. `change` is applied to each server.
fn endless(rig: &Rig, change: impl Fn(&mut serde_json::Value) + Send + 'static) {
    let next = AtomicUsize::new(0);
    rig.cloud.fail(move |path, _| {
        let is_list = path.strip_prefix("/servers").is_some_and(|rest| !rest.starts_with("/0"));
        let first = next.fetch_add(if is_list { 5 } else { 0 }, Ordering::Relaxed) + 100;
        let mut servers: Vec<_> = (first..first + 5).map(server).collect();
        servers.iter_mut().for_each(&change);
        let page = json!({"servers": servers, "servers_links": [{"rel": "next"}]});
        is_list.then(|| Ok(answer(200, &page)))
    });
}

fn lists_asked_for(rig: &Rig) -> usize {
    rig.cloud.operations().iter().filter(|operation| **operation == "server_list").count()
}

#[tokio::test]
async fn all_pages_of_a_list_together_take_a_bounded_memory() {
    let rig = Rig::new(Scripted::with_servers(0..6));
    endless(&rig, |server| server["name"] = json!("n".repeat(2 << 20)));
    let error = rig.instances.list(call()).await.unwrap_err();
    assert_eq!(error.message, "server_list: the list takes more than 32 MiB of memory");
    assert!(lists_asked_for(&rig) <= 4, "{} pages", lists_asked_for(&rig));
}

#[tokio::test]
async fn what_a_list_takes_in_memory_counts_and_not_its_length() {
    let rig = Rig::new(Scripted::with_servers(0..6));
    let metadata: BTreeMap<_, _> = (0..50_000).map(|key| (format!("{key:x}"), "")).collect();
    endless(&rig, move |server| server["metadata"] = json!(metadata));
    let nodes: Vec<_> = (0..6).map(known).collect();
    for found in rig.look_all(&nodes).await {
        // Single requests still work.
        assert!(matches!(found, Ok(Lookup::Found(_))), "{found:?}");
    }
    assert!(lists_asked_for(&rig) <= 4, "{} pages", lists_asked_for(&rig));
}

proptest! {
    #[test]
    fn no_body_is_too_much(
        body in any_json(),
        rows in prop::collection::vec(any_json(), 0..4),
        what in prop::sample::select(vec!["/servers/detail", "/servers/", "/ports", "/servers", "/"]),
        as_list: bool,
    ) {
        let body = if as_list { json!({"servers": rows, "ports": rows}) } else { body };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new(Scripted::with_servers(0..3));
            rig.cloud.fail(move |path, _| path.starts_with(what).then(|| Ok(answer(200, &body))));
            drop(rig.instances.list(call()).await);
            for answer in rig.look_all(&[known(0), fresh(1), known(2)]).await {
                assert!(!matches!(answer, Ok(Lookup::Gone(_))), "{answer:?}");
            }
        });
    }
}
