//! Checks a commit log of Cassandra's for writes that exist nowhere else.
//!
//! A drained Cassandra leaves one segment: a descriptor and an empty section, then zeros. Its own
//! statistics may still be noted in there after the drain; those are ignored.
//!
//! Source: Cassandra `CommitLogDescriptor.writeHeader`, `CommitLogSegment.writeSyncMarker`,
//! `CommitLogReader.readSection`, `Mutation.MutationSerializer`.

use codec::Reader;
use cql_plan::system::system_table_id;
use rt::Fs;
use stdx::{IoError, IoErrorKind, TableId, Uuid};

use super::{TakeoverError, list};

/// Largest segment that is read; Cassandra's are 32 MiB unless configured otherwise.
const SEGMENT_BYTES_MAX: usize = (2 << 30) - 1;
/// Position of the next section and its CRC.
const MARKER_BYTES: usize = 8;
/// Versions whose records begin with a count and a table id: Cassandra 3.0 to 5.0.
const VERSIONS: std::ops::RangeInclusive<u32> = 6..=8;
/// Magic number of ScyllaDB's segments in place of a version: `SCLC`.
const SCYLLA_MAGIC: u32 = 0x53_43_4c_43;

/// Tables of `system` that Cassandra fills for its own use and that may be lost.
const STATISTICS: [&str; 8] = [
    "compaction_history",
    "prepared_statements",
    "size_estimates",
    "sstable_activity",
    "sstable_activity_v2",
    "table_estimates",
    "top_partitions",
    "transferred_ranges_v2",
];

/// Refuses a commit log of Cassandra's that is not empty. Files of ours are no concern here.
///
/// # Errors
/// `DirtyCommitLog` naming the first segment with writes; `Io`.
pub async fn check(fs: &Fs, directory: &str) -> Result<(), TakeoverError> {
    for entry in list(fs, directory).await? {
        let is_segment = entry.name.starts_with("CommitLog-") && entry.name.ends_with(".log");
        if entry.is_dir || !is_segment {
            continue;
        }
        let file = format!("{directory}/{}", entry.name);
        let bytes = match fs.read(&file, SEGMENT_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(IoError { kind: IoErrorKind::NotFound, .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Some(detail) = content(&bytes) {
            return Err(TakeoverError::DirtyCommitLog { file, detail });
        }
    }
    Ok(())
}

/// Describes the content of a segment; `None`: nothing worth keeping. Never panics, whatever the
/// bytes.
pub(crate) fn content(bytes: &[u8]) -> Option<String> {
    if bytes.iter().all(|b| *b == 0) {
        return None;
    }
    let Some((version, start)) = descriptor(bytes) else {
        return Some("not a segment that can be understood".to_owned());
    };
    if version == SCYLLA_MAGIC {
        return Some("a segment of ScyllaDB, which removes them when it is drained".to_owned());
    }
    if !VERSIONS.contains(&version) {
        return Some(format!("written in version {version}, which is not known here"));
    }
    let mut section = start;
    loop {
        let rest = bytes.get(section..).unwrap_or(&[]);
        let mut r = Reader::new(rest, "commit log section");
        let (Ok(end), Ok(_crc)) = (r.u32(), r.u32()) else { return None };
        if end == 0 {
            // No further section; data written after the last sync would be lost.
            let unsynced = rest.iter().any(|b| *b != 0);
            return unsynced.then(|| format!("unsynced bytes behind offset {section}"));
        }
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let start = section.saturating_add(MARKER_BYTES);
        let Some(records) = bytes.get(start..end) else {
            return Some(format!("a section at offset {section} that does not fit the file"));
        };
        if let Some(what) = records_of(records) {
            return Some(format!("{what} at offset {start}"));
        }
        if end <= section {
            return Some(format!("a section at offset {section} that ends before it"));
        }
        section = end;
    }
}

/// Version and length of the descriptor.
fn descriptor(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut r = Reader::new(bytes, "commit log descriptor");
    let version = r.u32().ok()?;
    let _id = r.u64().ok()?;
    let parameters = r.bytes_u16().ok()?;
    let _crc = r.u32().ok()?;
    Some((version, parameters.len().checked_add(4 + 8 + 2 + 4)?))
}

/// Describes the records of a section, when they are writes that matter.
fn records_of(mut records: &[u8]) -> Option<String> {
    // A compressed section begins with its uncompressed length, an empty one with 0 like the plain
    // end of records.
    loop {
        let mut r = Reader::new(records, "commit log record");
        let Ok(size) = r.u32() else { return None };
        if size == 0 {
            return None;
        }
        let Ok(_crc) = r.u32() else { return Some("half a record".to_owned()) };
        let Ok(mutation) = r.bytes(usize::try_from(size).unwrap_or(usize::MAX)) else {
            return Some("records that cannot be read (compressed or encrypted)".to_owned());
        };
        let mut m = Reader::new(mutation, "mutation");
        let (Ok(updates), Ok(id)) = (m.vint_unsigned(), m.array::<16>()) else {
            return Some("half a record".to_owned());
        };
        let id = TableId(Uuid::from_bytes(id));
        let is_statistics =
            updates == 1 && STATISTICS.iter().any(|name| system_table_id("system", name) == id);
        if !is_statistics {
            return Some(format!("writes to the table with id {id}"));
        }
        if r.u32().is_err() {
            return Some("half a record".to_owned());
        }
        records = r.peek_rest();
    }
}
