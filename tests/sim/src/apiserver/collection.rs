//! Lists: pages, continue tokens, and the version of the collection.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Core,
    object::Object,
    registry::{base64, unbase64},
    request::{Query, RequestInfo},
    resources::Resource,
    selectors::Selector,
    status::{Cause, StatusError},
    store::Range,
    write::{Deleted, Preconditions, Target},
};

/// A list, or a page of one.
pub(super) struct Listing {
    pub(super) resource: &'static Resource,
    pub(super) revision: u64,
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) next: Option<String>,
    pub(super) remaining: Option<usize>,
}

/// The position of the next page. Opaque to clients; in the real server's format.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Token {
    v: String,
    /// The version of the first page; -1 for the current version.
    rv: i64,
    /// The last returned key, with a zero byte.
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";
const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
    new list without the continue parameter, or use the continue token in this response to retrieve the remainder of \
    the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
    modified, or deleted between the time the first chunk was returned and now may show up in the list.";

impl Token {
    fn after(key: &str, rv: i64) -> String {
        let token = Self { v: TOKEN_VERSION.to_owned(), rv, start: format!("/{key}\0") };
        let json = serde_json::to_string(&token).unwrap_or_default();
        base64(json.as_bytes()).trim_end_matches('=').replace('+', "-").replace('/', "_")
    }

    fn parse(text: &str) -> Result<(String, i64), StatusError> {
        let bytes = unbase64(&text.replace('-', "+").replace('_', "/"));
        let token: Token = bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .filter(|token: &Self| token.v == TOKEN_VERSION)
            .ok_or_else(|| {
                StatusError::bad_request("invalid continue token: continue key is not valid")
            })?;
        Ok((token.start.trim_start_matches('/').trim_end_matches('\0').to_owned(), token.rv))
    }
}

/// Returns the requested version, or `None` if the request does not have one. `0` means any
/// version.
pub(super) fn version(query: &Query) -> Result<Option<u64>, String> {
    let text = query.get("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

pub(super) fn invalid_options(cause: Cause) -> StatusError {
    StatusError::invalid("meta.k8s.io", "ListOptions", "", &[cause])
}

fn number(query: &Query, name: &str) -> Result<u64, StatusError> {
    match query.get(name) {
        "" => Ok(0),
        text => {
            text.parse::<i64>().map(|number| u64::try_from(number).unwrap_or(0)).map_err(|_| {
                StatusError::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            })
        }
    }
}

/// Checks `resourceVersionMatch` against this list's other parameters.
fn check_match(query: &Query) -> Result<(), StatusError> {
    const FIELD: &str = "resourceVersionMatch";
    let version = query.get("resourceVersion");
    let problem = match query.get(FIELD) {
        "" => return Ok(()),
        "Exact" | "NotOlderThan" if !query.get("continue").is_empty() => {
            Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided")
        }
        "Exact" | "NotOlderThan" if version.is_empty() => Cause::forbidden(
            FIELD,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        "Exact" if version == "0" => Cause::forbidden(
            FIELD,
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        "Exact" | "NotOlderThan" => return Ok(()),
        other => Cause::unsupported(FIELD, &other.into(), &["Exact", "NotOlderThan", ""]),
    };
    Err(invalid_options(problem))
}

/// Where a list begins.
struct Start {
    /// The key behind which it goes on.
    after: Option<String>,
    /// The version that it shows; without one the latest.
    at: Option<u64>,
    /// The largest number of objects; 0 for all.
    limit: usize,
}

impl Start {
    fn of(query: &Query, current: u64) -> Result<Self, StatusError> {
        let limit = usize::try_from(number(query, "limit")?).unwrap_or(usize::MAX);
        let asked = version(query).map_err(|error| {
            StatusError::bad_request(format!("invalid resource version: {error}"))
        })?;
        let token = query.get("continue");
        if !token.is_empty() {
            if asked.is_some() {
                let message = "specifying resource version is not allowed when using continue";
                return Err(StatusError::bad_request(message));
            }
            let (after, rv) = Token::parse(token)?;
            return Ok(Self { after: Some(after), at: u64::try_from(rv).ok(), limit });
        }
        if let Some(asked) = asked.filter(|asked| *asked > current) {
            return Err(StatusError::too_large_version(asked, current));
        }
        let is_exact = query.get("resourceVersionMatch") == "Exact";
        // The watch cache answers those at version 0 without paging.
        let limit = if asked == Some(0) && !is_exact { 0 } else { limit };
        Ok(Self { after: None, at: asked.filter(|_| is_exact), limit })
    }
}

impl Core {
    /// Answers a LIST. `stale` is how many versions old the result is.
    pub(super) fn list(
        &self,
        resource: &'static Resource,
        info: &RequestInfo,
        stale: u64,
    ) -> Result<Listing, StatusError> {
        let query = &info.query;
        let selector =
            Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        check_match(query)?;
        let current = self.store.revision();
        let Start { after, mut at, limit } = Start::of(query, current)?;
        if stale > 0 && at.is_none() {
            at = Some(current.saturating_sub(stale).max(self.store.oldest(resource)));
        }
        let prefix =
            if info.namespace.is_empty() { String::new() } else { format!("{}/", info.namespace) };
        let range = Range { prefix: &prefix, after: after.as_deref(), limit };
        let page = self
            .store
            .page(resource, at, &range, |object| selector.matches(object))
            .map_err(|_| {
                let Some(after) = &after else {
                    return StatusError::expired(
                        "The resourceVersion for the provided list is too old.",
                    );
                };
                let mut error = StatusError::expired(TOO_OLD);
                error.next = Some(Token::after(after, -1));
                error
            })?;
        let rv = i64::try_from(page.revision).unwrap_or(-1);
        Ok(Listing {
            resource,
            revision: page.revision,
            next: page.after.as_ref().map(|key| Token::after(key, rv)),
            remaining: (page.after.is_some() && selector.is_empty()).then_some(page.remaining),
            objects: page.objects,
        })
    }

    /// Answers a GET of one object.
    pub(super) fn read(
        &self,
        target: &Target,
        info: &RequestInfo,
        stale: u64,
    ) -> Result<Arc<Object>, StatusError> {
        let current = self.store.revision();
        let asked = version(&info.query).map_err(|error| {
            StatusError::bad_request(format!("invalid resource version: {error}"))
        })?;
        if let Some(asked) = asked.filter(|asked| *asked > current) {
            return Err(StatusError::too_large_version(asked, current));
        }
        let found = if stale > 0 {
            self.store.get_at(target.resource, &target.key(), current.saturating_sub(stale))
        } else {
            self.store.get(target.resource, &target.key())
        };
        found.ok_or_else(|| target.not_found())
    }

    /// Deletes the objects that a list would return, and returns that list.
    pub(super) fn delete_collection(
        &self,
        resource: &'static Resource,
        info: &RequestInfo,
        dry_run: bool,
    ) -> Result<Listing, StatusError> {
        let mut listing = self.list(resource, info, 0)?;
        for object in &listing.objects {
            let target = Target {
                resource,
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                subresource: String::new(),
            };
            match self.delete(&target, &Preconditions::default(), dry_run) {
                Ok(Deleted::Gone(_) | Deleted::Waiting(_)) => {}
                // Another client deleted it first.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        listing.revision = self.store.revision();
        Ok(listing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_the_real_server() {
        let real = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6ODMzLCJzdGFydCI6Ii93MVx1MDAwMCJ9";
        assert_eq!(Token::after("w1", 833), real);
        assert_eq!(Token::parse(real), Ok(("w1".to_owned(), 833)));
        assert_eq!(Token::parse("abc").map_err(|error| error.code), Err(400));
    }
}
