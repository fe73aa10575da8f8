//! Java's own key store format, JKS: keys with their chains, and trusted certificates.
//!
//! The whole file is covered by a SHA-1 keyed with the password. A private key is encrypted with a key stream of
//! SHA-1 and checked by another digest. Layout: `FEEDFEED`, version 1 or 2, count, entries, 20 bytes of SHA-1;
//! numbers are big endian, strings have a 2-byte length, certificates and keys a 4-byte one.

use sha1::{Digest, Sha1};

use crate::der;
use crate::error::Problem;

/// First bytes of a JKS file.
pub(crate) const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
/// First bytes of a JCEKS file.
pub(crate) const MAGIC_JCEKS: [u8; 4] = [0xce, 0xce, 0xce, 0xce];
/// Hashed after the password into the checksum of the file.
const WHITENER: &[u8] = b"Mighty Aphrodite";
/// Bytes of a SHA-1; the salt has the same size.
const DIGEST: usize = 20;
/// 1.3.6.1.4.1.42.2.17.1.1, Sun's key protection.
const SUN_KEY_PROTECTOR: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x2a, 0x02, 0x11, 0x01, 0x01];
/// Most entries of one file.
const ENTRIES_MAX: u32 = 10_000;
/// Longest chain of one key.
const CHAIN_MAX: u32 = 100;

/// Content of a JKS file, DER.
#[derive(Debug, Default)]
pub(crate) struct Jks {
    pub(crate) keys: Vec<JksKey>,
    /// Trusted certificates, without a key.
    pub(crate) trusted: Vec<Vec<u8>>,
}

/// A private key as stored in the file.
#[derive(Debug)]
pub(crate) struct JksKey {
    pub(crate) alias: String,
    protected: Vec<u8>,
    pub(crate) chain: Vec<Vec<u8>>,
}

/// Reads a file. As in Java, the checksum is not verified without a password.
pub(crate) fn read(bytes: &[u8], password: Option<&str>) -> Result<Jks, Problem> {
    let damaged = || {
        Problem::new(
            "is a damaged JKS key store",
            "copy it again from its origin or create a new one",
        )
    };
    let split = bytes.len().checked_sub(DIGEST).and_then(|at| bytes.split_at_checked(at));
    let (content, checksum) = split.ok_or_else(damaged)?;
    if let Some(password) = password {
        let mut hash = Sha1::new();
        hash.update(utf16(password));
        hash.update(WHITENER);
        hash.update(content);
        if hash.finalize().as_slice() != checksum {
            return Err(Problem::new(
                "the password is wrong or the key store is damaged",
                "check its password with \"keytool -list -keystore FILE\"",
            ));
        }
    }
    let mut reader = Reader { rest: content };
    entries(&mut reader).filter(|_| reader.rest.is_empty()).ok_or_else(damaged)
}

fn entries(reader: &mut Reader<'_>) -> Option<Jks> {
    let magic = reader.take(MAGIC.len())?;
    let version = reader.number()?;
    let count = reader.number()?;
    if magic != MAGIC || !(1..=2).contains(&version) || count > ENTRIES_MAX {
        return None;
    }
    let mut jks = Jks::default();
    for _ in 0..count {
        let tag = reader.number()?;
        let alias = String::from_utf8_lossy(reader.text()?).into_owned();
        let _created = reader.take(8)?;
        match tag {
            1 => {
                let protected = reader.block()?.to_vec();
                let length = reader.number().filter(|length| *length <= CHAIN_MAX)?;
                let chain = (0..length).map(|_| reader.certificate(version)).collect::<Option<_>>();
                jks.keys.push(JksKey { alias, protected, chain: chain? });
            }
            2 => jks.trusted.push(reader.certificate(version)?),
            _ => return None,
        }
    }
    Some(jks)
}

impl JksKey {
    /// Decrypts the private key; returns PKCS#8.
    pub(crate) fn open(&self, password: &str) -> Result<Vec<u8>, Problem> {
        let hidden = self.hidden().ok_or_else(|| {
            Problem::new(
                format!("the key \"{}\" is not protected in the way of JKS", self.alias),
                "import the key store into PKCS12 with \"keytool -importkeystore\"",
            )
        })?;
        let wrong = || {
            Problem::new(
                format!("the password does not open the key \"{}\"", self.alias),
                "give the key the password of its key store with \"keytool -keypasswd\"",
            )
        };
        let (salt, rest) = hidden.split_at_checked(DIGEST).ok_or_else(wrong)?;
        let at = rest.len().checked_sub(DIGEST).ok_or_else(wrong)?;
        let (hidden, check) = rest.split_at_checked(at).ok_or_else(wrong)?;
        let password = utf16(password);
        let mut stream = salt.to_vec();
        let mut plain = Vec::with_capacity(hidden.len());
        for piece in hidden.chunks(DIGEST) {
            stream = Sha1::new().chain_update(&password).chain_update(&stream).finalize().to_vec();
            plain.extend(piece.iter().zip(&stream).map(|(byte, mask)| byte ^ mask));
        }
        let found = Sha1::new().chain_update(&password).chain_update(&plain).finalize();
        if found.as_slice() == check { Ok(plain) } else { Err(wrong()) }
    }

    /// Returns the octets of the EncryptedPrivateKeyInfo.
    fn hidden(&self) -> Option<&[u8]> {
        let (info, _) = der::element(&self.protected, der::SEQUENCE)?;
        let (algorithm, rest) = der::element(info, der::SEQUENCE)?;
        let (identifier, _) = der::element(algorithm, der::OBJECT_IDENTIFIER)?;
        let (hidden, _) = der::element(rest, der::OCTET_STRING)?;
        (identifier == SUN_KEY_PROTECTOR).then_some(hidden)
    }
}

/// Encodes a password as Java does: UTF-16, big endian.
fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length: [u8; 2] = self.take(2)?.try_into().ok()?;
        self.take(usize::from(u16::from_be_bytes(length)))
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    fn certificate(&mut self, version: u32) -> Option<Vec<u8>> {
        if version == 2 && self.text()? != b"X.509" {
            return None;
        }
        self.block().map(<[u8]>::to_vec)
    }
}
