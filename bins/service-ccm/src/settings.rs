//! The settings of service-ccm.

use std::{net::IpAddr, time::Duration};

use ccm_base::duration;
use ccm_controller::{
    brake::{Budget, DEFAULT_LIMIT_TEXT, Limit},
    cluster,
};
use ccm_kube::selector::NodeSelector;
use ccm_objects::label_rules;
use ccm_runtime::settings::{cloud_call_timeout, node_selector, taint_keys};
use ccm_settings::{SettingValue as _, at_least, checked, one_of, parsed, within};
use ipnet::IpNet;
use serde::Serialize;

use crate::{
    machine::event::Parameters,
    plan::{
        Classes,
        orphans::{OrphanRules, Policy},
        shown,
    },
};

/// The maximum number of lanes; each has at most one call to the cloud under way.
const MOST_LANES: u16 = 1000;

/// The largest limit of load balancers per namespace.
const MOST_PER_NAMESPACE: u16 = 10_000;

ccm_settings::settings! {
    /// The settings, checked.
    #[derive(Clone, Debug, PartialEq, Serialize)]
    pub struct ServiceSettings {
        /// Number of concurrent calls to the cloud about load balancers. One call covers up to 100
        /// Services if the provider has batches, and never waits until the cloud has finished.
        /// cloud-controller-manager defaults to 1, and its workers wait. From 1 to 1000.
        pub concurrent_service_syncs: usize = live(Count, "concurrent-service-syncs", "16"), within(1..=MOST_LANES);
        /// Values of spec.loadBalancerClass that are served, separated by commas. Services of other classes are left
        /// to other controllers, with their finalizers.
        pub load_balancer_classes: Vec<String> = live(List, "load-balancer-classes", ""), classes;
        /// Serve Services without spec.loadBalancerClass.
        pub serve_classless_services: bool = live(Switch, "serve-classless-services", "true");
        /// Shortest interval between two changes of the members of load balancers. The first change
        /// after a quiet time is passed on after 1s. A node that leaves does not wait for one that
        /// joins. At least 1s.
        #[serde(serialize_with = "duration::serialize")]
        pub member_update_interval: Duration = live(Duration, "member-update-interval", "10s"), at_least("1s");
        /// Maximum number of members that leave one load balancer, or are replaced, within
        /// --load-balancer-member-loss-window, unless an autoscaler marked their nodes, or their
        /// nodes were cordoned, or deleted with a proof of lifecycle-ccm: a number, or a percentage
        /// rounded up and at least 3. A node that joins replaces one that left. The others are held
        /// and reported. At least half of the members stay, unless their nodes were marked or
        /// deleted with a proof. The last member never leaves.
        pub load_balancer_member_loss: Limit = live(Limit, "load-balancer-member-loss", DEFAULT_LIMIT_TEXT), parsed;
        /// Sliding window of --load-balancer-member-loss. At least 1s.
        #[serde(serialize_with = "duration::serialize")]
        pub load_balancer_member_loss_window: Duration =
            live(Duration, "load-balancer-member-loss-window", "6h0m0s"), at_least("1s");
        /// Keys of taints that mark a node for scale-down, separated by commas. A marked node
        /// leaves its load balancers at once. The taints of Cluster Autoscaler and Karpenter do not
        /// count for any limit. Other taints count for --load-balancer-member-loss.
        pub scale_down_taints: Vec<String> = live(
            List, "scale-down-taints", "ToBeDeletedByClusterAutoscaler,karpenter.sh/disrupted"), taint_keys;
        /// Make nodes whose provider ID has the scheme of another provider, such as edge nodes,
        /// members of load balancers. Nodes without a provider ID are members in any case.
        pub load_balancer_foreign_nodes: bool = live(Switch, "load-balancer-foreign-nodes", "false");
        /// Only nodes with these labels are members of load balancers, for instance pool=workers,!edge. Empty selects all
        /// nodes. Members that leave because of it count for --load-balancer-member-loss.
        pub node_selector: NodeSelector = live(Text, "node-selector", ""), node_selector;
        /// Interval between two lists of the cluster's load balancers, which find changes and
        /// deletions in the cloud, and load balancers without a Service. At least 10s.
        #[serde(serialize_with = "duration::serialize")]
        pub load_balancer_audit_period: Duration =
            live(Duration, "load-balancer-audit-period", "5m0s"), at_least("10s");
        /// Interval between two checks of each load balancer of a provider without a list. A check
        /// is a whole call, so the checks are spread out. 0s turns them off; otherwise at least
        /// 1h0m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub load_balancer_look_period: Duration =
            live(Duration, "load-balancer-look-period", "24h0m0s"), none_or_an_hour;
        /// Treatment of load balancers of this cluster without a Service: report, or delete. A load
        /// balancer is deleted only if two complete lists --orphan-confirmation-period apart have
        /// shown it and the API server has no Service of its owner with the type or the finalizer.
        /// At most 10% of the cluster's load balancers, or 3 if that is more, are deleted within
        /// 6h0m0s.
        pub orphaned_load_balancers: Policy = live(Text, "orphaned-load-balancers", "report"),
            one_of(&[("report", Policy::Report), ("delete", Policy::Delete)]);
        /// Minimum time between the first and the last of the lists that show a load balancer without a Service,
        /// before it is deleted. It begins again with a change of leader. At least 1s.
        #[serde(serialize_with = "duration::serialize")]
        pub orphan_confirmation_period: Duration =
            live(Duration, "orphan-confirmation-period", "15m0s"), at_least("1s");
        /// Adopt load balancers that another controller made for the cluster's Services without a
        /// request. If false, the page /plan shows them, and an annotation on the Service adopts
        /// one.
        pub adopt_load_balancers: bool = live(Switch, "adopt-load-balancers", "false");
        /// Maximum number of load balancers of the Services of one namespace; 0 means no limit.
        /// Further Services wait, and get their load balancers as soon as others are deleted:
        /// Services with a recorded load balancer come first, then the oldest. An existing load
        /// balancer stays, also above the limit.
        pub max_load_balancers_per_namespace: usize =
            live(Count, "max-load-balancers-per-namespace", "0"), within(0..=MOST_PER_NAMESPACE);
        /// Networks and addresses that load balancers may have although Services do not show them
        /// by default, separated by commas. Services do not show loopback, link-local, unspecified
        /// or multicast addresses, addresses of --service-cluster-ip-range, cluster IPs of
        /// Services, the address of the API server, or with `ipMode: VIP` addresses of nodes. An
        /// address that a Service shows already stays, and is reported.
        pub load_balancer_allowed_addresses: Vec<IpNet> =
            live(List, "load-balancer-allowed-addresses", ""), networks;
        /// Networks of the cluster's Services, separated by commas, as in the settings of
        /// kube-apiserver. Services never show an address of these networks as the address of their
        /// load balancers. Without a value, this applies to the cluster IPs that Services have.
        pub service_cluster_ip_range: Vec<IpNet> = live(List, "service-cluster-ip-range", ""), networks;
        /// Beginnings of annotations that a provider in another process may write to Services,
        /// separated by commas, such as example.com/. Each one has a domain and a slash.
        /// quartet.dev, kubernetes.io, k8s.io and their subdomains are not possible. Providers that
        /// are part of this program do not need this.
        pub provider_annotation_prefixes: Vec<String> =
            live(List, "provider-annotation-prefixes", ""), annotation_prefixes;
        /// Time limit of one call to the cloud, including retries, all pages and waiting for the rate limit. From 1s
        /// to 10m0s.
        #[serde(serialize_with = "duration::serialize")]
        pub cloud_call_timeout: Duration = live(Duration, "cloud-call-timeout", "30s"), cloud_call_timeout;
        /// UID of the cluster, which is stored with every load balancer. Empty means the UID of the namespace
        /// kube-system.
        pub cluster_uid: String = fixed(Text, "cluster-uid", ""),
            checked(cluster::UID_RULE, |uid: &String| cluster::is_uid(uid));
    } => |settings, _, _| settings
}

impl ServiceSettings {
    /// Returns the rules for load balancers without a Service.
    pub(crate) fn orphans(&self) -> OrphanRules {
        OrphanRules {
            policy: self.orphaned_load_balancers,
            confirmation: self.orphan_confirmation_period,
        }
    }

    /// Returns the settings that the machine uses. `instance` is the name of this program on
    /// Services; `None` with the default Lease.
    pub(crate) fn parameters(&self, instance: Option<String>) -> Parameters {
        Parameters {
            classes: Classes {
                served: self.load_balancer_classes.clone(),
                classless: self.serve_classless_services,
                instance,
            },
            budget: Budget {
                limit: self.load_balancer_member_loss,
                window: self.load_balancer_member_loss_window,
            },
            shown: shown::ShownRules {
                allowed: self.load_balancer_allowed_addresses.clone(),
                service_ranges: self.service_cluster_ip_range.clone(),
                annotations: self.provider_annotation_prefixes.clone(),
            },
            scale_down_taints: self.scale_down_taints.clone(),
            foreign_nodes: self.load_balancer_foreign_nodes,
            node_selector: self.node_selector.clone(),
            member_update_interval: self.member_update_interval,
            adopts: self.adopt_load_balancers,
            most_per_namespace: self.max_load_balancers_per_namespace,
            look_period: self.load_balancer_look_period,
            call_timeout: self.cloud_call_timeout,
        }
    }
}

fn networks(text: &str, _: &str) -> Result<Vec<IpNet>, String> {
    let read = |text: String| {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        text.parse::<IpNet>().map(|network| network.trunc()).or_else(|_| address()).map_err(|_| {
            format!("must be networks or addresses, such as 192.0.2.0/24; {text:?} is not one")
        })
    };
    Vec::<String>::parse(text)?.into_iter().map(read).collect()
}

fn classes(text: &str, _: &str) -> Result<Vec<String>, String> {
    let classes = Vec::<String>::parse(text)?;
    match classes.iter().find(|class| label_rules::check_key(class).is_err()) {
        None => Ok(classes),
        Some(class) => Err(format!(
            "must be values that spec.loadBalancerClass may have, such as example.com/internal; {class:?} is not one"
        )),
    }
}

fn annotation_prefixes(text: &str, _: &str) -> Result<Vec<String>, String> {
    let starts = Vec::<String>::parse(text)?;
    match starts.iter().find(|start| !shown::can_be_confirmed(start)) {
        None => Ok(starts),
        Some(start) => Err(format!(
            "must be beginnings of annotations with a domain and a slash, such as example.com/, and not of quartet.dev, kubernetes.io, k8s.io or a subdomain of them; {start:?} is not one"
        )),
    }
}

fn none_or_an_hour(text: &str, default: &str) -> Result<Duration, String> {
    let hour = Duration::from_hours(1);
    let is_right = |period: &Duration| period.is_zero() || *period >= hour;
    checked("must be 0s, or at least 1h0m0s", is_right)(text, default)
}

#[cfg(test)]
mod tests;
