//! TLS of client connections: reads keys and certificates, passes them to the CQL server, follows their files.
//!
//! Owns: the choice of files by the settings, the effects of reloads and of expiring certificates. Never: formats
//! (`tls::material`), the schedule of reloads (`tls::reload`). A start reads everything before it changes anything;
//! unusable content is an error that names its file. A reload replaces the keys in use only after all new ones were
//! checked together.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use conf::encryption::{
    CertificatesOfClients, EncryptionOptions, KeyPlace, KeystoreFile, Password, TrustPlace,
};
use conf::{Encryption, Options};
use cql_server::{CertificateLimits, CqlServer, PortEncryption};
use rt::{Gate, Group, IoErrorKind, Rt, TlsClock, TlsServer};
use tls::config::SessionTickets;
use tls::material::{SOURCE_BYTES_MAX, revocation_lists};
use tls::offer::OfferSettings;
use tls::reload::{Decision, ExpiryNotice, ExpiryWatch, Fingerprint, QUIET, Reload};
use tls::{
    ClientAuth, Identity, KeyMaterial, Offer, PeerCertificate, ServerParts, Source, TlsError, Trust,
};

/// Name of the setting in errors.
const SECTION: &str = "client_encryption_options";
/// Interval at which the files are read to detect changes.
const POLL: Duration = Duration::from_secs(10);
/// Longest password file.
const PASSWORD_BYTES_MAX: usize = 4096;

/// Keys and settings of client connections.
pub(crate) struct ClientKeys {
    /// Encryption of the connections.
    pub(crate) encryption: PortEncryption,
    options: EncryptionOptions,
    loaded: Loaded,
}

/// Keys and certificates built from the files.
struct Loaded {
    tls: TlsServer,
    fingerprint: Fingerprint,
    /// Leaf certificates of the node.
    certificates: Vec<PeerCertificate>,
}

/// Content of all files and texts that the settings name.
struct Sources {
    key: KeyMaterial,
    trust: Option<(Source, Option<String>)>,
    revoked: Option<Source>,
}

/// Reads keys and settings; `None` where no connection is encrypted.
///
/// # Errors
/// Connections are to be encrypted, and a file or a setting cannot be used.
pub(crate) async fn load(rt: &Rt, options: &Options) -> Result<Option<ClientKeys>, TlsError> {
    let options = &options.client_encryption_options;
    let keystore = match &options.key {
        Some(KeyPlace::Store(path)) => match rt.fs().exists(path).await {
            Ok(false) => KeystoreFile::Missing,
            Ok(true) | Err(_) => KeystoreFile::Present,
        },
        Some(KeyPlace::Files { .. } | KeyPlace::Inline(_)) => KeystoreFile::Present,
        None => KeystoreFile::Missing,
    };
    let encryption = match options.encryption(keystore) {
        Encryption::None => return Ok(None),
        Encryption::Optional => PortEncryption::Optional,
        Encryption::Required => PortEncryption::Required,
    };
    if options.require_endpoint_verification {
        return Err(TlsError {
            place: format!("\"{SECTION}.require_endpoint_verification\""),
            problem: "is not supported for clients, which rarely have certificates of addresses"
                .to_owned(),
            remedy: "remove it; \"require_client_auth: true\" verifies certificates".to_owned(),
        });
    }
    let sources = read(rt, options).await?;
    let loaded = build(options, &sources)?;
    for name in offer(options)?.left_out {
        tracing::warn!(
            name,
            "a protocol or cipher suite of {SECTION} is not offered: it is obsolete"
        );
    }
    Ok(Some(ClientKeys { encryption, options: options.clone(), loaded }))
}

impl ClientKeys {
    /// Passes the keys to the server that listens and follows their files until the gate closes.
    pub(crate) fn install(self, rt: &Rt, gate: &Gate, server: &CqlServer) -> Rc<KeyFollower> {
        let limits = CertificateLimits {
            validity_max: self.options.max_certificate_validity_period,
            warn_before: self.options.certificate_validity_warn_threshold,
        };
        let server = server.clone();
        self.follow(rt, gate, Box::new(move |tls| server.set_tls(tls, limits)))
    }

    /// Puts the keys into use and follows their files until the gate closes.
    fn follow(self, rt: &Rt, gate: &Gate, put_to_use: PutToUse) -> Rc<KeyFollower> {
        put_to_use(self.loaded.tls.clone());
        let follower = Rc::new(KeyFollower::new(rt, self, put_to_use));
        let following = follower.clone();
        // The gate is closed: the node stops.
        let _ = gate.spawn(rt, Group::Admin, "tls-reload", async move { following.follow().await });
        follower
    }
}

/// Makes new connections use these keys.
type PutToUse = Box<dyn Fn(TlsServer)>;

/// Follows the files of keys and certificates.
pub(crate) struct KeyFollower {
    /// Encryption of the connections.
    pub(crate) encryption: PortEncryption,
    rt: Rt,
    put_to_use: PutToUse,
    options: EncryptionOptions,
    reload: RefCell<Reload>,
    certificates: RefCell<Vec<(PeerCertificate, ExpiryWatch)>>,
    reloads: telemetry::Counter,
    failures: telemetry::Counter,
    expiry: telemetry::Gauge,
}

impl KeyFollower {
    fn new(rt: &Rt, keys: ClientKeys, put_to_use: PutToUse) -> KeyFollower {
        let shard = rt.telemetry();
        KeyFollower {
            encryption: keys.encryption,
            rt: rt.clone(),
            put_to_use,
            options: keys.options,
            reload: RefCell::new(Reload::new(keys.loaded.fingerprint)),
            certificates: RefCell::new(watched(keys.loaded.certificates)),
            reloads: shard.counter(
                "tls_reloads_total",
                "changed keys and certificates in use",
                &[],
            ),
            failures: shard.counter(
                "tls_reload_failures_total",
                "changed keys and certificates that could not be used; the earlier ones stay",
                &[],
            ),
            expiry: shard.gauge(
                "tls_certificate_expiry_seconds",
                "time at which the first certificate of this node ends, seconds since 1970",
                &[],
            ),
        }
    }

    async fn follow(&self) {
        loop {
            self.report_expiry();
            let pause = match self.look().await {
                Decision::Wait => QUIET,
                Decision::Keep | Decision::Load => POLL,
            };
            let stopping = self.rt.stop_requested();
            if self.rt.timeout(self.rt.now() + pause, stopping).await.is_ok() {
                return;
            }
        }
    }

    /// Reads the files and loads them if they changed and are stable.
    async fn look(&self) -> Decision {
        let read = read(&self.rt, &self.options).await;
        let fingerprint = fingerprint_of(&read);
        let decision = self.reload.borrow_mut().observe(self.rt.now(), fingerprint);
        if decision == Decision::Load {
            // The error was logged.
            let _ = self.use_sources(read, fingerprint);
        }
        decision
    }

    /// Reloads the files immediately, changed or not.
    ///
    /// # Errors
    /// They cannot be used; the earlier keys stay.
    pub(crate) async fn reload(&self) -> Result<(), TlsError> {
        let read = read(&self.rt, &self.options).await;
        let fingerprint = fingerprint_of(&read);
        self.use_sources(read, fingerprint)
    }

    fn use_sources(
        &self,
        read: Result<Sources, TlsError>,
        fingerprint: Fingerprint,
    ) -> Result<(), TlsError> {
        match read.and_then(|sources| build(&self.options, &sources)) {
            Ok(loaded) => {
                self.reload.borrow_mut().loaded(fingerprint);
                self.reloads.inc();
                tracing::info!("reloaded keys and certificates of {SECTION} for new connections");
                *self.certificates.borrow_mut() = watched(loaded.certificates);
                (self.put_to_use)(loaded.tls);
                self.report_expiry();
                Ok(())
            }
            Err(error) => {
                self.reload.borrow_mut().failed(fingerprint);
                self.failures.inc();
                tracing::error!(
                    %error,
                    "cannot reload keys and certificates; the earlier ones stay in use"
                );
                Err(error)
            }
        }
    }

    fn report_expiry(&self) {
        let now = self.rt.wall().0 / 1_000_000;
        let mut certificates = self.certificates.borrow_mut();
        let first = certificates.iter().map(|(certificate, _)| certificate.not_after).min();
        self.expiry.set(first.unwrap_or(0));
        for (certificate, watch) in certificates.iter_mut() {
            let subject = &certificate.subject;
            match watch.check(certificate.not_after, now) {
                Some(ExpiryNotice::Expired) => {
                    tracing::error!(subject, "the certificate of {SECTION} has expired; renew it");
                }
                Some(ExpiryNotice::Days(days)) => {
                    tracing::warn!(
                        subject,
                        days,
                        "the certificate of {SECTION} expires soon; renew it"
                    );
                }
                None => {}
            }
        }
    }
}

fn watched(certificates: Vec<PeerCertificate>) -> Vec<(PeerCertificate, ExpiryWatch)> {
    certificates.into_iter().map(|certificate| (certificate, ExpiryWatch::default())).collect()
}

/// Returns the fingerprint of a read; a temporarily missing file is a change like any other.
fn fingerprint_of(read: &Result<Sources, TlsError>) -> Fingerprint {
    match read {
        Ok(sources) => sources.fingerprint(),
        Err(error) => Fingerprint::of([&Source { place: error.to_string(), bytes: Vec::new() }]),
    }
}

impl Sources {
    fn fingerprint(&self) -> Fingerprint {
        let trust = self.trust.as_ref().map(|(source, _)| source);
        let parts = [Some(&self.key.store), self.key.key.as_ref(), trust, self.revoked.as_ref()];
        Fingerprint::of(parts.into_iter().flatten())
    }
}

async fn read(rt: &Rt, options: &EncryptionOptions) -> Result<Sources, TlsError> {
    let password = password(rt, &options.key_password, "keystore_password_file").await?;
    let key = match options.key_place() {
        KeyPlace::Store(path) => {
            KeyMaterial { store: file(rt, "keystore", &path).await?, key: None, password }
        }
        KeyPlace::Files { certificate, keyfile } => KeyMaterial {
            store: file(rt, "certificate", &certificate).await?,
            key: Some(file(rt, "keyfile", &keyfile).await?),
            password,
        },
        KeyPlace::Inline(pem) => {
            KeyMaterial { store: inline("private_key", &pem.0), key: None, password }
        }
    };
    let trust = match &options.trust {
        // Like in Cassandra, the trust store is not read: no client is verified.
        _ if options.require_client_auth == CertificatesOfClients::NotRequired => None,
        Some(TrustPlace::Store(path)) => {
            let name = "truststore_password_file";
            let password = self::password(rt, &options.trust_password, name).await?;
            Some((file(rt, "truststore", path).await?, password))
        }
        Some(TrustPlace::Inline(pem)) => Some((inline("trusted_certificates", pem), None)),
        None => None,
    };
    let revoked = match &options.revocation_list {
        Some(path) => Some(file(rt, "certificate_revocation_list", path).await?),
        None => None,
    };
    Ok(Sources { key, trust, revoked })
}

fn inline(name: &str, text: &str) -> Source {
    Source { place: format!("\"{SECTION}.{name}\""), bytes: text.as_bytes().to_vec() }
}

async fn file(rt: &Rt, name: &str, path: &str) -> Result<Source, TlsError> {
    let place = format!("\"{SECTION}.{name}\" {path}");
    match rt.fs().read(path, SOURCE_BYTES_MAX).await {
        Ok(bytes) => Ok(Source { place, bytes }),
        Err(error) => {
            let remedy = match error.kind {
                IoErrorKind::NotFound => "create the file or correct the path",
                IoErrorKind::PermissionDenied => "let the user of the server read it",
                _ => "name a file of keys or certificates",
            };
            let problem = format!("cannot be read ({})", error.detail);
            Err(TlsError { place, problem, remedy: remedy.to_owned() })
        }
    }
}

/// Returns the inline password, or the first line of its file.
async fn password(rt: &Rt, password: &Password, name: &str) -> Result<Option<String>, TlsError> {
    if let Some(inline) = &password.inline {
        return Ok(Some(inline.0.clone()));
    }
    let Some(path) = &password.file else { return Ok(None) };
    let source = file(rt, name, path).await?;
    let text = core::str::from_utf8(&source.bytes).ok();
    let line = text
        .filter(|text| text.len() <= PASSWORD_BYTES_MAX)
        .map(|text| text.lines().next().unwrap_or_default().to_owned());
    line.map(Some).ok_or_else(|| TlsError {
        place: source.place,
        problem: "is not a text of one line".to_owned(),
        remedy: "write the password into its first line".to_owned(),
    })
}

fn offer(options: &EncryptionOptions) -> Result<Offer, TlsError> {
    Offer::new(&OfferSettings {
        section: SECTION,
        protocol: options.protocol.clone(),
        accepted_protocols: options.accepted_protocols.clone(),
        cipher_suites: options.cipher_suites.clone(),
        priority_string: options.priority_string.clone(),
    })
}

/// Builds the configuration; checks all parts together.
fn build(options: &EncryptionOptions, sources: &Sources) -> Result<Loaded, TlsError> {
    let identity = Identity::read(&sources.key)?;
    let certificates = identity.certificates().collect();
    let trust = match &sources.trust {
        Some((source, password)) => Some(Trust::read(source, password.as_deref())?),
        None => None,
    };
    let revoked = match &sources.revoked {
        Some(source) => revocation_lists(source)?,
        None => Vec::new(),
    };
    let clock = TlsClock::new();
    let config = tls::server_config(ServerParts {
        section: SECTION,
        identity,
        trust,
        client_auth: match options.require_client_auth {
            CertificatesOfClients::NotRequired => ClientAuth::NotRequired,
            CertificatesOfClients::Optional => ClientAuth::Optional,
            CertificatesOfClients::Required => ClientAuth::Required,
        },
        revoked,
        offer: offer(options)?,
        tickets: match options.enable_session_tickets {
            Some(false) => SessionTickets::Off,
            Some(true) | None => SessionTickets::Issued,
        },
        clock: clock.clone(),
    })?;
    let tls = TlsServer { config, clock };
    Ok(Loaded { tls, fingerprint: sources.fingerprint(), certificates })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt::sim::{World, WorldOptions};
    use std::cell::Cell;
    use std::future::Future;

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
        world.run_until(|| done.get(), Duration::from_secs(3600)).unwrap();
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
                    "\"client_encryption_options.require_endpoint_verification\": is not supported for \
                     clients, which rarely have certificates of addresses; remove it; \
                     \"require_client_auth: true\" verifies certificates"
                        .to_owned(),
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
            let put_to_use = Box::new(move |_: TlsServer| counted.set(counted.get() + 1));
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
}
