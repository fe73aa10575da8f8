//! Internet addresses as Java reads and prints them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::TypeError;

/// Text of 4 or 16 bytes as `InetAddress.getHostAddress`: IPv6 in full without `::`, an IPv4-mapped
/// address as IPv4. `None`: another length.
pub fn format_inet(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).to_string());
    }
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
    if let Some(mapped) = address.to_ipv4_mapped() {
        return Some(mapped.to_string());
    }
    let groups: Vec<String> = address.segments().iter().map(|g| format!("{g:x}")).collect();
    Some(groups.join(":"))
}

/// Reads an address: IPv4 with one to four numbers (`10.1` is 10.0.0.1), IPv6 with optional brackets;
/// an IPv4-mapped address becomes four bytes. `localhost` in any case is 127.0.0.1; other host names,
/// which Cassandra would look up, are refused: replicas could read a statement differently.
///
/// # Errors
/// `InetAddressType.fromString`'s text.
pub fn parse_inet(source: &str) -> Result<Vec<u8>, TypeError> {
    let refused = || TypeError::Marshal(format!("Unable to make inet address from '{source}'"));
    if source.contains(':') {
        let bare = match source.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(refused)?,
            None => source,
        };
        let address: Ipv6Addr = bare.parse().map_err(|_| refused())?;
        return Ok(match address.to_ipv4_mapped() {
            Some(mapped) => mapped.octets().to_vec(),
            None => address.octets().to_vec(),
        });
    }
    if source.eq_ignore_ascii_case("localhost") {
        return Ok(Ipv4Addr::LOCALHOST.octets().to_vec());
    }
    parse_ipv4(source).map(|octets| octets.to_vec()).ok_or_else(refused)
}

/// `a.b.c.d`, `a.b.c`, `a.b` or `a`: the last number fills the bytes that are left.
fn parse_ipv4(source: &str) -> Option<[u8; 4]> {
    let parts: Vec<&str> = source.split('.').collect();
    if parts.len() > 4 {
        return None;
    }
    let (last, head) = parts.split_last()?;
    let number = |text: &str| {
        if regular_number(text) { text.parse::<u64>().ok() } else { None }
    };
    let mut address = 0u64;
    for part in head {
        address = address << 8 | number(part).filter(|n| *n < 256)?;
    }
    let bits = 8u32.checked_mul(4u32.checked_sub(u32::try_from(head.len()).ok()?)?)?;
    let tail = number(last).filter(|n| *n < 1u64 << bits)?;
    u32::try_from(address << bits | tail).ok().map(u32::to_be_bytes)
}

/// One or more ASCII digits and nothing else.
pub(crate) fn regular_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed_as_java_does() {
        let check = |text: &str, printed: &str| {
            let bytes = parse_inet(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(format_inet(&bytes).as_deref(), Some(printed), "{text}");
        };
        check("127.0.0.1", "127.0.0.1");
        check("10.1", "10.0.0.1");
        check("16909060", "1.2.3.4");
        check("localhost", "127.0.0.1");
        check("LocalHost", "127.0.0.1");
        check("::1", "0:0:0:0:0:0:0:1");
        check("[2001:DB8::ff00:42:8329]", "2001:db8:0:0:0:ff00:42:8329");
        check("::ffff:1.2.3.4", "1.2.3.4");
        for bad in [
            "",
            "localhost.",
            "host.example",
            "1.2.3.256",
            "1.2.3.4.5",
            "256.1",
            "1..2",
            "::g",
            "[::1",
            "+1.2.3.4",
        ] {
            assert!(parse_inet(bad).is_err(), "{bad}");
        }
        assert_eq!(format_inet(&[1, 2, 3]), None);
    }
}
