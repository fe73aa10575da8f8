//! Host names of addresses, for `-r`: resolved on the machine of the tool, as Cassandra's does.
//!
//! The [`super::Terminal`] resolves them; this module parses its lines.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::model::NodeReport;

use super::client::NodeApi;
use super::line::Failure;

/// Addresses in one look-up.
const ADDRESSES_MAX: usize = 500;

/// Names by address, of the members that have one.
///
/// # Errors
/// Names cannot be looked up on this machine.
pub(super) fn of(api: &NodeApi, node: &NodeReport) -> Result<BTreeMap<String, String>, Failure> {
    let addresses: Vec<&str> = node.nodes.iter().map(|member| member.address.as_str()).collect();
    let mut names = BTreeMap::new();
    for some in addresses.chunks(ADDRESSES_MAX) {
        let output = api.terminal.host_names(some).map_err(Failure::Node)?;
        read(&output, some, &mut names);
    }
    Ok(names)
}

/// Parses lines of an address and its names, the first of which counts.
fn read(output: &str, asked: &[&str], names: &mut BTreeMap<String, String>) {
    for line in output.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some(name)) = (words.next(), words.next()) else { continue };
        let Ok(address) = address.parse::<IpAddr>() else { continue };
        let is_it = |text: &&&str| text.parse::<IpAddr>().is_ok_and(|asked| asked == address);
        if let Some(asked) = asked.iter().find(is_it) {
            names.insert((*asked).to_owned(), name.to_owned());
        }
    }
}

/// A text in which nodes are titles (`/127.0.0.1`, `/127.0.0.1:7000`), with their names instead.
pub(super) fn titled(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let name = line.strip_prefix('/').and_then(|title| named(title, names));
        out.push_str(name.as_deref().unwrap_or(line));
        out.push('\n');
    }
    out
}

fn named(title: &str, names: &BTreeMap<String, String>) -> Option<String> {
    if let Some(name) = names.get(title) {
        return Some(name.clone());
    }
    let address: SocketAddr = title.parse().ok()?;
    let name = names.get(&address.ip().to_string())?;
    Some(format!("{name}:{}", address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_names_of_what_was_asked_are_taken() {
        let mut names = BTreeMap::new();
        let output = "10.0.0.1        one.example one\n::1             localhost\nnonsense\n\n";
        read(output, &["10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"], &mut names);
        let expected = [("0:0:0:0:0:0:0:1", "localhost"), ("10.0.0.1", "one.example")];
        let expected = expected.map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_titles_get_names() {
        let names = BTreeMap::from([("10.0.0.1".to_owned(), "one".to_owned())]);
        let text = "/10.0.0.1:7000\n  INTERNAL:10.0.0.1:7000\n/10.0.0.2\n/10.0.0.1\n\n";
        let expected = "one:7000\n  INTERNAL:10.0.0.1:7000\n/10.0.0.2\none\n\n";
        assert_eq!(titled(text, &names), expected);
    }
}
