//! A policy undoes the writes of lifecycle-ccm.

use ccm_sim::apiserver::{Action, Fault};
use ccm_tests::in_process::sample;
use serde_json::Value;

use super::*;

fn events(api: &ApiServer, wanted: &str) -> usize {
    api.list("events").iter().filter(|event| event["reason"] == wanted).count()
}

/// lifecycle-ccm sends the event only if the answer shows the taint.
#[tokio::test(start_paused = true)]
async fn a_mark_that_is_not_stored_is_not_reported_as_made() {
    const APPROVED: &str = "quartet.dev/deletion-approved";
    let shutdown = |field, is_shutdown: bool, reason| (field, is_shutdown, reason);
    for (field, is_shutdown, reason) in [
        shutdown("/spec/taints", true, "NodeShutdown"),
        shutdown("/metadata/annotations", false, "NodeDeletionApprovalEnded"),
    ] {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        cloud.add_many(0, NODES);
        (0..NODES).for_each(|number| register(&api, number));
        let settings = loaded::<LifecycleCcm>(&["--node-grace-period=0s"]).unwrap();
        let (shared, metrics) = (Arc::new(cloud.clone()), Metrics::new());
        let process = InProcess::<LifecycleCcm>::leading(&api, shared, &settings, None, metrics)
            .await
            .unwrap();
        let policy = Fault::new(Action::TakeBack(field)).verb(Verb::Patch).resource("nodes");
        api.faults().add(policy.user_agent("lifecycle-ccm/"));
        if is_shutdown {
            cloud.set_power(&SimInstance::numbered(0).id, PowerState::Stopped);
            set_ready(&api, 0, "Unknown");
        } else {
            let approved = json!({"metadata": {"annotations": {APPROVED: "yes"}}});
            api.patch("nodes", &name(0), "", PatchKind::Merge, approved).unwrap();
        }
        sleep(Duration::from_mins(10)).await;
        let count = writes(&api).len();
        assert!((9..=12).contains(&count), "{field}: {count} writes within ten minutes");
        assert_eq!((events(&api, reason), events(&api, "RepeatedWrite")), (0, 1), "{field}");
        let series = "ccm_repeated_writes_total{object=\"Node\",write=\"marks\"}";
        assert_eq!(sample::<u64>(&process.context.metrics, series), count as u64, "{field}");
        let step = if is_shutdown { "shutdown-taint" } else { "end-approval" };
        assert!(process.plans().contains(step), "{field}: {}", process.plans());
        api.faults().clear();
        sleep(Duration::from_mins(2)).await;
        assert_eq!(events(&api, reason), 1, "{field}");
        let node: Value = api.get("nodes", &name(0)).unwrap();
        assert_eq!(node["spec"]["taints"].is_array(), is_shutdown, "{node}");
        assert_eq!(node["metadata"]["annotations"][APPROVED], Value::Null);
    }
}
