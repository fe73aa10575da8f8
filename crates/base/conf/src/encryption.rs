//! `client_encryption_options`, and the keys that `server_encryption_options` shares with it: those of Cassandra 5.0
//! and of ScyllaDB.
//!
//! Owns: their names and forms, and the rules which of them exclude each other. Never: opens a file, knows TLS. The
//! `tls` crate interprets the names of protocols and cipher suites.
//! Source: Cassandra 5.0 `EncryptionOptions`, `PEMBasedSslContextFactory`; ScyllaDB's documentation.

use core::fmt;
use core::time::Duration;

use crate::value::{Range, Refusal, Value, parse_duration};
use crate::yaml::{self, Entry, Node, NodeKind};

/// Cassandra's default path of the key store.
const KEYSTORE: &str = "conf/.keystore";

/// A secret text, masked in output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Authentication of clients by certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificatesOfClients {
    /// Clients are not asked for a certificate.
    #[default]
    NotRequired,
    /// Clients may show a certificate.
    Optional,
    /// Clients must show a certificate.
    Required,
}

/// Encryption of client connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// No connection is encrypted.
    None,
    /// The first byte of each connection decides.
    Optional,
    /// All connections are encrypted.
    Required,
}

/// Existence of the key store that the settings name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeystoreFile {
    /// The key store exists.
    Present,
    /// The key store is missing, or none was named.
    Missing,
}

/// A password, inline or as the first line of a file; the inline one takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Password {
    /// The password.
    pub inline: Option<Secret>,
    /// Path of its file.
    pub file: Option<String>,
}

/// Location of private key and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A key store, or PEM with key and chain (`keystore`).
    Store(String),
    /// ScyllaDB's two PEM files (`certificate`, `keyfile`).
    Files {
        /// The chain.
        certificate: String,
        /// The key.
        keyfile: String,
    },
    /// PEM text of key and chain (`private_key`).
    Inline(Secret),
}

/// Location of trusted certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustPlace {
    /// A key store or PEM (`truststore`).
    Store(String),
    /// PEM text (`trusted_certificates`).
    Inline(String),
}

/// `client_encryption_options`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncryptionOptions {
    /// `enabled`.
    pub enabled: bool,
    /// `optional`; unset: see [`EncryptionOptions::encryption`].
    pub optional: Option<bool>,
    /// The key; `None`: `conf/.keystore`.
    pub key: Option<KeyPlace>,
    /// `keystore_password`, `keystore_password_file`, `private_key_password`.
    pub key_password: Password,
    /// Certificates of trusted authorities.
    pub trust: Option<TrustPlace>,
    /// `truststore_password`, `truststore_password_file`.
    pub trust_password: Password,
    /// `certificate_revocation_list`, which ScyllaDB spells `certficate_revocation_list`.
    pub revocation_list: Option<String>,
    /// `require_client_auth`.
    pub require_client_auth: CertificatesOfClients,
    /// `require_endpoint_verification`: a client's certificate must name its address.
    pub require_endpoint_verification: bool,
    /// `protocol`.
    pub protocol: Option<String>,
    /// `accepted_protocols`.
    pub accepted_protocols: Vec<String>,
    /// `cipher_suites`.
    pub cipher_suites: Vec<String>,
    /// `priority_string`.
    pub priority_string: Option<String>,
    /// `enable_session_tickets`; unset is true.
    pub enable_session_tickets: Option<bool>,
    /// `max_certificate_validity_period`.
    pub max_certificate_validity_period: Option<Duration>,
    /// `certificate_validity_warn_threshold`.
    pub certificate_validity_warn_threshold: Option<Duration>,
}

/// A key whose value is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongKey {
    /// The key; empty for the whole map.
    pub key: String,
    /// Description of the expected form.
    pub expected: String,
    /// The rejected value, with its line.
    pub value: Node,
}

impl WrongKey {
    /// Returns true if an error may show the value: it may be a password, also under a misspelt
    /// key.
    pub fn is_shown(&self) -> bool {
        let secrets = ["password", "private_key", "token", "secret_access"];
        let may_be_secret = secrets.iter().any(|part| self.key.contains(part));
        matches!(self.value.kind, NodeKind::Scalar(_)) && !may_be_secret && self.expected != UNKNOWN
    }
}

impl EncryptionOptions {
    /// Reads a map, or its text as written in the environment and on the command line.
    ///
    /// # Errors
    /// Every wrong key.
    pub fn parse(node: &Node) -> Result<EncryptionOptions, Vec<WrongKey>> {
        let mut reader = Reader::default();
        for entry in entries(node, "a map with the key enabled")? {
            reader.key(&entry.key, &entry.value);
        }
        reader.finish(node).map(|(options, _)| options)
    }

    /// Returns the encryption of client connections. If `optional` is unset, it is true while
    /// encryption is not enabled and the key store exists: clients may begin to use it, as in
    /// Cassandra.
    pub fn encryption(&self, keystore: KeystoreFile) -> Encryption {
        let has_keystore = keystore == KeystoreFile::Present;
        let optional = self.optional.unwrap_or(!self.enabled && has_keystore);
        match (self.enabled, optional) {
            (_, true) => Encryption::Optional,
            (true, false) => Encryption::Required,
            (false, false) => Encryption::None,
        }
    }

    /// Returns the location of the key, with Cassandra's default.
    pub fn key_place(&self) -> KeyPlace {
        self.key.clone().unwrap_or_else(|| KeyPlace::Store(KEYSTORE.to_owned()))
    }

    /// Returns true if the written settings may encrypt connections, whether or not a key store
    /// exists.
    pub fn asks_for_encryption(&self) -> bool {
        self.enabled || self.optional == Some(true)
    }
}

/// Returns the entries of a map that are not null. It may be text, as written in the environment and
/// on the command line.
pub(crate) fn entries(node: &Node, expected: &str) -> Result<Vec<Entry>, Vec<WrongKey>> {
    let parsed;
    let map = match node.text().map(str::trim).filter(|text| text.starts_with('{')) {
        Some(text) => {
            parsed = yaml::parse(text)
                .map_err(|error| vec![wrong("", &format!("a map ({})", error.message), node)])?;
            &parsed
        }
        None => node,
    };
    let NodeKind::Map(entries) = &map.kind else {
        return Err(vec![wrong("", expected, node)]);
    };
    Ok(entries.iter().filter(|entry| !entry.value.is_null()).cloned().collect())
}

pub(crate) fn wrong(key: &str, expected: &str, value: &Node) -> WrongKey {
    WrongKey { key: key.to_owned(), expected: expected.to_owned(), value: value.clone() }
}

/// Inline PEM of the key that a node shows when it connects (`outbound_private_key`).
#[derive(Default)]
pub(crate) struct OutboundKey {
    /// Presence of one in the section.
    pub(crate) section: Section,
    pub(crate) private_key: Option<Secret>,
    pub(crate) password: Option<Secret>,
}

/// Section of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Section {
    #[default]
    Client,
    Server,
}

/// Collects values by key until all were read.
#[derive(Default)]
pub(crate) struct Reader {
    options: EncryptionOptions,
    pub(crate) outbound: OutboundKey,
    keystore: Option<String>,
    certificate: Option<String>,
    keyfile: Option<String>,
    private_key: Option<Secret>,
    truststore: Option<String>,
    trusted_certificates: Option<String>,
    is_pem: bool,
    wrong: Vec<WrongKey>,
}

impl Reader {
    /// Records a key that another reader rejects.
    pub(crate) fn reject(&mut self, wrong: WrongKey) {
        self.wrong.push(wrong);
    }

    pub(crate) fn key(&mut self, key: &str, value: &Node) {
        let read = match key {
            "ssl_context_factory" => return self.factory(value),
            _ => self.value(key, value),
        };
        if let Err(expected) = read {
            self.wrong.push(wrong(key, &expected, value));
        }
    }

    fn value(&mut self, key: &str, value: &Node) -> Result<(), String> {
        let options = &mut self.options;
        match key {
            "enabled" => options.enabled = flag(value)?,
            "optional" => options.optional = Some(flag(value)?),
            "keystore" => self.keystore = Some(text(value)?),
            "keystore_password" => options.key_password.inline = Some(secret(value)?),
            "keystore_password_file" => options.key_password.file = Some(text(value)?),
            "truststore" => self.truststore = Some(text(value)?),
            "truststore_password" => options.trust_password.inline = Some(secret(value)?),
            "truststore_password_file" => options.trust_password.file = Some(text(value)?),
            "certificate" => self.certificate = Some(text(value)?),
            "keyfile" => self.keyfile = Some(text(value)?),
            "certificate_revocation_list" | "certficate_revocation_list" => {
                options.revocation_list = Some(text(value)?);
            }
            "require_client_auth" => options.require_client_auth = client_auth(value)?,
            "require_endpoint_verification" => {
                options.require_endpoint_verification = flag(value)?;
            }
            "protocol" => options.protocol = Some(text(value)?),
            "accepted_protocols" => options.accepted_protocols = list(value)?,
            "cipher_suites" => options.cipher_suites = list(value)?,
            "priority_string" => options.priority_string = Some(text(value)?),
            "enable_session_tickets" => options.enable_session_tickets = Some(flag(value)?),
            "max_certificate_validity_period" => {
                options.max_certificate_validity_period = Some(duration(value)?);
            }
            "certificate_validity_warn_threshold" => {
                options.certificate_validity_warn_threshold = Some(duration(value)?);
            }
            // Both concern Java: here the content determines the format, and one algorithm verifies
            // chains.
            "store_type" => one_of(value, &["JKS", "PKCS12", "PEM"])?,
            "algorithm" => one_of(value, &["SunX509", "NewSunX509", "PKIX"])?,
            _ => return Err(UNKNOWN.to_owned()),
        }
        Ok(())
    }

    /// `{class_name: …, parameters: {…}}`.
    fn factory(&mut self, node: &Node) {
        let class = crate::value::class_name(node).unwrap_or_default();
        match class {
            "PEMBasedSslContextFactory" => self.is_pem = true,
            "DefaultSslContextFactory" | "FileBasedSslContextFactory" => {}
            _ => {
                let expected = "DefaultSslContextFactory or PEMBasedSslContextFactory";
                self.wrong.push(wrong("ssl_context_factory", expected, node));
                return;
            }
        }
        let parameters = match node.get("parameters").map(|p| &p.kind) {
            Some(NodeKind::Map(entries)) => entries.as_slice(),
            Some(NodeKind::List(items)) => match items.first().map(|item| &item.kind) {
                Some(NodeKind::Map(entries)) => entries.as_slice(),
                _ => &[],
            },
            _ => &[],
        };
        for entry in parameters.iter().filter(|entry| !entry.value.is_null()) {
            let value = &entry.value;
            let key = entry.key.as_str();
            let read = match key {
                "private_key" if self.is_pem => {
                    secret(value).map(|key| self.private_key = Some(key))
                }
                "private_key_password" if self.is_pem => {
                    secret(value).map(|key| self.options.key_password.inline = Some(key))
                }
                "trusted_certificates" if self.is_pem => {
                    text(value).map(|pem| self.trusted_certificates = Some(pem))
                }
                "outbound_private_key"
                    if self.is_pem && self.outbound.section == Section::Server =>
                {
                    secret(value).map(|key| self.outbound.private_key = Some(key))
                }
                "outbound_private_key_password"
                    if self.is_pem && self.outbound.section == Section::Server =>
                {
                    secret(value).map(|key| self.outbound.password = Some(key))
                }
                _ => Err(UNKNOWN.to_owned()),
            };
            if let Err(expected) = read {
                let key = format!("ssl_context_factory.{key}");
                self.wrong.push(wrong(&key, &expected, value));
            }
        }
    }

    /// Checks which keys exclude or need each other.
    pub(crate) fn finish(
        mut self,
        node: &Node,
    ) -> Result<(EncryptionOptions, OutboundKey), Vec<WrongKey>> {
        let mut bad = |key: &str, expected: &str| self.wrong.push(wrong(key, expected, node));
        let keystore = self.keystore;
        self.options.key = match (self.private_key, keystore, self.certificate, self.keyfile) {
            (Some(_), Some(_), ..) => {
                bad("keystore", "to be unset when private_key is set inline");
                None
            }
            (Some(key), None, None, None) => Some(KeyPlace::Inline(key)),
            (None, Some(store), None, None) => Some(KeyPlace::Store(store)),
            (None, None, Some(certificate), Some(keyfile)) => {
                Some(KeyPlace::Files { certificate, keyfile })
            }
            (None, None, None, None) => None,
            (None, None, Some(_), None) => {
                bad("keyfile", "the file of the private key of \"certificate\"");
                None
            }
            (None, None, None, Some(_)) => {
                bad("certificate", "the file of the certificate of \"keyfile\"");
                None
            }
            _ => {
                bad("certificate", "to be unset when keystore or private_key is set");
                None
            }
        };
        self.options.trust = match (self.trusted_certificates, self.truststore) {
            (Some(_), Some(_)) => {
                bad("truststore", "to be unset when trusted_certificates is set inline");
                None
            }
            (Some(pem), None) => Some(TrustPlace::Inline(pem)),
            (None, store) => store.map(TrustPlace::Store),
        };
        let names =
            !self.options.cipher_suites.is_empty() || !self.options.accepted_protocols.is_empty();
        if self.options.priority_string.is_some() && names {
            bad("priority_string", "to be unset when accepted_protocols or cipher_suites is set");
        }
        if self.wrong.is_empty() { Ok((self.options, self.outbound)) } else { Err(self.wrong) }
    }
}

pub(crate) const UNKNOWN: &str = "to be a known key";

pub(crate) fn text(node: &Node) -> Result<String, String> {
    let text = node.text().filter(|text| !text.trim().is_empty());
    text.map(str::to_owned).ok_or_else(|| "a text".to_owned())
}

/// A password may be empty.
pub(crate) fn secret(node: &Node) -> Result<Secret, String> {
    node.text().map(|text| Secret(text.to_owned())).ok_or_else(|| "a text".to_owned())
}

pub(crate) fn flag(node: &Node) -> Result<bool, String> {
    bool::read(node, Range::ALL).map_err(|_| bool::form())
}

fn duration(node: &Node) -> Result<Duration, String> {
    let found = node.text().and_then(|text| parse_duration(text.trim()));
    found.ok_or_else(|| "a duration such as 365d or 10d".to_owned())
}

fn list(node: &Node) -> Result<Vec<String>, String> {
    let form = || "a list of names".to_owned();
    match &node.kind {
        NodeKind::List(items) => items.iter().map(|item| text(item).map_err(|_| form())).collect(),
        NodeKind::Scalar(text) => {
            let names = text.trim_matches(['[', ']']).split(',').map(str::trim);
            Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
        }
        NodeKind::Null | NodeKind::Map(_) => Err(form()),
    }
}

fn one_of(node: &Node, words: &[&str]) -> Result<(), String> {
    let found = node.text().map(str::trim);
    let is_one = found.is_some_and(|text| words.iter().any(|w| w.eq_ignore_ascii_case(text)));
    is_one.then_some(()).ok_or_else(|| format!("one of {}", words.join(", ")))
}

fn client_auth(node: &Node) -> Result<CertificatesOfClients, String> {
    let word = node.text().unwrap_or_default().trim().to_ascii_lowercase();
    Ok(match word.as_str() {
        "optional" => CertificatesOfClients::Optional,
        "required" => CertificatesOfClients::Required,
        "not_required" => CertificatesOfClients::NotRequired,
        _ => match bool::read(node, Range::ALL) {
            Ok(true) => CertificatesOfClients::Required,
            Ok(false) => CertificatesOfClients::NotRequired,
            Err(_) => return Err("one of true, false, optional".to_owned()),
        },
    })
}

impl Value for EncryptionOptions {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        EncryptionOptions::parse(node).map_err(|_| Refusal::Form)
    }
    fn form() -> String {
        "a map of TLS keys".into()
    }
    /// Secrets are masked.
    fn render(&self) -> String {
        if *self == EncryptionOptions::default() {
            return String::new();
        }
        let mut parts = vec![format!("enabled: {}", self.enabled)];
        parts.extend(self.parts());
        format!("{{{}}}", parts.join(", "))
    }
}

impl EncryptionOptions {
    /// Renders all keys but `enabled`, as far as they are set; secrets are masked.
    pub(crate) fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let mut part = |key: &str, value: Option<&str>| {
            parts.extend(value.map(|value| format!("{key}: {value}")));
        };
        part("optional", self.optional.map(word));
        match &self.key {
            Some(KeyPlace::Store(path)) => part("keystore", Some(path)),
            Some(KeyPlace::Files { certificate, keyfile }) => {
                part("certificate", Some(certificate));
                part("keyfile", Some(keyfile));
            }
            Some(KeyPlace::Inline(_)) => part("private_key", Some("***")),
            None => {}
        }
        part("keystore_password", self.key_password.inline.as_ref().map(|_| "***"));
        part("keystore_password_file", self.key_password.file.as_deref());
        match &self.trust {
            Some(TrustPlace::Store(path)) => part("truststore", Some(path)),
            Some(TrustPlace::Inline(_)) => part("trusted_certificates", Some("inline")),
            None => {}
        }
        part("truststore_password", self.trust_password.inline.as_ref().map(|_| "***"));
        part("truststore_password_file", self.trust_password.file.as_deref());
        part("certificate_revocation_list", self.revocation_list.as_deref());
        let auth = match self.require_client_auth {
            CertificatesOfClients::NotRequired => "false",
            CertificatesOfClients::Optional => "optional",
            CertificatesOfClients::Required => "true",
        };
        part("require_client_auth", Some(auth));
        let compared = self.require_endpoint_verification;
        part("require_endpoint_verification", compared.then_some("true"));
        part("protocol", self.protocol.as_deref());
        let list =
            |names: &[String]| (!names.is_empty()).then(|| format!("[{}]", names.join(", ")));
        part("accepted_protocols", list(&self.accepted_protocols).as_deref());
        part("cipher_suites", list(&self.cipher_suites).as_deref());
        part("priority_string", self.priority_string.as_deref());
        part("enable_session_tickets", self.enable_session_tickets.map(word));
        let longest = self.max_certificate_validity_period.map(|d| d.render());
        part("max_certificate_validity_period", longest.as_deref());
        let warned = self.certificate_validity_warn_threshold.map(|d| d.render());
        part("certificate_validity_warn_threshold", warned.as_deref());
        parts
    }
}

fn word(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the options that were read, rendered; or the wrong keys with the forms they expect.
    fn read(text: &str) -> String {
        match EncryptionOptions::parse(&yaml::parse(text).unwrap()) {
            Ok(options) => options.render(),
            Err(wrong) => {
                let keys = wrong.iter().map(|w| format!("{} expects {}", w.key, w.expected));
                keys.collect::<Vec<_>>().join("; ")
            }
        }
    }

    #[test]
    fn every_key_of_cassandra_is_read() {
        let stock = "enabled: false\nkeystore: conf/.keystore\n#keystore_password: x\n";
        assert_eq!(
            read(stock),
            "{enabled: false, keystore: conf/.keystore, require_client_auth: false}"
        );
        let all = "enabled: true\noptional: false\nkeystore: a\nkeystore_password: b\n\
                   keystore_password_file: c\nrequire_client_auth: true\ntruststore: d\n\
                   truststore_password: e\ntruststore_password_file: f\nprotocol: TLS\n\
                   accepted_protocols: [TLSv1.2, TLSv1.3]\ncipher_suites: [X, Y]\nalgorithm: SunX509\n\
                   store_type: JKS\nrequire_endpoint_verification: true\n\
                   max_certificate_validity_period: 365d\ncertificate_validity_warn_threshold: 10d\n\
                   ssl_context_factory:\n  class_name: org.apache.cassandra.security.DefaultSslContextFactory\n";
        assert_eq!(
            read(all),
            "{enabled: true, optional: false, keystore: a, keystore_password: ***, \
             keystore_password_file: c, truststore: d, truststore_password: ***, \
             truststore_password_file: f, require_client_auth: true, \
             require_endpoint_verification: true, protocol: TLS, \
             accepted_protocols: [TLSv1.2, TLSv1.3], cipher_suites: [X, Y], \
             max_certificate_validity_period: 365d, certificate_validity_warn_threshold: 10d}"
        );
        let pem = "enabled: true\nssl_context_factory:\n  class_name: PEMBasedSslContextFactory\n  \
                   parameters:\n    private_key: |\n      -----BEGIN\n    private_key_password: p\n    \
                   trusted_certificates: X\n";
        assert_eq!(
            read(pem),
            "{enabled: true, private_key: ***, keystore_password: ***, trusted_certificates: inline, \
             require_client_auth: false}"
        );
    }

    #[test]
    fn the_spelling_of_scylla_is_read() {
        let text = "enabled: true\ncertificate: c\nkeyfile: k\ntruststore: t\n\
                    certficate_revocation_list: r\nrequire_client_auth: optional\n\
                    priority_string: SECURE128:-VERS-TLS1.0\nenable_session_tickets: true\n";
        assert_eq!(
            read(text),
            "{enabled: true, certificate: c, keyfile: k, truststore: t, \
             certificate_revocation_list: r, require_client_auth: optional, \
             priority_string: SECURE128:-VERS-TLS1.0, enable_session_tickets: true}"
        );
    }

    #[test]
    fn wrong_keys_are_named_each_with_what_it_expects() {
        for (text, expected) in [
            ("enabled: maybe", "enabled expects true or false"),
            ("enable: true", "enable expects to be a known key"),
            (
                "require_client_auth: some",
                "require_client_auth expects one of true, false, optional",
            ),
            ("store_type: BCFKS", "store_type expects one of JKS, PKCS12, PEM"),
            ("certificate: a", "keyfile expects the file of the private key of \"certificate\""),
            ("keyfile: a", "certificate expects the file of the certificate of \"keyfile\""),
            (
                "{certificate: a, keyfile: b, keystore: c}",
                "certificate expects to be unset when keystore or private_key is set",
            ),
            (
                "ssl_context_factory: {class_name: com.example.Own}",
                "ssl_context_factory expects DefaultSslContextFactory or PEMBasedSslContextFactory",
            ),
            (
                "ssl_context_factory: {class_name: DefaultSslContextFactory, parameters: {private_key: a}}",
                "ssl_context_factory.private_key expects to be a known key",
            ),
            (
                "{keystore: a, ssl_context_factory: {class_name: PEMBasedSslContextFactory, \
                  parameters: {private_key: b}}}",
                "keystore expects to be unset when private_key is set inline",
            ),
            (
                "{priority_string: NORMAL, cipher_suites: [A]}",
                "priority_string expects to be unset when accepted_protocols or cipher_suites is set",
            ),
            (
                "max_certificate_validity_period: long",
                "max_certificate_validity_period expects a duration such as 365d or 10d",
            ),
            ("yes", " expects a map with the key enabled"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn encryption_is_optional_as_cassandra_has_it() {
        let of = |text: &str, has_keystore| {
            let keystore = if has_keystore { KeystoreFile::Present } else { KeystoreFile::Missing };
            EncryptionOptions::parse(&yaml::parse(text).unwrap()).unwrap().encryption(keystore)
        };
        assert_eq!(of("{enabled: false}", false), Encryption::None);
        assert_eq!(of("{enabled: false}", true), Encryption::Optional);
        assert_eq!(of("{enabled: false, optional: false}", true), Encryption::None);
        assert_eq!(of("{enabled: true}", true), Encryption::Required);
        assert_eq!(of("{enabled: true, optional: true}", true), Encryption::Optional);
        assert_eq!(of("{enabled: false, optional: true}", false), Encryption::Optional);
    }

    #[test]
    fn a_map_may_come_as_text_from_the_environment() {
        let node = Node::scalar("{enabled: true, keystore: k, keystore_password: secret}");
        let options = EncryptionOptions::parse(&node).unwrap();
        assert_eq!(options.key, Some(KeyPlace::Store("k".to_owned())));
        assert!(!format!("{options:?}").contains("secret"));
    }
}
