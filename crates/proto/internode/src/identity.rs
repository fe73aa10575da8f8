//! Admission of connections: one pure decision, and the answer to a refused node.

use crate::hello::{Features, Handshake, Hello, HelloAck, RefusalCode, Refused};
use std::fmt;
use stdx::{HostId, ShardId, Uuid};

/// Versions of the protocol, both ends included, `min <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// Oldest.
    pub min: u16,
    /// Newest.
    pub max: u16,
}

impl VersionRange {
    /// The versions of this build. A release also speaks its predecessor's newest version.
    pub const THIS: VersionRange = VersionRange { min: 1, max: 1 };

    /// The newest version of both.
    pub fn common(self, other: VersionRange) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            return write!(f, "{}", self.min);
        }
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// A node's description of itself in HELLO, which it compares HELLOs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its cluster; `None` while it is joining and does not know it.
    pub cluster_id: Option<Uuid>,
    /// `cluster_name`.
    pub cluster_name: String,
    /// Its host id.
    pub host_id: HostId,
    /// Number of its start.
    pub incarnation: u64,
    /// Its shards, at least 1.
    pub shard_count: u16,
    /// It is no member yet.
    pub joining: bool,
    /// Versions it speaks.
    pub versions: VersionRange,
    /// Its features.
    pub features: Features,
}

/// Parameters that both sides of a connection use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Protocol version.
    pub version: u16,
    /// Features of both.
    pub features: Features,
    /// The receiver's shard that serves the connection.
    pub shard: ShardId,
}

/// Why a node is refused; the text is written for the operator of the refused node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another cluster's name.
    #[error(
        "this node belongs to the cluster \"{here}\", you come from \"{there}\": set cluster_name \
         and seeds of the node that was meant"
    )]
    ClusterName {
        /// Name of the receiver's cluster.
        here: String,
        /// Name of the sender's cluster.
        there: String,
    },
    /// The same name, another cluster.
    #[error(
        "this node belongs to the cluster {here}, you to {there}, which only has the same name: \
         start with an empty data directory to join this cluster, or give one of them another \
         cluster_name"
    )]
    ClusterId {
        /// Id of the receiver's cluster.
        here: Uuid,
        /// Id of the sender's cluster.
        there: Uuid,
    },
    /// A member that does not name its cluster.
    #[error(
        "you are a member but did not say of which cluster: the metadata directory is incomplete, \
         restore it or start with an empty data directory to join anew"
    )]
    NoClusterId,
    /// No version of both.
    #[error(
        "this node speaks version {here} of the protocol between nodes, you speak {there}: upgrade \
         one release at a time"
    )]
    NoCommonVersion {
        /// Versions of the receiver.
        here: VersionRange,
        /// Versions of the sender.
        there: VersionRange,
    },
    /// The sender has the host id of the receiver, or of another live node.
    #[error(
        "the host id {0} is in use by another running node: the data directory was copied; start \
         with an empty one to join as a new node, or stop the other node first to move it"
    )]
    DuplicateHostId(HostId),
    /// The sender reached itself.
    #[error("this is you yourself: leave the own address out of what is connected to")]
    Yourself,
    /// The receiver does not know the sender.
    #[error(
        "the metadata of the refusing peer has no member {0}: the member was removed, or the peer is behind; if it \
         was removed, start with an empty data directory to join again"
    )]
    UnknownHost(HostId),
    /// The address belongs to another node now.
    #[error(
        "host {wanted} is not at this address, {here} is: addresses changed, look them up again"
    )]
    WrongHost {
        /// The host that the sender wanted.
        wanted: HostId,
        /// The host at this address.
        here: HostId,
    },
    /// The receiver is stopping.
    #[error("this node is shutting down: try again when it is back")]
    ShuttingDown,
    /// Too many handshakes at once.
    #[error("too many connections are being opened: try again")]
    Busy,
    /// No HELLO.
    #[error("no valid HELLO: {0}")]
    Malformed(String),
    /// The receiver accepts encrypted connections only.
    #[error(
        "this node accepts encrypted connections only: set internode_encryption in \
         server_encryption_options of your node"
    )]
    EncryptionRequired,
    /// The certificate of the sender is not accepted.
    #[error("your certificate is not accepted: {0}")]
    Certificate(String),
    /// The sender began with TLS, for which the receiver has no keys.
    #[error("this node does not speak TLS: set keystore in its server_encryption_options")]
    NoEncryption,
}

impl Refusal {
    /// Its code on the wire.
    pub fn code(&self) -> RefusalCode {
        match self {
            Refusal::ClusterName { .. } | Refusal::ClusterId { .. } | Refusal::NoClusterId => {
                RefusalCode::WrongCluster
            }
            Refusal::NoCommonVersion { .. } => RefusalCode::NoCommonVersion,
            Refusal::DuplicateHostId(_) => RefusalCode::DuplicateHostId,
            Refusal::Yourself => RefusalCode::Yourself,
            Refusal::UnknownHost(_) => RefusalCode::UnknownHost,
            Refusal::WrongHost { .. } => RefusalCode::WrongHost,
            Refusal::ShuttingDown => RefusalCode::ShuttingDown,
            Refusal::Busy => RefusalCode::Busy,
            Refusal::Malformed(_) => RefusalCode::Malformed,
            Refusal::EncryptionRequired => RefusalCode::EncryptionRequired,
            Refusal::Certificate(_) => RefusalCode::Certificate,
            Refusal::NoEncryption => RefusalCode::NoEncryption,
        }
    }

    /// The message that the refused node gets.
    pub fn message(&self) -> Handshake {
        Handshake::Refused(Refused { code: self.code(), message: self.to_string() })
    }
}

/// Decides about a HELLO. `is_known`: the receiver's metadata has the sender's host id.
///
/// # Errors
/// The refusal to send; the first that applies in the order version, cluster, identity.
pub fn judge(local: &Identity, hello: &Hello, is_known: bool) -> Result<Agreement, Refusal> {
    let Some(version) = local.versions.common(hello.versions) else {
        let (here, there) = (local.versions, hello.versions);
        return Err(Refusal::NoCommonVersion { here, there });
    };
    if hello.cluster_name != local.cluster_name {
        let (here, there) = (local.cluster_name.clone(), hello.cluster_name.clone());
        return Err(Refusal::ClusterName { here, there });
    }
    match (local.cluster_id, hello.cluster_id) {
        (Some(here), Some(there)) if here != there => {
            return Err(Refusal::ClusterId { here, there });
        }
        (Some(_), None) if !hello.joining => return Err(Refusal::NoClusterId),
        _ => {}
    }
    if hello.from == local.host_id && hello.incarnation == local.incarnation {
        return Err(Refusal::Yourself);
    }
    if hello.from == local.host_id {
        return Err(Refusal::DuplicateHostId(hello.from));
    }
    if let Some(wanted) = hello.to
        && wanted != local.host_id
    {
        return Err(Refusal::WrongHost { wanted, here: local.host_id });
    }
    if !is_known && !hello.joining {
        return Err(Refusal::UnknownHost(hello.from));
    }
    let shard = hello.destination_shard.0.checked_rem(local.shard_count).unwrap_or(0);
    let features = local.features.common(hello.features);
    Ok(Agreement { version, features, shard: ShardId(shard) })
}

impl Identity {
    /// The answer to a HELLO that was accepted.
    pub fn ack(&self, agreement: &Agreement) -> HelloAck {
        HelloAck {
            version: agreement.version,
            features: agreement.features,
            cluster_id: self.cluster_id,
            host_id: self.host_id,
            incarnation: self.incarnation,
            shard_count: self.shard_count.max(1),
            shard: agreement.shard,
        }
    }

    /// Checks that an answer comes from the host that `hello` wanted, in a version that it offered.
    ///
    /// # Errors
    /// The reason not to use the connection, as if this node had been asked.
    pub fn check_ack(&self, hello: &Hello, ack: &HelloAck) -> Result<(), Refusal> {
        if !(hello.versions.min..=hello.versions.max).contains(&ack.version) {
            let there = VersionRange { min: ack.version, max: ack.version };
            return Err(Refusal::NoCommonVersion { here: hello.versions, there });
        }
        if let (Some(here), Some(there)) = (self.cluster_id, ack.cluster_id)
            && here != there
        {
            return Err(Refusal::ClusterId { here, there });
        }
        if ack.host_id == self.host_id {
            return Err(Refusal::DuplicateHostId(ack.host_id));
        }
        match hello.to {
            Some(wanted) if wanted != ack.host_id => {
                Err(Refusal::WrongHost { wanted, here: ack.host_id })
            }
            _ if !hello.features.contains(ack.features) => {
                Err(Refusal::Malformed("the answer has features that were not offered".to_owned()))
            }
            _ => Ok(()),
        }
    }
}
