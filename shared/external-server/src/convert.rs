//! Converts a controller's requests from messages, and the cloud's answers to messages.
//!
//! A value that this version does not know is read as the more careful one. Values are destructured
//! without `..`, so a field that only one side has does not compile. The opposite conversions are
//! in [`ccm_external::convert`].

pub mod front_end;
pub mod load_balancers;
pub mod routes;

use ccm_base::message::{LONGEST_LINE, one_line};
use ccm_cloud::{
    AbsenceProof, CloudError, Detail, ErrorKind, Instance, Lookup, LookupResult, NodeIdentity,
    PowerState, Priority, ProofMethod, Wants,
};
use ccm_external::{
    convert::{address_from_wire, address_to_wire},
    proto::{self, lookup_answer::Answer},
    status::{ERROR_TYPE, MAX_RETRY_AFTER, RpcStatus, kind_to_wire},
};
use prost::Message as _;
use tonic::{Code, Status};

/// Returns the node that a request names.
pub fn node_from_wire(node: proto::NodeIdentity) -> NodeIdentity {
    let proto::NodeIdentity { name, provider_id, system_uuid, uid, labels, addresses } = node;
    let name = name.unwrap_or_default();
    // An invalid address is useless to the provider, so it is omitted.
    let addresses =
        addresses.iter().filter_map(|address| address_from_wire(address).ok()).collect();
    NodeIdentity { name, provider_id, system_uuid, uid, labels, addresses }
}

/// Returns the urgency. A value unknown to this version counts as the more urgent one.
pub fn priority_from_wire(priority: proto::Priority) -> Priority {
    match priority {
        proto::Priority::Unspecified | proto::Priority::Waiting => Priority::Waiting,
        proto::Priority::Routine => Priority::Routine,
    }
}

/// Returns the requested parts of an instance. A value unknown to this version means all.
pub fn detail_from_wire(detail: proto::Detail) -> Detail {
    match detail {
        proto::Detail::Unspecified | proto::Detail::Everything => Detail::Everything,
        proto::Detail::Presence => Detail::Presence,
    }
}

/// Returns the parts of a node that a provider needs, on the wire.
pub fn wants_to_wire(wants: Wants) -> Vec<i32> {
    let Wants { uid, labels, addresses } = wants;
    let fields = [
        (uid, proto::NodeField::Uid),
        (labels, proto::NodeField::Labels),
        (addresses, proto::NodeField::Addresses),
    ];
    fields.into_iter().filter(|(wanted, _)| *wanted).map(|(_, field)| field.into()).collect()
}

pub fn instance_to_wire(instance: &Instance) -> proto::Instance {
    let Instance {
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
        // It names settings of a provider in the same process: the protocol has no field for it.
        withheld: _,
    } = instance;
    proto::Instance {
        provider_id: Some(provider_id.as_str().to_owned()),
        other_ids: other_ids.iter().map(|id| id.as_str().to_owned()).collect(),
        name: Some(name.clone()),
        instance_type: instance_type.clone(),
        zone: zone.clone(),
        region: region.clone(),
        addresses: addresses.iter().map(address_to_wire).collect(),
        labels: labels.clone(),
        power: Some(power_to_wire(*power).into()),
        pod_cidrs: pod_cidrs.iter().map(ToString::to_string).collect(),
    }
}

fn power_to_wire(power: PowerState) -> proto::PowerState {
    match power {
        PowerState::Running => proto::PowerState::Running,
        PowerState::Stopped => proto::PowerState::Stopped,
        PowerState::Changing => proto::PowerState::Changing,
        PowerState::Unknown => proto::PowerState::Unspecified,
    }
}

/// Returns the answer for the node with this name.
pub fn answer_to_wire(node: &str, result: &LookupResult) -> proto::LookupAnswer {
    let answer = match result {
        Ok(Lookup::Found(instance)) => Answer::Found(instance_to_wire(instance)),
        Ok(Lookup::Gone(proof)) => Answer::Gone(absence_to_wire(proof)),
        Ok(Lookup::NotOurs(reason)) => {
            Answer::NotOurs(proto::NotOurs { reason: Some(reason.clone()) })
        }
        Err(error) => Answer::Error(error_to_wire(error)),
    };
    proto::LookupAnswer { node: Some(node.to_owned()), answer: Some(answer) }
}

pub fn absence_to_wire(proof: &AbsenceProof) -> proto::Absence {
    let AbsenceProof { method, evidence, request_id, kept } = proof;
    let method = match method {
        ProofMethod::ById => proto::ProofMethod::ById,
        ProofMethod::BySystemUuid => proto::ProofMethod::BySystemUuid,
        ProofMethod::ByName => proto::ProofMethod::ByName,
        ProofMethod::ByOwner => proto::ProofMethod::ByOwner,
        ProofMethod::ProvidersWord => proto::ProofMethod::ProvidersWord,
    };
    proto::Absence {
        method: Some(method.into()),
        evidence: Some(evidence.clone()),
        request_id: request_id.clone(),
        kept: kept.clone(),
    }
}

pub fn error_to_wire(error: &CloudError) -> proto::Error {
    let CloudError { kind, message, subject, request_id, retry_after, .. } = error;
    proto::Error {
        kind: Some(kind_to_wire(*kind).into()),
        message: Some(one_line(message, LONGEST_LINE)),
        subject: subject.as_deref().map(|subject| one_line(subject, LONGEST_LINE)),
        request_id: request_id.as_deref().map(|id| one_line(id, LONGEST_LINE)),
        retry_after: retry_after
            .and_then(|after| prost_types::Duration::try_from(after.min(MAX_RETRY_AFTER)).ok()),
        maybe_done: error.maybe_done.then_some(true),
        unsent: error.unsent.then_some(true),
    }
}

/// Returns the status of a failed call.
pub fn to_status(error: &CloudError) -> Status {
    let code = match error.kind {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Throttled | ErrorKind::QuotaExceeded => Code::ResourceExhausted,
        ErrorKind::Unauthorized => Code::Unauthenticated,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::Conflict | ErrorKind::Busy | ErrorKind::Pending => Code::Aborted,
        ErrorKind::Stale => Code::FailedPrecondition,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::Malformed => Code::DataLoss,
    };
    let wire = error_to_wire(error);
    let message = wire.message().to_owned();
    let details =
        vec![prost_types::Any { type_url: ERROR_TYPE.to_owned(), value: wire.encode_to_vec() }];
    let status = RpcStatus { code: code.into(), message: message.clone(), details };
    Status::with_details(code, message, status.encode_to_vec().into())
}

#[cfg(test)]
mod tests;
