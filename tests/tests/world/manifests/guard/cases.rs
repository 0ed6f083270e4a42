//! Writes that the guard lets pass or refuses.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Case, Guarded, annotate, create, node, patch, replace, service};
use crate::manifests::rig::Rig;

const KUBELET: &str = "--as=system:node:node-1 --as-group=system:nodes";
const TENANT: &str = "--as=tenant";
const ADMIN: &str = "";

const STATUS: &str = "/api/v1/nodes/node-1/status";

/// The label of a provider, and an approval of a person.
const LABEL: &str = "openstack.quartet.dev/pci";
const APPROVAL: &str = "quartet.dev/deletion-approved";
const PROTECTED: &str = "quartet.dev/deletion-protected";

fn account(name: &str) -> String {
    format!("--as=system:serviceaccount:kube-system:{name}")
}

/// A kubelet patches its own Node, and gets tokens of all accounts whose pods it runs. One of these
/// accounts may patch all Nodes.
pub fn agents_of_a_node_mark_no_node(rig: &Rig, _: &str) -> Result<()> {
    let guarded = Guarded::alone(rig)?;
    let mut status = guarded.read(STATUS)?;
    status["metadata"]["annotations"][APPROVAL] = "x".into();
    let on_own = [
        (annotate("node node-1", APPROVAL, "x"), Some(APPROVAL)),
        (annotate("node node-1", PROTECTED, "false"), Some(PROTECTED)),
        (patch("node node-1", "annotations", PROTECTED, Value::Null), Some(PROTECTED)),
        (patch("node node-1", "labels", APPROVAL, "true".into()), Some(APPROVAL)),
        (patch("node node-1", "labels", LABEL, "yes".into()), Some(LABEL)),
        (replace(STATUS, &status), Some(APPROVAL)),
        (create(&node("node-3", json!({"labels": {LABEL: "yes"}}))), Some(LABEL)),
    ];
    // NodeRestriction lets a kubelet create only its own Node.
    guarded.all(KUBELET, &on_own[..6])?;
    let born =
        (create(&node("node-4", json!({"labels": {"quartet.dev/x": "y"}}))), Some("quartet.dev/x"));
    guarded.check("--as=system:node:node-4 --as-group=system:nodes", &born)?;
    let on_others = [
        (annotate("node node-2", APPROVAL, "x"), Some(APPROVAL)),
        (patch("node node-2", "labels", LABEL, "yes".into()), Some(LABEL)),
        (patch("node node-2", "annotations", PROTECTED, Value::Null), Some(PROTECTED)),
    ];
    let bound = guarded.on_node("cni-agent", "node-1")?;
    for agent in [bound.as_str(), &account("cni-agent"), &guarded.on_node("own-agent", "node-1")?] {
        guarded.all(agent, &on_others)?;
    }
    guarded.all(&account("cni-agent"), &on_own)?;
    // The right counts, not the node.
    let approved = [
        (annotate("node node-2", APPROVAL, "x"), None),
        (patch("node node-2", "annotations", APPROVAL, Value::Null), None),
    ];
    for who in [account("approver").as_str(), &guarded.on_node("approver", "node-1")?, ADMIN] {
        guarded.all(who, &approved)?;
    }
    // This is the one place for a program that initialises its own Node.
    let own = guarded.on_node("own-agent", "node-1")?;
    guarded.check(&own, &(annotate("node node-1", APPROVAL, "x"), None))?;
    guarded.check(&account("own-agent"), &on_own[4])?;
    guarded.end()
}

/// Tries writes that do not change `quartet.dev/...`, and names that only look like it.
pub fn what_is_not_ours_is_not_guarded(rig: &Rig, _: &str) -> Result<()> {
    let guarded = Guarded::alone(rig)?;
    let attached = "volumes.kubernetes.io/controller-managed-attach-detach";
    for who in [KUBELET, &account("cni-agent")] {
        let report = guarded.read(STATUS)?;
        let cases: [Case; 7] = [
            (replace(STATUS, &report), None),
            (annotate("node node-1", attached, "true"), None),
            (annotate("node node-1", PROTECTED, "true"), None),
            (annotate("node node-1", "notquartet.dev/x", "y"), None),
            (annotate("node node-1", "quartet.development/x", "y"), None),
            (annotate("node node-1", "example.com/quartet.dev", "y"), None),
            (patch("node node-1", "labels", "example.com/rack", "r1".into()), None),
        ];
        guarded.all(who, &cases)?;
    }
    let born = (create(&node("node-4", json!({"labels": {"example.com/rack": "r1"}}))), None);
    guarded.check("--as=system:node:node-4 --as-group=system:nodes", &born)?;
    // The object has as many annotations as possible, because CEL limits the cost.
    let notes: Value =
        (0..5000).map(|note| (format!("example.com/note-{note}"), "x".repeat(20))).collect();
    let agent = account("cni-agent");
    guarded.check(&agent, &(create(&node("node-3", json!({"annotations": notes}))), None))?;
    guarded.check(&agent, &(annotate("node node-3", "example.com/a", "b"), None))?;
    guarded.check(&agent, &(annotate("node node-3", APPROVAL, "x"), Some(APPROVAL)))?;
    // The policy does not check the Leases of kubelets.
    let beat = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "node-1", "namespace": "kube-node-lease", "annotations": {"quartet.dev/x": "y"}}});
    guarded.check(ADMIN, &(create(&beat), None))?;
    let lease = "lease node-1 -n kube-node-lease";
    guarded.check(&account("cni-agent"), &(annotate(lease, "quartet.dev/x", "z"), None))?;
    guarded.check(ADMIN, &((format!("delete {lease}"), None), None))?;
    guarded.end()
}

/// The owner of a namespace may write the settings of its own Service's load balancer and restore
/// the records of service-ccm, but not change them.
pub fn a_tenant_decides_about_its_own_services(rig: &Rig, _: &str) -> Result<()> {
    let guarded = Guarded::alone(rig)?;
    let key = |name: &str| format!("quartet.dev/{name}");
    let recorded =
        ["load-balancer-id", "load-balancer-digest", "load-balancer-controller"].map(key);
    let backup = json!({key("load-balancer-id"): "lb-1", key("load-balancer-digest"): "d",
        key("load-balancer-controller"): "kube-system/two", key("adopt-load-balancer"): "lb-1"});
    let mut restored = service("web", backup);
    restored["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    guarded.check(TENANT, &(create(&restored), None))?;
    let web = "service web -n shop";
    for approval in ["member-loss-approved", "replacement-approved", "release-approved"] {
        let key = key(approval);
        let key: &'static str = Box::leak(key.into_boxed_str());
        guarded.check(TENANT, &(create(&service("born", json!({key: "yes"}))), Some(key)))?;
        let mut labelled = service("born", json!({}));
        labelled["metadata"]["labels"] = json!({key: "yes"});
        guarded.check(TENANT, &(create(&labelled), Some(key)))?;
        for field in ["annotations", "labels"] {
            guarded.check(TENANT, &(patch(web, field, key, "yes".into()), None))?;
            guarded.check(TENANT, &(patch(web, field, key, Value::Null), None))?;
        }
    }
    guarded.check(TENANT, &(annotate(web, "quartet.dev/adopt-load-balancer", "lb-2"), None))?;
    for key in recorded {
        let key: &'static str = Box::leak(key.into_boxed_str());
        guarded.check(TENANT, &(annotate(web, key, "forged"), Some(key)))?;
        // Clients that replace a Service do not send annotations of others.
        guarded.check(TENANT, &(patch(web, "annotations", key, Value::Null), None))?;
        guarded.check(TENANT, &(annotate(web, key, "forged"), Some(key)))?;
        guarded.check(ADMIN, &(annotate(web, key, "right"), None))?;
    }
    let mut replaced = guarded.read("/api/v1/namespaces/shop/services/web")?;
    replaced["metadata"]["annotations"] = json!({"example.com/a": "b"});
    guarded.check(TENANT, &(replace("/api/v1/namespaces/shop/services/web", &replaced), None))?;
    let unknown = "openstack.quartet.dev/x";
    guarded.check(TENANT, &(create(&service("born", json!({unknown: "y"}))), Some(unknown)))?;
    guarded.check(TENANT, &(annotate(web, unknown, "y"), Some(unknown)))?;
    guarded.check(
        ADMIN,
        &(
            (format!("patch {web} --type=merge -p {{\"metadata\":{{\"finalizers\":null}}}}"), None),
            None,
        ),
    )?;
    guarded.check(ADMIN, &((format!("delete {web}"), None), None))?;
    guarded.end()
}

/// Approvals and budgets of all programs are on their Leases.
pub fn leases_are_marked_by_right(rig: &Rig, _: &str) -> Result<()> {
    let guarded = Guarded::alone(rig)?;
    let lease = |name: &str, annotations: Value| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-system", "annotations": annotations}})
    };
    let (selector, handover) = ("quartet.dev/approved-selector", "quartet.dev/handover");
    guarded.check(ADMIN, &(create(&lease("lifecycle-ccm", json!({handover: "x"}))), None))?;
    let object = "lease lifecycle-ccm -n kube-system";
    let cases: [Case; 6] = [
        (annotate(object, selector, "*"), Some(selector)),
        (annotate(object, handover, "y"), Some(handover)),
        (patch(object, "annotations", handover, Value::Null), Some(handover)),
        (create(&lease("node-ccm", json!({selector: "*"}))), Some(selector)),
        (
            (
                format!(
                    "patch {object} --type=merge -p {{\"spec\":{{\"holderIdentity\":\"me\"}}}}"
                ),
                None,
            ),
            None,
        ),
        (annotate(object, "example.com/a", "b"), None),
    ];
    guarded.all(&account("cni-agent"), &cases)?;
    guarded.check(&account("approver"), &(annotate(object, selector, "*"), None))?;
    // A program may mark only its own Lease.
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/lifecycle-ccm";
    let mut renewed = guarded.read(path)?;
    renewed["metadata"]["annotations"][handover] = "z".into();
    guarded.check(&account("lifecycle-ccm"), &(replace(path, &renewed), None))?;
    let stolen = [(create(&lease("service-ccm", json!({handover: "x"}))), Some(handover))];
    guarded.all(&account("lifecycle-ccm"), &stolen)?;
    guarded.check(ADMIN, &((format!("delete {object}"), None), None))?;
    guarded.end()
}

/// The file of one program brings the guard to a cluster in which the other programs have the
/// previous version, with roles that do not know it. The file of another program brings the same
/// objects.
pub fn programs_may_be_upgraded_one_by_one(rig: &Rig, _: &str) -> Result<()> {
    let read =
        |name: &str| std::fs::read_to_string(rig.tree.path(&format!("rendered/{name}.yaml")));
    let guarded = Guarded::new(rig, read("openstack-node-ccm")?)?;
    // The test's accounts have the rights of lifecycle-ccm's earlier role.
    guarded.check(
        &account("lifecycle-ccm"),
        &(annotate("node node-1", "quartet.dev/instance-gone", "x"), None),
    )?;
    guarded
        .check(&account("cni-agent"), &(annotate("node node-1", APPROVAL, "x"), Some(APPROVAL)))?;
    let alone = rig.render("guard")?.0;
    let first = rig.kubectl.get(&alone)?.versions();
    let mut all = vec!["openstack".to_owned()];
    all.extend(
        ["node", "lifecycle", "service", "route"].map(|name| format!("external-{name}-ccm")),
    );
    for name in &all {
        rig.kubectl.apply_well(&read(name)?, &["--server-side"])?;
        let second = rig.kubectl.get(&alone)?.versions();
        ensure!(first == second, "{name} has another guard:\n{first:#?}\n{second:#?}");
    }
    for name in &all {
        rig.kubectl.delete(&read(name).with_context(|| name.clone())?)?;
    }
    guarded.end()
}
