//! AWS KMS and services with its protocol: `GenerateDataKey` makes a key, `Decrypt` unwraps one.
//!
//! `Decrypt` does not name the key: what is wrapped does, and an alias may have come to mean another key since.
//! Source: AWS' documentation of the KMS API.

use at_rest::{KeyAsk, base64};
use stdx::WallMicros;

use crate::provider::{HttpRequest, Made, ProviderError, authority, shown};
use crate::reply::{decode, odd, quoted, secret, text};
use crate::sigv4::{Credentials, Scope, Signed, amz_date, authorization};

const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

/// Errors after which another try may succeed.
const TEMPORARY: [&str; 8] = [
    "ThrottlingException",
    "LimitExceededException",
    "KMSInternalException",
    "DependencyTimeoutException",
    "KeyUnavailableException",
    "ServiceUnavailable",
    "InternalFailure",
    "RequestTimeout",
];

/// The signed request for a key.
pub fn request(
    endpoint: &str,
    region: &str,
    credentials: &Credentials,
    ask: &KeyAsk,
    wall: WallMicros,
) -> HttpRequest {
    let (target, body) = match ask {
        KeyAsk::New(source) => {
            let body = format!("{{\"KeyId\":{},\"KeySpec\":\"AES_256\"}}", quoted(&source.key));
            ("TrentService.GenerateDataKey", body)
        }
        KeyAsk::Open { envelope, .. } => {
            let body = format!("{{\"CiphertextBlob\":\"{}\"}}", base64::encode(envelope));
            ("TrentService.Decrypt", body)
        }
    };
    let date = amz_date(wall);
    let host = authority(endpoint);
    let mut signed = vec![("content-type", CONTENT_TYPE), ("host", host), ("x-amz-date", &date)];
    signed
        .extend(credentials.session_token.as_deref().map(|token| ("x-amz-security-token", token)));
    signed.push(("x-amz-target", target));
    let scope = Scope { region, service: "kms", date: &date };
    let parts = Signed { method: "POST", path: "/", headers: &signed, body: body.as_bytes() };
    let authorization = authorization(credentials, &scope, &parts);
    let mut headers = vec![
        ("X-Amz-Date", date.clone()),
        ("X-Amz-Target", target.to_owned()),
        ("Authorization", authorization),
    ];
    headers.extend(credentials.session_token.clone().map(|token| ("X-Amz-Security-Token", token)));
    HttpRequest { path: "/".to_owned(), content_type: CONTENT_TYPE, headers, body }
}

/// The key in an answer.
///
/// # Errors
/// The service refuses or has failed, or the answer is not understood.
pub fn parse(ask: &KeyAsk, status: u16, body: &[u8]) -> Result<Made, ProviderError> {
    let json = decode(body);
    if status != 200 {
        let part = |names: [&str; 2]| {
            let json = json.as_ref()?;
            names.iter().find_map(|name| text(json, name)).map(shown)
        };
        let kind = part(["__type", "code"]).unwrap_or_else(|| "without a reason".to_owned());
        let kind = kind.rsplit('#').next().unwrap_or(&kind).to_owned();
        let message = part(["message", "Message"]).map(|m| format!(": {m}")).unwrap_or_default();
        let what = format!("it answers {status} {kind}{message}");
        let is_temporary = !(400..500).contains(&status)
            || matches!(status, 408 | 429)
            || TEMPORARY.iter().any(|known| kind.starts_with(known));
        return Err(match is_temporary {
            true => ProviderError::Unavailable(what),
            false => ProviderError::Refused(what),
        });
    }
    let json = json.ok_or_else(|| odd("it is not JSON"))?;
    let secret = secret(&json, "Plaintext")?;
    let envelope = match ask {
        KeyAsk::Open { envelope, .. } => envelope.clone(),
        KeyAsk::New(_) => {
            let wrapped = text(&json, "CiphertextBlob").and_then(base64::decode);
            let fits = |w: &Vec<u8>| (1..=at_rest::record::ENVELOPE_BYTES_MAX).contains(&w.len());
            wrapped
                .filter(fits)
                .ok_or_else(|| odd("CiphertextBlob is missing, too long or not base64"))?
        }
    };
    let resolved = text(&json, "KeyId").map(shown).unwrap_or_default();
    Ok(Made { secret, envelope, version: 0, resolved })
}

#[cfg(test)]
mod tests {
    use at_rest::{KeySource, Secret};

    use super::*;

    fn new() -> KeyAsk {
        let key = "alias/\"x".to_owned();
        KeyAsk::New(KeySource { provider: "kms:a".to_owned(), key })
    }

    #[test]
    fn requests_are_signed_and_quoted() {
        let credentials = Credentials {
            id: "AKID".to_owned(),
            secret: "secret".to_owned(),
            session_token: Some("tok".to_owned()),
        };
        let at = WallMicros(1_440_938_160_000_000);
        let made = request("https://kms:8443", "eu-west-1", &credentials, &new(), at);
        assert_eq!(made.body, "{\"KeyId\":\"alias/\\\"x\",\"KeySpec\":\"AES_256\"}");
        let header = |name: &str| made.headers.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        assert_eq!(header("X-Amz-Target"), "TrentService.GenerateDataKey");
        assert_eq!(header("X-Amz-Security-Token"), "tok");
        let signed =
            "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, ";
        assert!(header("Authorization").contains(signed));
        assert!(
            header("Authorization").contains("Credential=AKID/20150830/eu-west-1/kms/aws4_request")
        );
        let source = new().source().clone();
        let open = KeyAsk::Open { source, version: 0, envelope: b"foo".to_vec() };
        let opened = request("https://kms:8443", "eu-west-1", &credentials, &open, at);
        assert_eq!(opened.body, "{\"CiphertextBlob\":\"Zm9v\"}");
    }

    #[test]
    fn answers_are_read_and_what_is_not_one_is_refused() {
        let key = base64::encode(&[7; 32]);
        let ok =
            format!("{{\"CiphertextBlob\":\"Zm9v\",\"Plaintext\":\"{key}\",\"KeyId\":\"arn:x\"}}");
        let made = parse(&new(), 200, ok.as_bytes()).unwrap();
        assert_eq!((made.secret, made.envelope), (Secret::new([7; 32]), b"foo".to_vec()));
        assert_eq!(made.resolved, "arn:x");
        for (status, body, temporary, text) in [
            (
                400,
                "{\"__type\":\"com.x#AccessDeniedException\",\"Message\":\"no\"}",
                false,
                "400 AccessDeniedException: no",
            ),
            (400, "{\"__type\":\"DisabledException\"}", false, "DisabledException"),
            (400, "{\"__type\":\"ThrottlingException\"}", true, "ThrottlingException"),
            (500, "", true, "500"),
            (200, "x", true, "not JSON"),
            (200, "{\"Plaintext\":\"AAAA\"}", true, "not a key"),
            (200, &ok.replace("Zm9v", ""), true, "CiphertextBlob"),
        ] {
            let error = parse(&new(), status, body.as_bytes()).unwrap_err();
            assert_eq!(error.is_temporary(), temporary, "{body}");
            assert!(error.to_string().contains(text), "{body}: {error}");
        }
    }
}
