//! Driver of the machine of one operation: sends its requests and feeds it the answers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use cluster::{ClusterSnapshot, Consistency};
use data::command::ReadCommand;
use data::page_cursor::PageChain;
use data::replica_page::{PageLimits, ReplicaPage};
use internode::{ReadLimits, Verb};
use messaging::Outgoing;
use paxos::acceptor::{Reply, Request};
use paxos::plan::{Target, TargetSet};
use paxos::proposer::{Context, Decision, Input, Kind, Options, Outcome, Output};
use paxos::queue::Left;
use paxos::wire::{Answer, Electorate, MessageRef};
use paxos::{Ballot, Commit, Proposer, Scope};
use request::types::Failures;
use request::{ReconcileCommand, ReplicaError, ReplicaInfo, reconcile};
use stdx::{Epoch, HostId, Instant};

use crate::Lwt;
use crate::paxos_row::{Partition, Payload};
use crate::plan::{Level, Targets, Voters, voters};
use crate::proposal_queue::Turn;
use crate::serve::{Asked, Incoming, is_sound};
use crate::shards::Shards;
use crate::{BACKOFF_MAX, BACKOFF_MIN};
use replica::ClusterView;
use replica::RequestTrace;
use replica::TableFacts;
use replica::{of_reply, replica_error};

/// Description of one operation.
pub(crate) struct Job {
    pub(crate) facts: Rc<TableFacts>,
    pub(crate) snapshot: Arc<ClusterSnapshot>,
    pub(crate) partition: Partition,
    pub(crate) command: ReadCommand,
    pub(crate) limits: PageLimits,
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    pub(crate) commit: Consistency,
    pub(crate) durable: bool,
    pub(crate) deadline: Instant,
    pub(crate) commit_deadline: Instant,
    pub(crate) trace: Option<Rc<RequestTrace>>,
}

type AnswerFuture = Pin<Box<dyn Future<Output = Result<Answer<Payload>, ReplicaError>>>>;
type SnapshotFuture = Pin<Box<dyn Future<Output = Arc<ClusterSnapshot>>>>;

/// Event of an operation.
#[expect(clippy::large_enum_variant, reason = "one at a time, and not kept")]
enum Event {
    Answer(Target, Ballot, Result<Answer<Payload>, ReplicaError>),
    Snapshot(Arc<ClusterSnapshot>),
    Tick,
}

/// An operation under way.
pub(crate) struct Driver<N: Shards> {
    lwt: Lwt<N>,
    cluster: Option<Rc<ClusterView>>,
    job: Job,
    machine: Proposer<Payload>,
    targets: Targets,
    /// Rows that prepares read.
    rows: Rc<Cell<u32>>,
    /// Electorates of the plans so far: messages of a round carry those of its plan.
    plans: Vec<(Epoch, Electorate, Electorate)>,
    calls: Vec<(Target, Ballot, AnswerFuture)>,
    replanning: Option<SnapshotFuture>,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// Record of a traced operation.
    noted: Noted,
    /// The round that `pages` were read in.
    round: Ballot,
    pages: Vec<(Target, Vec<u8>)>,
    turn: Option<Turn<N>>,
    /// Latest failures by replica.
    pub(crate) failures: Failures,
    outcome: Option<Outcome>,
    is_finished: bool,
}

impl<N: Shards> Driver<N> {
    pub(crate) fn new(
        lwt: &Lwt<N>,
        job: Job,
        voters: Voters,
        targets: Targets,
        turn: Turn<N>,
    ) -> Driver<N> {
        let left = job.deadline.since(lwt.env().rt.now());
        let options = Options {
            deadline: job.deadline,
            commit_deadline: job.commit_deadline,
            round_timeout: (left / 4).max(BACKOFF_MAX),
            backoff_min: BACKOFF_MIN,
            backoff_max: BACKOFF_MAX,
            scope: job.scope,
        };
        let Voters { epoch, plan, electorate, everybody } = voters;
        Driver {
            lwt: lwt.clone(),
            cluster: lwt.cluster(),
            machine: Proposer::new(job.kind, plan, options),
            rows: Rc::new(Cell::new(job.limits.rows)),
            job,
            targets,
            plans: vec![(epoch, electorate, everybody)],
            calls: Vec::new(),
            replanning: None,
            timer: None,
            noted: Noted::default(),
            round: Ballot::ZERO,
            pages: Vec::new(),
            turn: Some(turn),
            failures: Failures::new(),
            outcome: None,
            is_finished: false,
        }
    }

    /// Returns the inputs of a decision: the table, the row limit from the next round on, and the
    /// partition.
    pub(crate) fn facts(&self) -> (Rc<TableFacts>, Rc<Cell<u32>>, Partition) {
        (self.job.facts.clone(), self.rows.clone(), self.job.partition.clone())
    }

    fn limits(&self) -> PageLimits {
        PageLimits { rows: self.rows.get(), ..self.job.limits }
    }

    pub(crate) fn partition(&self) -> &Partition {
        &self.job.partition
    }

    /// Rounds begun, and those lost to other proposers.
    pub(crate) fn rounds(&self) -> (u32, u32) {
        (self.machine.rounds(), self.machine.contentions())
    }

    /// Runs until the client can be answered. `decide` gets the round and its merged read.
    pub(crate) async fn run(
        &mut self,
        decide: &mut impl FnMut(Ballot, Vec<u8>) -> Decision<Payload>,
    ) -> Outcome {
        let mut inputs = VecDeque::from([Input::Start]);
        loop {
            self.feed(&mut inputs, decide);
            if let Some(outcome) = self.outcome.take() {
                return outcome;
            }
            inputs.extend(self.next_input().await);
        }
    }

    /// Finishes the work after the answer: the commit's other acknowledgements, hints, the prune.
    pub(crate) fn finish_behind(mut self) {
        if self.is_finished {
            return;
        }
        let lwt = self.lwt.clone();
        lwt.env().spawn_or_drop("paxos-commit", async move {
            let mut inputs = VecDeque::new();
            while !self.is_finished {
                inputs.extend(self.next_input().await);
                self.feed(&mut inputs, &mut |_, _| Decision::Abort);
            }
        });
    }

    fn feed(
        &mut self,
        inputs: &mut VecDeque<Input<Payload>>,
        decide: &mut impl FnMut(Ballot, Vec<u8>) -> Decision<Payload>,
    ) {
        while let Some(input) = inputs.pop_front() {
            let mut outputs = Vec::new();
            {
                let rt = &self.lwt.env().rt;
                let me = self.job.snapshot.local.host_id;
                let mut clock = self.lwt.inner.clock(rt, me);
                let (now, wall, random) = (rt.now(), rt.wall(), rt.random_u64());
                let mut context = Context { now, wall, random, clock: &mut clock };
                self.machine.step(&mut context, input, &mut outputs);
            }
            if self.job.trace.is_some() {
                self.note_step(&outputs);
            }
            for output in outputs.drain(..) {
                self.obey(output, inputs, decide);
            }
        }
    }

    fn obey(
        &mut self,
        output: Output<Payload>,
        inputs: &mut VecDeque<Input<Payload>>,
        decide: &mut impl FnMut(Ballot, Vec<u8>) -> Decision<Payload>,
    ) {
        match output {
            Output::Prepare { to, readers, ballot, write, .. } => {
                self.round = ballot;
                self.pages.clear();
                self.send(to, readers, ballot, &Request::Prepare { ballot, write }, inputs);
            }
            Output::Refresh { to, ballot, commit } => {
                let request = Request::Refresh { ballot, commit };
                self.send(to, TargetSet::EMPTY, ballot, &request, inputs);
            }
            Output::Propose { to, proposal, .. } => {
                let ballot = proposal.ballot;
                self.send(to, TargetSet::EMPTY, ballot, &Request::Propose(proposal), inputs);
            }
            Output::Conclude { to, proposal, .. } => {
                let ballot = proposal.ballot;
                self.send(to, TargetSet::EMPTY, ballot, &Request::Conclude(proposal), inputs);
            }
            Output::Commit { to, commit } => {
                let ballot = commit.ballot;
                self.send(to, TargetSet::EMPTY, ballot, &Request::Commit(commit), inputs);
            }
            Output::Prune { to, ballot } => self.prune(to, ballot),
            Output::Decide { ballot, replies } => {
                let decision = decide(ballot, self.merged(replies));
                self.noted.decided = Some((ballot, matches!(decision, Decision::Value(_))));
                inputs.push_back(Input::Decided(decision));
            }
            Output::Replan { at_least } => self.replan(at_least),
            Output::WakeAt(at) => {
                let rt = self.lwt.env().rt.clone();
                self.timer = Some(Box::pin(async move { rt.sleep_until(at).await }));
            }
            Output::SlotFree => {
                // Reported before the commit's outcome, after every other one.
                let left = match self.outcome {
                    None | Some(Outcome::Applied | Outcome::Read) => Left::Settled,
                    Some(Outcome::NotApplied | Outcome::Failed(_)) => Left::Unsettled,
                };
                if let Some(turn) = self.turn.take() {
                    turn.end(left);
                }
            }
            Output::Done(outcome) => self.outcome = Some(outcome),
            Output::Hint { to, commit } => self.hint(to, &commit),
            Output::Finished => self.is_finished = true,
        }
    }

    fn electorate_of(&self, request: &Request<Payload>) -> Electorate {
        let epoch = self.machine.plan().epoch;
        let plan = self.plans.iter().rev().find(|(e, _, _)| *e == epoch);
        plan.map_or_else(Electorate::default, |(_, scope, all)| match request {
            Request::Commit(_) => all.clone(),
            _ => scope.clone(),
        })
    }

    fn send(
        &mut self,
        to: TargetSet,
        readers: TargetSet,
        ballot: Ballot,
        request: &Request<Payload>,
        inputs: &mut VecDeque<Input<Payload>>,
    ) {
        let electorate = self.electorate_of(request);
        for target in to.iter() {
            let Some(replica) = self.targets.get(target).copied() else { continue };
            let is_alive = replica.is_self
                || self.cluster.as_ref().is_some_and(|c| (c.parts.is_alive)(replica.host));
            if !is_alive {
                self.note_failure(replica.host, ReplicaError::NodeDown);
                inputs.push_back(Input::Failed { from: target, ballot });
                continue;
            }
            let reads = readers.contains(target);
            let call = match replica.is_self {
                true => self.ask_own(&electorate, request.clone(), reads),
                false => self.ask_peer(&replica, &electorate, request, reads),
            };
            if let Some(call) = call {
                self.calls.push((target, ballot, call));
            }
        }
    }

    fn ask_own(
        &self,
        electorate: &Electorate,
        request: Request<Payload>,
        reads: bool,
    ) -> Option<AnswerFuture> {
        let job = &self.job;
        let incoming = Incoming {
            partition: job.partition.clone(),
            epoch: self.machine.plan().epoch,
            electorate: electorate.clone(),
            request,
            read: reads.then(|| (job.command.clone(), self.limits())),
            durable: job.durable,
            deadline: job.commit_deadline,
            is_served: false,
        };
        let noted = job.trace.clone().map(|trace| (trace, Asked::of(&incoming.request)));
        // Sent now, in the order of the machine.
        let answer = self.lwt.consider(&job.snapshot, incoming);
        Some(Box::pin(async move {
            let answer = answer.await;
            if let Some((trace, asked)) = noted {
                trace.note(|| asked.describe(answer.as_ref().ok()));
            }
            answer.map_err(|error| of_reply(&error))
        }))
    }

    fn ask_peer(
        &self,
        replica: &ReplicaInfo,
        electorate: &Electorate,
        request: &Request<Payload>,
        reads: bool,
    ) -> Option<AnswerFuture> {
        let cluster = self.cluster.clone()?;
        let job = &self.job;
        let mut read = Vec::new();
        if reads {
            let PageLimits { rows, rows_per_partition, bytes, .. } = self.limits();
            let (rows, bytes) = (u64::from(rows), bytes as u64);
            let limits = ReadLimits { rows, bytes, rows_per_partition };
            internode::encode_read(&mut read, &job.command, limits, false);
        }
        let (verb, deadline) = match request {
            Request::Prepare { .. } => (Verb::PaxosPrepare, job.deadline),
            Request::Propose(_) | Request::Conclude(_) => (Verb::PaxosPropose, job.deadline),
            Request::Commit(_) => (Verb::PaxosCommit, job.commit_deadline),
            Request::Refresh { .. } => (Verb::PaxosRefresh, job.deadline),
            Request::Prune { .. } => (Verb::PaxosPrune, job.commit_deadline),
        };
        let shard = job.partition.owner(cluster.shard_map_of(replica.host));
        let trace = job.trace.as_ref().map(|trace| trace.id());
        let outgoing = Outgoing { host: replica.host, shard, verb, deadline, trace };
        let message = MessageRef {
            table: job.partition.table,
            key: &job.partition.key,
            epoch: self.machine.plan().epoch,
            electorate,
            request,
            read: &read,
        };
        if verb == Verb::PaxosPrune {
            // Losing it costs a few bytes.
            let _ = cluster.parts.messaging.send_one_way(&outgoing, |out| message.encode(out));
            return None;
        }
        let mut bytes = 0;
        let sent = cluster.parts.messaging.request(&outgoing, |out| {
            let before = out.len();
            message.encode(out);
            bytes = out.len() - before;
        });
        if let Some(trace) = &job.trace {
            trace.note_sent(&cluster, replica.host, verb, bytes);
        }
        let trace = job.trace.clone();
        let (facts, partition) = (job.facts.clone(), job.partition.clone());
        let (host, reversed) = (replica.host, job.command.reversed);
        Some(Box::pin(async move {
            let response = sent.await.map_err(|error| replica_error(&error))?;
            if let Some(trace) = trace {
                trace.note(|| format!("Processing response from {}", cluster.shown(host)));
            }
            check_answer(&facts, &partition, reversed, &response.payload).map_err(|what| {
                tracing::warn!(?host, what, "discarding an answer of a replica");
                ReplicaError::Unknown
            })
        }))
    }

    fn prune(&mut self, to: TargetSet, ballot: Ballot) {
        if self.job.trace.is_none() && self.cluster.is_some() {
            let targets = to.iter().filter_map(|target| self.targets.get(target));
            for replica in targets {
                let host = (!replica.is_self).then_some(replica.host);
                self.lwt.prune_soon(host, &self.job.partition, ballot);
            }
            return;
        }
        // A trace shows it, and a node that is alone has nothing to send.
        let request = Request::Prune { ballot };
        let electorate = self.electorate_of(&request);
        for target in to.iter() {
            let Some(replica) = self.targets.get(target).copied() else { continue };
            let call = match replica.is_self {
                true => self.ask_own(&electorate, request.clone(), false),
                false => self.ask_peer(&replica, &electorate, &request, false),
            };
            drop(call);
        }
    }

    fn hint(&self, to: TargetSet, commit: &Commit<Payload>) {
        let (Some(cluster), Some(mutation)) = (&self.cluster, &commit.value) else { return };
        for target in to.iter() {
            let Some(replica) = self.targets.get(target).filter(|r| !r.is_self) else { continue };
            let hints = &cluster.parts.hints;
            if hints.may_hint(replica.host) {
                hints.store(replica.host, mutation, self.lwt.env().rt.wall());
            }
        }
    }

    fn replan(&mut self, at_least: Epoch) {
        let Some(cluster) = self.cluster.clone() else { return };
        let until = self.job.commit_deadline;
        self.replanning = Some(Box::pin(async move {
            if (cluster.parts.snapshot)().epoch < at_least
                && let Some(wait) = cluster.parts.epoch_wait.clone()
            {
                wait(at_least, until).await;
            }
            (cluster.parts.snapshot)()
        }));
    }

    fn plan_of(&mut self, snapshot: &ClusterSnapshot) -> Input<Payload> {
        let Job { partition, scope, commit, .. } = &self.job;
        let targets = &mut self.targets;
        let level = Level { scope: *scope, commit: *commit };
        let voters = voters(self.lwt.env(), snapshot, partition, level, targets);
        match voters {
            Ok(Some(Voters { epoch, plan, electorate, everybody })) => {
                self.plans.push((epoch, electorate, everybody));
                Input::Plan(plan)
            }
            Ok(None) | Err(_) => Input::NoPlan,
        }
    }

    /// The reads of this round as one page.
    fn merged(&self, replies: TargetSet) -> Vec<u8> {
        let command = ReconcileCommand {
            reversed: self.job.command.reversed,
            now: self.job.command.now,
            rows_per_partition: self.job.limits.rows_per_partition,
            counts_static: self.job.command.wants_static,
        };
        let readers = replies.and(self.machine.plan().readers);
        let pages = self.pages.iter().filter(|(t, _)| readers.contains(*t));
        let open = |page| ReplicaPage::open(page).map(PageChain::new);
        let sources: Result<Vec<_>, _> =
            pages.map(|(t, page)| Ok((request::Target(*t), open(page)?))).collect();
        let merged = sources
            .map_err(|error: data::replica_page::PageError| error.to_string())
            .and_then(|s| {
                let merged = reconcile(&self.job.facts.shape, &command, &s);
                merged.map_err(|error| error.to_string())
            });
        match merged {
            Ok(merged) => merged.page,
            Err(error) => stdx::invariant::broken(format_args!("pages that were checked: {error}")),
        }
    }

    fn note_failure(&mut self, host: HostId, reason: ReplicaError) {
        match self.failures.iter_mut().find(|(h, _)| *h == host) {
            Some((_, known)) => *known = reason,
            None => self.failures.push((host, reason)),
        }
    }

    async fn next_input(&mut self) -> Option<Input<Payload>> {
        let (from, ballot, answer) = match poll_fn(|cx| self.poll(cx)).await {
            Event::Tick => return Some(Input::Tick),
            Event::Snapshot(snapshot) => return Some(self.plan_of(&snapshot)),
            Event::Answer(from, ballot, answer) => (from, ballot, answer),
        };
        match answer {
            Ok(Answer::Reply { reply, page }) => {
                if let Reply::Promise(promise) = &reply
                    && promise.ballot == self.round
                    && !page.is_empty()
                    && self.pages.iter().all(|(t, _)| *t != from)
                {
                    self.pages.push((from, page));
                }
                Some(Input::Reply { from, reply })
            }
            Ok(Answer::WrongEpoch { ballot, epoch }) => {
                Some(Input::WrongEpoch { from, ballot, epoch })
            }
            Err(reason) => {
                let host = self.targets.get(from).map(|r| r.host);
                if let Some(host) = host {
                    self.note_failure(host, reason);
                }
                Some(Input::Failed { from, ballot })
            }
        }
    }

    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Event> {
        for at in 0..self.calls.len() {
            let Some((_, _, future)) = self.calls.get_mut(at) else { break };
            let Poll::Ready(answer) = future.as_mut().poll(cx) else { continue };
            let (target, ballot, future) = self.calls.remove(at);
            drop(future);
            return Poll::Ready(Event::Answer(target, ballot, answer));
        }
        if let Some(replanning) = &mut self.replanning
            && let Poll::Ready(snapshot) = replanning.as_mut().poll(cx)
        {
            self.replanning = None;
            return Poll::Ready(Event::Snapshot(snapshot));
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx).map(|()| {
                self.timer = None;
                Event::Tick
            }),
            None => Poll::Pending,
        }
    }
}

/// Parts of an operation that its trace already records.
#[derive(Default)]
struct Noted {
    /// The round that was decided last, and whether with something to write.
    decided: Option<(Ballot, bool)>,
    /// The round that was proposed last.
    proposed: Option<Ballot>,
    contentions: u32,
}

impl<N: Shards> Driver<N> {
    /// Notes what the machine does, in the words of Cassandra's `Paxos` and `PaxosPrepare`.
    #[cold]
    fn note_step(&mut self, outputs: &[Output<Payload>]) {
        let Some(trace) = self.job.trace.clone() else { return };
        let contentions = self.machine.contentions();
        if contentions > self.noted.contentions {
            self.noted.contentions = contentions;
            trace.note(|| match self.noted.proposed == Some(self.round) {
                true => "Paxos proposal not accepted (pre-empted by a higher ballot)".to_owned(),
                false => "Some replicas have already promised a higher ballot than ours; retrying"
                    .to_owned(),
            });
        }
        for output in outputs {
            match output {
                Output::Prepare { readers, ballot, .. } => trace.note(|| {
                    let with = if readers.is_empty() { "" } else { " with read" };
                    format!("Preparing {}{with}", ballot.to_uuid())
                }),
                Output::Refresh { to, ballot, commit } => {
                    trace.note(|| {
                        "Repairing replicas that missed the most recent commit".to_owned()
                    });
                    let hosts = to.iter().filter_map(|target| self.targets.get(target));
                    for replica in hosts.filter(|replica| !replica.is_self) {
                        let Some(cluster) = &self.cluster else { continue };
                        let (missing, to) = (commit.ballot.to_uuid(), cluster.shown(replica.host));
                        let promised = ballot.to_uuid();
                        trace.note(|| format!("Refresh {missing} and Confirm {promised} to {to}"));
                    }
                }
                Output::Propose { proposal, .. } | Output::Conclude { proposal, .. }
                    if self.noted.proposed != Some(proposal.ballot) =>
                {
                    let ballot = proposal.ballot;
                    self.noted.proposed = Some(ballot);
                    let round = ballot.to_uuid();
                    match self.noted.decided {
                        Some((decided, true)) if decided == ballot => trace.note(|| {
                            format!(
                                "CAS precondition is met; proposing client-requested updates for \
                                 {round}"
                            )
                        }),
                        Some((decided, false)) if decided == ballot => {
                            if self.job.kind == Kind::Write {
                                trace.note(|| {
                                    "CAS precondition does not match current values; proposing empty \
                                     update"
                                        .to_owned()
                                });
                            }
                        }
                        _ => trace.note(|| format!("Finishing incomplete paxos round {round}")),
                    }
                }
                _ => {}
            }
        }
    }
}

/// Reads a peer's answer and checks what of it others will be given.
fn check_answer(
    facts: &TableFacts,
    partition: &Partition,
    reversed: bool,
    payload: &[u8],
) -> Result<Answer<Payload>, &'static str> {
    let answer = Answer::<Payload>::decode(payload).map_err(|_| "no answer")?;
    let Answer::Reply { reply: Reply::Promise(promise), page } = &answer else {
        return Ok(answer);
    };
    let accepted = promise.accepted.as_ref().and_then(|a| a.value.as_ref());
    let committed = promise.committed.as_ref().and_then(|c| c.value.as_ref());
    for value in accepted.into_iter().chain(committed) {
        if !is_sound(&facts.table, partition, value) {
            return Err("a value is not a mutation of the partition");
        }
    }
    if !page.is_empty() && ReplicaPage::parse(page, &facts.shape, reversed).is_err() {
        return Err("no page");
    }
    Ok(answer)
}
