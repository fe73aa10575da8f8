//! Files of checksummed frames: a header with name and version, then frames of a length, a checksum and a payload.
//!
//! Owns: header and frames. Never: what is in a payload. A frame that a crash cut off is the last one of its file: a
//! start never appends to an older file.

use codec::checksum::Crc32;

/// Bytes of the header: magic, version, checksum of both.
pub const HEADER_BYTES: usize = 16;
/// Bytes before the payload of a frame: its length, its checksum.
pub const FRAME_HEADER_BYTES: usize = 8;
/// Longest payload of a frame. A request is at most 256 MiB.
pub const PAYLOAD_BYTES_MAX: usize = 512 << 20;

/// Name and version of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFormat {
    /// First bytes of a file.
    pub magic: [u8; 8],
    /// Version of the format.
    pub version: u32,
    /// Name of the files in errors.
    pub name: &'static str,
}

/// Defect of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The file is none of this format.
    #[error("not a {0} of Helenus")]
    Magic(&'static str),
    /// The file has another version.
    #[error("version {version} of the {name} is not supported")]
    Version {
        /// Name of the files.
        name: &'static str,
        /// Its version.
        version: u32,
    },
    /// The header is damaged.
    #[error("checksum mismatch in the header")]
    Header,
    /// The file ends within a frame, as after a crash or while it is written.
    #[error("the file ends within a record at offset {offset}")]
    Cut {
        /// Offset of the frame.
        offset: u64,
    },
    /// A frame is damaged.
    #[error("checksum mismatch of the record at offset {offset}")]
    Checksum {
        /// Offset of the frame.
        offset: u64,
    },
    /// A frame is longer than any can be, or empty.
    #[error("the record at offset {offset} claims {length} bytes")]
    Length {
        /// Offset of the frame.
        offset: u64,
        /// The claimed length.
        length: u32,
    },
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload.
    pub length: u32,
    /// Checksum of the length and the payload.
    pub checksum: u32,
}

impl FileFormat {
    /// Returns the header of a file.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let (name, rest) = out.split_at_mut(8);
        name.copy_from_slice(&self.magic);
        let (version, checksum) = rest.split_at_mut(4);
        version.copy_from_slice(&self.version.to_le_bytes());
        checksum.copy_from_slice(&self.header_checksum(self.version).to_le_bytes());
        out
    }

    /// Checks the header of a file.
    ///
    /// # Errors
    /// Other bytes, another version, a damaged or cut header.
    pub fn check_header(&self, bytes: &[u8]) -> Result<(), FrameError> {
        let known = bytes.get(..8).unwrap_or(bytes);
        if !self.magic.starts_with(known) {
            return Err(FrameError::Magic(self.name));
        }
        let (Some(version), Some(checksum)) = (u32_at(bytes, 8), u32_at(bytes, 12)) else {
            return Err(FrameError::Cut { offset: 0 });
        };
        if self.header_checksum(version) != checksum {
            return Err(FrameError::Header);
        }
        if version != self.version {
            return Err(FrameError::Version { name: self.name, version });
        }
        Ok(())
    }

    fn header_checksum(&self, version: u32) -> u32 {
        let mut sum = Crc32::new();
        sum.update(&self.magic);
        sum.update(&version.to_le_bytes());
        sum.value()
    }
}

impl FrameHead {
    /// Reads the head of the frame at `offset` of its file.
    ///
    /// # Errors
    /// No payload has that length.
    pub fn parse(bytes: [u8; FRAME_HEADER_BYTES], offset: u64) -> Result<FrameHead, FrameError> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let length = u32::from_le_bytes([a, b, c, d]);
        let checksum = u32::from_le_bytes([e, f, g, h]);
        if length == 0 || length as usize > PAYLOAD_BYTES_MAX {
            return Err(FrameError::Length { offset, length });
        }
        Ok(FrameHead { length, checksum })
    }

    /// Checks the payload.
    ///
    /// # Errors
    /// Its length or checksum is another one.
    pub fn check(&self, payload: &[u8], offset: u64) -> Result<(), FrameError> {
        let is_whole = payload.len() == self.length as usize;
        if is_whole && frame_checksum(self.length, payload) == self.checksum {
            Ok(())
        } else {
            Err(FrameError::Checksum { offset })
        }
    }
}

/// Appends a frame whose payload `write` appends.
pub fn push_frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    write(out);
    let payload = out.get(begin + FRAME_HEADER_BYTES..).unwrap_or_default();
    // Requests are shorter than 4 GiB.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let checksum = frame_checksum(length, payload);
    if let Some(head) = out.get_mut(begin..begin + FRAME_HEADER_BYTES) {
        let (of_length, of_checksum) = head.split_at_mut(4);
        of_length.copy_from_slice(&length.to_le_bytes());
        of_checksum.copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Reads the frame at the beginning of `rest`; `offset` is its offset in the file. Returns its payload and the bytes of
/// the whole frame; `None` at the end.
///
/// # Errors
/// The frame is cut off or damaged.
pub fn next_frame(rest: &[u8], offset: u64) -> Result<Option<(&[u8], usize)>, FrameError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let Some((head, body)) = rest.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        return Err(FrameError::Cut { offset });
    };
    let head = FrameHead::parse(*head, offset)?;
    let bytes = head.length as usize;
    let payload = body.get(..bytes).ok_or(FrameError::Cut { offset })?;
    head.check(payload, offset)?;
    Ok(Some((payload, FRAME_HEADER_BYTES + bytes)))
}

fn frame_checksum(length: u32, payload: &[u8]) -> u32 {
    let mut sum = Crc32::new();
    sum.update(&length.to_le_bytes());
    sum.update(payload);
    sum.value()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}
