//! `system_views.caches`. Source: Cassandra's `CachesTable`.

use admin::model::CacheReport;
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::sources::{Sources, merged};
use super::{Rows, int, whole};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let caches = CacheReport::of_metrics(&merged(&sources.metrics().await));
    let row = |cache: &CacheReport| {
        VirtualRowBuilder::new(table)
            .text("name", &cache.name)
            .bigint("capacity_bytes", whole(cache.capacity_bytes))
            .int("entry_count", int(cache.entries))
            .bigint("hit_count", whole(cache.hits))
            .double("hit_ratio", cache.hit_ratio())
            .bigint("request_count", whole(cache.requests))
            .bigint("size_bytes", whole(cache.size_bytes))
            .finish()
    };
    caches.iter().map(row).collect()
}
