//! This node's entry in the metadata: its addresses, shards, release.

use cluster::{ADDRESS_UNKNOWN, Address, Members, Transformation};
use conf::Options;
use stdx::HostId;

use crate::error::Result;
use crate::seeds;

/// Describes a node to the others: addresses, shards, release. A member whose recorded address is
/// this node's has moved without having announced its new address yet (the two may have swapped
/// theirs). Its address is recorded as unknown until it does.
///
/// # Errors
/// `Address`.
pub fn describe(
    options: &Options,
    host: HostId,
    shards: u16,
    members: &Members,
) -> Result<Transformation> {
    let storage = seeds::own_address(options)?;
    let rpc = seeds::socket(options.announced_rpc_address(), options.native_transport_port)?;
    let release = cql_plan::system_rows::RELEASE_VERSION.to_owned();
    let mut changes = vec![Address { host, storage, rpc }];
    // An address that is only announced may be a mistake; on an address that this node listens on
    // no other node listens.
    let listens = options.broadcast_address.is_none();
    let serves = options.broadcast_rpc_address.is_none();
    for other in members.values().filter(|other| other.host_id != host) {
        let has_left = |is_own: bool, held, own| is_own && held == own;
        let of_nodes = has_left(listens, other.storage, storage);
        // A member that left its listen address has left the address that it announced to clients
        // too.
        let of_clients = has_left(serves || of_nodes, other.rpc, rpc);
        if of_nodes || of_clients {
            changes.push(Address {
                host: other.host_id,
                storage: if of_nodes { ADDRESS_UNKNOWN } else { other.storage },
                rpc: if of_clients { ADDRESS_UNKNOWN } else { other.rpc },
            });
        }
    }
    Ok(Transformation::Group(vec![
        Transformation::Readdress { changes },
        Transformation::Describe { host, shards, features: cluster::features::SUPPORTED, release },
    ]))
}
