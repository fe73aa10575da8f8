//! DESCRIBE: rows that the planner makes of the schema, as a page of a result.

use crate::execute::{Cx, Describe, Step};
use crate::failure::Result;
use crate::session::{Session, Ticket};
use crate::wire_type::{Described, Description};
use cluster::{ClusterSnapshot, PlacementKey, Replicas};
use cql_plan::describe::{
    DESCRIBE_KEYSPACE, DESCRIBE_TABLE, DescribeContext, DescribePlan, RangeOwners,
};
use cql_syntax::ast;
use cql_wire::{FrameExtras, MetadataMode, QueryParameters, RowsEncoder};
use std::net::SocketAddr;
use types::CqlType;

/// Answers a DESCRIBE.
///
/// # Errors
/// What is described does not exist; a bad paging state.
pub(crate) fn run(
    statement: &ast::Describe,
    keyspace: Option<&str>,
    parameters: &QueryParameters<'_>,
    describe: Describe,
    cx: &mut Cx<'_>,
) -> Result<Step> {
    let snapshot = cx.server.snapshot().clone();
    let settings = &cx.server.settings;
    let range_owners = |keyspace: &str| owners(&snapshot, keyspace, settings.storage_address);
    let context = DescribeContext {
        schema: &snapshot.schema,
        keyspace,
        cluster_name: &snapshot.local.cluster_name,
        snitch: &settings.snitch,
        range_owners: &range_owners,
        page_size: parameters.page_size.and_then(|n| u32::try_from(n).ok()),
        paging_state: parameters.paging_state,
    };
    let result = DescribePlan::new(statement).run(&context)?;
    let page = MadeRows {
        keyspace: DESCRIBE_KEYSPACE,
        table: DESCRIBE_TABLE,
        columns: &result.columns,
        rows: &result.rows,
        paging_state: result.paging_state.as_deref(),
    };
    respond_rows(&page, describe, (cx.session, cx.ticket), cx.out)?;
    Ok(Step::Done)
}

/// A page of rows that were made, not read.
pub(crate) struct MadeRows<'r> {
    /// What the columns say they are of.
    pub(crate) keyspace: &'r str,
    pub(crate) table: &'r str,
    pub(crate) columns: &'r [(&'static str, CqlType)],
    /// Values in the order of the columns, none of them null.
    pub(crate) rows: &'r [Vec<Vec<u8>>],
    /// Where the next page begins.
    pub(crate) paging_state: Option<&'r [u8]>,
}

/// Appends such a page as an answer.
///
/// # Errors
/// A value that is too long.
pub(crate) fn respond_rows(
    page: &MadeRows<'_>,
    describe: Describe,
    (session, ticket): (&Session, &Ticket),
    out: &mut Vec<u8>,
) -> Result<()> {
    let columns = page.columns.iter().map(|(name, ty)| Described {
        keyspace: page.keyspace.into(),
        table: page.table.into(),
        name: (*name).into(),
        ty: ty.clone(),
    });
    let columns = Description::new(columns.collect::<Vec<_>>());
    let description = columns.encoded(session.version())?;
    let mode = match describe {
        Describe::Full => MetadataMode::Full,
        Describe::Skip => MetadataMode::Skip,
        Describe::Changed => MetadataMode::Changed(columns.id()),
    };
    let extras =
        FrameExtras { tracing_id: ticket.tracing_id(), warnings: &[], custom_payload: &[] };
    let (version, stream) = (session.version(), ticket.stream);
    let mut encoder = RowsEncoder::begin(out, version, stream, &extras, &description.block, mode)?;
    for row in page.rows {
        for value in row {
            encoder.value(value)?;
        }
        encoder.end_row();
    }
    session.finish(encoder.into_frame(page.paging_state)?)?;
    Ok(())
}

/// The replicas of each range of a keyspace, by the range's end. A node that is alone owns them all.
fn owners(snapshot: &ClusterSnapshot, keyspace: &str, own: SocketAddr) -> RangeOwners {
    let keyspace = snapshot.schema.keyspace(keyspace).filter(|_| snapshot.members.len() > 1);
    let Some(keyspace) = keyspace else {
        let owner = format!("/{own}");
        return snapshot.local.tokens.iter().map(|t| (*t, vec![owner.clone()])).collect();
    };
    let placements = PlacementKey::of_keyspace(snapshot, keyspace).placements(snapshot);
    let of_range = |replicas: Replicas<'_>| -> Vec<String> {
        replicas.natural().map(|member| format!("/{}", member.storage)).collect()
    };
    placements.ranges().map(|(range, replicas)| (range.end, of_range(replicas))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{member, several_members};
    use schema::{KeyspaceParams, SchemaChange};

    #[test]
    fn ranges_are_shown_with_their_replicas_in_ring_order() {
        let own = "127.0.0.1:7000".parse().unwrap();
        let alone = several_members(1);
        let owner = vec!["/127.0.0.1:7000".to_owned()];
        assert_eq!(owners(&alone, "ks", own), [(alone.local.tokens[0], owner)]);
        let mut snapshot = several_members(3);
        let replication = [("class", "SimpleStrategy"), ("replication_factor", "2")];
        let replication = replication.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let params = KeyspaceParams { durable_writes: true, replication };
        let change = SchemaChange::CreateKeyspace { name: "ks".into(), params };
        snapshot.schema = snapshot.schema.apply(&change).unwrap().into();
        let shown = |first: u8, second: u8| {
            let owners = [first, second].map(|n| format!("/127.0.0.{n}:7000"));
            (member(first).tokens[0], owners.to_vec())
        };
        assert_eq!(owners(&snapshot, "ks", own), [shown(1, 2), shown(2, 3), shown(3, 1)]);
    }
}
