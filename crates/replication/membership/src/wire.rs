//! Wire format of the metadata log: payloads of the `Meta…` verbs, and the stored registers of an
//! acceptor.
//!
//! All integers big-endian; a ballot is the 16 bytes of its UUID. Every decoder is total.

use std::net::IpAddr;
use std::sync::Arc;

use cluster::Member;
use codec::{DecodeError, Reader, Writer};
use paxos::acceptor::{AcceptorState, Permit, Promise, Rejection, Reply, Request};
use paxos::log::{Entries, Learn, LogEntry};
use paxos::{Accepted, Ballot, Commit};
use stdx::{Epoch, Uuid};

/// An encoded transformation.
pub(crate) type Value = Arc<[u8]>;

const WHAT: &str = "metadata message";

/// A step of the voters for one entry; the verb says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) entry: Epoch,
    pub(crate) request: Request<Value>,
}

/// Answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply(Reply<Value>),
    /// The entry is decided: this one and what follows it.
    Known(Entries<Value>),
    /// The asked node lacks the entries from here on.
    Missing(Epoch),
}

/// A change for a voter to propose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Submission {
    /// After the entry `expect`, this transformation.
    Change { expect: Epoch, value: Value },
    /// A node wants in. `tokens` are wanted if the member brings none; they make the shares even for
    /// that replication factor.
    Join { member: Box<Member>, tokens: u16, replication_factor: u16 },
    /// A node wants the place of the dead member that stood at that address.
    Replace { member: Box<Member>, address: IpAddr },
}

/// Outcome of a [`Submission`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// Decided as this entry.
    Decided(Epoch),
    /// The log ends here: plan again.
    Conflict(Epoch),
    /// Invalid, in words for the operator.
    Rejected(String),
    /// The outcome is unknown.
    Unknown(String),
    /// Not decided: no majority of voters answered.
    Unavailable(String),
    /// Invalid now; a retry may succeed when the others' changes are complete.
    Wait(String),
}

fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    if ballot.is_zero() {
        out.put_bytes(&[0; 16]);
    } else {
        out.put_bytes(ballot.to_uuid().as_bytes());
    }
}

fn read_ballot(r: &mut Reader<'_>) -> Result<Ballot, DecodeError> {
    let uuid = Uuid::from_bytes(r.array::<16>()?);
    if uuid.is_nil() {
        return Ok(Ballot::ZERO);
    }
    Ballot::from_uuid(uuid).map_err(|_| r.invalid(0))
}

fn put_option(out: &mut Vec<u8>, value: Option<&Value>) {
    out.put_bool(value.is_some());
    if let Some(value) = value {
        out.put_bytes_vint(value);
    }
}

fn read_option(r: &mut Reader<'_>) -> Result<Option<Value>, DecodeError> {
    Ok(if r.bool()? { Some(Arc::from(r.bytes_vint()?)) } else { None })
}

fn put_accepted(out: &mut Vec<u8>, accepted: &Accepted<Value>) {
    put_ballot(out, accepted.ballot);
    put_ballot(out, accepted.origin);
    put_option(out, accepted.value.as_ref());
}

fn read_accepted(r: &mut Reader<'_>) -> Result<Accepted<Value>, DecodeError> {
    let ballot = read_ballot(r)?;
    let origin = read_ballot(r)?;
    Ok(Accepted { ballot, origin, value: read_option(r)? })
}

fn read_commit(r: &mut Reader<'_>) -> Result<Commit<Value>, DecodeError> {
    Ok(read_accepted(r)?.into_commit())
}

fn put_commit(out: &mut Vec<u8>, commit: &Commit<Value>) {
    put_ballot(out, commit.ballot);
    put_ballot(out, commit.origin);
    put_option(out, commit.value.as_ref());
}

fn read_text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = r.bytes_vint()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| r.error(codec::DecodeErrorKind::Utf8))
}

/// Decodes a whole payload by `read`.
pub(crate) fn decode<T>(
    payload: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let r = &mut Reader::new(payload, WHAT);
    let value = read(r)?;
    r.finish()?;
    Ok(value)
}

impl Ask {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.entry.0);
        match &self.request {
            Request::Prepare { ballot, write } => {
                out.put_u8(1);
                put_ballot(out, *ballot);
                out.put_bool(*write);
            }
            Request::Propose(accepted) => {
                out.put_u8(2);
                put_accepted(out, accepted);
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
            Request::Conclude(accepted) => {
                out.put_u8(6);
                put_accepted(out, accepted);
            }
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Ask, DecodeError> {
        let entry = Epoch(r.u64()?);
        let request = match r.u8()? {
            1 => Request::Prepare { ballot: read_ballot(r)?, write: r.bool()? },
            2 => Request::Propose(read_accepted(r)?),
            3 => Request::Commit(read_commit(r)?),
            // Refresh, prune and conclude belong to partitions; a log's proposer never sends them.
            other => return Err(r.invalid(i64::from(other))),
        };
        Ok(Ask { entry, request })
    }
}

impl Answer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Known(entries) => {
                out.put_u8(1);
                encode_entries(entries, out);
            }
            Answer::Missing(from) => {
                out.put_u8(2);
                out.put_u64(from.0);
            }
            Answer::Reply(reply) => {
                out.put_u8(3);
                encode_reply(reply, out);
            }
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Answer, DecodeError> {
        Ok(match r.u8()? {
            1 => Answer::Known(read_entries(r)?),
            2 => Answer::Missing(Epoch(r.u64()?)),
            3 => Answer::Reply(read_reply(r)?),
            other => return Err(r.invalid(i64::from(other))),
        })
    }
}

fn encode_reply(reply: &Reply<Value>, out: &mut Vec<u8>) {
    match reply {
        Reply::Promise(promise) => {
            out.put_u8(1);
            put_ballot(out, promise.ballot);
            match promise.permit {
                Permit::Promised => out.put_u8(0),
                Permit::ReadOnly { newest } => {
                    out.put_u8(1);
                    put_ballot(out, newest);
                }
            }
            out.put_bool(promise.accepted.is_some());
            if let Some(accepted) = &promise.accepted {
                put_accepted(out, accepted);
            }
            out.put_bool(promise.committed.is_some());
            if let Some(commit) = &promise.committed {
                put_commit(out, commit);
            }
            put_ballot(out, promise.promised_write);
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
            put_ballot(out, superseded.unwrap_or(Ballot::ZERO));
        }
        Reply::Rejected { ballot, why } => {
            out.put_u8(5);
            put_ballot(out, *ballot);
            match why {
                Rejection::Newer(newer) => {
                    out.put_u8(0);
                    put_ballot(out, *newer);
                }
                Rejection::TooFarAhead { ahead_micros, max_micros } => {
                    out.put_u8(1);
                    out.put_u64(*ahead_micros);
                    out.put_u64(*max_micros);
                }
                Rejection::Overloaded => out.put_u8(2),
            }
        }
    }
}

fn read_reply(r: &mut Reader<'_>) -> Result<Reply<Value>, DecodeError> {
    Ok(match r.u8()? {
        1 => {
            let ballot = read_ballot(r)?;
            let permit = match r.u8()? {
                0 => Permit::Promised,
                1 => Permit::ReadOnly { newest: read_ballot(r)? },
                other => return Err(r.invalid(i64::from(other))),
            };
            let accepted = if r.bool()? { Some(read_accepted(r)?) } else { None };
            let committed = if r.bool()? { Some(read_commit(r)?) } else { None };
            let promised_write = read_ballot(r)?;
            Reply::Promise(Promise { ballot, permit, accepted, committed, promised_write })
        }
        2 => Reply::Accepted { ballot: read_ballot(r)? },
        3 => Reply::Committed { ballot: read_ballot(r)? },
        5 => {
            let ballot = read_ballot(r)?;
            let why = match r.u8()? {
                0 => Rejection::Newer(read_ballot(r)?),
                1 => Rejection::TooFarAhead { ahead_micros: r.u64()?, max_micros: r.u64()? },
                2 => Rejection::Overloaded,
                other => return Err(r.invalid(i64::from(other))),
            };
            Reply::Rejected { ballot, why }
        }
        other => return Err(r.invalid(i64::from(other))),
    })
}

pub(crate) fn encode_learn(learn: Learn, out: &mut Vec<u8>) {
    out.put_u64(learn.from.0);
    out.put_u64(learn.bytes_max as u64);
}

pub(crate) fn read_learn(r: &mut Reader<'_>) -> Result<Learn, DecodeError> {
    let from = Epoch(r.u64()?);
    let bytes_max = usize::try_from(r.u64()?).unwrap_or(usize::MAX);
    Ok(Learn { from, bytes_max })
}

pub(crate) fn encode_entries(entries: &Entries<Value>, out: &mut Vec<u8>) {
    out.put_u64(entries.end.0);
    out.put_vint_unsigned(entries.entries.len() as u64);
    for entry in &entries.entries {
        out.put_u64(entry.number.0);
        put_ballot(out, entry.origin);
        out.put_bytes_vint(&entry.value);
    }
}

pub(crate) fn read_entries(r: &mut Reader<'_>) -> Result<Entries<Value>, DecodeError> {
    let end = Epoch(r.u64()?);
    let count = usize::try_from(r.vint_unsigned()?).unwrap_or(usize::MAX);
    let mut entries = Vec::new();
    for _ in 0..r.check_count(count, 25)? {
        let number = Epoch(r.u64()?);
        let origin = read_ballot(r)?;
        entries.push(LogEntry { number, origin, value: Arc::from(r.bytes_vint()?) });
    }
    Ok(Entries { entries, end })
}

impl Submission {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Submission::Change { expect, value } => {
                out.put_u8(1);
                out.put_u64(expect.0);
                out.put_bytes_vint(value);
            }
            Submission::Join { member, tokens, replication_factor } => {
                out.put_u8(2);
                out.put_u16(*tokens);
                out.put_u16(*replication_factor);
                member.encode(out);
            }
            Submission::Replace { member, address } => {
                out.put_u8(3);
                match address {
                    IpAddr::V4(ip) => out.put_bytes_vint(&ip.octets()),
                    IpAddr::V6(ip) => out.put_bytes_vint(&ip.octets()),
                }
                member.encode(out);
            }
        }
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Submission, DecodeError> {
        Ok(match r.u8()? {
            1 => {
                let expect = Epoch(r.u64()?);
                Submission::Change { expect, value: Arc::from(r.bytes_vint()?) }
            }
            2 => {
                let tokens = r.u16()?;
                let replication_factor = r.u16()?;
                let member = Box::new(Member::decode(r)?);
                Submission::Join { member, tokens, replication_factor }
            }
            3 => {
                let bytes = r.bytes_vint()?;
                let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
                let address = address.map_err(|_| r.invalid(bytes.len() as i64))?;
                Submission::Replace { member: Box::new(Member::decode(r)?), address }
            }
            other => return Err(r.invalid(i64::from(other))),
        })
    }
}

impl Submitted {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (tag, text) = match self {
            Submitted::Decided(epoch) => {
                out.put_u8(1);
                return out.put_u64(epoch.0);
            }
            Submitted::Conflict(epoch) => {
                out.put_u8(2);
                return out.put_u64(epoch.0);
            }
            Submitted::Rejected(text) => (3, text),
            Submitted::Unknown(text) => (4, text),
            Submitted::Unavailable(text) => (5, text),
            Submitted::Wait(text) => (6, text),
        };
        out.put_u8(tag);
        out.put_bytes_vint(text.as_bytes());
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Submitted, DecodeError> {
        Ok(match r.u8()? {
            1 => Submitted::Decided(Epoch(r.u64()?)),
            2 => Submitted::Conflict(Epoch(r.u64()?)),
            3 => Submitted::Rejected(read_text(r)?),
            4 => Submitted::Unknown(read_text(r)?),
            5 => Submitted::Unavailable(read_text(r)?),
            6 => Submitted::Wait(read_text(r)?),
            other => return Err(r.invalid(i64::from(other))),
        })
    }
}

/// Stored registers of one entry: version, entry, registers, CRC32 of all before.
pub(crate) fn encode_registers(entry: Epoch, state: &AcceptorState<Value>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u8(1);
    out.put_u64(entry.0);
    put_ballot(&mut out, state.promised);
    put_ballot(&mut out, state.promised_write);
    out.put_bool(state.accepted.is_some());
    if let Some(accepted) = &state.accepted {
        put_accepted(&mut out, accepted);
    }
    let crc = codec::crc32(&out);
    out.put_u32(crc);
    out
}

/// Reads what [`encode_registers`] wrote; `None` when it is damaged.
pub(crate) fn decode_registers(bytes: &[u8]) -> Option<(Epoch, AcceptorState<Value>)> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    if u32::from_be_bytes(*crc) != codec::crc32(body) {
        return None;
    }
    decode(body, |r| {
        if r.u8()? != 1 {
            return Err(r.invalid(0));
        }
        let entry = Epoch(r.u64()?);
        let promised = read_ballot(r)?;
        let promised_write = read_ballot(r)?;
        let accepted = if r.bool()? { Some(read_accepted(r)?) } else { None };
        Ok((entry, AcceptorState { promised, promised_write, accepted, committed: None }))
    })
    .ok()
}

/// Fuzz entry: any bytes as any of the messages. What decodes must come back from its own bytes.
pub(crate) fn fuzz_metadata_message(data: &[u8]) {
    let mut again = Vec::new();
    if let Ok(ask) = decode(data, Ask::read) {
        ask.encode(&mut again);
        assert!(decode(&again, Ask::read).as_ref() == Ok(&ask), "{ask:?}");
    }
    again.clear();
    if let Ok(answer) = decode(data, Answer::read) {
        answer.encode(&mut again);
        assert!(decode(&again, Answer::read).as_ref() == Ok(&answer), "{answer:?}");
    }
    again.clear();
    if let Ok(submission) = decode(data, Submission::read) {
        submission.encode(&mut again);
        assert!(decode(&again, Submission::read).as_ref() == Ok(&submission), "{submission:?}");
    }
    again.clear();
    if let Ok(submitted) = decode(data, Submitted::read) {
        submitted.encode(&mut again);
        assert!(decode(&again, Submitted::read).as_ref() == Ok(&submitted), "{submitted:?}");
    }
    let _ = decode(data, read_learn).is_ok();
    let _ = decode_registers(data).is_some();
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::MemberState;
    use paxos::ballot::Scope;
    use stdx::{HostId, Token};

    fn ballot(micros: u64) -> Ballot {
        Ballot::new(micros, Scope::None, 1 << 63 | 7)
    }

    fn accepted() -> Accepted<Value> {
        Accepted {
            ballot: ballot(9),
            origin: ballot(8),
            value: Some(Arc::from(b"value".as_slice())),
        }
    }

    fn messages() -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut put = |encode: &dyn Fn(&mut Vec<u8>)| {
            let mut one = Vec::new();
            encode(&mut one);
            all.push(one);
        };
        for request in [
            Request::Prepare { ballot: ballot(5), write: true },
            Request::Propose(accepted()),
            Request::Commit(accepted().into_commit()),
        ] {
            put(&|out| Ask { entry: Epoch(3), request: request.clone() }.encode(out));
        }
        let entry = LogEntry { number: Epoch(4), origin: ballot(2), value: Arc::from([1, 2]) };
        let promise = Promise {
            ballot: ballot(5),
            permit: Permit::Promised,
            accepted: Some(accepted()),
            committed: None,
            promised_write: ballot(5),
        };
        for answer in [
            Answer::Known(Entries { entries: vec![entry], end: Epoch(5) }),
            Answer::Missing(Epoch(2)),
            Answer::Reply(Reply::Promise(promise)),
            Answer::Reply(Reply::Accepted { ballot: ballot(5) }),
            Answer::Reply(Reply::Rejected { ballot: ballot(5), why: Rejection::Newer(ballot(6)) }),
        ] {
            put(&|out| answer.encode(out));
        }
        let value: Value = Arc::from([7; 9]);
        put(&|out| Submission::Change { expect: Epoch(2), value: value.clone() }.encode(out));
        let member = Member {
            host_id: HostId(Uuid::from_u128(9)),
            storage: ([10, 0, 0, 4], 7000).into(),
            rpc: ([10, 0, 0, 4], 9042).into(),
            datacenter: "dc1".to_owned(),
            rack: "r1".to_owned(),
            tokens: vec![Token(-5), Token(5)],
            moving_to: Vec::new(),
            state: MemberState::Joining,
            replaces: None,
            shards: 2,
            features: 0,
            release: "5.0".to_owned(),
        };
        let member = Box::new(member);
        let join = Submission::Join { member: member.clone(), tokens: 4, replication_factor: 3 };
        put(&|out| join.encode(out));
        for address in [IpAddr::from([10, 0, 0, 3]), IpAddr::from([7_u8; 16])] {
            let replace = Submission::Replace { member: member.clone(), address };
            put(&|out| replace.encode(out));
        }
        put(&|out| Submitted::Decided(Epoch(3)).encode(out));
        put(&|out| Submitted::Rejected("no".to_owned()).encode(out));
        put(&|out| encode_learn(Learn { from: Epoch(1), bytes_max: 10 }, out));
        all
    }

    #[test]
    fn messages_come_back_and_no_mutation_of_them_panics() {
        let corpus = messages();
        let known = corpus.iter().filter(|m| {
            decode(m, Ask::read).is_ok()
                || decode(m, Answer::read).is_ok()
                || decode(m, Submission::read).is_ok()
                || decode(m, Submitted::read).is_ok()
                || decode(m, read_learn).is_ok()
        });
        assert_eq!(known.count(), corpus.len());
        testkit::mutate(corpus, fuzz_metadata_message);
    }

    #[test]
    fn damaged_registers_are_seen() {
        let state = AcceptorState {
            promised: ballot(9),
            promised_write: ballot(9),
            accepted: Some(accepted()),
            committed: None,
        };
        let stored = encode_registers(Epoch(7), &state);
        assert_eq!(decode_registers(&stored), Some((Epoch(7), state)));
        for at in 0..stored.len() {
            let mut bad = stored.clone();
            bad[at] ^= 1;
            assert_eq!(decode_registers(&bad), None, "byte {at}");
            assert_eq!(decode_registers(&stored[..at]), None, "length {at}");
        }
    }
}
