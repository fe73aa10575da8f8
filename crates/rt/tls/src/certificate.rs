//! Fields of certificates: the holder's names, the validity, the certified key.

use std::net::IpAddr;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::identity::push_escaped;

/// Fields of the certificate that a peer showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject as text, `CN=…, O=…`.
    pub subject: String,
    /// The subject in the form of RFC 4514, last attribute first: `CN=…,O=…`. Separators inside of
    /// values are escaped as hexadecimal pairs.
    pub subject_rfc4514: String,
    /// First common name of the subject.
    pub common_name: Option<String>,
    /// DNS names among the subject's alternative names.
    pub dns_names: Vec<String>,
    /// URIs among the subject's alternative names.
    pub uris: Vec<String>,
    /// The subject's alternative names with their kinds, in order: `DNS=…`, `EMAIL=…`, `URI=…`, `IP=…`.
    pub alternative_names: Vec<String>,
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
            subject_rfc4514: rfc4514(certificate.subject()),
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
            found.alternative_names.extend(alternative_name(name));
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

/// An alternative name with its kind; `None` for kinds that are no text.
fn alternative_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(format!("DNS={name}")),
        GeneralName::RFC822Name(name) => Some(format!("EMAIL={name}")),
        GeneralName::URI(uri) => Some(format!("URI={uri}")),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6).ok().map(|address| format!("IP={address}"))
        }
        _ => None,
    }
}

fn rfc4514(name: &X509Name<'_>) -> String {
    let mut relative: Vec<String> = name
        .iter_rdn()
        .map(|rdn| rdn.iter().map(attribute).collect::<Vec<_>>().join("+"))
        .collect();
    relative.reverse();
    relative.join(",")
}

/// An attribute of a name: `CN=ann`; unknown ones as `1.2.3=#0c03616e6e`.
fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let oid = attribute.attr_type().to_id_string();
    let name = match oid.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "STREET",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "EMAIL",
        _ => "",
    };
    match attribute.as_str() {
        Ok(value) if !name.is_empty() => {
            let mut text = format!("{name}=");
            push_escaped(value, &mut text);
            text
        }
        _ => {
            let bytes = attribute.as_slice().iter();
            let bytes: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            format!("{}=#{bytes}", if name.is_empty() { &oid } else { name })
        }
    }
}

/// Parses a certificate; `None` if bytes follow it.
fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}
