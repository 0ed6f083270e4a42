//! The address and the certificate of the admin pages.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use ccm_settings::{checked, one_of};
use serde::Serialize;

/// The admin pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSettings {
    /// The address to serve them on.
    pub address: SocketAddr,
    /// The certificate; `None` for plain HTTP.
    pub tls: Option<TlsSettings>,
    /// The pages that are open to any peer: `configz`, `plan`.
    pub open: Vec<String>,
}

/// The pages for loopback peers only, unless `--open-pages` names them.
const LOCAL_PAGES: [&str; 2] = ["configz", "plan"];
/// The pages for loopback peers only, each with the name that opens it. A client that may see the
/// decisions may also see their reasons.
pub(super) const OPENED_BY: [(&str, &str); 4] =
    [("configz", "configz"), ("plan", "plan"), ("explain", "plan"), ("record", "plan")];

/// The certificate of the admin pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlsSettings {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// True if TLS 1.2 is refused.
    pub only_tls13: bool,
}

fn local_pages(text: &str, default: &str) -> Result<Vec<String>, String> {
    let is_one = |name: &String| LOCAL_PAGES.contains(&name.as_str());
    checked("must be a list of the pages configz, plan", |names: &Vec<String>| {
        names.iter().all(is_one)
    })(text, default)
}

/// The admin pages, if enabled.
pub(crate) struct Served(pub(crate) Option<PageSettings>);

ccm_settings::settings! {
    impl Served {
        /// IP address on which the HTTP pages are served.
        address: IpAddr = fixed(Text, "bind-address", "0.0.0.0");
        /// Port of /healthz, /livez, /readyz, /metrics, /configz, /plan, /explain and /record. 0 disables the pages. The
        /// pages use plain HTTP unless a certificate is configured, and require no token: they contain no secrets and are
        /// read-only. /configz, /plan, /explain and /record are served on loopback only (kubectl port-forward), see
        /// --open-pages.
        port: u16 = fixed(Count, "secure-port", "");
        /// Pages that are served to any client and not on loopback only: configz, plan. Any client
        /// of the port can then read the settings, or the names of nodes and the planned changes.
        /// The name plan also opens /explain and /record, which show everything that the program
        /// knows about nodes, Services and the cloud.
        open: Vec<String> = fixed(List, "open-pages", ""), local_pages;
        /// Certificate chain (PEM) for the pages. The file is read again when it changes. Needs --tls-private-key-file.
        certificate: Option<PathBuf> = fixed(Path, "tls-cert-file", "");
        /// Private key (PEM) of --tls-cert-file.
        key: Option<PathBuf> = fixed(Path, "tls-private-key-file", "");
        /// VersionTLS12 (also when empty) or VersionTLS13.
        only_tls13: bool = fixed(Text, "tls-min-version", ""),
            one_of(&[("", false), ("VersionTLS12", false), ("VersionTLS13", true)]);
    } => |raw, problems| {
        let tls = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(TlsSettings { certificate, key, only_tls13 }),
            (None, None) => None,
            (Some(_), None) => {
                raw.reject("tls-cert-file", "requires --tls-private-key-file", problems);
                None
            }
            (None, Some(_)) => {
                raw.reject("tls-private-key-file", "requires --tls-cert-file", problems);
                None
            }
        };
        let address = SocketAddr::new(address, port);
        Some(Self((port != 0).then_some(PageSettings { address, tls, open })))
    }
}
