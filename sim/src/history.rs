//! [`History`]: requests of clients, their times, and their outcomes.

use std::collections::BTreeMap;
use std::time::Duration;
use stdx::Instant;

/// Numbers of keys that share a partition of the table with clustering.
pub const KEYS_PER_PARTITION: i32 = 16;

/// Request of a client. Each key has one writer, whose values (`stamp`, also the timestamp) only
/// grow; deletions count as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// QUORUM write of a value.
    Write { key: i32, stamp: i64 },
    /// QUORUM deletion.
    Delete { key: i32, stamp: i64 },
    /// QUORUM read.
    Read { key: i32 },
    /// QUORUM read of the keys of one partition, in pages.
    Partition { partition: i32, reversed: bool },
    /// QUORUM read of the keys of the table without clustering, in pages.
    Table { how: Scan },
    /// Logged batch that writes its number into two partitions of two tables.
    Batch { batch: i32 },
    /// `CREATE TABLE IF NOT EXISTS` of that number.
    Create { table: u64 },
    /// Conditional write or serial read of a partition: its details are in the transactions.
    Lwt { part: i32 },
    /// Write or read of the cells of a partition: its details are in the cells.
    Cells { part: i32 },
    /// Increment or read of a counter: its details are in the counters.
    Count { key: i32 },
    /// `ALTER TABLE` of the registers.
    Alter { number: u64 },
    /// A table is created or dropped, even if other clients do the same.
    Scratch { table: u64, is_drop: bool },
}

/// How the table is read: always so that the answer is its rows, or some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scan {
    /// Without more ado.
    Rows,
    /// Filtered: values not below this one. A replica that lags must not hide that a row has one.
    Above(i64),
    /// Filtered: values below this one. A replica that lags must not show one that is overwritten.
    Below(i64),
    /// Aggregated, each row a group.
    Groups,
}

impl Action {
    /// The server's own limit (Cassandra's defaults; for schema changes: the wait for the nodes,
    /// after as long for the decision).
    pub fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Action::Write { .. } | Action::Delete { .. } | Action::Batch { .. } => 2,
            Action::Read { .. } => 5,
            // Sum over all pages.
            Action::Partition { .. } => 30,
            Action::Table { how: Scan::Rows } => 60,
            // These run as long as they make progress.
            Action::Table { how: Scan::Above(_) | Scan::Below(_) | Scan::Groups } => 120,
            Action::Create { .. } | Action::Alter { .. } | Action::Scratch { .. } => 20,
            // Ballots are retried while contention may last, then the write's time.
            Action::Lwt { .. } | Action::Cells { .. } | Action::Count { .. } => 5,
        })
    }

    /// Returns true if a row with that value is left out.
    pub fn hides(self, value: i64) -> bool {
        match self {
            Action::Table { how: Scan::Above(least) } => value < least,
            Action::Table { how: Scan::Below(limit) } => value >= limit,
            _ => false,
        }
    }

    /// Returns true if it reads that key.
    pub fn reads(self, key: i32) -> bool {
        match self {
            Action::Read { key: own } => own == key,
            Action::Partition { partition, .. } => place(key) == Place::Row(partition, key),
            Action::Table { .. } => place(key) == Place::Register(key),
            Action::Write { .. }
            | Action::Delete { .. }
            | Action::Batch { .. }
            | Action::Create { .. }
            | Action::Lwt { .. }
            | Action::Cells { .. }
            | Action::Count { .. }
            | Action::Alter { .. }
            | Action::Scratch { .. } => false,
        }
    }
}

/// Location of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the table without clustering: even keys.
    Register(i32),
    /// In the table with clustering: its partition and clustering, which is the key itself.
    Row(i32, i32),
}

/// Returns the location of a key.
pub fn place(key: i32) -> Place {
    match key % 2 {
        0 => Place::Register(key),
        _ => Place::Row(key.div_euclid(KEYS_PER_PARTITION), key),
    }
}

/// Later reads that must see the certain result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All: a quorum of each datacenter has it.
    Everywhere,
    /// Those at QUORUM: a quorum of all replicas has it.
    Quorum,
    /// Those at LOCAL_QUORUM in that datacenter.
    Local(u64),
    /// Those of the same key: the levels of its writes and reads meet in a replica. A value that
    /// one of these reads saw does not bind other reads: it may be at one replica.
    Paired,
    /// None: a hint may be the only copy.
    Any,
    /// A read at the end, of data that was read from all replicas before.
    Last,
}

impl Scope {
    /// Returns true if a read in the scope `read` must see values that are certain in this one.
    pub fn binds(self, read: Scope) -> bool {
        match (self, read) {
            (Scope::Any, _) => false,
            (Scope::Everywhere, _) | (_, Scope::Last) => true,
            _ => self == read,
        }
    }

    /// Returns true if a value that a read saw binds later reads.
    pub fn do_reads_bind(self) -> bool {
        !matches!(self, Scope::Paired | Scope::Any)
    }
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Acknowledged.
    Done,
    /// The value that was read; `None`: no row.
    Found(Option<i64>),
    /// The rows of several keys that were read; the others have none.
    Listed(BTreeMap<i32, i64>),
    /// Refused before anything was done: it must never be seen.
    Refused,
    /// The outcome is unknown: a timeout, a lost connection, or the run ended first.
    Unknown(String),
    /// An answer that should not exist.
    Wrong(String),
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The coordinator, from 0.
    pub node: usize,
    /// The request.
    pub action: Action,
    /// By its level.
    pub scope: Scope,
    /// When it was sent.
    pub begin: Instant,
    /// When its end was seen.
    pub end: Instant,
    /// How it ended.
    pub ending: Ending,
}

/// All requests, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The requests.
    pub events: Vec<Event>,
    ended: u64,
}

impl History {
    /// A request is sent; gives its number. Until [`History::end`] its fate is unknown.
    pub fn begin(&mut self, node: usize, action: Action, scope: Scope, now: Instant) -> usize {
        let ending = Ending::Unknown("the run ended first".to_owned());
        let end = Instant(u64::MAX);
        self.events.push(Event { node, action, scope, begin: now, end, ending });
        self.events.len() - 1
    }

    /// Its end.
    pub fn end(&mut self, number: usize, now: Instant, ending: Ending) {
        self.ended += 1;
        if let Some(event) = self.events.get_mut(number) {
            event.end = now;
            event.ending = ending;
        }
    }

    /// Requests that have ended.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Counts of acknowledged, refused and unknown requests.
    pub fn counts(&self) -> (usize, usize, usize) {
        let of = |is: fn(&Ending) -> bool| self.events.iter().filter(|e| is(&e.ending)).count();
        (
            of(|e| matches!(e, Ending::Done | Ending::Found(_) | Ending::Listed(_))),
            of(|e| matches!(e, Ending::Refused)),
            of(|e| matches!(e, Ending::Unknown(_) | Ending::Wrong(_))),
        )
    }
}
