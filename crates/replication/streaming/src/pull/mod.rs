//! Fetch of one table by one shard: pages from the source's shards, written into SSTables.
//!
//! The slices of two nodes are the same when they have equally many shards; then a shard asks only its
//! counterpart. Otherwise it asks every shard of the source in turn (a *pass* each) for the tokens of
//! its own slice. Each pass is one ingest: its tokens ascend.
//!
//! A pass begins with the files that the source can send verbatim (`files`), followed by pages of the
//! rest.
//!
//! A failed page is requested again, then from the next source, which continues at the same position:
//! up to there everything came from a source that has all of it.

mod files;

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::TokenRange;
use data::replica_page::ReplicaPage;
use internode::{ErrorReply, Verb};
use messaging::{MessagingError, Outgoing, RequestFuture};
use stdx::{HostId, ShardId, TableId, Token};
use store::{Ingest, StoreError};

use crate::env::{Env, OwnShard};
use crate::error::StreamError;
use crate::orders::{ShardOutcome, TableOrder};
use crate::plan::FetchRange;
use crate::report::FetchReport;
use crate::stats::SessionKey;
use files::Offer;

use crate::wire::{FetchAnswer, FetchRequest, Position, RANGES_MAX};

/// Progress of ranges that have the same sources.
struct Pull<'a> {
    order: &'a TableOrder,
    /// `(start, end]`, ascending, apart from each other.
    ranges: Vec<(Token, Token)>,
    /// Shards of the source for which the passes were made; 0 = not known yet.
    shards: u16,
    /// The source's shards that are left, the present one last.
    passes: Vec<u16>,
    /// Ranges of the present pass that are whole here.
    ranges_done: usize,
    /// End of the last page that was taken.
    position: Option<Position>,
    ingest: Option<Ingest>,
    /// The page after that, in flight.
    asked: Option<AskedPage>,
    /// The source's offer for this pass; `None`: not requested yet.
    offer: Option<Offer>,
    report: FetchReport,
}

/// A page in flight.
struct AskedPage {
    /// Number of requested ranges.
    ranges: usize,
    /// True if the page is from a hold.
    hold: bool,
    answer: RequestFuture,
}

/// Why a page did not come.
enum Trouble {
    /// A retry may succeed.
    Again(String),
    /// Not from this source.
    Source(String),
    /// This pass has to restart: the data fetched in it is useless.
    Anew(String),
    /// The table does not exist here any more.
    Dropped,
    /// Nothing can be stored.
    Fatal(StreamError),
}

/// Fetches what a shard will own.
pub(crate) struct Puller {
    env: Rc<Env>,
}

impl Puller {
    pub(crate) fn new(env: Rc<Env>) -> Puller {
        Puller { env }
    }

    pub(crate) async fn pull_table(&self, order: &TableOrder) -> Result<ShardOutcome, StreamError> {
        let mut groups: BTreeMap<&[HostId], Vec<usize>> = BTreeMap::new();
        for (index, range) in order.ranges.iter().enumerate() {
            groups.entry(&range.sources).or_default().push(index);
        }
        let mut outcome = ShardOutcome::default();
        for (sources, indices) in groups {
            let ranges = indices.iter().filter_map(|i| order.ranges.get(*i));
            let mut pull = Pull::new(order, ranges);
            let mut last = (None, "no source is known".to_owned());
            let mut is_done = false;
            for source in sources {
                match self.pull_from(*source, indices.len() as u64, &mut pull).await {
                    Ok(()) => {
                        is_done = true;
                        break;
                    }
                    Err(Trouble::Fatal(error)) => return Err(error),
                    Err(Trouble::Dropped) => {
                        is_done = true;
                        break;
                    }
                    Err(Trouble::Again(e) | Trouble::Source(e) | Trouble::Anew(e)) => {
                        tracing::warn!(source = %source, table = %order.table, error = e.as_str(),
                            "cannot fetch a range from this source");
                        stdx::reached!("stream-source-left");
                        last = (Some(*source), e);
                    }
                }
            }
            add(&mut outcome.report, &pull.report);
            if !is_done {
                let (source, error) = last;
                outcome.failed.extend(indices.into_iter().map(|i| (i, source, error.clone())));
            }
        }
        Ok(outcome)
    }

    /// Fetches all that is left from one source.
    async fn pull_from(
        &self,
        source: HostId,
        ranges: u64,
        pull: &mut Pull<'_>,
    ) -> Result<(), Trouble> {
        let env = &self.env;
        let id = SessionKey { plan: pull.order.plan, host: source };
        let count = |change: &dyn Fn(&mut crate::SessionStats)| {
            env.counts.receiving(id, &pull.order.operation, env.rt.now(), change);
        };
        count(&|session| session.ranges += ranges);
        if let Some(peer) = env.messaging.peer(source) {
            pull.set_shards(peer.shard_count, env.own_shard());
        }
        // Progress does not reset the count of restarts: every restarted pass makes some.
        let (mut failures, mut begun_anew) = (0, 0);
        let mut pause = env.settings.retry_pause;
        while let Some(shard) = pull.shard() {
            let step = match &pull.offer {
                None => self.ask_offer(source, shard, pull).await,
                Some(offer) if offer.has_more() => self.pull_file(source, shard, pull).await,
                Some(_) => self.pull_page(source, shard, pull).await,
            };
            let trouble = match step {
                Ok(()) => {
                    (failures, pause) = (0, env.settings.retry_pause);
                    continue;
                }
                Err(Trouble::Again(error)) => {
                    stdx::reached!("stream-asked-again");
                    error
                }
                Err(Trouble::Anew(error)) => {
                    stdx::reached!("stream-pass-anew");
                    self.end_hold(source, shard, pull);
                    pull.begin_anew();
                    begun_anew += 1;
                    error
                }
                Err(other) => {
                    self.leave(source, shard, pull);
                    return Err(other);
                }
            };
            failures += 1;
            if failures >= env.settings.attempts || begun_anew >= env.settings.attempts {
                self.leave(source, shard, pull);
                return Err(Trouble::Source(trouble));
            }
            env.counts.retries.inc();
            tracing::debug!(source = %source, error = trouble.as_str(), "retrying a page");
            let paused = env.unless_aborted(pull.order.plan, env.rt.sleep(pause)).await;
            if let Err(error) = paused {
                self.leave(source, shard, pull);
                return Err(Trouble::Fatal(error));
            }
            pause = (pause * 2).min(env.settings.retry_pause_max);
        }
        let id = SessionKey { plan: pull.order.plan, host: source };
        env.counts.receiving(id, &pull.order.operation, env.rt.now(), |session| {
            session.ranges_done += ranges;
        });
        Ok(())
    }

    /// Takes the next page, requests the page after it, and stores it.
    async fn pull_page(
        &self,
        source: HostId,
        shard: u16,
        pull: &mut Pull<'_>,
    ) -> Result<(), Trouble> {
        let env = &self.env;
        let AskedPage { ranges, hold, answer } = match pull.asked.take() {
            Some(asked) => asked,
            None => self.ask_page(source, shard, pull),
        };
        let response = env.unless_aborted(pull.order.plan, answer).await.map_err(Trouble::Fatal)?;
        let response = response.map_err(trouble_of)?;
        let answer = FetchAnswer::decode(&response.payload)
            .map_err(|error| Trouble::Source(error.to_string()))?;
        if answer.shards != pull.shards {
            pull.set_shards(answer.shards, env.own_shard());
            return Err(Trouble::Again("the source has another number of shards".to_owned()));
        }
        if answer.page.is_empty() && hold {
            return Err(Trouble::Anew("the source no longer holds the data".to_owned()));
        }
        self.begin_ingest(pull).await?;
        let page = ReplicaPage::open(answer.page).map_err(|e| Trouble::Anew(e.to_string()))?;
        // A page that cannot be stored ends the pass: no source continues at this position without
        // it.
        pull.move_to(Position::of(page.end()), ranges)?;
        let is_last = pull.ranges_done >= pull.ranges.len();
        if !is_last {
            // It is in flight while this one is stored.
            pull.asked = Some(self.ask_page(source, shard, pull));
        }
        let Some(ingest) = &mut pull.ingest else { return Err(lost_ingest()) };
        let partitions = ingest.page(answer.page).await.map_err(stored)?;
        let bytes = answer.page.len() as u64;
        pull.report.bytes += bytes;
        pull.report.partitions += partitions;
        env.counts.received_bytes.add(bytes);
        env.counts.received_partitions.add(partitions);
        let id = SessionKey { plan: pull.order.plan, host: source };
        env.counts.receiving(id, &pull.order.operation, env.rt.now(), |session| {
            session.bytes += bytes;
            session.partitions += partitions;
        });
        if !is_last {
            return Ok(());
        }
        // The pass is over.
        let Some(ingest) = pull.ingest.take() else { return Err(lost_ingest()) };
        stdx::invariant!(
            pull.ranges_done == pull.ranges.len()
                && pull.offer.as_ref().is_none_or(|offer| !offer.has_more()),
            "INV-stream-1: a pass ends with {} of {} ranges, or before all files came",
            pull.ranges_done,
            pull.ranges.len()
        );
        let ingested = ingest.finish().await.map_err(stored)?;
        pull.report.files += ingested.files;
        pull.report.disk_bytes += ingested.disk_bytes;
        self.end_hold(source, shard, pull);
        pull.passes.pop();
        pull.begin_anew();
        Ok(())
    }

    /// Requests the page after the position.
    fn ask_page(&self, source: HostId, shard: u16, pull: &Pull<'_>) -> AskedPage {
        let env = &self.env;
        let request = pull.request(env.settings.page_bytes, env.own_shard());
        let to = Outgoing {
            host: source,
            shard: ShardId(shard),
            verb: Verb::StreamFetch,
            deadline: env.rt.now() + env.settings.page_timeout,
            trace: None,
        };
        let answer = env.messaging.request(&to, |out| request.encode(out));
        AskedPage { ranges: request.ranges.len(), hold: request.hold.is_some(), answer }
    }

    /// Leaves a source: the next one continues at the same position. A hold is abandoned, because
    /// its data is of one source and one moment as a whole.
    fn leave(&self, source: HostId, shard: u16, pull: &mut Pull<'_>) {
        pull.asked = None;
        match pull.offer.as_ref().and_then(Offer::hold) {
            Some(_) => {
                self.end_hold(source, shard, pull);
                pull.begin_anew();
            }
            None => pull.offer = None,
        }
    }

    /// Starts the ingest unless it has started.
    async fn begin_ingest(&self, pull: &mut Pull<'_>) -> Result<(), Trouble> {
        if pull.ingest.is_none() {
            let ingest =
                self.env.store.transfer().ingest(pull.order.table).await.map_err(stored)?;
            pull.ingest = Some(ingest.within(pull.ranges.clone()));
        }
        Ok(())
    }
}

impl<'a> Pull<'a> {
    fn new(order: &'a TableOrder, ranges: impl Iterator<Item = &'a FetchRange>) -> Pull<'a> {
        Pull {
            order,
            ranges: ascending(ranges.map(|f| f.range)),
            shards: 0,
            passes: Vec::new(),
            ranges_done: 0,
            position: None,
            ingest: None,
            asked: None,
            offer: None,
            report: FetchReport::default(),
        }
    }

    /// Notes the source's number of shards. If it has changed, everything restarts.
    fn set_shards(&mut self, shards: u16, own: OwnShard) {
        if shards == self.shards {
            return;
        }
        if self.shards != 0 {
            stdx::reached!("stream-shards-changed");
        }
        self.shards = shards.max(1);
        self.passes = if self.shards == own.count {
            vec![own.shard.0]
        } else {
            (0..self.shards).rev().collect()
        };
        self.begin_anew();
    }

    /// The shard to be asked; `None` when all is here.
    fn shard(&self) -> Option<u16> {
        if self.shards == 0 {
            // Any shard reports the number of shards.
            return Some(0);
        }
        self.passes.last().copied()
    }

    fn begin_anew(&mut self) {
        self.ranges_done = 0;
        self.position = None;
        self.ingest = None;
        self.asked = None;
        self.offer = None;
    }

    fn request(&self, bytes: usize, own: OwnShard) -> FetchRequest {
        let left = self.ranges.get(self.ranges_done..).unwrap_or_default();
        FetchRequest {
            table: self.order.table,
            plan: self.order.plan,
            operation: self.order.operation.to_string(),
            bytes: bytes as u64,
            peer_shards: self.shards,
            slice: (self.shards != own.count).then_some((own.shard, own.count)),
            hold: self.offer.as_ref().and_then(Offer::hold),
            position: self.position.clone(),
            ranges: left.iter().take(RANGES_MAX).copied().collect(),
        }
    }

    /// The page ended there; `None`: at the end of the `asked` ranges.
    fn move_to(&mut self, end: Option<Position>, asked: usize) -> Result<(), Trouble> {
        let Some(end) = end else {
            self.ranges_done += asked;
            stdx::invariant!(
                self.ranges_done <= self.ranges.len(),
                "INV-stream-3: {} ranges done of {}",
                self.ranges_done,
                self.ranges.len()
            );
            self.position = None;
            return Ok(());
        };
        let token = end.token();
        // Two ends inside one partition: the ingest has checked their order.
        let moved = match &self.position {
            None => true,
            Some(last) => {
                let (a, b) = ((last.token(), &last.key), (token, &end.key));
                a < b || (a == b && last.clustering.is_some() && *last != end)
            }
        };
        if !moved {
            return Err(Trouble::Source("a page ends where the one before ended".to_owned()));
        }
        let left = self.ranges.get(self.ranges_done..).unwrap_or_default();
        let done = self.ranges_done + left.iter().take_while(|(_, end)| *end < token).count();
        if done >= self.ranges.len() {
            return Err(Trouble::Source("a page ends after the requested range".to_owned()));
        }
        stdx::invariant!(
            done >= self.ranges_done,
            "INV-stream-3: a page goes back from range {} to {done}",
            self.ranges_done
        );
        self.ranges_done = done;
        self.position = Some(end);
        Ok(())
    }
}

/// Ranges without wrap, ascending, neighbours joined.
fn ascending(ranges: impl Iterator<Item = TokenRange>) -> Vec<(Token, Token)> {
    let whole = |r: &TokenRange| r.start == r.end;
    let merged = cluster::ranges::merge(ranges);
    let mut all: Vec<(Token, Token)> = Vec::new();
    for range in merged {
        match whole(&range) {
            true => all.push((Token::MIN, Token::MAX)),
            false => all.extend(range.unwrapped().map(|r| (r.start, r.end))),
        }
    }
    all.sort_unstable();
    all
}

fn trouble_of(error: MessagingError) -> Trouble {
    let text = error.to_string();
    match error {
        MessagingError::Stopping => Trouble::Fatal(StreamError::Stopping),
        MessagingError::UnknownHost(_)
        | MessagingError::TooLarge { .. }
        | MessagingError::Refused { .. }
        | MessagingError::Malformed
        | MessagingError::Remote(
            ErrorReply::Corrupt | ErrorReply::Invalid(_) | ErrorReply::UnknownVerb(_),
        ) => Trouble::Source(text),
        _ => Trouble::Again(text),
    }
}

/// Error of a pass that lost its writer: the data fetched in it would be incomplete, so the pass
/// restarts.
#[cold]
fn lost_ingest() -> Trouble {
    let bug = stdx::bug!("INV-stream-1: a pass has no writer for what it fetched");
    Trouble::Anew(bug.to_string())
}

/// Maps an error of this node's store while it stores a page.
fn stored(error: StoreError) -> Trouble {
    match error {
        StoreError::UnknownTable(TableId(_)) => Trouble::Dropped,
        StoreError::Invalid(what) | StoreError::Unsupported(what) => Trouble::Anew(what),
        error => Trouble::Fatal(error.into()),
    }
}

fn add(all: &mut FetchReport, more: &FetchReport) {
    all.bytes += more.bytes;
    all.partitions += more.partitions;
    all.files += more.files;
    all.disk_bytes += more.disk_bytes;
    all.whole_files += more.whole_files;
}
