//! The messages between two gossiping nodes, and their encoding.
//!
//! Payload: version u8 (1), kind u8, then lists of digests and states, each with a count. Integers
//! are big-endian, counts, generations and versions are unsigned vints.

use codec::{DecodeError, Reader, Writer};

use crate::state::{Digest, PeerState};

/// First byte of a payload.
const VERSION: u8 = 1;
/// Most entries of one list; more members than this cannot be.
pub const ENTRIES_MAX: usize = 4_096;

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// "This is how new my knowledge is."
    Syn {
        /// One per member.
        digests: Vec<Digest>,
    },
    /// "Tell me what is newer than these; here is what I have newer."
    Ack {
        /// The requested states: everything above that version.
        wanted: Vec<Digest>,
        /// News.
        states: Vec<PeerState>,
    },
    /// "Here is what you wanted."
    Ack2 {
        /// News.
        states: Vec<PeerState>,
    },
    /// "Are you there?" Asked before a node that was down counts as up.
    Echo {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// "I am."
    EchoReply {
        /// The question's nonce.
        nonce: u64,
    },
}

impl Message {
    /// Appends the payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(VERSION);
        match self {
            Message::Syn { digests } => {
                out.put_u8(1);
                put_list(out, digests, Digest::encode);
            }
            Message::Ack { wanted, states } => {
                out.put_u8(2);
                put_list(out, wanted, Digest::encode);
                put_list(out, states, PeerState::encode);
            }
            Message::Ack2 { states } => {
                out.put_u8(3);
                put_list(out, states, PeerState::encode);
            }
            Message::Echo { nonce } => {
                out.put_u8(4);
                out.put_u64(*nonce);
            }
            Message::EchoReply { nonce } => {
                out.put_u8(5);
                out.put_u64(*nonce);
            }
        }
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// Anything that [`Message::encode`] does not write, lists above [`ENTRIES_MAX`] among it.
    pub fn decode(payload: &[u8]) -> Result<Message, DecodeError> {
        let r = &mut Reader::new(payload, "gossip message");
        let version = r.u8()?;
        if version != VERSION {
            return Err(r.invalid(i64::from(version)));
        }
        let message = match r.u8()? {
            1 => Message::Syn { digests: read_list(r, Digest::BYTES_MIN, Digest::decode)? },
            2 => {
                let wanted = read_list(r, Digest::BYTES_MIN, Digest::decode)?;
                let states = read_list(r, PeerState::BYTES_MIN, PeerState::decode)?;
                Message::Ack { wanted, states }
            }
            3 => Message::Ack2 { states: read_list(r, PeerState::BYTES_MIN, PeerState::decode)? },
            4 => Message::Echo { nonce: r.u64()? },
            5 => Message::EchoReply { nonce: r.u64()? },
            other => return Err(r.invalid(i64::from(other))),
        };
        r.finish()?;
        Ok(message)
    }
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], put: impl Fn(&T, &mut Vec<u8>)) {
    stdx::invariant!(
        list.len() <= ENTRIES_MAX,
        "gossip message with a list of {} entries, its reader takes {ENTRIES_MAX}",
        list.len()
    );
    out.put_vint_unsigned(list.len() as u64);
    for entry in list {
        put(entry, out);
    }
}

fn read_list<T>(
    r: &mut Reader<'_>,
    size_min: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::try_from(r.vint_unsigned()?).unwrap_or(usize::MAX);
    if count > ENTRIES_MAX {
        return Err(r.invalid(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    let count = r.check_count(count, size_min)?;
    (0..count).map(|_| read(r)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::state::{AppState, Flags};
    use stdx::{Epoch, HostId, Uuid};

    pub(crate) fn samples() -> Vec<Message> {
        let host = HostId(Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10));
        let digest = Digest { host, generation: 1_700_000_000, version: 300 };
        let app = AppState {
            version: 7,
            load: 1 << 40,
            epoch: Epoch(12),
            severity: 250,
            flags: Flags::CQL_READY,
            shards: 4,
            release: "5.0.9".to_owned(),
        };
        let full = PeerState { host, generation: 2, version: 9, app: Some(app) };
        let beat = PeerState { app: None, ..full.clone() };
        vec![
            Message::Syn { digests: vec![digest, digest] },
            Message::Syn { digests: vec![] },
            Message::Ack { wanted: vec![digest], states: vec![full.clone(), beat] },
            Message::Ack2 { states: vec![full] },
            Message::Echo { nonce: u64::MAX },
            Message::EchoReply { nonce: 5 },
        ]
    }

    #[test]
    fn messages_come_back_as_they_were_and_cut_ones_are_refused() {
        for message in samples() {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(Message::decode(&bytes).unwrap(), message);
            for cut in 0..bytes.len() {
                assert!(Message::decode(&bytes[..cut]).is_err(), "{message:?} cut at {cut}");
            }
            bytes.push(0);
            assert!(Message::decode(&bytes).is_err(), "{message:?} and a byte more");
        }
    }

    #[test]
    fn the_bytes_of_an_ack_stay_what_they_are() {
        let mut bytes = Vec::new();
        samples()[2].encode(&mut bytes);
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "0102\
             010102030405060708090a0b0c0d0e0f10f06553f100812c\
             020102030405060708090a0b0c0d0e0f10020901\
             07f90000000000\
             0c000000fa010004\
             05352e302e39\
             0102030405060708090a0b0c0d0e0f10020900"
        );
    }

    #[test]
    fn a_list_of_4096_is_read_and_one_of_4097_refused() {
        let digest = match &samples()[0] {
            Message::Syn { digests } => digests[0],
            _ => unreachable!(),
        };
        for (count, is_ok) in [(ENTRIES_MAX, true), (ENTRIES_MAX + 1, false)] {
            let mut bytes = vec![VERSION, 1];
            bytes.put_vint_unsigned(count as u64);
            (0..count).for_each(|_| digest.encode(&mut bytes));
            assert_eq!(Message::decode(&bytes).is_ok(), is_ok, "{count}");
        }
    }

    #[test]
    fn a_state_newer_than_its_heartbeat_is_refused() {
        let Message::Ack2 { states } = samples()[3].clone() else { unreachable!() };
        let mut valid = Vec::new();
        Message::Ack2 { states: states.clone() }.encode(&mut valid);
        // Version, kind, one state: host and generation 2, then the heartbeat.
        let heartbeat_at = 3 + 16 + 1;
        assert_eq!(u64::from(valid[heartbeat_at]), states[0].version);
        for (version, is_ok) in [(7, true), (6, false)] {
            let mut bytes = valid.clone();
            bytes[heartbeat_at] = version;
            assert_eq!(Message::decode(&bytes).is_ok(), is_ok, "heartbeat {version}, state 7");
        }
    }
}
