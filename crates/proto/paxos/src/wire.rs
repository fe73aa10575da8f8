//! Messages between a proposer and the acceptors of a partition, as bytes.
//!
//! Owns the payloads of the Paxos verbs. Never says which verb or connection carries them.
//!
//! ```text
//! message: version u8 · table 16 · key (u16, bytes) · epoch u64 · natural hosts · pending hosts
//!          · request · read (v, bytes; empty: nothing is read)
//! hosts: count u8 · 16 each
//! request: tag u8 · 1 prepare: ballot · write bool | 2 propose: value | 3 commit: value
//!          | 4 refresh: ballot · value | 5 prune: ballot | 6 conclude: value, not empty
//! answer: version u8 · tag u8 · 0 reply: reply · page (v, bytes) | 1 wrong epoch: ballot · u64
//! reply: tag u8 · 1 promise: ballot · permit (0 | 1 ballot) · accepted? · committed? · ballot
//!        | 2 accepted: ballot | 3 committed: ballot | 4 refreshed: ballot · (0 | 1 ballot)
//!        | 5 rejected: ballot · (1 ballot | 2 u64 · u64 | 3)
//! prunes: version u8 · one or more of: table 16 · key (u16, bytes) · ballot
//! value: ballot · origin · (0 | 1 v, bytes)       ballot: the 16 bytes of its UUID
//! ```

use codec::{DecodeError, Reader, Writer};
use smallvec::SmallVec;
use stdx::{Epoch, HostId, TableId, Uuid};

use crate::acceptor::{Permit, Promise, Rejection, Reply, Request};
use crate::ballot::Ballot;
use crate::plan::TARGETS_MAX;
use crate::value::{Accepted, Commit};

/// The version this build writes.
pub const VERSION: u8 = 1;

/// Hosts of an electorate.
pub type Hosts = SmallVec<[HostId; 4]>;

/// Voters for a token, in any order. Two plans with equal electorates have equal quorums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Electorate {
    /// Natural replicas.
    pub natural: Hosts,
    /// Pending ones.
    pub pending: Hosts,
}

impl Electorate {
    /// Returns true if the same hosts are natural, and the same pending.
    pub fn is_same(&self, other: &Electorate) -> bool {
        let same = |a: &Hosts, b: &Hosts| a.len() == b.len() && a.iter().all(|h| b.contains(h));
        same(&self.natural, &other.natural) && same(&self.pending, &other.pending)
    }
}

/// To an acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<V> {
    /// The table.
    pub table: TableId,
    /// The partition key, serialised.
    pub key: Vec<u8>,
    /// Epoch of the proposer's plan.
    pub epoch: Epoch,
    /// Electorate of the plan; for a commit all natural and pending replicas, whatever the scope.
    pub electorate: Electorate,
    /// The request.
    pub request: Request<V>,
    /// An encoded read, of a prepare only.
    pub read: Vec<u8>,
}

/// From an acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<V> {
    /// The acceptor's own.
    Reply {
        /// It.
        reply: Reply<V>,
        /// The page that was read, of a promise only.
        page: Vec<u8>,
    },
    /// The electorate has changed since `epoch`. A commit was applied, any other request was not
    /// processed.
    WrongEpoch {
        /// The round or commit.
        ballot: Ballot,
        /// The replica's epoch.
        epoch: Epoch,
    },
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    out.put_bytes(ballot.to_uuid().as_bytes());
}

fn take_ballot(r: &mut Reader<'_>) -> Result<Ballot, DecodeError> {
    let uuid = Uuid::from_bytes(r.array()?);
    Ballot::from_uuid(uuid).map_err(|_| r.invalid(0))
}

fn put_value<V: AsRef<[u8]>>(out: &mut Vec<u8>, ballot: Ballot, origin: Ballot, value: Option<&V>) {
    put_ballot(out, ballot);
    put_ballot(out, origin);
    out.put_bool(value.is_some());
    if let Some(value) = value {
        out.put_bytes_vint(value.as_ref());
    }
}

type Value<V> = (Ballot, Ballot, Option<V>);

fn take_value<V: From<Vec<u8>>>(r: &mut Reader<'_>) -> Result<Value<V>, DecodeError> {
    let (ballot, origin) = (take_ballot(r)?, take_ballot(r)?);
    if !r.bool()? {
        return Ok((ballot, origin, None));
    }
    let bytes = r.bytes_vint()?;
    if bytes.is_empty() {
        // The row of system.paxos could not tell it from the empty value.
        return Err(r.invalid(0));
    }
    Ok((ballot, origin, Some(V::from(bytes.to_vec()))))
}

fn put_commit<V: AsRef<[u8]>>(out: &mut Vec<u8>, c: &Commit<V>) {
    put_value(out, c.ballot, c.origin, c.value.as_ref());
}

fn take_commit<V: From<Vec<u8>>>(r: &mut Reader<'_>) -> Result<Commit<V>, DecodeError> {
    let (ballot, origin, value) = take_value(r)?;
    Ok(Commit { ballot, origin, value })
}

fn put_accepted<V: AsRef<[u8]>>(out: &mut Vec<u8>, a: &Accepted<V>) {
    put_value(out, a.ballot, a.origin, a.value.as_ref());
}

fn take_accepted<V: From<Vec<u8>>>(r: &mut Reader<'_>) -> Result<Accepted<V>, DecodeError> {
    let (ballot, origin, value) = take_value(r)?;
    Ok(Accepted { ballot, origin, value })
}

fn take_option<T>(
    r: &mut Reader<'_>,
    take: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if r.bool()? { take(r).map(Some) } else { Ok(None) }
}

fn put_hosts(out: &mut Vec<u8>, hosts: &Hosts) {
    let count = u8::try_from(hosts.len()).unwrap_or(u8::MAX);
    stdx::invariant!(
        usize::from(count) <= TARGETS_MAX,
        "paxos: an electorate of {} nodes, its reader takes {TARGETS_MAX}",
        hosts.len()
    );
    out.put_u8(count);
    for host in hosts {
        out.put_bytes(host.0.as_bytes());
    }
}

fn take_hosts(r: &mut Reader<'_>) -> Result<Hosts, DecodeError> {
    let count = usize::from(r.u8()?);
    if count > TARGETS_MAX {
        return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    r.check_count(count, 16)?;
    (0..count).map(|_| Ok(HostId(Uuid::from_bytes(r.array()?)))).collect()
}

fn take_version(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    match r.u8()? {
        VERSION => Ok(()),
        other => Err(r.invalid(i64::from(other))),
    }
}

/// Most prunes of one message.
pub const PRUNES_MAX: usize = 256;

/// One of several prunes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prune<'a> {
    /// The table.
    pub table: TableId,
    /// The partition key, serialised.
    pub key: &'a [u8],
    /// Ballot up to which every replica has all chosen values.
    pub ballot: Ballot,
}

/// Prunes of several partitions on their way to one node; what
/// [`Request::Prune`] is for one.
#[derive(Debug, Default)]
pub struct Prunes {
    bytes: Vec<u8>,
    count: usize,
}

impl Prunes {
    /// Adds one; `key` is the serialised partition key, at most 65,535 bytes, as all are. At most
    /// [`PRUNES_MAX`] may be added.
    pub fn push(&mut self, table: TableId, key: &[u8], ballot: Ballot) {
        if self.count == 0 {
            self.bytes.put_u8(VERSION);
        }
        self.bytes.put_bytes(table.0.as_bytes());
        let put = self.bytes.put_bytes_u16(key, "partition key");
        stdx::invariant!(put.is_ok(), "paxos: prune of a key of {} bytes", key.len());
        put_ballot(&mut self.bytes, ballot);
        self.count += 1;
    }

    /// Returns the number of prunes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Payload of the message.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Another version, bytes that are none, none at all, or more than [`PRUNES_MAX`].
    pub fn decode(payload: &[u8]) -> Result<Vec<Prune<'_>>, DecodeError> {
        let r = &mut Reader::new(payload, "paxos prunes");
        take_version(r)?;
        let mut prunes = Vec::new();
        loop {
            let table = TableId(Uuid::from_bytes(r.array()?));
            let key = r.bytes_u16()?;
            prunes.push(Prune { table, key, ballot: take_ballot(r)? });
            if r.remaining() == 0 {
                return Ok(prunes);
            }
            if prunes.len() == PRUNES_MAX {
                return Err(r.invalid(i64::try_from(PRUNES_MAX).unwrap_or(i64::MAX)));
            }
        }
    }
}

/// The parts of a message that need not be owned to be sent.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef<'a, V> {
    /// See [`Message`].
    pub table: TableId,
    /// At most 65535 bytes.
    pub key: &'a [u8],
    /// See [`Message`].
    pub epoch: Epoch,
    /// See [`Message`].
    pub electorate: &'a Electorate,
    /// See [`Message`].
    pub request: &'a Request<V>,
    /// See [`Message`].
    pub read: &'a [u8],
}

impl<V: AsRef<[u8]>> MessageRef<'_, V> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        out.put_bytes(self.table.0.as_bytes());
        let put = out.put_bytes_u16(self.key, "partition key");
        stdx::invariant!(put.is_ok(), "a key of {} bytes", self.key.len());
        out.put_u64(self.epoch.0);
        put_hosts(out, &self.electorate.natural);
        put_hosts(out, &self.electorate.pending);
        match self.request {
            Request::Prepare { ballot, write } => {
                out.put_u8(1);
                put_ballot(out, *ballot);
                out.put_bool(*write);
            }
            Request::Propose(value) => {
                out.put_u8(2);
                put_accepted(out, value);
            }
            Request::Commit(commit) => {
                out.put_u8(3);
                put_commit(out, commit);
            }
            Request::Refresh { ballot, commit } => {
                out.put_u8(4);
                put_ballot(out, *ballot);
                put_commit(out, commit);
            }
            Request::Prune { ballot } => {
                out.put_u8(5);
                put_ballot(out, *ballot);
            }
            Request::Conclude(value) => {
                out.put_u8(6);
                put_accepted(out, value);
            }
        }
        out.put_bytes_vint(self.read);
    }
}

impl<V: AsRef<[u8]> + From<Vec<u8>>> Message<V> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Message { table, key, epoch, electorate, request, read } = self;
        let (table, epoch) = (*table, *epoch);
        MessageRef { table, key, epoch, electorate, request, read }.encode(out);
    }

    /// Reads one back. The key, the value and the read are not looked into.
    ///
    /// # Errors
    /// No message of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Message<V>, DecodeError> {
        let mut reader = Reader::new(bytes, "paxos message");
        let r = &mut reader;
        take_version(r)?;
        let table = TableId(Uuid::from_bytes(r.array()?));
        let key = r.bytes_u16()?.to_vec();
        let epoch = Epoch(r.u64()?);
        let electorate = Electorate { natural: take_hosts(r)?, pending: take_hosts(r)? };
        let request = match r.u8()? {
            1 => Request::Prepare { ballot: take_ballot(r)?, write: r.bool()? },
            2 => Request::Propose(take_accepted(r)?),
            3 => Request::Commit(take_commit(r)?),
            4 => Request::Refresh { ballot: take_ballot(r)?, commit: take_commit(r)? },
            5 => Request::Prune { ballot: take_ballot(r)? },
            6 => {
                let value = take_accepted(r)?;
                if value.value.is_none() {
                    return Err(r.invalid(0));
                }
                Request::Conclude(value)
            }
            other => return Err(r.invalid(i64::from(other))),
        };
        let read = r.bytes_vint()?.to_vec();
        reader.finish()?;
        Ok(Message { table, key, epoch, electorate, request, read })
    }
}

impl<V: AsRef<[u8]> + From<Vec<u8>>> Answer<V> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        match self {
            Answer::Reply { reply, page } => {
                out.put_u8(0);
                put_reply(out, reply);
                out.put_bytes_vint(page);
            }
            Answer::WrongEpoch { ballot, epoch } => {
                out.put_u8(1);
                put_ballot(out, *ballot);
                out.put_u64(epoch.0);
            }
        }
    }

    /// Reads one back. The page and the values are not looked into.
    ///
    /// # Errors
    /// No answer of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Answer<V>, DecodeError> {
        let mut reader = Reader::new(bytes, "paxos answer");
        let r = &mut reader;
        take_version(r)?;
        let answer = match r.u8()? {
            0 => Answer::Reply { reply: take_reply(r)?, page: r.bytes_vint()?.to_vec() },
            1 => Answer::WrongEpoch { ballot: take_ballot(r)?, epoch: Epoch(r.u64()?) },
            other => return Err(r.invalid(i64::from(other))),
        };
        reader.finish()?;
        Ok(answer)
    }
}

fn put_reply<V: AsRef<[u8]>>(out: &mut Vec<u8>, reply: &Reply<V>) {
    match reply {
        Reply::Promise(Promise { ballot, permit, accepted, committed, promised_write }) => {
            out.put_u8(1);
            put_ballot(out, *ballot);
            match permit {
                Permit::Promised => out.put_bool(false),
                Permit::ReadOnly { newest } => {
                    out.put_bool(true);
                    put_ballot(out, *newest);
                }
            }
            out.put_bool(accepted.is_some());
            if let Some(accepted) = accepted {
                put_accepted(out, accepted);
            }
            out.put_bool(committed.is_some());
            if let Some(committed) = committed {
                put_commit(out, committed);
            }
            put_ballot(out, *promised_write);
        }
        Reply::Accepted { ballot } => {
            out.put_u8(2);
            put_ballot(out, *ballot);
        }
        Reply::Committed { ballot } => {
            out.put_u8(3);
            put_ballot(out, *ballot);
        }
        Reply::Refreshed { ballot, superseded } => {
            out.put_u8(4);
            put_ballot(out, *ballot);
            out.put_bool(superseded.is_some());
            if let Some(newer) = superseded {
                put_ballot(out, *newer);
            }
        }
        Reply::Rejected { ballot, why } => {
            out.put_u8(5);
            put_ballot(out, *ballot);
            match why {
                Rejection::Newer(newer) => {
                    out.put_u8(1);
                    put_ballot(out, *newer);
                }
                Rejection::TooFarAhead { ahead_micros, max_micros } => {
                    out.put_u8(2);
                    out.put_u64(*ahead_micros);
                    out.put_u64(*max_micros);
                }
                Rejection::Overloaded => out.put_u8(3),
            }
        }
    }
}

fn take_reply<V: From<Vec<u8>>>(r: &mut Reader<'_>) -> Result<Reply<V>, DecodeError> {
    let (tag, ballot) = (r.u8()?, take_ballot(r)?);
    Ok(match tag {
        1 => {
            let permit = match take_option(r, take_ballot)? {
                None => Permit::Promised,
                Some(newest) => Permit::ReadOnly { newest },
            };
            let accepted = take_option(r, take_accepted)?;
            let committed = take_option(r, take_commit)?;
            let promised_write = take_ballot(r)?;
            Reply::Promise(Promise { ballot, permit, accepted, committed, promised_write })
        }
        2 => Reply::Accepted { ballot },
        3 => Reply::Committed { ballot },
        4 => Reply::Refreshed { ballot, superseded: take_option(r, take_ballot)? },
        5 => {
            let why = match r.u8()? {
                1 => Rejection::Newer(take_ballot(r)?),
                2 => Rejection::TooFarAhead { ahead_micros: r.u64()?, max_micros: r.u64()? },
                3 => Rejection::Overloaded,
                other => return Err(r.invalid(i64::from(other))),
            };
            Reply::Rejected { ballot, why }
        }
        other => return Err(r.invalid(i64::from(other))),
    })
}

#[cfg(test)]
mod tests;
