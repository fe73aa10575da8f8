//! The memory that the requests of one shard take: requests that wait, answers while they are built, what clients
//! have not read yet, input of frames that are not complete.
//!
//! Owns: [`Account`], the sum and its limit, and [`Charge`], one holder's part of it. Never: decides what becomes of
//! a request or connection that finds no room; allocates.
//!
//! INV-account-1: the sum is that of all charges; a dropped charge is not in it. INV-account-2: what may be refused
//! leaves the last quarter free, so that small requests are served while large ones fill the rest.

use std::cell::Cell;
use std::rc::Rc;

/// Bytes that a waiting request is charged beside its own: its future and its entries in tables.
pub const REQUEST_BYTES: usize = 1024;

/// Largest request that may use the reserve.
const LIGHT_BYTES_MAX: usize = 16 << 10;

/// Bytes of an answer that are not charged: most answers end before.
const ANSWER_BYTES_FREE: usize = 4 << 10;

/// Memory of one shard's requests.
#[derive(Debug)]
pub struct Account {
    used: Cell<usize>,
    max: usize,
}

impl Account {
    /// Creates an empty account of this many bytes.
    pub fn new(max: usize) -> Rc<Account> {
        Rc::new(Account { used: Cell::new(0), max: max.max(1) })
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Most bytes that are to be in use.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Most bytes of one answer.
    pub fn answer_bytes_max(&self) -> usize {
        self.max / 2
    }

    /// Bytes at which a page ends though it has fewer rows than asked for: half of an answer, so that another row of as
    /// much fits.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        self.answer_bytes_max() / 2
    }

    /// More than half is used: connections run one request at a time, and those whose clients do not read are
    /// closed early.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        self.used.get() > self.max / 2
    }

    /// Returns true if an answer may grow by this many bytes.
    fn has_room(&self, bytes: usize) -> bool {
        self.used.get().saturating_add(bytes) <= self.max - self.max / 4
    }

    /// Returns true if the account is full without the bytes of this holder.
    pub fn is_full_beside(&self, own: usize) -> bool {
        self.used.get().saturating_sub(own) > self.max - self.max / 4
    }

    /// Returns true if there is no room for a request that is expected to need much; checked before
    /// it begins.
    pub fn is_full(&self) -> bool {
        !self.has_room(0)
    }

    /// Returns true if a request of this many bytes may wait.
    pub fn admits(&self, bytes: usize, load: ConnectionLoad) -> bool {
        // Running answers are charged ahead of their need. The sum therefore exceeds its limit for
        // moments in which small requests would be rejected although the memory is unused.
        let is_light = load == ConnectionLoad::Idle && bytes <= LIGHT_BYTES_MAX;
        let reserve = if is_light { self.max / 2 } else { 0 };
        self.used.get().saturating_add(bytes) <= self.max.saturating_add(reserve)
    }

    /// Adds bytes that are taken already.
    pub fn add(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_add(bytes));
    }

    /// Takes bytes out that were added.
    pub fn remove(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }
}

/// Load of the connection that a request arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLoad {
    /// Nothing.
    Idle,
    /// Other requests.
    Busy,
}

/// Reason why an answer may not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It alone is too large.
    TooLarge,
    /// There is no room beside the others.
    Full,
}

/// One holder's part of the account, given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Rc<Account>,
    bytes: Cell<usize>,
    refused: Cell<Option<Refusal>>,
}

impl Charge {
    /// Creates a charge of no bytes.
    #[inline]
    pub fn new(account: &Rc<Account>) -> Charge {
        Charge { account: account.clone(), bytes: Cell::new(0), refused: Cell::new(None) }
    }

    /// Sets the bytes that are held; this cannot be refused.
    #[inline]
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        if bytes != before {
            self.account.remove(before);
            self.account.add(bytes);
        }
    }

    /// Returns the bytes that are held.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Returns true if an answer may have this many bytes. A refusal is final.
    #[inline]
    pub fn covers(&self, bytes: usize) -> bool {
        bytes <= self.bytes.get().max(ANSWER_BYTES_FREE) || self.grow(bytes)
    }

    #[cold]
    fn grow(&self, bytes: usize) -> bool {
        let before = self.bytes.get();
        let refusal = if bytes > self.account.answer_bytes_max() {
            Some(Refusal::TooLarge)
        } else if !self.account.has_room(bytes.saturating_sub(before)) {
            Some(Refusal::Full)
        } else {
            None
        };
        self.refused.set(self.refused.get().or(refusal));
        if self.refused.get().is_some() {
            return false;
        }
        // Reserves half as much again, as the buffer does, but not beyond the limit of refusal.
        let ahead = bytes.saturating_add(bytes / 2).min(self.account.answer_bytes_max());
        self.set(ahead.max(bytes));
        true
    }

    /// Returns true if a page of this many bytes must end.
    #[inline]
    pub fn fills_page(&self, bytes: usize) -> bool {
        bytes > self.account.page_bytes()
    }

    /// Returns the reason of the refusal.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refused.get()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.remove(self.bytes.get());
    }
}

/// Sizes of the answers to a connection's reads, by which the next one's is expected.
#[derive(Debug)]
pub struct AnswerSizes(Cell<usize>);

/// Before there was any.
const EXPECTED_AT_FIRST: usize = 64 << 10;

/// Answers above this size are heavy: refused before they are read when the account is full.
const HEAVY_BYTES: usize = 64 << 10;

impl Default for AnswerSizes {
    fn default() -> AnswerSizes {
        AnswerSizes(Cell::new(EXPECTED_AT_FIRST))
    }
}

impl AnswerSizes {
    /// Records the size of an answer. A larger one raises the expectation at once, a smaller one
    /// lowers it gradually.
    #[inline]
    pub fn note(&self, bytes: usize) {
        let before = self.0.get();
        self.0.set(if bytes >= before { bytes } else { before - (before - bytes) / 4 });
    }

    /// Bytes of the next.
    #[inline]
    pub fn expected(&self) -> usize {
        self.0.get()
    }

    /// The next is expected to be heavy.
    pub fn is_heavy(&self) -> bool {
        self.0.get() > HEAVY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    /// INV-account-1.
    #[test]
    fn a_dropped_charge_is_not_in_the_sum() {
        let account = Account::new(MAX);
        let (a, b) = (Charge::new(&account), Charge::new(&account));
        a.set(1000);
        b.set(500);
        a.set(700);
        assert_eq!(account.used(), 1200);
        drop(a);
        assert_eq!(account.used(), 500);
        drop(b);
        assert_eq!(account.used(), 0);
    }

    /// INV-account-2.
    #[test]
    fn answers_leave_the_last_quarter_to_small_requests() {
        let account = Account::new(MAX);
        let others = Charge::new(&account);
        others.set(MAX / 2);
        assert!(!account.is_pressed());
        let answer = Charge::new(&account);
        assert!(answer.covers(ANSWER_BYTES_FREE), "small answers cost nothing");
        assert_eq!(account.used(), MAX / 2);
        assert!(answer.covers(100 << 10));
        assert!(account.is_pressed() && !account.is_full());
        assert!(!answer.covers(300 << 10));
        assert_eq!(answer.refusal(), Some(Refusal::Full));
        assert!(!answer.covers(200 << 10), "what was refused stays so");
        drop(answer);
        others.set(MAX - MAX / 4);
        assert!(!account.is_full());
        others.set(MAX - MAX / 4 + 1);
        assert!(account.is_full() && account.admits(1000, ConnectionLoad::Busy));
        others.set(MAX);
        assert!(
            !account.admits(1, ConnectionLoad::Busy)
                && account.admits(LIGHT_BYTES_MAX, ConnectionLoad::Idle)
        );
        assert!(!account.admits(LIGHT_BYTES_MAX + 1, ConnectionLoad::Idle));
        others.set(MAX + MAX / 2);
        assert!(!account.admits(1, ConnectionLoad::Idle));
    }

    #[test]
    fn an_answer_has_at_most_half_of_the_account() {
        let account = Account::new(MAX);
        let answer = Charge::new(&account);
        assert!(answer.covers(MAX / 2));
        assert!(!answer.covers(MAX / 2 + 1));
        assert_eq!(answer.refusal(), Some(Refusal::TooLarge));
    }

    #[test]
    fn large_answers_are_expected_at_once_and_forgotten_by_and_by() {
        let sizes = AnswerSizes::default();
        assert!(!sizes.is_heavy());
        sizes.note(1 << 20);
        assert_eq!((sizes.expected(), sizes.is_heavy()), (1 << 20, true));
        (0..20).for_each(|_| sizes.note(100));
        assert!(sizes.expected() < 8000, "{}", sizes.expected());
    }
}
