//! SELECT end to end over a table kept in plain vectors.

mod execution;
mod masks;
mod remote_fold;
mod restrictions;
mod splices;

use std::sync::Arc;

use cql_plan::PlanError;
use cql_plan::plan::{
    BoundValue, ExecuteOptions, PlanContext, PlanKind, PlanLimits, UuidSource, plan,
};
use cql_syntax::ast::StatementKind;
use data::command::{Partitions, ReadCommand, RingBound};
use data::{ClusteringComparator, MutationRef, RowRef};
use schema::{Schema, Table};
use stdx::{TimestampMicros, Token, WallMicros};

use super::{BoundSelect, Flow, SelectDone, SelectExec, SelectPlan};

pub(super) const NOW: WallMicros = WallMicros(1_700_000_000_000_000);

const TABLES: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE addr (street text, zip int)",
    "CREATE TABLE t (k int, c1 int, c2 int, v int, w text, l list<int>, s set<text>, \
     m map<text, int>, fm frozen<map<text, int>>, u addr, fu frozen<addr>, st int static, \
     tp tuple<int, text>, PRIMARY KEY (k, c1, c2))",
    "CREATE TABLE p (a int, b text, v int, \"Q\" int, PRIMARY KEY ((a, b)))",
    "CREATE TABLE d (k int, a int, b int, c int, v int, PRIMARY KEY (k, a, b, c)) \
     WITH CLUSTERING ORDER BY (a ASC, b DESC, c ASC)",
    "CREATE TABLE f (k int, fl frozen<list<int>>, c int, du duration, PRIMARY KEY (k, fl, c))",
    "CREATE TABLE mk (k int, c text MASKED WITH mask_inner(1, 0), b text MASKED WITH DEFAULT, \
     n int MASKED WITH mask_null(), m map<text, int> MASKED WITH DEFAULT, p int, \
     st text STATIC MASKED WITH mask_replace('?'), PRIMARY KEY (k, c))",
    // Columns named so that their order is not that of their ids.
    "CREATE TABLE kv (key int PRIMARY KEY, zz int, mm int, aa int)",
];

pub(super) struct World {
    pub(super) schema: Arc<Schema>,
    /// A page is cut whenever this many rows were scanned.
    pub(super) cut_after: Option<usize>,
    uuids: UuidSource,
    partitions: Vec<Partition>,
}

struct Partition {
    table: stdx::TableId,
    token: Token,
    key: Vec<u8>,
    static_row: Option<Vec<u8>>,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Rows as hexadecimal-free text: each cell formatted as CQL, null as `null`.
pub(super) type Rows = Vec<String>;

impl World {
    pub(super) fn new() -> World {
        World {
            schema: cql_testing::schema_of(TABLES),
            cut_after: None,
            uuids: UuidSource::new(1),
            partitions: Vec::new(),
        }
    }

    fn context<'a>(&'a self, limits: &'a PlanLimits) -> PlanContext<'a> {
        PlanContext {
            schema: &self.schema,
            keyspace: Some("ks"),
            limits,
            now: NOW,
            functions: None,
        }
    }

    fn options<'a>(&'a self, page: Option<u32>, state: Option<&'a [u8]>) -> ExecuteOptions<'a> {
        ExecuteOptions {
            now: NOW,
            clock: NOW,
            default_timestamp: TimestampMicros(NOW.0),
            page_size: page,
            paging_state: state,
            protocol_version: 5,
            uuids: &self.uuids,
            watch: None,
        }
    }

    /// Runs an INSERT or UPDATE; every row is written once.
    pub(super) fn write(&mut self, text: &str) {
        let limits = PlanLimits::default();
        let statement = cql_syntax::parse(text).unwrap();
        let planned = plan(&statement, &self.context(&limits)).unwrap();
        let PlanKind::Modify(modify) = &planned.kind else { panic!("not a write: {text}") };
        let mut out = Vec::new();
        let mutations = modify.bind(&[], &self.options(None, None), &mut out).unwrap();
        for mutation in mutations {
            let view = MutationRef::open(&out[mutation.range.clone()]).unwrap();
            self.apply(&view);
        }
    }

    fn apply(&mut self, mutation: &MutationRef<'_>) {
        let table = self.schema.table_by_id(mutation.table).unwrap().clone();
        let comparator = ClusteringComparator::for_table(&table);
        let token = codec::token_of(mutation.key);
        let at = self
            .partitions
            .iter()
            .position(|p| p.table == table.id && p.key == mutation.key)
            .unwrap_or_else(|| {
                self.partitions.push(Partition {
                    table: table.id,
                    token,
                    key: mutation.key.to_vec(),
                    static_row: None,
                    rows: Vec::new(),
                });
                self.partitions.len() - 1
            });
        let partition = &mut self.partitions[at];
        if let Some(row) = mutation.static_row {
            partition.static_row = Some(row.bytes().to_vec());
        }
        for (clustering, row) in mutation.rows() {
            partition.rows.push((clustering.to_vec(), row.bytes().to_vec()));
        }
        partition.rows.sort_by(|a, b| comparator.compare(&a.0, &b.0));
        self.partitions.sort_by(|a, b| (a.token, &a.key).cmp(&(b.token, &b.key)));
    }

    pub(super) fn plan(&self, text: &str) -> Result<SelectPlan, PlanError> {
        let limits = PlanLimits::default();
        let statement = cql_syntax::parse(text)?;
        assert!(matches!(statement.kind, StatementKind::Select(_)), "{text}");
        match plan(&statement, &self.context(&limits))?.kind {
            PlanKind::Select(select) => Ok(*select),
            other => panic!("planned as {other:?}"),
        }
    }

    pub(super) fn bind(
        &self,
        text: &str,
        values: &[BoundValue<'_>],
    ) -> Result<BoundSelect, PlanError> {
        self.plan(text)?.bind(values, &self.options(None, None))
    }

    /// All rows on one page.
    pub(super) fn rows(&self, text: &str) -> Result<Rows, PlanError> {
        Ok(self.page(text, &[], None, None)?.0)
    }

    /// One page.
    pub(super) fn page(
        &self,
        text: &str,
        values: &[BoundValue<'_>],
        size: Option<u32>,
        state: Option<&[u8]>,
    ) -> Result<(Rows, SelectDone), PlanError> {
        let select = self.plan(text)?;
        let bound = select.bind(values, &self.options(size, state))?;
        let mut out = vec![0xaa; 3];
        let mut exec = SelectExec::new(&select, &bound, &mut out);
        for read in bound.reads() {
            if self.read(read, &mut exec) == Flow::Stop {
                break;
            }
        }
        let done = exec.finish()?;
        Ok((decode(&select, &out[3..], done.rows), done))
    }

    /// All pages of one size.
    pub(super) fn pages(&self, text: &str, size: u32) -> Result<Rows, PlanError> {
        let (mut rows, mut state) = (Vec::new(), None);
        for _ in 0..1_000 {
            let (page, done) = self.page(text, &[], Some(size), state.as_deref())?;
            assert!(page.len() <= size as usize, "{text}: page of {} rows", page.len());
            rows.extend(page);
            state = done.paging_state;
            if state.is_none() {
                return Ok(rows);
            }
        }
        panic!("{text}: paging does not end");
    }

    /// Reads as the store does.
    fn read(&self, command: &ReadCommand, exec: &mut SelectExec<'_>) -> Flow {
        let table = self.schema.table_by_id(command.table).unwrap();
        let comparator = ClusteringComparator::for_table(table);
        for partition in self.partitions.iter().filter(|p| p.table == command.table) {
            let (inside, resumed) = match &command.partitions {
                Partitions::Key(key) => (partition.key == *key, command.resume.is_some()),
                Partitions::Range(range) => {
                    let resumed = matches!(&range.start, RingBound::Key { key, after: false, .. }
                        if *key == partition.key);
                    let inside = above(&range.start, partition) && !above(&range.end, partition);
                    (inside, resumed && command.resume.is_some())
                }
            };
            if inside
                && self.show(partition, command, resumed, &comparator, table, exec) == Flow::Stop
            {
                return Flow::Stop;
            }
        }
        Flow::Continue
    }

    fn show(
        &self,
        partition: &Partition,
        command: &ReadCommand,
        resumed: bool,
        comparator: &ClusteringComparator,
        _table: &Table,
        exec: &mut SelectExec<'_>,
    ) -> Flow {
        let after = command.resume.as_ref().filter(|_| resumed).map(|r| r.clustering.as_deref());
        let mut rows: Vec<_> = partition
            .rows
            .iter()
            .filter(|(clustering, _)| {
                command.slices.0.iter().any(|s| {
                    comparator.compare_to_bound(clustering, s.start()).is_gt()
                        && comparator.compare_to_bound(clustering, s.end()).is_lt()
                })
            })
            .filter(|(clustering, _)| match after {
                Some(Some(last)) if command.reversed => {
                    comparator.compare(clustering, last).is_lt()
                }
                Some(Some(last)) => comparator.compare(clustering, last).is_gt(),
                _ => true,
            })
            .collect();
        if command.reversed {
            rows.reverse();
        }
        let static_row = partition.static_row.as_deref().map(RowRef::trusted);
        if rows.is_empty() && !(command.wants_static && static_row.is_some() && !resumed) {
            return Flow::Continue;
        }
        match exec.partition(partition.token, &partition.key, static_row) {
            Flow::Continue => {}
            Flow::SkipPartition => return exec.partition_end(),
            Flow::Stop => return Flow::Stop,
        }
        for (looked_at, (clustering, row)) in (1..).zip(rows) {
            match exec.row(clustering, RowRef::trusted(row)) {
                Flow::Continue if self.cut_after.is_some_and(|n| looked_at % n == 0) => {
                    if exec.cut_at(&partition.key, Some(clustering)) {
                        return Flow::Stop;
                    }
                }
                Flow::Continue => {}
                Flow::SkipPartition => break,
                Flow::Stop => return Flow::Stop,
            }
        }
        match exec.partition_end() {
            Flow::Stop => Flow::Stop,
            _ if self.cut_after.is_some() && exec.cut_at(&partition.key, None) => Flow::Stop,
            flow => flow,
        }
    }
}

fn above(bound: &RingBound, partition: &Partition) -> bool {
    match bound {
        RingBound::Token { token, after: false } => partition.token >= *token,
        RingBound::Token { token, after: true } => partition.token > *token,
        RingBound::Key { token, key, after } => {
            let order = (partition.token, &partition.key).cmp(&(*token, key));
            if *after { order.is_gt() } else { order.is_ge() }
        }
    }
}

fn decode(select: &SelectPlan, mut bytes: &[u8], rows: u32) -> Rows {
    let mut out = Vec::new();
    for _ in 0..rows {
        let mut cells = Vec::new();
        for column in select.result_columns().iter() {
            let (length, rest) = bytes.split_first_chunk::<4>().unwrap();
            let length = i32::from_be_bytes(*length);
            let Ok(length) = usize::try_from(length) else {
                bytes = rest;
                cells.push("null".to_owned());
                continue;
            };
            let (value, rest) = rest.split_at(length);
            column.ty.validate(value).unwrap();
            cells.push(column.ty.format_unquoted(value));
            bytes = rest;
        }
        out.push(cells.join(" "));
    }
    assert!(bytes.is_empty(), "bytes after the last row");
    out
}

/// The names of the result columns.
pub(super) fn names(select: &SelectPlan) -> Vec<String> {
    select.result_columns().iter().map(|c| format!("{}: {}", c.name, c.ty)).collect()
}
