//! Plans the changes of a load balancer's floating IP. Pure.

use std::net::IpAddr;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind, Owner};
use ccm_openstack_client::{network::FloatingIp, text::MAX_VALUE};
use serde_json::json;

use super::{
    annotations::Given,
    names,
    steps::{self, FloatingAct as Act, Step},
};

/// The floating IP that the load balancer should have, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// No floating IP.
    Internal {
        /// True if one that was made for it is kept.
        keep: bool,
    },
    /// The floating IP stays as it is: the virtual address cannot have one, or no network offers
    /// one.
    Untouched,
    /// A floating IP of this network.
    External {
        network: Given,
        subnet: Option<String>,
        /// The address that the user asks for.
        address: Option<IpAddr>,
        /// True if one that was made for it is kept when it is exchanged.
        keep: bool,
    },
}

/// Floating IPs that are not attached to the virtual address, as far as they were searched for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elsewhere {
    /// The one with the address that the user asks for.
    pub wished: Option<FloatingIp>,
    /// The floating IPs with the owner's tags.
    pub tagged: Vec<FloatingIp>,
}

/// The search that is necessary before the changes are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Looks for the floating IP with this address.
    pub address: Option<IpAddr>,
    /// Looks for the floating IPs with the owner's tags.
    pub tags: bool,
}

/// Returns the necessary search. `may_be_left` says that this owner may have an unattached floating
/// IP, from an earlier load balancer or an interrupted exchange.
pub fn search(wish: &Wish, attached: &[FloatingIp], may_be_left: bool) -> Search {
    let Wish::External { address, .. } = wish else { return Search::default() };
    let is_attached = |address: &IpAddr| attached.iter().any(|ip| ip.address == *address);
    let tags = may_be_left && (address.is_some() || attached.is_empty());
    Search { address: address.filter(|address| !is_attached(address)), tags }
}

/// Returns the changes.
pub fn plan(
    wish: &Wish,
    owner: &Owner,
    attached: &[FloatingIp],
    elsewhere: &Elsewhere,
) -> Result<Vec<Step>, CloudError> {
    let (address, keep) = match wish {
        Wish::Internal { keep } => {
            return Ok(attached.iter().map(|ip| release(ip, owner, *keep)).collect());
        }
        Wish::Untouched => return Ok(Vec::new()),
        Wish::External { address, keep, .. } => (address, *keep),
    };
    let mut steps = Vec::new();
    match (attached, address, &elsewhere.wished) {
        (attached, Some(address), _) if attached.iter().any(|ip| ip.address == *address) => {
            // These are left from an interrupted exchange.
            let own = attached.iter().filter(|ip| is_ours(ip, owner) && ip.address != *address);
            steps.extend(own.map(|ip| release(ip, owner, keep)));
            steps.extend(left(elsewhere, owner, keep, *address));
        }
        (_, Some(_), Some(wished)) if whose(wished, owner).is_some() => {
            return Err(of_another(wished, owner));
        }
        (_, Some(address), Some(wished)) if wished.port_id.is_some() => {
            return Err(taken(*address, wished));
        }
        (attached, Some(_), Some(wished)) => {
            steps.extend(exchange(wished, attached, elsewhere, owner, keep));
            // The record follows the attachment, which requires the revision that was read.
            steps.extend(record(wished, owner, true));
        }
        // The attached one stays: no address is requested, or the requested one does not exist.
        ([_, ..], ..) => {}
        ([], ..) if elsewhere.tagged.iter().any(is_free) => {
            let free = elsewhere.tagged.iter().find(|ip| is_free(ip));
            steps.extend(free.map(|ip| attach(ip, Act::Attach(ip.clone()))));
        }
        ([], ..) => steps.extend(creation(wish, owner)),
    }
    if steps.is_empty() {
        let record = |ip: &FloatingIp| record(ip, owner, Some(ip.address) == *address);
        steps.extend(attached.iter().filter_map(record));
    }
    Ok(steps)
}

/// Records the owner on a floating IP that a controller made, if it has no owner or the owner is an
/// earlier Service of this name, even in a cluster that was rebuilt. Does not change a floating IP
/// that a person made or that another owner has.
fn record(ip: &FloatingIp, owner: &Owner, is_asked_for: bool) -> Option<Step> {
    let lacks = names::is_made_floating(&ip.description) && lacks_owner(ip, owner);
    let is_its = whose(ip, owner).is_none() || names::is_floating_of(&ip.description, owner);
    (lacks && is_its).then(|| {
        let line = format!("record the owner with floating IP {}", ip.address);
        step(line, Act::Tag(ip.id.clone(), tags(&ip.tags, owner, is_asked_for)))
    })
}

/// Records that the user asks for an address that the cloud has chosen: the provider then keeps it when
/// the user asks for another one. Writes only while the configuration changes, not after an upgrade.
pub fn asked_for(
    wish: &Wish,
    owner: &Owner,
    attached: &[FloatingIp],
    is_changing: bool,
    planned: &[Step],
) -> Option<Step> {
    let is_tag = |step: &Step| matches!(step.act, steps::Act::Floating(Act::Tag(..)));
    let is_recorded = planned.iter().any(is_tag);
    let Wish::External { address: Some(address), .. } = wish else { return None };
    let ip = attached.iter().find(|ip| ip.address == *address && may_go(ip, owner));
    ip.filter(|_| is_changing && !is_recorded).map(|ip| {
        let line = format!("record that floating IP {} was asked for", ip.address);
        step(line, Act::Tag(ip.id.clone(), tags(&ip.tags, owner, true)))
    })
}

/// Refuses to replace a load balancer if the new one could not get the floating IP that the Service
/// names, because its tags name another owner.
pub fn check_named(
    attached: &[FloatingIp],
    owner: &Owner,
    named: Option<IpAddr>,
) -> Result<(), CloudError> {
    let own = names::owner_tags(owner);
    let of_another_tag = |tag: &String| names::is_owner_tag(tag) && !own.contains(tag);
    let is_lost = |ip: &&FloatingIp| {
        Some(ip.address) == named && is_of_another(ip, owner) && ip.tags.iter().any(of_another_tag)
    };
    attached.iter().find(is_lost).map_or(Ok(()), |ip| Err(of_another(ip, owner)))
}

fn step(line: String, act: Act) -> Step {
    Step::new(line, steps::Act::Floating(act))
}

fn attach(ip: &FloatingIp, act: Act) -> Step {
    step(format!("attach floating IP {}", ip.address), act)
}

fn release(ip: &FloatingIp, owner: &Owner, keep: bool) -> Step {
    match !keep && may_go(ip, owner) {
        true => step(format!("delete floating IP {}", ip.address), Act::Release(ip.id.clone())),
        false => step(format!("detach floating IP {}", ip.address), Act::Detach(ip.clone())),
    }
}

/// Deletes the free floating IPs of the owner, except the one with the address `but`: an earlier
/// exchange or an earlier load balancer has left them.
fn left(
    elsewhere: &Elsewhere,
    owner: &Owner,
    keep: bool,
    but: IpAddr,
) -> impl Iterator<Item = Step> {
    let is_left =
        move |ip: &&FloatingIp| !keep && is_free(ip) && may_go(ip, owner) && ip.address != but;
    elsewhere.tagged.iter().filter(is_left).map(move |ip| release(ip, owner, keep))
}

/// Returns the wished one instead of the attached ones. A port may have one of each external
/// network, so another network's stays until the wished one is attached.
fn exchange(
    wished: &FloatingIp,
    attached: &[FloatingIp],
    elsewhere: &Elsewhere,
    owner: &Owner,
    keep: bool,
) -> Vec<Step> {
    let network = &wished.floating_network_id;
    let same = attached.iter().find(|ip| ip.floating_network_id == *network);
    let is_other = |ip: &&FloatingIp| is_free(ip) && is_ours(ip, owner) && ip.id != wished.id;
    let free = || elsewhere.tagged.iter().find(is_other);
    let instead_of = same.or_else(|| free().filter(|_| attached.is_empty()));
    let instead_of = instead_of.cloned().map(Box::new);
    let mut steps = vec![attach(wished, Act::Wished { ip: wished.clone(), instead_of })];
    // This detaches the floating IP of the same network.
    let goes =
        |ip: &&FloatingIp| same.is_none_or(|same| same.id != ip.id) || !keep && may_go(ip, owner);
    steps.extend(attached.iter().filter(goes).map(|ip| release(ip, owner, keep)));
    steps.extend(left(elsewhere, owner, keep, wished.address));
    steps
}

/// Creates a floating IP.
fn creation(wish: &Wish, owner: &Owner) -> Option<Step> {
    let Wish::External { network, subnet, address, .. } = wish else { return None };
    let mut body = json!({
        "floating_network_id": network.value,
        "description": names::floating(owner),
    });
    if let Some(subnet) = subnet {
        body["subnet_id"] = subnet.clone().into();
    }
    if let Some(address) = address {
        body["floating_ip_address"] = address.to_string().into();
    }
    Some(step(format!("create a floating IP of network {}", network.value), Act::Create(body)))
}

/// Returns the tags of a floating IP of this owner.
pub fn tags(there: &[String], owner: &Owner, is_asked_for: bool) -> Vec<String> {
    let is_kept = |tag: &&String| !names::is_owner_tag(tag) && *tag != names::ASKED_FOR;
    let kept = there.iter().filter(is_kept).cloned();
    let stays = is_asked_for || is_asked(there);
    let asked_for = stays.then(|| names::ASKED_FOR.to_owned());
    kept.chain(names::owner_tags(owner)).chain(asked_for).collect()
}

/// Adds the virtual address that the next load balancer should have.
pub fn kept_tags(
    there: &[String],
    owner: &Owner,
    is_asked_for: bool,
    vip: Option<IpAddr>,
) -> Vec<String> {
    let mut tags = tags(there, owner, is_asked_for);
    tags.retain(|tag| !tag.starts_with(names::VIP));
    tags.extend(vip.map(|vip| names::tag(names::VIP, vip)));
    tags
}

fn lacks_owner(ip: &FloatingIp, owner: &Owner) -> bool {
    !names::owner_tags(owner).iter().all(|tag| ip.tags.contains(tag))
}

fn is_asked(tags: &[String]) -> bool {
    tags.iter().any(|tag| tag == names::ASKED_FOR)
}

/// Returns true if it was made for this owner's load balancer.
pub fn is_ours(ip: &FloatingIp, owner: &Owner) -> bool {
    let is_of_earlier =
        ip.tags.iter().any(|tag| names::is_owner_tag(tag)) && lacks_owner(ip, owner);
    names::is_made_floating(&ip.description) && !is_of_earlier && whose(ip, owner).is_none()
}

/// Returns true if the provider may delete it with this owner's load balancer.
pub fn may_go(ip: &FloatingIp, owner: &Owner) -> bool {
    is_ours(ip, owner) && !is_asked(&ip.tags)
}

/// Returns true if its tags or its description name another owner.
pub fn is_of_another(ip: &FloatingIp, owner: &Owner) -> bool {
    whose(ip, owner).is_some()
}

/// Returns the other owner that its tags or its description name. The tags take precedence over the
/// description. An earlier Service with the same namespace and name in the same cluster does not
/// count as another owner: the next Service may ask for what the earlier one has kept.
fn whose(ip: &FloatingIp, owner: &Owner) -> Option<String> {
    let made_for = names::floating_service(&ip.description);
    let named = |uid: &str| match made_for {
        Some((service, _)) => format!("Service {}", one_line(service, MAX_VALUE)),
        None => format!("the Service with UID {}", one_line(uid, MAX_VALUE)),
    };
    let service = names::services(&ip.tags).next();
    let mut clusters = names::clusters(&ip.tags);
    if let Some(uid) = names::clusters(&ip.tags).find(|uid| *uid != owner.cluster.uid) {
        let uid = one_line(uid, MAX_VALUE);
        return Some(format!("{} of the cluster with UID {uid}", named(service.unwrap_or("?"))));
    }
    let is_of_cluster = clusters.next().is_some();
    let is_of_name = match (is_of_cluster, made_for) {
        // The name of the cluster may have changed: compare only the Service.
        (true, Some((service, _))) => Some(service == owner.to_string()),
        (false, Some(_)) => Some(names::is_floating_of(&ip.description, owner)),
        (_, None) => None,
    };
    match (service, is_of_name) {
        (Some(uid), _) if uid == owner.uid && is_of_cluster => None,
        (_, Some(true)) => None,
        (None, None) => None,
        (Some(uid), None) => Some(named(uid)),
        (service, Some(false)) => {
            let of = made_for
                .filter(|_| !is_of_cluster)
                .map(|(_, cluster)| format!(" of cluster {}", one_line(cluster, MAX_VALUE)));
            Some(format!("{}{}", named(service.unwrap_or("?")), of.unwrap_or_default()))
        }
    }
}

pub fn is_free(ip: &FloatingIp) -> bool {
    ip.port_id.is_none()
}

fn of_another(ip: &FloatingIp, owner: &Owner) -> CloudError {
    let (address, whose) = (ip.address, whose(ip, owner).unwrap_or_default());
    let what = format!(
        "spec.loadBalancerIP: floating IP {address} belongs to {whose}, as its tags and its \
         description say: choose another address; if that Service should no longer have it, remove \
         the tags kubernetes-cluster-id= and kubernetes-service-uid= and the description from \
         floating IP {}",
        ip.id
    );
    CloudError::new(ErrorKind::Conflict, what).about(format!("address {address}"))
}

fn taken(address: IpAddr, ip: &FloatingIp) -> CloudError {
    let port = ip.port_id.as_deref().unwrap_or_default();
    let what = format!(
        "spec.loadBalancerIP: floating IP {address} is attached to port {port} already: detach it \
         there, or choose another address"
    );
    CloudError::new(ErrorKind::Conflict, what).about(format!("address {address}"))
}

#[cfg(test)]
mod tests;
