//! Groups computed by the shards that have the rows, and merged by the coordinator.
//!
//! Owns: which selections may be folded, a shard's pages of groups ([`RowFold`]), the merge at the coordinator.
//! Each shard runs a [`SelectExec`] of its own over its partitions, with the same plan and values. Groups of a
//! partition are complete there; the coordinator only counts them and puts them in order. One group over
//! everything is built in parts, which are merged: only of aggregates whose result does not depend on the order
//! of rows.

use std::sync::Arc;

use cql_functions::{PlanError, UuidSource};
use cql_plan::select::{BoundFilters, BoundSelect, ResultPlan, SelectPlan, Shaping, UNLIMITED};
use data::command::Partitions;
use data::{FoldEnd, FoldFlow, FoldResult, FoldState, Folding, RowFold, RowRef, ShardFold};
use smallvec::SmallVec;
use stdx::{DeletionSeconds, Token, WallMicros};

use types::aggregate::Came;

use super::folding_state;
use super::{Dropped, Flow, Group, Places, SelectExec};

/// State of a shard at the end of its page: for the next page or, in the end, for the coordinator.
pub(crate) struct Kept {
    pub(super) group: Group,
    /// True inside a partition that has begun and not ended.
    pub(crate) is_inside: bool,
    pub(crate) key: SmallVec<[u8; 64]>,
    pub(crate) in_partition: u32,
    pub(crate) may_show_static: bool,
    pub(crate) limit_left: u32,
}

/// Returns the fold that shards apply to their rows, with the number of results wanted. `None`: the
/// coordinator computes the results from the rows.
pub(crate) fn shard_fold(
    bound: &BoundSelect,
    plan: &SelectPlan,
) -> Option<(Arc<dyn RowFold>, usize)> {
    let [read] = bound.reads.as_slice() else { return None };
    if !plan.folds() || !matches!(read.partitions, Partitions::Range(_)) {
        return None;
    }
    let fold = Fold {
        plan: plan.results().clone(),
        filters: bound.filters.clone(),
        terms: bound.terms.clone(),
        limit: bound.limit,
        per_partition: bound.per_partition,
        now: bound.now,
        resumed: bound.resumed.clone(),
        unmasked: bound.unmasked,
        wall: bound.wall,
        protocol_version: bound.protocol_version,
    };
    let rows = match bound.limit.min(bound.page_rows) {
        UNLIMITED => usize::MAX,
        rows => usize::try_from(rows).unwrap_or(usize::MAX),
    };
    Some((Arc::new(fold), rows))
}

/// The part of a fold that is sent to the shards.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) plan: Arc<ResultPlan>,
    pub(crate) filters: Option<Arc<BoundFilters>>,
    pub(crate) terms: Vec<Option<Vec<u8>>>,
    pub(crate) limit: u32,
    pub(crate) per_partition: u32,
    pub(crate) now: DeletionSeconds,
    pub(crate) resumed: Option<(Vec<u8>, u32)>,
    pub(crate) unmasked: bool,
    pub(crate) wall: WallMicros,
    pub(crate) protocol_version: u8,
}

impl RowFold for Fold {
    fn encode_state(&self, state: &FoldState, out: &mut Vec<u8>) -> bool {
        folding_state::encode_state(state, out)
    }

    fn decode_state(&self, bytes: &[u8]) -> Option<FoldState> {
        folding_state::decode_state(&self.plan, bytes).ok()
    }

    fn is_result(&self, bytes: &[u8]) -> bool {
        folding_state::is_result(&self.plan, bytes)
    }

    fn on_shard(&self) -> Box<dyn ShardFold> {
        let bound = BoundSelect {
            reads: SmallVec::new(),
            timeout_nanos: None,
            filters: self.filters.clone(),
            terms: self.terms.clone(),
            // A shard returns as many as all together may; the coordinator decides where the page
            // ends.
            limit: self.limit,
            per_partition: self.per_partition,
            page_rows: UNLIMITED,
            reads_ahead: true,
            now: self.now,
            floor: None,
            resumed: self.resumed.clone(),
            unmasked: self.unmasked,
            wall: self.wall,
            protocol_version: self.protocol_version,
            // Nothing that is folded asks for random values.
            uuids: UuidSource::new(0),
            nearest: None,
        };
        Box::new(OnShard { plan: self.plan.clone(), bound })
    }
}

/// One shard's.
struct OnShard {
    plan: Arc<ResultPlan>,
    bound: BoundSelect,
}

impl ShardFold for OnShard {
    fn begin<'a>(
        &'a self,
        state: Option<FoldState>,
        out: &'a mut Vec<u8>,
    ) -> Box<dyn Folding + 'a> {
        let mut exec = SelectExec::of_shard(&self.plan, &self.bound, out);
        let mut is_inside = false;
        if let Some(kept) = state.and_then(|state| state.downcast::<Kept>().ok()) {
            is_inside = kept.is_inside;
            exec.group = kept.group;
            exec.key = kept.key;
            exec.in_partition = kept.in_partition;
            exec.may_show_static = kept.may_show_static;
            exec.limit_left = kept.limit_left;
        } else if matches!(self.plan.shaping, Shaping::Groups { prefix: None }) {
            exec.group.places = Some(Box::new(Places::default()));
        }
        let taken = exec.out.len();
        Box::new(Page { exec, goes_on: is_inside, is_inside, taken, ended: None })
    }
}

/// A page of a shard.
struct Page<'a> {
    exec: SelectExec<'a>,
    /// The first rows may be the rest of the partition that the previous page ended in.
    goes_on: bool,
    /// True inside a partition that has begun and not ended.
    is_inside: bool,
    /// Bytes of the results that were taken.
    taken: usize,
    /// A partition whose end is reported only when the next one begins.
    ended: Option<(Token, SmallVec<[u8; 64]>)>,
}

impl Page<'_> {
    fn end_partition(&mut self) -> Flow {
        self.is_inside = false;
        self.exec.partition_end()
    }
}

fn fold_flow(flow: Flow) -> FoldFlow {
    match flow {
        Flow::Continue => FoldFlow::Continue,
        Flow::SkipPartition => FoldFlow::SkipPartition,
        Flow::Stop => FoldFlow::Stop,
    }
}

impl Folding for Page<'_> {
    fn partition(&mut self, token: Token, key: &[u8], static_row: Option<RowRef<'_>>) -> FoldFlow {
        self.ended = None;
        if std::mem::replace(&mut self.goes_on, false) {
            if self.exec.key[..] == *key {
                self.exec.enter(token, key, static_row);
                let is_done = self.exec.in_partition >= self.exec.bound.per_partition;
                return if is_done { FoldFlow::SkipPartition } else { FoldFlow::Continue };
            }
            // Nothing more was there of it.
            let before = (codec::token_of(&self.exec.key), self.exec.key.clone());
            let flow = self.end_partition();
            self.ended = Some(before);
            if flow == Flow::Stop {
                return FoldFlow::Stop;
            }
        }
        self.is_inside = true;
        fold_flow(self.exec.partition(token, key, static_row))
    }

    #[inline]
    fn row(&mut self, clustering: &[u8], row: RowRef<'_>) -> FoldFlow {
        self.ended = None;
        fold_flow(self.exec.row(clustering, row))
    }

    fn partition_end(&mut self) -> FoldFlow {
        self.ended = None;
        fold_flow(self.end_partition())
    }

    fn end(&mut self) {
        self.goes_on = false;
        if self.is_inside && !self.exec.stopped {
            self.exec.token = codec::token_of(&self.exec.key);
            self.end_partition();
        }
    }

    #[inline]
    fn take_result(&mut self) -> Option<FoldResult<'_>> {
        if self.exec.out.len() == self.taken {
            return None;
        }
        let bytes = self.exec.out.get(self.taken..)?;
        self.taken = self.exec.out.len();
        let exec = &self.exec;
        let (token, key) = match &self.ended {
            Some((token, key)) => (*token, key.as_slice()),
            None => (exec.token, exec.key.as_slice()),
        };
        Some(FoldResult { token, key, last: exec.closed.as_deref(), bytes })
    }

    fn finish(self: Box<Self>) -> FoldEnd {
        let Page { exec, is_inside, .. } = *self;
        let Dropped { rows, partitions } = exec.dropped;
        let kept = Kept {
            is_inside,
            key: exec.key,
            in_partition: exec.in_partition,
            may_show_static: exec.may_show_static,
            limit_left: exec.limit_left,
            group: exec.group,
        };
        FoldEnd {
            state: Some(Box::new(kept)),
            is_failed: exec.error.is_some(),
            dropped_rows: rows,
            dropped_partitions: partitions,
        }
    }
}

impl SelectExec<'_> {
    /// Announces a partition; its results come from the shard that owns it.
    pub fn partition_of_shard(&mut self, key: &[u8]) -> Flow {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.in_partition = match &self.bound.resumed {
            Some((resumed, rows)) if resumed == key => *rows,
            _ => 0,
        };
        Flow::Continue
    }

    /// A result of it: see [`FoldResult`].
    pub fn result_of_shard(&mut self, last: Option<&[u8]>, bytes: &[u8]) -> Flow {
        self.out.extend_from_slice(bytes);
        self.count_group(last)
    }

    /// Merges the final state of a shard.
    ///
    /// # Errors
    /// It cannot be merged with the others'; the rows may show why.
    pub fn merge_of_shard(&mut self, state: FoldState) -> Result<(), PlanError> {
        let Ok(kept) = state.downcast::<Kept>() else {
            return Err(PlanError::invalid("a shard's part of another statement"));
        };
        let part = kept.group;
        if !part.open {
            return Ok(());
        }
        if !self.group.open {
            self.group = part;
            return Ok(());
        }
        let mut none = Box::default();
        let ours = self.group.places.as_deref_mut().unwrap_or(&mut none);
        let theirs = part.places.unwrap_or_default();
        if theirs.first < ours.first {
            ours.first = theirs.first;
            self.group.first_row = part.first_row;
        }
        let places = ours.values.iter_mut().zip(theirs.values);
        for ((state, other), (place, at)) in
            self.group.states.iter_mut().zip(part.states).zip(places)
        {
            let came = if at < *place { Came::Before } else { Came::After };
            if state.merge(other, came)? {
                *place = at;
            }
        }
        Ok(())
    }
}
