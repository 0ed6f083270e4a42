//! The fields of Services to keep: everything that this program and the provider read.
//!
//! It depends on live settings and on the provider. When it changes, the informer lists all
//! Services again, and no Service is planned before it has been read by the new rule.

use std::collections::BTreeSet;

use ccm_cloud::LoadBalancerTraits;
use ccm_objects::{OWN_ANNOTATIONS, ServiceReading, service_keys};

use super::Machine;

/// The maximum number of annotations that are learnt. A provider that keeps writing new keys does
/// not see the others again.
const LEARNT: usize = 100;

impl Machine {
    /// Says which parts of Services the informer reads.
    pub(crate) fn reading(&self) -> ServiceReading {
        let (classes, traits) = (&self.parameters.classes, self.traits());
        let own = [OWN_ANNOTATIONS, service_keys::SOURCE_RANGES].map(str::to_owned);
        ServiceReading {
            classes: classes.served.clone(),
            classless: classes.classless,
            annotations: own
                .into_iter()
                .chain(of_provider(&traits).map(str::to_owned))
                .chain(self.learnt.iter().cloned())
                .collect(),
            json: traits.wants_service,
        }
    }

    /// Returns how often the settings and the provider have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Learns which annotations the provider has written to this Service. Returns true if one is new.
    pub(super) fn learn(&mut self, name: &str) -> bool {
        let balancer = self.balancers.get(name).and_then(|entry| entry.state.balancer());
        let (Ok(offer), Some(balancer)) = (&self.offer, balancer) else { return false };
        let rules = &self.parameters.shown;
        let keys = balancer.annotations.keys();
        let keys = keys.filter(|key| rules.why_not_written(key, &offer.traits).is_none());
        learn(&mut self.learnt, keys, &offer.traits)
    }
}

/// Returns the beginnings of the annotations that a provider with these traits reads or writes.
fn of_provider(traits: &LoadBalancerTraits) -> impl Iterator<Item = &str> {
    let own = traits.own_annotations.iter().map(|own| own.strip_suffix('*').unwrap_or(own));
    let read = traits.annotations.iter().chain(&traits.remarked).chain(&traits.id_annotation);
    read.map(String::as_str).chain(own)
}

/// Adds the annotations that the provider writes although its traits do not name them, because the
/// plan compares them with the Service. Returns true if one is new.
fn learn<'a>(
    learnt: &mut BTreeSet<String>,
    keys: impl Iterator<Item = &'a String>,
    traits: &LoadBalancerTraits,
) -> bool {
    let mut is_news = false;
    for key in keys {
        let is_read = key.starts_with(OWN_ANNOTATIONS)
            || key == service_keys::SOURCE_RANGES
            || of_provider(traits).any(|start| key.starts_with(start));
        if !is_read && learnt.len() < LEARNT {
            is_news |= learnt.insert(key.clone());
        }
    }
    is_news
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
