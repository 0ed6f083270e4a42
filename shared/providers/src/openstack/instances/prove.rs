//! When a server counts as gone, and the evidence. Nodes are deleted because of these.

use ccm_base::message::one_line;
use ccm_cloud::{AbsenceProof, CloudError, ErrorKind, Lookup, ProofMethod};

use super::{
    super::{ids::ServerId, text::MAX_VALUE},
    find::{Found, Index},
};

/// The maximum number of IDs in a message.
const MAX_IDS: usize = 10;

/// Nova's response about an ID: 404, or a status that means deleted.
pub(super) fn gone_by_id(provider_id: &str, answer: &str, request_id: Option<String>) -> Found {
    gone(ProofMethod::ById, format!("{provider_id}: {answer}"), request_id)
}

/// No server of this name in the list of the project. This is proof only if the list is
/// complete and has all names.
pub(super) fn gone_by_name(name: &str, index: &Index) -> Result<Found, CloudError> {
    let Index { size, nameless, request_id, gap, .. } = index;
    if let Some(gap) = gap {
        return Err(unproven(name, gap));
    }
    let name = one_line(name, MAX_VALUE);
    if *nameless > 0 {
        let message = format!(
            "no server has the name {name:?}, but Nova does not return the names of {nameless} of \
             the {size} servers of the project"
        );
        return Err(CloudError::new(ErrorKind::Unavailable, message));
    }
    let evidence = format!("none of the {size} servers of the project has the name {name:?}");
    Ok(gone(ProofMethod::ByName, evidence, request_id.clone()))
}

/// The error for a name that is missing in a list that may be incomplete.
pub(super) fn unproven(name: &str, gap: &str) -> CloudError {
    let name = one_line(name, MAX_VALUE);
    let message =
        format!("no server has the name {name:?}, but the list of the project is no proof: {gap}");
    CloudError::new(ErrorKind::Unavailable, message)
}

/// The error for a name that several servers have.
pub(super) fn conflict(name: &str, ids: &[ServerId]) -> CloudError {
    let name = one_line(name, MAX_VALUE);
    let shown: Vec<_> = ids.iter().take(MAX_IDS).map(ServerId::as_str).collect();
    let message = format!(
        "{} servers have the name {name:?} ({}); set spec.providerID of the node, or rename \
         the others",
        ids.len(),
        shown.join(", ")
    );
    CloudError::new(ErrorKind::Conflict, message)
}

/// The error for a node whose system UUID and name lead to two servers.
pub(super) fn contradiction(by_uuid: &ServerId, name: &str, by_name: &ServerId) -> CloudError {
    let (name, by_uuid, by_name) = (one_line(name, MAX_VALUE), by_uuid.as_str(), by_name.as_str());
    let message = format!(
        "the node's system UUID is server {by_uuid}, but its name {name:?} is that of server \
         {by_name}; set spec.providerID of the node, or rename one of the servers"
    );
    CloudError::new(ErrorKind::Conflict, message)
}

fn gone(method: ProofMethod, evidence: String, request_id: Option<String>) -> Found {
    Found::Settled(Ok(Lookup::Gone(AbsenceProof { method, evidence, request_id })))
}
