//! Verbs: the purpose of a frame. Numbers are on the wire and never reused.

use crate::hello::Lane;

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        /// Purpose of a request or one-way message; a response repeats it. Groups of 256 numbers: 0
        /// control, 1 gossip, 2 writes, 3 reads, 4 Paxos, 5 metadata log, 6 operations, 7 streams,
        /// 8 repair.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Verb {
            $($(#[$doc])* $name = $number,)*
        }

        impl Verb {
            /// Every verb, by number.
            pub const ALL: &'static [Verb] = &[$(Verb::$name),*];

            /// The verb with this number; `None` for one of a later version.
            pub const fn from_number(number: u16) -> Option<Verb> {
                match number {
                    $($number => Some(Verb::$name),)*
                    _ => None,
                }
            }

            /// Name for logs and metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Verb::$name => stringify!($name),)*
                }
            }
        }
    };
}

verbs! {
    /// Keep-alive; answered by the receiving connection itself with the same payload
    /// ([`crate::Ping`]).
    Ping = 0x0001;
    /// Answered with the same payload by the receiving connection; for tools and tests.
    Echo = 0x0002;
    /// First step of a gossip round: digests.
    GossipSyn = 0x0101;
    /// Second step, when it is not sent as the response to the first.
    GossipAck = 0x0102;
    /// Third step.
    GossipAck2 = 0x0103;
    /// The sender is going down.
    GossipShutdown = 0x0104;
    /// Write to one partition ([`crate::Mutation`]).
    Mutation = 0x0201;
    /// The same, to be passed on to others ([`crate::MutationForward`]).
    MutationForward = 0x0202;
    /// A write that its replica missed ([`crate::Hint`]).
    Hint = 0x0203;
    /// Stores a logged batch on a batch-log replica.
    BatchStore = 0x0204;
    /// Removes it after all its writes are done.
    BatchRemove = 0x0205;
    /// A counter update for the replica that leads it.
    CounterMutation = 0x0206;
    /// Read of one partition ([`crate::ReadRequest`]).
    Read = 0x0301;
    /// Read of a range of partitions ([`crate::ReadRequest`]).
    RangeRead = 0x0302;
    /// Filter or fold of one shard over the rows of ranges ([`crate::ScanRequest`]).
    Scan = 0x0303;
    /// Read of a range of partitions whose filter passes little ([`crate::FilteredRead`]).
    FilteredRead = 0x0304;
    /// Keys of the rows of a range that satisfy predicates of indexes ([`crate::encode_index_search`]).
    IndexSearch = 0x0305;
    /// Keys of the rows of a range whose vectors are nearest to a vector ([`crate::encode_vector_search`]).
    VectorSearch = 0x0306;
    /// Paxos: promise a ballot, and read.
    PaxosPrepare = 0x0401;
    /// Paxos: accept a value.
    PaxosPropose = 0x0402;
    /// Paxos: a value is decided.
    PaxosCommit = 0x0403;
    /// A lightweight transaction for the replica that proposes for its partition.
    PaxosForward = 0x0404;
    /// Paxos: finish the unfinished rounds of a range, or send its registers to a new replica.
    PaxosRepair = 0x0405;
    /// Paxos: a commit that a promise lacked; does the promise still stand?
    PaxosRefresh = 0x0406;
    /// Paxos: all replicas have this commit.
    PaxosPrune = 0x0407;
    /// Paxos: the same of many partitions.
    PaxosPrunes = 0x0408;
    /// A decided entry of the metadata log.
    MetaLearn = 0x0501;
    /// Metadata log: promise a ballot.
    MetaPrepare = 0x0502;
    /// Metadata log: accept an entry.
    MetaPropose = 0x0503;
    /// Metadata log: an entry is decided.
    MetaCommit = 0x0504;
    /// A change for a voter to propose.
    MetaSubmit = 0x0505;
    /// Asks for entries after an epoch.
    MetaFetch = 0x0506;
    /// Asks how the emptying of a table went that the metadata log ordered.
    Truncate = 0x0601;
    /// Takes a snapshot of tables.
    Snapshot = 0x0602;
    /// Orders a node to copy the ranges that it will own when another one has left; asked again until
    /// it is done (`crates/node`).
    TakeOver = 0x0603;
    /// Opens a stream session.
    StreamOpen = 0x0701;
    /// Announces a file of a session.
    StreamFile = 0x0702;
    /// Bytes of a file.
    StreamChunk = 0x0703;
    /// Rows of a session.
    StreamRows = 0x0704;
    /// Progress, and credit for more.
    StreamAck = 0x0705;
    /// Ends a session.
    StreamClose = 0x0706;
    /// Asks for a page of ranges of a table (`crates/replication/streaming`).
    StreamFetch = 0x0707;
    /// Opens a repair session.
    RepairOpen = 0x0801;
    /// Hashes of rows or ranges.
    RepairHashes = 0x0802;
    /// Rows that one side lacks.
    RepairRows = 0x0803;
    /// Ends a repair session and records it.
    RepairClose = 0x0804;
    /// Rows of an incremental session that a replica lacks.
    RepairApply = 0x0805;
    /// Progress of a repair, for the replicas' virtual tables.
    RepairTell = 0x0806;
}

impl Verb {
    /// Its number on the wire.
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Connection that carries it: bulk data must not block requests.
    pub const fn lane(self) -> Lane {
        Verb::lane_of(self.number())
    }

    /// The same of a verb's number, known or not.
    pub const fn lane_of(number: u16) -> Lane {
        match number >> 8 {
            7 | 8 => Lane::Bulk,
            _ => Lane::Requests,
        }
    }

    /// Returns true if a node that is no member yet may send it: verbs for joining, none for data.
    pub const fn is_for_joining(self) -> bool {
        matches!(self.number() >> 8, 0 | 1 | 5)
    }
}
