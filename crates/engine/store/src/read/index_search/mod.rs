//! Searches of attached indexes over one view: the driver of crate `index`.
//!
//! Owns: the sources of a search in files and memtables, blocks of components, keys of rows in Data. Never: which keys
//! a search gives (crate `index`), when an index is built (`tables`), the check of a candidate (the caller).
//!
//! A component that turns out damaged is reported, and the search begins again with a source without index in its
//! place (INV-index-1).

mod estimates;
mod fetch;
pub(super) mod named_rows;
pub(super) mod vectors;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use data::TableShape;
use data::command::{KeyRange, Partitions, RingBound};
use index::{KeyWalk, Search, SearchPredicate, SearchRange, SearchStep};
use index_format::search::{IndexPredicate, IndexSearch, Matches, Matching};
use index_format::{
    FilteredWalk, IndexCursor, MemtableRows, RowKey, RowsReader, Source as IndexSource, TableIndex,
    TableIndexes, Visibility,
};
use sstable::{IndexComponent, RowKeys, SstableError};
use stdx::{FixedMap, Uuid};

use crate::error::StoreError;
use crate::files::chunk_cache::ChunkCache;
use crate::memtable::Memtable;
use crate::read::Reader;
use crate::read::driver::ITEMS_PER_LOOK;
use crate::read::sources::Source;
use crate::tables::built_indexes::IndexState;
use crate::tables::read_stats::ReadStats;
use crate::tables::table::{TableState, TableView};
use crate::tables::table_file::TableFile;

/// Components whose numbers in the chunk cache are kept at most; beyond it all are renumbered.
const NUMBERED_MAX: usize = 16_384;

/// Terms of a memtable that a filter tests before the shard is given up.
const TERMS_PER_LOOK: usize = 1024;

/// Numbers and counters of the searches of a shard.
pub(crate) struct IndexReads {
    /// Number of each component in the chunk cache, by the number of its file.
    numbers: RefCell<FixedMap<(u64, IndexComponent), u64>>,
    searches: telemetry::Counter,
    candidates: telemetry::Counter,
    unindexed: telemetry::Counter,
    blocks: telemetry::Counter,
    vector_searches: telemetry::Counter,
    vector_rows: telemetry::Counter,
}

impl IndexReads {
    pub(crate) fn new(telemetry: &telemetry::Shard) -> IndexReads {
        let counter = |name, help| telemetry.counter(name, help, &[]);
        IndexReads {
            numbers: RefCell::default(),
            searches: counter("index_searches_total", "searches of attached indexes"),
            candidates: counter("index_candidates_total", "keys that searches of indexes gave"),
            unindexed: counter(
                "index_unindexed_sources_total",
                "files and memtables that a search of an index had to read as a whole",
            ),
            blocks: counter("index_blocks_read_total", "blocks of indexes read from disk"),
            vector_searches: counter("vector_searches_total", "searches by a vector"),
            vector_rows: counter(
                "vector_search_rows_total",
                "rows whose vectors searches by a vector compared",
            ),
        }
    }

    /// The number of a component of a file in the chunk cache.
    fn number(&self, file: u64, component: IndexComponent, cache: &ChunkCache) -> u64 {
        let mut numbers = self.numbers.borrow_mut();
        if numbers.len() >= NUMBERED_MAX {
            // Blocks under the old numbers grow old in the cache.
            numbers.clear();
        }
        *numbers.entry((file, component)).or_insert_with(|| cache.next_file())
    }
}

/// A search that lost a source: it is to begin again.
pub(super) enum Stopped {
    /// A component is damaged, and is not used any more.
    Again,
    Failed(StoreError),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Stopped {
        Stopped::Failed(error)
    }
}

impl From<data::CursorError> for Stopped {
    fn from(error: data::CursorError) -> Stopped {
        Stopped::Failed(error.into())
    }
}

/// The walk of a source without index: position of the predicate, number of the source.
type Walk = (usize, u32, KeyWalk<Source>);

/// One search over one view.
pub(super) struct Searching<'r> {
    reader: &'r Reader,
    search: &'r IndexSearch,
    table: Rc<TableState>,
    shape: Rc<TableShape>,
    indexes: Rc<TableIndexes>,
    view: Rc<TableView>,
    range: SearchRange,
    /// Readers of keys, by slot of the file in the view.
    keys: Vec<Option<RowKeys>>,
    walks: Vec<Walk>,
    stats: ReadStats,
    /// SSTables among the sources, once for each predicate.
    files_searched: u64,
}

/// See [`Reader::search_index`].
pub(super) async fn search_view(
    reader: &Reader,
    search: &IndexSearch,
) -> Result<Matches, StoreError> {
    let mut searching = Searching::begin(reader, search).await?;
    let _running = reader.env.stages.read.run();
    reader.index_reads.searches.inc();
    let began = reader.env.rt.now();
    loop {
        let matches = match search.matching {
            Matching::EstimateOnly => searching.estimate().await,
            Matching::Driving(_) | Matching::Intersection => searching.run().await,
        };
        match matches {
            Ok(matches) => {
                let keys = matches.keys() as u64;
                reader.index_reads.candidates.add(keys);
                let took = reader.env.rt.now().since(began);
                searching.table.counters.note_search(took, searching.files_searched, keys);
                return Ok(matches);
            }
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::Again) => {}
        }
    }
}

impl<'r> Searching<'r> {
    /// Takes the view, and checks that the indexes of the search can be used.
    async fn begin(
        reader: &'r Reader,
        search: &'r IndexSearch,
    ) -> Result<Searching<'r>, StoreError> {
        let table = reader.files.opened_table(search.command.table).await?;
        let version = table.version();
        let missing = |index| StoreError::IndexNotAvailable { index };
        for predicate in &search.predicates {
            let state = reader.tables.index_state(table.id, predicate.index);
            if state != Some(IndexState::Built) {
                return Err(missing(predicate.index));
            }
        }
        let indexes = version.indexes.clone().ok_or(missing(Uuid::nil()))?;
        for predicate in &search.predicates {
            if indexes.get(predicate.index).is_some_and(|index| index.encoder().is_none()) {
                let what = "an index of vectors has no terms".to_owned();
                return Err(StoreError::Invalid(what));
            }
        }
        let (shape, view) = (version.shape.clone(), table.view());
        let keys = view.files.iter().map(|_| None).collect();
        let (range, walks, stats) = (range_of(search), Vec::new(), ReadStats::default());
        Ok(Searching {
            reader,
            search,
            table,
            shape,
            indexes,
            view,
            range,
            keys,
            walks,
            stats,
            files_searched: 0,
        })
    }

    async fn run(&mut self) -> Result<Matches, Stopped> {
        self.walks.clear();
        let count = self.search.predicates.len();
        let used = match self.search.matching {
            Matching::Driving(number) => number..number.saturating_add(1).min(count),
            Matching::Intersection | Matching::EstimateOnly => 0..count,
        };
        let mut predicates = Vec::new();
        for number in used {
            predicates.push(self.predicate(number).await?);
        }
        let files = self.view.files.iter().filter(|file| self.may_have(file)).count();
        self.files_searched = (files * predicates.len()) as u64;
        if predicates.is_empty() {
            return Err(StoreError::Invalid("a search without a predicate".to_owned()).into());
        }
        let (range, shape) = (self.range.clone(), self.shape.clone());
        let search = Search::new(predicates, range, shape, self.search.limits);
        let mut search = search.of_table(count, self.table_rows());
        let mut steps = 0;
        loop {
            match search.advance() {
                Ok(SearchStep::End(matches)) => return Ok(matches),
                Ok(SearchStep::Pause) => self.reader.env.rt.yield_if_due().await,
                Ok(SearchStep::Need(need)) => {
                    let fed = self.fetch(&need).await?;
                    search.feed(&need, fed);
                }
                Err(error) => return Err(self.defect(&error)),
            }
            steps += 1;
            if steps % ITEMS_PER_LOOK == 0 && self.reader.env.rt.is_yield_due() {
                self.reader.env.rt.yield_if_due().await;
            }
        }
    }

    /// The predicate and its compiled index.
    fn asked(&self, number: usize) -> Result<(&'r IndexPredicate, &TableIndex), StoreError> {
        let asked = self.search.predicates.get(number);
        let asked = asked.ok_or_else(|| StoreError::Invalid("no such predicate".to_owned()))?;
        let missing = StoreError::IndexNotAvailable { index: asked.index };
        Ok((asked, self.indexes.get(asked.index).ok_or(missing)?))
    }

    /// The sources of a predicate: each file and memtable of the view, by its slot; memtables after the files.
    async fn predicate(&self, number: usize) -> Result<SearchPredicate, StoreError> {
        let (asked, index) = self.asked(number)?;
        let mut sources = Vec::new();
        for (slot, file) in (0..).zip(&self.view.files) {
            if !self.may_have(file) {
                continue;
            }
            let open = file.reader.index(asked.index);
            let terms = open.and_then(|open| Some((open.terms()?.clone(), open.rows)));
            let Some((summary, rows)) = terms else {
                self.reader.index_reads.unindexed.inc();
                sources.push(IndexSource::unindexed(slot, rows_of(file)));
                continue;
            };
            let (ranges, filter) = (asked.ranges.clone(), asked.filter.clone());
            let cursor = IndexCursor::filtered(&summary, ranges, filter);
            let rows = RowsReader::new(rows);
            let visibility = self.visibility(file);
            sources.push(match visibility.is_all() {
                true => IndexSource::file(slot, cursor, rows),
                false => IndexSource::file_in_part(slot, cursor, rows, visibility),
            });
        }
        for (slot, memtable) in (self.first_memtable()..).zip(self.view.memtables()) {
            match self.memtable_rows(memtable, asked).await {
                Some(rows) => sources.push(IndexSource::memtable(slot, rows)),
                None if memtable.is_empty() => {}
                None => {
                    self.reader.index_reads.unindexed.inc();
                    sources.push(IndexSource::unindexed(slot, memtable.partition_count() as u64));
                }
            }
        }
        Ok(SearchPredicate { number, scope: index.part.scope(), sources })
    }

    /// Rows of a predicate in a memtable. `None`: the memtable has rows that are not in the index.
    async fn memtable_rows(
        &self,
        memtable: &Memtable,
        asked: &IndexPredicate,
    ) -> Option<MemtableRows<Arc<RowKey>>> {
        let Some(filter) = asked.filter.clone() else {
            return memtable.with_index(asked.index, |index| index.rows(asked.ranges.clone()));
        };
        let mut walk = FilteredWalk::new(asked.ranges.clone(), filter);
        loop {
            let walked =
                memtable.with_index(asked.index, |index| index.walk(&mut walk, TERMS_PER_LOOK));
            if walked? {
                return Some(walk.finish());
            }
            self.reader.env.rt.yield_if_due().await;
        }
    }

    fn may_have(&self, file: &TableFile) -> bool {
        let meta = file.reader.meta();
        let (first, last) = (self.range.first_token(), self.range.last_token());
        last >= meta.first_token()
            && first <= meta.last_token()
            && meta.may_intersect(&self.range.slices)
    }

    fn visibility(&self, file: &TableFile) -> Visibility {
        Visibility {
            map: self.reader.env.options.shard_map,
            table: file.table,
            shard: file.filter.map(|filter| filter.shard),
            hidden: file.hidden.clone(),
        }
    }

    /// Number of the first memtable among the sources.
    fn first_memtable(&self) -> u32 {
        u32::try_from(self.view.files.len()).unwrap_or(u32::MAX)
    }

    /// Rows of the table here, about.
    fn table_rows(&self) -> u64 {
        let files = self.view.files.iter().map(|file| rows_of(file));
        let memtables = self.view.memtables().map(|memtable| memtable.mutation_count());
        files.chain(memtables).fold(0, u64::saturating_add)
    }

    /// The memtable of a source. None: a file.
    fn memtable(&self, source: u32) -> Option<Rc<Memtable>> {
        let slot = source.checked_sub(self.first_memtable())?;
        self.view.memtables().nth(slot as usize).cloned()
    }

    /// The clustering of a row, if the table has clustering columns.
    fn clustering_of<'k>(&self, row: &'k RowKey) -> Option<&'k [u8]> {
        (!self.shape.clustering().is_empty()).then_some(&*row.values)
    }

    /// The file of a source. None: a memtable.
    fn file(&self, source: u32) -> Option<Rc<TableFile>> {
        self.view.files.get(source as usize).cloned()
    }

    /// Reports a component whose blocks contradict each other.
    fn defect(&self, error: &index_format::SetError) -> Stopped {
        let found = error.source_at.and_then(|(predicate, source)| {
            let (asked, _) = self.asked(predicate).ok()?;
            Some((self.file(source)?, IndexComponent::Entries(asked.index)))
        });
        let Some((file, component)) = found else {
            let bug = stdx::bug!("search of an index: {error}");
            return StoreError::Invalid(bug.to_string()).into();
        };
        let offset = match &error.error {
            index_format::IndexError::Checksum { offset, .. }
            | index_format::IndexError::Invalid { offset, .. } => *offset,
            _ => 0,
        };
        let path = file.reader.meta().file(sstable::Component::Attached(component.name()));
        let what = error.to_string();
        self.lose(&file, component, &SstableError::Corrupt { file: path, offset, what })
    }

    /// Stops using a component.
    fn lose(&self, file: &TableFile, component: IndexComponent, error: &SstableError) -> Stopped {
        self.reader.files.note_damaged_index(file, component, error);
        Stopped::Again
    }
}

/// Rows of a file, as its statistics have them.
fn rows_of(file: &TableFile) -> u64 {
    u64::try_from(file.reader.meta().statistics().stats.total_rows).unwrap_or(0)
}

/// Partitions and rows of a search.
fn range_of(search: &IndexSearch) -> SearchRange {
    let command = &search.command;
    let last = command.resume.as_ref().and_then(|resume| resume.clustering.clone());
    let (range, after_row) = match &command.partitions {
        Partitions::Key(key) => {
            let token = codec::token_of(key);
            let bound = |after| RingBound::Key { token, key: key.clone(), after };
            (KeyRange { start: bound(false), end: bound(true) }, last)
        }
        Partitions::Range(range) => {
            let is_inside = matches!(&range.start, RingBound::Key { after: false, .. });
            (range.clone(), last.filter(|_| is_inside))
        }
    };
    SearchRange { range, after_row, slices: command.slices.clone() }
}
