//! DESCRIBE: rows that the planner computes from the schema, as a page of a result.

use crate::context::{Cx, Step};
use crate::description::{Described, Description};
use crate::failure::Result;
use crate::sink::{Describe, MadeRows, ResultSink};
use cluster::{ClusterSnapshot, PlacementKey, Replicas};
use cql_plan::describe::{
    DESCRIBE_KEYSPACE, DESCRIBE_TABLE, DescribeContext, DescribePlan, RangeOwners,
};
use cql_syntax::ast;
use cql_wire::QueryParameters;
use std::net::SocketAddr;
use types::CqlType;

/// Answers a DESCRIBE.
///
/// # Errors
/// The described object does not exist; a bad paging state.
pub(crate) fn run<S: ResultSink>(
    statement: &ast::Describe,
    keyspace: Option<&str>,
    parameters: &QueryParameters<'_>,
    describe: Describe,
    cx: &mut Cx<'_, S>,
) -> Result<Step<S::Answer>> {
    let snapshot = cx.executor.snapshot().clone();
    let settings = &cx.executor.settings;
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
    let made = MadeRows {
        columns: &described(DESCRIBE_KEYSPACE, DESCRIBE_TABLE, &result.columns),
        describe,
        rows: result.rows.iter().map(|row| row.iter().map(|value| Some(value.as_slice()))),
        paging_state: result.paging_state.as_deref(),
        warnings: &[],
    };
    cx.sink.rows(cx.out, cx.ticket, made)?;
    Ok(Step::Done)
}

/// Describes the columns of rows that the planner builds, as columns of this table.
pub(crate) fn described(
    keyspace: &str,
    table: &str,
    columns: &[(&'static str, CqlType)],
) -> Description {
    let columns = columns.iter().map(|(name, ty)| Described {
        keyspace: keyspace.into(),
        table: table.into(),
        name: (*name).into(),
        ty: ty.clone(),
    });
    Description::new(columns.collect::<Vec<_>>())
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
