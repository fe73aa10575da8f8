//! Credentials in a request.

use std::fmt;

use crate::base64;

/// Longest header that is read.
const HEADER_BYTES_MAX: usize = 8192;

/// A secret text, masked in output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Credentials of the `Authorization` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Name and password of a role (`Basic`).
    Password {
        /// The role.
        user: String,
        /// Its password.
        password: Secret,
    },
    /// A bearer token.
    Token(Secret),
}

impl Credentials {
    /// Parses the value of the header; `None` if it is malformed or of another scheme.
    pub fn parse(header: &str) -> Option<Credentials> {
        if header.len() > HEADER_BYTES_MAX {
            return None;
        }
        let (scheme, value) = header.trim().split_once(' ')?;
        let value = value.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            let is_token = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
            return is_token.then(|| Credentials::Token(Secret(value.to_owned())));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let text = String::from_utf8(base64::decode(value)?).ok()?;
        let (user, password) = text.split_once(':')?;
        let password = Secret(password.to_owned());
        (!user.is_empty()).then(|| Credentials::Password { user: user.to_owned(), password })
    }

    /// Returns the value of the header.
    pub fn header(&self) -> String {
        match self {
            Credentials::Password { user, password } => {
                format!("Basic {}", base64::encode(format!("{user}:{}", password.0).as_bytes()))
            }
            Credentials::Token(token) => format!("Bearer {}", token.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(user: &str, password: &str) -> Credentials {
        Credentials::Password { user: user.to_owned(), password: Secret(password.to_owned()) }
    }

    #[test]
    fn headers_are_read_back() {
        for credentials in [
            password("ann", "secret"),
            password("ann", "with:colon"),
            password("jürgen", ""),
            Credentials::Token(Secret("helenus_abc".to_owned())),
        ] {
            assert_eq!(Credentials::parse(&credentials.header()), Some(credentials));
        }
        // RFC 7617.
        let known = Credentials::parse("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(known, Some(password("Aladdin", "open sesame")));
    }

    #[test]
    fn malformed_headers_are_no_credentials() {
        let long = format!("Bearer {}", "x".repeat(HEADER_BYTES_MAX));
        for header in [
            "",
            "Basic",
            "Basic !",
            "Basic YW5u",
            "Basic OnB3",
            "Bearer ",
            "Bearer a b",
            "Digest x",
            &long,
        ] {
            assert_eq!(Credentials::parse(header), None, "{header:.40}");
        }
        // Not UTF-8.
        assert_eq!(Credentials::parse("Basic /zo="), None);
    }

    #[test]
    fn secrets_are_masked() {
        assert!(!format!("{:?}", password("ann", "hidden")).contains("hidden"));
    }
}
