//! The host that a request names (RFC 9112, section 3.2).

use ccm_base::is_loopback;
use http::{HeaderValue, Request, Version, header::HOST, uri::Authority};

/// The host that a request names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// No host: only a client of HTTP/1.0 may omit it.
    None,
    /// The empty name: the client does not know a name for its target.
    Empty,
    /// A name or an address, with or without a port.
    Named(Authority),
}

impl Host {
    /// Returns the host of this request; the error says why the request is invalid. For a target in
    /// absolute form, the host of the target counts instead of the header.
    pub(super) fn from_request<B>(request: &Request<B>) -> Result<Self, &'static str> {
        let mut headers = request.headers().get_all(HOST).iter();
        let header = headers.next();
        if headers.next().is_some() {
            return Err("send one Host header");
        }
        if header.is_none() && request.version() >= Version::HTTP_11 {
            return Err("send the Host header");
        }
        let header = match header.map(HeaderValue::as_bytes) {
            None => Self::None,
            Some([]) => Self::Empty,
            Some(value) => Self::Named(value.try_into().map_err(|_| "the Host header is invalid")?),
        };
        let host = request.uri().authority().cloned().map_or(header, Self::Named);
        match &host {
            Self::Named(name) if name.as_str().contains('@') => Err("a host has no user"),
            Self::Named(name) if !has_port_of_digits(name) => Err("a port is a number"),
            _ => Ok(host),
        }
    }

    /// Returns true if a request to this host may read pages with details. A browser on the machine
    /// that runs `kubectl port-forward` sends the name of the site that made the request. A site
    /// may let its name resolve to 127.0.0.1 (DNS rebinding), but must not read these pages.
    pub(super) fn may_read_details(&self) -> bool {
        match self {
            Self::None => true,
            Self::Empty => false,
            Self::Named(name) => is_loopback(&name.host().to_ascii_lowercase()),
        }
    }
}

/// Returns true also for a host without a port.
fn has_port_of_digits(name: &Authority) -> bool {
    let port = name.as_str().strip_prefix(name.host()).unwrap_or_default();
    port.strip_prefix(':').unwrap_or(port).bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(version: Version, target: &str, headers: &[&str]) -> Result<Host, &'static str> {
        let mut request = Request::get(target).version(version);
        for header in headers {
            request = request.header(HOST, *header);
        }
        Host::from_request(&request.body(()).unwrap())
    }

    fn named(name: &str) -> Host {
        Host::Named(name.parse().unwrap())
    }

    #[test]
    fn a_request_names_one_host() {
        let new = |target: &str, headers: &[&str]| host(Version::HTTP_11, target, headers);
        assert_eq!(new("/plan", &["localhost:1"]), Ok(named("localhost:1")));
        assert_eq!(new("/plan", &[""]), Ok(Host::Empty));
        assert_eq!(new("/plan", &[]), Err("send the Host header"));
        assert_eq!(host(Version::HTTP_10, "/plan", &[]), Ok(Host::None));
        assert_eq!(new("/plan", &["localhost", "evil.example"]), Err("send one Host header"));
        for invalid in ["a b", "user@", "http://a", "a/b"] {
            assert_eq!(new("/plan", &[invalid]), Err("the Host header is invalid"), "{invalid}");
        }
        assert_eq!(new("/plan", &["localhost:abc"]), Err("a port is a number"));
        assert_eq!(new("/plan", &["[::1]:80"]), Ok(named("[::1]:80")));
        assert_eq!(new("/plan", &["evil@localhost"]), Err("a host has no user"));
        assert_eq!(new("http://evil@localhost/plan", &["localhost"]), Err("a host has no user"));
    }

    #[test]
    fn the_host_of_the_target_counts() {
        let target = "http://evil.example/plan";
        let evil = host(Version::HTTP_11, target, &["localhost"]);
        assert_eq!(evil, Ok(named("evil.example")));
        assert!(!evil.unwrap().may_read_details());
        assert_eq!(host(Version::HTTP_10, target, &[]), Ok(named("evil.example")));
    }
}
