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
    /// The request that began last. Most are answered before the next one begins and never enter the map.
    latest: RefCell<Option<(i16, RequestRecord)>>,
    /// The requests before it, by stream.
    others: RefCell<FixedMap<i16, RequestRecord>>,
}

impl ObservedRequests {
    /// Returns true if no request is recorded.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.latest.borrow().is_none() && self.others.borrow().is_empty()
    }

    /// Returns true if the request on a stream is recorded.
    pub(crate) fn has(&self, stream: i16) -> bool {
        self.latest.borrow().as_ref().is_some_and(|(latest, _)| *latest == stream)
            || self.others.borrow().contains_key(&stream)
    }

    /// Records a request.
    pub(crate) fn insert(&self, stream: i16, record: RequestRecord) {
        if let Some((before, record)) = self.latest.borrow_mut().replace((stream, record)) {
            self.others.borrow_mut().insert(before, record);
        }
    }

    /// Removes a request.
    pub(crate) fn remove(&self, stream: i16) -> Option<RequestRecord> {
        let mut latest = self.latest.borrow_mut();
        match latest.take_if(|(latest, _)| *latest == stream) {
            Some((_, record)) => Some(record),
            None => self.others.borrow_mut().remove(&stream),
        }
    }

    /// Removes all requests, in the order of their streams.
    pub(crate) fn drain(&self) -> Vec<RequestRecord> {
        let mut all: Vec<(i16, RequestRecord)> =
            std::mem::take(&mut *self.others.borrow_mut()).into_iter().collect();
        all.extend(self.latest.borrow_mut().take());
        all.sort_by_key(|(stream, _)| *stream);
        all.into_iter().map(|(_, record)| record).collect()
    }

    fn change(&self, stream: i16, change: impl FnOnce(&mut RequestRecord)) {
        match &mut *self.latest.borrow_mut() {
            Some((latest, record)) if *latest == stream => change(record),
            _ => {
                if let Some(record) = self.others.borrow_mut().get_mut(&stream) {
                    change(record);
                }
            }
        }
    }

    /// Records the failure that a request is answered with.
    pub(crate) fn fail(&self, stream: i16, failure: &Failure, node: SocketAddr) {
        self.change(stream, |record| record.fail(failure, node));
    }

    /// Records the timestamp that was generated for a request.
    pub(crate) fn note_generated(&self, stream: i16, executor: &Executor) {
        self.change(stream, |record| query::note_generated(record, executor));
    }

    /// Records how much of a request that failed before it ran can be planned.
    pub(crate) fn note_planned(&self, stream: i16, executor: &Rc<Executor>, request: &Request<'_>) {
        if let Some(mut record) = self.remove(stream) {
            query::note_planned(&mut record, executor, request);
            self.insert(stream, record);
        }
    }
}
