//! One partition's acceptor at one replica: answers leave only when what they show is durable.
//!
//! Owns the order of records and the answers that wait for them (INV-paxos-2). Never touches the
//! disk: durability is an output ([`Output::Persist`]) and an input ([`Input::Persisted`]).
//!
//! The driver keeps an acceptor in memory while [`Acceptor::is_idle`] is false; it may drop it at
//! any other time, when it has appended what [`Acceptor::unwritten`] says, and make it again from the
//! stored row. See docs/internals/paxos.md, "Durability".

pub mod cells;
pub mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::ballot::Ballot;
pub use state::{
    AcceptorState, Admission, Permit, Promise, Record, Rejection, Reply, Request, Transition,
};
use stdx::invariant;

/// Answers of one partition that may wait for the disk. Above it prepares and proposals are
/// rejected as overloaded; a partition with so many at once is contended far beyond its throughput.
pub const HELD_MAX: usize = 1024;

/// Destination of an answer: a slot of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo(pub u64);

/// Names a record; later records have larger tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

/// Event for an acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<V> {
    /// A message came.
    Request {
        /// Destination of the answer.
        to: ReplyTo,
        /// The message.
        request: Request<V>,
    },
    /// Registers of another replica, for one that joins ([`AcceptorState::merge`]). The answer is
    /// [`Reply::Committed`] with the newest ballot.
    Adopt {
        /// Destination of the answer.
        to: ReplyTo,
        /// The other replica's registers.
        state: AcceptorState<V>,
    },
    /// This record and all before it are durable.
    Persisted(Token),
    /// A record could not be made durable. Memory is now ahead of the disk: nothing is answered any
    /// more, the driver drops the acceptor and makes a new one from the stored row.
    PersistFailed,
}

/// An instruction to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<V> {
    /// Append the record after all earlier ones; report [`Input::Persisted`] when it is durable.
    Persist {
        /// Its name.
        token: Token,
        /// The record.
        record: Record<V>,
        /// True if an answer waits for it. If not, any later sync will do.
        sync: bool,
    },
    /// Take the view that the read of this prepare sees, in this turn: what is committed later must
    /// not be in it, what is committed now must. The data is sent with the reply.
    TakeReadView {
        /// Destination of the answer.
        to: ReplyTo,
    },
    /// Send the answer.
    Reply {
        /// Destination of the answer.
        to: ReplyTo,
        /// The answer.
        reply: Reply<V>,
    },
}

/// The acceptor of one partition.
#[derive(Clone, Debug)]
pub struct Acceptor<V> {
    state: AcceptorState<V>,
    issued: u64,
    durable: u64,
    held: VecDeque<(u64, ReplyTo, Reply<V>)>,
    failed: bool,
    /// Newest promises of each kind that no record shows; [`Ballot::ZERO`]: none.
    unwritten_write: Ballot,
    unwritten_read: Ballot,
}

impl<V: Clone> Acceptor<V> {
    /// An acceptor with the stored registers, or with [`AcceptorState::default`] where no row is.
    pub fn new(stored: AcceptorState<V>) -> Acceptor<V> {
        Acceptor {
            state: stored,
            issued: 0,
            durable: 0,
            held: VecDeque::new(),
            failed: false,
            unwritten_write: Ballot::ZERO,
            unwritten_read: Ballot::ZERO,
        }
    }

    /// Returns promises without a record, because they are not newer than [`Admission::horizon`]
    /// was. No reader needs the records as long as this acceptor lives. Before it is dropped, or
    /// another reader uses its row, the driver must append them and call [`Acceptor::written`]. It
    /// need not wait until they are durable.
    pub fn unwritten(&self) -> impl Iterator<Item = Record<V>> + use<V> {
        let promise = |ballot: Ballot, write| {
            (!ballot.is_zero()).then_some(Record::Promise { ballot, write })
        };
        let both = [promise(self.unwritten_write, true), promise(self.unwritten_read, false)];
        both.into_iter().flatten()
    }

    /// Returns true if [`Acceptor::unwritten`] is not empty.
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten_write.is_zero() || !self.unwritten_read.is_zero()
    }

    /// Notes that the unwritten promises have been appended.
    pub fn written(&mut self) {
        (self.unwritten_write, self.unwritten_read) = (Ballot::ZERO, Ballot::ZERO);
    }

    /// This replica has promised `ballot` to every partition, durably: see
    /// [`AcceptorState::promised_to_all`].
    pub fn promised_to_all(&mut self, ballot: Ballot) {
        self.state.apply(Record::Promise { ballot, write: true });
    }

    /// The registers, including what is not durable yet.
    pub fn state(&self) -> &AcceptorState<V> {
        &self.state
    }

    /// Returns true if nothing waits for the disk.
    pub fn is_idle(&self) -> bool {
        self.durable == self.issued && self.held.is_empty()
    }

    /// Advances by one event and appends what the driver must do.
    pub fn step(&mut self, admission: Admission, input: Input<V>, out: &mut Vec<Output<V>>) {
        if self.failed {
            return;
        }
        match input {
            Input::Request { to, request } => self.request(admission, to, request, out),
            Input::Adopt { to, state } => {
                for record in self.state.merge(state) {
                    self.issued = self.issued.saturating_add(1);
                    out.push(Output::Persist { token: Token(self.issued), record, sync: true });
                }
                self.answer(to, Reply::Committed { ballot: self.state.promised }, out);
            }
            Input::Persisted(Token(token)) => {
                invariant!(token <= self.issued, "token {token} was never issued");
                self.durable = self.durable.max(token);
                while let Some((_, to, reply)) =
                    self.held.pop_front_if(|(token, _, _)| *token <= self.durable)
                {
                    out.push(Output::Reply { to, reply });
                }
                invariant!(
                    self.held.front().is_none_or(|(token, _, _)| *token > self.durable),
                    "INV-paxos-2: an answer is held though its record {token} is durable"
                );
            }
            Input::PersistFailed => {
                self.failed = true;
                self.held.clear();
            }
        }
    }

    /// Starts the next instance with empty registers; answers of the one before go on waiting.
    pub(crate) fn next_instance(&mut self) {
        self.state = AcceptorState::default();
        self.written();
    }

    fn request(
        &mut self,
        admission: Admission,
        to: ReplyTo,
        request: Request<V>,
        out: &mut Vec<Output<V>>,
    ) {
        if self.held.len() >= HELD_MAX {
            let round = match &request {
                Request::Prepare { ballot, .. } => Some(*ballot),
                Request::Propose(proposal) | Request::Conclude(proposal) => Some(proposal.ballot),
                // These end rounds; refusing them would make the queue longer.
                Request::Commit(_) | Request::Refresh { .. } | Request::Prune { .. } => None,
            };
            if let Some(ballot) = round {
                let reply = Reply::Rejected { ballot, why: Rejection::Overloaded };
                out.push(Output::Reply { to, reply });
                return;
            }
        }
        let Transition { record, reply } = self.state.handle(admission, request);
        let record = record.filter(|record| !self.goes_unwritten(record, admission.horizon));
        if let Some(record) = record {
            self.issued = self.issued.saturating_add(1);
            let (token, sync) = (Token(self.issued), reply.is_some());
            out.push(Output::Persist { token, record, sync });
        }
        let Some(reply) = reply else { return };
        if matches!(reply, Reply::Promise(_)) {
            out.push(Output::TakeReadView { to });
        }
        self.answer(to, reply, out);
    }

    /// Returns true if a change needs no record. Otherwise forgets the unwritten promises that the
    /// record makes needless.
    fn goes_unwritten(&mut self, record: &Record<V>, horizon: Ballot) -> bool {
        let newer = |unwritten: Ballot, shown: Ballot| {
            if unwritten.is_newer_than(shown) { unwritten } else { Ballot::ZERO }
        };
        match record {
            Record::Promise { ballot, write } if !ballot.is_newer_than(horizon) => {
                let newest =
                    if *write { &mut self.unwritten_write } else { &mut self.unwritten_read };
                *newest = *ballot;
                return true;
            }
            Record::Promise { ballot, write: true } => {
                self.unwritten_write = newer(self.unwritten_write, *ballot);
                self.unwritten_read = newer(self.unwritten_read, *ballot);
            }
            // A promise to a write counts for reads that look whether one is on its way: only a commit
            // settles it.
            Record::Promise { ballot, write: false } => {
                self.unwritten_read = newer(self.unwritten_read, *ballot);
            }
            Record::Accept(proposal) => {
                self.unwritten_read = newer(self.unwritten_read, proposal.ballot);
            }
            Record::Commit(commit) => {
                self.unwritten_write = newer(self.unwritten_write, commit.ballot);
                self.unwritten_read = newer(self.unwritten_read, commit.ballot);
            }
            Record::Prune { .. } => {}
        }
        false
    }

    /// Sends an answer, or holds it back until all records issued so far are durable.
    pub(crate) fn answer(&mut self, to: ReplyTo, reply: Reply<V>, out: &mut Vec<Output<V>>) {
        if self.failed {
            return;
        }
        // A rejection prevents and never causes, so it need not wait even if a crash takes its
        // reason back. Everything else waits also for the records of requests before it.
        if matches!(reply, Reply::Rejected { .. }) || self.durable == self.issued {
            out.push(Output::Reply { to, reply });
        } else {
            self.held.push_back((self.issued, to, reply));
        }
    }
}
