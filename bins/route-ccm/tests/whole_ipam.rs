//! The whole of node IPAM with a simulated API server and a simulated cloud in one process with
//! paused time. The numbers refer to docs/internal/parity-ipam.md.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "whole_ipam/blocks.rs"]
mod blocks;
#[path = "whole_ipam/explain.rs"]
mod explain;
#[path = "whole_ipam/lookups.rs"]
mod lookups;
#[path = "whole_ipam/writes.rs"]
mod writes;
#[path = "whole_ipam/wrong_setting.rs"]
mod wrong_setting;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ccm_runtime::{health::Verdict, leadership::Leadership, plans::Mode, program::Program as _};
use ccm_sim::{
    apiserver::{Action, ApiServer, Clock, Fault, Options, PatchKind, Record, Verb},
    cloud::{SimCloud, SimInstance},
};
use ccm_tests::in_process::{InProcess, loaded};
use route_ccm::RouteCcm;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// The arguments for a network of four blocks.
const SMALL: [&str; 3] =
    ["--allocate-node-cidrs", "--cluster-cidr=10.64.0.0/22", "--node-cidr-mask-size=24"];
const LARGE: [&str; 2] = ["--allocate-node-cidrs", "--cluster-cidr=10.64.0.0/10"];
const NO_ROUTES: &str = "--configure-cloud-routes=false";
/// This is longer than the grace time of a block and the waits around it.
const FREE: Duration = Duration::from_secs(40);

/// An API server and a cloud.
struct World {
    api: Arc<ApiServer>,
    cloud: SimCloud,
}

/// A replica of route-ccm.
struct Replica {
    process: InProcess<RouteCcm>,
    program: Arc<RouteCcm>,
}

impl World {
    fn new() -> Self {
        // Creation times follow the paused time.
        let clock = Clock::From(ccm_base::clock::wall());
        let api = ApiServer::new(Options { taint_new_nodes: false, clock, ..Options::default() });
        let system = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"},
        });
        // It may exist from the start.
        drop(api.create(system));
        Self { api, cloud: SimCloud::new() }
    }

    /// Returns a leader.
    async fn lead(&self, arguments: &[&str]) -> Replica {
        let replica = self.stand_by(arguments, None).await;
        replica.lead();
        replica
    }

    /// Returns a replica that does not lead yet. `last` is the former leader.
    async fn stand_by(&self, arguments: &[&str], last: Option<&Replica>) -> Replica {
        let settings = loaded::<RouteCcm>(arguments).unwrap();
        let leadership = match (settings.common.mode, last) {
            (Mode::Observe, _) => Leadership::observer(),
            (Mode::Control, None) => Leadership::unconditional(),
            (Mode::Control, Some(last)) => {
                Leadership::unconditional().after(&last.process.context.leadership)
            }
        };
        let cloud = Arc::new(self.cloud.clone());
        let process = InProcess::with(&self.api, cloud, &settings, leadership).unwrap();
        let program = Arc::new(RouteCcm::prepare(&process.context).await.unwrap());
        Replica { process, program }
    }

    /// Registers a node as kubelet and node-ccm do, and its instance.
    fn add(&self, number: usize) -> String {
        let instance = SimInstance::numbered(number);
        let (name, id) = (instance.name.clone(), instance.provider_id().to_string());
        let address = instance.addresses[0].address.clone();
        self.cloud.add(instance);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"providerID": id},
            "status": {"addresses": [{"type": "InternalIP", "address": address}]},
        });
        self.api.create(node).unwrap();
        name
    }

    fn add_many(&self, numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| self.add(number)).collect()
    }

    fn remove(&self, name: &str) {
        self.api.delete("nodes", name).unwrap();
    }

    /// Returns the node's pod CIDRs, as one text.
    fn cidrs(&self, name: &str) -> String {
        let node = self.api.get("nodes", name).unwrap();
        let all = node["spec"]["podCIDRs"].as_array().cloned().unwrap_or_default();
        assert_eq!(all.first().unwrap_or(&Value::Null), &node["spec"]["podCIDR"], "{name}");
        all.iter().map(|one| one.as_str().unwrap()).collect::<Vec<_>>().join(",")
    }

    /// Waits until these nodes have pod CIDRs, which no two of them share.
    async fn assigned(&self, names: &[String]) {
        let done = async {
            while names.iter().any(|name| self.cidrs(name).is_empty()) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = timeout(Duration::from_mins(10), done).await;
        waited.unwrap_or_else(|_| {
            panic!("{:?}", names.iter().map(|name| self.cidrs(name)).collect::<Vec<_>>())
        });
        self.are_distinct();
    }

    /// Checks that no block is on two nodes.
    fn are_distinct(&self) {
        let mut seen = BTreeSet::new();
        for node in self.api.list("nodes") {
            for cidr in node["spec"]["podCIDRs"].as_array().into_iter().flatten() {
                assert!(seen.insert(cidr.to_string()), "{cidr} is on two nodes");
            }
        }
    }

    /// Status and reason of the condition NetworkUnavailable.
    fn condition(&self, name: &str) -> Option<(String, String, String)> {
        let node = self.api.get("nodes", name).unwrap();
        let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let one = all.into_iter().find(|one| one["type"] == "NetworkUnavailable")?;
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    /// Returns the writes of nodes by all replicas, as `patch nodes/status`.
    fn writes(&self) -> Vec<String> {
        let records = self.api.audit().records();
        let writes = records.iter().filter(|record| {
            record.resource == "nodes"
                && !matches!(record.verb, Verb::Get | Verb::List | Verb::Watch)
        });
        writes.map(Record::what).collect()
    }

    /// Returns the number of writes of pod CIDRs.
    fn patches(&self) -> usize {
        self.writes().iter().filter(|what| *what == "patch nodes").count()
    }

    /// Returns the reasons and texts of the events on this node.
    fn events(&self, name: &str) -> Vec<(String, String)> {
        let about = |event: &Value| event["involvedObject"]["name"] == name;
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let events = self.api.list("events").into_iter().filter(about);
        events.map(|event| (text(&event, "reason"), text(&event, "message"))).collect()
    }

    fn count_events(&self, name: &str, reason: &str) -> usize {
        self.events(name).iter().filter(|(given, _)| given == reason).count()
    }

    /// Returns a fault of writes of pod CIDRs.
    fn fault(action: Action) -> Fault {
        Fault::new(action).verb(Verb::Patch).resource("nodes").subresource("")
    }
}

impl Replica {
    fn lead(&self) {
        Arc::clone(&self.program).lead(&self.process.context);
    }

    /// Checks the sample of `/metrics` of this name.
    fn shows(&self, name: &str, expect: f64) {
        let text = self.process.context.metrics.encode().unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let sample: f64 = lines.next().unwrap_or_else(|| panic!("no {name}")).parse().unwrap();
        assert!((sample - expect).abs() < 1e-9, "{name} is {sample}, not {expect}");
    }

    /// Checks that no node waits, and no node is on `/plan`.
    fn has_nothing_to_do(&self) {
        self.shows("ccm_ipam_nodes_waiting", 0.0);
        let verdict = self.health("pod-cidrs");
        assert_eq!(verdict, Verdict::Passed("every node gets its pod CIDRs".into()));
        let page: Value = serde_json::from_str(&self.process.context.plans.json(None)).unwrap();
        assert_eq!((&page["due"], &page["held"]), (&json!({}), &json!({})), "{page}");
    }

    /// Returns a line of `/readyz?verbose`.
    fn health(&self, name: &str) -> Verdict {
        let findings = self.process.context.health.findings();
        findings.into_iter().find(|finding| finding.name == name).unwrap().verdict
    }
}
