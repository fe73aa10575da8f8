//! `system_views.credentials_cache_keys`: roles whose password some shard has checked. Source: Cassandra's
//! `CredentialsCacheKeysTable`.

use std::collections::BTreeSet;

use admin::{AdminReply, AdminRequest};
use cql_plan::virtual_row::VirtualRowBuilder;
use schema::Table;

use super::{Rows, Sources};

pub(super) async fn rows(sources: &Sources, table: &Table) -> Rows {
    let mut roles = BTreeSet::new();
    for reply in sources.ask(AdminRequest::CachedCredentials).await {
        if let AdminReply::Credentials(of_shard) = reply {
            roles.extend(of_shard);
        }
    }
    let row = |role: &String| VirtualRowBuilder::new(table).text("role", role).finish();
    roles.iter().map(row).collect()
}
