//! Chooses the proxy for the API server.

use ccm_base::is_loopback;
use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use super::problem::Problem;

/// The proxy for `server`, if `proxy` applies to it.
///
/// A proxy from the kubeconfig (`own`) always applies. One from the environment
/// (`HTTPS_PROXY`) applies to remote servers with TLS: not to loopback hosts, and not to
/// hosts in `except` (`NO_PROXY`).
pub(super) fn choose(
    server: &Uri,
    proxy: Option<&Uri>,
    own: bool,
    except: Option<&str>,
) -> Result<Option<Intercept>, Problem> {
    let except = except.filter(|_| !own).unwrap_or_default();
    let everything = except.split(',').any(|name| name.trim() == "*");
    let meant = own
        || (server.scheme_str() == Some("https")
            && !everything
            && !server.host().is_some_and(is_loopback));
    let Some(proxy) = proxy.filter(|_| meant) else { return Ok(None) };
    let chosen = Matcher::builder().all(proxy.to_string()).no(except).build().intercept(server);
    match &chosen {
        Some(found) if found.uri().scheme_str() != Some("http") => Err(Problem::new(
            format!(
                "the proxy's scheme {} is not supported",
                found.uri().scheme_str().unwrap_or_default()
            ),
            "set proxy-url or HTTPS_PROXY to http://host:port, or name the server in NO_PROXY",
        )),
        _ => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://10.1.2.3:6443";

    #[test]
    fn a_proxy_is_used_where_it_is_meant() {
        let check = |server: &str,
                     proxy: &str,
                     own: bool,
                     except: Option<&str>,
                     expect: Result<Option<&str>, &str>| {
            let chosen =
                choose(&server.parse().unwrap(), Some(&proxy.parse().unwrap()), own, except);
            let chosen = chosen
                .map(|chosen| chosen.map(|chosen| chosen.uri().to_string()))
                .map_err(|error| error.what);
            assert_eq!(
                chosen.as_ref().map(Option::as_deref).map_err(String::as_str),
                expect,
                "{proxy} to {server}, own: {own}, without {except:?}"
            );
        };
        let (proxy, used) = ("http://proxy:3128", Ok(Some("http://proxy:3128/")));
        check(SERVER, proxy, false, None, used);
        check(SERVER, proxy, false, Some("10.1.0.0/16"), Ok(None));
        check(SERVER, proxy, false, Some("10.1.2.3"), Ok(None));
        check(SERVER, proxy, false, Some("other.example, *"), Ok(None));
        check(SERVER, proxy, false, Some("other.example"), used);
        check("https://127.0.0.1:6443", proxy, false, None, Ok(None));
        check("https://[::1]:6443", proxy, false, None, Ok(None));
        check("https://localhost:6443", proxy, false, None, Ok(None));
        check("http://10.1.2.3:8080", proxy, false, None, Ok(None));
        check(SERVER, proxy, true, Some("*"), used);
        check("http://127.0.0.1:8080", proxy, true, None, used);
        let unsupported = "the proxy's scheme socks5 is not supported";
        check(SERVER, "socks5://proxy:1080", false, None, Err(unsupported));
        check(SERVER, "socks5://proxy:1080", false, Some("*"), Ok(None));
        let unsupported = "the proxy's scheme https is not supported";
        check(SERVER, "https://proxy:3128", true, None, Err(unsupported));
        assert!(
            choose(&Uri::from_static(SERVER), None, false, None)
                .is_ok_and(|chosen| chosen.is_none())
        );
    }

    #[test]
    fn credentials_of_the_proxy_are_sent_to_it() {
        let proxy = Uri::from_static("http://me:secret@proxy:3128");
        let chosen = choose(&Uri::from_static(SERVER), Some(&proxy), false, None);
        assert!(chosen.ok().flatten().unwrap().basic_auth().is_some());
    }
}
