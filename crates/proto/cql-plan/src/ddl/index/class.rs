//! Classes of custom indexes by name.

/// Class of SASI.
const SASI: &str = "org.apache.cassandra.index.sasi.SASIIndex";
/// Class of storage-attached indexes.
const SAI: &str = "org.apache.cassandra.index.sai.StorageAttachedIndex";
/// Other names of [`SAI`], in any case of letters.
const SAI_ALIASES: [&str; 2] = ["sai", "storageattachedindex"];
/// Classes of Cassandra's that a statement may name though they are its own parts.
const INTERNAL: [&str; 9] = [
    "org.apache.cassandra.index.internal.CassandraIndex",
    "org.apache.cassandra.index.internal.composites.ClusteringColumnIndex",
    "org.apache.cassandra.index.internal.composites.CollectionEntryIndex",
    "org.apache.cassandra.index.internal.composites.CollectionKeyIndex",
    "org.apache.cassandra.index.internal.composites.CollectionValueIndex",
    "org.apache.cassandra.index.internal.composites.PartitionKeyIndex",
    "org.apache.cassandra.index.internal.composites.RegularColumnIndex",
    "org.apache.cassandra.index.internal.keys.KeysIndex",
    "org.apache.cassandra.service.paxos.uncommitted.PaxosUncommittedIndex",
];

/// Class of a custom index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IndexClass {
    /// Storage-attached.
    Sai,
    /// SASI.
    Sasi,
    /// A part of Cassandra's.
    Internal(String),
    /// A class that Cassandra would not find.
    Unknown(String),
}

impl IndexClass {
    /// Source: `IndexMetadata.getIndexClassName`. The alias of SASI has no effect in Cassandra: it is looked up in lower
    /// case, and is not.
    pub(super) fn of(name: &str) -> IndexClass {
        match name {
            _ if SAI_ALIASES.contains(&name.to_lowercase().as_str()) => IndexClass::Sai,
            SAI => IndexClass::Sai,
            SASI => IndexClass::Sasi,
            _ if INTERNAL.contains(&name) => IndexClass::Internal(name.to_owned()),
            _ => IndexClass::Unknown(name.to_owned()),
        }
    }
}
