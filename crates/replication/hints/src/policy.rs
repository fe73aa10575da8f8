//! Decisions, without effects: whether a hint is kept, delivered or dropped, when the next one may
//! be sent, and how a failed one is handled.

use std::time::Duration;

use internode::ErrorReply;
use messaging::MessagingError;
use stdx::{Instant, WallMicros};

use crate::format::HintRef;
use crate::settings::HintsSettings;
use crate::walk::expires_at;

/// Inputs of the decision whether a hint may be kept for a replica. Byte counts are of this shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Situation<'a> {
    /// True if the replica is a member, and not this node.
    pub is_peer: bool,
    /// Its datacenter.
    pub datacenter: &'a str,
    /// How long it has been down; `None`: it is up, or its state was never reported.
    pub down_for: Option<Duration>,
    /// Age of the oldest hint kept for it.
    pub oldest_age: Option<Duration>,
    /// Bytes kept for it, in files and in memory.
    pub host_bytes: u64,
    /// Bytes kept for all.
    pub total_bytes: u64,
    /// Bytes in memory.
    pub buffered_bytes: u64,
    /// The last write found no room.
    pub disk_full: bool,
    /// [`crate::Hints::close`] was called.
    pub closed: bool,
    /// Shards that share the bounds, at least 1.
    pub shards: u16,
}

/// Why no hint is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Hinted handoff is off.
    Disabled,
    /// Hints are off for the replica's datacenter.
    DatacenterDisabled,
    /// The replica is no member, or this node itself.
    NoPeer,
    /// It has been down, or the oldest hint has waited, for longer than the window.
    PastWindow,
    /// "max_hints_size_per_host" is reached.
    HostFull,
    /// [`HintsSettings::total_bytes_max`] is reached.
    TotalFull,
    /// [`HintsSettings::buffer_bytes_max`] is reached: the disk is slower than hints come.
    BufferFull,
    /// The disk is full.
    DiskFull,
    /// The mutation does not fit into a file.
    TooLarge,
    /// Its table is gone, or has `gc_grace_seconds` 0: it could never be delivered.
    Pointless,
    /// The node is stopping.
    Closed,
}

impl Refusal {
    /// All of them, for counters.
    pub const ALL: [Refusal; 11] = [
        Refusal::Disabled,
        Refusal::DatacenterDisabled,
        Refusal::NoPeer,
        Refusal::PastWindow,
        Refusal::HostFull,
        Refusal::TotalFull,
        Refusal::BufferFull,
        Refusal::DiskFull,
        Refusal::TooLarge,
        Refusal::Pointless,
        Refusal::Closed,
    ];

    /// The counter's label.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Disabled => "disabled",
            Refusal::DatacenterDisabled => "datacenter_disabled",
            Refusal::NoPeer => "no_peer",
            Refusal::PastWindow => "past_window",
            Refusal::HostFull => "host_full",
            Refusal::TotalFull => "total_full",
            Refusal::BufferFull => "buffer_full",
            Refusal::DiskFull => "disk_full",
            Refusal::TooLarge => "too_large",
            Refusal::Pointless => "pointless",
            Refusal::Closed => "closed",
        }
    }
}

/// Decides whether a hint may be kept. The order of the reasons is Cassandra's
/// (`StorageProxy.shouldHint`); ours follow.
///
/// # Errors
/// The first reason against it.
pub fn may_hint(settings: &HintsSettings, now: &Situation<'_>) -> Result<(), Refusal> {
    let shards = u64::from(now.shards.max(1));
    let share = |bytes: u64| bytes / shards;
    let checks = [
        (now.closed, Refusal::Closed),
        (!settings.enabled, Refusal::Disabled),
        (!now.is_peer, Refusal::NoPeer),
        (settings.disabled_datacenters.contains(now.datacenter), Refusal::DatacenterDisabled),
        (now.down_for.is_some_and(|d| d > settings.window), Refusal::PastWindow),
        (
            settings.window_persistent && now.oldest_age.is_some_and(|a| a > settings.window),
            Refusal::PastWindow,
        ),
        (
            settings.host_bytes_max > 0 && now.host_bytes >= share(settings.host_bytes_max),
            Refusal::HostFull,
        ),
        (now.total_bytes >= share(settings.total_bytes_max), Refusal::TotalFull),
        (now.disk_full, Refusal::DiskFull),
        (now.buffered_bytes >= share(settings.buffer_bytes_max), Refusal::BufferFull),
    ];
    match checks.iter().find(|(holds, _)| *holds) {
        Some((_, refusal)) => Err(*refusal),
        None => Ok(()),
    }
}

/// Current facts of a hint's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Its `gc_grace_seconds`.
    pub gc_grace_seconds: u32,
    /// When it was truncated last.
    pub truncated_at: Option<WallMicros>,
}

/// Why a hint is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dropped {
    /// Older than the smaller of its table's `gc_grace_seconds` then and now.
    Expired,
    /// Its table is gone.
    NoTable,
    /// Its table was truncated after it.
    Truncated,
    /// Its bytes are no mutation of a known version.
    Unreadable,
    /// The replica refused it for good.
    Refused,
    /// Its replica left the cluster.
    NoReplica,
    /// An operator removed it.
    Operator,
}

impl Dropped {
    /// All of them, for counters.
    pub const ALL: [Dropped; 7] = [
        Dropped::Expired,
        Dropped::NoTable,
        Dropped::Truncated,
        Dropped::Unreadable,
        Dropped::Refused,
        Dropped::NoReplica,
        Dropped::Operator,
    ];

    /// The counter's label.
    pub fn name(self) -> &'static str {
        match self {
            Dropped::Expired => "expired",
            Dropped::NoTable => "no_table",
            Dropped::Truncated => "truncated",
            Dropped::Unreadable => "unreadable",
            Dropped::Refused => "refused",
            Dropped::NoReplica => "no_replica",
            Dropped::Operator => "operator",
        }
    }
}

/// Decides whether a hint is still worth delivering. `table` is `None` if the table does not exist
/// any more.
///
/// # Errors
/// The reason for dropping the hint.
pub fn deliverable(
    hint: &HintRef<'_>,
    table: Option<TableFacts>,
    now: WallMicros,
) -> Result<(), Dropped> {
    let table = table.ok_or(Dropped::NoTable)?;
    if expires_at(hint, table.gc_grace_seconds) <= now {
        return Err(Dropped::Expired);
    }
    if table.truncated_at.is_some_and(|at| hint.written_at <= at) {
        return Err(Dropped::Truncated);
    }
    Ok(())
}

/// Consequence of a failed delivery of one hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Try again later, from this hint on.
    Later,
    /// The replica will never take it.
    Never,
}

/// Sorts the errors of one delivery.
pub fn failure(error: &MessagingError) -> Failure {
    match error {
        // "Invalid" is about the bytes, "too large" about their number: neither changes.
        MessagingError::Remote(ErrorReply::Invalid(_)) | MessagingError::TooLarge { .. } => {
            Failure::Never
        }
        // An unknown table, here known, is one that the replica has not heard of yet.
        _ => Failure::Later,
    }
}

/// Bytes per second of one shard's delivery to one replica; 0 = no bound. `members` counts this
/// node and the replica. All other nodes may deliver to the replica at the same time, each with all
/// its shards.
pub fn rate(settings: &HintsSettings, members: usize, shards: u16) -> u64 {
    if settings.throttle_bytes_per_second == 0 {
        return 0;
    }
    let others = u64::try_from(members.saturating_sub(1).max(1)).unwrap_or(u64::MAX);
    let parts = others.saturating_mul(u64::from(shards.max(1)));
    (settings.throttle_bytes_per_second / parts).max(1)
}

/// Spreads bytes over time: each send delays the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pace {
    free_at: Instant,
}

impl Pace {
    /// When the next hint may be sent.
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// So many bytes are sent now, at `rate` bytes per second (0 = no bound).
    pub fn spend(&mut self, now: Instant, bytes: u64, rate: u64) {
        if rate == 0 {
            return;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now) + takes;
    }
}
