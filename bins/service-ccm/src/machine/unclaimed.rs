//! Remembers since when Services have had a finalizer that no known controller removes.
//!
//! service-ccm waits before it reports one: the responsible controller may still clean up.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use ccm_objects::{Service, Shared as Name};
use serde::{Deserialize, Serialize};

/// The time that another controller has to clean up before service-ccm reports the finalizer.
const PATIENCE: Duration = Duration::from_mins(5);

/// The Services with such a finalizer: the UID, and when service-ccm first saw it.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Unclaimed(BTreeMap<Name, (Box<str>, At)>);

impl Unclaimed {
    /// Records that the finalizer of this Service stays. Returns when service-ccm should report it.
    pub(super) fn seen(&mut self, service: &Service, now: At) -> At {
        let new = || (service.uid.clone(), now);
        let since = self.0.entry(Name::clone(&service.key)).or_insert_with(new);
        if since.0 != service.uid {
            *since = new();
        }
        since.1 + PATIENCE
    }

    /// Forgets a Service: the finalizer is gone, or its controller is known.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the number of Services whose finalizer has stayed for at least `PATIENCE`.
    pub(super) fn count(&self, now: At) -> usize {
        self.0.values().filter(|(_, since)| *since + PATIENCE <= now).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_reported_when_it_has_stayed_for_minutes() {
        let service = |uid: &str| Service {
            key: "default/web".into(),
            uid: uid.into(),
            ..Service::default()
        };
        let (mut all, at) = (Unclaimed::default(), |minutes| At(Duration::from_mins(minutes)));
        assert_eq!(all.seen(&service("a"), at(1)), at(6));
        assert_eq!(all.seen(&service("a"), at(3)), at(6), "not from the last look");
        assert_eq!((all.count(at(5)), all.count(at(6))), (0, 1));
        assert_eq!(all.seen(&service("b"), at(7)), at(12), "another Service of this name");
        all.forget("default/web");
        assert_eq!(all.count(at(60)), 0);
    }
}
