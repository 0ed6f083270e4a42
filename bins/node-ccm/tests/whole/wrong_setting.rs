//! A wrong setting on which all nodes depend, for a night.

use ccm_runtime::{leadership::Leadership, metrics::Metrics};
use ccm_tests::in_process::loaded;

use super::{edges::OFTEN, *};

/// The time in which nobody looks.
const NIGHT: Duration = Duration::from_hours(6);
const NODES: usize = 20;

impl Whole {
    /// Starts another leader in the same cluster.
    async fn lead(&self, argument: &str, last: Option<&Leadership>) -> InProcess<NodeCcm> {
        let settings = loaded::<NodeCcm>(&[OFTEN, argument]).unwrap();
        let cloud = Arc::new(self.cloud.clone());
        InProcess::leading(&self.api, cloud, &settings, last, Metrics::new()).await.unwrap()
    }
}

/// Nodes that it leaves out stay as they are; new ones are told why they wait.
#[tokio::test(start_paused = true)]
async fn a_wrong_node_selector_changes_no_node() {
    let mut whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..NODES).await;
    let last = whole.context().leadership.clone();
    whole.process = whole.lead("--node-selector=pool=none", Some(&last)).await;
    whole.move_instances(0..NODES);
    let new = whole.add_node(NODES);
    sleep(NIGHT).await;
    assert_eq!((whole.moved(&names), whole.writes()), (0, Vec::new()));
    assert!(whole.is_tainted(&new));
    let told = whole.events(&new);
    assert_eq!(
        told.iter().filter(|(reason, _)| reason == "NodeNotSelected").count(),
        1,
        "{told:?}"
    );
    let state = "ccm_node_nodes{state=\"not_selected\"}";
    assert_eq!(whole.metric(state), NODES as u64 + 1);
    // Its label selects it.
    let label = json!({"metadata": {"labels": {"pool": "none"}}});
    whole.api.patch("nodes", &new, "", PatchKind::Merge, label).unwrap();
    whole.initialised(&new).await;
    assert_eq!(whole.metric(state), NODES as u64);
}

/// On another Lease, nothing was left to the next leader, and the last one leads still. What the brake holds is held by
/// both.
#[tokio::test(start_paused = true)]
async fn another_name_of_the_cluster_or_lease_changes_no_node() {
    for flag in ["cluster-name", "leader-elect-resource-name", "leader-elect-resource-namespace"] {
        for lies in [0, NODES / 2] {
            let mut whole = Whole::start(&[OFTEN]).await;
            let names = whole.ready(0..NODES).await;
            whole.move_instances(0..lies);
            sleep(Duration::from_mins(5)).await;
            assert_eq!(whole.metric("ccm_brake_held "), lies as u64);
            let (last, wrong) = (whole.context().leadership.clone(), format!("--{flag}=another"));
            let last = (flag == "cluster-name").then_some(&last);
            let next = whole.lead(&wrong, last).await;
            let former = std::mem::replace(&mut whole.process, next);
            sleep(NIGHT).await;
            assert_eq!((whole.moved(&names), whole.writes()), (0, Vec::new()), "{flag}, {lies}");
            assert_eq!(whole.metric("ccm_brake_held "), lies as u64);
            drop(former);
            whole.process = whole.lead(OFTEN, None).await;
            sleep(NIGHT).await;
            assert_eq!((whole.moved(&names), whole.writes()), (0, Vec::new()), "{flag}, {lies}");
        }
    }
}
