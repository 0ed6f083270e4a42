//! The whole controller with a simulated API server and a simulated cloud in one process with
//! paused time. A copy keeps `Whole` and replaces the tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::{sync::Arc, time::Duration};

use ccm_runtime::program::{Context, Program as _};
use ccm_sim::{
    apiserver::{Action, ApiServer, Fault, Options, PatchKind, Verb},
    cloud::{Operation, SimCloud, SimInstance},
    faults::{self, Effect},
};
use ccm_tests::in_process::InProcess;
use serde_json::{Value, json};
use template_ccm::{TemplateCcm, plan::INSTANCE_NAME};
use tokio::time::{sleep, timeout};

/// A program with its environment.
struct Whole {
    api: Arc<ApiServer>,
    cloud: SimCloud,
    process: InProcess<TemplateCcm>,
}

impl Whole {
    fn new(arguments: &[&str]) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        let process = InProcess::new(&api, Arc::new(cloud.clone()), arguments).unwrap();
        Self { api, cloud, process }
    }

    fn context(&self) -> &Context<TemplateCcm> {
        &self.process.context
    }

    /// A standby: prepared, but not leading.
    async fn standby(&self) -> Arc<TemplateCcm> {
        Arc::new(TemplateCcm::prepare(self.context()).await.unwrap())
    }

    async fn lead(&self) -> Arc<TemplateCcm> {
        let program = self.standby().await;
        Arc::clone(&program).lead(self.context());
        program
    }

    /// Registers a node, and creates its instance.
    fn add_node(&self, number: usize) -> String {
        let instance = SimInstance::numbered(number);
        let (name, id) = (instance.name.clone(), instance.provider_id().to_string());
        self.cloud.add(instance);
        self.register(&name, &id);
        name
    }

    fn register(&self, name: &str, provider_id: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": provider_id},
        });
        self.api.create(node).unwrap();
    }

    fn annotation(&self, name: &str) -> Value {
        self.api.get("nodes", name).unwrap()["metadata"]["annotations"][INSTANCE_NAME].clone()
    }

    /// The next patches of nodes get this response.
    fn patches_meet(&self, code: u16, times: usize) {
        let action = Action::Status { code, retry_after: None };
        let fault = Fault::new(action).verb(Verb::Patch).resource("nodes").times(times);
        self.api.faults().add(fault);
    }

    fn patches(&self) -> usize {
        self.api.audit().count("template-ccm/", Verb::Patch, "nodes")
    }

    /// The reasons of the events on this node, in order.
    fn events(&self, name: &str) -> Vec<String> {
        let about = |event: &Value| event["involvedObject"]["name"] == name;
        let events = self.api.list("events").into_iter().filter(about);
        events.map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_the_name_of_its_instance_and_keeps_it() {
    let whole = Whole::new(&["--instance-name-period=1m"]);
    let early = whole.add_node(0);
    whole.lead().await;
    let late = whole.add_node(1);
    sleep(Duration::from_secs(1)).await;
    for name in [&early, &late] {
        assert_eq!(whole.annotation(name), json!(name));
        assert_eq!(whole.events(name), ["InstanceNamed"]);
    }

    // A person edits it.
    let edit = json!({"metadata": {"annotations": {INSTANCE_NAME: "mine"}}});
    whole.api.patch("nodes", &early, "", PatchKind::Merge, edit).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(whole.annotation(&early), json!(early));

    // The cloud changes it: the periodic sync finds the change with one call and one write.
    let id = SimInstance::numbered(1).id;
    assert!(whole.cloud.update(&id, |instance| instance.name = "renamed".to_owned()));
    let patches = whole.patches();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(whole.annotation(&late), json!("renamed"));
    sleep(Duration::from_mins(10)).await;
    assert_eq!(whole.patches() - patches, 1, "an up-to-date node is not written");
}

#[tokio::test(start_paused = true)]
async fn a_standby_sends_no_lookup_and_no_write() {
    let whole = Whole::new(&["--instance-name-period=1s"]);
    let name = whole.add_node(0);
    let program = whole.standby().await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!((whole.cloud.calls().lookup, whole.patches()), (0, 0));
    program.lead(whole.context());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(whole.annotation(&name), json!(name));
}

#[tokio::test(start_paused = true)]
async fn an_observer_publishes_its_plan_and_writes_nothing() {
    let whole = Whole::new(&["--mode=observe", "--instance-name-period=1m"]);
    whole.lead().await;
    let name = whole.add_node(0);
    sleep(Duration::from_mins(5)).await;
    let page = whole.context().plans.text(None);
    assert!(page.contains(&format!("name: annotation {INSTANCE_NAME}={name} (")), "{page}");
    assert_eq!((whole.patches(), whole.events(&name)), (0, Vec::new()));

    // Another writer does it.
    let done = json!({"metadata": {"annotations": {INSTANCE_NAME: name}}});
    whole.api.patch("nodes", &name, "", PatchKind::Merge, done).unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(!whole.context().plans.text(None).contains(&name));
}

#[tokio::test(start_paused = true)]
async fn foreign_nodes_cause_no_call_and_no_write() {
    let whole = Whole::new(&["--instance-name-period=1m"]);
    whole.lead().await;
    whole.register("foreign", "elsewhere://i-1");
    sleep(Duration::from_hours(1)).await;
    assert_eq!((whole.cloud.calls().lookup, whole.patches()), (0, 0));
    assert!(whole.events("foreign").is_empty());
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_replanned_and_rejected_writes_back_off() {
    let whole = Whole::new(&[]);
    whole.lead().await;
    whole.patches_meet(409, 3);
    let name = whole.add_node(0);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((whole.annotation(&name), whole.patches()), (json!(name), 4));
    assert_eq!(whole.events(&name), ["InstanceNamed"], "a conflict is not reported");

    whole.patches_meet(403, 10);
    let name = whole.add_node(1);
    sleep(Duration::from_mins(5)).await;
    assert_eq!((whole.annotation(&name), whole.patches()), (json!(name), 4 + 11));
    assert_eq!(whole.events(&name), ["WriteFailed", "InstanceNamed"]);
    let text = whole.context().metrics.encode().unwrap();
    assert!(text.contains("ccm_template_writes_total{result=\"forbidden\"} 10\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_cloud_is_called_with_backoff() {
    let whole = Whole::new(&[]);
    whole.lead().await;
    let fault = faults::Fault::new(Effect::Unavailable).on(Operation::Lookup);
    let fault = whole.cloud.faults().add(fault);
    let name = whole.add_node(0);
    sleep(Duration::from_mins(10)).await;
    let calls = whole.cloud.calls().lookup;
    assert!((15..40).contains(&calls), "{calls} calls in ten minutes");
    assert_eq!(whole.events(&name), ["WaitingForCloud"]);
    whole.cloud.faults().remove(fault);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(whole.annotation(&name), json!(name));
}

#[tokio::test(start_paused = true)]
async fn a_drain_cancels_lookups_and_awaits_writes() {
    let whole = Whole::new(&[]);
    let program = whole.lead().await;
    whole.cloud.faults().add(faults::Fault::new(Effect::Hang).on(Operation::Lookup));
    let name = whole.add_node(0);
    sleep(Duration::from_secs(1)).await;
    timeout(Duration::from_millis(10), program.drain()).await.unwrap();

    let whole = Whole::new(&[]);
    let program = whole.lead().await;
    let slow =
        Fault::new(Action::Delay(Duration::from_secs(2))).verb(Verb::Patch).resource("nodes");
    whole.api.faults().add(slow);
    whole.add_node(0);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(whole.annotation(&name), Value::Null);
    timeout(Duration::from_secs(2), program.drain()).await.unwrap();
    assert_eq!(whole.annotation(&name), json!(name));
}
