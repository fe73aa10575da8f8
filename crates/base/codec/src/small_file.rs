//! Envelope of the small durable files: kind, version, body, checksum.
//!
//! A file is a header line `helenus-file <kind> <version>`, the body, and a last line `crc32 <8 lower-case hex
//! digits>` over everything before it (`docs/formats/small-files.md`). Any single changed byte, any cut and an empty
//! file are detected.

use std::fmt;

use crate::checksum::crc32;
use stdx::invariant;

/// First bytes of every file of this form; no earlier form begins with them.
pub const SMALL_FILE_PREFIX: &str = "helenus-file ";
const CHECK: &[u8] = b"crc32 ";
/// `crc32 `, eight digits, a line feed.
const CHECK_BYTES: usize = 15;
/// A header line is never longer.
const HEADER_BYTES_MAX: usize = 128;

/// Kind and version of a small durable file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallForm {
    /// Lower-case letters, digits and hyphens.
    pub kind: &'static str,
    /// Version of the body.
    pub version: u32,
}

/// Why bytes are not a file of this form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmallFileDefect {
    /// No byte at all.
    Empty,
    /// The first line is not a header of this form.
    Header,
    /// The file is of another kind, which it names.
    Kind(String),
    /// A release that writes another version wrote it.
    Version(String),
    /// The last line is missing or is not the checksum of the bytes before it.
    Checksum,
}

impl fmt::Display for SmallFileDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SmallFileDefect::Empty => f.write_str("it is empty"),
            SmallFileDefect::Header => f.write_str("its first line is not what was written"),
            SmallFileDefect::Kind(kind) => write!(f, "it is a file of kind \"{kind}\""),
            SmallFileDefect::Version(version) => {
                write!(f, "version \"{version}\" of its format is not supported by this release")
            }
            SmallFileDefect::Checksum => f.write_str("checksum mismatch"),
        }
    }
}

/// Returns true if the bytes claim to be of this form; other bytes may be of the previous form.
pub fn is_small_file(bytes: &[u8]) -> bool {
    bytes.starts_with(SMALL_FILE_PREFIX.as_bytes())
}

impl SmallForm {
    /// The whole file around a body.
    pub fn encode(&self, body: &[u8]) -> Vec<u8> {
        let mut out = format!("{SMALL_FILE_PREFIX}{} {}\n", self.kind, self.version).into_bytes();
        invariant!(
            out.len() <= HEADER_BYTES_MAX && !self.kind.contains([' ', '\n']),
            "small file: its kind {:?} could not be read back",
            self.kind
        );
        out.extend_from_slice(body);
        let check = crc32(&out);
        let covered = out.len();
        out.extend_from_slice(format!("crc32 {check:08x}\n").as_bytes());
        invariant!(
            out.len() == covered.saturating_add(CHECK_BYTES),
            "small file: checksum line of {} bytes, its reader expects {CHECK_BYTES}",
            out.len().saturating_sub(covered)
        );
        out
    }

    /// The body of a file.
    ///
    /// # Errors
    /// The first defect found. The checksum decides before kind and version are believed.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], SmallFileDefect> {
        if bytes.is_empty() {
            return Err(SmallFileDefect::Empty);
        }
        let split = bytes.len().checked_sub(CHECK_BYTES).ok_or(SmallFileDefect::Checksum)?;
        let (covered, check) = bytes.split_at_checked(split).ok_or(SmallFileDefect::Checksum)?;
        let expected = format!("crc32 {:08x}\n", crc32(covered));
        if !check.starts_with(CHECK) || check != expected.as_bytes() {
            return Err(SmallFileDefect::Checksum);
        }
        let rest =
            covered.strip_prefix(SMALL_FILE_PREFIX.as_bytes()).ok_or(SmallFileDefect::Header)?;
        let end = rest.iter().take(HEADER_BYTES_MAX).position(|byte| *byte == b'\n');
        let end = end.ok_or(SmallFileDefect::Header)?;
        let (header, body) = rest.split_at_checked(end).ok_or(SmallFileDefect::Header)?;
        let header = std::str::from_utf8(header).map_err(|_| SmallFileDefect::Header)?;
        let (kind, version) = header.split_once(' ').ok_or(SmallFileDefect::Header)?;
        if kind != self.kind {
            return Err(SmallFileDefect::Kind(kind.to_owned()));
        }
        if version != self.version.to_string() {
            return Err(SmallFileDefect::Version(version.to_owned()));
        }
        Ok(body.strip_prefix(b"\n").unwrap_or(body))
    }
}

/// A text with the checksum of it as its last line, `crc32 <8 hex digits>`: records, and small files of earlier
/// releases. New kinds of files take [`SmallForm`].
pub fn seal_text(mut text: String) -> Vec<u8> {
    let check = crc32(text.as_bytes());
    text.push_str(&format!("crc32 {check:08x}\n"));
    text.into_bytes()
}

/// Returns the text that [`seal_text`] was given, without `head`. `None`: the bytes are not such a
/// text.
pub fn open_text<'a>(bytes: &'a [u8], head: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (body, check) = text.split_at_checked(text.len().checked_sub(CHECK_BYTES)?)?;
    let is_right = check == format!("crc32 {:08x}\n", crc32(body.as_bytes()));
    body.strip_prefix(head).filter(|_| is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: SmallForm = SmallForm { kind: "test", version: 2 };

    #[test]
    fn the_bytes_on_disk_are_as_documented() {
        let file = FORM.encode(b"run 7\n");
        assert_eq!(file, b"helenus-file test 2\nrun 7\ncrc32 c8e4d031\n");
        assert!(is_small_file(&file));
    }

    #[test]
    fn a_body_reads_back_and_every_change_of_the_file_is_seen() {
        for body in [&b""[..], b"\n", b"crc32 00000000\n", b"a\0b", &[0xff; 300]] {
            let file = FORM.encode(body);
            assert_eq!(FORM.decode(&file), Ok(body));
            for at in 0..file.len() {
                assert!(FORM.decode(&file[..at]).is_err(), "cut at {at}");
                for bit in 0..8 {
                    let mut bad = file.clone();
                    bad[at] ^= 1 << bit;
                    assert!(FORM.decode(&bad).is_err(), "bit {bit} of byte {at}");
                }
            }
            let mut longer = file.clone();
            longer.push(b'\n');
            assert_eq!(FORM.decode(&longer), Err(SmallFileDefect::Checksum));
        }
    }

    #[test]
    fn a_text_with_its_checksum_is_opened_and_every_change_of_it_is_seen() {
        let bytes = seal_text("head 1\na line\n".to_owned());
        assert_eq!(bytes, b"head 1\na line\ncrc32 43597fb5\n");
        assert_eq!(open_text(&bytes, "head 1\n"), Some("a line\n"));
        assert_eq!(open_text(&bytes, "head 2\n"), None);
        for at in 0..bytes.len() {
            assert_eq!(open_text(&bytes[..at], ""), None, "cut at {at}");
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(open_text(&bad, ""), None, "flip at {at}");
        }
    }

    #[test]
    fn another_kind_and_another_version_are_named() {
        let other = SmallForm { kind: "other", version: 2 }.encode(b"x");
        assert_eq!(FORM.decode(&other), Err(SmallFileDefect::Kind("other".to_owned())));
        let newer = SmallForm { kind: "test", version: 3 }.encode(b"x");
        assert_eq!(FORM.decode(&newer), Err(SmallFileDefect::Version("3".to_owned())));
        assert_eq!(FORM.decode(b""), Err(SmallFileDefect::Empty));
    }
}
