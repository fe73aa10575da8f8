//! Body of the fuzz target of replica pages (its shell is in `request::fuzz`).

use std::collections::BTreeMap;

use schema::{Column, ColumnKind, Table, TableKind, TableOptions};
use stdx::{ColumnId, DeletionSeconds, TableId, Uuid};
use types::CqlType;

use crate::cursor::{Advance, Cursor};
use crate::page_cursor::{PageChain, PageCursor, PageStops};
use crate::replica_page::{PageFlow, PageLimits, PageWriter, ReplicaPage};
use crate::shape::TableShape;

fn shape() -> TableShape {
    let column =
        |id, name: &str, ty, kind| Column { id: ColumnId(id), name: name.into(), ty, kind };
    let clustering = |position, reversed| ColumnKind::Clustering { position, reversed };
    TableShape::for_table(&Table {
        id: TableId(Uuid::from_u128(1)),
        keyspace: "ks".into(),
        name: "t".into(),
        kind: TableKind::Regular,
        columns: vec![
            column(0, "pk", CqlType::Blob, ColumnKind::PartitionKey(0)),
            column(1, "c1", CqlType::Int, clustering(0, false)),
            column(2, "c2", CqlType::Text, clustering(1, true)),
            column(3, "v", CqlType::Text, ColumnKind::Regular),
            column(4, "s", CqlType::set(CqlType::Int, false), ColumnKind::Regular),
        ],
        partition_key_count: 1,
        clustering_count: 2,
        static_count: 0,
        options: TableOptions::default(),
        dropped: BTreeMap::new(),
        masks: BTreeMap::new(),
        indexes: Default::default(),
        version: 1,
        next_column_id: 5,
    })
}

/// Any bytes are refused or can be walked and written again; the first byte says whether the page
/// is of a reversed read.
pub fn walk_page(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let (shape, reversed) = (shape(), first & 1 != 0);
    let Ok(page) = ReplicaPage::parse(bytes, &shape, reversed) else { return };
    let chain = PageChain::new(page);
    let stops = PageStops::of([&chain], &shape, reversed);
    let mut cursor = PageCursor::new(&shape, reversed, &chain, &stops);
    let limits = PageLimits {
        rows: u32::MAX,
        rows_per_partition: u32::MAX,
        bytes: usize::MAX,
        tombstones: u32::MAX,
    };
    let mut writer = PageWriter::new(&shape, reversed, DeletionSeconds(5), true, limits);
    while let Ok(Advance::Item) = cursor.advance() {
        if writer.item(&cursor.item()) == PageFlow::Full {
            break;
        }
    }
    let again = writer.finish_at(page.end());
    assert!(ReplicaPage::parse(&again, &shape, reversed).is_ok(), "a rewritten page is refused");
}
