//! A file of checksummed frames, read frame by frame while it grows: logs of requests.
//!
//! Never: what is in a frame.

use query_log::framing::{FRAME_HEADER_BYTES, FileFormat, FrameError, FrameHead, HEADER_BYTES};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file, and the offset of its next frame.
#[derive(Debug)]
pub struct FrameFile {
    path: PathBuf,
    file: File,
    format: FileFormat,
    /// 0 before the header was read.
    offset: u64,
}

/// Outcome of reading at the offset of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole frame.
    Frame {
        /// Its offset.
        offset: u64,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// The end of the file.
    End,
    /// The end of the file within its header or a frame: after a crash, or while it is written.
    Cut(u64),
}

/// Why a file is not read further.
#[derive(Debug)]
pub enum FrameDefect {
    /// It cannot be read.
    Io(io::Error),
    /// It is damaged, or none of the format.
    Damage(FrameError),
}

impl From<io::Error> for FrameDefect {
    fn from(error: io::Error) -> FrameDefect {
        FrameDefect::Io(error)
    }
}

impl From<FrameError> for FrameDefect {
    fn from(error: FrameError) -> FrameDefect {
        FrameDefect::Damage(error)
    }
}

impl FrameFile {
    /// Opens a file at the offset of a frame; 0: at its header.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path, format: FileFormat, offset: u64) -> io::Result<FrameFile> {
        Ok(FrameFile { path: path.to_owned(), file: File::open(path)?, format, offset })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the next frame; 0 before the header was read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next frame, and moves past it if it is whole.
    ///
    /// # Errors
    /// See [`FrameDefect`].
    pub fn next_frame(&mut self) -> Result<Piece, FrameDefect> {
        let length = self.file.metadata()?.len();
        if self.offset == 0 {
            let mut header = vec![0; HEADER_BYTES];
            let read = self.read_at(0, &mut header)?;
            header.truncate(read);
            match self.format.check_header(&header) {
                Ok(()) => self.offset = HEADER_BYTES as u64,
                Err(FrameError::Cut { .. }) => return Ok(Piece::Cut(0)),
                Err(error) => return Err(error.into()),
            }
        }
        let offset = self.offset;
        if offset >= length {
            return Ok(Piece::End);
        }
        let mut head = [0; FRAME_HEADER_BYTES];
        if self.read_at(offset, &mut head)? < head.len() {
            return Ok(Piece::Cut(offset));
        }
        let head = FrameHead::parse(head, offset)?;
        let end = offset + FRAME_HEADER_BYTES as u64 + u64::from(head.length);
        if end > length {
            return Ok(Piece::Cut(offset));
        }
        // The file is that long: no more is allocated than there is.
        let mut payload = vec![0; head.length as usize];
        if self.read_at(offset + FRAME_HEADER_BYTES as u64, &mut payload)? < payload.len() {
            return Ok(Piece::Cut(offset));
        }
        head.check(&payload, offset)?;
        self.offset = end;
        Ok(Piece::Frame { offset, payload })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while let Some(rest) = out.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset.saturating_add(read as u64)) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}
