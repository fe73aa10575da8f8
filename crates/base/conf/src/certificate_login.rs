//! Logins of clients by certificate: which part of a certificate names the role, and which settings of encryption an
//! authenticator needs.
//!
//! Owns: forms and rules of the settings. Never: certificates, regular expressions.
//! Source: Cassandra 5.0 `MutualTlsAuthenticator`, `MutualTlsWithPasswordFallbackAuthenticator`; ScyllaDB's
//! documentation of `auth_certificate_role_queries`.

use crate::encryption::CertificatesOfClients;
use crate::options::Options;
use crate::value::{Authenticator, Range, Refusal, Value};
use crate::yaml::{self, Node, NodeKind};

/// Part of a certificate that a pattern is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleQuerySource {
    /// The subject (`SUBJECT`).
    Subject,
    /// Each alternative name (`ALTNAME`).
    AlternativeName,
}

/// One entry of `auth_certificate_role_queries`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleQuery {
    /// `source`.
    pub source: RoleQuerySource,
    /// `query`: a regular expression whose group captures the role.
    pub query: String,
}

/// `auth_certificate_role_queries`: patterns, the first match wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleQueries(pub Vec<RoleQuery>);

impl Value for RoleQueries {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let parsed;
        let entries = match &node.kind {
            NodeKind::List(entries) => entries,
            // The form in which it is rendered.
            NodeKind::Scalar(text) if text.trim_start().starts_with('[') => {
                parsed = yaml::parse(text).map_err(|_| Refusal::Form)?;
                let NodeKind::List(entries) = &parsed.kind else { return Err(Refusal::Form) };
                entries
            }
            _ => return Err(Refusal::Form),
        };
        entries.iter().map(role_query).collect::<Result<_, _>>().map(RoleQueries)
    }
    fn form() -> String {
        "a list of source (SUBJECT or ALTNAME) and query (a regular expression)".into()
    }
    fn render(&self) -> String {
        let entries = self.0.iter().map(|entry| {
            let source = match entry.source {
                RoleQuerySource::Subject => "SUBJECT",
                RoleQuerySource::AlternativeName => "ALTNAME",
            };
            format!("{{source: {source}, query: '{}'}}", entry.query.replace('\'', "''"))
        });
        format!("[{}]", entries.collect::<Vec<_>>().join(", "))
    }
}

fn role_query(node: &Node) -> Result<RoleQuery, Refusal> {
    let NodeKind::Map(entries) = &node.kind else { return Err(Refusal::Form) };
    if entries.iter().any(|entry| !matches!(entry.key.as_str(), "source" | "query")) {
        return Err(Refusal::Form);
    }
    let text = |key| node.get(key).and_then(Node::text).ok_or(Refusal::Form);
    let source = match text("source")? {
        source if source.eq_ignore_ascii_case("SUBJECT") => RoleQuerySource::Subject,
        source if source.eq_ignore_ascii_case("ALTNAME") => RoleQuerySource::AlternativeName,
        _ => return Err(Refusal::Form),
    };
    let query = text("query")?.to_owned();
    if query.is_empty() { Err(Refusal::Form) } else { Ok(RoleQuery { source, query }) }
}

impl Authenticator {
    /// Returns true if roles have passwords with which clients log in.
    pub fn has_passwords(self) -> bool {
        matches!(self, Authenticator::Password | Authenticator::MutualTlsOrPassword)
    }

    /// Returns true if clients must log in.
    pub fn requires_login(self) -> bool {
        self != Authenticator::AllowAll
    }
}

/// Returns the settings that the authenticator cannot work with, each with the problem. The texts
/// of Cassandra's authenticators are Cassandra's.
pub(crate) fn check(options: &Options) -> Vec<(&'static str, &'static str)> {
    let clients = &options.client_encryption_options;
    let is_required = clients.require_client_auth == CertificatesOfClients::Required;
    let mut wrong = Vec::new();
    let mut refuse = |is_wrong: bool, name, problem| {
        if is_wrong {
            wrong.push((name, problem));
        }
    };
    let has_validator = options.mutual_tls_validator.is_some();
    let no_validator = "authenticator.parameters.validator_class_name is not set";
    match options.authenticator {
        Authenticator::AllowAll | Authenticator::Password => {}
        Authenticator::MutualTls => {
            refuse(!has_validator, "authenticator", no_validator);
            refuse(
                !clients.enabled || !is_required,
                "authenticator",
                "MutualTlsAuthenticator requires client_encryption_options.enabled to be true & \
                 client_encryption_options.require_client_auth to be true",
            );
        }
        Authenticator::MutualTlsOrPassword => {
            refuse(!has_validator, "authenticator", no_validator);
            refuse(
                clients.require_client_auth == CertificatesOfClients::NotRequired,
                "authenticator",
                "MutualTlsWithPasswordFallbackAuthenticator requires \
                 client_encryption_options.require_client_auth to be optional/true",
            );
        }
        Authenticator::Certificate => {
            refuse(
                options.auth_certificate_role_queries.0.is_empty(),
                "auth_certificate_role_queries",
                "must name at least one query for CertificateAuthenticator",
            );
            refuse(
                !clients.enabled || !is_required,
                "authenticator",
                "CertificateAuthenticator requires client_encryption_options.enabled and \
                 client_encryption_options.require_client_auth to be true",
            );
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<RoleQueries, Refusal> {
        RoleQueries::read(&yaml::parse(yaml).unwrap(), Range::ALL)
    }

    #[test]
    fn role_queries_are_read_in_scyllas_form() {
        let found =
            read("- source: SUBJECT\n  query: CN=([^,\\s]+)\n- source: altname\n  query: 'x''y'\n");
        let queries = found.unwrap();
        let expected = [
            (RoleQuerySource::Subject, r"CN=([^,\s]+)"),
            (RoleQuerySource::AlternativeName, "x'y"),
        ];
        assert!(queries.0.iter().map(|q| (q.source, q.query.as_str())).eq(expected));
        let rendered = Node::scalar(queries.render());
        assert_eq!(RoleQueries::read(&rendered, Range::ALL), Ok(queries));
        assert_eq!(read("[]"), Ok(RoleQueries::default()));
        for wrong in [
            "SUBJECT",
            "[SUBJECT]",
            "[{source: SUBJECT}]",
            "[{query: a}]",
            "[{source: ISSUER, query: a}]",
            "[{source: SUBJECT, query: ''}]",
            "[{source: SUBJECT, query: a, role: b}]",
            "{source: SUBJECT, query: a}",
        ] {
            assert_eq!(read(wrong), Err(Refusal::Form), "{wrong}");
        }
    }
}
