//! Nodes.

use serde_json::Value;

use super::{super::status::Cause, names};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check(node: &Value, causes: &mut Vec<Cause>) {
    let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, taint) in taints.iter().enumerate() {
        // The real server says metadata here, but means spec.
        check_taint(taint, &format!("metadata.taints[{index}]"), causes);
        let same =
            |other: &&Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        if taints.iter().take(index).any(|other| same(&other)) {
            let (key, value) = (&taint["key"], taint["value"].as_str().unwrap_or_default());
            let shown = format!(
                "{{\"Key\":{key},\"Value\":{value:?},\"Effect\":{},\"TimeAdded\":{}}}: \
                 taints must be unique by key and effect pair",
                taint["effect"], taint["timeAdded"]
            );
            causes.push(Cause::duplicate(format!("metadata.taints[{index}]"), &shown));
        }
    }
    let addresses = node["status"]["addresses"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, address) in addresses.iter().enumerate() {
        if addresses.iter().take(index).any(|other| other == address) {
            let shown =
                format!("{{\"Type\":{},\"Address\":{}}}", address["type"], address["address"]);
            causes.push(Cause::duplicate(format!("status.addresses[{index}]"), &shown));
        }
    }
    check_pod_cidrs(&node["spec"]["podCIDRs"], causes);
}

fn check_taint(taint: &Value, field: &str, causes: &mut Vec<Cause>) {
    let text = |name: &str| taint[name].as_str().unwrap_or_default();
    let key = format!("{field}.key");
    causes.extend(
        names::qualified(text("key"))
            .iter()
            .map(|problem| Cause::invalid(&key, &taint["key"], problem)),
    );
    let value = format!("{field}.value");
    let problems = names::label_value(text("value"));
    causes.extend(problems.iter().map(|problem| Cause::invalid(&value, &taint["value"], problem)));
    let effect = format!("{field}.effect");
    match text("effect") {
        "" => causes.push(Cause::required(effect, "")),
        known if EFFECTS.contains(&known) => {}
        _ => causes.push(Cause::unsupported(effect, &taint["effect"], &EFFECTS)),
    }
}

fn check_pod_cidrs(cidrs: &Value, causes: &mut Vec<Cause>) {
    let cidrs = cidrs.as_array().map_or(&[][..], Vec::as_slice);
    for (index, cidr) in cidrs.iter().enumerate() {
        let legal =
            cidr.as_str().and_then(|text| text.split_once('/')).is_some_and(|(address, bits)| {
                let max = match address.parse::<std::net::IpAddr>() {
                    Ok(std::net::IpAddr::V4(_)) => 32,
                    Ok(std::net::IpAddr::V6(_)) => 128,
                    Err(_) => return false,
                };
                bits.parse::<u8>().is_ok_and(|bits| bits <= max)
            });
        if !legal {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            causes.push(Cause::invalid(format!("spec.podCIDRs[{index}]"), cidr, detail));
        }
    }
}

/// Checks that provider ID and pod CIDRs are set only once.
pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let (old, new) = (&old["spec"], &new["spec"]);
    let had_cidrs = old["podCIDRs"].as_array().is_some_and(|cidrs| !cidrs.is_empty());
    if had_cidrs && old["podCIDRs"] != new["podCIDRs"] {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        causes.push(Cause::forbidden("spec.podCIDRs", detail));
    }
    let had_id = old["providerID"].as_str().is_some_and(|id| !id.is_empty());
    if had_id && old["providerID"] != new["providerID"] {
        let detail = "node updates may not change providerID except from \"\" to valid";
        causes.push(Cause::forbidden("spec.providerID", detail));
    }
}
