//! Members that go: `decommission` of this node, `removenode` and `assassinate` of dead ones.
//!
//! Who carries it out orders every node that will own more to copy it (verb `TakeOver`, asked again
//! until the copy is done), between the two steps of the movement. The steps: `cluster::topology`.
//!
//! Order payload: the host that goes (16 bytes), the epoch at which it began to (u64); or, of a keyspace
//! that gets other replicas (`inheriting`), a host of zeros, the epoch, and its name. Answer: 0 the
//! copy runs, 1 it is done, then how far it is (`giving_up`); an error: it failed and begins anew with the next order.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use cluster::ranges::Movement;
use cluster::{
    ClusterSnapshot, MemberState, PlacementKey, Transformation, choose_voters, movements,
};
use codec::{DecodeError, Reader, Writer};
use hints::PendingHints;
use internode::{ErrorReply, Verb};
use membership::SubmitError;
use messaging::{MessagingError, Outgoing, Request, Responder};
use rt::Group;
use stdx::{Epoch, HostId, ShardId, Uuid};
use streaming::{FetchProgress, MayLack, StreamError};

use super::giving_up::{Copies, CopyProgress, Rebuilding, Taken, put_taken, read_taken};
use super::member::ClusterShard;
use super::movement::REGISTERS;
use super::received::{Received, name_for};

/// How long one answer to an order is waited for, and the pause before it is asked again.
const ANSWER: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long a node that is to copy may be silent before the movement is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// How often a copy is tried before it counts as failed.
const ATTEMPTS: usize = 3;
/// Members that a leaver offers its hints to, one after the other.
const HINT_TAKERS: usize = 3;
/// Pause before a node that was ended while it handed over tries once more to leave.
const GO_ON: Duration = Duration::from_secs(10);
/// Why a handover is not given up.
pub(super) const TOO_LATE: &str = "all data is copied and others are read from already: too late; the same order \
    once more ends it";
/// Patience with the voters at each step.
const SUBMIT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, String>;

/// Hints, for whom they are and how many bytes, for an operator.
fn hints_text(hints: &[PendingHints]) -> String {
    let each = hints.iter().map(|h| format!("{} bytes for node {}", h.bytes, h.host));
    format!("hints ({})", each.collect::<Vec<_>>().join(", "))
}

/// Whether others are read from already.
fn is_handing_over(state: MemberState) -> bool {
    matches!(state, MemberState::LeaveHandover | MemberState::MoveHandover)
}

/// What moves when `mover` goes.
fn movements_of(snapshot: &ClusterSnapshot, mover: HostId, key: &PlacementKey) -> Vec<Movement> {
    let before = key.placements_among(&cluster::topology::unmoved(snapshot));
    let after = key.placements_among(&cluster::topology::finished(snapshot, mover));
    movements(&before, &after)
}

/// What a decommission may lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Nothing.
    Nothing,
    /// Hints that nobody takes.
    LoseHints,
}

/// Why a copy is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A member goes, or moves.
    Member(HostId),
    /// A keyspace gets other replicas.
    Keyspace(String),
}

impl What {
    pub(super) fn key(&self) -> String {
        match self {
            What::Member(host) => host.to_string(),
            What::Keyspace(name) => format!("keyspace {name}"),
        }
    }
}

/// An order to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Why.
    pub(crate) what: What,
    /// Since when that is so.
    pub(crate) epoch: Epoch,
}

/// What a copy has come to.
#[derive(Clone)]
pub(super) enum Job {
    Running,
    Done,
    Failed(String),
}

/// Copies for others, and the removal that this node carries out.
#[derive(Default)]
pub(crate) struct Orders {
    /// By who goes, or which keyspace, and since which epoch; the newest of each.
    jobs: RefCell<BTreeMap<String, (Epoch, Job)>>,
    /// The node that goes and who has not copied yet.
    pub(super) removal: RefCell<Option<(HostId, BTreeSet<HostId>)>>,
    /// The copies are not waited for.
    forced: Cell<bool>,
    /// The movement is to be given up.
    aborted: Cell<bool>,
    /// All is copied, and the movement cannot be given up any more.
    decided: Cell<bool>,
    /// At which epoch the state of the node that goes has changed last.
    changed_at: Cell<Epoch>,
    /// This node copies what it owns.
    pub(super) rebuilding: Rebuilding,
    /// How far copies are.
    pub(crate) copies: Copies,
    /// This node was leaving, and the others have decided that it is out.
    pub(super) put_out: Cell<bool>,
    /// The decommission goes on when hints cannot be handed over.
    pub(super) loses_hints: Cell<bool>,
    /// What was lost by that, in words for the operator.
    pub(crate) lost_hints: RefCell<Option<String>>,
    /// The last decommission of this node in this run has failed.
    pub(super) decommission_failed: Cell<bool>,
}

impl Orders {
    /// The removal in progress: who goes, and who still copies.
    pub(crate) fn removal(&self) -> Option<(HostId, Vec<HostId>)> {
        let removal = self.removal.borrow();
        removal.as_ref().map(|(host, waiting)| (*host, waiting.iter().copied().collect()))
    }
}

/// The right to move `host`, one at a time; given back when it is dropped.
pub(super) struct Turn(Rc<Orders>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Orders {
    /// Begins a movement of `host`, before anything is asked of the others: a second order of the same
    /// would take back what the first has begun.
    ///
    /// # Errors
    /// One is in progress.
    pub(super) fn begin(self: &Rc<Self>, host: HostId) -> Result<Turn> {
        let mut removal = self.removal.borrow_mut();
        if removal.is_some() {
            return Err("a node is leaving or moving already; wait until that is done".to_owned());
        }
        *removal = Some((host, BTreeSet::new()));
        Ok(Turn(self.clone()))
    }

    /// Notes what becomes of the node that goes.
    pub(super) fn note(&self, before: &ClusterSnapshot, after: &ClusterSnapshot) {
        let Some((host, _)) = &*self.removal.borrow() else { return };
        let state = |of: &ClusterSnapshot| of.members.get(host).map(|member| member.state);
        if state(before) != state(after) {
            self.changed_at.set(after.epoch);
        }
    }

    /// The movement that this node carries out is over.
    fn end(&self) {
        *self.removal.borrow_mut() = None;
        self.changed_at.set(Epoch(0));
        self.forced.set(false);
        self.aborted.set(false);
        self.decided.set(false);
        self.loses_hints.set(false);
        self.copies.forget_others();
    }

    /// All is copied: from here on the movement is not given up.
    ///
    /// # Errors
    /// It is to be given up.
    pub(super) fn decide(&self) -> Result<()> {
        if self.aborted.get() {
            return Err("it was given up by an operator".to_owned());
        }
        self.decided.set(true);
        Ok(())
    }

    /// Has a movement of `host` that this node carries out be given up, while its copies are made.
    ///
    /// # Errors
    /// There is none, or all is copied.
    pub(crate) fn abort(&self, host: HostId) -> Result<()> {
        match &*self.removal.borrow() {
            Some((mover, _)) if *mover == host && self.decided.get() => {
                Err("all data is copied and the change is being decided: too late".to_owned())
            }
            Some((mover, _)) if *mover == host => {
                self.aborted.set(true);
                Ok(())
            }
            _ => Err("there is nothing in progress that could be given up".to_owned()),
        }
    }
}

/// Payload of an order.
pub(crate) fn put_order(order: &Order, out: &mut Vec<u8>) {
    let host = match &order.what {
        What::Member(host) => host.0,
        What::Keyspace(_) => Uuid::nil(),
    };
    out.put_bytes(host.as_bytes());
    out.put_u64(order.epoch.0);
    if let What::Keyspace(name) = &order.what {
        out.put_bytes_vint(name.as_bytes());
    }
}

/// Reads what [`put_order`] wrote.
pub(crate) fn read_order(payload: &[u8]) -> std::result::Result<Order, DecodeError> {
    let r = &mut Reader::new(payload, "order to take over");
    let host = Uuid::from_bytes(r.array::<16>()?);
    let epoch = Epoch(r.u64()?);
    let what = if host.is_nil() {
        let name = String::from_utf8(r.bytes_vint()?.to_vec());
        let name = name.map_err(|_| r.error(codec::DecodeErrorKind::Utf8))?;
        What::Keyspace(name)
    } else {
        What::Member(HostId(host))
    };
    r.finish()?;
    Ok(Order { what, epoch })
}

impl ClusterShard {
    /// Serves an order of a peer; shard 0.
    pub(crate) fn serve_take_over(&self, request: &Request<'_>, responder: Responder) {
        let order = match read_order(request.payload) {
            Ok(order) => order,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        if self.rt.shard() != ShardId(0) {
            let text = "orders to take over are for shard 0".to_owned();
            return responder.fail(&ErrorReply::Invalid(text));
        }
        // Who removes another node holds it for dead, whatever this one has seen of it so far.
        let goes_itself = order.what == What::Member(request.from);
        let is_done = match self.order(&order, goes_itself) {
            Job::Running => false,
            Job::Done => true,
            Job::Failed(text) => return responder.fail(&ErrorReply::Internal(text)),
        };
        let taken = Taken { is_done, progress: self.orders.copies.own(&order.what.key()) };
        responder.respond(|out| put_taken(&taken, out));
    }

    /// The state of a copy, which is begun if there is none.
    pub(super) fn order(&self, order: &Order, goes_itself: bool) -> Job {
        let (key, epoch) = (order.what.key(), order.epoch);
        let known = self.orders.jobs.borrow().get(&key).cloned();
        match known {
            Some((at, job)) if at == epoch => {
                if matches!(job, Job::Failed(_)) {
                    self.orders.jobs.borrow_mut().remove(&key);
                }
                return job;
            }
            // Who gave that order does not know that it was taken back, and by whom it began anew.
            Some((at, _)) if at > epoch => {
                return Job::Failed("another order for the same came since".to_owned());
            }
            // An older one runs out by itself; its outcome is not looked at.
            Some(_) | None => {}
        }
        self.orders.jobs.borrow_mut().insert(key.clone(), (epoch, Job::Running));
        self.orders.copies.note_own(&key, CopyProgress::default());
        let (this, what) = (self.clone(), order.what.clone());
        let task = async move {
            let outcome = match this.carry_out(&what, epoch, goes_itself).await {
                Ok(()) => Job::Done,
                Err(error) => {
                    tracing::warn!(of = key.as_str(), error, "ranges could not be taken over");
                    Job::Failed(error)
                }
            };
            let mut jobs = this.orders.jobs.borrow_mut();
            if let Some((at, job)) = jobs.get_mut(&key)
                && *at == epoch
            {
                *job = outcome;
            }
        };
        // A closed gate: the node stops, and the one that asks hears no more of it.
        let _ = self.gate.spawn(&self.rt, Group::Stream, "take-over", task);
        Job::Running
    }

    async fn carry_out(&self, what: &What, epoch: Epoch, goes_itself: bool) -> Result<()> {
        if !self.membership.wait_for(epoch, self.rt.now() + SUBMIT).await {
            return Err("this node has not heard of the change of the cluster yet".to_owned());
        }
        match what {
            What::Member(mover) => self.copy_for(*mover, epoch, goes_itself).await,
            What::Keyspace(name) => self.inherit(name, epoch).await,
        }
    }

    /// Copies what this node will own once `mover` is gone; from it too when it goes by itself.
    async fn copy_for(&self, mover: HostId, epoch: Epoch, goes_itself: bool) -> Result<()> {
        let me = self.membership.snapshot().local.host_id;
        let mut failure = String::new();
        let (name, key) = (name_for(mover), format!("for {mover} since {}", epoch.0));
        let received = Received::load(&self.rt, &self.options.workdir, &name, key).await;
        for _ in 0..ATTEMPTS {
            let snapshot = self.membership.snapshot();
            let state = snapshot.members.get(&mover).map(|m| m.state);
            let operation = match state {
                Some(MemberState::Leaving) if goes_itself => "Unbootstrap",
                Some(MemberState::Leaving) => "Restore replica count",
                Some(MemberState::Moving) => "Relocation",
                _ => {
                    received.forget().await;
                    return Err("the node does not leave any more".to_owned());
                }
            };
            let liveness = self.liveness.clone();
            let is_alive = move |host| (goes_itself || host != mover) && liveness.is_alive(host);
            // A dead one goes in any case.
            let may_lack = if is_alive(mover) { MayLack::System } else { MayLack::Anything };
            let plan = streaming::plan_lacking(&snapshot, mover, me, &is_alive, may_lack);
            let plan = plan.map_err(|error| error.to_string())?;
            let goes_without = may_lack == MayLack::Anything && !plan.lacks.is_empty();
            for lack in plan.lacks {
                tracing::warn!(%lack, "taking over what is left: what only nodes that are down have \
                    is not in it");
            }
            let plan = received.rest(plan.fetches);
            if !plan.is_empty() {
                let copies = &self.orders.copies;
                let id = self.streaming.new_plan();
                copies.begin(mover, id);
                let of_order = What::Member(mover).key();
                let told = |p: &FetchProgress| copies.note_own(&of_order, p.into());
                let fetched = self.fetch_keeping((operation, id), plan, (&received, &told)).await;
                copies.end(mover);
                match fetched {
                    Ok(_) => {}
                    Err(error @ StreamError::Incomplete { .. }) => {
                        failure = error.to_string();
                        continue;
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
            // The rounds of lightweight transactions that the present owners know of.
            let dead = (!goes_itself).then_some(mover);
            let taken =
                self.coordinator.lwt().take_over_registers(mover, dead, goes_without, REGISTERS);
            match taken.await {
                Ok(_) => return Ok(()),
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    /// Who will own more once `mover` is gone.
    fn receivers(snapshot: &ClusterSnapshot, mover: HostId) -> BTreeSet<HostId> {
        let keyspaces = snapshot.schema.keyspaces.values();
        let keys: BTreeSet<PlacementKey> =
            keyspaces.map(|keyspace| PlacementKey::of_keyspace(snapshot, keyspace)).collect();
        let replicated = keys.iter().filter(|key| !key.is_local());
        let all = replicated.flat_map(|key| movements_of(snapshot, mover, key));
        all.map(|movement| movement.to).collect()
    }

    /// Has everybody copy what they will own once `mover` is gone.
    pub(super) async fn give_away(&self, mover: HostId, epoch: Epoch) -> Result<()> {
        let snapshot = self.membership.snapshot();
        let me = snapshot.local.host_id;
        let mut waiting = ClusterShard::receivers(&snapshot, mover);
        let down = waiting.iter().find(|host| !self.liveness.is_alive(**host)).copied();
        if let Some(host) = down {
            return Err(format!("node {host} would own some of its data and is down"));
        }
        let order = Order { what: What::Member(mover), epoch };
        let mut heard: BTreeMap<HostId, stdx::Instant> = BTreeMap::new();
        while !waiting.is_empty() && !self.orders.forced.get() {
            if self.orders.aborted.get() {
                return Err("it was given up by an operator".to_owned());
            }
            *self.orders.removal.borrow_mut() = Some((mover, waiting.clone()));
            for host in waiting.clone() {
                let now = self.rt.now();
                let since = *heard.entry(host).or_insert(now);
                let done = if host == me {
                    match self.order(&order, false) {
                        Job::Failed(text) => return Err(text),
                        job => {
                            let own = self.orders.copies.own(&order.what.key());
                            self.orders.copies.note_other(host, own);
                            matches!(job, Job::Done)
                        }
                    }
                } else {
                    match self.ask_to_take_over(host, &order).await {
                        Ok(taken) => {
                            heard.insert(host, self.rt.now());
                            self.orders.copies.note_other(host, taken.progress);
                            taken.is_done
                        }
                        Err(MessagingError::Remote(ErrorReply::Internal(text))) => {
                            return Err(format!("node {host}: {text}"));
                        }
                        Err(error) if now.since(since) >= SILENCE => {
                            return Err(format!("node {host}: {error}"));
                        }
                        Err(_) => false,
                    }
                };
                if done {
                    waiting.remove(&host);
                }
            }
            if !waiting.is_empty() {
                self.pause(ASK_AGAIN).await.map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    pub(super) async fn ask_to_take_over(
        &self,
        host: HostId,
        order: &Order,
    ) -> std::result::Result<Taken, MessagingError> {
        let deadline = self.rt.now() + ANSWER;
        let to = Outgoing { host, shard: ShardId(0), verb: Verb::TakeOver, deadline, trace: None };
        let write = |out: &mut Vec<u8>| put_order(order, out);
        let answer = self.messaging.request(&to, write).await?;
        read_taken(&answer.payload).map_err(|_| MessagingError::Malformed)
    }

    /// Takes `host` from one state to the next; the epoch after it.
    pub(super) async fn step(
        &self,
        host: HostId,
        from: MemberState,
        to: MemberState,
    ) -> Result<Epoch> {
        self.step_if(host, from, to, || true).await
    }

    /// The same as long as `is_mine` holds, up to the moment at which it is decided.
    async fn step_if(
        &self,
        host: HostId,
        from: MemberState,
        to: MemberState,
        is_mine: impl Fn() -> bool,
    ) -> Result<Epoch> {
        let give_up = self.rt.now() + SUBMIT;
        let submitted = self.submit_until_done(Some(give_up), |snapshot| {
            let member = snapshot.members.get(&host)?;
            (member.state == from && is_mine())
                .then_some(Transformation::SetState { host, state: to })
        });
        submitted.await.map_err(|e| e.to_string())?;
        let snapshot = self.membership.snapshot();
        match snapshot.members.get(&host) {
            Some(member) if member.state == to => Ok(snapshot.epoch),
            Some(member) if member.state == from => Err(format!(
                "node {host} was taken back and ordered to leave anew meanwhile: that order goes on"
            )),
            Some(member) => Err(format!("node {host} is {} now", member.state)),
            None => Err(format!("node {host} is no member any more")),
        }
    }

    /// Sees to it that `host` does not vote.
    pub(super) async fn take_vote(&self, host: HostId) -> Result<()> {
        let liveness = self.liveness.clone();
        let give_up = self.rt.now() + SUBMIT;
        let submitted = self.submit_until_done(Some(give_up), |snapshot| {
            if !snapshot.voters.contains(&host) {
                return None;
            }
            let present: Vec<HostId> =
                snapshot.voters.iter().copied().filter(|v| *v != host).collect();
            let usable = |m: &cluster::Member| m.host_id != host && liveness.is_alive(m.host_id);
            let hosts = choose_voters(&snapshot.members, &present, usable);
            (!hosts.is_empty()).then_some(Transformation::SetVoters { hosts })
        });
        submitted.await.map_err(|e| e.to_string())
    }

    /// `began`: when it became [`MemberState::Leaving`]. Since another had it taken back and begun anew,
    /// there were writes that what is copied has not.
    async fn finish_leaving(&self, host: HostId, began: Epoch) -> Result<()> {
        let (from, to) = (MemberState::Leaving, MemberState::LeaveHandover);
        let orders = self.orders.clone();
        let epoch = self.step_if(host, from, to, || orders.changed_at.get() == began).await?;
        self.end_leaving(host, epoch).await
    }

    /// All is copied, and since `epoch` the others are read from: there is no way back, for what was read
    /// there and was never acknowledged need not be with those who were read from before.
    async fn end_leaving(&self, host: HostId, epoch: Epoch) -> Result<()> {
        self.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
        if host == self.membership.snapshot().local.host_id {
            self.hand_over_batches().await?;
            self.hand_over_hints().await?;
        }
        self.submit_leave(host).await
    }

    /// Members that are alive and stay, those of this node's datacenter first.
    fn heirs(&self, snapshot: &ClusterSnapshot) -> Vec<HostId> {
        let me = snapshot.local_member();
        let mut others: Vec<&std::sync::Arc<cluster::Member>> = snapshot.members.values().collect();
        others.retain(|m| {
            m.host_id != snapshot.local.host_id
                && m.state == MemberState::Normal
                && self.liveness.is_alive(m.host_id)
        });
        others.sort_by_key(|m| me.is_none_or(|me| me.datacenter != m.datacenter));
        others.into_iter().map(|m| m.host_id).collect()
    }

    /// Gives the entries of this node's batch log to other members: it will not be heard any more when
    /// it has left. Before that nobody stores more here.
    async fn hand_over_batches(&self) -> Result<()> {
        let mut failure = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.pause(ASK_AGAIN).await.map_err(|e| e.to_string())?;
            }
            let snapshot = self.membership.snapshot();
            let heirs = self.heirs(&snapshot);
            match self.coordinator.batches().hand_over_batches(&snapshot, &heirs).await {
                Ok(0) => return Ok(()),
                Ok(batches) => {
                    tracing::info!(batches, "logged batches were handed to other nodes");
                    return Ok(());
                }
                Err(text) => failure = text,
            }
        }
        Err(failure)
    }

    /// Delivers the hints of all shards, or gives them to another member, which keeps them for their
    /// replicas.
    ///
    /// # Errors
    /// Some are left, and the order was none that loses them.
    async fn hand_over_hints(&self) -> Result<()> {
        let mut left = Vec::new();
        let mut failure = String::new();
        let heirs = match self.options.transfer_hints_on_decommission {
            true => self.heirs(&self.membership.snapshot()),
            // The operator wants none handed over.
            false => return self.lose_hints(&self.hints.pending()),
        };
        if heirs.is_empty() {
            left = self.hints.pending();
        }
        for host in heirs.into_iter().take(HINT_TAKERS) {
            let calls: Vec<_> = (0..self.rt.shard_count())
                .map(|shard| self.hints_mesh.call(&self.rt, ShardId(shard), host))
                .collect();
            let mut lists = Vec::new();
            failure.clear();
            for call in calls {
                match call.await {
                    Ok(list) => lists.push(list),
                    Err(error) => failure = error.to_string(),
                }
            }
            left = PendingHints::merge(lists);
            if left.is_empty() && failure.is_empty() {
                return Ok(());
            }
            tracing::info!(%host, "not all hints could be delivered or handed to a node");
        }
        match (self.orders.loses_hints.get(), failure.is_empty()) {
            (false, false) => Err(format!("hints could not be handed over: {failure}")),
            (false, true) if !left.is_empty() => Err(format!(
                "{} could not be delivered or handed over; try again when their nodes are up, or leave \
                 without them with --force and repair these nodes",
                hints_text(&left)
            )),
            _ => self.lose_hints(&left),
        }
    }

    /// Leaves hints behind, and remembers it for whoever gave the order.
    fn lose_hints(&self, left: &[PendingHints]) -> Result<()> {
        if !left.is_empty() {
            let text = hints_text(left);
            tracing::warn!(
                hints = text,
                "this node leaves without hints: repair the nodes they are for"
            );
            *self.orders.lost_hints.borrow_mut() = Some(format!(
                "the node has left the cluster, and {text} are lost: repair these nodes"
            ));
        }
        Ok(())
    }

    /// Makes a member that was stopped on its way out, or to other tokens, a full one again. Not one that
    /// has come to its handover: that is ended.
    pub(super) async fn take_back(&self, host: HostId) -> Result<()> {
        use MemberState as S;
        for (from, to) in [(S::Leaving, S::Normal), (S::Moving, S::Normal)] {
            let snapshot = self.membership.snapshot();
            if snapshot.members.get(&host).is_some_and(|member| member.state == from) {
                self.step(host, from, to).await?;
            }
        }
        Ok(())
    }

    /// Gives up what this node does with its place in the ring. Shard 0 only.
    ///
    /// # Errors
    /// There is nothing.
    pub(crate) async fn abort_movement(&self) -> Result<()> {
        let snapshot = self.membership.snapshot();
        let me = snapshot.local.host_id;
        let is_running = self.orders.removal.borrow().is_some();
        if !is_running && snapshot.local_member().is_some_and(|m| is_handing_over(m.state)) {
            return Err(TOO_LATE.to_owned());
        }
        let is_moving = snapshot.local_member().is_some_and(|m| {
            m.is_in_transition()
                && !matches!(m.state, MemberState::Joining | MemberState::JoinHandover)
        });
        // One that failed and could not be taken back then.
        if !is_running && is_moving {
            return self.take_back(me).await;
        }
        self.orders.abort(me)
    }

    /// The whole way out of a member that owns data.
    async fn move_out(&self, host: HostId) -> Result<()> {
        self.wait_for_handovers().await;
        let epoch = self.step(host, MemberState::Normal, MemberState::Leaving).await?;
        let began = self.orders.changed_at.get();
        let copied = async {
            self.wait_until_applied(epoch).await.map_err(|e| e.to_string())?;
            // Writes that began before the future owners were written to are over then.
            self.pause(self.options.write_request_timeout).await.map_err(|e| e.to_string())?;
            self.take_vote(host).await?;
            self.give_away(host, epoch).await?;
            if host == self.membership.snapshot().local.host_id {
                // While there is a way back; those that come until it has left follow in the end.
                self.hand_over_hints().await?;
            }
            self.orders.decide()
        };
        match copied.await {
            Ok(()) => self.finish_leaving(host, began).await,
            Err(error) => {
                // It owns its ranges as before, unless another has begun the same since.
                let (from, to) = (MemberState::Leaving, MemberState::Normal);
                let orders = self.orders.clone();
                let back = self.step_if(host, from, to, || orders.changed_at.get() == began);
                if let Err(also) = back.await {
                    tracing::warn!(%host, error = %also, "the node could not be made a full member again");
                }
                self.settle_voters();
                Err(error)
            }
        }
    }

    /// Gives this node's data to the others and leaves. Shard 0 only.
    ///
    /// # Errors
    /// Why not, in words for the operator; the node is a member as before.
    pub(crate) async fn decommission(&self, force: Force) -> Result<()> {
        let host = self.membership.snapshot().local.host_id;
        let _turn = self.orders.begin(host)?;
        self.orders.loses_hints.set(force == Force::LoseHints);
        drop(self.orders.lost_hints.take());
        if self.orders.put_out.get() {
            return Ok(());
        }
        let left = async {
            let snapshot = self.membership.snapshot();
            match snapshot.local_member().map(|member| member.state) {
                Some(MemberState::LeaveHandover) => self.end_leaving(host, snapshot.epoch).await,
                Some(MemberState::MoveHandover) => {
                    self.end_moving(host, snapshot.epoch).await?;
                    self.move_out(host).await
                }
                _ => {
                    self.take_back(host).await?;
                    self.move_out(host).await
                }
            }
        };
        let left = left.await;
        self.orders.decommission_failed.set(left.is_err());
        left?;
        tracing::info!("this node has left the cluster");
        Ok(())
    }

    /// A node that was ended while it handed over goes on with it: a decommission. Shard 0 only.
    pub(crate) fn go_on_leaving(&self) {
        let hands_over = |this: &ClusterShard| {
            let snapshot = this.membership.snapshot();
            snapshot.local_member().is_some_and(|m| m.state == MemberState::LeaveHandover)
        };
        if self.rt.shard() != ShardId(0) || !hands_over(self) {
            return;
        }
        tracing::info!("this node was leaving, and all of its data is copied: it goes on to leave");
        let this = self.clone();
        let task = async move {
            while hands_over(&this) {
                if let Err(error) = this.decommission(Force::Nothing).await {
                    tracing::warn!(error, "this node has not left yet and tries again");
                }
                if this.pause(GO_ON).await.is_err() {
                    return;
                }
            }
        };
        // A closed gate: the node stops, and the next start goes on.
        let _ = self.gate.spawn(&self.rt, Group::Admin, "go-on-leaving", task);
    }

    /// Takes a dead node out and has its data copied from the other replicas. Shard 0 only.
    ///
    /// # Errors
    /// As [`ClusterShard::decommission`].
    pub(crate) async fn remove_node(&self, host: HostId) -> Result<()> {
        let snapshot = self.membership.snapshot();
        let state = match snapshot.members.get(&host) {
            Some(member) => member.state,
            None => return Err(format!("node {host} is no member")),
        };
        let _turn = self.orders.begin(host)?;
        if self.liveness.is_alive(host) {
            return Err(format!("node {host} is alive: decommission it there"));
        }
        match state {
            MemberState::Normal => return self.move_out(host).await,
            MemberState::Joining => {}
            MemberState::JoinHandover => {
                self.step(host, MemberState::JoinHandover, MemberState::Joining).await?;
            }
            // It died on its way out or to another token, or somebody's removal did.
            MemberState::Leaving | MemberState::Moving => {
                self.take_back(host).await?;
                return self.move_out(host).await;
            }
            MemberState::LeaveHandover => return self.end_leaving(host, snapshot.epoch).await,
            MemberState::MoveHandover => {
                self.end_moving(host, snapshot.epoch).await?;
                return self.move_out(host).await;
            }
        }
        self.submit_leave(host).await
    }

    async fn submit_leave(&self, host: HostId) -> Result<()> {
        let give_up = self.rt.now() + SUBMIT;
        let submitted = self.submit_until_done(Some(give_up), |snapshot| {
            // The others may have decided it, and do not speak to this node any more.
            let is_out = host == snapshot.local.host_id && self.orders.put_out.get();
            let is_member = snapshot.members.contains_key(&host) && !is_out;
            is_member.then_some(Transformation::Leave { host })
        });
        submitted.await.map_err(|e| e.to_string())
    }

    /// Takes a node out that joins, dead or alive; the ring is as it was before. Shard 0 only.
    ///
    /// # Errors
    /// It has finished meanwhile.
    pub(crate) async fn abort_bootstrap(&self, host: HostId) -> Result<()> {
        let state = self.membership.snapshot().members.get(&host).map(|m| m.state);
        if state == Some(MemberState::JoinHandover) {
            if self.liveness.is_alive(host) {
                return Err(
                    "it has copied everything and is read from already: too late".to_owned()
                );
            }
            // Dead, it would hold up the ring for ever. What was read since it began to be read from is
            // on the others too: reads are joint while ranges move.
            self.step(host, MemberState::JoinHandover, MemberState::Joining).await?;
        }
        self.submit_leave(host).await
    }

    /// Ends the removal in progress without waiting for copies.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn force_removal(&self) -> Result<()> {
        if self.orders.removal.borrow().is_none() {
            return Err("there is no removal in progress".to_owned());
        }
        self.orders.forced.set(true);
        Ok(())
    }

    /// Takes a dead node out as it is; what only it had is gone. Shard 0 only.
    ///
    /// # Errors
    /// As [`ClusterShard::decommission`].
    pub(crate) async fn assassinate(&self, host: HostId) -> Result<()> {
        if self.liveness.is_alive(host) {
            return Err(format!("node {host} is alive: decommission it there"));
        }
        self.take_vote(host).await?;
        let give_up = self.rt.now() + SUBMIT;
        let submitted = self.submit_until_done(Some(give_up), |snapshot| {
            snapshot.members.contains_key(&host).then_some(Transformation::Evict { host })
        });
        match submitted.await {
            Ok(()) => Ok(()),
            Err(SubmitError::Rejected(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_movement_at_a_time_from_the_moment_it_is_ordered() {
        let orders: Rc<Orders> = Rc::default();
        let host = HostId(Uuid::from_u128(1));
        let turn = orders.begin(host).map_err(|_| "refused");
        assert!(turn.is_ok());
        assert_eq!(orders.removal(), Some((host, Vec::new())));
        for other in [host, HostId(Uuid::from_u128(2))] {
            assert!(orders.begin(other).is_err_and(|text| text.contains("leaving or moving")));
        }
        orders.aborted.set(true);
        orders.changed_at.set(Epoch(3));
        drop(turn);
        assert_eq!(orders.removal(), None);
        assert!(!orders.aborted.get());
        assert_eq!(orders.changed_at.get(), Epoch(0));
        assert!(orders.begin(host).is_ok());
    }
}
