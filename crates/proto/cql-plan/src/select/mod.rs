//! SELECT: a statement to a plan, a plan with values to reads.
//!
//! Owns: [`SelectPlan`] (checked WHERE clause, selection, ordering), [`BoundSelect`] (what to read
//! and where the page begins), [`ResultPlan`] (what becomes of the rows), filters of rows. Never: reading;
//! results of rows (`cql-exec`).
//!
//! Reading order: this file, `relations`, `clause`, `restrictions`, `index`, `nearest`, `bind`,
//! `selection`, `expr`, `result_plan`.

mod arguments;
mod bind;
mod bound_select;
mod clause;
mod error_order;
mod expr;
mod filter;
mod group;
mod index;
mod masks;
mod merge;
mod nearest;
mod reads;
pub(crate) mod relations;
pub(crate) mod restrictions;
mod result_plan;
mod selection;
mod statement_fingerprint;
mod writetime_ttl;

use std::sync::Arc;

use cql_syntax::ast::Statement;
use cql_syntax::ast::{self, Order, Selection};
use data::ClusteringComparator;
use schema::{Column, ColumnKind, Table, TableKind};
use smallvec::SmallVec;
use stdx::ColumnId;
use types::CqlType;

use crate::context::PlanContext;
use crate::error::PlanError;
use crate::functions::UuidSource;
use crate::functions::user::FUEL_PER_REQUEST;
use crate::paging::PagingState;
use crate::tables::is_log_table;
use crate::term::Binds;
use crate::term::{PlannedTerm, Receiver, plan_term};
use crate::values::{Bound, BoundValue, ExecuteOptions};

use crate::column_source::Source;
pub use bound_select::BoundSelect;
pub use expr::{CellFact, Cells, Expr};
pub use filter::{BoundFilters, Filter, Test};
pub use group::GroupFunction;
pub use index::{IndexPlan, IndexedPredicate};
pub use nearest::{NearestPlan, NearestQuery};
pub use result_plan::{ResultPlan, Shaping, SortColumn};
pub use selection::{AggregateFunction, AggregateSpec, ConstantCall, Output, PlannedSelection};
pub use statement_fingerprint::StatementFingerprint;

use bind::Values;
use error_order::earlier_error;
use group::plan_groups;
use nearest::ann_ordering;
use relations::{WhereContext, existing_column, plan_where};
use restrictions::{KeyAccess, Restrictions};
use selection::{plan_selection, selected_columns};

/// Said of pages that would have to be sorted together.
const CANNOT_PAGE: &str = "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must \
     either remove the ORDER BY or the IN and sort client side, or disable paging for this query";

/// "No limit" of rows.
pub const UNLIMITED: u32 = u32::MAX;

/// One column of a result, as metadata shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// Keyspace of the table.
    pub keyspace: Arc<str>,
    /// Table.
    pub table: Arc<str>,
    /// Name or alias.
    pub name: Arc<str>,
    /// Type of the values.
    pub ty: CqlType,
}

/// A planned SELECT.
#[derive(Clone, Debug)]
pub struct SelectPlan {
    results: Arc<ResultPlan>,
    restrictions: Restrictions,
    columns: Arc<Vec<ResultColumn>>,
    limit: Option<PlannedTerm>,
    per_partition_limit: Option<PlannedTerm>,
    timeout: Option<PlannedTerm>,
    bypass_cache: bool,
    /// Static columns are selected.
    selects_statics: bool,
    /// Columns outside the primary key whose cells are read; `None`: all.
    looked_at: Option<Arc<[ColumnId]>>,
    /// Distinguishes the statement from others in paging states.
    fingerprint: StatementFingerprint,
    selects_all: bool,
    /// ALLOW FILTERING is written.
    allows_filtering: bool,
    /// GROUP BY is written.
    groups: bool,
    /// No guardrail is about its clauses: see [`SelectPlan::is_plain`].
    plain: bool,
    /// Shards may make groups of the rows that they have.
    folds: bool,
    /// Error of a mask of the result that cannot be computed; reported at each execution.
    wrong_mask: Option<PlanError>,
    /// The rows nearest to a vector are wanted.
    nearest: Option<Box<NearestPlan>>,
}

/// Plans a SELECT.
///
/// # Errors
/// Everything Cassandra refuses, in its words; unsupported forms, by name.
pub(crate) fn plan_select(
    select: &ast::Select,
    statement: &Statement,
    table: &Arc<Table>,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<SelectPlan, PlanError> {
    SelectPlan::new(select, statement, table, cx, binds)
}

fn check_per_partition_limit(select: &ast::Select, shaping: &Shaping) -> Result<(), PlanError> {
    let everything = matches!(shaping, Shaping::Groups { prefix: None });
    if everything && select.per_partition_limit.is_some() {
        return Err(PlanError::invalid(
            "PER PARTITION LIMIT is not allowed with aggregate queries.",
        ));
    }
    Ok(())
}

/// Returns true if rows are read from the last to the first.
fn reversed(
    table: &Table,
    ordering: &[(usize, bool)],
    restrictions: &Restrictions,
) -> Result<bool, PlanError> {
    match ordering.is_empty() {
        true => Ok(false),
        false if restrictions.uses_index => Err(PlanError::invalid(
            "ORDER BY with 2ndary indexes is not supported, except for ANN queries.",
        )),
        false if restrictions.access == KeyAccess::Range => Err(PlanError::invalid(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN.",
        )),
        false => is_reversed(table, ordering, restrictions),
    }
}

/// Columns by which rows of several partitions are sorted.
fn sort_columns(
    table: &Table,
    ordering: &[(usize, bool)],
    restrictions: &Restrictions,
) -> Vec<SortColumn> {
    let ordering = if restrictions.key_is_in() { ordering } else { &[] };
    let position = |index: usize| index.saturating_sub(table.partition_key_count);
    ordering.iter().map(|(index, _)| SortColumn { position: position(*index) }).collect()
}

/// Returns the warning for aggregations that read much.
fn warning(shaping: &Shaping, restrictions: &Restrictions) -> Option<&'static str> {
    match (shaping, restrictions.key_is_in()) {
        (Shaping::Groups { .. }, true) => {
            Some("Aggregation query used on multiple partition keys (IN restriction)")
        }
        (Shaping::Groups { .. }, false)
            if restrictions.partition.is_empty() && restrictions.token.is_none() =>
        {
            Some("Aggregation query used without partition key")
        }
        _ => None,
    }
}

impl SelectPlan {
    fn new(
        select: &ast::Select,
        statement: &Statement,
        table: &Arc<Table>,
        cx: &PlanContext<'_>,
        binds: &mut Binds,
    ) -> Result<SelectPlan, PlanError> {
        let ann = ann_ordering(&select.order_by, table, cx, binds)?;
        let or_earlier = |error| earlier_error(select, statement, table, cx).unwrap_or(error);
        // Needed only where static columns make a difference; unknown names are found below.
        let needs_selected = table.static_count > 0 || select.distinct;
        let selected = match needs_selected {
            true => selected_columns(&select.selection, table),
            false => Ok(Vec::new()),
        };
        let ordering = ordering_columns(select, table).map_err(or_earlier)?;
        // Cassandra prepares the selection after the WHERE clause; markers stand in text order.
        let context = WhereContext {
            allow_filtering: select.allow_filtering,
            filters_freely: table.kind == TableKind::Virtual && !is_log_table(table),
            selects_only_statics: selected
                .as_ref()
                .is_ok_and(|selected| selects_only_statics(table, selected)),
            ann: ann.as_ref().map(|ordering| ordering.column),
        };
        let grouped = !select.group_by.is_empty();
        let restrictions =
            plan_where(&select.relations, table, context, cx, binds).map_err(or_earlier)?;
        let mut selection =
            plan_selection(&select.selection, table, grouped, cx, binds).map_err(or_earlier)?;
        let selected = selected?;
        if select.distinct {
            check_distinct(select, table, &selected, &restrictions)?;
        }
        let nearest = ann.map(|ordering| NearestPlan::new(table, ordering)).transpose()?;
        let groups = match grouped {
            true => Some(plan_groups(select, &restrictions, &mut selection, table, cx, binds)?),
            false => None,
        };
        let (prefix, group_function) = groups.unzip();
        let shaping = shaping(select, &selection, prefix);
        check_per_partition_limit(select, &shaping)?;
        let reversed = reversed(table, &ordering, &restrictions)?;
        restrictions.check_filters()?;
        let sort = sort_columns(table, &ordering, &restrictions);
        let warning = warning(&shaping, &restrictions);
        let mut limit = |term: &Option<ast::Term>, name: &'static str, ty: CqlType| {
            let Some(term) = term else { return Ok(None) };
            let receiver = Receiver {
                keyspace: &table.keyspace,
                table: &table.name,
                name: Arc::from(name),
                ty,
            };
            plan_term(term, &receiver, cx, binds).map(Some)
        };
        let per_partition_limit =
            limit(&select.per_partition_limit, "[per_partition_limit]", CqlType::Int)?;
        let row_limit = limit(&select.limit, "[limit]", CqlType::Int)?;
        let timeout = limit(&select.timeout, "[timeout]", CqlType::Duration)?;
        let static_alone = nearest.is_none() && restrictions.shows_static_alone(table);
        let selects_statics = table.static_count > 0 && selects_statics(&selection);
        let uses_statics = selects_statics || restrictions.filters_statics(table);
        let looked_at = looked_at(&selection, &restrictions, nearest.as_ref(), table);
        let (columns, json) = result_columns(select, table, &selection);
        let wrong_mask = if table.masks.is_empty() { None } else { masks::wrong(&selection) };
        let results = Arc::new(ResultPlan {
            comparator: ClusteringComparator::for_table(table),
            shaping,
            json,
            distinct: select.distinct,
            reversed,
            sort,
            static_alone,
            uses_statics,
            only_static_rows: table.is_static_compact(),
            warning,
            group_function: group_function.flatten().map(Box::new),
            selection,
            table: table.clone(),
        });
        Ok(SelectPlan {
            folds: results.can_be_folded(),
            plain: !(grouped || select.allow_filtering || restrictions.scans_by_index()),
            results,
            restrictions,
            columns: Arc::new(columns),
            limit: row_limit,
            per_partition_limit,
            timeout,
            bypass_cache: select.bypass_cache,
            selects_statics,
            looked_at,
            fingerprint: StatementFingerprint::of(statement),
            selects_all: matches!(select.selection, Selection::Wildcard) && !select.json,
            allows_filtering: select.allow_filtering,
            groups: grouped,
            wrong_mask,
            nearest: nearest.map(Box::new),
        })
    }

    /// Digest of the statement and the table, for paging states.
    fn digest(&self) -> u64 {
        self.fingerprint.digest(&self.results.table)
    }

    /// Returns the plan for the rows that are read.
    pub fn results(&self) -> &Arc<ResultPlan> {
        &self.results
    }

    /// Returns the restrictions of the WHERE clause.
    #[cfg(test)]
    pub(crate) fn restrictions(&self) -> &Restrictions {
        &self.restrictions
    }

    /// For paging states.
    pub fn fingerprint(&self) -> &StatementFingerprint {
        &self.fingerprint
    }

    /// Returns the warning that the client gets at each execution.
    pub fn warning(&self) -> Option<&'static str> {
        self.results.warning
    }

    /// Returns the statement that creates an index for a filter of ALLOW FILTERING that none answers.
    pub fn advised_index(&self) -> Option<&str> {
        self.restrictions.advised_index.as_deref()
    }

    /// ALLOW FILTERING is written.
    pub fn allows_filtering(&self) -> bool {
        self.allows_filtering
    }

    /// GROUP BY is written.
    pub fn groups(&self) -> bool {
        self.groups
    }

    /// Shards may make its groups: see `cql_exec::SelectFold`.
    pub fn folds(&self) -> bool {
        self.folds
    }

    /// All rows are one group.
    pub fn is_one_group(&self) -> bool {
        matches!(self.results.shaping, Shaping::Groups { prefix: None })
    }

    /// The filters ask for a row by several columns outside the key, and indexes do not answer all of
    /// them: which of them a row fulfils may differ between replicas
    /// (`RowFilter.isMutableIntersection`).
    pub fn intersects(&self) -> bool {
        self.restrictions.intersects
    }

    /// The filters that indexes answer; `None`: they answer none.
    pub fn index_plan(&self) -> Option<&IndexPlan> {
        self.restrictions.index_plan.as_deref()
    }

    /// The ordering by distance; `None`: the rows come in the order of the table.
    pub fn nearest_plan(&self) -> Option<&NearestPlan> {
        self.nearest.as_deref()
    }

    /// An index is used without a partition key.
    pub fn scans_by_index(&self) -> bool {
        self.restrictions.scans_by_index()
    }

    /// It has no GROUP BY, no ALLOW FILTERING and does not scan by index.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The table read.
    pub fn table(&self) -> &Arc<Table> {
        &self.results.table
    }

    /// The columns of the result.
    pub fn result_columns(&self) -> &Arc<Vec<ResultColumn>> {
        &self.columns
    }

    /// `SELECT *`: its columns change with the table.
    pub fn is_wildcard(&self) -> bool {
        self.selects_all
    }

    /// Binds values and the place where the page begins.
    ///
    /// # Errors
    /// Values that are not of the markers' types, or null or unset where that is refused; a bad
    /// paging state.
    pub fn bind(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<BoundSelect, PlanError> {
        let env = options.env();
        let v = Values { table: &self.results.table, values, env: &env };
        let limit = self.row_limit(&self.limit, &v)?;
        let per_partition = match self.results.distinct {
            true => 1,
            false => self.row_limit(&self.per_partition_limit, &v)?,
        };
        if let Some(function) = &self.results.group_function {
            function.check()?;
        }
        if let Some(wrong) = &self.wrong_mask {
            return Err(wrong.clone());
        }
        let limits = nearest::RowLimits { limit, per_partition };
        let nearest = self.bind_nearest(limits, values, options)?;
        let is_paged = !self.is_one_group() && nearest.is_none();
        let page_rows = match options.page_size {
            Some(rows) if rows > 0 && is_paged => rows,
            _ => UNLIMITED,
        };
        let state = match options.paging_state {
            Some(bytes) if is_paged => Some(PagingState::decode(bytes, self.digest())?),
            _ => None,
        };
        let mut terms = Vec::with_capacity(self.results.selection.terms.len());
        for (index, term) in self.results.selection.terms.iter().enumerate() {
            let value = term.bind(values, &env)?;
            if let Bound::Null | Bound::Unset = value {
                self.results.selection.check_key(index, value == Bound::Unset)?;
            }
            terms.push(match value {
                Bound::Value(bytes) => Some(bytes.into_owned()),
                Bound::Null | Bound::Unset => None,
            });
        }
        let mut bound = BoundSelect {
            reads: SmallVec::new(),
            filters: None,
            terms,
            limit: match &state {
                Some(state) if limit != UNLIMITED => state.remaining.min(limit),
                _ => limit,
            },
            per_partition,
            page_rows,
            reads_ahead: nearest.is_none() && self.reads_ahead(),
            nearest,
            now: options.now.seconds(),
            floor: None,
            resumed: None,
            unmasked: false,
            timeout_nanos: self.timeout_nanos(&v)?,
            wall: options.clock,
            protocol_version: options.protocol_version,
            uuids: match self.results.shaping {
                Shaping::Plain { .. } => UuidSource::new(0),
                _ => UuidSource::new(options.uuids.random()),
            }
            .with_function_fuel(FUEL_PER_REQUEST),
        };
        self.results.selection.check_constant_calls(&bound.terms, &env.eval)?;
        self.bind_reads(&v, state, &mut bound)?;
        if !self.results.sort.is_empty() {
            self.check_paging(options, &bound)?;
        }
        Ok(bound)
    }

    fn bind_nearest(
        &self,
        limits: nearest::RowLimits,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Option<Box<NearestQuery>>, PlanError> {
        let Some(nearest) = &self.nearest else { return Ok(None) };
        let query = nearest.bind(&self.results.shaping, limits, values, options)?;
        Ok(Some(Box::new(query)))
    }

    /// More rows are read than are given.
    fn reads_ahead(&self) -> bool {
        self.restrictions.has_filters()
            || !self.results.sort.is_empty()
            || matches!(self.results.shaping, Shaping::Groups { .. })
    }

    /// Rows that are sorted over partitions cannot be paged.
    fn check_paging(
        &self,
        options: &ExecuteOptions<'_>,
        bound: &BoundSelect,
    ) -> Result<(), PlanError> {
        let is_paged = match self.results.shaping {
            // Grouped queries are paged inside also when they find nothing to read.
            Shaping::Groups { .. } => options.page_size.is_some_and(|rows| rows > 0),
            _ => bound.page_rows != UNLIMITED && !bound.reads.is_empty(),
        };
        match is_paged {
            true => Err(PlanError::unpageable(CANNOT_PAGE)),
            false => Ok(()),
        }
    }

    fn row_limit(&self, term: &Option<PlannedTerm>, v: &Values<'_>) -> Result<u32, PlanError> {
        let Some(term) = term else { return Ok(UNLIMITED) };
        let bytes = match term.bind(v.values, v.env)? {
            Bound::Value(bytes) => bytes,
            Bound::Unset => return Ok(UNLIMITED),
            Bound::Null => return Err(PlanError::invalid("Invalid null value of limit")),
        };
        let Ok(bytes) = <[u8; 4]>::try_from(&*bytes) else {
            return Err(PlanError::invalid("Invalid limit value"));
        };
        let limit = i32::from_be_bytes(bytes);
        match u32::try_from(limit) {
            Ok(limit) if limit > 0 => Ok(limit),
            _ => Err(PlanError::invalid("LIMIT must be strictly positive")),
        }
    }

    fn timeout_nanos(&self, v: &Values<'_>) -> Result<Option<u64>, PlanError> {
        let Some(term) = &self.timeout else { return Ok(None) };
        let invalid = || PlanError::invalid("a timeout must be positive, without months and days");
        let Bound::Value(bytes) = term.bind(v.values, v.env)? else { return Err(invalid()) };
        let duration = types::Duration::from_bytes(&bytes).map_err(crate::term::invalid_value)?;
        if duration.months() != 0 || duration.days() != 0 || duration.nanos() <= 0 {
            return Err(invalid());
        }
        u64::try_from(duration.nanos()).map(Some).map_err(|_| invalid())
    }
}

/// Source: `SelectStatement.selectOnlyStaticColumns`.
fn selects_only_statics(table: &Table, selected: &[usize]) -> bool {
    let kind = |index: &usize| table.columns.get(*index).map(|c| c.kind);
    table.static_count > 0
        && !table.is_static_compact()
        && selected.iter().any(|i| kind(i) == Some(ColumnKind::Static))
        && selected
            .iter()
            .all(|i| matches!(kind(i), Some(ColumnKind::Static | ColumnKind::PartitionKey(_))))
}

/// Columns of ORDER BY, each with a flag that is true if it descends; a column named twice has its
/// last direction.
fn ordering_columns(select: &ast::Select, table: &Table) -> Result<Vec<(usize, bool)>, PlanError> {
    let mut columns: Vec<(usize, bool)> = Vec::new();
    // An ordering by distance stands alone.
    let is_near = select.order_by.iter().any(|ordering| ordering.ann_of.is_some());
    for ordering in select.order_by.iter().filter(|_| !is_near) {
        let (index, _) = existing_column(table, &ordering.column)?;
        let descends = ordering.order == Order::Desc;
        match columns.iter_mut().find(|(i, _)| *i == index) {
            Some(column) => column.1 = descends,
            None => columns.push((index, descends)),
        }
    }
    Ok(columns)
}

fn is_reversed(
    table: &Table,
    ordering: &[(usize, bool)],
    restrictions: &Restrictions,
) -> Result<bool, PlanError> {
    let keys = table.partition_key_count;
    let mut next = keys;
    let mut direction: Option<bool> = None;
    let mut directions = Vec::new();
    for (index, descends) in ordering {
        let column = table.columns.get(*index);
        let Some(Column { kind: ColumnKind::Clustering { reversed, .. }, .. }) = column else {
            return Err(PlanError::invalid(format!(
                "Order by is currently only supported on the clustered columns of the PRIMARY \
                 KEY, got {}",
                column.map_or("", |c| &*c.name)
            )));
        };
        while next != *index {
            let in_order = next < *index && restrictions.is_eq(next);
            if !in_order {
                return Err(PlanError::invalid(
                    "Order by currently only supports the ordering of columns following their \
                     declared order in the PRIMARY KEY",
                ));
            }
            next += 1;
        }
        next += 1;
        directions.push(descends != reversed);
    }
    for reversed in directions {
        if *direction.get_or_insert(reversed) != reversed {
            return Err(PlanError::invalid("Unsupported order by relation"));
        }
    }
    Ok(direction.unwrap_or(false))
}

fn check_distinct(
    select: &ast::Select,
    table: &Table,
    selected: &[usize],
    restrictions: &Restrictions,
) -> Result<(), PlanError> {
    if select.per_partition_limit.is_some() {
        return Err(PlanError::invalid(
            "PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries",
        ));
    }
    let is_static = |at: usize| table.columns.get(at).is_some_and(|c| c.kind == ColumnKind::Static);
    let is_ordered = select.order_by.iter().any(|ordering| ordering.ann_of.is_some());
    if is_ordered
        || !restrictions.clustering.is_empty()
        || !restrictions.other.iter().all(|r| is_static(r.first))
    {
        return Err(PlanError::invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or \
             static columns.",
        ));
    }
    let all: Vec<usize> = table.visible().map(|(at, _)| at).collect();
    let requested = match select.selection {
        Selection::Wildcard => &all,
        Selection::Items(_) => selected,
    };
    for index in requested {
        let Some(column) = table.columns.get(*index) else { continue };
        if !matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Static) {
            return Err(PlanError::invalid(format!(
                "SELECT DISTINCT queries must only request partition key columns and/or static \
                 columns (not {})",
                column.name
            )));
        }
    }
    if restrictions.access == KeyAccess::Range {
        for (index, column) in table.partition_key().iter().enumerate() {
            if !requested.contains(&index) {
                return Err(PlanError::invalid(format!(
                    "SELECT DISTINCT queries must request all the partition key columns (missing \
                     {})",
                    column.name
                )));
            }
        }
    }
    Ok(())
}

fn shaping(select: &ast::Select, selection: &PlannedSelection, prefix: Option<usize>) -> Shaping {
    if prefix.is_some() || selection.is_aggregate {
        return Shaping::Groups { prefix };
    }
    if select.json {
        return Shaping::Expressions;
    }
    let mut sources = Vec::with_capacity(selection.outputs.len());
    let (mut streams, mut clustering) = (true, false);
    let mut last_id = None;
    for output in &selection.outputs {
        let source = match &output.expr {
            // A counter's value is computed.
            Expr::Column(source) if !source.is_counter() => *source,
            _ => return Shaping::Expressions,
        };
        match source {
            Source::Regular(id, _) => {
                streams &= last_id.is_none_or(|last| last < id);
                last_id = Some(id);
            }
            Source::Clustering(_) => clustering = true,
            Source::Key(_) | Source::Static(..) => {}
        }
        sources.push(source);
    }
    Shaping::Plain { sources, streams, clustering }
}

fn selects_statics(selection: &PlannedSelection) -> bool {
    let mut is_static = |expr: &Expr| match expr {
        Expr::Column(source) | Expr::Fact { source, .. } => matches!(source, Source::Static(..)),
        _ => false,
    };
    let outputs = selection.outputs.iter().map(|o| &o.expr);
    let arguments = selection.aggregates.iter().flat_map(|a| &a.arguments);
    outputs.chain(&selection.first_row).chain(arguments).any(|e| e.any(&mut is_static))
}

/// The columns outside the primary key that outputs, filters, groups and an ordering by distance read; `None` if these are
/// all.
fn looked_at(
    selection: &PlannedSelection,
    restrictions: &Restrictions,
    nearest: Option<&NearestPlan>,
    table: &Table,
) -> Option<Arc<[ColumnId]>> {
    let mut found: Vec<ColumnId> = nearest.map(NearestPlan::column).into_iter().collect();
    let mut note = |expr: &Expr| {
        if let Expr::Column(source) | Expr::Fact { source, .. } = expr
            && let Source::Static(id, _) | Source::Regular(id, _) = source
        {
            found.push(*id);
        }
        false
    };
    let outputs = selection.outputs.iter().map(|o| &o.expr);
    let arguments = selection.aggregates.iter().flat_map(|a| &a.arguments);
    for expr in outputs.chain(&selection.first_row).chain(arguments) {
        expr.any(&mut note);
    }
    let filtered =
        restrictions.other.iter().flat_map(|r| table.columns.iter().skip(r.first).take(r.count));
    found.extend(filtered.map(|column| column.id));
    found.sort_unstable();
    found.dedup();
    let all = table.statics().len() + table.regulars().len();
    (found.len() < all).then(|| found.into())
}

fn result_columns(
    select: &ast::Select,
    table: &Table,
    selection: &PlannedSelection,
) -> (Vec<ResultColumn>, Option<Vec<String>>) {
    let column = |name: &Arc<str>, ty: &CqlType| ResultColumn {
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
        name: name.clone(),
        ty: ty.clone(),
    };
    if !select.json {
        return (selection.outputs.iter().map(|o| column(&o.name, &o.ty)).collect(), None);
    }
    let keys = selection.outputs.iter().map(|output| {
        let mut key = String::new();
        // A name with upper-case letters is quoted inside the JSON string, as Cassandra does.
        if *output.name == *output.name.to_lowercase() {
            types::format::push_json_string(&mut key, &output.name);
        } else {
            types::format::push_json_string(&mut key, &format!("\"{}\"", output.name));
        }
        key
    });
    (vec![column(&Arc::from("[json]"), &CqlType::Text)], Some(keys.collect()))
}
