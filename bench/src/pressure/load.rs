//! Clients that write ConfigMaps of kube-system as fast as they are served.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use ccm_tests::{cluster, manifests::Kubectl};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::hold::LABEL;

const CLIENTS: usize = 200;
/// The pause after a refused request.
const AGAIN: Duration = Duration::from_millis(200);
const ACCOUNT: &str = "pressure";

/// Returns the clients' account and its rights.
pub fn account() -> Value {
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": ACCOUNT, "namespace": "kube-system"});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}],
        },
        {
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}],
        },
    ]})
}

/// The running clients.
pub struct Load {
    done: Arc<Mutex<Done>>,
    _tasks: JoinSet<()>,
}

/// The results of their writes.
#[derive(Clone, Default)]
pub struct Done {
    served: usize,
    refused: usize,
    failed: usize,
    last_error: String,
}

impl Load {
    /// Starts them.
    pub async fn start(kubectl: &Kubectl, admin: &Path, folder: &Path) -> Result<Self> {
        let token = kubectl.run(["create", "token", ACCOUNT, "-n=kube-system"], None)?;
        ensure!(token.good, "{}", token.stderr);
        let mut config: Value = serde_json::from_slice(&std::fs::read(admin)?)?;
        config["users"][0]["user"] = json!({"token": token.stdout.trim()});
        let kubeconfig = folder.join("pressure.kubeconfig");
        std::fs::write(&kubeconfig, serde_json::to_vec(&config)?)?;
        let client = cluster::client_of(&kubeconfig).await?;
        let done = Arc::<Mutex<Done>>::default();
        let mut tasks = JoinSet::new();
        for number in 0..CLIENTS {
            tasks.spawn(write(client.clone(), number, done.clone()));
        }
        Ok(Self { done, _tasks: tasks })
    }

    /// Ends them.
    pub fn stop(self) -> Done {
        self.done.lock().clone()
    }
}

async fn write(client: Client, number: usize, done: Arc<Mutex<Done>>) {
    let api = Api::<ConfigMap>::namespaced(client, "kube-system");
    let name = format!("pressure-{number}");
    for turn in 0_u64.. {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {LABEL: "true"}},
            "data": {"turn": turn.to_string()},
        });
        let params = PatchParams::apply(ACCOUNT).force();
        let Err(error) = api.patch(&name, &params, &Patch::Apply(object)).await else {
            done.lock().served += 1;
            continue;
        };
        {
            let mut done = done.lock();
            match &error {
                kube::Error::Api(status) if status.code == 429 => done.refused += 1,
                _ => {
                    done.failed += 1;
                    done.last_error = error.to_string();
                }
            }
        }
        sleep(AGAIN).await;
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { served, refused, failed, last_error } = self;
        write!(
            f,
            "{CLIENTS} clients: {served} writes served, {refused} refused with 429, {failed} failed {last_error}"
        )
    }
}
