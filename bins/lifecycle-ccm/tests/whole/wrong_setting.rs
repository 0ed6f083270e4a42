//! A wrong setting that affects all nodes is in force for a night.

use ccm_sim::faults::{Fault, FaultEffect};
use ccm_tests::in_process::sample;
use serde_json::Value;

use super::*;

/// The time in which nobody looks.
const NIGHT: Duration = Duration::from_hours(6);
/// Within this time the alerts begin.
const MINUTES: Duration = Duration::from_mins(4);
/// The nodes whose machines are in the project, and the nodes of another project, which the right
/// selector does not select.
const OURS: usize = 14;
const ALL: usize = 20;
const RIGHT: &str = "--node-selector=pool=a";

struct World {
    api: Arc<ApiServer>,
    cloud: SimCloud,
    process: Option<InProcess<LifecycleCcm>>,
}

impl World {
    async fn start() -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        cloud.add_many(0, OURS);
        for number in 0..ALL {
            register(&api, number);
            let pool = if number < OURS { "a" } else { "b" };
            let labels = json!({"metadata": {"labels": {"pool": pool}}});
            api.patch("nodes", &name(number), "", PatchKind::Merge, labels).unwrap();
        }
        let mut world = Self { api, cloud, process: None };
        world.restart(&[RIGHT], false).await;
        // One machine is shut down, so its node has the taint.
        world.cloud.set_power(&SimInstance::numbered(0).id, PowerState::Stopped);
        set_ready(&world.api, 0, "Unknown");
        sleep(MINUTES).await;
        assert_eq!(writes(&world.api).len(), 1);
        world
    }

    /// Replaces the leader. A leader on another Lease finds nothing of the last one.
    async fn restart(&mut self, arguments: &[&str], is_moved: bool) {
        let last = self.process.take().map(|last| last.context.leadership.clone());
        let last = last.filter(|_| !is_moved);
        self.process = Some(self.lead(arguments, last.as_ref()).await);
    }

    async fn lead(
        &self,
        arguments: &[&str],
        last: Option<&ccm_runtime::leadership::Leadership>,
    ) -> InProcess<LifecycleCcm> {
        let arguments = [&["--node-grace-period=0s"], arguments].concat();
        let settings = loaded::<LifecycleCcm>(&arguments).unwrap();
        let (api, cloud) = (&self.api, Arc::new(self.cloud.clone()));
        InProcess::leading(api, cloud, &settings, last, Metrics::new()).await.unwrap()
    }

    fn metric(&self, name: &str) -> u64 {
        sample(&self.process.as_ref().unwrap().context.metrics, name)
    }

    /// Returns the taints of each node.
    fn nodes(&self) -> Vec<(String, Value)> {
        let nodes = self.api.list("nodes").into_iter();
        nodes
            .map(|node| (node["metadata"]["name"].to_string(), node["spec"]["taints"].clone()))
            .collect()
    }
}

/// The cloud does not know the machines of these nodes, because they are in another project.
#[tokio::test(start_paused = true)]
async fn a_wrong_node_selector_deletes_and_taints_no_node() {
    for (wrong, is_held) in [("", true), ("pool=b", true), ("pool=none", false), ("!pool", false)] {
        let mut world = World::start().await;
        let before = world.nodes();
        let wrong = format!("--node-selector={wrong}");
        for arguments in [&*wrong, RIGHT] {
            world.restart(&[arguments], false).await;
            // Two machines of the other project are rebooted, and stay so.
            for number in OURS..OURS + 2 {
                set_ready(&world.api, number, "Unknown");
            }
            sleep(MINUTES).await;
            let is_wrong = arguments == wrong;
            let open = world.metric("ccm_lifecycle_breaker_open ");
            let plans = world.process.as_ref().unwrap().plans();
            assert_eq!(open, u64::from(is_wrong && is_held), "{arguments}: {plans}");
            sleep(NIGHT).await;
            assert_eq!(world.nodes(), before, "{arguments}: {:?}", writes(&world.api));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_name_of_the_cluster_or_lease_deletes_and_taints_no_node() {
    for flag in ["cluster-name", "leader-elect-resource-name", "leader-elect-resource-namespace"] {
        let mut world = World::start().await;
        let before = world.nodes();
        let wrong = format!("--{flag}=another");
        // The last leader still leads, and its cloud lies to both of them.
        let former = world.lead(&[RIGHT], None).await;
        world.restart(&[RIGHT, &wrong], flag.starts_with("leader")).await;
        world.cloud.faults().add(Fault::new(FaultEffect::WrongProject));
        (1..OURS).for_each(|number| set_ready(&world.api, number, "Unknown"));
        sleep(NIGHT).await;
        assert_eq!(world.nodes(), before, "{flag}: {:?}", writes(&world.api));
        drop(former);
        world.cloud.faults().clear();
        world.restart(&[RIGHT], true).await;
        sleep(Duration::from_hours(1)).await;
        assert_eq!(world.nodes(), before, "{flag}");
    }
}
