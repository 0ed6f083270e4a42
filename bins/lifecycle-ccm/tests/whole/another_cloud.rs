//! The cloud is another project, which has none of the machines.

use super::*;

#[tokio::test(start_paused = true)]
async fn no_node_is_deleted_or_tainted_while_the_cloud_is_another_project() {
    for restarts in [false, true] {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        cloud.add_many(0, NODES);
        (0..NODES).for_each(|number| register(&api, number));
        let settings = loaded::<LifecycleCcm>(&["--node-grace-period=0s"]).unwrap();
        let start = |last| {
            InProcess::<LifecycleCcm>::leading(
                &api,
                Arc::new(cloud.clone()),
                &settings,
                last,
                Metrics::new(),
            )
        };
        let mut process = start(None).await.unwrap();
        sleep(Duration::from_mins(1)).await;
        process.lose_project(&cloud);
        if restarts {
            let last = process.context.leadership.clone();
            drop(process);
            process = start(Some(&last)).await.unwrap();
        }
        let calls = cloud.calls();
        // One machine is shut down, and two cannot be reached.
        cloud.set_power(&SimInstance::numbered(0).id, PowerState::Stopped);
        (0..3).for_each(|number| set_ready(&api, number, "Unknown"));
        sleep(Duration::from_secs(2)).await;
        assert!(process.is_changed());
        sleep(Duration::from_hours(6)).await;
        assert_eq!(writes(&api), [""; 0], "{restarts}");
        assert_eq!((api.list("nodes").len(), cloud.calls()), (NODES, calls));

        cloud.remove(&SimInstance::numbered(1).id);
        process.approve_project(&cloud);
        sleep(Duration::from_hours(1)).await;
        assert!(api.get("nodes", &name(1)).is_none(), "{:?} {}", writes(&api), process.plans());
        assert_eq!(api.list("nodes").len(), NODES - 1);
        assert!(
            api.get("nodes", &name(0)).unwrap()["spec"]["taints"].to_string().contains("shutdown")
        );
        assert!(!process.is_changed());
    }
}
