//! Notes about properties that a load balancer should not have, but that cannot be or are not
//! changed. Pure.

use std::net::IpAddr;

use ccm_base::message::one_line;
use ccm_cloud::{IpFamily, Note};
use ccm_openstack_client::{
    lbaas::BalancerRow,
    network::{FloatingIp, Subnet},
    text::MAX_VALUE,
};
use ipnet::IpNet;

use super::{
    annotations::{FloatingNetwork, Given, INTERNAL, Settings, Source, remark},
    current::Seen,
    features::driver,
    floating::{Elsewhere, Wish},
    job::{Job, SINGLE_STACK},
    names,
};

/// The reason of a note about what stays as it is.
const KEPT: &str = "LoadBalancerNotChanged";
/// The way to get a property that only a new load balancer can have.
const ANEW: &str = "cannot be changed in place; delete and recreate the Service";

/// Returns a difference. Options of `cloud.conf` are for new load balancers: an existing one keeps
/// its properties, without a warning.
fn kept(given: &Given, what: &str) -> Note {
    let (value, warning) = (one_line(&given.value, MAX_VALUE), given.source.is_of_service());
    let note = remark(KEPT, format!("{}: {value} {what}", given.source));
    Note { warning, ..note }
}

/// Returns all differences except the floating IP's.
pub fn differences(seen: &Seen, job: &Job<'_>, families: &[IpFamily]) -> Vec<Note> {
    let (row, settings) = (&seen.row, &job.settings);
    let mut notes = of_place(row, job);
    notes.extend(of_members(seen, job));
    let family = families.first().copied().unwrap_or(IpFamily::V4);
    if let (Some(wished), Some(vip)) = (job.own_address(family), row.vip_address)
        && wished != vip
    {
        notes.push(kept(&of_spec(wished), &anew(&vip.to_string())));
    }
    for family in job.wanted.front_end.families.iter().filter(|one| !families.contains(one)) {
        let of = families.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let what = format!(
            "spec.ipFamilies: {family} has no effect on this load balancer, which has {of}: it needs a network \
             with an {family} subnet, and {ANEW}"
        );
        notes.push(remark(SINGLE_STACK, what));
    }
    let unmanaged = settings.unmanaged.iter().map(|given| {
        let what = format!("{}: the existing value is kept; {}", given.source, given.value);
        remark("LoadBalancerPartNotManaged", what)
    });
    notes.extend(unmanaged);
    notes
}

fn of_spec(address: IpAddr) -> Given {
    Given { value: address.to_string(), source: Source::Field("spec.loadBalancerIP") }
}

fn anew(seen: &str) -> String {
    format!("has no effect on this load balancer, which has {seen}: {ANEW}")
}

/// Returns the properties that are fixed at the creation: driver, flavor, zone, and the place of
/// the virtual address.
fn of_place(row: &BalancerRow, job: &Job<'_>) -> Vec<Note> {
    let provider = &job.cx.config.load_balancer.provider;
    let Job { settings, features, .. } = job;
    let networks = &settings.networks;
    let mut notes = Vec::new();
    if let Some(seen) = row.provider.as_deref()
        && driver(seen) != driver(provider)
    {
        let source = Source::Option("lb-provider");
        notes.push(kept(&Given { value: provider.clone(), source }, &anew(seen)));
    }
    // A port takes precedence over network and subnet.
    let has_no_port = networks.port.is_none();
    for (given, counts, seen) in [
        (&settings.flavor, features.flavors(), &row.flavor_id),
        (&settings.zone, features.zones(), &row.availability_zone),
        (&networks.network, has_no_port, &row.vip_network_id),
        (&networks.subnet, has_no_port, &row.vip_subnet_id),
        (&networks.port, true, &row.vip_port_id),
    ] {
        if let Some(given) = given.as_ref().filter(|_| counts)
            && seen.as_ref() != Some(&given.value)
        {
            notes.push(kept(given, &anew(seen.as_deref().unwrap_or("none"))));
        }
    }
    notes
}

/// Returns the members' subnet that the Service asks for, and which is read only then.
pub fn members_subnet(settings: &Settings) -> Option<&Given> {
    settings.networks.member_subnet.as_ref().filter(|given| given.source.is_of_service())
}

/// Returns a member that is in another subnet than those that join.
fn of_members(seen: &Seen, job: &Job<'_>) -> Option<Note> {
    let given = members_subnet(&job.settings)?;
    let is_node =
        |name: &str| job.wanted.members.present.iter().any(|one| one.node == names::node(name));
    let mut members = seen.members.values().flatten().filter(|member| is_node(&member.name));
    let (name, subnet) = members.find_map(|member| {
        let subnet = member.details.as_ref()?.subnet_id.as_deref();
        (subnet != Some(&given.value)).then(|| (&member.name, subnet.unwrap_or("none")))
    })?;
    let what = format!(
        "is the subnet of members that join: existing members stay where they are, such as {} \
         in {subnet}",
        one_line(name, MAX_VALUE)
    );
    Some(kept(given, &what))
}

/// Returns the wishes that the floating IP does not meet while the load balancer is external.
/// `subnet` is the floating subnet that the Service asks for, if the project may see it.
pub fn of_floating(
    wish: &Wish,
    settings: &Settings,
    attached: &[FloatingIp],
    elsewhere: &Elsewhere,
    subnet: Option<&Subnet>,
) -> Option<Note> {
    let FloatingIp { address: shown, floating_network_id: network, .. } = attached.first()?;
    match (wish, &settings.networks.floating) {
        (Wish::Untouched, FloatingNetwork::Refused(source)) => {
            let what = format!(
                "{source} is empty, which has no effect on this load balancer: its floating IP \
                 {shown} stays; {INTERNAL}=true removes it"
            );
            Some(remark(KEPT, what))
        }
        // The requested address decides the network.
        (Wish::External { address: Some(wished), .. }, _) => {
            let is_there = attached.iter().any(|ip| ip.address == *wished);
            let what = format!(
                "has no effect: the project has no such floating IP, so {shown} stays; choose one \
                 that it has, or leave it empty"
            );
            let is_had = is_there || elsewhere.wished.is_some();
            (!is_had).then(|| kept(&of_spec(*wished), &what))
        }
        (Wish::External { network: given, .. }, _) => {
            let is_outside = |subnet: &&Subnet| {
                subnet.cidr.parse::<IpNet>().is_ok_and(|range| !range.contains(shown))
            };
            let of_subnet = settings.networks.floating_subnet.as_ref();
            let differs = match given.value == *network {
                true => subnet.filter(is_outside).and(of_subnet),
                false => Some(given),
            };
            let what = format!(
                "has no effect on floating IP {shown} of network {network}, which stays: only a \
                 new one can be of it; make the load balancer internal and external again to get \
                 one"
            );
            differs.map(|given| kept(given, &what))
        }
        _ => None,
    }
}
