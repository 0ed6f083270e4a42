//! Writes load balancers as the cloud shows them, and the features that the provider offers.

use std::collections::BTreeMap;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    Cure, Depth, FailedPort, Ingress, IngressAddress, IpMode, LoadBalancer, LoadBalancerTraits,
    Member, MembersSet, Note, Phase, Pool, Scope, Title, Waiting,
};
use ccm_external::{
    MAX_BATCH,
    convert::{
        front_end::{duration_to_wire, member_to_wire, owner_to_wire, protocol_to_wire},
        load_balancers::has_exactly,
    },
    proto,
};

pub fn traits_to_wire(traits: &LoadBalancerTraits) -> proto::LoadBalancerTraits {
    let LoadBalancerTraits {
        annotations,
        // The protocol has no field for annotations that only get remarks. A provider behind the
        // protocol gives remarks on its configuration annotations only.
        remarked: _,
        own_annotations,
        is_built_in: _,
        id_annotation,
        protocols,
        dual_stack,
        member_ids,
        member_addresses,
        member_labels,
        lists,
        stores_digest,
        wants_service,
        asks_before_replacing,
        max_batch,
    } = traits;
    proto::LoadBalancerTraits {
        annotations: annotations.clone(),
        own_annotations: own_annotations.clone(),
        id_annotation: id_annotation.clone(),
        protocols: protocols.iter().map(|protocol| protocol_to_wire(*protocol).into()).collect(),
        dual_stack: Some(*dual_stack),
        member_ids: Some(*member_ids),
        member_addresses: Some(*member_addresses),
        member_labels: Some(*member_labels),
        lists: Some(*lists),
        stores_digest: Some(*stores_digest),
        wants_service: Some(*wants_service),
        asks_before_replacing: Some(*asks_before_replacing),
        max_batch: u32::try_from((*max_batch).min(MAX_BATCH)).ok(),
    }
}

/// Returns the depth. A value that this version does not know counts as the smaller one.
pub fn depth_from_wire(depth: proto::Depth) -> Depth {
    match depth {
        proto::Depth::Unspecified | proto::Depth::Summary => Depth::Summary,
        proto::Depth::Members => Depth::Members,
    }
}

pub fn scope_from_wire(scope: proto::ListScope, ids: Vec<String>) -> Scope {
    match scope {
        proto::ListScope::Unspecified | proto::ListScope::All => Scope::All,
        proto::ListScope::Cluster => Scope::Cluster,
        proto::ListScope::Ids => Scope::Ids(ids),
    }
}

pub fn waiting_to_wire(waiting: &Waiting) -> proto::InProgress {
    let Waiting { what, check_after, id, request_id, changed } = waiting;
    proto::InProgress {
        what: Some(one_line(what, LONGEST_LINE)),
        check_after: duration_to_wire(*check_after),
        id: id.clone(),
        request_id: request_id.clone(),
        changed: Some(*changed),
    }
}

pub fn members_set_to_wire(set: MembersSet) -> proto::MembersSet {
    let MembersSet { version, changed, pools } = set;
    let pools = pools.as_deref().map(pools_to_wire);
    proto::MembersSet { version, changed: Some(changed), pools }
}

fn ingress_to_wire(ingress: &Ingress) -> proto::Ingress {
    let Ingress { address, ip_mode, failed_ports } = ingress;
    let ports = failed_ports.iter().map(|FailedPort { port, protocol, error }| proto::FailedPort {
        port: Some(u32::from(*port)),
        protocol: Some(protocol_to_wire(*protocol).into()),
        error: Some(error.clone()),
    });
    proto::Ingress {
        address: Some(match address {
            IngressAddress::Ip(ip) => proto::ingress::Address::Ip(ip.to_string()),
            IngressAddress::Hostname(name) => proto::ingress::Address::Hostname(name.clone()),
        }),
        ip_mode: Some(match ip_mode {
            IpMode::Vip => proto::IpMode::Vip.into(),
            IpMode::Proxy => proto::IpMode::Proxy.into(),
        }),
        failed_ports: ports.collect(),
    }
}

pub fn balancer_to_wire(balancer: &LoadBalancer) -> proto::LoadBalancer {
    let LoadBalancer {
        id,
        name,
        owner,
        title,
        digest,
        phase,
        version,
        members,
        pools,
        ingress,
        annotations,
        notes,
        age,
        cost,
    } = balancer;
    let mut wire = proto::LoadBalancer {
        id: Some(id.clone()),
        name: Some(name.clone()),
        owner: owner.as_ref().map(owner_to_wire),
        digest: digest.map(|digest| digest.to_string()),
        version: version.clone(),
        members: members.as_deref().map(|members| proto::MemberList {
            members: members.iter().map(member_to_wire).collect(),
        }),
        pools: pools.as_deref().map(pools_to_wire),
        ingress: ingress.iter().map(ingress_to_wire).collect(),
        notes: notes.iter().map(note_to_wire).collect(),
        age: age.and_then(duration_to_wire),
        cost: cost.clone(),
        // Set below, and for an answer to a change.
        title: None,
        title_detail: None,
        other_owners: None,
        phase: None,
        waiting: None,
        failure: None,
        annotations: BTreeMap::new(),
        removed_annotations: Vec::new(),
        members_as_wanted: None,
    };
    for (key, value) in annotations {
        match value {
            Some(value) => drop(wire.annotations.insert(key.clone(), value.clone())),
            None => wire.removed_annotations.push(key.clone()),
        }
    }
    set_title(&mut wire, title);
    set_phase(&mut wire, phase);
    wire
}

fn set_title(wire: &mut proto::LoadBalancer, title: &Title) {
    let title = match title {
        Title::Ours => proto::LoadBalancerTitle::Ours,
        Title::Adoptable { why } => {
            wire.title_detail = Some(why.clone());
            proto::LoadBalancerTitle::Adoptable
        }
        Title::Shared { others } => {
            wire.other_owners = Some(*others);
            proto::LoadBalancerTitle::Shared
        }
        Title::Foreign => proto::LoadBalancerTitle::Foreign,
    };
    wire.set_title(title);
}

fn set_phase(wire: &mut proto::LoadBalancer, phase: &Phase) {
    let phase = match phase {
        Phase::Ready => proto::LoadBalancerPhase::Ready,
        Phase::Pending(waiting) => {
            wire.waiting = Some(waiting_to_wire(waiting));
            proto::LoadBalancerPhase::Pending
        }
        Phase::Failed { why, cure } => {
            wire.failure = Some(why.clone());
            match cure {
                Cure::Ensure => proto::LoadBalancerPhase::Failed,
                Cure::Person => proto::LoadBalancerPhase::FailedForGood,
            }
        }
    };
    wire.set_phase(phase);
}

fn note_to_wire(note: &Note) -> proto::Note {
    let Note { reason, message, warning } = note;
    proto::Note {
        reason: Some(reason.clone()),
        message: Some(message.clone()),
        warning: Some(*warning),
    }
}

/// Returns a load balancer that is as it was wanted. If it has exactly the members `present`, they
/// are not sent once more.
pub fn ensured_to_wire(mut balancer: LoadBalancer, present: &[Member]) -> proto::LoadBalancer {
    let as_wanted = has_exactly(&balancer, present);
    if as_wanted {
        balancer.members = None;
    }
    let members_as_wanted = as_wanted.then_some(true);
    proto::LoadBalancer { members_as_wanted, ..balancer_to_wire(&balancer) }
}

fn pools_to_wire(pools: &[Pool]) -> proto::PoolList {
    let pools = pools.iter().map(|Pool { protocol, port, members, why_empty }| proto::Pool {
        protocol: Some(protocol_to_wire(*protocol).into()),
        port: Some(u32::from(*port)),
        members: Some(u32::try_from(*members).unwrap_or(u32::MAX)),
        why_empty: why_empty.as_deref().map(|why| one_line(why, LONGEST_LINE)),
    });
    proto::PoolList { pools: pools.collect() }
}
