//! HELLO, HELLO_ACK and REFUSED: the only bytes whose layout no later version may change.
//!
//! ```text
//! magic "HLNS" · kind u8 · 0 u8 · body length u16 · body · CRC32 of everything before u32
//! ```
//!
//! A body may be longer than this version knows; what is behind the known fields is ignored.

use crate::identity::VersionRange;
use codec::{DecodeError, Reader, Writer, crc32};
use std::fmt;
use stdx::{HostId, ShardId, Uuid};

/// First bytes of every connection, both directions.
pub const MAGIC: [u8; 4] = *b"HLNS";
/// Largest body of a handshake message.
pub const BODY_BYTES_MAX: usize = 4096;
/// Longest cluster name, bytes of UTF-8.
pub const CLUSTER_NAME_BYTES_MAX: usize = 1024;
/// Longest text of a refusal, bytes of UTF-8.
pub const REFUSAL_BYTES_MAX: usize = 2048;

const PREFIX: usize = 8;
const CHECKSUM: usize = 4;

/// Purpose of a connection. A node opens at most one connection per lane to each shard of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Lane {
    /// Requests of clients, gossip, the metadata log.
    Requests = 0,
    /// Streams and repair, which may keep a connection full for long.
    Bulk = 1,
    /// No frame follows the handshake: it only asks for the host at an address.
    Probe = 2,
}

impl Lane {
    fn from_number(number: u8) -> Option<Lane> {
        match number {
            0 => Some(Lane::Requests),
            1 => Some(Lane::Bulk),
            2 => Some(Lane::Probe),
            _ => None,
        }
    }
}

/// Optional abilities as bits; what both sides have is used. Unknown bits are kept and ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// None.
    pub const NONE: Features = Features(0);
    /// Payloads may be LZ4 blocks.
    pub const LZ4: Features = Features(1);

    /// Returns the features of both.
    pub const fn common(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }

    /// Returns true if all of `other` are here.
    pub const fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The first message of a connecting node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Versions it speaks.
    pub versions: VersionRange,
    /// Its features.
    pub features: Features,
    /// Purpose of the connection.
    pub lane: Lane,
    /// The sender is no member yet and asks to become one.
    pub joining: bool,
    /// Its cluster; `None` while it is joining and does not know it.
    pub cluster_id: Option<Uuid>,
    /// `cluster_name` of its configuration.
    pub cluster_name: String,
    /// Host id of the sender.
    pub from: HostId,
    /// The host that it wants to reach; `None` when it only knows an address.
    pub to: Option<HostId>,
    /// Number of the sender's start: a greater one means that it was restarted.
    pub incarnation: u64,
    /// The shard that will use the connection.
    pub source_shard: ShardId,
    /// Shards of the sender.
    pub shard_count: u16,
    /// The shard it wants; taken modulo the receiver's number of shards, which may have changed.
    pub destination_shard: ShardId,
}

/// The answer: the connection is open and frames follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// The version of all that follows.
    pub version: u16,
    /// The features in use.
    pub features: Features,
    /// The receiver's cluster; `None` when it has none yet.
    pub cluster_id: Option<Uuid>,
    /// Host id of the receiver.
    pub host_id: HostId,
    /// Number of its start.
    pub incarnation: u64,
    /// Its shards.
    pub shard_count: u16,
    /// The shard that serves the connection.
    pub shard: ShardId,
}

/// The other answer, after which the receiver closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub code: RefusalCode,
    /// The reason and the remedy, in words.
    pub message: String,
}

macro_rules! refusal_codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// Reason of a refused connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RefusalCode {
            $($(#[$doc])* $name,)*
            /// A reason of a later version; its message explains it.
            Other(u16),
        }

        impl RefusalCode {
            /// Its number on the wire.
            pub const fn number(self) -> u16 {
                match self {
                    $(RefusalCode::$name => $number,)*
                    RefusalCode::Other(number) => number,
                }
            }

            /// The code with this number.
            pub const fn from_number(number: u16) -> RefusalCode {
                match number {
                    $($number => RefusalCode::$name,)*
                    other => RefusalCode::Other(other),
                }
            }
        }
    };
}

refusal_codes! {
    /// Another cluster's node, by name or id.
    WrongCluster = 1;
    /// No version that both speak.
    NoCommonVersion = 2;
    /// The receiver, or another live node, has the sender's host id.
    DuplicateHostId = 3;
    /// The receiver's metadata has no such host id.
    UnknownHost = 4;
    /// Another host id lives at this address.
    WrongHost = 5;
    /// The receiver is stopping.
    ShuttingDown = 6;
    /// Too many handshakes at once.
    Busy = 7;
    /// The bytes were no HELLO.
    Malformed = 8;
    /// The sender reached itself.
    Yourself = 9;
    /// The receiver accepts encrypted connections only.
    EncryptionRequired = 10;
    /// The sender's certificate is trusted by its chain, but not accepted.
    Certificate = 11;
    /// The sender began with TLS, for which the receiver has no keys.
    NoEncryption = 12;
}

/// A message of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// From the connecting node.
    Hello(Hello),
    /// Accepted.
    Ack(HelloAck),
    /// Refused.
    Refused(Refused),
}

/// Bytes that are no handshake message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// Something else was sent.
    #[error("the bytes do not begin a connection between nodes: {0}")]
    NotInternode(Stranger),
    /// The length is above the limit.
    #[error("handshake of {length} bytes, the limit is {max}")]
    TooLong {
        /// Found.
        length: usize,
        /// Limit.
        max: usize,
    },
    /// Damaged.
    #[error("the handshake's checksum is wrong")]
    Checksum,
    /// A field is out of range.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// Foreign protocol whose client reached this port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// A node of Apache Cassandra.
    Cassandra,
    /// TLS.
    Tls,
    /// A CQL driver.
    Cql,
    /// HTTP.
    Http,
    /// No known member.
    Unknown,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stranger::Cassandra => {
                "a node of Apache Cassandra; Helenus cannot join its ring, nor it ours"
            }
            Stranger::Tls => "TLS, which is not configured on this port",
            Stranger::Cql => "a CQL driver; clients use native_transport_port, not storage_port",
            Stranger::Http => "an HTTP client; this is storage_port",
            Stranger::Unknown => "unknown protocol",
        })
    }
}

impl Stranger {
    fn guess(bytes: &[u8]) -> Stranger {
        match bytes {
            [0xca, 0x55, 0x2d, 0xfa, ..] => Stranger::Cassandra,
            [0x16, 0x03, ..] => Stranger::Tls,
            [0x01..=0x06 | 0x42, ..] => Stranger::Cql,
            [b'G', b'E', b'T', ..] | [b'P', b'O' | b'U', ..] | [b'H', b'E', b'A', ..] => {
                Stranger::Http
            }
            _ => Stranger::Unknown,
        }
    }
}

impl Handshake {
    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_bytes(&MAGIC);
        out.put_u8(match self {
            Handshake::Hello(_) => 1,
            Handshake::Ack(_) => 2,
            Handshake::Refused(_) => 3,
        });
        out.put_u8(0);
        let length_at = out.len();
        out.put_u16(0);
        let body = out.len();
        match self {
            Handshake::Hello(hello) => hello.put(out),
            Handshake::Ack(ack) => ack.put(out),
            Handshake::Refused(refused) => {
                out.put_u16(refused.code.number());
                put_text(out, &refused.message, REFUSAL_BYTES_MAX);
            }
        }
        let length = out.len().saturating_sub(body);
        stdx::invariant!(length <= BODY_BYTES_MAX, "handshake body of {length} bytes");
        out.patch_u16(length_at, u16::try_from(length).unwrap_or(u16::MAX));
        let checksum = crc32(out.get(start..).unwrap_or_default());
        out.put_u32(checksum);
    }

    /// The message at the start of `input` and its length; `None` when it is incomplete.
    ///
    /// # Errors
    /// The bytes cannot become a message, however many follow.
    pub fn decode(input: &[u8]) -> Result<Option<(Handshake, usize)>, HandshakeError> {
        let compared = input.len().min(MAGIC.len());
        if input.get(..compared) != MAGIC.get(..compared) {
            return Err(HandshakeError::NotInternode(Stranger::guess(input)));
        }
        let Some(prefix) = input.first_chunk::<PREFIX>() else { return Ok(None) };
        let [_, _, _, _, kind, _, high, low] = *prefix;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > BODY_BYTES_MAX {
            return Err(HandshakeError::TooLong { length, max: BODY_BYTES_MAX });
        }
        let whole = PREFIX.saturating_add(length).saturating_add(CHECKSUM);
        let Some(bytes) = input.get(..whole) else { return Ok(None) };
        let mut reader = Reader::new(bytes, "handshake");
        let checked = reader.peek_rest().get(..whole.saturating_sub(CHECKSUM)).unwrap_or_default();
        reader.skip(PREFIX)?;
        let mut body = reader.sub(length, "handshake")?;
        if reader.u32()? != crc32(checked) {
            return Err(HandshakeError::Checksum);
        }
        let message = match kind {
            1 => Handshake::Hello(Hello::take(&mut body)?),
            2 => Handshake::Ack(HelloAck::take(&mut body)?),
            3 => {
                let code = RefusalCode::from_number(body.u16()?);
                let text = body.utf8_u16()?;
                let text = text.get(..text.floor_char_boundary(REFUSAL_BYTES_MAX)).unwrap_or(text);
                Handshake::Refused(Refused { code, message: text.to_owned() })
            }
            other => return Err(body.invalid(i64::from(other)).into()),
        };
        Ok(Some((message, whole)))
    }
}

const JOINING: u16 = 1;

impl Hello {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.versions.min);
        out.put_u16(self.versions.max);
        out.put_u16(if self.joining { JOINING } else { 0 });
        out.put_u8(self.lane as u8);
        out.put_u64(self.features.0);
        put_uuid(out, self.cluster_id);
        put_uuid(out, Some(self.from.0));
        put_uuid(out, self.to.map(|to| to.0));
        out.put_u64(self.incarnation);
        out.put_u16(self.source_shard.0);
        out.put_u16(self.shard_count);
        out.put_u16(self.destination_shard.0);
        put_text(out, &self.cluster_name, CLUSTER_NAME_BYTES_MAX);
    }

    fn take(body: &mut Reader<'_>) -> Result<Hello, DecodeError> {
        let versions = VersionRange { min: body.u16()?, max: body.u16()? };
        if versions.min > versions.max {
            return Err(body.invalid(i64::from(versions.min)));
        }
        let flags = body.u16()?;
        let lane = body.u8()?;
        let lane = Lane::from_number(lane).ok_or_else(|| body.invalid(i64::from(lane)))?;
        let features = Features(body.u64()?);
        let cluster_id = take_uuid(body)?;
        let from = take_uuid(body)?.ok_or_else(|| body.invalid(0))?;
        let to = take_uuid(body)?;
        let incarnation = body.u64()?;
        let source_shard = ShardId(body.u16()?);
        let shard_count = body.u16()?;
        if source_shard.0 >= shard_count {
            return Err(body.invalid(i64::from(source_shard.0)));
        }
        let destination_shard = ShardId(body.u16()?);
        let cluster_name = body.utf8_u16()?;
        if cluster_name.len() > CLUSTER_NAME_BYTES_MAX {
            return Err(body.invalid(i64::try_from(cluster_name.len()).unwrap_or(i64::MAX)));
        }
        Ok(Hello {
            versions,
            features,
            lane,
            joining: flags & JOINING != 0,
            cluster_id,
            cluster_name: cluster_name.to_owned(),
            from: HostId(from),
            to: to.map(HostId),
            incarnation,
            source_shard,
            shard_count,
            destination_shard,
        })
    }
}

impl HelloAck {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.version);
        out.put_u64(self.features.0);
        put_uuid(out, self.cluster_id);
        put_uuid(out, Some(self.host_id.0));
        out.put_u64(self.incarnation);
        out.put_u16(self.shard_count);
        out.put_u16(self.shard.0);
    }

    fn take(body: &mut Reader<'_>) -> Result<HelloAck, DecodeError> {
        let version = body.u16()?;
        let features = Features(body.u64()?);
        let cluster_id = take_uuid(body)?;
        let host_id = take_uuid(body)?.ok_or_else(|| body.invalid(0))?;
        let incarnation = body.u64()?;
        let shard_count = body.u16()?;
        let shard = ShardId(body.u16()?);
        if shard.0 >= shard_count {
            return Err(body.invalid(i64::from(shard.0)));
        }
        let host_id = HostId(host_id);
        Ok(HelloAck { version, features, cluster_id, host_id, incarnation, shard_count, shard })
    }
}

/// The nil UUID stands for none.
fn put_uuid(out: &mut Vec<u8>, id: Option<Uuid>) {
    out.put_bytes(id.unwrap_or(Uuid::nil()).as_bytes());
}

fn take_uuid(body: &mut Reader<'_>) -> Result<Option<Uuid>, DecodeError> {
    let id = Uuid::from_bytes(body.array()?);
    Ok((!id.is_nil()).then_some(id))
}

/// Two bytes of length and the text, cut at a character's end when it is longer than `max`.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str, max: usize) {
    let text = text.get(..text.floor_char_boundary(max)).unwrap_or(text);
    out.put_u16(u16::try_from(text.len()).unwrap_or(0));
    out.put_bytes(text.as_bytes());
}
