//! Keys in memory. None is ever printed.

use std::fmt;

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::hkdf::{self, HKDF_SHA256};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a [`Salt`].
pub const SALT_BYTES: usize = 16;

/// Random bytes of one written file: no two files are encrypted with one key.
pub type Salt = [u8; SALT_BYTES];

/// A key of 256 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; KEY_BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Secret {
        Secret(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Derives a key for one purpose: HKDF-SHA256 with the salt, the purpose and a name.
    pub fn derive(&self, salt: &[u8], purpose: &str, name: &str) -> Secret {
        derive(&self.0, salt, purpose, name)
    }

    pub(crate) fn cipher(&self) -> LessSafeKey {
        match UnboundKey::new(&AES_256_GCM, &self.0) {
            Ok(key) => LessSafeKey::new(key),
            Err(_) => stdx::invariant::broken(format_args!("AES-256 refuses a key of 256 bits")),
        }
    }
}

/// Derives a key from key material of any length.
pub(crate) fn derive(material: &[u8], salt: &[u8], purpose: &str, name: &str) -> Secret {
    let key = hkdf::Salt::new(HKDF_SHA256, salt).extract(material);
    let info = [purpose.as_bytes(), &[0], name.as_bytes()];
    let mut bytes = [0; KEY_BYTES];
    let filled = key.expand(&info, HKDF_SHA256).and_then(|okm| okm.fill(&mut bytes));
    stdx::invariant!(filled.is_ok(), "HKDF-SHA256 gives no {KEY_BYTES} bytes");
    Secret(bytes)
}

/// The key of one file set, from which the key of each of its files is derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataKey(pub(crate) Secret);

impl DataKey {
    /// A key of random bytes.
    pub fn new(random: [u8; KEY_BYTES]) -> DataKey {
        DataKey(Secret(random))
    }

    /// The cipher of the file with that name and salt.
    pub(crate) fn of_file(&self, name: &str, salt: &Salt) -> LessSafeKey {
        self.0.derive(salt, "helenus sealed file 1", name).cipher()
    }
}
