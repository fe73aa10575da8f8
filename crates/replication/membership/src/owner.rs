//! Shard 0's part: serialises the steps of the log, whatever their origin.
//!
//! A step is: a voter's request handled by the acceptor, or a decided entry appended, published and
//! written to the system tables. Answers are durable (the acceptor holds them back until then).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use cluster::metalog::{ENTRY_BYTES_MAX, encode_frame};
use cluster::{ClusterSnapshot, Transformation};
use internode::ErrorReply;
use messaging::Messaging;
use paxos::acceptor::{Admission, Record, ReplyTo, Request};
use paxos::ballot::tie_bits;
use paxos::log::{AcceptorOutput, Entries, Learn, LogAcceptor, LogEntry};
use paxos::{Ballot, BallotClock};
use rt::sync::Semaphore;
use stdx::{Epoch, HostId, Uuid};

use crate::log::{LogFile, write_registers};
use crate::wire::{Answer, Ask, Value};
use crate::{ApplyHook, Membership, SubmitError};

/// Maximum lead of another voter's ballot over this node's clock.
const SKEW_MAX_MICROS: u64 = 10 * 60 * 1_000_000;
/// Payload of one message with entries.
pub(crate) const ENTRIES_BYTES_MAX: usize = 4 << 20;

/// Returns true if a node can be expected to answer.
pub type Liveness = Rc<dyn Fn(HostId) -> bool>;

/// State that only shard 0 has.
pub(crate) struct Owner {
    /// Taken out during a write. After a failure it stays out, so that nothing is appended after an
    /// entry whose fate is unknown.
    pub(crate) log: RefCell<Option<LogFile>>,
    pub(crate) work_dir: String,
    pub(crate) acceptor: RefCell<LogAcceptor<Value>>,
    pub(crate) clock: RefCell<BallotClock>,
    /// Serialises submissions made on this node.
    pub(crate) turn: Semaphore,
    /// Serialises steps of the log.
    pub(crate) step: Semaphore,
    pub(crate) on_apply: RefCell<Option<ApplyHook>>,
    pub(crate) messaging: RefCell<Option<Messaging>>,
    pub(crate) is_alive: RefCell<Liveness>,
    /// A peer is being asked for entries.
    pub(crate) is_learning: Cell<bool>,
}

impl Owner {
    pub(crate) fn new(rt: &rt::Rt, work_dir: &str, mut log: LogFile, host: HostId) -> Owner {
        let next = Epoch(log.end().0.saturating_add(1));
        let acceptor = LogAcceptor::new(next, log.registers.take());
        let tie = tie_bits(host, rt.shard(), rt.random_u64());
        Owner {
            log: RefCell::new(Some(log)),
            work_dir: work_dir.to_owned(),
            acceptor: RefCell::new(acceptor),
            clock: RefCell::new(BallotClock::new(tie, SKEW_MAX_MICROS)),
            turn: Semaphore::new(1),
            step: Semaphore::new(1),
            on_apply: RefCell::new(None),
            messaging: RefCell::new(None),
            is_alive: RefCell::new(Rc::new(|_| true)),
            is_learning: Cell::new(false),
        }
    }
}

impl Owner {
    /// After a failed write nothing more is appended. To be asked with the step held.
    fn check_usable(&self) -> Result<(), SubmitError> {
        if self.log.borrow().is_some() { Ok(()) } else { Err(SubmitError::Unavailable) }
    }
}

/// One transformation out of what was submitted together.
pub(crate) fn joined(mut entries: Vec<Transformation>) -> Option<Transformation> {
    if entries.len() > 1 {
        return Some(Transformation::Group(entries));
    }
    entries.pop()
}

/// The payload of an entry.
///
/// # Errors
/// `TooLarge`.
pub(crate) fn payload_of(change: &Transformation) -> Result<Value, SubmitError> {
    let mut payload = Vec::new();
    change.encode(&mut payload);
    if payload.len() > ENTRY_BYTES_MAX {
        return Err(SubmitError::TooLarge { bytes: payload.len(), max: ENTRY_BYTES_MAX });
    }
    Ok(payload.into())
}

fn origin_of(ballot: Ballot) -> Option<Uuid> {
    (!ballot.is_zero()).then(|| ballot.to_uuid())
}

impl Membership {
    pub(crate) fn admission(&self) -> Admission {
        let now = self.inner.rt.wall();
        Admission {
            now,
            skew_max_micros: SKEW_MAX_MICROS,
            floor: Ballot::ZERO,
            horizon: Ballot::ZERO,
        }
    }

    /// A change of a node that decides alone: the durable append is the decision.
    pub(crate) async fn append_alone(
        &self,
        owner: &Owner,
        change: &Transformation,
    ) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        let payload = payload_of(change)?;
        let _step = owner.step.acquire(1).await;
        owner.check_usable()?;
        let next = Epoch(self.snapshot().epoch.0.saturating_add(1));
        // Through the acceptor, which must know where the log ends.
        let entry = LogEntry { number: next, origin: Ballot::ZERO, value: payload };
        let mut out = Vec::new();
        owner.acceptor.borrow_mut().learned(self.admission(), entry, ReplyTo(0), &mut out);
        self.carry_out(owner, out).await?;
        self.applied_at(next)
    }

    /// The snapshot, which must have the entry `epoch`: nothing is answered by mere assumption.
    pub(crate) fn applied_at(&self, epoch: Epoch) -> Result<Arc<ClusterSnapshot>, SubmitError> {
        let snapshot = self.snapshot();
        if snapshot.epoch < epoch { Err(SubmitError::Unavailable) } else { Ok(snapshot) }
    }

    /// Handles a voter's request.
    ///
    /// # Errors
    /// `Invalid` when the request cannot be right; `Internal` when this node's log cannot be
    /// written.
    pub(crate) async fn vote(&self, owner: &Owner, ask: Ask) -> Result<Answer, ErrorReply> {
        let _step = owner.step.acquire(1).await;
        self.check(owner, &ask)?;
        if let Request::Prepare { ballot, .. } = &ask.request {
            // A ballot from the far future is refused by the acceptor.
            let _ = owner.clock.borrow_mut().observe(self.inner.rt.wall(), *ballot);
        }
        let mut out = Vec::new();
        let admission = self.admission();
        let (entry, request) = (ask.entry, ask.request);
        owner.acceptor.borrow_mut().request(admission, entry, ReplyTo(0), request, &mut out);
        match self.carry_out(owner, out).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(ErrorReply::Internal("no answer to a metadata request".to_owned())),
            Err(error) => Err(ErrorReply::Internal(error.to_string())),
        }
    }

    /// Checks that a value fits this log, before anything is promised to it.
    fn check(&self, owner: &Owner, ask: &Ask) -> Result<(), ErrorReply> {
        if ask.entry != owner.acceptor.borrow().next() {
            return Ok(());
        }
        let snapshot = self.snapshot();
        // Every member may receive a decided entry, only voters receive a vote.
        if !matches!(ask.request, Request::Commit(_))
            && !snapshot.voters.contains(&snapshot.local.host_id)
        {
            return Err(ErrorReply::Invalid("this node is no voter of that entry".to_owned()));
        }
        let value = match &ask.request {
            Request::Propose(accepted) => &accepted.value,
            Request::Commit(commit) => &commit.value,
            _ => return Ok(()),
        };
        let Some(value) = value else {
            return Err(ErrorReply::Invalid("an entry without a value".to_owned()));
        };
        let change = Transformation::decode(value).map_err(|e| ErrorReply::Invalid(e.to_string()));
        snapshot.apply(&change?).map(drop).map_err(|e| ErrorReply::Invalid(e.to_string()))
    }

    /// Takes decided entries over, those that are new here.
    ///
    /// # Errors
    /// The log cannot be written, or an entry does not fit it.
    pub(crate) async fn learn(
        &self,
        owner: &Owner,
        entries: Vec<LogEntry<Value>>,
    ) -> Result<(), SubmitError> {
        for entry in entries {
            let _step = owner.step.acquire(1).await;
            owner.check_usable()?;
            if entry.number != owner.acceptor.borrow().next() {
                continue;
            }
            let change = Transformation::decode(&entry.value)
                .map_err(|e| SubmitError::Unreadable(e.to_string()))?;
            self.snapshot().apply(&change)?;
            let mut out = Vec::new();
            owner.acceptor.borrow_mut().learned(self.admission(), entry, ReplyTo(0), &mut out);
            self.carry_out(owner, out).await?;
        }
        Ok(())
    }

    /// Does what the acceptor wants, in order; gives back its answer. The step is held.
    async fn carry_out(
        &self,
        owner: &Owner,
        out: Vec<AcceptorOutput<Value>>,
    ) -> Result<Option<Answer>, SubmitError> {
        let mut outputs: VecDeque<AcceptorOutput<Value>> = out.into();
        let mut answer = None;
        while let Some(output) = outputs.pop_front() {
            match output {
                AcceptorOutput::Persist { token, entry, record } => {
                    let done = match record {
                        Record::Commit(commit) => {
                            let entry = LogEntry {
                                number: entry,
                                origin: commit.origin,
                                value: commit.value.unwrap_or_default(),
                            };
                            self.append(owner, entry).await
                        }
                        _ => {
                            let state = owner.acceptor.borrow().state().clone();
                            let fs = self.inner.rt.fs();
                            let written =
                                write_registers(&fs, &owner.work_dir, entry, &state).await;
                            written.map_err(SubmitError::from)
                        }
                    };
                    let admission = self.admission();
                    if let Err(error) = done {
                        owner.acceptor.borrow_mut().persist_failed(admission);
                        owner.log.borrow_mut().take();
                        tracing::error!(%error, "the metadata log cannot be written; the node takes \
                            no part in metadata changes until it is restarted");
                        return Err(error);
                    }
                    let mut more = Vec::new();
                    owner.acceptor.borrow_mut().persisted(admission, token, &mut more);
                    outputs.extend(more);
                }
                AcceptorOutput::Reply { reply, .. } => answer = Some(Answer::Reply(reply)),
                AcceptorOutput::Known { from, .. } => {
                    let learn = Learn { from, bytes_max: ENTRIES_BYTES_MAX };
                    answer = Some(Answer::Known(self.entries(owner, learn).await?));
                }
                AcceptorOutput::Missing { from, .. } => answer = Some(Answer::Missing(from)),
            }
        }
        Ok(answer)
    }

    /// Appends a decided entry, publishes its snapshot, and has the system tables written.
    async fn append(&self, owner: &Owner, entry: LogEntry<Value>) -> Result<(), SubmitError> {
        let before = self.snapshot();
        let change = Transformation::decode(&entry.value)
            .map_err(|e| SubmitError::Unreadable(e.to_string()))?;
        let after = Arc::new(before.apply(&change)?);
        stdx::invariant!(
            after.epoch == entry.number,
            "INV-membership-3: entry {:?} behind epoch {:?}",
            entry.number,
            before.epoch
        );
        let mut framed = Vec::new();
        encode_frame(entry.number, origin_of(entry.origin), &entry.value, &mut framed);
        let Some(mut log) = owner.log.borrow_mut().take() else {
            return Err(SubmitError::Unavailable);
        };
        log.append(framed, entry.number).await?;
        stdx::invariant!(
            log.end() == entry.number,
            "INV-membership-3: entry {:?} was appended, the log ends with {:?}",
            entry.number,
            log.end()
        );
        *owner.log.borrow_mut() = Some(log);
        self.publish(&after).await?;
        stdx::invariant!(
            self.snapshot().epoch >= after.epoch,
            "INV-membership-1: entry {:?} is answered, this shard is at {:?}",
            entry.number,
            self.snapshot().epoch
        );
        let hook = owner.on_apply.borrow().clone();
        if let Some(hook) = hook {
            hook(before.clone(), after.clone()).await;
        }
        self.tell(&before, &after).await
    }

    /// Entries of this node's log, for one that lacks them.
    pub(crate) async fn entries(
        &self,
        owner: &Owner,
        learn: Learn,
    ) -> Result<Entries<Value>, SubmitError> {
        let (reader, end) = match owner.log.borrow().as_ref() {
            Some(log) => (log.reader(), Epoch(log.end().0.saturating_add(1))),
            None => return Err(SubmitError::Unavailable),
        };
        let (mut entries, mut bytes) = (Vec::new(), 0_usize);
        let max = learn.bytes_max.min(ENTRIES_BYTES_MAX);
        let read = reader.read(learn.from, |framed| {
            bytes = bytes.saturating_add(framed.payload.len());
            if bytes > max && !entries.is_empty() {
                return false;
            }
            let origin = framed.origin.and_then(|o| Ballot::from_uuid(o).ok());
            entries.push(LogEntry {
                number: framed.epoch,
                origin: origin.unwrap_or(Ballot::ZERO),
                value: framed.payload.into(),
            });
            true
        });
        read.await.map_err(|e| SubmitError::Unreadable(e.to_string()))?;
        Ok(Entries { entries, end })
    }
}
