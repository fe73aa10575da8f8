//! Steps of a write, and what its machine wants done.

use std::rc::Rc;
use std::time::Duration;

use internode::{ForwardAck, ForwardTarget, Mutation, MutationForward, Verb};
use messaging::{Completion, MessagingError, Outgoing};
use request::{
    BatchInput, BatchOutput, Outputs, ReplicaError, RequestError, Target, WriteInput, WriteOutput,
};
use smallvec::SmallVec;
use stdx::{Instant, WallMicros};
use store::StoreError;

use super::applying::Acknowledge;
use super::{Attached, Machine, PassedOn, Purpose, Running, Write, Writer};
use crate::replicated::batch::batch_log::BatchTable;
use crate::replicated::batch::batch_wire::{self, BatchRemove};
use crate::shared::correlation_ids::{Sent, log_token, mutation_token};
use replica::ReplicaMutation;
use replica::RequestTrace;
use replica::{of_reply, of_store, replica_error};

/// Event of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Start,
    Tick,
    Mutation(u16, WriteInput),
    LogStored(u8),
    LogFailed(u8, ReplicaError),
}

impl Event {
    fn for_one(self) -> Option<WriteInput> {
        match self {
            Event::Start => Some(WriteInput::Start),
            Event::Tick => Some(WriteInput::Tick),
            Event::Mutation(_, input) => Some(input),
            Event::LogStored(_) | Event::LogFailed(..) => None,
        }
    }

    fn for_batch(self) -> BatchInput {
        match self {
            Event::Start => BatchInput::Start,
            Event::Tick => BatchInput::Tick,
            Event::Mutation(index, input) => BatchInput::Mutation { index, input },
            Event::LogStored(from) => BatchInput::LogStored { from },
            Event::LogFailed(from, reason) => BatchInput::LogFailed { from, reason },
        }
    }
}

/// Follow-up events of a step.
type Events = SmallVec<[Event; 4]>;

impl Writer {
    /// Steps a write and executes the outputs of its machine, until none follows.
    pub(super) fn drive(&self, attached: &Attached, write: &Rc<Write>, now: Instant, event: Event) {
        let mut running = write.running.borrow_mut();
        if running.is_finished {
            return;
        }
        let mut events = Events::new();
        events.push(event);
        let mut at = 0;
        while let Some(event) = events.get(at).copied() {
            at += 1;
            self.step(attached, write, &mut running, now, event, &mut events);
        }
        if running.machine_is_finished() {
            finish(attached, &mut running, now);
        }
        let is_over = running.is_answered && !running.purpose.waits_for_all();
        let waker = if is_over || running.is_finished { running.waker.take() } else { None };
        let is_free = running.is_finished && running.open == 0;
        let name = running.name;
        drop(running);
        if is_free {
            attached.writes.free(name);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn step(
        &self,
        attached: &Attached,
        write: &Rc<Write>,
        running: &mut Running,
        now: Instant,
        event: Event,
        events: &mut Events,
    ) {
        match &mut running.machine {
            Machine::One(request) => {
                let Some(input) = event.for_one() else { return };
                let mut outputs = Outputs::new();
                request.step(now, input, &mut outputs);
                for output in outputs.drain(..) {
                    self.act(attached, write, running, 0, output, events);
                }
            }
            Machine::Batch(request) => {
                let mut outputs = Outputs::new();
                request.step(now, event.for_batch(), &mut outputs);
                for output in outputs.drain(..) {
                    match output {
                        BatchOutput::Mutation { index, output } => {
                            self.act(attached, write, running, index, output, events);
                        }
                        BatchOutput::StoreLog { to } => {
                            self.store_log(attached, write, running, to, events);
                        }
                        BatchOutput::RemoveLog { to } => self.remove_log(attached, running, to),
                        BatchOutput::WakeAt(at) => attached.writes.wake_at(at, running.name),
                        BatchOutput::Done(result) => answer(attached, running, result),
                    }
                }
            }
        }
    }

    fn act(
        &self,
        attached: &Attached,
        write: &Rc<Write>,
        running: &mut Running,
        index: u16,
        output: WriteOutput,
        events: &mut Events,
    ) {
        match output {
            WriteOutput::ApplyLocal { target } => {
                let Some(mutation) = running.mutation(index) else { return };
                if let Some(trace) = &running.trace {
                    self.env().note_own_write(&mutation.bytes, |text| trace.note(|| text));
                }
                let who = Acknowledge::Write { write: write.clone(), index, target };
                let done = match running.purpose {
                    Purpose::Counted => self.commit_own(who),
                    _ => self.apply_own(mutation.as_slice(), who),
                };
                if let Some((_, result)) = done {
                    events.push(Event::Mutation(index, applied(target, &result)));
                }
            }
            WriteOutput::Send { to, forward } => {
                if let Err(error) = send(attached, running, index, to, forward) {
                    let reason = replica_error(&error);
                    events.push(Event::Mutation(index, WriteInput::Failed { from: to, reason }));
                }
            }
            WriteOutput::StoreHint { to } => {
                let input = if self.store_hint(attached, running, index, to) {
                    WriteInput::HintStored { to }
                } else {
                    WriteInput::HintFailed { to }
                };
                events.push(Event::Mutation(index, input));
            }
            WriteOutput::WakeAt(at) => attached.writes.wake_at(at, running.name),
            WriteOutput::Done(result) => answer(attached, running, result),
        }
    }

    fn store_hint(&self, attached: &Attached, running: &Running, index: u16, to: Target) -> bool {
        let replica = running.request(index).and_then(|r| r.plan().replicas.get(to));
        let (Some(replica), Some(mutation)) = (replica, running.mutation(index)) else {
            return false;
        };
        // A hint is as old as its write.
        let written_at = match running.purpose {
            Purpose::BatchReplay(written_at) | Purpose::MovedHint(written_at) => written_at,
            Purpose::Client | Purpose::Counted => {
                let age = self.env().rt.now().since(running.began);
                let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
                WallMicros(self.env().rt.wall().0.saturating_sub(age))
            }
        };
        let is_stored =
            attached.cluster.parts.hints.store(replica.host, &mutation.bytes, written_at);
        if is_stored {
            attached.cluster.counters.hints.inc();
        }
        is_stored
    }

    fn store_log(
        &self,
        attached: &Attached,
        write: &Rc<Write>,
        running: &mut Running,
        to: u8,
        events: &mut Events,
    ) {
        let (Machine::Batch(request), Some(log)) = (&running.machine, &running.log) else { return };
        let Some(host) = request.log_host(to) else { return };
        self.inner.log.note_logged();
        let mutations = running.mutations.iter().map(|m| m.bytes.as_slice());
        if host == log.snapshot.local.host_id {
            let Some(table) = BatchTable::of(&log.snapshot.schema) else {
                events.push(Event::LogFailed(to, ReplicaError::IncompatibleSchema));
                return;
            };
            let mut next_id = batch_wire::following(log.id);
            let entry = table.entry(log.id.as_bytes(), log.written_at, mutations, &mut next_id);
            self.inner.log.note_stored(*log.id.as_bytes(), self.env().rt.now());
            let who = Acknowledge::Log { write: write.clone(), place: to };
            let entry = ReplicaMutation::durable(log.token(), entry.as_slice());
            if let Some((_, result)) = self.apply_own(entry, who) {
                events.push(logged(to, &result));
            }
            return;
        }
        let outgoing = Outgoing {
            host,
            shard: log.owner(attached.cluster.shard_map_of(host)),
            verb: Verb::BatchStore,
            deadline: running.deadline,
            trace: running.trace.as_ref().map(|trace| trace.id()),
        };
        let mut bytes = 0;
        let sent = attached.client.send(&outgoing, log_token(running.name.slot, to), |out| {
            let before = out.len();
            batch_wire::encode_store(out, log.id, log.written_at, mutations);
            bytes = out.len() - before;
        });
        if let Some(trace) = &running.trace {
            trace.note_sent(&attached.cluster.view, host, Verb::BatchStore, bytes);
        }
        match sent {
            Ok(_) => running.open += 1,
            Err(error) => events.push(Event::LogFailed(to, replica_error(&error))),
        }
    }

    /// Sends the removal of the log entry without waiting for it. Where it does not arrive the
    /// batch is replayed, which changes nothing.
    fn remove_log(&self, attached: &Attached, running: &Running, to: u8) {
        let (Machine::Batch(request), Some(log)) = (&running.machine, &running.log) else { return };
        let Some(host) = request.log_host(to) else { return };
        if host == log.snapshot.local.host_id {
            if let Some(table) = BatchTable::of(&log.snapshot.schema) {
                self.inner.log.remove_stored(table, log.id.as_bytes(), log.written_at);
            }
            return;
        }
        let outgoing = Outgoing {
            host,
            shard: log.owner(attached.cluster.shard_map_of(host)),
            verb: Verb::BatchRemove,
            deadline: self.env().rt.now() + REMOVAL_TIME,
            trace: None,
        };
        let remove = BatchRemove { id: log.id, written_at: log.written_at };
        let _ = attached.cluster.parts.messaging.send_one_way(&outgoing, |out| remove.encode(out));
    }

    /// This node has applied, or not, a mutation of a write.
    pub(crate) fn write_applied(
        &self,
        write: &Rc<Write>,
        index: u16,
        target: Target,
        result: &Result<(), StoreError>,
    ) {
        self.happened(write, Event::Mutation(index, applied(target, result)));
    }

    /// This node has stored, or not, the log of a batch.
    pub(crate) fn log_applied(
        &self,
        write: &Rc<Write>,
        place: u8,
        result: &Result<(), StoreError>,
    ) {
        self.happened(write, logged(place, result));
    }

    fn happened(&self, write: &Rc<Write>, event: Event) {
        let Some(attached) = self.attached() else { return };
        self.drive(attached, write, self.env().rt.now(), event);
    }

    /// A request to a peer has ended, or one of its answers has come.
    pub(crate) fn write_completed(&self, sent: Sent, completion: Completion<'_>) {
        let Some(attached) = self.attached() else { return };
        let (Sent::Mutation { slot, .. } | Sent::Log { slot, .. }) = sent else { return };
        let is_last = !completion.result.as_ref().is_ok_and(|a| a.more);
        if is_last && matches!(sent, Sent::Mutation { .. }) {
            attached.backlogs.ended(attached.cluster.now(), &completion);
        }
        let Some(write) = attached.writes.in_slot(slot) else { return };
        let event = {
            let mut running = write.running.borrow_mut();
            if is_last {
                running.open = running.open.saturating_sub(1);
            }
            if let Some(trace) = &running.trace {
                note_answer(attached, &running, trace, sent, &completion);
            }
            event_of(&running, sent, completion)
        };
        if let Some(event) = event {
            self.drive(attached, &write, self.env().rt.now(), event);
        }
        let free = {
            let running = write.running.borrow();
            (running.is_finished && running.open == 0).then_some(running.name)
        };
        if let Some(name) = free {
            attached.writes.free(name);
        }
    }
}

/// Timeout of sending the removal of a log entry.
const REMOVAL_TIME: Duration = Duration::from_secs(2);

fn applied(target: Target, result: &Result<(), StoreError>) -> WriteInput {
    match result {
        Ok(()) => WriteInput::Ack { from: target },
        Err(error) => WriteInput::Failed { from: target, reason: of_store(error) },
    }
}

fn logged(place: u8, result: &Result<(), StoreError>) -> Event {
    match result {
        Ok(()) => Event::LogStored(place),
        Err(error) => Event::LogFailed(place, of_store(error)),
    }
}

fn event_of(running: &Running, sent: Sent, completion: Completion<'_>) -> Option<Event> {
    match sent {
        Sent::Forward => None,
        Sent::Log { place, .. } => Some(match completion.result {
            Ok(_) => Event::LogStored(place),
            Err(error) => Event::LogFailed(place, replica_error(&error)),
        }),
        Sent::Mutation { index, target, .. } => {
            let input = match completion.result {
                Ok(_) if completion.verb == Verb::Mutation => WriteInput::Ack { from: target },
                Ok(answer) => forwarded(running, index, target, answer.payload)?,
                Err(error) => WriteInput::Failed { from: target, reason: replica_error(&error) },
            };
            Some(Event::Mutation(index, input))
        }
    }
}

/// Records an answer in the trace of a write.
#[cold]
fn note_answer(
    attached: &Attached,
    running: &Running,
    trace: &RequestTrace,
    sent: Sent,
    completion: &Completion<'_>,
) {
    let host = match sent {
        Sent::Forward => None,
        Sent::Log { place, .. } => match &running.machine {
            Machine::Batch(request) => request.log_host(place),
            Machine::One(_) => None,
        },
        Sent::Mutation { index, target, .. } => {
            // A node that got the mutation forwarded answers through the forwarding node.
            let from = match &completion.result {
                Ok(answer) if completion.verb != Verb::Mutation => {
                    match forwarded(running, index, target, answer.payload) {
                        Some(WriteInput::Ack { from } | WriteInput::Failed { from, .. }) => from,
                        _ => target,
                    }
                }
                _ => target,
            };
            let plan = running.request(index).map(|request| request.plan());
            plan.and_then(|plan| plan.replicas.get(from)).map(|replica| replica.host)
        }
    };
    if let Some(host) = host {
        trace.note_answer(&attached.cluster.view, host, completion);
    }
}

/// Decodes the acknowledgement that a forwarding node passed back.
fn forwarded(running: &Running, index: u16, by: Target, payload: &[u8]) -> Option<WriteInput> {
    let Ok(ack) = ForwardAck::decode(payload) else {
        return Some(WriteInput::Failed { from: by, reason: ReplicaError::Unknown });
    };
    let from = match ack.target {
        None => by,
        Some(place) => {
            let passed_on = running.passed_on.iter().find(|p| p.index == index && p.by == by)?;
            *passed_on.to.get(usize::from(place))?
        }
    };
    Some(match ack.result {
        Ok(()) => WriteInput::Ack { from },
        Err(reply) => WriteInput::Failed { from, reason: of_reply(&reply) },
    })
}

fn send(
    attached: &Attached,
    running: &mut Running,
    index: u16,
    to: Target,
    forward: SmallVec<[Target; 4]>,
) -> Result<(), MessagingError> {
    let plan = running.request(index).map(|r| r.plan());
    let (Some(plan), Some(written)) = (plan, running.mutation(index)) else {
        return Err(MessagingError::Malformed);
    };
    let bytes = &written.bytes;
    let Some(replica) = plan.replicas.get(to) else { return Err(MessagingError::Malformed) };
    let mutation = Mutation { flags: running.purpose.flags(), bytes };
    let outgoing = Outgoing {
        host: replica.host,
        shard: written.owner(attached.cluster.shard_map_of(replica.host)),
        verb: if forward.is_empty() { Verb::Mutation } else { Verb::MutationForward },
        deadline: running.deadline,
        trace: running.trace.as_ref().map(|trace| trace.id()),
    };
    if let Some(trace) = &running.trace {
        trace.note_sent(&attached.cluster.view, replica.host, outgoing.verb, bytes.len());
    }
    let token = mutation_token(running.name.slot, index, to);
    let mut payload_bytes = 0;
    let mut measure = |out: &mut Vec<u8>, encode: &dyn Fn(&mut Vec<u8>)| {
        let before = out.len();
        encode(out);
        payload_bytes = out.len().saturating_sub(before);
    };
    if forward.is_empty() {
        let encode = |out: &mut Vec<u8>| measure(out, &|out| mutation.encode(out));
        attached.client.send(&outgoing, token, encode)?;
    } else {
        let targets = forward
            .iter()
            .filter_map(|t| plan.replicas.get(*t))
            .map(|r| ForwardTarget {
                host: r.host,
                shard: written.owner(attached.cluster.shard_map_of(r.host)),
            })
            .collect();
        let message = MutationForward { targets, mutation };
        let encode = |out: &mut Vec<u8>| measure(out, &|out| message.encode(out));
        attached.client.send(&outgoing, token, encode)?;
        running.passed_on.push(PassedOn { index, by: to, to: forward });
    }
    attached.backlog((outgoing.host, outgoing.shard)).sent(attached.cluster.now(), payload_bytes);
    running.open += 1;
    Ok(())
}

fn answer(attached: &Attached, running: &mut Running, result: Result<(), RequestError>) {
    let counters = &attached.cluster.counters;
    match &result {
        Ok(()) => {}
        Err(RequestError::Unavailable { .. } | RequestError::UnavailableIn { .. }) => {
            counters.write_unavailables.inc()
        }
        Err(RequestError::WriteTimeout { .. }) => counters.write_timeouts.inc(),
        Err(_) => counters.write_failures.inc(),
    }
    if let (Some(trace), Err(error)) = (&running.trace, &result) {
        trace.note_error(error);
    }
    counters.writes_lingering.add(1);
    running.is_answered = true;
    running.result = Some(result);
}

/// Ends a write and releases its resources. Its slot stays until its requests have ended.
fn finish(attached: &Attached, running: &mut Running, now: Instant) {
    running.is_finished = true;
    let is_well = matches!(running.result, Some(Ok(())));
    if is_well && running.purpose.waits_for_all() && !running.is_everywhere() {
        // On success the caller forgets the write, so a missing replica is an error.
        let (consistency, write_type) = (running.consistency, running.write_type);
        let (received, block_for) = (0, 1);
        let error = RequestError::WriteTimeout { consistency, received, block_for, write_type };
        running.result = Some(Err(error));
    }
    let bytes = i64::try_from(running.bytes).unwrap_or(i64::MAX);
    if now < running.deadline {
        attached.backlogs.all().answered(now, Duration::ZERO, running.bytes);
    } else {
        // Silent replicas are no progress, nor is the end of what had to make room.
        attached.backlogs.all().lost(running.bytes);
    }
    attached.cluster.counters.writes_in_flight.add(-1);
    attached.cluster.counters.write_bytes_in_flight.add(-bytes);
    if running.is_answered {
        attached.cluster.counters.writes_lingering.add(-1);
    }
    running.mutations = Vec::new();
    attached.writes.leave(running.bytes);
}
