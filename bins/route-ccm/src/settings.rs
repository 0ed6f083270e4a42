//! The settings of route-ccm.

use std::time::Duration;

use ccm_base::duration;
use ccm_cloud::IpFamily;
use ccm_controller::brake::{Budget, InvalidLimit, Limit};
use ccm_runtime::settings::cloud_call_timeout;
use ccm_settings::checked;
use ipnet::IpNet;
use serde::Serialize;

/// The shortest period.
const SHORTEST_PERIOD: Duration = Duration::from_secs(10);
/// A shorter period is upstream's, for which there is no need here.
const POLLING: Duration = Duration::from_mins(1);
/// The flags that decide what the program does, for messages.
const GATE: &str =
    "set --cluster-cidr, or --configure-cloud-routes=false and --allocate-node-cidrs=false";

ccm_settings::settings! {
    /// The settings, checked.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct RouteSettings {
        /// Whether nodes get routes for their pod CIDRs. Without routes and --allocate-node-cidrs the program is idle.
        pub configure_cloud_routes: bool = fixed(Switch, "configure-cloud-routes", "true");
        /// Networks of the cluster's pods: one CIDR, or one of each family, separated by a comma. Routes inside of
        /// them may be this program's.
        pub cluster_cidr: Vec<String> = fixed(List, "cluster-cidr", "");
        /// Interval between two lists of the route table, which find what others have changed. Changes of nodes are
        /// handled at once, whatever the interval is. cloud-controller-manager defaults to 10s and does nothing in
        /// between. At least 10s.
        #[serde(serialize_with = "duration::serialize")]
        pub route_reconciliation_period: Duration = live(Duration, "route-reconciliation-period", "10m0s"),
            checked("must be at least 10s", |period| *period >= SHORTEST_PERIOD);
        /// Maximum number of routes that are deleted within --route-loss-window, or moved to another address of their
        /// node, unless their nodes were marked for scale-down: a number, or a percentage rounded up and at least 3.
        /// The others are held and reported.
        pub route_loss: Limit = live(Limit, "route-loss", "10%"), |text: &str, _: &str| {
            text.parse().map_err(|error: InvalidLimit| error.to_string())
        };
        /// Sliding window of --route-loss. At least 1s.
        #[serde(serialize_with = "duration::serialize")]
        pub route_loss_window: Duration = live(Duration, "route-loss-window", "10m0s"),
            checked("must be at least 1s", |window| *window >= Duration::from_secs(1));
        /// Keys of taints that mark a node for scale-down, separated by commas. The routes of a marked node that goes
        /// count for no limit.
        pub scale_down_taints: Vec<String> = live(
            List, "scale-down-taints", "ToBeDeletedByClusterAutoscaler,karpenter.sh/disrupted");
        /// Time limit of one call to the cloud, including retries, all pages and waiting for the rate limit. From 1s
        /// to 10m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
        /// UID of the cluster, which is stored with every route where the cloud can store it. Empty means the UID of
        /// the namespace kube-system.
        pub cluster_uid: String = fixed(Text, "cluster-uid", "");
    } => |settings, raw, problems| {
        if settings.configure_cloud_routes
            && let Err(what) = cluster_cidrs(&settings.cluster_cidr)
        {
            raw.reject("cluster-cidr", format!("{what}; {GATE}"), problems);
        }
        if settings.route_reconciliation_period < POLLING {
            let what = "changes of nodes are handled at once, so each list only costs cloud calls; the default is 10m0s";
            raw.warn("route-reconciliation-period", what, problems);
        }
        settings
    }
}

impl RouteSettings {
    /// `--cluster-cidr`, which was checked.
    pub fn cluster_cidrs(&self) -> Vec<IpNet> {
        cluster_cidrs(&self.cluster_cidr).unwrap_or_default()
    }

    /// How many routes may be deleted.
    pub const fn budget(&self) -> Budget {
        Budget { limit: self.route_loss, window: self.route_loss_window }
    }

    /// Whether the program has nothing to do with these settings, and why.
    pub fn idle(&self) -> Option<String> {
        (!self.configure_cloud_routes)
            .then(|| "--configure-cloud-routes=false and --allocate-node-cidrs=false".to_owned())
    }
}

/// Reads `--cluster-cidr`.
///
/// # Errors
///
/// What is wrong with it.
fn cluster_cidrs(texts: &[String]) -> Result<Vec<IpNet>, String> {
    let read = |text: &String| {
        let network: Result<IpNet, _> = text.parse();
        network
            .map(|network| network.trunc())
            .map_err(|_| format!("{text:?} is no CIDR such as 10.244.0.0/16 or fd00:10:244::/56"))
    };
    let networks = texts.iter().map(read).collect::<Result<Vec<IpNet>, String>>()?;
    let families: Vec<IpFamily> =
        networks.iter().map(|network| IpFamily::of(network.addr())).collect();
    match *families {
        [] => Err("it is empty".to_owned()),
        [_] => Ok(networks),
        [one, other] if one != other => Ok(networks),
        [family, _] => Err(format!("both CIDRs are {family}; two must be one of each family")),
        _ => {
            Err(format!("it has {} CIDRs; at most one of each family is possible", networks.len()))
        }
    }
}

#[cfg(test)]
mod tests;
