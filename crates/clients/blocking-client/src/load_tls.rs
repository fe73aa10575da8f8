//! TLS of a load on the CQL port: the server is verified, or the user says that it is not.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::DefaultTimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tls::config::HostNames;
use tls::offer::OfferSettings;
use tls::{ClientParts, Identity, KeyMaterial, Offer, Trust, client_config};

use crate::api::source;
use crate::socket::TlsPeer;

/// Longest wait of each read of a handshake; a server may have thousands of others under way.
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

/// Name in the errors of settings.
const SECTION: &str = "--tls";

/// Verification of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerCheck {
    /// It must come from an authority in this file (PEM, JKS or PKCS12) and name the host.
    Authority(String),
    /// Any certificate is accepted. An attacker may be the server.
    Nothing,
}

/// Reconnections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnects {
    /// Sessions of earlier connections are resumed.
    Resume,
    /// Every handshake is a full one.
    StartOver,
}

/// Options of a load for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadTls {
    /// Verification of the server.
    pub check: ServerCheck,
    /// The client's certificate with its chain, PEM, or a key store that has the key too.
    pub certificate: Option<String>,
    /// Key of the certificate, PEM.
    pub key: Option<String>,
    /// Reconnections.
    pub reconnects: Reconnects,
    /// Java's names of the accepted protocols; empty: all.
    pub protocols: Vec<String>,
}

impl LoadTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be used, or an option is wrong; a sentence.
    pub fn open(&self) -> Result<TlsPeer, String> {
        let shown = |error: tls::TlsError| error.to_string();
        let offer = Offer::new(&OfferSettings {
            section: SECTION,
            protocol: None,
            accepted_protocols: self.protocols.clone(),
            cipher_suites: Vec::new(),
            priority_string: None,
        })
        .map_err(shown)?;
        let identity = self.identity()?;
        let config = match &self.check {
            ServerCheck::Nothing => unverified(identity, &offer).map_err(|e| e.to_string())?,
            ServerCheck::Authority(path) => client_config(ClientParts {
                section: SECTION,
                identity,
                trust: Trust::read(&source("--tls-ca", path)?, None).map_err(shown)?,
                host_names: HostNames::Compared,
                revoked: Vec::new(),
                offer,
                clock: Arc::new(DefaultTimeProvider),
            })
            .map_err(shown)?,
        };
        let mut config = Arc::unwrap_or_clone(config);
        if self.reconnects == Reconnects::StartOver {
            config.resumption = Resumption::disabled();
        }
        Ok(TlsPeer { config: Arc::new(config), timeout: HANDSHAKE_MAX })
    }

    fn identity(&self) -> Result<Option<Identity>, String> {
        let Some(certificate) = &self.certificate else {
            return match &self.key {
                None => Ok(None),
                Some(_) => Err("--tls-key needs --tls-cert".to_owned()),
            };
        };
        let material = KeyMaterial {
            store: source("--tls-cert", certificate)?,
            key: self.key.as_ref().map(|path| source("--tls-key", path)).transpose()?,
            password: None,
        };
        Identity::read(&material).map(Some).map_err(|error| error.to_string())
    }
}

/// Builds a configuration that accepts any certificate.
fn unverified(identity: Option<Identity>, offer: &Offer) -> Result<Arc<ClientConfig>, Error> {
    let cipher_suites = offer.suites.clone();
    let provider = CryptoProvider { cipher_suites, ..rustls::crypto::ring::default_provider() };
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&offer.versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)));
    let key = identity.and_then(|identity| identity.keys.into_iter().next());
    Ok(Arc::new(match key {
        None => builder.with_no_client_auth(),
        Some(key) => {
            let resolver = rustls::sign::SingleCertAndKey::from(key);
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
    }))
}

/// Accepts every certificate; the server must still own its key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread::JoinHandle;

    use rustls::{ServerConfig, ServerConnection, Stream};
    use tls::config::SessionTickets;
    use tls::material::Source;
    use tls::{ClientAuth, ServerParts, server_config};

    use super::*;
    use crate::Socket;

    fn fixture(name: &str) -> String {
        format!("{}/../../rt/tls/src/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    fn file(name: &str) -> Source {
        Source { place: name.to_owned(), bytes: std::fs::read(fixture(name)).unwrap() }
    }

    /// Shows the certificate of `node.example` and asks for one of the same authority.
    fn config() -> Arc<ServerConfig> {
        let material = KeyMaterial {
            store: file("node.pem"),
            key: Some(file("node-key.pem")),
            password: None,
        };
        server_config(ServerParts {
            section: "test",
            identity: Identity::read(&material).unwrap(),
            trust: Some(Trust::read(&file("ca.pem"), None).unwrap()),
            client_auth: ClientAuth::Required,
            revoked: Vec::new(),
            offer: Offer::default(),
            tickets: SessionTickets::Issued,
            clock: Arc::new(DefaultTimeProvider),
        })
        .unwrap()
    }

    /// Sends one byte on each of the next connections, after it has read one.
    fn serve(connections: usize) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = config();
        let serve = move || {
            for _ in 0..connections {
                let (mut socket, _) = listener.accept().unwrap();
                let mut session = ServerConnection::new(config.clone()).unwrap();
                let mut stream = Stream::new(&mut session, &mut socket);
                let mut byte = [0];
                // A client that refuses the certificate sends none.
                if stream.read_exact(&mut byte).is_ok() {
                    stream.write_all(&byte).unwrap();
                }
            }
        };
        (address, std::thread::spawn(serve))
    }

    fn options(check: ServerCheck, reconnects: Reconnects) -> LoadTls {
        LoadTls {
            check,
            certificate: Some(fixture("client.pem")),
            key: Some(fixture("client-key.pem")),
            reconnects,
            protocols: Vec::new(),
        }
    }

    /// Returns true if the session was resumed.
    fn dial(peer: &TlsPeer, address: SocketAddr, host: &str) -> Result<bool, String> {
        let socket = TcpStream::connect(address).unwrap();
        let mut socket = Socket::with_tls_to(socket, address, host, peer.clone())
            .map_err(|error| error.to_string())?;
        let is_resumed = socket.is_resumed();
        let mut byte = [7];
        socket.write_all(&byte).unwrap();
        socket.flush().unwrap();
        socket.read_exact(&mut byte).map_err(|error| error.to_string())?;
        Ok(is_resumed)
    }

    #[test]
    fn a_server_is_verified_unless_the_user_renounces_it() {
        let (address, server) = serve(5);
        let of = |authority| ServerCheck::Authority(fixture(authority));
        let resume = |check| options(check, Reconnects::Resume).open().unwrap();
        assert_eq!(dial(&resume(of("ca.pem")), address, "node.example"), Ok(false));
        let refused = dial(&resume(of("ca.pem")), address, "other.example").unwrap_err();
        assert!(refused.contains("not valid for name"), "{refused}");
        let refused = dial(&resume(of("rsa.pem")), address, "node.example").unwrap_err();
        assert!(refused.contains("invalid peer certificate"), "{refused}");
        assert_eq!(dial(&resume(ServerCheck::Nothing), address, "other.example"), Ok(false));
        let mut stranger = options(ServerCheck::Nothing, Reconnects::Resume);
        (stranger.certificate, stranger.key) = (None, None);
        assert!(dial(&stranger.open().unwrap(), address, "node.example").is_err());
        server.join().unwrap();
    }

    #[test]
    fn later_connections_resume_the_session_unless_they_start_over() {
        for (reconnects, expected) in [(Reconnects::Resume, true), (Reconnects::StartOver, false)] {
            let (address, server) = serve(3);
            let check = ServerCheck::Authority(fixture("ca.pem"));
            let peer = options(check, reconnects).open().unwrap();
            assert_eq!(dial(&peer, address, "node.example"), Ok(false));
            for _ in 0..2 {
                assert_eq!(dial(&peer, address, "node.example"), Ok(expected), "{reconnects:?}");
            }
            server.join().unwrap();
        }
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        let mut wrong = options(ServerCheck::Nothing, Reconnects::Resume);
        wrong.protocols = vec!["TLSv1.4".to_owned()];
        assert!(wrong.open().err().unwrap().contains("TLSv1.4"));
        wrong.protocols = vec!["TLSv1.2".to_owned()];
        assert!(wrong.open().is_ok());
        wrong.certificate = None;
        assert_eq!(wrong.open().err().unwrap(), "--tls-key needs --tls-cert");
        wrong = options(ServerCheck::Authority("/nosuch".to_owned()), Reconnects::Resume);
        assert!(wrong.open().err().unwrap().contains("\"--tls-ca\" /nosuch cannot be read"));
    }
}
