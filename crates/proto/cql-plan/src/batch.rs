//! BEGIN BATCH, and the batches of the native protocol: several modifications as one.
//!
//! The changes of a batch to one partition of one table become one mutation, so that a batch of a
//! single partition is seen whole or not at all. Source: `cql3.statements.BatchStatement`.

use cql_syntax::ast::{Batch, BatchEntry, BatchKind};
use data::{DeletionTime, Keep, Merged, RowRef, merge_rows};
use smallvec::SmallVec;
use stdx::TimestampMicros;

use crate::batch_size::data_size;
use crate::context::{PlanContext, PlanLimits};
use crate::error::PlanError;
use crate::expansion::WriteSize;
use crate::java_hash;
use crate::modify::{
    Attributes, BoundMutation, FoundLists, ListRead, ModifyPlan, PendingUpdate, Stamp, age_row,
    encode_update, plan_delete, plan_insert, plan_update, scratch_slice, without_condition,
};
use crate::tables::full_name;
use crate::term::Binds;
use crate::values::{BindEnv, BoundValue, ExecuteOptions};

/// A batch of the text form.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    kind: BatchKind,
    attributes: Attributes,
    statements: Vec<ModifyPlan>,
}

/// Mutations and warnings of a bound batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundBatch {
    /// One per table and partition.
    pub mutations: SmallVec<[BoundMutation; 1]>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

impl BatchPlan {
    /// Returns the kind of the batch.
    pub fn kind(&self) -> BatchKind {
        self.kind
    }

    /// The statements in order.
    pub fn statements(&self) -> &[ModifyPlan] {
        &self.statements
    }

    /// Returns the value of `USING TIMEOUT`, in nanoseconds.
    ///
    /// # Errors
    /// The value is null, negative, or has months or days.
    pub fn timeout_nanos(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Option<u64>, PlanError> {
        self.attributes.timeout_nanos(values, &options.env())
    }

    /// Returns true if the batch or one of its statements has its own timestamp.
    #[inline]
    pub fn has_timestamp(&self) -> bool {
        self.attributes.timestamp.is_some() || self.statements.iter().any(ModifyPlan::has_timestamp)
    }

    /// Returns the value of the batch's `USING TIMESTAMP`; `None` if the clause is missing or
    /// unset.
    ///
    /// # Errors
    /// The value is null.
    pub fn timestamp(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> Result<Option<TimestampMicros>, PlanError> {
        self.attributes.own_timestamp(values, &options.env())
    }

    /// Returns true if one of the statements has IF. Such a batch is executed by [`crate::cas`].
    #[inline]
    pub fn has_conditions(&self) -> bool {
        self.statements.iter().any(ModifyPlan::has_conditions)
    }

    /// Returns true for a counter batch: all of its statements write counters.
    pub fn is_counter(&self) -> bool {
        self.statements.iter().any(ModifyPlan::is_counter)
    }

    /// Returns true if [`ModifyPlan::takes_detour`] holds for one of the statements.
    pub fn takes_detour(&self) -> bool {
        self.statements.iter().any(ModifyPlan::takes_detour)
    }

    /// Returns true if lists must be read before the batch can be bound.
    pub fn needs_read(&self) -> bool {
        self.statements.iter().any(ModifyPlan::needs_read)
    }

    /// Returns the reads that must precede binding, up to the first statement with an invalid
    /// primary key, and the error of that key, as [`ModifyPlan::list_reads`]. Binding reports the
    /// key's error after the errors of the earlier statements, some of which only the lists reveal.
    /// Source: `BatchStatement.getMutations`.
    pub fn list_reads(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
    ) -> (Vec<ListRead>, Option<PlanError>) {
        let mut reads = Vec::new();
        for statement in &self.statements {
            match statement.list_reads(values, options) {
                Ok(more) => reads.extend(more),
                Err(error) => return (reads, Some(error)),
            }
        }
        (reads, None)
    }

    /// Appends the encoded mutations to `out`.
    ///
    /// # Errors
    /// Those of [`ModifyPlan::bind`]; a batch that is too large.
    pub fn bind(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
        limits: &PlanLimits,
        out: &mut Vec<u8>,
    ) -> Result<BoundBatch, PlanError> {
        self.bind_found(values, options, limits, &FoundLists::default(), out)
    }

    /// Like [`BatchPlan::bind`], with the lists that [`BatchPlan::list_reads`] asked for.
    ///
    /// # Errors
    /// Those of [`BatchPlan::bind`]; a list element that does not exist.
    pub fn bind_found(
        &self,
        values: &[BoundValue<'_>],
        options: &ExecuteOptions<'_>,
        limits: &PlanLimits,
        lists: &FoundLists,
        out: &mut Vec<u8>,
    ) -> Result<BoundBatch, PlanError> {
        let env = options.env();
        let default_timestamp =
            self.attributes.timestamp(options.default_timestamp, values, &env)?;
        let options = ExecuteOptions { default_timestamp, ..*options };
        let statements: Vec<(&ModifyPlan, &[BoundValue<'_>])> =
            self.statements.iter().map(|s| (s, values)).collect();
        bind_batch_found(self.kind, &statements, &options, limits, lists, out)
    }
}

/// Nothing is written to virtual tables; in which words depends on what stands beside.
fn check_no_virtual(kind: BatchKind, statements: &[ModifyPlan]) -> Result<(), PlanError> {
    let refuse = |text| Err(PlanError::invalid(text));
    if !statements.iter().any(ModifyPlan::is_virtual) {
        return Ok(());
    }
    if kind == BatchKind::Logged {
        return refuse("Cannot include a virtual table statement in a logged batch");
    }
    if !statements.iter().all(ModifyPlan::is_virtual) {
        return refuse("Mutations for virtual and regular tables cannot exist in the same batch");
    }
    if statements.iter().any(ModifyPlan::has_conditions) {
        return refuse("Conditional BATCH statements cannot include mutations for virtual tables");
    }
    statements.iter().try_for_each(ModifyPlan::check_not_virtual)
}

/// Plans BEGIN BATCH.
///
/// # Errors
/// Those of Cassandra's `BatchStatement.validate`, and those of the statements.
pub(crate) fn plan_batch(
    batch: &Batch,
    cx: &PlanContext<'_>,
    binds: &mut Binds,
) -> Result<BatchPlan, PlanError> {
    let mut statements = Vec::with_capacity(batch.statements.len());
    for entry in &batch.statements {
        statements.push(match entry {
            BatchEntry::Insert(s) => plan_insert(s, cx, binds)?,
            BatchEntry::Update(s) => plan_update(s, cx, binds)?,
            BatchEntry::Delete(s) => plan_delete(s, cx, binds)?,
        });
    }
    let attributes = Attributes::plan(&batch.using, "[batch]", "[batch]", cx, binds)?;
    if batch.using.ttl.is_some() {
        return Err(PlanError::invalid("Global TTL on the BATCH statement is not supported."));
    }
    let has_conditions = statements.iter().any(ModifyPlan::has_conditions);
    if attributes.timestamp.is_some() {
        if has_conditions {
            return Err(PlanError::invalid(
                "Cannot provide custom timestamp for conditional BATCH",
            ));
        }
        if batch.kind == BatchKind::Counter {
            return Err(PlanError::invalid("Cannot provide custom timestamp for counter BATCH"));
        }
        if statements.iter().any(ModifyPlan::has_timestamp) {
            return Err(PlanError::invalid(
                "Timestamp must be set either on BATCH or individual statements",
            ));
        }
    }
    let has_timestamp = attributes.timestamp.is_some();
    check_kind(batch.kind, has_timestamp, statements.iter().map(ModifyPlan::is_counter))?;
    check_no_virtual(batch.kind, &statements)?;
    if has_conditions {
        check_one_table(&statements)?;
    }
    Ok(BatchPlan { kind: batch.kind, attributes, statements })
}

/// Checks a batch message that has a conditional statement; batches as text are checked when they
/// are planned.
///
/// # Errors
/// Those of Cassandra's `BatchStatement.validate`.
pub fn check_conditional_batch<'p>(
    kind: BatchKind,
    statements: impl IntoIterator<Item = &'p ModifyPlan>,
) -> Result<(), PlanError> {
    let statements: Vec<&ModifyPlan> = statements.into_iter().collect();
    check_kind(kind, false, statements.iter().map(|s| s.is_counter()))?;
    check_one_table(statements)
}

pub(crate) fn check_one_table<'p>(
    statements: impl IntoIterator<Item = &'p ModifyPlan>,
) -> Result<(), PlanError> {
    let mut statements = statements.into_iter();
    let Some(first) = statements.next() else { return Ok(()) };
    if statements.any(|s| s.table().id != first.table().id) {
        return Err(PlanError::invalid("Batch with conditions cannot span multiple tables"));
    }
    Ok(())
}

/// Checks that the statements fit the kind of batch. The iterator yields for each statement if it
/// is on counters. Source: `BatchStatement.validate`.
pub(crate) fn check_kind(
    kind: BatchKind,
    has_timestamp: bool,
    statements: impl Iterator<Item = bool>,
) -> Result<(), PlanError> {
    let (mut counters, mut others) = (false, false);
    for is_counter in statements {
        counters |= is_counter;
        others |= !is_counter;
    }
    Err(PlanError::invalid(if has_timestamp && counters {
        "Cannot provide custom timestamp for a BATCH containing counters"
    } else if kind == BatchKind::Counter && others {
        "Cannot include non-counter statement in a counter batch"
    } else if counters && others {
        "Counter and non-counter mutations cannot exist in the same batch"
    } else if kind == BatchKind::Logged && counters {
        "Cannot include a counter statement in a logged batch"
    } else {
        return Ok(());
    }))
}

/// Binds the statements of a batch, each with its own values, and appends one encoded mutation per
/// table and partition to `out`.
///
/// # Errors
/// Those of [`ModifyPlan::bind`]; a statement with IF; a batch of several partitions over
/// [`PlanLimits::batch_bytes_fail`]. `out` is unchanged then.
pub fn bind_batch(
    kind: BatchKind,
    statements: &[(&ModifyPlan, &[BoundValue<'_>])],
    options: &ExecuteOptions<'_>,
    limits: &PlanLimits,
    out: &mut Vec<u8>,
) -> Result<BoundBatch, PlanError> {
    bind_batch_found(kind, statements, options, limits, &FoundLists::default(), out)
}

/// Like [`bind_batch`], with the lists that the statements' [`ModifyPlan::list_reads`] asked for.
///
/// # Errors
/// Those of [`bind_batch`]; a list element that does not exist.
pub fn bind_batch_found(
    kind: BatchKind,
    statements: &[(&ModifyPlan, &[BoundValue<'_>])],
    options: &ExecuteOptions<'_>,
    limits: &PlanLimits,
    lists: &FoundLists,
    out: &mut Vec<u8>,
) -> Result<BoundBatch, PlanError> {
    check_kind(kind, false, statements.iter().map(|(plan, _)| plan.is_counter()))?;
    if statements.iter().any(|(plan, _)| plan.has_conditions()) {
        return Err(without_condition());
    }
    let start = out.len();
    let mut scratch = options.uuids.take_scratch();
    let stamp = Stamp::Default(options.default_timestamp);
    // A batch of one partition cannot exceed the size of a mutation. A batch of several partitions
    // that is too large is rejected below, once its size is known.
    let bytes_max = limits.mutation_bytes_max.max(limits.batch_bytes_fail);
    let result =
        bind_into(statements, &BatchWrite { options, stamp, bytes_max }, lists, &mut scratch, out)
            .and_then(|(mutations, partitions)| {
                let counts = statements.first().is_some_and(|(plan, _)| plan.is_counter());
                let sizes = mutations.iter().filter(|_| partitions > 1).map(|mutation| {
                    let bytes = out.get(mutation.range.clone()).unwrap_or_default();
                    data_size(bytes, counts)
                });
                let bytes = sizes.sum();
                let warnings = check_limits(kind, statements, partitions, bytes, limits)?;
                Ok(BoundBatch { mutations, warnings })
            });
    options.uuids.give_scratch(scratch);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Returns the error of the first invalid partition key. Cassandra checks the keys of all
/// statements before anything else of any statement. Source: `BatchStatement.getMutations`.
#[cold]
fn wrong_key<'p>(
    statements: impl Iterator<Item = (&'p ModifyPlan, &'p [BoundValue<'p>])>,
    env: &BindEnv<'_>,
) -> Option<PlanError> {
    let mut scratch = Vec::new();
    statements
        .into_iter()
        .find_map(|(plan, values)| plan.check_keys(values, env, &mut scratch).err())
}

type Pending<'p> = (&'p ModifyPlan, PendingUpdate);

/// Terms of writing the statements of a batch.
pub(crate) struct BatchWrite<'a> {
    pub(crate) options: &'a ExecuteOptions<'a>,
    pub(crate) stamp: Stamp,
    /// Most bytes of all of them.
    pub(crate) bytes_max: usize,
}

/// The mutations, and how many partitions (of a keyspace) they are about.
pub(crate) fn bind_into(
    statements: &[(&ModifyPlan, &[BoundValue<'_>])],
    write: &BatchWrite<'_>,
    lists: &FoundLists,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(SmallVec<[BoundMutation; 1]>, usize), PlanError> {
    let BatchWrite { options, stamp, bytes_max } = *write;
    let env = options.env();
    let mut pending: Vec<Pending<'_>> = Vec::with_capacity(statements.len());
    let mut size = WriteSize::new(bytes_max);
    for (plan, values) in statements {
        let updates = plan
            .collect(values, stamp, &env, lists, scratch)
            .map_err(|error| wrong_key(statements.iter().copied(), &env).unwrap_or(error))?;
        for update in updates {
            size.add(update.bytes(), 1)?;
            pending.push((*plan, update));
        }
    }
    if pending.len() > 1 {
        pending.sort_by(|(a_plan, a), (b_plan, b)| {
            let keys = || scratch_slice(scratch, &a.key).cmp(scratch_slice(scratch, &b.key));
            a_plan.table().id.cmp(&b_plan.table().id).then_with(keys)
        });
    }
    let is_one_table = match (pending.first(), pending.last()) {
        (Some(first), Some(last)) => first.0.table().id == last.0.table().id,
        _ => true,
    };
    let mut mutations = SmallVec::new();
    // Tables of a keyspace may have the same key.
    let mut partitions: Vec<(&str, Vec<u8>)> = Vec::new();
    let mut rest = pending.as_slice();
    while let Some(first) = rest.first() {
        let same = |p: &Pending<'_>| {
            p.0.table().id == first.0.table().id
                && scratch_slice(scratch, &p.1.key) == scratch_slice(scratch, &first.1.key)
        };
        let count = rest.iter().take_while(|p| same(p)).count().max(1);
        let (group, after) = rest.split_at(count);
        rest = after;
        let mutation = match (group, stamp) {
            ([(plan, update)], Stamp::Default(_)) => {
                encode_update(plan.table(), update, scratch, out)
            }
            _ => {
                let mut merged = merge(group, scratch);
                if let Stamp::Ballot(ballot) = stamp {
                    age(&mut merged, ballot, scratch);
                }
                encode_update(first.0.table(), &merged, scratch, out)
            }
        };
        mutations.push(mutation);
        if !is_one_table {
            let key = scratch_slice(scratch, &first.1.key).to_vec();
            partitions.push((&*first.0.table().keyspace, key));
        }
    }
    if is_one_table {
        let count = mutations.len();
        return Ok((mutations, count));
    }
    partitions.sort_unstable();
    partitions.dedup();
    Ok((mutations, partitions.len()))
}

/// Merges the updates of several statements to one partition.
fn merge(group: &[Pending<'_>], scratch: &mut Vec<u8>) -> PendingUpdate {
    let mut merged = PendingUpdate::default();
    let Some((plan, _)) = group.first() else { return merged };
    let comparator = plan.shape().clustering();
    let mut statics = SmallVec::<[_; 4]>::new();
    let mut rows = Vec::new();
    for (_, update) in group {
        merged.key = update.key.clone();
        merged.deletion = merged.deletion.max(update.deletion);
        statics.extend(update.static_row.clone());
        rows.extend(update.rows.iter().cloned());
        merged.tombstones.extend(update.tombstones.iter().cloned());
    }
    let merge_of = |sources: &[std::ops::Range<usize>], scratch: &mut Vec<u8>| {
        if let [one] = sources {
            return Some(one.clone());
        }
        let mut built = Vec::new();
        let refs: SmallVec<[RowRef<'_>; 4]> =
            sources.iter().map(|r| RowRef::trusted(scratch_slice(scratch, r))).collect();
        let outcome = merge_rows(plan.shape(), &refs, DeletionTime::LIVE, Keep::All, &mut built);
        drop(refs);
        match outcome.row {
            Merged::Nothing => None,
            Merged::Source(index) => sources.get(index).cloned(),
            Merged::Built => {
                let at = scratch.len();
                scratch.extend_from_slice(&built);
                Some(at..scratch.len())
            }
        }
    };
    if !statics.is_empty() {
        merged.static_row = merge_of(&statics, scratch);
    }
    rows.sort_by(|a, b| {
        comparator.compare(scratch_slice(scratch, &a.0), scratch_slice(scratch, &b.0))
    });
    let mut rest = rows.as_slice();
    while let Some((clustering, _)) = rest.first() {
        let same = |other: &std::ops::Range<usize>| {
            let (a, b) = (scratch_slice(scratch, clustering), scratch_slice(scratch, other));
            comparator.compare(a, b).is_eq()
        };
        let count = rest.iter().take_while(|(c, _)| same(c)).count().max(1);
        let (group, after) = rest.split_at(count);
        rest = after;
        let sources: SmallVec<[_; 4]> = group.iter().map(|(_, row)| row.clone()).collect();
        if let Some(row) = merge_of(&sources, scratch) {
            merged.rows.push((clustering.clone(), row));
        }
    }
    merged
}

/// See [`Stamp::Ballot`].
fn age(update: &mut PendingUpdate, ballot: TimestampMicros, scratch: &mut Vec<u8>) {
    let rows = update.rows.iter_mut().map(|(_, row)| row);
    for row in update.static_row.iter_mut().chain(rows) {
        let bytes = scratch_slice(scratch, row).to_vec();
        *row = age_row(RowRef::trusted(&bytes), ballot, scratch);
    }
}

fn table_names(statements: &[(&ModifyPlan, &[BoundValue<'_>])]) -> Vec<String> {
    let mut ids: SmallVec<[stdx::TableId; 8]> = SmallVec::new();
    let mut names = Vec::new();
    for (plan, _) in statements {
        let table = plan.table();
        if !ids.contains(&table.id) {
            ids.push(table.id);
            names.push(full_name(table));
        }
    }
    // In the order of a hash set of strings.
    let slots = java_hash::slots_of(names.len());
    names.sort_by_key(|name| java_hash::slot(java_hash::string_hash(name), slots));
    names
}

/// Source: `verifyBatchSize`, `verifyBatchType`.
fn check_limits(
    kind: BatchKind,
    statements: &[(&ModifyPlan, &[BoundValue<'_>])],
    partitions: usize,
    bytes: usize,
    limits: &PlanLimits,
) -> Result<Vec<String>, PlanError> {
    let mut warnings = Vec::new();
    if partitions <= 1 {
        return Ok(warnings);
    }
    if bytes > limits.batch_bytes_fail {
        return Err(PlanError::invalid("Batch too large"));
    }
    if bytes > limits.batch_bytes_warn {
        warnings.push(format!(
            "Batch for [{}] is of size {bytes}, exceeding specified threshold of {} by {}.",
            table_names(statements).join(", "),
            limits.batch_bytes_warn,
            bytes.saturating_sub(limits.batch_bytes_warn)
        ));
    }
    if kind != BatchKind::Logged && partitions > limits.unlogged_batch_partitions_warn {
        let names = table_names(statements);
        warnings.push(format!(
            "Unlogged batch covering {partitions} partitions detected against table{} [{}]. You \
             should use a logged batch for atomicity, or asynchronous writes for performance.",
            if names.len() == 1 { "" } else { "s" },
            names.join(", ")
        ));
    }
    Ok(warnings)
}
