//! Watches the Lease, so that a standby can act before its next attempt.
//!
//! The watch is only a hint: the read inside the attempt decides whether the Lease may be
//! taken. A dead watch costs time, not safety.

use std::convert::Infallible;

use ccm_base::LogThrottle;
use ccm_kube::ApiError;
use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event},
    },
};
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};

use super::{guard::LeaseGuard, observed::holder, problem::Reason};
use crate::settings::ElectionSettings;

/// The server ends a watch after this many seconds, so that a dead connection is detected.
const WATCH_SECONDS: u32 = 60;
/// The consequence of a failing watch.
const BLIND: &str = "cannot watch the lease, so a takeover may take some seconds longer";

/// Keeps `guard` informed about the Lease, so that the time for which an unchanged record is
/// respected counts from its last change, not from the next attempt after it. Notifies `free`
/// when the Lease is released or deleted. Never returns.
pub(super) async fn watch(
    client: Client,
    ElectionSettings { lease: name, namespace, .. }: ElectionSettings,
    guard: LeaseGuard,
    free: &Notify,
) -> Infallible {
    // The Lease is untyped, so that the record compares equal to the one that an attempt reads.
    let resource = ApiResource::erase::<Lease>(&());
    let api = Api::<DynamicObject>::namespaced_with(client, &namespace, &resource);
    let config = Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH_SECONDS);
    let mut events = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    let mut throttle = LogThrottle::default();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Apply(lease) | Event::InitApply(lease))) => {
                let record = lease.data.get("spec").unwrap_or(&Value::Null);
                guard.observed().saw(record, Instant::now());
                if holder(record).is_empty() {
                    free.notify_one();
                }
            }
            Ok(Some(Event::Delete(_))) => free.notify_one(),
            Ok(Some(_)) => (),
            Ok(None) => std::future::pending().await,
            Err(error) => {
                if throttle.allow() {
                    let lease = format!("{namespace}/{name}");
                    let remedy = remedy(&error);
                    tracing::warn!(lease, error = %error, "{BLIND}; {remedy}");
                }
            }
        }
    }
}

/// Returns the remedy for an error. The API server's answer decides whether rights are missing.
fn remedy(error: &watcher::Error) -> &'static str {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let reason = match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => Reason::from(&ApiError::from_status(status)),
        _ => Reason::Unavailable,
    };
    reason.remedy()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_a_refusal_points_to_rights() {
        let status = |code| Box::new(Status::failure("", "").with_code(code));
        let of = |code| watcher::Error::WatchStartFailed(kube::Error::Api(status(code)));
        assert!(remedy(&of(403)).contains("rights to get, create, update, list and watch leases"));
        assert!(remedy(&watcher::Error::WatchError(status(403))).contains("rights"));
        assert!(remedy(&of(401)).contains("credentials"));
        for harmless in [of(500), of(410), watcher::Error::NoResourceVersion] {
            assert_eq!(remedy(&harmless), "retrying");
        }
    }
}
