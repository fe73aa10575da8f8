//! Switch for copying rows from file to file verbatim: always on, except in tests that compare.

#[cfg(test)]
thread_local! {
    /// True if rows are copied at all: tests compare the output with and without.
    pub(crate) static IS_ON: std::cell::Cell<bool> = const { std::cell::Cell::new(true) };
    /// Rows that were copied of partitions which several inputs have.
    pub(crate) static RUN_ROWS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// Partitions that were copied whole.
    pub(crate) static PARTITIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// Blocks that were asked for because a partition was cut off.
    pub(crate) static CUT_OFF: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Always, but in tests.
pub(crate) fn is_on() -> bool {
    #[cfg(test)]
    return IS_ON.get();
    #[cfg(not(test))]
    true
}
