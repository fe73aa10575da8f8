//! Gossiped state of a node.

use codec::{DecodeError, DecodeErrorKind, Reader, Writer};
use stdx::{Epoch, HostId, Uuid, WallMicros};

/// Longest release text, in bytes.
pub const RELEASE_BYTES_MAX: usize = 64;

/// The generation of a start: seconds since the Unix epoch, but always above the last one that was
/// made durable, so that a clock which went back does not make a restarted node look like its past.
/// The driver makes the result durable before it sends anything.
pub fn next_generation(persisted: Option<u64>, wall: WallMicros) -> u64 {
    let clock = u64::try_from(wall.seconds().0).unwrap_or(0).max(1);
    clock.max(persisted.map_or(0, |last| last.saturating_add(1)))
}

/// Fill level of a node's data disks; Cassandra's DISK_USAGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DiskUsage {
    /// It has no limits on that, or has not looked yet.
    #[default]
    NotAvailable,
    /// Below its limits.
    Spacious,
    /// Beyond the one that warns.
    Stuffed,
    /// Beyond the one from which writes are refused.
    Full,
}

impl DiskUsage {
    /// Returns the name in Cassandra's gossip.
    pub fn name(self) -> &'static str {
        match self {
            DiskUsage::NotAvailable => "NOT_AVAILABLE",
            DiskUsage::Spacious => "SPACIOUS",
            DiskUsage::Stuffed => "STUFFED",
            DiskUsage::Full => "FULL",
        }
    }
}

/// Readiness of a node, and how full its disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// Nothing.
    pub const NONE: Flags = Flags(0);
    /// It serves CQL clients.
    pub const CQL_READY: Flags = Flags(1);
    /// It is about to stop: it is down from now on, without a conviction.
    pub const SHUTTING_DOWN: Flags = Flags(2);
    /// Position of [`DiskUsage`]: two bits, in its order.
    const DISK_SHIFT: u8 = 2;
    const DISK: u8 = 3 << Flags::DISK_SHIFT;
    /// Its clock is not that of the other nodes: it found out itself.
    pub const WRONG_CLOCK: Flags = Flags(16);
    const KNOWN: u8 = 3 | Flags::DISK | 16;

    /// Both together.
    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// This one without the other.
    pub fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// This one, with the disks as full as that.
    pub fn with_disk_usage(self, usage: DiskUsage) -> Flags {
        let bits: u8 = match usage {
            DiskUsage::NotAvailable => 0,
            DiskUsage::Spacious => 1,
            DiskUsage::Stuffed => 2,
            DiskUsage::Full => 3,
        };
        Flags(self.0 & !Flags::DISK | bits << Flags::DISK_SHIFT)
    }

    /// Returns the fill level of the disks.
    pub fn disk_usage(self) -> DiskUsage {
        match (self.0 & Flags::DISK) >> Flags::DISK_SHIFT {
            0 => DiskUsage::NotAvailable,
            1 => DiskUsage::Spacious,
            2 => DiskUsage::Stuffed,
            _ => DiskUsage::Full,
        }
    }

    /// Returns true if all flags of `other` are set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A node's own small state. It changes rarely next to the heartbeat and goes as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AppState {
    /// Version at which it was last changed; 0 for one that never was.
    pub version: u64,
    /// Bytes of data on disk.
    pub load: u64,
    /// The last entry of the metadata log that it has applied.
    pub epoch: Epoch,
    /// Its own load, in thousandths; Cassandra's SEVERITY.
    pub severity: u32,
    /// Its readiness.
    pub flags: Flags,
    /// Its shards.
    pub shards: u16,
    /// Its release, at most [`RELEASE_BYTES_MAX`] bytes.
    pub release: String,
}

/// How new the state is that a node has of another one. 0, 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest {
    /// Whose.
    pub host: HostId,
    /// Number of its start.
    pub generation: u64,
    /// The highest version of heartbeat and state.
    pub version: u64,
}

/// News of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Whose.
    pub host: HostId,
    /// Number of its start.
    pub generation: u64,
    /// Its heartbeat, at least the version of `app`.
    pub version: u64,
    /// Its state, when it is newer than what was asked for.
    pub app: Option<AppState>,
}

impl Digest {
    pub(crate) const BYTES_MIN: usize = 18;

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.host.0.as_bytes());
        out.put_vint_unsigned(self.generation);
        out.put_vint_unsigned(self.version);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Digest, DecodeError> {
        let host = HostId(Uuid::from_bytes(r.array::<16>()?));
        Ok(Digest { host, generation: r.vint_unsigned()?, version: r.vint_unsigned()? })
    }
}

impl AppState {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_vint_unsigned(self.version);
        out.put_vint_unsigned(self.load);
        out.put_vint_unsigned(self.epoch.0);
        out.put_u32(self.severity);
        out.put_u8(self.flags.0);
        out.put_u16(self.shards);
        stdx::invariant!(
            self.release.len() <= RELEASE_BYTES_MAX,
            "gossip: release text of {} bytes, its reader takes {RELEASE_BYTES_MAX}",
            self.release.len()
        );
        out.put_bytes_vint(self.release.as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<AppState, DecodeError> {
        let version = r.vint_unsigned()?;
        let load = r.vint_unsigned()?;
        let epoch = Epoch(r.vint_unsigned()?);
        let severity = r.u32()?;
        // Bits of a later release mean nothing here and must not be passed on as if they did.
        let flags = Flags(r.u8()? & Flags::KNOWN);
        let shards = r.u16()?;
        let release = r.bytes_vint()?;
        if release.len() > RELEASE_BYTES_MAX {
            return Err(r.invalid(i64::try_from(release.len()).unwrap_or(i64::MAX)));
        }
        let release =
            String::from_utf8(release.to_vec()).map_err(|_| r.error(DecodeErrorKind::Utf8))?;
        Ok(AppState { version, load, epoch, severity, flags, shards, release })
    }
}

impl PeerState {
    pub(crate) const BYTES_MIN: usize = 19;

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.host.0.as_bytes());
        out.put_vint_unsigned(self.generation);
        out.put_vint_unsigned(self.version);
        out.put_bool(self.app.is_some());
        if let Some(app) = &self.app {
            stdx::invariant!(
                app.version <= self.version,
                "gossip: state of version {} beside heartbeat {}, its reader refuses it",
                app.version,
                self.version
            );
            app.encode(out);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<PeerState, DecodeError> {
        let host = HostId(Uuid::from_bytes(r.array::<16>()?));
        let generation = r.vint_unsigned()?;
        let version = r.vint_unsigned()?;
        let app = if r.bool()? { Some(AppState::decode(r)?) } else { None };
        if app.as_ref().is_some_and(|a| a.version > version) {
            return Err(r.invalid(i64::try_from(version).unwrap_or(i64::MAX)));
        }
        Ok(PeerState { host, generation, version, app })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_above_the_last_one_whatever_the_clock_says() {
        let at = |seconds: i64| WallMicros(seconds * 1_000_000);
        assert_eq!(next_generation(None, at(1_700_000_000)), 1_700_000_000);
        assert_eq!(next_generation(Some(5), at(1_700_000_000)), 1_700_000_000);
        assert_eq!(next_generation(Some(1_700_000_000), at(1_700_000_000)), 1_700_000_001);
        assert_eq!(next_generation(Some(1_700_000_000), at(3)), 1_700_000_001);
        assert_eq!(next_generation(None, at(-5)), 1);
    }

    #[test]
    fn flags_are_set_and_taken_back_one_by_one() {
        let both = Flags::CQL_READY.with(Flags::SHUTTING_DOWN);
        assert!(both.has(Flags::CQL_READY) && both.has(Flags::SHUTTING_DOWN));
        assert_eq!(both.without(Flags::CQL_READY), Flags::SHUTTING_DOWN);
        assert!(!Flags::NONE.has(Flags::CQL_READY));
    }

    #[test]
    fn disk_usage_goes_beside_the_other_flags_and_over_the_wire() {
        use DiskUsage::{Full, NotAvailable, Spacious, Stuffed};
        let mut flags = Flags::CQL_READY;
        assert_eq!(flags.disk_usage(), NotAvailable);
        for usage in [Spacious, Full, Stuffed, NotAvailable, Full] {
            flags = flags.with_disk_usage(usage);
            assert_eq!((flags.disk_usage(), flags.has(Flags::CQL_READY)), (usage, true));
            assert!(!flags.has(Flags::SHUTTING_DOWN));
            let mut bytes = Vec::new();
            AppState { flags, ..AppState::default() }.encode(&mut bytes);
            assert_eq!(AppState::decode(&mut Reader::new(&bytes, "state")).unwrap().flags, flags);
        }
        assert_eq!(flags.without(Flags::CQL_READY).disk_usage(), Full);
    }
}
