//! Scans for which one replica of each range is enough. Shards of the replicas filter or fold their rows and send the
//! result.
//!
//! Owns: the choice of a replica for each range; the merged stream of the pages of all shards; the choice of another
//! replica when a node fails or has given its ranges away. Never: levels that need more than one answer, read repair.
//!
//! INV-scattered-1: each row of a range is scanned once, by one shard of one replica. A part that moves to another
//! replica resumes after the last page that was accepted, with the state that came with that page.
//!
//! A part belongs to a shard by its number: with another number of shards, partitions are distributed differently. So
//! the rest of a part moves to the same shard of another replica if that has as many shards. Otherwise everything is
//! read again, as rows.

use std::collections::VecDeque;

use cluster::ClusterSnapshot;
use data::command::{KeyRange, Partitions, ReadCommand};
use internode::{ErrorReply, ReadLimits, ScanRequest, Verb};
use messaging::{MessagingError, Outgoing};
use request::{ReplicaError, ReplicaInfo, RequestError, Target};
use stdx::{Epoch, HostId, Instant, ShardId};
use store::{ReadStats, RowSink};

use super::Scans;
use crate::local::shard_pages::{
    Asked, PageError, PageRequest, Pages, Place, Rest, ShardsWanted, Step,
};
use crate::replicated::read::failed;
use crate::replicated::read::plan::Plan;
use crate::replicated::read::ring_walk::RingWalk;
use crate::shared::{ReadTrace, ReplicatedRead};
use replica::{
    Expected, PackedPage, PackedRead, PageLimit, ShardWork, decode_scan_page, has_moved, of_store,
    part_of, replica_error, tokens_of,
};

/// Bytes of pages that all parts of one scan may have in memory together.
const BYTES_OF_ALL: usize = 64 << 20;
/// Minimum bytes of a page, however many parts there are.
const PAGE_BYTES_MIN: usize = 16 << 10;
/// Factor by which pages of other nodes scan more than those of this one: their round trip is
/// longer.
const LOOKS_LONGER: usize = 4;
/// Most parts of one scan: shards of nodes. With more, rows are read.
const PARTS_MAX: usize = 4096;

/// Parameters of a scan.
pub(super) struct ScanWanted<'a> {
    /// Rows or results that are worth fetching ahead.
    pub(super) rows: usize,
    pub(super) work: &'a ShardWork,
    /// The encoded work for other nodes.
    pub(super) shipped: &'a [u8],
    pub(super) trace: Option<&'a ReadTrace>,
}

/// Outcome of a scan.
pub(super) enum Scattered {
    /// It cannot be done this way; no request was sent and no row shown.
    NotBegun,
    /// A node would not do it, or a shard could not: rows have to be read. Something may have been shown.
    Refused(ReadStats),
    /// Statistics, and the final states of a fold; `None`: the states cannot be used.
    Done(ReadStats, Option<Vec<data::FoldState>>),
}

/// Consequence of a page that was not received.
enum Trouble {
    /// Rows have to be read.
    Refused,
    Failed(RequestError),
}

/// Ranges by the node that is asked for them, in the order of their first ones.
type Route = Vec<(HostId, VecDeque<KeyRange>)>;

/// A scan that runs.
struct Scatter<'a> {
    scans: &'a Scans,
    plan: Plan,
    epoch: Epoch,
    order: &'a ReplicatedRead,
    work: &'a ShardWork,
    shipped: &'a [u8],
    trace: Option<&'a ReadTrace>,
    clustering: usize,
}

impl Scans {
    /// Reads a range, when one replica of each part of it is enough.
    pub(super) async fn scatter<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &ReplicatedRead,
        wanted: ScanWanted<'_>,
        sink: &mut S,
    ) -> Result<Scattered, RequestError> {
        let ScanWanted { rows, work, shipped, trace } = wanted;
        let plan = self.inner.reads.plan_read(&order.snapshot, command.table, order.consistency);
        let (Some(plan), Partitions::Range(range)) = (plan, &command.partitions) else {
            return Ok(Scattered::NotBegun);
        };
        let clustering = plan.table.shape.clustering().len();
        let epoch = order.snapshot.epoch;
        let mut scatter =
            Scatter { scans: self, plan, epoch, order, work, shipped, trace, clustering };
        let Some(parts) = scatter.parts(range) else { return Ok(Scattered::NotBegun) };
        self.inner.scattered.inc();
        let limit = scatter.limit(parts.len(), sink);
        let wanted = ShardsWanted { rows, work: Some(work.clone()) };
        let mut pages = Box::new(Pages::of_parts(parts.into_iter(), command, wanted, limit));
        scatter.run(&mut pages, sink).await
    }
}

impl Scatter<'_> {
    /// The parts of a range; `None`: it cannot be read in parts, or this shard alone has all of it.
    fn parts(&self, range: &KeyRange) -> Option<Vec<(Place, VecDeque<KeyRange>)>> {
        let route = self.route(std::iter::once(range), &[])?;
        let mut parts = Vec::new();
        for (host, ranges) in route {
            let (peer, shards) = self.node(host);
            for shard in 0..shards {
                let place = Place { peer, shard: ShardId(shard), shards, epoch: self.epoch };
                parts.push((place, ranges.clone()));
            }
        }
        let is_alone = parts.len() == 1 && parts.iter().all(|(place, _)| place.peer.is_none());
        (!is_alone && parts.len() <= PARTS_MAX).then_some(parts)
    }

    /// A node as a peer, `None` for this one, and its shards.
    fn node(&self, host: HostId) -> (Option<HostId>, u16) {
        match host == self.order.snapshot.local.host_id {
            true => (None, self.scans.env().rt.shard_count()),
            false => (Some(host), self.plan.shards_of(host)),
        }
    }

    /// Assigns these ranges to replicas, excluding some nodes. `None`: one answer is not enough for
    /// one of them, or no replica can be asked.
    fn route<'k>(
        &self,
        ranges: impl Iterator<Item = &'k KeyRange>,
        but: &[HostId],
    ) -> Option<Route> {
        let now = self.scans.env().rt.now();
        let mut route: Route = Vec::new();
        for range in ranges {
            let of_token = |token| self.plan.of_token(token);
            for sub in RingWalk::new(self.plan.placements(), tokens_of(range), of_token) {
                if sub.plan.block_for() != 1 {
                    return None;
                }
                let candidates = sub.plan.candidates().iter();
                let candidates =
                    candidates.filter_map(|to| Some((*to, sub.plan.replicas.get(*to)?)));
                let host = self.choose(
                    candidates
                        .filter(|(to, r)| sub.plan.is_met_by_one(*to) && !but.contains(&r.host)),
                )?;
                let (peer, _) = self.node(host);
                if peer.is_some() && !self.scans.inner.not_scanning.may_ask(host, now) {
                    return None;
                }
                let part = part_of(range, sub.range);
                match route.iter_mut().find(|(h, _)| *h == host) {
                    None => route.push((host, VecDeque::from([part]))),
                    Some((_, ranges)) => match ranges.back_mut() {
                        Some(last) if last.end == part.start => last.end = part.end,
                        _ => ranges.push_back(part),
                    },
                }
            }
        }
        let is_short = |(_, ranges): &(HostId, VecDeque<KeyRange>)| {
            ranges.len() <= internode::scan::RANGES_MAX
        };
        (!route.is_empty() && route.iter().all(is_short)).then_some(route)
    }

    /// Chooses among the replicas that may be asked, best first. A scan that reads to the end takes
    /// the first one in the ring that is as near as the best, so that all nodes share the work.
    /// Others take the best.
    fn choose<'r>(
        &self,
        mut candidates: impl Iterator<Item = (Target, &'r ReplicaInfo)>,
    ) -> Option<HostId> {
        let first = candidates.next()?;
        if !matches!(self.work, ShardWork::Fold(_)) {
            return Some(first.1.host);
        }
        let is_as_near = |r: &ReplicaInfo| r.is_local_dc == first.1.is_local_dc;
        let near = candidates.filter(|(_, r)| is_as_near(r));
        // Targets are numbered along the ring.
        std::iter::once(first).chain(near).min_by_key(|(to, _)| *to).map(|(_, r)| r.host)
    }

    fn limit<S: RowSink>(&self, parts: usize, sink: &S) -> PageLimit {
        let own = self.scans.local().page_limit(sink);
        let share = BYTES_OF_ALL / 2 / parts.max(1);
        PageLimit { bytes: own.bytes.min(share.max(PAGE_BYTES_MIN)), ..own }
    }

    async fn run<S: RowSink>(
        &mut self,
        pages: &mut Pages,
        sink: &mut S,
    ) -> Result<Scattered, RequestError> {
        if pages.wants_all() {
            (0..pages.sources()).for_each(|source| self.ask(pages, source));
        }
        loop {
            let source = match pages.step(sink) {
                Step::Over => break,
                Step::Refused => {
                    let me = self.order.snapshot.local.host_id;
                    return Err(failed(self.order, me, ReplicaError::TooManyTombstones));
                }
                Step::Fetch(source) => source,
            };
            match self.fetch(pages, source).await {
                Ok(()) if !pages.is_failed => {}
                Ok(()) => return Ok(Scattered::Refused(pages.stats)),
                Err(Trouble::Refused) => {
                    self.scans.inner.scattered_refused.inc();
                    return Ok(Scattered::Refused(pages.stats));
                }
                Err(Trouble::Failed(error)) => return Err(error),
            }
            self.scans.env().rt.yield_if_due().await;
        }
        let states = match self.work {
            ShardWork::Fold(fold) => {
                pages.encoded_states().map(|state| fold.decode_state(state)).collect()
            }
            ShardWork::Filter(_) => None,
        };
        Ok(Scattered::Done(pages.stats, states))
    }

    /// Asks a source for its next page, unless there is none or it is asked already.
    fn ask(&self, pages: &mut Pages, source: usize) {
        let Some(request) = pages.next_request(source) else { return };
        let state = pages.encoded(source);
        let now = self.scans.env().rt.now();
        let mut deadline = self.order.deadline_of(now);
        if self.plan.replicas_of_each() > 1 {
            // So that there is time for another one.
            deadline = now + deadline.since(now) / 2;
        }
        let asked = match request.place.peer {
            None => self.ask_here(request, state, deadline),
            Some(host) => self.ask_there(host, request, state, deadline),
        };
        pages.set_asked(source, asked);
    }

    fn ask_here(
        &self,
        mut request: PageRequest,
        state: Option<Vec<u8>>,
        deadline: Instant,
    ) -> Asked {
        if let (Some(bytes), ShardWork::Fold(fold)) = (state, self.work) {
            request.read.state = fold.decode_state(&bytes);
            if request.read.state.is_none() {
                return Box::pin(std::future::ready(Err(PageError::malformed())));
            }
        }
        let asked = self.scans.local().ask_shard(request);
        let rt = self.scans.env().rt.clone();
        Box::pin(async move {
            let late = |_| Err(PageError::Peer(MessagingError::Timeout { maybe_delivered: true }));
            rt.timeout(deadline, asked).await.unwrap_or_else(late)
        })
    }

    fn ask_there(
        &self,
        host: HostId,
        request: PageRequest,
        state: Option<Vec<u8>>,
        deadline: Instant,
    ) -> Asked {
        let PageRequest { place, read } = request;
        let PackedRead { command, further, limit, work, .. } = read;
        let messaging = &self.plan.cluster.parts.messaging;
        let trace = self.trace.map(|trace| {
            let address = messaging.peer(host).map_or(host.to_string(), |p| p.address.to_string());
            let shard = place.shard.0;
            trace.note(format!("Enqueuing scan to shard {shard} of /{address}"));
            trace.id()
        });
        let to = Outgoing { host, shard: place.shard, verb: Verb::Scan, deadline, trace };
        let limits = ReadLimits {
            rows: limit.rows as u64,
            bytes: limit.bytes as u64,
            rows_per_partition: u32::MAX,
        };
        let left_out = limit.left_out.saturating_mul(LOOKS_LONGER) as u64;
        let (shard, shards, state) = (place.shard, place.shards, state.as_deref());
        let scan = ScanRequest {
            shard,
            shards,
            limits,
            left_out,
            command,
            further,
            work: self.shipped,
            state,
        };
        let answer = messaging.request(&to, |out| scan.encode(out));
        let mut ranges = scan.further;
        if let Partitions::Range(first) = scan.command.partitions {
            ranges.insert(0, first);
        }
        let clustering = self.clustering;
        let resumed = scan.command.resume.and_then(|resume| resume.clustering);
        Box::pin(async move {
            let response = answer.await.map_err(PageError::Peer)?;
            let fold = match &work {
                Some(ShardWork::Fold(fold)) => Some(&**fold),
                _ => None,
            };
            let resumed = resumed.as_deref();
            let expected = Expected { ranges: &ranges, resumed, clustering, fold };
            decode_scan_page(&response.payload, &expected).map_err(|error| {
                tracing::warn!(%host, error, "discarding a page of a scan");
                PageError::malformed()
            })
        })
    }

    /// Replaces a source's page with its next one, and requests the page after that ahead of time.
    async fn fetch(&mut self, pages: &mut Pages, source: usize) -> Result<(), Trouble> {
        self.ask(pages, source);
        for other in pages.beside(source) {
            self.ask(pages, other);
        }
        let Some(asked) = pages.take_asked(source) else { return Ok(()) };
        let Some(place) = pages.place(source) else { return Ok(()) };
        let answer = asked.await;
        let now = (self.plan.cluster.parts.snapshot)();
        if now.places.last() > place.epoch && self.has_moved(pages, source, &now) {
            // The replica may have given ranges away since: messages carry this node's epoch, not
            // the plan's.
            return self.go_elsewhere(pages, source, None).await;
        }
        match answer {
            Ok(page) => {
                self.take(pages, source, place, page);
                Ok(())
            }
            Err(error) => self.trouble(pages, source, place, error).await,
        }
    }

    /// Returns true if the rest of a source has other replicas than when its place was chosen.
    fn has_moved(&self, pages: &mut Pages, source: usize, now: &ClusterSnapshot) -> bool {
        let Some(rest) = pages.rest_of(source, None) else { return true };
        let Some(topology) = self.plan.cluster.topology(now, self.plan.table.table.id) else {
            return true;
        };
        let since = rest.place.epoch;
        let mut ranges = rest.ranges.into_iter().map(Partitions::Range);
        ranges.any(|partitions| has_moved(&topology, since, &partitions))
    }

    fn take(&self, pages: &mut Pages, source: usize, place: Place, mut page: PackedPage) {
        match (self.trace, place.peer) {
            (Some(trace), Some(_)) => trace.note_page(page.len()),
            (Some(trace), None) => trace.shards().add(place.shard, &page.stats, Some(page.len())),
            (None, _) => {}
        }
        let state = match (self.work, page.state.take()) {
            (ShardWork::Fold(fold), Some(state)) => {
                let mut bytes = Vec::new();
                page.is_failed |= !fold.encode_state(&state, &mut bytes);
                Some(bytes)
            }
            _ => page.encoded.take(),
        };
        pages.set_encoded(source, state);
        let was_asked_alone = !pages.wants_all();
        if pages.put_page(source, page) {
            self.ask(pages, source);
            if was_asked_alone {
                // Little passes the filter: all nodes look for it.
                (0..pages.sources()).for_each(|source| self.ask(pages, source));
            }
        }
    }

    /// Handles a page that was not received: moves the source elsewhere, or fails.
    async fn trouble(
        &mut self,
        pages: &mut Pages,
        source: usize,
        place: Place,
        error: PageError,
    ) -> Result<(), Trouble> {
        let me = self.order.snapshot.local.host_id;
        let host = place.peer.unwrap_or(me);
        let reason = match &error {
            PageError::Peer(MessagingError::Remote(reply)) => match reply {
                ErrorReply::UnknownVerb(_) => {
                    let now = self.scans.env().rt.now();
                    self.scans.inner.not_scanning.note(host, now);
                    return Err(Trouble::Refused);
                }
                ErrorReply::Invalid(why) => {
                    tracing::debug!(%host, why, "replica declined a scan");
                    return Err(Trouble::Refused);
                }
                ErrorReply::UnknownTable(_) | ErrorReply::EpochTooNew { .. } => {
                    return Err(Trouble::Refused);
                }
                ErrorReply::EpochTooOld { needed } if *needed > self.epoch => {
                    return self.go_on_with(pages, source, *needed).await;
                }
                _ => replica_error(&MessagingError::Remote(reply.clone())),
            },
            PageError::Peer(MessagingError::TooLarge { .. }) => return Err(Trouble::Refused),
            PageError::Peer(error) => replica_error(error),
            PageError::Store(error) => {
                self.scans.env().store.note_failure(error);
                let text = error.to_string();
                tracing::warn!(error = text, "this node failed as a replica of a scan");
                // The client gets the error, as for a read that this node answers alone.
                of_store(error)
            }
        };
        // Others have as many.
        let is_final = reason == ReplicaError::TooManyTombstones;
        if is_final {
            return Err(Trouble::Failed(failed(self.order, host, reason)));
        }
        self.go_elsewhere(pages, source, Some((host, reason))).await
    }

    /// A replica knows newer metadata.
    async fn go_on_with(
        &mut self,
        pages: &mut Pages,
        source: usize,
        needed: Epoch,
    ) -> Result<(), Trouble> {
        let deadline = self.order.deadline_of(self.scans.env().rt.now());
        let parts = self.plan.cluster.parts.clone();
        let is_there = match &parts.epoch_wait {
            Some(wait) => wait(needed, deadline).await,
            None => (parts.snapshot)().epoch >= needed,
        };
        match is_there {
            true => self.go_elsewhere(pages, source, None).await,
            false => Err(Trouble::Failed(self.late())),
        }
    }

    fn late(&self) -> RequestError {
        let (consistency, data_present) = (self.order.consistency, false);
        RequestError::ReadTimeout { consistency, received: 0, block_for: 1, data_present }
    }

    /// Has the rest of a source read by current replicas that are not known to have failed.
    async fn go_elsewhere(
        &mut self,
        pages: &mut Pages,
        source: usize,
        by: Option<(HostId, ReplicaError)>,
    ) -> Result<(), Trouble> {
        let Some(rest) = pages.rest_of(source, by.map(|(host, _)| host)) else { return Ok(()) };
        let Rest { place, ranges, tried } = rest;
        let snapshot = (self.plan.cluster.parts.snapshot)();
        let (table, level) = (self.plan.table.table.id, self.order.consistency);
        let Some(plan) = self.scans.inner.reads.plan_read(&snapshot, table, level) else {
            return Err(Trouble::Refused);
        };
        (self.plan, self.epoch) = (plan, snapshot.epoch);
        let Some(route) = self.route(ranges.iter(), &tried) else {
            return Err(match by {
                None => Trouble::Refused,
                Some((_, ReplicaError::Timeout)) => Trouble::Failed(self.late()),
                Some((host, reason)) => Trouble::Failed(failed(self.order, host, reason)),
            });
        };
        let parts = route.into_iter().map(|(host, ranges)| {
            let (peer, shards) = self.node(host);
            (Place { peer, shards, epoch: self.epoch, ..place }, ranges)
        });
        let parts: Vec<_> = parts.collect();
        if parts.iter().any(|(new, _)| new.shards != place.shards) {
            return Err(Trouble::Refused);
        }
        self.scans.inner.scattered_moved.inc();
        pages.replace(source, parts.into_iter());
        Ok(())
    }
}
