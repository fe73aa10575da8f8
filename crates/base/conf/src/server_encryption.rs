//! `server_encryption_options` and `internode_authenticator`: keys of Cassandra 5.0 and of ScyllaDB.
//!
//! Owns: their names and forms. Never: opens a file, decides about a connection (`messaging`).
//! Source: Cassandra 5.0 `ServerEncryptionOptions`, `MutualTlsInternodeAuthenticator`; ScyllaDB's documentation.

use crate::encryption::{
    CertificatesOfClients, EncryptionOptions, KeyPlace, KeystoreFile, OutboundKey, Password,
    Reader, Section, WrongKey, entries, flag, secret, text, wrong,
};
use crate::options::Options;
use crate::parameterized::ParameterizedClass;
use crate::value::{Range, Refusal, Value};
use crate::yaml::Node;

/// `internode_encryption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InternodeEncryption {
    /// No connection is made with TLS.
    #[default]
    None,
    /// Connections to other data centers are encrypted.
    Dc,
    /// Connections to other racks and data centers are encrypted.
    Rack,
    /// All connections are encrypted.
    All,
}

impl InternodeEncryption {
    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            InternodeEncryption::None => "none",
            InternodeEncryption::Dc => "dc",
            InternodeEncryption::Rack => "rack",
            InternodeEncryption::All => "all",
        }
    }
}

/// `server_encryption_options`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerEncryptionOptions {
    /// `internode_encryption`; ScyllaDB's `transitional` is `all` with `optional`.
    pub internode_encryption: InternodeEncryption,
    /// `legacy_ssl_storage_port_enabled`: `ssl_storage_port` is open, too.
    pub legacy_ssl_storage_port_enabled: bool,
    /// The keys that it shares with `client_encryption_options`.
    pub tls: EncryptionOptions,
    /// The key of own connections (`outbound_keystore`, `outbound_private_key`); `None`: the same.
    pub outbound_key: Option<KeyPlace>,
    /// `outbound_keystore_password`, `outbound_keystore_password_file`.
    pub outbound_password: Password,
}

impl ServerEncryptionOptions {
    /// Reads a map, or its text as written in the environment and on the command line.
    ///
    /// # Errors
    /// Every wrong key.
    pub fn parse(node: &Node) -> Result<ServerEncryptionOptions, Vec<WrongKey>> {
        let mut shared = Reader::default();
        shared.outbound.section = Section::Server;
        let mut own = ServerEncryptionOptions::default();
        let (mut outbound, mut is_transitional) = (None, false);
        for entry in entries(node, "a map with the key internode_encryption")? {
            let value = &entry.value;
            let read = match entry.key.as_str() {
                "internode_encryption" => {
                    internode_encryption(value).map(|(scope, transitional)| {
                        own.internode_encryption = scope;
                        is_transitional = transitional;
                    })
                }
                "legacy_ssl_storage_port_enabled" | "enable_legacy_ssl_storage_port" => {
                    flag(value).map(|on| own.legacy_ssl_storage_port_enabled = on)
                }
                "outbound_keystore" => text(value).map(|path| outbound = Some(path)),
                "outbound_keystore_password" => {
                    secret(value).map(|text| own.outbound_password.inline = Some(text))
                }
                "outbound_keystore_password_file" => {
                    text(value).map(|path| own.outbound_password.file = Some(path))
                }
                key => {
                    shared.key(key, value);
                    Ok(())
                }
            };
            if let Err(expected) = read {
                shared.reject(wrong(&entry.key, &expected, value));
            }
        }
        let inline;
        (own.tls, inline) = shared.finish(node)?;
        let OutboundKey { private_key, password, .. } = inline;
        if password.is_some() {
            own.outbound_password.inline = password;
        }
        own.outbound_key = match (private_key, outbound) {
            (Some(_), Some(_)) => {
                let expected = "to be unset when outbound_private_key is set inline";
                return Err(vec![wrong("outbound_keystore", expected, node)]);
            }
            (Some(pem), None) => Some(KeyPlace::Inline(pem)),
            (None, path) => path.map(KeyPlace::Store),
        };
        if is_transitional && own.tls.optional.is_none() {
            own.tls.optional = Some(true);
        }
        Ok(own)
    }

    /// Returns true if peers may connect with TLS. If `optional` is unset, they may where a key store
    /// exists, also while `internode_encryption` is `none`: a cluster may begin to use it, as in Cassandra.
    pub fn speaks_tls(&self, keystore: KeystoreFile) -> bool {
        self.internode_encryption != InternodeEncryption::None
            || self.tls.optional.unwrap_or(keystore == KeystoreFile::Present)
    }

    /// Returns true if connections in the clear are accepted, and made to peers that do not speak TLS, where
    /// `internode_encryption` asks for encryption: only if the setting says so explicitly.
    pub fn is_explicitly_optional(&self) -> bool {
        self.tls.optional == Some(true)
    }
}

/// Returns what needs encryption between nodes and does not have it: setting and problem.
pub(crate) fn inconsistencies(options: &Options) -> Vec<(&'static str, &'static str)> {
    let encryption = &options.server_encryption_options;
    let mut found = Vec::new();
    if encryption.legacy_ssl_storage_port_enabled && !encryption.speaks_tls(KeystoreFile::Missing) {
        found.push((
            "server_encryption_options",
            "has legacy_ssl_storage_port_enabled true (enabled) with internode encryption disabled (none). Enable \
             encryption or disable the legacy ssl storage port",
        ));
    }
    let makes = encryption.internode_encryption != InternodeEncryption::None;
    let asks = encryption.tls.require_client_auth == CertificatesOfClients::Required;
    if options.internode_authenticator != InternodeAuthenticator::AllowAll && !(makes && asks) {
        found.push((
            "internode_authenticator",
            "MutualTlsInternodeAuthenticator requires server_encryption_options.internode_encryption to be enabled & \
             server_encryption_options.require_client_auth to be true",
        ));
    }
    found
}

/// Returns the setting, and whether it was ScyllaDB's `transitional`.
fn internode_encryption(node: &Node) -> Result<(InternodeEncryption, bool), String> {
    let word = node.text().unwrap_or_default().trim().to_ascii_lowercase();
    Ok(match word.as_str() {
        "none" | "false" => (InternodeEncryption::None, false),
        "dc" => (InternodeEncryption::Dc, false),
        "rack" => (InternodeEncryption::Rack, false),
        "all" => (InternodeEncryption::All, false),
        "transitional" => (InternodeEncryption::All, true),
        _ => return Err("one of none, dc, rack, all, transitional".to_owned()),
    })
}

impl Value for ServerEncryptionOptions {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        ServerEncryptionOptions::parse(node).map_err(|_| Refusal::Form)
    }
    fn form() -> String {
        "a map of TLS keys".into()
    }
    /// Secrets are masked.
    fn render(&self) -> String {
        if *self == ServerEncryptionOptions::default() {
            return String::new();
        }
        let mut parts = vec![format!("internode_encryption: {}", self.internode_encryption.word())];
        if self.legacy_ssl_storage_port_enabled {
            parts.push("legacy_ssl_storage_port_enabled: true".to_owned());
        }
        match &self.outbound_key {
            Some(KeyPlace::Store(path)) => parts.push(format!("outbound_keystore: {path}")),
            Some(KeyPlace::Inline(_)) => parts.push("outbound_private_key: ***".to_owned()),
            Some(KeyPlace::Files { .. }) | None => {}
        }
        if self.outbound_password.inline.is_some() {
            parts.push("outbound_keystore_password: ***".to_owned());
        }
        let file = self.outbound_password.file.as_ref();
        parts.extend(file.map(|path| format!("outbound_keystore_password_file: {path}")));
        parts.extend(self.tls.parts());
        format!("{{{}}}", parts.join(", "))
    }
}

/// `internode_authenticator`: which peers are trusted beside the chain of their certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InternodeAuthenticator {
    /// All.
    #[default]
    AllowAll,
    /// Those whose certificate has a trusted SPIFFE identity.
    MutualTls {
        /// `trusted_peer_identities`; `None`: those of the own certificates.
        trusted: Option<Vec<String>>,
        /// `node_identity`: what the own certificate must have.
        node: Option<String>,
    },
}

const ALLOW_ALL: &str = "AllowAllInternodeAuthenticator";
const MUTUAL_TLS: &str = "MutualTlsInternodeAuthenticator";
const SPIFFE: &str = "SpiffeCertificateValidator";

fn without_package(class: &str) -> &str {
    class.trim().rsplit('.').next().unwrap_or_default()
}

impl Value for InternodeAuthenticator {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let class = ParameterizedClass::read(node, Range::ALL)?;
        let name = without_package(&class.class_name);
        if name == ALLOW_ALL {
            return Ok(InternodeAuthenticator::AllowAll);
        }
        let parameters = class.parameters;
        let known = ["validator_class_name", "trusted_peer_identities", "node_identity"];
        let is_spiffe =
            parameters.get("validator_class_name").is_some_and(|v| without_package(v) == SPIFFE);
        if name != MUTUAL_TLS
            || !is_spiffe
            || parameters.keys().any(|key| !known.contains(&key.as_str()))
        {
            return Err(Refusal::Form);
        }
        let trusted = parameters.get("trusted_peer_identities").map(|list| {
            let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(str::to_owned).collect::<Vec<_>>()
        });
        if trusted.as_ref().is_some_and(Vec::is_empty) {
            return Err(Refusal::Form);
        }
        let node = parameters.get("node_identity").map(|name| name.trim().to_owned());
        Ok(InternodeAuthenticator::MutualTls { trusted, node })
    }
    fn form() -> String {
        format!(
            "{ALLOW_ALL}, or {MUTUAL_TLS} with the parameters validator_class_name: {SPIFFE} and, if wanted, \
             trusted_peer_identities and node_identity"
        )
    }
    fn render(&self) -> String {
        match self {
            InternodeAuthenticator::AllowAll => ALLOW_ALL.to_owned(),
            InternodeAuthenticator::MutualTls { trusted, node } => {
                let mut parameters = vec![format!("validator_class_name: {SPIFFE}")];
                let trusted = trusted.as_ref().map(|names| names.join(","));
                parameters.extend(trusted.map(|list| format!("trusted_peer_identities: {list}")));
                parameters.extend(node.as_ref().map(|name| format!("node_identity: {name}")));
                format!("{{class_name: {MUTUAL_TLS}, parameters: {{{}}}}}", parameters.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn read(text: &str) -> String {
        match ServerEncryptionOptions::parse(&yaml::parse(text).unwrap()) {
            Ok(options) => options.render(),
            Err(wrong) => {
                let keys = wrong.iter().map(|w| format!("{} expects {}", w.key, w.expected));
                keys.collect::<Vec<_>>().join("; ")
            }
        }
    }

    #[test]
    fn every_key_of_cassandra_and_scylla_is_read() {
        for (text, expected) in [
            ("{internode_encryption: none}", ""),
            (
                "{internode_encryption: none, optional: true, legacy_ssl_storage_port_enabled: false, \
                 keystore: a, keystore_password: p, truststore: b, truststore_password: q}",
                "{internode_encryption: none, optional: true, keystore: a, keystore_password: ***, truststore: b, \
                 truststore_password: ***, require_client_auth: false}",
            ),
            (
                "{internode_encryption: rack, enable_legacy_ssl_storage_port: true, keystore: a, \
                 keystore_password_file: f, outbound_keystore: o, outbound_keystore_password: p, \
                 outbound_keystore_password_file: g, truststore: b, truststore_password_file: h, \
                 protocol: TLS, accepted_protocols: [TLSv1.3], cipher_suites: [X], algorithm: SunX509, \
                 store_type: JKS, require_client_auth: optional, require_endpoint_verification: true, \
                 max_certificate_validity_period: 365d, certificate_validity_warn_threshold: 10d}",
                "{internode_encryption: rack, legacy_ssl_storage_port_enabled: true, outbound_keystore: o, \
                 outbound_keystore_password: ***, outbound_keystore_password_file: g, keystore: a, \
                 keystore_password_file: f, truststore: b, truststore_password_file: h, \
                 require_client_auth: optional, require_endpoint_verification: true, protocol: TLS, \
                 accepted_protocols: [TLSv1.3], cipher_suites: [X], max_certificate_validity_period: 365d, \
                 certificate_validity_warn_threshold: 10d}",
            ),
            (
                "{internode_encryption: transitional, certificate: c, keyfile: k, truststore: t, \
                 priority_string: SECURE128}",
                "{internode_encryption: all, optional: true, certificate: c, keyfile: k, truststore: t, \
                 require_client_auth: false, priority_string: SECURE128}",
            ),
            (
                "{internode_encryption: dc, ssl_context_factory: {class_name: PEMBasedSslContextFactory, \
                  parameters: {private_key: a, outbound_private_key: b, outbound_private_key_password: c, \
                  trusted_certificates: d}}}",
                "{internode_encryption: dc, outbound_private_key: ***, outbound_keystore_password: ***, \
                 private_key: ***, trusted_certificates: inline, require_client_auth: false}",
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_keys_are_named() {
        for (text, expected) in [
            ("some", " expects a map with the key internode_encryption"),
            (
                "{internode_encryption: most}",
                "internode_encryption expects one of none, dc, rack, all, transitional",
            ),
            ("{internode: all}", "internode expects to be a known key"),
            ("{outbound_keystore: [a]}", "outbound_keystore expects a text"),
            (
                "{outbound_keystore: a, ssl_context_factory: {class_name: PEMBasedSslContextFactory, \
                  parameters: {outbound_private_key: b}}}",
                "outbound_keystore expects to be unset when outbound_private_key is set inline",
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        // Keys of nodes are unknown to clients.
        let node = yaml::parse("{enabled: true, outbound_keystore: a}").unwrap();
        assert!(EncryptionOptions::parse(&node).is_err());
    }

    #[test]
    fn tls_is_spoken_and_plain_text_allowed_as_cassandra_has_it() {
        let of = |text: &str, keystore| {
            let options = ServerEncryptionOptions::parse(&yaml::parse(text).unwrap()).unwrap();
            (options.speaks_tls(keystore), options.is_explicitly_optional())
        };
        use KeystoreFile::{Missing, Present};
        assert_eq!(of("{internode_encryption: none}", Missing), (false, false));
        assert_eq!(of("{internode_encryption: none}", Present), (true, false));
        assert_eq!(of("{internode_encryption: none, optional: false}", Present), (false, false));
        assert_eq!(of("{internode_encryption: none, optional: true}", Missing), (true, true));
        assert_eq!(of("{internode_encryption: all}", Present), (true, false));
        assert_eq!(of("{internode_encryption: dc, optional: true}", Present), (true, true));
        assert_eq!(of("{internode_encryption: transitional}", Present), (true, true));
        let strict = "{internode_encryption: transitional, optional: false}";
        assert_eq!(of(strict, Present), (true, false));
    }

    #[test]
    fn authenticators_between_nodes_are_read_or_refused() {
        let of = |text: &str| {
            let node = yaml::parse(text).unwrap();
            InternodeAuthenticator::read(&node, Range::ALL).map(|a| a.render()).ok()
        };
        let all = Some("AllowAllInternodeAuthenticator".to_owned());
        assert_eq!(of("AllowAllInternodeAuthenticator"), all);
        assert_eq!(
            of("{class_name: org.apache.cassandra.auth.AllowAllInternodeAuthenticator}"),
            all
        );
        let mutual = |rest: &str| {
            format!(
                "{{class_name: MutualTlsInternodeAuthenticator, parameters: {{validator_class_name: \
                 SpiffeCertificateValidator{rest}}}}}"
            )
        };
        assert_eq!(of(&mutual("")), Some(mutual("")));
        let both = mutual(
            ", trusted_peer_identities: \"spiffe://a, spiffe://b\", node_identity: spiffe://a",
        );
        let shown =
            mutual(", trusted_peer_identities: spiffe://a,spiffe://b, node_identity: spiffe://a");
        assert_eq!(of(&both), Some(shown));
        for text in [
            "LdapInternodeAuthenticator",
            "MutualTlsInternodeAuthenticator",
            "{class_name: MutualTlsInternodeAuthenticator, parameters: {validator_class_name: Own}}",
            &mutual(", trusted_peer_identities: ' , '"),
            &mutual(", trusted: a"),
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
