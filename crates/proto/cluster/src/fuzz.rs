//! Plain functions over bytes from outside; none may panic.

use schema::Schema;

/// A metadata log file.
pub fn fuzz_metalog(data: &[u8]) {
    let base = Schema::default();
    // Both as it is and behind a valid magic, so that mutations reach the entries.
    if let Ok(loaded) = crate::metalog::load(data, &base) {
        assert!(loaded.valid_bytes + loaded.dropped_bytes == data.len() as u64);
    }
    let mut framed = crate::metalog::MAGIC.to_vec();
    framed.extend_from_slice(data);
    let _ = crate::metalog::load(&framed, &base).is_ok();
    let _ = crate::Transformation::decode(data).is_ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LocalNode, Transformation};
    use schema::{KeyspaceParams, SchemaChange};
    use stdx::{Epoch, HostId, Token, Uuid};

    fn marker(epoch: u64, bytes: &mut Vec<u8>) {
        crate::metalog::encode_marker(Epoch(epoch), bytes);
    }

    /// A log of three entries with their markers, and where each entry ends.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = crate::metalog::MAGIC.to_vec();
        let node = LocalNode {
            host_id: HostId(Uuid::from_u128(7)),
            cluster_name: "Test Cluster".to_owned(),
            datacenter: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens: vec![Token(1), Token(2)],
            created_at: stdx::WallMicros(1_700_000_000_000_000),
        };
        let mut ends = vec![bytes.len()];
        Transformation::Bootstrap(node).encode_entry(Epoch(1), &mut bytes);
        ends.push(bytes.len());
        marker(1, &mut bytes);
        for (i, name) in ["a", "b"].into_iter().enumerate() {
            let params = KeyspaceParams { durable_writes: true, replication: Default::default() };
            let change = SchemaChange::CreateKeyspace { name: name.into(), params };
            Transformation::Schema(Box::new(change)).encode_entry(Epoch(i as u64 + 2), &mut bytes);
            ends.push(bytes.len());
            marker(i as u64 + 2, &mut bytes);
        }
        (bytes, ends)
    }

    #[test]
    fn a_log_cut_at_any_length_loses_only_its_last_entry() {
        let (bytes, ends) = log();
        for cut in 0..=bytes.len() {
            let loaded = crate::metalog::load(&bytes[..cut], &Schema::default());
            let loaded = loaded.unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
            let entries = ends.iter().filter(|e| **e <= cut).count().saturating_sub(1);
            assert_eq!(loaded.snapshot.map_or(0, |s| s.epoch.0), entries as u64, "cut at {cut}");
        }
    }

    #[test]
    fn a_flip_of_any_bit_never_loses_a_marked_entry_silently() {
        let (bytes, ends) = log();
        let last_marker = *ends.last().unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                match crate::metalog::load(&bad, &Schema::default()) {
                    Err(_) => assert!(at < last_marker, "flip at {at}"),
                    // Only the last marker itself can go unseen: it holds no data.
                    Ok(loaded) => {
                        assert!(at >= last_marker, "flip at {at} bit {bit} was not seen");
                        assert_eq!(loaded.snapshot.map(|s| s.epoch.0), Some(3));
                    }
                }
            }
        }
    }

    #[test]
    fn ten_thousand_mutations_never_panic() {
        let (bytes, _) = log();
        let mut state = 0x1234_5678_9abc_def0_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        for _ in 0..10_000 {
            let mut bad = bytes.clone();
            for _ in 0..1 + next() % 4 {
                let at = next() % bad.len();
                bad[at] = next() as u8;
            }
            bad.truncate(bad.len() - next() % 8);
            fuzz_metalog(&bad);
        }
    }
}
