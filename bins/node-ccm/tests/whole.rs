//! The whole controller with a simulated API server and a simulated cloud in one process with
//! paused time. The numbers refer to docs/internal/parity.md.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "whole/another_cloud.rs"]
mod another_cloud;
#[path = "whole/edges.rs"]
mod edges;
#[path = "whole/explain.rs"]
mod explain;
#[path = "whole/load.rs"]
mod load;
#[path = "whole/repeated.rs"]
mod repeated;
#[path = "whole/survey.rs"]
mod survey;
#[path = "whole/takeover.rs"]
mod takeover;
#[path = "whole/word.rs"]
mod word;
#[path = "whole/wrong_setting.rs"]
mod wrong_setting;

use std::{sync::Arc, time::Duration};

use ccm_cloud::{CloudError, ErrorKind, InstanceTraits};
use ccm_runtime::program::{Context, Program as _};
use ccm_sim::{
    apiserver::{Action, ApiServer, Fault, Options, PatchKind, Record, Verb},
    cloud::{Operation, SimCloud, SimInstance},
    faults::{self, FaultEffect},
};
use ccm_tests::in_process::InProcess;
use node_ccm::{NodeCcm, plan::UNINITIALIZED};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const ZONE: &str = "topology.kubernetes.io/zone";

/// A leading node-ccm with its environment.
struct Whole {
    api: Arc<ApiServer>,
    cloud: SimCloud,
    process: InProcess<NodeCcm>,
}

impl Whole {
    async fn start(arguments: &[&str]) -> Self {
        let whole = Self::before_start(arguments);
        let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
        program.lead(whole.context());
        whole
    }

    /// Returns the environment without the program.
    fn before_start(arguments: &[&str]) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        let process = InProcess::new(&api, Arc::new(cloud.clone()), arguments).unwrap();
        Self { api, cloud, process }
    }

    fn context(&self) -> &Context<NodeCcm> {
        &self.process.context
    }

    /// Registers a node as kubelet does, and its instance.
    fn add_node(&self, number: usize) -> String {
        let instance = SimInstance::numbered(number);
        let name = instance.name.clone();
        self.cloud.add(instance);
        self.register(&name, None);
        name
    }

    fn register(&self, name: &str, provider_id: Option<&str>) {
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": provider_id, "taints": [taint]},
        });
        self.api.create(node).unwrap();
    }

    fn node(&self, name: &str) -> Value {
        self.api.get("nodes", name).unwrap()
    }

    fn is_tainted(&self, name: &str) -> bool {
        self.node(name)["spec"]["taints"].to_string().contains(UNINITIALIZED)
    }

    /// Waits until this node is initialised and all resulting changes are observed.
    async fn initialised(&self, name: &str) {
        let done = async {
            while self.is_tainted(name) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_mins(20), done).await.unwrap_or_else(|_| panic!("{name} waits"));
        sleep(Duration::from_millis(100)).await;
    }

    /// Answers the next patches with this response, as often as given.
    fn conflicts(&self, times: usize) {
        let conflict = Action::Status { code: 409, retry_after: None };
        self.api
            .faults()
            .add(Fault::new(conflict).verb(Verb::Patch).resource("nodes").times(times));
    }

    /// Returns the writes to nodes, as `patch nodes/status`.
    fn writes(&self) -> Vec<String> {
        let records = self.api.audit().records();
        let writes = records
            .iter()
            .filter(|record| record.verb == Verb::Patch && record.resource == "nodes");
        writes.map(Record::what).collect()
    }

    /// Returns the sample of `/metrics` of this name.
    fn metric(&self, name: &str) -> u64 {
        let text = self.context().metrics.encode().unwrap();
        let sample = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        sample.trim().parse().unwrap()
    }

    /// Returns the events on this node: reason and message.
    fn events(&self, name: &str) -> Vec<(String, String)> {
        let about = |event: &Value| event["involvedObject"]["name"] == name;
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let events = self.api.list("events").into_iter().filter(about);
        events.map(|event| (text(&event, "reason"), text(&event, "message"))).collect()
    }

    /// Makes lookups of these nodes fail.
    fn fail(&self, nodes: &[&str], kind: ErrorKind) -> faults::FaultId {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        let effect = FaultEffect::FailNodes(nodes, CloudError::new(kind, "no"));
        self.cloud.faults().add(faults::Fault::new(effect).on(Operation::Lookup))
    }

    /// Returns the line about the last refresh on `/readyz`.
    fn fleet(&self) -> String {
        let findings = self.context().health.findings();
        let fleet = findings.into_iter().find(|finding| finding.name == "fleet").unwrap();
        fleet.verdict.detail().to_owned()
    }

    fn refreshes(&self) -> u64 {
        self.metric("ccm_node_refreshes_total{result=\"ok\"}")
    }
}

/// Scenarios 39 to 42: upstream makes one call per node, whatever the number of workers.
#[tokio::test(start_paused = true)]
async fn a_refresh_is_one_call_whatever_the_number_of_nodes_and_workers() {
    const NODES: usize = 100;
    for workers in [1, 5, 10, 30] {
        let workers = format!("--concurrent-node-syncs={workers}");
        let whole = Whole::start(&[&workers, "--node-status-update-frequency=1m"]).await;
        let names: Vec<_> = (0..NODES).map(|number| whole.add_node(number)).collect();
        for name in &names {
            whole.initialised(name).await;
        }
        assert_eq!(whole.writes().len(), 2 * NODES, "{workers}");
        whole.cloud.reset_calls();
        let before = whole.refreshes();
        sleep(Duration::from_mins(10)).await;
        let (calls, refreshes) = (whole.cloud.calls(), whole.refreshes() - before);
        assert!((8..=12).contains(&refreshes), "{refreshes} in ten minutes");
        assert_eq!((calls.list, calls.lookup), (0, refreshes), "{workers}");
        assert_eq!(whole.writes().len(), 2 * NODES, "{workers}");
    }
}

/// Scenarios 31 and 32, and L3.
#[tokio::test(start_paused = true)]
async fn a_refresh_leaves_tainted_and_foreign_nodes_alone() {
    let whole = Whole::start(&["--node-status-update-frequency=1m"]).await;
    let settled = whole.add_node(0);
    whole.initialised(&settled).await;
    whole.register("foreign", Some("elsewhere://i-1"));
    let instance = SimInstance::numbered(1);
    whole.fail(&[&instance.name], ErrorKind::Unavailable);
    whole.register(&instance.name, Some("sim://i-00001"));
    let waiting = instance.name.clone();
    whole.cloud.add(instance);
    let (writes, refreshes) = (whole.writes().len(), whole.refreshes());
    sleep(Duration::from_mins(5)).await;
    assert!(whole.refreshes() > refreshes, "refreshes go on");
    assert!(whole.fleet().contains("2 nodes looked up, 0 differ; 1 not answered, the first: "));
    assert_eq!(whole.metric("ccm_node_refresh_differing "), 0);
    assert!(whole.is_tainted(&waiting) && whole.is_tainted("foreign"));
    assert_eq!(whole.node(&waiting)["status"]["addresses"], Value::Null);
    assert_eq!(whole.writes().len(), writes);
}

/// Every write would be rejected, so retries cannot help.
#[tokio::test(start_paused = true)]
async fn an_observer_plans_once_and_again_after_changes() {
    const NODES: usize = 20;
    let observe = ["--mode=observe", "--node-status-update-frequency=1m"];
    let whole = Whole::start(&observe).await;
    let names: Vec<_> = (0..NODES).map(|number| whole.add_node(number)).collect();
    sleep(Duration::from_mins(1)).await;
    let due = |whole: &Whole| -> Value {
        let page: Value = serde_json::from_str(&whole.context().plans.json(None)).unwrap();
        page["due"].clone()
    };
    assert_eq!(due(&whole), json!({"addresses": NODES, "taint": NODES}));
    let asked = whole.cloud.calls();
    sleep(Duration::from_hours(1)).await;
    let calls = whole.cloud.calls().since(&asked);
    // Each node is retried every five minutes. Without an initialised node no refresh happens.
    assert!(calls.lookup <= 12 && calls.list == 0, "{calls}");
    assert_eq!(whole.metric("ccm_plan_steps_total{step=\"taint\"}"), NODES as u64);

    // Another writer initialises the first node, and the instance of another node is deleted.
    let mended = json!({"spec": {"taints": null, "providerID": "sim://i-00000"}});
    whole.api.patch("nodes", &names[0], "", PatchKind::Merge, mended).unwrap();
    whole.cloud.remove(&SimInstance::numbered(1).id).unwrap();
    whole.api.delete("nodes", &names[2]).unwrap();
    sleep(Duration::from_mins(6)).await;
    let expect = json!({"addresses": NODES - 2, "labels": 1, "taint": NODES - 3});
    assert_eq!(due(&whole), expect, "{}", whole.context().plans.text(None));
    assert_eq!(whole.writes(), [""; 0]);
    assert!(names.iter().all(|name| whole.events(name).is_empty()));
}

/// Quirk 5: upstream logs it and lets the node start without addresses.
#[tokio::test(start_paused = true)]
async fn a_node_whose_addresses_are_refused_keeps_its_taint() {
    for code in [400, 403, 409, 422, 500, 503] {
        let whole = Whole::start(&[]).await;
        let refusal = Action::Status { code, retry_after: None };
        let refusal = Fault::new(refusal).verb(Verb::Patch).resource("nodes").subresource("status");
        let fault = whole.api.faults().add(refusal);
        let name = whole.add_node(0);
        sleep(Duration::from_mins(2)).await;
        assert!(whole.is_tainted(&name), "{code}");
        let writes = whole.writes();
        assert!(!writes.is_empty(), "{code}");
        assert!(writes.iter().all(|what| what == "patch nodes/status"), "{code}: {writes:?}");
        whole.api.faults().remove(fault);
        whole.initialised(&name).await;
        assert_eq!(whole.node(&name)["status"]["addresses"][0]["address"], "10.0.0.1", "{code}");
    }
}

/// Quirks 6 and 13: a conflict is planned again, without new calls to the cloud or the API
/// server.
#[tokio::test(start_paused = true)]
async fn conflicts_cost_no_call_to_the_cloud_and_no_read() {
    for times in [1, 4] {
        let whole = Whole::start(&[]).await;
        whole.conflicts(times);
        let name = whole.add_node(0);
        whole.initialised(&name).await;
        assert_eq!(whole.writes().len(), 2 + times, "{times} conflicts");

        whole.conflicts(times);
        let edit = json!({"metadata": {"labels": {ZONE: "elsewhere"}}});
        whole.api.patch("nodes", &name, "", PatchKind::Merge, edit).unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(whole.node(&name)["metadata"]["labels"][ZONE], "sim-1a", "{times} conflicts");
        assert_eq!(whole.writes().len(), 3 + 2 * times, "{times} conflicts");
        assert_eq!(whole.cloud.calls().lookup, 1, "{times} conflicts");
        let reads = whole.api.audit().count("node-ccm/", Verb::Get, "nodes");
        assert_eq!(reads, 0, "{times} conflicts");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tainted_foreign_node_gets_one_event() {
    let whole = Whole::start(&["--node-status-update-frequency=1m"]).await;
    whole.register("foreign", Some("elsewhere://i-1"));
    let settled = whole.add_node(0);
    whole.initialised(&settled).await;
    sleep(Duration::from_mins(30)).await;
    let text = "provider ID elsewhere://i-1 has no scheme of this provider (sim); \
                it stays tainted until the controller of its cloud initialises it";
    assert_eq!(whole.events("foreign"), [("ForeignNode".to_owned(), text.to_owned())]);
    let untaint = json!({"spec": {"taints": null}});
    whole.api.patch("nodes", "foreign", "", PatchKind::Merge, untaint).unwrap();
    sleep(Duration::from_mins(30)).await;
    assert_eq!(whole.events("foreign").len(), 1);
}

/// The kubelet may set the provider ID of its node, but cannot write lines into the log with it.
#[tokio::test(start_paused = true)]
async fn a_text_of_the_node_stays_on_one_line() {
    let whole = Whole::start(&[]).await;
    whole.register("foreign", Some("elsewhere://i-1\nERROR forged\u{1b}[31m"));
    sleep(Duration::from_mins(1)).await;
    let [(_, message)] = whole.events("foreign").try_into().unwrap();
    assert!(
        message.starts_with("provider ID elsewhere://i-1 ERROR forged [31m does not have"),
        "{message}"
    );
}

/// A change of the first InternalIP counts when it is written, and each time.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_internal_ip_is_reported_after_its_write() {
    for (mode, refused, expect) in
        [("control", false, 2), ("control", true, 0), ("observe", false, 0)]
    {
        let mode = format!("--mode={mode}");
        let whole = Whole::start(&[&mode, "--node-status-update-frequency=1m"]).await;
        let mut instance = SimInstance::numbered(0);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": instance.name},
            "spec": {"providerID": instance.provider_id().to_string()},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.9.9.9"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        if refused {
            let refusal = Action::Status { code: 403, retry_after: None };
            whole.api.faults().add(Fault::new(refusal).verb(Verb::Patch).resource("nodes"));
        }
        whole.cloud.add(instance.clone());
        whole.api.create(node).unwrap();
        sleep(Duration::from_mins(3)).await;
        instance.addresses[0].address = "10.8.8.8".to_owned();
        whole.cloud.add(instance.clone());
        sleep(Duration::from_mins(3)).await;
        let applied = whole.metric("ccm_node_internal_ip_changes_total{result=\"applied\"}");
        let events = whole.events(&instance.name);
        let told = events.iter().filter(|(reason, _)| reason == "NodeInternalIPChanged").count();
        assert_eq!((applied, told as u64), (expect, expect), "{mode}, refused {refused}");
    }
}

/// The back-offs of the nodes end at different times within a minute, so some nodes would be
/// late if only the back-off applied.
#[tokio::test(start_paused = true)]
async fn a_refresh_that_finds_the_instance_of_a_waiting_node_ends_its_back_off() {
    let whole = Whole::start(&["--node-status-update-frequency=10s"]).await;
    let settled = whole.add_node(0);
    whole.initialised(&settled).await;
    let instances: Vec<_> = (1..=8).map(SimInstance::numbered).collect();
    for (instance, by_id) in instances.iter().zip([true, false].into_iter().cycle()) {
        let id = instance.provider_id().to_string();
        whole.register(&instance.name, by_id.then_some(id.as_str()));
        sleep(Duration::from_secs(7)).await;
    }
    sleep(Duration::from_mins(10)).await;
    for instance in &instances {
        let [(reason, message)] = whole.events(&instance.name).try_into().unwrap();
        assert_eq!(reason, "InstanceNotFound");
        let backoff = "retrying with exponential back-off (max 1m0s)";
        assert!(message.ends_with(backoff), "{message}");
        whole.cloud.add(instance.clone());
    }
    sleep(Duration::from_secs(12)).await;
    for instance in &instances {
        assert!(!whole.is_tainted(&instance.name), "{} is still tainted", instance.name);
    }
}

#[tokio::test(start_paused = true)]
async fn readyz_reports_why_nodes_are_not_listed() {
    for (code, expect) in [
        (403, "the nodes have not been listed yet: forbidden: "),
        (401, "the nodes have not been listed yet: the API server does not accept the credentials"),
        (
            404,
            "the nodes have not been listed yet: 404 for /api/v1/nodes: is this a Kubernetes API server?",
        ),
    ] {
        let whole = Whole::before_start(&[]);
        let refusal = Action::Status { code, retry_after: None };
        let fault = whole.api.faults().add(Fault::new(refusal).verb(Verb::List).resource("nodes"));
        let nodes = |program: &Context<NodeCcm>| {
            let findings = program.health.findings();
            let found = findings.into_iter().find(|finding| finding.name == "nodes").unwrap();
            found.verdict.detail().to_owned()
        };
        let prepared = NodeCcm::prepare(whole.context());
        assert!(timeout(Duration::from_mins(1), prepared).await.is_err(), "{code}");
        let got = nodes(whole.context());
        assert!(got.starts_with(expect), "{code}: {got}");
        whole.api.faults().remove(fault);
        sleep(Duration::from_mins(2)).await;
        assert_eq!(nodes(whole.context()), "0 nodes watched", "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_stay_in_sync_without_lists() {
    let whole = Whole::before_start(&[]);
    let traits = InstanceTraits { lists: false, ..InstanceTraits::default() };
    whole.cloud.set_traits(traits);
    let program = Arc::new(NodeCcm::prepare(whole.context()).await.unwrap());
    program.lead(whole.context());
    let name = whole.add_node(0);
    sleep(Duration::from_secs(30)).await;
    assert!(!whole.is_tainted(&name));
    whole.cloud.update("i-00000", |instance| instance.zone = Some("elsewhere".to_owned()));
    sleep(Duration::from_mins(12)).await;
    assert_eq!(whole.node(&name)["metadata"]["labels"][ZONE], "elsewhere");
    assert_eq!(whole.cloud.calls().list, 0);
    assert_eq!(whole.fleet(), "1 nodes looked up, 0 differ");
}

/// A node without an answer fails alone, and is looked up again soon, not in the next period.
#[tokio::test(start_paused = true)]
async fn a_refresh_fails_per_node() {
    let whole = Whole::start(&["--node-status-update-frequency=5m"]).await;
    let names: Vec<_> = (0..20).map(|number| whole.add_node(number)).collect();
    for name in &names {
        whole.initialised(name).await;
    }
    let zone = |name: &str| whole.node(name)["metadata"]["labels"][ZONE].clone();
    let failing = whole.fail(&[&names[7]], ErrorKind::Throttled);
    for number in 0..20 {
        let moved = |instance: &mut SimInstance| instance.zone = Some("elsewhere".to_owned());
        whole.cloud.update(&SimInstance::numbered(number).id, moved);
    }
    let before = whole.refreshes();
    while whole.refreshes() == before {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(5)).await;
    assert!(whole.fleet().contains("20 nodes looked up, 19 differ; 1 not answered"));
    for (number, name) in names.iter().enumerate() {
        assert_eq!(zone(name) == "elsewhere", number != 7, "{name}");
    }
    whole.cloud.faults().remove(failing);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(zone(&names[7]), "elsewhere", "within half a minute");

    // A node whose lookup fails for long waits for the refresh.
    whole.fail(&[&names[7]], ErrorKind::Unavailable);
    sleep(Duration::from_mins(6)).await;
    let before = whole.cloud.calls();
    sleep(Duration::from_hours(1)).await;
    let lookups = whole.cloud.calls().since(&before).lookup;
    assert!((55..=84).contains(&lookups), "{lookups}: 11 to 13 refreshes with 5 more each");
}

/// Known data of an instance is not written any more after refreshes have failed for long.
#[tokio::test(start_paused = true)]
async fn an_edit_is_not_corrected_by_old_data() {
    let whole = Whole::start(&["--node-status-update-frequency=1m"]).await;
    let name = whole.add_node(0);
    whole.initialised(&name).await;
    let edit = |zone: &str| {
        let edit = json!({"metadata": {"labels": {ZONE: zone}}});
        whole.api.patch("nodes", &name, "", PatchKind::Merge, edit).unwrap();
    };
    let zone = || whole.node(&name)["metadata"]["labels"][ZONE].clone();
    let down = faults::Fault::new(FaultEffect::Unavailable).on(Operation::Lookup);
    let down = whole.cloud.faults().add(down);
    sleep(Duration::from_secs(90)).await;
    edit("a");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(zone(), "sim-1a", "known for a period and a half");
    sleep(Duration::from_mins(2)).await;
    assert!(whole.fleet().starts_with("cannot look up the nodes: "), "{}", whole.fleet());
    edit("b");
    sleep(Duration::from_mins(5)).await;
    assert_eq!(zone(), "b");
    whole.cloud.faults().remove(down);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(zone(), "sim-1a");
}

/// Without an initialised node nothing is looked up, so nothing else would expire a remembered
/// instance.
#[tokio::test(start_paused = true)]
async fn instances_of_deleted_nodes_are_pruned_without_a_refresh() {
    let whole = Whole::start(&["--node-status-update-frequency=1m"]).await;
    let names: Vec<_> = (0..3).map(|number| whole.add_node(number)).collect();
    for name in &names {
        whole.initialised(name).await;
    }
    let known = |whole: &Whole, count: &str| {
        whole
            .context()
            .metrics
            .encode()
            .unwrap()
            .contains(&format!("\nccm_inventory_instances {count}\n"))
    };
    assert!(known(&whole, "3.0"));
    for name in &names {
        whole.api.delete("nodes", name).unwrap();
    }
    sleep(Duration::from_mins(2)).await;
    assert!(known(&whole, "0.0"));
    assert_eq!(whole.cloud.calls().list, 0);
}
