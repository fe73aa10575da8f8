//! Typed ids: two numbers of the same width never meet by accident.

use std::fmt;
use uuid::Uuid;

/// Position on the Murmur3 ring, the whole `i64` range. `i64::MIN` is never the token of a key
/// (Cassandra normalises it to `i64::MAX`), so it serves as the open lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

impl Token {
    /// Below every key's token.
    pub const MIN: Token = Token(i64::MIN);
    /// The largest token a key can have.
    pub const MAX: Token = Token(i64::MAX);
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id!(
    /// Identity of a node; addresses may change, this never does.
    HostId
);
uuid_id!(
    /// Identity of a table, decided in the metadata log; part of the table's directory name.
    TableId
);

impl TableId {
    /// The id without dashes, as it stands in directory names: `users-5a1c395e…`.
    pub fn to_hex(self) -> String {
        self.0.simple().to_string()
    }
}

/// Index of a shard within its node, `0..shard_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// Number of the last metadata-log entry that a snapshot contains; 0 is the empty log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// Number of a column within its table, from the metadata log, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u16);

/// Generation number in an SSTable's file name (`nb-<generation>-big-Data.db`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);
