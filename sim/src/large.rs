//! A table of few partitions that are large enough to be sent as files: written and flushed before
//! anything breaks, never changed, and complete on every replica in the end.

use std::net::SocketAddr;
use std::time::Duration;

use cql_wire::Consistency;
use rt::Rt;

use crate::checks::{Rows, Verdict};
use crate::client::Answer;
use crate::survey;

/// The table.
pub const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS ks.large (k int, c int, v blob, PRIMARY KEY (k, c))";
/// Its partitions. Each is flushed separately, so that a file has one partition and lies within the
/// ranges of each of its replicas.
pub const PARTITIONS: i32 = 2;
/// Rows of a partition, and bytes of a row: more than 1 MiB, from which on files are sent as a
/// whole.
const ROWS: i32 = 19;
const ROW_BYTES: usize = 60_000;
/// How often a write is tried: memory may be short.
const TRIES: u32 = 20;

/// The value of a row: bytes that do not get smaller when they are compressed.
fn value(k: i32, c: i32) -> Vec<u8> {
    let mut state = ((k as u64) << 32) | (c as u64) | (1 << 63);
    let mut bytes = Vec::with_capacity(ROW_BYTES + 8);
    while bytes.len() < ROW_BYTES {
        // xorshift64*.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(ROW_BYTES);
    bytes
}

/// Writes a partition at ALL.
///
/// # Errors
/// Which write fails although nothing is broken.
pub async fn write(rt: Rt, address: SocketAddr, k: i32) -> Result<(), String> {
    let mut client = survey::connect(&rt, address).await;
    client.set_consistency(Consistency::All);
    let text = "INSERT INTO ks.large (k, c, v) VALUES (?, ?, ?)";
    let id = match client.prepare(text).await {
        Ok(Answer::Prepared(id)) => id,
        other => return Err(format!("{text}: {other:?}")),
    };
    for c in 0..ROWS {
        let (key, clustering, value) = (k.to_be_bytes(), c.to_be_bytes(), value(k, c));
        let values = [Some(key.as_slice()), Some(&clustering), Some(&value)];
        let mut answer = client.execute(&id, &values).await;
        for _ in 1..TRIES {
            if answer == Ok(Answer::Done) {
                break;
            }
            rt.sleep(Duration::from_millis(300)).await;
            answer = client.execute(&id, &values).await;
        }
        if answer != Ok(Answer::Done) {
            return Err(format!("large row {k}, {c} at ALL before anything broke: {answer:?}"));
        }
    }
    Ok(())
}

/// A node shows every row as it was written, and no other.
pub fn complete(node: &str, rows: &Rows) -> Verdict {
    let int = |n: i32| Some(n.to_be_bytes().to_vec());
    for k in 0..PARTITIONS {
        for c in 0..ROWS {
            let seen = rows.get([int(k), int(c)].as_slice()).and_then(|row| row.first());
            match seen {
                Some(Some(bytes)) if *bytes == value(k, c) => {}
                Some(_) => return Err(format!("{node} has another value of large row {k}, {c}")),
                None => return Err(format!("{node} has no large row {k}, {c}")),
            }
        }
    }
    match rows.len() == (PARTITIONS * ROWS) as usize {
        true => Ok(()),
        false => Err(format!("{node} has {} large rows", rows.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_missing_or_other_or_too_many_are_noticed() {
        let int = |n: i32| Some(n.to_be_bytes().to_vec());
        let pairs = (0..PARTITIONS).flat_map(|k| (0..ROWS).map(move |c| (k, c)));
        let row = |(k, c)| (vec![int(k), int(c)], vec![Some(value(k, c)), int(7)]);
        let right: Rows = pairs.map(row).collect();
        assert_eq!(complete("n1", &right), Ok(()));
        let spoilt = |spoil: &dyn Fn(&mut Rows)| {
            let mut rows = right.clone();
            spoil(&mut rows);
            complete("n1", &rows).unwrap_err()
        };
        let one = vec![int(1), int(3)];
        assert!(spoilt(&|rows| drop(rows.remove(&one))).contains("no large row 1, 3"));
        let other = |rows: &mut Rows| {
            let changed = rows.get_mut(&one).and_then(|r| r[0].as_mut()).and_then(|v| v.last_mut());
            *changed.unwrap() ^= 1;
        };
        assert!(spoilt(&other).contains("another value of large row 1, 3"));
        let more = |rows: &mut Rows| drop(rows.insert(vec![int(9), int(0)], vec![int(0)]));
        assert!(spoilt(&more).contains("39 large rows"));
    }

    #[test]
    fn a_partition_is_larger_than_what_goes_as_rows() {
        assert!(ROWS as usize * ROW_BYTES > 1 << 20);
        let bytes = value(1, 2);
        assert_eq!(bytes.len(), ROW_BYTES);
        assert!(bytes != value(1, 3) && bytes != value(0, 2));
    }
}
