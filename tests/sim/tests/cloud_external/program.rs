//! The program `sim-cloud`: changes on its pages can be seen over the external protocol.

use std::{process::Stdio, sync::Arc, time::Duration};

use bytes::Bytes;
use ccm_cloud::{
    Call, Cloud, Depth, Detail, ErrorKind, LoadBalancer, Lookup, NodeIdentity, PowerState,
    Progress, ProviderContext, ProviderFactory, Scope,
};
use ccm_external::ExternalFactory;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    calls::{apply, cluster, create, ensure, wanted},
    place::call,
};

/// A running program, and the contract as a controller sees it.
struct Place {
    cloud: Arc<dyn Cloud>,
    pages: String,
    child: Child,
    folder: tempfile::TempDir,
}

impl Place {
    async fn new(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = ccm_sim::program::free_port().unwrap();
        let config = folder.path().join("cloud.yaml");
        let child = Command::new(env!("CARGO_BIN_EXE_sim-cloud"))
            .arg(format!("--endpoint=unix://{}/s", folder.path().display()))
            .arg(format!("--pages=127.0.0.1:{port}"))
            .arg(format!("--cloud-config={}", config.display()))
            .args(arguments)
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // The file is written when both sockets are bound.
        while !config.exists() || std::fs::read(&config).unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let config = Some(config);
        let context = ProviderContext::ungated(config, "test/1");
        let cloud = ExternalFactory.build(context).await.unwrap();
        let described = async {
            while cloud.instances().is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), described).await.expect("it is served");
        Self { cloud, pages: format!("http://127.0.0.1:{port}"), child, folder }
    }

    async fn ask(&self, method: &str, path: &str, body: impl ToString) -> (u16, String) {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let request = http::Request::builder().method(method).uri(format!("{}{path}", self.pages));
        let answer = client.request(request.body(body.to_string().into()).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Returns a request that must succeed.
    async fn done(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, text) = self.ask(method, path, body).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.done("GET", path, Value::Null).await
    }

    async fn look(&self, name: &str) -> Lookup {
        let instances = self.cloud.instances().unwrap().unwrap();
        let nodes = [NodeIdentity::named(name)];
        instances.lookup(&nodes, Detail::Everything, call()).await.remove(0).unwrap()
    }

    /// Creates the routes of these nodes, and returns the kinds of the errors.
    async fn route(&self, numbers: &[u16]) -> Vec<Option<ErrorKind>> {
        let changes: Vec<_> = numbers.iter().copied().map(create).collect();
        let answers = apply(&self.cloud, &changes, None, call()).await;
        answers.into_iter().map(|answer| answer.err().map(|error| error.kind)).collect()
    }

    async fn ensure(
        &self,
        names: &[&str],
        call: Call,
    ) -> Vec<Result<Progress<LoadBalancer>, ErrorKind>> {
        let wanted: Vec<_> = names.iter().map(|name| wanted(name)).collect();
        let answers = ensure(&self.cloud, &wanted, call).await;
        answers.into_iter().map(|answer| answer.map_err(|error| error.kind)).collect()
    }
}

#[tokio::test]
async fn instances_come_and_go() {
    let place = Place::new(&["--instances=2", "--instance=kind-worker=172.18.0.3,fc00::3"]).await;
    let Lookup::Found(found) = place.look("kind-worker").await else { panic!("not found") };
    assert_eq!(found.provider_id.as_str(), "sim://kind-worker");
    let addresses: Vec<_> = found.addresses.iter().map(|it| it.address.as_str()).collect();
    assert_eq!(addresses, ["172.18.0.3", "fc00::3", "kind-worker"]);
    assert!(matches!(place.look("node-00001").await, Lookup::Found(_)));
    assert!(matches!(place.look("new").await, Lookup::Gone(_)));

    let new = json!({"name": "new", "id": "i-9", "zone": "z", "addresses": ["10.0.0.9"], "power": "stopped"});
    place.done("POST", "/instances", new).await;
    let Lookup::Found(found) = place.look("new").await else { panic!("not found") };
    assert_eq!((found.provider_id.as_str(), found.zone.as_deref()), ("sim://i-9", Some("z")));
    assert_eq!(found.power, PowerState::Stopped);
    let shown = place.get("/contents").await;
    assert_eq!(shown["instances"].as_array().unwrap().len(), 4);
    for id in ["new", "kind-worker"] {
        place.done("DELETE", &format!("/instances/{id}"), Value::Null).await;
        assert!(matches!(place.look(id).await, Lookup::Gone(_)), "{id}");
    }
    assert_eq!(place.ask("DELETE", "/instances/new", "").await.0, 404);
}

#[tokio::test]
async fn load_balancers_are_shown_counted_and_deleted_out_of_band() {
    let place = Place::new(&[]).await;
    place.done("DELETE", "/counters", Value::Null).await;
    place
        .done("POST", "/settings", json!({"create": "1h", "fences": true, "showsEmpty": false}))
        .await;
    let answers = place.ensure(&["web", "api"], call()).await;
    assert!(matches!(answers[..], [Ok(Progress::InProgress(_)), Ok(Progress::InProgress(_))]));
    let shown = &place.get("/contents").await["loadBalancers"];
    let pool = json!({"protocol": "TCP", "port": 80, "members": 0, "why_empty": null});
    assert_eq!(shown[0]["pools"], json!([pool]));
    assert_eq!(
        (&shown[0]["owners"], &shown[0]["state"]),
        (&json!(["default/web"]), &json!("PENDING_CREATE"))
    );
    let counters = place.get("/counters").await;
    assert_eq!(counters["calls"]["ensure_load_balancers"], 1);
    assert_eq!(
        (&counters["loadBalancersInBatches"], &counters["writes"]["create"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(place.get("/settings").await["create"], "1h0m0s");
    assert_eq!(place.get("/settings").await["identity"], ccm_sim::cloud::IDENTITY);
    let named = place.done("POST", "/settings", json!({"identity": "another project"})).await;
    assert_eq!(named["identity"], "another project");
    assert_eq!(place.get("/settings").await["fences"], true);
    assert_eq!(place.get("/settings").await["showsEmpty"], false);

    let id = shown[0]["id"].as_str().unwrap();
    place.done("DELETE", &format!("/load-balancers/{id}"), Value::Null).await;
    let balancers = place.cloud.load_balancers().unwrap().unwrap();
    let list = balancers.list(&cluster(), Scope::Cluster, Depth::Summary, call()).await.unwrap();
    let left: Vec<_> =
        list.load_balancers.iter().map(|it| it.owner.as_ref().unwrap().name.as_str()).collect();
    assert_eq!(left, ["api"]);
    assert_eq!(place.ask("DELETE", "/load-balancers/none", "").await.0, 404);
}

#[tokio::test]
async fn faults_hit_whole_calls_and_single_load_balancers() {
    let place = Place::new(&["--instances=1"]).await;
    let fault =
        json!({"effect": "error", "kind": "quota_exceeded", "owners": ["default/web"], "times": 1});
    place.done("POST", "/faults", fault.clone()).await;
    assert_eq!(place.get("/faults").await, json!([{"id": 0, "fault": fault}]));
    let answers = place.ensure(&["web", "api"], call()).await;
    assert!(
        matches!(answers[..], [Err(ErrorKind::QuotaExceeded), Ok(Progress::Done(_))]),
        "{answers:?}"
    );
    assert_eq!(place.get("/faults").await, json!([]), "it was for one load balancer");

    let hang = json!({"effect": "hang", "owners": ["default/web"]});
    let id = place.done("POST", "/faults", hang).await["id"].clone();
    let answers = place.ensure(&["web", "api"], Call::waiting(Duration::from_millis(500))).await;
    assert!(matches!(answers[..], [Err(ErrorKind::Timeout), Ok(Progress::Done(_))]), "{answers:?}");
    place.done("DELETE", &format!("/faults/{id}"), Value::Null).await;
    assert_eq!(place.ask("DELETE", &format!("/faults/{id}"), "").await.0, 404);
    assert!(matches!(place.ensure(&["web"], call()).await[..], [Ok(Progress::Done(_))]));

    let only = json!({"effect": "error", "kind": "forbidden", "operation": "list_instances"});
    place.done("POST", "/faults", only).await;
    let instances = place.cloud.instances().unwrap().unwrap();
    let error = instances.list(call()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Forbidden);
    assert!(matches!(place.look("node-00000").await, Lookup::Found(_)));
    assert_eq!(place.done("DELETE", "/faults", Value::Null).await, json!([]));
    assert_eq!(instances.list(call()).await.unwrap().instances.len(), 1);
}

#[tokio::test]
async fn routes_are_shown_counted_and_changed_out_of_band() {
    let place = Place::new(&["--instance=node-1=10.0.0.1", "--instance=node-2=10.0.0.2"]).await;
    let settings = json!({"routes": {"quota": 3, "recordsOwner": true, "targets": "address"}});
    let shown = &place.done("POST", "/settings", settings).await["routes"];
    assert_eq!((&shown["quota"], &shown["maxBatch"]), (&json!(3), &json!(500)));
    let foreign = json!({"destination": "10.244.9.0/24", "target": {"address": "10.0.0.9"}});
    place.done("POST", "/routes", foreign).await;
    place.done("POST", "/ports", json!({"address": "10.0.0.9"})).await;
    place.done("DELETE", "/counters", Value::Null).await;

    let fault = json!({"effect": "break", "routes": ["node-2"], "times": 1});
    place.done("POST", "/faults", fault).await;
    assert_eq!(place.route(&[1, 2, 3]).await, [None, None, Some(ErrorKind::QuotaExceeded)]);
    let router = &place.get("/contents").await["router"];
    let shown = router["routes"].as_array().unwrap();
    assert_eq!(shown[0]["owner"]["name"], "node-1");
    assert_eq!(shown[1]["defect"], "the port of 10.0.0.2 does not allow 10.244.2.0/24");
    assert_eq!((shown.len(), &router["ports"]), (3, &json!(["10.0.0.9"])));
    let counters = place.get("/counters").await;
    assert_eq!(
        (&counters["calls"]["apply_routes"], &counters["routesInBatches"]),
        (&json!(1), &json!(3))
    );
    assert_eq!(
        counters["routeWrites"],
        json!({"create": 2, "repair": 0, "replace": 0, "delete": 0})
    );
    let table = place.cloud.routes().unwrap().unwrap();
    let table = table.list(&cluster(), call()).await.unwrap();
    assert_eq!((table.routes.len(), table.room), (3, Some(0)));

    place.done("DELETE", "/routes/10.244.9.0/24", Value::Null).await;
    place.done("DELETE", "/ports/10.0.0.9", Value::Null).await;
    place.done("POST", "/settings", json!({"routes": {"quota": null}})).await;
    let overtake = json!({"effect": "overtake", "routes": ["10.244.3.0/24"], "times": 1});
    place.done("POST", "/faults", overtake).await;
    assert_eq!(place.route(&[1, 2, 3]).await, [None, None, Some(ErrorKind::Conflict)]);
    let router = &place.get("/contents").await["router"];
    assert_eq!(router["routes"][1]["defect"], Value::Null, "it was repaired");
    assert_eq!(router["routes"][2]["target"], json!({"address": "192.0.2.1"}));
    assert_eq!(place.done("DELETE", "/counters", Value::Null).await["routeWrites"]["create"], 0);
    assert_eq!(place.ask("DELETE", "/routes/10.244.9.0/24", "").await.0, 404);
    assert_eq!(place.ask("DELETE", "/ports/10.0.0.9", "").await.0, 404);
}

#[tokio::test]
async fn wrong_requests_are_refused_in_one_line() {
    let place = Place::new(&[]).await;
    for (method, path, body, status, expect) in [
        ("GET", "/nothing", "", 404, "GET / lists them"),
        ("POST", "/contents", "", 404, "no page POST /contents"),
        ("POST", "/instances", "{", 400, "the body: EOF"),
        ("POST", "/instances", r#"{"name": "a", "adresses": []}"#, 400, "unknown field `adresses`"),
        ("POST", "/instances", r#"{"name": "a", "addresses": ["x"]}"#, 400, "IP address"),
        ("POST", "/instances", r#"{"name": ""}"#, 400, "may not be empty"),
        ("POST", "/settings", r#"{"create": "soon"}"#, 400, "\"soon\" must be a duration"),
        ("POST", "/faults", r#"{"effect": "boom"}"#, 400, "unknown variant `boom`"),
        ("POST", "/faults", r#"{"effect": "delay"}"#, 400, "this effect needs delay"),
        ("POST", "/faults", r#"{"effect": "error"}"#, 400, "this effect needs kind"),
        ("POST", "/faults", r#"{"effect": "stick"}"#, 400, "this effect needs owners"),
        ("POST", "/faults", r#"{"effect": "hang", "delay": "1s"}"#, 400, "delay has no meaning"),
        ("POST", "/faults", r#"{"effect": "overtake"}"#, 400, "this effect needs routes"),
        (
            "POST",
            "/faults",
            r#"{"effect": "overtake", "owners": []}"#,
            400,
            "owners has no meaning",
        ),
        (
            "POST",
            "/faults",
            r#"{"effect": "hang", "owners": [], "routes": []}"#,
            400,
            "add one for each",
        ),
        ("POST", "/settings", r#"{"routes": {"quotas": 1}}"#, 400, "unknown field `quotas`"),
        ("POST", "/settings", r#"{"routes": {"maxBatch": 0}}"#, 400, "at least 1"),
        ("POST", "/settings", r#"{"routes": {"targets": "mac"}}"#, 400, "unknown variant `mac`"),
        ("POST", "/routes", r#"{"destination": "10.0.0.0"}"#, 400, "invalid IP"),
        ("POST", "/routes", r#"{"target": {"node": "a"}}"#, 400, "missing field `destination`"),
        ("DELETE", "/routes/web", "", 400, "\"web\" is not a network"),
        ("POST", "/ports", r#"{"address": "x"}"#, 400, "invalid IP address"),
        ("DELETE", "/ports/x", "", 400, "\"x\" is not an IP address"),
        (
            "POST",
            "/faults",
            r#"{"effect": "hang", "operation": "x"}"#,
            400,
            "one of lookup_instances",
        ),
        ("POST", "/faults", r#"{"effect": "hang", "probability": 2}"#, 400, "not in 0 to 1"),
        ("DELETE", "/faults/7", "", 404, "no fault 7"),
    ] {
        let (got, text) = place.ask(method, path, body).await;
        assert_eq!(got, status, "{method} {path} {body}: {text}");
        assert!(text.contains(expect) && text.lines().count() == 1, "{text}");
    }
    let large = place.ask("POST", "/instances", " ".repeat(70_000)).await;
    assert_eq!((large.0, large.1.lines().count()), (400, 1));
    let (status, help) = place.ask("GET", "/", "").await;
    assert!(status == 200 && help.contains("POST   /faults"));
    assert_eq!(place.get("/contents").await["instances"], json!([]));
    assert_eq!(place.get("/faults").await, json!([]));
}

#[tokio::test]
async fn it_ends_in_order_and_refuses_wrong_flags() {
    let mut place = Place::new(&[]).await;
    let pid = ccm_sim::program::pid(place.child.id().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), place.child.wait()).await;
    assert!(ended.expect("it ends").unwrap().success());
    assert!(!place.folder.path().join("s").exists(), "the socket is removed");
    for (flag, expect) in [
        ("--endpoint=ftp://x", "ftp://x"),
        ("--endpoint=https://127.0.0.1:0", "has no certificate"),
        ("--pages=192.0.2.1:80", "--pages: cannot listen on 192.0.2.1:80"),
        ("--cloud-config=/none/cloud.yaml", "--cloud-config: cannot write /none/cloud.yaml"),
        ("--instance==10.0.0.1", "expected the name of a node"),
        ("--instance=a=b", "\"b\" is not an IP address"),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_sim-cloud"))
            .args(
                ["--endpoint=http://127.0.0.1:0", "--pages=127.0.0.1:0"]
                    .iter()
                    .filter(|known| known.split('=').next() != flag.split('=').next()),
            )
            .arg(flag)
            .kill_on_drop(true)
            .output();
        let run = tokio::time::timeout(Duration::from_secs(10), run).await;
        let run = run.unwrap_or_else(|_| panic!("{flag} is accepted")).unwrap();
        let text = String::from_utf8(run.stderr).unwrap();
        assert!(!run.status.success() && text.contains(expect), "{flag}: {text}");
        let lines = text.lines().filter(|line| line.contains("rror")).count();
        assert_eq!(lines, 1, "{flag}: {text}");
    }
}
