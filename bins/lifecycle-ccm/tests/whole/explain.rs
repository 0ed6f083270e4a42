//! The page `/explain` about nodes in each state. The first three lines give the state of a node,
//! the reason, and the fix.

use ccm_cloud::{CloudError, ErrorKind};
use ccm_sim::faults::{Fault as CloudFault, FaultEffect};

use super::*;

const ALL: usize = 10;

struct World {
    api: Arc<ApiServer>,
    cloud: SimCloud,
    process: InProcess<LifecycleCcm>,
}

impl World {
    /// Starts nodes that are Ready, and a program with these arguments that leads.
    async fn start(arguments: &[&str]) -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        cloud.add_many(0, ALL);
        (0..ALL).for_each(|number| register(&api, number));
        let arguments = [&["--node-grace-period=0s"], arguments].concat();
        let settings = loaded::<LifecycleCcm>(&arguments).unwrap();
        let (shared, metrics) = (Arc::new(cloud.clone()), Metrics::new());
        let process = InProcess::leading(&api, shared, &settings, None, metrics).await.unwrap();
        sleep(Duration::from_mins(1)).await;
        Self { api, cloud, process }
    }

    fn lose(&self, number: usize) {
        self.cloud.remove(&SimInstance::numbered(number).id).unwrap();
        set_ready(&self.api, number, "Unknown");
    }

    /// Checks that the page about this node begins with these lines, the last two of which contain the texts.
    #[track_caller]
    fn check(&self, node: &str, [state, cause, fix]: [&str; 3]) {
        let page = self.process.explain("Node", node);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines[0], format!("Node {node}, lifecycle-ccm: {state}"), "{page}");
        assert!(lines[1].starts_with("cause:") && lines[1].contains(cause), "{page}");
        assert!(lines[2].starts_with("fix:") && lines[2].contains(fix), "{page}");
    }
}

/// Returns a node in each state that does not need a setting, ten seconds after the node entered
/// it.
async fn each_state() -> World {
    let world = World::start(&["--node-selector=!left-out"]).await;
    for number in 1..5 {
        set_ready(&world.api, number, "Unknown");
    }
    world.cloud.set_power(&SimInstance::numbered(3).id, PowerState::Stopped);
    let refused = CloudError::new(ErrorKind::Forbidden, "policy doesn't allow it");
    let refused = FaultEffect::FailNodes(vec![name(4)], refused.with_request_id("req-42"));
    world.cloud.faults().add(CloudFault::new(refused));
    let foreign = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "foreign"},
        "spec": {"providerID": "elsewhere://i-5"},
    });
    world.api.create(foreign).unwrap();
    let label = json!({"metadata": {"labels": {"left-out": ""}}});
    world.api.patch("nodes", &name(6), "", PatchKind::Merge, label).unwrap();
    set_ready(&world.api, 6, "Unknown");
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    world.api.patch("nodes", &name(7), "", PatchKind::Merge, hold).unwrap();
    world.api.delete("nodes", &name(7)).unwrap();
    world.lose(2);
    world.lose(8);
    let protected =
        json!({"metadata": {"annotations": {"quartet.dev/deletion-protected": "true"}}});
    world.api.patch("nodes", &name(8), "", PatchKind::Merge, protected).unwrap();
    sleep(Duration::from_secs(10)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn each_node_is_explained() {
    let world = each_state().await;
    for (node, expect) in [
        (
            &*name(0),
            ["fine", "it is Ready, so the cloud is not asked about it", "nothing has to be done"],
        ),
        (
            &name(1),
            ["fine", "it is not Ready (Unknown), but its instance exists and runs", "kubelet"],
        ),
        (
            &name(2),
            [
                "work is under way",
                "its instance is gone; waiting for confirmation;",
                "kubectl annotate node node-00002 --overwrite quartet.dev/deletion-protected=true",
            ],
        ),
        (
            &name(3),
            [
                "fine",
                "its machine is shut down in the cloud, so it has the taint node.cloudprovider.kubernetes.io/shutdown",
                "start the machine in the cloud",
            ],
        ),
        (
            &name(4),
            [
                "blocked",
                "forbidden: policy doesn't allow it (request req-42)",
                "give the cloud user the permission that is missing",
            ],
        ),
        (
            "foreign",
            [
                "not responsible",
                "provider ID elsewhere://i-5 has no scheme of this provider (sim)",
                "another controller",
            ],
        ),
        (&name(6), ["not responsible", "--node-selector does not select it", "--node-selector"]),
        (&name(7), ["work is under way", "it is already being deleted", "finalizer"]),
        (
            &name(8),
            [
                "held",
                "the annotation quartet.dev/deletion-protected prevents its deletion",
                "quartet.dev/deletion-protected-",
            ],
        ),
        ("no-such", ["unknown", "does not show a Node of this name", "check the name"]),
    ] {
        world.check(node, expect);
    }
    sleep(Duration::from_mins(1)).await;
    world.check(&name(2), ["unknown", "does not show a Node of this name", "reason=DeletingNode"]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_says_that_it_has_not_looked() {
    let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
    register(&api, 0);
    set_ready(&api, 0, "Unknown");
    let cloud = SimCloud::new();
    let settings = loaded::<LifecycleCcm>(&[]).unwrap();
    let shared = Arc::new(cloud.clone());
    let (process, _program) =
        InProcess::<LifecycleCcm>::standing_by(&api, shared, &settings, Metrics::new())
            .await
            .unwrap();
    let world = World { api, cloud, process };
    let waits = "it is not Ready (Unknown), and this replica has not looked it up yet";
    world.check(&name(0), ["unknown", waits, "the replica that leads"]);
}
