use std::sync::Arc;

use bytes::Bytes;
use ccm_kube::{
    client::{ClientConfig, Unlimited},
    metrics::RestMetrics,
};
use ccm_testing::Log;
use http::{Request, Response};
use http_body_util::Full;
use kube::{
    api::{Api, Patch, PatchParams},
    client::Body,
};
use parking_lot::Mutex;
use serde_json::json;
use tower::{BoxError, service_fn};
use tracing::{Level, subscriber::DefaultGuard};

use super::*;

/// The API server's answers about both kinds, and to each patch.
#[derive(Clone)]
struct Server {
    policy: (u16, Value),
    binding: (u16, Value),
    refuses: String,
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": message})
}

fn denied(by: &str, words: &str) -> String {
    format!(
        "nodes \"n\" is forbidden: ValidatingAdmissionPolicy '{by}' with binding '{by}' denied request: {words}"
    )
}

fn binding(actions: &[&str]) -> Value {
    json!({"spec": {"policyName": "node-ccm", "validationActions": actions}})
}

fn installed() -> Server {
    let refuses = denied("node-ccm", "node-ccm may not write label team");
    Server { policy: (200, json!({})), binding: (200, binding(&["Deny"])), refuses }
}

struct Running {
    server: Arc<Mutex<Server>>,
    clients: Clients,
    health: Health,
    metrics: Metrics,
    log: Log,
    _listens: DefaultGuard,
    _task: tokio::task::JoinSet<()>,
}

impl Running {
    async fn start(server: Server) -> Self {
        let (health, metrics, log) = (Health::default(), Metrics::new(), Log::new());
        let listens = log.listen(Level::INFO);
        let server = Arc::new(Mutex::new(server));
        let clients = clients(&server);
        let policy = OwnPolicy::new("node-ccm", &clients, &health, &metrics);
        let mut task = tokio::task::JoinSet::new();
        task.spawn(policy.run(CancellationToken::new()));
        let running =
            Self { server, clients, health, metrics, log, _listens: listens, _task: task };
        running.pass(Duration::from_millis(10)).await;
        running
    }

    async fn pass(&self, time: Duration) {
        sleep(time).await;
    }

    fn line(&self) -> String {
        let found = self.health.findings();
        let line = found.iter().find(|found| found.name == "admission-policy").unwrap();
        assert_eq!(line.scope, Scope::Information, "it never fails a probe");
        format!("{}{}", if line.verdict.is_passed() { "+" } else { "!" }, line.verdict.detail())
    }

    fn metric(&self, name: &str) -> String {
        let page = self.metrics.encode().unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap().to_owned()
    }

    /// Sends a write that the server refuses.
    async fn refused(&self, words: &str) {
        words.clone_into(&mut self.server.lock().refuses);
        let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(self.clients.main.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "b"}}}));
        nodes.patch("n", &PatchParams::default(), &patch).await.unwrap_err();
        self.pass(GATHERED * 2).await;
    }

    fn told(&self, words: &str) -> usize {
        self.log.lines_with(words)
    }
}

fn clients(server: &Arc<Mutex<Server>>) -> Clients {
    let server = Arc::clone(server);
    let service = service_fn(move |request: Request<Body>| {
        let Server { policy, binding, refuses } = server.lock().clone();
        let (code, body) = match request.uri().path() {
            path if path.ends_with("/validatingadmissionpolicies/node-ccm") => policy,
            path if path.ends_with("/validatingadmissionpolicybindings/node-ccm") => binding,
            _ => (403, status(403, &refuses)),
        };
        let body = Full::new(Bytes::from(body.to_string()));
        async move { Ok::<_, BoxError>(Response::builder().status(code).body(body)?) }
    });
    let config = ClientConfig {
        kubeconfig: None,
        master: None,
        user_agent: "node-ccm/0".to_owned(),
        credentials_over_http: false,
        request_timeout: Duration::from_secs(5),
        limiter: Arc::new(Unlimited),
        metrics: Arc::new(RestMetrics::default()),
    };
    Clients::in_process(service, &config).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_not_in_force_is_said_and_its_installation_noticed() {
    let none = (404, status(404, "not found"));
    let denied_right = (403, status(403, "cannot get resource"));
    let audits = (200, binding(&["Warn", "Audit"]));
    let mut of_another = binding(&["Deny"]);
    of_another["spec"]["policyName"] = json!("route-ccm");
    for (server, expect) in [
        (
            Server { policy: none.clone(), ..installed() },
            "!the policy node-ccm is not installed, or this API server is older than 1.30",
        ),
        (
            Server { binding: none, ..installed() },
            "!the policy node-ccm is not installed, or this API server is older",
        ),
        (
            Server { binding: audits, ..installed() },
            "!the binding node-ccm does not deny anything: it only warns or audits",
        ),
        (
            Server { binding: (200, of_another), ..installed() },
            "!the binding node-ccm does not deny anything: it only warns or audits, or binds another policy",
        ),
        (
            Server { policy: denied_right, ..installed() },
            "!not known if node-ccm is installed: forbidden: cannot get",
        ),
    ] {
        let running = Running::start(server).await;
        assert!(running.line().starts_with(expect), "{}", running.line());
        assert!(running.line().contains("apply manifests/node-ccm"), "{}", running.line());
        assert_eq!(running.metric("ccm_admission_policy_installed"), "0");
        let is_known = !expect.starts_with("!not known");
        assert_eq!(running.line().contains("but its account may write"), is_known);
        running.pass(PERIOD * 3).await;
        assert_eq!(running.told(expect.trim_start_matches('!')), 1, "{}", running.log.text());
        *running.server.lock() = installed();
        running.pass(PERIOD).await;
        assert!(running.line().starts_with("+node-ccm is in force"), "{}", running.line());
        assert_eq!(running.metric("ccm_admission_policy_installed"), "1");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_no_missing_policy() {
    let down = (503, status(503, "no"));
    let running = Running::start(Server { policy: down, ..installed() }).await;
    running.pass(Duration::from_secs(20)).await;
    assert!(running.line().starts_with("!not known if node-ccm"), "{}", running.line());
    assert_eq!(running.told("admission policy"), 0, "{}", running.log.text());
    *running.server.lock() = installed();
    running.pass(AGAIN * 2).await;
    assert!(running.line().starts_with("+node-ccm is in force"), "{}", running.line());
}

#[tokio::test(start_paused = true)]
async fn what_the_own_policy_refuses_is_one_line_for_each_field() {
    let running = Running::start(installed()).await;
    running.refused(&denied("another", "no")).await;
    running.refused("nodes \"n\" is forbidden: User \"x\" cannot patch resource \"nodes\"").await;
    assert!(running.line().starts_with("+node-ccm is in force"), "{}", running.line());
    for _ in 0..20 {
        running.refused(&denied("node-ccm", "node-ccm may not write label team")).await;
    }
    let line = running.line();
    assert!(line.starts_with("!the admission policy node-ccm has refused a write"), "{line}");
    assert!(line.contains(": node-ccm may not write label team; apply the policy"), "{line}");
    assert!(line.contains("manifests/node-ccm"), "{line}");
    assert_eq!(running.told("may not write label team"), 1, "{}", running.log.text());
    running.refused(&denied("node-ccm", "node-ccm may not write spec.x")).await;
    assert_eq!(running.told("may not write"), 2, "another field: {}", running.log.text());
    assert_eq!(running.metric("ccm_admission_policy_refusals_total"), "21");
    running.pass(PERIOD * 2).await;
    assert!(running.line().starts_with("+node-ccm is in force"), "{}", running.line());
    running.refused(&denied("node-ccm", "node-ccm may not write label team")).await;
    assert_eq!(running.told("may not write label team"), 2, "it has begun again");
}

#[tokio::test(start_paused = true)]
async fn the_same_fields_in_another_order_are_the_same_refusal() {
    let running = Running::start(installed()).await;
    for fields in ["label zone, label team", "label team, label zone"] {
        let words = format!("node-ccm may not write {fields}");
        running.refused(&denied("node-ccm", &words)).await;
    }
    assert_eq!(running.told("has refused a write"), 1, "{}", running.log.text());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_goes_after_a_refusal_is_said() {
    let running = Running::start(installed()).await;
    running.refused(&denied("node-ccm", "node-ccm may not write label team")).await;
    running.pass(PERIOD * 2).await;
    running.server.lock().policy = (404, status(404, "not found"));
    running.pass(PERIOD * 2).await;
    assert!(
        running.line().starts_with("!the policy node-ccm is not installed"),
        "{}",
        running.line()
    );
    assert_eq!(running.told("the policy node-ccm is not installed"), 1, "{}", running.log.text());
}
