//! The searches of a read of several nodes: sub-ranges in ring order, several at a time, planned again when the
//! replicas change.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use cluster::ClusterSnapshot;
use data::command::{Partitions, ReadCommand, RingBound};
use index_format::{IndexSearch, Matches, Matching};
use index_read::{Continued, RangeConcurrency, advance};
use replica::{part_of, tokens_of};
use request::range::next_merged;
use request::{ReplicaError, RequestError, SubRange, TokenRange};
use stdx::{Epoch, Token};
use store::RowSink;

use super::range_search::{RangeSearch, SearchError};
use super::{IndexRead, IndexReadError, IndexReads, Wants};
use crate::replicated::read::failed;
use crate::replicated::read::plan::Plan;
use crate::replicated::read::ring_walk::RingWalk;
use crate::shared::ReplicatedRead;

/// Sub-ranges that are searched at a time; each may hold the keys of every replica it asks.
pub(super) const RANGES_IN_FLIGHT: u32 = 32;

/// Outcome of a read with one plan.
enum Planned {
    /// Everything was read, or the sink has enough.
    Over,
    /// The rest must be planned with this metadata.
    Outdated(Epoch),
}

/// A search of a sub-range that runs.
type Searching<'a> = Pin<Box<dyn Future<Output = Result<Matches, SearchError>> + 'a>>;

/// Runs all at the same time to their ends.
pub(super) async fn join_all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|cx| {
        let mut waits = false;
        for (future, output) in &mut running {
            match future.as_mut().map(|future| future.as_mut().poll(cx)) {
                Some(Poll::Ready(value)) => (*future, *output) = (None, Some(value)),
                Some(Poll::Pending) => waits = true,
                None => {}
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

/// Waits for the metadata that a replica wants the coordinator to have.
pub(super) async fn newer_metadata(
    this: &IndexReads,
    plan: &Plan,
    needed: Epoch,
    replicas: &ReplicatedRead,
) -> Result<Arc<ClusterSnapshot>, RequestError> {
    let deadline = replicas.deadline_of(this.local().env().rt.now());
    let parts = plan.cluster.parts.clone();
    let is_there = match &parts.epoch_wait {
        Some(wait) => wait(needed, deadline).await,
        None => (parts.snapshot)().epoch >= needed,
    };
    if is_there {
        return Ok((parts.snapshot)());
    }
    let block_for = u32::try_from(plan.block_for()).unwrap_or(u32::MAX);
    let (consistency, received, data_present) = (replicas.consistency, 0, false);
    Err(RequestError::ReadTimeout { consistency, received, block_for, data_present })
}

impl<'a, S: RowSink> IndexRead<'a, S> {
    /// Reads from the replicas.
    pub(super) async fn read_ranges(
        &mut self,
        replicas: &'a ReplicatedRead,
    ) -> Result<(), IndexReadError> {
        let mut snapshot = replicas.snapshot.clone();
        let (table, level) = (self.rest.table, replicas.consistency);
        loop {
            let Some(plan) = self.this.inner.reads.plan_read(&snapshot, table, level) else {
                let me = snapshot.local.host_id;
                return Err(failed(replicas, me, ReplicaError::IncompatibleSchema).into());
            };
            let needed = match self.read_planned(&plan, snapshot.epoch, replicas).await? {
                Planned::Over => return Ok(()),
                Planned::Outdated(needed) => needed,
            };
            snapshot = newer_metadata(self.this, &plan, needed, replicas).await?;
        }
    }

    async fn read_planned(
        &mut self,
        plan: &Plan,
        epoch: Epoch,
        replicas: &'a ReplicatedRead,
    ) -> Result<Planned, IndexReadError> {
        let searches = RangeSearch {
            this: self.this,
            trace: self.order.trace,
            replicas,
            plan,
            epoch,
            comparator: self.comparator.clone(),
        };
        let of_token = |token| plan.of_token(token);
        let tokens = match &self.rest.partitions {
            Partitions::Key(key) => one_token(key),
            Partitions::Range(range) => tokens_of(range),
        };
        let mut one = match &self.rest.partitions {
            Partitions::Key(_) => {
                Some(SubRange { range: tokens, plan: plan.of_token(tokens.upto), ranges: 1 })
            }
            Partitions::Range(_) => None,
        };
        let is_one = one.is_some();
        let mut one = std::iter::from_fn(|| one.take());
        let mut walk = RingWalk::new(plan.placements(), tokens, of_token);
        let ranges: &mut dyn Iterator<Item = SubRange> = if is_one { &mut one } else { &mut walk };
        // One that was taken to see whether it can be merged waits here for its turn.
        let mut held = None;
        let (mut ahead, mut searched) = (next_merged(&mut held, ranges), 0_u32);
        if let Some(first) = &ahead
            && let Some(outdated) = self.choose_driver(&searches, first).await?
        {
            return Ok(outdated);
        }
        loop {
            let concurrency = RangeConcurrency { max: RANGES_IN_FLIGHT, searched };
            let covered = concurrency.next(self.stats.rows, self.wanted());
            let (mut batch, mut count): (Vec<SubRange>, u32) = (Vec::new(), 0);
            while count < covered {
                let next = ahead.take().or_else(|| next_merged(&mut held, ranges));
                let Some(sub) = next else { break };
                count = count.saturating_add(sub.ranges.max(1));
                batch.push(sub);
            }
            if batch.is_empty() {
                self.stream.finish();
                return Ok(Planned::Over);
            }
            searched = searched.saturating_add(count);
            if let Some(end) = self.read_batch(&searches, batch).await? {
                return Ok(end);
            }
        }
    }

    /// Has the predicate drive that has the fewest candidates, by the estimates of the first sub-range's replicas. Where
    /// one replica's rows are the answer, all predicates must hold there.
    async fn choose_driver(
        &mut self,
        searches: &RangeSearch<'_>,
        first: &SubRange,
    ) -> Result<Option<Planned>, IndexReadError> {
        if self.order.predicates.len() == 1 {
            self.matching = Matching::Driving(0);
            return Ok(None);
        }
        if searches.plan.block_for() == 1 {
            self.matching = Matching::Intersection;
            return Ok(None);
        }
        if self.estimates.candidates.is_empty() {
            self.matching = Matching::EstimateOnly;
            let search = self.search(self.part(first.range));
            match searches.matches(first.plan.clone(), search).await {
                Ok(matches) => self.estimates.note(&matches),
                Err(SearchError::Outdated(needed)) => return Ok(Some(Planned::Outdated(needed))),
                Err(SearchError::Failed(error)) => return Err(error.into()),
            }
        }
        let driving = self.estimates.driving();
        self.matching = Matching::Driving(driving);
        if let Some(trace) = self.order.trace {
            let estimates = &self.estimates.candidates;
            trace.note(format!(
                "Index restriction {driving} drives the search; candidates are about {estimates:?}"
            ));
        }
        Ok(None)
    }

    /// Searches sub-ranges at the same time and reads what they have in ring order. `None`: the read goes on with
    /// the next ones.
    async fn read_batch(
        &mut self,
        searches: &RangeSearch<'_>,
        batch: Vec<SubRange>,
    ) -> Result<Option<Planned>, IndexReadError> {
        let mut running: Vec<Searching<'_>> = Vec::with_capacity(batch.len());
        for sub in &batch {
            let search = self.search(self.part(sub.range));
            running.push(Box::pin(searches.matches(sub.plan.clone(), search)));
        }
        for (sub, mut answer) in batch.iter().zip(join_all(running).await) {
            let mut part = self.part(sub.range);
            loop {
                let matches = match answer {
                    Ok(matches) => matches,
                    Err(SearchError::Outdated(needed)) => {
                        return Ok(Some(Planned::Outdated(needed)));
                    }
                    Err(SearchError::Failed(error)) => return Err(error.into()),
                };
                if let Some(needed) = searches.has_moved(&self.rest) {
                    return Ok(Some(Planned::Outdated(needed)));
                }
                if self.show(&matches).await? == Wants::Nothing {
                    return Ok(Some(Planned::Over));
                }
                if advance(&mut part, &matches.frontier) == Continued::Over {
                    break;
                }
                self.go_on_at(&part);
                let search: IndexSearch = self.search(part.clone());
                answer = searches.matches(sub.plan.clone(), search).await;
            }
            if let Partitions::Range(rest) = &mut self.rest.partitions {
                rest.start = RingBound::Token { token: sub.range.upto, after: true };
                self.rest.resume = None;
            }
        }
        Ok(None)
    }

    /// The rest of the read within a sub-range.
    fn part(&self, range: TokenRange) -> ReadCommand {
        let mut command = self.rest.clone();
        if let Partitions::Range(whole) = &mut command.partitions {
            if range.after > tokens_of(whole).after {
                command.resume = None;
            }
            *whole = part_of(whole, range);
        }
        command
    }

    /// The rest of the read begins where that of a part does.
    fn go_on_at(&mut self, part: &ReadCommand) {
        if let (Partitions::Range(rest), Partitions::Range(part)) =
            (&mut self.rest.partitions, &part.partitions)
        {
            rest.start = part.start.clone();
        }
        self.rest.resume.clone_from(&part.resume);
    }
}

/// The sub-range that holds one key's token.
pub(super) fn one_token(key: &[u8]) -> TokenRange {
    let token = codec::token_of(key);
    TokenRange { after: Token(token.0.saturating_sub(1)), upto: token }
}
