//! Another client or a policy undoes the writes of node-ccm.

use super::{edges::OFTEN, *};

impl Whole {
    /// Sets an admission policy for the program's patches of nodes.
    fn set_policy(&self, action: Action) {
        let policy = Fault::new(action).verb(Verb::Patch).resource("nodes");
        self.api.faults().add(policy.user_agent("node-ccm/"));
    }

    /// Returns how many events of this reason the node has.
    fn count(&self, name: &str, wanted: &str) -> usize {
        self.events(name).iter().filter(|(reason, _)| reason == wanted).count()
    }
}

/// The event names the values of both writers, for each kind of field.
#[tokio::test(start_paused = true)]
async fn an_owner_that_removes_a_field_is_named_as_such() {
    const OWNED: &str = "quartet.dev/owned-labels";
    for (kind, key, other, expect) in [
        ("labels", ZONE, None, "removes KEY, and node-ccm sets it to \"sim-1a\", 3 times"),
        ("annotations", OWNED, Some("x.y/z"), "sets KEY to \"x.y/z\", and node-ccm removes it, 3"),
    ] {
        let whole = Whole::start(&[OFTEN]).await;
        let names = whole.ready(0..1).await;
        let change = json!({"metadata": {kind: {key: other}}});
        for _ in 0..600 {
            whole.api.patch("nodes", &names[0], "", PatchKind::Merge, change.clone()).unwrap();
            sleep(Duration::from_millis(100)).await;
        }
        let events = whole.events(&names[0]);
        let told = events.iter().find(|(reason, _)| reason == "RepeatedWrite");
        let text = told.map(|(_, text)| &**text).unwrap_or_default();
        let expect = format!("Another writer {}", expect.replace("KEY", key));
        assert!(text.starts_with(&expect), "{events:?}");
    }
}

/// The other owner writes a different value each time, so most of our requests conflict.
#[tokio::test(start_paused = true)]
async fn an_owner_that_never_rests_costs_few_requests() {
    let whole = Whole::start(&[]).await;
    let names = whole.ready(0..1).await;
    let delay = Action::Delay(Duration::from_millis(20));
    whole.api.faults().add(Fault::new(delay).verb(Verb::Patch).resource("nodes"));
    for round in 0..6000 {
        let flip = json!({"metadata": {"labels": {ZONE: format!("other-{}", round % 2)}}});
        whole.api.patch("nodes", &names[0], "", PatchKind::Merge, flip).unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    assert!(whole.writes().len() <= 10, "{} requests", whole.writes().len());
}

/// A kubelet or an operator's job sets the taint again whenever it is gone.
#[tokio::test(start_paused = true)]
async fn a_taint_that_another_client_sets_again_is_removed_less_and_less_often() {
    let whole = Whole::start(&[]).await;
    let name = whole.add_node(0);
    let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
    for _ in 0..6000 {
        if !whole.is_tainted(&name) {
            let taint = json!({"spec": {"taints": [taint]}});
            whole.api.patch("nodes", &name, "", PatchKind::Merge, taint).unwrap();
        }
        sleep(Duration::from_millis(100)).await;
    }
    let writes = whole.metric("ccm_node_writes_total{kind=\"taint\",result=\"ok\"}");
    assert!((4..=12).contains(&writes), "{writes} within ten minutes");
    assert!(whole.cloud.calls().lookup <= 2 * writes, "{}", whole.cloud.calls());
    let events = whole.events(&name);
    assert_eq!(whole.count(&name, "RepeatedWrite"), 1, "{events:?}");
    let told = events.iter().find(|(reason, _)| reason == "RepeatedWrite").unwrap();
    let expect =
        format!("Another writer sets the taint {UNINITIALIZED}, and node-ccm removes it, ");
    assert!(told.1.starts_with(&expect), "{told:?}");
    assert!(whole.count(&name, "Synced") < 3, "{events:?}");
    let samples = whole.metric("node_controller_initial_node_sync_delay_seconds_count ");
    assert!(samples < 3, "{samples} initialisations");
    assert!(whole.metric("ccm_repeated_writes_total{object=\"Node\",write=\"taints\"}") > 0);
    assert_eq!(whole.metric("ccm_node_nodes{state=\"waiting\"}"), 1);
}

/// A node without an address must not run pods.
#[tokio::test(start_paused = true)]
async fn a_new_node_whose_addresses_are_not_stored_keeps_its_taint() {
    let whole = Whole::start(&[]).await;
    whole.set_policy(Action::TakeBack("/status/addresses"));
    let name = whole.add_node(0);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(whole.node(&name)["status"]["addresses"], Value::Null);
    assert!(whole.is_tainted(&name));
    let writes = whole.writes();
    assert!(writes.iter().all(|what| what == "patch nodes/status"), "{writes:?}");
    assert!((9..=12).contains(&writes.len()), "{} within ten minutes", writes.len());
    assert_eq!((whole.count(&name, "RepeatedWrite"), whole.count(&name, "Synced")), (1, 0));
    assert_eq!(whole.metric("node_controller_initial_node_sync_delay_seconds_count "), 0);
    whole.api.faults().clear();
    sleep(Duration::from_secs(61)).await;
    assert!(!whole.is_tainted(&name));
}

/// The policy also sets another taint, so the list differs from the previous one.
#[tokio::test(start_paused = true)]
async fn a_taint_that_comes_back_in_another_list_is_not_removed() {
    let whole = Whole::start(&[]).await;
    let policy = |body: &mut Value| {
        if body["spec"]["taints"].is_array() {
            let taint = |key| json!({"key": key, "value": "true", "effect": "NoSchedule"});
            body["spec"]["taints"] = json!([taint(UNINITIALIZED), taint("example.com/scan")]);
        }
    };
    whole.set_policy(Action::Mutate(policy));
    let name = whole.add_node(0);
    sleep(Duration::from_mins(10)).await;
    assert!(whole.is_tainted(&name));
    assert_eq!((whole.count(&name, "RepeatedWrite"), whole.count(&name, "Synced")), (1, 0));
    assert!(whole.writes().len() <= 12, "{}", whole.writes().len());
    assert_eq!(whole.metric("ccm_node_nodes{state=\"waiting\"}"), 1);
    whole.api.faults().clear();
    sleep(Duration::from_secs(61)).await;
    assert!(!whole.is_tainted(&name));
}

/// A change that was not stored has not been made: no event reports it.
#[tokio::test(start_paused = true)]
async fn a_change_of_a_ready_node_that_is_not_stored_is_not_made() {
    for (field, reason) in [
        ("/status/addresses", "NodeInternalIPChanged"),
        ("/metadata/labels/topology.kubernetes.io~1zone", "NodeTopologyChanged"),
    ] {
        let whole = Whole::start(&[OFTEN]).await;
        let names = whole.ready(0..50).await;
        whole.set_policy(Action::TakeBack(field));
        whole.move_instances(0..1);
        whole.cloud.update("i-00000", |instance| instance.zone = Some("elsewhere".to_owned()));
        sleep(Duration::from_mins(10)).await;
        assert_eq!(whole.count(&names[0], reason), 0, "{:?}", whole.events(&names[0]));
        let is_address = field == "/status/addresses";
        let applied = whole.metric("ccm_node_internal_ip_changes_total{result=\"applied\"}");
        assert_eq!(applied, u64::from(!is_address), "{field}");
        assert_eq!(whole.count(&names[0], "RepeatedWrite"), 1, "{field}");
        whole.api.faults().clear();
        sleep(Duration::from_mins(2)).await;
        for reason in ["NodeInternalIPChanged", "NodeTopologyChanged"] {
            assert_eq!(whole.count(&names[0], reason), 1, "{:?}", whole.events(&names[0]));
        }
        assert_eq!(whole.moved(&names), 1, "{field}");
    }
}
