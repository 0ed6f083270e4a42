//! The page `/explain`: nodes in each state that an operator may ask about.

use ccm_tests::in_process::loaded;

use super::{edges::OFTEN, *};

impl Whole {
    /// Checks that the first three lines of the page about this node begin like this.
    fn explains(&self, name: &str, state: &str, cause: &str, fix: &str) {
        let text = self.process.explain("Node", name);
        let expect = [
            format!("Node {name}, node-ccm: {state}"),
            format!("cause:   {cause}"),
            format!("fix:     {fix}"),
        ];
        let begins = |(line, expect): (&str, &String)| line.starts_with(&**expect);
        assert!(text.lines().zip(&expect).all(begins), "{expect:#?}\n{text}");
        assert!(text.lines().count() >= 3, "{text}");
    }

    fn line(&self, name: &str, title: &str) -> String {
        let text = self.process.explain("Node", name);
        let found = text.lines().find_map(|line| line.strip_prefix(title));
        found.unwrap_or_else(|| panic!("{title}: {text}")).trim().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_fine_and_names_that_are_none() {
    let whole = Whole::start(&[]).await;
    let name = whole.add_node(0);
    whole.initialised(&name).await;
    let fine =
        "it is initialised and agrees with its instance sim://i-00000, as the cloud showed it at ";
    whole.explains(&name, "fine", fine, "nothing has to be done");
    sleep(Duration::from_mins(7)).await;
    whole.explains(&name, "fine", fine, "nothing has to be done");
    let next = whole.line(&name, "next:");
    assert!(
        next.starts_with("all nodes are looked up every 5m0s, give or take 10 %: about at "),
        "{next}"
    );
    let cause = "the API server does not show a node \"nobody\"";
    whole.explains("nobody", "unknown", cause, "check the name (kubectl get nodes)");
}

#[tokio::test(start_paused = true)]
async fn before_the_first_list_and_on_a_standby() {
    let whole = Whole::before_start(&[]);
    let refusal = Action::Status { code: 403, retry_after: None };
    let fault = whole.api.faults().add(Fault::new(refusal).verb(Verb::List).resource("nodes"));
    let prepared = NodeCcm::prepare(whole.context());
    assert!(timeout(Duration::from_mins(1), prepared).await.is_err());
    let fix = "wait; if it lasts, the line nodes of /readyz?verbose says why";
    whole.explains("node-00000", "unknown", "the nodes have not been listed yet", fix);
    whole.api.faults().remove(fault);

    let whole = Whole::start(&[]).await;
    let name = whole.add_node(0);
    whole.initialised(&name).await;
    let (settings, cloud) = (loaded::<NodeCcm>(&[]).unwrap(), whole.cloud.clone());
    let metrics = ccm_runtime::metrics::Metrics::new();
    let standby =
        InProcess::<NodeCcm>::standing_by(&whole.api, Arc::new(cloud), &settings, metrics);
    let (standby, _program) = standby.await.unwrap();
    let text = standby.explain("Node", &name);
    assert!(
        text.starts_with(&format!(
            "Node {name}, node-ccm: unknown\ncause:   this replica does not lead"
        )),
        "{text}"
    );
    assert!(text.contains("fix:     ask the replica that holds the Lease"), "{text}");
    assert!(
        standby
            .explain("Node", "nobody")
            .contains("cause:   the API server does not show a node \"nobody\"")
    );
}

#[tokio::test(start_paused = true)]
async fn a_ready_node_whose_instance_is_gone_and_another_cloud() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..2).await;
    whole.cloud.remove("i-00000");
    sleep(Duration::from_mins(3)).await;
    let cause = "its instance is gone: no instance sim://i-00000; it is not written";
    whole.explains(&names[0], "blocked", cause, "find out which machine runs as node-00000");
    // Any change of the node makes the program check its memory.
    let stops = json!({"spec": {"taints": [{"key": "out-of-reach", "effect": "NoExecute"}]}});
    whole.api.patch("nodes", &names[0], "", PatchKind::Merge, stops).unwrap();
    sleep(Duration::from_secs(5)).await;
    whole.explains(&names[0], "blocked", cause, "find out which machine runs as node-00000");
    whole.process.lose_project(&whole.cloud);
    sleep(Duration::from_mins(3)).await;
    let cause = "the cloud is another one: it was ";
    whole.explains(&names[1], "blocked", cause, "if credentials or settings are wrong");
    whole.process.approve_project(&whole.cloud);
    sleep(Duration::from_mins(3)).await;
    whole.explains(&names[1], "fine", "it is initialised and agrees", "nothing has to be done");
}
