//! Results of statements as response frames of a connection.

use crate::schema_events;
use crate::session::{Answering, Session};
use cql_plan::SchemaEvent;
use cql_wire::response::{self, PreparedResponse};
use cql_wire::{FrameExtras, MetadataMode, Opcode, ResponseFrame, RowsEncoder};
use query::{
    ClientState, Describe, Description, Executor, FLAGS_LOW_BYTE_AT, Failure, MadeRows,
    PAGING_STATE_AT, PageEnd, Prepared, Result, ResultPage, ResultSink, Ticket,
};
use std::rc::Rc;

/// Bit of the result's flags: a paging state follows.
const HAS_MORE_PAGES: u8 = 0x02;

/// Encodes the result of a request as a frame of its connection's protocol version.
#[derive(Clone)]
pub(crate) struct FrameSink {
    pub(crate) session: Rc<Session>,
    /// Stream id of the request.
    pub(crate) stream: i16,
}

/// A RESULT of kind rows under construction.
pub(crate) struct FramePage<'a> {
    session: &'a Session,
    ticket: &'a Ticket,
    frame: ResponseFrame<'a>,
    /// Offset of the body.
    body_at: usize,
    /// Offset of the row count.
    count_at: usize,
}

impl ResultSink for FrameSink {
    type Answer = Vec<u8>;
    type Page<'a> = FramePage<'a>;

    #[inline]
    fn client(&self) -> &ClientState {
        &self.session.client
    }

    #[inline]
    fn begin(&self, executor: &Executor) -> Vec<u8> {
        executor.buffer()
    }

    #[inline]
    fn bytes(answer: &Vec<u8>) -> usize {
        answer.len()
    }

    #[inline]
    fn page<'a>(
        &'a self,
        answer: &'a mut Vec<u8>,
        ticket: &'a Ticket,
        columns: &Description,
        describe: Describe,
    ) -> Result<FramePage<'a>> {
        let version = self.session.version();
        let extras =
            FrameExtras { tracing_id: ticket.tracing_id(), warnings: &[], custom_payload: &[] };
        let mut frame =
            ResponseFrame::begin(answer, version, self.stream, Opcode::Result, &extras)?;
        let body = frame.body();
        let body_at = body.len();
        match describe {
            Describe::Full => body.extend_from_slice(columns.encoded(version)?.rows_full()?),
            Describe::Skip => body.extend_from_slice(columns.encoded(version)?.rows_skip()?),
            Describe::Changed => body.extend_from_slice(&columns.rows_changed(version)?),
        }
        let count_at = body.len();
        body.extend_from_slice(&[0; 4]);
        Ok(FramePage { session: &self.session, ticket, frame, body_at, count_at })
    }

    fn rows<'r, R>(
        &self,
        answer: &mut Vec<u8>,
        ticket: &Ticket,
        made: MadeRows<'r, R>,
    ) -> Result<()>
    where
        R: Iterator,
        R::Item: IntoIterator<Item = Option<&'r [u8]>>,
    {
        let version = self.session.version();
        let description = made.columns.encoded(version)?;
        let mode = match made.describe {
            Describe::Full => MetadataMode::Full,
            Describe::Skip => MetadataMode::Skip,
            Describe::Changed => MetadataMode::Changed(made.columns.id()),
        };
        let warnings = ticket.warnings();
        let warnings: Vec<&str> =
            warnings.iter().map(String::as_str).chain(made.warnings.iter().copied()).collect();
        let tracing_id = ticket.tracing_id();
        let extras = FrameExtras { tracing_id, warnings: &warnings, custom_payload: &[] };
        let mut rows =
            RowsEncoder::begin(answer, version, self.stream, &extras, &description.block, mode)?;
        for row in made.rows {
            for value in row {
                match value {
                    Some(value) => rows.value(value)?,
                    None => rows.null(),
                }
            }
            rows.end_row();
        }
        self.session.finish(rows.into_frame(made.paging_state)?)?;
        Ok(())
    }

    fn void(&self, answer: &mut Vec<u8>, ticket: &Ticket, warnings: &[&str]) {
        let about = Answering { warnings, ..Answering::new(self.stream, ticket) };
        self.session.respond_void(answer, &about);
    }

    fn keyspace_used(&self, answer: &mut Vec<u8>, ticket: &Ticket, keyspace: &str) -> Result<()> {
        let about = Answering::new(self.stream, ticket);
        self.session.respond(answer, &about, Opcode::Result, |body| {
            response::put_set_keyspace(body, keyspace)
        })
    }

    fn schema_changed(
        &self,
        answer: &mut Vec<u8>,
        ticket: &Ticket,
        event: &SchemaEvent,
        warnings: &[&str],
    ) -> Result<()> {
        let version = self.session.version();
        let about = Answering { warnings, ..Answering::new(self.stream, ticket) };
        self.session.respond(answer, &about, Opcode::Result, |body| {
            response::put_schema_change(body, version, &schema_events::as_wire(event))
        })
    }

    fn prepared(
        &self,
        answer: &mut Vec<u8>,
        ticket: &Ticket,
        prepared: &Prepared,
        warning: Option<&str>,
    ) -> Result<()> {
        let compiled = prepared.compiled.borrow().clone();
        let version = self.session.version();
        let header = compiled.header();
        let markers = header.markers.encoded(version)?;
        let result = match compiled.result() {
            Some(result) => Some(result.encoded(version)?),
            None => None,
        };
        let nothing = Description::new(Vec::new());
        let metadata_id = *compiled.result().unwrap_or(&nothing).id();
        // Asks drivers that support it to send all requests of a partition to the same node:
        // proposers that do not meet cost each other no rounds.
        let mark = cql_wire::scylla::LWT_MARK;
        let prepared = PreparedResponse {
            id: &prepared.id,
            result_metadata_id: &metadata_id,
            markers: &markers.block,
            partition_key_indexes: header.inputs.pk_bind_indices().unwrap_or_default(),
            extra_flags: if compiled.is_conditional() { mark } else { 0 },
            columns: result.as_ref().map(|r| &r.block),
        };
        let negotiated = self.session.client.negotiated.get();
        let warnings = warning.as_slice();
        let about = Answering { warnings, ..Answering::new(self.stream, ticket) };
        self.session.respond(answer, &about, Opcode::Result, |body| {
            response::put_prepared(body, negotiated, &prepared)
        })
    }

    fn forwarded(&self, answer: &mut Vec<u8>, ticket: &Ticket, frame: &[u8]) -> bool {
        // This node's warnings precede those of the other node.
        let warnings = ticket.warnings();
        let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
        let tracing_id = ticket.tracing_id();
        let extras = FrameExtras { tracing_id, warnings: &warnings, custom_payload: &[] };
        let version = self.session.version();
        let frame = ResponseFrame::copied(answer, version, self.stream, &extras, frame);
        frame.is_some_and(|frame| self.session.finish(frame).is_ok())
    }

    fn failed(&self, answer: &mut Vec<u8>, ticket: &Ticket, failure: &Failure) {
        self.session.respond_failure(answer, self.stream, ticket, failure);
    }
}

impl ResultPage for FramePage<'_> {
    #[inline]
    fn body(&mut self) -> &mut Vec<u8> {
        self.frame.body()
    }

    #[inline]
    fn finish(mut self, end: PageEnd<'_>) -> Result<()> {
        let body = self.frame.body();
        if let Some(slot) = body.get_mut(self.count_at..self.count_at + 4) {
            slot.copy_from_slice(&end.rows.to_be_bytes());
        }
        if let Some(state) = end.paging_state {
            put_paging_state(body, self.body_at, state);
        }
        if !end.warnings.is_empty() || self.ticket.is_warned() {
            let of_limits = self.ticket.warnings();
            let all: Vec<&str> = of_limits.iter().chain(end.warnings).map(String::as_str).collect();
            self.frame.warn(&all)?;
        }
        self.session.finish(self.frame)?;
        Ok(())
    }
}

/// Inserts the paging state after the column count, where the protocol expects it.
fn put_paging_state(body: &mut Vec<u8>, body_at: usize, state: &[u8]) {
    let length = i32::try_from(state.len()).unwrap_or(i32::MAX);
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(state);
    let moved = state.len() + 4;
    if let Some(tail) = body.get_mut(body_at + PAGING_STATE_AT..) {
        tail.rotate_right(moved);
    }
    if let Some(flags) = body.get_mut(body_at + FLAGS_LOW_BYTE_AT) {
        *flags |= HAS_MORE_PAGES;
    }
}
