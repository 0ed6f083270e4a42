//! Certificates and keys from PEM files.

use std::path::{Path, PathBuf};

use ccm_base::{Files, message::escaped};
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};

/// A PEM file, and the setting that names it.
#[derive(Clone, Copy, Debug)]
pub struct PemFile<'a> {
    /// The name of the setting.
    pub setting: &'static str,
    /// The file.
    pub path: &'a Path,
}

/// A PEM file cannot be used. Never quotes the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {}: {why}", escaped(path))]
pub struct PemError {
    setting: &'static str,
    path: PathBuf,
    why: String,
}

impl PemFile<'_> {
    /// Returns the certificates in the file, at least one.
    pub fn certificates(self, files: &mut Files) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let pem = files.read(self.path).map_err(|why| self.error(why))?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let found = found.ok().filter(|found| !found.is_empty());
        found.ok_or_else(|| self.error("holds no certificate in PEM form".to_owned()))
    }

    fn key(self, files: &mut Files) -> Result<PrivateKeyDer<'static>, PemError> {
        let pem = files.read(self.path).map_err(|why| self.error(why))?;
        // The parser's error may quote the key.
        PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| self.error("holds no private key in PEM form".to_owned()))
    }

    fn error(self, why: String) -> PemError {
        PemError { setting: self.setting, path: self.path.to_owned(), why }
    }
}

/// Returns a certificate with its intermediates and its key.
pub fn identity(
    certificate: PemFile<'_>,
    key: PemFile<'_>,
    files: &mut Files,
) -> Result<CertifiedKey, PemError> {
    let chain = certificate.certificates(files)?;
    let private = key.key(files)?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|error| {
        key.error(format!(
            "is not the key of the first certificate in {}: {error}",
            escaped(certificate.path)
        ))
    })
}
