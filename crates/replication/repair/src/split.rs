//! Split positions of a segment whose replicas differ, chosen by this node's rows of it.

use data::page_cursor::{PageChain, PageCursor, PageStops};
use data::replica_page::ReplicaPage;
use data::{Advance, Cursor, Item, TableShape};

use crate::segment::Position;

/// Returns positions that split a page into about `parts` parts of equal bytes; none if it has too
/// few rows. They lie after partitions, and after rows of partitions that are large themselves.
pub fn positions(page: &ReplicaPage<'_>, shape: &TableShape, parts: usize) -> Vec<Position> {
    let target = (page.content().len() / parts.max(1)).max(1);
    let has_clustering = !shape.clustering().is_empty();
    let chain = PageChain::new(*page);
    let no_stops = PageStops::NONE;
    let mut cursor = PageCursor::new(shape, false, &chain, &no_stops);
    let mut positions = Vec::new();
    let (mut partition, mut bytes) = (None, 0);
    while let Ok(Advance::Item) = cursor.advance() {
        match cursor.current() {
            Item::Partition { token, key, .. } => {
                partition = Some((token, key));
                bytes += key.len() + 4;
            }
            Item::Static(row) => bytes += row.bytes().len() + 1,
            Item::Row { clustering, row } => {
                bytes += clustering.len() + row.bytes().len() + 3;
                if let Some((token, key)) = partition
                    && bytes >= target
                    && has_clustering
                {
                    positions.push(Position::inside(token, key, clustering));
                    bytes = 0;
                }
            }
            Item::Marker(marker) => bytes += marker.position.prefix.len() + 20,
            Item::PartitionEnd => {
                if let Some((token, key)) = partition
                    && bytes >= target
                {
                    positions.push(Position::after(token, key));
                    bytes = 0;
                }
            }
        }
    }
    positions
}
