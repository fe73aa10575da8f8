//! The way to other nodes: messaging with the settings of the options, who this node says it is,
//! whom it knows.

use std::net::SocketAddr;
use std::sync::Arc;

use cluster::{ADDRESS_UNKNOWN, ClusterSnapshot};
use conf::{InternodeCompression, Options};
use internode::{Features, HelloAck, VersionRange};
use messaging::{Messaging, MessagingMesh, OpenError, Peer, Settings};
use rt::Rt;
use stdx::{HostId, IoErrorKind};

use super::identity::Identity;
use crate::{StartError, parts};

/// What was answered at an address.
pub(crate) type Answer = (SocketAddr, Result<HelloAck, OpenError>);

/// What messaging says of this node. `joining`: it is no member yet.
pub(crate) fn introduction(
    options: &Options,
    identity: &Identity,
    run: u64,
    shards: u16,
    joining: bool,
) -> internode::Identity {
    internode::Identity {
        cluster_id: identity.cluster_id,
        cluster_name: options.cluster_name.clone(),
        host_id: identity.host_id,
        incarnation: run,
        shard_count: shards,
        joining,
        versions: VersionRange::THIS,
        features: match options.internode_compression {
            InternodeCompression::None => Features::NONE,
            InternodeCompression::All | InternodeCompression::Dc => Features::LZ4,
        },
    }
}

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

/// Whether links may be cut: only where somebody asked for it at the start.
pub(crate) fn may_cut(options: &Options) -> bool {
    options.developer_link_faults || !options.developer_cut_links.is_empty()
}

/// Messaging of shard 0, with the storage port open.
///
/// # Errors
/// `Listen`, `Address`.
pub(crate) async fn open(
    rt: &Rt,
    options: &Options,
    introduction: internode::Identity,
    mesh: &Arc<MessagingMesh>,
) -> Result<Messaging, StartError> {
    let address = parts::socket(&options.listen_address, options.storage_port)?;
    let messaging = messaging(rt, options, introduction, mesh);
    let listening = messaging.listen(address).await;
    let at = listening.map_err(|error| StartError::Listen {
        address: address.to_string(),
        purpose: "other nodes",
        detail: match error.kind {
            IoErrorKind::AddrInUse => "address in use".to_owned(),
            _ => error.detail,
        },
    })?;
    tracing::info!(%at, "listening for other nodes");
    Ok(messaging)
}

/// Makes the members of a snapshot known to messaging, and its epoch. One whose address is not known is
/// a member all the same: it must be let in when it comes to say where it is now. What `before` said
/// already changes nothing: somebody may have been found elsewhere since (`seeking`).
pub(crate) fn introduce(
    messaging: &Messaging,
    before: Option<&ClusterSnapshot>,
    snapshot: &ClusterSnapshot,
) {
    for member in snapshot.members.values() {
        let shard_count = member.shards.max(1);
        let said = before.and_then(|before| before.members.get(&member.host_id));
        let known = messaging.peer(member.host_id);
        let is_news = said.is_none_or(|said| said.storage != member.storage);
        let address = match known {
            Some(known) if !is_news || member.storage == ADDRESS_UNKNOWN => known.address,
            _ => member.storage,
        };
        let peer = Peer { address, shard_count };
        if known != Some(peer) {
            messaging.set_peer(member.host_id, peer);
        }
    }
    messaging.set_epoch(snapshot.epoch);
}

/// Lets messaging follow a change of the metadata.
pub(crate) fn follow(messaging: &Messaging, before: &ClusterSnapshot, after: &ClusterSnapshot) {
    introduce(messaging, Some(before), after);
    let gone = before.members.keys().filter(|host| !after.members.contains_key(*host));
    for host in gone.copied().collect::<Vec<HostId>>() {
        messaging.remove_peer(host);
    }
}
