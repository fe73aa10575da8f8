//! Ballots: the order of rounds, and the write timestamps of what they decide.
//!
//! Owns the ballot as a version-1 UUID with Cassandra's layout, and the hybrid clock that makes
//! them. Never reads a clock: wall time is an argument.
//!
//! See docs/internals/paxos.md, "Ballots".

use std::fmt;

use stdx::{HostId, ShardId, TimestampMicros, Uuid, WallMicros};

/// Microseconds from the UUID epoch (1582-10-15) to the Unix epoch.
const UUID_EPOCH_MICROS: u64 = 12_219_292_800_000_000;
/// The largest time a version-1 UUID can say: 60 bits of 100 ns. In the year 5236.
pub const MICROS_MAX: u64 = ((1 << 60) - 1) / 10 - UUID_EPOCH_MICROS;

/// Which replicas a round asked. Kept in the tenths of the UUID's microseconds, as Cassandra does
/// (`Ballot.Flag`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Scope {
    /// Not said: metadata log, [`Ballot::ZERO`].
    #[default]
    None,
    /// Those of the coordinator's datacenter (LOCAL_SERIAL).
    Local,
    /// All (SERIAL).
    Global,
}

/// One round's number: hybrid-clock microseconds, then bits that no other proposer uses.
///
/// `Ord` is total, for containers and for tests. The protocol compares by
/// [`Ballot::is_newer_than`], where two ballots of one microsecond are equally old: neither gets a
/// promise after the other, so a quorum never chooses two values with one write timestamp
/// (INV-paxos-3). Source: `Commit.isAfter` in Cassandra, which compares timestamps only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot {
    micros: u64,
    scope: Scope,
    tie: u64,
}

/// Reason why sixteen bytes are not a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BallotError {
    /// Not a version-1 UUID.
    #[error("ballot {0} is not a version 1 uuid")]
    Version(Uuid),
    /// Its time is before 1970 or its tenths of a microsecond name no scope.
    #[error("ballot {0} has a time that no proposer makes")]
    Time(Uuid),
}

impl Ballot {
    /// Older than every ballot of a round: "none".
    pub const ZERO: Ballot = Ballot { micros: 0, scope: Scope::None, tie: 0 };

    /// A ballot at `micros` since the Unix epoch; later than [`MICROS_MAX`] counts as that.
    pub fn new(micros: u64, scope: Scope, tie: u64) -> Ballot {
        Ballot { micros: micros.min(MICROS_MAX), scope, tie }
    }

    /// Microseconds since the Unix epoch.
    pub fn micros(self) -> u64 {
        self.micros
    }

    /// Which replicas the round asked.
    pub fn scope(self) -> Scope {
        self.scope
    }

    /// The proposer's bits.
    pub fn tie(self) -> u64 {
        self.tie
    }

    /// Write timestamp of what the round writes.
    pub fn timestamp(self) -> TimestampMicros {
        // MICROS_MAX is far below i64::MAX.
        TimestampMicros(i64::try_from(self.micros).unwrap_or(i64::MAX))
    }

    /// Strictly later in microseconds.
    pub fn is_newer_than(self, other: Ballot) -> bool {
        self.micros > other.micros
    }

    /// The same ballot or one that is strictly later: what an acceptor may accept after `promised`.
    pub fn is_same_or_newer_than(self, other: Ballot) -> bool {
        self == other || self.is_newer_than(other)
    }

    /// Returns true for [`Ballot::ZERO`].
    pub fn is_zero(self) -> bool {
        self == Ballot::ZERO
    }

    /// Returns the ballot as a version-1 UUID (`timeuuid`), in Cassandra's layout.
    pub fn to_uuid(self) -> Uuid {
        let tenths = match self.scope {
            Scope::None => 0,
            Scope::Local => 1,
            Scope::Global => 2,
        };
        // Cannot overflow: micros is at most MICROS_MAX.
        let raw = self.micros.saturating_add(UUID_EPOCH_MICROS).saturating_mul(10) + tenths;
        let high = (raw << 32) | ((raw & 0xffff_0000_0000) >> 16) | 0x1000 | (raw >> 48);
        Uuid::from_u64_pair(high, self.tie)
    }

    /// The ballot in a version-1 UUID.
    ///
    /// # Errors
    /// Another version; a time before 1970; tenths of a microsecond that name no scope.
    pub fn from_uuid(uuid: Uuid) -> Result<Ballot, BallotError> {
        let (high, tie) = uuid.as_u64_pair();
        if high & 0xf000 != 0x1000 {
            return Err(BallotError::Version(uuid));
        }
        let raw = (high & 0x0fff) << 48 | (high & 0xffff_0000) << 16 | high >> 32;
        let micros = (raw / 10).checked_sub(UUID_EPOCH_MICROS).ok_or(BallotError::Time(uuid))?;
        let scope = match raw % 10 {
            0 => Scope::None,
            1 => Scope::Local,
            2 => Scope::Global,
            _ => return Err(BallotError::Time(uuid)),
        };
        Ok(Ballot { micros, scope, tie })
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_uuid().fmt(f)
    }
}

/// The bits of a proposer: unlike those of any other, and of itself before a restart.
///
/// `start_nonce` is drawn at random at every start. Without it a proposer whose wall clock was set
/// back could make a ballot a second time and propose two values under it.
pub fn tie_bits(host: HostId, shard: ShardId, start_nonce: u64) -> u64 {
    let mut bytes = [0u8; 26];
    let parts = host.0.as_bytes().iter().copied();
    let parts = parts.chain(shard.0.to_be_bytes()).chain(start_nonce.to_be_bytes());
    for (to, from) in bytes.iter_mut().zip(parts) {
        *to = from;
    }
    // The two top bits are the UUID's variant.
    (codec::xxh3_64(&bytes) >> 2) | (1 << 63)
}

/// Generator of one shard's ballots: a clock that follows wall time and everything it has seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BallotClock {
    last_micros: u64,
    tie: u64,
    skew_max_micros: u64,
}

/// A ballot too far ahead of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ballot {ballot} is {ahead_micros} us ahead of this node's clock, {max_micros} are allowed"
)]
pub struct TooFarAhead {
    /// The ballot.
    pub ballot: Ballot,
    /// Its distance ahead.
    pub ahead_micros: u64,
    /// The bound.
    pub max_micros: u64,
}

/// Refuses a ballot more than `skew_max_micros` after `now`, so that one wild clock cannot push the
/// timestamps of a partition into the future, where it would shadow later plain writes.
///
/// # Errors
/// It is further ahead.
pub fn check_skew(
    ballot: Ballot,
    now: WallMicros,
    skew_max_micros: u64,
) -> Result<(), TooFarAhead> {
    let now = u64::try_from(now.0).unwrap_or(0);
    let ahead_micros = ballot.micros.saturating_sub(now);
    if ahead_micros > skew_max_micros {
        return Err(TooFarAhead { ballot, ahead_micros, max_micros: skew_max_micros });
    }
    Ok(())
}

impl BallotClock {
    /// A clock for the proposer with these bits (see [`tie_bits`]); `skew_max_micros` bounds what
    /// it learns from peers.
    pub fn new(tie: u64, skew_max_micros: u64) -> BallotClock {
        BallotClock { last_micros: 0, tie, skew_max_micros }
    }

    /// Upper bound of a ballot's distance ahead of the wall clock.
    pub fn skew_max_micros(&self) -> u64 {
        self.skew_max_micros
    }

    /// Creates a ballot that is strictly newer than every one created or observed before and than
    /// `seen`.
    ///
    /// # Errors
    /// The ballot would be further ahead of `now` than the bound: a peer's clock is wild, or ours
    /// was set back. The error ends once wall time has caught up.
    pub fn next(
        &mut self,
        now: WallMicros,
        seen: Ballot,
        scope: Scope,
    ) -> Result<Ballot, TooFarAhead> {
        let floor = self.last_micros.max(seen.micros).saturating_add(1);
        let micros = u64::try_from(now.0).unwrap_or(0).max(floor);
        let ballot = Ballot::new(micros, scope, self.tie);
        check_skew(ballot, now, self.skew_max_micros)?;
        self.last_micros = ballot.micros;
        Ok(ballot)
    }

    /// Follows a ballot that a peer sent.
    ///
    /// # Errors
    /// It is further ahead of `now` than the bound; the clock stays as it was.
    pub fn observe(&mut self, now: WallMicros, ballot: Ballot) -> Result<(), TooFarAhead> {
        check_skew(ballot, now, self.skew_max_micros)?;
        self.last_micros = self.last_micros.max(ballot.micros);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ballot_has_cassandras_timeuuid_bytes() {
        // TimeUUID.atUnixMicrosWithLsb(0, 0) is the UUID of 1970-01-01.
        assert_eq!(Ballot::ZERO.to_string(), "13814000-1dd2-11b2-0000-000000000000");
        let b = Ballot::new(1, Scope::Global, 0x8000_0000_0000_0001);
        assert_eq!(b.to_string(), "1381400c-1dd2-11b2-8000-000000000001");
        assert_eq!(b.timestamp(), TimestampMicros(1));
        let last = Ballot::new(u64::MAX, Scope::Local, u64::MAX);
        assert_eq!(last.micros(), MICROS_MAX);
        assert_eq!(Ballot::from_uuid(last.to_uuid()), Ok(last));
    }

    #[test]
    fn bytes_that_are_no_ballot_are_refused() {
        let random = Uuid::from_u128(0x1381_4000_1dd2_41b2_8000_0000_0000_0000);
        assert_eq!(Ballot::from_uuid(random), Err(BallotError::Version(random)));
        let tenth_3 = Uuid::from_u128(0x1381_4003_1dd2_11b2_8000_0000_0000_0000);
        assert_eq!(Ballot::from_uuid(tenth_3), Err(BallotError::Time(tenth_3)));
        let before_1970 = Uuid::from_u128(0x1381_3fff_1dd2_11b2_8000_0000_0000_0000);
        assert_eq!(Ballot::from_uuid(before_1970), Err(BallotError::Time(before_1970)));
    }

    #[test]
    fn the_clock_passes_what_it_made_and_saw_even_when_wall_time_goes_back() {
        let mut clock = BallotClock::new(7, 1_000);
        let a = clock.next(WallMicros(500), Ballot::ZERO, Scope::Global).unwrap();
        let b = clock.next(WallMicros(10), Ballot::ZERO, Scope::Global).unwrap();
        assert_eq!((a.micros(), b.micros()), (500, 501));
        clock.observe(WallMicros(500), Ballot::new(1_500, Scope::Global, 1)).unwrap();
        assert!(clock.observe(WallMicros(500), Ballot::new(1_501, Scope::Global, 1)).is_err());
        let c = clock.next(WallMicros(501), Ballot::ZERO, Scope::Global).unwrap();
        assert_eq!(c.micros(), 1_501);
        let seen = Ballot::new(1_600, Scope::Global, 1);
        assert!(clock.next(WallMicros(600), seen, Scope::Global).is_err());
        assert_eq!(clock.next(WallMicros(601), seen, Scope::Global).unwrap().micros(), 1_601);
    }

    /// INV-paxos-3: of two ballots with one write timestamp neither is accepted after the other.
    #[test]
    fn ballots_of_one_microsecond_are_equally_old() {
        let (a, b) = (Ballot::new(5, Scope::Global, 1), Ballot::new(5, Scope::Global, 2));
        assert!(!a.is_same_or_newer_than(b) && !b.is_same_or_newer_than(a));
        assert!(a < b && a.is_same_or_newer_than(a));
    }

    #[test]
    fn tie_bits_differ_by_host_shard_and_start() {
        let bits = |h, s, n| tie_bits(HostId(Uuid::from_u128(h)), ShardId(s), n);
        let all = [bits(1, 0, 0), bits(2, 0, 0), bits(1, 1, 0), bits(1, 0, 1)];
        for (i, a) in all.iter().enumerate() {
            assert_eq!(a >> 62, 2, "variant bits of a UUID");
            assert!(all.iter().skip(i + 1).all(|b| a != b));
        }
    }

    proptest! {
        #[test]
        fn every_ballot_comes_back_from_its_uuid(micros in 0..=MICROS_MAX, s in 0..3u8, tie: u64) {
            let scope = [Scope::None, Scope::Local, Scope::Global][usize::from(s)];
            let ballot = Ballot::new(micros, scope, tie);
            let uuid = ballot.to_uuid();
            prop_assert_eq!(uuid.get_version_num(), 1);
            prop_assert_eq!(Ballot::from_uuid(uuid), Ok(ballot));
        }
    }
}
