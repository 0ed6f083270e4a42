//! The changes that lead from the actual to the wanted state. Pure.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use ccm_cloud::{
    AddressKind, Cure, FrontEnd, FrontEndPort, IpFamily, LoadBalancerTraits, Member, Members,
    NodeAddress, NodeSelector, Protocol, Wanted,
};

use super::{BalancerSettings, Configuration, FLOATING, SELECTOR, SimBalancer, State};

/// One change of one load balancer: one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Creates it.
    Create { name: String, listeners: usize, members: usize },
    /// Records the owner with it.
    Adopt { from: String },
    /// Repairs it after this failure.
    Repair(String),
    /// Gives it addresses of these families.
    Addresses(Vec<IpFamily>),
    /// Adds a listener, or replaces the one with the same port.
    Listen(FrontEndPort),
    /// Removes a listener.
    Close(Protocol, u16),
    /// Sets these other fields of the configuration.
    Options(Vec<&'static str>),
    /// Releases its floating address.
    Release(IpAddr),
    /// Attaches a floating address: this one, or any.
    Attach(Option<IpAddr>),
    /// Stores the digest, and nothing else.
    Digest,
    /// Adds and removes members.
    Members { add: Vec<Member>, remove: Vec<Member> },
}

impl Change {
    /// Returns true if it changes content of the digest.
    pub(super) fn configures(&self) -> bool {
        !matches!(self, Self::Adopt { .. } | Self::Repair(_) | Self::Members { .. })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { name, listeners, members } => {
                write!(f, "create {name} with {listeners} listeners and {members} members")
            }
            Self::Adopt { from } => write!(f, "record the owner; so far: {from}"),
            Self::Repair(why) => write!(f, "repair: {why}"),
            Self::Addresses(families) => {
                let families: Vec<_> = families.iter().map(ToString::to_string).collect();
                write!(f, "set the addresses' families: {}", families.join(", "))
            }
            Self::Listen(port) => {
                write!(f, "listen on {}/{}", port.protocol, port.port)?;
                match port.member_port {
                    Some(to) => write!(f, ", to port {to} of the members"),
                    None => write!(f, ", without members"),
                }
            }
            Self::Close(protocol, port) => write!(f, "remove the listener {protocol}/{port}"),
            Self::Options(names) => write!(f, "set {}", names.join(", ")),
            Self::Release(address) => write!(f, "release the floating address {address}"),
            Self::Attach(Some(address)) => write!(f, "attach the floating address {address}"),
            Self::Attach(None) => write!(f, "attach a floating address"),
            Self::Digest => write!(f, "store the digest"),
            Self::Members { add, remove } => {
                let names = |members: &[Member]| {
                    members.iter().map(|it| it.node.as_str()).collect::<Vec<_>>().join(", ")
                };
                let (plus, minus) = (names(add), names(remove));
                match (add.is_empty(), remove.is_empty()) {
                    (false, true) => write!(f, "add members {plus}"),
                    (true, _) => write!(f, "remove members {minus}"),
                    (false, false) => write!(f, "add members {plus}; remove members {minus}"),
                }
            }
        }
    }
}

/// Returns true if clients should reach it at a floating address.
pub(super) fn wants_floating(front_end: &FrontEnd) -> bool {
    front_end.settings.get(FLOATING).is_some_and(|value| value == "true")
}

/// Returns the configuration as it is wanted.
fn configuration(front_end: &FrontEnd) -> Configuration {
    let ports = front_end.ports.iter();
    Configuration {
        listeners: ports.map(|port| ((port.protocol, port.port), port.clone())).collect(),
        source_ranges: front_end.source_ranges.clone(),
        affinity: front_end.affinity,
        traffic: front_end.traffic,
        settings: front_end.settings.clone(),
    }
}

/// Returns the part that one write can create: everything except a floating address, or only the
/// load balancer.
pub(super) fn created(
    wanted: &Wanted,
    id: String,
    addresses: Vec<IpAddr>,
    settings: &BalancerSettings,
) -> SimBalancer {
    let front_end = &*wanted.front_end;
    let owner = front_end.owner.clone();
    let address = addresses.first().copied().unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let mut balancer = SimBalancer::foreign(id, address, 0);
    balancer.name = name(front_end);
    balancer.owners = vec![owner];
    balancer.addresses = addresses;
    balancer.version = 0;
    balancer.configuration = configuration(front_end);
    if settings.nested {
        let families = balancer.families();
        let selector = selector(&front_end.settings, settings);
        let needs = Needs { families: &families, traits: &settings.traits, selector: &selector };
        if let Some((add, _)) = members(&[], &wanted.members, needs) {
            balancer.members = add;
        }
    } else {
        balancer.configuration.listeners.clear();
    }
    balancer
}

fn name(front_end: &FrontEnd) -> String {
    let owner = &front_end.owner;
    format!("{}_{}_{}", owner.cluster.name, owner.namespace, owner.name)
}

/// Returns all changes until a load balancer with this floating address is as wanted.
pub(super) fn changes(
    now: &SimBalancer,
    floating: Option<IpAddr>,
    wanted: &Wanted,
    settings: &BalancerSettings,
) -> Vec<Change> {
    let front_end = &*wanted.front_end;
    let mut changes = Vec::new();
    if wanted.adopt.is_some() && !now.is_of(&front_end.owner) {
        changes.push(Change::Adopt { from: so_far(now) });
    }
    if let State::Failed { why, cure: Cure::Ensure } = &now.state {
        changes.push(Change::Repair(why.clone()));
    }
    let before = changes.len();
    if now.families() != front_end.families {
        changes.push(Change::Addresses(front_end.families.clone()));
    }
    configure(&now.configuration, &configuration(front_end), &mut changes);
    float(floating, front_end, &mut changes);
    let applied = now.applied.as_ref().map(|applied| applied.digest);
    let stores = settings.traits.stores_digest;
    if changes.len() == before && stores && front_end.digest.differs_from(applied) {
        changes.push(Change::Digest);
    }
    let selector = selector(&front_end.settings, settings);
    let (families, traits) = (&front_end.families, &settings.traits);
    let needs = Needs { families, traits, selector: &selector };
    if let Some((add, remove)) = members(&now.members, &wanted.members, needs) {
        changes.push(Change::Members { add, remove });
    }
    changes
}

fn so_far(now: &SimBalancer) -> String {
    match (now.owners.first(), &now.made_for) {
        (Some(owner), _) => format!("{owner} of the cluster with UID {}", owner.cluster.uid),
        (None, Some(names)) => format!("{names} of a cluster named {}", names.cluster.name),
        (None, None) => "no owner".to_owned(),
    }
}

fn configure(now: &Configuration, wanted: &Configuration, changes: &mut Vec<Change>) {
    for (key, port) in &wanted.listeners {
        if now.listeners.get(key) != Some(port) {
            changes.push(Change::Listen(port.clone()));
        }
    }
    for (protocol, port) in now.listeners.keys() {
        if !wanted.listeners.contains_key(&(*protocol, *port)) {
            changes.push(Change::Close(*protocol, *port));
        }
    }
    let options: Vec<_> = [
        ("source ranges", now.source_ranges != wanted.source_ranges),
        ("session affinity", now.affinity != wanted.affinity),
        ("traffic policy", now.traffic != wanted.traffic),
        ("annotations", now.settings != wanted.settings),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect();
    if !options.is_empty() {
        changes.push(Change::Options(options));
    }
}

fn float(now: Option<IpAddr>, front_end: &FrontEnd, changes: &mut Vec<Change>) {
    let wants = wants_floating(front_end);
    match now {
        Some(address) if !wants => changes.push(Change::Release(address)),
        Some(address) if front_end.address.is_some_and(|other| other != address) => {
            changes.push(Change::Release(address));
            changes.push(Change::Attach(front_end.address));
        }
        None if wants => changes.push(Change::Attach(front_end.address)),
        _ => {}
    }
}

/// The properties that a node needs to be a member.
#[derive(Clone, Copy)]
pub(super) struct Needs<'a> {
    pub(super) families: &'a [IpFamily],
    pub(super) traits: &'a LoadBalancerTraits,
    pub(super) selector: &'a NodeSelector,
}

/// Returns the nodes that may be members of a load balancer with these settings.
pub(super) fn selector(
    settings: &BTreeMap<String, String>,
    cloud: &BalancerSettings,
) -> NodeSelector {
    let text = settings.get(SELECTOR).filter(|_| cloud.traits.member_labels);
    NodeSelector::parse(text.unwrap_or(&cloud.node_selector))
}

/// Returns the members to add or to replace, and the members to remove. Both lists are empty if
/// nothing must change.
///
/// Members in neither list stay. A member that lacks what a member needs is not added, but an
/// existing one stays. The last member stays.
pub(super) fn members(
    now: &[Member],
    wanted: &Members,
    needs: Needs<'_>,
) -> Option<(Vec<Member>, Vec<Member>)> {
    let is_there = |member: &Member| {
        now.iter()
            .any(|it| it == member || (it.node.is_empty() && it.addresses == member.addresses))
    };
    let mut add: Vec<Member> =
        wanted.present.iter().filter_map(|member| as_stored(member, needs)).collect();
    add.retain(|member| !is_there(member));
    let any = |list: &[Member], one: &Member| list.iter().any(|member| same(member, one));
    let is_not_selected = |one: &Member| {
        let mut its = wanted.present.iter().filter(|member| same(member, one));
        its.any(|member| !needs.selector.matches(&member.labels))
    };
    let is_absent = |one: &Member| any(&wanted.absent, one) && !any(&wanted.present, one);
    let leaves = |one: &&Member| is_absent(one) || is_not_selected(one);
    let mut remove: Vec<Member> = now.iter().filter(leaves).cloned().collect();
    if remove.len() == now.len() && add.is_empty() {
        remove.pop();
    }
    (!add.is_empty() || !remove.is_empty()).then_some((add, remove))
}

/// Explains why none of the wanted members can be a member. Returns `None` if one can, or if no
/// member is wanted.
pub(super) fn why_none(wanted: &Members, needs: Needs<'_>) -> Option<String> {
    let Needs { families, traits, selector } = needs;
    let can = |member: &Member| as_stored(member, needs).is_some();
    if wanted.present.is_empty() || wanted.present.iter().any(can) {
        return None;
    }
    if !wanted.present.iter().any(|member| selector.matches(&member.labels)) {
        return Some(format!("none of {} nodes has the labels {selector}", wanted.present.len()));
    }
    let families: Vec<_> = families.iter().map(ToString::to_string).collect();
    let mut needs = Vec::new();
    needs.extend(traits.member_addresses.then(|| format!("an {} address", families.join(" or "))));
    needs.extend(traits.member_ids.then(|| "a provider ID".to_owned()));
    Some(format!("none of {} nodes has {}", wanted.present.len(), needs.join(" and ")))
}

/// Returns true if both are the same node: by name, or by an address if the cloud has no name.
pub(super) fn same(one: &Member, other: &Member) -> bool {
    match (one.node.is_empty(), other.node.is_empty()) {
        (false, false) => one.node == other.node,
        (true, _) => !one.addresses.is_empty() && other.is_shown_as(one),
        (false, true) => !other.addresses.is_empty() && one.is_shown_as(other),
    }
}

/// Returns the part of a member that the cloud stores. `None` if it lacks what the cloud needs.
fn as_stored(member: &Member, needs: Needs<'_>) -> Option<Member> {
    let Needs { families, traits, selector } = needs;
    let addresses: Vec<_> = families
        .iter()
        .filter_map(|family| member.address(*family))
        .map(|ip| NodeAddress::new(AddressKind::InternalIp, ip.to_string()))
        .collect();
    if !selector.matches(&member.labels)
        || (traits.member_addresses && addresses.is_empty())
        || (traits.member_ids && member.provider_id.is_none())
    {
        return None;
    }
    let provider_id = member.provider_id.clone().filter(|_| traits.member_ids);
    Some(Member { node: member.node.clone(), provider_id, addresses, ..member_without_labels() })
}

fn member_without_labels() -> Member {
    Member {
        node: String::new(),
        provider_id: None,
        addresses: Vec::new(),
        labels: std::sync::Arc::default(),
    }
}
