//! Bounded queue between tasks of one shard.

use super::waiters::Waiters;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

struct State<T> {
    items: RefCell<VecDeque<T>>,
    capacity: usize,
    senders: Cell<usize>,
    receiver_gone: Cell<bool>,
    room: Waiters,
    data: Waiters,
}

/// The writing side; the queue ends when all clones are gone.
pub struct Sender<T>(Rc<State<T>>);

/// The reading side.
pub struct Receiver<T>(Rc<State<T>>);

/// Why [`Sender::try_send`] did not take the item, which it gives back.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// `capacity` items wait already.
    Full(T),
    /// The receiver was dropped.
    Closed(T),
}

/// A queue of at most `capacity` (at least 1) items.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let state = Rc::new(State {
        items: RefCell::new(VecDeque::new()),
        capacity: capacity.max(1),
        senders: Cell::new(1),
        receiver_gone: Cell::new(false),
        room: Waiters::default(),
        data: Waiters::default(),
    });
    (Sender(Rc::clone(&state)), Receiver(state))
}

impl<T> Sender<T> {
    /// Appends, waiting for room; returns the item if the receiver was dropped.
    pub async fn send(&self, item: T) -> Result<(), T> {
        let mut item = Some(item);
        poll_fn(|cx| match item.take().map(|i| self.try_send(i)) {
            Some(Err(TrySendError::Full(back))) => {
                item = Some(back);
                self.0.room.register(cx.waker());
                Poll::Pending
            }
            Some(Err(TrySendError::Closed(back))) => Poll::Ready(Err(back)),
            Some(Ok(())) | None => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Appends if there is room.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        if self.0.receiver_gone.get() {
            return Err(TrySendError::Closed(item));
        }
        {
            let mut items = self.0.items.borrow_mut();
            if items.len() >= self.0.capacity {
                return Err(TrySendError::Full(item));
            }
            items.push_back(item);
        }
        self.0.data.wake_all();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.senders.set(self.0.senders.get() + 1);
        Sender(Rc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.set(self.0.senders.get() - 1);
        if self.0.senders.get() == 0 {
            self.0.data.wake_all();
        }
    }
}

impl<T> Receiver<T> {
    /// The next item; `None` when the queue is empty and all senders are gone.
    pub async fn recv(&self) -> Option<T> {
        poll_fn(|cx| {
            if let Some(item) = self.try_recv() {
                return Poll::Ready(Some(item));
            }
            if self.0.senders.get() == 0 {
                return Poll::Ready(None);
            }
            self.0.data.register(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// The next item, if there is one.
    pub fn try_recv(&self) -> Option<T> {
        let item = self.0.items.borrow_mut().pop_front();
        if item.is_some() {
            self.0.room.wake_all();
        }
        item
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.0.items.borrow().len()
    }

    /// Returns true if no item waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.set(true);
        let items = std::mem::take(&mut *self.0.items.borrow_mut());
        drop(items);
        self.0.room.wake_all();
    }
}
