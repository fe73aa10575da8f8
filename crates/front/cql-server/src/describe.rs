//! DESCRIBE: rows that the planner makes of the schema, as a page of a result.

use crate::execute::{Cx, Describe, Step};
use crate::failure::Result;
use crate::wire_type::{Described, Description};
use cql_plan::describe::{
    DESCRIBE_KEYSPACE, DESCRIBE_TABLE, DescribeContext, DescribePlan, RangeOwners,
};
use cql_syntax::ast;
use cql_wire::{FrameExtras, MetadataMode, QueryParameters, RowsEncoder};

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
    // One node owns every range.
    let owner = format!("/{}", settings.storage_address);
    let range_owners = |_: &str| -> RangeOwners {
        snapshot.local.tokens.iter().map(|token| (*token, vec![owner.clone()])).collect()
    };
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
    let columns = result.columns.iter().map(|(name, ty)| Described {
        keyspace: DESCRIBE_KEYSPACE.into(),
        table: DESCRIBE_TABLE.into(),
        name: (*name).into(),
        ty: ty.clone(),
    });
    let columns = Description::new(columns.collect());
    let description = columns.encoded(cx.session.version())?;
    let mode = match describe {
        Describe::Full => MetadataMode::Full,
        Describe::Skip => MetadataMode::Skip,
        Describe::Changed => MetadataMode::Changed(columns.id()),
    };
    let extras =
        FrameExtras { tracing_id: cx.ticket.tracing_id(), warnings: &[], custom_payload: &[] };
    let (version, stream) = (cx.session.version(), cx.ticket.stream);
    let mut rows = RowsEncoder::begin(cx.out, version, stream, &extras, &description.block, mode)?;
    for row in &result.rows {
        for value in row {
            rows.value(value)?;
        }
        rows.end_row();
    }
    let frame = rows.into_frame(result.paging_state.as_deref())?;
    cx.session.finish(frame)?;
    Ok(Step::Done)
}
