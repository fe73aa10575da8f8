//! Compaction's share of the processor, by its backlog and by the cost for reads.
//!
//! The share follows two lines. One is over the ratio of the bytes that are due to those that memtables
//! hold at most, the other over the SSTables that a read checks; the higher one counts. Without debt
//! compaction gets little, so that it does not disturb. With a large backlog it gets as much as
//! statements, so that debt has a bound: writes then get no more than compaction can keep up with.

/// Compaction debt of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// Unread bytes of the inputs of compactions that are due or running.
    pub due_bytes: u64,
    /// Bytes that memtables may hold.
    pub memtable_bytes: u64,
    /// SSTables that a read of a partition looked into lately, mean; 0.0 without reads.
    pub sstables_per_read: f64,
}

/// Share of a shard without debt; the other ends of the lines are in the module.
pub const SHARE_MIN: u32 = 100;
/// Share of a shard with a large backlog: that of statements.
pub const SHARE_MAX: u32 = 1000;

/// Shares over memories of writes that are due.
const BY_BYTES: [(f64, f64); 4] = [(0.0, 100.0), (1.0, 200.0), (4.0, 500.0), (16.0, 1000.0)];
/// Shares over SSTables of a read.
const BY_READS: [(f64, f64); 4] = [(4.0, 100.0), (8.0, 200.0), (16.0, 500.0), (32.0, 1000.0)];

/// The share that compaction should get of a shard's processor, [`SHARE_MIN`] to [`SHARE_MAX`]; statements
/// have 1000.
pub fn share(debt: &Debt) -> u32 {
    let memories = debt.due_bytes as f64 / debt.memtable_bytes.max(1) as f64;
    let by_bytes = on_line(&BY_BYTES, memories);
    // Compaction cannot help reads when nothing is due.
    let by_reads = match debt.due_bytes {
        0 => 0.0,
        _ => on_line(&BY_READS, debt.sstables_per_read),
    };
    // From 100 to 1000 by the lines.
    (by_bytes.max(by_reads).round() as u32).clamp(SHARE_MIN, SHARE_MAX)
}

fn on_line(line: &[(f64, f64)], x: f64) -> f64 {
    let mut last = line.first().copied().unwrap_or((0.0, 0.0));
    if x.is_nan() {
        return last.1;
    }
    for &(at, value) in line {
        if x <= at {
            let part = if at > last.0 { (x.max(last.0) - last.0) / (at - last.0) } else { 0.0 };
            return last.1 + (value - last.1) * part;
        }
        last = (at, value);
    }
    last.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 100 << 20;

    fn of(due_bytes: u64, sstables_per_read: f64) -> u32 {
        share(&Debt { due_bytes, memtable_bytes: MEMORY, sstables_per_read })
    }

    #[test]
    fn the_share_grows_with_what_is_due_from_a_tenth_of_that_of_statements_to_the_same() {
        assert_eq!(of(0, 0.0), 100);
        assert_eq!(of(MEMORY / 2, 0.0), 150);
        assert_eq!(of(MEMORY, 0.0), 200);
        assert_eq!(of(4 * MEMORY, 0.0), 500);
        assert_eq!(of(10 * MEMORY, 0.0), 750);
        assert_eq!(of(16 * MEMORY, 0.0), 1000);
        assert_eq!(of(u64::MAX, 0.0), 1000);
        let mut last = 0;
        for tenths in 0..200 {
            let next = of(tenths * MEMORY / 10, 0.0);
            assert!(next >= last, "{tenths}");
            last = next;
        }
    }

    #[test]
    fn reads_of_many_files_raise_it_while_something_is_due() {
        assert_eq!(of(1, 4.0), 100);
        assert_eq!(of(1, 12.0), 350);
        assert_eq!(of(1, 100.0), 1000);
        assert_eq!(of(8 * MEMORY, 4.0), of(8 * MEMORY, 0.0));
        assert_eq!(of(0, 100.0), 100, "nothing would be mended");
        assert_eq!(of(1, f64::NAN), 100);
    }

    #[test]
    fn a_shard_without_memory_for_writes_is_no_division_by_zero() {
        assert_eq!(share(&Debt::default()), 100);
        assert_eq!(share(&Debt { due_bytes: 1, ..Debt::default() }), 200);
    }
}
