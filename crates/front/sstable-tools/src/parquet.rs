//! Rows in Parquet, there and back.
//!
//! Owns: which Parquet type a CQL type is ([`shape`]), rows to columns ([`rows_to_file`]), columns to
//! rows ([`file_to_rows`]), values of Parquet to values of CQL ([`value`]), what becomes of a panic of the
//! crate's ([`guard`]). Never: encodings, pages,
//! checksums and compression, which are the crate `parquet`'s.
//!
//! Files of other writers may have every form of a list, every unit of time, numbers of other widths; a value that
//! does not fit its column is rejected by name. The types are in `docs/user/sstable-tools.md`.

mod file_to_rows;
mod guard;
mod rows_to_file;
mod shape;
mod value;

#[cfg(test)]
mod tests;

pub(super) use file_to_rows::FileReader;
pub(super) use rows_to_file::FileWriter;
pub(super) use shape::Decimals;
pub(super) use value::{Value, to_cql};
