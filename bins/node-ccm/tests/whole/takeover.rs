//! A standby whose watch is silent becomes the leader: its store is old.

use ccm_runtime::metrics::Metrics;
use ccm_tests::in_process::{STANDBY, loaded};

use super::{edges::OFTEN, *};

const AGENT: &str = "node-ccm/standby";

impl Whole {
    /// Returns a standby whose watch of nodes is silent from now on.
    async fn deaf_standby(&self) -> (InProcess<NodeCcm>, Arc<NodeCcm>) {
        assert!(AGENT.ends_with(STANDBY));
        let (settings, cloud) = (loaded::<NodeCcm>(&[OFTEN]).unwrap(), self.cloud.clone());
        let (api, metrics) = (&self.api, Metrics::new());
        let standby = InProcess::standing_by(api, Arc::new(cloud), &settings, metrics);
        let standby = standby.await.unwrap();
        let silent = Fault::new(Action::SilentWatch).verb(Verb::Watch).resource("nodes");
        let silent = silent.user_agent(AGENT).lasting(Duration::from_hours(1));
        self.api.faults().add(silent);
        self.api.cut_watches(AGENT, false);
        sleep(Duration::from_secs(2)).await;
        standby
    }

    /// Ends the leader; another process takes over.
    fn take_over(&mut self, (mut next, program): (InProcess<NodeCcm>, Arc<NodeCcm>)) {
        let last = self.context().leadership.clone();
        next.take_over(program, Some(&last));
        self.process = next;
    }
}

/// Its plans would be about nodes as they were.
#[tokio::test(start_paused = true)]
async fn a_leader_plans_nothing_until_its_store_is_proven_to_be_current() {
    let mut whole = Whole::start(&[OFTEN]).await;
    whole.ready(0..5).await;
    whole.register("lost", None);
    let standby = whole.deaf_standby().await;
    let name = whole.add_node(7);
    whole.initialised(&name).await;
    let stall = Fault::new(Action::Stall).verb(Verb::List).resource("nodes").user_agent(AGENT);
    let stall = whole.api.faults().add(stall);
    whole.take_over(standby);
    let (calls, writes) = (whole.cloud.calls(), whole.writes().len());
    for pool in ["a", "b"] {
        let other = loaded::<NodeCcm>(&[OFTEN, &format!("--node-selector=pool!={pool}")]).unwrap();
        whole.process.settings.send_replace(Arc::clone(&other.own));
        sleep(Duration::from_mins(2)).await;
    }
    assert_eq!((whole.cloud.calls().since(&calls).lookup, whole.writes().len()), (0, writes));
    let line = whole.condition("stores");
    assert!(line.starts_with("this leader has planned nothing for "), "{line}");
    assert!(line.contains("nodes"), "{line}");
    whole.api.faults().remove(stall);
    sleep(Duration::from_mins(2)).await;
    assert!(whole.refreshes() > 0);
    assert_eq!(whole.condition("stores"), "current when this replica began to lead");
    assert_eq!(whole.metric("ccm_node_nodes{state=\"initialised\"}"), 6);
}
