//! The meaning of a request, read from its method, path, query and headers.

use std::fmt;

use http::{HeaderMap, Method, header, request::Parts};

use super::resources::{self, Resource};

/// The verb of a request, as in RBAC and audit logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one object, or a path such as `/version`.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete a collection.
    DeleteCollection,
    /// A method that means nothing here.
    Other,
}

impl Verb {
    /// Returns the verb in lower case, as in RBAC rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The parameters after the question mark, decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        });
        Self(pairs.collect())
    }

    /// Returns the first value of this name; empty when absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// Reads booleans as the real server does: absent, `0` and `false` are false.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.has(name) && !matches!(self.get(name).to_ascii_lowercase().as_str(), "0" | "false")
    }
}

/// Percent-decodes; invalid UTF-8 is replaced.
fn decode(text: &str, plus_is_space: bool) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let hex = |digit: Option<u8>| digit.and_then(|digit| char::from(digit).to_digit(16));
        match byte {
            b'%' => match (hex(ahead.next()), hex(ahead.next())) {
                (Some(high), Some(low)) => {
                    out.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
                    bytes = ahead;
                }
                _ => out.push(byte),
            },
            b'+' if plus_is_space => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A request, parsed. Paths outside the resources have no `resource`.
#[derive(Clone, Debug)]
pub(super) struct RequestInfo {
    pub(super) verb: Verb,
    pub(super) path: String,
    pub(super) uri: String,
    pub(super) resource: Option<&'static Resource>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) subresource: String,
    pub(super) query: Query,
    pub(super) headers: HeaderMap,
    pub(super) user_agent: String,
}

impl RequestInfo {
    pub(super) fn new(parts: &Parts) -> Self {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let path = parts.uri.path().to_owned();
        let user_agent = parts
            .headers
            .get(header::USER_AGENT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let mut info = Self {
            verb: Verb::Other,
            uri: parts.uri.path_and_query().map_or_else(|| path.clone(), ToString::to_string),
            resource: None,
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
            query,
            headers: parts.headers.clone(),
            user_agent: user_agent.to_owned(),
            path,
        };
        info.read_path();
        info.verb = info.verb_of(&parts.method);
        info
    }

    /// Returns the bearer token.
    pub(super) fn user(&self) -> &str {
        let value = self.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        value.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default()
    }

    /// Returns the plural name, or empty for paths such as `/readyz`.
    pub(super) fn resource_name(&self) -> &'static str {
        let unstored = if self.is_review() { "selfsubjectaccessreviews" } else { "" };
        self.resource.map_or(unstored, |resource| resource.plural)
    }

    /// Returns true if it is a self access review, which is served but not stored.
    pub(super) fn is_review(&self) -> bool {
        self.path.trim_end_matches('/') == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    }

    pub(super) fn header(&self, name: header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn verb_of(&self, method: &Method) -> Verb {
        let collection = self.resource.is_some() && self.name.is_empty();
        match *method {
            Method::GET if collection && self.query.flag("watch") => Verb::Watch,
            Method::GET if collection => Verb::List,
            Method::GET => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if collection => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => Verb::Other,
        }
    }

    /// Reads `/api/v1/namespaces/NS/RESOURCE/NAME/SUB` and its shorter forms.
    fn read_path(&mut self) {
        let path = self.path.clone();
        let segments: Vec<String> =
            path.trim_matches('/').split('/').map(|segment| decode(segment, false)).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] if !is_namespace_subresource(plural) => {
                (*namespace, [&[*plural], rest].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let (plural, name, subresource) = match rest.as_slice() {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return,
        };
        let Some(resource) = resources::find(group, version, plural) else { return };
        let scoped = resource.namespaced || namespace.is_empty();
        let served = subresource.is_empty() || resource.subresources.contains(&subresource);
        let whole = name.is_empty() || !namespace.is_empty() || !resource.namespaced;
        if scoped && served && whole {
            self.resource = Some(resource);
            namespace.clone_into(&mut self.namespace);
            name.clone_into(&mut self.name);
            subresource.clone_into(&mut self.subresource);
        }
    }
}

/// Returns true for `/api/v1/namespaces/x/status`: it is about the namespace, not about a resource
/// in it.
fn is_namespace_subresource(segment: &str) -> bool {
    matches!(segment, "status" | "finalize")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn info(method: &str, uri: &str) -> RequestInfo {
        RequestInfo::new(
            &Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0,
        )
    }

    #[test]
    fn paths_verbs_and_names() {
        let check = |method: &str, uri: &str, expect: &str| {
            let info = info(method, uri);
            let what = [
                info.verb.as_str(),
                info.resource_name(),
                &info.namespace,
                &info.name,
                &info.subresource,
            ];
            assert_eq!(what.join(","), expect, "{method} {uri}");
        };
        check("GET", "/api/v1/nodes", "list,nodes,,,");
        check("GET", "/api/v1/nodes?watch=true", "watch,nodes,,,");
        check("GET", "/api/v1/nodes?watch=0", "list,nodes,,,");
        check("GET", "/api/v1/nodes/a%2Eb?watch=true", "get,nodes,,a.b,");
        check("PATCH", "/api/v1/nodes/a/status", "patch,nodes,,a,status");
        check("PATCH", "/api/v1/nodes/a/bogus", "patch,,,,");
        check("POST", "/api/v1/namespaces/x/events", "create,events,x,,");
        check("GET", "/api/v1/namespaces/x", "get,namespaces,,x,");
        check("PUT", "/api/v1/namespaces/x/status", "update,namespaces,,x,status");
        check("GET", "/api/v1/namespaces/x/nodes", "get,,,,");
        check("GET", "/api/v1/events/one", "get,,,,");
        check(
            "DELETE",
            "/apis/coordination.k8s.io/v1/namespaces/x/leases",
            "deletecollection,leases,x,,",
        );
        check("GET", "/apis/coordination.k8s.io/v2/leases", "get,,,,");
        check("GET", "/readyz", "get,,,,");
        check(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "create,selfsubjectaccessreviews,,,",
        );
        check("OPTIONS", "/api/v1/nodes", "other,nodes,,,");
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%20in+(b%2Cc)&watch&bad=%zz&timeoutSeconds=5");
        assert_eq!(query.get("labelSelector"), "a in (b,c)");
        assert!(query.flag("watch"));
        assert_eq!(query.get("bad"), "%zz");
        assert!(!query.has("limit"));
    }
}
