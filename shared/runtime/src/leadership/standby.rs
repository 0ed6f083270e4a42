//! Watches the Lease so that a standby need not wait for its next attempt.
//!
//! A hint and nothing more: whether the Lease may be taken is decided by the read
//! inside the attempt. A watch that is dead costs time, not safety.

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event},
    },
};
use tokio::sync::Notify;

/// Tells `free` whenever the Lease is seen released or deleted. Never ends.
pub(super) async fn watch(client: Client, namespace: &str, name: &str, free: &Notify) {
    let api = Api::<Lease>::namespaced(client, namespace);
    let config = Config::default().fields(&format!("metadata.name={name}")).timeout(60);
    let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    loop {
        match events.try_next().await {
            Ok(Some(Event::Apply(lease) | Event::InitApply(lease))) if is_released(&lease) => free.notify_one(),
            Ok(Some(Event::Delete(_))) => free.notify_one(),
            Ok(Some(_)) => (),
            Ok(None) => std::future::pending().await,
            Err(error) => tracing::debug!(error = %error, "watch of the Lease failed; attempts go on without it"),
        }
    }
}

fn is_released(lease: &Lease) -> bool {
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
    holder.unwrap_or_default().is_empty()
}
