//! Determines the place of a load balancer: finds the values that annotations and options leave
//! open.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, IpFamily, Note};
use ccm_openstack_client::{
    lbaas::AdditionalVip,
    network::{FloatingIp, Subnet},
    text::MAX_VALUE,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Context,
    annotations::{self, FloatingNetwork, Given, PREFIX, Source, remark},
    floating::Wish,
    job::{Job, SINGLE_STACK, invalid},
};

/// How long the external network that was found is used again.
const FRESH: Duration = Duration::from_mins(10);

/// The external network that was found, and when.
pub type External = Mutex<Option<(Option<String>, Instant)>>;

/// The place of a new load balancer.
#[derive(Clone, Debug, Default)]
pub struct Place {
    pub port: Option<String>,
    pub network: Option<String>,
    pub subnet: Option<String>,
    /// The virtual address, if it is not left to Octavia.
    pub address: Option<IpAddr>,
    pub additional: Vec<AdditionalVip>,
    pub families: Vec<IpFamily>,
    pub member_subnet: Option<String>,
    pub notes: Vec<Note>,
}

impl Place {
    /// Returns the family of the virtual address.
    pub fn family(&self) -> IpFamily {
        self.families.first().copied().unwrap_or(IpFamily::V4)
    }

    /// Returns the addresses that are not left to Octavia.
    pub fn addresses(&self) -> Vec<String> {
        let additional = self.additional.iter().filter_map(|vip| vip.ip_address);
        self.address.into_iter().chain(additional).map(|address| address.to_string()).collect()
    }
}

/// Returns the place of a new load balancer.
pub async fn find_place(job: &Job<'_>) -> Result<Place, CloudError> {
    let cx = job.cx;
    let networks = &job.settings.networks;
    let value = |given: &Option<Given>| given.as_ref().map(|given| given.value.clone());
    let families = &job.wanted.front_end.families;
    let first = families.first().copied().unwrap_or(IpFamily::V4);
    let members = networks.members(&cx.config).map(|given| given.value);
    let mut place = Place {
        port: value(&networks.port),
        network: value(&networks.network),
        subnet: value(&networks.subnet),
        address: job.own_address(first),
        families: vec![first],
        member_subnet: members,
        ..Place::default()
    };
    if place.port.is_some() {
        (place.network, place.subnet) = (None, None);
        return Ok(place);
    }
    if place.network.is_none() && place.subnet.is_none() {
        let subnet = subnet_of_nodes(job, first).await?;
        place.member_subnet = place.member_subnet.or_else(|| Some(subnet.clone()));
        place.subnet = Some(subnet);
    }
    if families.len() > 1 {
        second_family(job, &mut place).await?;
    }
    Ok(place)
}

/// Refuses a members' subnet of an annotation that does not exist: Octavia looks for it only when
/// a member is added later.
pub async fn check_member_subnet(job: &Job<'_>) -> Result<(), CloudError> {
    let cx = job.cx;
    let Some(Given { value, source }) =
        job.settings.networks.member_subnet.as_ref().filter(|it| it.source.is_annotation())
    else {
        return Ok(());
    };
    if cx.neutron.subnet(value, cx.call).await?.is_some() {
        return Ok(());
    }
    let (value, right) = (one_line(value, MAX_VALUE), "must be one that this project may use");
    let what = format!("{source}: {value}: {right}: Neutron has no such subnet");
    Err(invalid(source.to_string(), what))
}

/// Returns the subnet of the first node's address.
async fn subnet_of_nodes(job: &Job<'_>, family: IpFamily) -> Result<String, CloudError> {
    let cx = job.cx;
    let lacking = |what: &str| {
        let right = format!(
            "set subnet-id or network-id in [LoadBalancer] or by annotation {PREFIX}subnet-id"
        );
        let what = format!("[LoadBalancer] subnet-id is not set, and {what}: {right}");
        // Nodes may join without a change of the Service, so this error is not final.
        CloudError::new(ErrorKind::Conflict, what).about("[LoadBalancer] subnet-id")
    };
    let mut nodes = job.wanted.members.present.iter();
    let Some(address) = nodes.find_map(|node| node.address(family)) else {
        return Err(lacking(&format!("no node has an {family} address to find it by")));
    };
    let ports = cx.neutron.ports_of_addresses(&BTreeSet::from([address]), cx.call).await?;
    let subnet = |is_server: bool| {
        let ports =
            ports.iter().filter(|port| !is_server || port.device_owner.starts_with("compute:"));
        let subnets = ports.flat_map(|port| &port.fixed_ips);
        let subnets: BTreeSet<&String> =
            subnets.filter(|ip| ip.ip_address == address).map(|ip| &ip.subnet_id).collect();
        (subnets.len() == 1).then(|| subnets.first().map(|it| (*it).clone())).flatten()
    };
    subnet(true).or_else(|| subnet(false)).ok_or_else(|| {
        lacking(&format!("the node's address {address} is in no single subnet of the project"))
    })
}

/// Adds an address of the second family, from a subnet of the same network.
async fn second_family(job: &Job<'_>, place: &mut Place) -> Result<(), CloudError> {
    let cx = job.cx;
    let families = &job.wanted.front_end.families;
    let subnet = match &place.subnet {
        Some(id) => cx.neutron.subnet(id, cx.call).await?,
        None => None,
    };
    let network = place.network.clone().or_else(|| Some(subnet.as_ref()?.network_id.clone()));
    let Some(network) = network else {
        let id = place.subnet.clone().unwrap_or_default();
        return Err(invalid("subnet", format!("the project has no subnet {id}")));
    };
    let subnets = cx.neutron.subnets_of(&network, cx.call).await?;
    let of = |family: IpFamily| {
        let version = if family == IpFamily::V4 { 4 } else { 6 };
        subnets.iter().find(move |subnet: &&Subnet| subnet.ip_version == version)
    };
    for (number, family) in families.iter().enumerate() {
        match (number, of(*family)) {
            (0, found) => {
                place.subnet = place.subnet.take().or_else(|| Some(found?.id.clone()));
            }
            (_, Some(found)) => {
                let (subnet_id, ip_address) = (found.id.clone(), None);
                place.additional.push(AdditionalVip { subnet_id, ip_address });
                place.families.push(*family);
            }
            (_, None) => {
                let what = format!(
                    "spec.ipFamilies: network {network} has no {family} subnet, so the load \
                     balancer has no {family} address"
                );
                place.notes.push(remark(SINGLE_STACK, what));
            }
        }
    }
    Ok(())
}

/// Determines the floating IP that a load balancer with this virtual address should have. Notes
/// say why it does not get one.
pub async fn wish(
    job: &Job<'_>,
    vip: IpFamily,
    attached: &[FloatingIp],
    notes: &mut Vec<Note>,
) -> Result<Wish, CloudError> {
    let cx = job.cx;
    let settings = &job.settings;
    if settings.internal {
        // Keeps the floating IP that the Service still names.
        let is_named = attached.iter().any(|ip| Some(ip.address) == job.wanted.front_end.address);
        return Ok(Wish::Internal { keep: settings.keep_floating || is_named });
    }
    if vip == IpFamily::V6 {
        let message = "an IPv6 address needs no floating IP".to_owned();
        let reason = "LoadBalancerFloatingIPSkipped".to_owned();
        notes.push(Note { reason, message, warning: false });
        return Ok(Wish::Untouched);
    }
    let network = match &settings.networks.floating {
        FloatingNetwork::Named(given) => given.clone(),
        FloatingNetwork::Refused(source) => {
            if attached.is_empty() {
                let what =
                    format!("{source} is empty, so the load balancer does not get a floating IP");
                notes.push(remark("LoadBalancerForcedInternal", what));
            }
            return Ok(Wish::Untouched);
        }
        FloatingNetwork::Found => {
            let known = attached.first().map(|ip| ip.floating_network_id.clone());
            let found = match known {
                Some(network) => Some(network),
                None => external_network(cx).await?,
            };
            let Some(value) = found else {
                let what = format!(
                    "the project does not see an external network with IPv4, so the load balancer does \
                     not get a floating IP: set [LoadBalancer] floating-network-id, or annotation {PREFIX}\
                     floating-network-id, or {}=true",
                    annotations::INTERNAL
                );
                notes.push(remark("LoadBalancerForcedInternal", what));
                return Ok(Wish::Untouched);
            };
            Given { value, source: Source::Found }
        }
    };
    let subnet = settings.networks.floating_subnet.as_ref().map(|given| given.value.clone());
    let (address, keep) = (job.wanted.front_end.address, settings.keep_floating);
    Ok(Wish::External { network, subnet, address, keep })
}

/// Returns the subnet that the Service asks for, if an existing floating IP can be compared with
/// it.
pub async fn floating_subnet(
    job: &Job<'_>,
    wish: &Wish,
    attached: &[FloatingIp],
) -> Result<Option<Subnet>, CloudError> {
    let cx = job.cx;
    let given = job.settings.networks.floating_subnet.as_ref();
    let is_compared = matches!(wish, Wish::External { address: None, .. });
    match given.filter(|given| is_compared && given.source.is_of_service() && !attached.is_empty())
    {
        Some(given) => cx.neutron.subnet(&given.value, cx.call).await,
        None => Ok(None),
    }
}

/// Returns the first external network, in Neutron's order, that has or may have IPv4.
async fn external_network(cx: Context<'_>) -> Result<Option<String>, CloudError> {
    let known = cx.external.lock().clone();
    if let Some((network, at)) = known
        && at.elapsed() < FRESH
    {
        return Ok(network);
    }
    let mut found = None;
    for network in cx.neutron.external_networks(cx.call).await? {
        let subnets = cx.neutron.subnets_of(&network.id, cx.call).await?;
        let seen: BTreeMap<&str, u8> =
            subnets.iter().map(|subnet| (&*subnet.id, subnet.ip_version)).collect();
        let may = |id: &String| seen.get(&**id).is_none_or(|version| *version == 4);
        if network.subnets.iter().any(may) {
            found = Some(network.id);
            break;
        }
    }
    *cx.external.lock() = Some((found.clone(), Instant::now()));
    Ok(found)
}
