//! The specifics of a provider's load balancers.

use crate::Protocol;

/// What a controller has to know of a provider's load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerTraits {
    /// The beginnings of the annotations that the provider reads. Others are no configuration.
    pub annotations: Vec<String>,
    /// The beginnings of annotations that the provider only remarks on, such as misspelt ones. They
    /// reach it in [`FrontEnd::settings`](crate::FrontEnd::settings), but are no part of the digest unless `annotations` covers
    /// them as well.
    pub remarked: Vec<String>,
    /// The annotations among them that the provider itself writes
    /// ([`LoadBalancer::annotations`](crate::LoadBalancer::annotations)): keys, or with `*` at the end the beginnings of keys. They
    /// are no configuration.
    pub own_annotations: Vec<String>,
    /// The annotation with the ID of the Service's load balancer, if the provider writes one that
    /// others write as well: another controller of this cloud, or a user who asks for a load
    /// balancer that is there already. A Service with such an ID gets no load balancer of its own.
    pub id_annotation: Option<String>,
    /// The protocols that it offers.
    pub protocols: Vec<Protocol>,
    /// Whether one load balancer can have addresses of both families.
    pub dual_stack: bool,
    /// Whether members need a provider ID, and are left out until they have one.
    pub member_ids: bool,
    /// Whether members need an address.
    pub member_addresses: bool,
    /// Whether [`Member::labels`](crate::Member::labels) is needed.
    pub member_labels: bool,
    /// Whether changes of members are cheap. If not, they are collected for longer.
    pub cheap_members: bool,
    /// Whether [`LoadBalancers::list`](crate::LoadBalancers::list) works. Without it nothing can be audited and no orphan be
    /// found.
    pub lists: bool,
    /// Whether the digest of the configuration is stored in the cloud and returned. If not, the
    /// controller stores it with the Service.
    pub stores_digest: bool,
    /// Whether [`FrontEnd::service`](crate::FrontEnd::service) is needed.
    pub wants_service: bool,
    /// The largest number of load balancers in one call; at least 1.
    pub max_batch: usize,
}

impl Default for LoadBalancerTraits {
    fn default() -> Self {
        Self {
            annotations: Vec::new(),
            remarked: Vec::new(),
            own_annotations: Vec::new(),
            id_annotation: None,
            protocols: vec![Protocol::Tcp],
            dual_stack: false,
            member_ids: false,
            member_addresses: true,
            member_labels: false,
            cheap_members: true,
            lists: true,
            stores_digest: true,
            wants_service: false,
            max_batch: 100,
        }
    }
}

impl LoadBalancerTraits {
    /// Whether an annotation of this key reaches the provider: whether the provider reads it or
    /// remarks on it, and does not write it.
    pub fn passes(&self, key: &str) -> bool {
        let is_remarked = || self.remarked.iter().any(|start| key.starts_with(start.as_str()));
        self.configures(key) || is_remarked() && !self.writes(key)
    }

    /// Whether an annotation of this key is configuration: whether the provider reads it, and does
    /// not write it.
    pub fn configures(&self, key: &str) -> bool {
        self.annotations.iter().any(|start| key.starts_with(start.as_str())) && !self.writes(key)
    }

    /// Whether an annotation of this key is one of [`Self::own_annotations`].
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
