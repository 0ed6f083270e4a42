//! The contract's values as messages, and back. Reading is strict where a wrong value
//! could harm a node and lenient where it cannot.

use std::fmt::Display;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    AbsenceProof, AddressKind, Call, CloudError, Detail, ErrorKind, Instance, Lookup, LookupResult,
    NodeAddress, NodeIdentity, PowerState, Priority, ProofMethod, ProviderId,
};

use super::proto::{self, lookup_answer::Answer};

fn malformed(what: impl Into<String>) -> CloudError {
    CloudError::new(ErrorKind::Malformed, one_line(&what.into(), LONGEST_LINE))
}

impl From<&NodeIdentity> for proto::NodeIdentity {
    fn from(node: &NodeIdentity) -> Self {
        Self {
            name: node.name.clone(),
            provider_id: node.provider_id.clone(),
            system_uuid: node.system_uuid.clone(),
        }
    }
}

impl From<proto::NodeIdentity> for NodeIdentity {
    fn from(node: proto::NodeIdentity) -> Self {
        Self { name: node.name, provider_id: node.provider_id, system_uuid: node.system_uuid }
    }
}

/// Who waits, as the wire says it.
pub(super) fn priority_to_wire(call: &Call) -> i32 {
    match call.priority {
        Priority::Waiting => proto::Priority::Waiting.into(),
        Priority::Routine => proto::Priority::Routine.into(),
    }
}

/// Who waits. What this version does not know is taken for the more urgent one.
pub(super) fn priority_from_wire(priority: proto::Priority) -> Priority {
    match priority {
        proto::Priority::Unspecified | proto::Priority::Waiting => Priority::Waiting,
        proto::Priority::Routine => Priority::Routine,
    }
}

/// What is wanted of an instance, as the wire says it.
pub(super) fn detail_to_wire(call: &Call) -> i32 {
    match call.detail {
        Detail::Everything => proto::Detail::Everything.into(),
        Detail::Presence => proto::Detail::Presence.into(),
    }
}

/// What is wanted of an instance. What this version does not know is everything.
pub(super) fn detail_from_wire(detail: proto::Detail) -> Detail {
    match detail {
        proto::Detail::Unspecified | proto::Detail::Everything => Detail::Everything,
        proto::Detail::Presence => Detail::Presence,
    }
}

impl From<&Instance> for proto::Instance {
    fn from(instance: &Instance) -> Self {
        Self {
            provider_id: instance.provider_id.as_str().to_owned(),
            other_ids: instance.other_ids.iter().map(|id| id.as_str().to_owned()).collect(),
            name: instance.name.clone(),
            instance_type: instance.instance_type.clone(),
            zone: instance.zone.clone(),
            region: instance.region.clone(),
            addresses: instance.addresses.iter().map(address_to_wire).collect(),
            labels: instance.labels.clone(),
            power: power_to_wire(instance.power).into(),
        }
    }
}

impl TryFrom<proto::Instance> for Instance {
    type Error = CloudError;

    fn try_from(wire: proto::Instance) -> Result<Self, CloudError> {
        let about = |what: &dyn Display| {
            malformed(format!("instance {:?} ({:?}): {what}", wire.provider_id, wire.name))
        };
        let id = |text: &String| ProviderId::parse(text).map_err(|error| about(&error));
        let text = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        Ok(Self {
            provider_id: id(&wire.provider_id)?,
            other_ids: wire.other_ids.iter().map(id).collect::<Result<_, _>>()?,
            addresses: wire
                .addresses
                .iter()
                .map(|address| address_from_wire(address).map_err(|what| about(&what)))
                .collect::<Result<_, _>>()?,
            instance_type: text(&wire.instance_type),
            zone: text(&wire.zone),
            region: text(&wire.region),
            // A state that this version does not know is what `Unknown` is for.
            power: proto::PowerState::try_from(wire.power)
                .map_or(PowerState::Unknown, power_from_wire),
            name: wire.name,
            labels: wire.labels,
        })
    }
}

fn address_to_wire(address: &NodeAddress) -> proto::NodeAddress {
    let kind = match address.kind {
        AddressKind::InternalIp => proto::AddressKind::InternalIp,
        AddressKind::ExternalIp => proto::AddressKind::ExternalIp,
        AddressKind::Hostname => proto::AddressKind::Hostname,
        AddressKind::InternalDns => proto::AddressKind::InternalDns,
        AddressKind::ExternalDns => proto::AddressKind::ExternalDns,
    };
    proto::NodeAddress { kind: kind.into(), address: address.address.clone() }
}

fn address_from_wire(wire: &proto::NodeAddress) -> Result<NodeAddress, String> {
    let kind = match proto::AddressKind::try_from(wire.kind) {
        Ok(proto::AddressKind::InternalIp) => AddressKind::InternalIp,
        Ok(proto::AddressKind::ExternalIp) => AddressKind::ExternalIp,
        Ok(proto::AddressKind::Hostname) => AddressKind::Hostname,
        Ok(proto::AddressKind::InternalDns) => AddressKind::InternalDns,
        Ok(proto::AddressKind::ExternalDns) => AddressKind::ExternalDns,
        Ok(proto::AddressKind::Unspecified) | Err(_) => {
            return Err(format!("address {:?} is of unknown kind {}", wire.address, wire.kind));
        }
    };
    if wire.address.is_empty() {
        return Err(format!("an address of kind {kind} is empty"));
    }
    Ok(NodeAddress::new(kind, &wire.address))
}

fn power_to_wire(power: PowerState) -> proto::PowerState {
    match power {
        PowerState::Running => proto::PowerState::Running,
        PowerState::Stopped => proto::PowerState::Stopped,
        PowerState::Changing => proto::PowerState::Changing,
        PowerState::Unknown => proto::PowerState::Unspecified,
    }
}

fn power_from_wire(power: proto::PowerState) -> PowerState {
    match power {
        proto::PowerState::Running => PowerState::Running,
        proto::PowerState::Stopped => PowerState::Stopped,
        proto::PowerState::Changing => PowerState::Changing,
        proto::PowerState::Unspecified => PowerState::Unknown,
    }
}

/// The answer for the node of this name.
pub(super) fn answer_to_wire(node: &str, result: &LookupResult) -> proto::LookupAnswer {
    let answer = match result {
        Ok(Lookup::Found(instance)) => Answer::Found(instance.as_ref().into()),
        Ok(Lookup::Gone(proof)) => Answer::Gone(absence_to_wire(proof)),
        Ok(Lookup::NotOurs(reason)) => Answer::NotOurs(proto::NotOurs { reason: reason.clone() }),
        Err(error) => Answer::Error(error.into()),
    };
    proto::LookupAnswer { node: node.to_owned(), answer: Some(answer) }
}

/// The answer about `node`. What cannot be understood is an error for this node alone.
pub(super) fn answer_from_wire(node: &NodeIdentity, wire: proto::LookupAnswer) -> LookupResult {
    if wire.node != node.name {
        return Err(malformed(format!(
            "asked about node {:?}, the provider answered about {:?}",
            node.name, wire.node
        )));
    }
    match wire.answer {
        Some(Answer::Found(instance)) => Ok(Lookup::Found(Box::new(instance.try_into()?))),
        Some(Answer::Gone(absence)) => absence_from_wire(absence).map(Lookup::Gone),
        Some(Answer::NotOurs(not_ours)) => Ok(Lookup::NotOurs(not_ours.reason)),
        Some(Answer::Error(error)) => Err(error.into()),
        None => {
            Err(malformed("the provider's answer holds none of found, gone, not_ours and error"))
        }
    }
}

fn absence_to_wire(proof: &AbsenceProof) -> proto::Absence {
    let method = match proof.method {
        ProofMethod::ById => proto::ProofMethod::ById,
        ProofMethod::BySystemUuid => proto::ProofMethod::BySystemUuid,
        ProofMethod::ByName => proto::ProofMethod::ByName,
    };
    proto::Absence {
        method: method.into(),
        evidence: proof.evidence.clone(),
        request_id: proof.request_id.clone(),
    }
}

/// Nodes are deleted on this word, so half a proof is none.
fn absence_from_wire(wire: proto::Absence) -> Result<AbsenceProof, CloudError> {
    let method = match proto::ProofMethod::try_from(wire.method) {
        Ok(proto::ProofMethod::ById) => ProofMethod::ById,
        Ok(proto::ProofMethod::BySystemUuid) => ProofMethod::BySystemUuid,
        Ok(proto::ProofMethod::ByName) => ProofMethod::ByName,
        Ok(proto::ProofMethod::Unspecified) | Err(_) => {
            return Err(malformed(format!(
                "the provider says gone by the unknown method {}",
                wire.method
            )));
        }
    };
    if wire.evidence.trim().is_empty() {
        return Err(malformed("the provider says gone without evidence"));
    }
    Ok(AbsenceProof {
        method,
        evidence: wire.evidence,
        request_id: wire.request_id.filter(|id| !id.is_empty()),
    })
}

#[cfg(test)]
mod tests;
