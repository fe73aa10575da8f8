//! The container: excerpts after one another, each a header word and its bytes; zeros after the last one.
//!
//! Owns: header words, the file's header excerpt, padding. Never: what is in an excerpt of data.

use super::ChronicleError;
use super::wire::WireReader;
use crate::framing::PAYLOAD_BYTES_MAX;
use codec::DecodeError;

/// Bytes of a header word.
pub const WORD_BYTES: usize = 4;
/// Bit of a header word: the excerpt is being written.
const NOT_COMPLETE: u32 = 1 << 31;
/// Bit of a header word: the excerpt is metadata.
const META_DATA: u32 = 1 << 30;
/// Header word after the last excerpt of a file that was closed.
const END_OF_FILE: u32 = NOT_COMPLETE | META_DATA;
/// Bits of a header word: length of the excerpt.
const LENGTH_MASK: u32 = META_DATA - 1;
/// Longest header. Chronicle writes about 200 bytes.
const HEADER_BYTES_MAX: u32 = 64 << 10;
/// Data format of excerpts that begin at multiples of four bytes. Version 0 has them back to back.
const PADDED: i64 = 1;

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// With the end mark: nothing will be appended.
    Closed,
    /// With zeros, or with an excerpt that is being written: more may come, unless the writer has ended.
    Open,
}

/// Bytes of an excerpt within its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// Offset of the header word: the name of the excerpt in errors.
    pub offset: u64,
    /// Offset of the first byte after it.
    pub begin: u64,
    /// Number of bytes.
    pub length: usize,
}

/// The meaning of a header word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The header of the file: read it and pass it to [`QueueCursor::open`].
    Header(Excerpt),
    /// A record.
    Record(Excerpt),
    /// Metadata: the index of the queue.
    Skipped,
    /// The end. A file that is open may be asked again later, at the same offset.
    End(QueueEnd),
}

/// Position in a file of a queue. The caller reads the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCursor {
    offset: u64,
    /// Settings of the header, once it was read.
    format: Option<QueueFormat>,
}

/// Settings of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueFormat {
    is_padded: bool,
}

impl QueueCursor {
    /// Offset of the header word that [`QueueCursor::step`] wants.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Decides by the header word at [`QueueCursor::offset`], and moves past its excerpt. `word` is shorter at the
    /// end of the file. `file_bytes` is the file's length.
    ///
    /// # Errors
    /// No header, an excerpt that is too long or reaches beyond the end of the file.
    pub fn step(&mut self, word: &[u8], file_bytes: u64) -> Result<Step, ChronicleError> {
        let offset = self.offset;
        let available = file_bytes.saturating_sub(offset);
        let Some(word) = word.first_chunk::<WORD_BYTES>() else {
            if word.iter().all(|byte| *byte == 0) {
                return Ok(Step::End(QueueEnd::Open));
            }
            return Err(ChronicleError::Cut { offset, needed: WORD_BYTES as u64, available });
        };
        let word = u32::from_le_bytes(*word);
        if word == END_OF_FILE {
            return Ok(Step::End(QueueEnd::Closed));
        }
        if word == 0 || word & NOT_COMPLETE != 0 {
            return Ok(Step::End(QueueEnd::Open));
        }
        let length = word & LENGTH_MASK;
        let is_data = word & META_DATA == 0;
        if self.format.is_none() && (is_data || length > HEADER_BYTES_MAX) {
            return Err(ChronicleError::NoHeader);
        }
        if length as usize > PAYLOAD_BYTES_MAX {
            return Err(ChronicleError::Length { offset, length });
        }
        let begin = offset.saturating_add(WORD_BYTES as u64);
        let needed = u64::from(length).saturating_add(WORD_BYTES as u64);
        if needed > available {
            return Err(ChronicleError::Cut { offset, needed, available });
        }
        let excerpt = Excerpt { offset, begin, length: length as usize };
        let Some(format) = self.format else { return Ok(Step::Header(excerpt)) };
        self.offset = end_of(excerpt, format);
        Ok(if is_data { Step::Record(excerpt) } else { Step::Skipped })
    }

    /// Checks the header of the file, and moves past it.
    ///
    /// # Errors
    /// The bytes are no header, or one of an unsupported kind.
    pub fn open(&mut self, excerpt: Excerpt, payload: &[u8]) -> Result<(), ChronicleError> {
        let format = read_header(payload)?;
        self.offset = end_of(excerpt, format);
        self.format = Some(format);
        Ok(())
    }
}

/// Offset of the next header word.
fn end_of(excerpt: Excerpt, format: QueueFormat) -> u64 {
    let end = excerpt.begin.saturating_add(excerpt.length as u64);
    if format.is_padded {
        end.checked_next_multiple_of(WORD_BYTES as u64).unwrap_or(end)
    } else {
        end
    }
}

/// Reads the header: `header: !SCQStore { writePosition, indexing, dataFormat }`. Older versions have more fields.
fn read_header(payload: &[u8]) -> Result<QueueFormat, ChronicleError> {
    let mut wire = WireReader::new(payload, "header");
    let name = wire.field().map_err(|_| ChronicleError::NoHeader)?;
    if name.as_deref() != Some("header") {
        return Err(ChronicleError::NoHeader);
    }
    let fields = |error: DecodeError| ChronicleError::Fields { offset: 0, error };
    let store = wire.type_prefix().map_err(fields)?;
    if store != "SCQStore" {
        return Err(ChronicleError::StoreType(store));
    }
    let mut body = wire.nested().map_err(fields)?;
    // A file without the field has excerpts back to back.
    let mut data_format = 0;
    while let Some(field) = body.field().map_err(fields)? {
        match field.as_str() {
            "dataFormat" => data_format = body.integer().map_err(fields)?,
            "wireType" => {
                body.type_prefix().map_err(fields)?;
                let value = body.text().map_err(fields)?.unwrap_or_default();
                if value != "BINARY_LIGHT" && value != "BINARY" {
                    return Err(ChronicleError::Setting { field: "wireType", value });
                }
            }
            _ => body.skip_value().map_err(fields)?,
        }
    }
    match data_format {
        0 | PADDED => Ok(QueueFormat { is_padded: data_format == PADDED }),
        other => Err(ChronicleError::Setting { field: "dataFormat", value: other.to_string() }),
    }
}
