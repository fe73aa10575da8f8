//! Fuzz targets: plain functions over bytes that must never panic.

use stdx::invariant;

use crate::format::{FileHeader, HEADER_BYTES, Progress};
use crate::walk::{Step, Walker, walk_file};

/// A hint file. Reading it in small windows finds the same records and gaps as reading it at once.
pub fn fuzz_hint_file(data: &[u8]) {
    let sequence = FileHeader::decode(data).map_or(1, |h| h.id.sequence);
    let mut whole = Vec::new();
    let gaps = walk_file(sequence, data, |found| {
        invariant!(
            found.at < found.next && found.next <= data.len() as u64,
            "a record lies inside"
        );
        whole.push((found.at, found.next));
    });
    let mut through_windows = Vec::new();
    let mut walker = Walker::new(sequence, HEADER_BYTES as u64, data.len() as u64);
    let (mut window, mut start): (&[u8], u64) = (&[], 0);
    loop {
        match walker.step(window, start) {
            Step::Record(found) => through_windows.push((found.at, found.next)),
            Step::Read { from, bytes } => {
                let begin = usize::try_from(from).unwrap_or(usize::MAX);
                let end = begin.saturating_add(bytes.max(64)).min(data.len());
                window = data.get(begin..end).unwrap_or(&[]);
                invariant!(window.len() >= bytes, "only bytes of the file are asked for");
                start = from;
            }
            Step::End => break,
        }
    }
    invariant!(whole == through_windows, "the same records through windows");
    invariant!(walker.gaps().eq(gaps.iter().copied()), "the same gaps through windows");
}

/// A progress file.
pub fn fuzz_hint_progress(data: &[u8]) {
    if let Some(progress) = Progress::decode(data) {
        invariant!(Progress::decode(&progress.encode()) == Some(progress), "progress comes back");
    }
}
