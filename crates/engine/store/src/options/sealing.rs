//! Which files are encrypted when they are written.

use schema::Table;
use sstable::Sealing;

/// Encryption of the node's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealingPolicy {
    /// SSTables of the users' keyspaces.
    pub user: Sealing,
    /// SSTables of keyspaces of the system: the batch log and Paxos hold rows of users.
    pub system: Sealing,
}

impl SealingPolicy {
    /// The encryption of a table's new SSTables.
    pub fn of(&self, table: &Table) -> Sealing {
        if SYSTEM_KEYSPACES.contains(&&*table.keyspace) { self.system } else { self.user }
    }

    /// The encryption of saved caches, which hold keys of users' tables.
    pub(crate) fn of_saved_caches(&self) -> Sealing {
        match (self.user, self.system) {
            (Sealing::Plain, Sealing::Plain) => Sealing::Plain,
            _ => Sealing::Sealed,
        }
    }
}

/// Keyspaces of the system that have files.
const SYSTEM_KEYSPACES: [&str; 5] =
    ["system", "system_auth", "system_distributed", "system_schema", "system_traces"];
