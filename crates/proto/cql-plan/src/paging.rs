//! Paging state: start of the next page of a SELECT.
//!
//! Bytes (integers big-endian): `version u8 · statement u64 · remaining u32 · rows in partition
//! u32 · kind u8 · key length u32 · key · clustering · xxh3 u64 of all before`. Kind 0: the
//! partition is done; 1: inside it, the serialised clustering of the last row follows up to the
//! checksum.
//!
//! It names no node and no epoch, so that it survives restart, ALTER and another coordinator. The
//! statement's digest is that of its text and table: a state of another statement is refused.

use crate::error::PlanError;

/// The only version.
const VERSION: u8 = 1;
const DONE: u8 = 0;
const INSIDE: u8 = 1;
/// Clusterings have at most this many components: more than a table can have columns.
const COMPONENTS_MAX: usize = u16::MAX as usize;

/// End of the last page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagingState {
    /// Digest of the statement it belongs to.
    pub statement: u64,
    /// Rows left of LIMIT; `u32::MAX` = no limit.
    pub remaining: u32,
    /// Serialised key of the last partition.
    pub key: Vec<u8>,
    /// Serialised clustering of the last row; `None`: nothing more of the partition is wanted.
    pub clustering: Option<Vec<u8>>,
    /// Rows (or groups) of the last partition given so far.
    pub rows_in_partition: u32,
}

impl PagingState {
    /// The bytes for the client.
    pub fn encode(&self) -> Vec<u8> {
        let clustering = self.clustering.as_deref();
        let mut out = Vec::with_capacity(30 + self.key.len() + clustering.map_or(0, <[u8]>::len));
        out.push(VERSION);
        out.extend_from_slice(&self.statement.to_be_bytes());
        out.extend_from_slice(&self.remaining.to_be_bytes());
        out.extend_from_slice(&self.rows_in_partition.to_be_bytes());
        out.push(if clustering.is_some() { INSIDE } else { DONE });
        let length = u32::try_from(self.key.len()).unwrap_or(u32::MAX);
        stdx::invariant!(length != u32::MAX, "paging state: key of 4 GiB or more");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.key);
        out.extend_from_slice(clustering.unwrap_or(&[]));
        let sum = codec::xxh3_64(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out
    }

    /// Decodes a paging state from a client. `statement`: the digest of the statement it is given
    /// with.
    ///
    /// # Errors
    /// Protocol error "Invalid value for the paging state" for anything that [`Self::encode`] did
    /// not make for this statement.
    pub fn decode(bytes: &[u8], statement: u64) -> Result<PagingState, PlanError> {
        let state = PagingState::read(bytes).filter(|state| state.statement == statement);
        state.ok_or_else(|| PlanError::protocol("Invalid value for the paging state"))
    }

    fn read(bytes: &[u8]) -> Option<PagingState> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        if codec::xxh3_64(body) != u64::from_be_bytes(*sum) {
            return None;
        }
        let (version, body) = body.split_first()?;
        if *version != VERSION {
            return None;
        }
        let (statement, body) = body.split_first_chunk::<8>()?;
        let (remaining, body) = body.split_first_chunk::<4>()?;
        let (rows, body) = body.split_first_chunk::<4>()?;
        let (kind, body) = body.split_first()?;
        let (length, body) = body.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (key, clustering) = body.split_at_checked(length)?;
        let clustering = match *kind {
            DONE if clustering.is_empty() => None,
            INSIDE => {
                data::clustering::check(clustering, COMPONENTS_MAX)?;
                Some(clustering.to_vec())
            }
            _ => return None,
        };
        Some(PagingState {
            statement: u64::from_be_bytes(*statement),
            remaining: u32::from_be_bytes(*remaining),
            key: key.to_vec(),
            clustering,
            rows_in_partition: u32::from_be_bytes(*rows),
        })
    }
}

/// Any bytes are a paging state that encodes to themselves, or refused.
pub fn fuzz_paging_state(data: &[u8]) {
    if let Some(state) = PagingState::read(data) {
        assert_eq!(state.encode(), data, "a paging state has one encoding");
    }
    // Checked bytes with a right checksum get past the first test.
    let mut summed = data.to_vec();
    summed.extend_from_slice(&codec::xxh3_64(data).to_be_bytes());
    if let Some(state) = PagingState::read(&summed) {
        assert_eq!(state.encode(), summed, "a paging state has one encoding");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> PagingState {
        PagingState {
            statement: 7,
            remaining: 9,
            key: b"key".to_vec(),
            clustering: Some(vec![2, 5, 1]),
            rows_in_partition: 3,
        }
    }

    #[test]
    fn paging_states_read_back() {
        for state in [
            state(),
            PagingState { clustering: None, ..state() },
            PagingState { clustering: Some(Vec::new()), key: Vec::new(), ..state() },
        ] {
            assert_eq!(PagingState::decode(&state.encode(), 7), Ok(state));
        }
    }

    #[test]
    fn damaged_and_foreign_paging_states_are_refused() {
        let good = state().encode();
        let refused = Err(PlanError::protocol("Invalid value for the paging state"));
        assert_eq!(PagingState::decode(&good, 8), refused);
        assert_eq!(PagingState::decode(b"", 7), refused);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(PagingState::decode(&bad, 7), refused, "byte {at}");
            assert_eq!(PagingState::decode(&good[..at], 7), refused, "cut at {at}");
        }
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        let good = state().encode();
        for _ in 0..10_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random() % 3 {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            bytes.truncate(random() % (bytes.len() + 1));
            fuzz_paging_state(&bytes);
        }
    }
}
