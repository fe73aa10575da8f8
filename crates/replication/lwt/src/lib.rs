//! Lightweight transactions: conditional writes and serial reads, the driver of `paxos` for partitions.
//!
//! Owns: acceptors of this node's partitions and their rows in `system.paxos` ([`acceptors`]), the
//! queue of proposals of a shard ([`proposal_queue`]), which replica carries a partition's statements out
//! ([`leader_routing`]), registers on the move ([`handover`]) and out of use ([`paxos_cleanup`], [`ballot_floor`],
//! [`commit_pruning`]), promises without records ([`promise_horizon`]), the driver of the proposer ([`drive`]), the Paxos
//! verbs ([`serve`]), and what outcomes are to clients (this file). Never: decides anything of a round (that
//! is `paxos`), evaluates conditions (that is [`CasOperation`]), reaches data but through [`replica::Replica`].
//!
//! [`Lwt`] stands on the environment of a shard ([`replica::Env`]) and on what [`Shards`] has of its node.
//!
//! Reading order: [`paxos_row`], [`shards`], [`acceptors`], [`serve`], [`plan`], [`proposal_queue`], [`drive`], this
//! file, [`leader_routing`]. See `docs/internals/paxos.md`; the invariants stand in [`acceptors`].

mod acceptors;
mod ballot_floor;
mod checkpoint_file;
mod commit_pruning;
mod drive;
mod handover;
mod leader_routing;
mod paxos_cleanup;
mod paxos_row;
mod plan;
mod promise_horizon;
mod proposal_queue;
mod serve;
mod shards;
#[cfg(feature = "testing")]
pub mod testing;
mod unresponsive_replicas;

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ClusterSnapshot, Consistency};
use data::command::{Partitions, ReadCommand};
use data::replica_page::{PageEnd, PageLimits, ReplicaPage};
use paxos::ballot::tie_bits;
use paxos::proposer::{Decision, Effect, Failure, FailureKind, Kind, Outcome};
use paxos::{BallotClock, Scope};
use request::{ReplicaError, RequestError, WriteType};
use rt::Rt;
use stdx::{HostId, Instant, IoError, TimestampMicros};
use store::{Look, ReadStats, RowSink, StoreError};
use telemetry::Counter;

pub use acceptors::{Answered, Ask};
pub use handover::{Finished, HandoverError};
pub use leader_routing::{
    ForwardRefused, ForwardTerms, ForwardedHandler, ForwardedStatement, NotForwarded, SerialRoute,
};
pub use paxos::queue::Left;
pub use paxos_cleanup::Swept;
pub use paxos_row::Partition;
pub use promise_horizon::rebuild_horizon;
pub use proposal_queue::{NoTurn, TurnWish};
pub use shards::{ShardReply, ShardRequest, Shards};

use acceptors::Acceptors;
use drive::{Driver, Job};
use paxos_row::Payload;
use plan::{Level, Targets, level_of, narrow, voters};
use proposal_queue::ProposalQueue;
use replica::{ClusterView, Env, PageRows, RequestTrace, Shown, TableFacts, go_on, resumed};
use serve::is_sound;

/// Says whether a node's clock is wrong.
type WrongClock = Rc<dyn Fn(HostId) -> bool>;

/// Maximum lead of a ballot over a replica's clock. Cassandra has no such limit; nodes whose clocks
/// are this far apart lose plain writes, too.
const SKEW_MAX: Duration = Duration::from_secs(60);
/// Bytes after which the read of a prepare ends; a condition that needs more is refused.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Shortest wait after a round that was lost to another proposer.
const BACKOFF_MIN: Duration = Duration::from_millis(1);
/// Longest one, and the shortest time before an unanswered round is begun again.
const BACKOFF_MAX: Duration = Duration::from_millis(100);
/// Length of a turn until one was measured: three round trips with syncs.
const TURN_FIRST: Duration = Duration::from_millis(10);
/// Time for the commit of an operation on a node that is alone, or of a read.
const COMMIT_TIME: Duration = Duration::from_secs(2);

/// Lightweight transactions of one shard.
pub struct Lwt<N> {
    inner: Rc<Inner<N>>,
}

impl<N> Clone for Lwt<N> {
    fn clone(&self) -> Lwt<N> {
        Lwt { inner: self.inner.clone() }
    }
}

/// State of one shard for lightweight transactions.
struct Inner<N> {
    node: N,
    acceptors: Acceptors<N>,
    queue: ProposalQueue<N>,
    table: paxos_row::NewestTable,
    /// Made at first use: it needs to know the host.
    clock: RefCell<Option<BallotClock>>,
    forwarded: leader_routing::Forwarded,
    silent: RefCell<unresponsive_replicas::Silent>,
    /// Reports the nodes with a wrong clock.
    wrong_clock: RefCell<Option<WrongClock>>,
    sweeps: paxos_cleanup::Sweeps,
    prunes: commit_pruning::Waiting,
    served: Counter,
    forwarded_in: Counter,
    forwarded_out: Counter,
    writes: Counter,
    reads: Counter,
    rounds: Counter,
    contentions: Counter,
    read_contentions: Counter,
    unknown: Counter,
}

impl<N: Shards> Inner<N> {
    fn new(node: N) -> Inner<N> {
        let telemetry = node.env().rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        Inner {
            acceptors: Acceptors::new(node.clone()),
            queue: ProposalQueue::new(node.clone()),
            table: paxos_row::NewestTable::default(),
            clock: RefCell::default(),
            forwarded: leader_routing::Forwarded::default(),
            silent: RefCell::default(),
            wrong_clock: RefCell::default(),
            sweeps: paxos_cleanup::Sweeps::default(),
            prunes: commit_pruning::Waiting::default(),
            served: counter("replica_paxos_total", "Paxos messages served for peers"),
            forwarded_in: counter(
                "replica_cas_forwarded_total",
                "conditional statements and serial reads that other nodes forwarded to this one",
            ),
            forwarded_out: counter(
                "coordinator_cas_forwards_total",
                "conditional statements and serial reads sent to another node to be carried out",
            ),
            writes: counter("coordinator_cas_writes_total", "conditional writes begun"),
            reads: counter("coordinator_cas_reads_total", "serial reads begun"),
            rounds: counter("coordinator_cas_rounds_total", "Paxos rounds begun"),
            contentions: counter(
                "coordinator_cas_contentions_total",
                "Paxos rounds lost to other proposers",
            ),
            read_contentions: counter(
                "coordinator_cas_read_contentions_total",
                "those of them that were of serial reads, which may overtake each other when they run at \
                 the same time",
            ),
            unknown: counter(
                "coordinator_cas_unknown_total",
                "conditional writes that ended without it being known whether they take effect",
            ),
            node,
        }
    }

    fn clock(&self, rt: &Rt, host: HostId) -> RefMut<'_, BallotClock> {
        RefMut::map(self.clock.borrow_mut(), |clock| {
            clock.get_or_insert_with(|| {
                let skew_max = u64::try_from(SKEW_MAX.as_micros()).unwrap_or(u64::MAX);
                BallotClock::new(tie_bits(host, rt.shard(), rt.random_u64()), skew_max)
            })
        })
    }
}

/// A conditional write. As a sink it is shown the rows of its read, merged and live, each time that
/// its condition is to be decided.
pub trait CasOperation: RowSink {
    /// Forgets what was shown: it is shown again, newer.
    fn restart(&mut self);

    /// Decides from the rows shown since the last restart. `Some`: the condition holds, and this is
    /// the encoded mutation, which writes the operation's partition only, with that timestamp.
    /// `None`: the condition does not hold; the client gets the rows that were shown.
    ///
    /// # Errors
    /// The condition or the values cannot be evaluated; nothing is written then.
    fn decide(&mut self, timestamp: TimestampMicros) -> Result<Option<Vec<u8>>, CasRefused>;

    /// Reports the cost of the read that showed all rows since the last restart. Called before
    /// [`CasOperation::decide`].
    fn has_read(&mut self, stats: &ReadStats) {
        let _ = stats;
    }

    /// Reports how many of its rounds were lost to other proposers. Called once, at the end.
    fn contended(&mut self, rounds: u32) {
        let _ = rounds;
    }
}

/// A condition that cannot be evaluated; the text is for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CasRefused(pub String);

/// A conditional write of one partition.
#[derive(Clone, Debug)]
pub struct CasOrder {
    /// The metadata it is planned with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// All rows and columns of one partition that the conditions need.
    pub read: ReadCommand,
    /// Rows of it after which the operation stops, as of `Coordinator::read`; `usize::MAX`: it uses
    /// all. Replicas send no more of them at first.
    pub rows_wanted: usize,
    /// `Global` for SERIAL, `Local` for LOCAL_SERIAL.
    pub scope: paxos::Scope,
    /// Consistency level of the commit: which replicas must have the write before it is
    /// acknowledged.
    pub commit: Consistency,
    /// False: the keyspace has `durable_writes = false`.
    pub durable: bool,
    /// When the client is answered at the latest while nothing is decided.
    pub deadline: Instant,
    /// Trace of the request: this node's steps are recorded in it, and the other nodes record
    /// theirs.
    pub trace: Option<Rc<RequestTrace>>,
}

/// Outcome of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasOutcome {
    /// The condition held and the write is committed at the level that was asked for.
    Applied,
    /// It did not hold; nothing was written.
    NotApplied,
}

/// Why a conditional write or a serial read has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CasError {
    /// Without effect (`Unavailable`, or a timeout or failure at the serial level), or committed, but
    /// not at the level that was asked for (`WriteTimeout` of type `Cas` at the commit level).
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The write may have been applied, or not: CAS_WRITE_UNKNOWN.
    #[error("CAS operation result is unknown - proposal accepted by {received} but not a quorum.")]
    Unknown {
        /// Replicas that accepted it.
        received: u32,
        /// A quorum.
        required: u32,
    },
    /// See there.
    #[error(transparent)]
    Refused(#[from] CasRefused),
    /// Too many operations wait for the partition or the node; nothing was written.
    #[error("{0}")]
    Overloaded(String),
    /// This node cannot do it; nothing was written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Maps a failed operation to its client's error.
struct Failing {
    scope: Scope,
    commit: Consistency,
    is_write: bool,
}

impl Failing {
    fn timeout(&self, received: usize, required: usize) -> CasError {
        let (consistency, block_for) = (level_of(self.scope), narrow(required));
        // A driver must not see as many answers as were needed beside a timeout (CASSANDRA-6491).
        let received = narrow(received).min(block_for.saturating_sub(1));
        CasError::Request(match self.is_write {
            true => RequestError::WriteTimeout {
                consistency,
                received,
                block_for,
                write_type: WriteType::Cas,
            },
            false => {
                RequestError::ReadTimeout { consistency, received, block_for, data_present: false }
            }
        })
    }

    fn error<N: Shards>(&self, failure: Failure, driver: &Driver<N>) -> CasError {
        let Failure { kind, effect, received, required, .. } = failure;
        let (got, block_for) = (narrow(received), narrow(required));
        match effect {
            Effect::Unknown => {
                return CasError::Unknown { received: got, required: block_for };
            }
            Effect::Chosen => {
                return CasError::Request(RequestError::WriteTimeout {
                    consistency: self.commit,
                    received: got.min(block_for.saturating_sub(1)),
                    block_for,
                    write_type: WriteType::Cas,
                });
            }
            Effect::None => {}
        }
        let (consistency, failures) = (level_of(self.scope), driver.failures.clone());
        match kind {
            FailureKind::Timeout | FailureKind::Superseded | FailureKind::Aborted => {
                self.timeout(received, required)
            }
            FailureKind::Replicas
                if failures.iter().all(|(_, why)| *why == ReplicaError::Timeout) =>
            {
                self.timeout(received, required)
            }
            FailureKind::ClockSkew(skew) => {
                tracing::warn!(%skew, "a lightweight transaction failed: clocks are too far apart");
                self.timeout(received, required)
            }
            FailureKind::Unavailable => CasError::Request(RequestError::Unavailable {
                consistency,
                required: block_for,
                alive: got,
            }),
            FailureKind::Replicas => CasError::Request(match self.is_write {
                true => RequestError::WriteFailure {
                    consistency,
                    received: got,
                    block_for,
                    failures,
                    write_type: WriteType::Cas,
                },
                false => RequestError::ReadFailure {
                    consistency,
                    received: got,
                    block_for,
                    failures,
                    data_present: false,
                },
            }),
        }
    }
}

/// A serial read of one partition.
#[derive(Clone, Debug)]
pub struct SerialRead {
    /// The metadata it is planned with.
    pub snapshot: Arc<ClusterSnapshot>,
    /// `Global` for SERIAL, `Local` for LOCAL_SERIAL.
    pub scope: Scope,
    /// When the client is answered at the latest.
    pub deadline: Instant,
    /// See [`CasOrder::rows_wanted`].
    pub rows_wanted: usize,
    /// PER PARTITION LIMIT; `u32::MAX`: none.
    pub rows_per_partition: u32,
    /// See [`CasOrder::trace`].
    pub trace: Option<Rc<RequestTrace>>,
}

impl<N: Shards> Lwt<N> {
    /// Nothing runs yet.
    pub fn new(node: N) -> Lwt<N> {
        Lwt { inner: Rc::new(Inner::new(node)) }
    }

    fn env(&self) -> &Env {
        self.inner.node.env()
    }

    fn cluster(&self) -> Option<Rc<ClusterView>> {
        self.env().cluster().cloned()
    }

    /// Releases what may hold this.
    pub fn let_go(&self) {
        self.inner.forwarded.let_go();
        drop(self.inner.wrong_clock.take());
    }

    /// Serves another shard of this node.
    pub async fn serve(&self, request: ShardRequest) -> ShardReply {
        let Inner { acceptors, queue, .. } = &*self.inner;
        match request {
            ShardRequest::Acceptor(ask) => ShardReply::Acceptor(acceptors.ask_here(*ask).await),
            ShardRequest::Turn(wish) => ShardReply::Turn(queue.lease_turn(*wish).await),
            ShardRequest::TurnEnd(partition, turn, left) => {
                queue.end_turn(&partition, turn, left);
                ShardReply::TurnEnded
            }
            ShardRequest::Promises(raise) => {
                ShardReply::Promises(acceptors.show_own_promises(raise).await)
            }
        }
    }

    /// Loads the checkpoints of this shard's acceptors. They refuse the ballots that deleted rows
    /// of `system.paxos` would have refused, and keep the promises that were made without a record.
    /// Must be called before the node joins its cluster.
    ///
    /// # Errors
    /// The files below `work_dir` cannot be read.
    pub async fn load_checkpoints(&self, work_dir: &str) -> Result<(), IoError> {
        self.inner.acceptors.load_checkpoints(work_dir).await
    }

    /// Writes all promises to their rows, so that the next start finds them there. Must be called
    /// when no request is served any more and the store is still open.
    pub async fn close_horizon(&self) {
        self.inner.acceptors.close_horizon().await;
    }

    /// A conditional write: reads what the condition needs, decides and writes, linearizable with all
    /// conditional writes and serial reads of the partition at the same scope.
    ///
    /// # Errors
    /// See [`CasError`].
    pub async fn cas<O: CasOperation>(
        &self,
        order: CasOrder,
        operation: &mut O,
    ) -> Result<CasOutcome, CasError> {
        let CasOrder { snapshot, read, rows_wanted, scope, commit, durable, deadline, trace } =
            order;
        let failing = Failing { scope, commit, is_write: true };
        self.inner.writes.inc();
        let rows = u32::try_from(rows_wanted).unwrap_or(u32::MAX).max(1);
        let limits = PageLimits { rows, bytes: PAGE_BYTES_MAX, ..PageLimits::default() };
        let command = read.clone();
        let parts = Parts { snapshot, command, limits, scope, commit, durable, deadline, trace };
        let mut driver = self.driver(parts, Kind::Write, &failing).await?;
        let (facts, rows, partition) = driver.facts();
        let mut refused = None;
        let outcome = driver
            .run(&mut |ballot, page| {
                operation.restart();
                let Some(stats) = show_all(&read, &facts.shape, &page, operation) else {
                    if rows.replace(u32::MAX) < u32::MAX {
                        // Some of the rows that were sent are deleted.
                        return Decision::ReadAgain;
                    }
                    let text = format!("the condition needs more than {PAGE_BYTES_MAX} bytes");
                    refused = Some(CasRefused(text));
                    return Decision::Abort;
                };
                operation.has_read(&stats);
                match operation.decide(ballot.timestamp()) {
                    Ok(Some(mutation)) if !is_sound(&facts.table, &partition, &mutation) => {
                        let text = "a conditional write changes its own partition only";
                        refused = Some(CasRefused(text.to_owned()));
                        Decision::Abort
                    }
                    Ok(Some(mutation)) => match self.env().refusal_of(&mutation) {
                        None => Decision::Value(Payload::from(mutation)),
                        // A value that acceptors agree on must be applicable.
                        Some(why) => {
                            refused = Some(CasRefused(why));
                            Decision::Abort
                        }
                    },
                    Ok(None) => Decision::NoOp,
                    Err(why) => {
                        refused = Some(why);
                        Decision::Abort
                    }
                }
            })
            .await;
        self.note_rounds(&driver);
        operation.contended(driver.rounds().1);
        let result = match outcome {
            Outcome::Applied => Ok(CasOutcome::Applied),
            Outcome::NotApplied | Outcome::Read => Ok(CasOutcome::NotApplied),
            Outcome::Failed(failure) => Err(match (refused, failure) {
                (Some(why), Failure { kind: FailureKind::Aborted, effect: Effect::None, .. }) => {
                    CasError::Refused(why)
                }
                (_, failure) => failing.error(failure, &driver),
            }),
        };
        if matches!(result, Err(CasError::Unknown { .. })) {
            self.inner.unknown.inc();
        }
        driver.finish_behind();
        result
    }

    /// A read of one partition at SERIAL or LOCAL_SERIAL: sees every conditional write that ended
    /// before it began. Rows beyond one page of 8 MiB are read by further serial reads.
    ///
    /// # Errors
    /// See [`CasError`]; never `Unknown`. `Refused`: it is a range. Rows may have been shown before
    /// an error.
    pub async fn read_serial<S: RowSink>(
        &self,
        command: &ReadCommand,
        order: &SerialRead,
        sink: &mut S,
    ) -> Result<ReadStats, CasError> {
        if !matches!(command.partitions, Partitions::Key(_)) {
            let text = "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a \
                        time";
            return Err(CasError::Refused(CasRefused(text.to_owned())));
        }
        let scope = order.scope;
        let failing = Failing { scope, commit: Consistency::Any, is_write: false };
        let before = resumed(command).map(|(key, rows)| (key.to_vec(), rows));
        let mut show = PageRows::new(command, before);
        let mut rest = command.clone();
        loop {
            let Page { facts, page } = self.read_page(&rest, order, &failing).await?;
            let Ok(page) = ReplicaPage::open(&page) else {
                stdx::invariant::broken(format_args!("a merged page does not open"))
            };
            let shown = match show.page(&facts.shape, page, sink) {
                Ok(shown) => shown,
                Err(error) => {
                    stdx::invariant::broken(format_args!("a page that was merged: {error}"))
                }
            };
            if shown != Shown::Next {
                return Ok(show.stats);
            }
            let end = page.end();
            match show.tell(&end, sink) {
                Look::Continue => {}
                Look::Stop => return Ok(show.stats),
                Look::Refuse => {
                    let scanned = show.stats.tombstones;
                    return Err(CasError::Store(StoreError::TombstoneFailure { scanned }));
                }
            }
            if !go_on(&mut rest, &end, show.rows_of(end.partition())) {
                show.finish(sink);
                return Ok(show.stats);
            }
        }
    }

    /// Reads one page by a round of its own.
    async fn read_page(
        &self,
        command: &ReadCommand,
        order: &SerialRead,
        failing: &Failing,
    ) -> Result<Page, CasError> {
        self.inner.reads.inc();
        let limits = PageLimits {
            rows: u32::try_from(order.rows_wanted).unwrap_or(u32::MAX).max(1),
            rows_per_partition: order.rows_per_partition.max(1),
            bytes: PAGE_BYTES_MAX,
            tombstones: u32::MAX,
        };
        let parts = Parts {
            snapshot: order.snapshot.clone(),
            command: command.clone(),
            limits,
            scope: order.scope,
            commit: failing.commit,
            durable: true,
            deadline: order.deadline,
            trace: order.trace.clone(),
        };
        let mut driver = self.driver(parts, Kind::Read, failing).await?;
        let (facts, ..) = driver.facts();
        let mut page = Vec::new();
        let outcome = driver
            .run(&mut |_, read| {
                page = read;
                Decision::NoOp
            })
            .await;
        self.note_rounds(&driver);
        self.inner.read_contentions.add(u64::from(driver.rounds().1));
        if let Outcome::Failed(failure) = outcome {
            return Err(failing.error(failure, &driver));
        }
        driver.finish_behind();
        Ok(Page { facts, page })
    }

    fn note_rounds(&self, driver: &Driver<N>) {
        let (rounds, contentions) = driver.rounds();
        self.inner.rounds.add(u64::from(rounds));
        self.inner.contentions.add(u64::from(contentions));
        let partition = driver.partition();
        let (table, key) = (partition.table, &partition.key);
        self.env().store.observer().note_contentions(table, key, u64::from(contentions));
    }

    /// Plans an operation and waits for its turn.
    async fn driver(
        &self,
        parts: Parts,
        kind: Kind,
        failing: &Failing,
    ) -> Result<Driver<N>, CasError> {
        let Parts { snapshot, command, limits, scope, commit, durable, deadline, trace } = parts;
        let Partitions::Key(key) = &command.partitions else {
            let text = "a conditional write is of one partition".to_owned();
            return Err(CasError::Refused(CasRefused(text)));
        };
        let partition = Partition { table: command.table, key: key.as_slice().into() };
        let unknown = || CasError::Store(StoreError::UnknownTable(command.table));
        let facts = self.env().facts(&snapshot, command.table).ok_or_else(unknown)?;
        let durable = if kind == Kind::Read { facts.durable } else { durable };
        let mut targets = Targets::default();
        let level = Level { scope, commit };
        let voters = voters(self.env(), &snapshot, &partition, level, &mut targets)?;
        let voters = voters.ok_or_else(unknown)?;
        let now = self.env().rt.now();
        let commit_time = self.cluster().map(|c| c.parts.settings.write_request_timeout);
        let commit_deadline = match kind {
            // A decided write is reported to its client, unless that takes longer than a write may.
            Kind::Write => deadline.max(now + commit_time.unwrap_or(COMMIT_TIME)),
            Kind::Read => deadline,
        };
        let wish = TurnWish {
            partition: partition.clone(),
            is_write: kind == Kind::Write,
            deadline,
            ends: commit_deadline,
        };
        let turn = match self.inner.queue.turn(wish).await {
            Ok(turn) => turn,
            Err(NoTurn::Late) => return Err(failing.timeout(0, voters.plan.quorum)),
            Err(NoTurn::Refused(text)) => return Err(CasError::Overloaded(text)),
            Err(NoTurn::Stopping) => return Err(CasError::Store(StoreError::Stopping)),
        };
        let job = Job {
            facts,
            snapshot,
            partition,
            command,
            limits,
            kind,
            scope,
            commit,
            durable,
            deadline,
            commit_deadline,
            trace,
        };
        Ok(Driver::new(self, job, voters, targets, turn))
    }
}

/// A page of a serial read, merged.
struct Page {
    facts: Rc<TableFacts>,
    page: Vec<u8>,
}

/// Parameters of an operation.
struct Parts {
    snapshot: Arc<ClusterSnapshot>,
    command: ReadCommand,
    limits: PageLimits,
    scope: Scope,
    commit: Consistency,
    durable: bool,
    deadline: Instant,
    trace: Option<Rc<RequestTrace>>,
}

/// Shows all of a merged page; `None` when the operation wants more than is in it.
fn show_all<S: RowSink>(
    command: &ReadCommand,
    shape: &data::TableShape,
    page: &[u8],
    sink: &mut S,
) -> Option<ReadStats> {
    let Ok(page) = ReplicaPage::open(page) else {
        stdx::invariant::broken(format_args!("a merged page does not open"))
    };
    let mut show = PageRows::new(command, None);
    let shown = match show.page(shape, page, sink) {
        Ok(shown) => shown,
        Err(error) => stdx::invariant::broken(format_args!("a page that was merged: {error}")),
    };
    if shown == Shown::Next {
        if matches!(page.end(), PageEnd::Inside { .. }) {
            return None;
        }
        show.finish(sink);
    }
    Some(show.stats)
}
