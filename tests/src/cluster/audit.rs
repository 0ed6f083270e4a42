//! The requests in an API server's audit log.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::Deserialize;

/// One request in the API server's audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// For instance `nodes`.
    pub resource: String,
    /// For instance `status`, or empty.
    pub subresource: String,
    /// The object's namespace, or empty.
    pub namespace: String,
    /// The object's name, or empty.
    pub name: String,
    /// Path and query.
    pub uri: String,
    /// The client's user agent.
    pub user_agent: String,
    /// The client's user name.
    pub user: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The UID precondition of a node's deletion. Only a real API server records it.
    pub uid: Option<String>,
    /// When the server received it. Only a real API server records it.
    pub received: Option<Timestamp>,
}

impl Request {
    /// Returns true if the request changes a stored object. A review of rights is created but not
    /// stored.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
            && self.resource != "selfsubjectaccessreviews"
    }

    /// Returns the request in short, `patch nodes/status`: the key of printed counts.
    pub fn what(&self) -> String {
        match self.subresource.as_str() {
            "" => format!("{} {}", self.verb, self.resource),
            sub => format!("{} {}/{sub}", self.verb, self.resource),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    verb: String,
    #[serde(rename = "requestURI", default)]
    uri: String,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    user: User,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    #[serde(default)]
    request_object: DeleteOptions,
    #[serde(rename = "requestReceivedTimestamp")]
    received: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
struct DeleteOptions {
    #[serde(default)]
    preconditions: Preconditions,
}

#[derive(Default, Deserialize)]
struct Preconditions {
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// Reads an audit log of JSON lines. A request has up to three lines, one for each stage: it
/// counts once. An incomplete last line is left out.
pub fn parse(log: &str) -> Vec<Request> {
    let mut seen = HashSet::new();
    log.lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter(|line| seen.insert(line.audit_id.clone()))
        .map(|line| Request {
            verb: line.verb,
            resource: line.object_ref.resource,
            subresource: line.object_ref.subresource,
            namespace: line.object_ref.namespace,
            name: line.object_ref.name,
            uri: line.uri,
            user_agent: line.user_agent,
            user: line.user.username,
            code: line.response_status.code,
            uid: line.request_object.preconditions.uid,
            received: line.received,
        })
        .collect()
}

/// Counts by [`Request::what`], sorted by name.
pub fn count(requests: &[Request]) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for request in requests {
        *counts.entry(request.what()).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_of_one_request_count_once() {
        let log = r#"{"auditID":"a","stage":"ResponseStarted","verb":"watch","userAgent":"x/1","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"auditID":"a","stage":"ResponseComplete","verb":"watch","userAgent":"x/1","objectRef":{"resource":"nodes"},"responseStatus":{"code":200}}
{"auditID":"b","stage":"ResponseComplete","verb":"patch","userAgent":"x/1","objectRef":{"resource":"nodes","subresource":"status","name":"n"},"responseStatus":{"code":200}}
{"auditID":"c","verb":"pat"#;
        let requests = parse(log);
        assert_eq!(
            count(&requests),
            [("patch nodes/status".to_owned(), 1), ("watch nodes".to_owned(), 1)]
        );
        assert!(requests.iter().any(|request| request.is_write() && request.name == "n"));
    }
}
