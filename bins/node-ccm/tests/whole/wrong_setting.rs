//! A wrong setting that affects all nodes is in force for a night.

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

    /// Puts other settings into force while it runs.
    pub(super) fn reload(&self, arguments: &[&str]) {
        let settings = loaded::<NodeCcm>(arguments).unwrap();
        self.process.settings.send_replace(Arc::clone(&settings.own));
    }

    /// Returns the gauges of the brake: 1 if it is open, and the number of nodes whose changes it
    /// holds.
    fn brake(&self) -> (u64, u64) {
        (self.metric("ccm_brake_open "), self.metric("ccm_brake_held "))
    }
}

/// Nodes that the setting excludes stay unchanged. Events on new nodes say why they wait.
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
    // The label selects it.
    let label = json!({"metadata": {"labels": {"pool": "none"}}});
    whole.api.patch("nodes", &new, "", PatchKind::Merge, label).unwrap();
    whole.initialised(&new).await;
    assert_eq!(whole.metric(state), NODES as u64);
}

/// The brake forgets the changes of these nodes, and they do not hold up other nodes.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_left_out_while_it_is_held_holds_up_no_other() {
    // Nodes are excluded by the selector, by their own label, and by the provider: another provider
    // serves the provider ID now.
    for how in ["selector", "label", "provider"] {
        let whole = Whole::start(&[OFTEN, "--node-selector=pool!=none"]).await;
        let names = whole.ready(0..NODES).await;
        whole.move_instances(0..NODES / 2);
        sleep(Duration::from_mins(5)).await;
        assert_eq!(whole.brake(), (1, 10), "{how}");
        let label = |name: &String, pool: &str| {
            let label = json!({"metadata": {"labels": {"pool": pool}}});
            whole.api.patch("nodes", name, "", PatchKind::Merge, label).unwrap();
        };
        match how {
            "selector" => {
                names[..NODES / 2].iter().for_each(|name| label(name, "old"));
                whole.reload(&[OFTEN, "--node-selector=pool!=old"]);
            }
            "label" => names[..NODES / 2].iter().for_each(|name| label(name, "none")),
            _ => whole.cloud.set_scheme("other"),
        }
        sleep(Duration::from_hours(1)).await;
        assert_eq!(whole.brake(), (0, 0), "{how}: {}", whole.context().plans.text(None));
        assert_eq!(whole.writes(), [""; 0], "{how}");
        if how == "provider" {
            continue;
        }
        // Fewer changes of the other nodes are still allowed.
        whole.move_instances(NODES / 2..NODES / 2 + 1);
        sleep(Duration::from_mins(5)).await;
        assert_eq!((whole.moved(&names), whole.brake()), (1, (0, 0)), "{how}");
    }
}

/// It does not count as a node that waits for its turn either.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_written_any_more_waits_for_no_turn() {
    for how in ["selector", "gone"] {
        let slow = [OFTEN, "--node-correction-qps=0.01"];
        let whole = Whole::start(&slow).await;
        whole.ready(0..3).await;
        for number in 0..3 {
            let rack = |instance: &mut SimInstance| {
                instance.labels.insert("example.com/rack".to_owned(), "r1".to_owned());
            };
            whole.cloud.update(&SimInstance::numbered(number).id, rack);
        }
        sleep(Duration::from_secs(80)).await;
        assert_eq!(whole.metric("ccm_node_corrections_waiting "), 2, "{how}");
        if how == "selector" {
            whole.reload(&[slow.as_slice(), &["--node-selector=pool"]].concat());
        } else {
            (0..3).for_each(|number| drop(whole.cloud.remove(&SimInstance::numbered(number).id)));
        }
        sleep(Duration::from_mins(5)).await;
        assert_eq!(whole.metric("ccm_node_corrections_waiting "), 0, "{how}");
    }
}

/// On another Lease the next leader does not find any data, and the last leader still leads. Both
/// hold the same changes.
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
