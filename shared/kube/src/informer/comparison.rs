//! Compares the version of the API server with the version that the watch has shown.
//!
//! The request is a list of the metadata of one object without a version, which is cheap and
//! consistent. An API server answers it from its watch cache after it has asked etcd for the
//! current version; a server before 1.31 reads one key.

use std::{convert::Infallible, time::Duration};

use kube::{Client, api::ListParams, core::Request};
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::state::WatchState;
use crate::error::ApiError;

/// The least time between two comparisons, for a server where every watch fails.
const APART: Duration = Duration::from_secs(1);

/// Compares when a watch begins, loses its connection or is silent.
pub(super) async fn run(client: Client, path: String, state: WatchState) -> Infallible {
    let mut next = state.read(|health| health.next_comparison(health.compares(Instant::now())));
    loop {
        tokio::select! {
            () = sleep_until(next) => (),
            () = state.comparison_wanted() => (),
        }
        let comparison = state.read(|health| health.compares(Instant::now()));
        if comparison.has_version() {
            let answer = version(&client, &path).await;
            state.compared(comparison, answer);
        }
        next = state.read(|health| health.next_comparison(comparison)).max(Instant::now());
        sleep(APART).await;
    }
}

/// The part of a list that counts here.
#[derive(Deserialize)]
struct ListedPart {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

pub(super) async fn version(client: &Client, path: &str) -> Result<String, ApiError> {
    let request = Request::new(path)
        .list_metadata(&ListParams::default().limit(1))
        .map_err(kube::Error::BuildRequest)?;
    let text = client.request_text(request).await?;
    let answer: ListedPart = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
    Ok(answer.metadata.resource_version)
}
