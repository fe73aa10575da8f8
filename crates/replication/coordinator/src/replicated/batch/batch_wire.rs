//! Messages of the batch log: a whole batch for a node that keeps it, and its removal.
//!
//! ```text
//! BatchStore:  version u8 (1) · id 16 · written at i64, µs · count v · (length v · mutation)*
//! BatchRemove: version u8 (1) · id 16 · written at i64, µs
//! ```

use codec::{DecodeError, Reader, Writer};
use stdx::{TimestampMicros, Uuid};

const VERSION: u8 = 1;

/// Payload of `Verb::BatchStore`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchStore<'a> {
    pub(crate) id: Uuid,
    /// By the coordinator's clock.
    pub(crate) written_at: TimestampMicros,
    /// Encoded mutations; each is decoded when it is replayed.
    pub(crate) mutations: Vec<&'a [u8]>,
}

/// Payload of `Verb::BatchRemove`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchRemove {
    pub(crate) id: Uuid,
    /// See [`BatchStore`].
    pub(crate) written_at: TimestampMicros,
}

fn put_head(out: &mut Vec<u8>, id: Uuid, written_at: TimestampMicros) {
    out.put_u8(VERSION);
    out.put_bytes(id.as_bytes());
    out.put_i64(written_at.0);
}

fn take_head(reader: &mut Reader<'_>) -> Result<(Uuid, TimestampMicros), DecodeError> {
    let version = reader.u8()?;
    if version != VERSION {
        return Err(reader.invalid(i64::from(version)));
    }
    Ok((Uuid::from_bytes(reader.array()?), TimestampMicros(reader.i64()?)))
}

/// Appends a [`BatchStore`] without collecting its mutations.
pub(crate) fn encode_store<'m>(
    out: &mut Vec<u8>,
    id: Uuid,
    written_at: TimestampMicros,
    mutations: impl ExactSizeIterator<Item = &'m [u8]>,
) {
    put_head(out, id, written_at);
    out.put_vint_unsigned(mutations.len() as u64);
    for mutation in mutations {
        out.put_bytes_vint(mutation);
    }
}

impl<'a> BatchStore<'a> {
    pub(crate) fn decode(payload: &'a [u8]) -> Result<BatchStore<'a>, DecodeError> {
        let mut reader = Reader::new(payload, "stored batch");
        let (id, written_at) = take_head(&mut reader)?;
        let count = usize::try_from(reader.vint_unsigned()?).unwrap_or(usize::MAX);
        let count = reader.check_count(count, 1)?;
        let mutations = (0..count).map(|_| reader.bytes_vint()).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(BatchStore { id, written_at, mutations })
    }
}

impl BatchRemove {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, self.id, self.written_at);
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<BatchRemove, DecodeError> {
        let mut reader = Reader::new(payload, "removed batch");
        let (id, written_at) = take_head(&mut reader)?;
        reader.finish()?;
        Ok(BatchRemove { id, written_at })
    }
}

/// Generates time UUIDs after one: its clock advances by a step each, the rest is kept.
pub(crate) fn following(id: Uuid) -> impl FnMut() -> [u8; 16] {
    let bytes = *id.as_bytes();
    let [l0, l1, l2, l3, m0, m1, h0, h1, ..] = bytes;
    // 60 bits: of the high part 12, then 16, then 32.
    let mut ticks = u64::from_be_bytes([h0 & 0xf, h1, m0, m1, l0, l1, l2, l3]);
    move || {
        ticks = ticks.wrapping_add(1);
        let [h0, h1, m0, m1, l0, l1, l2, l3] = ticks.to_be_bytes();
        let mut next = bytes;
        if let Some(time) = next.first_chunk_mut::<8>() {
            *time = [l0, l1, l2, l3, m0, m1, 0x10 | (h0 & 0xf), h1];
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_and_others_refused() {
        let (id, at) = (Uuid::from_u128(0x1234), TimestampMicros(77));
        let mut store = Vec::new();
        encode_store(&mut store, id, at, [&b"one"[..], b"", b"three"].into_iter());
        let golden = concat!(
            "01",
            "00000000000000000000000000001234",
            "000000000000004d",
            "03",
            "036f6e65",
            "00",
            "057468726565"
        );
        let hex: String = store.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, golden);
        let expected = BatchStore { id, written_at: at, mutations: vec![b"one", b"", b"three"] };
        assert_eq!(BatchStore::decode(&store), Ok(expected));
        for cut in 0..store.len() {
            assert!(BatchStore::decode(&store[..cut]).is_err(), "{cut}");
        }
        let longer = [&store[..], &[0]].concat();
        assert!(BatchStore::decode(&longer).is_err());
        let mut remove = Vec::new();
        let message = BatchRemove { id, written_at: at };
        message.encode(&mut remove);
        assert_eq!(BatchRemove::decode(&remove), Ok(message));
        assert!(BatchRemove::decode(&store).is_err());
        remove[0] = 2;
        assert!(BatchRemove::decode(&remove).is_err());
    }

    #[test]
    fn following_uuids_ascend_in_time_and_stay_version_one() {
        let id = Uuid::from_u128(0xffff_fffe_ffff_1abc_8123_4567_89ab_cdef);
        let mut next = following(id);
        let ticks = |u: Uuid| u.get_timestamp().unwrap().to_gregorian().0;
        for after in 1..6 {
            let uuid = Uuid::from_bytes(next());
            assert_eq!((ticks(uuid), uuid.get_version_num()), (ticks(id) + after, 1));
            assert_eq!(uuid.as_bytes()[8..], id.as_bytes()[8..]);
        }
    }
}
