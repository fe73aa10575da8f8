//! EC private keys without a public part, as Java's keytool writes them.
//!
//! ring requires the public part. It is copied from a certificate; ring derives the point from the private key and
//! rejects a copy that differs, so INV-tls-1 holds.

use rustls::pki_types::PrivateKeyDer;

use crate::certificate::Linking;
use crate::der;

/// 1.2.840.10045.2.1, ecPublicKey.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// Curves that ring signs with, and the bytes of their private keys: P-256, P-384.
const CURVES: [(&[u8], usize); 2] = [
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], 32),
    (&[0x2b, 0x81, 0x04, 0x00, 0x22], 48),
];
/// Most certificates of one curve that are compared with a key; each costs a multiplication of points.
const CANDIDATES_MAX: usize = 1_000;

/// An EC private key without its public part.
pub(crate) struct BareKey {
    /// AlgorithmIdentifier, DER.
    algorithm: Vec<u8>,
    /// The number, padded to the size of the curve.
    secret: Vec<u8>,
}

impl BareKey {
    /// Parses a key; `None` if it has a public part or is of another kind.
    pub(crate) fn parse(key: &PrivateKeyDer<'_>) -> Option<BareKey> {
        let (curve, key) = match key {
            PrivateKeyDer::Pkcs8(key) => {
                let (info, _) = der::element(key.secret_pkcs8_der(), der::SEQUENCE)?;
                let (_version, rest) = der::element(info, der::INTEGER)?;
                let (algorithm, rest) = der::element(rest, der::SEQUENCE)?;
                let (kind, curve) = der::element(algorithm, der::OBJECT_IDENTIFIER)?;
                if kind != EC_PUBLIC_KEY {
                    return None;
                }
                let (curve, _) = der::element(curve, der::OBJECT_IDENTIFIER)?;
                (Some(curve), der::element(rest, der::OCTET_STRING)?.0)
            }
            PrivateKeyDer::Sec1(key) => (None, key.secret_sec1_der()),
            _ => return None,
        };
        let (fields, _) = der::element(key, der::SEQUENCE)?;
        let (_version, rest) = der::element(fields, der::INTEGER)?;
        let (secret, rest) = der::element(rest, der::OCTET_STRING)?;
        let parameters = der::element(rest, der::CONTEXT_0);
        let (own_curve, rest) = match parameters {
            Some((curve, rest)) => (Some(der::element(curve, der::OBJECT_IDENTIFIER)?.0), rest),
            None => (None, rest),
        };
        let curve = curve.or(own_curve)?;
        let size = CURVES.iter().find(|(known, _)| *known == curve)?.1;
        if !rest.is_empty() || own_curve.is_some_and(|own| own != curve) {
            return None;
        }
        // Old versions of Java leave leading zeros out or write one too many.
        let zeros = secret.iter().take_while(|byte| **byte == 0).count();
        let digits = secret.get(zeros..)?;
        let mut padded = vec![0; size.checked_sub(digits.len())?];
        padded.extend_from_slice(digits);
        let kind = der::encode(der::OBJECT_IDENTIFIER, &[EC_PUBLIC_KEY]);
        let curve = der::encode(der::OBJECT_IDENTIFIER, &[curve]);
        let algorithm = der::encode(der::SEQUENCE, &[&kind, &curve]);
        Some(BareKey { algorithm, secret: padded })
    }

    /// Returns the key as PKCS#8 with the public part of each certificate of its curve; at most one of them is
    /// consistent.
    pub(crate) fn candidates(&self, certificates: &[Vec<u8>]) -> impl Iterator<Item = Vec<u8>> {
        let certificates = certificates.iter().filter_map(|certificate| self.with(certificate));
        certificates.take(CANDIDATES_MAX)
    }

    fn with(&self, certificate: &[u8]) -> Option<Vec<u8>> {
        let public = Linking::parse(certificate)?.public_key;
        let (info, _) = der::element(&public, der::SEQUENCE)?;
        let point = info.strip_prefix(self.algorithm.as_slice())?;
        der::element(point, der::BIT_STRING)?;
        let secret = der::encode(der::OCTET_STRING, &[&self.secret]);
        let point = der::encode(der::CONTEXT_1, &[point]);
        let key = der::encode(der::SEQUENCE, &[&[der::INTEGER, 1, 1], &secret, &point]);
        let key = der::encode(der::OCTET_STRING, &[&key]);
        Some(der::encode(der::SEQUENCE, &[&[der::INTEGER, 1, 0], &self.algorithm, &key]))
    }
}
