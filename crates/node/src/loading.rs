//! Mutations that `helenus sstable load` builds from other nodes' files: checked against the
//! table's schema, then written to its replicas like those of a client.
//!
//! Never: reads files. Mutations keep their timestamps, so that applying one twice changes nothing.

use std::time::Duration;

use admin::model::LOAD_MUTATIONS_MAX;
use admin::{ActionError, UpkeepReply};
use cluster::Consistency;
use coordinator::ReplicatedWrite;
use data::clustering::components;
use data::counter::{ShardKind, shards};
use data::row::{CellRef, ColumnRef};
use data::{MutationRef, RowRef};
use request::WriteType;
use schema::{ColumnKind, Table};
use stdx::{TableId, Token, Uuid};

use crate::actions::Actions;
use coordinator::{Origin, ReplicaMutation};

/// Timeout of the replicas for one request.
const PATIENCE: Duration = Duration::from_secs(30);

fn argument(text: impl Into<String>) -> ActionError {
    ActionError::Argument(text.into())
}

fn gone() -> ActionError {
    argument("the table was dropped")
}

impl Actions {
    /// The table as the tool must know it.
    ///
    /// # Errors
    /// `Argument`: it is gone.
    pub(crate) fn load_target(&self, table: TableId) -> Result<UpkeepReply, ActionError> {
        let snapshot = self.membership.snapshot();
        let table = snapshot.schema.table_by_id(table).ok_or_else(gone)?;
        let mut definition = Vec::new();
        schema::encode::table(&mut definition, table);
        Ok(UpkeepReply::Table(definition))
    }

    /// Writes mutations of one table, each preceded by its length, and waits for the level.
    ///
    /// # Errors
    /// `Argument`: nothing was written, and a retry is useless. `Failed`: it may be written in
    /// part.
    pub(crate) async fn load(
        &self,
        id: TableId,
        consistency: &str,
        body: &[u8],
    ) -> Result<(), ActionError> {
        let consistency = level(consistency)?;
        if self.drained.get() {
            return Err(ActionError::Failed("the node is drained".to_owned()));
        }
        let snapshot = self.membership.snapshot();
        let table = snapshot.schema.table_by_id(id).ok_or_else(gone)?;
        let durable = snapshot.schema.keyspace(&table.keyspace);
        let durable = durable.is_none_or(|keyspace| keyspace.params.durable_writes);
        let mut mutations = Vec::new();
        for (number, bytes) in frames(body)?.into_iter().enumerate() {
            let token = checked(table, bytes)
                .map_err(|what| argument(format!("mutation {number} of the request: {what}")))?;
            mutations.push(ReplicaMutation { token, bytes: bytes.to_vec(), durable });
        }
        if mutations.is_empty() {
            return Ok(());
        }
        let failed = |error: String| Err(ActionError::Failed(error));
        if self.coordinator.is_replicated(&snapshot, id) {
            let order = ReplicatedWrite {
                snapshot,
                consistency,
                write_type: WriteType::UnloggedBatch,
                mutations,
                logged: false,
                batch_id: Uuid::nil(),
                deadline: self.rt.now() + PATIENCE,
            };
            let written = self.coordinator.writer().write_replicated(order).await;
            return written.or_else(|error| failed(error.to_string()));
        }
        for mutation in mutations {
            let applied = self.coordinator.apply(mutation, Origin::Load).await;
            applied.or_else(|error| failed(error.to_string()))?;
        }
        Ok(())
    }
}

fn level(name: &str) -> Result<Consistency, ActionError> {
    Ok(match name {
        "ONE" => Consistency::One,
        "TWO" => Consistency::Two,
        "THREE" => Consistency::Three,
        "QUORUM" => Consistency::Quorum,
        "ALL" => Consistency::All,
        "LOCAL_QUORUM" => Consistency::LocalQuorum,
        "EACH_QUORUM" => Consistency::EachQuorum,
        "LOCAL_ONE" => Consistency::LocalOne,
        _ => return Err(argument(format!("\"{name}\" is not a consistency level of a load"))),
    })
}

/// The mutations of a body.
fn frames(mut body: &[u8]) -> Result<Vec<&[u8]>, ActionError> {
    let mut found = Vec::new();
    while !body.is_empty() {
        if found.len() == LOAD_MUTATIONS_MAX {
            return Err(argument(format!("a request has at most {LOAD_MUTATIONS_MAX} mutations")));
        }
        let cut = body.split_first_chunk::<4>().and_then(|(length, rest)| {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            rest.split_at_checked(length)
        });
        let Some((frame, rest)) = cut else {
            return Err(argument("the last mutation of the request is cut short"));
        };
        found.push(frame);
        body = rest;
    }
    Ok(found)
}

/// Where a mutation belongs, if it is one of the table as it is now.
fn checked(table: &Table, bytes: &[u8]) -> Result<Token, String> {
    let opened = MutationRef::open(bytes).ok_or("no mutation of a known version")?;
    if opened.table != table.id {
        return Err("it is of another table".to_owned());
    }
    if opened.schema_version != table.version {
        return Err("the table was altered since the load began: begin it again".to_owned());
    }
    if opened.key.is_empty() {
        return Err("its partition key is empty".to_owned());
    }
    let parsed =
        MutationRef::parse(bytes, table.clustering_count).ok_or("it does not fit its table")?;
    if let Some(row) = parsed.static_row {
        check_row(table, row, true)?;
    }
    for (clustering, row) in parsed.rows() {
        check_clustering(table, clustering)?;
        check_row(table, row, false)?;
    }
    for range in parsed.range_tombstones() {
        check_clustering(table, range.start.prefix)?;
        check_clustering(table, range.end.prefix)?;
    }
    Ok(codec::token_of(parsed.key))
}

fn check_clustering(table: &Table, prefix: &[u8]) -> Result<(), String> {
    for (column, value) in table.clustering().iter().zip(components(prefix)) {
        let value = value.filter(|value| !value.is_empty());
        if value.is_some_and(|value| column.ty.validate(value).is_err()) {
            return Err(format!("column {} has a value of another type", column.name));
        }
    }
    Ok(())
}

fn check_row(table: &Table, row: RowRef<'_>, is_static: bool) -> Result<(), String> {
    for (id, content) in row.columns() {
        let column = table.column_by_id(id);
        let of_row = |kind| match kind {
            ColumnKind::Static => is_static,
            ColumnKind::Regular => !is_static,
            _ => false,
        };
        let Some(column) = column.filter(|column| of_row(column.kind)) else {
            return Err(format!("it has a column of number {} that is not in the row", id.0));
        };
        // A value that no file could hold must not reach a memtable: it could not be flushed.
        let fits = match &content {
            ColumnRef::Simple(cell) => {
                let value = cell.value;
                let is_none = cell.is_tombstone() || value.is_empty();
                let is_valid = is_none || table.is_counter() || column.ty.validate(value).is_ok();
                !column.is_complex() && is_valid && counts(table, cell)
            }
            ColumnRef::Complex(_) => column.is_complex(),
        };
        if !fits {
            return Err(format!("column {} has a value of another type", column.name));
        }
    }
    Ok(())
}

/// Counter cells must be whole counts of their writers: a delta would be counted twice by a retry.
fn counts(table: &Table, cell: &CellRef<'_>) -> bool {
    let is_whole = |value| {
        shards(value).is_some_and(|mut of_it| of_it.all(|shard| shard.kind != ShardKind::Local))
    };
    !table.is_counter() || cell.is_tombstone() || is_whole(cell.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_at_their_lengths_and_refused_when_they_are_short() {
        let mut body = Vec::new();
        for frame in [&b"ab"[..], b"", b"cde"] {
            body.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_le_bytes());
            body.extend_from_slice(frame);
        }
        assert_eq!(frames(&body).unwrap(), [&b"ab"[..], b"", b"cde"]);
        for length in 1..body.len() {
            let whole = [6, 10].contains(&length);
            assert_eq!(frames(&body[..length]).is_ok(), whole, "{length}");
        }
        assert!(frames(&[0xff; 12]).is_err());
        assert!(frames(&[0; 4 * (LOAD_MUTATIONS_MAX + 1)]).is_err());
    }

    #[test]
    fn a_mutation_that_does_not_fit_the_table_as_it_is_now_is_refused() {
        use data::clustering::push_component;
        use data::row::RowBuilder;
        use data::{DeletionTime, Liveness, MutationBuilder};
        use stdx::{ColumnId, TimestampMicros};

        let table = table();
        let made = |id: TableId, version: u64, key: &[u8], c: &[u8], column: u16, value: &[u8]| {
            let (mut row, mut at, mut out) = (Vec::new(), Vec::new(), Vec::new());
            let written = TimestampMicros(5);
            let mut builder =
                RowBuilder::new(&mut row, Liveness::new(written), DeletionTime::LIVE, written);
            builder.cell_at_base(ColumnId(column), value);
            builder.finish();
            push_component(&mut at, Some(c));
            let mut builder = MutationBuilder::new(&mut out, id, version, key);
            builder.rows([(at.as_slice(), RowRef::trusted(&row))].into_iter());
            builder.finish();
            checked(&table, &out)
        };
        let (id, other) = (table.id, TableId(Uuid::from_u128(9)));
        assert_eq!(made(id, 1, b"k", b"cccc", 2, b"vvvv"), Ok(codec::token_of(b"k")));
        // Another table, version, key, clustering, column, width.
        for (result, word) in [
            (made(other, 1, b"k", b"cccc", 2, b"vvvv"), "another table"),
            (made(id, 2, b"k", b"cccc", 2, b"vvvv"), "altered"),
            (made(id, 1, b"", b"cccc", 2, b"vvvv"), "empty"),
            (made(id, 1, b"k", b"ccc", 2, b"vvvv"), "column c has a value of another type"),
            (made(id, 1, b"k", b"cccc", 7, b"vvvv"), "number 7"),
            (made(id, 1, b"k", b"cccc", 2, b"vvvvv"), "column v has a value of another type"),
        ] {
            assert!(result.as_ref().is_err_and(|text| text.contains(word)), "{result:?}, {word}");
        }
        assert!(checked(&table, b"no mutation").is_err());
    }

    /// `k blob, c int, v int`.
    fn table() -> Table {
        use schema::{Column, TableKind, TableOptions};
        use types::CqlType::{Blob, Int};

        let columns = [
            ("k", Blob, ColumnKind::PartitionKey(0)),
            ("c", Int, ColumnKind::Clustering { position: 0, reversed: false }),
            ("v", Int, ColumnKind::Regular),
        ];
        let columns = (0..).zip(columns).map(|(id, (name, ty, kind))| Column {
            id: stdx::ColumnId(id),
            name: name.into(),
            ty,
            kind,
        });
        Table {
            id: TableId(Uuid::from_u128(1)),
            keyspace: "ks".into(),
            name: "t".into(),
            kind: TableKind::Regular,
            columns: columns.collect(),
            partition_key_count: 1,
            clustering_count: 1,
            static_count: 0,
            options: TableOptions::default(),
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Default::default(),
            version: 1,
            next_column_id: 3,
        }
    }

    #[test]
    fn levels_are_those_that_name_replicas() {
        assert_eq!(level("ALL"), Ok(Consistency::All));
        for name in ["", "all", "ANY", "SERIAL", "NODE_LOCAL"] {
            assert!(level(name).is_err(), "{name}");
        }
    }
}
