//! Reads the wanted load balancers. A wrong value is an error of the whole request.

use std::{net::IpAddr, sync::Arc};

use ccm_cloud::{
    CloudError, FrontEnd, FrontEndPort, Member, MemberChange, Members, Traffic, Unwanted, Wanted,
};
use ccm_external::{
    convert::{
        front_end::{
            duration_from_wire, family_from_wire, member_from_wire, owner_from_wire, parsed,
            port_from_wire, protocol_from_wire,
        },
        malformed,
    },
    proto,
};

/// A list of members that several load balancers of one request may have.
pub type MemberList = Arc<[Member]>;

/// Reads the lists of members of a request.
pub fn lists_from_wire(wire: Vec<proto::MemberList>) -> Result<Vec<MemberList>, CloudError> {
    let list = |list: proto::MemberList| list.members.into_iter().map(member_from_wire).collect();
    wire.into_iter().map(list).collect()
}

fn members_from_wire(
    wire: Option<proto::MemberSets>,
    lists: &[MemberList],
) -> Result<Members, CloudError> {
    let proto::MemberSets { present_list, absent } = wire.unwrap_or_default();
    let present = match present_list {
        None => Arc::default(),
        Some(place) => {
            let list = usize::try_from(place).ok().and_then(|place| lists.get(place));
            let all = lists.len();
            let what = || malformed(format!("member list {place} of {all} does not exist"));
            Arc::clone(list.ok_or_else(what)?)
        }
    };
    let absent = absent.into_iter().map(member_from_wire).collect::<Result<_, _>>()?;
    Ok(Members { present, absent })
}

fn front_end_port(wire: proto::FrontEndPort) -> Result<FrontEndPort, CloudError> {
    let proto::FrontEndPort { name, protocol, port, member_port, app_protocol } = wire;
    let number = protocol.unwrap_or_default();
    let unknown = || malformed(format!("unknown transport protocol {number}"));
    Ok(FrontEndPort {
        name: name.unwrap_or_default(),
        protocol: protocol_from_wire(number).ok_or_else(unknown)?,
        port: port_from_wire(port.unwrap_or_default())?,
        member_port: member_port.map(port_from_wire).transpose()?,
        app_protocol,
    })
}

fn front_end_from_wire(wire: proto::FrontEnd) -> Result<FrontEnd, CloudError> {
    let proto::FrontEnd {
        owner,
        digest,
        families,
        ports,
        source_ranges,
        address,
        affinity,
        local_health_check_port,
        class,
        settings,
        service_json,
        requires_families,
    } = wire;
    let families = families.into_iter().map(family_from_wire).collect::<Result<_, _>>()?;
    let ports = ports.into_iter().map(front_end_port).collect::<Result<_, _>>()?;
    let ranges = source_ranges.iter().map(|range| parsed("the network", range));
    let address = address.map(|address| parsed::<IpAddr>("the address", &address)).transpose()?;
    let health_check_port = local_health_check_port.map(port_from_wire).transpose()?;
    Ok(FrontEnd {
        owner: owner_from_wire(owner)?,
        digest: parsed("the digest", &digest.unwrap_or_default())?,
        families,
        requires_families: requires_families.unwrap_or_default(),
        ports,
        source_ranges: ranges.collect::<Result<_, _>>()?,
        address,
        affinity: affinity.and_then(duration_from_wire),
        traffic: health_check_port
            .map_or(Traffic::Cluster, |health_check_port| Traffic::Local { health_check_port }),
        class,
        settings,
        service: service_json.map(Into::into),
    })
}

pub fn wanted_from_wire(
    wire: proto::WantedLoadBalancer,
    lists: &[MemberList],
) -> Result<Wanted, CloudError> {
    let proto::WantedLoadBalancer { front_end, members, known, adopt, shown, keep } = wire;
    Ok(Wanted {
        front_end: front_end_from_wire(front_end.unwrap_or_default())?.into(),
        members: members_from_wire(members, lists)?,
        known,
        adopt,
        shown: shown
            .iter()
            .map(|text| parsed("an address of the Service", text))
            .collect::<Result<_, _>>()?,
        may_replace: !keep.unwrap_or(false),
    })
}

pub fn change_from_wire(
    wire: proto::MemberChange,
    lists: &[MemberList],
) -> Result<MemberChange, CloudError> {
    let proto::MemberChange { owner, id, members, front_end, settings } = wire;
    let id = id.filter(|id| !id.is_empty());
    Ok(MemberChange {
        owner: owner_from_wire(owner)?,
        id: id.ok_or_else(|| malformed("a change of members names no load balancer"))?,
        members: members_from_wire(members, lists)?,
        front_end: front_end.map(front_end_from_wire).transpose()?.map(Into::into),
        settings,
    })
}

pub fn unwanted_from_wire(wire: proto::UnwantedLoadBalancer) -> Result<Unwanted, CloudError> {
    let proto::UnwantedLoadBalancer {
        owner,
        known,
        duplicate,
        settings,
        service_json,
        settings_unknown,
        address,
    } = wire;
    Ok(Unwanted {
        owner: owner_from_wire(owner)?,
        known,
        duplicate: duplicate == Some(true),
        settings: (settings_unknown != Some(true)).then_some(settings),
        address: address
            .map(|address| parsed("the address that the Service asks for", &address))
            .transpose()?,
        service: service_json.map(Into::into),
    })
}
