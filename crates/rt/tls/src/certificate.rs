//! Fields of certificates: the holder's names, the validity, the certified key.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Fields of the certificate that a peer showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject as text, `CN=…, O=…`.
    pub subject: String,
    /// First common name of the subject.
    pub common_name: Option<String>,
    /// DNS names among the subject's alternative names.
    pub dns_names: Vec<String>,
    /// URIs among the subject's alternative names.
    pub uris: Vec<String>,
    /// Serial number, hexadecimal.
    pub serial: String,
    /// Start of its validity, seconds since 1970.
    pub not_before: i64,
    /// End of its validity, seconds since 1970.
    pub not_after: i64,
}

impl PeerCertificate {
    /// Parses a certificate; `None` if the bytes are not one.
    pub fn parse(der: &[u8]) -> Option<PeerCertificate> {
        let certificate = parse(der)?;
        let mut found = PeerCertificate {
            subject: certificate.subject().to_string(),
            common_name: certificate
                .subject()
                .iter_common_name()
                .find_map(|name| name.as_str().ok())
                .map(str::to_owned),
            serial: certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            ..PeerCertificate::default()
        };
        let names = certificate.subject_alternative_name().ok().flatten();
        for name in names.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => found.dns_names.push((*name).to_owned()),
                GeneralName::URI(uri) => found.uris.push((*uri).to_owned()),
                _ => {}
            }
        }
        Some(found)
    }

    /// The first URI of the form `spiffe://…`.
    pub fn spiffe_id(&self) -> Option<&str> {
        self.uris.iter().map(String::as_str).find(|uri| uri.starts_with("spiffe://"))
    }

    /// Returns true if it is valid at this time.
    pub fn is_valid_at(&self, unix_seconds: i64) -> bool {
        (self.not_before..=self.not_after).contains(&unix_seconds)
    }
}

/// Names and key that link a certificate to its issuer and its private key.
pub(crate) struct Linking {
    pub(crate) subject: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    /// SubjectPublicKeyInfo, DER.
    pub(crate) public_key: Vec<u8>,
}

impl Linking {
    pub(crate) fn parse(der: &[u8]) -> Option<Linking> {
        let certificate = parse(der)?;
        Some(Linking {
            subject: certificate.subject().as_raw().to_vec(),
            issuer: certificate.issuer().as_raw().to_vec(),
            public_key: certificate.public_key().raw.to_vec(),
        })
    }
}

/// Parses a certificate; `None` if bytes follow it.
fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}
