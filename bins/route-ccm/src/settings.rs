//! The settings of route-ccm.

use std::time::Duration;

use ccm_base::duration;
use ccm_cloud::Capability;
use ccm_controller::{
    brake::{Budget, DEFAULT_LIMIT_TEXT, Limit},
    cluster,
};
use ccm_kube::selector::NodeSelector;
use ccm_runtime::{
    program::{Controller, Need},
    programs::{NODE_IPAM, ROUTE_CCM},
    settings::{cloud_call_timeout, enables, node_selector, taint_keys},
};
use ccm_settings::{Origin, Problems, RawSettings, at_least, checked, one_of, parsed, within};
use ipnet::IpNet;
use serde::Serialize;

use crate::networks::{self, AllocatorType, MaxPodCidr, Remark};

/// A shorter period is upstream's, for which there is no need here.
const POLLING: Duration = Duration::from_mins(1);
const CLUSTER: &str = "cluster-cidr";
/// The flags that decide what the program does, for messages.
const GATE: &str =
    "set --cluster-cidr, or --configure-cloud-routes=false and --allocate-node-cidrs=false";

ccm_settings::settings! {
    /// The settings, checked.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct RouteSettings {
        /// Give nodes routes for their pod CIDRs. Without routes and --allocate-node-cidrs the
        /// program is idle. --controllers=*,-route also switches routes off, and *,-nodeipam the
        /// other part.
        pub configure_cloud_routes: bool = fixed(Switch, "configure-cloud-routes", "true");
        /// Networks of the cluster's pods: one CIDR, or one of each family, separated by a comma. Routes inside of
        /// them may be this program's.
        pub cluster_cidr: Vec<String> = fixed(List, "cluster-cidr", "");
        /// Give nodes their pod CIDRs. Only one program of a cluster may do so. If another client
        /// gives two nodes pod CIDRs of this program's networks within 10 minutes while this one
        /// leads, it stops assigning until a node has waited for 5 minutes without pod CIDRs from
        /// another client.
        pub allocate_node_cidrs: bool = fixed(Switch, "allocate-node-cidrs", "false");
        /// Where the pod CIDRs of nodes come from: RangeAllocator takes blocks of --cluster-cidr,
        /// CloudAllocator takes the pod CIDRs that the cloud has assigned to each instance.
        pub cidr_allocator_type: AllocatorType = fixed(Text, "cidr-allocator-type", "RangeAllocator"),
            one_of(&AllocatorType::ALL);
        /// Networks of the cluster's Services: one CIDR, or one of each family, separated by a
        /// comma. Nodes do not get blocks that overlap one of them.
        pub service_cluster_ip_range: Vec<String> = fixed(List, "service-cluster-ip-range", "");
        /// Prefix length of a node's pod CIDR, for clusters of one family. 0 means 24 for IPv4 and 64 for IPv6.
        pub node_cidr_mask_size: usize = fixed(Count, "node-cidr-mask-size", "0"), within(0..=128);
        /// Prefix length of a node's IPv4 pod CIDR. 0 means 24.
        pub node_cidr_mask_size_ipv4: usize = fixed(Count, "node-cidr-mask-size-ipv4", "0"), within(0..=32);
        /// Prefix length of a node's IPv6 pod CIDR. 0 means 64.
        pub node_cidr_mask_size_ipv6: usize = fixed(Count, "node-cidr-mask-size-ipv6", "0"), within(0..=128);
        /// The shortest prefix that the pod CIDR of a node may have if this program has not
        /// assigned it: one length of IPv4, or one of IPv4 and one of IPv6, such as 22 or 22,64; in
        /// a cluster with IPv6 alone, one length such as 64. A wider pod CIDR does not get a route.
        /// 0 allows each size. Without it, a pod CIDR that is wider than most nodes' pod CIDRs does
        /// not get a route until a person approves it. An existing route stays. With
        /// --allocate-node-cidrs a pod CIDR of the size of a block is never too wide.
        pub max_pod_cidr: MaxPodCidr = live(Text, "max-pod-cidr", ""), parsed;
        /// Interval between two lists of the route table, which find changes of others. Changes of
        /// nodes are handled at once, independent of the interval. cloud-controller-manager defaults
        /// to 10s and does nothing in between. At least 10s.
        #[serde(serialize_with = "duration::serialize")]
        pub route_reconciliation_period: Duration = live(Duration, "route-reconciliation-period", "10m0s"),
            at_least("10s");
        /// Maximum number of routes that are deleted within --route-loss-window, or moved to
        /// another address of their node, unless their nodes were marked for scale-down or the
        /// cloud proves twice that their targets are gone: a number, or a percentage rounded up and
        /// at least 3. The others are held and reported. With 0 only routes of marked nodes, and
        /// routes that a person approves, are deleted.
        pub route_loss: Limit = live(Limit, "route-loss", DEFAULT_LIMIT_TEXT), parsed;
        /// Sliding window of --route-loss. At least 1s.
        #[serde(serialize_with = "duration::serialize")]
        pub route_loss_window: Duration = live(Duration, "route-loss-window", "10m0s"),
            at_least("1s");
        /// Keys of taints that mark a node for scale-down, separated by commas. The routes of a
        /// marked node that is deleted do not count for any limit.
        pub scale_down_taints: Vec<String> = live(
            List, "scale-down-taints", "ToBeDeletedByClusterAutoscaler,karpenter.sh/disrupted"), taint_keys;
        /// Only nodes with these labels get routes, and the condition that says whether they have
        /// them, for instance pool=workers,!edge. Empty selects all nodes. The route of an excluded
        /// node stays until a person approves its deletion. Pod CIDRs are assigned to all nodes.
        pub node_selector: NodeSelector = live(Text, "node-selector", ""), node_selector;
        /// Time limit of one call to the cloud, including retries, all pages and waiting for the rate limit. From 1s
        /// to 10m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
        /// UID of the cluster, which is stored with every route where the cloud can store it. Empty means the UID of
        /// the namespace kube-system.
        pub cluster_uid: String = fixed(Text, "cluster-uid", ""),
            checked(cluster::UID_RULE, |uid: &String| cluster::is_uid(uid));
    } => |settings, raw, problems| {
        let settings = settings.with_controllers(raw, problems);
        settings.check_networks(raw, problems);
        if settings.max_pod_cidr.is_only_of_ipv6() && settings.has_ipv4() {
            let what = "only IPv6 has such a length, and --cluster-cidr has an IPv4 network: give the length of IPv4 first, such as 22,64 (0 allows each size)";
            raw.reject("max-pod-cidr", what, problems);
        }
        if settings.route_reconciliation_period < POLLING {
            let what = "changes of nodes are handled at once, so each list only costs cloud calls; the default is 10m0s";
            raw.warn("route-reconciliation-period", what, problems);
        }
        settings
    }
}

impl RouteSettings {
    /// Switches off the parts whose controllers `--controllers` disables.
    fn with_controllers(mut self, raw: &RawSettings, problems: &mut Problems) -> Self {
        let route = Controller { name: ROUTE_CCM.controller, alias: ROUTE_CCM.alias };
        for (is_on, flag, controller) in [
            (&mut self.configure_cloud_routes, "configure-cloud-routes", route),
            (&mut self.allocate_node_cidrs, "allocate-node-cidrs", NODE_IPAM),
        ] {
            if *is_on && !enables(raw, controller) {
                *is_on = false;
                if raw.value(flag).is_some_and(|value| value.origin != Origin::Default) {
                    let what = format!("no effect: --controllers disables {}", controller.name);
                    raw.warn(flag, what, problems);
                }
            }
        }
        self
    }

    /// Checks the networks, if any part needs them.
    fn check_networks(&self, raw: &RawSettings, problems: &mut Problems) {
        let is_optional = self.cidr_allocator_type == AllocatorType::CloudAllocator;
        let needs = self.configure_cloud_routes || (self.allocate_node_cidrs && !is_optional);
        let checked = match (needs && self.cluster_cidr.is_empty(), self.allocate_node_cidrs) {
            (true, _) => Err(vec![Remark { flag: CLUSTER, what: "it is empty".to_owned() }]),
            (false, true) => self.flags().check().map(|(_, warnings)| warnings),
            (false, false) if !needs => return,
            (false, false) => {
                networks::cluster_networks(&self.cluster_cidr).map(|(_, warnings)| warnings)
            }
        };
        match checked {
            Ok(warnings) => {
                for one in warnings {
                    raw.warn(one.flag, one.what, problems);
                }
            }
            Err(errors) => {
                for Remark { flag, what } in errors {
                    let what = if flag == CLUSTER { format!("{what}; {GATE}") } else { what };
                    raw.reject(flag, what, problems);
                }
            }
        }
    }

    fn flags(&self) -> networks::Flags {
        networks::Flags {
            allocator: self.cidr_allocator_type,
            cluster_cidrs: self.cluster_cidr.clone(),
            service_ranges: self.service_cluster_ip_range.clone(),
            mask: self.node_cidr_mask_size,
            mask_v4: self.node_cidr_mask_size_ipv4,
            mask_v6: self.node_cidr_mask_size_ipv6,
        }
    }

    /// Returns the values of `--cluster-cidr`, which was checked.
    pub fn cluster_cidrs(&self) -> Vec<IpNet> {
        networks::cluster_networks(&self.cluster_cidr)
            .map(|(networks, _)| networks)
            .unwrap_or_default()
    }

    fn has_ipv4(&self) -> bool {
        self.cluster_cidrs().iter().any(|one| matches!(one, IpNet::V4(_)))
    }

    /// Returns `--max-pod-cidr` for the families of this cluster.
    pub fn max_pod_cidr(&self) -> MaxPodCidr {
        if self.has_ipv4() { self.max_pod_cidr } else { self.max_pod_cidr.of_ipv6() }
    }

    /// Returns how nodes get their pod CIDRs; `None` if they do not get them from this program.
    pub fn ipam(&self) -> Option<networks::Config> {
        let checked = self.allocate_node_cidrs.then(|| self.flags().check())?;
        checked.ok().map(|(config, _)| config)
    }

    /// Returns how many routes may be deleted.
    pub const fn budget(&self) -> Budget {
        Budget { limit: self.route_loss, window: self.route_loss_window }
    }

    /// Returns the capabilities that the cloud must offer. Blocks of `--cluster-cidr` are assigned
    /// without a call to the cloud.
    pub fn needs(&self) -> Vec<Need> {
        let asks = self.cidr_allocator_type == AllocatorType::CloudAllocator;
        match (self.configure_cloud_routes, self.allocate_node_cidrs) {
            (true, false) => vec![Need::Required(Capability::Routes)],
            (true, true) if asks => {
                [Capability::Routes, Capability::Instances].map(Need::Known).to_vec()
            }
            (true, true) => vec![Need::Known(Capability::Routes)],
            (false, true) if asks => vec![Need::Required(Capability::Instances)],
            (false, _) => Vec::new(),
        }
    }

    /// Returns why the program has nothing to do with these settings, if so.
    pub fn idle(&self) -> Option<String> {
        (!self.configure_cloud_routes && !self.allocate_node_cidrs).then(|| {
            "--configure-cloud-routes and --allocate-node-cidrs are false, or --controllers disables their controllers".to_owned()
        })
    }
}

#[cfg(test)]
mod tests;
