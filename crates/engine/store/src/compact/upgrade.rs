//! Upgrade: rewrites files of other versions, or with another compression than their table says, in the version that is
//! written now.
//!
//! Each file is compacted alone, with all that it has: nothing is purged, and its level and state of
//! repair stay. The order of steps, and the state after a crash between them, is that of any
//! compaction.

use compact_plan::{Cut, Plan, Reason};

use crate::tables::table_file::TableFile;

/// Files that an upgrade rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeScope {
    /// Those of other versions than the one that is written.
    OtherVersions,
    /// With several data directories: files outside the directory to which this shard writes their
    /// table's files, or shared with other shards.
    Misplaced,
    /// Those that are compressed otherwise than the table's options say now.
    OtherCompression,
    /// All, to build the indexes of their table again: each file is written with all of them.
    Indexes,
    /// All.
    All,
}

impl UpgradeScope {
    pub(crate) fn reason(self) -> Reason {
        match self {
            UpgradeScope::Misplaced => Reason::Relocation,
            UpgradeScope::Indexes => Reason::IndexBuild,
            UpgradeScope::OtherVersions | UpgradeScope::OtherCompression | UpgradeScope::All => {
                Reason::Upgrade
            }
        }
    }
}

pub(crate) fn plan(file: &TableFile, reason: Reason) -> Plan {
    let level = file.reader.meta().statistics().stats.level;
    Plan {
        inputs: vec![file.generation],
        expired: Vec::new(),
        level: u32::try_from(level).unwrap_or(0),
        cut: Cut::Never,
        apart: false,
        reason,
    }
}
