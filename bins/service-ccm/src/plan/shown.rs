//! Decides which of a provider's addresses, host names and annotations a Service shows.
//!
//! kube-proxy delivers packets of pods and nodes to the Service if they are sent to an address in
//! its status. So a wrong address would take the traffic of another Service, of the API server or
//! of a node. Annotations are read by other controllers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ccm_base::message::one_line;
use ccm_cloud::{IngressAddress, IpMode, LoadBalancer, LoadBalancerTraits, Phase, is_host_name};
use ccm_objects::{Address, Node, Service, ServiceIngress, Shared, label_rules};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::{View, status::entry};

/// The number of characters of a provider's text that a message quotes.
const QUOTED: usize = 128;
/// How many refused parts of one load balancer are distinguished.
const TOLD: usize = 20;

/// The addresses and annotations that the operator allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownRules {
    /// `--load-balancer-allowed-addresses`.
    pub allowed: Vec<IpNet>,
    /// `--service-cluster-ip-range`.
    pub service_ranges: Vec<IpNet>,
    /// `--provider-annotation-prefixes`.
    pub annotations: Vec<String>,
}

impl ShownRules {
    /// Returns why service-ccm does not write this annotation of the provider.
    pub fn why_not_written(&self, key: &str, traits: &LoadBalancerTraits) -> Option<String> {
        let quoted = || format!("annotation {}", one_line(key, QUOTED));
        if is_reserved(key) {
            return Some(format!("{} is reserved", quoted()));
        }
        if traits.is_built_in && traits.writes(key) {
            return None;
        }
        if let Err(why) = label_rules::check_key(key) {
            return Some(format!("{}: {why}", quoted()));
        }
        let is_confirmed = self.annotations.iter().any(|start| key.starts_with(start.as_str()));
        (!is_confirmed).then(|| {
            format!("{} is not below a prefix of --provider-annotation-prefixes", quoted())
        })
    }

    /// Returns true if this annotation goes when the Service loses its load balancer: the provider writes it,
    /// or has written it.
    pub fn is_removed(&self, key: &str, traits: &LoadBalancerTraits, written: &[String]) -> bool {
        let is_providers = traits.writes(key) || written.iter().any(|own| own == key);
        is_providers && self.why_not_written(key, traits).is_none()
    }
}

/// Returns true if no provider may have annotations with this key: it belongs to Kubernetes or to Quartet.
/// Subdomains of `quartet.dev` are a provider's for labels of nodes only.
fn is_reserved(key: &str) -> bool {
    label_rules::is_reserved(key) || label_rules::is_of_provider(key)
}

/// Returns true if an operator can confirm this beginning of a provider's annotations.
pub fn can_be_confirmed(start: &str) -> bool {
    let has_domain = start
        .split_once('/')
        .is_some_and(|(domain, _)| label_rules::check_key(&format!("{domain}/x")).is_ok());
    has_domain && !is_reserved(start)
}

/// The addresses that the cluster itself uses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InUse {
    services: BTreeSet<(IpAddr, Shared)>,
    nodes: BTreeSet<(IpAddr, Shared)>,
    api_server: BTreeSet<IpAddr>,
}

impl InUse {
    /// Follows a change of a Service.
    pub fn service_changed(&mut self, old: Option<&Service>, new: Option<&Service>) {
        let of = |service: &Service| -> Vec<_> {
            let ips = service.cluster_ips.into_iter().flatten();
            ips.map(|ip| (ip.to_canonical(), Shared::clone(&service.key))).collect()
        };
        replace(&mut self.services, old.map(of), new.map(of));
    }

    /// Follows a change of a node.
    pub fn node_changed(&mut self, old: Option<&Node>, new: Option<&Node>) {
        let of = |node: &Node| -> Vec<_> {
            let ips = node.addresses.iter().filter_map(Address::ip);
            ips.map(|ip| (ip.to_canonical(), Shared::clone(&node.name))).collect()
        };
        replace(&mut self.nodes, old.map(of), new.map(of));
    }

    /// Records the addresses at which this program reaches the API server.
    pub fn set_api_server(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.api_server = addresses.into_iter().map(|ip| ip.to_canonical()).collect();
    }

    /// Returns why a Service does not show this address.
    fn why_refused(&self, rules: &ShownRules, ip: IpAddr, mode: IpMode) -> Option<String> {
        let is_in = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&ip));
        if is_in(&rules.allowed) {
            return None;
        }
        if let Some(kind) = special(ip) {
            return Some(format!("{ip} is {kind} address"));
        }
        if is_in(&rules.service_ranges) {
            return Some(format!("{ip} is in --service-cluster-ip-range"));
        }
        if let Some(service) = user(&self.services, ip) {
            return Some(format!("{ip} is the cluster IP of Service {service}"));
        }
        if self.api_server.contains(&ip) {
            return Some(format!("{ip} is the address of the API server"));
        }
        // Without VIP, kube-proxy ignores packets to the address.
        let node = user(&self.nodes, ip).filter(|_| mode == IpMode::Vip)?;
        Some(format!("{ip} is an address of node {node}, and ipMode is VIP"))
    }
}

fn replace(
    set: &mut BTreeSet<(IpAddr, Shared)>,
    old: Option<Vec<(IpAddr, Shared)>>,
    new: Option<Vec<(IpAddr, Shared)>>,
) {
    for one in old.into_iter().flatten() {
        set.remove(&one);
    }
    set.extend(new.into_iter().flatten());
}

/// Returns the first user of this address.
fn user(set: &BTreeSet<(IpAddr, Shared)>, ip: IpAddr) -> Option<&str> {
    let (found, name) = set.range((ip, Shared::from(""))..).next()?;
    (*found == ip).then_some(&**name)
}

/// Returns the kind of an address that no load balancer has, with its article.
fn special(ip: IpAddr) -> Option<&'static str> {
    let (is_link_local, is_unspecified) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[0] == 0),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.is_unspecified()),
    };
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    let kinds = [
        (ip.is_loopback(), "a loopback"),
        (is_link_local, "a link-local"),
        (is_unspecified, "an unspecified"),
        (ip.is_multicast(), "a multicast"),
        (is_broadcast, "the broadcast"),
    ];
    kinds.into_iter().find_map(|(is_it, kind)| is_it.then_some(kind))
}

/// The kind of a refused part of an answer.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    VariantArray,
    IntoStaticStr,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "snake_case")]
pub enum Part {
    /// An address.
    Address,
    /// A host name.
    Hostname,
    /// An annotation.
    Annotation,
}

/// A part of a provider's answer that a Service must not show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Its kind.
    pub part: Part,
    /// The reason, in one line.
    pub why: String,
    /// True if the Service shows it already: it stays, so that an upgrade does not interrupt
    /// traffic.
    pub stays: bool,
}

/// The parts of a provider's answer that a Service shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// The entries of the status.
    pub ingress: Vec<ServiceIngress>,
    /// The annotations to set, or with `None` to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The parts that service-ccm omits.
    pub refused: Vec<Refused>,
}

impl Shown {
    /// Returns the refused addresses and host names that the Service does not show.
    pub fn left_out(&self) -> impl Iterator<Item = &Refused> {
        self.refused.iter().filter(|one| one.part != Part::Annotation && !one.stays)
    }
}

/// Returns the parts of its load balancer that the Service shows, as last seen.
pub fn shown(view: View<'_>, balancer: &LoadBalancer) -> Shown {
    let (rules, in_use) = view.guard;
    let mut shown = Shown::default();
    let before = view.service.details.as_deref().map_or(&[][..], |details| &details.ingress);
    for ingress in &balancer.ingress {
        let (part, why) = match &ingress.address {
            IngressAddress::Ip(ip) => {
                let why = in_use.why_refused(rules, ip.to_canonical(), ingress.ip_mode);
                (Part::Address, why)
            }
            IngressAddress::Hostname(name) => {
                let wrong = || format!("{:?} is not a host name", one_line(name, QUOTED));
                (Part::Hostname, (!is_host_name(name)).then(wrong))
            }
        };
        let mut entry = entry(ingress);
        let Some(why) = why else {
            if !shown.ingress.contains(&entry) {
                shown.ingress.push(entry);
            }
            continue;
        };
        let same = |one: &&ServiceIngress| one.ip == entry.ip && one.hostname == entry.hostname;
        let before = before.iter().find(same);
        let stays = before.is_some_and(|before| before.ip_mode == entry.ip_mode);
        shown.refused.push(Refused { part, why, stays });
        if let Some(before) = before {
            entry.ip_mode.clone_from(&before.ip_mode);
            shown.ingress.push(entry);
        }
    }
    for (key, value) in &balancer.annotations {
        match rules.why_not_written(key, view.traits) {
            None => {
                shown.annotations.insert(key.clone(), value.clone());
            }
            Some(why) => {
                let stays = view.service.annotation(key) == value.as_deref();
                shown.refused.push(Refused { part: Part::Annotation, why, stays });
            }
        }
    }
    shown.refused.truncate(TOLD);
    shown
}

/// Returns the parts of its load balancer that the Service does not show.
pub fn refused(view: View<'_>) -> Vec<Refused> {
    let balancer = view.state.balancer().filter(|one| view.wants() && one.phase == Phase::Ready);
    balancer.map(|balancer| shown(view, balancer).refused).unwrap_or_default()
}

#[cfg(test)]
mod tests;
