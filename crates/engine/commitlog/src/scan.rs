//! One segment's bytes to its records, in pieces: nothing is held but a piece and one record.
//!
//! Owns: the validity of a record, the end of the valid part of a file, the markers after it.
//! Never: reads a file; the caller asks [`Scanner::wants`] and supplies [`Scanner::feed`].

use crate::blocks::{BLOCK_MAGIC, NotUnpacked, Unpacker, parse_block};
use crate::format::{
    HEADER_BYTES, LogPosition, MARKER_MAGIC, Parsed, RECORD_HEADER_BYTES, Record, SegmentHeader,
    SegmentId, parse_record,
};
use crate::keys::Keys;

/// Bytes that are worth reading at once; more only when one record or block is longer.
pub const PIECE_BYTES: usize = 1 << 20;

/// Bytes of a marker's record, checked after each beginning of a magic number.
const MARKER_BYTES: usize = RECORD_HEADER_BYTES + 24;

/// A record with its offset.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The segment's header; `None`: a marker after the valid part, the record is of no other use.
    pub header: Option<&'a SegmentHeader>,
    /// Its position, as markers count: of a compressed segment not the one in the file.
    pub offset: u64,
    /// Where it, or the block with it, begins in the file.
    pub place: u64,
    /// Its bytes, before they were compressed.
    pub bytes: usize,
    /// The record.
    pub record: Record<'a>,
}

/// Result of scanning a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Its header, when it is valid.
    pub header: Option<SegmentHeader>,
    /// End of the valid records as markers count; 0 without a header.
    pub valid: u64,
    /// End of the valid records in the file.
    pub valid_place: u64,
    /// Length of the file.
    pub length: u64,
    /// Why reading ended there.
    pub what: &'static str,
    /// A block is intact and cannot be decrypted: the segment's content is unknown.
    pub sealed: Option<&'static str>,
    /// Damaged parts between valid records: offsets in the file of the first damaged byte and of the
    /// record after it. Only a scanner that salvages has any.
    pub gaps: Vec<(u64, u64)>,
}

/// Reaction of a scanner to damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterDamage {
    /// Only markers are searched: they decide if this is the tail of a crash.
    #[default]
    Judge,
    /// Reading continues at the next valid record, marker or block.
    Salvage,
}

/// The visitor's decision after a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next one.
    GoOn,
    /// The feeder pauses: the next record follows with the next call.
    Pause,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Valid records.
    Records,
    /// The record after a damaged one, whose length may be right. The search begins at `searched`.
    Probe,
    /// After them: markers decide if this is the tail of a crash or damage.
    Search,
    Done,
}

/// Result of one step over the given bytes.
enum Step {
    /// Continue after this many of them.
    Took(usize),
    /// The same, but not now.
    Paused(usize),
    /// More bytes are needed, or all is done.
    Stop,
}

/// How far a block was walked before a pause.
struct Inside {
    /// Where in the unpacked block its next record begins.
    from: usize,
    /// Bytes of the block in the file.
    bytes: usize,
}

/// Walks a segment whose file has a known length.
pub struct Scanner {
    id: SegmentId,
    length: u64,
    header: Option<SegmentHeader>,
    stage: Stage,
    /// Place in the file of the next byte that is wanted.
    at: u64,
    want: usize,
    /// Offset in the file where the search continues; `at` lies a little before.
    searched: u64,
    valid: u64,
    valid_place: u64,
    what: &'static str,
    sealed: Option<&'static str>,
    after_damage: AfterDamage,
    gaps: Vec<(u64, u64)>,
    /// Place and position of a valid marker or block that the search found.
    resumes_at: Option<(u64, u64)>,
    /// Place of a whole block that holds no valid record.
    hollow: Option<u64>,
    unpacker: Unpacker,
    block: Vec<u8>,
    /// `block` is not at its end.
    inside: Option<Inside>,
}

impl Scanner {
    /// Begins with the first bytes of the file (all there are, or at least the header's). `keys`: of
    /// encrypted segments.
    pub fn begin(id: SegmentId, length: u64, bytes: &[u8], keys: Option<&Keys>) -> Scanner {
        let mut scanner = Scanner {
            id,
            length,
            header: None,
            stage: Stage::Search,
            at: 0,
            want: MARKER_BYTES,
            searched: 0,
            valid: 0,
            valid_place: 0,
            what: "",
            sealed: None,
            after_damage: AfterDamage::Judge,
            gaps: Vec::new(),
            resumes_at: None,
            hollow: None,
            unpacker: Unpacker::new(keys.cloned()),
            block: Vec::new(),
            inside: None,
        };
        match SegmentHeader::decode(bytes) {
            Err(what) => scanner.what = what,
            Ok(header) if header.id != id => scanner.what = "the header names another segment",
            Ok(header) => {
                scanner.header = Some(header);
                scanner.stage = Stage::Records;
                scanner.want = 8;
                scanner.at = HEADER_BYTES as u64;
                scanner.valid = scanner.at;
                scanner.valid_place = scanner.at;
            }
        }
        scanner
    }

    /// The same scanner, with another treatment of damage.
    pub fn after_damage(mut self, after_damage: AfterDamage) -> Scanner {
        self.after_damage = after_damage;
        self
    }

    /// The header, when it is valid.
    pub fn header(&self) -> Option<&SegmentHeader> {
        self.header.as_ref()
    }

    /// Place and least number of the bytes to feed next (fewer only at the end of the file); `None`:
    /// all was seen.
    pub fn wants(&self) -> Option<(u64, usize)> {
        (self.stage != Stage::Done).then_some((self.at, self.want))
    }

    /// Returns the result, after the scanner wants no more bytes.
    pub fn finish(self) -> Scan {
        Scan {
            header: self.header,
            valid: self.valid,
            valid_place: self.valid_place,
            length: self.length,
            what: self.what,
            sealed: self.sealed,
            gaps: self.gaps,
        }
    }

    /// Takes the bytes at the wanted offset and passes each record to `visit`.
    ///
    /// # Errors
    /// Those of `visit`; the scanner is of no use then.
    pub fn feed<E>(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(Found<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.feed_until(bytes, &mut |found| visit(found).map(|()| Next::GoOn)).map(|_| ())
    }

    /// Like [`Scanner::feed`], up to a record after which `visit` wants a pause. Returns true if it
    /// does; the wanted bytes then begin after that record.
    ///
    /// # Errors
    /// Those of `visit`; the scanner is of no use then.
    pub fn feed_until<E>(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(Found<'_>) -> Result<Next, E>,
    ) -> Result<bool, E> {
        if bytes.len() < self.want {
            // The file ends here, whatever its length was.
            self.length = self.length.min(self.at.saturating_add(bytes.len() as u64));
        }
        let mut rest = bytes;
        loop {
            let compressed = self.header.as_ref().is_some_and(SegmentHeader::has_blocks);
            let step = match self.stage {
                Stage::Records if compressed => self.block(rest, visit)?,
                Stage::Records => self.record(rest, visit)?,
                Stage::Probe => self.probe(rest),
                Stage::Search => self.search(rest, visit)?,
                Stage::Done => Step::Stop,
            };
            match step {
                Step::Took(count) => {
                    self.at += count as u64;
                    rest = rest.get(count..).unwrap_or(&[]);
                }
                Step::Paused(count) => {
                    self.at += count as u64;
                    return Ok(true);
                }
                Step::Stop => return Ok(false),
            }
        }
    }

    /// Requests `count` bytes from `place` on; false: the file is shorter.
    fn need(&mut self, place: u64, count: usize) -> bool {
        let is_there = place.saturating_add(count as u64) <= self.length;
        if is_there {
            self.at = place;
            self.want = count;
        }
        is_there
    }

    fn valid_part_ends(&mut self, what: &'static str) -> Step {
        self.what = what;
        self.stage = Stage::Search;
        self.searched = self.at;
        Step::Took(0)
    }

    fn record<E>(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(Found<'_>) -> Result<Next, E>,
    ) -> Result<Step, E> {
        let position = LogPosition { segment: self.id, offset: self.at };
        Ok(match parse_record(position, bytes) {
            Parsed::Found((record, size)) => {
                let (header, offset) = (self.header.as_ref(), self.at);
                let next = visit(Found { header, offset, place: offset, bytes: size, record })?;
                self.valid = self.at + size as u64;
                self.valid_place = self.valid;
                match next {
                    Next::GoOn => Step::Took(size),
                    Next::Pause => {
                        self.want = 8;
                        Step::Paused(size)
                    }
                }
            }
            Parsed::Need(count) if self.need(self.at, count) => Step::Stop,
            Parsed::Need(_) | Parsed::Invalid => {
                let search = self.valid_part_ends("no valid record");
                self.probe_after(bytes).unwrap_or(search)
            }
        })
    }

    /// Probes the record after the damaged one that begins with `bytes`, if its length may be right.
    fn probe_after(&mut self, bytes: &[u8]) -> Option<Step> {
        let length = bytes.first_chunk::<4>().filter(|_| self.salvages())?;
        let next = self.at.saturating_add(8).saturating_add(u32::from_le_bytes(*length).into());
        if !self.need(next, 8) {
            return None;
        }
        self.stage = Stage::Probe;
        Some(Step::Stop)
    }

    /// Reading continues here if a record is valid here, else the search begins.
    fn probe(&mut self, bytes: &[u8]) -> Step {
        match parse_record(LogPosition { segment: self.id, offset: self.at }, bytes) {
            Parsed::Found(_) => self.resume(self.at, self.at),
            Parsed::Need(count) if self.need(self.at, count) => Step::Stop,
            Parsed::Need(_) | Parsed::Invalid => {
                self.stage = Stage::Search;
                self.at = self.searched;
                self.want = 1;
                Step::Stop
            }
        }
    }

    /// Continues with valid records at a place in the file that has that position.
    fn resume(&mut self, place: u64, position: u64) -> Step {
        stdx::reached!("commitlog-salvaged");
        self.gaps.push((self.valid_place, place));
        self.stage = Stage::Records;
        self.valid = position;
        self.valid_place = place;
        self.at = place;
        self.want = 8;
        Step::Stop
    }

    fn salvages(&self) -> bool {
        self.after_damage == AfterDamage::Salvage && self.header.is_some()
    }

    fn block<E>(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(Found<'_>) -> Result<Next, E>,
    ) -> Result<Step, E> {
        let mut inside = match self.inside.take() {
            Some(inside) => inside,
            None => match self.open_block(bytes) {
                Ok(bytes) => Inside { from: 0, bytes },
                Err(step) => return Ok(step),
            },
        };
        let place = self.at;
        while inside.from < self.block.len() {
            let position = LogPosition { segment: self.id, offset: self.valid };
            match parse_record(position, self.block.get(inside.from..).unwrap_or(&[])) {
                Parsed::Found((record, size)) => {
                    let (header, offset) = (self.header.as_ref(), self.valid);
                    let next = visit(Found { header, offset, place, bytes: size, record })?;
                    inside.from += size;
                    self.valid += size as u64;
                    if next == Next::Pause {
                        self.inside = Some(inside);
                        return Ok(Step::Paused(0));
                    }
                }
                Parsed::Need(_) | Parsed::Invalid => {
                    self.hollow = Some(place);
                    return Ok(self.valid_part_ends("no valid record in a block"));
                }
            }
        }
        self.valid_place = self.at + inside.bytes as u64;
        Ok(Step::Took(inside.bytes))
    }

    /// Unpacks the next block. Returns how many bytes it has in the file, else the step to take.
    fn open_block(&mut self, bytes: &[u8]) -> Result<usize, Step> {
        let block = match parse_block(self.id, self.at, bytes) {
            Parsed::Found(block) => block,
            Parsed::Need(count) if self.need(self.at, count) => return Err(Step::Stop),
            Parsed::Need(_) | Parsed::Invalid => {
                return Err(self.valid_part_ends("no valid block"));
            }
        };
        if block.offset != self.valid {
            return Err(self.valid_part_ends("a block of another position"));
        }
        match block.unpack(&mut self.unpacker, &mut self.block) {
            Ok(()) => Ok(block.bytes),
            Err(NotUnpacked::Damaged(what)) => Err(self.valid_part_ends(what)),
            Err(NotUnpacked::Sealed(what)) => {
                self.what = what;
                self.sealed = Some(what);
                self.stage = Stage::Done;
                Err(Step::Stop)
            }
        }
    }

    /// Looks for markers and for blocks with markers; when the header is damaged, for both.
    fn search<E>(
        &mut self,
        bytes: &[u8],
        visit: &mut impl FnMut(Found<'_>) -> Result<Next, E>,
    ) -> Result<Step, E> {
        let base = self.at;
        loop {
            let from = usize::try_from(self.searched.saturating_sub(base)).unwrap_or(usize::MAX);
            let rest = bytes.get(from..).unwrap_or(&[]);
            let (marker, block) = (MARKER_MAGIC.first(), BLOCK_MAGIC.first());
            let next = rest.iter().position(|b| Some(b) == marker || Some(b) == block);
            let Some(next) = next else {
                self.searched = base.saturating_add(bytes.len() as u64).max(self.searched);
                return Ok(self.search_on(1));
            };
            let index = from.saturating_add(next);
            self.searched = base.saturating_add(index as u64);
            let candidate = self.candidate(base, bytes, index, visit)?;
            if let Some((place, position)) = self.resumes_at.take()
                && self.salvages()
                && self.hollow != Some(place)
            {
                return Ok(self.resume(place, position));
            }
            let wanted = match candidate {
                Parsed::Found(size) => {
                    self.searched = self.searched.saturating_add(size as u64);
                    continue;
                }
                Parsed::Need(count) => count,
                Parsed::Invalid => 0,
            };
            if wanted > 0 && self.need_behind(wanted) {
                return Ok(Step::Stop);
            }
            self.searched = self.searched.saturating_add(1);
        }
    }

    /// Requests bytes from a marker's header before the offset of the search on.
    fn need_behind(&mut self, count: usize) -> bool {
        let before = self.searched.saturating_sub(RECORD_HEADER_BYTES as u64);
        let more = usize::try_from(self.searched.saturating_sub(before)).unwrap_or(0);
        self.need(before, count.saturating_add(more))
    }

    fn search_on(&mut self, count: usize) -> Step {
        if !self.need_behind(count) {
            self.stage = Stage::Done;
        }
        Step::Stop
    }

    /// Examines `bytes[index]`, which begins like a magic number. Returns the bytes that the record
    /// takes.
    fn candidate<E>(
        &mut self,
        base: u64,
        bytes: &[u8],
        index: usize,
        visit: &mut impl FnMut(Found<'_>) -> Result<Next, E>,
    ) -> Result<Parsed<usize>, E> {
        let rest = bytes.get(index..).unwrap_or(&[]);
        let compressed = self.header.as_ref().map(SegmentHeader::has_blocks);
        let magic = MARKER_MAGIC.as_slice();
        let common = rest.len().min(magic.len());
        if compressed != Some(true) && rest.get(..common) == magic.get(..common) {
            if rest.len() < MARKER_BYTES - RECORD_HEADER_BYTES {
                return Ok(Parsed::Need(MARKER_BYTES - RECORD_HEADER_BYTES));
            }
            let Some(start) = index.checked_sub(RECORD_HEADER_BYTES) else {
                return Ok(Parsed::Invalid);
            };
            let place = base.saturating_add(start as u64);
            let position = LogPosition { segment: self.id, offset: place };
            let record = bytes.get(start..).unwrap_or(&[]);
            if let Parsed::Found((record @ Record::Marker(_), size)) =
                parse_record(position, record)
            {
                self.resumes_at = Some((place, place));
                visit(Found { header: None, offset: place, place, bytes: size, record })?;
            }
            return Ok(Parsed::Invalid);
        }
        if compressed == Some(false) {
            return Ok(Parsed::Invalid);
        }
        let place = base.saturating_add(index as u64);
        let block = match parse_block(self.id, place, rest) {
            Parsed::Found(block) => block,
            Parsed::Need(count) => return Ok(Parsed::Need(count)),
            Parsed::Invalid => return Ok(Parsed::Invalid),
        };
        match block.unpack(&mut self.unpacker, &mut self.block) {
            Ok(()) => self.resumes_at = Some((place, block.offset)),
            Err(NotUnpacked::Damaged(_)) => return Ok(Parsed::Invalid),
            Err(NotUnpacked::Sealed(what)) => {
                self.sealed = Some(what);
                return Ok(Parsed::Invalid);
            }
        }
        let (mut from, mut offset) = (0, block.offset);
        while let Parsed::Found((record, size)) = parse_record(
            LogPosition { segment: self.id, offset },
            self.block.get(from..).unwrap_or(&[]),
        ) {
            if matches!(record, Record::Marker(_)) {
                visit(Found { header: None, offset, place, bytes: size, record })?;
            }
            from += size;
            offset += size as u64;
        }
        Ok(Parsed::Found(block.bytes))
    }
}

/// Scans bytes that are all there, `piece` at a time.
///
/// # Errors
/// Those of `visit`.
pub fn scan_bytes<E>(
    id: SegmentId,
    bytes: &[u8],
    piece: usize,
    keys: Option<&Keys>,
    visit: impl FnMut(Found<'_>) -> Result<(), E>,
) -> Result<Scan, E> {
    scan_with(Scanner::begin(id, bytes.len() as u64, bytes, keys), bytes, piece, visit)
}

/// The same with a scanner that has begun.
pub(crate) fn scan_with<E>(
    mut scanner: Scanner,
    bytes: &[u8],
    piece: usize,
    mut visit: impl FnMut(Found<'_>) -> Result<(), E>,
) -> Result<Scan, E> {
    while let Some((at, want)) = scanner.wants() {
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(want.max(piece)).min(bytes.len());
        scanner.feed(bytes.get(from..to).unwrap_or(&[]), &mut visit)?;
    }
    Ok(scanner.finish())
}
