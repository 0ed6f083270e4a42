//! Chooses the proxy for a server.

use std::sync::Arc;

use ccm_base::is_loopback;
use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// Chooses the proxy for a server. Only proxies that speak plain HTTP are supported: the
/// credentials of another one must not be sent to it in clear text.
#[derive(Clone, Debug)]
pub struct Proxies {
    matcher: Arc<Matcher>,
    /// True to use it also for loopback hosts, and through a tunnel even without TLS.
    always: bool,
}

/// The proxy on the way to a server is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the proxy for {host} has the scheme {scheme}, which is not supported: set HTTPS_PROXY or HTTP_PROXY to \
     http://host:port, or name the host in NO_PROXY"
)]
pub struct UnfitProxy {
    /// The server's host.
    pub host: String,
    /// The proxy's scheme.
    pub scheme: String,
}

impl Proxies {
    /// Returns the proxies of the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`,
    /// `NO_PROXY`.
    pub fn of_environment() -> Self {
        Self::by(Matcher::from_env())
    }

    /// Uses no proxy at all.
    pub fn none() -> Self {
        Self::by(Matcher::builder().build())
    }

    /// Returns the proxies that `matcher` chooses. Loopback hosts never have a proxy.
    pub fn by(matcher: Matcher) -> Self {
        Self { matcher: Arc::new(matcher), always: false }
    }

    /// Returns this proxy for every server.
    pub fn always(proxy: &Uri) -> Self {
        let matcher = Matcher::builder().all(proxy.to_string()).build();
        Self { matcher: Arc::new(matcher), always: true }
    }

    /// Returns this proxy for remote servers with TLS, except the servers in a list of the form of
    /// `NO_PROXY`.
    pub fn for_tls(proxy: &Uri, except: &str) -> Self {
        // The matcher applies `*` to names but not to addresses.
        if except.split(',').any(|name| name.trim() == "*") {
            return Self::none();
        }
        Self::by(Matcher::builder().https(proxy.to_string()).no(except).build())
    }

    /// Returns the proxy for `server`.
    pub fn find(&self, server: &Uri) -> Result<Option<Intercept>, UnfitProxy> {
        let is_near = !self.always && server.host().is_some_and(is_loopback);
        let Some(proxy) = self.matcher.intercept(server).filter(|_| !is_near) else {
            return Ok(None);
        };
        match proxy.uri().scheme_str() {
            Some("http") => Ok(Some(proxy)),
            scheme => Err(UnfitProxy {
                host: server.host().unwrap_or_default().to_owned(),
                scheme: scheme.unwrap_or_default().to_owned(),
            }),
        }
    }

    /// Returns the proxy for `server`, if it forwards requests instead of opening a tunnel. Each
    /// request then names the whole URL and contains the proxy's credentials.
    pub fn passing_on(&self, server: &Uri) -> Result<Option<Intercept>, UnfitProxy> {
        match !self.always && server.scheme_str() == Some("http") {
            true => self.find(server),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(proxies: &Proxies, server: &str, expect: Result<Option<&str>, &str>) {
        let found = proxies.find(&server.parse().unwrap());
        let found = found
            .map(|found| found.map(|found| found.uri().to_string()))
            .map_err(|unfit| unfit.scheme);
        let found = found.as_ref().map(Option::as_deref).map_err(String::as_str);
        assert_eq!(found, expect, "{proxies:?} to {server}");
    }

    const SERVER: &str = "https://10.1.2.3:6443";
    const USED: Result<Option<&str>, &str> = Ok(Some("http://proxy:3128/"));

    #[test]
    fn a_proxy_for_tls_is_used_for_remote_servers_that_are_not_excepted() {
        let proxy = Uri::from_static("http://proxy:3128");
        for (except, expect) in [
            ("", USED),
            ("10.1.0.0/16", Ok(None)),
            ("10.1.2.3", Ok(None)),
            ("other.example, *", Ok(None)),
            ("other.example", USED),
        ] {
            check(&Proxies::for_tls(&proxy, except), SERVER, expect);
        }
        for near in ["https://127.0.0.1:6443", "https://[::1]:6443", "https://localhost:6443"] {
            check(&Proxies::for_tls(&proxy, ""), near, Ok(None));
        }
        check(&Proxies::for_tls(&proxy, ""), "http://10.1.2.3:8080", Ok(None));
    }

    #[test]
    fn a_proxy_for_every_server_is_always_used() {
        let proxies = Proxies::always(&Uri::from_static("http://proxy:3128"));
        check(&proxies, SERVER, USED);
        check(&proxies, "http://127.0.0.1:8080", USED);
        assert!(proxies.passing_on(&Uri::from_static("http://a")).unwrap().is_none());
        check(&Proxies::none(), SERVER, Ok(None));
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused_where_it_would_be_used() {
        let socks = Uri::from_static("socks5://proxy:1080");
        check(&Proxies::for_tls(&socks, ""), SERVER, Err("socks5"));
        check(&Proxies::for_tls(&socks, "*"), SERVER, Ok(None));
        check(&Proxies::always(&Uri::from_static("https://proxy:3128")), SERVER, Err("https"));
    }

    #[test]
    fn credentials_of_the_proxy_are_sent_to_it() {
        let proxies = Proxies::for_tls(&Uri::from_static("http://me:secret@proxy:3128"), "");
        let found = proxies.find(&Uri::from_static(SERVER)).unwrap().unwrap();
        assert!(found.basic_auth().is_some());
    }
}
