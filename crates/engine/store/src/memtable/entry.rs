//! One row in memory: its clustering and itself as one run of bytes.

use data::RowRef;

/// A row: length of the clustering, clustering and packed row in one allocation.
#[derive(Clone, Debug)]
pub(crate) struct Entry(Box<[u8]>);

/// A row, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryRef<'e>(&'e [u8]);

/// Stands for a length of four more bytes.
const LONG: u8 = 0xff;

/// Head of a clustering of few bytes.
#[inline]
pub(super) fn short_head(clustering: &[u8]) -> Option<u8> {
    u8::try_from(clustering.len()).ok().filter(|length| *length != LONG)
}

impl Entry {
    #[inline]
    pub(crate) fn new(clustering: &[u8], row: RowRef<'_>) -> Entry {
        let row = row.bytes();
        let short = short_head(clustering);
        let head = if short.is_some() { 1 } else { 5 };
        let mut bytes = Vec::with_capacity(head + clustering.len() + row.len());
        bytes.push(short.unwrap_or(LONG));
        if short.is_none() {
            let length = u32::try_from(clustering.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_le_bytes());
        }
        bytes.extend_from_slice(clustering);
        bytes.extend_from_slice(row);
        Entry(bytes.into_boxed_slice())
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> EntryRef<'_> {
        EntryRef(&self.0)
    }

    #[inline(always)]
    pub(crate) fn clustering(&self) -> &[u8] {
        self.view().clustering()
    }

    /// Clustering and row.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (&[u8], RowRef<'_>) {
        self.view().parts()
    }

    pub(crate) fn row(&self) -> RowRef<'_> {
        self.view().row()
    }

    /// Memory it accounts for.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.view().memory_bytes()
    }
}

impl<'e> EntryRef<'e> {
    /// Wraps bytes that [`Entry::new`] built.
    #[inline(always)]
    pub(super) fn of(bytes: &'e [u8]) -> EntryRef<'e> {
        EntryRef(bytes)
    }

    #[inline(always)]
    fn split(self) -> (&'e [u8], &'e [u8]) {
        let (length, rest) = match self.0 {
            [LONG, rest @ ..] => match rest.split_first_chunk() {
                Some((length, rest)) => (u32::from_le_bytes(*length) as usize, rest),
                None => (0, rest),
            },
            [length, rest @ ..] => (usize::from(*length), rest),
            [] => (0, &[] as &[u8]),
        };
        rest.split_at_checked(length).unwrap_or((&[], &[]))
    }

    #[inline(always)]
    pub(crate) fn clustering(self) -> &'e [u8] {
        self.split().0
    }

    /// Clustering and row.
    #[inline(always)]
    pub(crate) fn parts(self) -> (&'e [u8], RowRef<'e>) {
        let (clustering, row) = self.split();
        (clustering, RowRef::trusted(row))
    }

    #[inline(always)]
    pub(crate) fn row(self) -> RowRef<'e> {
        RowRef::trusted(self.split().1)
    }

    /// Memory that it accounts for as an [`Entry`].
    pub(super) fn memory_bytes(self) -> usize {
        self.0.len() + size_of::<Entry>() + 16
    }

    /// Loads it.
    #[inline]
    pub(super) fn touch(self) -> u8 {
        touch(self.0)
    }
}

/// Loads one byte of each line of a processor's cache, of the first eight. It does not skip every
/// other line: on some processors a line's neighbour is not loaded with it, and then a reader of
/// the row waits for each of these separately.
#[inline]
pub(super) fn touch(bytes: &[u8]) -> u8 {
    bytes.iter().step_by(64).take(8).fold(0, |sum, byte| sum.wrapping_add(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_clusterings_of_every_length_apart_from_their_rows() {
        for length in (0..600).chain([65_540, 200_000]) {
            let clustering: Vec<u8> = (0..length).map(|i| (i % 253) as u8).collect();
            for row in [&b""[..], b"row", &[LONG; 9]] {
                let entry = Entry::new(&clustering, RowRef::trusted(row));
                assert_eq!((entry.clustering(), entry.row().bytes()), (&clustering[..], row));
                let overhead = if length < 255 { 1 } else { 5 };
                assert_eq!(entry.0.len(), length + row.len() + overhead);
            }
        }
    }
}
