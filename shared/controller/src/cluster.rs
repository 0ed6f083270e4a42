//! The identity of the cluster, which is stored with each resource that is created in the cloud.

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

/// The namespace that lives as long as its cluster.
const NAMESPACE: &str = "kube-system";
/// The wait between two attempts to read it.
const RETRY: Duration = Duration::from_secs(2);

/// The valid UIDs of a cluster, in words. A comma would split the tag filter of a list.
pub const UID_RULE: &str =
    "must be empty, or at most 63 letters, digits, '-', '.' and '_', for instance a UUID";

/// Returns true if this text is a valid UID of a cluster.
pub fn is_uid(text: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    text.len() <= 63 && text.bytes().all(is_right)
}

/// Returns the right to read it.
pub fn right() -> Right {
    Right { name: NAMESPACE.into(), ..Right::new("get", "namespaces") }
}

/// Returns the identity of the cluster: the name from the settings, and the given UID, or the UID
/// of the namespace `kube-system`. Waits for the API server, which `/readyz` shows.
///
/// # Errors
///
/// The namespace has no UID.
pub async fn identify<P: Program>(context: &Context<P>, given: &str) -> Result<ClusterId, Failure> {
    let name = context.common.borrow().cloud.cluster_name.clone();
    let condition = context.health.condition("cluster-uid", Scope::Readiness, "not read yet");
    if !given.is_empty() {
        condition.pass(format!("{given}, from --cluster-uid"));
        return Ok(ClusterId { name, uid: given.to_owned() });
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
