//! Who may write `quartet.dev/...` on Nodes, Services and Leases.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_sim::poll;
use ccm_tests::rights::guard::admin;
use serde_json::{Value, json};

use super::rig::Rig;

mod cases;

pub use cases::{
    a_tenant_decides_about_its_own_services, agents_of_a_node_mark_no_node,
    leases_are_marked_by_right, programs_may_be_upgraded_one_by_one,
    what_is_not_ours_is_not_guarded,
};

/// Some seconds pass until the API server enforces a new policy or role.
const ENFORCED: Duration = Duration::from_secs(30);

const ACCOUNTS: &str = include_str!("guard-accounts.yaml");

/// A request: words of kubectl, separated by spaces, and its input.
type Request = (String, Option<String>);

/// A request, and the key for which it is refused.
type Case = (Request, Option<&'static str>);

/// Returns a merge patch of annotations or labels; null removes one.
fn patch(object: &str, field: &str, key: &str, value: Value) -> Request {
    let patch = json!({"metadata": {field: {key: value}}});
    (format!("patch {object} --type=merge -p {patch}"), None)
}

fn annotate(object: &str, key: &str, value: &str) -> Request {
    patch(object, "annotations", key, value.into())
}

fn create(object: &Value) -> Request {
    ("create -f -".to_owned(), Some(object.to_string()))
}

fn replace(path: &str, object: &Value) -> Request {
    (format!("replace --raw {path} -f -"), Some(object.to_string()))
}

/// Returns a Service of the tenant.
fn service(name: &str, annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}})
}

fn node(name: &str, metadata: Value) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
    node["metadata"]["name"] = name.into();
    node
}

/// The rig with the guard in force, two nodes, a Lease, and the accounts.
struct Guarded<'a> {
    rig: &'a Rig,
    guard: String,
}

impl<'a> Guarded<'a> {
    /// Applies these manifests, which bring the guard.
    fn new(rig: &'a Rig, guard: String) -> Result<Self> {
        rig.kubectl.apply_well(&guard, &["--server-side"])?;
        rig.kubectl.apply_well(ACCOUNTS, &["--server-side"])?;
        for binding in admin("tenant", "shop") {
            rig.kubectl.apply_well(&binding.to_string(), &["--server-side"])?;
        }
        let protected = json!({"annotations": {"quartet.dev/deletion-protected": "true"}});
        for name in ["node-1", "node-2"] {
            rig.kubectl.apply_well(&node(name, protected.clone()).to_string(), &[])?;
        }
        let guarded = Self { rig, guard };
        let probe = service("probe", json!({"quartet.dev/probe": "x"})).to_string();
        let create = ["create", "--dry-run=server", "-f", "-", "--as=tenant"];
        let enforced = poll::until("the guard to be enforced", ENFORCED, || async {
            let told = rig.kubectl.run(create, Some(&probe))?;
            Ok(told.stderr.contains("cannot mark resource").then_some(()))
        });
        rig.runtime.block_on(enforced)?;
        Ok(guarded)
    }

    /// Returns the guard alone.
    fn alone(rig: &'a Rig) -> Result<Self> {
        Self::new(rig, rig.render("guard")?.0)
    }

    /// Checks that the API server carries out this user's request, or refuses it in one line that
    /// names the key.
    fn check(&self, who: &str, (request, refused): &Case) -> Result<()> {
        let words = request.0.split(' ').chain(who.split(' ').filter(|word| !word.is_empty()));
        let told = self.rig.kubectl.run(words, request.1.as_deref())?;
        let error = told.stderr.trim_end();
        let Some(key) = refused else {
            ensure!(told.good, "{who} {request:?}: {error}");
            return Ok(());
        };
        let is_clear = error.contains("ValidatingAdmissionPolicy 'quartet-guard'")
            && error.contains("cannot mark resource")
            && error.ends_with(&format!("{key}; the ClusterRole quartet-approver allows it"))
            && error.lines().count() == 1;
        ensure!(!told.good && is_clear, "{who} {request:?}: not refused for {key}: {error}");
        Ok(())
    }

    fn all(&self, who: &str, cases: &[Case]) -> Result<()> {
        cases.iter().try_for_each(|case| self.check(who, case))
    }

    /// Returns an object as the API server has it.
    fn read(&self, path: &str) -> Result<Value> {
        let told = self.rig.kubectl.run(["get", "--raw", path], None)?;
        ensure!(told.good, "{path}: {}", told.stderr);
        Ok(serde_json::from_str(&told.stdout)?)
    }

    /// Returns the flag of a user with a token of this account, which is bound to a node.
    fn on_node(&self, account: &str, node: &str) -> Result<String> {
        let bound = [&format!("--bound-object-name={node}"), "--bound-object-kind=Node"];
        let words = ["create", "token", account, "-n=kube-system"].into_iter().chain(bound);
        let told = self.rig.kubectl.run(words, None)?;
        ensure!(told.good, "{}", told.stderr);
        Ok(format!("--token={}", told.stdout.trim()))
    }

    fn end(self) -> Result<()> {
        let left = ["node/node-1", "node/node-2", "node/node-3", "node/node-4"];
        let words = ["delete", "--ignore-not-found"].into_iter().chain(left);
        let told = self.rig.kubectl.run(words, None)?;
        ensure!(told.good, "{}", told.stderr);
        // The controller that removes a namespace does not run here.
        let accounts = ACCOUNTS.split_once("---").map_or(ACCOUNTS, |(_, accounts)| accounts);
        self.rig.kubectl.delete(accounts)?;
        self.rig.kubectl.delete(&self.guard)
    }
}
