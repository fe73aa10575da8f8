//! Recorded requests of a connection that observers have not seen yet.

use cql_wire::Request;
use query::{Executor, Failure, RequestRecord};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use stdx::FixedMap;

/// Recorded requests of one connection that are not answered.
#[derive(Default)]
pub(crate) struct ObservedRequests {
    pub(crate) by_stream: RefCell<FixedMap<i16, RequestRecord>>,
}

impl ObservedRequests {
    /// Returns true if no request is recorded.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_stream.borrow().is_empty()
    }

    /// Returns true if the request on a stream is recorded.
    pub(crate) fn has(&self, stream: i16) -> bool {
        self.by_stream.borrow().contains_key(&stream)
    }

    /// Records the failure that a request is answered with.
    pub(crate) fn fail(&self, stream: i16, failure: &Failure, node: SocketAddr) {
        if let Some(record) = self.by_stream.borrow_mut().get_mut(&stream) {
            record.fail(failure, node);
        }
    }

    pub(crate) fn note_planned(&self, stream: i16, executor: &Rc<Executor>, request: &Request<'_>) {
        let taken = self.by_stream.borrow_mut().remove(&stream);
        if let Some(mut record) = taken {
            query::note_planned(&mut record, executor, request);
            self.by_stream.borrow_mut().insert(stream, record);
        }
    }
}
