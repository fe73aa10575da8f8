//! The checker: what was sent, what came of it, what the other side did.

use crate::{MessagingError, TICK};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use stdx::Instant;

/// End of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// An answer with the right payload, or not.
    Answer {
        right: bool,
    },
    Error(MessagingError),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) deadline: Instant,
    pub(super) ends: Vec<(Instant, End)>,
    /// How often a handler saw it.
    pub(super) executed: u32,
    pub(super) cancelled: bool,
}

/// All requests of a world, by token.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(pub(super) BTreeMap<u64, Record>);

pub(super) type SharedLedger = Rc<RefCell<Ledger>>;

/// A task may run this much after its timer.
const SLACK: Duration = Duration::from_millis(2);

impl Ledger {
    pub(super) fn sent(&mut self, token: u64, deadline: Instant) {
        let record = Record { deadline, ..Record::default() };
        assert!(self.0.insert(token, record).is_none(), "tokens are unique");
    }

    pub(super) fn ended(&mut self, token: u64, at: Instant, end: End) {
        self.0.entry(token).or_default().ends.push((at, end));
    }

    pub(super) fn executed(&mut self, token: u64) {
        // A one-way message or the request of another test is not in it.
        if let Some(record) = self.0.get_mut(&token) {
            record.executed += 1;
        }
    }

    /// Checks the invariants once every deadline has passed.
    pub(super) fn check(&self) -> Result<(), String> {
        for (token, record) in &self.0 {
            let wrong = |what: &str| Err(format!("request {token}: {what}: {record:?}"));
            match record.ends.as_slice() {
                [] if record.cancelled => continue,
                [] => return wrong("INV-messaging-1: never completed"),
                [_] if record.cancelled => return wrong("completed after it was cancelled"),
                [(at, end)] => {
                    if *at > record.deadline + TICK + SLACK {
                        return wrong("INV-messaging-1: completed after its deadline");
                    }
                    match end {
                        End::Answer { right: false } => return wrong("got another's answer"),
                        End::Answer { right: true } if record.executed == 0 => {
                            return wrong("was answered by nobody");
                        }
                        End::Error(error) if is_undelivered(error) && record.executed > 0 => {
                            return wrong("INV-messaging-2: was done, and said not to be");
                        }
                        _ => {}
                    }
                    if record.executed > 1 {
                        return wrong("was done more than once");
                    }
                }
                _ => return wrong("INV-messaging-1: completed more than once"),
            }
        }
        Ok(())
    }

    pub(super) fn count(&self, is: impl Fn(&End) -> bool) -> usize {
        self.0.values().flat_map(|r| &r.ends).filter(|(_, end)| is(end)).count()
    }
}

/// Returns true if the peer certainly did not get the request.
fn is_undelivered(error: &MessagingError) -> bool {
    match error {
        MessagingError::Lost { maybe_delivered } | MessagingError::Timeout { maybe_delivered } => {
            !maybe_delivered
        }
        MessagingError::Remote(reply) => {
            matches!(reply, internode::ErrorReply::Overloaded | internode::ErrorReply::Stopping)
        }
        MessagingError::Malformed => false,
        _ => true,
    }
}

fn good() -> Ledger {
    let mut ledger = Ledger::default();
    for (token, end) in [
        (1, End::Answer { right: true }),
        (2, End::Error(MessagingError::Timeout { maybe_delivered: true })),
        (3, End::Error(MessagingError::Lost { maybe_delivered: false })),
    ] {
        ledger.sent(token, Instant(1_000_000_000));
        ledger.ended(token, Instant(900_000_000), end);
    }
    ledger.executed(1);
    ledger.executed(2);
    ledger.sent(4, Instant(1_000_000_000));
    ledger.0.get_mut(&4).unwrap().cancelled = true;
    ledger
}

#[test]
fn the_checker_takes_a_good_ledger_and_finds_every_corruption() {
    good().check().unwrap();
    let corrupt = |token: u64, words: &str, change: fn(&mut Record)| {
        let mut ledger = good();
        change(ledger.0.get_mut(&token).unwrap());
        let found = ledger.check().unwrap_err();
        assert!(found.contains(words), "{found}");
    };
    corrupt(1, "never completed", |r| r.ends.clear());
    corrupt(1, "more than once", |r| r.ends.push(r.ends[0].clone()));
    corrupt(2, "after its deadline", |r| r.ends[0].0 = Instant(1_010_000_000));
    corrupt(1, "another's answer", |r| r.ends[0].1 = End::Answer { right: false });
    corrupt(1, "by nobody", |r| r.executed = 0);
    corrupt(3, "said not to be", |r| r.executed = 1);
    corrupt(2, "done more than once", |r| r.executed = 2);
    corrupt(4, "after it was cancelled", |r| {
        r.ends.push((Instant(1), End::Answer { right: true }));
    });
}
