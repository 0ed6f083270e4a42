//! The page `/explain`: nodes in each state that an operator may ask about.

use ccm_tests::in_process::loaded;

use super::{edges::OFTEN, *};

const NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

impl Whole {
    /// The first three lines of the page about this node begin like this.
    fn explains(&self, name: &str, fares: &str, cause: &str, mend: &str) {
        let text = self.process.explain("Node", name);
        let expect = [
            format!("Node {name}, node-ccm: {fares}"),
            format!("cause:   {cause}"),
            format!("mend:    {mend}"),
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
async fn nodes_that_the_cloud_does_not_find_or_of_others() {
    let whole = Whole::start(&["--node-selector=!edge"]).await;
    whole.register("lost", None);
    whole.register("foreign", Some("elsewhere://i-1"));
    let edge = json!({"metadata": {"labels": {"edge": ""}}});
    whole.register("edge", None);
    whole.api.patch("nodes", "edge", "", PatchKind::Merge, edge).unwrap();
    for id in ["i-a", "i-b"] {
        whole.cloud.add(SimInstance::new(id, "twin"));
    }
    whole.register("twin", None);
    sleep(Duration::from_mins(10)).await;
    whole.explains(
        "lost",
        "blocked",
        "it stays tainted because the cloud has no instance for it: no instance named \"lost\" (InstanceNotFound)",
        "compare its name and its system UUID",
    );
    let next = whole.line("lost", "next:");
    assert!(next.contains("retrying with exponential back-off (max 1m0s)"), "{next}");
    whole.explains(
        "foreign",
        "not responsible",
        "provider ID elsewhere://i-1 has no scheme of this provider (sim); it stays tainted until another",
        "nothing has to be done if another controller is responsible for it; otherwise correct the kubelet's --provider-id",
    );
    whole.explains(
        "edge",
        "not responsible",
        "--node-selector does not select it; it stays tainted until another controller",
        "nothing has to be done if another controller is responsible for it; otherwise correct the labels of the node, or --node-selector",
    );
    whole.explains(
        "twin",
        "blocked",
        "conflict: node \"twin\" matches 2 instances: i-a, i-b; it stays tainted until that is fixed",
        "two facts in the cloud contradict each other: correct one; or say which instance it is: spec.providerID",
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_ip_and_a_provider_id_that_do_not_fit() {
    let whole = Whole::start(&[]).await;
    let name = whole.add_node(0);
    let wrong = json!({"metadata": {"annotations": {NODE_IP: "10.9.9.9"}}});
    whole.api.patch("nodes", &name, "", PatchKind::Merge, wrong).unwrap();
    whole.cloud.add(SimInstance::numbered(3));
    whole.register("renamed", Some("sim://i-00003"));
    sleep(Duration::from_mins(2)).await;
    assert!(whole.is_tainted(&name) && whole.is_tainted("renamed"));
    let cause = format!(
        "it stays tainted until its annotation matches its instance: provided node ip for node \"{name}\" is not valid: annotation {NODE_IP}: failed to get node address from cloud provider that matches ip: 10.9.9.9; the cloud's addresses are "
    );
    whole.explains(
        &name,
        "blocked",
        &cause,
        "give the kubelet an address of the instance as --node-ip",
    );
    let there = whole.line(&name, "there:");
    assert!(there.contains("10.9.9.9"), "{there}");
    whole.explains(
        "renamed",
        "blocked",
        "it stays tainted until its provider ID is confirmed (--node-identity): neither the name",
        "delete the old node if the machine has been renamed, else correct the kubelet's --provider-id",
    );
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_refuses_or_does_not_answer() {
    let refused = |kind: ErrorKind| {
        let error = CloudError::new(kind, "no such thing").with_request_id("req-7");
        Effect::Error(error)
    };
    for (effect, fares, cause, mend) in [
        (
            refused(ErrorKind::Unauthorized),
            "blocked",
            "unauthorized: no such thing (request req-7); it stays tainted until that is fixed",
            "renew the credentials of the cloud",
        ),
        (
            refused(ErrorKind::Forbidden),
            "blocked",
            "forbidden: no such thing (request req-7); it stays",
            "give the cloud user the permission",
        ),
        (
            refused(ErrorKind::QuotaExceeded),
            "blocked",
            "quota_exceeded: no such thing (request req-7); it stays",
            "raise the quota of the cloud project",
        ),
        (
            Effect::Hang,
            "work is under way",
            "timeout: ",
            "wait; if it lasts, ask the cloud's support",
        ),
    ] {
        let whole = Whole::start(&[]).await;
        whole.cloud.faults().add(faults::Fault::new(effect).on(Operation::Lookup));
        let name = whole.add_node(0);
        sleep(Duration::from_mins(10)).await;
        whole.explains(&name, fares, cause, mend);
        let last = whole.line(&name, "last:");
        assert!(last.starts_with("the cause was found, at "), "{last}");
    }
    // A node that is initialised already keeps what it has.
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..2).await;
    whole.fail(&[&names[0]], ErrorKind::Forbidden);
    sleep(Duration::from_mins(3)).await;
    let cause = "forbidden: no; it keeps what it has until that is fixed";
    whole.explains(&names[0], "blocked", cause, "give the cloud user the permission");
    whole.explains(&names[1], "fine", "it is initialised and agrees", "nothing has to be done");
    whole.cloud.faults().clear();
    whole.cloud.faults().add(faults::Fault::new(Effect::Hang).on(Operation::Lookup));
    sleep(Duration::from_mins(10)).await;
    let cause =
        "it is initialised and agrees with its instance sim://i-00001 as the cloud showed it at ";
    whole.explains(
        &names[1],
        "work is under way",
        cause,
        "wait; if it lasts, the lines cloud and fleet",
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_brake_holds() {
    let whole = Whole::start(&[OFTEN]).await;
    let names = whole.ready(0..20).await;
    whole.move_instances(0..10);
    sleep(Duration::from_mins(3)).await;
    let mend = format!(
        "if the cloud is right: kubectl annotate node {} quartet.dev/change-approved=yes",
        names[0]
    );
    let cause = "the first InternalIP of this Ready node changes from 10.0.0.1 to 10.200.0.0; held: the breaker is open";
    whole.explains(&names[0], "held", cause, &mend);
    let text = whole.process.explain("Node", &names[0]);
    assert!(text.contains("last:    10 of 20 Ready nodes would change\n"), "{text}");
    assert!(text.contains("\ndecided: addresses"), "{text}");
    let approve = json!({"metadata": {"annotations": {"quartet.dev/change-approved": "yes"}}});
    whole.api.patch("nodes", &names[0], "", PatchKind::Merge, approve).unwrap();
    sleep(Duration::from_mins(2)).await;
    whole.explains(&names[0], "fine", "it is initialised and agrees", "nothing has to be done");
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_refused_taken_back_or_fought_over() {
    let whole = Whole::start(&[]).await;
    let forbidden = Action::Status { code: 403, retry_after: None };
    let forbidden = Fault::new(forbidden).verb(Verb::Patch).resource("nodes");
    let forbidden = whole.api.faults().add(forbidden);
    let name = whole.add_node(0);
    sleep(Duration::from_mins(2)).await;
    let cause = "the API server refuses to write addresses of the node: forbidden: ";
    whole.explains(
        &name,
        "blocked",
        cause,
        "give the account of this program the right, or exempt it",
    );
    whole.api.faults().remove(forbidden);

    let policy = Fault::new(Action::TakeBack("/status/addresses")).verb(Verb::Patch);
    let policy = whole.api.faults().add(policy.resource("nodes"));
    sleep(Duration::from_mins(2)).await;
    let cause = "the write addresses was answered as done, but the answer does not show it: ";
    whole.explains(&name, "blocked", cause, "exempt the account of node-ccm from the admission policy or webhook that takes back addresses");
    whole.api.faults().remove(policy);
    whole.initialised(&name).await;

    let flip = json!({"metadata": {"labels": {ZONE: "other"}}});
    for _ in 0..600 {
        whole.api.patch("nodes", &name, "", PatchKind::Merge, flip.clone()).unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    let cause =
        format!("Another writer sets {ZONE} to \"other\", and node-ccm sets it to \"sim-1a\", ");
    whole.explains(
        &name,
        "blocked",
        &cause,
        &format!("decide who sets {ZONE}: stop the other writer"),
    );
}

#[tokio::test(start_paused = true)]
async fn before_the_first_list_and_on_a_standby() {
    let whole = Whole::before_start(&[]);
    let refusal = Action::Status { code: 403, retry_after: None };
    let fault = whole.api.faults().add(Fault::new(refusal).verb(Verb::List).resource("nodes"));
    let prepared = NodeCcm::prepare(whole.context());
    assert!(timeout(Duration::from_mins(1), prepared).await.is_err());
    let mend = "wait; if it lasts, the line nodes of /readyz?verbose says why";
    whole.explains("node-00000", "unknown", "the nodes have not been listed yet", mend);
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
    assert!(text.contains("mend:    ask the replica that holds the Lease"), "{text}");
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
    // Any change of the node makes the program look at what it remembers.
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
