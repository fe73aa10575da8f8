//! Reading old segments back.

use std::collections::BTreeMap;
use std::convert::Infallible;

use rt::{Buf, IoError, OpenOptions};
use stdx::{IoErrorKind, ShardId};

use crate::error::LogError;
use crate::format::{
    self, HEADER_BYTES, LogPosition, MARKER_MAGIC, RECORD_HEADER_BYTES, Record, SegmentHeader,
    SegmentId, decode_record,
};
use crate::log::CommitLog;

/// Largest segment that is read: far above any that is written.
const SEGMENT_BYTES_MAX: usize = 1 << 30;

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Segments read.
    pub segments: u64,
    /// Bytes of valid records.
    pub bytes: u64,
    /// Mutations among them, of all shards.
    pub mutations: u64,
    /// Tails dropped: file, offset where the valid part ends, bytes dropped.
    pub tails: Vec<(String, u64, u64)>,
}

struct Scan {
    header: Option<SegmentHeader>,
    /// End of the valid records.
    valid: usize,
    len: usize,
    what: &'static str,
}

impl CommitLog {
    /// Gives every record of the segments of earlier runs to `visit`, in the order in which they
    /// were written (per writer). Segments that this shard released already are skipped; those of
    /// this run as well.
    ///
    /// # Errors
    /// `Corrupt`: damage where a marker attests that the segment had been synced, or a record of
    /// which `visit` says what is wrong with it.
    pub async fn replay(
        &self,
        mut visit: impl FnMut(&SegmentHeader, Record<'_>) -> Result<(), &'static str>,
    ) -> Result<ReplaySummary, LogError> {
        let mut summary = ReplaySummary::default();
        let released = self.released_by_this_shard().await?;
        let mut scans: BTreeMap<SegmentId, Scan> = BTreeMap::new();
        let mut attested: BTreeMap<SegmentId, u64> = BTreeMap::new();
        // One buffer for all segments: fresh memory for each costs more than reading it.
        let mut bytes = Buf::new();
        for id in self.old_segments() {
            let found;
            (bytes, found) = self.read_segment(id, bytes).await?;
            if !found {
                self.forget_old(id);
                continue;
            }
            let header = SegmentHeader::decode(&bytes);
            if header.as_ref().is_ok_and(|h| h.run == self.options().run) {
                // Another shard of this run wrote it while we started.
                self.forget_old(id);
                continue;
            }
            let wanted = !released.contains(&id);
            // Each checksum is computed once: a record is visited as soon as it is found valid.
            let scan = scan(id, &bytes, header, |header, offset, record| {
                if let Record::Marker(synced) = record {
                    attest(&mut attested, synced);
                }
                match header {
                    Some(header) if wanted => {
                        summary.mutations += u64::from(matches!(record, Record::Mutation(_)));
                        visit(header, record).map_err(|what| LogError::Corrupt {
                            file: self.path_of(id),
                            offset: offset as u64,
                            what,
                        })
                    }
                    _ => Ok(()),
                }
            })?;
            if scan.header.is_some() {
                summary.segments += 1;
                summary.bytes += scan.valid as u64;
            }
            scans.insert(id, scan);
        }
        self.check_tails(&scans, &mut attested, &mut summary)?;
        Ok(summary)
    }

    fn check_tails(
        &self,
        scans: &BTreeMap<SegmentId, Scan>,
        attested: &mut BTreeMap<SegmentId, u64>,
        summary: &mut ReplaySummary,
    ) -> Result<(), LogError> {
        // A marker in a segment proves that the writer's segments before it were synced whole.
        for (id, scan) in scans.iter().rev() {
            if let Some(header) = &scan.header
                && attested.contains_key(id)
                && header.previous != LogPosition::default()
            {
                attest(attested, header.previous);
            }
        }
        for (id, scan) in scans {
            let synced = attested.get(id).copied().unwrap_or(0);
            if (scan.valid as u64) < synced {
                return Err(LogError::Corrupt {
                    file: self.path_of(*id),
                    offset: scan.valid as u64,
                    what: scan.what,
                });
            }
            if scan.valid < scan.len {
                let dropped = (scan.len - scan.valid) as u64;
                summary.tails.push((self.path_of(*id), scan.valid as u64, dropped));
            }
        }
        Ok(())
    }

    /// Reads a whole segment into `bytes`; false when there is none.
    async fn read_segment(&self, id: SegmentId, bytes: Buf) -> Result<(Buf, bool), LogError> {
        let path = self.path_of(id);
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = match self.fs().open(&path, options).await {
            Ok(file) => file,
            // The last shard to release it deleted it meanwhile.
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok((bytes, false)),
            Err(error) => return Err(error.into()),
        };
        let length = file.len().await?;
        let fits = usize::try_from(length).ok().filter(|length| *length <= SEGMENT_BYTES_MAX);
        let length = fits.ok_or_else(|| IoError {
            kind: IoErrorKind::Device,
            operation: "read",
            path,
            detail: format!("{length} bytes long, at most {SEGMENT_BYTES_MAX} are read"),
        })?;
        let (bytes, result) = file.read_at(bytes, 0, length).await;
        result?;
        Ok((bytes, true))
    }

    fn release_name(id: SegmentId, shard: ShardId, shards: u16) -> String {
        format!("{}.flushed-{}-of-{}", id.file_name(), shard.0, shards)
    }

    async fn released_by_this_shard(&self) -> Result<Vec<SegmentId>, LogError> {
        let (shard, shards) = self.shard();
        let names = self.fs().read_dir(&self.options().directory).await?;
        Ok(self
            .old_segments()
            .into_iter()
            .filter(|id| {
                let name = Self::release_name(*id, shard, shards);
                names.iter().any(|entry| entry.name == name)
            })
            .collect())
    }

    /// This shard has flushed all that it replayed. When every shard of the node has, the segments
    /// of earlier runs are deleted, oldest first. Returns true when none is left; else call again
    /// later.
    ///
    /// # Errors
    /// `Io`: the directory could not be read or written.
    pub async fn release_old(&self) -> Result<bool, LogError> {
        let (shard, shards) = self.shard();
        let directory = self.options().directory.clone();
        let old = self.old_segments();
        if old.is_empty() {
            return Ok(true);
        }
        let entries = self.fs().read_dir(&directory).await?;
        let has = |name: &str| entries.binary_search_by(|e| e.name.as_str().cmp(name)).is_ok();
        for id in &old {
            let name = Self::release_name(*id, shard, shards);
            if shards > 1 && has(&id.file_name()) && !has(&name) {
                let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
                self.fs().open(&format!("{directory}/{name}"), options).await?;
            }
        }
        self.fs().sync_dir(&directory).await?;
        let entries = self.fs().read_dir(&directory).await?;
        let has = |name: &str| entries.binary_search_by(|e| e.name.as_str().cmp(name)).is_ok();
        for id in old {
            let by_all = shards == 1
                || (0..shards).all(|s| has(&Self::release_name(id, ShardId(s), shards)));
            if has(&id.file_name()) {
                if !by_all {
                    return Ok(false);
                }
                self.remove(&format!("{directory}/{}", id.file_name())).await?;
            }
            // The segment goes before the notes about it: a crash between leaves harmless notes.
            for entry in entries.iter().filter(|e| is_note_of(&e.name, id)) {
                self.remove(&format!("{directory}/{}", entry.name)).await?;
            }
            self.forget_old(id);
        }
        Ok(true)
    }

    async fn remove(&self, path: &str) -> Result<(), LogError> {
        match self.fs().remove_file(path).await {
            Err(error) if error.kind != IoErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn is_note_of(name: &str, id: SegmentId) -> bool {
    name.strip_prefix(&id.file_name()).is_some_and(|rest| rest.starts_with(".flushed-"))
}

fn attest(attested: &mut BTreeMap<SegmentId, u64>, synced: LogPosition) {
    let entry = attested.entry(synced.segment).or_insert(0);
    *entry = (*entry).max(synced.offset);
}

/// Walks a segment's records and gives each to `visit` with the header and its offset. Behind the valid part only
/// valid markers are, without a header.
fn scan<E>(
    id: SegmentId,
    bytes: &[u8],
    header: Result<SegmentHeader, &'static str>,
    mut visit: impl FnMut(Option<&SegmentHeader>, usize, Record<'_>) -> Result<(), E>,
) -> Result<Scan, E> {
    let mut scan = Scan { header: None, valid: 0, len: bytes.len(), what: "" };
    let mut offset = 0;
    match header {
        Err(what) => scan.what = what,
        Ok(header) if header.id != id => scan.what = "the header names another segment",
        Ok(header) => {
            offset = HEADER_BYTES;
            while let Some((record, next)) = decode_record(id, bytes, offset) {
                visit(Some(&header), offset, record)?;
                offset = next;
            }
            scan.header = Some(header);
            scan.valid = offset;
            scan.what = "no valid record";
        }
    }
    // Behind the valid part: markers tell whether this is the tail of a crash or damage.
    let mut from = offset;
    while let Some(found) = find(bytes.get(from..).unwrap_or(&[]), MARKER_MAGIC) {
        let at = from + found;
        if let Some(start) = at.checked_sub(RECORD_HEADER_BYTES)
            && let Some((marker @ Record::Marker(_), _)) = decode_record(id, bytes, start)
        {
            visit(None, start, marker)?;
        }
        from = at + 1;
    }
    Ok(scan)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(rest) = haystack.get(from..) {
        let at = from + rest.iter().position(|b| *b == first)?;
        if haystack.get(at..)?.starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Everything a replay does with one file's bytes, for fuzzing and tools: the valid records' count
/// and where they end.
pub fn walk_segment(id: SegmentId, bytes: &[u8]) -> (usize, usize) {
    let mut count = 0;
    let scan = scan(id, bytes, SegmentHeader::decode(bytes), |header, _, record| {
        if let Record::Descriptor(payload) = record {
            let _ = format::decode_descriptor(payload);
        }
        count += usize::from(header.is_some());
        Ok::<(), Infallible>(())
    });
    match scan {
        Ok(scan) => (count, scan.valid),
        Err(never) => match never {},
    }
}
