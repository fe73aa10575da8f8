//! `system_views.sai_column_indexes`, `sai_sstable_indexes` and `sai_sstable_index_segments`, and `system."IndexInfo"`:
//! secondary indexes of this node.
//!
//! Both kinds of indexes are attached to SSTables, so the tables have them all. A component is one segment, whose rows are
//! numbered from 0; which of them have a value is not known without reading it.
//!
//! Source: Cassandra's `ColumnIndexesSystemView`, `SSTableIndexesSystemView`, `SegmentsSystemView`.

use std::collections::BTreeMap;

use admin::model::{IndexReport, IndexedSstableReport};
use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::{Rows, Sources, whole};

/// Version of the components: `docs/formats/index.md`.
const FORMAT_VERSION: &str = "hl1";

/// The indexes of all shards together, by keyspace, table and name.
async fn reports(sources: &Sources) -> Vec<IndexReport> {
    let mut all: BTreeMap<(String, String, String), IndexReport> = BTreeMap::new();
    for reply in sources.ask(AdminRequest::Indexes).await {
        let AdminReply::Indexes(reports) = reply else { continue };
        for report in reports {
            let name = (report.keyspace.clone(), report.table.clone(), report.index.clone());
            match all.get_mut(&name) {
                Some(mine) => mine.merge(report),
                None => {
                    all.insert(name, report);
                }
            }
        }
    }
    all.into_values().collect()
}

pub(super) async fn columns(sources: &Sources, table: &Table) -> Rows {
    column_rows(&reports(sources).await, table)
}

pub(super) async fn sstables(sources: &Sources, table: &Table) -> Rows {
    sstable_rows(&reports(sources).await, table)
}

pub(super) async fn segments(sources: &Sources, table: &Table) -> Rows {
    segment_rows(&reports(sources).await, table)
}

/// `system."IndexInfo"`: the indexes that queries can use. Its stored table stays empty: a Cassandra that gets the
/// directory must build them.
pub(super) async fn built(sources: &Sources, table: &Table) -> Rows {
    built_rows(&reports(sources).await, table)
}

pub(super) fn column_rows(indexes: &[IndexReport], table: &Table) -> Rows {
    let row = |index: &IndexReport| {
        VirtualRowBuilder::new(table)
            .text("keyspace_name", &index.keyspace)
            .text("index_name", &index.index)
            .text("analyzer", &index.analyzer)
            .text("column_name", &index.column)
            .boolean("is_building", !index.is_built || index.sstables_without > 0)
            .boolean("is_queryable", index.is_built)
            .boolean("is_string", index.is_literal)
            .text("table_name", &index.table)
            .finish()
    };
    indexes.iter().map(row).collect()
}

pub(super) fn sstable_rows(indexes: &[IndexReport], table: &Table) -> Rows {
    let mut rows = Vec::new();
    for index in indexes {
        for (path, sstable) in &index.sstables {
            let row = VirtualRowBuilder::new(table)
                .text("keyspace_name", &index.keyspace)
                .text("index_name", &index.index)
                .text("sstable_name", path)
                .bigint("cell_count", whole(sstable.entries))
                .text("column_name", &index.column)
                .text("end_token", &sstable.end_token.to_string())
                .text("format_version", FORMAT_VERSION)
                .bigint("max_row_id", last_row(sstable))
                .bigint("min_row_id", 0)
                .bigint("per_column_disk_size", whole(sstable.bytes))
                .bigint("per_table_disk_size", whole(sstable.rows_bytes))
                .text("start_token", &sstable.start_token.to_string())
                .text("table_name", &index.table)
                .finish()?;
            rows.push(row);
        }
    }
    Ok(rows)
}

pub(super) fn segment_rows(indexes: &[IndexReport], table: &Table) -> Rows {
    let mut rows = Vec::new();
    for index in indexes {
        for (path, sstable) in &index.sstables {
            let row = VirtualRowBuilder::new(table)
                .text("keyspace_name", &index.keyspace)
                .text("index_name", &index.index)
                .text("sstable_name", path)
                .bigint("segment_row_id_offset", 0)
                .bigint("cell_count", whole(sstable.entries))
                .text("column_name", &index.column)
                .text_map_map("component_metadata", components(sstable))
                .text("end_token", &sstable.end_token.to_string())
                .bigint("max_sstable_row_id", last_row(sstable))
                .text("max_term", &sstable.max_term)
                .bigint("min_sstable_row_id", 0)
                .text("min_term", &sstable.min_term)
                .text("start_token", &sstable.start_token.to_string())
                .text("table_name", &index.table)
                .finish()?;
            rows.push(row);
        }
    }
    Ok(rows)
}

pub(super) fn built_rows(indexes: &[IndexReport], table: &Table) -> Rows {
    let row = |index: &IndexReport| {
        VirtualRowBuilder::new(table)
            .text("table_name", &index.keyspace)
            .text("index_name", &index.index)
            .finish()
    };
    indexes.iter().filter(|index| index.is_built).map(row).collect()
}

fn last_row(sstable: &IndexedSstableReport) -> i64 {
    whole(sstable.rows.saturating_sub(1))
}

/// The components with what they hold.
fn components(
    sstable: &IndexedSstableReport,
) -> BTreeMap<&'static str, BTreeMap<&'static str, String>> {
    let terms = [
        ("Length", sstable.bytes.to_string()),
        ("num_terms", sstable.terms.to_string()),
        ("num_values", sstable.entries.to_string()),
    ];
    let rows = [("Length", sstable.rows_bytes.to_string()), ("num_rows", sstable.rows.to_string())];
    [("TERMS", terms.into()), ("ROWS", rows.into())].into()
}
