use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use ccm_kube::store::Rule;
use ccm_objects::{Node, Shared};
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, service_fn};

use super::*;

/// A second kind: one with a group and a namespace.
#[derive(Clone, Debug, PartialEq)]
struct LeanLease {
    key: Shared,
}

impl Stored for LeanLease {
    type Wire = Lease;
    type Kept = ();

    fn key(&self) -> &Shared {
        &self.key
    }

    fn uid(&self) -> &'static str {
        "uid"
    }

    fn resource_version(&self) -> &'static str {
        "1"
    }

    fn read(wire: Lease, _: &Rule<()>) -> Result<Self, String> {
        let meta = wire.metadata;
        let name = meta.name.ok_or("it has no name")?;
        Ok(Self { key: format!("{}/{name}", meta.namespace.unwrap_or_default()).into() })
    }
}

/// Returns an API server with one node and two Leases, whose watches show a bookmark and end.
fn client() -> kube::Client {
    let service = service_fn(|request: Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            let metadata = json!({"resourceVersion": "2"});
            let object = json!({"kind": "Any", "apiVersion": "v1", "metadata": metadata});
            let bookmark = json!({"type": "BOOKMARK", "object": object}).to_string() + "\n";
            return Ok::<_, BoxError>(Response::new(Full::new(bookmark.into())));
        }
        let object = |name: &str| json!({"metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1"}});
        let items = match request.uri().path() {
            "/api/v1/nodes" => vec![object("node-1")],
            "/apis/coordination.k8s.io/v1/leases" => vec![object("a"), object("b")],
            path => panic!("{path}"),
        };
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
        let body = Full::new(Bytes::from(list.to_string()));
        Ok(Response::new(body))
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn two_kinds_share_metrics_and_have_separate_checks() {
    let (registry, token) = (Metrics::new(), CancellationToken::new());
    let watches = Watches {
        client: client(),
        health: Health::default(),
        eligibility: Eligibility::default(),
        supervisor: Supervisor::new(token.clone()),
        token: token.clone(),
        metrics: metrics(&registry),
        streams: false,
    };
    let (nodes, leases) = (Store::<Node>::new(), Store::<LeanLease>::new());
    tokio::join!(watches.watch(&nodes, drop), watches.watch(&leases, drop));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watches.eligibility.obstacle(), None);
    let mut checks: Vec<_> = watches
        .health
        .findings()
        .into_iter()
        .map(|found| format!("{}: {}", found.name, found.verdict.detail()))
        .collect();
    checks.sort();
    assert_eq!(checks, ["leases: 2 leases watched", "nodes: 1 nodes watched"]);
    let mut tasks = watches.supervisor.running();
    tasks.sort();
    assert_eq!(tasks, ["lease-informer", "node-informer"]);

    let page = registry.encode().expect("a page");
    let mut seen = HashSet::new();
    for line in page.lines() {
        // Comments and series: each may appear only once.
        let key = match line.split_once(' ') {
            Some(("#", rest)) => rest.split(' ').take(2).collect::<Vec<_>>().join(" "),
            Some((series, _)) => series.to_owned(),
            None => line.to_owned(),
        };
        assert!(seen.insert(key), "twice: {line}\n{page}");
    }
    for series in [
        r#"ccm_informer_objects{resource="nodes"} 1"#,
        r#"ccm_informer_objects{resource="leases"} 2"#,
    ] {
        assert!(page.lines().any(|line| line == series), "{series} in\n{page}");
    }
    token.cancel();
}

#[test]
fn rights_follow_from_the_kind() {
    let lines = |rights: [Right; 2]| rights.map(|right| right.to_string());
    assert_eq!(lines(rights::<Node>()), ["list nodes", "watch nodes"]);
    assert_eq!(
        lines(rights::<LeanLease>()),
        ["list leases.coordination.k8s.io", "watch leases.coordination.k8s.io"]
    );
}
