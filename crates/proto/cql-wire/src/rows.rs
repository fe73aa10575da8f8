//! RESULT of kind rows, written row by row into the connection's output.

use crate::constants::Opcode;
use crate::error::Result;
use crate::frame::{FrameExtras, ResponseFrame};
use crate::metadata::{ColumnsBlock, HAS_MORE_PAGES, put_result_metadata};
use crate::primitive::put_bytes;
use crate::response::result_kind;
use crate::version::ProtocolVersion;
use codec::Writer;
use codec::writer::LengthError;

/// Part of the description that a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataMode<'a> {
    /// All columns.
    Full,
    /// None: the client has them from PREPARE.
    Skip,
    /// All columns and a new id, because they changed since PREPARE. Only where ids are in use
    /// ([`crate::Negotiated::has_metadata_id`]).
    Changed(&'a [u8]),
}

/// Writes one page. Nothing is allocated beside the growth of the output.
///
/// A row is `column count` calls of `value`, `null` or `value_with`, then `end_row`. The count of rows and a paging
/// state, both known only at the end, are put in by `finish`. Dropped before that, the output is as it was.
#[derive(Debug)]
pub struct RowsEncoder<'o> {
    frame: ResponseFrame<'o>,
    flags_at: usize,
    paging_at: usize,
    count_at: usize,
    row_at: usize,
    rows: u32,
}

impl<'o> RowsEncoder<'o> {
    /// Begins the frame and describes the columns.
    ///
    /// # Errors
    /// `TooLong` for extras that do not fit.
    pub fn begin(
        out: &'o mut Vec<u8>,
        version: ProtocolVersion,
        stream: i16,
        extras: &FrameExtras<'_>,
        columns: &ColumnsBlock,
        mode: MetadataMode<'_>,
    ) -> Result<RowsEncoder<'o>> {
        let mut frame = ResponseFrame::begin(out, version, stream, Opcode::Result, extras)?;
        let body = frame.body();
        body.put_i32(result_kind::ROWS);
        let flags_at = body.len();
        let (skip, new_id) = match mode {
            MetadataMode::Full => (false, None),
            MetadataMode::Skip => (true, None),
            MetadataMode::Changed(id) => (false, Some(id)),
        };
        let paging_at = put_result_metadata(body, columns, skip, new_id, None)?;
        let count_at = body.len();
        body.put_u32(0);
        let row_at = body.len();
        Ok(RowsEncoder { frame, flags_at, paging_at, count_at, row_at, rows: 0 })
    }

    /// The next value of the row.
    ///
    /// # Errors
    /// `TooLong` above 2 GiB.
    #[inline]
    pub fn value(&mut self, value: &[u8]) -> Result<()> {
        Ok(self.frame.body().put_bytes_i32(value, "value")?)
    }

    /// The next value of the row, null.
    #[inline]
    pub fn null(&mut self) {
        self.frame.body().put_i32(-1);
    }

    /// The next value of the row, which `write` appends; its length is put in front.
    ///
    /// # Errors
    /// `TooLong` above 2 GiB.
    #[inline]
    pub fn value_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let body = self.frame.body();
        let at = body.len();
        body.put_u32(0);
        let start = body.len();
        write(body);
        let length = body.len().saturating_sub(start);
        let max = i32::MAX as usize;
        match u32::try_from(length) {
            Ok(short) if length <= max => {
                body.patch_u32(at, short);
                Ok(())
            }
            _ => Err(LengthError { what: "value", length, max }.into()),
        }
    }

    /// The row is complete.
    #[inline]
    pub fn end_row(&mut self) {
        self.rows = self.rows.saturating_add(1);
        self.row_at = self.frame.body().len();
    }

    /// Takes back the values since the last `end_row`: the row goes to the next page.
    pub fn cancel_row(&mut self) {
        let at = self.row_at;
        self.frame.body().truncate(at);
    }

    /// Complete rows so far.
    #[inline]
    pub fn row_count(&self) -> u32 {
        self.rows
    }

    /// Bytes of the body so far.
    #[inline]
    pub fn body_len(&self) -> usize {
        self.frame.body_len()
    }

    /// Puts in row count and paging state and hands back the frame, to be finished plain or compressed.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn into_frame(mut self, paging_state: Option<&[u8]>) -> Result<ResponseFrame<'o>> {
        self.cancel_row();
        let (rows, count_at, flags_at, paging_at) =
            (self.rows, self.count_at, self.flags_at, self.paging_at);
        let body = self.frame.body();
        body.patch_u32(count_at, rows);
        if paging_state.is_some() {
            // Written at the end and rotated to its place: one move of the page instead of a second buffer.
            let end = body.len();
            put_bytes(body, paging_state)?;
            let length = body.len().saturating_sub(end);
            match body.get_mut(paging_at..) {
                Some(tail) => tail.rotate_right(length),
                None => {
                    stdx::invariant!(false, "rows: no place for the paging state at {paging_at}")
                }
            }
            // The low byte of the flags.
            match body.get_mut(flags_at.saturating_add(3)) {
                Some(bits) => *bits |= HAS_MORE_PAGES.to_le_bytes()[0],
                None => stdx::invariant!(false, "rows: no place for the flags at {flags_at}"),
            }
        }
        Ok(self.frame)
    }

    /// Like [`RowsEncoder::into_frame`], and finishes the frame without compression. Returns its
    /// bytes.
    ///
    /// # Errors
    /// `TooLong`.
    pub fn finish(self, paging_state: Option<&[u8]>) -> Result<usize> {
        self.into_frame(paging_state)?.finish()
    }
}
