//! Which proxy leads to the API server.

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use super::problem::Problem;

/// The proxy for `server`, if `proxy` is to be used for it. `except` is the value of
/// `NO_PROXY`, which counts only where the proxy comes from the environment too.
pub(super) fn choose(
    server: &Uri,
    proxy: Option<&Uri>,
    except: Option<&str>,
) -> Result<Option<Intercept>, Problem> {
    let everything = except.is_some_and(|except| except.split(',').any(|name| name.trim() == "*"));
    let Some(proxy) = proxy.filter(|_| !everything) else { return Ok(None) };
    let matcher = Matcher::builder().all(proxy.to_string()).no(except.unwrap_or_default()).build();
    let chosen = matcher.intercept(server);
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

    #[test]
    fn the_proxy_is_used_unless_excepted() {
        let check = |proxy: &str, except: Option<&str>, expect: Result<Option<&str>, &str>| {
            let server = Uri::from_static("https://10.1.2.3:6443");
            let chosen = choose(&server, Some(&proxy.parse().unwrap()), except);
            let chosen = chosen
                .map(|chosen| chosen.map(|chosen| chosen.uri().to_string()))
                .map_err(|error| error.what);
            assert_eq!(
                chosen.as_ref().map(Option::as_deref).map_err(String::as_str),
                expect,
                "{proxy} without {except:?}"
            );
        };
        check("http://proxy:3128", None, Ok(Some("http://proxy:3128/")));
        check("http://proxy:3128", Some("10.1.0.0/16"), Ok(None));
        check("http://proxy:3128", Some("10.1.2.3"), Ok(None));
        check("http://proxy:3128", Some("other.example"), Ok(Some("http://proxy:3128/")));
        check("https://proxy:3128", None, Err("the proxy's scheme https is not supported"));
        check("socks5://proxy:1080", None, Err("the proxy's scheme socks5 is not supported"));
        check("socks5://proxy:1080", Some("*"), Ok(None));
    }

    #[test]
    fn credentials_of_the_proxy_are_sent_to_it() {
        let proxy = Uri::from_static("http://me:secret@proxy:3128");
        let chosen = choose(&Uri::from_static("https://10.1.2.3"), Some(&proxy), None)
            .ok()
            .flatten()
            .unwrap();
        assert!(chosen.basic_auth().is_some());
        assert!(
            choose(&Uri::from_static("https://10.1.2.3"), None, None)
                .is_ok_and(|chosen| chosen.is_none())
        );
    }
}
