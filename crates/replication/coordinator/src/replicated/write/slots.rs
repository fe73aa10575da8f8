//! Table of unfinished writes, with the times at which they are due.
//!
//! Bounded by their number and the bytes of their mutations. If a new write has no room, the oldest
//! writes that are answered already are ended before it is refused.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use rt::sync::Notify;
use stdx::Instant;

use super::Write;
use replica::ReplicationSettings;

/// A place in the table, and which of its users is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotName {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    write: Option<Rc<Write>>,
}

/// The writes of one shard.
pub(crate) struct Writes {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    /// By deadline; finished ones are dropped when they reach the front.
    due: RefCell<VecDeque<(Instant, SlotName)>>,
    /// The time at which the timer wakes without a notification.
    pub(crate) armed: Cell<Instant>,
    pub(crate) timer: Notify,
    pub(crate) stopping: Cell<bool>,
    /// Not finished.
    pub(crate) in_flight: Cell<usize>,
    pub(crate) bytes: Cell<usize>,
    in_flight_max: usize,
    bytes_max: usize,
}

impl Writes {
    pub(crate) fn new(settings: &ReplicationSettings) -> Writes {
        Writes {
            slots: RefCell::default(),
            free: RefCell::default(),
            due: RefCell::default(),
            armed: Cell::new(Instant(u64::MAX)),
            timer: Notify::new(),
            stopping: Cell::new(false),
            in_flight: Cell::new(0),
            bytes: Cell::new(0),
            in_flight_max: settings.writes_in_flight_max,
            bytes_max: settings.write_bytes_in_flight_max,
        }
    }

    /// Returns true if another write of so many bytes may begin. One always may, however large.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let held = self.in_flight.get();
        held == 0
            || held < self.in_flight_max && self.bytes.get().saturating_add(bytes) <= self.bytes_max
    }

    /// Takes a write in; its bytes are counted until [`Writes::leave`].
    pub(crate) fn enter(&self, write: &Rc<Write>, bytes: usize) -> SlotName {
        self.in_flight.set(self.in_flight.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        let mut slots = self.slots.borrow_mut();
        let slot = match self.free.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                slots.push(Slot::default());
                u32::try_from(slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let Some(entry) = slots.get_mut(slot as usize) else {
            stdx::invariant::broken(format_args!("more than {slot} writes at once"))
        };
        entry.generation = entry.generation.wrapping_add(1);
        entry.write = Some(write.clone());
        SlotName { slot, generation: entry.generation }
    }

    /// A write is finished; its slot stays until [`Writes::free`].
    pub(crate) fn leave(&self, bytes: usize) {
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
    }

    /// Frees a slot: none of the write's requests is open any more.
    pub(crate) fn free(&self, name: SlotName) {
        if let Some(entry) = self.slots.borrow_mut().get_mut(name.slot as usize)
            && entry.generation == name.generation
            && entry.write.take().is_some()
        {
            self.free.borrow_mut().push(name.slot);
        }
        self.drop_finished();
    }

    /// The write in a slot.
    pub(crate) fn in_slot(&self, slot: u32) -> Option<Rc<Write>> {
        self.slots.borrow().get(slot as usize)?.write.clone()
    }

    fn find(&self, name: SlotName) -> Option<Rc<Write>> {
        let slots = self.slots.borrow();
        let entry = slots.get(name.slot as usize)?;
        let write = entry.write.as_ref().filter(|_| entry.generation == name.generation)?;
        (!write.is_finished()).then(|| write.clone())
    }

    /// Schedules the next check of a write.
    pub(crate) fn wake_at(&self, at: Instant, name: SlotName) {
        let mut due = self.due.borrow_mut();
        // Nearly always the last one: most writes have the same time.
        let behind = match due.back() {
            Some((last, _)) if *last > at => due.partition_point(|(t, _)| *t <= at),
            _ => due.len(),
        };
        due.insert(behind, (at, name));
        drop(due);
        if at < self.armed.get() {
            self.armed.set(at);
            self.timer.notify_one();
        }
    }

    /// Drops finished writes from the front, so that the queue is as long as what waits.
    fn drop_finished(&self) {
        loop {
            let front = self.due.borrow().front().copied();
            match front {
                Some((_, name)) if self.find(name).is_none() => {
                    self.due.borrow_mut().pop_front();
                }
                _ => return,
            }
        }
    }

    /// When the next unfinished write is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.drop_finished();
        self.due.borrow().front().map(|(at, _)| *at)
    }

    /// Takes a write that is due.
    pub(crate) fn take_due(&self, now: Instant) -> Option<Rc<Write>> {
        loop {
            let first = self.due.borrow().front().copied();
            let (at, name) = first?;
            if at > now {
                return None;
            }
            self.due.borrow_mut().pop_front();
            if let Some(write) = self.find(name) {
                return Some(write);
            }
        }
    }

    /// The oldest unfinished write, if it is answered already.
    pub(crate) fn oldest_answered(&self) -> Option<Rc<Write>> {
        self.drop_finished();
        let (_, name) = self.due.borrow().front().copied()?;
        self.find(name).filter(|w| w.is_answered())
    }

    /// Every unfinished write, by slot.
    pub(crate) fn all(&self) -> Vec<Rc<Write>> {
        let slots = self.slots.borrow();
        let writes = slots.iter().filter_map(|s| s.write.clone());
        writes.filter(|w| !w.is_finished()).collect()
    }
}
