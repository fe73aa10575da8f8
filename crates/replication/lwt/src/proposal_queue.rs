//! Turns to propose for a partition: one queue on the shard of this node that owns it.
//!
//! Every coordinating node has its own queue. Two nodes that propose at once only cost each other
//! extra rounds. A turn of another shard ends by a message. If the message is lost (its mesh was
//! full), the turn ends when its time expires.
//!
//! A refusal is decided at arrival, but when many are refused their answers are delayed. Clients that
//! retry the moment they are refused would take the CPU that the queue needs to move: turns would
//! become longer, and more requests would be refused. So each of them waits for a part of the time it
//! has left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use paxos::PartitionQueues;
use paxos::proposer::Kind;
use paxos::queue::{Arrival, Left, OperationId, QueueOptions, Turn as Next};
use rt::sync::oneshot;
use stdx::{FixedMap, Instant, ShardId};

use crate::TURN_FIRST;
use crate::paxos_row::Partition;
use crate::shards::{ShardReply, ShardRequest, Shards};
use replica::Env;

/// Maximum number of delayed refusals; further ones are answered at once.
const HELD_MAX: usize = 4096;
/// A refusal is answered at once if the previous one is at least this old.
const REFUSALS_APART: Duration = Duration::from_millis(100);

/// A wish for a turn, for the shard that owns the partition.
#[derive(Clone, Debug)]
pub struct TurnWish {
    pub(crate) partition: Partition,
    pub(crate) is_write: bool,
    pub(crate) deadline: Instant,
    /// Time at which the turn expires.
    pub(crate) ends: Instant,
}

/// Why there is no turn.
#[derive(Clone, Debug)]
pub enum NoTurn {
    /// The turn did not come before the deadline.
    Late,
    /// There would be none in time, or too many wait; the text is for the client.
    Refused(String),
    /// The node stops.
    Stopping,
}

/// The queues of a shard.
pub(crate) struct Turns {
    queues: RefCell<PartitionQueues<Partition>>,
    waiting: RefCell<FixedMap<u64, oneshot::Sender<()>>>,
    /// Running ones of other shards, and when they end by themselves.
    leases: RefCell<FixedMap<u64, (Partition, Instant)>>,
    last_id: Cell<u64>,
    /// Number of delayed refusals.
    held: Cell<usize>,
    /// The last refusal.
    refused: Cell<Option<Instant>>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            queues: RefCell::new(PartitionQueues::new(QueueOptions {
                waiting_max_per_partition: 1024,
                waiting_max: 16_384,
                readers_max: 64,
                turn_first: TURN_FIRST,
            })),
            waiting: RefCell::default(),
            leases: RefCell::default(),
            last_id: Cell::new(0),
            held: Cell::new(0),
            refused: Cell::new(None),
        }
    }
}

/// A delayed refusal.
struct Held<'a>(&'a Turns);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.set(self.0.held.get().saturating_sub(1));
    }
}

/// The queue of proposals of a shard.
pub(crate) struct ProposalQueue<N> {
    inner: Rc<Inner<N>>,
}

struct Inner<N> {
    node: N,
    turns: Turns,
}

impl<N> Clone for ProposalQueue<N> {
    fn clone(&self) -> ProposalQueue<N> {
        ProposalQueue { inner: self.inner.clone() }
    }
}

/// A turn; it ends when this is dropped.
pub(crate) struct Turn<N: Shards> {
    queue: ProposalQueue<N>,
    partition: Partition,
    owner: ShardId,
    id: u64,
    left: Left,
}

impl<N: Shards> Turn<N> {
    /// Ends the turn; `left` is its outcome.
    pub(crate) fn end(mut self, left: Left) {
        self.left = left;
    }
}

impl<N: Shards> Drop for Turn<N> {
    fn drop(&mut self) {
        let queue = &self.queue;
        if self.owner == queue.env().rt.shard() {
            return queue.end_turn(&self.partition, self.id, self.left);
        }
        let end = ShardRequest::TurnEnd(Box::new(self.partition.clone()), self.id, self.left);
        let call = queue.inner.node.lwt(self.owner, end);
        // The message is sent; the answer is not needed.
        drop(call);
    }
}

/// Gives a place in the queue back when its operation is dropped while it waits.
struct Place<'a, N: Shards> {
    queue: &'a ProposalQueue<N>,
    partition: &'a Partition,
    id: u64,
    is_kept: bool,
}

impl<N: Shards> Drop for Place<'_, N> {
    fn drop(&mut self) {
        if !self.is_kept {
            let now = self.queue.env().rt.now();
            let turns = &self.queue.inner.turns;
            turns.waiting.borrow_mut().remove(&self.id);
            let id = OperationId(self.id);
            let next = turns.queues.borrow_mut().cancel(now, self.partition, id);
            turns.go_on(&next);
        }
    }
}

impl Turns {
    fn go_on(&self, next: &Next) {
        for id in &next.late {
            // The dropped sender notifies the caller.
            drop(self.waiting.borrow_mut().remove(&id.0));
        }
        for id in &next.start {
            let sender = self.waiting.borrow_mut().remove(&id.0);
            if let Some(sender) = sender {
                let _ = sender.send(());
            }
        }
    }

    /// Ends turns of other shards whose end was lost.
    fn end_leases(&self, now: Instant) {
        let over: Vec<(u64, Partition)> = {
            let leases = self.leases.borrow();
            let over = leases.iter().filter(|(_, (_, ends))| *ends <= now);
            over.map(|(id, (partition, _))| (*id, partition.clone())).collect()
        };
        for (id, partition) in over {
            self.leases.borrow_mut().remove(&id);
            let next = self.queues.borrow_mut().cancel(now, &partition, OperationId(id));
            self.go_on(&next);
        }
    }
}

impl<N: Shards> ProposalQueue<N> {
    pub(crate) fn new(node: N) -> ProposalQueue<N> {
        ProposalQueue { inner: Rc::new(Inner { node, turns: Turns::default() }) }
    }

    fn env(&self) -> &Env {
        self.inner.node.env()
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self, wish: TurnWish) -> Result<Turn<N>, NoTurn> {
        let deadline = wish.deadline;
        let turn = self.ask_turn(wish).await;
        if matches!(turn, Err(NoTurn::Refused(_))) {
            self.hold_refusal(deadline).await;
        }
        turn
    }

    /// Waits for a quarter to three quarters of the time that is left, so that clients that were
    /// refused together do not retry together.
    async fn hold_refusal(&self, deadline: Instant) {
        let (rt, turns) = (&self.env().rt, &self.inner.turns);
        let now = rt.now();
        let last = turns.refused.replace(Some(now));
        let is_lone = last.is_none_or(|last| now.since(last) >= REFUSALS_APART);
        if is_lone || turns.held.get() >= HELD_MAX {
            return;
        }
        turns.held.set(turns.held.get() + 1);
        let held = Held(turns);
        let left = u64::try_from(deadline.since(now).as_nanos()).unwrap_or(u64::MAX);
        let pause = left / 4 + rt.random_u64() % (left / 2).max(1);
        rt.sleep(Duration::from_nanos(pause)).await;
        drop(held);
    }

    async fn ask_turn(&self, wish: TurnWish) -> Result<Turn<N>, NoTurn> {
        let owner = wish.partition.owner(self.env().shard_map());
        let (queue, partition) = (self.clone(), wish.partition.clone());
        let turn = move |id| Turn { queue, partition, owner, id, left: Left::Unsettled };
        if owner == self.env().rt.shard() {
            return self.turn_here(&wish).await.map(turn);
        }
        let request = ShardRequest::Turn(Box::new(wish));
        let call = self.inner.node.lwt(owner, request);
        let (sender, receiver) = oneshot::channel();
        // A turn whose caller is gone is given back.
        self.env().spawn_or_drop("paxos-turn", async move {
            let result = match call.await {
                Ok(ShardReply::Turn(id)) => id.map(turn),
                Ok(other) => stdx::invariant::broken(format_args!("turn answered by {other:?}")),
                Err(rt::MeshError::Full) => {
                    Err(NoTurn::Refused("the owning shard's queue is full".to_owned()))
                }
                Err(rt::MeshError::Closed) => Err(NoTurn::Stopping),
            };
            drop(sender.send(result));
        });
        receiver.await.unwrap_or(Err(NoTurn::Stopping))
    }

    /// A turn for another shard.
    pub(crate) async fn lease_turn(&self, wish: TurnWish) -> Result<u64, NoTurn> {
        let id = self.turn_here(&wish).await?;
        let lease = (wish.partition, wish.ends);
        self.inner.turns.leases.borrow_mut().insert(id, lease);
        Ok(id)
    }

    async fn turn_here(&self, wish: &TurnWish) -> Result<u64, NoTurn> {
        let turns = &self.inner.turns;
        let now = self.env().rt.now();
        turns.end_leases(now);
        let id = turns.last_id.get() + 1;
        turns.last_id.set(id);
        let kind = if wish.is_write { Kind::Write } else { Kind::Read };
        let (partition, operation) = (&wish.partition, OperationId(id));
        let arrival = {
            let mut queues = turns.queues.borrow_mut();
            queues.arrive(now, partition, operation, kind, wish.deadline)
        };
        match arrival {
            Arrival::Run => return Ok(id),
            Arrival::Refuse(why) => return Err(NoTurn::Refused(why.to_string())),
            Arrival::Wait { .. } => {}
        }
        let (sender, receiver) = oneshot::channel();
        turns.waiting.borrow_mut().insert(id, sender);
        let mut place = Place { queue: self, partition, id, is_kept: false };
        match self.env().rt.timeout(wish.deadline, receiver).await {
            Ok(Ok(())) => {
                place.is_kept = true;
                Ok(id)
            }
            Ok(Err(_)) if self.env().rt.now() < wish.deadline => {
                Err(NoTurn::Refused("operations before it took longer than usual".to_owned()))
            }
            Ok(Err(_)) | Err(_) => Err(NoTurn::Late),
        }
    }

    pub(crate) fn end_turn(&self, partition: &Partition, id: u64, left: Left) {
        let turns = &self.inner.turns;
        turns.leases.borrow_mut().remove(&id);
        let now = self.env().rt.now();
        let next = turns.queues.borrow_mut().finished(now, partition, OperationId(id), left);
        turns.go_on(&next);
    }
}
