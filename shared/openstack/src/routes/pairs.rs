//! The allowed address pairs of a port. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use ccm_openstack_client::network::Hop;
use ipnet::IpNet;
use serde_json::{Value, json};

/// Returns why the route by this next hop carries no traffic, in words for people.
pub fn lacks(port: &Hop, hop: IpAddr, destination: IpNet) -> Option<String> {
    let is_open = !port.is_protected()
        || port.allowed_address_pairs.iter().any(|pair| {
            own_network(port, pair).is_some_and(|network| network.contains(&destination))
        });
    (!is_open).then(|| format!("the port of {hop} does not allow {destination}"))
}

/// Returns the pairs of the port with some added and others removed. Pairs that are wider, or of
/// another MAC address, are not ours and stay.
pub fn changed(port: &Hop, add: &BTreeSet<IpNet>, remove: &BTreeSet<IpNet>) -> Option<Vec<Value>> {
    let before = &port.allowed_address_pairs;
    let is_removed = |pair: &&Value| own_network(port, pair).is_some_and(|it| remove.contains(&it));
    let mut pairs: Vec<Value> = before.iter().filter(|pair| !is_removed(pair)).cloned().collect();
    let has: BTreeSet<IpNet> = pairs.iter().filter_map(|pair| own_network(port, pair)).collect();
    let missing = add.iter().filter(|network| !has.contains(network));
    pairs.extend(missing.map(|network| json!({ "ip_address": network.to_string() })));
    (pairs != *before).then_some(pairs)
}

/// Returns the network of a pair for the port's own MAC address.
fn own_network(port: &Hop, pair: &Value) -> Option<IpNet> {
    let mac = pair["mac_address"].as_str();
    let is_own = match (mac, &port.mac_address) {
        (Some(mac), Some(own)) => mac.eq_ignore_ascii_case(own),
        _ => true,
    };
    let text = pair["ip_address"].as_str().filter(|_| is_own)?;
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.ok().map(|network| network.trunc())
}
