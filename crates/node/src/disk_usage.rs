//! Disk usage of the data: measured on shard 0, sent to every shard and to the other nodes.
//!
//! Owns: the share of the data disks that is used, the node's state that follows from its limits
//! (`data_disk_usage_*`), the lines in the log. Never: refuses a write (`cql-server` does, for the
//! ranges of every node that reports a full disk).
//!
//! Used: all files below the data directories, snapshots too, and the memtables, which will become
//! files. Total: the files and the free space on their disks, each disk once, at most
//! `data_disk_usage_max_disk_size`. Without limits nothing is measured and nothing is sent.
//! Removing the limits while the node runs resets the state too, where Cassandra keeps sending the
//! last one. Source: `DiskUsageMonitor`, `DiskUsageBroadcaster`, `Guardrails.localDataDiskUsage`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use conf::Options;
use cql_plan::guardrails::DiskPressure;
use cql_server::CqlServer;
use gossip::DiskUsage;
use liveness::Liveness;
use rt::sync::Notify;
use rt::{Fs, Gate, Group, Mesh, Rt};
use stdx::{HostId, Instant, IoError, IoErrorKind, ShardId};
use store::Store;

/// Interval of the checks: `cassandra.disk_usage.monitor_interval_ms`.
const PERIOD: Duration = Duration::from_secs(30);
/// Interval between log lines of one kind: `cassandra.disk_usage.notify_interval_ms`.
const NOTIFY_INTERVAL: Duration = Duration::from_secs(30 * 60);

/// Sends the node's state to a shard, which answers with the bytes of its memtables.
pub(crate) type DiskMesh = Mesh<DiskUsage, u64>;

/// A percentage beyond which there is a warning, and one beyond which writes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    warn: Option<i64>,
    fail: Option<i64>,
}

impl Limits {
    fn of(options: &Options) -> Limits {
        let limit = |percent: i64| (percent > 0).then_some(percent);
        Limits {
            warn: limit(options.data_disk_usage_percentage_warn_threshold),
            fail: limit(options.data_disk_usage_percentage_fail_threshold),
        }
    }

    fn state(self, percent: i64) -> DiskUsage {
        let beyond = |limit: Option<i64>| limit.is_some_and(|limit| percent > limit);
        match self {
            Limits { warn: None, fail: None } => DiskUsage::NotAvailable,
            Limits { fail, .. } if beyond(fail) => DiskUsage::Full,
            Limits { warn, .. } if beyond(warn) => DiskUsage::Stuffed,
            _ => DiskUsage::Spacious,
        }
    }

    /// Returns the log line for a state, and true if it is an error.
    fn message(self, state: DiskUsage, percent: i64) -> Option<(bool, String)> {
        let (limit, is_error) = match state {
            DiskUsage::Full => (self.fail?, true),
            DiskUsage::Stuffed => (self.warn?, false),
            DiskUsage::Spacious | DiskUsage::NotAvailable => return None,
        };
        let (name, kind, more) = match is_error {
            true => ("Full", "failure", ", will stop accepting writes"),
            false => ("Stuffed", "warning", ""),
        };
        let text = format!(
            "Guardrail local_data_disk_usage violated: Local data disk usage {percent}%({name}) \
             exceeds {kind} threshold of {limit}%{more}"
        );
        Some((is_error, text))
    }
}

/// Returns `used` as a percentage of `total` bytes, rounded up.
fn percent(used: u64, total: u64) -> i64 {
    let percent = (u128::from(used) * 100).div_ceil(u128::from(total.max(1)));
    i64::try_from(percent).unwrap_or(i64::MAX)
}

/// Returns the bytes of the files in a directory and below it. Files that are removed meanwhile
/// count 0.
async fn bytes_below(fs: &Fs, directory: &str) -> Result<u64, IoError> {
    let (mut bytes, mut left) = (0_u64, vec![directory.trim_end_matches('/').to_owned()]);
    while let Some(path) = left.pop() {
        let entries = match fs.read_dir(&path).await {
            Ok(entries) => entries,
            Err(error) if error.kind == IoErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            match entry.is_dir {
                true => left.push(format!("{path}/{}", entry.name)),
                false => bytes = bytes.saturating_add(entry.len),
            }
        }
    }
    Ok(bytes)
}

/// Returns the bytes in the data directories and the free bytes on their disks.
async fn used_and_free(fs: &Fs, directories: &[String]) -> Result<(u64, u64), IoError> {
    let (mut used, mut free, mut seen) = (0_u64, 0_u64, BTreeSet::new());
    for directory in directories {
        used = used.saturating_add(bytes_below(fs, directory).await?);
        let space = fs.disk_space(directory).await?;
        if seen.insert(space.device) {
            free = free.saturating_add(space.free_bytes);
        }
    }
    Ok((used, free))
}

/// Checks that the disks of the data are as large as `data_disk_usage_max_disk_size`.
///
/// # Errors
/// They are smaller, in Cassandra's words; their size cannot be read.
pub(crate) async fn check_max_size(fs: &Fs, options: &Options) -> Result<(), String> {
    let Some(max) = options.data_disk_usage_max_disk_size else { return Ok(()) };
    let (mut total, mut seen) = (0_u64, BTreeSet::new());
    for directory in options.data_directories() {
        let space = fs.disk_space(&directory).await.map_err(|error| error.to_string())?;
        if seen.insert(space.device) {
            total = total.saturating_add(space.total_bytes);
        }
    }
    if total >= max.0 {
        return Ok(());
    }
    Err(format!(
        "Invalid value for data_disk_usage_max_disk_size: {} specified, but only {} are actually \
         available on disk",
        options.render("data_disk_usage_max_disk_size").unwrap_or_default(),
        admin::nodetool::file_size(total)
    ))
}

/// Makes a shard apply the node's state and report its memtables.
pub(crate) fn serve(rt: &Rt, mesh: &DiskMesh, server: &CqlServer, store: &Store, host: HostId) {
    let (server, store) = (server.clone(), store.clone());
    mesh.serve(rt, move |usage, reply| {
        server.note_disk_usage(host, pressure(usage));
        reply.send(store.memory_bytes().0 as u64);
    });
}

/// Returns the effect of a node's state on requests.
pub(crate) fn pressure(usage: DiskUsage) -> Option<DiskPressure> {
    match usage {
        DiskUsage::Full => Some(DiskPressure::Full),
        DiskUsage::Stuffed => Some(DiskPressure::Stuffed),
        DiskUsage::Spacious | DiskUsage::NotAvailable => None,
    }
}

/// The settings in force on shard 0, and the notification of changed limits.
pub(crate) struct LiveLimits {
    pub(crate) options: Rc<RefCell<Options>>,
    pub(crate) changed: Rc<Notify>,
}

/// Periodic check of the disks; on shard 0.
pub(crate) struct DiskMonitor {
    pub(crate) rt: Rt,
    /// The settings in force.
    pub(crate) live: Rc<RefCell<Options>>,
    pub(crate) mesh: Arc<DiskMesh>,
    /// `None`: the node stands alone.
    pub(crate) liveness: Option<Liveness>,
    /// Signals changed limits: check immediately.
    pub(crate) changed: Rc<Notify>,
    state: Cell<DiskUsage>,
    warned: Cell<Option<Instant>>,
    failed: Cell<Option<Instant>>,
}

impl DiskMonitor {
    pub(crate) fn new(
        rt: &Rt,
        limits: LiveLimits,
        mesh: Arc<DiskMesh>,
        liveness: Option<Liveness>,
    ) -> DiskMonitor {
        let LiveLimits { options: live, changed } = limits;
        DiskMonitor {
            rt: rt.clone(),
            live,
            mesh,
            liveness,
            changed,
            state: Cell::default(),
            warned: Cell::default(),
            failed: Cell::default(),
        }
    }

    /// Checks the disks periodically until the node stops.
    pub(crate) fn start(self, gate: &Gate) {
        let rt = self.rt.clone();
        let task = async move {
            while !self.rt.is_stop_requested() {
                self.look().await;
                self.pause().await;
            }
        };
        // A closed gate: the node stops.
        let _ = gate.spawn(&rt, Group::Admin, "disk-usage", task);
    }

    /// Waits until the next check is due, limits are changed or the node stops.
    async fn pause(&self) {
        let next = self.rt.now() + PERIOD;
        let mut stopped = pin!(self.rt.stop_requested());
        let mut changed = pin!(self.changed.notified());
        let either = poll_fn(|cx| {
            let is_over = stopped.as_mut().poll(cx).is_ready();
            if is_over || changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            Poll::Pending
        });
        // The caller checks both ends.
        let _ = self.rt.timeout(next, either).await;
    }

    async fn look(&self) {
        let limits = Limits::of(&self.live.borrow());
        if limits.state(0) == DiskUsage::NotAvailable {
            return self.come_to(DiskUsage::NotAvailable).await;
        }
        match self.percent().await {
            Ok(percent) => {
                let state = limits.state(percent);
                self.log(limits.message(state, percent));
                self.come_to(state).await;
            }
            Err(error) => tracing::warn!(
                %error,
                "cannot determine the free space of the data disks"
            ),
        }
    }

    async fn come_to(&self, state: DiskUsage) {
        if self.state.replace(state) == state {
            return;
        }
        // An error of a stopped shard is ignored.
        self.tell_shards().await;
        if let Some(liveness) = &self.liveness {
            liveness.set_disk_usage(state);
        }
    }

    /// Sends the state to every shard; returns the bytes of all memtables.
    async fn tell_shards(&self) -> u64 {
        let mut bytes = 0_u64;
        for shard in (0..self.rt.shard_count()).map(ShardId) {
            let told = self.mesh.call(&self.rt, shard, self.state.get()).await;
            bytes = bytes.saturating_add(told.unwrap_or(0));
        }
        bytes
    }

    async fn percent(&self) -> Result<i64, IoError> {
        let (directories, max) = {
            let live = self.live.borrow();
            (live.data_directories(), live.data_disk_usage_max_disk_size)
        };
        let (used, free) = used_and_free(&self.rt.fs(), &directories).await?;
        let total = used.saturating_add(free);
        let total = max.map_or(total, |max| total.min(max.0));
        Ok(percent(used.saturating_add(self.tell_shards().await), total))
    }

    fn log(&self, message: Option<(bool, String)>) {
        let Some((is_error, text)) = message else { return };
        let last = if is_error { &self.failed } else { &self.warned };
        let now = self.rt.now();
        if last.get().is_some_and(|last| now < last + NOTIFY_INTERVAL) {
            return;
        }
        last.set(Some(now));
        match is_error {
            true => tracing::error!("{text}"),
            false => tracing::warn!("{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_begins_beyond_its_limit_and_parts_of_a_percent_count() {
        use DiskUsage::{Full, NotAvailable, Spacious, Stuffed};
        let of = |warn, fail, percent| Limits { warn, fail }.state(percent);
        for (warn, fail, percent, state) in [
            (None, None, 100, NotAvailable),
            (Some(70), Some(80), 70, Spacious),
            (Some(70), Some(80), 71, Stuffed),
            (Some(70), Some(80), 80, Stuffed),
            (Some(70), Some(80), 81, Full),
            (Some(70), None, 100, Stuffed),
            (None, Some(80), 80, Spacious),
            (None, Some(80), 81, Full),
        ] {
            assert_eq!(of(warn, fail, percent), state, "{warn:?} {fail:?} {percent}");
        }
        assert_eq!((percent(0, 10), percent(7, 10), percent(701, 1000)), (0, 70, 71));
        assert_eq!((percent(3, 2), percent(5, 0)), (150, 500));
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
    }

    #[test]
    fn the_log_has_cassandras_words() {
        let limits = Limits { warn: Some(70), fail: Some(80) };
        let said = |percent| limits.message(limits.state(percent), percent);
        assert_eq!(said(70), None);
        let warned = "Guardrail local_data_disk_usage violated: Local data disk usage \
                      71%(Stuffed) exceeds warning threshold of 70%";
        assert_eq!(said(71), Some((false, warned.to_owned())));
        let failed = "Guardrail local_data_disk_usage violated: Local data disk usage 81%(Full) \
                      exceeds failure threshold of 80%, will stop accepting writes";
        assert_eq!(said(81), Some((true, failed.to_owned())));
    }
}
