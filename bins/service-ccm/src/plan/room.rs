//! Decides which Services of a namespace wait, if `--max-load-balancers-per-namespace` does not
//! allow more load balancers.

use ccm_objects::Service;
use serde::{Deserialize, Serialize};

use super::{BalancerState, Known, List, shown_id, status::ID};

/// The turn of a Service in its namespace: a Service with a recorded ID comes first, then the
/// oldest one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RoomTurn {
    is_new: bool,
    /// The time of its creation, in seconds.
    created: Option<i64>,
    key: ccm_objects::Shared,
}

impl RoomTurn {
    /// Returns the turn of this Service.
    pub fn new(service: &Service) -> Self {
        Self {
            is_new: service.annotation(ID).is_none(),
            created: service.details.as_ref().and_then(|it| Some(it.created?.as_second())),
            key: service.key.clone(),
        }
    }
}

/// Returns true if the Service has a load balancer, or may have one: it is never held. A user can
/// write any ID into the Service's annotation, so the annotation counts only until the cloud's list
/// has been compared. After that, only an address counts.
pub fn stands(service: &Service, state: &BalancerState, list: List) -> bool {
    match state.known {
        Known::There(_) | Known::Recorded { .. } => true,
        _ if state.pending.is_some() => true,
        // A list may lack entries that could not be read.
        Known::Nothing => {
            shown_id(service).is_some()
                || list != List::Compared && service.annotation(ID).is_some()
        }
        Known::Absent | Known::Elsewhere(_) => false,
    }
}

/// Returns why a Service without a load balancer waits, if this number of Services of its namespace have a load
/// balancer or come first; `None` if there is room for another one.
pub fn full(most: usize, before: usize) -> Option<String> {
    (before >= most).then(|| {
        format!(
            "the namespace may have {most} load balancers (--max-load-balancers-per-namespace), and that many Services have one or come first; it gets its own as soon as one of these is deleted"
        )
    })
}

#[cfg(test)]
mod tests {
    use ccm_objects::{ServiceDetails, ServiceIngress};

    use super::*;
    use crate::plan::{CallKind, tests::pending};

    fn service(key: &str, created: u32, id: Option<&str>) -> Service {
        let annotations = id.map(|id| (ID.into(), id.into())).into_iter().collect();
        let created = format!("2026-01-01T00:00:0{created}Z").parse().ok();
        let details = ServiceDetails { created, annotations, ..ServiceDetails::default() };
        Service { key: key.into(), details: Some(Box::new(details)), ..Service::default() }
    }

    #[test]
    fn the_oldest_services_come_first() {
        let all = [
            service("a/new", 9, None),
            service("a/z-old", 1, None),
            service("a/b-old", 1, None),
            service("a/recorded", 8, Some("lb-1")),
        ];
        let mut turns: Vec<RoomTurn> = all.iter().map(RoomTurn::new).collect();
        turns.sort();
        let keys: Vec<&str> = turns.iter().map(|turn| &*turn.key).collect();
        assert_eq!(keys, ["a/recorded", "a/b-old", "a/z-old", "a/new"]);
        // Exactly as many Services have their turn as fit into the room.
        for most in 1..5 {
            let is_full = |service: &Service| {
                let others = all.iter().filter(|one| one.key != service.key);
                full(most, others.filter(|one| RoomTurn::new(one) < RoomTurn::new(service)).count())
                    .is_some()
            };
            assert_eq!(all.iter().filter(|one| !is_full(one)).count(), most);
        }
    }

    #[test]
    fn a_recorded_id_is_no_proof_once_the_cloud_is_known() {
        let recorded = service("a/b", 1, Some("lb-1"));
        let state = BalancerState::default();
        assert!(stands(&recorded, &state, List::Awaited));
        assert!(stands(&recorded, &state, List::Failing));
        assert!(!stands(&recorded, &state, List::Compared));
        // The list may lack it only because its entry cannot be read.
        let mut shown = recorded.clone();
        shown.details.as_mut().expect("details").ingress = vec![ServiceIngress::default()];
        assert!(stands(&shown, &state, List::Compared));
        assert!(!stands(&service("a/b", 1, None), &state, List::Awaited));
        let known = Known::Recorded { id: "lb-1".to_owned() };
        assert!(stands(
            &recorded,
            &BalancerState { known, ..BalancerState::default() },
            List::Compared
        ));
        // The cloud is asked for it.
        let pending = Some(pending(CallKind::Ensure, 9));
        assert!(stands(&recorded, &BalancerState { pending, ..state }, List::Compared));
    }
}
