//! Copies of ranges when another member leaves or moves, or replication changes: on the order of the node that
//! carries the change out, and the orders that this node gives.
//!
//! An order is a message of the verb `TakeOver`, which is resent until the copy is done, between the two steps of
//! the movement (`cluster::topology`). Its answer reports the progress of the copy. An error reports that it
//! failed, and the next order starts it again.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use cluster::ranges::Movement;
use cluster::{ClusterSnapshot, MemberState, PlacementKey, Stage, movements};
use internode::{ErrorReply, Verb};
use messaging::{MessagingError, Outgoing, Request, Responder};
use rt::Group;
use stdx::{Epoch, HostId, ShardId, Uuid};
use streaming::{FetchProgress, FetchRange, FetchReport, Keep, MayLack, StreamError};

use crate::copy_progress::{CopyProgress, Taken, put_taken, read_taken};
use crate::env::Env;
use crate::orders::{Job, Order, What, put_order, read_order};
use crate::resume_state::{self, Received, name_for};
use crate::steps::SUBMIT;

/// Timeout of one answer about rounds of lightweight transactions.
pub(crate) const REGISTERS: Duration = Duration::from_secs(10);
/// Longest wait for one answer to an order, and the pause before the next question.
const ANSWER: Duration = Duration::from_secs(5);
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Longest silence of a node that is to copy, before the movement is aborted.
const SILENCE: Duration = Duration::from_secs(60);
/// Attempts of a copy before it counts as failed.
pub(crate) const ATTEMPTS: usize = 3;

type Result<T> = std::result::Result<T, String>;

/// Returns the movements of ranges when `mover` leaves the ring.
fn movements_of(snapshot: &ClusterSnapshot, mover: HostId, key: &PlacementKey) -> Vec<Movement> {
    let before = key.placements_among(&cluster::topology::unmoved(snapshot));
    let after = key.placements_among(&cluster::topology::finished(snapshot, mover));
    movements(&before, &after)
}

/// Ranges to fetch.
pub(crate) struct Fetch<'a> {
    /// The operation, in words for `nodetool netstats`.
    pub(crate) operation: &'a str,
    /// The plan's id.
    pub(crate) id: Uuid,
    /// Ranges that are still to be fetched.
    pub(crate) plan: Vec<FetchRange>,
    /// Records the ranges that were received.
    pub(crate) received: &'a Received,
}

/// Role of the leaving member in its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// It hands its data over itself.
    Helps,
    /// Another node removes it, and considers it dead.
    Dead,
}

/// Copies of ranges. Clones share.
#[derive(Clone)]
pub struct RangeCopies {
    env: Rc<Env>,
}

impl RangeCopies {
    pub(crate) fn new(env: &Rc<Env>) -> RangeCopies {
        RangeCopies { env: env.clone() }
    }

    /// Serves an order of a peer; shard 0.
    pub fn serve_take_over(&self, request: &Request<'_>, responder: Responder) {
        let order = match read_order(request.payload) {
            Ok(order) => order,
            Err(error) => return responder.fail(&ErrorReply::Invalid(error.to_string())),
        };
        if self.env.rt.shard() != ShardId(0) {
            let text = "orders to take over are for shard 0".to_owned();
            return responder.fail(&ErrorReply::Invalid(text));
        }
        // A node that removes another one considers it dead, whatever this node has seen of it so
        // far.
        let mover = match order.what == What::Member(request.from) {
            true => Mover::Helps,
            false => Mover::Dead,
        };
        let is_done = match self.order(&order, mover) {
            Job::Running => false,
            Job::Done => true,
            Job::Failed(text) => return responder.fail(&ErrorReply::Internal(text)),
        };
        let taken = Taken { is_done, progress: self.env.orders.copies.own(&order.what.key()) };
        responder.respond(|out| put_taken(&taken, out));
    }

    /// Returns the state of a copy, which is begun if there is none.
    pub(crate) fn order(&self, order: &Order, mover: Mover) -> Job {
        let (key, epoch) = (order.what.key(), order.epoch);
        let known = self.env.orders.jobs.borrow().get(&key).cloned();
        match known {
            Some((at, job)) if at == epoch => {
                // The sender repeats the order.
                if matches!(job, Job::Failed(_)) {
                    self.env.orders.jobs.borrow_mut().remove(&key);
                }
                return job;
            }
            // The sender of this order does not know that the movement was taken back and started
            // again.
            Some((at, _)) if at > epoch => {
                return Job::Failed("a later order replaced this one".to_owned());
            }
            // An older copy runs to its end; its outcome is ignored.
            Some(_) => self.env.orders.forget_failures(&key),
            None => {}
        }
        self.env.orders.jobs.borrow_mut().insert(key.clone(), (epoch, Job::Running));
        self.env.orders.copies.note_own(&key, CopyProgress::default());
        let (this, what) = (self.clone(), order.what.clone());
        let task = async move {
            let outcome = match this.carry_out(&what, epoch, mover).await {
                Ok(()) => {
                    this.env.orders.forget_failures(&key);
                    Job::Done
                }
                Err(error) => {
                    if let Some(attempts) = this.env.orders.count_failure(&key) {
                        tracing::warn!(
                            of = key.as_str(),
                            attempts,
                            error,
                            "cannot fetch ranges; the copy is retried, and logged less often"
                        );
                    }
                    Job::Failed(error)
                }
            };
            let mut jobs = this.env.orders.jobs.borrow_mut();
            if let Some((at, job)) = jobs.get_mut(&key)
                && *at == epoch
            {
                *job = outcome;
            }
        };
        // A closed gate: the node stops, and the node that asks gets no further answer.
        let _ = self.env.gate.spawn(&self.env.rt, Group::Stream, "take-over", task);
        Job::Running
    }

    async fn carry_out(&self, what: &What, epoch: Epoch, role: Mover) -> Result<()> {
        if !self.env.membership.wait_for(epoch, self.env.rt.now() + SUBMIT).await {
            return Err("this node has not received the change of the cluster yet".to_owned());
        }
        match what {
            What::Member(mover) => self.copy_for(*mover, epoch, role).await,
            What::Keyspace(name) => self.inherit(name, epoch).await,
        }
    }

    /// Copies the ranges that this node will own once `mover` is gone; also from `mover`, if it
    /// takes part itself.
    async fn copy_for(&self, mover: HostId, epoch: Epoch, role: Mover) -> Result<()> {
        let goes_itself = role == Mover::Helps;
        let me = self.env.membership.snapshot().local.host_id;
        let mut failure = String::new();
        let (name, key) = (name_for(mover), format!("for {mover} since {}", epoch.0));
        let received = Received::load(&self.env.rt, &self.env.options.workdir, &name, key).await;
        for _ in 0..ATTEMPTS {
            let snapshot = self.env.membership.snapshot();
            let state = snapshot.members.get(&mover).map(|m| m.state);
            let operation = match state {
                Some(MemberState::Leaving) if goes_itself => "Unbootstrap",
                Some(MemberState::Leaving) => "Restore replica count",
                Some(MemberState::Moving) => "Relocation",
                _ => {
                    received.forget().await;
                    return Err("the node is no longer leaving".to_owned());
                }
            };
            let liveness = self.env.liveness.clone();
            let is_alive = move |host| (goes_itself || host != mover) && liveness.is_alive(host);
            // A dead member leaves in any case.
            let may_lack = if is_alive(mover) { MayLack::System } else { MayLack::Anything };
            let plan = streaming::plan_lacking(&snapshot, mover, me, &is_alive, may_lack);
            let plan = plan.map_err(|error| error.to_string())?;
            let goes_without = may_lack == MayLack::Anything && !plan.lacks.is_empty();
            for lack in plan.lacks {
                tracing::warn!(
                    %lack,
                    "fetching data without the replicas that are down: writes that only they \
                    have are missing"
                );
            }
            let plan = received.rest(plan.fetches);
            if !plan.is_empty() {
                let copies = &self.env.orders.copies;
                let id = self.env.streaming.new_plan();
                copies.begin(mover, id);
                let of_order = What::Member(mover).key();
                let told = |p: &FetchProgress| copies.note_own(&of_order, p.into());
                let fetch = Fetch { operation, id, plan, received: &received };
                let fetched = self.fetch_keeping(fetch, &told).await;
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
            // Takes over the rounds of lightweight transactions that the present owners know of.
            let dead = (!goes_itself).then_some(mover);
            let taken = self.env.coordinator.lwt().take_over_registers(
                mover,
                dead,
                goes_without,
                REGISTERS,
            );
            match taken.await {
                Ok(_) => return Ok(()),
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    /// Takes over the ranges that this node inherits in a stage.
    pub(crate) async fn inherit(&self, keyspace: &str, epoch: Epoch) -> Result<()> {
        let snapshot = self.env.membership.snapshot();
        let me = snapshot.local.host_id;
        let present = snapshot.handovers.get(keyspace).filter(|h| h.since == epoch);
        let Some(handover) = present else {
            return Err("the handover of the keyspace has ended".to_owned());
        };
        if handover.stage == Stage::Gaining {
            let liveness = self.env.liveness.clone();
            let is_alive = move |host| host == me || liveness.is_alive(host);
            let plan = streaming::plan_inheritance(&snapshot, keyspace, me, is_alive);
            let plan = plan.map_err(|error| error.to_string())?;
            let (name, key) =
                (format!("keyspace-{keyspace}"), format!("{keyspace} since {}", epoch.0));
            let received =
                Received::load(&self.env.rt, &self.env.options.workdir, &name, key).await;
            let rest = received.rest(plan);
            if !rest.is_empty() {
                let copies = &self.env.orders.copies;
                let key = What::Keyspace(keyspace.to_owned()).key();
                let told = |p: &FetchProgress| copies.note_own(&key, p.into());
                let fetch = Fetch {
                    operation: "Replication change",
                    id: self.env.streaming.new_plan(),
                    plan: rest,
                    received: &received,
                };
                let fetched = self.fetch_keeping(fetch, &told).await;
                fetched.map_err(|error| error.to_string())?;
            }
            received.forget().await;
        }
        let taken = self.env.coordinator.lwt().inherit_registers(keyspace, REGISTERS).await;
        taken.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Returns the members that will own more once `mover` is gone.
    fn receivers(snapshot: &ClusterSnapshot, mover: HostId) -> BTreeSet<HostId> {
        let keyspaces = snapshot.schema.keyspaces.values();
        let keys: BTreeSet<PlacementKey> =
            keyspaces.map(|keyspace| PlacementKey::of_keyspace(snapshot, keyspace)).collect();
        let replicated = keys.iter().filter(|key| !key.is_local());
        let all = replicated.flat_map(|key| movements_of(snapshot, mover, key));
        all.map(|movement| movement.to).collect()
    }

    /// Makes all receivers copy the ranges that they will own once `mover` is gone.
    pub(crate) async fn give_away(&self, mover: HostId, epoch: Epoch) -> Result<()> {
        let snapshot = self.env.membership.snapshot();
        let me = snapshot.local.host_id;
        let mut waiting = RangeCopies::receivers(&snapshot, mover);
        let down = waiting.iter().find(|host| !self.env.liveness.is_alive(**host)).copied();
        if let Some(host) = down {
            return Err(format!("node {host} would own some of its data and is down"));
        }
        let order = Order { what: What::Member(mover), epoch };
        let mut heard: BTreeMap<HostId, stdx::Instant> = BTreeMap::new();
        while !waiting.is_empty() && !self.env.orders.forced.get() {
            if self.env.orders.aborted.get() {
                return Err("it was aborted by an operator".to_owned());
            }
            *self.env.orders.removal.borrow_mut() = Some((mover, waiting.clone()));
            for host in waiting.clone() {
                let now = self.env.rt.now();
                let since = *heard.entry(host).or_insert(now);
                let done = if host == me {
                    match self.order(&order, Mover::Dead) {
                        Job::Failed(text) => return Err(text),
                        job => {
                            let own = self.env.orders.copies.own(&order.what.key());
                            self.env.orders.copies.note_other(host, own);
                            matches!(job, Job::Done)
                        }
                    }
                } else {
                    match self.ask_to_take_over(host, &order).await {
                        Ok(taken) => {
                            heard.insert(host, self.env.rt.now());
                            self.env.orders.copies.note_other(host, taken.progress);
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
                self.env.pause(ASK_AGAIN).await.map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    pub(crate) async fn ask_to_take_over(
        &self,
        host: HostId,
        order: &Order,
    ) -> std::result::Result<Taken, MessagingError> {
        let deadline = self.env.rt.now() + ANSWER;
        let to = Outgoing { host, shard: ShardId(0), verb: Verb::TakeOver, deadline, trace: None };
        let write = |out: &mut Vec<u8>| put_order(order, out);
        let answer = self.env.messaging.request(&to, write).await?;
        read_taken(&answer.payload).map_err(|_| MessagingError::Malformed)
    }

    /// Fetches the plan, records the received ranges, and reports the progress.
    pub(crate) async fn fetch_keeping(
        &self,
        fetch: Fetch<'_>,
        told: &dyn Fn(&FetchProgress),
    ) -> std::result::Result<FetchReport, StreamError> {
        let Fetch { operation, id, plan, received } = fetch;
        let keep: &Keep<'_> = &|ranges| Box::pin(received.keep(ranges));
        let operation = streaming::Operation { name: operation, plan: id };
        self.env.streaming.fetch_keeping(operation, plan, told, keep).await
    }

    /// Ends copies for members whose movement was aborted. Shard 0 only.
    pub(crate) fn end_copies(&self, before: &ClusterSnapshot, after: &ClusterSnapshot) {
        use MemberState as S;
        let fetches: Vec<(HostId, Uuid)> =
            self.env.orders.copies.fetches.borrow().iter().map(|(h, p)| (*h, *p)).collect();
        for (host, plan) in fetches {
            let state = |of: &ClusterSnapshot| of.members.get(&host).map(|member| member.state);
            let is_taken_back = matches!(
                (state(before), state(after)),
                (Some(S::Leaving | S::Moving), Some(S::Normal))
            );
            if is_taken_back {
                self.env.streaming.abort(plan);
            }
        }
    }

    /// Removes the records of copies for members that have completed their movement.
    pub(crate) fn forget_received(&self, before: &ClusterSnapshot, after: &ClusterSnapshot) {
        let is_over = |host: &HostId| {
            after.members.get(host).is_none_or(|member| member.state == MemberState::Normal)
        };
        let moved = before.members.values().filter(|m| m.is_in_transition());
        for host in moved.map(|m| m.host_id).filter(is_over) {
            let (fs, path) = (
                self.env.rt.fs(),
                resume_state::path_of(&self.env.options.workdir, &name_for(host)),
            );
            let task = async move { resume_state::forget(&fs, &path).await };
            // A closed gate: the node stops. The file is of an epoch that does not recur.
            let _ = self.env.gate.spawn(&self.env.rt, rt::Group::Gossip, "forget-received", task);
        }
    }
}
