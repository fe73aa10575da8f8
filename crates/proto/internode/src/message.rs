//! Typed messages: ping, mutations, hints. A decoder takes the whole payload: bytes left over are an
//! error, because both sides agreed on one version.

use crate::reply::ErrorReply;
use codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use data::MutationRef;
use stdx::{HostId, ShardId, Uuid, WallMicros};

/// Most nodes that one [`MutationForward`] names.
pub const FORWARD_TARGETS_MAX: usize = 255;

/// Payload of [`crate::Verb::Ping`] and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The sender's monotonic clock, nanoseconds; of no meaning to the receiver.
    pub sent: u64,
    /// The sender's wall clock. Releases that do not measure clocks leave it out, and send back the
    /// value that they receive.
    pub wall: Option<WallMicros>,
    /// In an answer: the receiver's wall clock.
    pub answered: Option<WallMicros>,
}

impl Ping {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.sent);
        if let Some(wall) = self.wall {
            out.put_i64(wall.0);
            if let Some(answered) = self.answered {
                out.put_i64(answered.0);
            }
        }
    }

    /// Reads one back.
    ///
    /// # Errors
    /// Not 8, 16 or 24 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Ping, DecodeError> {
        let mut reader = Reader::new(bytes, "ping");
        let sent = reader.u64()?;
        let mut wall = || (reader.remaining() > 0).then(|| reader.i64()).transpose();
        let (first, second) = (wall()?, wall()?);
        let ping = Ping { sent, wall: first.map(WallMicros), answered: second.map(WallMicros) };
        reader.finish()?;
        Ok(ping)
    }
}

/// Origin of a mutation. Unknown flags are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MutationFlags(u8);

impl MutationFlags {
    /// From a client.
    pub const NONE: MutationFlags = MutationFlags(0);
    /// From a read that found differences between replicas.
    pub const READ_REPAIR: MutationFlags = MutationFlags(1);
    /// From the replay of a logged batch.
    pub const BATCH_REPLAY: MutationFlags = MutationFlags(2);

    /// Both sets.
    pub const fn union(self, other: MutationFlags) -> MutationFlags {
        MutationFlags(self.0 | other.0)
    }

    /// Returns true if all of `other` are set.
    pub const fn contains(self, other: MutationFlags) -> bool {
        self.0 & other.0 == other.0
    }

    fn take(reader: &mut Reader<'_>) -> Result<MutationFlags, DecodeError> {
        let flags = reader.u8()?;
        if flags & !(MutationFlags::READ_REPAIR.0 | MutationFlags::BATCH_REPLAY.0) != 0 {
            return Err(reader.invalid(i64::from(flags)));
        }
        Ok(MutationFlags(flags))
    }
}

/// The rest of a payload: one mutation (`docs/formats/mutation.md`). Its header is checked here.
/// The code that applies it checks the rest with the table's schema ([`MutationRef::parse`]).
fn take_mutation<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let bytes = reader.rest();
    match MutationRef::open(bytes) {
        Some(_) => Ok(bytes),
        None => Err(DecodeError {
            what: "mutation",
            offset: 0,
            kind: DecodeErrorKind::Invalid {
                value: i64::from(bytes.first().copied().unwrap_or_default()),
            },
        }),
    }
}

/// Payload of [`crate::Verb::Mutation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// Origin of the mutation.
    pub flags: MutationFlags,
    /// The encoded mutation.
    pub bytes: &'a [u8],
}

impl<'a> Mutation<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.flags.0);
        out.put_bytes(self.bytes);
    }

    /// Reads one back.
    ///
    /// # Errors
    /// Unknown flags, or no mutation of a known version.
    pub fn decode(payload: &'a [u8]) -> Result<Mutation<'a>, DecodeError> {
        let mut reader = Reader::new(payload, "mutation message");
        let flags = MutationFlags::take(&mut reader)?;
        Ok(Mutation { flags, bytes: take_mutation(&mut reader)? })
    }
}

/// One more replica of a forwarded mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardTarget {
    /// The node.
    pub host: HostId,
    /// Its shard that owns the key.
    pub shard: ShardId,
}

/// Payload of [`crate::Verb::MutationForward`]: the receiver applies the mutation, sends it to the
/// others, and passes their answers on as [`ForwardAck`]s, all but the last one of its own responses
/// marked as not the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutationForward<'a> {
    /// The nodes to send it to.
    pub targets: Vec<ForwardTarget>,
    /// The mutation to send.
    pub mutation: Mutation<'a>,
}

impl<'a> MutationForward<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        stdx::invariant!(
            self.targets.len() <= FORWARD_TARGETS_MAX,
            "mutation forwarded to {} nodes",
            self.targets.len()
        );
        out.put_u8(u8::try_from(self.targets.len()).unwrap_or(u8::MAX));
        for target in &self.targets {
            out.put_bytes(target.host.0.as_bytes());
            out.put_u16(target.shard.0);
        }
        self.mutation.encode(out);
    }

    /// Reads one back.
    ///
    /// # Errors
    /// Cut short, unknown flags, or no mutation of a known version.
    pub fn decode(payload: &'a [u8]) -> Result<MutationForward<'a>, DecodeError> {
        let mut reader = Reader::new(payload, "forwarded mutation");
        let count = usize::from(reader.u8()?);
        let mut targets = Vec::with_capacity(count.min(reader.remaining() / 18));
        for _ in 0..count {
            let host = HostId(Uuid::from_bytes(reader.array()?));
            targets.push(ForwardTarget { host, shard: ShardId(reader.u16()?) });
        }
        let flags = MutationFlags::take(&mut reader)?;
        let mutation = Mutation { flags, bytes: take_mutation(&mut reader)? };
        Ok(MutationForward { targets, mutation })
    }
}

/// Response to a [`MutationForward`]: the answer of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAck {
    /// `None`: the receiver itself; else the index into the targets.
    pub target: Option<u8>,
    /// Applied, or why not.
    pub result: Result<(), ErrorReply>,
}

impl ForwardAck {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_bool(self.target.is_some());
        out.put_u8(self.target.unwrap_or_default());
        out.put_bool(self.result.is_err());
        if let Err(error) = &self.result {
            error.encode(out);
        }
    }

    /// Reads one back.
    ///
    /// # Errors
    /// Cut short, or not one.
    pub fn decode(payload: &[u8]) -> Result<ForwardAck, DecodeError> {
        let mut reader = Reader::new(payload, "forwarded acknowledgement");
        let has_target = flag(&mut reader)?;
        let index = reader.u8()?;
        let failed = flag(&mut reader)?;
        let result = if failed {
            Err(ErrorReply::decode(reader.rest())?)
        } else {
            reader.finish()?;
            Ok(())
        };
        Ok(ForwardAck { target: has_target.then_some(index), result })
    }
}

/// A byte that is 0 or 1.
pub(crate) fn flag(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.invalid(i64::from(other))),
    }
}

/// Payload of [`crate::Verb::Hint`]: a write that its replica missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint<'a> {
    /// The replica it was for. The receiver may be another node when tokens moved meanwhile.
    pub target: HostId,
    /// Time of the write, by the coordinator's clock.
    pub created_at: WallMicros,
    /// Smallest `gc_grace_seconds` of its tables then: an older hint could bring deleted data back.
    pub gc_grace_seconds: u32,
    /// The encoded mutation.
    pub bytes: &'a [u8],
}

impl<'a> Hint<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.target.0.as_bytes());
        out.put_i64(self.created_at.0);
        out.put_u32(self.gc_grace_seconds);
        out.put_bytes(self.bytes);
    }

    /// Reads one back.
    ///
    /// # Errors
    /// Cut short, or no mutation of a known version.
    pub fn decode(payload: &'a [u8]) -> Result<Hint<'a>, DecodeError> {
        let mut reader = Reader::new(payload, "hint");
        let target = HostId(Uuid::from_bytes(reader.array()?));
        let created_at = WallMicros(reader.i64()?);
        let gc_grace_seconds = reader.u32()?;
        Ok(Hint { target, created_at, gc_grace_seconds, bytes: take_mutation(&mut reader)? })
    }
}
