//! TLS: the certificate files of each server, and the checks of a server's certificate.
//!
//! Owns: `[ssl]` and `[certfiles]` of `cqlshrc`, the `SSL_…` variables, the check of the chain.
//! Never: sockets (see `blocking-client`).
//!
//! Like in cqlsh, the chain of the server must lead to the given file, and the name of the server
//! is not checked: certificates of nodes often have no address. A certificate that is itself in the
//! file is trusted, even if it is no authority.
//!
//! Source: `sslhandling.py` of cqlsh 6.2.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::config::Config;

/// Notice for a user who asks for a version of TLS.
pub(crate) const VERSION_NOTICE: &str = "\
Warning: Explicit SSL and TLS versions in the cqlshrc file or in SSL_VERSION environment property \
are ignored as the protocol is auto-negotiated.

";

/// TLS settings of `cqlshrc` and the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    validate: bool,
    /// The file of `SSL_CERTFILE`, for every server.
    of_environment: Option<String>,
    /// Files of single servers; names in lower case.
    of_hosts: Vec<(String, String)>,
    /// The file of the others.
    of_all: Option<String>,
    user_key: Option<String>,
    user_certificate: Option<String>,
    config_path: PathBuf,
    /// A version was requested, which has no effect.
    pub(crate) names_version: bool,
}

impl Tls {
    /// Reads the settings; a variable wins over the file.
    pub(crate) fn read(
        config: &Config,
        config_path: &Path,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Tls {
        let own = |name: &str| config.get("ssl", name).map(str::to_owned);
        let validate = variable("SSL_VALIDATE").or_else(|| own("validate"));
        Tls {
            validate: validate.is_none_or(|word| !word.eq_ignore_ascii_case("false")),
            of_environment: variable("SSL_CERTFILE"),
            of_hosts: config.section("certfiles").to_vec(),
            of_all: own("certfile"),
            user_key: own("userkey").filter(|path| !path.is_empty()),
            user_certificate: own("usercert").filter(|path| !path.is_empty()),
            config_path: config_path.to_owned(),
            names_version: variable("SSL_VERSION").or_else(|| own("version")).is_some(),
        }
    }

    /// The file of trusted certificates for a server; `None` without a check.
    ///
    /// # Errors
    /// There is none and the server is to be checked.
    pub(crate) fn trusted(&self, host: &str) -> Result<Option<&str>, String> {
        let host = host.to_lowercase();
        let of_host = self.of_hosts.iter().rev().find(|(known, _)| *known == host);
        let file = self.of_environment.as_deref();
        let file = file.or(of_host.map(|(_, file)| file.as_str())).or(self.of_all.as_deref());
        if self.validate && file.is_none() {
            return Err(format!(
                "Validation is enabled; SSL transport factory requires a valid certfile to be \
                 specified. Please provide path to the certfile in [ssl] section as 'certfile' \
                 option in {} (or use [certfiles] section) or set SSL_CERTFILE environment \
                 variable.",
                self.config_path.display()
            ));
        }
        Ok(file)
    }

    /// Reads the files that are for a server.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub(crate) fn client_config(&self, host: &str) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusted = match self.trusted(host)? {
            Some(file) => certificates("certfile", file)?,
            None => Vec::new(),
        };
        let verifier = Verifier::new(self.validate, trusted, Arc::clone(&provider))
            .map_err(|error| format!("certfile: {error}"))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match (&self.user_certificate, &self.user_key) {
            (None, None) => builder.with_no_client_auth(),
            (None, Some(_)) => return Err("[ssl] userkey: needs a usercert beside it".to_owned()),
            (Some(chain), key) => {
                let (name, path) = match key {
                    Some(key) => ("userkey", key),
                    None => ("usercert", chain),
                };
                let chain = certificates("usercert", chain)?;
                builder
                    .with_client_auth_cert(chain, private_key(name, path)?)
                    .map_err(|error| format!("[ssl] usercert and userkey: {error}"))?
            }
        };
        // cqlsh does not send a server name.
        config.enable_sni = false;
        Ok(config)
    }
}

fn read_file(option: &str, path: &str) -> Result<Vec<u8>, String> {
    let path = crate::home::expand_home(path);
    std::fs::read(&path).map_err(|error| {
        let why = crate::input::os_error(&error, &path);
        format!("{option}: {why}")
    })
}

fn certificates(option: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read_file(option, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{option}: no certificate in {path}")),
        Err(error) => Err(format!("{option}: {path}: {error}")),
    }
}

fn private_key(option: &str, path: &str) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = read_file(option, path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        // The likely cause: a key with a pass phrase has another section name.
        format!("{option}: no private key without a pass phrase in {path}")
    })
}

/// Checks the chain, and not the name.
#[derive(Debug)]
struct Verifier {
    /// `None`: any certificate will do.
    roots: Option<RootCertStore>,
    trusted: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(
        validate: bool,
        trusted: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Verifier, Error> {
        let mut roots = RootCertStore::empty();
        if validate {
            for certificate in &trusted {
                roots.add(certificate.clone())?;
            }
        }
        Ok(Verifier { roots: validate.then_some(roots), trusted, provider })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let checked = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            roots,
            intermediates,
            now,
            algorithms,
        );
        match checked {
            // This check comes after that of the certificate's times, so the times are valid.
            Err(Error::InvalidCertificate(CertificateError::Other(why)))
                if why.to_string().contains("CaUsedAsEndEntity")
                    && self.trusted.contains(end_entity) => {}
            other => other?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the text that OpenSSL, and so cqlsh, prints for a failed handshake.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return error.to_string();
    };
    let why = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "unable to get local issuer certificate".to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "certificate has expired".to_owned(),
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "certificate is not yet valid".to_owned(),
        Error::InvalidCertificate(why) => why.to_string(),
        Error::InvalidMessage(_) => {
            return "[SSL: WRONG_VERSION_NUMBER] wrong version number (the server does not seem to \
                    speak TLS)"
                .to_owned();
        }
        other => return format!("[SSL] {other}"),
    };
    format!("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {why}")
}

#[cfg(test)]
mod tests;
