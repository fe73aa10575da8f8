//! Trust in certificates: by a chain to an authority, or by the certificate itself.
//!
//! Like in Java, a certificate that is itself in the trust store is trusted. rustls alone rejects one that may also
//! sign others, such as those of `openssl req -x509`.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::certificate::PeerCertificate;

/// Comparison of a server's certificate with the host name that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostNames {
    /// They must match.
    Compared,
    /// Any certificate of a trusted authority will do.
    Ignored,
}

/// Certificates that are trusted without a chain.
#[derive(Clone, Debug)]
struct Pinned(Vec<CertificateDer<'static>>);

impl Pinned {
    /// Returns true if a certificate is trusted although its chain was rejected for this reason.
    fn accepts(&self, leaf: &CertificateDer<'_>, refused: &Error, now: UnixTime) -> bool {
        let is_final = matches!(
            refused,
            Error::InvalidCertificate(CertificateError::Revoked | CertificateError::BadSignature)
        );
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        !is_final
            && self.0.iter().any(|trusted| trusted.as_ref() == leaf.as_ref())
            && PeerCertificate::parse(leaf).is_some_and(|fields| fields.is_valid_at(seconds))
    }
}

/// Verifies certificates of clients.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    chains: Arc<dyn ClientCertVerifier>,
    pinned: Pinned,
}

impl ClientVerifier {
    pub(crate) fn new(
        chains: Arc<dyn ClientCertVerifier>,
        trusted: Vec<CertificateDer<'static>>,
    ) -> ClientVerifier {
        ClientVerifier { chains, pinned: Pinned(trusted) }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.chains.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chains.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.chains.verify_client_cert(end_entity, intermediates, now) {
            Err(error) if self.pinned.accepts(end_entity, &error, now) => {
                Ok(ClientCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Verifies certificates of servers.
#[derive(Debug)]
pub(crate) struct ServerVerifier {
    chains: Arc<WebPkiServerVerifier>,
    pinned: Pinned,
    host_names: HostNames,
}

impl ServerVerifier {
    pub(crate) fn new(
        chains: Arc<WebPkiServerVerifier>,
        trusted: Vec<CertificateDer<'static>>,
        host_names: HostNames,
    ) -> ServerVerifier {
        ServerVerifier { chains, pinned: Pinned(trusted), host_names }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.chains.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let error = match verified {
            Ok(verified) => return Ok(verified),
            Err(error) => error,
        };
        // Names are compared last, after the chain was verified.
        let is_name = matches!(
            error,
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            )
        );
        let is_trusted = is_name || self.pinned.accepts(end_entity, &error, now);
        match self.host_names {
            HostNames::Ignored if is_trusted => Ok(ServerCertVerified::assertion()),
            HostNames::Compared if is_trusted && !is_name => {
                let leaf = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&leaf, server_name).map(|()| ServerCertVerified::assertion())
            }
            _ => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}
