//! Replay of old commit-log segments into memtables, within their budget: see [`budget`].

mod budget;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use commitlog::{LogPosition, Next, Record, ReplaySummary, SegmentHeader, TruncationRef, Visitor};
use data::MutationRef;
use stdx::{FixedMap, TableId};

use crate::env::Env;
use crate::error::StoreError;
use crate::files::Files;
use crate::lifecycle::Lifecycle;
use crate::memtable::Memtable;
use crate::tables::registry::Tables;
use crate::tables::table::TableView;
use crate::write::Writer;
use budget::{Ahead, HeldFile};

/// Statistics of the replay, for the log line at start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Segments of earlier runs.
    pub segments: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Mutations in them, of all shards.
    pub mutations: u64,
    /// Mutations applied by this shard.
    pub applied: u64,
    /// Mutations of tables that do not exist any more.
    pub dropped_tables: u64,
    /// Mutations of this shard that `ReplayOptions::tables` left out.
    pub not_listed: u64,
    /// Mutations of this shard, and truncations, later than `ReplayOptions::until`.
    pub too_late: u64,
    /// Mutations applied, by `keyspace.table`, in the order of the names.
    pub tables: Vec<(String, u64)>,
    /// Tails lost in a crash: file, offset of the first byte dropped, bytes dropped.
    pub tails: Vec<(String, u64, u64)>,
    /// Inventories of the commit log that cannot be read.
    pub damaged_inventories: Vec<String>,
    /// Missing segments and damaged parts of the commit log that the operator gave up.
    pub lost: Vec<String>,
    /// SSTables that were written before the log was at its end, because memtables were at their budget.
    pub files: u64,
    /// Most bytes that memtables had.
    pub memtable_bytes_peak: usize,
    /// Leftovers of unfinished writes that were removed.
    pub removed_files: Vec<String>,
    /// Damaged small files in the directories of tables, with their treatment.
    pub damaged_marks: Vec<String>,
    /// Paths of TOC.txt that had been lost and were written again.
    pub rebuilt_tocs: Vec<String>,
    /// Data files of file sets that were written under other names or for other tables, and copied to
    /// where they are.
    pub moved_files: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Parts of the store that a replay uses.
pub(crate) struct Replay {
    pub(crate) env: Rc<Env>,
    pub(crate) tables: Rc<Tables>,
    pub(crate) files: Rc<Files>,
    pub(crate) writer: Rc<Writer>,
    pub(crate) lifecycle: Rc<Lifecycle>,
}

impl Replay {
    pub(crate) fn new(lifecycle: Rc<Lifecycle>) -> Replay {
        Replay {
            env: lifecycle.env.clone(),
            tables: lifecycle.tables.clone(),
            files: lifecycle.files.clone(),
            writer: lifecycle.writer.clone(),
            lifecycle,
        }
    }
}

/// A replay under way.
struct Replaying<'s> {
    store: &'s Replay,
    report: ReplayReport,
    counts: FixedMap<TableId, u64>,
    /// Files written from memtables so far.
    held: Vec<HeldFile>,
    /// Those of them that were truncated since.
    truncated: Vec<HeldFile>,
    /// Truncations known before the replay reaches them; `None`: not scanned yet.
    ahead: Option<Vec<Ahead>>,
    /// The last record.
    at: LogPosition,
    /// Tables that the metadata log never had: the first mutation of each, and how many.
    unknown: BTreeMap<TableId, (LogPosition, u64)>,
}

/// Most ids of unknown tables in an error.
const UNKNOWN_NAMED: usize = 10;

impl Visitor for Replaying<'_> {
    type Error = StoreError;

    fn record(
        &mut self,
        _: &SegmentHeader,
        at: LogPosition,
        record: Record<'_>,
    ) -> Result<Next, &'static str> {
        self.at = at;
        match record {
            Record::Mutation(bytes) => self.mutation(bytes)?,
            Record::Truncation(truncation) => self.truncation(&truncation),
            Record::Descriptor(_) | Record::Marker(_) => {}
        }
        Ok(match self.wants_room() {
            true => Next::Pause,
            false => Next::GoOn,
        })
    }

    async fn pause(&mut self) -> Result<(), StoreError> {
        self.make_room().await
    }
}

impl Replay {
    pub(crate) async fn replay(&self) -> Result<ReplayReport, StoreError> {
        let began = self.env.rt.now();
        let mut replaying = Replaying {
            store: self,
            report: ReplayReport::default(),
            counts: FixedMap::default(),
            held: Vec::new(),
            truncated: Vec::new(),
            ahead: None,
            at: LogPosition::default(),
            unknown: BTreeMap::new(),
        };
        let summary: ReplaySummary = self.env.log.replay(&mut replaying).await?;
        replaying.check_unknown()?;
        replaying.end().await?;
        let Replaying { mut report, counts, .. } = replaying;
        report.segments = summary.segments;
        report.bytes = summary.bytes;
        report.mutations = summary.mutations;
        report.tails = summary.tails;
        report.damaged_inventories = summary.damaged_inventories;
        report.lost = summary.lost;
        self.forget_emptied();
        let named = counts.iter().filter_map(|(id, count)| {
            let table = self.tables.table(*id)?.version();
            Some((format!("{}.{}", table.table.keyspace, table.table.name), *count))
        });
        report.tables = named.collect();
        report.tables.sort_unstable();
        report.took = self.env.rt.now().since(began);
        Ok(report)
    }

    /// A memtable that a replayed TRUNCATE emptied is never flushed, so it must not keep the old log.
    fn forget_emptied(&self) {
        for table in self.tables.all_tables() {
            let view = table.view();
            if view.active.is_replayed() && view.active.is_empty() {
                table.set_view(TableView::new(
                    Rc::new(Memtable::new()),
                    view.flushing.clone(),
                    view.files.clone(),
                ));
            }
        }
    }
}

impl Replaying<'_> {
    /// An acknowledged mutation that cannot be read is an error, not a warning: the start is refused.
    fn mutation(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        const UNREADABLE: &str = "its checksum is right, but it is no mutation of this version";
        let opened = MutationRef::open(bytes).ok_or(UNREADABLE)?;
        let token = codec::token_of(opened.key);
        let inner = self.store;
        if inner.env.options.shard_map.shard_of(opened.table, token) != inner.env.rt.shard() {
            return Ok(());
        }
        let Some(table) = self.store.tables.table(opened.table) else {
            self.note_unknown(opened.table);
            return Ok(());
        };
        let version = table.version();
        let clustering = version.table.clustering_count;
        let mutation = MutationRef::parse(bytes, clustering).ok_or(UNREADABLE)?;
        let options = &inner.env.options.replay;
        if !options.includes(&version.table) {
            self.report.not_listed += 1;
            return Ok(());
        }
        if options.is_after(&version.table, &mutation) {
            self.report.too_late += 1;
            return Ok(());
        }
        if !self.is_taken_away(opened.table, token) {
            self.store.writer.apply_to_memtable(&table, &mutation, token, None);
            table.view.borrow().active.set_replayed();
        }
        self.report.applied += 1;
        *self.counts.entry(opened.table).or_default() += 1;
        Ok(())
    }

    /// A mutation of a table missing in the schema. If the table was dropped, the mutation is
    /// discarded, else it is acknowledged data of a table whose definition the metadata log has
    /// lost.
    fn note_unknown(&mut self, table: TableId) {
        let options = &self.store.env.options;
        match &options.tables_ever {
            Some(ever) if !ever.contains(&table) => match options.replay.tables.is_empty() {
                true => self.unknown.entry(table).or_insert((self.at, 0)).1 += 1,
                false => self.report.not_listed += 1,
            },
            _ => self.report.dropped_tables += 1,
        }
    }

    /// # Errors
    /// `Corrupt`: mutations of tables that the metadata log does not know.
    fn check_unknown(&self) -> Result<(), StoreError> {
        let Some((first, _)) = self.unknown.values().min() else { return Ok(()) };
        let count: u64 = self.unknown.values().map(|(_, count)| count).sum();
        let named: Vec<String> =
            self.unknown.keys().take(UNKNOWN_NAMED).map(|id| id.0.to_string()).collect();
        let directory = &self.store.env.options.commitlog_directory;
        Err(StoreError::Corrupt {
            file: format!("{directory}/{}", first.segment.file_name()),
            what: format!(
                "it and later segments hold {count} writes to {} tables that the metadata log neither has nor \
                 dropped (ids {}): metadata/log is older than the commit log; restore a newer copy of it, \
                 or copy it from another member of the cluster. To give these writes up, move the segments \
                 of the commit log away",
                self.unknown.len(),
                named.join(", ")
            ),
        })
    }

    fn truncation(&mut self, truncation: &TruncationRef<'_>) {
        if self.store.is_too_late(truncation) {
            // A table is restored although it was emptied later.
            self.report.too_late += 1;
            return;
        }
        self.store.lifecycle.replay_truncation(truncation);
        if (truncation.shard, truncation.shards) == self.store.env.shard() {
            let id = truncation.table;
            self.truncated.extend(self.held.extract_if(.., |file| file.table.id == id));
        }
    }
}

impl Replay {
    fn is_too_late(&self, truncation: &TruncationRef<'_>) -> bool {
        let until = self.env.options.replay.until;
        until.is_some_and(|until| truncation.truncated_at.0 > until.micros)
    }
}
