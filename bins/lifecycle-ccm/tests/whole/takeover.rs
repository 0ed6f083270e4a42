//! A standby whose watch is silent becomes the leader: its store is old.

use ccm_sim::apiserver::{Action, Fault};
use ccm_tests::in_process::{STANDBY, sample};

use super::*;

const AGENT: &str = "lifecycle-ccm/standby";

/// A standby whose watch of nodes is silent after the first list.
struct World {
    api: Arc<ApiServer>,
    cloud: SimCloud,
    process: InProcess<LifecycleCcm>,
    program: Arc<LifecycleCcm>,
}

impl World {
    async fn new() -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        cloud.add_many(0, NODES);
        (0..NODES).for_each(|number| register(&api, number));
        set_ready(&api, 0, "Unknown");
        let settings = loaded::<LifecycleCcm>(&["--node-grace-period=0s"]).unwrap();
        let (shared, metrics) = (Arc::new(cloud.clone()), Metrics::new());
        let standby = InProcess::standing_by(&api, shared, &settings, metrics);
        let (process, program) = standby.await.unwrap();
        assert!(AGENT.ends_with(STANDBY));
        let silent = Fault::new(Action::SilentWatch).verb(Verb::Watch).resource("nodes");
        let silent = silent.user_agent(AGENT).lasting(Duration::from_hours(1));
        api.faults().add(silent);
        api.cut_watches(AGENT, false);
        sleep(Duration::from_secs(2)).await;
        Self { api, cloud, process, program }
    }

    fn lead(&mut self) {
        self.process.take_over(Arc::clone(&self.program), None);
    }

    fn line(&self) -> String {
        let findings = self.process.context.health.findings();
        let found = findings.into_iter().find(|finding| finding.name == "stores");
        found.unwrap().verdict.detail().to_owned()
    }
}

/// Its decisions would be about nodes as they were.
#[tokio::test(start_paused = true)]
async fn a_leader_decides_nothing_until_its_store_is_proven_to_be_current() {
    let mut world = World::new().await;
    let stall = Fault::new(Action::Stall).verb(Verb::List).resource("nodes").user_agent(AGENT);
    let stall = world.api.faults().add(stall);
    world.lead();
    sleep(Duration::from_mins(3)).await;
    assert_eq!(world.cloud.calls().lookup, 0);
    let line = world.line();
    assert!(line.starts_with("this leader has planned nothing for "), "{line}");
    world.api.faults().remove(stall);
    sleep(Duration::from_mins(2)).await;
    assert!(world.cloud.calls().lookup > 0);
    assert_eq!(world.line(), "current when this replica began to lead");
    assert_eq!(
        sample::<u64>(&world.process.context.metrics, "ccm_lifecycle_nodes{state=\"ready\"}"),
        4
    );
}
