//! Reading old segments back.

use std::collections::BTreeMap;
use std::convert::Infallible;

use rt::{Buf, OpenOptions};
use stdx::{IoErrorKind, ShardId};

use crate::error::LogError;
use crate::format::{self, LogPosition, Record, SegmentHeader, SegmentId};
use crate::keys::Keys;
use crate::log::CommitLog;
use crate::scan::{Found, PIECE_BYTES, Scan, Scanner, scan_bytes};

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

impl CommitLog {
    /// Gives every record of the segments of earlier runs to `visit`, in the order in which they
    /// were written (per writer). Segments that this shard released already are skipped; those of
    /// this run as well.
    ///
    /// # Errors
    /// `Corrupt`: damage where a marker attests that the segment had been synced, or a record of
    /// which `visit` says what is wrong with it. `Sealed`: a segment that the keys do not open.
    pub async fn replay(
        &self,
        mut visit: impl FnMut(&SegmentHeader, Record<'_>) -> Result<(), &'static str>,
    ) -> Result<ReplaySummary, LogError> {
        let mut summary = ReplaySummary::default();
        let released = self.released_by_this_shard().await?;
        let mut scans: BTreeMap<SegmentId, Scan> = BTreeMap::new();
        let mut attested: BTreeMap<SegmentId, u64> = BTreeMap::new();
        // One buffer for all segments: fresh memory for each costs more than reading it.
        let mut buf = Buf::new();
        for id in self.old_segments() {
            let wanted = !released.contains(&id);
            // Each checksum is computed once: a record is visited as soon as it is found valid.
            let mut take = |found: Found<'_>| {
                if let Record::Marker(synced) = found.record {
                    attest(&mut attested, synced);
                }
                match found.header {
                    Some(header) if wanted => {
                        summary.mutations += u64::from(matches!(found.record, Record::Mutation(_)));
                        visit(header, found.record).map_err(|what| LogError::Corrupt {
                            file: self.path_of(id),
                            offset: found.place,
                            what,
                        })
                    }
                    _ => Ok(()),
                }
            };
            let scan;
            (buf, scan) = self.scan_segment(id, buf, &mut take).await?;
            let Some(scan) = scan else {
                self.forget_old(id);
                continue;
            };
            if let Some(what) = scan.sealed {
                return Err(LogError::Sealed { file: self.path_of(id), what });
            }
            if scan.header.is_some() {
                summary.segments += 1;
                summary.bytes += scan.valid_place;
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
            let (file, offset) = (self.path_of(*id), scan.valid_place);
            if scan.valid < synced {
                return Err(LogError::Corrupt { file, offset, what: scan.what });
            }
            if offset < scan.length {
                summary.tails.push((file, offset, scan.length - offset));
            }
        }
        Ok(())
    }

    /// Reads a segment piece by piece; nothing when there is none, or when this run wrote it.
    async fn scan_segment(
        &self,
        id: SegmentId,
        buf: Buf,
        visit: &mut impl FnMut(Found<'_>) -> Result<(), LogError>,
    ) -> Result<(Buf, Option<Scan>), LogError> {
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = match self.fs().open(&self.path_of(id), options).await {
            Ok(file) => file,
            // The last shard to release it deleted it meanwhile.
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok((buf, None)),
            Err(error) => return Err(error.into()),
        };
        let length = file.len().await?;
        let (mut buf, result) = file.read_at(buf, 0, PIECE_BYTES).await;
        result?;
        let mut scanner = Scanner::begin(id, length, &buf, self.options().keys.as_ref());
        if scanner.header().is_some_and(|h| h.run == self.options().run) {
            // Another shard of this run wrote it while we started.
            return Ok((buf, None));
        }
        let mut begin = 0;
        while let Some((at, want)) = scanner.wants() {
            let there = usize::try_from(at.saturating_sub(begin)).unwrap_or(usize::MAX);
            let mut piece = buf.get(there..).unwrap_or(&[]);
            if piece.len() < want && begin.saturating_add(buf.len() as u64) < length {
                let result;
                (buf, result) = file.read_at(buf, at, want.max(PIECE_BYTES)).await;
                result?;
                begin = at;
                piece = &buf;
            }
            scanner.feed(piece, visit)?;
        }
        Ok((buf, Some(scanner.finish())))
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
                if !by_all || !self.is_old_archived(id).await? {
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

/// Whether a file is a shard's note about that segment.
pub(crate) fn is_note_of(name: &str, id: SegmentId) -> bool {
    name.strip_prefix(&id.file_name()).is_some_and(|rest| rest.starts_with(".flushed-"))
}

fn attest(attested: &mut BTreeMap<SegmentId, u64>, synced: LogPosition) {
    let entry = attested.entry(synced.segment).or_insert(0);
    *entry = (*entry).max(synced.offset);
}

/// Everything a replay does with one file's bytes, for fuzzing and tools: the valid records' count
/// and where they end in the file.
pub fn walk_segment(
    id: SegmentId,
    bytes: &[u8],
    piece: usize,
    keys: Option<&Keys>,
) -> (usize, u64) {
    let mut count = 0;
    let scan = scan_bytes(id, bytes, piece, keys, |found| {
        if let Record::Descriptor(payload) = found.record {
            let _ = format::decode_descriptor(payload);
        }
        count += usize::from(found.header.is_some());
        Ok::<(), Infallible>(())
    });
    match scan {
        Ok(scan) => (count, scan.valid_place),
        Err(never) => match never {},
    }
}
