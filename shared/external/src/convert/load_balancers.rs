//! Converts load balancers as the cloud shows them, and the features that a provider declares.
//!
//! A provider of any quality wrote what a controller reads: a wrong value is an error of that load
//! balancer alone.

use std::{collections::BTreeSet, fmt::Display, sync::Arc, time::Duration};

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    CloudError, Cure, Depth, FailedPort, Ingress, IngressAddress, IpMode, LoadBalancer,
    LoadBalancerTraits, Member, MembersSet, Note, Owner, Phase, Pool, Protocol, Scope, Title,
    Waiting, are_shown_as,
};

use super::{
    front_end::{
        duration_from_wire, member_from_wire, names_from_wire, owner_from_wire, port_from_wire,
        protocol_from_wire,
    },
    malformed,
};
use crate::{MAX_BATCH, proto};

/// The time until the next look if the provider gives no time.
const CHECK_AFTER: Duration = Duration::from_secs(1);
/// The bounds of a provider's time to look again.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_mins(10);
/// The most characters of the reason of a remark.
const LONGEST_REASON: usize = 128;
/// The largest number of addresses, remarks and annotations of one load balancer.
const MAX_PARTS: usize = 256;
/// The largest number of members of one load balancer.
const MAX_MEMBERS: usize = 10_000;
/// The maximum number of pools of one load balancer.
const MAX_POOLS: usize = 256;

pub fn traits_from_wire(wire: Option<proto::LoadBalancerTraits>) -> LoadBalancerTraits {
    let proto::LoadBalancerTraits {
        annotations,
        own_annotations,
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
    } = wire.unwrap_or_default();
    let mut protocols: Vec<_> = protocols.into_iter().filter_map(protocol_from_wire).collect();
    if protocols.is_empty() {
        protocols.push(Protocol::Tcp);
    }
    let max_batch = max_batch.and_then(|most| usize::try_from(most).ok()).unwrap_or(1);
    LoadBalancerTraits {
        // An empty beginning would make every annotation a configuration.
        annotations: annotations.into_iter().filter(|start| !start.is_empty()).collect(),
        // The protocol has no field for annotations that only get remarks.
        remarked: Vec::new(),
        // A `*` alone would leave no configuration at all.
        own_annotations: own_annotations.into_iter().filter(|own| own != "*").collect(),
        is_built_in: false,
        id_annotation: id_annotation.filter(|key| !key.is_empty()),
        protocols,
        dual_stack: dual_stack.unwrap_or(false),
        member_ids: member_ids.unwrap_or(false),
        member_addresses: member_addresses.unwrap_or(true),
        member_labels: member_labels.unwrap_or(false),
        lists: lists.unwrap_or(true),
        stores_digest: stores_digest.unwrap_or(false),
        wants_service: wants_service.unwrap_or(false),
        asks_before_replacing: asks_before_replacing.unwrap_or(false),
        max_batch: max_batch.clamp(1, MAX_BATCH),
    }
}

pub fn depth_to_wire(depth: Depth) -> i32 {
    match depth {
        Depth::Summary => proto::Depth::Summary.into(),
        Depth::Members => proto::Depth::Members.into(),
    }
}

pub fn scope_to_wire(scope: Scope) -> (i32, Vec<String>) {
    match scope {
        Scope::All => (proto::ListScope::All.into(), Vec::new()),
        Scope::Cluster => (proto::ListScope::Cluster.into(), Vec::new()),
        Scope::Ids(ids) => (proto::ListScope::Ids.into(), ids),
    }
}

pub fn waiting_from_wire(wire: proto::InProgress) -> Waiting {
    let proto::InProgress { what, check_after, id, request_id, changed } = wire;
    let check_after = check_after.and_then(duration_from_wire).unwrap_or(CHECK_AFTER);
    Waiting {
        what: line(what).unwrap_or_else(|| "the cloud works on it".to_owned()),
        check_after: check_after.clamp(SOONEST, LATEST),
        id: id.filter(|id| !id.is_empty()),
        request_id: line(request_id),
        changed: changed.unwrap_or(true),
    }
}

pub fn members_set_from_wire(wire: proto::MembersSet) -> Result<MembersSet, CloudError> {
    let proto::MembersSet { version: text, changed, pools } = wire;
    let pools = pools.map(pools_from_wire).transpose()?;
    Ok(MembersSet { version: version(text), changed: changed.unwrap_or(true), pools })
}

fn pools_from_wire(wire: proto::PoolList) -> Result<Vec<Pool>, CloudError> {
    let proto::PoolList { pools } = wire;
    if pools.len() > MAX_POOLS {
        return Err(malformed(format!("{} pools, more than {MAX_POOLS}", pools.len())));
    }
    let mut seen = BTreeSet::new();
    let pool = |wire: proto::Pool| {
        let proto::Pool { protocol, port, members, why_empty } = wire;
        let protocol = protocol_from_wire(protocol.unwrap_or_default());
        let protocol = protocol.ok_or_else(|| malformed("a pool has no protocol"))?;
        let port = port_from_wire(port.unwrap_or_default())?;
        let about = |what: &str| malformed(format!("{protocol} port {port} {what}"));
        // An unset count is not 0: the controller would fill a pool with 0 members.
        let members = members.ok_or_else(|| about("does not say how many members it has"))?;
        if !seen.insert((protocol, port)) {
            return Err(about("has two pools"));
        }
        let why_empty = why_empty.map(|why| one_line(&why, LONGEST_LINE));
        let why_empty = why_empty.filter(|why| members == 0 && !why.is_empty());
        let members = usize::try_from(members).unwrap_or(usize::MAX);
        Ok(Pool { protocol, port, members, why_empty })
    };
    pools.into_iter().map(pool).collect()
}

/// Returns a version. An empty one counts as absent.
pub fn version(wire: Option<String>) -> Option<String> {
    wire.filter(|version| !version.is_empty())
}

/// Returns one line of the provider's, if it is not empty.
pub fn line(text: Option<String>) -> Option<String> {
    text.map(|text| one_line(&text, LONGEST_LINE)).filter(|text| !text.is_empty())
}

fn ingress_from_wire(wire: proto::Ingress) -> Result<Ingress, CloudError> {
    let ip_mode = match wire.ip_mode() {
        proto::IpMode::Unspecified | proto::IpMode::Vip => IpMode::Vip,
        proto::IpMode::Proxy => IpMode::Proxy,
    };
    let address = match wire.address {
        Some(proto::ingress::Address::Ip(text)) => {
            let wrong = |_| malformed(format!("{text:?} is not an IP address"));
            IngressAddress::Ip(text.parse().map_err(wrong)?)
        }
        Some(proto::ingress::Address::Hostname(name)) if !name.is_empty() => {
            // DNS ignores case and a dot at the end; Kubernetes does not.
            let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
            IngressAddress::Hostname(one_line(&name, LONGEST_LINE))
        }
        _ => return Err(malformed("an entry of ingress has no address")),
    };
    let ports = wire.failed_ports.into_iter().map(|wire| {
        let proto::FailedPort { port, protocol, error } = wire;
        let protocol = protocol_from_wire(protocol.unwrap_or_default());
        Ok(FailedPort {
            port: port_from_wire(port.unwrap_or_default())?,
            protocol: protocol.ok_or_else(|| malformed("a failed port has no protocol"))?,
            error: line(error).unwrap_or_else(|| "Failed".to_owned()),
        })
    });
    Ok(Ingress { address, ip_mode, failed_ports: ports.collect::<Result<_, CloudError>>()? })
}

/// Returns a remark. Characters that a reason cannot have are left out of its reason.
fn note_from_wire(wire: proto::Note) -> Note {
    let proto::Note { reason, message, warning } = wire;
    let reason = reason.unwrap_or_default();
    let reason: String =
        reason.chars().filter(|c| c.is_alphanumeric()).take(LONGEST_REASON).collect();
    Note {
        reason: if reason.is_empty() { "ProviderNote".to_owned() } else { reason },
        message: line(message).unwrap_or_default(),
        warning: warning == Some(true),
    }
}

/// Returns a load balancer that is as it was wanted. If it has exactly the members `present`, it
/// shares that list: a thousand load balancers may have the same thousands of members.
pub fn ensured_from_wire(
    wire: proto::LoadBalancer,
    present: &Arc<[Member]>,
) -> Result<LoadBalancer, CloudError> {
    let as_wanted = wire.members_as_wanted == Some(true);
    let mut balancer = LoadBalancer::try_from(wire)?;
    if as_wanted || has_exactly(&balancer, present) {
        balancer.members = Some(Arc::clone(present));
    }
    Ok(balancer)
}

/// Returns true if the load balancer has exactly these members.
pub fn has_exactly(balancer: &LoadBalancer, present: &[Member]) -> bool {
    balancer.members.as_ref().is_some_and(|members| {
        let mut shown: Vec<&Member> = members.iter().collect();
        shown.sort_unstable_by(|one, other| one.node.cmp(&other.node));
        are_shown_as(present, shown)
    })
}

impl TryFrom<proto::LoadBalancer> for LoadBalancer {
    type Error = CloudError;

    fn try_from(wire: proto::LoadBalancer) -> Result<Self, CloudError> {
        let id = line(wire.id.clone());
        let id =
            id.ok_or_else(|| malformed(format!("load balancer {:?} has no ID", wire.name())))?;
        let about = |what: &dyn Display| malformed(format!("load balancer {id:?}: {what}"));
        if let Some(what) = too_many_parts(&wire) {
            return Err(about(&what));
        }
        let (title, phase) = (title(&wire), phase(&wire).map_err(|what| about(&what))?);
        let proto::LoadBalancer {
            id: _,
            name,
            owner,
            title: _,
            title_detail: _,
            other_owners: _,
            digest,
            phase: _,
            waiting: _,
            failure: _,
            version: text,
            members,
            ingress,
            annotations: set,
            removed_annotations: removed,
            notes,
            age,
            cost,
            members_as_wanted: _,
            pools,
        } = wire;
        let owner = owner_of(&title, owner).map_err(|what| about(&what))?;
        let members = members.map(|list| {
            list.members.into_iter().map(member_from_wire).collect::<Result<Arc<[_]>, _>>()
        });
        let pools = pools.map(pools_from_wire).transpose();
        let set = set.into_iter().map(|(key, value)| (key, Some(value)));
        let removed = removed.into_iter().map(|key| (key, None));
        let ingress = ingress.into_iter().map(ingress_from_wire).collect::<Result<_, _>>();
        Ok(Self {
            name: line(name).unwrap_or_default(),
            owner,
            title,
            // A digest that cannot be read comes from another version.
            digest: digest.and_then(|digest| digest.parse().ok()),
            phase,
            version: version(text),
            members: members.transpose().map_err(|error| about(&error.message))?,
            pools: pools.map_err(|error| about(&error.message))?,
            ingress: ingress.map_err(|error: CloudError| about(&error.message))?,
            annotations: set.chain(removed).collect(),
            notes: notes.into_iter().map(note_from_wire).collect(),
            age: age.and_then(duration_from_wire),
            cost: line(cost),
            id,
        })
    }
}

/// Only a complete record names the owner of a load balancer that is ours.
fn owner_of(title: &Title, owner: Option<proto::Owner>) -> Result<Option<Owner>, String> {
    match (title, owner) {
        (Title::Ours, None) => Err("it is said to be ours, but has no owner".to_owned()),
        (Title::Ours, owner) => owner_from_wire(owner).map(Some).map_err(|error| error.message),
        (_, owner) => Ok(owner.map(|owner| names_from_wire(Some(owner)))),
    }
}

/// Returns the part of which there are too many.
fn too_many_parts(wire: &proto::LoadBalancer) -> Option<String> {
    let annotations = wire.annotations.len() + wire.removed_annotations.len();
    let members = wire.members.as_ref().map_or(0, |members| members.members.len());
    let counts = [
        (wire.ingress.len(), MAX_PARTS, "addresses"),
        (wire.notes.len(), MAX_PARTS, "remarks"),
        (annotations, MAX_PARTS, "annotations"),
        (members, MAX_MEMBERS, "members"),
    ];
    let too_many = counts.into_iter().find(|(count, most, _)| count > most);
    too_many.map(|(count, most, what)| format!("{count} {what}, more than {most}"))
}

/// Returns the title of a load balancer. A title that this version does not know counts as foreign.
fn title(wire: &proto::LoadBalancer) -> Title {
    match wire.title() {
        proto::LoadBalancerTitle::Ours => Title::Ours,
        proto::LoadBalancerTitle::Adoptable => {
            Title::Adoptable { why: line(wire.title_detail.clone()).unwrap_or_default() }
        }
        proto::LoadBalancerTitle::Shared => Title::Shared { others: wire.other_owners() },
        proto::LoadBalancerTitle::Foreign | proto::LoadBalancerTitle::Unspecified => Title::Foreign,
    }
}

fn phase(wire: &proto::LoadBalancer) -> Result<Phase, String> {
    let failed = |cure| {
        let why = line(wire.failure.clone());
        Phase::Failed { why: why.unwrap_or_else(|| "no reason given".to_owned()), cure }
    };
    Ok(match wire.phase() {
        proto::LoadBalancerPhase::Ready => Phase::Ready,
        proto::LoadBalancerPhase::Pending => {
            let waiting = waiting_from_wire(wire.waiting.clone().unwrap_or_default());
            // A list call changes nothing.
            Phase::Pending(Waiting { changed: false, ..waiting })
        }
        proto::LoadBalancerPhase::Failed => failed(Cure::Ensure),
        proto::LoadBalancerPhase::FailedForGood => failed(Cure::Person),
        proto::LoadBalancerPhase::Unspecified => {
            return Err(format!("its phase {} is unknown", wire.phase.unwrap_or_default()));
        }
    })
}
