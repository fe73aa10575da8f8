//! The configured seeds, and discovery of the node at an address.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use conf::{Address, Options};
use internode::{HelloAck, RefusalCode};
use messaging::{Messaging, OpenError};
use rt::{Group, Rt};

use crate::error::{Result as TopologyResult, TopologyError};

/// An address, and the answer of the node there.
pub(crate) type Answer = (SocketAddr, Result<HelloAck, OpenError>);

/// An address of the options as an IP address.
///
/// # Errors
/// `Address` when it is a host name: the program's entry resolves those.
pub fn ip(address: &Address) -> TopologyResult<IpAddr> {
    address.ip().ok_or_else(|| TopologyError::Address(address.to_string()))
}

/// An IP address and a port.
///
/// # Errors
/// Those of [`ip`].
pub fn socket(address: &Address, port: u16) -> TopologyResult<SocketAddr> {
    Ok(SocketAddr::new(ip(address)?, port))
}

/// Returns the address at which other nodes reach this node, from the configuration.
///
/// # Errors
/// `Address`.
pub fn own_address(options: &Options) -> TopologyResult<SocketAddr> {
    socket(options.announced_address(), options.storage_port)
}

/// The seeds in the order of the configuration; without a port they have `storage_port`.
///
/// # Errors
/// `Address` when one is a name: the program's entry resolves those.
pub(crate) fn addresses(options: &Options) -> TopologyResult<Vec<SocketAddr>> {
    read(&options.seeds, options.storage_port)
}

/// Like [`addresses`], for any list.
pub fn read(seeds: &[String], storage_port: u16) -> TopologyResult<Vec<SocketAddr>> {
    let read = |seed: &String| {
        let text = seed.trim();
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => match port.parse() {
                Ok(port) => (host, port),
                Err(_) => return Err(TopologyError::Address(text.to_owned())),
            },
            _ => (text, storage_port),
        };
        let ip = match host {
            "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            _ => host.trim_matches(['[', ']']).parse(),
        };
        let ip = ip.map_err(|_| TopologyError::Address(text.to_owned()))?;
        Ok(SocketAddr::new(ip, port))
    };
    seeds.iter().filter(|seed| !seed.trim().is_empty()).map(read).collect()
}

/// Asks all addresses at once which node answers there.
pub(crate) async fn ask_all(
    rt: &Rt,
    messaging: &Messaging,
    addresses: &[SocketAddr],
) -> Vec<Answer> {
    let gate = rt.gate("seeds");
    let answers = Rc::new(RefCell::new(Vec::new()));
    for address in addresses {
        let (messaging, answers, address) = (messaging.clone(), answers.clone(), *address);
        let task = async move {
            let answer = messaging.discover(address).await;
            answers.borrow_mut().push((address, answer));
        };
        // A closed gate: the node stops.
        let _ = gate.spawn(rt, Group::Gossip, "seed", task);
    }
    gate.close().await;
    let mut answers = answers.take();
    // In the order of the configuration, not in that of the answers.
    answers.sort_by_key(|(address, _)| addresses.iter().position(|a| a == address));
    answers
}

/// The refusal that no waiting changes, if `answer` is one.
pub(crate) fn final_refusal(
    address: SocketAddr,
    answer: &Result<HelloAck, OpenError>,
) -> Option<TopologyError> {
    let Err(OpenError::Refused { code, message }) = answer else { return None };
    match code {
        RefusalCode::WrongCluster | RefusalCode::NoCommonVersion | RefusalCode::DuplicateHostId => {
            Some(TopologyError::Refused { address, message: message.to_string() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_may_have_a_port_and_must_be_addresses() {
        let of = |seeds: &[&str]| {
            let seeds = seeds.iter().map(|s| (*s).to_owned()).collect();
            addresses(&Options { seeds, storage_port: 7001, ..Options::default() })
        };
        let texts = |seeds: &[&str]| -> Vec<String> {
            of(seeds).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            texts(&["10.0.0.1", " 10.0.0.2:7000", "", "localhost:7", "::1", "[::1]:9"]),
            ["10.0.0.1:7001", "10.0.0.2:7000", "127.0.0.1:7", "[::1]:7001", "[::1]:9"]
        );
        assert!(matches!(of(&["db.example.org"]), Err(TopologyError::Address(_))));
        assert!(matches!(of(&["10.0.0.1:x"]), Err(TopologyError::Address(_))));
    }
}
