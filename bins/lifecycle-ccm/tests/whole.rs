//! The whole controller with a simulated API server and a simulated cloud in one process with paused time.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "whole/another_cloud.rs"]
mod another_cloud;
#[path = "whole/damped.rs"]
mod damped;
#[path = "whole/explain.rs"]
mod explain;
#[path = "whole/repeated.rs"]
mod repeated;
#[path = "whole/survey.rs"]
mod survey;
#[path = "whole/takeover.rs"]
mod takeover;
#[path = "whole/wrong_setting.rs"]
mod wrong_setting;

use std::{sync::Arc, time::Duration};

use ccm_cloud::PowerState;
use ccm_runtime::metrics::Metrics;
use ccm_sim::{
    apiserver::{ApiServer, Options, PatchKind, Record, Verb},
    cloud::{SimCloud, SimInstance},
};
use ccm_tests::in_process::{InProcess, loaded};
use lifecycle_ccm::LifecycleCcm;
use serde_json::json;
use tokio::time::sleep;

const NODES: usize = 5;

fn name(number: usize) -> String {
    SimInstance::numbered(number).name
}

/// Registers a node as the kubelet of this machine does.
fn register(api: &ApiServer, number: usize) {
    let id = SimInstance::numbered(number).provider_id();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(number)},
        "spec": {"providerID": id.as_str()},
    });
    api.create(node).unwrap();
    set_ready(api, number, "True");
}

fn set_ready(api: &ApiServer, number: usize, status: &str) {
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    api.patch("nodes", &name(number), "status", PatchKind::Strategic, ready).unwrap();
}

/// Returns the program's writes to nodes.
fn writes(api: &ApiServer) -> Vec<String> {
    let records = api.audit().records();
    let is_own = |record: &&Record| {
        record.resource == "nodes"
            && matches!(record.verb, Verb::Patch | Verb::Update | Verb::Delete)
            && record.user_agent.starts_with("lifecycle-ccm/")
    };
    records.iter().filter(is_own).map(Record::what).collect()
}
