//! Numbers of a table.

use stdx::TableId;

use crate::store::Store;
use crate::tables::table::TableStats;
use crate::tables::table_file::TableFile;

impl Store {
    /// Numbers of a table; zeros for unknown ones.
    pub fn table_stats(&self, id: TableId) -> TableStats {
        let Some(table) = self.rooms.tables.table(id) else { return TableStats::default() };
        let view = table.view();
        let counters = &table.counters;
        let of_files = |of: fn(&TableFile) -> u64| view.files.iter().map(|f| of(f)).sum::<u64>();
        let (mut partition_sizes, mut cell_counts) = (Vec::new(), Vec::new());
        let mut levels: Vec<(u64, u64)> = Vec::new();
        for file in &view.files {
            let stats = &file.reader.meta().statistics().stats;
            let level = usize::try_from(stats.level).unwrap_or(0);
            if levels.len() <= level {
                levels.resize(level + 1, (0, 0));
            }
            if let Some((files, bytes)) = levels.get_mut(level) {
                *files += 1;
                *bytes = bytes.saturating_add(file.reader.meta().data_file_length());
            }
            add_filled(&mut partition_sizes, &stats.partition_sizes.buckets);
            add_filled(&mut cell_counts, &stats.cells_per_partition.buckets);
        }
        let spans = view.files.iter().map(|file| {
            let stats = &file.reader.meta().statistics().stats;
            let span = stats.max_timestamp.0.saturating_sub(stats.min_timestamp.0);
            u64::try_from(span).unwrap_or(0)
        });
        let own = self.rooms.files.directories.directory_of(&table.version().table);
        let metas = || view.files.iter().map(|f| f.reader.meta());
        let compressed = metas().filter(|meta| meta.compression().is_some());
        let compressed_bytes = compressed.fold((0, 0), |(disk, length): (u64, u64), meta| {
            (disk + meta.data_file_length(), length + meta.data_length())
        });
        let gc_before = table.gc_before(self.rooms.env.rt.wall().seconds());
        let droppable: f64 =
            metas().map(|meta| meta.statistics().stats.tombstones.sum(gc_before.0)).sum();
        let cells = metas().map(|meta| u64::try_from(meta.statistics().stats.total_columns_set));
        TableStats {
            filter_bytes: of_files(|f| f.reader.meta().filter_bytes() as u64),
            filter_file_bytes: of_files(|f| f.reader.meta().filter_file_length() as u64),
            summary_bytes: of_files(|f| f.reader.meta().summary_bytes() as u64),
            offsets_bytes: of_files(|f| f.reader.meta().offsets_bytes() as u64),
            compressed_bytes,
            old_sstables: metas()
                .filter(|meta| meta.version() != self.rooms.env.options.sstable_version)
                .count() as u64,
            misplaced_sstables: view
                .files
                .iter()
                .filter(|f| !self.rooms.files.is_placed(&own, f))
                .count() as u64,
            pending_flushes: view.flushing.len() as u64,
            filter_misses: table.filter_misses(),
            sstables_read: counters.sstables_read.get(),
            // Not negative, and no more than there are cells.
            droppable_cells: (droppable as u64, cells.map(|n| n.unwrap_or(0)).sum()),
            sstable_bytes_max: metas().map(|meta| meta.disk_bytes()).max().unwrap_or(0),
            sstable_span_micros_max: spans.max().unwrap_or(0),
            levels,
            read_latency: counters.read_latency.snapshot(),
            write_latency: counters.write_latency.snapshot(),
            sstables_per_read: counters.sstables_per_read.snapshot(),
            scan_latency: counters.scan_latency.snapshot(),
            rows_per_read: counters.rows_per_read.snapshot(),
            tombstones_per_read: counters.tombstones_per_read.snapshot(),
            index_latency: counters.index_latency.snapshot(),
            index_files_searched: counters.index_files_searched.get(),
            index_candidates: counters.index_candidates.get(),
            partition_sizes,
            cell_counts,
            memtable_bytes: view.memtables().map(|m| m.bytes() as u64).sum(),
            unflushable_bytes: table.refused_bytes.get() as u64,
            memtable_partitions: view.memtables().map(|m| m.partition_count() as u64).sum(),
            memtable_mutations: view.memtables().map(|m| m.mutation_count()).sum(),
            flushes: counters.flushes.get(),
            compactions: counters.compactions.get(),
            reads: counters.reads.get(),
            writes: counters.writes.get(),
            tombstones_scanned: counters.tombstones.get(),
            pending_compactions: self.rooms.compactor.pending_compactions(&table),
            sstables: view.files.len() as u64,
            disk_bytes: of_files(|f| f.reader.meta().disk_bytes()),
            uncompressed_bytes: of_files(|f| f.reader.meta().data_length()),
            repaired_bytes: of_files(|f| crate::tables::repair_views::repaired_bytes(f).0),
            pending_repair_bytes: of_files(|f| crate::tables::repair_views::repaired_bytes(f).1),
            partitions_estimate: of_files(|f| f.reader.meta().estimated_partitions()),
            metadata_bytes: of_files(|f| f.reader.meta().memory_bytes() as u64),
        }
    }
}

/// Adds the buckets of a histogram up to its last one that is not empty.
fn add_filled(all: &mut Vec<u64>, buckets: &[u64]) {
    let used = buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    telemetry::add_buckets(all, buckets.get(..used).unwrap_or_default());
}
