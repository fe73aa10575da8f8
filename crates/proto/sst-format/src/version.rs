//! Format versions and what each of them has.
//!
//! Source: `io.sstable.format.big.BigFormat.BigVersion`, `io.sstable.format.bti.BtiFormat.BtiVersion`.

use std::fmt;

/// A version of the format, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Cassandra 3.0.0: rows as they are stored since.
    Ma,
    /// 3.0.7, 3.7: lower bound of the commit log.
    Mb,
    /// 3.0.8, 3.9: ranges of the commit log. ScyllaDB too.
    Mc,
    /// 3.0.18, 3.11.4: right smallest and largest clustering. ScyllaDB too.
    Md,
    /// 3.0.25, 3.11.11: the node that wrote the file. ScyllaDB too.
    Me,
    /// 4.0-rc1: chunks stored plain, incremental repair, checksums in Statistics.db, other filter.
    Na,
    /// 4.0: the node that wrote the file.
    Nb,
    /// 5.0: deletion times up to 2106, the covered slice of clusterings, key range.
    Oa,
    /// 5.0, format BTI: `Data.db` of `oa` with tries for indexes.
    Da,
}

impl Version {
    /// All, oldest first.
    pub const ALL: [Version; 9] = [
        Version::Ma,
        Version::Mb,
        Version::Mc,
        Version::Md,
        Version::Me,
        Version::Na,
        Version::Nb,
        Version::Oa,
        Version::Da,
    ];

    /// The two letters in file names.
    pub fn letters(self) -> &'static str {
        match self {
            Version::Ma => "ma",
            Version::Mb => "mb",
            Version::Mc => "mc",
            Version::Md => "md",
            Version::Me => "me",
            Version::Na => "na",
            Version::Nb => "nb",
            Version::Oa => "oa",
            Version::Da => "da",
        }
    }

    /// The version of those letters.
    pub fn from_letters(letters: &str) -> Option<Version> {
        Version::ALL.into_iter().find(|v| v.letters() == letters)
    }

    /// The format's name in file names.
    pub fn format(self) -> &'static str {
        if self.is_bti() { "bti" } else { "big" }
    }

    /// Returns true if Partitions.db and Rows.db replace Index.db and Summary.db.
    pub fn is_bti(self) -> bool {
        self == Version::Da
    }

    pub(crate) fn has_commit_log_lower_bound(self) -> bool {
        self >= Version::Mb
    }

    pub(crate) fn has_commit_log_intervals(self) -> bool {
        self >= Version::Mc
    }

    /// Before, the smallest and largest clustering could leave rows out (CASSANDRA-14861).
    pub(crate) fn has_accurate_clusterings(self) -> bool {
        self >= Version::Md
    }

    pub(crate) fn has_originating_host(self) -> bool {
        self >= Version::Nb || self == Version::Me
    }

    /// Returns true if chunks may be stored plain, see
    /// [`crate::CompressionInfo::max_compressed_length`].
    pub fn has_max_compressed_length(self) -> bool {
        self >= Version::Na
    }

    /// Returns true if the file can take part in an incremental repair.
    pub fn has_pending_repair(self) -> bool {
        self >= Version::Na
    }

    /// Returns true if Statistics.db has checksums over all its bytes.
    pub fn has_statistics_checksums(self) -> bool {
        self >= Version::Na
    }

    /// The words of Filter.db are big endian.
    pub(crate) fn has_old_filter(self) -> bool {
        self < Version::Na
    }

    /// Local deletion times are unsigned; live partition deletions are one byte.
    pub fn has_uint_times(self) -> bool {
        self >= Version::Oa
    }

    /// Statistics.db has the covered slice of clusterings, the key range and the token coverage,
    /// and a flag for deleted partitions.
    pub fn has_covered_slice(self) -> bool {
        self >= Version::Oa
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.letters())
    }
}
