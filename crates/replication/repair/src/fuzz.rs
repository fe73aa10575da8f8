//! Fuzz targets: plain functions over bytes that must never panic.

use crate::RepairHistory;

/// The file `repair_history`. What is read is written so that it reads back equal.
pub fn fuzz_repair_history(data: &[u8]) {
    if let Some(history) = RepairHistory::decode(data) {
        let again = RepairHistory::decode(&history.encode());
        stdx::invariant!(again.as_ref() == Some(&history), "a history comes back");
    }
}
