//! `rows_per_partition` of a table's `caching`.

use crate::tables::table::TableState;

/// How much of a partition is cached: `rows_per_partition` of the table option `caching`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CachedRows {
    /// `NONE`.
    #[default]
    None,
    /// This many rows from the start; all of them for `ALL`.
    First(u32),
}

impl CachedRows {
    /// From the text of the option, which was checked when the table was made.
    pub(crate) fn parse(text: Option<&str>) -> CachedRows {
        match text {
            Some(text) if text.eq_ignore_ascii_case("all") => CachedRows::First(u32::MAX),
            Some(text) => match text.parse() {
                Ok(rows) if rows > 0 => CachedRows::First(rows),
                _ => CachedRows::None,
            },
            None => CachedRows::None,
        }
    }
}

impl TableState {
    /// How much of its partitions is cached.
    pub(crate) fn cached_rows(&self) -> CachedRows {
        self.version.borrow().cached_rows
    }
}
