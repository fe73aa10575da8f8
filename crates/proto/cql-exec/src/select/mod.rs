//! Rows in, encoded result rows out.

mod accumulate;
pub(crate) mod folding;
pub(crate) mod folding_state;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use cql_functions::PlanError;
use cql_plan::column_source::{Source, key_component};
use cql_plan::paging::PagingState;
use cql_plan::select::{
    BoundSelect, ResultPlan, SelectPlan, Shaping, StatementFingerprint, UNLIMITED,
};
use data::clustering::components;
use data::command::Partitions;
use data::{ColumnRef, RowFilter, RowRef};
use smallvec::SmallVec;
use stdx::{ColumnId, Token};

use crate::cells::{put_column, put_value};
use crate::eval::{RowView, Scope, eval, eval_all};
use accumulate::Accumulator;

/// A page ends after the row that crosses this many bytes, when the client pages at all.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// Memory of a row or key that waits to be sorted, beside its bytes.
const KEPT_KEY_BYTES: usize = 40;

/// Next step of the reader; the store's sinks answer with the same three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue.
    Continue,
    /// Skip the rest of this partition.
    SkipPartition,
    /// End the read.
    Stop,
}

/// The end of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectDone {
    /// Rows written.
    pub rows: u32,
    /// The paging state that the client sends for the next page; `None` when no rows can follow.
    pub paging_state: Option<Vec<u8>>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Rows and partitions that filters dropped.
    pub dropped: Dropped,
    /// Bytes of the cells that were appended.
    pub bytes: u64,
}

/// Counts of the data that filters dropped from a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Rows.
    pub rows: u64,
    /// Partitions without a scanned row.
    pub partitions: u64,
}

/// Runs one page of a bound SELECT: takes rows in read order and appends the cells of result rows
/// to a buffer, each as `[bytes]`.
///
/// ```text
/// let mut exec = SelectExec::new(&plan, &bound, &mut out);
/// for read in bound.reads() { /* read it into `exec`; leave the loop when it says Stop */ }
/// let done = exec.finish()?;
/// ```
pub struct SelectExec<'p> {
    plan: &'p ResultPlan,
    /// Fingerprint of the statement, for paging states.
    fingerprint: Option<&'p StatementFingerprint>,
    bound: &'p BoundSelect,
    out: &'p mut Vec<u8>,
    /// Length of `out` before the first row.
    start: usize,
    rows: u32,
    limit_left: u32,
    page_left: u32,
    /// Rows of the current partition given so far, on earlier pages too.
    in_partition: u32,
    token: Token,
    key: SmallVec<[u8; 64]>,
    static_row: Vec<u8>,
    has_static: bool,
    /// The current partition may still be shown for its static row alone.
    may_show_static: bool,
    stopped: bool,
    /// Position at which the page was cut.
    cut: Option<Cut>,
    error: Option<PlanError>,
    group: Group,
    /// Clustering of the last row of the group that was written last; `None`: its partition was over.
    closed: Option<Vec<u8>>,
    sorted: Vec<SortedRow>,
    /// Their memory.
    sorted_bytes: usize,
    dropped: Dropped,
}

/// Position at which a page was cut, within the current partition.
struct Cut {
    key: SmallVec<[u8; 64]>,
    /// `None`: nothing more of the partition is wanted.
    clustering: Option<Vec<u8>>,
    rows_in_partition: u32,
}

/// The group that is open.
#[derive(Default)]
struct Group {
    open: bool,
    states: Vec<Accumulator>,
    first_row: Vec<Option<Vec<u8>>>,
    /// Clustering of its last row; `None` when that was a static row alone.
    last: Option<Vec<u8>>,
    /// That of its first row, where groups are sorted.
    first: Option<Vec<u8>>,
    /// Result of the function of GROUP BY for its rows.
    output: Option<Vec<u8>>,
    /// Only for a part that is merged with others: the token of its first row, and of the row that
    /// each least or greatest value comes from.
    places: Option<Box<Places>>,
}

/// Tokens of rows; they break ties among parts.
struct Places {
    first: Token,
    values: Vec<Token>,
}

impl Default for Places {
    fn default() -> Places {
        Places { first: Token::MAX, values: Vec::new() }
    }
}

/// A row kept until all are there.
struct SortedRow {
    keys: Vec<Option<Vec<u8>>>,
    cells: Vec<u8>,
}

impl<'p> SelectExec<'p> {
    /// Begins a page. Cells are appended to `out`.
    pub fn new(
        plan: &'p SelectPlan,
        bound: &'p BoundSelect,
        out: &'p mut Vec<u8>,
    ) -> SelectExec<'p> {
        let fingerprint = Some(plan.fingerprint());
        SelectExec { fingerprint, ..SelectExec::of_shard(plan.results(), bound, out) }
    }

    /// Starts the part of it that a shard executes, which ignores pages.
    pub(super) fn of_shard(
        plan: &'p ResultPlan,
        bound: &'p BoundSelect,
        out: &'p mut Vec<u8>,
    ) -> SelectExec<'p> {
        SelectExec {
            start: out.len(),
            plan,
            fingerprint: None,
            bound,
            out,
            rows: 0,
            limit_left: bound.limit,
            page_left: bound.page_rows,
            in_partition: 0,
            token: Token::MIN,
            key: SmallVec::new(),
            static_row: Vec::new(),
            has_static: false,
            may_show_static: false,
            stopped: false,
            cut: None,
            error: None,
            group: Group::default(),
            closed: None,
            sorted: Vec::new(),
            sorted_bytes: 0,
            dropped: Dropped::default(),
        }
    }

    /// A partition begins.
    pub fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> Flow {
        self.enter(token, key, static_row);
        self.in_partition = 0;
        self.may_show_static = self.plan.static_alone && static_row.is_some();
        if let Some((resumed, rows)) = &self.bound.resumed
            && resumed == key
        {
            self.in_partition = *rows;
            // A page may have ended in it before there was a row.
            self.may_show_static &= *rows == 0;
        }
        if self.in_partition >= self.bound.per_partition {
            self.may_show_static = false;
            return Flow::SkipPartition;
        }
        let static_row = self.has_static.then(|| RowRef::trusted(&self.static_row));
        if let Some(filters) = &self.bound.filters
            && !filters.keeps_partition(key, static_row)
        {
            self.dropped.partitions += 1;
            self.may_show_static = false;
            return Flow::SkipPartition;
        }
        Flow::Continue
    }

    /// Stores the data of a partition that is needed beside its rows.
    #[inline]
    fn enter(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) {
        self.token = token;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.has_static = false;
        if self.plan.uses_statics
            && let Some(row) = static_row
        {
            self.static_row.clear();
            self.static_row.extend_from_slice(row.bytes());
            self.has_static = true;
        }
    }

    /// A row of the partition.
    #[inline]
    pub fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> Flow {
        if self.plan.only_static_rows {
            return Flow::Continue;
        }
        if let Some(filters) = &self.bound.filters
            && !filters.keeps_row(clustering, row)
        {
            self.dropped.rows += 1;
            return Flow::Continue;
        }
        self.may_show_static = false;
        self.accept(Some(clustering), Some(row))
    }

    /// The page is full or the limit reached: nothing more is wanted.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Ends the page here, though it is not full, when it may have more pages: a client that gets
    /// few rows or none asks for the next page before its timeout. Everything up to this position
    /// was scanned. `clustering` is the last row of the partition `key`, `None`: all of it. Returns
    /// true if the page has ended.
    pub fn cut_at(&mut self, key: &[u8], clustering: Option<&[u8]>) -> bool {
        let is_cut_by_rows = match self.plan.shaping {
            Shaping::Plain { .. } | Shaping::Expressions => true,
            // A group is made of one read.
            Shaping::Groups { prefix } => prefix.is_some() && !self.group.open,
        };
        if self.page_left == UNLIMITED || !is_cut_by_rows || !self.plan.sort.is_empty() {
            return false;
        }
        let rows_in_partition = match &self.bound.resumed {
            _ if self.key[..] == *key => self.in_partition,
            Some((resumed, rows)) if resumed == key => *rows,
            _ => 0,
        };
        // Without clustering columns a partition has one row.
        let clustering = clustering.filter(|c| !c.is_empty()).map(<[u8]>::to_vec);
        self.cut = Some(Cut { key: SmallVec::from_slice(key), clustering, rows_in_partition });
        self.stopped = true;
        true
    }

    /// Memory of the answer so far, with rows that are kept to be sorted.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        self.out.len() + self.sorted_bytes
    }

    /// The key of the partition at hand.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The partition is over.
    pub fn partition_end(&mut self) -> Flow {
        if self.stopped {
            return Flow::Stop;
        }
        let flow = match self.may_show_static {
            true => self.accept(None, None),
            false => Flow::Continue,
        };
        self.may_show_static = false;
        if flow != Flow::Stop && matches!(self.plan.shaping, Shaping::Groups { prefix: Some(_) }) {
            return self.close_group(true);
        }
        if flow == Flow::Stop { Flow::Stop } else { Flow::Continue }
    }

    /// Ends the page.
    ///
    /// # Errors
    /// The error of an expression.
    pub fn finish(mut self) -> Result<SelectDone, PlanError> {
        if self.error.is_none() && matches!(self.plan.shaping, Shaping::Groups { prefix: None }) {
            self.open_group();
            self.write_group();
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.plan.sort.is_empty() {
            self.write_sorted();
        }
        let more = self.cut.take().filter(|cut| !self.is_last(cut));
        let paging_state = more.zip(self.fingerprint).map(|(cut, fingerprint)| {
            let state = PagingState {
                statement: fingerprint.digest(&self.plan.table),
                remaining: self.limit_left,
                key: cut.key.to_vec(),
                clustering: cut.clustering,
                rows_in_partition: cut.rows_in_partition,
            };
            state.encode()
        });
        let warnings = self.plan.warning.map(str::to_owned).into_iter().collect();
        let (dropped, bytes) = (self.dropped, self.out.len().saturating_sub(self.start) as u64);
        Ok(SelectDone { rows: self.rows, paging_state, warnings, dropped, bytes })
    }

    /// Returns true if nothing can come after the cut: the last key's partition is done.
    fn is_last(&self, cut: &Cut) -> bool {
        match self.bound.reads.last().map(|r| &r.partitions) {
            Some(Partitions::Key(key)) => cut.clustering.is_none() && key[..] == cut.key[..],
            _ => false,
        }
    }

    fn view<'a>(&'a self, clustering: Option<&'a [u8]>, row: Option<RowRef<'a>>) -> RowView<'a> {
        RowView {
            key: &self.key,
            key_columns: self.plan.table.partition_key_count,
            clustering,
            row,
            static_row: self.has_static.then(|| RowRef::trusted(&self.static_row)),
            now: self.bound.now,
        }
    }

    /// A row (or a static row alone) that passed the filters.
    #[inline]
    fn accept(&mut self, clustering: Option<&[u8]>, row: Option<RowRef<'_>>) -> Flow {
        let plan = self.plan;
        match &plan.shaping {
            Shaping::Plain { sources, streams, clustering: selected } if plan.sort.is_empty() => {
                self.write_plain(sources, *streams, clustering.filter(|_| *selected), row);
            }
            Shaping::Plain { .. } | Shaping::Expressions => {
                let at = self.out.len();
                if let Err(error) = self.write_row(clustering, row) {
                    return self.fail(error);
                }
                if !plan.sort.is_empty() {
                    self.keep_sorted(at, clustering);
                    let done = self.in_partition >= self.bound.per_partition;
                    return if done { Flow::SkipPartition } else { Flow::Continue };
                }
            }
            Shaping::Groups { prefix } => return self.add_to_group(*prefix, clustering, row),
        }
        self.count_row(clustering)
    }

    fn fail(&mut self, error: PlanError) -> Flow {
        self.error = Some(error);
        self.stopped = true;
        Flow::Stop
    }

    /// Counts a written row against all limits. `clustering`: position where a next page would
    /// continue; `None` when the partition is complete with it.
    #[inline]
    fn count_row(&mut self, clustering: Option<&[u8]>) -> Flow {
        self.rows = self.rows.saturating_add(1);
        self.in_partition = self.in_partition.saturating_add(1);
        if self.limit_left != UNLIMITED {
            self.limit_left = self.limit_left.saturating_sub(1);
            if self.limit_left == 0 {
                self.stopped = true;
                return Flow::Stop;
            }
        }
        let partition_done = self.in_partition >= self.bound.per_partition;
        if self.page_left != UNLIMITED {
            self.page_left = self.page_left.saturating_sub(1);
            if self.page_left == 0 || self.out.len() - self.start >= PAGE_BYTES_MAX {
                // Without clustering columns a partition has one row.
                let inside = clustering.filter(|c| !partition_done && !c.is_empty());
                self.cut = Some(Cut {
                    key: self.key.clone(),
                    clustering: inside.map(<[u8]>::to_vec),
                    rows_in_partition: self.in_partition,
                });
                self.stopped = true;
                return Flow::Stop;
            }
        }
        if partition_done { Flow::SkipPartition } else { Flow::Continue }
    }

    /// Writes columns as they are. One pass over the row, no allocation.
    #[inline]
    fn write_plain(
        &mut self,
        sources: &[Source],
        streams: bool,
        clustering: Option<&[u8]>,
        row: Option<RowRef<'_>>,
    ) {
        let now = self.bound.now;
        let key_columns = self.plan.table.partition_key_count;
        let static_row = self.has_static.then(|| RowRef::trusted(&self.static_row));
        let component =
            |index: u16| clustering.and_then(|c| components(c).nth(usize::from(index))).flatten();
        if !streams {
            // Columns out of id order: note where each lies, then write in selection order. Filled
            // in place: moving a list of this size costs more than the row.
            let mut columns: SmallVec<[(ColumnId, ColumnRef<'_>); 16]> = SmallVec::new();
            if let Some(row) = row {
                for column in row.columns() {
                    columns.push(column);
                }
            }
            for source in sources {
                match *source {
                    Source::Key(index) => {
                        put_value(self.out, key_component(&self.key, key_columns, index));
                    }
                    Source::Clustering(index) => put_value(self.out, component(index)),
                    Source::Static(id, shape) => {
                        put_column(self.out, static_row.and_then(|r| r.column(id)), shape, now);
                    }
                    Source::Regular(id, shape) => {
                        let found = columns.binary_search_by_key(&id, |(id, _)| *id);
                        let column = found.ok().and_then(|at| columns.get(at)).map(|(_, c)| *c);
                        put_column(self.out, column, shape, now);
                    }
                }
            }
            return;
        }
        let mut columns = row.map(|r| r.columns());
        let mut ahead: Option<(ColumnId, ColumnRef<'_>)> =
            columns.as_mut().and_then(Iterator::next);
        for source in sources {
            match *source {
                Source::Key(index) => {
                    put_value(self.out, key_component(&self.key, key_columns, index));
                }
                Source::Clustering(index) => put_value(self.out, component(index)),
                Source::Static(id, shape) => {
                    put_column(self.out, static_row.and_then(|r| r.column(id)), shape, now);
                }
                Source::Regular(id, shape) => {
                    while ahead.is_some_and(|(at, _)| at < id) {
                        ahead = columns.as_mut().and_then(Iterator::next);
                    }
                    let column = ahead.filter(|(at, _)| *at == id).map(|(_, c)| c);
                    put_column(self.out, column, shape, now);
                }
            }
        }
    }

    /// Writes the outputs as expressions.
    fn write_row(
        &mut self,
        clustering: Option<&[u8]>,
        row: Option<RowRef<'_>>,
    ) -> Result<(), PlanError> {
        let mut out = std::mem::take(self.out);
        let env = self.bound.env();
        let scope = Scope {
            row: Some(self.view(clustering, row)),
            terms: &self.bound.terms,
            aggregates: &[],
            first_row: &[],
            env: &env,
            unmasked: self.bound.unmasked,
        };
        let result = write_outputs(self.plan, &scope, &mut out);
        *self.out = out;
        result
    }

    fn open_group(&mut self) {
        if !self.group.open {
            self.group.open = true;
            self.group.states.clear();
            let starts =
                self.plan.selection.aggregates.iter().map(|a| Accumulator::start(&a.function));
            self.group.states.extend(starts);
            self.group.first_row.clear();
            if let Some(places) = &mut self.group.places {
                places.first = self.token;
                places.values.clear();
                places.values.resize(self.group.states.len(), self.token);
            }
        }
    }

    fn add_to_group(
        &mut self,
        prefix: Option<usize>,
        clustering: Option<&[u8]>,
        row: Option<RowRef<'_>>,
    ) -> Flow {
        let output = match self.group_output(clustering) {
            Ok(output) => output,
            Err(error) => return self.fail(error),
        };
        if let Some(prefix) = prefix
            && self.group.open
            && !self.same_group(prefix, clustering, output.as_deref())
        {
            let flow = self.close_group(false);
            if flow != Flow::Continue {
                return flow;
            }
        }
        let first = !self.group.open;
        self.open_group();
        self.group.output = output;
        let mut group = std::mem::take(&mut self.group);
        let result = self.feed_group(&mut group, first, clustering, row);
        if first && !self.plan.sort.is_empty() {
            group.first = clustering.map(<[u8]>::to_vec);
        }
        if prefix.is_some() {
            match clustering {
                Some(clustering) => {
                    let last = group.last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(clustering);
                }
                None => group.last = None,
            }
        }
        self.group = group;
        if let Err(error) = result {
            return self.fail(error);
        }
        if self.plan.distinct { Flow::SkipPartition } else { Flow::Continue }
    }

    fn feed_group(
        &self,
        group: &mut Group,
        first: bool,
        clustering: Option<&[u8]>,
        row: Option<RowRef<'_>>,
    ) -> Result<(), PlanError> {
        let env = self.bound.env();
        let scope = Scope {
            row: Some(self.view(clustering, row)),
            terms: &self.bound.terms,
            aggregates: &[],
            first_row: &[],
            env: &env,
            unmasked: self.bound.unmasked,
        };
        if first {
            for expr in &self.plan.selection.first_row {
                group.first_row.push(eval(expr, &scope)?.map(|v| v.into_owned()));
            }
        }
        let specs = self.plan.selection.aggregates.iter();
        for (index, (spec, state)) in specs.zip(&mut group.states).enumerate() {
            let is_its_value = match spec.arguments.as_slice() {
                [argument] => state.add(&[eval(argument, &scope)?.as_deref()], &env)?,
                arguments => {
                    let values = eval_all(arguments, &scope)?;
                    let values: Vec<_> = values.iter().map(|v| v.as_deref()).collect();
                    state.add(&values, &env)?
                }
            };
            if is_its_value
                && let Some(places) = &mut group.places
                && let Some(place) = places.values.get_mut(index)
            {
                *place = self.token;
            }
        }
        Ok(())
    }

    /// Returns the result of the function of GROUP BY for a row; null without one, and for a static
    /// row alone.
    fn group_output(&self, clustering: Option<&[u8]>) -> Result<Option<Vec<u8>>, PlanError> {
        let (Some(function), Some(_)) = (&self.plan.group_function, clustering) else {
            return Ok(None);
        };
        let env = self.bound.env();
        let scope = Scope {
            row: Some(self.view(clustering, None)),
            terms: &self.bound.terms,
            aggregates: &[],
            first_row: &[],
            env: &env,
            unmasked: self.bound.unmasked,
        };
        Ok(eval(function.expr(), &scope)?.map(|value| value.into_owned()))
    }

    fn same_group(&self, prefix: usize, clustering: Option<&[u8]>, output: Option<&[u8]>) -> bool {
        // With a function the last column of the prefix counts by the function's result.
        let (prefix, outputs) = match &self.plan.group_function {
            None => (prefix, true),
            Some(f) => (prefix.saturating_sub(1), f.is_same(self.group.output.as_deref(), output)),
        };
        match (&self.group.last, clustering) {
            (Some(last), Some(clustering)) => {
                outputs && components(last).take(prefix).eq(components(clustering).take(prefix))
            }
            (None, None) => true,
            _ => prefix == 0 && self.plan.group_function.is_none(),
        }
    }

    /// Writes the open group and counts it. `partition_over`: a next page continues after the
    /// partition.
    fn close_group(&mut self, partition_over: bool) -> Flow {
        if !self.group.open {
            return Flow::Continue;
        }
        let at = self.out.len();
        self.write_group();
        if self.error.is_some() {
            self.stopped = true;
            return Flow::Stop;
        }
        if !self.plan.sort.is_empty() {
            self.group.last = None;
            let first = self.group.first.take();
            self.keep_sorted(at, first.as_deref());
            let done = self.in_partition >= self.bound.per_partition && !partition_over;
            return if done { Flow::SkipPartition } else { Flow::Continue };
        }
        let last = self.group.last.take();
        let inside = last.filter(|_| !partition_over);
        let flow = self.count_group(inside.as_deref());
        self.closed = inside;
        flow
    }

    /// Counts a written group whose last row is this one; `None`: the partition is over.
    fn count_group(&mut self, last: Option<&[u8]>) -> Flow {
        match self.count_row(last) {
            Flow::SkipPartition if last.is_none() => Flow::Continue,
            flow => flow,
        }
    }

    fn write_group(&mut self) {
        let mut out = std::mem::take(self.out);
        let group = std::mem::take(&mut self.group);
        let result = self.encode_group(&group, &mut out);
        *self.out = out;
        self.group = Group { open: false, ..group };
        match result {
            Ok(()) if matches!(self.plan.shaping, Shaping::Groups { prefix: None }) => {
                self.rows = self.rows.saturating_add(1);
            }
            Ok(()) => {}
            Err(error) => self.error = Some(error),
        }
    }

    fn encode_group(&self, group: &Group, out: &mut Vec<u8>) -> Result<(), PlanError> {
        let env = self.bound.env();
        let mut aggregates = Vec::with_capacity(group.states.len());
        for state in &group.states {
            aggregates.push(state.result(&env)?);
        }
        let mut scope = Scope {
            row: None,
            terms: &self.bound.terms,
            aggregates: &aggregates,
            first_row: &group.first_row,
            env: &env,
            unmasked: self.bound.unmasked,
        };
        // Without rows every column is null, but a function of one may not be.
        let mut of_nothing = Vec::new();
        if group.first_row.is_empty() {
            for expr in &self.plan.selection.first_row {
                of_nothing.push(eval(expr, &scope)?.map(|v| v.into_owned()));
            }
            scope.first_row = &of_nothing;
        }
        write_outputs(self.plan, &scope, out)
    }

    /// Takes the row just written back out of the buffer, to be sorted.
    fn keep_sorted(&mut self, at: usize, clustering: Option<&[u8]>) {
        let parts: Vec<Option<&[u8]>> =
            clustering.map(|c| components(c).collect()).unwrap_or_default();
        let keys = self
            .plan
            .sort
            .iter()
            .map(|column| parts.get(column.position).copied().flatten().map(<[u8]>::to_vec));
        let keys: Vec<Option<Vec<u8>>> = keys.collect();
        let cells = self.out.split_off(at);
        let of_keys = keys.iter().flatten().map(|key| key.len() + KEPT_KEY_BYTES);
        self.sorted_bytes += of_keys.fold(cells.len() + KEPT_KEY_BYTES, usize::saturating_add);
        self.sorted.push(SortedRow { keys, cells });
        self.in_partition = self.in_partition.saturating_add(1);
    }

    fn write_sorted(&mut self) {
        let plan = self.plan;
        let mut sorted = std::mem::take(&mut self.sorted);
        sorted.sort_by(|a, b| {
            let order = plan
                .sort
                .iter()
                .zip(a.keys.iter().zip(&b.keys))
                .map(|(column, (a, b))| {
                    let (a, b) = (a.as_deref(), b.as_deref());
                    plan.comparator.compare_component(column.position, a, b)
                })
                .find(|order| *order != Ordering::Equal)
                .unwrap_or(Ordering::Equal);
            if plan.reversed { order.reverse() } else { order }
        });
        let limit = usize::try_from(self.bound.limit).unwrap_or(usize::MAX);
        for row in sorted.into_iter().take(limit) {
            self.out.extend_from_slice(&row.cells);
            self.rows = self.rows.saturating_add(1);
        }
    }
}

/// Writes one result row: each output as `[bytes]`, or all as one JSON text.
fn write_outputs(plan: &ResultPlan, scope: &Scope<'_>, out: &mut Vec<u8>) -> Result<(), PlanError> {
    let Some(keys) = &plan.json else {
        for output in &plan.selection.outputs {
            put_value(out, eval(&output.expr, scope)?.as_deref());
        }
        return Ok(());
    };
    let mut json = String::from("{");
    for (index, (output, key)) in plan.selection.outputs.iter().zip(keys).enumerate() {
        if index > 0 {
            json.push_str(", ");
        }
        json.push_str(key);
        json.push_str(": ");
        match eval(&output.expr, scope)? {
            Some(value) => json.push_str(&output.ty.to_json(&value)),
            None => json.push_str("null"),
        }
    }
    json.push('}');
    put_value(out, Some(json.as_bytes()));
    Ok(())
}
