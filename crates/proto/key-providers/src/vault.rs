//! The transit engine of HashiCorp Vault: `datakey/plaintext` makes a key, `decrypt` unwraps one.
//!
//! The wrapped form is text, `vault:v<version>:<base64>`; the version is that of the named key.
//! Source: HashiCorp's documentation of the transit HTTP API.

use at_rest::KeyAsk;
use conf::key_hosts::VaultLogin;
use cql_functions::json::Json;

use crate::provider::{HttpRequest, Made, ProviderError, shown};
use crate::reply::{decode, field, odd, quoted, secret, text};

const MOUNT: &str = "transit";

/// The request for a key.
///
/// # Errors
/// The wrapped key is not text, or the key's name cannot be part of a path.
pub fn request(of: &VaultLogin, token: &str, ask: &KeyAsk) -> Result<HttpRequest, ProviderError> {
    let key = &ask.source().key;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if key.is_empty() || !key.bytes().all(is_plain) {
        let what = format!("\"{}\" cannot be the name of a key of Vault", shown(key));
        return Err(ProviderError::Refused(what));
    }
    let mount = of.mount.as_deref().unwrap_or(MOUNT).trim_matches('/');
    let (path, body) = match ask {
        KeyAsk::New(_) => {
            (format!("/v1/{mount}/datakey/plaintext/{key}"), "{\"bits\":256}".to_owned())
        }
        KeyAsk::Open { envelope, .. } => {
            let wrapped = std::str::from_utf8(envelope).map_err(|_| {
                ProviderError::Refused("the wrapped key is not one of Vault".to_owned())
            })?;
            let body = format!("{{\"ciphertext\":{}}}", quoted(wrapped));
            (format!("/v1/{mount}/decrypt/{key}"), body)
        }
    };
    let mut headers =
        vec![("X-Vault-Token", token.to_owned()), ("X-Vault-Request", "true".to_owned())];
    headers.extend(of.namespace.iter().map(|space| ("X-Vault-Namespace", space.clone())));
    Ok(HttpRequest { path, content_type: "application/json", headers, body })
}

/// The version in a wrapped form.
fn version(wrapped: &str) -> Option<u32> {
    wrapped.strip_prefix("vault:v")?.split(':').next()?.parse().ok()
}

/// The key in an answer.
///
/// # Errors
/// Vault refuses or has failed, or the answer is not understood.
pub fn parse(ask: &KeyAsk, status: u16, body: &[u8]) -> Result<Made, ProviderError> {
    let json = decode(body);
    if status != 200 {
        return Err(failure(status, json.as_ref()));
    }
    let json = json.ok_or_else(|| odd("it is not JSON"))?;
    let data = field(&json, "data").ok_or_else(|| odd("it has no data"))?;
    let secret = secret(data, "plaintext")?;
    let envelope = match ask {
        KeyAsk::Open { envelope, .. } => envelope.clone(),
        KeyAsk::New(_) => {
            let wrapped = text(data, "ciphertext").ok_or_else(|| odd("it has no ciphertext"))?;
            if wrapped.len() > at_rest::record::ENVELOPE_BYTES_MAX {
                return Err(odd("the ciphertext is too long"));
            }
            wrapped.as_bytes().to_vec()
        }
    };
    let version = std::str::from_utf8(&envelope).ok().and_then(version);
    let version = version.ok_or_else(|| odd("the ciphertext is not of the form vault:v<n>:"))?;
    Ok(Made { secret, envelope, version, resolved: String::new() })
}

/// Sealed, standby and overloaded Vaults answer 5xx, 412, 429, 472 and 473.
fn failure(status: u16, json: Option<&Json>) -> ProviderError {
    let first = json.and_then(|json| match field(json, "errors")? {
        Json::List(errors) => errors.iter().find_map(|error| match error {
            Json::Text(text) => Some(shown(text)),
            _ => None,
        }),
        _ => None,
    });
    let why = first.unwrap_or_else(|| "without a reason".to_owned());
    let what = format!("it answers {status}: {why}");
    match status {
        400 | 401 | 403 | 404 | 405 => ProviderError::Refused(what),
        _ => ProviderError::Unavailable(what),
    }
}

#[cfg(test)]
mod tests {
    use at_rest::{KeySource, Secret};

    use super::*;

    fn source(key: &str) -> KeySource {
        KeySource { provider: "vault:a".to_owned(), key: key.to_owned() }
    }

    #[test]
    fn requests_have_token_namespace_mount_and_key() {
        let of = VaultLogin {
            namespace: Some("team/a".to_owned()),
            mount: Some("keys/".to_owned()),
            ..VaultLogin::default()
        };
        let made = request(&of, "s.tok", &KeyAsk::New(source("k1"))).unwrap();
        assert_eq!(
            (made.path.as_str(), made.body.as_str()),
            ("/v1/keys/datakey/plaintext/k1", "{\"bits\":256}")
        );
        assert!(made.headers.contains(&("X-Vault-Token", "s.tok".to_owned())));
        assert!(made.headers.contains(&("X-Vault-Namespace", "team/a".to_owned())));
        let open =
            KeyAsk::Open { source: source("k1"), version: 2, envelope: b"vault:v2:a\"b".to_vec() };
        let opened = request(&VaultLogin::default(), "t", &open).unwrap();
        assert_eq!(opened.path, "/v1/transit/decrypt/k1");
        assert_eq!(opened.body, "{\"ciphertext\":\"vault:v2:a\\\"b\"}");
        for bad in ["", "a/b", "a?b", "a b", "../x"] {
            assert!(
                request(&VaultLogin::default(), "t", &KeyAsk::New(source(bad))).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn answers_are_read_and_what_is_not_one_is_refused() {
        let new = KeyAsk::New(source("k"));
        let key = at_rest::base64::encode(&[7; 32]);
        let ok =
            format!("{{\"data\":{{\"plaintext\":\"{key}\",\"ciphertext\":\"vault:v12:abc\"}}}}");
        let made = parse(&new, 200, ok.as_bytes()).unwrap();
        assert_eq!((made.version, made.envelope.as_slice()), (12, &b"vault:v12:abc"[..]));
        assert_eq!(made.secret, Secret::new([7; 32]));
        let open =
            KeyAsk::Open { source: source("k"), version: 3, envelope: b"vault:v3:x".to_vec() };
        let opened =
            parse(&open, 200, format!("{{\"data\":{{\"plaintext\":\"{key}\"}}}}").as_bytes());
        assert_eq!(
            opened.map(|made| (made.version, made.envelope)),
            Ok((3, b"vault:v3:x".to_vec()))
        );
        let short = at_rest::base64::encode(&[7; 31]);
        for (status, body, temporary, text) in [
            (
                403,
                "{\"errors\":[\"permission denied\"]}".to_owned(),
                false,
                "403: permission denied",
            ),
            (404, String::new(), false, "404"),
            (503, "{\"errors\":[\"Vault is sealed\"]}".to_owned(), true, "Vault is sealed"),
            (200, "<html>".to_owned(), true, "not JSON"),
            (200, "{}".to_owned(), true, "no data"),
            (200, ok.replace(&key, &short), true, "not a key of 256 bits"),
            (200, ok.replace("vault:v12:", "v12"), true, "vault:v<n>"),
            (200, ok.replace("ciphertext", "c"), true, "no ciphertext"),
        ] {
            let error = parse(&new, status, body.as_bytes()).unwrap_err();
            assert_eq!(error.is_temporary(), temporary, "{body}");
            assert!(error.to_string().contains(text), "{body}: {error}");
            assert!(!error.to_string().contains(&short), "INV-key-providers-2");
        }
    }
}
