//! Log lines about what a start replayed, rebuilt and lost.

use coordinator::BatchReplay;
use rt::Rt;
use stdx::ShardId;

/// Most tables whose counts are named in one log line.
const REPLAYED_TABLES_NAMED: usize = 50;

/// Logs the replay of the commit log at the start.
pub(crate) fn replay(rt: &Rt, report: &store::ReplayReport) {
    for (file, offset, bytes) in &report.tails {
        tracing::warn!(
            shard = rt.shard().0,
            file,
            offset,
            bytes,
            "dropped the unsynced tail of a commit log"
        );
    }
    for what in report.lost.iter().filter(|_| rt.shard() == ShardId(0)) {
        tracing::error!(
            "commit-log data is lost, as commitlog_accept_loss accepts; repair this node: {what}"
        );
    }
    for file in &report.damaged_inventories {
        tracing::warn!(
            shard = rt.shard().0,
            file,
            "the inventory of a commit log is damaged and is ignored; missing segments cannot be noticed; check \
             the disk and repair this node"
        );
    }
    for what in &report.damaged_marks {
        tracing::warn!(shard = rt.shard().0, %what, "a small file of a table is damaged and is rebuilt");
    }
    for file in &report.rebuilt_tocs {
        tracing::warn!(
            shard = rt.shard().0,
            file,
            "TOC.txt of an SSTable was missing and has been rebuilt from the components found; check the disk"
        );
    }
    if let Some(file) = report.moved_files.first() {
        tracing::warn!(
            shard = rt.shard().0,
            count = report.moved_files.len(),
            file,
            "SSTables were written under another name or for another table and are served as they are; after \
             a restore this is expected, otherwise move them away and repair the table"
        );
    }
    if !report.removed_files.is_empty() {
        let count = report.removed_files.len();
        let files = report.removed_files.iter().take(REPLAYED_TABLES_NAMED);
        let files: Vec<&str> = files.map(String::as_str).collect();
        tracing::info!(
            shard = rt.shard().0,
            count,
            files = files.join(", "),
            "removed leftovers of unfinished writes and removals of SSTables"
        );
    }
    if report.segments > 0 {
        segments(rt, report);
    }
}

/// Logs what was read of the commit log.
fn segments(rt: &Rt, report: &store::ReplayReport) {
    let named = report.tables.iter().take(REPLAYED_TABLES_NAMED);
    let tables: Vec<String> = named.map(|(name, count)| format!("{name}: {count}")).collect();
    tracing::info!(
        shard = rt.shard().0,
        segments = report.segments,
        bytes = report.bytes,
        applied = report.applied,
        not_listed = report.not_listed,
        after_the_point_in_time = report.too_late,
        dropped_tables = report.dropped_tables,
        tables = tables.join(", "),
        sstables = report.files,
        took_ms = report.took.as_millis() as u64,
        "replayed the commit log"
    );
}

/// Logs the replay of logged batches at the start.
pub(crate) fn batches(rt: &Rt, replay: &BatchReplay) {
    let shard = rt.shard().0;
    if let Some(error) = &replay.error {
        tracing::warn!(shard, left = replay.left, %error, "logged batches wait for another replay");
    }
    if replay.lost + replay.past_grace > 0 {
        let (lost, past_grace) = (replay.lost, replay.past_grace);
        tracing::warn!(shard, lost, past_grace, "parts of logged batches could not be replayed");
    }
    if replay.batches > 0 {
        let (batches, mutations) = (replay.batches, replay.mutations);
        tracing::info!(shard, batches, mutations, "replayed logged batches");
    }
}
