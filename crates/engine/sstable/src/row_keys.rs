//! Primary keys of rows whose positions in Data are known, as the rows of an index are.
//!
//! It reads the header of the partition, unless the row before was of the same, and the beginning of the row. Bytes
//! come from blocks that the driver feeds.

use std::rc::Rc;

use codec::{DecodeError, DecodeErrorKind};
use data::CursorError;
use sst_format::row::{decode_head, decode_partition_header};
use sst_format::{HeadKind, RowScratch};
use stdx::Token;

use crate::block::{Chunk, Window};
use crate::meta::SstableMeta;

/// Reads keys of one file, best in ascending order.
#[derive(Debug)]
pub struct RowKeys {
    meta: Rc<SstableMeta>,
    data: Window,
    scratch: RowScratch,
    /// Offset of the partition whose key is in `key`.
    partition: Option<u64>,
    key: Vec<u8>,
    is_static: bool,
}

/// A key that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadKey<'a> {
    /// Token of the partition.
    pub token: Token,
    /// Its key.
    pub partition: &'a [u8],
    /// Clustering of the row; `None`: it is the static row.
    pub clustering: Option<&'a [u8]>,
}

impl RowKeys {
    /// A reader of a file.
    pub fn new(meta: Rc<SstableMeta>) -> RowKeys {
        RowKeys {
            data: Window::new(0, meta.data_block_bytes(), meta.data_length(), Vec::new()),
            meta,
            scratch: RowScratch::default(),
            partition: None,
            key: Vec::new(),
            is_static: false,
        }
    }

    /// Takes the block that was asked for.
    pub fn feed(&mut self, block: u64, chunk: Rc<Chunk>) {
        self.data.feed(block, chunk);
    }

    /// Reads the key of the row at these offsets. Some: feed this block, then call again. None: see [`RowKeys::key`].
    ///
    /// # Errors
    /// `Corrupt`: no partition or row lies there.
    pub fn read(&mut self, partition: u64, row: u64) -> Result<Option<u64>, CursorError> {
        if let Some(why) = self.meta.unreadable() {
            return Err(self.corrupt(0, why));
        }
        if self.partition != Some(partition) {
            self.data.seek(partition);
            let header = decode_partition_header(self.data.bytes(), self.meta.version());
            let (key, _, _) = match header {
                Ok(header) => header,
                Err(error) => return self.missing(&error),
            };
            self.key.clear();
            self.key.extend_from_slice(key);
            self.partition = Some(partition);
        }
        self.data.seek(row);
        let head = decode_head(self.meta.schema(), self.data.bytes(), &mut self.scratch);
        match head.map(|head| head.kind) {
            Ok(kind @ (HeadKind::Row | HeadKind::StaticRow)) => {
                self.is_static = kind == HeadKind::StaticRow;
                Ok(None)
            }
            Ok(_) => Err(self.corrupt(row, "no row lies where an index points to")),
            Err(error) => self.missing(&error),
        }
    }

    /// The key that was read last.
    pub fn key(&self) -> ReadKey<'_> {
        ReadKey {
            token: self.meta.token_of(&self.key),
            partition: &self.key,
            clustering: (!self.is_static).then_some(&self.scratch.clustering),
        }
    }

    /// A decoder ran out of bytes: more are needed, or the file is damaged.
    fn missing(&self, error: &DecodeError) -> Result<Option<u64>, CursorError> {
        if let (DecodeErrorKind::Truncated { .. }, Some(block)) = (error.kind, self.data.needed()) {
            return Ok(Some(block));
        }
        let offset = self.data.position().saturating_add(error.offset as u64);
        Err(self.corrupt(offset, &error.to_string()))
    }

    fn corrupt(&self, offset: u64, what: &str) -> CursorError {
        let file = self.meta.data_file().to_owned();
        CursorError::Corrupt { file, offset, what: what.to_owned() }
    }
}
