//! Protocol versions and cipher suites: Java's names, GnuTLS's priority strings.
//!
//! Java and GnuTLS know suites that rustls does not implement (CBC, RSA key exchange, TLS 1.0). They are dropped and
//! listed in [`Offer::left_out`], as long as another one remains. Names that neither knows are rejected.

use rustls::crypto::ring::ALL_CIPHER_SUITES;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

use crate::error::{Problem, TlsError};

/// Protocol versions that Java knows and rustls does not implement.
const OLD_PROTOCOLS: [&str; 5] = ["SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.0", "TLSv1.1"];
/// Algorithms and versions of GnuTLS that are not offered; removing one has no effect.
const GNUTLS_ABSENT: &[&str] = &[
    "3DES-CBC",
    "AES-128-CBC",
    "AES-256-CBC",
    "AES-128-CCM",
    "AES-256-CCM",
    "AES-128-CCM-8",
    "AES-256-CCM-8",
    "ARCFOUR-128",
    "ARCFOUR-40",
    "CAMELLIA-128-CBC",
    "CAMELLIA-256-CBC",
    "CAMELLIA-128-GCM",
    "CAMELLIA-256-GCM",
    "NULL",
    "CIPHER-NULL",
    "MD5",
    "SHA1",
    "RSA",
    "DHE-RSA",
    "DHE-DSS",
    "DHE-PSK",
    "ANON-DH",
    "ANON-ECDH",
    "PSK",
    "ECDHE-PSK",
    "RSA-PSK",
    "VERS-SSL3.0",
    "VERS-TLS1.0",
    "VERS-TLS1.1",
    "VERS-DTLS1.0",
    "VERS-DTLS1.2",
    "VERS-DTLS-ALL",
    "COMP-DEFLATE",
    "COMP-ALL",
    "SIGN-RSA-SHA1",
    "SIGN-ECDSA-SHA1",
    "SIGN-RSA-MD5",
    "SIGN-DSA-SHA1",
    "GROUP-FFDHE2048",
    "GROUP-FFDHE3072",
    "GROUP-FFDHE4096",
];

/// Versions and suites that a server or a client offers.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Never empty.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// Suites in order of preference; at least one fits an offered version.
    pub suites: Vec<SupportedCipherSuite>,
    /// True if the server's order of preference wins over the client's.
    pub prefers_own_order: bool,
    /// True if the settings disable session tickets.
    pub without_tickets: bool,
    /// Requested names that are not implemented.
    pub left_out: Vec<String>,
}

/// Settings that select versions and suites.
#[derive(Clone, Debug, Default)]
pub struct OfferSettings {
    /// Heads the names of settings in errors: `client_encryption_options`.
    pub section: &'static str,
    /// `protocol`; unset and `TLS`: all.
    pub protocol: Option<String>,
    /// `accepted_protocols`; empty: by `protocol`.
    pub accepted_protocols: Vec<String>,
    /// `cipher_suites` by Java's names; empty: all.
    pub cipher_suites: Vec<String>,
    /// `priority_string` of GnuTLS; the three settings above limit it further.
    pub priority_string: Option<String>,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer {
            versions: vec![&TLS13, &TLS12],
            suites: ALL_CIPHER_SUITES.to_vec(),
            prefers_own_order: false,
            without_tickets: false,
            left_out: Vec::new(),
        }
    }
}

impl Offer {
    /// Builds the offer that the settings select.
    ///
    /// # Errors
    /// A name is unknown, or no version or suite remains.
    pub fn new(settings: &OfferSettings) -> Result<Offer, TlsError> {
        let place = |key: &str| format!("\"{}.{key}\"", settings.section);
        let mut offer = Offer::default();
        if let Some(text) = &settings.priority_string {
            offer.apply_priorities(text).map_err(|p| p.at(place("priority_string")))?;
        }
        let single = settings.protocol.iter().filter(|p| !p.eq_ignore_ascii_case("TLS"));
        let (key, wanted): (_, Vec<&String>) = match settings.accepted_protocols.is_empty() {
            true => ("protocol", single.collect()),
            false => ("accepted_protocols", settings.accepted_protocols.iter().collect()),
        };
        if !wanted.is_empty() {
            offer.limit_versions(&wanted).map_err(|p| p.at(place(key)))?;
        }
        if !settings.cipher_suites.is_empty() {
            let limited = offer.limit_suites(&settings.cipher_suites);
            limited.map_err(|p| p.at(place("cipher_suites")))?;
        }
        let is_usable = |suite: &SupportedCipherSuite| offer.versions.contains(&suite.version());
        if !offer.suites.iter().any(is_usable) {
            let problem = "no cipher suite is left for the accepted protocols";
            let remedy = format!("name one of {}", names(offer.versions.iter().copied()));
            return Err(Problem::new(problem, remedy).at(format!("\"{}\"", settings.section)));
        }
        Ok(offer)
    }

    fn limit_versions(&mut self, wanted: &[&String]) -> Result<(), Problem> {
        let mut versions = Vec::new();
        for name in wanted {
            match name.as_str() {
                "TLSv1.3" => versions.push(&TLS13),
                "TLSv1.2" => versions.push(&TLS12),
                old if OLD_PROTOCOLS.contains(&old) => self.left_out.push(old.to_owned()),
                other => {
                    let problem = format!("\"{other}\" is not a protocol");
                    return Err(Problem::new(problem, "use TLSv1.3 and TLSv1.2"));
                }
            }
        }
        self.versions.retain(|version| versions.contains(version));
        if self.versions.is_empty() {
            let problem = format!("{} is not supported", self.left_out.join(", "));
            return Err(Problem::new(problem, "use TLSv1.3 and TLSv1.2"));
        }
        Ok(())
    }

    fn limit_suites(&mut self, wanted: &[String]) -> Result<(), Problem> {
        let mut suites = Vec::new();
        for name in wanted {
            match self.suites.iter().find(|suite| suite_name(suite.suite()) == Some(name)) {
                Some(suite) => suites.push(*suite),
                None if is_suite_of_java(name) => self.left_out.push(name.clone()),
                None => {
                    let problem = format!("\"{name}\" is not a cipher suite");
                    let remedy = format!("name some of {}", names(self.versions.iter().copied()));
                    return Err(Problem::new(problem, remedy));
                }
            }
        }
        self.suites = suites;
        if self.suites.is_empty() {
            let problem = format!("none is supported of {}", self.left_out.join(", "));
            let remedy = format!("name some of {}", names(self.versions.iter().copied()));
            return Err(Problem::new(problem, remedy));
        }
        Ok(())
    }

    fn apply_priorities(&mut self, text: &str) -> Result<(), Problem> {
        let mut words = text.split(':').map(str::trim);
        match words.next().unwrap_or_default() {
            "NORMAL" | "SECURE128" | "SECURE" | "PERFORMANCE" | "PFS" => {}
            "SECURE192" | "SECURE256" => self.suites.retain(|suite| bits(*suite) >= 256),
            other => {
                let problem = format!("does not begin with a known keyword (\"{other}\")");
                return Err(Problem::new(
                    problem,
                    "begin with NORMAL, SECURE128, SECURE192, SECURE256, PERFORMANCE or PFS",
                ));
            }
        }
        for word in words {
            self.apply_priority(word).ok_or_else(|| {
                Problem::new(
                    format!("\"{word}\" is not supported"),
                    "add or remove VERS-TLS1.2, VERS-TLS1.3, VERS-ALL, AES-128-GCM, AES-256-GCM, \
                     CHACHA20-POLY1305, or use cipher_suites and accepted_protocols",
                )
            })?;
        }
        if self.versions.is_empty() {
            return Err(Problem::new("leaves no protocol", "keep VERS-TLS1.2 or VERS-TLS1.3"));
        }
        self.versions.sort_by_key(|version| core::cmp::Reverse(u16::from(version.version)));
        Ok(())
    }

    /// Applies one word after the first; `None` if it requests an unimplemented algorithm.
    fn apply_priority(&mut self, word: &str) -> Option<()> {
        match word {
            "%SERVER_PRECEDENCE" => {
                self.prefers_own_order = true;
                return Some(());
            }
            "%NO_TICKETS" => {
                self.without_tickets = true;
                return Some(());
            }
            // Renegotiation is not implemented, so it is safe.
            "%SAFE_RENEGOTIATION" | "%PARTIAL_RENEGOTIATION" => return Some(()),
            _ => {}
        }
        let (is_added, name) = match (word.strip_prefix('+'), word.strip_prefix(['-', '!'])) {
            (Some(name), _) => (true, name),
            (None, Some(name)) => (false, name),
            (None, None) => return None,
        };
        let versions: &[&'static SupportedProtocolVersion] = match name {
            "VERS-TLS1.3" => &[&TLS13],
            "VERS-TLS1.2" => &[&TLS12],
            "VERS-ALL" | "VERS-TLS-ALL" => &[&TLS13, &TLS12],
            _ => &[],
        };
        if !versions.is_empty() {
            self.versions.retain(|version| !versions.contains(version));
            if is_added {
                self.versions.extend(versions);
            }
            return Some(());
        }
        let part = match name {
            "AES-128-GCM" => "AES_128_GCM",
            "AES-256-GCM" => "AES_256_GCM",
            "CHACHA20-POLY1305" => "CHACHA20_POLY1305",
            absent => return (!is_added && GNUTLS_ABSENT.contains(&absent)).then_some(()),
        };
        let is_named = |suite: &SupportedCipherSuite| {
            suite_name(suite.suite()).is_some_and(|name| name.contains(part))
        };
        self.suites.retain(|suite| !is_named(suite));
        if is_added {
            self.suites.extend(ALL_CIPHER_SUITES.iter().filter(|suite| is_named(suite)));
        }
        Some(())
    }
}

/// Key length of a suite's cipher in bits.
fn bits(suite: SupportedCipherSuite) -> u16 {
    match suite_name(suite.suite()) {
        Some(name) if name.contains("AES_128") => 128,
        _ => 256,
    }
}

fn names(versions: impl Iterator<Item = &'static SupportedProtocolVersion> + Clone) -> String {
    let usable = ALL_CIPHER_SUITES.iter().filter(|s| versions.clone().any(|v| v == s.version()));
    let names: Vec<&str> = usable.filter_map(|suite| suite_name(suite.suite())).collect();
    names.join(", ")
}

/// Returns true if the name has the form of Java's cipher suites.
fn is_suite_of_java(name: &str) -> bool {
    let is_form = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let is_cipher = ["_CBC", "_GCM", "_CCM", "_RC4", "_NULL", "_DES", "POLY1305"];
    let ends = ["_SHA", "_SHA256", "_SHA384", "_MD5", "_NULL", "_8", "_CCM"];
    (name.starts_with("TLS_") || name.starts_with("SSL_"))
        && name.chars().all(is_form)
        && name.contains("_WITH_")
        && is_cipher.iter().any(|part| name.contains(part))
        && ends.iter().any(|end| name.ends_with(end))
        || name == "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
        || name == "TLS_AES_128_CCM_SHA256"
}

/// Returns Java's name of a suite.
pub fn suite_name(suite: CipherSuite) -> Option<&'static str> {
    Some(match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => {
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        }
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => {
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
        }
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => {
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => {
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        }
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
        }
        _ => return None,
    })
}

/// Returns Java's name of a protocol version.
pub fn protocol_name(version: ProtocolVersion) -> Option<&'static str> {
    match version {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> OfferSettings {
        let list = |key: &str| {
            let found = text.split(';').find_map(|part| part.trim().strip_prefix(key));
            found.map(|list| list.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>())
        };
        OfferSettings {
            section: "client_encryption_options",
            protocol: list("protocol ").map(|names| names[0].clone()),
            accepted_protocols: list("accepted ").unwrap_or_default(),
            cipher_suites: list("suites ").unwrap_or_default(),
            priority_string: list("priority ").map(|names| names[0].clone()),
        }
    }

    /// The offer of the settings on one line, or the error.
    fn offered(text: &str) -> String {
        match Offer::new(&settings(text)) {
            Err(error) => error.to_string(),
            Ok(offer) => {
                let versions = offer.versions.iter().filter_map(|v| protocol_name(v.version));
                let left_out = offer.left_out.join(" ");
                format!(
                    "{} with {} suites without {left_out}",
                    versions.collect::<Vec<_>>().join(" "),
                    offer.suites.len()
                )
            }
        }
    }

    #[test]
    fn every_suite_has_the_name_of_java() {
        for suite in ALL_CIPHER_SUITES {
            let debug = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
            assert_eq!(suite_name(suite.suite()), Some(debug.as_str()));
        }
    }

    #[test]
    fn protocols_and_suites_are_limited_by_javas_names() {
        let suites = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_128_CBC_SHA";
        for (text, expected) in [
            ("", "TLSv1.3 TLSv1.2 with 9 suites without "),
            ("protocol TLS", "TLSv1.3 TLSv1.2 with 9 suites without "),
            ("protocol TLSv1.2", "TLSv1.2 with 9 suites without "),
            ("accepted TLSv1.1, TLSv1.2", "TLSv1.2 with 9 suites without TLSv1.1"),
            ("accepted TLSv1.2, TLSv1.3", "TLSv1.3 TLSv1.2 with 9 suites without "),
            (
                &format!("suites {suites}"),
                "TLSv1.3 TLSv1.2 with 1 suites without TLS_RSA_WITH_AES_128_CBC_SHA",
            ),
        ] {
            assert_eq!(offered(text), expected, "{text}");
        }
    }

    /// INV-tls-3
    #[test]
    fn unknown_names_and_offers_of_nothing_are_refused() {
        for (text, begin) in [
            (
                "accepted TLSv1.1",
                "\"client_encryption_options.accepted_protocols\": TLSv1.1 is not supported; use",
            ),
            (
                "accepted TLSv1.4",
                "\"client_encryption_options.accepted_protocols\": \"TLSv1.4\" is not a protocol; use",
            ),
            (
                "protocol SSL",
                "\"client_encryption_options.protocol\": \"SSL\" is not a protocol; use",
            ),
            (
                "suites TLS_NO_SUCH",
                "\"client_encryption_options.cipher_suites\": \"TLS_NO_SUCH\" is not a cipher suite; name",
            ),
            (
                "suites TLS_RSA_WITH_AES_128_CBC_SHA",
                "\"client_encryption_options.cipher_suites\": none is supported of TLS_RSA",
            ),
            (
                "accepted TLSv1.2; suites TLS_AES_128_GCM_SHA256",
                "\"client_encryption_options\": no cipher suite is left for the accepted protocols; name",
            ),
            (
                "priority EXPORT",
                "\"client_encryption_options.priority_string\": does not begin with a known keyword",
            ),
            (
                "priority NORMAL:+VERS-TLS1.0",
                "\"client_encryption_options.priority_string\": \"+VERS-TLS1.0\" is not supported",
            ),
            (
                "priority NORMAL:-VERS-ALL",
                "\"client_encryption_options.priority_string\": leaves no protocol",
            ),
        ] {
            let found = offered(text);
            assert!(found.starts_with(begin), "{text}: {found}");
        }
    }

    #[test]
    fn priority_strings_of_runbooks_are_read() {
        for (text, expected) in [
            ("SECURE128:-VERS-TLS1.0", "TLSv1.3 TLSv1.2 with 9 suites without "),
            ("SECURE128:-VERS-TLS1.0:-VERS-TLS1.1", "TLSv1.3 TLSv1.2 with 9 suites without "),
            ("NORMAL:-VERS-ALL:+VERS-TLS1.2", "TLSv1.2 with 9 suites without "),
            ("SECURE256:-VERS-TLS1.2:%SERVER_PRECEDENCE", "TLSv1.3 with 6 suites without "),
            ("NORMAL:-AES-128-GCM:-3DES-CBC:%NO_TICKETS", "TLSv1.3 TLSv1.2 with 6 suites without "),
        ] {
            assert_eq!(offered(&format!("priority {text}")), expected, "{text}");
        }
    }
}
