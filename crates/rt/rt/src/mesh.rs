//! Cross-shard calls: one bounded ring per target shard, drained in batches once per loop turn.

use crate::handle::Rt;
use crate::shared::{Port, Shared};
use rt_native::cross::{SlotReceiver, SlotSender, lock, slot};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};
use stdx::ShardId;

/// Why a call got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// The ring to that shard holds `capacity` requests: shed or try later.
    #[error("the ring to the shard is full")]
    Full,
    /// The shard is gone, does not exist, or dropped the request unanswered.
    #[error("the shard is gone")]
    Closed,
}

/// Typed calls between the shards of one node: requests `Q`, answers `R`. Made before the shards
/// start and captured by their main function; clones are the same mesh.
pub struct Mesh<Q: Send + 'static, R: Send + 'static> {
    shared: Arc<MeshShared<Q, R>>,
}

struct MeshShared<Q, R> {
    rings: Vec<Mutex<Ring<Q, R>>>,
    capacity: usize,
}

struct Ring<Q, R> {
    queue: VecDeque<(Q, SlotSender<R>)>,
    /// Shard to wake, once it serves.
    target: Option<Arc<Shared>>,
    closed: bool,
}

/// The duty to answer one request. Dropped unsent, the caller gets [`MeshError::Closed`].
pub struct Reply<R>(SlotSender<R>);

impl<R> Reply<R> {
    pub(crate) fn new(sender: SlotSender<R>) -> Reply<R> {
        Reply(sender)
    }

    /// Returns true if the caller still waits: it may have dropped the call while the request was
    /// in the ring.
    pub fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }

    /// Answers.
    pub fn send(self, r: R) {
        self.0.send(r);
    }
}

impl<Q: Send + 'static, R: Send + 'static> Mesh<Q, R> {
    /// For `shards` shards, at most `capacity` waiting requests per target shard.
    pub fn new(shards: u16, capacity: usize) -> Self {
        let ring = || Mutex::new(Ring { queue: VecDeque::new(), target: None, closed: false });
        let rings = (0..shards).map(|_| ring()).collect();
        Mesh { shared: Arc::new(MeshShared { rings, capacity }) }
    }

    /// Answers this shard's requests with `handler`, which runs on this shard and may answer at
    /// once or move the [`Reply`] into a task. Requests that came earlier are served first.
    pub fn serve(&self, rt: &Rt, handler: impl Fn(Q, Reply<R>) + 'static) {
        let index = usize::from(rt.shard().0);
        let Some(ring) = self.shared.rings.get(index) else { return };
        {
            let mut ring = lock(ring);
            ring.target = Some(Arc::clone(&rt.inner.shared));
            ring.closed = false;
        }
        let shared = Arc::clone(&self.shared);
        let batch = std::cell::RefCell::new(VecDeque::new());
        let port = MeshPort { shared, index, handler, batch };
        rt.inner.ports.borrow_mut().push(Box::new(port));
        rt.inner.shared.attend();
    }

    /// Sends `q` now and gives the future of the answer. Calling one's own shard works too.
    pub fn call(
        &self,
        _rt: &Rt,
        to: ShardId,
        q: Q,
    ) -> impl Future<Output = Result<R, MeshError>> + use<Q, R> {
        answer(self.shared.push(to, q))
    }

    /// A caller for threads that are no shard.
    pub fn foreign(&self) -> ForeignCaller<Q, R> {
        ForeignCaller { shared: Arc::clone(&self.shared) }
    }
}

impl<Q: Send + 'static, R: Send + 'static> Clone for Mesh<Q, R> {
    fn clone(&self) -> Self {
        Mesh { shared: Arc::clone(&self.shared) }
    }
}

/// Calls shards from any other executor. A [`crate::service`] counts its calls, see
/// [`crate::service::Scope::caller`].
pub struct ForeignCaller<Q: Send + 'static, R: Send + 'static> {
    shared: Arc<MeshShared<Q, R>>,
}

impl<Q: Send + 'static, R: Send + 'static> ForeignCaller<Q, R> {
    /// Sends `q` now and gives the future of the answer, which may be awaited on any executor.
    pub fn call(
        &self,
        to: ShardId,
        q: Q,
    ) -> impl Future<Output = Result<R, MeshError>> + Send + use<Q, R> {
        answer(self.shared.push(to, q))
    }
}

impl<Q: Send + 'static, R: Send + 'static> Clone for ForeignCaller<Q, R> {
    fn clone(&self) -> Self {
        ForeignCaller { shared: Arc::clone(&self.shared) }
    }
}

async fn answer<R>(sent: Result<SlotReceiver<R>, MeshError>) -> Result<R, MeshError> {
    sent?.await.ok_or(MeshError::Closed)
}

impl<Q, R> MeshShared<Q, R> {
    fn push(&self, to: ShardId, q: Q) -> Result<SlotReceiver<R>, MeshError> {
        let ring = self.rings.get(usize::from(to.0)).ok_or(MeshError::Closed)?;
        let (sender, receiver) = slot();
        let target = {
            let mut ring = lock(ring);
            if ring.closed {
                return Err(MeshError::Closed);
            }
            if ring.queue.len() >= self.capacity {
                return Err(MeshError::Full);
            }
            ring.queue.push_back((q, sender));
            // Only the first request of a batch has to wake the target.
            if ring.queue.len() == 1 { ring.target.clone() } else { None }
        };
        if let Some(target) = target {
            target.attend();
        }
        Ok(receiver)
    }
}

struct MeshPort<Q, R, H> {
    shared: Arc<MeshShared<Q, R>>,
    index: usize,
    handler: H,
    batch: std::cell::RefCell<VecDeque<(Q, SlotSender<R>)>>,
}

impl<Q: Send, R: Send, H: Fn(Q, Reply<R>)> Port for MeshPort<Q, R, H> {
    fn drain(&self) {
        let mut batch = self.batch.take();
        if let Some(ring) = self.shared.rings.get(self.index) {
            std::mem::swap(&mut lock(ring).queue, &mut batch);
        }
        for (q, sender) in batch.drain(..) {
            (self.handler)(q, Reply::new(sender));
        }
        self.batch.replace(batch);
    }

    fn close(&self) {
        let Some(ring) = self.shared.rings.get(self.index) else { return };
        let left = {
            let mut ring = lock(ring);
            ring.closed = true;
            ring.target = None;
            std::mem::take(&mut ring.queue)
        };
        // Outside the lock: dropping wakes the callers.
        drop(left);
    }
}
