//! Signatures of requests to AWS, version 4, of requests without a query.
//!
//! Source: AWS' documentation "Signature Version 4 signing process". HMAC and SHA-256 are those of ring.

use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};
use stdx::WallMicros;
use types::temporal::civil_from_days;

/// Credentials of AWS.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Access key id.
    pub id: String,
    /// Secret access key.
    pub secret: String,
    /// Session token of temporary ones.
    pub session_token: Option<String>,
}

impl Credentials {
    /// Those of a profile in a credentials file of AWS' tools. `None`: it has none.
    pub fn of_file(text: &str, profile: &str) -> Option<Credentials> {
        let mut is_ours = false;
        let (mut id, mut secret, mut session_token) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                is_ours = name.trim() == profile;
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_ours) else { continue };
            let value =
                Some(value.trim().to_owned()).filter(|v| v.bytes().all(|b| b.is_ascii_graphic()));
            match key.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => session_token = value,
                _ => {}
            }
        }
        Some(Credentials { id: id?, secret: secret?, session_token })
    }
}

/// A request to be signed.
pub struct Signed<'r> {
    /// Method.
    pub method: &'r str,
    /// Path, as it is sent.
    pub path: &'r str,
    /// Names in lower case and values, in the order of the names; `host` and `x-amz-date` among them.
    pub headers: &'r [(&'r str, &'r str)],
    /// Body.
    pub body: &'r [u8],
}

/// Where and when a signature counts.
pub struct Scope<'r> {
    /// Region.
    pub region: &'r str,
    /// Service.
    pub service: &'r str,
    /// Time, as in `x-amz-date`.
    pub date: &'r str,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sign(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), text.as_bytes())
}

/// A time as `x-amz-date` has it.
pub fn amz_date(wall: WallMicros) -> String {
    let seconds = wall.0.div_euclid(1_000_000);
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) =
        (of_day.div_euclid(3600), of_day.div_euclid(60).rem_euclid(60), of_day.rem_euclid(60));
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The value of the `Authorization` header.
pub fn authorization(credentials: &Credentials, scope: &Scope<'_>, signed: &Signed<'_>) -> String {
    let day = scope.date.split('T').next().unwrap_or_default();
    let names: Vec<&str> = signed.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let headers: String =
        signed.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let body = hex(digest(&SHA256, signed.body).as_ref());
    let canonical = format!("{}\n{}\n\n{headers}\n{names}\n{body}", signed.method, signed.path);
    let place = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let hash = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{}\n{place}\n{hash}", scope.date);
    let key = sign(format!("AWS4{}", credentials.secret).as_bytes(), day);
    let key = sign(key.as_ref(), scope.region);
    let key = sign(key.as_ref(), scope.service);
    let key = sign(key.as_ref(), "aws4_request");
    let signature = hex(sign(key.as_ref(), &text).as_ref());
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{place}, SignedHeaders={names}, Signature={signature}",
        credentials.id
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of AWS' published test suite for version 4: get-vanilla, post-vanilla, post-x-www-form-urlencoded.
    #[test]
    fn signatures_are_those_of_the_published_vectors() {
        let credentials = Credentials {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let date = "20150830T123600Z";
        let scope = Scope { region: "us-east-1", service: "service", date };
        let plain = [("host", "example.amazonaws.com"), ("x-amz-date", date)];
        let form = [("content-type", "application/x-www-form-urlencoded"), plain[0], plain[1]];
        for (method, headers, body, signature) in [
            (
                "GET",
                &plain[..],
                "",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                &plain[..],
                "",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "POST",
                &form[..],
                "Param1=value1",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
        ] {
            let signed = Signed { method, path: "/", headers, body: body.as_bytes() };
            let header = authorization(&credentials, &scope, &signed);
            assert!(
                header.ends_with(&format!("Signature={signature}")),
                "{method} {body}: {header}"
            );
            let start = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                         SignedHeaders=";
            assert!(header.starts_with(start), "{header}");
        }
        assert_eq!(amz_date(WallMicros(1_440_938_160_000_000)), date);
    }

    #[test]
    fn credentials_are_those_of_the_profile() {
        let text = "[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[ prod ]\naws_access_key_id=C\n\
                    aws_secret_access_key = D=\naws_session_token = E\n[half]\naws_access_key_id=F\n";
        let of = |profile| {
            Credentials::of_file(text, profile).map(|c| (c.id, c.secret, c.session_token))
        };
        assert_eq!(of("default"), Some(("A".to_owned(), "B".to_owned(), None)));
        assert_eq!(of("prod"), Some(("C".to_owned(), "D=".to_owned(), Some("E".to_owned()))));
        assert_eq!((of("half"), of("none")), (None, None));
    }
}
