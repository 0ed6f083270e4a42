//! Where the pages are served, and with which certificate.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use ccm_settings::one_of;
use serde::Serialize;

/// The HTTP pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageSettings {
    /// Where they are served.
    pub address: SocketAddr,
    /// With which certificate; `None` for plain HTTP.
    pub tls: Option<TlsSettings>,
}

/// The certificate of the HTTP pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlsSettings {
    /// The chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Whether TLS 1.2 is refused.
    pub only_tls13: bool,
}

/// The HTTP pages, if there are any.
pub(crate) struct Served(pub(crate) Option<PageSettings>);

ccm_settings::settings! {
    impl Served {
        /// IP address on which the HTTP pages are served.
        address: IpAddr = fixed(Text, "bind-address", "0.0.0.0");
        /// Port of /healthz, /livez, /readyz, /metrics and /configz. 0 means no pages at all. The pages are plain HTTP
        /// unless a certificate is given, and ask for no token: they show no secrets and change nothing.
        port: u16 = fixed(Count, "secure-port", "");
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
                raw.reject("tls-cert-file", "needs --tls-private-key-file beside it", problems);
                None
            }
            (None, Some(_)) => {
                raw.reject("tls-private-key-file", "needs --tls-cert-file beside it", problems);
                None
            }
        };
        let address = SocketAddr::new(address, port);
        Some(Self((port != 0).then_some(PageSettings { address, tls })))
    }
}
