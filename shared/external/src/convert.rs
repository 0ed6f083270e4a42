//! Converts the contract's values to messages and back. Parsing is strict where a wrong value could
//! harm a node and lenient elsewhere. Values are destructured without `..`, so a field that only
//! one side has does not compile.

pub mod front_end;
pub mod load_balancers;
pub mod routes;

use std::fmt::Display;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    AbsenceProof, AddressKind, CloudError, Detail, ErrorKind, Instance, Lookup, LookupResult,
    NodeAddress, NodeIdentity, PowerState, Priority, ProofMethod, ProviderId, Wants,
};

use super::proto::{self, lookup_answer::Answer};

/// The maximum number of addresses of an instance, and of its other IDs. A node with more is
/// useless, and the work for one grows with the square of this number.
const MAX_ADDRESSES: usize = 256;
/// The maximum number of labels of an instance.
const MAX_LABELS: usize = 1_000;

pub fn malformed(what: impl Into<String>) -> CloudError {
    CloudError::new(ErrorKind::Malformed, one_line(&what.into(), LONGEST_LINE))
}

impl From<&NodeIdentity> for proto::NodeIdentity {
    fn from(node: &NodeIdentity) -> Self {
        let NodeIdentity { name, provider_id, system_uuid, uid, labels, addresses } = node;
        Self {
            name: Some(name.clone()),
            provider_id: provider_id.clone(),
            system_uuid: system_uuid.clone(),
            uid: uid.clone(),
            labels: labels.clone(),
            addresses: addresses.iter().map(address_to_wire).collect(),
        }
    }
}

/// Returns the urgency on the wire.
pub fn priority_to_wire(priority: Priority) -> i32 {
    match priority {
        Priority::Waiting => proto::Priority::Waiting.into(),
        Priority::Routine => proto::Priority::Routine.into(),
    }
}

/// Returns the requested parts of an instance, on the wire.
pub fn detail_to_wire(detail: Detail) -> i32 {
    match detail {
        Detail::Everything => proto::Detail::Everything.into(),
        Detail::Presence => proto::Detail::Presence.into(),
    }
}

/// Returns the parts of a node that a provider needs. Values unknown to this version are not sent.
pub fn wants_from_wire(fields: &[i32]) -> Wants {
    let mut wants = Wants::default();
    for field in fields.iter().filter_map(|field| proto::NodeField::try_from(*field).ok()) {
        match field {
            proto::NodeField::Uid => wants.uid = true,
            proto::NodeField::Labels => wants.labels = true,
            proto::NodeField::Addresses => wants.addresses = true,
            proto::NodeField::Unspecified => {}
        }
    }
    wants
}

impl TryFrom<proto::Instance> for Instance {
    type Error = CloudError;

    fn try_from(wire: proto::Instance) -> Result<Self, CloudError> {
        let proto::Instance {
            provider_id,
            other_ids,
            name,
            instance_type,
            zone,
            region,
            addresses,
            labels,
            power,
            pod_cidrs,
        } = wire;
        let (provider_id, name) = (provider_id.unwrap_or_default(), name.unwrap_or_default());
        let about =
            |what: &dyn Display| malformed(format!("instance {provider_id:?} ({name:?}): {what}"));
        for (count, most, what) in [
            (addresses.len(), MAX_ADDRESSES, "addresses"),
            (other_ids.len(), MAX_ADDRESSES, "other IDs"),
            (labels.len(), MAX_LABELS, "labels"),
            (pod_cidrs.len(), MAX_ADDRESSES, "pod CIDRs"),
        ] {
            if count > most {
                return Err(about(&format!("{count} {what}, more than {most}")));
            }
        }
        let id = |text: &String| ProviderId::parse(text).map_err(|error| about(&error));
        let network = |text: &String| {
            text.parse().map_err(|_| about(&format!("pod CIDR {text:?} is not a network")))
        };
        let text = |value: Option<String>| value.filter(|value| !value.is_empty());
        Ok(Self {
            withheld: None,
            provider_id: id(&provider_id)?,
            other_ids: other_ids.iter().map(id).collect::<Result<_, _>>()?,
            addresses: addresses
                .iter()
                .map(|address| address_from_wire(address).map_err(|what| about(&what)))
                .collect::<Result<_, _>>()?,
            instance_type: text(instance_type),
            zone: text(zone),
            region: text(region),
            // A state unknown to this version becomes `Unknown`.
            power: proto::PowerState::try_from(power.unwrap_or_default())
                .map_or(PowerState::Unknown, power_from_wire),
            pod_cidrs: pod_cidrs.iter().map(network).collect::<Result<_, _>>()?,
            name,
            labels,
        })
    }
}

pub fn address_to_wire(address: &NodeAddress) -> proto::NodeAddress {
    let kind = match address.kind {
        AddressKind::InternalIp => proto::AddressKind::InternalIp,
        AddressKind::ExternalIp => proto::AddressKind::ExternalIp,
        AddressKind::Hostname => proto::AddressKind::Hostname,
        AddressKind::InternalDns => proto::AddressKind::InternalDns,
        AddressKind::ExternalDns => proto::AddressKind::ExternalDns,
    };
    proto::NodeAddress { kind: Some(kind.into()), address: Some(address.address.clone()) }
}

pub fn address_from_wire(wire: &proto::NodeAddress) -> Result<NodeAddress, String> {
    let proto::NodeAddress { kind, address } = wire;
    let (number, address) = (kind.unwrap_or_default(), address.as_deref().unwrap_or_default());
    let kind = match proto::AddressKind::try_from(number) {
        Ok(proto::AddressKind::InternalIp) => AddressKind::InternalIp,
        Ok(proto::AddressKind::ExternalIp) => AddressKind::ExternalIp,
        Ok(proto::AddressKind::Hostname) => AddressKind::Hostname,
        Ok(proto::AddressKind::InternalDns) => AddressKind::InternalDns,
        Ok(proto::AddressKind::ExternalDns) => AddressKind::ExternalDns,
        Ok(proto::AddressKind::Unspecified) | Err(_) => {
            return Err(format!("address {address:?} is of unknown kind {number}"));
        }
    };
    if address.is_empty() {
        return Err(format!("an address of kind {kind} is empty"));
    }
    Ok(NodeAddress::new(kind, address))
}

fn power_from_wire(power: proto::PowerState) -> PowerState {
    match power {
        proto::PowerState::Running => PowerState::Running,
        proto::PowerState::Stopped => PowerState::Stopped,
        proto::PowerState::Changing => PowerState::Changing,
        proto::PowerState::Unspecified => PowerState::Unknown,
    }
}

/// Returns the answer about `node`. An invalid answer is an error for this node alone.
pub fn answer_from_wire(node: &NodeIdentity, wire: proto::LookupAnswer) -> LookupResult {
    if wire.node() != node.name {
        return Err(malformed(format!(
            "asked about node {:?}, the provider answered about {:?}",
            node.name,
            wire.node()
        )));
    }
    match wire.answer {
        Some(Answer::Found(instance)) => Ok(Lookup::Found(Box::new(instance.try_into()?))),
        Some(Answer::Gone(absence)) => match absence_from_wire(absence)? {
            AbsenceProof { method: ProofMethod::ProvidersWord, .. }
                if node.provider_id.is_none() =>
            {
                Err(malformed(
                    "the provider reported gone without evidence for a node without an ID",
                ))
            }
            AbsenceProof { method: ProofMethod::ByOwner, .. } => {
                Err(malformed("the provider says gone by owner, but an instance has no owner"))
            }
            proof => Ok(Lookup::Gone(proof)),
        },
        Some(Answer::NotOurs(not_ours)) => Ok(Lookup::NotOurs(not_ours.reason.unwrap_or_default())),
        Some(Answer::Error(error)) => Err(error.into()),
        None => {
            Err(malformed("the provider's answer holds none of found, gone, not_ours and error"))
        }
    }
}

/// Reads a proof of absence. Nodes are deleted because of this proof, so an incomplete one is
/// rejected.
pub fn absence_from_wire(wire: proto::Absence) -> Result<AbsenceProof, CloudError> {
    let proto::Absence { method, evidence, request_id, kept } = wire;
    let (number, evidence) = (method.unwrap_or_default(), evidence.unwrap_or_default());
    let method = match proto::ProofMethod::try_from(number) {
        Ok(proto::ProofMethod::ById) => ProofMethod::ById,
        Ok(proto::ProofMethod::BySystemUuid) => ProofMethod::BySystemUuid,
        Ok(proto::ProofMethod::ByName) => ProofMethod::ByName,
        Ok(proto::ProofMethod::ByOwner) => ProofMethod::ByOwner,
        Ok(proto::ProofMethod::ProvidersWord) => ProofMethod::ProvidersWord,
        Ok(proto::ProofMethod::Unspecified) | Err(_) => {
            return Err(malformed(format!(
                "the provider says gone by the unknown method {number}"
            )));
        }
    };
    if evidence.trim().is_empty() {
        return Err(malformed("the provider says gone without evidence"));
    }
    let whole = |text: &String| !text.trim().is_empty();
    Ok(AbsenceProof {
        method,
        evidence,
        request_id: request_id.filter(whole),
        kept: kept.filter(whole).map(|text| one_line(&text, LONGEST_LINE)),
    })
}

#[cfg(test)]
mod tests;
