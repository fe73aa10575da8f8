//! Requests as futures, for callers that are tasks anyway: gossip, the metadata log, streams.

use super::Outbound;
use crate::completions::{Completion, Completions, SendId};
use crate::error::MessagingError;
use crate::peer::Outgoing;
use rt::sync::oneshot;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use stdx::{Epoch, FixedMap};

/// The answer to a request, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The peer's epoch.
    pub epoch: Epoch,
    /// The payload; of the last answer, when there were several.
    pub payload: Vec<u8>,
    /// Payloads of the answers before the last one, in order.
    pub earlier: Vec<Vec<u8>>,
    /// From sending to the last answer.
    pub elapsed: Duration,
}

type Outcome = Result<Response, MessagingError>;

struct Caller {
    sender: oneshot::Sender<Outcome>,
    earlier: Vec<Vec<u8>>,
}

/// The client that all futures of a shard share.
#[derive(Default)]
pub(crate) struct Futures {
    callers: RefCell<FixedMap<u64, Caller>>,
    last: Cell<u64>,
}

impl Futures {
    pub(crate) fn enter(&self) -> (u64, oneshot::Receiver<Outcome>) {
        let token = self.last.get() + 1;
        self.last.set(token);
        let (sender, receiver) = oneshot::channel();
        self.callers.borrow_mut().insert(token, Caller { sender, earlier: Vec::new() });
        (token, receiver)
    }

    pub(crate) fn leave(&self, token: u64) {
        let caller = self.callers.borrow_mut().remove(&token);
        drop(caller);
    }
}

impl Completions for Futures {
    fn complete(&self, completion: Completion<'_>) {
        let token = completion.token;
        let outcome = match completion.result {
            Ok(answer) if answer.more => {
                if let Some(caller) = self.callers.borrow_mut().get_mut(&token) {
                    caller.earlier.push(answer.payload.to_vec());
                }
                return;
            }
            Ok(answer) => Ok((answer.epoch, answer.payload.to_vec())),
            Err(error) => Err(error),
        };
        let caller = self.callers.borrow_mut().remove(&token);
        let Some(Caller { sender, earlier }) = caller else { return };
        let outcome = outcome.map(|(epoch, payload)| {
            let elapsed = completion.elapsed;
            Response { epoch, payload, earlier, elapsed }
        });
        // The send fails if the future was dropped; then no caller waits.
        let _ = sender.send(outcome);
    }
}

/// See [`crate::Messaging::request`]. Dropped early, it cancels the request.
pub struct RequestFuture {
    state: FutureState,
}

enum FutureState {
    Refused(Option<MessagingError>),
    Sent { outbound: Rc<Outbound>, token: u64, id: SendId, receiver: oneshot::Receiver<Outcome> },
    Done,
}

impl Future for RequestFuture {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = match &mut self.state {
            FutureState::Refused(error) => Err(error.take().unwrap_or(MessagingError::Stopping)),
            FutureState::Sent { receiver, .. } => match Pin::new(receiver).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(outcome)) => outcome,
                // Messaging ended with the request inside.
                Poll::Ready(Err(oneshot::Dropped)) => {
                    Err(MessagingError::Lost { maybe_delivered: true })
                }
            },
            FutureState::Done => return Poll::Pending,
        };
        self.state = FutureState::Done;
        Poll::Ready(outcome)
    }
}

impl Drop for RequestFuture {
    fn drop(&mut self) {
        if let FutureState::Sent { outbound, token, id, .. } = &self.state {
            outbound.futures.leave(*token);
            outbound.cancel_request(*id);
        }
    }
}

impl Outbound {
    /// Sends a request now and gives the future of its answer.
    pub(crate) fn request(
        self: &Rc<Self>,
        to: &Outgoing,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> RequestFuture {
        let (token, receiver) = self.futures.enter();
        let state = match self.send_request(self.futures_client, token, to, write) {
            Ok(id) => FutureState::Sent { outbound: self.clone(), token, id, receiver },
            Err(error) => {
                self.futures.leave(token);
                FutureState::Refused(Some(error))
            }
        };
        RequestFuture { state }
    }
}
