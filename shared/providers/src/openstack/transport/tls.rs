//! Which certificates are accepted, and which one we show.

use std::{path::Path, sync::Arc};

use ccm_cloud::{CloudError, ErrorKind};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use crate::openstack::config::{Tls, files};

/// The TLS side of connections. With `needed`, the lack of any root is an error.
pub(super) fn client(tls: &Tls, needed: bool) -> Result<ClientConfig, CloudError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid(format!("no TLS: {error}")))?;
    let builder = if tls.insecure {
        tracing::warn!(
            "tls-insecure: certificates are not verified, so that whoever sits between us and the cloud can read the credentials; set ca-file instead"
        );
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else {
        let roots = match &tls.ca_file {
            Some(file) => from_file(file)?,
            None => of_system(needed)?,
        };
        builder.with_root_certificates(roots)
    };
    let Some((cert, key)) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(cert, "cert-file")?;
    let key_pem = read(key, "key-file")?;
    let private = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|_| {
        invalid(format!("key-file: {} holds no private key in PEM form", key.display()))
    })?;
    builder.with_client_auth_cert(chain, private).map_err(|error| {
        invalid(format!(
            "cert-file {} and key-file {} do not go together: {error}",
            cert.display(),
            key.display()
        ))
    })
}

fn from_file(file: &Path) -> Result<RootCertStore, CloudError> {
    let mut roots = RootCertStore::empty();
    let (good, bad) = roots.add_parsable_certificates(certificates(file, "ca-file")?);
    match good {
        0 => Err(invalid(format!(
            "ca-file: none of the {bad} certificates in {} can be used as a root",
            file.display()
        ))),
        _ => Ok(roots),
    }
}

fn of_system(needed: bool) -> Result<RootCertStore, CloudError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() && needed {
        true => Err(invalid(
            "auth-url is https, but this system has no certificates to verify it with: set ca-file"
                .to_owned(),
        )),
        false => Ok(roots),
    }
}

fn certificates(file: &Path, setting: &str) -> Result<Vec<CertificateDer<'static>>, CloudError> {
    let pem = read(file, setting)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| {
        invalid(format!("{setting}: {} holds no certificate in PEM form", file.display()))
    })
}

fn read(file: &Path, setting: &str) -> Result<Vec<u8>, CloudError> {
    files::bytes(file).map_err(|why| invalid(format!("{setting}: {} {why}", file.display())))
}

fn invalid(message: String) -> CloudError {
    CloudError::new(ErrorKind::Invalid, message)
}

/// Accepts whoever answers.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
