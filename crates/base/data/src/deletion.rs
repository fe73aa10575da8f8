//! Deletion times and row liveness.

use stdx::{DeletionSeconds, TimestampMicros, TtlSeconds};

/// When and with what timestamp something was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletionTime {
    /// Everything written at or before this timestamp is gone.
    pub timestamp: TimestampMicros,
    /// When the deletion was made: gc_grace_seconds count from here.
    pub local: DeletionSeconds,
}

impl DeletionTime {
    /// "Not deleted".
    pub const LIVE: DeletionTime =
        DeletionTime { timestamp: TimestampMicros::NONE, local: DeletionSeconds::NONE };

    /// No deletion at all.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.timestamp == TimestampMicros::NONE && self.local == DeletionSeconds::NONE
    }

    /// Returns true if this deletion removes something written at `timestamp`.
    #[inline]
    pub fn deletes(&self, timestamp: TimestampMicros) -> bool {
        !self.is_live() && timestamp <= self.timestamp
    }

    /// Returns true if this one wins over `other`: the higher timestamp, then the later local time.
    #[inline]
    pub fn supersedes(&self, other: &DeletionTime) -> bool {
        if self.is_live() {
            return false;
        }
        other.is_live()
            || self.timestamp > other.timestamp
            || (self.timestamp == other.timestamp && self.local > other.local)
    }

    /// The one that wins.
    #[inline]
    pub fn max(self, other: DeletionTime) -> DeletionTime {
        if other.supersedes(&self) { other } else { self }
    }
}

/// Primary-key liveness of a row: INSERT writes it beside the cells, so that a row whose cells
/// are all null still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// [`TimestampMicros::NONE`] = the row has no liveness (written by UPDATE only).
    pub timestamp: TimestampMicros,
    /// [`TtlSeconds::NONE`] = does not expire.
    pub ttl: TtlSeconds,
    /// When it expires; [`DeletionSeconds::NONE`] when it does not.
    pub expires_at: DeletionSeconds,
}

impl Liveness {
    /// "No liveness".
    pub const NONE: Liveness = Liveness {
        timestamp: TimestampMicros::NONE,
        ttl: TtlSeconds::NONE,
        expires_at: DeletionSeconds::NONE,
    };

    /// Written without TTL.
    pub fn new(timestamp: TimestampMicros) -> Liveness {
        Liveness { timestamp, ..Liveness::NONE }
    }

    /// Neither live nor expired: nothing there.
    pub fn is_empty(&self) -> bool {
        self.timestamp == TimestampMicros::NONE
    }

    /// Has a TTL.
    pub fn is_expiring(&self) -> bool {
        self.ttl != TtlSeconds::NONE
    }

    /// There and not expired at `now`.
    pub fn is_live(&self, now: DeletionSeconds) -> bool {
        !self.is_empty() && (!self.is_expiring() || now < self.expires_at)
    }

    /// Liveness that views write after the row of their base table is deleted: a tombstone
    /// (`LivenessInfo.EXPIRED_LIVENESS_TTL`).
    fn is_tombstone(&self) -> bool {
        self.ttl.0 == i32::MAX
    }

    /// Returns true if this one wins over `other` (Cassandra's `LivenessInfo.supersedes`). The
    /// higher timestamp wins. At equal timestamps a tombstone wins, then the expiring one, then the
    /// one that expires later. If two are still alike, Cassandra keeps the first it meets. Here the
    /// longer TTL wins, as with cells, so that replicas agree whatever the order of their files.
    pub fn supersedes(&self, other: &Liveness) -> bool {
        if self.timestamp != other.timestamp {
            return self.timestamp > other.timestamp;
        }
        if self.is_tombstone() != other.is_tombstone() {
            return self.is_tombstone();
        }
        if self.is_expiring() != other.is_expiring() {
            return self.is_expiring();
        }
        (self.expires_at, self.ttl) > (other.expires_at, other.ttl)
    }
}
