//! The UID of the cluster.

use std::time::Duration;

use ccm_cloud::ClusterId;
use ccm_kube::ApiError;
use ccm_runtime::{
    health::Scope,
    program::{Context, Failure, Program},
    rights::Right,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::time::sleep;

use crate::settings::ServiceSettings;

/// The namespace that lives as long as its cluster.
const NAMESPACE: &str = "kube-system";
/// The wait between two attempts to read it.
const RETRY: Duration = Duration::from_secs(2);

/// The right to read it.
pub(crate) fn right() -> Right {
    Right { name: NAMESPACE.into(), ..Right::new("get", "namespaces") }
}

/// The identity of the cluster: of the settings, or the UID of the namespace `kube-system`.
/// Waits for the API server.
pub(crate) async fn identify<P>(context: &Context<P>) -> Result<ClusterId, Failure>
where
    P: Program<Settings = ServiceSettings>,
{
    let name = context.common.borrow().cloud.cluster_name.clone();
    let condition = context.health.condition("cluster-uid", Scope::Readiness, "not read yet");
    let given = context.settings.borrow().cluster_uid.clone();
    if !given.is_empty() {
        condition.pass(format!("{given}, from --cluster-uid"));
        return Ok(ClusterId { name, uid: given });
    }
    let namespaces = Api::<Namespace>::all(context.clients.main.clone());
    loop {
        match namespaces.get(NAMESPACE).await {
            Ok(namespace) => {
                let Some(uid) = namespace.metadata.uid.filter(|uid| !uid.is_empty()) else {
                    let what = format!("namespace {NAMESPACE} has no UID; set --cluster-uid");
                    return Err(Failure::Broken(what));
                };
                condition.pass(format!("{uid}, of the namespace {NAMESPACE}"));
                return Ok(ClusterId { name, uid });
            }
            Err(error) => {
                let error = ApiError::from(error);
                let what = format!("cannot read the UID of namespace {NAMESPACE}: {error}");
                tracing::warn!("{what}; retrying");
                condition.fail(what);
                sleep(RETRY).await;
            }
        }
    }
}
