//! A client certificate that is reloaded from its files.
//!
//! Component certificates are renewed at runtime. kube reads those of a kubeconfig once;
//! this module reads the files at each TLS handshake, which is rare. Existing connections
//! keep their certificate until the server refuses it (see [`super::transport`]).

use std::{fmt, fs, io, path::PathBuf, sync::Arc};

use kube::config::AuthInfo;
use parking_lot::Mutex;
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    sign::CertifiedKey,
};

/// Why the files contain no usable certificate.
#[derive(Debug, thiserror::Error)]
enum IdentityError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not PEM")]
    Pem { path: PathBuf, source: pem::Error },
    #[error("certificate and key do not fit")]
    Mismatch(#[from] rustls::Error),
}

/// The files, and their last valid contents.
pub(super) struct ReloadingIdentity {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    current: Mutex<Option<Current>>,
}

struct Current {
    /// The files' contents; they are parsed only after a change.
    pem: (Vec<u8>, Vec<u8>),
    identity: Arc<CertifiedKey>,
}

impl ReloadingIdentity {
    /// For a user whose certificate and key are both files.
    pub(super) fn of(user: &AuthInfo, provider: Arc<CryptoProvider>) -> Option<Self> {
        if user.client_certificate_data.is_some() || user.client_key_data.is_some() {
            return None;
        }
        let (certificate, key) = (user.client_certificate.as_ref()?, user.client_key.as_ref()?);
        Some(Self {
            certificate: certificate.into(),
            key: key.into(),
            provider,
            current: Mutex::new(None),
        })
    }

    fn reload(&self, current: &mut Option<Current>) -> Result<(), IdentityError> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|source| IdentityError::Read { path: path.clone(), source })
        };
        let pem = (read(&self.certificate)?, read(&self.key)?);
        if current.as_ref().is_some_and(|current| current.pem == pem) {
            return Ok(());
        }
        let certificates = CertificateDer::pem_slice_iter(&pem.0)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| IdentityError::Pem { path: self.certificate.clone(), source })?;
        let key = PrivateKeyDer::from_pem_slice(&pem.1)
            .map_err(|source| IdentityError::Pem { path: self.key.clone(), source })?;
        let identity = Arc::new(CertifiedKey::from_der(certificates, key, &self.provider)?);
        *current = Some(Current { pem, identity });
        Ok(())
    }
}

impl ResolvesClientCert for ReloadingIdentity {
    fn resolve(
        &self,
        _issuers: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        let mut current = self.current.lock();
        // Half-written files occur during renewal: keep the last valid certificate.
        if let Err(error) = self.reload(&mut current) {
            tracing::warn!(
                error = ccm_base::message::chain(&error),
                "cannot reload the client certificate; keeping the last one"
            );
        }
        current.as_ref().map(|current| Arc::clone(&current.identity))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for ReloadingIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadingIdentity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
