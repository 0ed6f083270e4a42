//! A new leader whose watch was silent for a while plans with the current state of the API server.

use ccm_sim::apiserver::{Action, Fault};
use ccm_tests::in_process::STANDBY;

use super::*;

/// While the standby sees nothing, a node that is not Ready is registered again, for another instance.
#[tokio::test(start_paused = true)]
async fn a_node_that_the_standby_did_not_see_is_not_suspected() {
    let (api, cloud) = (ApiServer::new(Options::default()), SimCloud::new());
    for number in 0..NODES {
        cloud.add(SimInstance::numbered(number));
        register(&api, number);
    }
    set_ready(&api, 0, "False");
    let settings = loaded::<LifecycleCcm>(&[]).unwrap();
    let shared = Arc::new(cloud.clone());
    let (mut standby, program) =
        InProcess::<LifecycleCcm>::standing_by(&api, shared, &settings, Metrics::new())
            .await
            .unwrap();
    sleep(Duration::from_mins(1)).await;
    let agent = format!("lifecycle-ccm/{STANDBY}");
    let silent = Fault::new(Action::SilentWatch).verb(Verb::Watch).resource("nodes");
    api.faults().add(silent.user_agent(&agent).times(1));
    api.cut_watches(&agent, false);
    sleep(Duration::from_secs(2)).await;

    api.delete("nodes", &name(0)).unwrap();
    let old = SimInstance::numbered(0);
    cloud.remove(&old.id);
    let new = SimInstance::new("i-new", &*old.name);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": old.name},
        "spec": {"providerID": new.provider_id().as_str()},
    });
    cloud.add(new);
    api.create(node).unwrap();
    set_ready(&api, 0, "True");
    standby.take_over(program, None);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(writes(&api), Vec::<String>::new());
    assert_eq!(cloud.calls().lookup, 0, "a node that is Ready is not looked up");
}
