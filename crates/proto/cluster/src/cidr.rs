//! CIDR groups: names for ranges of addresses, from which roles may be kept to connect.
//!
//! Owns: the text and the bytes of a range, the groups of an address. Never: permission to connect
//! (`cql-plan::auth`). Source: Cassandra 5.0's `CIDR`, `CIDRGroupsMappingTable`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use codec::{DecodeError, Reader, Writer};
pub use ipnet::IpNet;
use types::inet::format_inet;

/// Most ranges in one group.
pub const RANGES_MAX: usize = 100_000;

/// Error: the text is not a CIDR range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a valid CIDR String")]
pub struct CidrError(pub String);

/// Parses a range, `10.0.0.0/8` or `2001:db8::/32`, without the bits after its prefix. An IPv4
/// address within IPv6 (`::ffff:10.0.0.0/104`) is the IPv4 range, as in Cassandra.
///
/// # Errors
/// Anything else, a name of a host among it, in Cassandra's words.
pub fn parse(text: &str) -> Result<IpNet, CidrError> {
    let wrong = || CidrError(text.to_owned());
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
    let canonical = address.to_canonical();
    let prefix = match (address, canonical) {
        (IpAddr::V6(_), IpAddr::V4(_)) => prefix.checked_sub(96).ok_or_else(wrong)?,
        _ => prefix,
    };
    Ok(IpNet::new(canonical, prefix).map_err(|_| wrong())?.trunc())
}

/// A range as Java prints it: IPv6 in full, without `::`.
pub fn text(range: &IpNet) -> String {
    format!("{}/{}", address_text(range.addr()), range.prefix_len())
}

/// An address as Java prints it.
pub fn address_text(address: IpAddr) -> String {
    let text = match address {
        IpAddr::V4(address) => format_inet(&address.octets()),
        IpAddr::V6(address) => format_inet(&address.octets()),
    };
    text.unwrap_or_else(|| address.to_string())
}

/// The groups with the narrowest range that `address` is in, in order; none: it is in no range.
pub fn groups_of(groups: &BTreeMap<String, BTreeSet<IpNet>>, address: IpAddr) -> Vec<&str> {
    let address = address.to_canonical();
    let mut narrowest = None;
    let mut found = Vec::new();
    for (name, ranges) in groups {
        let within = ranges.iter().filter(|range| range.contains(&address));
        let Some(prefix) = within.map(IpNet::prefix_len).max() else { continue };
        if narrowest < Some(prefix) {
            narrowest = Some(prefix);
            found.clear();
        }
        if narrowest == Some(prefix) {
            found.push(name.as_str());
        }
    }
    found
}

/// Appends family (u8, 4 or 6) · address · prefix (u8).
pub(crate) fn encode(range: &IpNet, out: &mut Vec<u8>) {
    match range.addr() {
        IpAddr::V4(address) => {
            out.put_u8(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u8(6);
            out.extend_from_slice(&address.octets());
        }
    }
    out.put_u8(range.prefix_len());
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// Another family, a prefix that is too long, bits after the prefix.
pub(crate) fn read(r: &mut Reader<'_>) -> Result<IpNet, DecodeError> {
    let address = match r.u8()? {
        4 => IpAddr::V4(Ipv4Addr::from(r.array()?)),
        6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
        other => return Err(r.invalid(i64::from(other))),
    };
    let prefix = r.u8()?;
    match IpNet::new(address, prefix) {
        Ok(range) if range == range.trunc() => Ok(range),
        _ => Err(r.invalid(i64::from(prefix))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_cassandra_reads_them() {
        for (text, expect) in [
            ("10.20.33.40/24", "10.20.33.0/24"),
            ("10.20.33.40/32", "10.20.33.40/32"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("2222:3333:4444:5555:6666:7777:8888:9999/32", "2222:3333::/32"),
            ("::ffff:192.1.56.10/104", "192.0.0.0/8"),
        ] {
            assert_eq!(parse(text).map(|range| range.to_string()), Ok(expect.to_owned()));
        }
        for text in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "/8",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0/8",
            "10.0.0.0/8/9",
            "::1/129",
            "::ffff:10.0.0.1/95",
            "localhost/8",
            "10.0.0.0/x",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("{text} is not a valid CIDR String"));
        }
    }

    #[test]
    fn ranges_are_shown_as_java_shows_them() {
        let shown = |range: &str| text(&parse(range).unwrap());
        assert_eq!(shown("2001:db8::/32"), "2001:db8:0:0:0:0:0:0/32");
        assert_eq!(shown("10.0.0.0/8"), "10.0.0.0/8");
    }

    #[test]
    fn the_narrowest_range_says_the_groups() {
        let ranges = |texts: &[&str]| texts.iter().map(|text| parse(text).unwrap()).collect();
        let groups = BTreeMap::from([
            ("all".to_owned(), ranges(&["0.0.0.0/0", "::/0"])),
            ("office".to_owned(), ranges(&["10.1.0.0/16", "10.9.9.9/32"])),
            ("ten".to_owned(), ranges(&["10.0.0.0/8"])),
            ("too".to_owned(), ranges(&["10.1.2.3/16", "10.0.0.0/7"])),
        ]);
        let of = |address: &str| groups_of(&groups, address.parse().unwrap());
        assert_eq!(of("10.1.255.255"), ["office", "too"]);
        assert_eq!(of("::ffff:10.1.0.0"), ["office", "too"]);
        assert_eq!(of("10.2.0.0"), ["ten"]);
        assert_eq!(of("11.255.0.1"), ["too"]);
        assert_eq!(of("10.9.9.9"), ["office"]);
        assert_eq!(of("12.0.0.0"), ["all"]);
        assert_eq!(of("2001:db8::1"), ["all"]);
        let none = BTreeMap::from([("ten".to_owned(), ranges(&["10.0.0.0/8"]))]);
        assert_eq!(groups_of(&none, "11.0.0.1".parse().unwrap()), Vec::<&str>::new());
        assert_eq!(groups_of(&none, "::1".parse().unwrap()), Vec::<&str>::new());
    }

    #[test]
    fn bytes_of_other_ranges_are_refused() {
        for text in ["10.0.0.0/8", "2001:db8::/32", "::/0", "1.2.3.4/32"] {
            let range = parse(text).unwrap();
            let mut bytes = Vec::new();
            encode(&range, &mut bytes);
            assert_eq!(read(&mut Reader::new(&bytes, "range")), Ok(range));
        }
        for bytes in [&[5, 10, 0, 0, 0, 8][..], &[4, 10, 0, 0, 0, 33], &[4, 10, 0, 0, 1, 8]] {
            assert!(read(&mut Reader::new(bytes, "range")).is_err(), "{bytes:?}");
        }
    }
}
