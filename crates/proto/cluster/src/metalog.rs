//! The metadata log: one linear sequence of transformations; the snapshot is their fold.
//!
//! File: magic `HXMETA\0\x01`, then entries `length u32 · crc32 u32 · epoch u64 · payload`, the CRC
//! over epoch and payload, all big-endian. After each sync a marker follows: an entry of length
//! `u32::MAX` without payload that says up to which epoch all is durable. Damage at or before the
//! epoch of any later marker is corruption; damage after the last marker is an entry that was never
//! acknowledged (or whose marker a power cut took), and is dropped. An entry that several voters
//! decided has the top bit of its length set and 16 bytes more between epoch and payload: the
//! ballot that proposed it first. See `docs/formats/metalog.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use codec::{DecodeError, DecodeErrorKind, Reader, Writer, crc32};
use schema::{Schema, SchemaChange, SchemaError, encode};
use stdx::{Epoch, Generation, HostId, TableId, Token, Uuid, WallMicros};

use crate::auth::{Auth, AuthChange, Role};
use crate::handover::HandoverStep;
use crate::member::{
    ADDRESS_UNKNOWN, Member, MemberState, put_address, put_state, put_tokens, read_address,
    read_host, read_state, read_tokens,
};
use crate::place_history::PlaceHistory;
use crate::replication::replication_of_params;
use crate::snapshot::{ClusterSnapshot, LocalNode, Truncation};
use crate::topology::{Address, MembershipError};

/// First bytes of the log file; the last one is the format version.
pub const MAGIC: &[u8; 8] = b"HXMETA\0\x01";
/// Largest payload of one entry.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;
const HEADER_BYTES: usize = 16;
const MARKER: u32 = u32::MAX;
/// In an entry's length: the ballot that proposed it stands before the payload.
const VOTED: u32 = 1 << 31;
const ORIGIN_BYTES: usize = 16;

/// One entry of the metadata log.
#[derive(Clone, Debug, PartialEq)]
pub enum Transformation {
    /// The first entry: the identity of this node.
    Bootstrap(LocalNode),
    /// A schema change.
    Schema(Box<SchemaChange>),
    /// A table was emptied.
    Truncate {
        /// The table.
        table: TableId,
        /// The data that is gone.
        truncation: Truncation,
    },
    /// A role is created, or its own properties are replaced; what it may do stays.
    PutRole {
        /// Its name.
        name: String,
        /// Its properties.
        role: Role,
    },
    /// Datacenter or rack of the only member changed in its configuration.
    Locate {
        /// New datacenter.
        datacenter: String,
        /// New rack.
        rack: String,
    },
    /// A node begins to join: `member` is `Joining` and has the tokens it will own.
    Join {
        /// Who.
        member: Arc<Member>,
    },
    /// The next step of a member; [`crate::topology`] has the table of steps.
    SetState {
        /// Who.
        host: HostId,
        /// Its new state.
        state: MemberState,
    },
    /// A member that has left (`LeaveHandover`), or does not join after all (`Joining`), is out.
    Leave {
        /// Who.
        host: HostId,
    },
    /// A node begins to take the place of a dead one: `member` is `Joining`, has its tokens,
    /// datacenter and rack, and names it in `replaces`.
    Replace {
        /// The dead one.
        old: HostId,
        /// The new one.
        member: Arc<Member>,
    },
    /// Members have other addresses. Checked when all are in, so that two may swap theirs.
    Readdress {
        /// The new addresses, each host once.
        changes: Vec<Address>,
    },
    /// Others decide from the next entry on.
    SetVoters {
        /// Who, each once.
        hosts: Vec<HostId>,
    },
    /// Features are in use from here on; every member can do them.
    Features {
        /// One bit each, added to those in use.
        enable: u64,
    },
    /// A member describes itself when it starts.
    Describe {
        /// The member.
        host: HostId,
        /// Its shards.
        shards: u16,
        /// Its features, one bit each.
        features: u64,
        /// Its release.
        release: String,
    },
    /// A member begins to move to other tokens.
    Move {
        /// Who.
        host: HostId,
        /// Ascending.
        tokens: Vec<Token>,
    },
    /// A member is out at once, its data not copied anywhere.
    Evict {
        /// Who.
        host: HostId,
    },
    /// Any other change to roles and permissions.
    Auth(AuthChange),
    /// A step of the handover of lightweight transactions to other replicas.
    HandOver(HandoverStep),
    /// Several changes that happen together or not at all; none of them is a group.
    Group(Vec<Transformation>),
}

/// Reason why a log cannot be read or an entry not be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetaLogError {
    /// The file is not a metadata log of this version.
    #[error("not a metadata log of version 1: wrong first bytes")]
    Magic,
    /// A complete entry does not check out.
    #[error("metadata log is corrupt at offset {offset}: {what}; restore the file from a backup")]
    Corrupt {
        /// Byte offset of the entry.
        offset: u64,
        /// Description of the fault.
        what: String,
    },
    /// The first entry is not `Bootstrap`, or a later one is.
    #[error("metadata log entry {epoch} is out of place")]
    OutOfPlace {
        /// The entry's number.
        epoch: u64,
    },
    /// The entry does not fit the state before it.
    #[error("metadata log entry does not apply: {0}")]
    Schema(#[from] SchemaError),
    /// The change of membership does not fit the cluster.
    #[error(transparent)]
    Membership(#[from] MembershipError),
}

pub(crate) fn text(out: &mut Vec<u8>, s: &str) {
    out.put_bytes_vint(s.as_bytes());
}

fn put_host(out: &mut Vec<u8>, host: HostId) {
    out.put_bytes(host.0.as_bytes());
}

pub(crate) fn read_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = r.bytes_vint()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| r.error(DecodeErrorKind::Utf8))
}

pub(crate) fn read_count(r: &mut Reader<'_>) -> Result<usize, DecodeError> {
    let n = usize::try_from(r.vint_unsigned()?).unwrap_or(usize::MAX);
    r.check_count(n, 1)
}

impl Transformation {
    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Transformation::Bootstrap(node) => {
                out.put_u8(1);
                out.put_bytes(node.host_id.0.as_bytes());
                text(out, &node.cluster_name);
                text(out, &node.datacenter);
                text(out, &node.rack);
                out.put_vint_unsigned(node.tokens.len() as u64);
                for token in &node.tokens {
                    out.put_i64(token.0);
                }
                out.put_i64(node.created_at.0);
            }
            Transformation::Schema(change) => {
                out.put_u8(2);
                encode::change(out, change);
            }
            Transformation::Truncate { table, truncation } => {
                out.put_u8(3);
                out.put_bytes(table.0.as_bytes());
                out.put_i64(truncation.truncated_at.0);
                out.put_vint_unsigned(truncation.positions.len() as u64);
                for (segment, offset) in &truncation.positions {
                    out.put_u64(*segment);
                    out.put_u64(*offset);
                }
                out.put_vint_unsigned(truncation.generations.len() as u64);
                for generation in &truncation.generations {
                    out.put_u64(generation.0);
                }
            }
            Transformation::PutRole { name, role } => {
                out.put_u8(4);
                text(out, name);
                out.put_bool(role.is_superuser);
                out.put_bool(role.can_login);
                text(out, &role.salted_hash);
            }
            Transformation::Locate { datacenter, rack } => {
                out.put_u8(5);
                text(out, datacenter);
                text(out, rack);
            }
            Transformation::Join { member } => {
                out.put_u8(6);
                member.encode(out);
            }
            Transformation::SetState { host, state } => {
                out.put_u8(7);
                put_host(out, *host);
                put_state(out, *state);
            }
            Transformation::Leave { host } => {
                out.put_u8(8);
                put_host(out, *host);
            }
            Transformation::Replace { old, member } => {
                out.put_u8(9);
                put_host(out, *old);
                member.encode(out);
            }
            Transformation::Readdress { changes } => {
                out.put_u8(10);
                out.put_vint_unsigned(changes.len() as u64);
                for change in changes {
                    put_host(out, change.host);
                    put_address(out, change.storage);
                    put_address(out, change.rpc);
                }
            }
            Transformation::SetVoters { hosts } => {
                out.put_u8(11);
                out.put_vint_unsigned(hosts.len() as u64);
                for host in hosts {
                    put_host(out, *host);
                }
            }
            Transformation::Features { enable } => {
                out.put_u8(12);
                out.put_u64(*enable);
            }
            Transformation::Describe { host, shards, features, release } => {
                out.put_u8(13);
                put_host(out, *host);
                out.put_u16(*shards);
                out.put_u64(*features);
                text(out, release);
            }
            Transformation::Move { host, tokens } => {
                out.put_u8(14);
                put_host(out, *host);
                put_tokens(out, tokens);
            }
            Transformation::Evict { host } => {
                out.put_u8(15);
                put_host(out, *host);
            }
            Transformation::Group(changes) => {
                out.put_u8(16);
                out.put_vint_unsigned(changes.len() as u64);
                for change in changes {
                    let mut one = Vec::new();
                    change.encode(&mut one);
                    out.put_bytes_vint(&one);
                }
            }
            Transformation::Auth(change) => {
                out.put_u8(17);
                change.encode(out);
            }
            Transformation::HandOver(step) => {
                out.put_u8(18);
                step.encode(out);
            }
        }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Anything that [`Transformation::encode`] does not write.
    pub fn decode(payload: &[u8]) -> Result<Transformation, DecodeError> {
        let r = &mut Reader::new(payload, "metadata log entry");
        let entry = match r.u8()? {
            1 => {
                let host_id = HostId(Uuid::from_bytes(r.array::<16>()?));
                let cluster_name = read_text(r)?;
                let datacenter = read_text(r)?;
                let rack = read_text(r)?;
                let mut tokens = Vec::new();
                for _ in 0..read_count(r)? {
                    tokens.push(Token(r.i64()?));
                }
                let created_at = WallMicros(r.i64()?);
                let node =
                    LocalNode { host_id, cluster_name, datacenter, rack, tokens, created_at };
                Transformation::Bootstrap(node)
            }
            2 => Transformation::Schema(Box::new(encode::read_change(r)?)),
            3 => {
                let table = TableId(Uuid::from_bytes(r.array::<16>()?));
                let mut truncation =
                    Truncation { truncated_at: WallMicros(r.i64()?), ..Truncation::default() };
                for _ in 0..read_count(r)? {
                    truncation.positions.push((r.u64()?, r.u64()?));
                }
                for _ in 0..read_count(r)? {
                    truncation.generations.push(Generation(r.u64()?));
                }
                Transformation::Truncate { table, truncation }
            }
            4 => {
                let name = read_text(r)?;
                let is_superuser = r.bool()?;
                let can_login = r.bool()?;
                let role = Role { is_superuser, can_login, salted_hash: read_text(r)? };
                Transformation::PutRole { name, role }
            }
            5 => {
                let datacenter = read_text(r)?;
                Transformation::Locate { datacenter, rack: read_text(r)? }
            }
            6 => Transformation::Join { member: Arc::new(Member::decode(r)?) },
            7 => Transformation::SetState { host: read_host(r)?, state: read_state(r)? },
            8 => Transformation::Leave { host: read_host(r)? },
            9 => {
                let old = read_host(r)?;
                Transformation::Replace { old, member: Arc::new(Member::decode(r)?) }
            }
            10 => {
                let mut changes = Vec::new();
                for _ in 0..read_count(r)? {
                    let host = read_host(r)?;
                    let storage = read_address(r)?;
                    changes.push(Address { host, storage, rpc: read_address(r)? });
                }
                Transformation::Readdress { changes }
            }
            11 => {
                let mut hosts = Vec::new();
                for _ in 0..read_count(r)? {
                    hosts.push(read_host(r)?);
                }
                Transformation::SetVoters { hosts }
            }
            12 => Transformation::Features { enable: r.u64()? },
            13 => {
                let host = read_host(r)?;
                let shards = r.u16()?;
                let features = r.u64()?;
                Transformation::Describe { host, shards, features, release: read_text(r)? }
            }
            14 => {
                let host = read_host(r)?;
                Transformation::Move { host, tokens: read_tokens(r)? }
            }
            15 => Transformation::Evict { host: read_host(r)? },
            16 => {
                let mut changes = Vec::new();
                for _ in 0..read_count(r)? {
                    let one = r.bytes_vint()?;
                    if one.first() == Some(&16) {
                        return Err(r.invalid(16));
                    }
                    changes.push(Transformation::decode(one)?);
                }
                Transformation::Group(changes)
            }
            17 => Transformation::Auth(AuthChange::read(r)?),
            18 => Transformation::HandOver(HandoverStep::read(r)?),
            other => return Err(r.invalid(i64::from(other))),
        };
        r.finish()?;
        Ok(entry)
    }

    /// Appends the framed entry, as it stands in the file.
    pub fn encode_entry(&self, epoch: Epoch, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        self.encode(&mut payload);
        encode_frame(epoch, None, &payload, out);
    }
}

/// Appends the frame of an entry. `origin` is the ballot that proposed it first, if several voters
/// decided it.
pub fn encode_frame(epoch: Epoch, origin: Option<Uuid>, payload: &[u8], out: &mut Vec<u8>) {
    let length = payload.len();
    stdx::invariant!(length <= ENTRY_BYTES_MAX, "metadata log entry of {length} bytes");
    let start = out.len();
    out.put_u32(length as u32 | if origin.is_some() { VOTED } else { 0 });
    out.put_u32(0);
    out.put_u64(epoch.0);
    if let Some(origin) = origin {
        out.put_bytes(origin.as_bytes());
    }
    out.put_bytes(payload);
    let crc = out.get(start + 8..).map_or(0, crc32);
    out.patch_u32(start + 4, crc);
}

/// One entry as it stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framed<'a> {
    /// Its number.
    pub epoch: Epoch,
    /// The ballot that proposed it first; `None` when one voter decided alone.
    pub origin: Option<Uuid>,
    /// The encoded transformation.
    pub payload: &'a [u8],
}

/// Reads one frame that [`encode_frame`] made, with nothing after it.
///
/// # Errors
/// A description of the fault.
pub fn decode_frame(bytes: &[u8]) -> Result<Framed<'_>, &'static str> {
    match read_entry(bytes)? {
        Frame::Entry { framed, after: [] } => Ok(framed),
        Frame::Entry { .. } => Err("bytes after the entry"),
        Frame::Marker { .. } => Err("a marker where an entry belongs"),
    }
}

/// Appends the marker that says "everything up to `epoch` is durable". Written after the sync of
/// that entry and before its statement is answered; needs no sync of its own.
pub fn encode_marker(epoch: Epoch, out: &mut Vec<u8>) {
    out.put_u32(MARKER);
    out.put_u32(crc32(&epoch.0.to_be_bytes()));
    out.put_u64(epoch.0);
}

/// Returns true if `bytes` hold, at any offset, a marker for `epoch` or a later one.
fn has_marker(bytes: &[u8], epoch: u64) -> bool {
    bytes.windows(HEADER_BYTES).any(|w| {
        let mut r = Reader::new(w, "metadata log marker");
        let parts = (|| Ok::<_, DecodeError>((r.u32()?, r.u32()?, r.u64()?)))();
        parts.is_ok_and(|(length, crc, marked)| {
            length == MARKER && marked >= epoch && crc == crc32(&marked.to_be_bytes())
        })
    })
}

/// Content of a log file.
#[derive(Debug)]
pub struct LoadedLog {
    /// The state after all entries; `None` for a log without any.
    pub snapshot: Option<ClusterSnapshot>,
    /// Length of the valid part: the file is cut to this before the next append.
    pub valid_bytes: u64,
    /// Bytes of an incomplete last entry that was never acknowledged.
    pub dropped_bytes: u64,
    /// Offset and length in the file of every entry's frame, from epoch 1 on.
    pub places: Vec<(u64, u32)>,
}

/// Reads a whole log file and folds it onto `base` (the schema of the built-in keyspaces).
///
/// # Errors
/// `Magic`, `Corrupt`, `OutOfPlace`, `Schema`: see [`MetaLogError`].
pub fn load(bytes: &[u8], base: &Schema) -> Result<LoadedLog, MetaLogError> {
    let total = bytes.len() as u64;
    if bytes.len() < MAGIC.len() && MAGIC.starts_with(bytes) {
        // The process ended while the file was created.
        return Ok(LoadedLog {
            snapshot: None,
            valid_bytes: 0,
            dropped_bytes: total,
            places: Vec::new(),
        });
    }
    let Some(mut rest) = bytes.strip_prefix(MAGIC.as_slice()) else {
        return Err(MetaLogError::Magic);
    };
    let mut snapshot: Option<ClusterSnapshot> = None;
    let mut places = Vec::new();
    while !rest.is_empty() {
        let offset = total - rest.len() as u64;
        let corrupt = |what: String| MetaLogError::Corrupt { offset, what };
        let expected = snapshot.as_ref().map_or(1, |s| s.epoch.0 + 1);
        let (payload, after) = match read_entry(rest) {
            Ok(Frame::Entry { framed, after }) if framed.epoch.0 == expected => {
                (framed.payload, after)
            }
            Ok(Frame::Marker { epoch, after }) if epoch + 1 == expected => {
                rest = after;
                continue;
            }
            Ok(Frame::Entry { framed: Framed { epoch: Epoch(epoch), .. }, .. })
            | Ok(Frame::Marker { epoch, .. }) => {
                return Err(corrupt(format!("entry number {epoch}, expected {expected}")));
            }
            Err(what) if has_marker(rest, expected) => return Err(corrupt(what.to_owned())),
            Err(_) => {
                let dropped_bytes = rest.len() as u64;
                return Ok(LoadedLog { snapshot, valid_bytes: offset, dropped_bytes, places });
            }
        };
        let entry = Transformation::decode(payload).map_err(|e| corrupt(e.to_string()))?;
        snapshot = Some(match snapshot {
            None => bootstrap(&entry, base)?,
            Some(before) => before.apply(&entry)?,
        });
        places.push((offset, (rest.len() - after.len()) as u32));
        rest = after;
    }
    Ok(LoadedLog { snapshot, valid_bytes: total, dropped_bytes: 0, places })
}

enum Frame<'a> {
    Entry { framed: Framed<'a>, after: &'a [u8] },
    Marker { epoch: u64, after: &'a [u8] },
}

/// The first entry or marker of `bytes`, checksum verified; else what is wrong with it.
fn read_entry(bytes: &[u8]) -> Result<Frame<'_>, &'static str> {
    let mut r = Reader::new(bytes, "metadata log entry");
    let header = (|| Ok::<_, DecodeError>((r.u32()?, r.u32()?)))();
    let (length, crc) = header.map_err(|_| "incomplete header")?;
    if length == MARKER {
        let epoch = r.u64().map_err(|_| "incomplete marker")?;
        if crc32(&epoch.to_be_bytes()) != crc {
            return Err("checksum mismatch in a marker");
        }
        return Ok(Frame::Marker { epoch, after: r.peek_rest() });
    }
    let is_voted = length & VOTED != 0;
    let length = (length & !VOTED) as usize;
    // No entry is empty. A marker whose first sector a power cut erased looks like an empty entry:
    // its checksum is that of an entry with nothing after the epoch.
    if length == 0 {
        return Err("an entry without a payload");
    }
    if length > ENTRY_BYTES_MAX {
        return Err("entry length over the limit");
    }
    let before = if is_voted { 8 + ORIGIN_BYTES } else { 8 };
    let body = r.bytes(length + before).map_err(|_| "incomplete entry")?;
    if crc32(body) != crc {
        return Err("checksum mismatch");
    }
    let (epoch, mut payload) = body.split_first_chunk::<8>().ok_or("incomplete entry")?;
    let mut origin = None;
    if is_voted {
        let (ballot, rest) = payload.split_first_chunk::<16>().ok_or("incomplete entry")?;
        origin = Some(Uuid::from_bytes(*ballot));
        payload = rest;
    }
    let framed = Framed { epoch: Epoch(u64::from_be_bytes(*epoch)), origin, payload };
    Ok(Frame::Entry { framed, after: r.peek_rest() })
}

/// The snapshot after the first entry, as its founder sees it.
///
/// The founder becomes the first member and voter. The entry has no addresses: it tells them by
/// `Readdress` when it starts, as it does when they change.
///
/// # Errors
/// `OutOfPlace` when it is not `Bootstrap`.
pub fn bootstrap(entry: &Transformation, base: &Schema) -> Result<ClusterSnapshot, MetaLogError> {
    let Transformation::Bootstrap(local) = entry else {
        return Err(MetaLogError::OutOfPlace { epoch: 1 });
    };
    let mut encoded = Vec::new();
    entry.encode(&mut encoded);
    let mut tokens = local.tokens.clone();
    tokens.sort_unstable();
    let founder = Member {
        host_id: local.host_id,
        storage: ADDRESS_UNKNOWN,
        rpc: ADDRESS_UNKNOWN,
        datacenter: local.datacenter.clone(),
        rack: local.rack.clone(),
        tokens,
        moving_to: Vec::new(),
        state: MemberState::Normal,
        replaces: None,
        shards: 0,
        features: 0,
        release: String::new(),
    };
    Ok(ClusterSnapshot {
        epoch: Epoch(1),
        cluster_id: cluster_id(&encoded),
        local: local.clone(),
        members: BTreeMap::from([(local.host_id, Arc::new(founder))]),
        places: PlaceHistory::since(Epoch(1)),
        voters: vec![local.host_id],
        features: 0,
        schema: Arc::new(base.clone()),
        auth: Arc::default(),
        handovers: BTreeMap::new(),
        truncations: BTreeMap::new(),
        departed: Arc::default(),
    })
}

/// Two clusters have another founder or another time, so their ids differ. Version 8 of RFC 9562:
/// own bits.
fn cluster_id(first_entry: &[u8]) -> Uuid {
    let (high, low) = codec::murmur3_x64_128(first_entry, 0);
    let bits = u128::from(high) << 64 | u128::from(low);
    let version = bits & !(0xf << 76) | 0x8 << 76;
    Uuid::from_u128(version & !(0x3 << 62) | 0x2 << 62)
}

impl ClusterSnapshot {
    /// The snapshot after one more entry.
    ///
    /// # Errors
    /// `OutOfPlace`, `Schema`, `Membership`: the entry does not fit; nothing is changed.
    pub fn apply(&self, entry: &Transformation) -> Result<ClusterSnapshot, MetaLogError> {
        let mut next = self.clone();
        next.epoch = Epoch(self.epoch.0 + 1);
        match entry {
            Transformation::Group(changes) => {
                for change in changes {
                    next.change(change)?;
                }
            }
            entry => next.change(entry)?,
        }
        for host in self.members.keys().filter(|host| !next.members.contains_key(*host)) {
            Arc::make_mut(&mut next.departed).insert(*host);
        }
        next.places.follow(next.epoch, &self.members, &next.members);
        next.refresh_local();
        Ok(next)
    }

    /// One change in place; when it fails the snapshot is thrown away.
    fn change(&mut self, change: &Transformation) -> Result<(), MetaLogError> {
        match change {
            Transformation::Bootstrap(_) | Transformation::Group(_) => {
                return Err(MetaLogError::OutOfPlace { epoch: self.epoch.0 });
            }
            Transformation::Schema(change) => {
                self.check_replication_change(change)?;
                self.schema = Arc::new(self.schema.apply(change)?);
                self.settle_handovers();
                if let Some(auth) = self.auth.after_schema_change(change) {
                    self.auth = Arc::new(Auth { changed_at: self.epoch, ..auth });
                }
                let schema = &self.schema;
                self.truncations.retain(|table, _| schema.table_by_id(*table).is_some());
            }
            Transformation::Truncate { table, truncation } => {
                let truncation = Truncation { epoch: self.epoch, ..truncation.clone() };
                self.truncations.insert(*table, truncation);
            }
            Transformation::PutRole { name, role } => {
                self.change_auth(|auth| auth.put_role(name, role));
            }
            Transformation::HandOver(step) => self.hand_over(step)?,
            Transformation::Auth(change) => self.change_auth(|auth| auth.apply(change)),
            Transformation::Locate { datacenter, rack } => self.locate(datacenter, rack)?,
            Transformation::Join { member } => self.join(member)?,
            Transformation::SetState { host, state } => self.set_state(*host, *state)?,
            Transformation::Leave { host } => self.leave(*host)?,
            Transformation::Replace { old, member } => self.replace(*old, member)?,
            Transformation::Readdress { changes } => self.readdress(changes)?,
            Transformation::SetVoters { hosts } => self.set_voters(hosts)?,
            Transformation::Features { enable } => self.enable(*enable)?,
            Transformation::Describe { host, shards, features, release } => {
                self.describe(*host, *shards, *features, release)?;
            }
            Transformation::Move { host, tokens } => self.move_to(*host, tokens)?,
            Transformation::Evict { host } => self.evict(*host)?,
        }
        Ok(())
    }

    fn change_auth(&mut self, change: impl FnOnce(&mut Auth)) {
        let auth = Arc::make_mut(&mut self.auth);
        auth.changed_at = self.epoch;
        change(auth);
    }

    fn check_replication_change(&self, change: &SchemaChange) -> Result<(), MetaLogError> {
        let (name, params) = match change {
            SchemaChange::CreateKeyspace { name, params }
            | SchemaChange::AlterKeyspace { name, params } => (name, params),
            _ => return Ok(()),
        };
        let old = self.schema.keyspace(name).map(|k| self.replication_of(k));
        let (begun, new) = (self.handovers.get(&**name), replication_of_params(params));
        // The entry that begins it stands before this change.
        if begun.is_some_and(|h| h.since != self.epoch) && old.as_ref() != Some(&new) {
            let keyspace = name.to_string();
            return Err(MembershipError::HandingOver { keyspace }.into());
        }
        Ok(self.check_keyspace_change(old.as_ref(), &replication_of_params(params))?)
    }
}
