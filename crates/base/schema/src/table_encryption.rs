//! `scylla_encryption_options`: whether the files of a table are encrypted, and by which key. ScyllaDB's option by name
//! and form; `encryption` is another name for it. It is stored in the table's extensions under its name, which Cassandra
//! and its tools ignore.
//!
//! The bytes of the extension are a CQL `map<text, text>`, see `tombstone_gc`.

use std::collections::BTreeMap;

use codec::{Reader, Writer};

use crate::model::TableOptions;

/// Name of the option and of its extension.
pub const TABLE_ENCRYPTION: &str = "scylla_encryption_options";
/// The other name of the option.
pub const TABLE_ENCRYPTION_ALIAS: &str = "encryption";
/// Longest name of a host or a key, bytes.
const NAME_BYTES_MAX: usize = 200;

/// Holder of the key that wraps a table's data keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableKeys {
    /// New files are not encrypted.
    None,
    /// The node's key file.
    File,
    /// A host of a provider of keys.
    Host {
        /// `vault` or `kms`.
        kind: &'static str,
        /// Name of the host in the settings of each node.
        host: String,
        /// Name of the key; `None`: that of the host's settings.
        key: Option<String>,
    },
}

/// The option of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEncryption {
    /// The map as the statement had it.
    map: BTreeMap<String, String>,
    /// Its meaning.
    pub keys: TableKeys,
}

impl TableEncryption {
    /// Reads the option.
    ///
    /// # Errors
    /// Text for the client: a key or a value that is not known.
    pub fn of_map(map: BTreeMap<String, String>) -> Result<TableEncryption, String> {
        for (key, value) in &map {
            check(key, value)?;
        }
        let text = |key: &str| map.get(key).filter(|value| !value.is_empty()).cloned();
        let provider =
            text("key_provider").unwrap_or_else(|| "LocalFileSystemKeyProviderFactory".to_owned());
        let class = provider.rsplit('.').next().unwrap_or_default();
        let (kind, host_key) = match class {
            "none" => ("none", None),
            "LocalFileSystemKeyProviderFactory" | "key-file" => ("key-file", None),
            "VaultKeyProviderFactory" | "vault" => ("vault", Some("vault_host")),
            "KmsKeyProviderFactory" | "kms" => ("kms", Some("kms_host")),
            other => {
                return Err(format!(
                    "Invalid key_provider '{other}' in {TABLE_ENCRYPTION}: expects none, \
                     LocalFileSystemKeyProviderFactory, VaultKeyProviderFactory or KmsKeyProviderFactory"
                ));
            }
        };
        for key in ["vault_host", "kms_host", "master_key"] {
            let is_used = host_key == Some(key) || key == "master_key" && host_key.is_some();
            if map.contains_key(key) && !is_used {
                return Err(format!(
                    "{key} in {TABLE_ENCRYPTION} is not used by key_provider '{class}'"
                ));
            }
        }
        let host = host_key.map(|key| {
            text(key)
                .ok_or_else(|| format!("key_provider '{class}' in {TABLE_ENCRYPTION} needs {key}"))
        });
        let keys = match (kind, host.transpose()?) {
            (_, Some(host)) => TableKeys::Host { kind, host, key: text("master_key") },
            ("none", None) => TableKeys::None,
            (_, None) => TableKeys::File,
        };
        Ok(TableEncryption { map, keys })
    }

    /// The option as it was written.
    pub fn map(&self) -> &BTreeMap<String, String> {
        &self.map
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_i32(i32::try_from(self.map.len()).unwrap_or(i32::MAX));
        for (key, value) in &self.map {
            for text in [key, value] {
                out.put_i32(i32::try_from(text.len()).unwrap_or(i32::MAX));
                out.put_bytes(text.as_bytes());
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<TableEncryption> {
        let mut r = Reader::new(bytes, TABLE_ENCRYPTION);
        let count = r.i32().ok().filter(|count| (0..=16).contains(count))?;
        let mut map = BTreeMap::new();
        for _ in 0..count {
            let key = std::str::from_utf8(r.bytes_i32().ok()?).ok()?.to_owned();
            map.insert(key, std::str::from_utf8(r.bytes_i32().ok()?).ok()?.to_owned());
        }
        r.finish().ok()?;
        TableEncryption::of_map(map).ok()
    }
}

fn check(key: &str, value: &str) -> Result<(), String> {
    let wrong = |expected: &str| {
        Err(format!("Invalid value '{value}' of {key} in {TABLE_ENCRYPTION}: expects {expected}"))
    };
    match key {
        "key_provider" => Ok(()),
        "cipher_algorithm" => {
            let cipher = value.split(['/', '-']).next().unwrap_or_default();
            if cipher.eq_ignore_ascii_case("AES") { Ok(()) } else { wrong("an AES") }
        }
        "secret_key_strength" => match value {
            "128" | "192" | "256" => Ok(()),
            _ => wrong("128, 192 or 256"),
        },
        "vault_host" | "kms_host" | "master_key" => {
            let is_plain =
                value.len() <= NAME_BYTES_MAX && value.bytes().all(|b| b.is_ascii_graphic());
            if is_plain { Ok(()) } else { wrong("a name of printable ASCII without spaces") }
        }
        "secret_key_file" => Err(format!(
            "secret_key_file in {TABLE_ENCRYPTION} is not supported: all keys of a node are in the file that \
             user_info_encryption names"
        )),
        _ => Err(format!("Unknown key '{key}' in {TABLE_ENCRYPTION}")),
    }
}

impl TableOptions {
    /// Returns the option as it was set. `None`: it was not set, and the settings of each node decide; or the extension
    /// of that name has another meaning.
    pub fn encryption(&self) -> Option<TableEncryption> {
        self.extensions.get(TABLE_ENCRYPTION).and_then(|bytes| TableEncryption::decode(bytes))
    }

    /// Sets the option; an empty map removes it.
    pub fn set_encryption(&mut self, option: &TableEncryption) {
        match option.map.is_empty() {
            true => self.extensions.remove(TABLE_ENCRYPTION),
            false => self.extensions.insert(TABLE_ENCRYPTION.to_owned(), option.encode()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<TableEncryption, String> {
        let pair = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        TableEncryption::of_map(pairs.iter().map(pair).collect())
    }

    #[test]
    fn the_option_is_read_back_from_the_extension_and_an_empty_map_removes_it() {
        let host = |kind, key: Option<&str>| TableKeys::Host {
            kind,
            host: "h".to_owned(),
            key: key.map(str::to_owned),
        };
        for (pairs, keys) in [
            (&[("key_provider", "none")][..], TableKeys::None),
            (
                &[("cipher_algorithm", "AES/ECB/PKCS5Padding"), ("secret_key_strength", "128")],
                TableKeys::File,
            ),
            (&[("key_provider", "KmsKeyProviderFactory"), ("kms_host", "h")], host("kms", None)),
            (
                &[("key_provider", "vault"), ("vault_host", "h"), ("master_key", "k")],
                host("vault", Some("k")),
            ),
        ] {
            let option = of(pairs).unwrap();
            assert_eq!(option.keys, keys);
            let mut options = TableOptions::default();
            options.set_encryption(&option);
            assert_eq!(options.encryption(), Some(option));
            options.set_encryption(&of(&[]).unwrap());
            assert_eq!((options.encryption(), options.extensions.len()), (None, 0));
        }
    }

    #[test]
    fn what_is_unknown_or_without_effect_is_refused_by_name() {
        for (pairs, why) in [
            (
                &[("key_provider", "KmipKeyProviderFactory")][..],
                "Invalid key_provider 'KmipKeyProviderFactory'",
            ),
            (&[("key_providers", "none")], "Unknown key 'key_providers'"),
            (&[("cipher_algorithm", "DES")], "expects an AES"),
            (&[("secret_key_strength", "56")], "expects 128"),
            (&[("key_provider", "kms")], "needs kms_host"),
            (&[("key_provider", "kms"), ("vault_host", "h")], "vault_host"),
            (&[("key_provider", "none"), ("master_key", "k")], "master_key"),
            (&[("key_provider", "kms"), ("kms_host", "a b")], "printable ASCII"),
            (&[("secret_key_file", "/k")], "secret_key_file"),
        ] {
            let error = of(pairs).unwrap_err();
            assert!(error.contains(why), "{pairs:?}: {error}");
        }
        let mut options = TableOptions::default();
        options.extensions.insert(TABLE_ENCRYPTION.to_owned(), vec![0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(options.encryption(), None);
    }
}
