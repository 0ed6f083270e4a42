//! Converts error responses of OpenStack services to typed errors.
//!
//! A body is used only if it has one of OpenStack's forms: Nova and Keystone wrap `message`
//! in an object named after the fault, Neutron uses `NeutronError`, Octavia `faultstring`.
//! Any other response, for instance from a proxy, a load balancer or an unknown path, is
//! [`ErrorKind::Malformed`] or [`ErrorKind::Unavailable`], never "does not exist".

use std::time::Duration;

use ccm_base::message::one_line;
use ccm_cloud::{CloudError, ErrorKind};
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use jiff::Timestamp;
use serde_json::Value;

use super::Service;
use crate::text::MAX_MESSAGE;

/// The maximum accepted `Retry-After`; longer ones are reduced to it.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// The message of OpenStack's web frameworks about an unknown path, as opposed to an unknown
/// object.
const NO_SUCH_PATH: &str = "The resource could not be found";

/// The words of Nova, Neutron and Octavia for a quota that is used up, in lower case.
const QUOTAS: [&str; 2] = ["quota exceeded", "quota has been met"];
/// Neutron's quota of the routes of one router, in the place of `max_routes` since 2026.2.
const ROUTE_QUOTA: &str = "'router_route'";
/// Octavia's words while it changes a load balancer, and while it creates other load balancers of
/// the project and therefore cannot count them.
const BUSY: [&str; 3] =
    ["is immutable and cannot be updated", "Invalid state PENDING_", "Unable to lock the project"];
/// The members of Octavia's error bodies with its words; the second one is for objects below a
/// pool.
const FAULT_STRINGS: [&str; 2] = ["faultstring", "description"];
/// Octavia's words when one of its drivers has failed, which undoes the request.
const DRIVER_FAILED: &str = "reports error: ";
/// Neutron's words, also within Octavia's, for a requested address that is not available, and for a
/// network without a free address.
const TAKEN: &str = "already allocated in subnet";
const NOT_OF_SUBNET: &str = "is not a valid IP for the specified subnet";
const NO_ADDRESSES: &str = "No more IP addresses available on network ";

/// Returns the request ID of a response.
pub fn request_id(headers: &HeaderMap) -> Option<String> {
    ["x-openstack-request-id", "x-compute-request-id"]
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok())
        .map(|text| one_line(text, MAX_MESSAGE))
        .filter(|id| !id.is_empty())
}

/// Returns the error of a response; `None` for a success. A 404 is [`ErrorKind::NotFound`] only if
/// the service itself reports that the requested object does not exist.
pub fn cloud_error(
    service: Service,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Option<CloudError> {
    if status.is_success() {
        return None;
    }
    let body = ErrorBody::read(body);
    let request_id = request_id(headers);
    let kind = match status {
        StatusCode::NOT_FOUND if request_id.is_some() && body.reports_missing_object(service) => {
            ErrorKind::NotFound
        }
        StatusCode::NOT_FOUND if body.reports_expired_token(service) => ErrorKind::Unauthorized,
        _ => kind(status, &body),
    };
    let message = match (&body.message, status) {
        (_, status) if status.is_redirection() => {
            let place = headers.get(http::header::LOCATION).and_then(|to| to.to_str().ok());
            format!(
                "HTTP {}, to {}: redirects are not followed, the endpoint is wrong",
                status.as_u16(),
                one_line(place.unwrap_or("nowhere"), MAX_MESSAGE)
            )
        }
        (Some(message), StatusCode::NOT_FOUND)
            if request_id.is_none() && body.reports_missing_object(service) =>
        {
            format!(
                "HTTP 404: {message}: this does not count, because the answer has no request ID \
                 (x-openstack-request-id); something between us and {} removes it",
                service.name()
            )
        }
        (Some(message), _) => format!("HTTP {}: {message}", status.as_u16()),
        (None, _) => {
            format!("HTTP {} without an OpenStack error{}", status.as_u16(), body.page)
        }
    };
    Some(CloudError {
        kind,
        message,
        subject: body.quota().filter(|_| kind == ErrorKind::QuotaExceeded),
        request_id,
        retry_after: retry_after(headers, now),
        maybe_done: false,
        unsent: false,
    })
}

fn kind(status: StatusCode, body: &ErrorBody) -> ErrorKind {
    match status.as_u16() {
        500 if body.says(DRIVER_FAILED) && body.says(NO_ADDRESSES) => ErrorKind::QuotaExceeded,
        400 | 413 | 409 | 403 if body.quota().is_some() => ErrorKind::QuotaExceeded,
        409 | 503 if BUSY.iter().any(|words| body.says(words)) => ErrorKind::Busy,
        412 => ErrorKind::Busy,
        500 if body.says(DRIVER_FAILED) && body.says(TAKEN) => ErrorKind::Conflict,
        500 if body.says(DRIVER_FAILED) && body.says(NOT_OF_SUBNET) => ErrorKind::Invalid,
        413 if body.name.as_deref() == Some("overLimit") => ErrorKind::Throttled,
        401 => ErrorKind::Unauthorized,
        403 => ErrorKind::Forbidden,
        409 => ErrorKind::Conflict,
        429 | 498 => ErrorKind::Throttled,
        405 | 406 | 501 => ErrorKind::Unsupported,
        408 | 500 | 502..=599 => ErrorKind::Unavailable,
        404 => ErrorKind::Malformed,
        400..=499 => ErrorKind::Invalid,
        _ => ErrorKind::Malformed,
    }
}

/// Returns the service's message in an error response; empty if the response has no message.
pub fn words(body: &[u8]) -> String {
    ErrorBody::read(body).message.unwrap_or_default()
}

/// Returns the `Retry-After` of a response: seconds, or a date relative to `now`. Invalid and zero
/// values are ignored.
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let wait = ccm_base::retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)?;
    Some(wait.min(LONGEST_PAUSE)).filter(|wait| !wait.is_zero())
}

/// A parsed error body.
#[derive(Debug, Default)]
struct ErrorBody {
    /// The name of the fault: the only key of the body, or Octavia's fault name.
    name: Option<String>,
    /// Neutron's more specific name.
    detail: Option<String>,
    message: Option<String>,
    /// For other bodies: a description.
    page: &'static str,
}

impl ErrorBody {
    fn read(body: &[u8]) -> Self {
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
            let page = match body.trim_ascii_start().first() {
                None => ", without a body",
                Some(b'<') => ", but with an HTML page, as proxies and load balancers send",
                Some(_) => ", but with other text",
            };
            return Self { page, ..Self::default() };
        };
        let text = |value: Option<&Value>| {
            value
                .and_then(Value::as_str)
                .map(|text| one_line(text, MAX_MESSAGE))
                .filter(|text| !text.is_empty())
        };
        for name in FAULT_STRINGS {
            if let Some(message) = text(fields.get(name)) {
                let name = Some(name.to_owned());
                return Self { name, message: Some(message), ..Self::default() };
            }
        }
        if let Some(message) = text(fields.get("message")) {
            return Self { message: Some(message), ..Self::default() };
        }
        let Some((name, fault)) = fields.iter().next().filter(|_| fields.len() == 1) else {
            return Self { page: ", but with other JSON", ..Self::default() };
        };
        Self {
            name: Some(name.clone()),
            detail: text(fault.get("type")),
            message: text(fault.get("message")).or(text(Some(fault))),
            page: ", but with other JSON",
        }
    }

    /// Returns true if the service reports that the object does not exist.
    fn reports_missing_object(&self, service: Service) -> bool {
        let about_the_path =
            self.message.as_ref().is_none_or(|message| message.starts_with(NO_SUCH_PATH));
        let named = match service {
            Service::Compute => self.name.as_deref() == Some("itemNotFound"),
            // `HTTPNotFound` is about paths.
            Service::Network => {
                self.name.as_deref() == Some("NeutronError")
                    && self
                        .detail
                        .as_ref()
                        .is_some_and(|name| name.ends_with("NotFound") && !name.starts_with("HTTP"))
            }
            Service::LoadBalancer => {
                self.name.as_deref().is_some_and(|name| FAULT_STRINGS.contains(&name))
                    && self.message.as_ref().is_some_and(|text| text.ends_with(" not found."))
            }
            Service::Identity => false,
        };
        named && !about_the_path
    }

    /// Returns true if Keystone reports that the token of a login has expired: this is a 404.
    fn reports_expired_token(&self, service: Service) -> bool {
        let says = |words: &str| self.message.as_ref().is_some_and(|m| m.starts_with(words));
        service == Service::Identity
            && (says("Failed to validate token") || says("Could not find token"))
    }

    /// Returns the quota that is used up, by the service's words.
    fn quota(&self) -> Option<String> {
        match self.detail.as_deref() {
            Some("RoutesExhausted") => return Some("routes of a router (max_routes)".to_owned()),
            Some("AllowedAddressPairExhausted") => {
                let quota = "allowed address pairs of a port (max_allowed_address_pair)";
                return Some(quota.to_owned());
            }
            _ => {}
        }
        let message = self.message.as_deref().unwrap_or_default();
        if let Some((_, network)) = message.split_once(NO_ADDRESSES) {
            let network = network.split(['.', ' ', '\n']).next().unwrap_or_default();
            return Some(format!("addresses of network {network}"));
        }
        if self.detail.as_deref() == Some("OverQuota") && message.contains(ROUTE_QUOTA) {
            return Some("routes of a router (router_route)".to_owned());
        }
        let lower = message.to_ascii_lowercase();
        let is_quota = self
            .detail
            .as_deref()
            .is_some_and(|name| name == "OverQuota" || name.ends_with("Exhausted"))
            || QUOTAS.iter().any(|words| lower.contains(words));
        let named = message.split_once(": ").map_or(message, |(_, named)| named);
        let unquoted = named.trim_end_matches('.').replace(['[', ']', '\''], "");
        is_quota.then_some(unquoted)
    }

    fn says(&self, words: &str) -> bool {
        self.message.as_ref().is_some_and(|message| message.contains(words))
    }
}

#[cfg(test)]
mod tests;
