//! `--cidr-allocator-type=CloudAllocator`: the cloud decides.

use std::fmt;

use ccm_cloud::Instance;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::networks::{Config, family, join};

/// A problem of the pod CIDRs of an instance, with its fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusable {
    /// The problem, in words.
    pub cause: String,
    /// The fix, for a person.
    pub fix: String,
}

impl Unusable {
    fn new(cause: String, fix: impl Into<String>) -> Self {
        Self { cause, fix: fix.into() }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause, self.fix)
    }
}

/// Returns the pod CIDRs for the node of an instance: one per cluster CIDR, in their order. Without
/// cluster CIDRs, the instance's own, in its order.
///
/// # Errors
///
/// The instance has pod CIDRs that nodes cannot have.
pub fn given(instance: &Instance, config: &Config) -> Result<Vec<IpNet>, Unusable> {
    let name = &instance.name;
    let shown: Vec<IpNet> = instance.pod_cidrs.iter().map(IpNet::trunc).collect();
    if shown.is_empty() {
        return Err(Unusable::new(
            format!("the cloud does not name a pod CIDR of instance {name}"),
            "assign it one, or set --cidr-allocator-type=RangeAllocator",
        ));
    }
    let clusters: Vec<IpNet> = config.ranges.iter().map(|range| range.network).collect();
    let is_ours = |one: &&IpNet| {
        clusters.is_empty() || clusters.iter().any(|cluster| family(*cluster) == family(**one))
    };
    let mut given: Vec<IpNet> = shown.iter().filter(is_ours).copied().collect();
    for (at, one) in given.iter().enumerate() {
        if let Some(other) = given.iter().skip(at + 1).find(|other| family(**other) == family(*one))
        {
            let cause = format!(
                "the cloud names two {} pod CIDRs of instance {name}, {one} and {other}",
                family(*one)
            );
            return Err(Unusable::new(cause, "a node can have one of each family"));
        }
    }
    for cluster in &clusters {
        match given.iter().find(|one| family(**one) == family(*cluster)) {
            None => {
                let (family, shown) = (family(*cluster), join(&shown));
                let cause = format!(
                    "the cloud does not name an {family} pod CIDR of instance {name}, only {shown}"
                );
                let fix = format!("assign it one, or remove {cluster} from --cluster-cidr");
                return Err(Unusable::new(cause, fix));
            }
            Some(one) if !cluster.contains(one) => {
                let cause = format!(
                    "the cloud's pod CIDR {one} of instance {name} is not in --cluster-cidr {cluster}"
                );
                return Err(Unusable::new(cause, "correct the flag or the instance"));
            }
            Some(_) => {}
        }
    }
    given.sort_by_key(|one| clusters.iter().position(|cluster| cluster.contains(one)));
    Ok(given)
}

#[cfg(test)]
mod tests {
    use ccm_cloud::ProviderId;

    use super::*;
    use crate::networks::{AllocatorType, Flags};

    fn config(clusters: &[&str]) -> Config {
        let cluster_cidrs = clusters.iter().map(|one| (*one).to_owned()).collect();
        let allocator = AllocatorType::CloudAllocator;
        Flags { allocator, cluster_cidrs, ..Flags::default() }.check().unwrap().0
    }

    fn instance(cidrs: &[&str]) -> Instance {
        let mut instance = Instance::new(ProviderId::parse("sim://1").unwrap(), "one");
        instance.pod_cidrs = cidrs.iter().map(|one| one.parse().unwrap()).collect();
        instance
    }

    #[test]
    fn the_order_is_that_of_the_cluster_cidrs() {
        for (clusters, cidrs, expect) in [
            (
                &["10.0.0.0/8", "fd00::/8"][..],
                &["fd00:1::/64", "10.0.7.1/24"][..],
                "10.0.7.0/24,fd00:1::/64",
            ),
            (
                &["fd00::/8", "10.0.0.0/8"],
                &["10.0.7.0/24", "fd00:1::/64"],
                "fd00:1::/64,10.0.7.0/24",
            ),
            // A family that the cluster does not have is not used for pods.
            (&["10.0.0.0/8"], &["fd00:1::/64", "10.0.7.0/24"], "10.0.7.0/24"),
            (&[], &["fd00:1::/64", "10.0.7.0/24"], "fd00:1::/64,10.0.7.0/24"),
            // The cloud decides about the size.
            (&["10.0.0.0/28"], &["10.0.0.0/30"], "10.0.0.0/30"),
        ] {
            assert_eq!(join(&given(&instance(cidrs), &config(clusters)).unwrap()), expect);
        }
    }

    #[test]
    fn what_the_cloud_names_is_checked() {
        for (clusters, cidrs, expect) in [
            (&["10.0.0.0/8"][..], &[][..], "does not name a pod CIDR of instance one: assign"),
            (
                &["10.0.0.0/8"],
                &["11.0.0.0/24"],
                "11.0.0.0/24 of instance one is not in --cluster-cidr 10.0.0.0/8",
            ),
            (&["10.0.0.0/8"], &["0.0.0.0/0"], "is not in --cluster-cidr"),
            (
                &["10.0.0.0/8", "fd00::/8"],
                &["10.0.0.0/24"],
                "does not name an IPv6 pod CIDR of instance one, only 10.0.0.0/24",
            ),
            (&["10.0.0.0/8"], &["10.0.0.0/24", "10.0.1.0/24"], "names two IPv4 pod CIDRs"),
            (&[], &["10.0.0.0/24", "10.0.1.0/24"], "names two IPv4 pod CIDRs"),
        ] {
            let error = given(&instance(cidrs), &config(clusters)).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
