//! Tests of `tables`.

pub(super) mod dropped_columns;
