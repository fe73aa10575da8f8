//! The acceptors of this shard's partitions: loaded from their rows, stepped, synced, dropped when
//! idle.
//!
//! Invariants:
//! INV-serial-1: an acceptor's answer, unless it is a rejection, is sent only after the state that it
//! reveals is on the disk, whatever `commitlog_sync` says.
//! INV-serial-2: a commit's mutation is appended before its record and applied in the same turn.
//! INV-serial-3: the view that a prepare reads is taken in the turn in which it is promised.
//! INV-serial-4: a partition has one acceptor at a time.
//!
//! Promises without a record: INV-serial-7 ([`crate::promise_horizon`]).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use paxos::acceptor::{Admission, Input, Output, Record, Reply, ReplyTo, Request, Token};
use paxos::wire::Electorate;
use paxos::{Acceptor, AcceptorState, Ballot};
use rt::sync::oneshot;
use stdx::{Epoch, FixedMap, WallMicros};
use store::{ReplicaRead, StoreError};

use crate::SKEW_MAX;
use crate::ballot_floor::Floor;
use crate::paxos_row::{Cells, Partition, PaxosTable, Payload};
use crate::plan::{electorate, replicas_of};
use crate::promise_horizon::Horizon;
use crate::shards::{ShardReply, ShardRequest, Shards, mesh_error};
use replica::Env;
use replica::ReplicaQuery;
use replica::{Origin, ReplicaMutation};
use stdx::IoError;
use telemetry::Counter;

/// A request to an acceptor, for the shard that owns its partition.
#[derive(Clone, Debug)]
pub struct Ask {
    pub(crate) partition: Partition,
    pub(crate) request: Request<Payload>,
    /// The query of a prepare.
    pub(crate) query: Option<ReplicaQuery>,
    /// False: the keyspace has `durable_writes = false`.
    pub(crate) durable: bool,
    /// Writes up to then were emptied away, and must not come back.
    pub(crate) truncated_at: Option<WallMicros>,
    pub(crate) table: PaxosTable,
    /// Registers of another replica to merge in, instead of the request.
    pub(crate) adopted: Option<Box<AcceptorState<Payload>>>,
    /// The electorate that the check found to be the present one; checked again in the acceptor's
    /// turn (INV-serial-5). `None`: the request is carried out whatever its electorate.
    pub(crate) checked: Option<Box<Checked>>,
}

/// An electorate that was found to be the present one.
#[derive(Clone, Debug)]
pub struct Checked {
    pub(crate) epoch: Epoch,
    pub(crate) electorate: Electorate,
    pub(crate) is_local: bool,
}

impl Ask {
    /// Forgets what was chosen up to a ballot, as all replicas have it.
    pub(crate) fn prune(partition: Partition, ballot: Ballot, table: PaxosTable) -> Ask {
        Ask {
            partition,
            request: Request::Prune { ballot },
            query: None,
            durable: true,
            truncated_at: None,
            table,
            adopted: None,
            checked: None,
        }
    }

    /// Merges another replica's registers in.
    pub(crate) fn adopt(
        partition: Partition,
        state: AcceptorState<Payload>,
        durable: bool,
        truncated_at: Option<WallMicros>,
        table: PaxosTable,
    ) -> Ask {
        Ask {
            partition,
            request: Request::Prune { ballot: Ballot::ZERO },
            query: None,
            durable,
            truncated_at,
            table,
            adopted: Some(Box::new(state)),
            checked: None,
        }
    }
}

/// Answer of an acceptor; it is durable.
#[derive(Clone, Debug)]
pub struct Answered {
    /// `None` for a prune.
    pub(crate) reply: Option<Reply<Payload>>,
    /// The page that a prepare read.
    pub(crate) page: Option<Vec<u8>>,
    /// Nothing was done: the electorate is another one since this epoch.
    pub(crate) moved: Option<Epoch>,
}

struct Slot {
    /// Tells one acceptor of a partition from the next one.
    generation: u64,
    acceptor: Acceptor<Payload>,
    /// Waiting requests, by the answer that they wait for.
    waiting: FixedMap<u64, oneshot::Sender<Reply<Payload>>>,
    /// A prune that waits for records to become durable; no request waits for it.
    prune: Option<Token>,
    /// True if it was asked since the last check for eviction.
    used: bool,
}

enum Entry {
    /// Its row is being read; these wait for it.
    Loading(Vec<oneshot::Sender<()>>),
    Ready(Box<Slot>),
}

/// The acceptors of a shard.
pub(crate) struct Acceptors<N> {
    pub(crate) inner: Rc<Inner<N>>,
}

pub(crate) struct Inner<N> {
    pub(crate) node: N,
    pub(crate) registers: Registers,
    /// Ballot up to which rows of `system.paxos` may have been deleted.
    pub(crate) floor: Floor,
    pub(crate) horizon: Horizon,
    unlogged: Counter,
    assumed: Counter,
}

impl<N> Clone for Acceptors<N> {
    fn clone(&self) -> Acceptors<N> {
        Acceptors { inner: self.inner.clone() }
    }
}

/// Maximum number of acceptors in memory; twice as many when all are at work.
const ACCEPTORS_MAX: usize = 16_384;

/// A bound of acceptors.
pub(crate) struct Most(pub(crate) Cell<usize>);

impl Default for Most {
    fn default() -> Most {
        Most(Cell::new(ACCEPTORS_MAX))
    }
}

/// Acceptors in memory.
#[derive(Default)]
pub(crate) struct Registers {
    entries: RefCell<FixedMap<Partition, Entry>>,
    /// All partitions, in the order of the next checks for eviction.
    order: RefCell<VecDeque<Partition>>,
    last_id: Cell<u64>,
    /// A record failed to reach the disk: the state in rows may be missing on the disk.
    is_unsure: Cell<bool>,
    /// The table of the latest request.
    table: Cell<Option<PaxosTable>>,
    /// Maximum number of acceptors in memory; twice as many when all are at work.
    pub(crate) most: Most,
    /// Answers do not wait for the sync: a defect.
    #[cfg(feature = "testing")]
    pub(crate) lies: Cell<bool>,
}

type View = Pin<Box<dyn Future<Output = Result<ReplicaRead, StoreError>>>>;

/// A read begun in its prepare's turn.
enum Reading {
    No,
    Done(Result<ReplicaRead, StoreError>),
    Going(View),
}

/// Work that a request's turn leaves to do.
struct Turn {
    generation: u64,
    /// A record that its answer waits for.
    token: Option<Token>,
    reading: Reading,
}

enum Found {
    Ready,
    Loading(oneshot::Receiver<()>),
    Nothing,
}

impl Registers {
    fn find(&self, partition: &Partition) -> Found {
        match self.entries.borrow_mut().get_mut(partition) {
            Some(Entry::Ready(_)) => Found::Ready,
            Some(Entry::Loading(waiting)) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Found::Loading(receiver)
            }
            None => Found::Nothing,
        }
    }

    fn next_id(&self) -> u64 {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        id
    }

    fn remove(&self, partition: &Partition) -> Option<Entry> {
        self.order.borrow_mut().retain(|p| p != partition);
        self.entries.borrow_mut().remove(partition)
    }

    /// Returns the partitions whose promises have no records.
    pub(crate) fn with_unwritten(&self) -> Vec<Partition> {
        let entries = self.entries.borrow();
        let unwritten = entries.iter().filter(|(_, entry)| match entry {
            Entry::Ready(slot) => slot.acceptor.has_unwritten(),
            Entry::Loading(_) => false,
        });
        unwritten.map(|(partition, _)| partition.clone()).collect()
    }

    /// Promises of a partition without records, if there are any.
    pub(crate) fn unwritten_of(
        &self,
        partition: &Partition,
    ) -> Option<(PaxosTable, Vec<Record<Payload>>)> {
        let entries = self.entries.borrow();
        let Some(Entry::Ready(slot)) = entries.get(partition) else { return None };
        if !slot.acceptor.has_unwritten() {
            return None;
        }
        Some((self.table.get()?, slot.acceptor.unwritten().collect()))
    }

    /// Notes that the promises of a partition have been appended.
    pub(crate) fn are_written(&self, partition: &Partition) {
        if let Some(Entry::Ready(slot)) = self.entries.borrow_mut().get_mut(partition) {
            slot.acceptor.written();
        }
    }

    /// Acceptors in memory have promised this too.
    pub(crate) fn promised_to_all(&self, ballot: Ballot) {
        for entry in self.entries.borrow_mut().values_mut() {
            if let Entry::Ready(slot) = entry {
                slot.acceptor.promised_to_all(ballot);
            }
        }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn len(&self) -> usize {
        self.entries.borrow().len()
    }
}

impl<N: Shards> Acceptors<N> {
    pub(crate) fn new(node: N) -> Acceptors<N> {
        let telemetry = node.env().rt.telemetry();
        let counter = |name, help| telemetry.counter(name, help, &[]);
        let inner = Inner {
            registers: Registers::default(),
            floor: Floor::default(),
            horizon: Horizon::default(),
            unlogged: counter(
                "replica_paxos_prepares_unlogged_total",
                "prepares that acceptors granted without a record of their own",
            ),
            assumed: counter(
                "replica_paxos_promises_assumed_total",
                "partitions of which a promise is taken for given, because a crash may have forgotten one",
            ),
            node,
        };
        Acceptors { inner: Rc::new(inner) }
    }

    pub(crate) fn env(&self) -> &Env {
        self.inner.node.env()
    }

    #[cfg(feature = "testing")]
    pub(crate) fn registers(&self) -> &Registers {
        &self.inner.registers
    }

    #[cfg(feature = "testing")]
    pub(crate) fn horizon(&self) -> &Horizon {
        &self.inner.horizon
    }

    /// Returns the ballot floor: up to there rows of `system.paxos` may have been deleted.
    pub(crate) fn floor(&self) -> &Floor {
        &self.inner.floor
    }

    /// Has this shard's acceptors refuse what rows of `system.paxos` that are deleted, in this run or an
    /// earlier one, would have refused, and remember what was promised without a record.
    pub(crate) async fn load_checkpoints(&self, work_dir: &str) -> Result<(), IoError> {
        self.inner.floor.load(&self.env().rt, work_dir).await?;
        self.inner.horizon.load(&self.env().rt, work_dir).await
    }

    /// Asks the acceptor of a partition, on whichever shard of this node it is. Goes on when it is
    /// dropped.
    pub(crate) fn ask(
        &self,
        ask: Ask,
    ) -> impl Future<Output = Result<Answered, StoreError>> + use<N> {
        let (sender, receiver) = oneshot::channel();
        let this = self.clone();
        self.env().spawn_or_drop("paxos", async move {
            let _ = sender.send(this.ask_to_its_end(ask).await);
        });
        async move { receiver.await.unwrap_or(Err(StoreError::Stopping)) }
    }

    /// Like [`Lwt::ask`]; must not be dropped before it is done.
    pub(crate) async fn ask_to_its_end(&self, ask: Ask) -> Result<Answered, StoreError> {
        let owner = ask.partition.owner(self.env().shard_map());
        if owner == self.env().rt.shard() {
            return self.ask_here(ask).await;
        }
        let request = ShardRequest::Acceptor(Box::new(ask));
        match self.inner.node.lwt(owner, request).await {
            Ok(ShardReply::Acceptor(answer)) => answer,
            Ok(other) => stdx::invariant::broken(format_args!("acceptor answered by {other:?}")),
            Err(error) => Err(mesh_error(error)),
        }
    }

    /// Like [`Lwt::ask`], on the shard that owns the partition. Must not be dropped before it
    /// is done.
    pub(crate) async fn ask_here(&self, ask: Ask) -> Result<Answered, StoreError> {
        let store = &self.env().store;
        if let Err(StoreError::Overloaded { .. }) = store.writer().admit_write() {
            store.writer().wait_for_room().await?;
        }
        store.writer().admit_write()?;
        let acceptors = &self.inner.registers;
        let id = acceptors.next_id();
        let (sender, receiver) = oneshot::channel();
        let wants_reply = ask.adopted.is_some() || !matches!(ask.request, Request::Prune { .. });
        let turn = loop {
            match acceptors.find(&ask.partition) {
                // Nothing suspends from here to the end of the turn.
                Found::Ready => {
                    if let Some(epoch) = self.moved_since(&ask) {
                        return Ok(Answered { reply: None, page: None, moved: Some(epoch) });
                    }
                    break self.take_turn(&ask, id, wants_reply.then_some(sender))?;
                }
                Found::Loading(loaded) => {
                    let _ = loaded.await;
                }
                Found::Nothing => self.load(&ask).await?,
            }
        };
        let Turn { generation, token, reading } = turn;
        if let Some(token) = token {
            match self.sync_record().await {
                Ok(()) => self.report(&ask, generation, Input::Persisted(token)),
                Err(error) => {
                    self.fail(&ask.partition, generation);
                    return Err(error);
                }
            }
        }
        let reply = match wants_reply {
            // Its acceptor failed with another request's record.
            true => Some(receiver.await.map_err(|_| StoreError::Stopping)?),
            false => None,
        };
        let page = match reading {
            Reading::No => None,
            Reading::Done(read) => Some(read?.page),
            Reading::Going(view) => Some(view.await?.page),
        };
        Ok(Answered { reply, page, moved: None })
    }

    /// Returns the current epoch if the electorate differs from the one that was checked.
    fn moved_since(&self, ask: &Ask) -> Option<Epoch> {
        let checked = ask.checked.as_deref()?;
        let snapshot = self.env().cluster()?.snapshot();
        if snapshot.epoch == checked.epoch {
            return None;
        }
        let replicas = replicas_of(self.env(), &snapshot, &ask.partition);
        let is_same = replicas.is_some_and(|(list, _)| {
            electorate(&list, checked.is_local).is_same(&checked.electorate)
        });
        (!is_same).then_some(snapshot.epoch)
    }

    async fn sync_record(&self) -> Result<(), StoreError> {
        #[cfg(feature = "testing")]
        if self.inner.registers.lies.get() {
            return Ok(());
        }
        self.env().store.sync().await
    }

    /// Makes room for one more, looking at a few.
    fn room_for_one(&self) -> Result<(), StoreError> {
        let acceptors = &self.inner.registers;
        for _ in 0..64 {
            if acceptors.entries.borrow().len() < acceptors.most.0.get() {
                return Ok(());
            }
            let Some(partition) = acceptors.order.borrow_mut().pop_front() else { break };
            let can_go = match acceptors.entries.borrow_mut().get_mut(&partition) {
                Some(Entry::Ready(slot)) => {
                    let used = std::mem::replace(&mut slot.used, false);
                    !used && slot.acceptor.is_idle()
                }
                _ => false,
            };
            if can_go && self.write_promises_of(&partition).is_ok() {
                acceptors.entries.borrow_mut().remove(&partition);
            } else {
                acceptors.order.borrow_mut().push_back(partition);
            }
        }
        if acceptors.entries.borrow().len() < acceptors.most.0.get().saturating_mul(2) {
            return Ok(());
        }
        Err(StoreError::QueueFull)
    }

    /// Loads the acceptor from its row. Other requests wait for it meanwhile.
    async fn load(&self, ask: &Ask) -> Result<(), StoreError> {
        let acceptors = &self.inner.registers;
        acceptors.table.set(Some(ask.table));
        self.room_for_one()?;
        acceptors.entries.borrow_mut().insert(ask.partition.clone(), Entry::Loading(Vec::new()));
        acceptors.order.borrow_mut().push_back(ask.partition.clone());
        let state = self.read_registers(ask).await;
        let before = match state {
            Ok(state) => {
                let assumed = self.inner.horizon.forgotten();
                self.inner.assumed.add(u64::from(assumed.is_newer_than(state.promised)));
                let state = state.promised_to_all(assumed);
                let slot = Slot {
                    generation: acceptors.next_id(),
                    acceptor: Acceptor::new(state),
                    waiting: FixedMap::default(),
                    prune: None,
                    used: true,
                };
                let entry = Entry::Ready(Box::new(slot));
                acceptors.entries.borrow_mut().insert(ask.partition.clone(), entry)
            }
            Err(error) => {
                // Waiting requests retry the load themselves.
                drop(acceptors.remove(&ask.partition));
                return Err(error);
            }
        };
        stdx::invariant!(
            matches!(before, Some(Entry::Loading(_))),
            "INV-serial-4: a partition got another acceptor while its row was read"
        );
        // Wakes the waiting requests.
        drop(before);
        Ok(())
    }

    async fn read_registers(&self, ask: &Ask) -> Result<AcceptorState<Payload>, StoreError> {
        let store = &self.env().store;
        let mut cells = Cells::new(&ask.table, &ask.partition);
        let command = ask.table.read(&ask.partition, self.env().rt.wall().seconds());
        store.read(&command, &mut cells).await?;
        let acceptors = &self.inner.registers;
        if acceptors.is_unsure.get() {
            store.sync().await?;
            acceptors.is_unsure.set(false);
        }
        // Not disk corruption, but for example values written by Cassandra: the partition takes
        // part in no round.
        AcceptorState::from_row(|column| cells.get(column))
            .map_err(|error| StoreError::Invalid(error.to_string()))
    }

    /// Steps the acceptor, appends its records, begins its read.
    fn take_turn(
        &self,
        ask: &Ask,
        id: u64,
        sender: Option<oneshot::Sender<Reply<Payload>>>,
    ) -> Result<Turn, StoreError> {
        let skew_max_micros = u64::try_from(SKEW_MAX.as_micros()).unwrap_or(u64::MAX);
        let now = self.env().rt.wall();
        if matches!(ask.request, Request::Prepare { .. }) {
            self.note_promise(now);
        }
        let horizon = self.inner.horizon.until();
        let admission =
            Admission { now, skew_max_micros, floor: self.inner.floor.at(now), horizon };
        let acceptors = &self.inner.registers;
        let mut out = Vec::new();
        let (generation, was_idle) = {
            let mut entries = acceptors.entries.borrow_mut();
            let Some(Entry::Ready(slot)) = entries.get_mut(&ask.partition) else {
                return Err(StoreError::Stopping);
            };
            slot.used = true;
            let was_idle = slot.acceptor.is_idle();
            if let Some(sender) = sender {
                slot.waiting.insert(id, sender);
            }
            let (to, request) = (ReplyTo(id), ask.request.clone());
            let input = match &ask.adopted {
                Some(state) => Input::Adopt { to, state: (**state).clone() },
                None => Input::Request { to, request },
            };
            slot.acceptor.step(admission, input, &mut out);
            (slot.generation, was_idle)
        };
        if let [Output::TakeReadView { .. }, ..] = out.as_slice() {
            self.inner.unlogged.inc();
        }
        let mut turn = Turn { generation, token: None, reading: Reading::No };
        for output in out {
            match output {
                Output::Persist { token, record, sync } => {
                    if let Err(error) = self.append(ask, &record, now, sync) {
                        self.fail(&ask.partition, generation);
                        return Err(error);
                    }
                    if sync {
                        turn.token = Some(token);
                    } else if was_idle {
                        // A prune: losing it costs a few bytes.
                        self.report(ask, generation, Input::Persisted(token));
                    } else {
                        self.prune_later(&ask.partition, token);
                    }
                }
                Output::TakeReadView { .. } => {
                    let Some(query) = ask.query.clone() else { continue };
                    let this = self.clone();
                    let mut view: View =
                        Box::pin(async move { this.env().replica.read(&query, None).await });
                    let mut context = Context::from_waker(Waker::noop());
                    turn.reading = match view.as_mut().poll(&mut context) {
                        Poll::Ready(read) => Reading::Done(read),
                        Poll::Pending => Reading::Going(view),
                    };
                }
                Output::Reply { to, reply } => self.deliver(&ask.partition, to, reply),
            }
        }
        Ok(turn)
    }

    /// Appends a record; of a commit its mutation first. What no answer waits for is not logged: when a
    /// prune is lost in a crash the row keeps a few bytes more.
    fn append(
        &self,
        ask: &Ask,
        record: &Record<Payload>,
        now: WallMicros,
        is_logged: bool,
    ) -> Result<(), StoreError> {
        if let Record::Commit(commit) = record
            && let Some(mutation) = &commit.value
        {
            let written = commit.origin.timestamp().0;
            if ask.truncated_at.is_none_or(|at| written > at.0) {
                let token = ask.partition.token();
                let bytes: &[u8] = mutation;
                let mutation = ReplicaMutation { token, bytes, durable: ask.durable };
                self.env().replica.admit_and_apply(&mutation, Origin::Paxos)?;
            }
        }
        let bytes = ask.table.mutation(&ask.partition, &record.to_update(), now.seconds());
        let row = ReplicaMutation { token: ask.partition.token(), bytes, durable: is_logged };
        self.env().replica.admit_and_apply(&row, Origin::Paxos)
    }

    fn prune_later(&self, partition: &Partition, token: Token) {
        let mut entries = self.inner.registers.entries.borrow_mut();
        if let Some(Entry::Ready(slot)) = entries.get_mut(partition) {
            slot.prune = Some(token);
        }
    }

    fn deliver(&self, partition: &Partition, to: ReplyTo, reply: Reply<Payload>) {
        let waiting = match self.inner.registers.entries.borrow_mut().get_mut(partition) {
            Some(Entry::Ready(slot)) => slot.waiting.remove(&to.0),
            _ => None,
        };
        if let Some(sender) = waiting {
            let _ = sender.send(reply);
        }
    }

    /// Tells the acceptor what became of a record, if it is still the same one.
    fn report(&self, ask: &Ask, generation: u64, input: Input<Payload>) {
        let now = self.env().rt.wall();
        let (floor, horizon) = (Ballot::ZERO, Ballot::ZERO);
        let admission = Admission { now, skew_max_micros: 0, floor, horizon };
        let mut out = Vec::new();
        {
            let mut entries = self.inner.registers.entries.borrow_mut();
            match entries.get_mut(&ask.partition) {
                Some(Entry::Ready(slot)) if slot.generation == generation => {
                    slot.acceptor.step(admission, input, &mut out);
                    if slot.waiting.len() <= out.len()
                        && let Some(token) = slot.prune.take()
                    {
                        slot.acceptor.step(admission, Input::Persisted(token), &mut out);
                    }
                }
                _ => return,
            }
        }
        for output in out {
            if let Output::Reply { to, reply } = output {
                self.deliver(&ask.partition, to, reply);
            }
        }
    }

    /// Returns true if a partition's acceptor is being loaded, has answers that wait for the disk,
    /// or has promised a ballot newer than `floor`.
    pub(crate) fn has_acceptor_at_work(&self, partition: &Partition, floor: Ballot) -> bool {
        match self.inner.registers.entries.borrow().get(partition) {
            None => false,
            Some(Entry::Loading(_)) => true,
            Some(Entry::Ready(slot)) => {
                let is_busy = !slot.acceptor.is_idle() || !slot.waiting.is_empty();
                is_busy || slot.acceptor.state().promised.is_newer_than(floor)
            }
        }
    }

    /// Evicts an acceptor. The caller has checked that it is not at work and that the floor covers
    /// its promises.
    pub(crate) fn forget_acceptor(&self, partition: &Partition) {
        drop(self.inner.registers.remove(partition));
    }

    /// A record could not be made durable: this acceptor sends no answer any more, and the next one
    /// is loaded from the row.
    #[cold]
    fn fail(&self, partition: &Partition, generation: u64) {
        let acceptors = &self.inner.registers;
        acceptors.is_unsure.set(true);
        let is_same = matches!(
            acceptors.entries.borrow().get(partition),
            Some(Entry::Ready(slot)) if slot.generation == generation
        );
        if is_same
            && let Some(Entry::Ready(slot)) = acceptors.remove(partition)
            && slot.acceptor.has_unwritten()
        {
            // Appending what it has promised may fail as well. This cannot.
            self.inner.horizon.forget(slot.acceptor.state().promised);
        }
    }
}
