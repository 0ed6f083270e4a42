//! The traits of a provider's load balancers.

use crate::Protocol;
use serde::{Deserialize, Serialize};

/// The properties of a provider's load balancers that a controller must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerTraits {
    /// The prefixes of the annotations that the provider reads. Others are not configuration.
    pub annotations: Vec<String>,
    /// The prefixes of annotations that the provider only remarks on, such as misspelt ones. They
    /// are part of [`FrontEnd::settings`](crate::FrontEnd::settings), but not of the digest, unless
    /// `annotations` covers them as well.
    pub remarked: Vec<String>,
    /// The annotations among them that the provider itself writes
    /// ([`LoadBalancer::annotations`](crate::LoadBalancer::annotations)): keys, or prefixes of keys
    /// with `*` at the end. They are not configuration.
    pub own_annotations: Vec<String>,
    /// True if the provider's code is part of this program: then nobody has to confirm that it may
    /// write [`Self::own_annotations`]. Always false for a provider in another process.
    pub is_built_in: bool,
    /// The annotation with the ID of the Service's load balancer, if others write it as well as the
    /// provider: another controller of this cloud, or a user who asks for an existing load
    /// balancer. A Service with such an ID does not get its own load balancer.
    pub id_annotation: Option<String>,
    /// The protocols that the load balancers support.
    pub protocols: Vec<Protocol>,
    /// True if one load balancer can have addresses of both families.
    pub dual_stack: bool,
    /// True if members need a provider ID. The controller leaves out nodes without one.
    pub member_ids: bool,
    /// True if members need an address.
    pub member_addresses: bool,
    /// True if the provider needs [`Member::labels`](crate::Member::labels).
    pub member_labels: bool,
    /// True if [`LoadBalancers::list`](crate::LoadBalancers::list) works. Without it the controller
    /// cannot audit load balancers or find orphans.
    pub lists: bool,
    /// True if the cloud stores the digest of the configuration and returns it. If not, the
    /// controller stores it with the Service.
    pub stores_digest: bool,
    /// True if the provider needs [`FrontEnd::service`](crate::FrontEnd::service).
    pub wants_service: bool,
    /// True if the provider follows [`Wanted::may_replace`](crate::Wanted::may_replace). If not, the
    /// controller calls it about a missing load balancer only when that may be replaced.
    pub asks_before_replacing: bool,
    /// The maximum number of load balancers in one call; at least 1.
    pub max_batch: usize,
}

impl Default for LoadBalancerTraits {
    fn default() -> Self {
        Self {
            annotations: Vec::new(),
            remarked: Vec::new(),
            own_annotations: Vec::new(),
            is_built_in: false,
            id_annotation: None,
            protocols: vec![Protocol::Tcp],
            dual_stack: false,
            member_ids: false,
            member_addresses: true,
            member_labels: false,
            lists: true,
            stores_digest: true,
            wants_service: false,
            asks_before_replacing: true,
            max_batch: 100,
        }
    }
}

impl LoadBalancerTraits {
    /// Returns true if the provider gets annotations with this key: it reads or remarks on them,
    /// and does not write them.
    pub fn passes(&self, key: &str) -> bool {
        let is_remarked = || self.remarked.iter().any(|start| key.starts_with(start.as_str()));
        self.configures(key) || is_remarked() && !self.writes(key)
    }

    /// Returns true if annotations with this key are configuration: the provider reads them, and
    /// does not write them.
    pub fn configures(&self, key: &str) -> bool {
        self.annotations.iter().any(|start| key.starts_with(start.as_str())) && !self.writes(key)
    }

    /// Returns true if this key is one of [`Self::own_annotations`].
    pub fn writes(&self, key: &str) -> bool {
        self.own_annotations.iter().any(|own| match own.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => key == own,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_writes_is_no_configuration() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let traits = LoadBalancerTraits {
            annotations: texts(&["a/", "b/x-"]),
            remarked: texts(&["a/", "b/"]),
            own_annotations: texts(&["a/id", "a/seen-*"]),
            ..LoadBalancerTraits::default()
        };
        for (key, expect) in [
            ("a/size", true),
            ("b/x-size", true),
            ("b/size", false),
            ("c/size", false),
            ("a/id", false),
            ("a/id-format", true),
            ("a/seen-", false),
            ("a/seen-address", false),
            ("a/seen", true),
        ] {
            assert_eq!(traits.configures(key), expect, "{key}");
            assert_eq!(traits.passes(key), expect || key == "b/size", "{key}");
        }
    }
}
