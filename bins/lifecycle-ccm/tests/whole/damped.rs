//! When something undoes a write, lifecycle-ccm repeats it less and less often.

use ccm_runtime::program::Program as _;
use ccm_sim::apiserver::{Action, Fault};
use ccm_tests::in_process::sample;
use serde_json::Value;

use super::*;

const REPEATED: &str = "ccm_repeated_writes_total{object=\"Node\",write=\"marks\"}";
const MINUTES: Duration = Duration::from_mins(10);

struct World {
    api: Arc<ApiServer>,
    cloud: SimCloud,
    process: InProcess<LifecycleCcm>,
}

impl World {
    /// Returns a leader, and nodes the first of which is shut down.
    async fn start() -> Self {
        let api = ApiServer::new(Options { taint_new_nodes: false, ..Options::default() });
        let cloud = SimCloud::new();
        cloud.add_many(0, NODES);
        (0..NODES).for_each(|number| register(&api, number));
        let arguments = &["--node-grace-period=0s"];
        let process = InProcess::new(&api, Arc::new(cloud.clone()), arguments).unwrap();
        let program = Arc::new(LifecycleCcm::prepare(&process.context).await.unwrap());
        program.lead(&process.context);
        Self { api, cloud, process }
    }

    fn shut_down(&self) {
        self.cloud.set_power(&SimInstance::numbered(0).id, PowerState::Stopped);
        set_ready(&self.api, 0, "Unknown");
    }

    fn is_tainted(&self) -> bool {
        let node = self.api.get("nodes", &name(0)).unwrap();
        node["spec"]["taints"].to_string().contains("shutdown")
    }

    /// Returns the texts of the events about repeated writes.
    fn told(&self) -> Vec<String> {
        let events = self.api.list("events").into_iter();
        let events = events.filter(|event| event["reason"] == "RepeatedWrite");
        events
            .map(|event| event["note"].as_str().or(event["message"].as_str()).unwrap().to_owned())
            .collect()
    }

    fn repeated(&self) -> usize {
        sample(&self.process.context.metrics, REPEATED)
    }
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_another_client_removes_is_written_less_and_less_often() {
    let world = World::start().await;
    world.shut_down();
    for _ in 0..MINUTES.as_secs() {
        if world.is_tainted() {
            let none = json!({"spec": {"taints": null}});
            world.api.patch("nodes", &name(0), "", PatchKind::Merge, none).unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    let written = writes(&world.api).len();
    assert!((5..=12).contains(&written), "{written} writes within ten minutes");
    let told = world.told();
    assert!(matches!(&*told, [text] if text.contains("something undoes it")), "{told:?}");
    assert!(world.repeated() > 2, "{}", world.repeated());
    // The other client has given up.
    sleep(Duration::from_mins(6)).await;
    assert!(world.is_tainted());
    let written = writes(&world.api).len();
    sleep(Duration::from_hours(1)).await;
    assert_eq!(writes(&world.api).len(), written);
    // A write with other content does not wait.
    world.cloud.set_power(&SimInstance::numbered(0).id, PowerState::Running);
    sleep(Duration::from_secs(10)).await;
    assert!(!world.is_tainted());
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_a_policy_takes_back_is_written_once_a_minute() {
    let world = World::start().await;
    let fault = Fault::new(Action::TakeBack("/spec/taints")).verb(Verb::Patch).resource("nodes");
    world.api.faults().add(fault);
    world.shut_down();
    sleep(MINUTES).await;
    let written = writes(&world.api).len();
    assert!((9..=12).contains(&written), "{written} writes within ten minutes");
    let told = world.told();
    assert!(matches!(&*told, [text] if text.contains("admission webhook")), "{told:?}");
    assert_eq!(world.repeated(), written);
    world.api.faults().clear();
    sleep(Duration::from_secs(66)).await;
    assert!(world.is_tainted());
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_a_policy_puts_back_is_removed_once_a_minute() {
    const APPROVED: &str = "quartet.dev/deletion-approved";
    let world = World::start().await;
    let approve = |value: Value| {
        let change = json!({"metadata": {"annotations": {APPROVED: value}}});
        world.api.patch("nodes", &name(0), "", PatchKind::Merge, change).unwrap();
    };
    approve(json!("yes"));
    for _ in 0..MINUTES.as_secs() {
        let node = world.api.get("nodes", &name(0)).unwrap();
        if node["metadata"]["annotations"][APPROVED].is_null() {
            approve(json!("yes"));
        }
        sleep(Duration::from_secs(1)).await;
    }
    let written = writes(&world.api).len();
    assert!((5..=12).contains(&written), "{written} writes within ten minutes");
    assert_eq!(world.told().len(), 1);
}

/// The mark is for other controllers: without it the node goes as well.
#[tokio::test(start_paused = true)]
async fn a_proof_that_a_policy_takes_back_holds_no_deletion() {
    let world = World::start().await;
    let field = "/metadata/annotations";
    let fault = Fault::new(Action::TakeBack(field)).verb(Verb::Patch).resource("nodes");
    world.api.faults().add(fault);
    world.cloud.remove(&SimInstance::numbered(0).id);
    set_ready(&world.api, 0, "Unknown");
    sleep(Duration::from_mins(1)).await;
    assert!(world.api.get("nodes", &name(0)).is_none());
    assert_eq!(writes(&world.api).len(), 2, "the mark, and the deletion");
    let told = world.told();
    assert!(matches!(&*told, [text] if text.contains("the write proof")), "{told:?}");
}
