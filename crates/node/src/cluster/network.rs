//! The way to other nodes: messaging with the settings of the options.

use std::sync::Arc;

use conf::{InternodeCompression, Options};
use messaging::{Messaging, MessagingMesh, Settings};
use rt::Rt;
use stdx::IoErrorKind;

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
