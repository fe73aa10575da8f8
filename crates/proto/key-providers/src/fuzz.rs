//! Fuzz targets: plain functions over bytes that must never panic.

use at_rest::{KeyAsk, KeySource};

use crate::sigv4::Credentials;
use crate::{kms, vault};

/// An answer of a provider, to both kinds of requests; and a file of credentials.
pub fn fuzz_key_answer(data: &[u8]) {
    let source = KeySource { provider: "vault:fuzz".to_owned(), key: "k".to_owned() };
    let open =
        KeyAsk::Open { source: source.clone(), version: 1, envelope: b"vault:v1:x".to_vec() };
    let (status, body) = match data.split_first() {
        Some((0, body)) => (403, body),
        Some((_, body)) => (200, body),
        None => (500, data),
    };
    for ask in [KeyAsk::New(source), open] {
        drop(vault::parse(&ask, status, body));
        drop(kms::parse(&ask, status, body));
    }
    drop(Credentials::of_file(&String::from_utf8_lossy(data), "default"));
}

#[cfg(test)]
mod tests {
    use testkit::mutate;

    use super::*;

    #[test]
    fn no_answer_panics() {
        let key = at_rest::base64::encode(&[7; 32]);
        let vault = format!(
            "\u{1}{{\"data\":{{\"plaintext\":\"{key}\",\"ciphertext\":\"vault:v12:abc\"}}}}"
        );
        let kms = format!("\u{1}{{\"CiphertextBlob\":\"Zm9v\",\"Plaintext\":\"{key}\"}}");
        let file = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n".to_owned();
        let errors = "\u{0}{\"errors\":[\"x\"],\"__type\":\"y\"}".to_owned();
        mutate([vault, kms, file, errors].map(String::into_bytes), fuzz_key_answer);
    }
}
