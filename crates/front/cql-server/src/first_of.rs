//! Waits for one of two futures.

use std::future::Future;

/// Returns the first future's output, or `None` if the second completes before.
pub(crate) async fn first_of<A: Future, B: Future>(first: A, second: B) -> Option<A::Output> {
    let mut first = std::pin::pin!(first);
    let mut second = std::pin::pin!(second);
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        if let Poll::Ready(output) = first.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        second.as_mut().poll(cx).map(|_| None)
    })
    .await
}
