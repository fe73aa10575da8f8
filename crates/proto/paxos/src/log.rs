//! A log of single decisions: each entry is one instance, decided once by the voters of the entry
//! before it. The metadata log is one.
//!
//! Owns the acceptor of a log ([`LogAcceptor`]: the registers of the next entry, on the acceptor of
//! [`crate::acceptor`]), its proposer ([`LogProposer`]), and how a member that was away catches up
//! ([`Learner`]). Never: the log itself, and what entries mean; the driver stores entries and knows
//! the voters.
//!
//! Differences to a partition: an instance ends with its first decision, so a value is never confused with later
//! ones, and no outcome stays unknown once the entry is known. There are no reads and no empty proposals.
//!
//! INV-paxos-log-1: entry e is decided once. INV-paxos-log-2: a member votes for entry e + 1 only when it has
//! entry e, because entry e may change the voters.

pub mod proposer;
#[cfg(test)]
mod tests;

use stdx::Epoch;

use crate::acceptor::{Acceptor, AcceptorState, Admission, Input, Output, Record, ReplyTo, Token};
use crate::acceptor::{Reply, Request};
use crate::ballot::Ballot;
use crate::value::Commit;
pub use proposer::{LogInput, LogOutcome, LogOutput, LogProposer};

/// A decided entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogEntry<V> {
    /// Its number, which is the epoch it leads to.
    pub number: Epoch,
    /// The ballot that proposed it first: its identity.
    pub origin: Ballot,
    /// The payload.
    pub value: V,
}

/// An instruction of a log's acceptor to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptorOutput<V> {
    /// Make the record of this instance durable, after all earlier ones. A [`Record::Commit`] is
    /// the entry itself: append it to the log and fold it into the snapshot.
    Persist {
        /// Its name.
        token: Token,
        /// The instance.
        entry: Epoch,
        /// The record.
        record: Record<V>,
    },
    /// Send the answer.
    Reply {
        /// Destination of the answer.
        to: ReplyTo,
        /// The answer.
        reply: Reply<V>,
    },
    /// The instance is decided: answer with the entries from this one on, as [`Entries`].
    Known {
        /// Destination of the answer.
        to: ReplyTo,
        /// The first entry.
        from: Epoch,
    },
    /// Entries before the instance are missing here: answer with [`Learn`] from this one on.
    Missing {
        /// Destination of the answer.
        to: ReplyTo,
        /// The first missing entry.
        from: Epoch,
    },
}

/// The acceptor of a log: registers of the first entry that is not known here.
#[derive(Clone, Debug)]
pub struct LogAcceptor<V> {
    next: Epoch,
    inner: Acceptor<V>,
}

impl<V: Clone> LogAcceptor<V> {
    /// An acceptor whose log ends before `next`; `stored` are the registers of the instance they
    /// were stored for, which count only if that is `next`.
    pub fn new(next: Epoch, stored: Option<(Epoch, AcceptorState<V>)>) -> LogAcceptor<V> {
        let state = stored.filter(|(entry, _)| *entry == next).map(|(_, state)| state);
        LogAcceptor { next, inner: Acceptor::new(state.unwrap_or_default()) }
    }

    /// The first entry that is not known here.
    pub fn next(&self) -> Epoch {
        self.next
    }

    /// The registers of [`LogAcceptor::next`].
    pub fn state(&self) -> &AcceptorState<V> {
        self.inner.state()
    }

    /// A message for one instance.
    pub fn request(
        &mut self,
        admission: Admission,
        entry: Epoch,
        to: ReplyTo,
        request: Request<V>,
        out: &mut Vec<AcceptorOutput<V>>,
    ) {
        let ends = matches!(request, Request::Commit(_));
        if entry > self.next {
            out.push(AcceptorOutput::Missing { to, from: self.next });
        } else if entry < self.next {
            match request {
                // The same decision again; it is durable when what was appended last is.
                Request::Commit(Commit { ballot, .. }) => {
                    let mut outputs = Vec::new();
                    self.inner.answer(to, Reply::Committed { ballot }, &mut outputs);
                    self.forward(outputs, out);
                }
                Request::Prepare { .. }
                | Request::Propose(_)
                | Request::Conclude(_)
                | Request::Refresh { .. }
                | Request::Prune { .. } => out.push(AcceptorOutput::Known { to, from: entry }),
            }
        } else {
            self.inner_step(admission, Input::Request { to, request }, out);
            if ends {
                stdx::invariant!(
                    entry == self.next,
                    "INV-paxos-log-2: entry {} ends, the next one is {}",
                    entry.0,
                    self.next.0
                );
                self.next = Epoch(self.next.0.saturating_add(1));
                self.inner.next_instance();
            }
        }
    }

    /// An entry that another member sent. Returns false, and does nothing, if it is not the next.
    pub fn learned(
        &mut self,
        admission: Admission,
        entry: LogEntry<V>,
        to: ReplyTo,
        out: &mut Vec<AcceptorOutput<V>>,
    ) -> bool {
        if entry.number != self.next {
            return false;
        }
        let (ballot, origin) = (entry.origin, entry.origin);
        let commit = Commit { ballot, origin, value: Some(entry.value) };
        self.request(admission, entry.number, to, Request::Commit(commit), out);
        true
    }

    /// This record and all before it are durable.
    pub fn persisted(
        &mut self,
        admission: Admission,
        token: Token,
        out: &mut Vec<AcceptorOutput<V>>,
    ) {
        self.inner_step(admission, Input::Persisted(token), out);
    }

    /// A record could not be made durable: nothing is answered any more.
    pub fn persist_failed(&mut self, admission: Admission) {
        self.inner_step(admission, Input::PersistFailed, &mut Vec::new());
    }

    fn inner_step(
        &mut self,
        admission: Admission,
        input: Input<V>,
        out: &mut Vec<AcceptorOutput<V>>,
    ) {
        let mut outputs = Vec::new();
        self.inner.step(admission, input, &mut outputs);
        self.forward(outputs, out);
    }

    fn forward(&mut self, outputs: Vec<Output<V>>, out: &mut Vec<AcceptorOutput<V>>) {
        let entry = self.next;
        out.extend(outputs.into_iter().filter_map(|output| match output {
            Output::Persist { token, record, sync: _ } => {
                Some(AcceptorOutput::Persist { token, entry, record })
            }
            Output::Reply { to, reply } => Some(AcceptorOutput::Reply { to, reply }),
            // A prepare of the log carries no read.
            Output::TakeReadView { .. } => None,
        }));
    }
}

/// Asks for entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Learn {
    /// The first wanted.
    pub from: Epoch,
    /// Most bytes of payload in the answer; one entry is sent in any case.
    pub bytes_max: usize,
}

/// Answer to [`Learn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries<V> {
    /// In order, without gaps; empty when the sender has none of them.
    pub entries: Vec<LogEntry<V>>,
    /// The first entry that the sender does not know.
    pub end: Epoch,
}

impl<V: Clone + AsRef<[u8]>> Entries<V> {
    /// The answer from a log whose entries from `request.from` on are `log`, and that ends before
    /// `end`.
    pub fn answer<'a>(
        request: Learn,
        log: impl IntoIterator<Item = &'a LogEntry<V>>,
        end: Epoch,
    ) -> Entries<V>
    where
        V: 'a,
    {
        let mut entries = Vec::new();
        let mut bytes = 0usize;
        for entry in log {
            bytes = bytes.saturating_add(entry.value.as_ref().len());
            if bytes > request.bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(entry.clone());
        }
        Entries { entries, end }
    }
}

/// Entries that do not follow each other: the sender is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {found:?} of the log came where {expected:?} belongs")]
pub struct LearnError {
    /// The one that belongs there.
    pub expected: Epoch,
    /// The one that came.
    pub found: Epoch,
}

/// Catching up with a member that knows more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learner {
    next: Epoch,
    bytes_max: usize,
}

impl Learner {
    /// A learner that lacks the entries from `next` on and takes `bytes_max` at a time.
    pub fn new(next: Epoch, bytes_max: usize) -> Learner {
        Learner { next, bytes_max }
    }

    /// Returns the request for the next entries.
    pub fn request(&self) -> Learn {
        Learn { from: self.next, bytes_max: self.bytes_max }
    }

    /// Takes an answer: the entries that are new here, for [`LogAcceptor::learned`], and the next
    /// question if the sender has more.
    ///
    /// # Errors
    /// Entries are missing or out of order; none is taken.
    pub fn take<V>(
        &mut self,
        answer: Entries<V>,
    ) -> Result<(Vec<LogEntry<V>>, Option<Learn>), LearnError> {
        let mut next = self.next;
        let mut new = Vec::new();
        let mut before: Option<Epoch> = None;
        for entry in answer.entries {
            let follows = before.is_none_or(|b| entry.number.0 == b.0.saturating_add(1));
            if !follows || entry.number > next {
                let expected = before.map_or(next, |b| Epoch(b.0.saturating_add(1)));
                return Err(LearnError { expected, found: entry.number });
            }
            before = Some(entry.number);
            if entry.number == next {
                next = Epoch(next.0.saturating_add(1));
                new.push(entry);
            }
        }
        // Without anything new, asking again would only repeat the answer.
        let more = next < answer.end && next > self.next;
        self.next = next;
        Ok((new, more.then(|| self.request())))
    }
}
