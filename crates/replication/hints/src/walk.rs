//! Reads the records of a file through a window that its driver moves.
//!
//! Bytes that are no record are skipped: by the record's length if its header is valid, else to the
//! next offset with a valid record header. Skipped bytes are reported as a [`Gap`].

use stdx::WallMicros;

use crate::format::{HintRef, RECORD_HEADER_BYTES, RecordHeader};

/// Bytes of a file that hold no valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Its first byte.
    pub from: u64,
    /// Offset after the gap: of a record, or the file's end.
    pub to: u64,
    /// True if the writer had synced its first byte. If not, the gap may be left over from a write
    /// that a crash interrupted and that nothing depended on.
    pub was_synced: bool,
}

/// A record of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found<'w> {
    /// Offset of the record.
    pub at: u64,
    /// Offset after the record.
    pub next: u64,
    /// The hint in the record.
    pub hint: HintRef<'w>,
}

/// Next step of the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'w> {
    /// A record.
    Record(Found<'w>),
    /// The window must begin at `from` and hold at least `bytes` from there.
    Read {
        /// Start of the window.
        from: u64,
        /// Bytes that are needed there; the file has so many.
        bytes: usize,
    },
    /// No more records.
    End,
}

/// Walks over one file. The caller asks for the next step with a window of the file's bytes, moves
/// the window when a step requires it, and asks for the gaps at any time.
#[derive(Clone, Debug)]
pub struct Walker {
    sequence: u64,
    at: u64,
    end: u64,
    /// Start of the bytes that are being stepped over.
    open: Option<u64>,
    /// So many bytes were synced, as the records met so far attest.
    attested: u64,
    gaps: Vec<(u64, u64)>,
}

impl Walker {
    /// Over the records of the file with this sequence from `at` to `end`, its length.
    pub fn new(sequence: u64, at: u64, end: u64) -> Walker {
        Walker { sequence, at, end, open: None, attested: 0, gaps: Vec::new() }
    }

    /// Returns the offset at which the next record is searched.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The bytes from `from` to the position are no records either (a damaged file header).
    pub fn count_gap(&mut self, from: u64) {
        self.open = Some(from);
    }

    /// The file is shorter than was thought.
    pub fn cut(&mut self, end: u64) {
        self.end = self.end.min(end);
    }

    /// Returns the gaps so far. A later record may still show that one was synced.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + '_ {
        let gap = |(from, to): &(u64, u64)| {
            let was_synced = *from < self.attested;
            Gap { from: *from, to: *to, was_synced }
        };
        self.gaps.iter().map(gap)
    }

    /// Takes the next step. `window` are the file's bytes from `start` on.
    pub fn step<'w>(&mut self, window: &'w [u8], start: u64) -> Step<'w> {
        loop {
            let left = self.end.saturating_sub(self.at);
            if left < RECORD_HEADER_BYTES as u64 {
                if left > 0 {
                    self.open.get_or_insert(self.at);
                    self.at = self.end;
                }
                self.close_gap();
                return Step::End;
            }
            let rest = self.at.checked_sub(start).and_then(|skip| usize::try_from(skip).ok());
            let rest = rest.and_then(|skip| window.get(skip..)).unwrap_or(&[]);
            if rest.len() < RECORD_HEADER_BYTES {
                return Step::Read { from: self.at, bytes: RECORD_HEADER_BYTES };
            }
            let Some(header) = RecordHeader::decode(self.sequence, self.at, rest) else {
                self.open.get_or_insert(self.at);
                self.at += 1;
                continue;
            };
            let whole = RECORD_HEADER_BYTES + header.length;
            if whole as u64 > left {
                // The header is whole, so its length is right: nothing can follow.
                self.open.get_or_insert(self.at);
                self.at = self.end;
                continue;
            }
            if rest.len() < whole {
                return Step::Read { from: self.at, bytes: whole };
            }
            let at = self.at;
            let mutation = rest.get(RECORD_HEADER_BYTES..whole).unwrap_or(&[]);
            let next = at + whole as u64;
            // A record with a damaged mutation, too, proves what was synced.
            self.attested = self.attested.max(u64::from(header.synced));
            if codec::crc32(mutation) != header.mutation_crc {
                self.open.get_or_insert(at);
                self.at = next;
                continue;
            }
            self.close_gap();
            self.at = next;
            let RecordHeader { written_at, gc_grace_seconds, .. } = header;
            let hint = HintRef { written_at, gc_grace_seconds, mutation };
            return Step::Record(Found { at, next, hint });
        }
    }

    fn close_gap(&mut self) {
        // A file shorter than its header has a shorter gap, an empty one none.
        let to = self.at.min(self.end);
        if let Some(from) = self.open.take().filter(|from| *from < to) {
            self.gaps.push((from, to));
        }
    }
}

/// When a hint may no longer be applied: a deletion that it knows nothing of may have been purged
/// then. `gc_grace_now` is the table's `gc_grace_seconds` today.
pub fn expires_at(hint: &HintRef<'_>, gc_grace_now: u32) -> WallMicros {
    let seconds = i64::from(hint.gc_grace_seconds.min(gc_grace_now));
    WallMicros(hint.written_at.0.saturating_add(seconds.saturating_mul(1_000_000)))
}

/// Visits all records after the header of a whole file and returns the gaps: for tools, tests and
/// fuzzing.
pub fn walk_file(sequence: u64, bytes: &[u8], mut visit: impl FnMut(Found<'_>)) -> Vec<Gap> {
    let begin = crate::format::HEADER_BYTES as u64;
    let mut walker = Walker::new(sequence, begin, bytes.len() as u64);
    // The window is the whole file, so it never has to move.
    while let Step::Record(found) = walker.step(bytes, 0) {
        visit(found);
    }
    walker.gaps().collect()
}
