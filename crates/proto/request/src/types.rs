//! Small values of all machines: targets, errors, outputs.

use std::sync::Arc;

use cluster::Consistency;
use smallvec::SmallVec;
use stdx::HostId;

/// Most replicas (natural and pending) that one token may have.
pub const REPLICAS_MAX: usize = 128;

/// Index of a replica in its plan's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target(pub u8);

/// A set of replicas of one plan.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TargetSet(u128);

impl TargetSet {
    /// The empty set.
    pub const EMPTY: TargetSet = TargetSet(0);

    fn bit(target: Target) -> u128 {
        1_u128.checked_shl(u32::from(target.0)).unwrap_or(0)
    }

    /// Adds one; true when it was not in.
    pub fn insert(&mut self, target: Target) -> bool {
        let new = !self.contains(target);
        self.0 |= Self::bit(target);
        new
    }

    /// Takes one out; true when it was in.
    pub fn remove(&mut self, target: Target) -> bool {
        let was = self.contains(target);
        self.0 &= !Self::bit(target);
        was
    }

    /// Returns true if the target is in the set.
    pub fn contains(self, target: Target) -> bool {
        self.0 & Self::bit(target) != 0
    }

    /// Returns the number of targets.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the targets in either set.
    #[must_use]
    pub fn union(self, other: TargetSet) -> TargetSet {
        TargetSet(self.0 | other.0)
    }

    /// Returns the targets that are not in `other`.
    #[must_use]
    pub fn minus(self, other: TargetSet) -> TargetSet {
        TargetSet(self.0 & !other.0)
    }

    /// Returns the targets in both sets.
    #[must_use]
    pub fn intersection(self, other: TargetSet) -> TargetSet {
        TargetSet(self.0 & other.0)
    }

    /// Iterates over the targets by index, ascending.
    pub fn iter(self) -> impl Iterator<Item = Target> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = u8::try_from(left.trailing_zeros()).ok().filter(|n| *n < 128)?;
            left &= left.wrapping_sub(1);
            Some(Target(lowest))
        })
    }
}

impl FromIterator<Target> for TargetSet {
    fn from_iter<I: IntoIterator<Item = Target>>(targets: I) -> TargetSet {
        let mut set = TargetSet::EMPTY;
        for target in targets {
            set.insert(target);
        }
        set
    }
}

impl std::fmt::Debug for TargetSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(|t| t.0)).finish()
    }
}

/// Outputs that a step appends for the driver to execute, in order. Spills to the heap, never
/// truncates.
pub type Outputs<O> = SmallVec<[O; 8]>;

/// Reason of a replica's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaError {
    /// An error without a code of its own.
    Unknown,
    /// A read met more tombstones than it may.
    TooManyTombstones,
    /// It did not answer in time; also the answer of a replica that found the deadline passed.
    Timeout,
    /// It does not know the table, or knows another version of it.
    IncompatibleSchema,
    /// A read grew too large.
    ReadSize,
    /// There is no connection to it.
    NodeDown,
    /// The index is not built there.
    IndexNotAvailable,
    /// A read uses too many indexes.
    TooManyIndexes,
    /// It sheds load.
    Overloaded,
    /// Its disk is full.
    DiskFull,
    /// A file that it needs is damaged.
    Corrupt,
    /// It rejected the request as invalid.
    Refused,
    /// Its commit log failed, or another vital part.
    Failed,
}

impl ReplicaError {
    /// The code in the reason map of the native protocol v5 (`RequestFailureReason`). Shedding has
    /// no code there: Cassandra's replicas do not answer then.
    pub fn code(self) -> u16 {
        match self {
            ReplicaError::Unknown
            | ReplicaError::Overloaded
            | ReplicaError::DiskFull
            | ReplicaError::Corrupt
            | ReplicaError::Refused
            | ReplicaError::Failed => 0,
            ReplicaError::TooManyTombstones => 1,
            ReplicaError::Timeout => 2,
            ReplicaError::IncompatibleSchema => 3,
            ReplicaError::ReadSize => 4,
            ReplicaError::NodeDown => 5,
            ReplicaError::IndexNotAvailable => 6,
            ReplicaError::TooManyIndexes => 7,
        }
    }

    /// Returns the cause that the code does not show, for the message to the client.
    pub fn cause(self) -> Option<&'static str> {
        match self {
            ReplicaError::Overloaded => Some("it is overloaded"),
            ReplicaError::DiskFull => Some("its disk is full"),
            ReplicaError::Corrupt => Some("a data file is damaged"),
            ReplicaError::Refused => Some("it refused the request"),
            ReplicaError::Failed => Some("its commit log or a file failed"),
            _ => None,
        }
    }
}

/// The replicas that failed and why, each once, in the order in which they answered.
pub type Failures = SmallVec<[(HostId, ReplicaError); 4]>;

/// Kind of a failed write, as drivers' retry policies know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum WriteType {
    Simple,
    Batch,
    UnloggedBatch,
    Counter,
    BatchLog,
    Cas,
    View,
    Cdc,
}

/// How a request fails; the fields are those of the native protocol's errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named as in the native protocol, part 9")]
pub enum RequestError {
    /// Fewer replicas are alive than are needed; nothing was sent.
    #[error("Cannot achieve consistency level {consistency:?}")]
    Unavailable { consistency: Consistency, required: u32, alive: u32 },
    /// The same, of EACH_QUORUM in one datacenter; the numbers are that one's.
    #[error("Cannot achieve consistency level {consistency:?} in DC {datacenter}")]
    UnavailableIn { consistency: Consistency, datacenter: Arc<str>, required: u32, alive: u32 },
    /// The deadline passed (or all that failed, failed by time).
    #[error("write timed out - received only {received} responses")]
    WriteTimeout { consistency: Consistency, received: u32, block_for: u32, write_type: WriteType },
    /// Too many replicas failed.
    #[error("write failed - received {received} responses and {} failures", failures.len())]
    WriteFailure {
        consistency: Consistency,
        received: u32,
        block_for: u32,
        failures: Failures,
        write_type: WriteType,
    },
    /// The deadline passed (or all that failed, failed by time).
    #[error("read timed out - received only {received} responses")]
    ReadTimeout { consistency: Consistency, received: u32, block_for: u32, data_present: bool },
    /// Too many replicas failed.
    #[error("read failed - received {received} responses and {} failures", failures.len())]
    ReadFailure {
        consistency: Consistency,
        received: u32,
        block_for: u32,
        failures: Failures,
        data_present: bool,
    },
}

impl RequestError {
    /// The error of a read that cannot continue: a timeout when every failure was one.
    pub(crate) fn read(
        consistency: Consistency,
        received: u32,
        block_for: u32,
        failures: &Failures,
        data_present: bool,
    ) -> RequestError {
        if all_by_time(failures) {
            // A driver must not see as many answers as were needed beside a timeout
            // (CASSANDRA-6491).
            let received = received.min(block_for.saturating_sub(1));
            return RequestError::ReadTimeout { consistency, received, block_for, data_present };
        }
        let failures = failures.clone();
        RequestError::ReadFailure { consistency, received, block_for, failures, data_present }
    }

    /// Like [`RequestError::read`], for a write.
    pub(crate) fn write(
        consistency: Consistency,
        received: u32,
        block_for: u32,
        failures: &Failures,
        write_type: WriteType,
    ) -> RequestError {
        if all_by_time(failures) {
            let received = received.min(block_for.saturating_sub(1));
            return RequestError::WriteTimeout { consistency, received, block_for, write_type };
        }
        let failures = failures.clone();
        RequestError::WriteFailure { consistency, received, block_for, failures, write_type }
    }
}

fn all_by_time(failures: &Failures) -> bool {
    failures.iter().all(|(_, reason)| *reason == ReplicaError::Timeout)
}

/// A count as the protocol's errors carry it.
pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
