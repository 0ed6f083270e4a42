//! Which certificates are accepted, and which one is shown.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    sign::{CertifiedKey, SingleCertAndKey},
};

/// The roots that the system trusts. A small image may have none.
pub fn system_roots() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// None of the certificates is a root.
    #[error("none of the {0} certificates can be used as a root")]
    Roots(usize),
    /// The TLS library rejects the set-up.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The TLS side of outgoing connections, which shows `identity` to servers that request a
/// certificate. Without `roots` every certificate is accepted, with an empty list none.
pub fn client_tls(
    roots: Option<Vec<CertificateDer<'static>>>,
    identity: Option<CertifiedKey>,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match roots {
        None => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
        Some(roots) => {
            let mut store = RootCertStore::empty();
            match store.add_parsable_certificates(roots) {
                (0, unusable) if unusable > 0 => return Err(TlsError::Roots(unusable)),
                _ => builder.with_root_certificates(store),
            }
        }
    };
    Ok(match identity {
        Some(identity) => {
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
        }
        None => builder.with_no_client_auth(),
    })
}

/// Accepts every certificate, but checks that the server has its key.
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
