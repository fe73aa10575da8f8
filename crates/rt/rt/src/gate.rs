//! [`Gate`]: the owner of tasks. Its `close` waits for all tasks that were spawned through it.

use crate::executor::Group;
use crate::handle::Rt;
use crate::sync::waiters::Waiters;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

/// The gate, or the shard, accepts no more tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("closed")]
pub struct Closed;

/// Owner of the tasks that were spawned through it. Clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    pub(crate) inner: Rc<GateInner>,
}

pub(crate) struct GateInner {
    name: &'static str,
    closed: Cell<bool>,
    count: Cell<usize>,
    waiters: Waiters,
}

impl Rt {
    /// A new owner of tasks.
    pub fn gate(&self, name: &'static str) -> Gate {
        Gate::new(name)
    }
}

impl Gate {
    pub(crate) fn new(name: &'static str) -> Gate {
        Gate {
            inner: Rc::new(GateInner {
                name,
                closed: Cell::new(false),
                count: Cell::new(0),
                waiters: Waiters::default(),
            }),
        }
    }

    /// Starts a task. It first runs after this call has returned.
    ///
    /// # Errors
    /// [`Closed`] when the gate is closed or the shard is ending; `f` is dropped unpolled.
    pub fn spawn(
        &self,
        rt: &Rt,
        group: Group,
        name: &'static str,
        f: impl Future<Output = ()> + 'static,
    ) -> Result<(), Closed> {
        if self.inner.closed.get() {
            return Err(Closed);
        }
        rt.inner.spawn(self, group, name, Box::pin(f))
    }

    /// Refuses new tasks and waits until the present ones are done.
    pub async fn close(&self) {
        self.inner.closed.set(true);
        poll_fn(|cx| {
            if self.inner.count.get() == 0 {
                return Poll::Ready(());
            }
            self.inner.waiters.register(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Returns true if [`Gate::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.inner.closed.get()
    }

    /// Number of tasks that are not done.
    pub fn len(&self) -> usize {
        self.inner.count.get()
    }

    /// Returns true if no task is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name it was made with.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }
}

impl GateInner {
    pub(crate) fn enter(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn leave(&self) {
        self.count.set(self.count.get() - 1);
        if self.count.get() == 0 {
            self.waiters.wake_all();
        }
    }
}
