//! Which files are encrypted when they are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use at_rest::KeySource;
use schema::{Table, TableKeys};
use sstable::Sealing;

/// Encryption of the node's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealingPolicy {
    /// SSTables of the users' keyspaces.
    pub user: Sealing,
    /// SSTables of keyspaces of the system: the batch log and Paxos hold rows of users.
    pub system: Sealing,
    /// Hosts of providers (`kms:aws`), each with the key where a table names none.
    pub hosts: Arc<BTreeMap<String, Option<String>>>,
}

impl SealingPolicy {
    /// The encryption of a table's new SSTables.
    pub fn of(&self, table: &Table) -> Sealing {
        if SYSTEM_KEYSPACES.contains(&&*table.keyspace) {
            return self.system.clone();
        }
        match table.options.encryption().map(|option| option.keys) {
            None => self.user.clone(),
            Some(TableKeys::None) => Sealing::Plain,
            Some(TableKeys::File) => Sealing::Sealed,
            Some(TableKeys::Host { kind, host, key }) => {
                let provider = format!("{kind}:{host}");
                // A host that the settings do not have is refused by its name when it is asked.
                let key = key.or_else(|| self.hosts.get(&provider).cloned().flatten());
                let source = KeySource { provider, key: key.unwrap_or_default() };
                Sealing::SealedBy(Arc::new(source))
            }
        }
    }

    /// The encryption of saved caches, which hold keys of users' tables.
    pub(crate) fn of_saved_caches(&self) -> &Sealing {
        if self.user.is_sealed() { &self.user } else { &self.system }
    }
}

/// Keyspaces of the system that have files.
const SYSTEM_KEYSPACES: [&str; 5] =
    ["system", "system_auth", "system_distributed", "system_schema", "system_traces"];
