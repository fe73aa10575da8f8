//! PKCS12 key stores, as keytool and openssl write them.

use p12_keystore::Pkcs12Archive;
use p12_keystore::error::Error;

use crate::der;
use crate::error::Problem;

/// 1.2.840.113549.1.12.1, the encryption schemes of PKCS12; one more number says which.
const SCHEMES: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01];
/// 1.2.840.113549.1.12.10.1.2, a bag with an encrypted key.
const SHROUDED_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x0a, 0x01, 0x02];
/// 1.2.840.113549.1.7.1, content that is not encrypted.
const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];

/// Content of a PKCS12 file, DER.
#[derive(Debug, Default)]
pub(crate) struct Pkcs12 {
    /// Private keys as PKCS#8.
    pub(crate) keys: Vec<Vec<u8>>,
    /// All certificates.
    pub(crate) certificates: Vec<Vec<u8>>,
    /// Certificates that keytool marked as trusted.
    pub(crate) trusted: Vec<Vec<u8>>,
}

/// Opens a file. `p12_keystore` bounds iterations and memory of key derivation.
pub(crate) fn read(bytes: &[u8], password: &str) -> Result<Pkcs12, Problem> {
    let archive = Pkcs12Archive::from_pkcs12(bytes, password).map_err(|error| problem(&error))?;
    let all = archive.certs.iter().map(|bag| bag.cert.as_der().to_vec());
    let trusted = archive.certs.iter().filter(|bag| bag.trusted);
    Ok(Pkcs12 {
        keys: archive.keys.iter().map(|bag| bag.key.as_der().to_vec()).collect(),
        certificates: all.collect(),
        trusted: trusted.map(|bag| bag.cert.as_der().to_vec()).collect(),
    })
}

/// Returns true if a scheme of PKCS12 encrypts this EncryptedPrivateKeyInfo.
pub(crate) fn encrypts(key: &[u8]) -> bool {
    let scheme = || {
        let (info, _) = der::element(key, der::SEQUENCE)?;
        let (algorithm, _) = der::element(info, der::SEQUENCE)?;
        Some(der::element(algorithm, der::OBJECT_IDENTIFIER)?.0)
    };
    scheme().is_some_and(|scheme| scheme.starts_with(SCHEMES))
}

/// Decrypts such a key by wrapping it into a key store; returns PKCS#8.
pub(crate) fn decrypt(key: &[u8], password: &str) -> Result<Vec<u8>, Problem> {
    let named = |name: &[u8], content: &[u8]| {
        let name = der::encode(der::OBJECT_IDENTIFIER, &[name]);
        der::encode(der::SEQUENCE, &[&name, &der::encode(der::CONTEXT_0, &[content])])
    };
    let data = |content: &[u8]| {
        let list = der::encode(der::SEQUENCE, &[content]);
        named(DATA, &der::encode(der::OCTET_STRING, &[&list]))
    };
    let store = data(&data(&named(SHROUDED_KEY, key)));
    let store = der::encode(der::SEQUENCE, &[&[der::INTEGER, 1, 3], &store]);
    let key = read(&store, password).map(|store| store.keys.into_iter().next());
    key.ok().flatten().ok_or_else(|| {
        Problem::new(
            "the password does not open the private key, or its encryption is not supported",
            "check the password of the key, or convert it with \"openssl pkcs8 -topk8 -v2 aes256\"",
        )
    })
}

fn problem(error: &Error) -> Problem {
    let convert = "create it again with \"keytool -importkeystore -deststoretype PKCS12\" or \
                   \"openssl pkcs12 -export\"";
    match error {
        Error::MacError(_) | Error::UnpadError | Error::Pkcs5Error(_) => Problem::new(
            "the password is wrong or the key store is damaged",
            "check its password with \"keytool -list -keystore FILE\"",
        ),
        Error::UnsupportedEncryptionScheme | Error::UnsupportedMacAlgorithm => {
            Problem::new(format!("is a PKCS12 key store of an unsupported kind ({error})"), convert)
        }
        _ => Problem::new(format!("is not a valid PKCS12 key store ({error})"), convert),
    }
}
