//! Mutations passed on inside this datacenter for a coordinator of another one.
//!
//! The answers of the others go back on the one request that brought the mutation: one partial
//! answer each, the last one final.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use internode::{ErrorReply, ForwardAck, MutationForward, Verb};
use messaging::{Completion, Outgoing, Responder};
use stdx::{FixedMap, Uuid};

use super::Writer;
use crate::shared::correlation_ids::{forward_token, token_parts};
use replica::of_forward;

/// One mutation that is passed on.
pub(crate) struct Forward {
    responder: RefCell<Option<Responder>>,
    /// Answers that are to come, this node's own included.
    left: Cell<usize>,
    /// Requests to the targets that have not ended.
    open: Cell<usize>,
}

/// Forwards that wait for answers, by number.
#[derive(Default)]
pub(crate) struct Forwards {
    waiting: RefCell<FixedMap<u32, Rc<Forward>>>,
    last: Cell<u32>,
}

impl Forward {
    /// Reports a replica's answer to the coordinator; `None` is this node.
    pub(crate) fn note(&self, target: Option<u8>, result: Result<(), ErrorReply>) {
        let ack = ForwardAck { target, result };
        let left = self.left.get().saturating_sub(1);
        self.left.set(left);
        if left > 0 {
            if let Some(responder) = &*self.responder.borrow() {
                responder.respond_partly(|out| ack.encode(out));
            }
        } else if let Some(responder) = self.responder.take() {
            responder.respond(|out| ack.encode(out));
        }
    }
}

impl Writer {
    /// Forwards a mutation to the targets; the responder gets their answers beside this node's own.
    pub(crate) fn pass_on(
        &self,
        message: &MutationForward<'_>,
        trace: Option<Uuid>,
        responder: Responder,
    ) -> Rc<Forward> {
        let MutationForward { targets, mutation } = message;
        let deadline = responder.deadline();
        let forward = Rc::new(Forward {
            responder: RefCell::new(Some(responder)),
            left: Cell::new(targets.len() + 1),
            open: Cell::new(0),
        });
        let Some(attached) = self.attached() else { return forward };
        let forwards = &attached.forwards;
        let number = forwards.last.get().wrapping_add(1);
        forwards.last.set(number);
        for (place, target) in (0_u8..=u8::MAX).zip(targets) {
            let to = Outgoing {
                host: target.host,
                shard: target.shard,
                verb: Verb::Mutation,
                deadline,
                trace,
            };
            let token = forward_token(number, place);
            match attached.client.send(&to, token, |out| mutation.encode(out)) {
                Ok(_) => forward.open.set(forward.open.get() + 1),
                Err(error) => forward.note(Some(place), Err(of_forward(&error))),
            }
        }
        attached.cluster.counters.forwards.add(targets.len() as u64);
        if forward.open.get() > 0 {
            forwards.waiting.borrow_mut().insert(number, forward.clone());
        }
        forward
    }

    /// A replica has answered what was passed on to it.
    pub(crate) fn forward_completed(&self, completion: Completion<'_>) {
        let Some(attached) = self.attached() else { return };
        let (number, place) = token_parts(completion.token);
        let forward = attached.forwards.waiting.borrow().get(&number).cloned();
        let Some(forward) = forward else { return };
        let result = match completion.result {
            Ok(answer) if answer.more => return,
            Ok(_) => Ok(()),
            Err(error) => Err(of_forward(&error)),
        };
        forward.note(Some(place), result);
        forward.open.set(forward.open.get().saturating_sub(1));
        if forward.open.get() == 0 {
            attached.forwards.waiting.borrow_mut().remove(&number);
        }
    }
}
