//! Decides when a server counts as gone, and gives the evidence. Controllers delete nodes because
//! of it.

use ccm_base::{message::one_line, nearest};
use ccm_cloud::{AbsenceProof, CloudError, ErrorKind, Lookup, ProofMethod};
use ccm_openstack_client::{ids::ServerId, text::MAX_VALUE};

use super::index::{Found, Index};

/// In a project with more servers, no similar name is searched for: the search takes time for each
/// missing node.
const MAX_COMPARED: usize = 1_000;

/// Returns the proof from Nova's response about an ID: 404, or a status that means deleted.
pub fn gone_by_id(provider_id: &str, answer: &str, request_id: Option<String>) -> Found {
    gone(ProofMethod::ById, format!("{provider_id}: {answer}"), request_id)
}

/// Returns the proof that the list of the project does not have a server with this name or with the
/// ID that was tried before. This is proof only if the list is complete and has all names.
pub fn gone_by_name(
    name: &str,
    uuid: Option<&ServerId>,
    index: &Index,
) -> Result<Found, CloudError> {
    let Index { size, nameless, request_id, gap, .. } = index;
    let near = near(name, &index.names());
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
    let tried = match uuid {
        Some(uuid) => format!("no server has the node's system UUID {uuid} as its ID, and "),
        None => String::new(),
    };
    let near = near.map_or_else(String::new, |near| {
        format!("; the nearest name is {:?}", one_line(near, MAX_VALUE))
    });
    let evidence =
        format!("{tried}none of the {size} servers of the project has the name {name:?}{near}");
    Ok(gone(ProofMethod::ByName, evidence, request_id.clone()))
}

/// Returns the name of a server that is probably meant: one with or without a domain, or a misspelt
/// one. Names that differ only in digits belong to other machines.
fn near<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let host = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let without_digits = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
    if let Some(other) = names.iter().find(|other| host(other) == host(name)) {
        return Some(other);
    }
    if names.len() > MAX_COMPARED {
        return None;
    }
    let is_sibling = |other: &&&str| without_digits(other) == without_digits(name);
    let others: Vec<&str> = names.iter().filter(|other| !is_sibling(other)).copied().collect();
    nearest(name, &others)
}

/// Returns the error for a name that is missing in a list that may be incomplete.
pub fn unproven(name: &str, gap: &str) -> CloudError {
    let name = one_line(name, MAX_VALUE);
    let message = format!(
        "no server has the name {name:?}, but the list of the project does not prove it: {gap}"
    );
    CloudError::new(ErrorKind::Unavailable, message)
}

fn gone(method: ProofMethod, evidence: String, request_id: Option<String>) -> Found {
    Found::Settled(Ok(Lookup::Gone(AbsenceProof { method, evidence, request_id, kept: None })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_that_of_the_same_machine() {
        for (name, names, expect) in [
            ("short.example.internal", &["other", "short"][..], Some("short")),
            ("short", &["other", "Short.example.internal"], Some("Short.example.internal")),
            ("wroker-a", &["worker-a", "other"], Some("worker-a")),
            ("node-00404", &["node-00405", "node-00403"], None),
            ("quite-another", &["worker-a"], None),
            ("any", &[], None),
        ] {
            assert_eq!(near(name, names), expect, "{name}");
        }
        let many: Vec<String> = (0..=MAX_COMPARED).map(|nth| format!("worker-a{nth}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(near("wroker-a1", &many), None, "too many to compare");
        assert_eq!(near("worker-a7.example", &many), Some("worker-a7"));
    }
}
