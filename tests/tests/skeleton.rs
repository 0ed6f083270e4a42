//! The skeleton of a controller works as the documentation says, because authors of controllers
//! copy it.

#[path = "../examples/skeleton.rs"]
mod skeleton;

use std::{sync::Arc, time::Duration};

use ccm_runtime::program::Program as _;
use ccm_sim::{
    apiserver::{Action, ApiServer, Fault, Options, Verb},
    cloud::{SimCloud, SimInstance},
};
use ccm_tests::in_process::InProcess;
use serde_json::json;
use skeleton::{INSTANCE_NAME, Skeleton};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_node_gets_the_name_of_its_instance_and_keeps_it() {
    let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
    let cloud = SimCloud::new();
    let arguments = ["--instance-name-period=1m"];
    let process =
        InProcess::<Skeleton>::new(&api, Arc::new(cloud.clone()), &arguments).expect("settings");
    let program = Arc::new(Skeleton::prepare(&process.context).await.expect("it is prepared"));
    let conflict = Action::Status { code: 409, retry_after: None };
    api.faults().add(Fault::new(conflict).verb(Verb::Patch).resource("nodes").times(1));
    let instance = SimInstance::numbered(0);
    let (name, id) = (instance.name.clone(), instance.id.clone());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"providerID": instance.provider_id().to_string()},
    });
    cloud.add(instance);
    api.create(node).expect("a node");
    let shown = || {
        let node = api.get("nodes", &name).expect("a node");
        node["metadata"]["annotations"][INSTANCE_NAME].clone()
    };
    sleep(Duration::from_secs(1)).await;
    assert!(shown().is_null(), "a standby writes nothing");
    Arc::clone(&program).lead(&process.context);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(shown(), json!(name), "after a conflict");
    cloud.update(&id, |instance| instance.name = "renamed".to_owned());
    sleep(Duration::from_mins(2)).await;
    assert_eq!(shown(), json!("renamed"));
    program.drain().await;
}
