//! `system_views.settings`: those in force on the shard that is asked. Source: Cassandra's `SettingsTable`.

use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::{Rows, Sources};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let live = sources.live.borrow();
    let names = conf::options::NAMES.iter();
    names
        .filter_map(|(name, _)| Some((name, live.render(name)?)))
        .map(|(name, value)| {
            VirtualRowBuilder::new(table).text("name", name).text("value", &value).finish()
        })
        .collect()
}
