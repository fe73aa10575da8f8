//! Compaction backlog of a shard, its speed, and the resulting share of the processor.
//!
//! Updated once a second. Its sources are the bytes of the inputs of all compactions that are due or
//! running, the rate at which they read inputs, and the number of SSTables per read. From these
//! `compact_plan::share` computes the share of the compaction group; a share set by the operator stays.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use compact_plan::Plan;
use compact_plan::share::{Debt, share};
use rt::Group;
use stdx::{Instant, TableId};

use crate::compact::Compactor;
use crate::compact::compaction::options_of;
use crate::tables::table::{TableState, TableVersion};

/// Name shown for a verification.
const VERIFY: &str = "Verify";
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Files of a table up to which all compactions that are due are planned for their bytes: planning takes
/// time on the shard, more with each file.
const PREVIEWED_MAX: usize = 200;
/// Weight of the latest second in the rate: half of it is from the last seven seconds.
const RATE_WEIGHT: f64 = 0.1;

/// Backlog of compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Backlog {
    /// Bytes of inputs that compactions which are due or under way have still to read, as on disk for
    /// those that are due and uncompressed for the others.
    pub bytes: u64,
    /// Uncompressed bytes of inputs that were read per second while compactions ran; 0.0 when none has.
    pub bytes_per_second: f64,
    /// Share of the processor, of 1000 that statements have.
    pub share: u32,
}

/// State of a table from which its debt was computed.
struct Seen {
    version: Rc<TableVersion>,
    flushes: u64,
    compactions: u64,
    files: usize,
    claimed: usize,
}

impl Seen {
    fn is(&self, other: &Seen) -> bool {
        Rc::ptr_eq(&self.version, &other.version)
            && (self.flushes, self.compactions, self.files, self.claimed)
                == (other.flushes, other.compactions, other.files, other.claimed)
    }
}

#[derive(Default)]
pub(crate) struct Control {
    backlog: Cell<Backlog>,
    /// A share set by the operator; `None`: it follows the debt.
    fixed: Cell<Option<u32>>,
    due: RefCell<BTreeMap<TableId, (Seen, u64)>>,
    last: Cell<Look>,
}

#[derive(Clone, Copy, Default)]
struct Look {
    at: Option<Instant>,
    read: u64,
    /// Reads of partitions, and SSTables that they read.
    reads: u64,
    sstables: u64,
}

impl Compactor {
    /// Backlog of compaction of this shard, at most a second old.
    pub fn backlog(&self) -> Backlog {
        self.control.backlog.get()
    }

    /// Gives compaction of this shard a share of the processor, 1 to 1000 (statements have 1000), or lets
    /// it follow the debt again.
    pub fn set_compaction_share(&self, fixed: Option<u32>) {
        self.control.fixed.set(fixed);
        self.look_at_backlog();
    }

    /// Looks, when the last look is a second ago.
    pub(crate) fn look_at_backlog_if_due(&self) {
        let last = self.control.last.get().at;
        if last.is_none_or(|last| self.env.rt.now().since(last) >= LOOK) {
            self.look_at_backlog();
        }
    }

    fn look_at_backlog(&self) {
        let control = &self.control;
        let tables = self.tables.all_tables();
        let due: u64 = tables.iter().map(|table| self.due_bytes(table)).sum();
        let mut running = self.files.slots.compactions();
        // Operations that only read cause no debt.
        running.retain(|c| c.kind != VERIFY);
        let left = running.iter().map(|c| c.total_bytes.saturating_sub(c.done_bytes)).sum();
        let read_by_running: u64 = running.iter().map(|c| c.done_bytes).sum();
        let now = Look {
            at: Some(self.env.rt.now()),
            read: self.files.slots.read_by_ended.get().wrapping_add(read_by_running),
            reads: tables.iter().map(|t| t.counters.partition_reads.get()).sum(),
            sstables: tables.iter().map(|t| t.counters.sstables_read.get()).sum(),
        };
        let last = control.last.replace(now);
        let mut backlog = control.backlog.get();
        backlog.bytes = due.saturating_add(left);
        let passed = match (last.at, now.at) {
            (Some(last), Some(now)) => now.since(last).as_secs_f64(),
            _ => 0.0,
        };
        // A table that was dropped takes its counts with it.
        let more = |now: u64, last: u64| now.saturating_sub(last) as f64;
        if passed > 0.0 {
            let read = more(now.read, last.read) / passed;
            if backlog.bytes_per_second == 0.0 {
                backlog.bytes_per_second = read;
            } else if read > 0.0 || !running.is_empty() {
                let weight = (RATE_WEIGHT * passed).min(1.0);
                backlog.bytes_per_second += (read - backlog.bytes_per_second) * weight;
            }
        }
        let reads = now.reads.saturating_sub(last.reads);
        let debt = Debt {
            due_bytes: backlog.bytes,
            memtable_bytes: self.env.options.memtable_bytes_max as u64,
            sstables_per_read: match reads {
                0 => 0.0,
                reads => more(now.sstables, last.sstables) / reads as f64,
            },
        };
        backlog.share = control.fixed.get().unwrap_or_else(|| share(&debt));
        control.backlog.set(backlog);
        self.env.rt.set_share(Group::Compaction, backlog.share);
    }

    /// Bytes on disk of the inputs of due compactions that do not run yet. Recomputed only after
    /// files were added or removed, or the options changed: compactions that fall due by time alone
    /// are noticed with the next change.
    fn due_bytes(&self, table: &TableState) -> u64 {
        let seen = Seen {
            version: table.version(),
            flushes: table.counters.flushes.get(),
            compactions: table.counters.compactions.get(),
            files: table.view().files.len(),
            claimed: table.claimed.borrow().len(),
        };
        if let Some((then, bytes)) = self.control.due.borrow().get(&table.id)
            && then.is(&seen)
        {
            return *bytes;
        }
        let bytes = match options_of(&seen.version) {
            // Fewer than two files are seldom due, and never by their number.
            Ok(options) if seen.files > 1 => {
                let infos = self.infos(table);
                let bytes = |plan: &Plan| -> u64 {
                    plan.inputs.iter().map(|generation| infos.bytes_of(*generation)).sum()
                };
                match seen.files <= PREVIEWED_MAX {
                    true => compact_plan::preview(options, &infos.state()).iter().map(bytes).sum(),
                    // Estimate: the size of the first one for each compaction that is due.
                    false => compact_plan::next(options, &infos.state()).map_or(0, |plan| {
                        bytes(&plan).saturating_mul(self.pending_compactions(table).max(1))
                    }),
                }
            }
            _ => 0,
        };
        let mut due = self.control.due.borrow_mut();
        due.insert(table.id, (seen, bytes));
        // Drops entries of dropped tables.
        if due.len() > 2 * self.tables.len() + 16 {
            due.clear();
        }
        bytes
    }
}
