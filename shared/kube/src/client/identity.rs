//! A client certificate that is reloaded from its files.
//!
//! Component certificates are renewed at runtime. kube reads a kubeconfig's certificates once; this
//! module reads the files at each TLS handshake, which is rare. Existing connections keep their
//! certificate until the server refuses it (see [`super::transport`]).

use std::{path::PathBuf, sync::Arc};

use ccm_base::Files;
use ccm_net::{PemFile, identity};
use kube::config::AuthInfo;
use parking_lot::Mutex;
use rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};

/// The files, and their last valid contents.
#[derive(Debug)]
pub(super) struct ReloadingIdentity {
    certificate: PathBuf,
    key: PathBuf,
    last: Mutex<Option<Arc<CertifiedKey>>>,
}

impl ReloadingIdentity {
    /// Reads the identity of a user whose certificate and key are both files.
    pub(super) fn read(user: &AuthInfo) -> Option<Self> {
        if user.client_certificate_data.is_some() || user.client_key_data.is_some() {
            return None;
        }
        let (certificate, key) = (user.client_certificate.as_ref()?, user.client_key.as_ref()?);
        Some(Self { certificate: certificate.into(), key: key.into(), last: Mutex::default() })
    }
}

impl ResolvesClientCert for ReloadingIdentity {
    fn resolve(
        &self,
        _issuers: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let certificate = PemFile { setting: "client-certificate", path: &self.certificate };
        let key = PemFile { setting: "client-key", path: &self.key };
        let mut last = self.last.lock();
        match identity(certificate, key, &mut Files::default()) {
            Ok(new) => *last = Some(Arc::new(new)),
            // Half-written files occur during renewal.
            Err(error) => tracing::warn!(
                %error,
                "cannot reload the client certificate; keeping the last one"
            ),
        }
        last.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}
