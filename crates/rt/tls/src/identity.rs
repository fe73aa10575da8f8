//! Identities in the certificates of peers.
//!
//! Owns: which text of a certificate names its holder. Never: what an identity may do, whether a certificate is
//! trusted ([`crate::config`]).
//!
//! INV-tls-4: an attribute value of a subject cannot imitate another attribute. Separators inside of values are
//! escaped as hexadecimal pairs before a pattern sees the subject, and unescaped in what the pattern captured. Each
//! alternative name is matched on its own.

use regex_lite::{Regex, RegexBuilder};

use crate::certificate::PeerCertificate;

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 4096;
/// Largest compiled pattern, in bytes. Bounds the time of a match together with the size of a certificate.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Rule that finds the identity in a certificate.
#[derive(Clone, Debug)]
pub enum IdentityRule {
    /// The first URI of the form `spiffe://…` among the alternative names, as
    /// `org.apache.cassandra.auth.SpiffeCertificateValidator` does.
    Spiffe,
    /// The capture of the first pattern that matches, as ScyllaDB's `auth_certificate_role_queries`.
    Queries(Vec<IdentityQuery>),
}

/// Pattern that captures the identity in a part of the certificate.
#[derive(Clone, Debug)]
pub struct IdentityQuery {
    source: IdentitySource,
    pattern: Regex,
}

/// Part of a certificate that a pattern is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentitySource {
    /// The subject in the form of RFC 4514: `CN=ann,O=Example`.
    Subject,
    /// Each alternative name in order: `DNS=…`, `URI=…`, `IP=…`, `EMAIL=…`.
    AlternativeName,
}

/// Error of a certificate without an identity. The text is Cassandra's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// No alternative name is a SPIFFE id.
    #[error("Unable to extract Spiffe from the certificate")]
    NoSpiffe,
    /// No pattern matches.
    #[error("Unable to extract client identity from certificate for authentication")]
    NoMatch,
}

impl IdentityRule {
    /// Returns the rule of a validator class of Cassandra, with or without its package; `None` for
    /// an unknown class.
    pub fn of_validator(class_name: &str) -> Option<IdentityRule> {
        let name = class_name.strip_prefix("org.apache.cassandra.auth.").unwrap_or(class_name);
        (name == "SpiffeCertificateValidator").then_some(IdentityRule::Spiffe)
    }

    /// Returns the identity that a certificate names; never empty.
    ///
    /// # Errors
    /// The certificate names none.
    pub fn identity(&self, certificate: &PeerCertificate) -> Result<String, IdentityError> {
        match self {
            IdentityRule::Spiffe => {
                certificate.spiffe_id().map(str::to_owned).ok_or(IdentityError::NoSpiffe)
            }
            IdentityRule::Queries(queries) => queries
                .iter()
                .find_map(|query| query.identity(certificate))
                .ok_or(IdentityError::NoMatch),
        }
    }
}

impl IdentityQuery {
    /// Compiles a pattern. It captures the identity in its only group.
    ///
    /// # Errors
    /// The problem of the pattern, as the end of a sentence.
    pub fn new(source: IdentitySource, pattern: &str) -> Result<IdentityQuery, String> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!("is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        let pattern = RegexBuilder::new(pattern)
            .size_limit(COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| format!("is no regular expression ({error})"))?;
        match pattern.captures_len() - 1 {
            1 => Ok(IdentityQuery { source, pattern }),
            groups => Err(format!("has {groups} groups, but exactly one must capture the role")),
        }
    }

    fn identity(&self, certificate: &PeerCertificate) -> Option<String> {
        let captured = |text: &str| {
            let found = self.pattern.captures(text)?.get(1)?.as_str().to_owned();
            (!found.is_empty()).then_some(found)
        };
        match self.source {
            IdentitySource::Subject => {
                captured(&certificate.subject_rfc4514).map(|c| unescaped(&c))
            }
            IdentitySource::AlternativeName => {
                certificate.alternative_names.iter().find_map(|name| captured(name))
            }
        }
    }
}

/// Appends an attribute value in the form of RFC 4514, with every separator as a hexadecimal pair.
pub(crate) fn push_escaped(value: &str, out: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let is_edge = at == 0 || at == last;
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' | '\0' => push_pair(c, out),
            ' ' if is_edge => push_pair(c, out),
            '#' if at == 0 => push_pair(c, out),
            _ => out.push(c),
        }
    }
}

fn push_pair(c: char, out: &mut String) {
    out.push_str(&format!("\\{:02X}", u32::from(c)));
}

/// Inverse of [`push_escaped`]; a cut pair stays as it is.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let pair = after.get(..2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match pair {
            Some(byte) => {
                out.push(char::from(byte));
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(subject: &[(&str, &str)], names: &[&str]) -> PeerCertificate {
        let mut text = String::new();
        for (name, value) in subject {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&format!("{name}="));
            push_escaped(value, &mut text);
        }
        let uris = names.iter().filter_map(|name| name.strip_prefix("URI="));
        PeerCertificate {
            subject_rfc4514: text,
            uris: uris.map(str::to_owned).collect(),
            alternative_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..PeerCertificate::default()
        }
    }

    fn rule(queries: &[(IdentitySource, &str)]) -> IdentityRule {
        let query = |(source, pattern): &(_, &str)| IdentityQuery::new(*source, pattern).unwrap();
        IdentityRule::Queries(queries.iter().map(query).collect())
    }

    use IdentitySource::{AlternativeName, Subject};

    #[test]
    fn the_first_spiffe_uri_is_the_identity() {
        let names = ["DNS=a", "URI=https://x", "URI=spiffe://one", "URI=spiffe://two"];
        let found = IdentityRule::Spiffe.identity(&certificate(&[("CN", "ann")], &names));
        assert_eq!(found.as_deref(), Ok("spiffe://one"));
        // The nearest refused ones: the prefix inside, another case, another kind of name.
        for name in ["URI=xspiffe://one", "URI=SPIFFE://one", "DNS=spiffe://one"] {
            let found = IdentityRule::Spiffe.identity(&certificate(&[], &[name]));
            assert_eq!(
                found.unwrap_err().to_string(),
                "Unable to extract Spiffe from the certificate"
            );
        }
    }

    #[test]
    fn validators_are_known_with_and_without_their_package() {
        for name in
            ["SpiffeCertificateValidator", "org.apache.cassandra.auth.SpiffeCertificateValidator"]
        {
            assert!(matches!(IdentityRule::of_validator(name), Some(IdentityRule::Spiffe)));
        }
        for name in ["", "com.example.SpiffeCertificateValidator", "Spiffe"] {
            assert!(IdentityRule::of_validator(name).is_none(), "{name}");
        }
    }

    #[test]
    fn the_first_pattern_that_matches_captures_the_role() {
        let rule = rule(&[(AlternativeName, "^URI=role:(.+)$"), (Subject, r"CN=([^,\s]+)")]);
        let of = |subject: &[(&str, &str)], names: &[&str]| {
            rule.identity(&certificate(subject, names)).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[("CN", "ann"), ("O", "x")], &["DNS=y"]), Ok("ann".to_owned()));
        assert_eq!(of(&[("CN", "ann")], &["DNS=y", "URI=role:bob"]), Ok("bob".to_owned()));
        let none = "Unable to extract client identity from certificate for authentication";
        assert_eq!(of(&[("O", "x")], &["DNS=y"]), Err(none.to_owned()));
        assert_eq!(of(&[("CN", "")], &[]), Err(none.to_owned()));
    }

    /// INV-tls-4.
    #[test]
    fn a_value_cannot_imitate_another_attribute() {
        let rule = rule(&[(Subject, r"CN=([^,\s]+)")]);
        let of = |subject: &[(&str, &str)]| rule.identity(&certificate(subject, &[])).ok();
        // An authority that checks only the common name signs any organization.
        assert_eq!(of(&[("O", "x,CN=admin"), ("CN", "eve")]).as_deref(), Some("eve"));
        assert_eq!(of(&[("O", "CN=admin+CN=root")]), None);
        // Escaped characters are unescaped in the role.
        assert_eq!(of(&[("CN", r#"a=b\c,d"e"#)]).as_deref(), Some(r#"a=b\c,d"e"#));
        // An alternative name is not continued by the next one.
        let names = self::rule(&[(AlternativeName, "^URI=(.+)$")]);
        let found = names.identity(&certificate(&[], &["DNS=a,URI=admin", "URI=eve"]));
        assert_eq!(found.as_deref(), Ok("eve"));
    }

    #[test]
    fn patterns_that_cannot_work_are_refused() {
        let error = |pattern: &str| IdentityQuery::new(Subject, pattern).unwrap_err();
        assert_eq!(error("CN=x"), "has 0 groups, but exactly one must capture the role");
        assert_eq!(error("(a)(b)"), "has 2 groups, but exactly one must capture the role");
        assert!(IdentityQuery::new(Subject, "(?:a)(b)").is_ok());
        assert!(error("CN=(").starts_with("is no regular expression ("));
        assert!(error("(x{1000}{1000})").starts_with("is no regular expression ("));
        assert!(error(&format!("({})", "x".repeat(4095))).starts_with("is longer than"));
        assert!(IdentityQuery::new(Subject, &format!("({})", "x".repeat(4094))).is_ok());
    }

    #[test]
    fn escaping_is_undone_for_every_text() {
        for text in ["", " ", "#", " a ", "#a#", "a,b+c\"d\\e<f>g;h=i", "\0", "ä,ö", r"\2C"] {
            let mut escaped = String::new();
            push_escaped(text, &mut escaped);
            assert!(!escaped.contains([',', '=', '+']), "{escaped}");
            assert_eq!(unescaped(&escaped), text);
        }
        assert_eq!(unescaped(r"a\2"), r"a\2");
        assert_eq!(unescaped(r"a\"), r"a\");
    }
}
