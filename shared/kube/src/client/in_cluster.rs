//! The in-cluster configuration of a pod.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use http::Uri;
use kube::{Config, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::problem::Problem;

/// Where the kubelet mounts the service account.
pub(super) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What the kubelet provides to a pod.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    /// `KUBERNETES_SERVICE_HOST`.
    pub(super) host: String,
    /// `KUBERNETES_SERVICE_PORT`.
    pub(super) port: Option<String>,
    /// The mounted service account.
    pub(super) account: PathBuf,
}

impl Pod {
    /// The client configuration. Token and CA stay file names: both are rotated.
    pub(super) fn config(&self) -> Result<Config, Problem> {
        let mut config = Config::new(self.server()?);
        let (ca, token) = (self.account.join("ca.crt"), self.account.join("token"));
        read(&token)?;
        let certificates: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(read(&ca)?.as_bytes())
            .filter_map(Result::ok)
            .map(|certificate| certificate.to_vec())
            .collect();
        if certificates.is_empty() {
            return Err(Problem::new(
                format!("{} holds no certificate", ca.display()),
                "the ConfigMap kube-root-ca.crt has to hold the API server's CA",
            ));
        }
        config.root_cert = Some(certificates);
        config.root_cert_file = Some(ca);
        config.auth_info =
            AuthInfo { token_file: Some(token.display().to_string()), ..AuthInfo::default() };
        if let Ok(namespace) = fs::read_to_string(self.account.join("namespace")) {
            namespace.trim().clone_into(&mut config.default_namespace);
        }
        Ok(config)
    }

    fn server(&self) -> Result<Uri, Problem> {
        let port = self.port.as_deref().unwrap_or("443");
        let host = match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => self.host.clone(),
        };
        let valid = port.parse::<u16>().is_ok_and(|port| port > 0);
        format!("https://{host}:{port}").parse().ok().filter(|_: &Uri| valid).ok_or_else(|| {
            Problem::new(
                format!(
                    "KUBERNETES_SERVICE_HOST={} and KUBERNETES_SERVICE_PORT={port} name no server",
                    self.host
                ),
                "leave them as the kubelet sets them, or set them to a reachable API server",
            )
        })
    }
}

fn read(path: &Path) -> Result<String, Problem> {
    fs::read_to_string(path).map_err(|problem| {
        Problem::new(
            format!("cannot read {}: {problem}", path.display()),
            "the pod needs a service account with automountServiceAccountToken, or --kubeconfig=<file>",
        )
    })
}
