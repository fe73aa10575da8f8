//! Binding: values into mutations.
//!
//! A statement is bound into [`Update`]s (one per partition, as ranges of a scratch buffer), which
//! are then encoded one by one. The scratch buffer belongs to [`UuidSource`] and is reused, so that
//! the usual INSERT allocates nothing but the bytes that it appends to the output.

use std::ops::Range;

use codec::murmur::token_of;
use data::{BoundRef, CellRef, DeletionTime, Liveness, MutationBuilder, RangeTombstoneRef, RowRef};
use schema::Table;
use smallvec::SmallVec;
use stdx::{DeletionSeconds, TableId, TimestampMicros, Token, TtlSeconds, WallMicros};

use super::attributes::Stamp;
use super::clause::ClusteringPlan;
use super::keys::Bounds;
use super::lists::{FoundLists, RowLists};
use super::rows::{RowHeader, before, write_row};
use super::{ModifyKind, ModifyPlan, compact, term_sizes};
use crate::error::PlanError;
use crate::expansion::WriteSize;
use crate::functions::json::{JsonColumn, columns_of};
use crate::values::{BindEnv, BoundValue, ExecuteOptions};

/// Range of a mutation in the output, and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundMutation {
    /// Token of the partition key.
    pub token: Token,
    /// The encoded mutation within the output buffer.
    pub range: Range<usize>,
    /// The table.
    pub table: TableId,
}

/// Changes of a statement to one partition; ranges refer to the scratch buffer.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    pub(crate) key: Range<usize>,
    pub(crate) deletion: DeletionTime,
    pub(crate) static_row: Option<Range<usize>>,
    /// Clustering and row, ascending by clustering.
    pub(crate) rows: SmallVec<[(Range<usize>, Range<usize>); 1]>,
    pub(crate) tombstones: Vec<Tombstone>,
}

impl Default for Update {
    fn default() -> Self {
        Update {
            key: 0..0,
            deletion: DeletionTime::LIVE,
            static_row: None,
            rows: SmallVec::new(),
            tombstones: Vec::new(),
        }
    }
}

impl Update {
    fn is_empty(&self) -> bool {
        self.deletion.is_live()
            && self.static_row.is_none()
            && self.rows.is_empty()
            && self.tombstones.is_empty()
    }

    /// Bytes of its writes: no more than the encoded mutation has.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.rows.iter().map(|(clustering, row)| clustering.len() + row.len());
        let ranges = self.tombstones.iter().map(|t| t.start.prefix.len() + t.end.prefix.len());
        let statics = self.static_row.as_ref().map_or(0, ExactSizeIterator::len);
        rows.chain(ranges).fold(statics + self.key.len(), usize::saturating_add)
    }

    /// Writes the same content to several rows.
    fn add_rows(
        &mut self,
        clusterings: SmallVec<[Range<usize>; 1]>,
        row: &Range<usize>,
        times: &Times,
    ) -> Result<(), PlanError> {
        if clusterings.len() > 1 {
            let mut size = WriteSize::new(times.bytes_max);
            clusterings.iter().try_for_each(|c| size.add_row(c.len(), row.len()))?;
        }
        self.rows.extend(clusterings.into_iter().map(|c| (c, row.clone())));
        Ok(())
    }
}

/// A range tombstone; prefixes lie in the scratch buffer.
#[derive(Clone, Debug)]
pub(crate) struct Tombstone {
    pub(crate) start: PackedBound,
    pub(crate) end: PackedBound,
    pub(crate) deletion: DeletionTime,
}

/// An end of a range tombstone.
#[derive(Clone, Debug)]
pub(crate) struct PackedBound {
    /// Range in the scratch buffer.
    pub(crate) prefix: Range<usize>,
    /// True if the bound is after the rows of the prefix.
    pub(crate) after: bool,
}

/// The lists that were read, and the partition key to look them up by.
type PartitionLists<'l> = (&'l FoundLists, &'l [u8]);

/// Times of everything one execution writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) timestamp: TimestampMicros,
    /// Timestamp of deleted ranges and partitions.
    ranges: TimestampMicros,
    /// Time in the paths of list elements.
    pub(super) elements: WallMicros,
    ttl: TtlSeconds,
    expires_at: DeletionSeconds,
    now: DeletionSeconds,
    /// Number of times that the operations run: those on static columns once for each row that the
    /// statement names, which shows in counters and lists. Source:
    /// `UpdateStatement.addUpdateForKey`.
    pub(super) repeats: usize,
    /// Most bytes that the statement writes.
    pub(super) bytes_max: usize,
}

impl Times {
    #[inline]
    pub(super) fn cell<'a>(&self, value: &'a [u8]) -> CellRef<'a> {
        if self.ttl == TtlSeconds::NONE {
            CellRef::live(self.timestamp, value)
        } else {
            CellRef::expiring(self.timestamp, self.ttl, self.expires_at, value)
        }
    }

    pub(super) fn tombstone(&self) -> CellRef<'static> {
        CellRef::tombstone(self.timestamp, self.now)
    }

    pub(super) fn deletion(&self) -> DeletionTime {
        DeletionTime { timestamp: self.timestamp, local: self.now }
    }

    /// Deletion time of a range of rows, or of the partition.
    fn range_deletion(&self) -> DeletionTime {
        DeletionTime { timestamp: self.ranges, local: self.now }
    }

    /// Deletion that an overwrite of a whole collection writes: it covers everything before this
    /// write.
    pub(super) fn before(&self) -> DeletionTime {
        let timestamp = TimestampMicros(self.timestamp.0.saturating_sub(1));
        DeletionTime { timestamp, local: self.now }
    }

    fn liveness(&self) -> Liveness {
        Liveness { timestamp: self.timestamp, ttl: self.ttl, expires_at: self.expires_at }
    }
}

impl ModifyPlan {
    /// Appends one encoded mutation per partition touched (usually exactly one; none when every
    /// value is unset) to `out`. Rows of the mutations ascend.
    ///
    /// # Errors
    /// Values that are not of their types, nulls in keys, keys over 65,535 bytes, bad timestamps
    /// and TTLs; in Cassandra's words; a statement with IF, which [`crate::cas`] binds. `out` is
    /// unchanged then.
    pub fn bind(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
        out: &mut Vec<u8>,
    ) -> Result<SmallVec<[BoundMutation; 1]>, PlanError> {
        self.bind_found(values, options, &FoundLists::default(), out)
    }

    /// Like [`ModifyPlan::bind`], with the lists that [`ModifyPlan::list_reads`] asked for.
    ///
    /// # Errors
    /// Those of [`ModifyPlan::bind`]; a list element that does not exist.
    pub fn bind_found(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
        lists: &FoundLists,
        out: &mut Vec<u8>,
    ) -> Result<SmallVec<[BoundMutation; 1]>, PlanError> {
        if self.has_conditions() {
            return Err(without_condition());
        }
        let mut scratch = options.uuids.take_scratch();
        let result = self.bind_with(values, options, lists, &mut scratch, out);
        options.uuids.give_scratch(scratch);
        result
    }

    /// Checks the values of a conditional statement against the limits of its user, before it is
    /// known if they will be written.
    ///
    /// # Errors
    /// A limit is exceeded; other errors are found later.
    pub fn watch_values(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<(), PlanError> {
        let Some(watch) = options.watch.filter(|watch| {
            watch.rails().limits_values() || term_sizes::are_limited(self.table(), watch)
        }) else {
            return Ok(());
        };
        let mut scratch = options.uuids.take_scratch();
        let (stamp, env) = (Stamp::Default(options.default_timestamp), options.env());
        let bound = self.collect(values, stamp, &env, &FoundLists::default(), &mut scratch);
        options.uuids.give_scratch(scratch);
        match bound {
            Err(error) if watch.has_refused() => Err(error),
            _ => Ok(()),
        }
    }

    fn bind_with(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
        lists: &FoundLists,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<SmallVec<[BoundMutation; 1]>, PlanError> {
        let env = options.env();
        let updates =
            self.collect(values, Stamp::Default(options.default_timestamp), &env, lists, scratch)?;
        let mut mutations = SmallVec::new();
        for update in &updates {
            mutations.push(encode_update(self.table(), update, scratch, out));
        }
        Ok(mutations)
    }

    /// Appends keys, clusterings and rows to `scratch` and returns their ranges.
    pub(crate) fn collect(
        &self,
        values: &[BoundValue<'_>],
        stamp: Stamp,
        env: &BindEnv<'_>,
        lists: &FoundLists,
        scratch: &mut Vec<u8>,
    ) -> Result<SmallVec<[Update; 1]>, PlanError> {
        let updates = self.with_document(values, env, |values| {
            self.collect_values(values, stamp, env, lists, scratch)
        })?;
        if let Some(watch) = env.watch
            && term_sizes::are_limited(self.table(), watch)
        {
            for update in &updates {
                term_sizes::check(self.table(), update, scratch, watch)?;
            }
        }
        Ok(updates)
    }

    /// Runs with the values; for INSERT JSON those of the document are appended.
    #[inline]
    pub(super) fn with_document<T>(
        &self,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        run: impl FnOnce(&[BoundValue<'_>]) -> Result<T, PlanError>,
    ) -> Result<T, PlanError> {
        let Some(json) = &self.json else { return run(values) };
        let bound = json.document.bind(values, env)?;
        let text = match bound.value() {
            Some(bytes) => String::from_utf8_lossy(bytes),
            None => return Err(PlanError::invalid("Got null for INSERT JSON values")),
        };
        let names = self.rows.table.columns.iter().map(|c| (&*c.name, &c.ty));
        let columns = columns_of(&text, names, env.eval.clock.millis())?;
        let given = values.iter().copied().take(json.base);
        let padding = json.base.saturating_sub(values.len());
        let extended: Vec<BoundValue<'_>> = given
            .chain(std::iter::repeat_n(BoundValue::Unset, padding))
            .chain(columns.iter().map(|column| match column {
                JsonColumn::Value(bytes) => BoundValue::Bytes(bytes),
                JsonColumn::Missing if json.default_unset => BoundValue::Unset,
                JsonColumn::Missing | JsonColumn::Null => BoundValue::Null,
            }))
            .collect();
        run(&extended)
    }

    fn collect_values(
        &self,
        values: &[BoundValue<'_>],
        stamp: Stamp,
        env: &BindEnv<'_>,
        lists: &FoundLists,
        scratch: &mut Vec<u8>,
    ) -> Result<SmallVec<[Update; 1]>, PlanError> {
        let keys = self.rows.keys(values, env, scratch)?;
        let mut update = Update::default();
        let now = env.eval.now.seconds();
        let stamped = self.stamped(stamp, values, env);
        let ((timestamp, ranges, elements), ttl) = match stamped {
            Ok(stamped) => stamped,
            // Rows are named first. Source: `ModificationStatement.addUpdates`.
            Err(error) => match self.rows.count_named(values, env, scratch)? {
                0 => return Ok(SmallVec::new()),
                _ => return Err(error),
            },
        };
        let expires_at = self.attributes.expiry(now, ttl);
        let bytes_max = self.attributes.mutation_bytes_max;
        let times =
            Times { timestamp, ranges, elements, ttl, expires_at, now, repeats: 1, bytes_max };
        let mut updates = SmallVec::new();
        if self.needs_read {
            let mut size = WriteSize::new(bytes_max);
            // Every row has lists of its own.
            for key in keys {
                let bytes = slice(scratch, &key).to_vec();
                let lists = Some((lists, bytes.as_slice()));
                let mut update = Update { key, ..Update::default() };
                self.collect_partition(&times, values, env, lists, scratch, &mut update)?;
                size.add(update.bytes(), 1)?;
                if !update.is_empty() {
                    updates.push(update);
                }
            }
            return Ok(updates);
        }
        self.collect_partition(&times, values, env, None, scratch, &mut update)?;
        if update.is_empty() {
            return Ok(updates);
        }
        if let [key] = keys.as_slice() {
            update.key = key.clone();
            updates.push(update);
        } else {
            WriteSize::new(bytes_max).add(update.bytes(), keys.len())?;
            updates.extend(keys.into_iter().map(|key| Update { key, ..update.clone() }));
        }
        Ok(updates)
    }

    /// The timestamps of cells, of ranges and of elements, and the TTL.
    #[inline]
    fn stamped(
        &self,
        stamp: Stamp,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
    ) -> Result<((TimestampMicros, TimestampMicros, WallMicros), TtlSeconds), PlanError> {
        let stamps = match stamp {
            Stamp::Default(default) => {
                let timestamp = self.attributes.timestamp(default, values, env)?;
                (timestamp, timestamp, env.eval.clock)
            }
            Stamp::Ballot(ballot) => (ballot, before(ballot), WallMicros(ballot.0)),
        };
        let ttl = self.attributes.ttl(&self.rows.table, env.eval.now.seconds(), values, env)?;
        Ok((stamps, ttl))
    }

    fn collect_partition(
        &self,
        times: &Times,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        lists: Option<PartitionLists<'_>>,
        scratch: &mut Vec<u8>,
        update: &mut Update,
    ) -> Result<(), PlanError> {
        match self.kind {
            ModifyKind::Insert | ModifyKind::Update => {
                self.collect_write(times, values, env, lists, scratch, update)
            }
            ModifyKind::Delete => self.collect_delete(times, values, env, lists, scratch, update),
        }
    }

    /// Writes the regular columns to the rows named by `clusterings`.
    fn collect_rows(
        &self,
        row: LiveRow<'_>,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        lists: Option<PartitionLists<'_>>,
        scratch: &mut Vec<u8>,
        update: &mut Update,
    ) -> Result<usize, PlanError> {
        let clusterings = self.rows.prefixes(values, env, scratch)?;
        let named = clusterings.len();
        compact::check(self, &clusterings, scratch)?;
        let LiveRow { liveness, times } = row;
        let header = RowHeader { liveness, deletion: DeletionTime::LIVE };
        let Some((found, key)) = lists else {
            let none = RowLists::NONE;
            let row = write_row(header, &self.regulars, times, values, env, none, scratch)?;
            if let Some(row) = row {
                update.add_rows(clusterings, &row, times)?;
            }
            return Ok(named);
        };
        let mut size = WriteSize::new(times.bytes_max);
        for clustering in clusterings {
            let lists = found.row(self.rows.table.id, key, Some(slice(scratch, &clustering)));
            let row = write_row(header, &self.regulars, times, values, env, lists, scratch)?;
            if let Some(row) = row {
                size.add_row(clustering.len(), row.len())?;
                update.rows.push((clustering, row));
            }
        }
        Ok(named)
    }

    /// Writes the static columns.
    fn collect_static(
        &self,
        times: &Times,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        lists: Option<PartitionLists<'_>>,
        scratch: &mut Vec<u8>,
        update: &mut Update,
    ) -> Result<(), PlanError> {
        if self.statics.is_empty() {
            return Ok(());
        }
        let header = RowHeader { liveness: Liveness::NONE, deletion: DeletionTime::LIVE };
        let lists =
            lists.map_or(RowLists::NONE, |(found, key)| found.row(self.rows.table.id, key, None));
        update.static_row = write_row(header, &self.statics, times, values, env, lists, scratch)?;
        Ok(())
    }

    fn collect_write(
        &self,
        times: &Times,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        lists: Option<PartitionLists<'_>>,
        scratch: &mut Vec<u8>,
        update: &mut Update,
    ) -> Result<(), PlanError> {
        let writes_rows = self.rows.shape.clustering().is_empty() || self.rows.has_clustering();
        let mut repeats = 1;
        if writes_rows {
            let liveness = match self.kind {
                ModifyKind::Insert if self.rows.table.compact_form().is_none() => times.liveness(),
                _ => Liveness::NONE,
            };
            repeats = self.collect_rows(
                LiveRow { liveness, times },
                values,
                env,
                lists,
                scratch,
                update,
            )?;
        }
        let times = Times { repeats, ..*times };
        self.collect_static(&times, values, env, lists, scratch, update)
    }

    fn collect_delete(
        &self,
        times: &Times,
        values: &[BoundValue<'_>],
        env: &BindEnv<'_>,
        lists: Option<PartitionLists<'_>>,
        scratch: &mut Vec<u8>,
        update: &mut Update,
    ) -> Result<(), PlanError> {
        let whole_rows = self.regulars.is_empty() && self.statics.is_empty();
        let count = self.rows.shape.clustering().len();
        let not_ranges =
            || PlanError::invalid("Range deletions are not supported for specific columns");
        match &self.rows.clustering {
            ClusteringPlan::Slice { lower, upper, reversed, .. } => {
                if !whole_rows {
                    return Err(not_ranges());
                }
                let deletion = times.range_deletion();
                let bounds = Bounds { lower: lower.as_ref(), upper: upper.as_ref() };
                for piece in self.rows.ranges(bounds, reversed, values, env, scratch)? {
                    let prefix = push_bytes(scratch, &piece.start);
                    let start = PackedBound { prefix, after: piece.start_after };
                    let prefix = push_bytes(scratch, &piece.end);
                    let end = PackedBound { prefix, after: piece.end_after };
                    update.tombstones.push(Tombstone { start, end, deletion });
                }
            }
            ClusteringPlan::Prefix { width, .. } if whole_rows => {
                if *width == 0 {
                    update.deletion = times.range_deletion();
                    return Ok(());
                }
                let prefixes = self.rows.prefixes(values, env, scratch)?;
                if *width == count {
                    compact::check(self, &prefixes, scratch)?;
                    let row = match compact::row_deletion(&self.rows.table, times, scratch) {
                        None => {
                            let deletion = times.deletion();
                            let header = RowHeader { liveness: Liveness::NONE, deletion };
                            let none = RowLists::NONE;
                            write_row(header, &[], times, values, env, none, scratch)?
                        }
                        row => row,
                    };
                    if let Some(row) = row {
                        update.add_rows(prefixes, &row, times)?;
                    }
                } else {
                    update.tombstones.extend(prefixes.into_iter().map(|prefix| Tombstone {
                        start: PackedBound { prefix: prefix.clone(), after: false },
                        end: PackedBound { prefix, after: true },
                        deletion: times.range_deletion(),
                    }));
                }
            }
            ClusteringPlan::Prefix { width, .. } => {
                if !self.regulars.is_empty() {
                    if *width != count {
                        return Err(not_ranges());
                    }
                    let row = LiveRow { liveness: Liveness::NONE, times };
                    self.collect_rows(row, values, env, lists, scratch, update)?;
                }
                self.collect_static(times, values, env, lists, scratch, update)?;
            }
        }
        Ok(())
    }
}

/// A row that is not deleted.
#[derive(Clone, Copy)]
struct LiveRow<'t> {
    liveness: Liveness,
    times: &'t Times,
}

/// Error for a caller that would write without checking the condition.
#[cold]
pub(crate) fn without_condition() -> PlanError {
    PlanError::invalid("a conditional statement cannot be carried out without its condition")
}

fn push_bytes(scratch: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let at = scratch.len();
    scratch.extend_from_slice(bytes);
    at..scratch.len()
}

/// A piece of the scratch buffer.
pub(crate) fn slice<'a>(scratch: &'a [u8], range: &Range<usize>) -> &'a [u8] {
    scratch.get(range.clone()).unwrap_or(&[])
}

fn bound_ref<'a>(bound: &PackedBound, scratch: &'a [u8]) -> BoundRef<'a> {
    BoundRef { prefix: slice(scratch, &bound.prefix), after: bound.after }
}

/// Appends the encoded mutation of one partition.
pub(crate) fn encode_update(
    table: &Table,
    update: &Update,
    scratch: &[u8],
    out: &mut Vec<u8>,
) -> BoundMutation {
    let key = slice(scratch, &update.key);
    let mut builder = MutationBuilder::new(out, table.id, table.version, key);
    if !update.deletion.is_live() {
        builder.deletion(update.deletion);
    }
    if let Some(row) = &update.static_row {
        builder.static_row(RowRef::trusted(slice(scratch, row)));
    }
    builder.rows(update.rows.iter().map(|(clustering, row)| {
        (slice(scratch, clustering), RowRef::trusted(slice(scratch, row)))
    }));
    if !update.tombstones.is_empty() {
        builder.range_tombstones(update.tombstones.iter().map(|t| RangeTombstoneRef {
            start: bound_ref(&t.start, scratch),
            end: bound_ref(&t.end, scratch),
            deletion: t.deletion,
        }));
    }
    BoundMutation { token: token_of(key), range: builder.finish(), table: table.id }
}
