//! The only clock types: [`Instant`] (monotonic, from node start) and [`WallMicros`].

use std::ops::{Add, Sub};
use std::time::Duration;

/// Monotonic time in nanoseconds since the node (or the simulated world) started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The start of time.
    pub const ZERO: Instant = Instant(0);

    /// Time passed since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, d: Duration) -> Instant {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(nanos))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, o: Instant) -> Duration {
        self.since(o)
    }
}

/// Wall-clock time in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallMicros(pub i64);

impl WallMicros {
    /// Whole seconds since the Unix epoch, rounded down: the clock of TTLs and deletion times.
    pub fn seconds(self) -> DeletionSeconds {
        DeletionSeconds(self.0.div_euclid(1_000_000))
    }

    /// Milliseconds since the Unix epoch, rounded down.
    pub fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }
}

/// Write timestamp of a cell, row or deletion: microseconds by convention, chosen by the client or
/// the coordinator. [`TimestampMicros::NONE`] marks "no timestamp" as in Cassandra.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampMicros(pub i64);

impl TimestampMicros {
    /// "No timestamp": `Long.MIN_VALUE` in Cassandra (`LivenessInfo.NO_TIMESTAMP`).
    pub const NONE: TimestampMicros = TimestampMicros(i64::MIN);
}

/// Seconds since the Unix epoch at which a deletion was made or an expiring cell expires.
/// [`DeletionSeconds::NONE`] means "never".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeletionSeconds(pub i64);

impl DeletionSeconds {
    /// "Not deleted, never expires" (`Cell.NO_DELETION_TIME` in Cassandra).
    pub const NONE: DeletionSeconds = DeletionSeconds(i64::MAX);
    /// The last one that files before version `oa` can say, 2038-01-19T03:14:06Z
    /// (`Cell.MAX_DELETION_TIME_2038_LEGACY_CAP`): one more means "none" there.
    pub const MAX_SIGNED: DeletionSeconds = DeletionSeconds(i32::MAX as i64 - 1);
    /// The last one that files since version `oa` can say, 2106-02-07T06:28:13Z
    /// (`Cell.MAX_DELETION_TIME`): one more means "invalid" there, two more "none".
    pub const MAX_UNSIGNED: DeletionSeconds = DeletionSeconds(u32::MAX as i64 - 2);
}

/// Time to live in seconds, 1..=630,720,000 (20 years); 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TtlSeconds(pub i32);

impl TtlSeconds {
    /// No expiry.
    pub const NONE: TtlSeconds = TtlSeconds(0);
    /// The largest TTL that CQL accepts: 20 years (`Attributes.MAX_TTL` in Cassandra).
    pub const MAX: TtlSeconds = TtlSeconds(630_720_000);
}
