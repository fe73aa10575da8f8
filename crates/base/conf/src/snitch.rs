//! Location of a node: the property files of Cassandra's snitches, and the address for the snitch
//! without a file.
//!
//! Owns: their grammar (Java properties without line continuation). Never: opens a file.
//! Source: `GossipingPropertyFileSnitch`, `SnitchProperties`, `PropertyFileSnitch`,
//! `RackInferringSnitch` of Cassandra 5.0.

use std::net::IpAddr;

/// Name of the file of GossipingPropertyFileSnitch.
pub const RACKDC: &str = "cassandra-rackdc.properties";
/// Name of the file of PropertyFileSnitch.
pub const TOPOLOGY: &str = "cassandra-topology.properties";

/// Data centre and rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Data centre.
    pub datacenter: String,
    /// Rack.
    pub rack: String,
}

impl Place {
    /// Returns the location of every node with SimpleSnitch.
    pub fn simple() -> Place {
        Place { datacenter: "datacenter1".to_owned(), rack: "rack1".to_owned() }
    }

    /// Returns the location of RackInferringSnitch: the second and the third byte of the address,
    /// as numbers. The bytes of an IPv6 address are counted from its start, as Cassandra does.
    pub fn inferred(ip: IpAddr) -> Place {
        let (second, third) = match ip {
            IpAddr::V4(ip) => {
                let [_, second, third, _] = ip.octets();
                (second, third)
            }
            IpAddr::V6(ip) => {
                let [_, second, third, ..] = ip.octets();
                (second, third)
            }
        };
        Place { datacenter: second.to_string(), rack: third.to_string() }
    }
}

/// Parses one line into name and value.
pub(crate) fn property(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', '!']) {
        return None;
    }
    let (name, value) = line.split_once(['=', ':'])?;
    Some((name.trim(), value.trim()))
}

/// Reads cassandra-rackdc.properties: `dc`, `rack` and `dc_suffix`, which is appended to `dc`.
///
/// # Errors
/// The missing entry, as text that follows the file's name.
pub fn rackdc(text: &str) -> Result<Place, String> {
    let find = |wanted: &str| {
        let values = text.lines().filter_map(property).filter(|(name, _)| *name == wanted);
        // The last one wins, as in Java.
        values.map(|(_, value)| value).next_back().filter(|value| !value.is_empty())
    };
    match (find("dc"), find("rack")) {
        (Some(dc), Some(rack)) => {
            let suffix = find("dc_suffix").unwrap_or_default();
            Ok(Place { datacenter: format!("{dc}{suffix}"), rack: rack.to_owned() })
        }
        (None, _) => Err("has no \"dc\"; expects lines such as dc=DC1 and rack=RAC1".to_owned()),
        (_, None) => Err("has no \"rack\"; expects lines such as dc=DC1 and rack=RAC1".to_owned()),
    }
}

/// Reads the line of the address `ip`, else of `default`, of cassandra-topology.properties:
/// `10.0.0.1=DC1:RAC1`.
///
/// # Errors
/// The missing entry, as text that follows the file's name.
pub fn topology(text: &str, ip: IpAddr) -> Result<Place, String> {
    let (mut own, mut default) = (None, None);
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // Colons of an IPv6 address are escaped with a backslash.
        let Some((name, value)) = line.split_once('=') else { continue };
        let name = name.trim().replace('\\', "");
        let Some((datacenter, rack)) = value.trim().split_once(':') else { continue };
        let (datacenter, rack) = (datacenter.trim().to_owned(), rack.trim().to_owned());
        let place = Place { datacenter, rack };
        // A port after the address is ignored.
        let address = name.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']));
        let is_own =
            [Some(name.as_str()), address].into_iter().flatten().any(|text| text.parse() == Ok(ip));
        if is_own {
            own = Some(place);
        } else if name == "default" {
            default = Some(place);
        }
    }
    own.or(default).ok_or_else(|| format!("has no line for {ip} and none for default"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(datacenter: &str, rack: &str) -> Place {
        Place { datacenter: datacenter.to_owned(), rack: rack.to_owned() }
    }

    #[test]
    fn rackdc_needs_both_names() {
        let text = "# a comment\n\ndc=dc1\nrack = r 1 \nprefer_local=true\n";
        assert_eq!(rackdc(text), Ok(place("dc1", "r 1")));
        assert_eq!(rackdc("dc=a\nrack:b\ndc_suffix=_x"), Ok(place("a_x", "b")));
        assert!(rackdc("dc=a\n#rack=b").unwrap_err().contains("\"rack\""));
        assert!(rackdc("rack=b\ndc=").unwrap_err().contains("\"dc\""));
    }

    #[test]
    fn topology_has_the_own_line_or_the_default() {
        let text = "10.0.0.1=DC1:RAC1\n10.0.0.2:7000 = DC2:RAC2\nfe80\\:\\:1=DC3:R\ndefault=D:r\n";
        let of = |ip: &str| topology(text, ip.parse().unwrap()).unwrap();
        assert_eq!(of("10.0.0.1"), place("DC1", "RAC1"));
        assert_eq!(of("10.0.0.2"), place("DC2", "RAC2"));
        assert_eq!(of("fe80::1"), place("DC3", "R"));
        assert_eq!(of("10.0.0.9"), place("D", "r"));
        assert!(topology("10.0.0.1=DC1:RAC1", "10.0.0.2".parse().unwrap()).is_err());
    }

    #[test]
    fn inferred_places_are_bytes_of_the_address() {
        assert_eq!(Place::inferred("10.1.2.3".parse().unwrap()), place("1", "2"));
    }
}
