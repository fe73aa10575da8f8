//! Readers of private keys with their chains, and of trusted certificates, from PEM, JKS or PKCS12.
//!
//! The format is detected by the content: Java too opens JKS and PKCS12 whatever `store_type` says.

use std::sync::Arc;

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::certificate::{Linking, PeerCertificate};
use crate::error::{Problem, TlsError};
use crate::{ec, jks, pem, pkcs12};

/// Largest file of keys or certificates.
pub const SOURCE_BYTES_MAX: usize = 16 << 20;
/// Longest chain that is sent.
const CHAIN_MAX: usize = 20;
/// Bounds of key derivation of an encrypted PEM key: iterations, bytes.
const ITERATIONS_MAX: u32 = 10_000_000;
const SCRYPT_BYTES_MAX: u64 = 256 << 20;

/// Content of a file, or inline text of the configuration.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// Setting and file as errors name them, such as `"keystore" conf/.keystore`.
    pub place: String,
    /// The content.
    pub bytes: Vec<u8>,
}

impl core::fmt::Debug for Source {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Source({}, {} bytes)", self.place, self.bytes.len())
    }
}

/// Source of a private key and its chain.
#[derive(Clone, Debug)]
pub struct KeyMaterial {
    /// Key store, or PEM with the chain and, without `key`, the key.
    pub store: Source,
    /// PEM of the key, if it has its own file.
    pub key: Option<Source>,
    /// Password of store and key.
    pub password: Option<String>,
}

/// Private keys with their chains; at least one.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Each with a key that matches the leaf of its chain.
    pub keys: Vec<Arc<CertifiedKey>>,
}

/// Trusted certificates; at least one.
#[derive(Clone, Debug)]
pub struct Trust {
    /// DER.
    pub certificates: Vec<CertificateDer<'static>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Pem,
    Jks,
    Pkcs12,
}

/// Keys and certificates of a file before they are linked, DER.
#[derive(Default)]
struct Content {
    keys: Vec<PrivateKeyDer<'static>>,
    /// Certificates in the order of the file; a chain is found among them.
    certificates: Vec<Vec<u8>>,
    trusted: Vec<Vec<u8>>,
    /// True if every certificate must belong to the chain of the key, as in PEM.
    is_one_chain: bool,
}

impl Identity {
    /// Reads, links and checks the keys and their chains.
    ///
    /// # Errors
    /// The bytes are of no known format or corrupt, the password is wrong, the key is missing, a
    /// key does not match its certificate, or the chain is broken.
    pub fn read(material: &KeyMaterial) -> Result<Identity, TlsError> {
        let password = material.password.as_deref();
        let place = &material.store.place;
        let mut content = content(&material.store, password, Use::Keys)?;
        let mut key_place = place;
        if let Some(key) = &material.key {
            key_place = &key.place;
            content.keys = self::content(key, password, Use::Keys)?.keys;
        }
        if content.keys.is_empty() {
            let problem = Problem::new(
                "has no private key",
                "add the key of the certificate (PEM: a section PRIVATE KEY)",
            );
            return Err(problem.at(key_place));
        }
        let keys = content.keys.into_iter();
        let keys = keys.map(|key| certified(key, &content.certificates, place, key_place));
        let identity = Identity { keys: keys.collect::<Result<_, _>>()? };
        let linked = identity.keys.iter().map(|key| key.cert.len()).max().unwrap_or(0);
        if content.is_one_chain && linked < content.certificates.len() {
            let problem = format!("certificate {} is not the issuer of the one before", linked + 1);
            let remedy = "put the certificate of the key first, then those of its issuers";
            return Err(Problem::new(problem, remedy).at(place));
        }
        Ok(identity)
    }

    /// Returns the fields of the leaf certificates.
    pub fn certificates(&self) -> impl Iterator<Item = PeerCertificate> + '_ {
        self.keys.iter().filter_map(|key| PeerCertificate::parse(key.cert.first()?))
    }
}

impl Trust {
    /// Reads trusted certificates: all of a PEM file, the trusted entries of a key store and, as Java does, the
    /// leaves of its keys.
    ///
    /// # Errors
    /// Like [`Identity::read`]; or the source has no trusted certificate.
    pub fn read(source: &Source, password: Option<&str>) -> Result<Trust, TlsError> {
        let content = content(source, password, Use::Trust)?;
        if content.trusted.is_empty() {
            let problem = Problem::new(
                "has no trusted certificate",
                "import the certificate of the authority (\"keytool -importcert -trustcacerts\")",
            );
            return Err(problem.at(&source.place));
        }
        if let Some(at) = content.trusted.iter().position(|der| Linking::parse(der).is_none()) {
            let problem = format!("trusted certificate {} is not valid X.509", at + 1);
            return Err(Problem::new(problem, "export it again").at(&source.place));
        }
        Ok(Trust { certificates: content.trusted.into_iter().map(CertificateDer::from).collect() })
    }
}

/// Reads revocation lists: PEM, or a single one in DER.
///
/// # Errors
/// The source has no revocation list.
pub fn revocation_lists(
    source: &Source,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists: Vec<Vec<u8>> = if pem::is_pem(&source.bytes) {
        let sections = pem::sections(&source.bytes).map_err(|p| p.at(&source.place))?;
        sections.into_iter().filter(|s| s.label == "X509 CRL").map(|s| s.bytes).collect()
    } else {
        vec![source.bytes.clone()]
    };
    let is_list = |der: &[u8]| {
        use x509_parser::prelude::{CertificateRevocationList, FromDer};
        CertificateRevocationList::from_der(der).is_ok()
    };
    if lists.is_empty() || !lists.iter().all(|der| is_list(der)) {
        let problem = Problem::new(
            "has no valid certificate revocation list",
            "write it with \"openssl ca -gencrl\" (PEM section X509 CRL, or DER)",
        );
        return Err(problem.at(&source.place));
    }
    Ok(lists.into_iter().map(CertificateRevocationListDer::from).collect())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Keys,
    Trust,
}

fn format_of(bytes: &[u8]) -> Result<Format, Problem> {
    if bytes.is_empty() {
        return Err(Problem::new("is empty", "write the key store or the PEM text into it"));
    }
    if bytes.len() > SOURCE_BYTES_MAX {
        let problem = format!("is larger than {} MiB", SOURCE_BYTES_MAX >> 20);
        return Err(Problem::new(problem, "name a key store or a PEM file"));
    }
    if bytes.starts_with(&jks::MAGIC) {
        return Ok(Format::Jks);
    }
    if bytes.starts_with(&jks::MAGIC_JCEKS) {
        return Err(Problem::new(
            "is a JCEKS key store, which is not supported",
            "convert it with \"keytool -importkeystore -deststoretype PKCS12\"",
        ));
    }
    if pem::is_pem(bytes) {
        return Ok(Format::Pem);
    }
    if bytes.starts_with(&[crate::der::SEQUENCE]) {
        return Ok(Format::Pkcs12);
    }
    Err(Problem::new(
        "is neither PEM nor a JKS or PKCS12 key store",
        "name a file that keytool or openssl wrote",
    ))
}

fn content(source: &Source, password: Option<&str>, wanted: Use) -> Result<Content, TlsError> {
    let read = || match format_of(&source.bytes)? {
        Format::Pem => pem_content(&source.bytes, password, wanted),
        Format::Jks => jks_content(&source.bytes, password, wanted),
        Format::Pkcs12 => pkcs12_content(&source.bytes, password, wanted),
    };
    read().map_err(|problem: Problem| problem.at(&source.place))
}

fn pem_content(bytes: &[u8], password: Option<&str>, wanted: Use) -> Result<Content, Problem> {
    let mut content = Content { is_one_chain: true, ..Content::default() };
    for section in pem::sections(bytes)? {
        let der = section.bytes;
        match (section.label, wanted) {
            ("CERTIFICATE" | "X509 CERTIFICATE", _) if content.certificates.contains(&der) => {}
            ("CERTIFICATE" | "X509 CERTIFICATE", _) => content.certificates.push(der),
            ("PRIVATE KEY", Use::Keys) => content.keys.push(PrivateKeyDer::Pkcs8(der.into())),
            ("RSA PRIVATE KEY", Use::Keys) => content.keys.push(PrivateKeyDer::Pkcs1(der.into())),
            ("EC PRIVATE KEY", Use::Keys) => content.keys.push(PrivateKeyDer::Sec1(der.into())),
            ("ENCRYPTED PRIVATE KEY", Use::Keys) => {
                content.keys.push(PrivateKeyDer::Pkcs8(decrypted(&der, password)?.into()));
            }
            // Curve parameters and requests may stand beside keys; they are ignored.
            _ => {}
        }
    }
    content.trusted.clone_from(&content.certificates);
    Ok(content)
}

/// Decrypts an encrypted key; returns PKCS#8.
fn decrypted(der: &[u8], password: Option<&str>) -> Result<Vec<u8>, Problem> {
    use pkcs8::pkcs5::EncryptionScheme;
    use pkcs8::pkcs5::pbes2::Kdf;
    let Some(password) = password else {
        return Err(Problem::new("the private key is encrypted", "set the password of the key"));
    };
    if pkcs12::encrypts(der) {
        return pkcs12::decrypt(der, password);
    }
    let convert = "convert the key with \"openssl pkcs8 -topk8 -v2 aes256\"";
    let info = pkcs8::EncryptedPrivateKeyInfoRef::try_from(der).map_err(|error| {
        Problem::new(format!("the encrypted private key cannot be read ({error})"), convert)
    })?;
    let is_bounded = match &info.encryption_algorithm {
        EncryptionScheme::Pbes2(parameters) => match &parameters.kdf {
            Kdf::Pbkdf2(kdf) => kdf.iteration_count <= ITERATIONS_MAX,
            Kdf::Scrypt(kdf) => {
                let blocks = u64::from(kdf.block_size) * 128;
                blocks.saturating_mul(kdf.cost_parameter) <= SCRYPT_BYTES_MAX
                    && kdf.parallelization <= 16
            }
            _ => false,
        },
        _ => {
            let problem = "the private key is encrypted by an unsupported scheme";
            return Err(Problem::new(problem, convert));
        }
    };
    if !is_bounded {
        let problem = "the key derivation of the private key asks for too much work";
        return Err(Problem::new(problem, convert));
    }
    let plain = info.decrypt(password).map_err(|error| {
        Problem::new(
            format!("the password does not open the private key ({error})"),
            "check the password of the key",
        )
    })?;
    Ok(plain.as_bytes().to_vec())
}

fn jks_content(bytes: &[u8], password: Option<&str>, wanted: Use) -> Result<Content, Problem> {
    let jks = jks::read(bytes, password)?;
    let mut content = Content::default();
    if wanted == Use::Trust {
        let leaves = jks.keys.into_iter().filter_map(|key| key.chain.into_iter().next());
        content.trusted = jks.trusted.into_iter().chain(leaves).collect();
        return Ok(content);
    }
    let Some(password) = password else { return Err(password_missing()) };
    for key in jks.keys {
        content.keys.push(PrivateKeyDer::Pkcs8(key.open(password)?.into()));
        content.certificates.extend(key.chain);
    }
    Ok(content)
}

fn pkcs12_content(bytes: &[u8], password: Option<&str>, wanted: Use) -> Result<Content, Problem> {
    if password.is_none() && wanted == Use::Keys {
        return Err(password_missing());
    }
    let found = pkcs12::read(bytes, password.unwrap_or_default());
    // Without a password the certificates are readable only if the store was created without one.
    let found = found.map_err(|p| if password.is_some() { p } else { password_missing() })?;
    let mut content = Content::default();
    if wanted == Use::Keys {
        content.keys = found.keys.into_iter().map(|der| PrivateKeyDer::Pkcs8(der.into())).collect();
        content.certificates = found.certificates;
        return Ok(content);
    }
    content.trusted = match (found.trusted.is_empty(), found.keys.is_empty()) {
        // openssl does not mark trusted certificates.
        (true, true) => found.certificates,
        (true, false) => leaves(&found)?,
        (false, true) => found.trusted,
        (false, false) => {
            let leaves = leaves(&found)?;
            found.trusted.into_iter().chain(leaves).collect()
        }
    };
    Ok(content)
}

/// Returns the certificates of the private keys.
fn leaves(store: &pkcs12::Pkcs12) -> Result<Vec<Vec<u8>>, Problem> {
    let mut leaves = Vec::new();
    for key in &store.keys {
        let key = PrivateKeyDer::Pkcs8(key.clone().into());
        let public = public_key(&key, &store.certificates)?.1;
        let is_leaf = |der: &&Vec<u8>| Linking::parse(der).is_some_and(|l| l.public_key == public);
        leaves.extend(store.certificates.iter().find(is_leaf).cloned());
    }
    Ok(leaves)
}

fn password_missing() -> Problem {
    Problem::new("is a key store, and its password is not set", "set the password of the key store")
}

type SigningKey = Arc<dyn rustls::sign::SigningKey>;

/// Returns the key in rustls's form, and its public part. An EC key without one gets that of its certificate.
fn public_key(
    key: &PrivateKeyDer<'_>,
    certificates: &[Vec<u8>],
) -> Result<(SigningKey, Vec<u8>), Problem> {
    let unsupported = || {
        Problem::new(
            "the private key is damaged or of an unsupported kind",
            "use RSA of 2048 to 8192 bits, EC P-256 or P-384, or Ed25519",
        )
    };
    let signing = match ec::BareKey::parse(key) {
        None => any_supported_type(key).map_err(|_| unsupported())?,
        Some(bare) => {
            let mut complete = bare.candidates(certificates);
            let signing =
                complete.find_map(|key| any_supported_type(&PrivateKeyDer::Pkcs8(key.into())).ok());
            signing.ok_or_else(|| unmatched(certificates))?
        }
    };
    let public = signing.public_key().map(|key| key.as_ref().to_vec()).ok_or_else(unsupported)?;
    Ok((signing, public))
}

/// Links a key to its leaf and the leaf to its issuers.
fn certified(
    key: PrivateKeyDer<'static>,
    certificates: &[Vec<u8>],
    place: &str,
    key_place: &str,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let (signing, public) =
        public_key(&key, certificates).map_err(|problem| problem.at(key_place))?;
    let chain = chain(&public, certificates).map_err(|problem| problem.at(place))?;
    Ok(Arc::new(CertifiedKey::new(chain, signing)))
}

/// No certificate is that of the private key.
fn unmatched(certificates: &[Vec<u8>]) -> Problem {
    let problem = match certificates.is_empty() {
        true => "has no certificate",
        false => "no certificate matches the private key",
    };
    Problem::new(problem, "put the certificate of that key first, then those of its issuers")
}

fn chain(public: &[u8], certificates: &[Vec<u8>]) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let mut parsed = Vec::with_capacity(certificates.len());
    for (at, der) in certificates.iter().enumerate() {
        let linking = Linking::parse(der).ok_or_else(|| {
            Problem::new(format!("certificate {} is not valid X.509", at + 1), "export it again")
        })?;
        parsed.push((der, linking));
    }
    let leaf = parsed.iter().find(|(_, linking)| linking.public_key == public);
    // INV-tls-1
    let Some((leaf, mut last)) = leaf.map(|(der, linking)| (*der, linking)) else {
        return Err(unmatched(certificates));
    };
    let mut chain = vec![leaf];
    while last.issuer != last.subject && chain.len() < CHAIN_MAX {
        let next = parsed.iter().find(|(der, l)| l.subject == last.issuer && !chain.contains(der));
        let Some((der, linking)) = next else { break };
        chain.push(der);
        last = linking;
    }
    Ok(chain.into_iter().map(|der| CertificateDer::from(der.clone())).collect())
}
