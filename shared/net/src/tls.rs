//! The certificates that are accepted, and the one that is shown.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
    sign::{CertifiedKey, SingleCertAndKey},
};

/// Returns the roots that the system trusts. A small image may not have any.
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

/// Returns the TLS side of outgoing connections, which shows `identity` to servers that request a
/// certificate. Without `roots` every certificate is accepted. With an empty list no certificate is
/// accepted.
pub fn client_tls(
    roots: Option<Vec<CertificateDer<'static>>>,
    identity: Option<CertifiedKey>,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match roots {
        None => {
            let verifier = Verifier { provider, trusted: None };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Some(roots) => {
            let mut store = RootCertStore::empty();
            match store.add_parsable_certificates(roots.iter().cloned()) {
                (0, unusable) if unusable > 0 => return Err(TlsError::Roots(unusable)),
                // The library does not make a verifier without roots, only a client that does not
                // trust any server.
                _ if store.is_empty() => builder.with_root_certificates(store),
                _ => {
                    let inner = WebPkiServerVerifier::builder_with_provider(
                        Arc::new(store),
                        Arc::clone(&provider),
                    );
                    let inner =
                        inner.build().map_err(|error| rustls::Error::General(error.to_string()))?;
                    let verifier = Verifier { provider, trusted: Some((inner, roots)) };
                    builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
                }
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

/// Verifies as the library does, and also accepts a server that shows a root itself: a self-signed
/// certificate that may sign others, as `openssl req -x509` makes it. The library refuses those,
/// Go and OpenSSL do not. The server must always have its certificate's key.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// The library's verifier and the roots; `None` if every certificate is accepted.
    trusted: Option<(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>)>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some((inner, roots)) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        match inner.verify_server_cert(shown, intermediates, name, ocsp, now) {
            // The certificate is within its dates here, because the library checks them first.
            Err(error) if is_authority(&error) && roots.contains(shown) => {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns true if the only objection is that the certificate may sign others.
fn is_authority(error: &rustls::Error) -> bool {
    // The library does not export the type of its verifier's errors.
    matches!(error, rustls::Error::InvalidCertificate(CertificateError::Other(other))
        if format!("{other:?}").contains("CaUsedAsEndEntity"))
}
