//! Converts the wanted load balancers of requests.
//!
//! A controller wrote what a server reads, so a wrong value is an error of the whole request.

use std::{str::FromStr, sync::Arc, time::Duration};

use ccm_cloud::{
    CloudError, ClusterId, FrontEnd, FrontEndPort, IpFamily, Member, MemberChange, Members, Owner,
    Protocol, ProviderId, Traffic, Unwanted, Wanted,
};

use super::{address_from_wire, address_to_wire, malformed};
use crate::proto;

pub fn cluster_to_wire(cluster: &ClusterId) -> proto::Cluster {
    let ClusterId { name, uid } = cluster;
    proto::Cluster { name: Some(name.clone()), uid: Some(uid.clone()) }
}

pub fn cluster_from_wire(wire: Option<proto::Cluster>) -> ClusterId {
    let proto::Cluster { name, uid } = wire.unwrap_or_default();
    ClusterId { name: name.unwrap_or_default(), uid: uid.unwrap_or_default() }
}

pub fn owner_to_wire(owner: &Owner) -> proto::Owner {
    let Owner { cluster, uid, namespace, name } = owner;
    proto::Owner {
        cluster: Some(cluster_to_wire(cluster)),
        uid: Some(uid.clone()),
        namespace: Some(namespace.clone()),
        name: Some(name.clone()),
    }
}

/// Reads an owner. Everything that is owned is found by these UIDs, so all must be present.
pub fn owner_from_wire(wire: Option<proto::Owner>) -> Result<Owner, CloudError> {
    let owner = names_from_wire(wire);
    if owner.uid.is_empty() || owner.cluster.uid.is_empty() {
        return Err(malformed("an owner has no UID, or none of its cluster"));
    }
    Ok(owner)
}

/// Returns an owner that nothing is found by: its UIDs may be missing.
pub fn names_from_wire(wire: Option<proto::Owner>) -> Owner {
    let proto::Owner { cluster, uid, namespace, name } = wire.unwrap_or_default();
    Owner {
        cluster: cluster_from_wire(cluster),
        uid: uid.unwrap_or_default(),
        namespace: namespace.unwrap_or_default(),
        name: name.unwrap_or_default(),
    }
}

pub fn protocol_to_wire(protocol: Protocol) -> proto::TransportProtocol {
    match protocol {
        Protocol::Tcp => proto::TransportProtocol::Tcp,
        Protocol::Udp => proto::TransportProtocol::Udp,
        Protocol::Sctp => proto::TransportProtocol::Sctp,
    }
}

/// Reads a protocol; `None` for a protocol that this version does not know.
pub fn protocol_from_wire(number: i32) -> Option<Protocol> {
    match proto::TransportProtocol::try_from(number).ok()? {
        proto::TransportProtocol::Tcp => Some(Protocol::Tcp),
        proto::TransportProtocol::Udp => Some(Protocol::Udp),
        proto::TransportProtocol::Sctp => Some(Protocol::Sctp),
        proto::TransportProtocol::Unspecified => None,
    }
}

pub fn family_to_wire(family: IpFamily) -> i32 {
    match family {
        IpFamily::V4 => proto::IpFamily::V4.into(),
        IpFamily::V6 => proto::IpFamily::V6.into(),
    }
}

pub fn family_from_wire(number: i32) -> Result<IpFamily, CloudError> {
    match proto::IpFamily::try_from(number) {
        Ok(proto::IpFamily::V4) => Ok(IpFamily::V4),
        Ok(proto::IpFamily::V6) => Ok(IpFamily::V6),
        Ok(proto::IpFamily::Unspecified) | Err(_) => {
            Err(malformed(format!("unknown family of addresses {number}")))
        }
    }
}

pub fn parsed<T: FromStr>(what: &str, text: &str) -> Result<T, CloudError> {
    text.parse().map_err(|_| malformed(format!("{what} {text:?} cannot be read")))
}

/// Returns a port; 0 is not valid.
pub fn port_from_wire(number: u32) -> Result<u16, CloudError> {
    let port = u16::try_from(number).ok().filter(|port| *port != 0);
    port.ok_or_else(|| malformed(format!("{number} is not a port")))
}

fn port_to_wire(port: &FrontEndPort) -> proto::FrontEndPort {
    let FrontEndPort { name, protocol, port, member_port, app_protocol } = port;
    proto::FrontEndPort {
        name: (!name.is_empty()).then(|| name.clone()),
        protocol: Some(protocol_to_wire(*protocol).into()),
        port: Some(u32::from(*port)),
        member_port: member_port.map(u32::from),
        app_protocol: app_protocol.clone(),
    }
}

fn front_end_to_wire(front_end: &FrontEnd) -> proto::FrontEnd {
    let FrontEnd {
        owner,
        digest,
        families,
        requires_families,
        ports,
        source_ranges,
        address,
        affinity,
        traffic,
        class,
        settings,
        service,
    } = front_end;
    proto::FrontEnd {
        owner: Some(owner_to_wire(owner)),
        digest: Some(digest.to_string()),
        families: families.iter().map(|family| family_to_wire(*family)).collect(),
        ports: ports.iter().map(port_to_wire).collect(),
        source_ranges: source_ranges.iter().map(ToString::to_string).collect(),
        address: address.map(|address| address.to_string()),
        affinity: affinity.and_then(duration_to_wire),
        local_health_check_port: match traffic {
            Traffic::Cluster => None,
            Traffic::Local { health_check_port } => Some(u32::from(*health_check_port)),
        },
        class: class.clone(),
        settings: settings.clone(),
        service_json: service.as_deref().map(str::to_owned),
        requires_families: Some(*requires_families),
    }
}

pub fn duration_to_wire(duration: Duration) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(duration).ok()
}

/// Returns a valid duration; negative ones are ignored. Converted by hand, because the library's own
/// conversion overflows for the smallest number of seconds.
pub fn duration_from_wire(duration: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

pub fn member_to_wire(member: &Member) -> proto::Member {
    let Member { node, provider_id, addresses, labels } = member;
    proto::Member {
        node: (!node.is_empty()).then(|| node.clone()),
        provider_id: provider_id.as_ref().map(|id| id.as_str().to_owned()),
        addresses: addresses.iter().map(address_to_wire).collect(),
        labels: labels.as_ref().clone(),
    }
}

pub fn member_from_wire(wire: proto::Member) -> Result<Member, CloudError> {
    let proto::Member { node, provider_id, addresses, labels } = wire;
    let node = node.unwrap_or_default();
    let about = |what: String| malformed(format!("member {node:?}: {what}"));
    let id = |text: String| ProviderId::parse(&text).map_err(|error| about(error.to_string()));
    let addresses = addresses.iter().map(|address| address_from_wire(address).map_err(about));
    Ok(Member {
        addresses: addresses.collect::<Result<_, _>>()?,
        provider_id: provider_id.filter(|id| !id.is_empty()).map(id).transpose()?,
        labels: labels.into(),
        node,
    })
}

/// The lists of members of one request. Most load balancers have the same members: their list is
/// sent once.
#[derive(Default)]
pub struct MemberLists(Vec<Arc<[Member]>>);

impl MemberLists {
    /// Returns the lists as they are sent.
    pub fn to_wire(&self) -> Vec<proto::MemberList> {
        let list = |members: &Arc<[Member]>| proto::MemberList {
            members: members.iter().map(member_to_wire).collect(),
        };
        self.0.iter().map(list).collect()
    }

    fn change_to_wire(&mut self, members: &Members) -> proto::MemberSets {
        let Members { present, absent } = members;
        let place = || {
            let known = self.0.iter().position(|list| Arc::ptr_eq(list, present));
            known.unwrap_or_else(|| {
                self.0.push(Arc::clone(present));
                self.0.len() - 1
            })
        };
        proto::MemberSets {
            present_list: (!present.is_empty()).then(place).and_then(|place| place.try_into().ok()),
            absent: absent.iter().map(member_to_wire).collect(),
        }
    }
}

pub fn wanted_to_wire(wanted: &Wanted, lists: &mut MemberLists) -> proto::WantedLoadBalancer {
    let Wanted { front_end, members, known, adopt, shown, may_replace } = wanted;
    proto::WantedLoadBalancer {
        front_end: Some(front_end_to_wire(front_end)),
        members: Some(lists.change_to_wire(members)),
        known: known.clone(),
        adopt: adopt.clone(),
        shown: shown.iter().map(ToString::to_string).collect(),
        keep: Some(!may_replace),
    }
}

pub fn change_to_wire(change: &MemberChange, lists: &mut MemberLists) -> proto::MemberChange {
    let MemberChange { owner, id, members, front_end, settings } = change;
    proto::MemberChange {
        owner: Some(owner_to_wire(owner)),
        id: Some(id.clone()),
        members: Some(lists.change_to_wire(members)),
        front_end: front_end.as_deref().map(front_end_to_wire),
        settings: settings.clone(),
    }
}

pub fn unwanted_to_wire(unwanted: &Unwanted) -> proto::UnwantedLoadBalancer {
    let Unwanted { owner, known, duplicate, settings, address, service } = unwanted;
    proto::UnwantedLoadBalancer {
        owner: Some(owner_to_wire(owner)),
        known: known.clone(),
        duplicate: Some(*duplicate),
        settings: settings.clone().unwrap_or_default(),
        service_json: service.as_deref().map(str::to_owned),
        settings_unknown: Some(settings.is_none()),
        address: address.map(|address| address.to_string()),
    }
}
