//! Decides which certificates are accepted, and which one we show.

use ccm_base::Files;
use ccm_cloud::{CloudError, ErrorKind};
use ccm_net::{PemFile, client_tls, identity, system_roots};
use rustls::ClientConfig;

use crate::config::Tls;

/// Returns the TLS side of connections. With `needed`, the lack of any root is an error.
pub fn client(tls: &Tls, needed: bool) -> Result<ClientConfig, CloudError> {
    let files = &mut Files::default();
    let roots = match &tls.ca_file {
        _ if tls.insecure => {
            tracing::warn!(
                "tls-insecure: certificates are not verified, so anyone on the network path can read the credentials; set ca-file instead"
            );
            None
        }
        Some(path) => Some(PemFile { setting: "ca-file", path }.certificates(files)),
        None => Some(Ok(system_roots())),
    };
    let roots = roots.transpose().map_err(invalid)?;
    if needed && roots.as_ref().is_some_and(Vec::is_empty) {
        return Err(invalid(
            "auth-url is https, but this system has no certificates to verify it with: set ca-file",
        ));
    }
    let identity = tls.client.as_ref().map(|(cert, key)| {
        let cert = PemFile { setting: "cert-file", path: cert };
        identity(cert, PemFile { setting: "key-file", path: key }, files)
    });
    let identity = identity.transpose().map_err(invalid)?;
    client_tls(roots, identity).map_err(|error| invalid(format!("ca-file: {error}")))
}

fn invalid(error: impl ToString) -> CloudError {
    CloudError::new(ErrorKind::Invalid, error.to_string())
}
