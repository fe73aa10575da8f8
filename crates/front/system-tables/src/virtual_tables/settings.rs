//! `system_views.settings`: those in force on the shard that is asked. Source: Cassandra's `SettingsTable`.

use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::{Rows, Sources};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let live = sources.live.borrow();
    let names = conf::options::NAMES.iter();
    let whole = names.filter_map(|(name, _)| Some(((*name).to_owned(), live.render(name)?)));
    // Cassandra shows the keys of maps one by one, under new and old names.
    let of_map = |map: &'static str, rows: Vec<(&'static str, String)>| {
        rows.into_iter().flat_map(move |(name, value)| {
            ['.', '_'].map(|separator| (format!("{map}{separator}{name}"), value.clone()))
        })
    };
    let audit = of_map("audit_logging_options", live.audit_logging_options.rows());
    let queries = of_map("full_query_logging_options", live.full_query_logging_options.rows());
    whole
        .chain(audit)
        .chain(queries)
        .map(|(name, value)| {
            VirtualRowBuilder::new(table).text("name", &name).text("value", &value).finish()
        })
        .collect()
}
