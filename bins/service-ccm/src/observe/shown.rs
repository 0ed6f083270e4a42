//! The addresses that the cluster itself uses, and what is not shown of the provider's answers.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ccm_kube::store::Change;
use ccm_objects::{Node, Service};
use ccm_runtime::health::Verdict;
use tokio::{net::lookup_host, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{Handles, balancers::Balancers};
use crate::plan::shown::Part;

/// How often the name of the API server is resolved.
const RESOLVE: Duration = Duration::from_mins(5);
/// The same while it does not resolve: until then a Service may show the address of the API server.
const AGAIN: Duration = Duration::from_secs(10);

impl Handles {
    /// Records the cluster IPs of a changed Service.
    pub(super) fn service_in_use(&self, change: &Change<Service>) {
        let (old, new) = sides(change);
        self.in_use.write().service_changed(old, new);
    }

    /// Records the addresses of a changed node.
    pub(super) fn node_in_use(&self, change: &Change<Node>) {
        let (old, new) = sides(change);
        self.in_use.write().node_changed(old, new);
    }

    /// Keeps the addresses of the API server, which is `host:port`, until the token is cancelled. Without an
    /// answer about its name the last addresses stay.
    pub(crate) async fn follow_api_server(self, server: String, token: CancellationToken) {
        let work = async {
            loop {
                let found = lookup_host(&*server).await;
                let next = if found.is_ok() { RESOLVE } else { AGAIN };
                if let Ok(found) = found {
                    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
                    self.in_use.write().set_api_server(found);
                }
                sleep(next).await;
            }
        };
        token.run_until_cancelled(work).await;
    }
}

/// The object before and after a change.
fn sides<K>(change: &Change<K>) -> (Option<&K>, Option<&K>) {
    match change {
        Change::Added(new) => (None, Some(new)),
        Change::Updated { old, new } => (Some(old), Some(new)),
        Change::Deleted(old) => (Some(old), None),
    }
}

impl Balancers {
    /// Counts the Services that do not show everything that the provider gives, by part of the answer.
    pub(crate) fn refused(&self) -> BTreeMap<Part, usize> {
        let mut counts = BTreeMap::new();
        self.each(|_, entry| {
            let mut parts: Vec<Part> = entry.refused().iter().map(|one| one.part).collect();
            parts.dedup();
            for part in parts {
                *counts.entry(part).or_default() += 1;
            }
        });
        counts
    }

    /// Passes if Services show everything that the provider gives. If not, names an example.
    pub(crate) fn shown(&self) -> Verdict {
        let (mut count, mut first) = (0_usize, None);
        self.each(|name, entry| {
            if let Some(refused) = entry.refused().first() {
                count += 1;
                let line = (name.clone(), refused.clone());
                let is_first = first.as_ref().is_none_or(|(other, _)| *name < *other);
                if is_first {
                    first = Some(line);
                }
            }
        });
        let Some((name, refused)) = first else {
            return Verdict::Passed("Services show everything that the provider gives".to_owned());
        };
        let stays = if refused.stays { ", which the Service shows already and keeps" } else { "" };
        Verdict::Failed(format!(
            "{count} Services do not show everything that the provider gives, or should not: {name}: {}{stays}",
            refused.why
        ))
    }
}
