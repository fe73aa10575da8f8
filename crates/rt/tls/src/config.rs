//! TLS configurations of servers and clients.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::TimeProvider;
use crate::error::{Problem, TlsError};
use crate::material::{Identity, Trust};
use crate::offer::Offer;
pub use crate::verify::HostNames;
use crate::verify::{ClientVerifier, ServerVerifier};

/// Authentication of clients by certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// Clients are not asked for a certificate.
    #[default]
    NotRequired,
    /// Clients may show a certificate; it must be trusted.
    Optional,
    /// Clients must show a trusted certificate.
    Required,
}

/// Session resumption with tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SessionTickets {
    /// Reconnecting clients skip the costly part of the handshake.
    #[default]
    Issued,
    /// Every handshake is a full one.
    Off,
}

/// Components of a server's configuration.
#[derive(Clone, Debug)]
pub struct ServerParts {
    /// Heads the names of settings in errors: `client_encryption_options`.
    pub section: &'static str,
    /// Keys and chains that the server shows.
    pub identity: Identity,
    /// Authorities of clients' certificates.
    pub trust: Option<Trust>,
    /// Authentication of clients by certificate.
    pub client_auth: ClientAuth,
    /// Certificates that their authorities revoked.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
    /// Versions and suites.
    pub offer: Offer,
    /// Session resumption.
    pub tickets: SessionTickets,
    /// Source of the current time.
    pub clock: Arc<dyn TimeProvider>,
}

/// Components of a client's configuration.
#[derive(Clone, Debug)]
pub struct ClientParts {
    /// Heads the names of settings in errors: `server_encryption_options`.
    pub section: &'static str,
    /// Key and chain that the client shows when it is asked.
    pub identity: Option<Identity>,
    /// Authorities of servers' certificates.
    pub trust: Trust,
    /// Verification of the server's name.
    pub host_names: HostNames,
    /// Certificates that their authorities revoked.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
    /// Versions and suites.
    pub offer: Offer,
    /// Source of the current time.
    pub clock: Arc<dyn TimeProvider>,
}

/// Builds a server's configuration. Each has its own ticket keys: sessions of an older
/// configuration are not resumed.
///
/// # Errors
/// Clients must show certificates and no authority is trusted; or rustls rejects the parts.
pub fn server_config(parts: ServerParts) -> Result<Arc<ServerConfig>, TlsError> {
    let section = parts.section;
    let provider = provider(&parts.offer);
    let verifier = client_verifier(&parts, &provider)?;
    let refused = |error: rustls::Error| refused(section, &error);
    let builder = ServerConfig::builder_with_details(provider, parts.clock)
        .with_protocol_versions(&parts.offer.versions)
        .map_err(refused)?
        .with_client_cert_verifier(verifier);
    let mut config = builder.with_cert_resolver(Arc::new(KeyChoice(parts.identity.keys)));
    config.ignore_client_order = parts.offer.prefers_own_order;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if parts.tickets == SessionTickets::Issued && !parts.offer.without_tickets {
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(refused)?;
    } else {
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

/// Builds a client's configuration.
///
/// # Errors
/// rustls rejects the parts.
pub fn client_config(parts: ClientParts) -> Result<Arc<ClientConfig>, TlsError> {
    let section = parts.section;
    let provider = provider(&parts.offer);
    let roots = roots(&parts.trust, section)?;
    let chains = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .with_crls(parts.revoked)
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| Problem::new(error.to_string(), CHECK_TRUST).at(trust_place(section)))?;
    let verifier = ServerVerifier::new(chains, parts.trust.certificates, parts.host_names);
    let builder = ClientConfig::builder_with_details(provider, parts.clock)
        .with_protocol_versions(&parts.offer.versions)
        .map_err(|error| refused(section, &error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match parts.identity.and_then(|identity| identity.keys.into_iter().next()) {
        None => builder.with_no_client_auth(),
        Some(key) => {
            let resolver = rustls::sign::SingleCertAndKey::from(key);
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
    };
    Ok(Arc::new(config))
}

const CHECK_TRUST: &str = "check the trusted certificates and the revocation list";

fn trust_place(section: &str) -> String {
    format!("\"{section}.truststore\"")
}

fn refused(section: &str, error: &rustls::Error) -> TlsError {
    Problem::new(format!("cannot be used ({error})"), "check protocols, cipher suites and keys")
        .at(format!("\"{section}\""))
}

/// Cryptography provider with the suites of an offer and the defaults of the implementation.
fn provider(offer: &Offer) -> Arc<CryptoProvider> {
    let cipher_suites = offer.suites.clone();
    Arc::new(CryptoProvider { cipher_suites, ..rustls::crypto::ring::default_provider() })
}

fn roots(trust: &Trust, section: &str) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for (at, certificate) in trust.certificates.iter().enumerate() {
        roots.add(certificate.clone()).map_err(|error| {
            let problem = format!("trusted certificate {} cannot be used ({error})", at + 1);
            Problem::new(problem, "export it again").at(trust_place(section))
        })?;
    }
    Ok(Arc::new(roots))
}

fn client_verifier(
    parts: &ServerParts,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    if parts.client_auth == ClientAuth::NotRequired {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let Some(trust) = &parts.trust else {
        let problem = "is not set, but \"require_client_auth\" asks for certificates of clients";
        let remedy = "name the certificates of the clients' authorities";
        return Err(Problem::new(problem, remedy).at(trust_place(parts.section)));
    };
    let roots = roots(trust, parts.section)?;
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .with_crls(parts.revoked.iter().cloned())
        .allow_unknown_revocation_status();
    let builder = match parts.client_auth {
        ClientAuth::Required => builder,
        ClientAuth::Optional | ClientAuth::NotRequired => builder.allow_unauthenticated(),
    };
    let chains = builder.build().map_err(|error| {
        Problem::new(error.to_string(), CHECK_TRUST).at(trust_place(parts.section))
    })?;
    Ok(Arc::new(ClientVerifier::new(chains, trust.certificates.clone())))
}

/// Selects the first key whose signature scheme the client accepts, or else the first key.
#[derive(Debug)]
struct KeyChoice(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for KeyChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        self.0.iter().find(fits).or_else(|| self.0.first()).cloned()
    }
}
