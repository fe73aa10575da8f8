//! The way to other nodes: messaging with the settings of the options.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ClusterSnapshot;
use conf::{InternodeCompression, Options};
use messaging::{Messaging, MessagingMesh, Nearness, Settings};
use rt::{IoError, Rt};
use stdx::{HostId, IoErrorKind};

use crate::encryption::nodes::NodeKeys;

use crate::{StartError, parts};

fn settings(options: &Options) -> Settings {
    let defaults = Settings::default();
    let limit = options.internode_max_message_size.map(|size| size.0);
    let limit = limit.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    Settings {
        connect_timeout: options.internode_tcp_connect_timeout,
        payload_bytes_max: limit.unwrap_or(defaults.payload_bytes_max),
        compression: options.internode_compression != InternodeCompression::None,
        ..defaults
    }
}

/// Messaging of this shard.
pub(crate) fn messaging(
    rt: &Rt,
    options: &Options,
    introduction: internode::Identity,
    mesh: &Arc<MessagingMesh>,
) -> Messaging {
    let messaging = Messaging::new(rt, introduction, Arc::new(settings(options)), mesh.clone());
    messaging.cut_links(options.developer_cut_links.iter().copied().collect());
    messaging
}

/// Returns true if links may be cut: only if a setting allowed it at the start.
pub(crate) fn may_cut(options: &Options) -> bool {
    options.developer_link_faults || !options.developer_cut_links.is_empty()
}

/// Messaging of shard 0, with the storage port open. From `keys` on, connections are encrypted as they say.
///
/// # Errors
/// `Listen`, `Address`.
pub(crate) async fn open(
    rt: &Rt,
    options: &Options,
    introduction: internode::Identity,
    mesh: &Arc<MessagingMesh>,
    keys: Option<&NodeKeys>,
) -> Result<Messaging, StartError> {
    let messaging = messaging(rt, options, introduction, mesh);
    if let Some(keys) = keys {
        messaging.set_encryption(keys.encryption());
    }
    let address = parts::socket(&options.listen_address, options.storage_port)?;
    let at = messaging.listen(address).await;
    let at = at.map_err(|error| not_listening(address, error))?;
    tracing::info!(%at, "listening for other nodes");
    if options.server_encryption_options.legacy_ssl_storage_port_enabled {
        let address = parts::socket(&options.listen_address, options.ssl_storage_port)?;
        let at = messaging.listen_encrypted(address).await;
        let at = at.map_err(|error| not_listening(address, error))?;
        tracing::info!(%at, "listening for encrypted connections of other nodes");
    }
    Ok(messaging)
}

fn not_listening(address: SocketAddr, error: IoError) -> StartError {
    StartError::Listen {
        address: address.to_string(),
        purpose: "other nodes",
        detail: match error.kind {
            IoErrorKind::AddrInUse => "address in use".to_owned(),
            _ => error.detail,
        },
    }
}

/// Places peers as the metadata of the start does, until it can be followed.
pub(crate) fn place_peers_at_start(messaging: &Messaging, snapshot: &ClusterSnapshot) {
    let near = snapshot.members.keys().map(|host| (*host, nearness(snapshot, *host)));
    let near: BTreeMap<HostId, Nearness> = near.collect();
    let place = move |host| near.get(&host).copied().unwrap_or(Nearness::Unknown);
    messaging.hooks().place_peers(Rc::new(place));
}

/// Returns the place of a member relative to this node.
pub(crate) fn nearness(snapshot: &ClusterSnapshot, host: HostId) -> Nearness {
    let local = &snapshot.local;
    match snapshot.members.get(&host) {
        None => Nearness::Unknown,
        Some(member) if member.datacenter != local.datacenter => Nearness::Elsewhere,
        Some(member) if member.rack != local.rack => Nearness::SameDatacenter,
        Some(_) => Nearness::SameRack,
    }
}
