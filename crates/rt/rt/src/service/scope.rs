//! The side of a service's code: its requests, the order to stop, calls to shards.

use super::control::{Control, Count, Order};
use super::queue::{Queue, Request, Taken};
use crate::mesh::{ForeignCaller, MeshError};
use crate::timer::Elapsed;
use rt_native::service::Clock;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use stdx::{Instant, ShardId};

/// The side of a service with a reactor. Clones are the same.
pub struct Scope<Q, R> {
    queue: Arc<Queue<Q, R>>,
    clock: Clock,
}

impl<Q: Send + 'static, R: Send + 'static> Scope<Q, R> {
    pub(super) fn new(queue: Arc<Queue<Q, R>>, clock: Clock) -> Scope<Q, R> {
        Scope { queue, clock }
    }

    /// The next request; `None` when the service is to stop and none is left.
    pub async fn next(&self) -> Option<Request<Q, R>> {
        match self.queue.take().await {
            Taken::Request(request) => Some(request),
            Taken::End => None,
        }
    }

    /// How long the caller of a request still waits.
    pub fn remaining(&self, request: &Request<Q, R>) -> Duration {
        request.deadline().since(Instant(self.clock.now_nanos()))
    }

    /// Resolves when the service is to take nothing more. After [`super::ServiceSpec::drain_max`] its body is
    /// dropped.
    pub async fn stop_requested(&self) {
        self.queue.control.ordered(Order::Drain).await;
    }

    /// A caller of the shards that serve a mesh.
    pub fn caller<A, B>(&self, shards: ForeignCaller<A, B>) -> ServiceCaller<A, B>
    where
        A: Send + 'static,
        B: Send + 'static,
    {
        ServiceCaller { shards, control: Arc::clone(&self.queue.control) }
    }
}

impl<Q, R> Clone for Scope<Q, R> {
    fn clone(&self) -> Scope<Q, R> {
        Scope { queue: Arc::clone(&self.queue), clock: self.clock }
    }
}

/// Calls shards from a service; refusals and late answers are counted.
pub struct ServiceCaller<A: Send + 'static, B: Send + 'static> {
    shards: ForeignCaller<A, B>,
    control: Arc<Control>,
}

impl<A: Send + 'static, B: Send + 'static> ServiceCaller<A, B> {
    /// Sends `what` now and returns the future of the answer, which has no time limit: see
    /// [`ServiceCaller::within`].
    pub fn call(
        &self,
        to: ShardId,
        what: A,
    ) -> impl Future<Output = Result<B, MeshError>> + Send + use<A, B> {
        let (called, control) = (self.shards.call(to, what), Arc::clone(&self.control));
        async move {
            called.await.inspect_err(|error| {
                if *error == MeshError::Full {
                    control.count(Count::CallRefused);
                }
            })
        }
    }

    /// Waits for `calls`, one or several, for at most `max`; then drops them.
    ///
    /// # Errors
    /// [`Elapsed`] when it took longer.
    pub async fn within<F: Future>(&self, max: Duration, calls: F) -> Result<F::Output, Elapsed> {
        let answered = rt_native::service::timeout(max, calls).await;
        answered.ok_or(Elapsed).inspect_err(|_| self.control.count(Count::CallLate))
    }
}

impl<A: Send + 'static, B: Send + 'static> Clone for ServiceCaller<A, B> {
    fn clone(&self) -> ServiceCaller<A, B> {
        ServiceCaller { shards: self.shards.clone(), control: Arc::clone(&self.control) }
    }
}
