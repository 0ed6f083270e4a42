//! The writes to a Service: addresses, conditions, annotations.

use std::{collections::BTreeMap, time::Duration};

use ccm_base::At;
use ccm_cloud::{Ingress, IngressAddress, IpMode, LoadBalancer};
use ccm_objects::{IngressPort, Service, ServiceIngress, service_keys};
use serde::{Deserialize, Serialize};

use super::{eligible::without_numbers, reason::Reason};

/// The annotation with the ID of the load balancer. It says where to look, but does not prove
/// ownership.
pub const ID: &str = service_keys::LOAD_BALANCER_ID;
/// The annotation with the digest of the applied configuration, for providers that do not store it.
pub const DIGEST: &str = "quartet.dev/load-balancer-digest";

/// For this long, a condition is not rewritten only because its status or reason changes.
pub const PAUSE: Duration = Duration::from_secs(30);

/// A condition with this reason, which implies its type and status, and this message.
pub type NewCondition = (Reason, String);

/// The parts of a Service's status and annotations that it should have, or that change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusPatch {
    /// The addresses; `None` to leave them as they are.
    pub ingress: Option<Vec<ServiceIngress>>,
    /// The conditions.
    pub conditions: Vec<NewCondition>,
    /// Annotations to set, or with `None` to remove.
    pub annotations: BTreeMap<String, Option<String>>,
}

impl StatusPatch {
    /// Returns true if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// Returns the difference between a Service and its wanted status. A missing condition is written at once;
/// a condition whose status or reason changes, not before [`PAUSE`] has passed, or along with
/// something else. The message alone is a difference only along with other addresses, or if it says
/// what a user should do: others may quote a request ID.
pub fn difference(
    service: &Service,
    mut wanted: StatusPatch,
    written: Option<At>,
    now: At,
) -> StatusPatch {
    let Some(details) = service.details.as_deref() else { return StatusPatch::default() };
    wanted.ingress = wanted.ingress.filter(|ingress| *ingress != details.ingress);
    wanted.annotations.retain(|key, value| service.annotation(key) != value.as_deref());
    // The message may name an address.
    let has_addresses = wanted.ingress.is_some();
    let has_more = has_addresses || !wanted.annotations.is_empty();
    let may_rewrite = has_more || written.is_none_or(|written| written + PAUSE <= now);
    wanted.conditions.retain(|(reason, message)| {
        let Some(old) = service.condition(reason.condition()) else { return true };
        let words_count = reason.words_count() || reason.names_address() || has_addresses;
        let differs = &*old.status != reason.status()
            || &*old.reason != reason.as_str()
            || words_count && differs(*reason, &old.message, message);
        differs && may_rewrite
    });
    wanted
}

/// Returns true if the new message of this reason is a change.
fn differs(reason: Reason, old: &str, new: &str) -> bool {
    match reason.counts_nodes() {
        true => without_numbers(old) != without_numbers(new),
        false => old != new,
    }
}

/// Returns true if the Service shows an address of a load balancer.
pub fn has_address(service: &Service) -> bool {
    service.details.as_ref().is_some_and(|details| !details.ingress.is_empty())
}

/// Returns true if a condition of the Service shows this reason.
pub fn shows(service: &Service, reason: Reason) -> bool {
    let condition = service.condition(reason.condition());
    condition.is_some_and(|condition| &*condition.reason == reason.as_str())
}

/// Returns the addresses of a load balancer as the API server stores them: with `ipMode: VIP` where
/// the cloud says nothing else, so that they are not written again and again.
pub fn ingress(balancer: &LoadBalancer) -> Vec<ServiceIngress> {
    balancer.ingress.iter().map(entry).collect()
}

/// Returns the entry of an address. An IPv4 address in the form of an IPv6 one is shown as IPv4.
pub(super) fn entry(ingress: &Ingress) -> ServiceIngress {
    let ports = ingress.failed_ports.iter().map(|failed| IngressPort {
        port: failed.port.into(),
        protocol: failed.protocol.to_string().into(),
        error: Some(failed.error.as_str().into()),
    });
    let mode = match ingress.ip_mode {
        IpMode::Vip => "VIP",
        IpMode::Proxy => "Proxy",
    };
    let (ip, hostname, ip_mode) = match &ingress.address {
        IngressAddress::Ip(ip) => {
            (Some(ip.to_canonical().to_string().into()), None, Some(mode.into()))
        }
        IngressAddress::Hostname(name) => (None, Some(name.as_str().into()), None),
    };
    ServiceIngress { ip, hostname, ip_mode, ports: ports.collect() }
}

#[cfg(test)]
mod tests {
    use ccm_objects::{ServiceCondition, ServiceDetails};

    use super::*;

    fn service(reason: Option<Reason>) -> Service {
        let condition = reason.map(|reason| ServiceCondition {
            kind: reason.condition().into(),
            status: reason.status().into(),
            reason: reason.as_str().into(),
            ..ServiceCondition::default()
        });
        let details = ServiceDetails {
            conditions: condition.into_iter().collect(),
            ..ServiceDetails::default()
        };
        Service { details: Some(Box::new(details)), ..Service::default() }
    }

    fn wanted(reason: Reason) -> StatusPatch {
        StatusPatch { conditions: vec![(reason, "m".to_owned())], ..StatusPatch::default() }
    }

    /// Returns the difference to a wanted status.
    fn difference(
        service: &Service,
        wanted: &StatusPatch,
        written: Option<At>,
        now: At,
    ) -> StatusPatch {
        super::difference(service, wanted.clone(), written, now)
    }

    fn at(seconds: u64) -> At {
        At::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_message_changes_with_the_addresses_that_it_names() {
        let held = service(Some(Reason::MembersHeld));
        let wish = wanted(Reason::MembersHeld);
        assert!(difference(&held, &wish, None, at(0)).is_empty());
        let moved = StatusPatch { ingress: Some(vec![ServiceIngress::default()]), ..wish };
        let change = difference(&held, &moved, Some(at(0)), at(1));
        assert_eq!(change.conditions.len(), 1, "{change:?}");
        // The address was written alone, before the members were known.
        let serving = service(Some(Reason::Serving));
        let change = difference(&serving, &wanted(Reason::Serving), Some(at(0)), at(60));
        assert_eq!(change.conditions.len(), 1, "{change:?}");
    }

    #[test]
    fn a_condition_is_rewritten_when_its_reason_changes_but_not_often() {
        let throttled = service(Some(Reason::Throttled));
        for (wish, before, now, writes) in [
            (Reason::Throttled, None, 0, false),
            (Reason::Conflict, None, 0, true),
            (Reason::Conflict, Some(at(100)), 129, false),
            (Reason::Conflict, Some(at(100)), 130, true),
        ] {
            let change = difference(&throttled, &wanted(wish), before, at(now));
            assert_eq!(!change.is_empty(), writes, "{wish:?} {before:?} {now}");
        }
    }

    /// A status that flaps is not written more often.
    #[test]
    fn a_status_changes_at_most_once_in_half_a_minute() {
        let throttled = service(Some(Reason::Throttled));
        for (now, writes) in [(129, false), (130, true)] {
            let change =
                difference(&throttled, &wanted(Reason::Provisioned), Some(at(100)), at(now));
            assert_eq!(!change.conditions.is_empty(), writes, "{now}");
        }
        let fresh = difference(&service(None), &wanted(Reason::Serving), Some(at(100)), at(101));
        assert_eq!(fresh.conditions.len(), 1, "the first time");
    }

    /// A user who corrects one of two mistakes should see the other one.
    #[test]
    fn another_mistake_is_shown_and_another_request_id_is_not() {
        for (reason, writes) in [
            (Reason::InvalidConfiguration, true),
            (Reason::PartlyProvisioned, true),
            (Reason::WaitingForAdoption, true),
            (Reason::Throttled, false),
            (Reason::CloudUnavailable, false),
        ] {
            let mut service = service(Some(reason));
            let details = service.details.as_mut().expect("details");
            details.conditions[0].message = "m".into();
            assert!(difference(&service, &wanted(reason), None, at(0)).is_empty(), "{reason:?}");
            let other = StatusPatch {
                conditions: vec![(reason, "n".to_owned())],
                ..StatusPatch::default()
            };
            let change = difference(&service, &other, None, at(0));
            assert_eq!(!change.is_empty(), writes, "{reason:?}");
            assert!(difference(&service, &other, Some(at(0)), at(29)).is_empty(), "{reason:?}");
        }
    }

    #[test]
    fn addresses_go_out_with_the_conditions_in_one_change() {
        let creating = service(Some(Reason::Creating));
        let ip = ServiceIngress { ip: Some("192.0.2.1".into()), ..ServiceIngress::default() };
        let wish = StatusPatch { ingress: Some(vec![ip]), ..wanted(Reason::Provisioned) };
        let change = difference(&creating, &wish, Some(at(0)), at(1));
        assert!(change.ingress.is_some() && change.conditions.len() == 1);
        let same = StatusPatch { ingress: Some(Vec::new()), ..StatusPatch::default() };
        assert!(difference(&creating, &same, None, at(0)).is_empty());
    }

    #[test]
    fn addresses_are_written_when_they_differ_from_those_that_are_stored() {
        let entry = |change: fn(&mut ServiceIngress)| {
            let mut entry = ServiceIngress {
                ip: Some("192.0.2.1".into()),
                ip_mode: Some("VIP".into()),
                ..ServiceIngress::default()
            };
            change(&mut entry);
            vec![entry]
        };
        let port = |protocol: &str| {
            vec![IngressPort { port: 80, protocol: protocol.into(), error: Some("no".into()) }]
        };
        let with_port = |protocol: &str| {
            let mut entries = entry(|_| {});
            entries[0].ports = port(protocol);
            entries
        };
        let one = || entry(|_| {});
        for (stored, wish, writes) in [
            (vec![], vec![], false),
            (vec![], one(), true),
            (one(), one(), false),
            (one(), vec![], true),
            (one(), entry(|entry| entry.ip = Some("192.0.2.2".into())), true),
            (one(), entry(|entry| entry.ip_mode = Some("Proxy".into())), true),
            (one(), entry(|entry| entry.ip_mode = None), true),
            (with_port("TCP"), with_port("TCP"), false),
            (with_port("TCP"), with_port("UDP"), true),
            (one(), with_port("TCP"), true),
        ] {
            let mut service = service(None);
            service.details.as_mut().expect("details").ingress = stored;
            let wanted = StatusPatch { ingress: Some(wish), ..StatusPatch::default() };
            let change = difference(&service, &wanted, None, at(0));
            assert_eq!(change.ingress.is_some(), writes, "{service:?} {wanted:?}");
        }
    }

    /// Fields that the API server would add are present from the beginning.
    #[test]
    fn an_address_has_the_mode_that_the_api_server_stores() {
        let mut balancer = LoadBalancer::new("lb-1", "web", None);
        let of = |address, ip_mode| Ingress { address, ip_mode, failed_ports: Vec::new() };
        let ip = || IngressAddress::Ip([192, 0, 2, 1].into());
        balancer.ingress = vec![
            of(ip(), IpMode::default()),
            of(ip(), IpMode::Proxy),
            of(IngressAddress::Hostname("lb.example.com".to_owned()), IpMode::default()),
        ];
        let stored = ingress(&balancer);
        let modes: Vec<_> = stored.iter().map(|entry| entry.ip_mode.as_deref()).collect();
        assert_eq!(modes, [Some("VIP"), Some("Proxy"), None]);
    }
}
