//! PKCS12 key stores, as keytool and openssl write them.

use p12_keystore::Pkcs12Archive;
use p12_keystore::error::Error;

use crate::error::Problem;

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
