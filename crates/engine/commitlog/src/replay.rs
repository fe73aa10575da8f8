//! Reading old segments back.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;

use rt::{Buf, OpenOptions};
use stdx::{IoErrorKind, ShardId};

use crate::archive::read_header;
use crate::error::LogError;
use crate::format::{self, LogPosition, Record, SegmentHeader, SegmentId};
use crate::inventory::Segments;
use crate::keys::Keys;
use crate::log::CommitLog;
use crate::scan::{AfterDamage, Found, Next, PIECE_BYTES, Scan, Scanner, scan_with};

/// Statistics of a replay.
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
    /// Inventories of earlier runs that cannot be read: missing segments cannot be detected.
    pub damaged_inventories: Vec<String>,
    /// Descriptions of missing segments and damaged parts that the operator gave up.
    pub lost: Vec<String>,
}

/// Receives the records of a replay. A closure over header and record receives them without a
/// pause.
pub trait Visitor {
    /// Error of a pause.
    type Error: From<LogError>;

    /// Takes a record that lies there.
    ///
    /// # Errors
    /// What is wrong with it: the replay ends.
    fn record(
        &mut self,
        header: &SegmentHeader,
        at: LogPosition,
        record: Record<'_>,
    ) -> Result<Next, &'static str>;

    /// Awaited after a record that wanted it, before the next one.
    fn pause(&mut self) -> impl Future<Output = Result<(), Self::Error>>;
}

impl<F> Visitor for F
where
    F: FnMut(&SegmentHeader, Record<'_>) -> Result<(), &'static str>,
{
    type Error = LogError;

    fn record(
        &mut self,
        header: &SegmentHeader,
        _: LogPosition,
        record: Record<'_>,
    ) -> Result<Next, &'static str> {
        self(header, record).map(|()| Next::GoOn)
    }

    async fn pause(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}

/// State of one replay beside the visitor.
struct Walk<'v, V> {
    visitor: &'v mut V,
    /// Segments, and up to where markers say that they had been synced.
    attested: BTreeMap<SegmentId, u64>,
    mutations: u64,
}

/// A segment that is scanned; the records of one that is not wanted are checked only.
#[derive(Clone, Copy)]
struct Scanned {
    id: SegmentId,
    is_wanted: bool,
    after_damage: AfterDamage,
}

/// How the segments ended, and whether losses are accepted.
struct Ends<'s> {
    scans: &'s BTreeMap<SegmentId, Scan>,
    /// The value that accepts losses.
    accept: u64,
    accepts: bool,
    /// Losses that were accepted at an earlier start.
    known: &'s Segments,
}

impl Ends<'_> {
    /// Returns true if damage of a segment is accepted. `from`: how far it is intact.
    fn accepts(&self, id: SegmentId, from: u64) -> bool {
        self.accepts || self.known.get(&id).is_some_and(|intact| from >= *intact)
    }
}

/// Notes that a segment is intact up to an offset, or less far.
fn note_intact(accepted: &mut Segments, id: SegmentId, intact: u64) {
    let entry = accepted.entry(id).or_insert(intact);
    *entry = (*entry).min(intact);
}

impl<V: Visitor> Walk<'_, V> {
    /// Each checksum is computed once: a record is visited as soon as it is found valid.
    fn take(
        &mut self,
        log: &CommitLog,
        segment: Scanned,
        found: Found<'_>,
    ) -> Result<Next, LogError> {
        if let Record::Marker(synced) = found.record {
            attest(&mut self.attested, synced);
        }
        match found.header {
            Some(header) if segment.is_wanted => {
                self.mutations += u64::from(matches!(found.record, Record::Mutation(_)));
                let at = LogPosition { segment: segment.id, offset: found.offset };
                self.visitor.record(header, at, found.record).map_err(|what| LogError::Corrupt {
                    file: log.path_of(segment.id),
                    offset: found.place,
                    what,
                    accept: None,
                })
            }
            _ => Ok(Next::GoOn),
        }
    }
}

impl CommitLog {
    /// Passes every record of the segments of earlier runs to `visitor`, in the order in which they
    /// were written (per writer). Skips segments that this shard released already, and those of
    /// this run.
    ///
    /// # Errors
    /// `Corrupt`: damage where a marker attests that the segment had been synced, or a record that
    /// `visitor` rejects. `Lost`: a segment is missing or shorter than it was. `Sealed`: a segment
    /// that the keys do not open. Those of [`Visitor::pause`].
    pub async fn replay<V: Visitor>(&self, visitor: &mut V) -> Result<ReplaySummary, V::Error> {
        let accept = self.accept_value().await.map_err(LogError::from)?;
        let accepts = self.options().accept_loss == Some(accept);
        let known = self.accepted_losses().await.map_err(LogError::from)?;
        let compared = self.check_inventories(accept, &known).await?;
        let mut accepted = compared.accepted;
        let mut summary = ReplaySummary {
            damaged_inventories: compared.damaged,
            lost: compared.lost,
            ..ReplaySummary::default()
        };
        let released = self.released_by_this_shard().await?;
        let mut scans: BTreeMap<SegmentId, Scan> = BTreeMap::new();
        let mut walk = Walk { visitor, attested: BTreeMap::new(), mutations: 0 };
        // One buffer for all segments: fresh memory for each costs more than reading it.
        let mut buf = Buf::new();
        for id in self.old_segments() {
            let after_damage = match accepts || known.contains_key(&id) {
                true => AfterDamage::Salvage,
                false => AfterDamage::Judge,
            };
            let segment = Scanned { id, is_wanted: !released.contains(&id), after_damage };
            let scan;
            (buf, scan) = self.scan_segment(segment, buf, &mut walk).await?;
            let Some(scan) = scan else {
                self.forget_old(id);
                continue;
            };
            if let Some(what) = scan.sealed {
                return Err(LogError::Sealed { file: self.path_of(id), what }.into());
            }
            if scan.header.is_some() {
                summary.segments += 1;
                summary.bytes += scan.valid_place;
            }
            scans.insert(id, scan);
        }
        summary.mutations = walk.mutations;
        let ends = Ends { scans: &scans, accept, accepts, known: &known };
        self.check_tails(&ends, &mut walk.attested, &mut summary, &mut accepted)?;
        self.remember_accepted(&accepted).await.map_err(LogError::from)?;
        Ok(summary)
    }

    /// The headers of the segments of earlier runs, as far as they are valid.
    ///
    /// # Errors
    /// `Io`.
    pub async fn old_headers(&self) -> Result<Vec<SegmentHeader>, LogError> {
        let mut headers = Vec::new();
        for id in self.old_segments() {
            match read_header(self.fs(), &self.path_of(id)).await {
                Ok(bytes) => headers.extend(SegmentHeader::decode(&bytes)),
                Err(error) if error.kind == IoErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(headers)
    }

    fn check_tails(
        &self,
        ends: &Ends<'_>,
        attested: &mut BTreeMap<SegmentId, u64>,
        summary: &mut ReplaySummary,
        accepted: &mut Segments,
    ) -> Result<(), LogError> {
        // A marker in a segment proves that the writer's segments before it were synced whole.
        for (id, scan) in ends.scans.iter().rev() {
            if let Some(header) = &scan.header
                && attested.contains_key(id)
                && header.previous != LogPosition::default()
            {
                attest(attested, header.previous);
            }
        }
        for (id, scan) in ends.scans {
            let synced = attested.get(id).copied().unwrap_or(0);
            let (file, offset) = (self.path_of(*id), scan.valid_place);
            for (from, to) in &scan.gaps {
                if !ends.accepts(*id, *from) {
                    let (what, accept) = ("a record is damaged", Some(ends.accept));
                    return Err(LogError::Corrupt { file, offset: *from, what, accept });
                }
                note_intact(accepted, *id, *from);
                summary.lost.push(format!(
                    "commit-log segment {file}: the records between the offsets {from} and {to} are damaged"
                ));
            }
            if scan.valid < synced {
                stdx::reached!("commitlog-attested-damage");
                if !ends.accepts(*id, offset) {
                    let (what, accept) = (scan.what, Some(ends.accept));
                    return Err(LogError::Corrupt { file, offset, what, accept });
                }
                note_intact(accepted, *id, offset);
                summary.lost.push(format!(
                    "commit-log segment {file}: the records from the offset {offset} on are damaged: {}",
                    scan.what
                ));
                continue;
            }
            stdx::invariant!(
                offset <= scan.length,
                "commit log: {offset} valid bytes of {file}, which has {}",
                scan.length
            );
            if offset < scan.length {
                stdx::reached!("commitlog-torn-tail");
                summary.tails.push((file, offset, scan.length - offset));
            }
        }
        Ok(())
    }

    /// Reads a segment piece by piece; nothing when there is none, or when this run wrote it.
    async fn scan_segment<V: Visitor>(
        &self,
        segment: Scanned,
        buf: Buf,
        walk: &mut Walk<'_, V>,
    ) -> Result<(Buf, Option<Scan>), V::Error> {
        let id = segment.id;
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = match self.fs().open(&self.path_of(id), options).await {
            Ok(file) => file,
            // The last shard to release it deleted it meanwhile.
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok((buf, None)),
            Err(error) => return Err(LogError::from(error).into()),
        };
        let length = file.len().await.map_err(LogError::from)?;
        let (mut buf, result) = file.read_at(buf, 0, PIECE_BYTES).await;
        result.map_err(LogError::from)?;
        let scanner = Scanner::begin(id, length, &buf, self.options().keys.as_ref());
        let mut scanner = scanner.after_damage(segment.after_damage);
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
                result.map_err(LogError::from)?;
                begin = at;
                piece = &buf;
            }
            let mut take = |found: Found<'_>| walk.take(self, segment, found);
            if scanner.feed_until(piece, &mut take)? {
                walk.visitor.pause().await?;
            }
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
                self.remove_old_inventories().await?;
                self.remove(&format!("{directory}/{}", id.file_name())).await?;
            }
            // The segment is removed before the notes about it: a crash between leaves harmless
            // notes.
            for entry in entries.iter().filter(|e| is_note_of(&e.name, id)) {
                self.remove(&format!("{directory}/{}", entry.name)).await?;
            }
            self.forget_old(id);
        }
        self.forget_accepted().await?;
        Ok(true)
    }

    async fn remove(&self, path: &str) -> Result<(), LogError> {
        match self.fs().remove_file(path).await {
            Err(error) if error.kind != IoErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns true if a file is a shard's note about that segment.
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
    walk(Scanner::begin(id, bytes.len() as u64, bytes, keys), bytes, piece)
}

/// The same, reading on after damage.
pub(crate) fn salvage_segment(
    id: SegmentId,
    bytes: &[u8],
    piece: usize,
    keys: Option<&Keys>,
) -> (usize, u64) {
    let scanner = Scanner::begin(id, bytes.len() as u64, bytes, keys);
    walk(scanner.after_damage(AfterDamage::Salvage), bytes, piece)
}

fn walk(scanner: Scanner, bytes: &[u8], piece: usize) -> (usize, u64) {
    let mut count = 0;
    let scan = scan_with(scanner, bytes, piece, |found| {
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
