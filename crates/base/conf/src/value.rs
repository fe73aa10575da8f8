//! The types of settings and their grammars.
//!
//! Owns: value grammars (durations `5s`, sizes `64MiB`, rates `64MiB/s`), their ranges and the
//! words that describe them in errors and in the reference. Never: names of settings.
//! Source of the grammars: Cassandra 5.0 DurationSpec, DataStorageSpec, DataRateSpec.

mod words;

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use stdx::Token;

use crate::yaml::{Node, NodeKind};

pub use words::{
    ApiLogin, Authenticator, Authorizer, CertificateValidator, CidrAuthorizer, CidrMode,
    CommitFailurePolicy, CommitLogSync, DiskFailurePolicy, FlushCompression, InternodeCompression,
    LogFormat, LogLevel, NetworkAuthorizer, Partitioner, Snitch, SstableFormat, SstableVersion,
    StorageCompatibilityMode,
};

/// A size in bytes, written `64MiB`, `4KiB`, `1GiB` or `100B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSize(pub u64);

/// A rate in bytes per second, written `64MiB/s`, `512KiB/s` or `100B/s`; 0 is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataRate(pub u64);

/// A memory budget in bytes, written `4G`, `512M` (powers of 1024, as ScyllaDB) or `4GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemorySize(pub u64);

/// An address to listen on or to announce.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A literal address; `localhost` is read as 127.0.0.1.
    Ip(IpAddr),
    /// A host name, to be resolved by code with access to the network.
    Name(String),
}

impl Address {
    /// Returns true for 0.0.0.0 and `::`.
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Address::Ip(ip) if ip.is_unspecified())
    }

    /// Returns true for a literal loopback address. A host name may mean another one.
    pub fn is_loopback(&self) -> bool {
        matches!(self, Address::Ip(ip) if ip.to_canonical().is_loopback())
    }

    /// Returns the literal address, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Ip(ip) => Some(*ip),
            Address::Name(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(ip) => write!(f, "{ip}"),
            Address::Name(name) => f.write_str(name),
        }
    }
}

/// A number that may have a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

/// Smallest and largest value, both allowed. Milliseconds for durations, bytes for sizes and
/// rates, the number itself for numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Smallest allowed value.
    pub min: i64,
    /// Largest allowed value.
    pub max: i64,
}

impl Range {
    /// The range without bounds.
    pub const ALL: Range = Range { min: i64::MIN, max: i64::MAX };

    fn holds(self, value: i128) -> bool {
        value >= i128::from(self.min) && value <= i128::from(self.max)
    }
}

/// Reason why a value was rejected; the caller knows the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The value does not have the form.
    Form,
    /// The form is right, the value is outside the range.
    Range,
}

/// A type of settings.
pub trait Value: Sized {
    /// Reads the value; `node` is never null.
    ///
    /// # Errors
    /// See [`Refusal`].
    fn read(node: &Node, range: Range) -> Result<Self, Refusal>;
    /// Describes the expected form, to follow "expects": `a duration such as 5s or 500ms`.
    fn form() -> String;
    /// Returns the value as written in a file.
    fn render(&self) -> String;
    /// Returns a bound of a range as written in a file.
    fn render_bound(bound: i64) -> String {
        bound.to_string()
    }
}

fn scalar(node: &Node) -> Result<&str, Refusal> {
    node.text().map(str::trim).ok_or(Refusal::Form)
}

impl Value for String {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let text = scalar(node)?;
        if text.is_empty() { Err(Refusal::Form) } else { Ok(text.to_owned()) }
    }
    fn form() -> String {
        "a text".into()
    }
    fn render(&self) -> String {
        self.clone()
    }
}

impl Value for bool {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        // YAML 1.1, which Cassandra's reader follows, also calls yes/no and on/off booleans.
        match scalar(node)?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err(Refusal::Form),
        }
    }
    fn form() -> String {
        "true or false".into()
    }
    fn render(&self) -> String {
        self.to_string()
    }
}

macro_rules! whole_number {
    ($($ty:ty),+) => {$(
        impl Value for $ty {
            fn read(node: &Node, range: Range) -> Result<Self, Refusal> {
                let digits = scalar(node)?.replace('_', "");
                let wide: i128 = digits.parse().map_err(|_| Refusal::Form)?;
                if !range.holds(wide) {
                    return Err(Refusal::Range);
                }
                <$ty>::try_from(wide).map_err(|_| Refusal::Range)
            }
            fn form() -> String {
                "a whole number".into()
            }
            fn render(&self) -> String {
                self.to_string()
            }
        }
    )+};
}
whole_number!(u16, u32, u64, i64);

impl Value for Number {
    fn read(node: &Node, range: Range) -> Result<Self, Refusal> {
        let value: f64 = scalar(node)?.parse().map_err(|_| Refusal::Form)?;
        let inside = (range.min as f64..=range.max as f64).contains(&value);
        if inside { Ok(Number(value)) } else { Err(Refusal::Range) }
    }
    fn form() -> String {
        "a number".into()
    }
    fn render(&self) -> String {
        format!("{:?}", self.0)
    }
}

impl Value for Duration {
    fn read(node: &Node, range: Range) -> Result<Self, Refusal> {
        let duration = parse_duration(scalar(node)?).ok_or(Refusal::Form)?;
        // A range of at least one millisecond rejects 1us: it would be rounded to nothing.
        let inside = range.holds(i128::try_from(duration.as_millis()).unwrap_or(i128::MAX));
        if inside { Ok(duration) } else { Err(Refusal::Range) }
    }
    fn form() -> String {
        "a duration such as 5s or 500ms".into()
    }
    fn render(&self) -> String {
        render_duration(*self)
    }
    fn render_bound(bound: i64) -> String {
        render_duration(Duration::from_millis(bound.max(0).unsigned_abs()))
    }
}

impl Value for DataSize {
    fn read(node: &Node, range: Range) -> Result<Self, Refusal> {
        let bytes = parse_size(scalar(node)?).ok_or(Refusal::Form)?;
        if range.holds(i128::from(bytes)) { Ok(DataSize(bytes)) } else { Err(Refusal::Range) }
    }
    fn form() -> String {
        "a size such as 64MiB or 4KiB".into()
    }
    fn render(&self) -> String {
        render_size(self.0)
    }
    fn render_bound(bound: i64) -> String {
        render_size(bound.max(0).unsigned_abs())
    }
}

impl Value for MemorySize {
    fn read(node: &Node, range: Range) -> Result<Self, Refusal> {
        let bytes = parse_memory(scalar(node)?).ok_or(Refusal::Form)?;
        if range.holds(i128::from(bytes)) { Ok(MemorySize(bytes)) } else { Err(Refusal::Range) }
    }
    fn form() -> String {
        "a memory size such as 4G or 512M".into()
    }
    fn render(&self) -> String {
        render_size(self.0)
    }
    fn render_bound(bound: i64) -> String {
        render_size(bound.max(0).unsigned_abs())
    }
}

impl Value for DataRate {
    fn read(node: &Node, range: Range) -> Result<Self, Refusal> {
        let bytes = parse_rate(scalar(node)?).ok_or(Refusal::Form)?;
        if range.holds(i128::from(bytes)) { Ok(DataRate(bytes)) } else { Err(Refusal::Range) }
    }
    fn form() -> String {
        "a rate such as 64MiB/s".into()
    }
    fn render(&self) -> String {
        format!("{}/s", render_size(self.0))
    }
    fn render_bound(bound: i64) -> String {
        format!("{}/s", render_size(bound.max(0).unsigned_abs()))
    }
}

impl Value for Address {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        let text = scalar(node)?;
        if let Ok(ip) = text.parse() {
            return Ok(Address::Ip(ip));
        }
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(Address::Ip(IpAddr::from([127, 0, 0, 1])));
        }
        let label = |part: &str| {
            !part.is_empty()
                && part.len() <= 63
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        // Only digits and dots: a mistyped address, not a name.
        let numeric = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if text.len() <= 253 && !numeric && text.trim_end_matches('.').split('.').all(label) {
            Ok(Address::Name(text.to_owned()))
        } else {
            Err(Refusal::Form)
        }
    }
    fn form() -> String {
        "an IP address or a host name".into()
    }
    fn render(&self) -> String {
        self.to_string()
    }
}

impl<T: Value> Value for Option<T> {
    fn read(node: &Node, range: Range) -> Result<Self, Refusal> {
        T::read(node, range).map(Some)
    }
    fn form() -> String {
        T::form()
    }
    fn render(&self) -> String {
        self.as_ref().map(T::render).unwrap_or_default()
    }
    fn render_bound(bound: i64) -> String {
        T::render_bound(bound)
    }
}

fn list(node: &Node) -> Result<Vec<String>, Refusal> {
    match &node.kind {
        NodeKind::Null => Ok(Vec::new()),
        NodeKind::Scalar(text) => Ok(text
            .split(',')
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
            .collect()),
        NodeKind::List(items) => items.iter().map(|i| scalar(i).map(str::to_owned)).collect(),
        NodeKind::Map(_) => Err(Refusal::Form),
    }
}

impl Value for Vec<String> {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        list(node)
    }
    fn form() -> String {
        "a list".into()
    }
    fn render(&self) -> String {
        self.join(", ")
    }
}

impl Value for Vec<Token> {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        list(node)?.iter().map(|t| t.parse().map(Token).map_err(|_| Refusal::Form)).collect()
    }
    fn form() -> String {
        "tokens separated by commas".into()
    }
    fn render(&self) -> String {
        let tokens: Vec<String> = self.iter().map(|t| t.0.to_string()).collect();
        tokens.join(", ")
    }
}

impl Value for Vec<IpAddr> {
    fn read(node: &Node, _: Range) -> Result<Self, Refusal> {
        list(node)?.iter().map(|a| a.parse().map_err(|_| Refusal::Form)).collect()
    }
    fn form() -> String {
        "IP addresses separated by commas".into()
    }
    fn render(&self) -> String {
        let addresses: Vec<String> = self.iter().map(IpAddr::to_string).collect();
        addresses.join(", ")
    }
}

/// Returns the class of a plug-in setting: `Name`, `package.Name` or `{class_name: Name, …}`.
pub fn class_name(node: &Node) -> Option<&str> {
    let text = match &node.kind {
        NodeKind::Map(_) => node.get("class_name")?.text()?,
        NodeKind::List(items) => items.first()?.get("class_name")?.text()?,
        NodeKind::Scalar(text) => text.as_str(),
        NodeKind::Null => return None,
    };
    text.trim().rsplit('.').next()
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, unit))
}

/// Reads `10ms`, `3h`, `2d`, `500us`, `7ns`, `1m`; units keep their case.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (quantity, unit) = split_unit(text)?;
    let seconds = |factor: u64| quantity.checked_mul(factor).map(Duration::from_secs);
    match unit {
        "d" => seconds(86_400),
        "h" => seconds(3_600),
        "m" => seconds(60),
        "s" => seconds(1),
        "ms" => Some(Duration::from_millis(quantity)),
        "us" | "µs" => Some(Duration::from_micros(quantity)),
        "ns" => Some(Duration::from_nanos(quantity)),
        _ => None,
    }
}

/// Reads `64MiB`, `4KiB`, `1GiB`, `100B`; units keep their case.
pub fn parse_size(text: &str) -> Option<u64> {
    let (quantity, unit) = split_unit(text)?;
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    quantity.checked_mul(1_u64 << shift)
}

/// Reads `64MiB/s`, `512KiB/s`, `100B/s`.
pub fn parse_rate(text: &str) -> Option<u64> {
    let size = text.strip_suffix("/s")?;
    if size.ends_with("GiB") { None } else { parse_size(size) }
}

fn parse_memory(text: &str) -> Option<u64> {
    if let Some(bytes) = parse_size(text) {
        return Some(bytes);
    }
    let (quantity, unit) = split_unit(text)?;
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return None,
    };
    quantity.checked_mul(1_u64 << shift)
}

/// Writes a duration in its largest whole unit.
pub fn render_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    for (unit, size) in [
        ("d", 86_400_000_000_000_u128),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ] {
        if nanos >= size && nanos.is_multiple_of(size) {
            return format!("{}{unit}", nanos / size);
        }
    }
    if nanos == 0 { "0ms".into() } else { format!("{nanos}ns") }
}

/// Writes a size in its largest whole unit.
pub fn render_size(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30_u32), ("MiB", 20), ("KiB", 10)] {
        let size = 1_u64 << shift;
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit_and_in_no_other_form() {
        for (text, nanos) in [
            ("0ms", Some(0)),
            ("10ms", Some(10_000_000)),
            ("3h", Some(10_800_000_000_000)),
            ("2d", Some(172_800_000_000_000)),
            ("500us", Some(500_000)),
            ("500µs", Some(500_000)),
            ("7ns", Some(7)),
            ("1m", Some(60_000_000_000)),
            ("5000", None),
            ("-1s", None),
            ("5 s", None),
            ("5S", None),
            ("s", None),
            ("", None),
            ("18446744073709551615d", None),
            ("99999999999999999999s", None),
        ] {
            assert_eq!(parse_duration(text).map(|d| d.as_nanos()), nanos, "{text}");
        }
    }

    #[test]
    fn sizes_and_rates_are_read_in_binary_units_only() {
        for (text, bytes) in [
            ("64MiB", Some(64 << 20)),
            ("4KiB", Some(4096)),
            ("1GiB", Some(1 << 30)),
            ("100B", Some(100)),
            ("64MB", None),
            ("64", None),
            ("64mib", None),
            ("17179869184GiB", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
        assert_eq!(parse_rate("64MiB/s"), Some(64 << 20));
        assert_eq!(parse_rate("1GiB/s"), None);
        assert_eq!(parse_rate("64MiB"), None);
    }

    #[test]
    fn memory_is_read_as_scylla_and_as_cassandra_write_it() {
        for (text, bytes) in [
            ("1G", Some(1 << 30)),
            ("512M", Some(512 << 20)),
            ("2GiB", Some(2 << 30)),
            ("1X", None),
        ] {
            assert_eq!(parse_memory(text), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_rendered_is_read_back() {
        for text in ["5s", "10ms", "1d", "90m", "500us", "0ms", "7ns"] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(parse_duration(&render_duration(duration)), Some(duration), "{text}");
        }
        for bytes in [0, 1, 1023, 1024, 5 << 20, (5 << 20) + 1, 3 << 30] {
            assert_eq!(parse_size(&render_size(bytes)), Some(bytes));
        }
    }

    #[test]
    fn addresses_are_literals_localhost_or_names() {
        let read = |text: &str| Address::read(&Node::scalar(text), Range::ALL);
        assert_eq!(read("localhost").unwrap().to_string(), "127.0.0.1");
        assert_eq!(read("::1").unwrap().to_string(), "::1");
        assert_eq!(read("db-1.example.org"), Ok(Address::Name("db-1.example.org".into())));
        assert!(read("0.0.0.0").unwrap().is_wildcard());
        assert_eq!(read("1.2.3"), Err(Refusal::Form));
        assert_eq!(read("a b"), Err(Refusal::Form));
    }

    #[test]
    fn classes_are_read_in_all_three_spellings() {
        for yaml in [
            "PasswordAuthenticator",
            "org.apache.cassandra.auth.PasswordAuthenticator",
            "{class_name: PasswordAuthenticator, parameters: {a: b}}",
        ] {
            let node = crate::yaml::parse(yaml).unwrap();
            assert_eq!(Authenticator::read(&node, Range::ALL), Ok(Authenticator::Password));
        }
    }
}
