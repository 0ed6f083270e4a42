//! What is kept of Services: what this program and the provider read of them.
//!
//! It depends on live settings and on the provider. When it changes, the informer lists all Services
//! again, and no Service is planned before it has been read as it is to be.

use std::collections::BTreeSet;

use ccm_cloud::LoadBalancerTraits;
use ccm_objects::{OWN_ANNOTATIONS, Service, ServiceReading, service_keys};

use super::Handles;
use crate::plan::Known;

/// The most annotations that are learnt. A provider that writes others under ever new keys does not
/// see them again.
const LEARNT: usize = 100;

impl Handles {
    /// Has the store keep what is read of Services.
    pub(crate) fn begin_to_read(&self) {
        let traits = self.load_balancers().map(|one| one.traits()).unwrap_or_default();
        self.services.keep(Some(self.reading(&traits)));
    }

    /// Returns true if this Service was read as the settings and a provider with these traits need
    /// it. If not, the informer reads it again.
    pub(crate) fn is_read(&self, service: &Service, traits: &LoadBalancerTraits) -> bool {
        self.balancers.with(service, |entry| {
            if let Known::There(balancer) = &entry.state().known {
                let rules = self.settings.borrow().shown();
                let keys = balancer.annotations.keys();
                let keys = keys.filter(|key| rules.why_not_written(key, traits).is_none());
                learn(&mut self.written.lock(), keys, traits);
            }
        });
        self.services.keep(Some(self.reading(traits))) == service.rule
    }

    fn reading(&self, traits: &LoadBalancerTraits) -> ServiceReading {
        let settings = self.settings.borrow();
        let own = [OWN_ANNOTATIONS, service_keys::SOURCE_RANGES].map(str::to_owned);
        ServiceReading {
            classes: settings.load_balancer_classes.clone(),
            classless: settings.serve_classless_services,
            annotations: own
                .into_iter()
                .chain(of_provider(traits).map(str::to_owned))
                .chain(self.written.lock().iter().cloned())
                .collect(),
            json: traits.wants_service,
        }
    }
}

/// The beginnings of the annotations that a provider with these traits reads or writes.
fn of_provider(traits: &LoadBalancerTraits) -> impl Iterator<Item = &str> {
    let own = traits.own_annotations.iter().map(|own| own.strip_suffix('*').unwrap_or(own));
    let read = traits.annotations.iter().chain(&traits.remarked).chain(&traits.id_annotation);
    read.map(String::as_str).chain(own)
}

/// Adds the annotations that the provider writes although its traits do not name them: whether a
/// Service shows them has to be known.
fn learn<'a>(
    written: &mut BTreeSet<String>,
    keys: impl Iterator<Item = &'a String>,
    traits: &LoadBalancerTraits,
) {
    for key in keys {
        let is_read = key.starts_with(OWN_ANNOTATIONS)
            || key == service_keys::SOURCE_RANGES
            || of_provider(traits).any(|start| key.starts_with(start));
        if !is_read && written.len() < LEARNT {
            written.insert(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_provider_writes_under_other_names_is_learnt() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let traits = LoadBalancerTraits {
            annotations: texts(&["a/"]),
            remarked: texts(&["b/"]),
            own_annotations: texts(&["c/id", "d/seen-*"]),
            id_annotation: Some("e/id".to_owned()),
            ..LoadBalancerTraits::default()
        };
        let keys = [
            "a/x",
            "b/x",
            "c/id",
            "d/seen-x",
            "e/id",
            "quartet.dev/x",
            "f/id",
            service_keys::SOURCE_RANGES,
        ]
        .map(str::to_owned);
        let mut written = BTreeSet::new();
        learn(&mut written, keys.iter(), &traits);
        assert_eq!(written, ["f/id".to_owned()].into());
        let many: Vec<String> = (0..2 * LEARNT).map(|number| format!("g/{number}")).collect();
        learn(&mut written, many.iter(), &traits);
        assert_eq!(written.len(), LEARNT);
    }
}
