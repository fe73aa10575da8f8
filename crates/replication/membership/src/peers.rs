//! The log among several nodes: proposing entries, answering other nodes, catching up.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::allocate::{Allocation, allocate};
use cluster::{ClusterSnapshot, Member, MemberState, Transformation};
use internode::{ErrorReply, Verb};
use messaging::{Messaging, MessagingError, Outgoing, Responder};
use paxos::acceptor::{Reply, Request};
use paxos::ballot::Scope;
use paxos::log::{Entries, Learn, Learner, LogInput, LogOutcome, LogOutput, LogProposer};
use paxos::proposer::{Context, Effect, Options};
use paxos::{Ballot, CommitQuorum, Plan, Target, TargetSet};
use rt::Group;
use rt::sync::queue;
use stdx::{Epoch, HostId, Instant, ShardId};

use crate::owner::{ENTRIES_BYTES_MAX, Owner};
use crate::wire::{self, Answer, Ask, Submission, Submitted, Value};
use crate::{Membership, SubmitError};

/// Timeouts of deciding a change, and of its application by every live node.
const DECIDE: Duration = Duration::from_secs(10);
const APPLY: Duration = Duration::from_secs(10);
/// First patience with one phase of a round.
const ROUND: Duration = Duration::from_secs(1);
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// Attempts of a join whose entry conflicts with others.
const JOIN_ATTEMPTS: usize = 20;

/// Answer of one member.
struct Back {
    from: Target,
    ballot: Ballot,
    answer: Result<Answer, ()>,
}

/// Destinations and deadline of a proposer's requests, and the queue of their answers.
struct Calls<'a> {
    members: &'a [HostId],
    deadline: Instant,
    back: queue::Sender<Back>,
}

/// Outputs of a proposer beside requests.
#[derive(Default)]
struct Sent {
    wake_at: Option<Instant>,
    /// Members that a request was sent to.
    asked: TargetSet,
    done: Option<LogOutcome<Value>>,
}

impl Membership {
    /// Connects this node to the others: from now on changes are proposed to all voters and reach
    /// all members. Shard 0 only; `is_alive` tells for which members to wait.
    pub fn attach(&self, messaging: Messaging, is_alive: impl Fn(HostId) -> bool + 'static) {
        if let Some(owner) = &self.inner.owner {
            *owner.messaging.borrow_mut() = Some(messaging);
            *owner.is_alive.borrow_mut() = Rc::new(is_alive);
        }
    }

    /// Proposes `change` as the entry after `before`. When it returns, the change is decided, and
    /// applied by every member that is alive and answers in time.
    pub(crate) async fn propose(
        &self,
        owner: &Owner,
        before: &ClusterSnapshot,
        value: Value,
    ) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        let rt = &self.inner.rt;
        let members: Vec<HostId> = before.members.keys().copied().collect();
        let plan = self.plan(owner, before, &members)?;
        let deadline = rt.now() + DECIDE;
        let options = Options {
            deadline,
            commit_deadline: deadline + APPLY,
            round_timeout: ROUND,
            backoff_min: BACKOFF.0,
            backoff_max: BACKOFF.1,
            scope: Scope::None,
        };
        let mut proposer = LogProposer::submit(before.epoch, value, plan, options);
        let (back, answers) = queue::bounded::<Back>(members.len().saturating_mul(8).max(64));
        let calls = Calls { members: &members, deadline: options.commit_deadline, back };
        let mut input = LogInput::Start;
        let mut wake = deadline;
        // Members whose last request was answered.
        let mut answered = TargetSet::EMPTY;
        let outcome = loop {
            let mut out = Vec::new();
            {
                let mut clock = owner.clock.borrow_mut();
                let mut cx = Context {
                    now: rt.now(),
                    wall: rt.wall(),
                    random: rt.random_u64(),
                    clock: &mut clock,
                };
                proposer.step(&mut cx, input, &mut out);
            }
            let Sent { wake_at, asked, done } = self.send(&calls, &proposer, out)?;
            answered = answered.without(asked);
            wake = wake_at.unwrap_or(wake);
            if let Some(outcome) = done {
                break outcome;
            }
            input = match rt.timeout(wake, answers.recv()).await {
                Err(_) | Ok(None) => LogInput::Tick,
                Ok(Some(back)) => {
                    if back.answer.is_ok() {
                        answered.insert(back.from);
                    }
                    self.input_of(owner, &proposer, back).await
                }
            };
        };
        let me = before.local.host_id;
        // A round may end before this node's own vote is on its disk.
        let answered = |host: HostId| {
            if host == me {
                return true;
            }
            let target = members.iter().position(|member| *member == host);
            target.and_then(|i| Target::try_from(i).ok()).is_some_and(|t| answered.contains(t))
        };
        self.ended(owner, outcome, &voters_without(before, answered)).await
    }

    /// Sends what a proposer wants sent.
    fn send(
        &self,
        calls: &Calls<'_>,
        proposer: &LogProposer<Value>,
        outputs: Vec<LogOutput<Value>>,
    ) -> Result<Sent, SubmitError> {
        let mut prelude: Option<(Target, Epoch)> = None;
        let mut sent = Sent::default();
        for output in outputs {
            let (to, request, ballot) = match output {
                LogOutput::Prepare { to, ballot } => {
                    (to, Request::Prepare { ballot, write: true }, ballot)
                }
                LogOutput::Propose { to, proposal } => {
                    let ballot = proposal.ballot;
                    (to, Request::Propose(proposal), ballot)
                }
                LogOutput::Commit { to, commit } => {
                    let ballot = commit.ballot;
                    (to, Request::Commit(commit), ballot)
                }
                LogOutput::SendEntries { to, first } => {
                    prelude = Some((to, first));
                    continue;
                }
                LogOutput::WakeAt(at) => {
                    sent.wake_at = Some(at);
                    continue;
                }
                LogOutput::Done(outcome) => {
                    sent.done = Some(outcome);
                    continue;
                }
                LogOutput::Finished => continue,
            };
            let ask = Ask { entry: proposer.entry(), request };
            for target in to.iter() {
                let member = calls.members.get(usize::from(target)).copied();
                let Some(host) = member else { continue };
                let first = prelude.filter(|(t, _)| *t == target).map(|(_, first)| first);
                let call = Call { target, host, ballot, ask: ask.clone(), first };
                self.spawn_call(call, calls.deadline, calls.back.clone())?;
                sent.asked.insert(target);
            }
        }
        Ok(sent)
    }

    /// Handles the outcome of a proposal; `silent` names the voters that did not answer.
    async fn ended(
        &self,
        owner: &Owner,
        outcome: LogOutcome<Value>,
        silent: &[SocketAddr],
    ) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        match outcome {
            LogOutcome::Decided(entry) => {
                // A member that missed the decision learns it later; this node must have it.
                let number = entry.number;
                self.learn(owner, vec![entry]).await?;
                self.applied_at(number)
            }
            LogOutcome::Conflict(entry) => {
                self.learn(owner, vec![entry]).await?;
                Err(SubmitError::Conflict(self.snapshot().epoch))
            }
            LogOutcome::Failed(failure) => {
                let (received, required, silent) =
                    (failure.received, failure.required, silent.to_vec());
                Err(match failure.effect {
                    Effect::None => SubmitError::NoMajority { received, required, silent },
                    Effect::Unknown | Effect::Chosen => {
                        SubmitError::Unknown { received, required, silent }
                    }
                })
            }
        }
    }

    fn plan(
        &self,
        owner: &Owner,
        before: &ClusterSnapshot,
        members: &[HostId],
    ) -> Result<Plan, SubmitError> {
        let is_alive = owner.is_alive.borrow().clone();
        let set = |wanted: &dyn Fn(HostId) -> bool| -> TargetSet {
            let indices = members.iter().enumerate().filter(|(_, host)| wanted(**host));
            indices.filter_map(|(i, _)| Target::try_from(i).ok()).collect()
        };
        let voters = set(&|host| before.voters.contains(&host));
        let me = before.local.host_id;
        let alive = set(&|host| host == me || is_alive(host));
        let plan = Plan {
            epoch: before.epoch,
            voters,
            readers: TargetSet::EMPTY,
            quorum: voters.len() / 2 + 1,
            read_quorum: 0,
            learners: TargetSet::first(members.len()),
            commit: [CommitQuorum { among: alive, required: alive.len() }].into_iter().collect(),
            own: None,
        };
        plan.check().map_err(|e| SubmitError::Unreadable(e.to_string()))?;
        Ok(plan)
    }

    async fn input_of(
        &self,
        owner: &Owner,
        proposer: &LogProposer<Value>,
        back: Back,
    ) -> LogInput<Value> {
        let Back { from, ballot, answer } = back;
        match answer {
            Ok(Answer::Reply(reply)) => {
                if let Reply::Rejected { why: paxos::acceptor::Rejection::Newer(newer), .. } =
                    &reply
                {
                    let wall = self.inner.rt.wall();
                    // One from the far future is left to the proposer, which refuses it.
                    let _ = owner.clock.borrow_mut().observe(wall, *newer);
                }
                LogInput::Reply { from, reply }
            }
            Ok(Answer::Known(entries)) => {
                let number = proposer.entry();
                let ours = entries.entries.iter().find(|e| e.number == number).cloned();
                if let Err(error) = self.learn(owner, entries.entries).await {
                    tracing::warn!(%error, "cannot apply entries of the metadata log");
                }
                match ours {
                    Some(entry) => LogInput::Known(entry),
                    None => LogInput::Failed { from, ballot },
                }
            }
            Ok(Answer::Missing(first)) => LogInput::Missing { from, ballot, first },
            Err(()) => LogInput::Failed { from, ballot },
        }
    }

    fn spawn_call(
        &self,
        call: Call,
        deadline: Instant,
        back: queue::Sender<Back>,
    ) -> Result<(), SubmitError> {
        let this = self.clone();
        let task = async move {
            let (from, ballot) = (call.target, call.ballot);
            let answer = this.call(call, deadline).await;
            // The send fails if the proposer has ended.
            let _ = back.send(Back { from, ballot, answer }).await;
        };
        let spawned = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "metadata-call", task);
        spawned.map_err(|_| SubmitError::Unavailable)
    }

    async fn call(&self, call: Call, deadline: Instant) -> Result<Answer, ()> {
        let Some(owner) = &self.inner.owner else { return Err(()) };
        if call.host == self.snapshot().local.host_id {
            return self.vote(owner, call.ask).await.map_err(|error| {
                tracing::warn!(%error, "cannot carry out this node's step of a metadata change");
            });
        }
        let verb = match call.ask.request {
            Request::Prepare { .. } => Verb::MetaPrepare,
            Request::Propose(_) => Verb::MetaPropose,
            _ => Verb::MetaCommit,
        };
        if let Some(first) = call.first {
            let learn = Learn { from: first, bytes_max: ENTRIES_BYTES_MAX };
            let entries = self.entries(owner, learn).await.map_err(drop)?;
            let write = |out: &mut Vec<u8>| wire::encode_entries(&entries, out);
            self.request(call.host, Verb::MetaLearn, deadline, write).await.map_err(drop)?;
        }
        let write = |out: &mut Vec<u8>| call.ask.encode(out);
        let payload = self.request(call.host, verb, deadline, write).await.map_err(|error| {
            tracing::debug!(host = %call.host, %error, "no answer to a metadata request");
        })?;
        wire::decode(&payload, Answer::read).map_err(drop)
    }

    async fn request(
        &self,
        host: HostId,
        verb: Verb,
        deadline: Instant,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Vec<u8>, MessagingError> {
        let messaging = self.inner.owner.as_ref().and_then(|o| o.messaging.borrow().clone());
        let Some(messaging) = messaging else { return Err(MessagingError::Stopping) };
        let to = Outgoing { host, shard: ShardId(0), verb, deadline, trace: None };
        let response = messaging.request(&to, write).await?;
        Ok(response.payload)
    }

    /// Hands a change to a voter, for a node that is none.
    pub(crate) async fn forward(
        &self,
        owner: &Owner,
        before: &ClusterSnapshot,
        value: Value,
    ) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        let submission = Submission::Change { expect: before.epoch, value };
        let is_alive = owner.is_alive.borrow().clone();
        let mut voters = before.voters.clone();
        voters.sort_by_key(|v| !is_alive(*v));
        let deadline = self.inner.rt.now() + DECIDE + APPLY;
        let required = before.voters.len() / 2 + 1;
        for voter in voters {
            let write = |out: &mut Vec<u8>| submission.encode(out);
            let payload = match self.request(voter, Verb::MetaSubmit, deadline, write).await {
                Ok(payload) => payload,
                Err(error) if surely_not_delivered(&error) => continue,
                Err(_) => {
                    let silent = voters_without(before, |host| host != voter);
                    return Err(SubmitError::Unknown { received: 0, required, silent });
                }
            };
            let submitted = wire::decode(&payload, Submitted::read)
                .map_err(|e| SubmitError::Unreadable(e.to_string()))?;
            return self.after_submission(owner, voter, submitted).await;
        }
        let silent = voters_without(before, |_| false);
        Err(SubmitError::NoMajority { received: 0, required, silent })
    }

    async fn after_submission(
        &self,
        owner: &Owner,
        voter: HostId,
        submitted: Submitted,
    ) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        match submitted {
            Submitted::Decided(epoch) => {
                self.catch_up(owner, voter, epoch).await?;
                self.applied_at(epoch)
            }
            Submitted::Conflict(epoch) => {
                self.catch_up(owner, voter, epoch).await?;
                Err(SubmitError::Conflict(self.snapshot().epoch))
            }
            Submitted::Rejected(text) | Submitted::Wait(text) => Err(SubmitError::Refused(text)),
            Submitted::Unknown(text) => Err(SubmitError::VoterUnsure(text)),
            Submitted::Unavailable(text) => Err(SubmitError::VoterCannot(text)),
        }
    }

    /// Fetches the entries up to `to` from a node that has them.
    async fn catch_up(&self, owner: &Owner, host: HostId, to: Epoch) -> Result<(), SubmitError> {
        let deadline = self.inner.rt.now() + DECIDE;
        while self.snapshot().epoch < to {
            let next = Epoch(self.snapshot().epoch.0.saturating_add(1));
            let mut learner = Learner::new(next, ENTRIES_BYTES_MAX);
            let learn = learner.request();
            let write = |out: &mut Vec<u8>| wire::encode_learn(learn, out);
            let payload = self.request(host, Verb::MetaFetch, deadline, write).await;
            let payload = payload.map_err(|e| SubmitError::Unreadable(e.to_string()))?;
            let entries = wire::decode(&payload, wire::read_entries)
                .map_err(|e| SubmitError::Unreadable(e.to_string()))?;
            let taken = learner.take(entries);
            let (new, _) = taken.map_err(|e| SubmitError::Unreadable(e.to_string()))?;
            if new.is_empty() {
                break;
            }
            self.learn(owner, new).await?;
        }
        Ok(())
    }

    /// A peer showed that it has entries up to `epoch`: fetches what is missing here, in the
    /// background. Any shard.
    pub fn notice(&self, host: HostId, epoch: Epoch) {
        if epoch <= self.snapshot().epoch {
            return;
        }
        let Some(owner) = &self.inner.owner else {
            let (rt, mesh) = (&self.inner.rt, &self.inner.mesh);
            // No caller waits for it: the next frame of the peer repeats the epoch.
            drop(mesh.call(rt, ShardId(0), crate::MetaRequest::Notice { host, epoch }));
            return;
        };
        if owner.is_learning.replace(true) {
            return;
        }
        let this = self.clone();
        let task = async move {
            let Some(owner) = &this.inner.owner else { return };
            if let Err(error) = this.catch_up(owner, host, epoch).await {
                tracing::debug!(%host, %error, "cannot fetch entries of the metadata log");
            }
            owner.is_learning.set(false);
        };
        let spawned = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "metadata-fetch", task);
        if spawned.is_err() {
            owner.is_learning.set(false);
        }
    }

    /// Asks the members for newer entries until a majority of the voters has answered, at most
    /// until `deadline`. Returns false if no majority answered, so that this node may lag.
    pub async fn catch_up_at_start(&self, deadline: Instant) -> bool {
        let Some(owner) = &self.inner.owner else { return true };
        let snapshot = self.snapshot();
        let me = snapshot.local.host_id;
        if snapshot.voters == [me] {
            return true;
        }
        let mut heard = vec![me];
        loop {
            let snapshot = self.snapshot();
            let silent: Vec<HostId> =
                snapshot.members.keys().filter(|h| !heard.contains(h)).copied().collect();
            for host in silent {
                let pause = self.inner.rt.now() + Duration::from_millis(500);
                let next = Epoch(self.snapshot().epoch.0.saturating_add(1));
                let learn = Learn { from: next, bytes_max: ENTRIES_BYTES_MAX };
                let write = |out: &mut Vec<u8>| wire::encode_learn(learn, out);
                let payload = self.request(host, Verb::MetaFetch, pause.min(deadline), write).await;
                let Ok(payload) = payload else { continue };
                let Ok(entries) = wire::decode(&payload, wire::read_entries) else { continue };
                let end = Epoch(entries.end.0.saturating_sub(1));
                if self.learn(owner, entries.entries).await.is_ok()
                    && self.catch_up(owner, host, end).await.is_ok()
                {
                    heard.push(host);
                }
            }
            let voters = &self.snapshot().voters;
            if voters.iter().filter(|v| heard.contains(v)).count() > voters.len() / 2 {
                return true;
            }
            if self.inner.rt.now() >= deadline {
                return false;
            }
            self.inner.rt.sleep(Duration::from_millis(50)).await;
        }
    }

    /// Serves a `Meta…` request of a peer; shard 0 only. Returns at once.
    pub fn serve_peer(&self, verb: Verb, payload: &[u8], responder: Responder) {
        let this = self.clone();
        let payload = payload.to_vec();
        let task = async move {
            let Some(owner) = &this.inner.owner else {
                return responder.fail(&ErrorReply::Invalid("only shard 0 has the log".to_owned()));
            };
            match this.answer_peer(owner, verb, &payload).await {
                Ok(answer) => responder.respond(|out| out.extend_from_slice(&answer)),
                Err(error) => responder.fail(&error),
            }
        };
        // A closed gate means that this node stops: the dropped responder notifies the peer.
        let _ = self.inner.gate.spawn(&self.inner.rt, Group::Admin, "metadata-peer", task);
    }

    async fn answer_peer(
        &self,
        owner: &Owner,
        verb: Verb,
        payload: &[u8],
    ) -> Result<Vec<u8>, ErrorReply> {
        let invalid = |e: codec::DecodeError| ErrorReply::Invalid(e.to_string());
        let internal = |e: SubmitError| ErrorReply::Internal(e.to_string());
        let mut out = Vec::new();
        match verb {
            Verb::MetaPrepare | Verb::MetaPropose | Verb::MetaCommit => {
                let ask = wire::decode(payload, Ask::read).map_err(invalid)?;
                self.vote(owner, ask).await?.encode(&mut out);
            }
            Verb::MetaLearn => {
                let entries = wire::decode(payload, wire::read_entries).map_err(invalid)?;
                self.learn(owner, entries.entries).await.map_err(internal)?;
            }
            Verb::MetaFetch => {
                let learn = wire::decode(payload, wire::read_learn).map_err(invalid)?;
                let entries = self.entries(owner, learn).await.map_err(internal)?;
                wire::encode_entries(&entries, &mut out);
            }
            Verb::MetaSubmit => {
                let submission = wire::decode(payload, Submission::read).map_err(invalid)?;
                self.submit_for(submission).await.encode(&mut out);
            }
            other => return Err(ErrorReply::UnknownVerb(other.number())),
        }
        Ok(out)
    }

    async fn submit_for(&self, submission: Submission) -> Submitted {
        match submission {
            Submission::Change { expect, value } => match Transformation::decode(&value) {
                Ok(change) => submitted(self.submit_here(expect, vec![change]).await),
                Err(error) => Submitted::Rejected(error.to_string()),
            },
            Submission::Join { member, tokens, replication_factor } => {
                self.join_for(*member, tokens, replication_factor).await
            }
            Submission::Replace { member, address } => self.replace_for(*member, address).await,
        }
    }

    /// Puts a newcomer into the log, with tokens that make the nodes' shares even.
    async fn join_for(&self, member: Member, tokens: u16, replication_factor: u16) -> Submitted {
        for _ in 0..JOIN_ATTEMPTS {
            let snapshot = self.snapshot();
            if let Some(known) = snapshot.members.get(&member.host_id) {
                return asked_before(&snapshot, known, false);
            }
            if let Some(refusal) = departed(&snapshot, member.host_id) {
                return refusal;
            }
            let mut member = member.clone();
            member.state = MemberState::Joining;
            if member.tokens.is_empty() {
                member.tokens = allocate(&Allocation {
                    members: &snapshot.members,
                    datacenter: &member.datacenter,
                    rack: &member.rack,
                    count: tokens,
                    replication_factor: u32::from(replication_factor.max(1)),
                    seed: self.inner.rt.random_u64(),
                });
            }
            let mut changes = self.given_up(&snapshot, &member);
            changes.push(Transformation::Join { member: Arc::new(member) });
            match self.submit_here(snapshot.epoch, changes).await {
                Err(SubmitError::Conflict(_)) => {}
                other => return submitted(other),
            }
        }
        Submitted::Unavailable("the metadata changes too often at the moment".to_owned())
    }

    /// Adds a newcomer to the log as the replacement of the dead member at `address`.
    async fn replace_for(&self, member: Member, address: IpAddr) -> Submitted {
        for _ in 0..JOIN_ATTEMPTS {
            let snapshot = self.snapshot();
            if let Some(known) = snapshot.members.get(&member.host_id) {
                return asked_before(&snapshot, known, true);
            }
            if let Some(refusal) = departed(&snapshot, member.host_id) {
                return refusal;
            }
            let old = match self.replaceable(&snapshot, address) {
                Ok(old) => old,
                Err(text) => return Submitted::Rejected(text),
            };
            let mut changes = self.given_up(&snapshot, &member);
            let member = Member {
                state: MemberState::Joining,
                replaces: Some(old.host_id),
                tokens: old.tokens.clone(),
                ..member.clone()
            };
            changes.push(Transformation::Replace { old: old.host_id, member: Arc::new(member) });
            match self.submit_here(snapshot.epoch, changes).await {
                Err(SubmitError::Conflict(_)) => {}
                other => return submitted(other),
            }
        }
        Submitted::Unavailable("the metadata changes too often at the moment".to_owned())
    }

    /// The dead member that stood at `address`; else why there is none, in words for the operator.
    fn replaceable<'a>(
        &self,
        snapshot: &'a ClusterSnapshot,
        address: IpAddr,
    ) -> Result<&'a Arc<Member>, String> {
        let is_alive = self.inner.owner.as_ref().map(|owner| owner.is_alive.borrow().clone());
        let is_alive = |host: HostId| {
            host == snapshot.local.host_id || is_alive.as_ref().is_none_or(|alive| alive(host))
        };
        let mut there = snapshot.members.values().filter(|m| m.storage.ip() == address);
        let Some(first) = there.next() else {
            return Err(format!(
                "Cannot replace_address {address} because it doesn't exist in gossip"
            ));
        };
        if there.next().is_some() {
            return Err(format!("several members stand at {address}, each at another port"));
        }
        if is_alive(first.host_id) {
            return Err(format!(
                "Cannot replace a live node: node {} at {address} is alive, or was until a moment \
                 ago; stop it, wait until nodetool status shows it as DN, and try again",
                first.host_id
            ));
        }
        // An earlier replacement of the same dead member, whose directory was emptied.
        let of_it = first.replaces.and_then(|old| snapshot.members.get(&old));
        Ok(of_it.unwrap_or(first))
    }

    /// Returns the abandoned joins at the newcomer's address: its directory was emptied before the
    /// join completed, so no node will continue them.
    fn given_up(&self, snapshot: &ClusterSnapshot, newcomer: &Member) -> Vec<Transformation> {
        let is_alive = match &self.inner.owner {
            Some(owner) => owner.is_alive.borrow().clone(),
            None => return Vec::new(),
        };
        let stands_there = snapshot.members.values().filter(|member| {
            member.state == MemberState::Joining
                && member.storage == newcomer.storage
                && !is_alive(member.host_id)
        });
        stands_there.map(|member| Transformation::Leave { host: member.host_id }).collect()
    }
}

/// Returns the refusal of a departed host id: the asking node has not heard of its departure, or
/// its start is a new one.
fn departed(snapshot: &ClusterSnapshot, host: HostId) -> Option<Submitted> {
    snapshot.departed.contains(&host).then(|| {
        Submitted::Rejected(format!(
            "host {host} was taken out of the cluster: it has left, was removed, or its joining was \
             given up; start with an empty data directory to join as a new node"
        ))
    })
}

/// The answer to a newcomer that is a member already: it asked before and did not hear the answer.
fn asked_before(snapshot: &ClusterSnapshot, known: &Member, replaces: bool) -> Submitted {
    let host = known.host_id;
    match known.state {
        MemberState::Joining if known.replaces.is_some() == replaces => {
            Submitted::Decided(snapshot.epoch)
        }
        MemberState::Joining => Submitted::Rejected(match replaces {
            true => format!("host {host} joins already without replacing a node: remove it first"),
            false => format!("host {host} joins already, in the place of another: remove it first"),
        }),
        _ => Submitted::Rejected(format!(
            "host {host} is a member already; start with its own data directory"
        )),
    }
}

/// Returns the addresses of the voters that did not answer.
fn voters_without(
    snapshot: &ClusterSnapshot,
    answered: impl Fn(HostId) -> bool,
) -> Vec<SocketAddr> {
    let silent = snapshot.voters.iter().filter(|host| !answered(**host));
    silent.filter_map(|host| snapshot.members.get(host)).map(|member| member.storage).collect()
}

/// One message to one member.
struct Call {
    target: Target,
    host: HostId,
    ballot: Ballot,
    ask: Ask,
    /// Entries that it lacks and gets first.
    first: Option<Epoch>,
}

fn submitted(result: Result<Arc<ClusterSnapshot>, SubmitError>) -> Submitted {
    match result {
        Ok(snapshot) => Submitted::Decided(snapshot.epoch),
        Err(SubmitError::Conflict(epoch)) => Submitted::Conflict(epoch),
        Err(
            error @ (SubmitError::NoMajority { .. }
            | SubmitError::VoterCannot(_)
            | SubmitError::Unavailable),
        ) => Submitted::Unavailable(error.to_string()),
        Err(
            error
            @ (SubmitError::Unknown { .. } | SubmitError::VoterUnsure(_) | SubmitError::Io(_)),
        ) => Submitted::Unknown(error.to_string()),
        Err(error) if is_passing(&error) => Submitted::Wait(error.to_string()),
        Err(error) => Submitted::Rejected(error.to_string()),
    }
}

/// Returns true if a change is rejected only as long as others are moving.
fn is_passing(error: &SubmitError) -> bool {
    use cluster::{MembershipError as E, MetaLogError};
    matches!(
        error,
        SubmitError::Rejected(MetaLogError::Membership(
            E::Overlap { .. } | E::TooManyMovements { .. } | E::HandingOver { .. } | E::Busy { .. }
        ))
    )
}

fn surely_not_delivered(error: &MessagingError) -> bool {
    match error {
        MessagingError::Lost { maybe_delivered } | MessagingError::Timeout { maybe_delivered } => {
            !maybe_delivered
        }
        MessagingError::Remote(_) | MessagingError::Malformed => false,
        _ => true,
    }
}

/// Why a node is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// It never will be in this form; in words for the operator.
    #[error("{0}")]
    Refused(String),
    /// A retry may succeed: no member answered, or others are moving.
    #[error("{0}")]
    Again(String),
}

/// Request of a newcomer.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// Itself; without tokens when it has no wish.
    pub member: Member,
    /// Number of tokens to allocate then.
    pub tokens: u16,
    /// For which replication factor they make the shares even.
    pub replication_factor: u16,
    /// Address of the dead member whose tokens it gets instead.
    pub replaces: Option<IpAddr>,
}

/// A newcomer's first steps, before it has a log: asks the member at `host` to let it in. Repeating
/// the request is harmless.
///
/// # Errors
/// The member's answer, in words for the operator.
pub async fn ask_to_join(
    messaging: &Messaging,
    host: HostId,
    request: &JoinRequest,
    deadline: Instant,
) -> Result<Epoch, JoinError> {
    let to = Outgoing { host, shard: ShardId(0), verb: Verb::MetaSubmit, deadline, trace: None };
    let member = Box::new(request.member.clone());
    let submission = match request.replaces {
        Some(address) => Submission::Replace { member, address },
        None => Submission::Join {
            member,
            tokens: request.tokens,
            replication_factor: request.replication_factor,
        },
    };
    let response = messaging.request(&to, |out| submission.encode(out)).await;
    let response = response.map_err(|e| JoinError::Again(e.to_string()))?;
    let submitted = wire::decode(&response.payload, Submitted::read);
    match submitted.map_err(|e| JoinError::Again(e.to_string()))? {
        Submitted::Decided(epoch) => Ok(epoch),
        Submitted::Conflict(_) => {
            Err(JoinError::Again("the metadata changed at the same time".to_owned()))
        }
        Submitted::Rejected(text) => Err(JoinError::Refused(text)),
        Submitted::Unknown(text) | Submitted::Unavailable(text) | Submitted::Wait(text) => {
            Err(JoinError::Again(text))
        }
    }
}

/// Fetches a member's whole log, for a newcomer: frames for [`crate::log::create`], and its end.
///
/// # Errors
/// The member does not answer, or its answer cannot be used.
pub async fn fetch_log(
    messaging: &Messaging,
    host: HostId,
    deadline: Instant,
) -> Result<(Vec<u8>, Epoch), String> {
    let mut framed = Vec::new();
    let mut learner = Learner::new(Epoch(1), ENTRIES_BYTES_MAX);
    let mut last = Epoch(0);
    let mut question = Some(learner.request());
    while let Some(learn) = question {
        let verb = Verb::MetaFetch;
        let to = Outgoing { host, shard: ShardId(0), verb, deadline, trace: None };
        let response = messaging.request(&to, |out| wire::encode_learn(learn, out)).await;
        let response = response.map_err(|e| e.to_string())?;
        let entries: Entries<Value> =
            wire::decode(&response.payload, wire::read_entries).map_err(|e| e.to_string())?;
        let (new, more) = learner.take(entries).map_err(|e| e.to_string())?;
        for entry in new {
            let origin = (!entry.origin.is_zero()).then(|| entry.origin.to_uuid());
            cluster::metalog::encode_frame(entry.number, origin, &entry.value, &mut framed);
            last = entry.number;
        }
        question = more;
    }
    if last == Epoch(0) {
        return Err("the member has no metadata log".to_owned());
    }
    Ok((framed, last))
}
