//! Rows of the node's own tables, packed without CQL: clients may not write `system` tables, and the node must not
//! depend on its own statement texts being accepted.

use data::{CellRef, DeletionTime, Liveness, MutationBuilder, RowBuilder, RowRef};
use schema::Table;
use stdx::{DeletionSeconds, TimestampMicros, TtlSeconds};

/// The content of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A serialised value.
    Value(Vec<u8>),
    /// A map of many cells: serialised keys and values, sorted by key.
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
    /// A `map<text, text>` of many cells, sorted by key.
    Texts(Vec<(String, String)>),
}

/// One row to write: of one table, with its columns by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// Serialised partition key.
    pub key: Vec<u8>,
    /// Serialised clustering.
    pub clustering: Vec<u8>,
    /// Columns by name.
    pub columns: Vec<(&'static str, Content)>,
}

/// Encodes a row as a mutation; columns that the table does not have are left out.
pub fn encode_row(
    table: &Table,
    write: &RowWrite,
    at: TimestampMicros,
    ttl: TtlSeconds,
) -> Vec<u8> {
    let expires_at = match ttl {
        TtlSeconds::NONE => DeletionSeconds::NONE,
        TtlSeconds(ttl) => {
            DeletionSeconds(at.0.div_euclid(1_000_000).saturating_add(i64::from(ttl)))
        }
    };
    let mut columns: Vec<_> = write
        .columns
        .iter()
        .filter_map(|(name, content)| Some((table.column(name)?.id, content)))
        .collect();
    columns.sort_by_key(|(id, _)| *id);
    let liveness = Liveness { timestamp: at, ttl, expires_at };
    let cell = |value| CellRef { timestamp: at, ttl, local: expires_at, value };
    let mut row = Vec::new();
    let mut builder = RowBuilder::new(&mut row, liveness, DeletionTime::LIVE, at);
    for (id, content) in columns {
        match content {
            Content::Value(value) => builder.cell(id, &cell(value)),
            Content::Entries(entries) => {
                builder.begin_complex(id, DeletionTime::LIVE);
                for (key, value) in entries {
                    builder.complex_cell(key, &cell(value));
                }
                builder.end_complex();
            }
            Content::Texts(texts) => {
                builder.begin_complex(id, DeletionTime::LIVE);
                for (key, value) in texts {
                    builder.complex_cell(key.as_bytes(), &cell(value.as_bytes()));
                }
                builder.end_complex();
            }
        }
    }
    builder.finish();
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, table.id, table.version, &write.key);
    mutation.rows([(write.clustering.as_slice(), RowRef::trusted(&row))].into_iter());
    mutation.finish();
    out
}

/// Encodes the deletion of a partition.
pub(crate) fn encode_deletion(table: &Table, key: &[u8], at: TimestampMicros) -> Vec<u8> {
    let mut out = Vec::new();
    let mut mutation = MutationBuilder::new(&mut out, table.id, table.version, key);
    let local = DeletionSeconds(at.0.div_euclid(1_000_000));
    mutation.deletion(DeletionTime { timestamp: at, local });
    mutation.finish();
    out
}
