//! TLS of connections: reads keys and certificates, passes them to the CQL server (here) and to messaging ([`nodes`]),
//! follows their files ([`follow`]).
//!
//! Owns: the choice of files by the settings ([`sources`]), the effects of reloads and of expiring certificates. Never:
//! formats (`tls::material`), the schedule of reloads (`tls::reload`). A start reads everything before it changes
//! anything; unusable content is an error that names its file. Handshakes of clients and of nodes have threads of their
//! own: a storm of clients must not delay nodes. A reload replaces the keys in use only after all new ones
//! were checked together, and never by a certificate that is not valid now.

pub(crate) mod follow;
pub(crate) mod nodes;
pub(crate) mod sources;

use std::rc::Rc;
use std::sync::Arc;

use conf::encryption::{CertificatesOfClients, EncryptionOptions};
use conf::{Encryption, Options};
use cql_server::{CertificateLimits, ClientChecks, CqlServer, PortEncryption};
use rt::{Gate, HandshakePool, Handshakes, Rt, TlsClock, TlsServer};
use tls::config::HostNames;
use tls::material::revocation_lists;
use tls::reload::Fingerprint;
use tls::rustls::ServerConfig;
use tls::{ClientAuth, Identity, PeerCertificate, ServerParts, TimeProvider, TlsError, Trust};

use follow::{KeyFollower, Prepared};
use sources::{Reading, Sources, keystore, tickets};

/// Name of the setting in errors.
const SECTION: &str = "client_encryption_options";

/// Steps of clients' handshakes that wait for each thread at most: with RSA 2048 two seconds of signatures.
const HANDSHAKES_MAX: usize = 4096;

/// Keys and settings of client connections.
pub(crate) struct ClientKeys {
    /// Encryption of the connections.
    pub(crate) encryption: PortEncryption,
    reading: Reading,
    loaded: Loaded,
    pool: HandshakePool,
}

/// Keys and certificates built from the files.
struct Loaded {
    tls: TlsServer,
    fingerprint: Fingerprint,
    /// Leaf certificates of the node.
    certificates: Vec<PeerCertificate>,
}

/// Reads keys and settings; `None` where no connection is encrypted.
///
/// # Errors
/// Connections are to be encrypted, and a file or a setting cannot be used.
pub(crate) async fn load(rt: &Rt, options: &Options) -> Result<Option<ClientKeys>, TlsError> {
    let options = &options.client_encryption_options;
    let encryption = match options.encryption(keystore(rt, options).await) {
        Encryption::None => return Ok(None),
        Encryption::Optional => PortEncryption::Optional,
        Encryption::Required => PortEncryption::Required,
    };
    if options.require_endpoint_verification
        && options.require_client_auth == CertificatesOfClients::NotRequired
    {
        tracing::warn!(
            "require_endpoint_verification of {SECTION} has no effect: clients are not asked for certificates; set \
             require_client_auth"
        );
    }
    let reading = Reading::of_clients(SECTION, options);
    let sources = reading.read(rt).await?;
    let pool = handshake_pool(rt, SECTION, "tls-clients", HANDSHAKES_MAX)?;
    let loaded = build(&reading, &sources, pool.handshakes())?;
    reading.warn_of_left_out()?;
    Ok(Some(ClientKeys { encryption, reading, loaded, pool }))
}

impl ClientKeys {
    /// Passes the keys to the server that listens and follows their files until the gate closes.
    pub(crate) fn install(self, rt: &Rt, gate: &Gate, server: &CqlServer) -> Rc<KeyFollower> {
        let checks = checks(&self.reading.options);
        let server = server.clone();
        self.follow(rt, gate, Rc::new(move |tls| server.set_tls(tls, checks)))
    }

    /// Puts the keys into use and follows their files until the gate closes.
    fn follow(self, rt: &Rt, gate: &Gate, put_to_use: PutToUse) -> Rc<KeyFollower> {
        let Loaded { tls, fingerprint, certificates } = self.loaded;
        put_to_use(tls);
        let (reading, handshakes) = (self.reading.clone(), self.pool.handshakes());
        let prepare = move |sources: &Sources| {
            let Loaded { tls, certificates, .. } = build(&reading, sources, handshakes.clone())?;
            let put_to_use = put_to_use.clone();
            Ok(Prepared { certificates, put_to_use: Box::new(move || put_to_use(tls)) })
        };
        KeyFollower::begin(
            rt,
            gate,
            self.reading,
            follow::InUse { fingerprint, certificates, pool: Some(self.pool) },
            Box::new(prepare),
        )
    }
}

/// Makes new connections use these keys.
type PutToUse = Rc<dyn Fn(TlsServer)>;

/// Limits on the certificates of the other side.
pub(crate) fn limits(options: &EncryptionOptions) -> CertificateLimits {
    CertificateLimits {
        validity_max: options.max_certificate_validity_period,
        warn_before: options.certificate_validity_warn_threshold,
    }
}

/// Checks of clients' certificates. As in Cassandra, a client's certificate is compared with the address that the client
/// connects from.
fn checks(options: &EncryptionOptions) -> ClientChecks {
    let addresses = match options.require_endpoint_verification {
        true => HostNames::Compared,
        false => HostNames::Ignored,
    };
    ClientChecks { limits: limits(options), addresses }
}

/// Starts the threads that compute the handshakes of a section's connections.
fn handshake_pool(
    rt: &Rt,
    section: &str,
    name: &'static str,
    waiting_max: usize,
) -> Result<HandshakePool, TlsError> {
    HandshakePool::start(rt, name, waiting_max).map_err(|error| TlsError {
        place: format!("\"{section}\""),
        problem: format!("no threads for handshakes can be started ({error})"),
        remedy: "raise the limit of threads of the server's user".to_owned(),
    })
}

/// Builds the configuration; checks all parts together.
fn build(reading: &Reading, sources: &Sources, handshakes: Handshakes) -> Result<Loaded, TlsError> {
    let (tls, certificates) = server(reading, sources, handshakes)?;
    Ok(Loaded { tls, fingerprint: sources.fingerprint(), certificates })
}

/// Builds the configuration of accepted connections, with the leaf certificates of its keys.
fn server(
    reading: &Reading,
    sources: &Sources,
    handshakes: Handshakes,
) -> Result<(TlsServer, Vec<PeerCertificate>), TlsError> {
    let clock = TlsClock::new();
    let (config, certificates) = server_config(reading, sources, clock.clone())?;
    Ok((TlsServer { config, clock, handshakes }, certificates))
}

/// Builds the configuration of accepted connections with any clock; see [`server`].
pub(crate) fn server_config(
    reading: &Reading,
    sources: &Sources,
    clock: Arc<dyn TimeProvider>,
) -> Result<(Arc<ServerConfig>, Vec<PeerCertificate>), TlsError> {
    let options = &reading.options;
    let identity = Identity::read(&sources.key)?;
    let certificates = identity.certificates().collect();
    let config = tls::server_config(ServerParts {
        section: reading.section,
        identity,
        trust: trust(sources)?,
        client_auth: match options.require_client_auth {
            CertificatesOfClients::NotRequired => ClientAuth::NotRequired,
            CertificatesOfClients::Optional => ClientAuth::Optional,
            CertificatesOfClients::Required => ClientAuth::Required,
        },
        revoked: sources.revoked.as_ref().map_or_else(|| Ok(Vec::new()), revocation_lists)?,
        offer: reading.offer()?,
        tickets: tickets(options),
        clock,
    })?;
    Ok((config, certificates))
}

fn trust(sources: &Sources) -> Result<Option<Trust>, TlsError> {
    let trust = sources.trust.as_ref();
    trust.map(|(source, password)| Trust::read(source, password.as_deref())).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf::{InternodeAuthenticator, ServerEncryptionOptions};
    use messaging::Policy;
    use rt::sim::{World, WorldOptions};
    use std::cell::Cell;
    use std::future::Future;
    use std::time::Duration;

    /// Bytes of a fixture of the `tls` crate, valid for a hundred years.
    macro_rules! fixture {
        ($name:literal) => {
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../rt/tls/src/fixtures/", $name))
                .as_slice()
        };
    }

    /// Runs on a machine in 2030, when the fixtures are valid.
    fn run<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F + 'static) {
        let wall_start_micros = 1_900_000_000_000_000;
        let world = World::new(5, WorldOptions { wall_start_micros, ..WorldOptions::default() });
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        world.client("n1", move |rt| async move {
            main(rt).await;
            seen.set(true);
        });
        world.run_until(|| done.get(), Duration::from_secs(86_400)).unwrap();
    }

    fn options(text: &str) -> Options {
        let node = conf::yaml::parse(text).unwrap();
        let client_encryption_options = EncryptionOptions::parse(&node).unwrap();
        Options { client_encryption_options, ..Options::default() }
    }

    async fn write(rt: &Rt, path: &str, parts: &[&[u8]]) {
        rt.fs().create_dir_all("/tls").await.unwrap();
        rt.fs().write_atomic(path, parts.concat()).await.unwrap();
    }

    /// Returns the outcome of a start with these settings.
    async fn loaded(rt: &Rt, text: &str) -> String {
        match load(rt, &options(text)).await {
            Ok(None) => "in the clear".to_owned(),
            Ok(Some(keys)) => {
                let names = keys.loaded.certificates.iter().filter_map(|c| c.common_name.clone());
                format!("{:?} by {}", keys.encryption, names.collect::<Vec<_>>().join(" "))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn keys_come_from_the_files_that_the_settings_name() {
        run(|rt| async move {
            write(&rt, "/tls/k.jks", &[fixture!("keytool.jks")]).await;
            write(&rt, "/tls/k.pem", &[fixture!("node-key.pem"), fixture!("node.pem")]).await;
            write(&rt, "/tls/node.pem", &[fixture!("node.pem")]).await;
            write(&rt, "/tls/node.key", &[fixture!("node-key-encrypted.pem")]).await;
            write(&rt, "/tls/password", &[b"cassandra\nnot this line\n"]).await;
            write(&rt, "/tls/binary", &[&[0xff, 0xfe]]).await;
            let store = "\"client_encryption_options.keystore\"";
            for (text, expected) in [
                ("{enabled: false}", "in the clear".to_owned()),
                ("{enabled: false, keystore: /tls/none}", "in the clear".to_owned()),
                ("{enabled: false, keystore: /tls/k.pem}", "Optional by node.example".to_owned()),
                ("{enabled: false, optional: false, keystore: /tls/k.pem}", "in the clear".to_owned()),
                ("{enabled: true, keystore: /tls/k.pem}", "Required by node.example".to_owned()),
                (
                    "{enabled: true, keystore: /tls/k.jks, keystore_password_file: /tls/password}",
                    "Required by jks.example".to_owned(),
                ),
                (
                    "{enabled: true, keystore: /tls/k.jks, keystore_password: other, \
                     keystore_password_file: /tls/password}",
                    format!(
                        "{store} /tls/k.jks: the password is wrong or the key store is damaged; \
                         check its password with \"keytool -list -keystore FILE\""
                    ),
                ),
                (
                    "{enabled: true, certificate: /tls/node.pem, keyfile: /tls/node.key, \
                     keystore_password: cassandra, optional: true}",
                    "Optional by node.example".to_owned(),
                ),
                (
                    "{enabled: true, keystore: /tls/k.pem, keystore_password_file: /tls/binary}",
                    "\"client_encryption_options.keystore_password_file\" /tls/binary: is not a text of \
                     one line; write the password into its first line"
                        .to_owned(),
                ),
                (
                    "{enabled: true, keystore: /tls/k.pem, require_endpoint_verification: true}",
                    "Required by node.example".to_owned(),
                ),
            ] {
                assert_eq!(loaded(&rt, text).await, expected, "{text}");
            }
            let missing = loaded(&rt, "{enabled: true, keystore: /tls/none}").await;
            assert!(
                missing.starts_with(&format!("{store} /tls/none: cannot be read (")),
                "{missing}"
            );
            assert!(missing.ends_with("; create the file or correct the path"), "{missing}");
        });
    }

    #[test]
    fn changed_files_are_put_to_use_whole_or_not_at_all() {
        run(|rt| async move {
            let (key, first, second) =
                (fixture!("node-key.pem"), fixture!("node.pem"), fixture!("ca.pem"));
            write(&rt, "/tls/k.pem", &[key, first]).await;
            let options = options("{enabled: true, keystore: /tls/k.pem}");
            let keys = load(&rt, &options).await.unwrap().unwrap();
            let (gate, used) = (rt.gate("keys"), Rc::new(Cell::new(0)));
            let counted = used.clone();
            let put_to_use = Rc::new(move |_: TlsServer| counted.set(counted.get() + 1));
            let follower = keys.follow(&rt, &gate, put_to_use);
            let pass = async |seconds| rt.sleep(Duration::from_secs(seconds)).await;
            pass(30).await;
            assert_eq!(used.get(), 1);
            // Half-written: the earlier keys stay in use, and the failure is logged once.
            write(&rt, "/tls/k.pem", &[key, &first[..300]]).await;
            pass(60).await;
            assert_eq!((used.get(), follower.failures.get()), (1, 1));
            let error = follower.reload().await.unwrap_err().to_string();
            assert!(error.contains("section 2 (CERTIFICATE) is cut off"), "{error}");
            rt.fs().remove_file("/tls/k.pem").await.unwrap();
            pass(60).await;
            assert_eq!((used.get(), follower.failures.get()), (1, 3));
            write(&rt, "/tls/k.pem", &[key, first, second]).await;
            pass(12).await;
            assert_eq!((used.get(), follower.reloads.get()), (2, 1));
            // On demand the files are reloaded immediately, changed or not.
            follower.reload().await.unwrap();
            assert_eq!((used.get(), follower.reloads.get()), (3, 2));
            pass(60).await;
            assert_eq!((used.get(), follower.failures.get()), (3, 3));
            assert!(follower.expiry.get() > 4_000_000_000);
        });
    }

    /// A key with a certificate that ends on the second day of a year.
    fn certificate_until(year: i32) -> String {
        certificate_between((1975, 1, 2), (year, 1, 2))
    }

    /// Valid between two days.
    fn certificate_between(from: (i32, u8, u8), until: (i32, u8, u8)) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["node".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        key.serialize_pem() + &params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn a_reload_never_installs_an_expired_certificate() {
        run(|rt| async move {
            let put = async |year| {
                write(&rt, "/tls/k.pem", &[certificate_until(year).as_bytes()]).await;
            };
            put(2031).await;
            let options = options("{enabled: true, keystore: /tls/k.pem}");
            let keys = load(&rt, &options).await.unwrap().unwrap();
            let (gate, used) = (rt.gate("keys"), Rc::new(Cell::new(0)));
            let counted = used.clone();
            let put_to_use = Rc::new(move |_: TlsServer| counted.set(counted.get() + 1));
            let follower = keys.follow(&rt, &gate, put_to_use);
            let expiry = follower.expiry.get();
            // The machine's year is 2030.
            for (year, expected) in [(2030, false), (2032, true), (2029, false)] {
                put(year).await;
                let (before, reloaded) = (used.get(), follower.reload().await);
                assert_eq!(used.get() > before, expected, "{year}");
                match reloaded {
                    Ok(()) => assert!(expected && follower.expiry.get() > expiry, "{year}"),
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.contains("expired") && error.contains("days ago"), "{error}");
                        assert!(error.starts_with("\"client_encryption_options\""), "{error}");
                    }
                }
            }
            assert_eq!((follower.reloads.get(), follower.failures.get()), (1, 2));
            // A change of the files is refused alike, and no reload is needed for the next one.
            put(2028).await;
            rt.sleep(Duration::from_secs(30)).await;
            assert_eq!((follower.reloads.get(), follower.failures.get()), (1, 3));
            put(2033).await;
            rt.sleep(Duration::from_secs(30)).await;
            assert_eq!((follower.reloads.get(), follower.failures.get()), (2, 3));
        });
    }

    #[test]
    fn a_certificate_that_is_not_valid_yet_is_loaded_when_it_is() {
        run(|rt| async move {
            write(&rt, "/tls/k.pem", &[certificate_until(2040).as_bytes()]).await;
            let options = options(
                "{enabled: true, keystore: /tls/k.pem, require_endpoint_verification: true}",
            );
            assert_eq!(checks(&options.client_encryption_options).addresses, HostNames::Compared);
            let keys = load(&rt, &options).await.unwrap().unwrap();
            let (gate, used) = (rt.gate("keys"), Rc::new(Cell::new(0)));
            let counted = used.clone();
            let put_to_use = Rc::new(move |_: TlsServer| counted.set(counted.get() + 1));
            let follower = keys.follow(&rt, &gate, put_to_use);
            // The machine's time is the evening of 17 March 2030.
            for (from, problem) in [
                ((2031, 1, 2), "is not valid for another 290 days"),
                ((2030, 3, 18), "is not valid yet: it will be within a day"),
            ] {
                let next = certificate_between(from, (2039, 1, 2));
                write(&rt, "/tls/k.pem", &[next.as_bytes()]).await;
                let error = follower.reload().await.unwrap_err().to_string();
                assert!(error.contains(problem), "{error}");
            }
            rt.sleep(Duration::from_secs(6 * 3600)).await;
            assert_eq!((used.get(), follower.failures.get()), (1, 2));
            rt.sleep(Duration::from_secs(3600)).await;
            assert_eq!((used.get(), follower.failures.get()), (2, 2));
        });
    }

    #[test]
    fn the_threads_of_handshakes_do_not_hold_up_a_stop() {
        run(|rt| async move {
            write(&rt, "/tls/k.pem", &[certificate_until(2040).as_bytes()]).await;
            let options = options("{enabled: true, keystore: /tls/k.pem}");
            let keys = load(&rt, &options).await.unwrap().unwrap();
            let gate = rt.gate("keys");
            let follower = keys.follow(&rt, &gate, Rc::new(|_: TlsServer| ()));
            let watched = follower.failure();
            gate.spawn(&rt, rt::Group::Admin, "watch", async move {
                assert_eq!(watched.await, None);
            })
            .unwrap();
            rt.request_stop();
            // The follower, and with it the threads, outlives the gate.
            let closed = rt.timeout(rt.now() + Duration::from_secs(60), gate.close()).await;
            assert!(closed.is_ok());
            drop(follower);
        });
    }

    /// A trust store or a list of revoked certificates must reach a node whose own certificate has expired.
    #[test]
    fn an_expired_certificate_in_use_does_not_block_other_changes() {
        run(|rt| async move {
            let trusted = certificate_until(2040);
            let own = certificate_until(2029);
            write(&rt, "/tls/k.pem", &[own.as_bytes()]).await;
            write(&rt, "/tls/t.pem", &[trusted.as_bytes()]).await;
            let options = options(
                "{enabled: true, keystore: /tls/k.pem, truststore: /tls/t.pem, require_client_auth: true}",
            );
            let keys = load(&rt, &options).await.unwrap().unwrap();
            let gate = rt.gate("keys");
            let follower = keys.follow(&rt, &gate, Rc::new(|_: TlsServer| ()));
            write(&rt, "/tls/t.pem", &[certificate_until(2041).as_bytes()]).await;
            follower.reload().await.unwrap();
            write(&rt, "/tls/k.pem", &[certificate_until(2028).as_bytes()]).await;
            assert!(follower.reload().await.is_err());
        });
    }

    /// Returns the outcome of a start with these settings between nodes.
    async fn of_nodes(rt: &Rt, text: &str, authenticator: InternodeAuthenticator) -> String {
        let node = conf::yaml::parse(text).unwrap();
        let options = Options {
            server_encryption_options: ServerEncryptionOptions::parse(&node).unwrap(),
            internode_authenticator: authenticator,
            ..Options::default()
        };
        match nodes::load(rt, &options).await {
            Ok(None) => "in the clear".to_owned(),
            Ok(Some(keys)) => {
                let encryption = keys.encryption();
                let makes =
                    if encryption.client.is_some() { "makes and accepts" } else { "accepts" };
                let Policy { scope, strictness } = encryption.policy;
                let identities = encryption.checks.identities.unwrap_or_default();
                format!("{makes} {scope:?} {strictness:?} {identities:?}")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn keys_between_nodes_are_read_and_checked_together() {
        run(|rt| async move {
            write(&rt, "/tls/k.pem", &[fixture!("node-key.pem"), fixture!("node.pem")]).await;
            write(&rt, "/tls/c.pem", &[fixture!("client-key.pem"), fixture!("client.pem")]).await;
            write(&rt, "/tls/rsa.pem", &[fixture!("rsa-pkcs1.pem"), fixture!("rsa.pem")]).await;
            write(&rt, "/tls/ca.pem", &[fixture!("ca.pem")]).await;
            let all = |rest: &str| {
                format!(
                    "{{internode_encryption: all, keystore: /tls/k.pem, truststore: /tls/ca.pem{rest}}}"
                )
            };
            let section = "\"server_encryption_options";
            for (text, expected) in [
                ("{internode_encryption: none}".to_owned(), "in the clear".to_owned()),
                ("{internode_encryption: none, keystore: /tls/none}".to_owned(), "in the clear".to_owned()),
                (
                    "{internode_encryption: none, keystore: /tls/k.pem}".to_owned(),
                    "accepts None Strict {}".to_owned(),
                ),
                (
                    "{internode_encryption: none, optional: false, keystore: /tls/k.pem}".to_owned(),
                    "in the clear".to_owned(),
                ),
                (all(""), "makes and accepts All Strict {}".to_owned()),
                (all(", optional: true"), "makes and accepts All Optional {}".to_owned()),
                (all(", outbound_keystore: /tls/c.pem"), "makes and accepts All Strict {}".to_owned()),
                (
                    "{internode_encryption: transitional, certificate: /tls/k.pem, keyfile: /tls/k.pem, \
                      truststore: /tls/ca.pem}"
                        .to_owned(),
                    "makes and accepts All Optional {}".to_owned(),
                ),
                (
                    "{internode_encryption: dc, keystore: /tls/k.pem}".to_owned(),
                    format!(
                        "{section}.truststore\": is not set, but certificates of other nodes must be verified; \
                         name the certificates of the nodes' authorities"
                    ),
                ),
                (
                    all(", outbound_keystore: /tls/ca.pem"),
                    format!(
                        "{section}.outbound_keystore\" /tls/ca.pem: has no private key; add the key of the \
                         certificate (PEM: a section PRIVATE KEY)"
                    ),
                ),
            ] {
                let found = of_nodes(&rt, &text, InternodeAuthenticator::AllowAll).await;
                assert_eq!(found, expected, "{text}");
            }
        });
    }

    #[test]
    fn identities_of_peers_are_those_of_the_own_certificate_unless_they_are_named() {
        run(|rt| async move {
            write(&rt, "/tls/k.pem", &[fixture!("node-key.pem"), fixture!("node.pem")]).await;
            write(&rt, "/tls/rsa.pem", &[fixture!("rsa-pkcs1.pem"), fixture!("rsa.pem")]).await;
            write(&rt, "/tls/ca.pem", &[fixture!("ca.pem")]).await;
            let own = "spiffe://test.example/node";
            let name = |name: &str| Some(name.to_owned());
            for (key, trusted, node, expected) in [
                ("k", None, None, format!("All Strict {{\"{own}\"}}")),
                ("k", None, name(own), format!("All Strict {{\"{own}\"}}")),
                ("k", Some(vec!["a".to_owned()]), None, "All Strict {\"a\"}".to_owned()),
                (
                    "k",
                    None,
                    name("b"),
                    "is not matching identity extracted from the keystore".to_owned(),
                ),
                (
                    "rsa",
                    None,
                    None,
                    "No identity was extracted from the outbound keystore".to_owned(),
                ),
            ] {
                let text = format!(
                    "{{internode_encryption: all, keystore: /tls/{key}.pem, truststore: /tls/ca.pem, \
                     require_client_auth: true}}"
                );
                let authenticator = InternodeAuthenticator::MutualTls { trusted, node };
                let found = of_nodes(&rt, &text, authenticator).await;
                assert!(found.contains(&expected), "{key}: {found}");
            }
        });
    }
}
