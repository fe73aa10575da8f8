//! One io_uring per shard, its descriptor polled by the shard's reactor.
//!
//! Submissions of one loop turn are handed to the kernel together ([`Uring::flush`]).

use crate::buf::Buf;
use crate::descriptor::Descriptor;
use io_uring::{IoUring, opcode, squeue, types};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Submission entries; the completion ring is twice that, and the kernel keeps an overflow.
const ENTRIES: u32 = 128;

pub(crate) struct Uring {
    ring: AsyncFd<Ring>,
    ops: RefCell<Ops>,
    unsubmitted: Cell<usize>,
    in_flight: Cell<usize>,
}

struct Ring(RefCell<IoUring>, RawFd);

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.1
    }
}

#[derive(Default)]
struct Ops {
    slots: Vec<Op>,
    free: Vec<usize>,
}

/// One operation. Holds buffer and descriptor until the kernel is done (INV-native-1, -2).
#[derive(Default)]
struct Op {
    buf: Option<Buf>,
    fd: Option<Rc<Descriptor>>,
    result: Option<i32>,
    waker: Option<Waker>,
    orphan: bool,
}

/// Operation on the buffer's bytes `at..at + len`.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Read { at: usize, len: usize, offset: u64 },
    Write { at: usize, len: usize, offset: u64 },
    SyncData,
}

/// Checks that this kernel allows a ring with the operations we need.
pub(crate) fn probe() -> Result<(), String> {
    let ring = IoUring::new(4).map_err(|e| format!("io_uring_setup: {e}"))?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|e| format!("io_uring probe: {e}"))?;
    for code in [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE] {
        if !probe.is_supported(code) {
            return Err(format!("io_uring operation {code} is missing"));
        }
    }
    Ok(())
}

impl Uring {
    /// A ring on the current thread's reactor.
    pub(crate) fn new() -> std::io::Result<Uring> {
        let ring = IoUring::new(ENTRIES)?;
        let fd = ring.as_raw_fd();
        // SAFETY: `fd` belongs to the ring beside it in `Ring`, which is neither replaced nor taken
        // out before the `AsyncFd` is dropped, and `as_raw_fd` returns that stored number.
        #[expect(unsafe_code, reason = "a descriptor tokio cannot own; listed in UNSAFE.md")]
        let ring = unsafe {
            AsyncFd::register_with_interest(Ring(RefCell::new(ring), fd), Interest::READABLE)
        }
        .map_err(std::io::Error::from)?;
        Ok(Uring {
            ring,
            ops: RefCell::default(),
            unsubmitted: Cell::new(0),
            in_flight: Cell::new(0),
        })
    }

    /// Queues one operation; the kernel sees it at the next [`Uring::flush`]. The result is a byte
    /// count or a negative error number.
    pub(crate) fn submit(
        self: &Rc<Self>,
        fd: &Rc<Descriptor>,
        mut buf: Buf,
        what: What,
    ) -> OpFuture {
        let raw = types::Fd(fd.as_raw_fd());
        let entry = match what {
            What::Read { at, len, offset } => {
                let bytes = &mut buf[at..at + len];
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                opcode::Read::new(raw, bytes.as_mut_ptr(), len).offset(offset).build()
            }
            What::Write { at, len, offset } => {
                let bytes = &buf[at..at + len];
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                opcode::Write::new(raw, bytes.as_ptr(), len).offset(offset).build()
            }
            What::SyncData => opcode::Fsync::new(raw).flags(types::FsyncFlags::DATASYNC).build(),
        };
        let op = Op { buf: Some(buf), fd: Some(Rc::clone(fd)), ..Op::default() };
        let index = self.ops.borrow_mut().insert(op);
        stdx::debug_invariant!(
            self.ops.borrow().is_held(index),
            "INV-native-1, INV-native-2: operation {index} is handed over without its buffer or descriptor"
        );
        self.push(&entry.user_data(index as u64));
        OpFuture { uring: Rc::clone(self), index, done: false }
    }

    /// Submits queued operations to the kernel and collects completions.
    pub(crate) fn flush(&self) {
        if self.unsubmitted.get() > 0 {
            // Busy or interrupted: the entries stay in the ring for the next turn.
            if let Ok(n) = self.ring.get_ref().0.borrow().submit() {
                self.unsubmitted.set(self.unsubmitted.get().saturating_sub(n));
            }
        }
        if self.in_flight.get() > 0 {
            self.reap();
        }
    }

    /// Returns true if entries still wait for [`Uring::flush`].
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.unsubmitted.get() > 0
    }

    /// Collects completions whenever the reactor reports the ring readable; always leaves `cx`
    /// registered.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(mut guard)) = self.ring.poll_read_ready(cx) {
            self.reap();
            guard.clear_ready();
        }
    }

    fn push(&self, entry: &squeue::Entry) {
        loop {
            let mut ring = self.ring.get_ref().0.borrow_mut();
            // SAFETY: the buffer and descriptor that the entry names were moved into `self.ops`
            // before this call and stay there until `reap` sees the completion; `Drop` waits for
            // all completions before it frees `ops` and the ring.
            #[expect(unsafe_code, reason = "handing memory to the kernel; listed in UNSAFE.md")]
            let pushed = unsafe { ring.submission().push(entry) };
            if pushed.is_ok() {
                break;
            }
            // The submission ring is full: submit it, repeatedly until the kernel accepts entries.
            let _ = ring.submit();
            self.unsubmitted.set(ring.submission().len());
        }
        self.unsubmitted.set(self.unsubmitted.get() + 1);
        self.in_flight.set(self.in_flight.get() + 1);
    }

    fn reap(&self) {
        loop {
            let next = self.ring.get_ref().0.borrow_mut().completion().next();
            let Some(entry) = next else { break };
            stdx::invariant!(
                self.in_flight.get() > 0,
                "INV-native-1: completion of an operation that is not in flight"
            );
            self.in_flight.set(self.in_flight.get().saturating_sub(1));
            let index = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let waker = self.ops.borrow_mut().complete(index, entry.result());
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // INV-native-1: nothing that the kernel may still write to is freed.
        while self.in_flight.get() > 0 {
            let waited = self.ring.get_ref().0.borrow().submit_and_wait(1);
            self.reap();
            if let Err(e) = waited
                && e.kind() != std::io::ErrorKind::Interrupted
                && self.in_flight.get() > 0
            {
                // The ring is broken: leak the buffers rather than free them under the kernel.
                std::mem::forget(self.ops.take());
                return;
            }
        }
    }
}

impl Ops {
    /// Returns true if the operation still owns its buffer and descriptor.
    fn is_held(&self, index: usize) -> bool {
        self.slots.get(index).is_some_and(|op| op.buf.is_some() && op.fd.is_some())
    }

    fn insert(&mut self, op: Op) -> usize {
        match self.free.pop() {
            Some(index) => {
                stdx::invariant!(
                    self.slots[index].buf.is_none(),
                    "INV-native-1: operation {index} is reused while it holds a buffer"
                );
                self.slots[index] = op;
                index
            }
            None => {
                self.slots.push(op);
                self.slots.len() - 1
            }
        }
    }

    fn complete(&mut self, index: usize, result: i32) -> Option<Waker> {
        let Some(op) = self.slots.get_mut(index) else {
            stdx::invariant::broken(format_args!(
                "INV-native-1: completion of unknown operation {index}"
            ))
        };
        stdx::invariant!(
            op.buf.is_some() && op.result.is_none(),
            "INV-native-1: operation {index} completed without its buffer, or twice"
        );
        stdx::invariant!(
            op.fd.take().is_some(),
            "INV-native-2: operation {index} completed after its descriptor was released"
        );
        if op.orphan {
            *op = Op::default();
            self.free.push(index);
            return None;
        }
        op.result = Some(result);
        op.waker.take()
    }
}

/// Waits for one operation; dropped early it leaves buffer and descriptor with the ring.
pub(crate) struct OpFuture {
    uring: Rc<Uring>,
    index: usize,
    done: bool,
}

impl Future for OpFuture {
    type Output = (Buf, i32);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Buf, i32)> {
        let uring = Rc::clone(&self.uring);
        let mut ops = uring.ops.borrow_mut();
        let op = &mut ops.slots[self.index];
        match op.result {
            None => {
                op.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(result) => {
                let Some(buf) = op.buf.take() else {
                    stdx::invariant::broken(format_args!(
                        "INV-native-1: finished operation lost its buffer"
                    ))
                };
                *op = Op::default();
                ops.free.push(self.index);
                self.done = true;
                Poll::Ready((buf, result))
            }
        }
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut ops = self.uring.ops.borrow_mut();
        let op = &mut ops.slots[self.index];
        if op.result.is_some() {
            *op = Op::default();
            ops.free.push(self.index);
        } else {
            op.orphan = true;
            op.waker = None;
        }
    }
}
