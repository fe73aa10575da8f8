//! Attached components: files of a file set that are of no fixed kind, such as those of a secondary index.
//!
//! An extension names its component and its lifecycle ([`AttachedKind`]); everything that handles file sets
//! works with these two values and has no list of kinds. Components that this program wrote are listed in
//! Checksums.db with their [`Lifecycle`], so that a build without the extension handles them right too.
//! Those of other programs (Cassandra's `SAI+…`, ScyllaDB's `Scylla.db`) are listed in TOC.txt alone.
//!
//! | | listed in Checksums.db | in TOC.txt alone |
//! | --- | --- | --- |
//! | verified | block by block | no |
//! | linked by snapshots and backups | yes | when it exists |
//! | removed with the file set | yes | yes |
//! | streamed with the whole file | by its lifecycle | no |
//! | imported | yes | no |
//! | missing | by its lifecycle | ignored |
//!
//! A rewrite of the rows (compaction, scrub) drops all of them: the writer of the new file builds its own.

use std::fmt;

use crate::Component;

/// Longest name of an attached component, bytes.
pub const ATTACHED_NAME_BYTES_MAX: usize = 96;
/// Attached components that one file set has in its Checksums.db at most.
pub const ATTACHED_MAX: usize = 64;

/// Begins the names of notes that a shard released a file.
const NOTES: &str = "Released.";
/// End the names of marks of unfinished work.
const MARKS: [&str; 2] = [".tmp", ".removed"];

/// The end of the file name of an attached component, after `nb-1-big-`: a name in the directory of
/// the file set, which no other file can have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachedName {
    /// Zeros follow the name, so that the order is that of the names.
    bytes: [u8; ATTACHED_NAME_BYTES_MAX],
    length: u8,
}

impl AttachedName {
    /// Checks a name: printable ASCII without blanks and `/`, no `..`, not the name of a component of a fixed
    /// kind, a mark or a note. `None`: it cannot be one. A component of this program has no `-` in its name: a
    /// Cassandra refuses a directory in which a file name that ends in `.db` does not have exactly four parts.
    pub fn parse(name: &str) -> Option<AttachedName> {
        let is_printable = name.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
        let is_taken = name.starts_with(NOTES) || MARKS.iter().any(|mark| name.ends_with(mark));
        let is_valid = is_printable
            && !is_taken
            && !name.starts_with('.')
            && !name.contains("..")
            && !name.is_empty()
            && Component::from_file_name(name).is_none();
        let mut bytes = [0; ATTACHED_NAME_BYTES_MAX];
        bytes.get_mut(..name.len()).filter(|_| is_valid)?.copy_from_slice(name.as_bytes());
        Some(AttachedName { bytes, length: u8::try_from(name.len()).ok()? })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        let name = self.bytes.get(..usize::from(self.length)).unwrap_or(&[]);
        std::str::from_utf8(name).unwrap_or_default()
    }
}

impl fmt::Debug for AttachedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for AttachedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Lifecycle of a component that this program wrote, where it may differ from that of its file set.
/// All are verified, linked, imported and removed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Its content is nowhere else: a file set that lost it is damaged. Streamed with the file. That of all
    /// fixed kinds.
    Essential,
    /// Can be rebuilt from the rows: a file set that lost it is served, and names it. Streamed with the file.
    Derived,
    /// Like `Derived`, but of this node only: not streamed, the receiver builds its own.
    Local,
}

impl Lifecycle {
    /// All of them.
    pub const ALL: [Lifecycle; 3] = [Lifecycle::Essential, Lifecycle::Derived, Lifecycle::Local];

    /// Its number in Checksums.db.
    pub fn code(self) -> u8 {
        match self {
            Lifecycle::Essential => 0,
            Lifecycle::Derived => 1,
            Lifecycle::Local => 2,
        }
    }

    /// The lifecycle of that number.
    pub fn from_code(code: u8) -> Option<Lifecycle> {
        Lifecycle::ALL.into_iter().find(|lifecycle| lifecycle.code() == code)
    }

    /// Returns true if the component is sent with a file that is streamed whole.
    pub fn is_streamed(self) -> bool {
        self != Lifecycle::Local
    }

    /// Returns true if it is rebuilt when it is missing; otherwise the file set is damaged.
    pub fn is_rebuilt(self) -> bool {
        self != Lifecycle::Essential
    }
}

/// A kind of attached component, as an extension declares it to the writer of a file set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedKind {
    /// Its name.
    pub name: AttachedName,
    /// Its lifecycle.
    pub lifecycle: Lifecycle,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_those_of_other_files_are_refused() {
        let longest = "x".repeat(ATTACHED_NAME_BYTES_MAX);
        for name in ["SAI+aa+by_name+TermsData.db", "Index+7.db", "Scylla.db", &longest] {
            let parsed = AttachedName::parse(name).unwrap();
            assert_eq!(parsed.as_str(), name);
            let component = Component::any_from_file_name(name).unwrap();
            assert_eq!((component, component.file_name()), (Component::Attached(parsed), name));
        }
        let too_long = "x".repeat(ATTACHED_NAME_BYTES_MAX + 1);
        for name in [
            "",
            "Data.db",
            "TOC.txt.tmp",
            "TOC.txt.removed",
            "Index+7.db.tmp",
            "Released.0of2",
            "../x",
            "a/b",
            "a..b",
            ".x",
            "a b",
            "a\n",
            "ä",
            &too_long,
        ] {
            assert_eq!(AttachedName::parse(name), None, "{name}");
        }
        let [a, ab, b] = ["a", "ab", "b"].map(|name| AttachedName::parse(name).unwrap());
        assert!(a < ab && ab < b, "in the order of the names");
    }

    #[test]
    fn lifecycles_come_back() {
        for lifecycle in Lifecycle::ALL {
            assert_eq!(Lifecycle::from_code(lifecycle.code()), Some(lifecycle));
        }
        assert_eq!(Lifecycle::from_code(3), None);
    }
}
