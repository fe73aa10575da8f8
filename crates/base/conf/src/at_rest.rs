//! `user_info_encryption` and `system_info_encryption`: encryption of files, spelled as in Scylla.
//!
//! Owns: names and forms of the keys. Never: opens a key file.
//! Source: Scylla's documentation, "Encryption at Rest".

use crate::value::{Range, Refusal, Value};
use crate::yaml::{Node, NodeKind};

/// The only provider of keys: a file.
const FILE_PROVIDERS: [&str; 2] = ["LocalFileSystemKeyProviderFactory", "key-file"];
/// Bits of keys that Scylla accepts.
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

    fn parse(node: &Node) -> Option<AtRestOptions> {
        let NodeKind::Map(entries) = &node.kind else { return None };
        let mut options = AtRestOptions::default();
        for entry in entries.iter().filter(|entry| !entry.value.is_null()) {
            let text = entry.value.text()?.trim();
            match entry.key.as_str() {
                "enabled" => options.enabled = bool::read(&entry.value, Range::ALL).ok()?,
                "key_provider" => {
                    FILE_PROVIDERS.contains(&text).then_some(())?;
                }
                "secret_key_file" => {
                    options.secret_key_file = Some(text.to_owned()).filter(|t| !t.is_empty());
                }
                "cipher_algorithm" => {
                    let is_aes =
                        text.split('/').next()?.eq_ignore_ascii_case("AES") || is_gcm(text);
                    options.cipher_algorithm = Some(is_aes.then(|| text.to_owned())?);
                }
                "secret_key_strength" => {
                    STRENGTHS.contains(&text).then_some(())?;
                    options.secret_key_strength = text.parse().ok();
                }
                _ => return None,
            }
        }
        Some(options)
    }
}

fn is_gcm(name: &str) -> bool {
    name.eq_ignore_ascii_case("AES-256-GCM") || name.eq_ignore_ascii_case("AES/GCM/NoPadding")
}

impl Value for AtRestOptions {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        AtRestOptions::parse(node).ok_or(Refusal::Form)
    }

    fn form() -> String {
        "a map of enabled, key_provider (LocalFileSystemKeyProviderFactory; no other is supported), secret_key_file, \
         cipher_algorithm (an AES) and secret_key_strength (128, 192 or 256)"
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
        AtRestOptions::parse(&yaml::parse(text).unwrap())
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
        for bad in [
            "true",
            "{enabled: maybe}",
            "{enabled: true, key_provider: KmipKeyProviderFactory}",
            "{enabled: true, key_provider: ReplicatedKeyProviderFactory}",
            "{enabled: true, cipher_algorithm: DES/CBC}",
            "{enabled: true, secret_key_strength: 56}",
            "{enabled: true, kms_host: a}",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
