//! `user_info_encryption` and `system_info_encryption`: encryption of files, spelled as in ScyllaDB.
//!
//! Owns: names and forms of the keys. Never: opens a key file, sends a request to a provider.
//! Source: ScyllaDB's documentation, "Encryption at Rest"; `vault` is ours.

use crate::encryption::{UNKNOWN, WrongKey, entries, wrong};
use crate::value::{Range, Refusal, Value};
use crate::yaml::Node;

/// Holder of the keys that wrap data keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyProvider {
    /// A key file.
    #[default]
    File,
    /// The transit engine of a HashiCorp Vault.
    Vault,
    /// AWS KMS or a service that speaks its protocol.
    Kms,
}

impl KeyProvider {
    /// Names in settings; the first one is printed.
    pub const NAMES: [(KeyProvider, &str); 6] = [
        (KeyProvider::File, "LocalFileSystemKeyProviderFactory"),
        (KeyProvider::File, "key-file"),
        (KeyProvider::Vault, "VaultKeyProviderFactory"),
        (KeyProvider::Vault, "vault"),
        (KeyProvider::Kms, "KmsKeyProviderFactory"),
        (KeyProvider::Kms, "kms"),
    ];

    /// The provider of that name, with or without its Java package.
    pub fn of_name(name: &str) -> Option<KeyProvider> {
        let class = name.rsplit('.').next().unwrap_or(name);
        KeyProvider::NAMES.iter().find(|(_, known)| *known == class).map(|(provider, _)| *provider)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        KeyProvider::NAMES
            .iter()
            .find(|(provider, _)| *provider == self)
            .map_or("", |found| found.1)
    }

    /// The key of a map that names one of its hosts; `None`: it has no hosts.
    pub fn host_key(self) -> Option<&'static str> {
        match self {
            KeyProvider::File => None,
            KeyProvider::Vault => Some("vault_host"),
            KeyProvider::Kms => Some("kms_host"),
        }
    }
}

const PROVIDERS: &str = "LocalFileSystemKeyProviderFactory (key-file), VaultKeyProviderFactory (vault) or \
     KmsKeyProviderFactory (kms); no other provider is supported";
/// Bits of keys that ScyllaDB accepts.
const STRENGTHS: [&str; 3] = ["128", "192", "256"];

/// One of the two settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtRestOptions {
    /// `enabled`: new files are encrypted.
    pub enabled: bool,
    /// `secret_key_file`: relative to `system_key_directory`. Unset: `data_encryption_keys` there.
    pub secret_key_file: Option<String>,
    /// `cipher_algorithm`: accepted for its name's sake, files are encrypted with AES-256-GCM.
    pub cipher_algorithm: Option<String>,
    /// `secret_key_strength`: likewise.
    pub secret_key_strength: Option<u32>,
    /// `key_provider`.
    pub key_provider: KeyProvider,
    /// `kms_host`, `vault_host`: name of an entry of `kms_hosts` or `vault_hosts`.
    pub host: Option<String>,
    /// `master_key`: key of the provider. Unset: that of the host.
    pub master_key: Option<String>,
}

impl AtRestOptions {
    /// Returns true if files may be encrypted, now or by an earlier start.
    pub fn is_set(&self) -> bool {
        *self != AtRestOptions::default()
    }

    /// Description of a cipher that is named and not used.
    pub fn other_cipher(&self) -> Option<String> {
        let name = self.cipher_algorithm.as_deref().filter(|name| !is_gcm(name));
        let strength = self.secret_key_strength.filter(|bits| *bits != 256);
        match (name, strength) {
            (None, None) => None,
            (name, strength) => {
                Some(format!("{} of {} bits", name.unwrap_or("AES"), strength.unwrap_or(256)))
            }
        }
    }

    /// Reads a map, or its text.
    ///
    /// # Errors
    /// Every wrong key.
    pub fn parse(node: &Node) -> Result<AtRestOptions, Vec<WrongKey>> {
        let (mut options, mut errors) = (AtRestOptions::default(), Vec::new());
        let mut host_key = None;
        for entry in entries(node, &AtRestOptions::form())? {
            let (key, value) = (entry.key.as_str(), &entry.value);
            if let Err(expected) = options.set(key, value) {
                errors.push(wrong(key, expected, value));
            } else if matches!(key, "kms_host" | "vault_host") {
                host_key = Some(key.to_owned());
            }
        }
        let wanted = options.key_provider.host_key();
        if errors.is_empty() && host_key.as_deref() != wanted {
            let expected = match wanted {
                Some(_) => {
                    "the name of an entry of kms_hosts (vault_hosts), which the provider needs"
                }
                None => "to be left out: the provider of a key file has no hosts",
            };
            let key = wanted.map(str::to_owned).or(host_key).unwrap_or_default();
            errors.push(wrong(&key, expected, node));
        }
        if errors.is_empty() { Ok(options) } else { Err(errors) }
    }

    fn set(&mut self, key: &str, value: &Node) -> Result<(), &'static str> {
        let text = value.text().map(str::trim).ok_or("one value")?;
        let name = || Some(text.to_owned()).filter(|text| !text.is_empty());
        match key {
            "enabled" => {
                self.enabled = bool::read(value, Range::ALL).map_err(|_| "true or false")?;
            }
            "key_provider" => self.key_provider = KeyProvider::of_name(text).ok_or(PROVIDERS)?,
            "secret_key_file" => self.secret_key_file = name(),
            "kms_host" | "vault_host" => self.host = Some(name().ok_or("a name")?),
            "master_key" => self.master_key = name(),
            "cipher_algorithm" => {
                let is_aes = text.split('/').next().is_some_and(|c| c.eq_ignore_ascii_case("AES"));
                let named = (is_aes || is_gcm(text)).then(|| text.to_owned());
                self.cipher_algorithm = Some(named.ok_or("an AES")?);
            }
            "secret_key_strength" => {
                let known = STRENGTHS.contains(&text).then(|| text.parse().ok()).flatten();
                self.secret_key_strength = Some(known.ok_or("128, 192 or 256")?);
            }
            _ => return Err(UNKNOWN),
        }
        Ok(())
    }
}

fn is_gcm(name: &str) -> bool {
    name.eq_ignore_ascii_case("AES-256-GCM") || name.eq_ignore_ascii_case("AES/GCM/NoPadding")
}

impl Value for AtRestOptions {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        AtRestOptions::parse(node).map_err(|_| Refusal::Form)
    }

    fn form() -> String {
        "a map of enabled, key_provider (LocalFileSystemKeyProviderFactory, VaultKeyProviderFactory, \
         KmsKeyProviderFactory), secret_key_file, vault_host, kms_host, master_key, cipher_algorithm (an AES) and \
         secret_key_strength (128, 192 or 256)"
            .into()
    }

    fn render(&self) -> String {
        if !self.is_set() {
            return String::new();
        }
        let mut out = format!("{{enabled: {}", self.enabled);
        let mut put = |key: &str, value: Option<String>| {
            value.into_iter().for_each(|value| out.push_str(&format!(", {key}: {value}")));
        };
        if let Some(key) = self.key_provider.host_key() {
            put("key_provider", Some(self.key_provider.name().to_owned()));
            put(key, self.host.clone());
            put("master_key", self.master_key.clone());
        }
        put("secret_key_file", self.secret_key_file.clone());
        put("cipher_algorithm", self.cipher_algorithm.clone());
        put("secret_key_strength", self.secret_key_strength.map(|bits| bits.to_string()));
        out.push('}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn read(text: &str) -> Option<AtRestOptions> {
        AtRestOptions::parse(&yaml::parse(text).unwrap()).ok()
    }

    #[test]
    fn scyllas_maps_are_read_and_other_providers_are_refused() {
        let options = read(
            "{enabled: true, key_provider: LocalFileSystemKeyProviderFactory, secret_key_file: /k, \
             cipher_algorithm: AES/CBC/PKCS5Padding, secret_key_strength: 128}",
        )
        .unwrap();
        assert!(options.enabled && options.is_set());
        assert_eq!(options.secret_key_file.as_deref(), Some("/k"));
        assert_eq!(options.other_cipher().as_deref(), Some("AES/CBC/PKCS5Padding of 128 bits"));
        assert_eq!(read(&options.render()), Some(options));
        let plain = read("{enabled: true, cipher_algorithm: AES/GCM/NoPadding}").unwrap();
        assert_eq!(plain.other_cipher(), None);
        assert!(!read("{enabled: false}").unwrap().is_set());
        for (text, provider) in [
            (
                "{enabled: true, key_provider: KmsKeyProviderFactory, kms_host: a, master_key: m}",
                KeyProvider::Kms,
            ),
            ("{enabled: true, key_provider: vault, vault_host: a}", KeyProvider::Vault),
        ] {
            let options = read(text).unwrap();
            assert_eq!((options.key_provider, options.host.as_deref()), (provider, Some("a")));
            assert_eq!(read(&options.render()), Some(options));
        }
        for bad in [
            "true",
            "{enabled: maybe}",
            "{enabled: true, key_provider: KmipKeyProviderFactory}",
            "{enabled: true, key_provider: ReplicatedKeyProviderFactory}",
            "{enabled: true, cipher_algorithm: DES/CBC}",
            "{enabled: true, secret_key_strength: 56}",
            "{enabled: true, kms_host: a}",
            "{enabled: true, key_provider: KmsKeyProviderFactory}",
            "{enabled: true, key_provider: KmsKeyProviderFactory, vault_host: a}",
            "{enabled: true, key_provider: KmsKeyProviderFactory, kms_host: ''}",
            "{enabled: true, key_provider: ReplicatedKeyProviderFactory, kms_host: a}",
            "{enabled: true, master_keys: a}",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
